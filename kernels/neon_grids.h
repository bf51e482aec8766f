/* The codebook types opened into vectors of bytes: entries are fetched eight (IQ3: four) bytes at a
 * time, signs are set where a bit is. For neon_*.c only. */
#ifndef SL_NEON_GRIDS_H
#define SL_NEON_GRIDS_H

#include "iq_grids.h"
#include "neon_product.h"

SL_INLINE uint32_t neon_load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Sixteen bytes of two entries, negative where bits of sign are set. */
SL_INLINE int8x16_t neon_signed(uint64_t first, uint64_t second, uint32_t sign)
{
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    const uint8x16_t bytes = vcombine_u8(vdup_n_u8((uint8_t)sign), vdup_n_u8((uint8_t)(sign >> 8)));
    const int8x16_t minus = vreinterpretq_s8_u8(vtstq_u8(bytes, bit));
    const int8x16_t v = vreinterpretq_s8_u64(vcombine_u64(vdup_n_u64(first), vdup_n_u64(second)));
    return vsubq_s8(veorq_s8(v, minus), minus);
}

/* Four times seven bits to a byte each; the eighth makes their number even. */
SL_INLINE uint32_t neon_signs(uint32_t word)
{
    const uint32_t s =
        (word & 0x7f) | (word << 1 & 0x7f00) | (word << 2 & 0x7f0000) | (word << 3 & 0x7f000000);
    uint32_t odd = s ^ s >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return s | (odd & 0x01010101u) << 7;
}

SL_INLINE void neon_open_iq2_xxs(const uint8_t *b, int half, int8x16_t q[8])
{
    for (int j = 0; j < 4; j++) {
        const uint8_t *p = b + 2 + 32 * half + 8 * j;
        const uint32_t signs = neon_signs(neon_load_u32(p + 4));
        q[2 * j] = neon_signed(sl_grid_iq2_xxs[p[0]], sl_grid_iq2_xxs[p[1]], signs);
        q[2 * j + 1] = neon_signed(sl_grid_iq2_xxs[p[2]], sl_grid_iq2_xxs[p[3]], signs >> 16);
    }
}

SL_INLINE void neon_open_iq2_xs(const uint8_t *b, int half, int8x16_t q[8])
{
    for (int k = 0; k < 8; k++) {
        const uint32_t words = neon_load_u32(b + 2 + 32 * half + 4 * k);
        const uint32_t signs = neon_signs((words >> 9 & 127) | words >> 25 << 7);
        q[k] = neon_signed(sl_grid_iq2_xs[words & 511], sl_grid_iq2_xs[words >> 16 & 511], signs);
    }
}

SL_INLINE void neon_open_iq2_s(const uint8_t *b, int half, int8x16_t q[8])
{
    const uint8_t *low = b + 2 + 16 * half, *high = b + 66 + 4 * half;
    for (int k = 0; k < 8; k++) {
        const uint32_t top = (uint32_t)high[k / 2] >> k % 2 * 4;
        q[k] = neon_signed(sl_grid_iq2_s[low[2 * k] | (top & 3) << 8],
                           sl_grid_iq2_s[low[2 * k + 1] | (top >> 2 & 3) << 8],
                           sl_load_u16(low + 32 + 2 * k));
    }
}

SL_INLINE uint64_t neon_two(uint32_t first, uint32_t second)
{
    return first | (uint64_t)second << 32;
}

SL_INLINE void neon_open_iq3_xxs(const uint8_t *b, int half, int8x16_t q[8])
{
    const uint32_t *grid = sl_grid_iq3_xxs;
    for (int j = 0; j < 4; j++) {
        const uint8_t *p = b + 2 + 32 * half + 8 * j;
        const uint32_t signs = neon_signs(neon_load_u32(b + 66 + 16 * half + 4 * j));
        q[2 * j] =
            neon_signed(neon_two(grid[p[0]], grid[p[1]]), neon_two(grid[p[2]], grid[p[3]]), signs);
        q[2 * j + 1] = neon_signed(neon_two(grid[p[4]], grid[p[5]]),
                                   neon_two(grid[p[6]], grid[p[7]]), signs >> 16);
    }
}

SL_INLINE void neon_open_iq3_s(const uint8_t *b, int half, int8x16_t q[8])
{
    const uint32_t *grid = sl_grid_iq3_s;
    const uint8_t *p = b + 2 + 32 * half, *high = b + 66 + 4 * half, *sign = b + 74 + 16 * half;
    for (int k = 0; k < 8; k++, p += 4) {
        const uint32_t top = (uint32_t)high[k / 2] << 8 >> k % 2 * 4;
        q[k] = neon_signed(neon_two(grid[p[0] | (top & 256)], grid[p[1] | (top >> 1 & 256)]),
                           neon_two(grid[p[2] | (top >> 2 & 256)], grid[p[3] | (top >> 3 & 256)]),
                           sl_load_u16(sign + 2 * k));
    }
}

/* The table has 8 * (grid value + 1); the delta is 1 or -1. */
SL_INLINE int8x16_t neon_eighths(uint64_t first, uint64_t second, int8_t a, int8_t b)
{
    const int8x16_t v = vreinterpretq_s8_u64(vcombine_u64(vdup_n_u64(first), vdup_n_u64(second)));
    return vaddq_s8(v, vcombine_s8(vdup_n_s8(a), vdup_n_s8(b)));
}

SL_INLINE void neon_open_iq1_s(const uint8_t *b, int half, int8x16_t q[8])
{
    for (int j = 0; j < 4; j++) {
        const uint8_t *p = b + 2 + 16 * half + 4 * j;
        const uint32_t high = sl_load_u16(b + 34 + 8 * half + 2 * j);
        const int8_t add = high >> 15 ? -9 : -7;
        q[2 * j] = neon_eighths(sl_grid_iq1[p[0] | (high & 7) << 8],
                                sl_grid_iq1[p[1] | (high >> 3 & 7) << 8], add, add);
        q[2 * j + 1] = neon_eighths(sl_grid_iq1[p[2] | (high >> 6 & 7) << 8],
                                    sl_grid_iq1[p[3] | (high >> 9 & 7) << 8], add, add);
    }
}

SL_INLINE void neon_open_iq1_m(const uint8_t *b, int half, int8x16_t q[8])
{
    const uint8_t *p = b + 16 * half, *high = b + 32 + 8 * half;
    for (int k = 0; k < 8; k++) {
        const uint32_t h = high[k];
        q[k] = neon_eighths(sl_grid_iq1[p[2 * k] | (h & 7) << 8],
                            sl_grid_iq1[p[2 * k + 1] | (h >> 4 & 7) << 8], h & 8 ? -9 : -7,
                            h & 128 ? -9 : -7);
    }
}

/* ---- Scales: odd numbers 2 s + 1 ---- */

SL_INLINE int16x8_t neon_odd(const int16_t *s)
{
    return vaddq_s16(vshlq_n_s16(vld1q_s16(s), 1), vdupq_n_s16(1));
}

/* The top nibbles of eight words, stride bytes apart. */
SL_INLINE int16x8_t neon_top_scales(const uint8_t *p, size_t stride)
{
    int16_t s[8];
    for (size_t j = 0; j < 8; j++)
        s[j] = p[j * stride + 3] >> 4;
    return neon_odd(s);
}

SL_INLINE void neon_scales_iq2_xxs(const uint8_t *b, int16x8_t scale[2], int16x8_t min[2])
{
    (void)min;
    scale[0] = neon_top_scales(b + 6, 8);
}

SL_INLINE void neon_scales_iq3_xxs(const uint8_t *b, int16x8_t scale[2], int16x8_t min[2])
{
    (void)min;
    scale[0] = neon_top_scales(b + 66, 4);
}

/* A nibble per 16 values. */
SL_INLINE void neon_scales_nibbles(const uint8_t *p, int16x8_t scale[2])
{
    int16_t s[16];
    neon_nibbles(p, 8, s);
    scale[0] = neon_odd(s);
    scale[1] = neon_odd(s + 8);
}

SL_INLINE void neon_scales_iq2_xs(const uint8_t *b, int16x8_t scale[2], int16x8_t min[2])
{
    (void)min;
    neon_scales_nibbles(b + 66, scale);
}

SL_INLINE void neon_scales_iq2_s(const uint8_t *b, int16x8_t scale[2], int16x8_t min[2])
{
    (void)min;
    neon_scales_nibbles(b + 74, scale);
}

SL_INLINE void neon_scales_iq3_s(const uint8_t *b, int16x8_t scale[2], int16x8_t min[2])
{
    int16_t s[16];
    (void)min;
    neon_nibbles(b + 106, 4, s);
    scale[0] = neon_odd(s);
}

SL_INLINE void neon_scales_iq1_s(const uint8_t *b, int16x8_t scale[2], int16x8_t min[2])
{
    const uint16x8_t words = vreinterpretq_u16_u8(vld1q_u8(b + 34));
    const int16x8_t s = vreinterpretq_s16_u16(vandq_u16(vshrq_n_u16(words, 11), vdupq_n_u16(14)));
    (void)min;
    scale[0] = vaddq_s16(s, vdupq_n_s16(1));
}

SL_INLINE void neon_scales_iq1_m(const uint8_t *b, int16x8_t scale[2], int16x8_t min[2])
{
    int16_t s[16];
    (void)min;
    for (int j = 0; j < 16; j++)
        s[j] = (int16_t)(sl_load_u16(b + 48 + j / 4 * 2) >> j % 4 * 3 & 7);
    scale[0] = neon_odd(s);
    scale[1] = neon_odd(s + 8);
}

/* The f16 lies in the top nibbles of the four words of scales. */
SL_INLINE float neon_d_iq1_m(const uint8_t *b, int i)
{
    uint32_t d = 0;
    (void)i;
    for (int p = 0; p < 4; p++)
        d |= (uint32_t)b[48 + 2 * p + 1] >> 4 << 4 * p;
    return sl_half_to_float((uint16_t)d) * 0.125f;
}

/* ---- Products ---- */

NEON_MUL_256(iq2_xxs, iq2_xxs, 8, .d_at = 0, .factor = 0.125f)
NEON_MUL_256(iq2_xs, iq2_xs, 16, .d_at = 0, .factor = 0.125f)
NEON_MUL_256(iq2_s, iq2_s, 16, .d_at = 0, .factor = 0.125f)
NEON_MUL_256(iq3_xxs, iq3_xxs, 8, .d_at = 0, .factor = 0.25f)
NEON_MUL_256(iq3_s, iq3_s, 8, .d_at = 0)
NEON_MUL_256(iq1_s, iq1_s, 8, .d_at = 0, .factor = 0.125f)
NEON_MUL_256(iq1_m, iq1_m, 16, .d_kind = NEON_D_BLOCK, .d = neon_d_iq1_m)

static inline void neon_fill_grids(sl_kernels *k)
{
    k->mul[SL_W_IQ2_XXS] = mul_iq2_xxs;
    k->mul[SL_W_IQ2_XS] = mul_iq2_xs;
    k->mul[SL_W_IQ2_S] = mul_iq2_s;
    k->mul[SL_W_IQ3_XXS] = mul_iq3_xxs;
    k->mul[SL_W_IQ3_S] = mul_iq3_s;
    k->mul[SL_W_IQ1_S] = mul_iq1_s;
    k->mul[SL_W_IQ1_M] = mul_iq1_m;
}

#endif
