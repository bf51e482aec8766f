/* Blocks opened into vectors of bytes, in column order, before the type's offset is taken off. For
 * neon_*.c only. */
#ifndef SL_NEON_BLOCKS_H
#define SL_NEON_BLOCKS_H

#include <arm_neon.h>

#include "half.h"
#include "inline.h"
#include "quant.h"

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

/* Bit i of the word at high becomes bit 4 of value i. */
SL_INLINE void neon_add_fifth_bits(const uint8_t *high, int8x16_t q[2])
{
    static const uint8_t spread[32] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                       2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
    uint32_t word;
    memcpy(&word, high, sizeof word);
    const uint8x16_t all = vreinterpretq_u8_u32(vdupq_n_u32(word));
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    SL_UNROLL
    for (int i = 0; i < 2; i++) {
        const uint8x16_t bytes = vqtbl1q_u8(all, vld1q_u8(spread + 16 * i));
        const uint8x16_t set = vandq_u8(vtstq_u8(bytes, bit), vdupq_n_u8(16));
        q[i] = vorrq_s8(q[i], vreinterpretq_s8_u8(set));
    }
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

#endif
