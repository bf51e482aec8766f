/* Blocks opened into vectors of bytes, in column order, before the type's offset is taken off. For
 * neon_*.c only. */
#ifndef SL_NEON_BLOCKS_H
#define SL_NEON_BLOCKS_H

#include <arm_neon.h>

#include "half.h"
#include "inline.h"
#include "quant.h"
#include "scales.h"

SL_INLINE int8x16_t neon_low_nibbles(uint8x16_t v)
{
    return vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15)));
}

SL_INLINE int8x16_t neon_high_nibbles(uint8x16_t v)
{
    return vreinterpretq_s8_u8(vshrq_n_u8(v, 4));
}

/* v shifted so that bit from is bit to; what else of mask was there goes along. */
SL_INLINE int8x16_t neon_bits(uint8x16_t v, int from, int to, uint8_t mask)
{
    const uint8x16_t moved = vshlq_u8(v, vdupq_n_s8((int8_t)(to - from)));
    return vreinterpretq_s8_u8(vandq_u8(moved, vdupq_n_u8(mask)));
}

/* ---- Types of 32: b is the block, q its 32 values ---- */

SL_INLINE void neon_open_q8_0(const uint8_t *b, int8x16_t q[2])
{
    q[0] = vreinterpretq_s8_u8(vld1q_u8(b + 2));
    q[1] = vreinterpretq_s8_u8(vld1q_u8(b + 18));
}

SL_INLINE void neon_open_nibbles(const uint8_t *p, int8x16_t q[2])
{
    const uint8x16_t v = vld1q_u8(p);
    q[0] = neon_low_nibbles(v);
    q[1] = neon_high_nibbles(v);
}

SL_INLINE void neon_open_q4_0(const uint8_t *b, int8x16_t q[2])
{
    neon_open_nibbles(b + 2, q);
}

SL_INLINE void neon_open_q4_1(const uint8_t *b, int8x16_t q[2])
{
    neon_open_nibbles(b + 4, q);
}

/* Where bit i of the word at p is set: all bits of value i. */
SL_INLINE void neon_spread_bits(const uint8_t *p, uint8x16_t set[2])
{
    static const uint8_t spread[32] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                       2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
    uint32_t word;
    memcpy(&word, p, sizeof word);
    const uint8x16_t all = vreinterpretq_u8_u32(vdupq_n_u32(word));
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    SL_UNROLL
    for (int i = 0; i < 2; i++)
        set[i] = vtstq_u8(vqtbl1q_u8(all, vld1q_u8(spread + 16 * i)), bit);
}

/* Bit i of the word at high becomes bit 4 of value i. */
SL_INLINE void neon_add_fifth_bits(const uint8_t *high, int8x16_t q[2])
{
    uint8x16_t set[2];
    neon_spread_bits(high, set);
    SL_UNROLL
    for (int i = 0; i < 2; i++)
        q[i] = vorrq_s8(q[i], vreinterpretq_s8_u8(vandq_u8(set[i], vdupq_n_u8(16))));
}

SL_INLINE void neon_open_q5_0(const uint8_t *b, int8x16_t q[2])
{
    neon_open_nibbles(b + 6, q);
    neon_add_fifth_bits(b + 2, q);
}

SL_INLINE void neon_open_q5_1(const uint8_t *b, int8x16_t q[2])
{
    neon_open_nibbles(b + 8, q);
    neon_add_fifth_bits(b + 4, q);
}

/* Nibbles that choose from 16 numbers; low ones first. */
SL_INLINE void neon_open_codes(const uint8_t *p, const int8_t codes[16], int8x16_t q[2])
{
    const int8x16_t table = vld1q_s8(codes);
    const uint8x16_t v = vld1q_u8(p);
    q[0] = vqtbl1q_s8(table, vandq_u8(v, vdupq_n_u8(15)));
    q[1] = vqtbl1q_s8(table, vshrq_n_u8(v, 4));
}

SL_INLINE void neon_open_iq4_nl(const uint8_t *b, int8x16_t q[2])
{
    neon_open_codes(b + 2, sl_iq4_codes, q);
}

SL_INLINE void neon_open_mxfp4(const uint8_t *b, int8x16_t q[2])
{
    neon_open_codes(b + 1, sl_e2m1_codes, q);
}

/* Bytes of the scales of a block of 64 come first; each 16 values have their own 8 bytes. */
SL_INLINE void neon_open_nvfp4(const uint8_t *b, int part, int8x16_t q[2])
{
    int8x16_t v[2];
    neon_open_codes(b + 4 + 16 * part, sl_e2m1_codes, v);
    const int64x2_t low = vreinterpretq_s64_s8(v[0]), high = vreinterpretq_s64_s8(v[1]);
    q[0] = vreinterpretq_s8_s64(vtrn1q_s64(low, high));
    q[1] = vreinterpretq_s8_s64(vtrn2q_s64(low, high));
}

SL_INLINE void neon_open_q1_0(const uint8_t *b, int part, int8x16_t q[2])
{
    uint8x16_t set[2];
    neon_spread_bits(b + 2 + 4 * part, set);
    SL_UNROLL
    for (int i = 0; i < 2; i++)
        q[i] = vbslq_s8(set[i], vdupq_n_s8(1), vdupq_n_s8(-1));
}

SL_INLINE void neon_open_q2_0(const uint8_t *b, int part, int8x16_t q[2])
{
    static const uint8_t spread[32] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,
                                       4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7};
    const uint8x8_t bytes = vld1_u8(b + 2 + 8 * part);
    const uint8x16_t all = vcombine_u8(bytes, bytes);
    const int8x16_t shift = vreinterpretq_s8_u32(vdupq_n_u32(0xfafcfe00u)); /* 0 -2 -4 -6 */
    SL_UNROLL
    for (int i = 0; i < 2; i++) {
        const uint8x16_t v = vshlq_u8(vqtbl1q_u8(all, vld1q_u8(spread + 16 * i)), shift);
        q[i] = vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(3)));
    }
}

/* Pairs of nibbles are neighbours. */
SL_INLINE void neon_open_mlx4(const uint8_t *b, int8x16_t q[2])
{
    int8x16_t v[2];
    neon_open_nibbles(b, v);
    q[0] = vzip1q_s8(v[0], v[1]);
    q[1] = vzip2q_s8(v[0], v[1]);
}

SL_INLINE void neon_open_mxfp4_split(const uint8_t *b, int8x16_t q[2])
{
    int8x16_t v[2];
    neon_open_codes(b, sl_e2m1_codes, v);
    q[0] = vzip1q_s8(v[0], v[1]);
    q[1] = vzip2q_s8(v[0], v[1]);
}

/* Less 128. */
SL_INLINE void neon_open_mlx8(const uint8_t *b, int8x16_t q[2])
{
    SL_UNROLL
    for (int i = 0; i < 2; i++)
        q[i] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(b + 16 * i), vdupq_n_u8(128)));
}

/* ---- Types of 256: q are the 128 values of a half ---- */

SL_INLINE void neon_open_q4_k(const uint8_t *b, int half, int8x16_t q[8])
{
    SL_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint8x16_t v = vld1q_u8(b + 16 + 64 * half + 16 * i);
        q[4 * (i / 2) + i % 2] = neon_low_nibbles(v);
        q[4 * (i / 2) + i % 2 + 2] = neon_high_nibbles(v);
    }
}

SL_INLINE void neon_open_q5_k(const uint8_t *b, int half, int8x16_t q[8])
{
    const uint8x16_t high[2] = {vld1q_u8(b + 16), vld1q_u8(b + 32)};
    SL_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint8x16_t v = vld1q_u8(b + 48 + 64 * half + 16 * i);
        const int bit = 4 * half + i / 2 * 2;
        q[4 * (i / 2) + i % 2] = vorrq_s8(neon_low_nibbles(v), neon_bits(high[i % 2], bit, 4, 16));
        q[4 * (i / 2) + i % 2 + 2] =
            vorrq_s8(neon_high_nibbles(v), neon_bits(high[i % 2], bit + 1, 4, 16));
    }
}

SL_INLINE void neon_open_q6_k(const uint8_t *b, int half, int8x16_t q[8])
{
    SL_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint8x16_t low = vld1q_u8(b + 64 * half + 16 * i);
        const uint8x16_t high = vld1q_u8(b + 128 + 32 * half + 16 * (i % 2));
        const int bit = i / 2 * 2;
        q[i] = vorrq_s8(neon_low_nibbles(low), neon_bits(high, bit, 4, 0x30));
        q[i + 4] = vorrq_s8(neon_high_nibbles(low), neon_bits(high, bit + 4, 4, 0x30));
    }
}

/* Two bits a value at p: 32 bytes of a half. */
SL_INLINE void neon_open_two_bits(const uint8_t *p, int8x16_t q[8])
{
    const uint8x16_t v[2] = {vld1q_u8(p), vld1q_u8(p + 16)};
    SL_UNROLL
    for (int k = 0; k < 8; k++)
        q[k] = neon_bits(v[k % 2], k / 2 * 2, 0, 3);
}

SL_INLINE void neon_open_q2_k(const uint8_t *b, int half, int8x16_t q[8])
{
    neon_open_two_bits(b + 16 + 32 * half, q);
}

SL_INLINE void neon_open_q3_k(const uint8_t *b, int half, int8x16_t q[8])
{
    const uint8x16_t high[2] = {vld1q_u8(b), vld1q_u8(b + 16)};
    neon_open_two_bits(b + 32 + 32 * half, q);
    SL_UNROLL
    for (int k = 0; k < 8; k++)
        q[k] = vorrq_s8(q[k], neon_bits(high[k % 2], 4 * half + k / 2, 2, 4));
}

SL_INLINE void neon_open_iq4_xs(const uint8_t *b, int half, int8x16_t q[8])
{
    SL_UNROLL
    for (int j = 0; j < 4; j++)
        neon_open_codes(b + 8 + 64 * half + 16 * j, sl_iq4_codes, q + 2 * j);
}

SL_INLINE void neon_open_tq2_0(const uint8_t *b, int half, int8x16_t q[8])
{
    neon_open_two_bits(b + 32 * half, q);
    SL_UNROLL
    for (int k = 0; k < 8; k++)
        q[k] = vsubq_s8(q[k], vdupq_n_s8(1));
}

/* The first digit of base 3 of each byte, times a power modulo 256: 3 t / 256, less one. */
SL_INLINE int8x16_t neon_digit(uint8x16_t v, uint8x16_t power)
{
    const uint8x16_t t = vmulq_u8(v, power);
    const uint8x16_t digit = vshrq_n_u8(vhaddq_u8(t, vshrq_n_u8(t, 1)), 6);
    return vsubq_s8(vreinterpretq_s8_u8(digit), vdupq_n_s8(1));
}

SL_INLINE void neon_open_tq1_0(const uint8_t *b, int half, int8x16_t q[8])
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    static const uint32_t by_four[4] = {0x01010101, 0x03030303, 0x09090909, 0x1b1b1b1b};
    const uint8x16_t v[2] = {vld1q_u8(b), vld1q_u8(b + 16)};
    if (!half) {
        SL_UNROLL
        for (int k = 0; k < 8; k++)
            q[k] = neon_digit(v[k % 2], vdupq_n_u8(power[k / 2]));
        return;
    }
    const uint8x16_t third = vld1q_u8(b + 32);
    uint32_t last;
    memcpy(&last, b + 48, sizeof last);
    q[0] = neon_digit(v[0], vdupq_n_u8(power[4]));
    q[1] = neon_digit(v[1], vdupq_n_u8(power[4]));
    SL_UNROLL
    for (int k = 0; k < 5; k++)
        q[2 + k] = neon_digit(third, vdupq_n_u8(power[k]));
    q[7] = neon_digit(vreinterpretq_u8_u32(vdupq_n_u32(last)),
                      vreinterpretq_u8_u32(vld1q_u32(by_four)));
}

/* ---- Scales of types of 256: per 16 or per 32 values; minima likewise ---- */

SL_INLINE void neon_widen_scales(int8x16_t s, int16x8_t out[2])
{
    out[0] = vmovl_s8(vget_low_s8(s));
    out[1] = vmovl_high_s8(s);
}

/* Six bits, packed, per 32. */
SL_INLINE void neon_scales_k(const uint8_t *b, int16x8_t scale[2], int16x8_t min[2])
{
    uint8_t both[16];
    int16x8_t v[2];
    sl_k_scales(b + 4, both);
    neon_widen_scales(vreinterpretq_s8_u8(vld1q_u8(both)), v);
    scale[0] = v[0];
    min[0] = v[1];
}

SL_INLINE void neon_scales_q6_k(const uint8_t *b, int16x8_t scale[2], int16x8_t min[2])
{
    (void)min;
    neon_widen_scales(vreinterpretq_s8_u8(vld1q_u8(b + 192)), scale);
}

SL_INLINE void neon_scales_q2_k(const uint8_t *b, int16x8_t scale[2], int16x8_t min[2])
{
    const uint8x16_t v = vld1q_u8(b);
    neon_widen_scales(neon_low_nibbles(v), scale);
    neon_widen_scales(neon_high_nibbles(v), min);
}

SL_INLINE void neon_scales_q3_k(const uint8_t *b, int16x8_t scale[2], int16x8_t min[2])
{
    static const int32_t right[4] = {0, (int)0xfefefefe, (int)0xfcfcfcfc, (int)0xfafafafa};
    const uint8_t *s = b + 96;
    uint32_t top;
    memcpy(&top, s + 8, sizeof top);
    (void)min;
    const uint8x8_t eight = vld1_u8(s);
    const uint8x16_t low = vcombine_u8(vand_u8(eight, vdup_n_u8(15)), vshr_n_u8(eight, 4));
    const uint8x16_t high =
        vshlq_u8(vreinterpretq_u8_u32(vdupq_n_u32(top)), vreinterpretq_s8_s32(vld1q_s32(right)));
    const uint8x16_t bits = vshlq_n_u8(vandq_u8(high, vdupq_n_u8(3)), 4);
    neon_widen_scales(vsubq_s8(vreinterpretq_s8_u8(vorrq_u8(low, bits)), vdupq_n_s8(32)), scale);
}

/* Nibbles of n bytes, low ones first. */
SL_INLINE void neon_nibbles(const uint8_t *p, int n, int16_t out[16])
{
    for (int i = 0; i < n; i++) {
        out[2 * i] = p[i] & 15;
        out[2 * i + 1] = p[i] >> 4;
    }
}

SL_INLINE void neon_scales_iq4_xs(const uint8_t *b, int16x8_t scale[2], int16x8_t min[2])
{
    static const int16_t right[8] = {0, -2, -4, -6, -8, -10, -12, -14};
    int16_t low[16];
    (void)min;
    neon_nibbles(b + 4, 4, low);
    const uint16x8_t top = vshlq_u16(vdupq_n_u16(sl_load_u16(b + 2)), vld1q_s16(right));
    const uint16x8_t bits = vshlq_n_u16(vandq_u16(top, vdupq_n_u16(3)), 4);
    scale[0] = vsubq_s16(vorrq_s16(vld1q_s16(low), vreinterpretq_s16_u16(bits)), vdupq_n_s16(32));
}

SL_INLINE void neon_scales_one(const uint8_t *b, int16x8_t scale[2], int16x8_t min[2])
{
    (void)b;
    (void)min;
    scale[0] = vdupq_n_s16(1);
}

/* Scales that are no f16; i: which of a block. */
SL_INLINE float neon_d_nvfp4(const uint8_t *b, int i)
{
    return sl_half_of_ue4m3(b[i]);
}

SL_INLINE float neon_d_mxfp4(const uint8_t *b, int i)
{
    (void)i;
    return sl_e8m0_half(b[0]);
}

#endif
