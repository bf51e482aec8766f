/* Byte layouts: blocks of quantised weights as GGUF files hold them, and activation rows as
 * sl_kernels.quantize writes them. Structs of bytes, so that a block may lie at any address. What
 * the numbers mean is in scalar_quant.c. */
#ifndef SL_QUANT_H
#define SL_QUANT_H

#include "half.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* d, m, dmin: f16. In the types of 32, the low nibbles of q are the first half of the block, the
 * high nibbles the second; bit i of high is the fifth bit of value i. */
typedef struct sl_q8_0 {
    uint8_t d[2];
    int8_t q[32];
} sl_q8_0;

typedef struct sl_q4_0 {
    uint8_t d[2], q[16];
} sl_q4_0;

typedef struct sl_q4_1 {
    uint8_t d[2], m[2], q[16];
} sl_q4_1;

typedef struct sl_q5_0 {
    uint8_t d[2], high[4], q[16];
} sl_q5_0;

typedef struct sl_q5_1 {
    uint8_t d[2], m[2], high[4], q[16];
} sl_q5_1;

/* 8 sub-blocks of 32. Sub-blocks 2g and 2g+1 are the low and high nibbles of q[32g .. 32g+31]. */
typedef struct sl_q4_k {
    uint8_t d[2], dmin[2], scales[12], q[128];
} sl_q4_k;

/* As Q4_K; bit j of high[i] is the fifth bit of value i of sub-block j. */
typedef struct sl_q5_k {
    uint8_t d[2], dmin[2], scales[12], high[32], q[128];
} sl_q5_k;

/* 16 sub-blocks of 16, in halves of 128 values. Value 32k+i of half h (k < 4, i < 32) has its low
 * four bits in nibble k/2 of low[64h + 32(k%2) + i], its high two in bits 2k of high[32h + i]. */
typedef struct sl_q6_k {
    uint8_t low[128], high[64];
    int8_t scales[16];
    uint8_t d[2];
} sl_q6_k;

/* 16 sub-blocks of 16: the low nibble of scales is the scale, the high one the minimum. Value
 * 32k+i of half h (k < 4, i < 32) is bits 2k and 2k+1 of q[32h + i]. */
typedef struct sl_q2_k {
    uint8_t scales[16], q[64], d[2], dmin[2];
} sl_q2_k;

/* 16 sub-blocks of 16. Values have their low two bits as in Q2_K; bit j of high[i] is the third bit
 * of value 32j+i. Scale j has its low four bits in nibble j/8 of scales[j%8], its high two in bits
 * 2(j/4) of scales[8 + j%4]. */
typedef struct sl_q3_k {
    uint8_t high[32], q[64], scales[12], d[2];
} sl_q3_k;

/* Nibbles, as in Q4_0, that choose from sl_iq4_codes. */
typedef struct sl_iq4_nl {
    uint8_t d[2], q[16];
} sl_iq4_nl;

/* 8 sub-blocks of 32, each with nibbles as a block of IQ4_NL has them. Scale j has its low four
 * bits in nibble j%2 of scales_low[j/2], its high two in bits 2j of scales_high. */
typedef struct sl_iq4_xs {
    uint8_t d[2], scales_high[2], scales_low[4], q[128];
} sl_iq4_xs;

/* Nibbles, as in Q4_0, that choose from sl_e2m1_codes (scales.h). scale: sl_e8m0_half(). */
typedef struct sl_mxfp4 {
    uint8_t scale, q[16];
} sl_mxfp4;

/* 4 sub-blocks of 16, 8 bytes of q each: low nibbles first. scale: sl_half_of_ue4m3(). */
typedef struct sl_nvfp4 {
    uint8_t scale[4], q[32];
} sl_nvfp4;

/* Five values in a byte, digits of base 3: values 32n+i (n < 5) in q[i], 160+16n+i in q[32 + i];
 * four in a byte: 240+4n+i (n < 4) in last[i]. */
typedef struct sl_tq1_0 {
    uint8_t q[48], last[4], d[2];
} sl_tq1_0;

/* Values as in Q2_K. */
typedef struct sl_tq2_0 {
    uint8_t q[64], d[2];
} sl_tq2_0;

/* 128 values: bit i is the sign of value i, 1 for plus. */
typedef struct sl_q1_0 {
    uint8_t d[2], q[16];
} sl_q1_0;

/* 64 values: value 4i+k is bits 2k and 2k+1 of q[i]. */
typedef struct sl_q2_0 {
    uint8_t d[2], q[16];
} sl_q2_0;

/* The IQ types: 256 values, eight sub-blocks of 32. Values are looked up eight (IQ3: four) at a
 * time in a codebook (iq_grids.h); an index has its low eight bits in q, or all of them. Signs are
 * one bit a value, set for negative; seven bits stand for eight values of which an even number is
 * negative. What a scale s of 0 .. 15 (IQ1: 0 .. 7) multiplies by is 2 s + 1. Words of 16 and 32
 * bits are little-endian. */

/* Eight bytes a sub-block: four indices, then a word with four times seven signs, and in its top
 * four bits the scale. */
typedef struct sl_iq2_xxs {
    uint8_t d[2], q[64];
} sl_iq2_xxs;

/* 32 words: nine bits of index, seven signs. scales[j]: of the first and second half of sub-block
 * j, low nibble first. */
typedef struct sl_iq2_xs {
    uint8_t d[2], q[64], scales[8];
} sl_iq2_xs;

/* Bits 2l, 2l+1 of high[j] are the top bits of index l of sub-block j. Scales as in IQ2_XS. */
typedef struct sl_iq2_s {
    uint8_t d[2], q[32], signs[32], high[8], scales[8];
} sl_iq2_s;

/* signs: a word per sub-block, as in IQ2_XXS. */
typedef struct sl_iq3_xxs {
    uint8_t d[2], q[64], signs[32];
} sl_iq3_xxs;

/* Bit l of high[j] is the ninth bit of index l of sub-block j. scales: a nibble per sub-block. */
typedef struct sl_iq3_s {
    uint8_t d[2], q[64], high[8], signs[32], scales[4];
} sl_iq3_s;

/* high: a word per sub-block: bits 3l .. 3l+2 are the top bits of index l, bits 12-14 the scale,
 * bit 15 the sign of the delta, which is added to all values. */
typedef struct sl_iq1_s {
    uint8_t d[2], q[32], high[16];
} sl_iq1_s;

/* A nibble of high per index: three top bits, then the sign of the delta. scales: four words, each
 * with the scales of four times 16 values, three bits each; their top nibbles are d, the lowest
 * nibble first. */
typedef struct sl_iq1_m {
    uint8_t q[32], high[16], scales[8];
} sl_iq1_m;

_Static_assert(sizeof(sl_iq2_xxs) == 66 && sizeof(sl_iq2_xs) == 74 && sizeof(sl_iq2_s) == 82 &&
                   sizeof(sl_iq3_xxs) == 98 && sizeof(sl_iq3_s) == 110 && sizeof(sl_iq1_s) == 50 &&
                   sizeof(sl_iq1_m) == 56,
               "blocks are as in the file");
_Static_assert(sizeof(sl_q8_0) == 34 && sizeof(sl_q4_0) == 18 && sizeof(sl_q4_1) == 20 &&
                   sizeof(sl_q5_0) == 22 && sizeof(sl_q5_1) == 24 && sizeof(sl_q4_k) == 144 &&
                   sizeof(sl_q5_k) == 176 && sizeof(sl_q6_k) == 210,
               "blocks are as in the file");
_Static_assert(sizeof(sl_q2_k) == 84 && sizeof(sl_q3_k) == 110 && sizeof(sl_iq4_nl) == 18 &&
                   sizeof(sl_iq4_xs) == 136 && sizeof(sl_mxfp4) == 17 && sizeof(sl_nvfp4) == 36 &&
                   sizeof(sl_tq1_0) == 54 && sizeof(sl_tq2_0) == 66 && sizeof(sl_q1_0) == 18 &&
                   sizeof(sl_q2_0) == 18,
               "blocks are as in the file");

/* What the nibbles of IQ4_NL and IQ4_XS stand for. */
static const int8_t sl_iq4_codes[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

/* Half of an e4m3 float without a sign; bit 7 counts for nothing, but 0x7f is 0 and 0xff is not. */
static inline float sl_half_of_ue4m3(uint8_t b)
{
    const uint32_t exponent = b >> 3 & 15u, mantissa = b & 7u;
    if (b == 0x7f)
        return 0.0f;
    if (exponent == 0)
        return (float)mantissa * 0x1p-10f;
    return sl_float_of_bits((exponent + 119u) << 23 | mantissa << 20);
}

/* The 12 bytes of Q4_K and Q5_K: out[0..7] six-bit scales, out[8..15] six-bit minima, of the eight
 * sub-blocks. Four bytes at a time; bytes 8-11 hold the low four bits of the last four of each, the
 * top two bits of bytes 0-7 the rest. */
static inline void sl_k_scales(const uint8_t packed[12], uint8_t out[16])
{
    uint32_t w[3], o[4];
    memcpy(w, packed, sizeof w);
    o[0] = w[0] & 0x3f3f3f3fu;
    o[1] = (w[2] & 0x0f0f0f0fu) | ((w[0] >> 2) & 0x30303030u);
    o[2] = w[1] & 0x3f3f3f3fu;
    o[3] = ((w[2] >> 4) & 0x0f0f0f0fu) | ((w[1] >> 2) & 0x30303030u);
    memcpy(out, o, sizeof o);
}

/* Activation rows. First all n_cols values q (-127 .. 127) in order, then the scales d, one per
 * block of 32 or 256, then sums of q. A row begins 64-aligned, so d and the sums are aligned too.
 */
typedef struct sl_act_q8_32 {
    const int8_t *q;
    const float *d;
    const int32_t *sum; /* per 32 */
} sl_act_q8_32;

typedef struct sl_act_q8_256 {
    const int8_t *q;
    const float *d;
    const int16_t *sum16, *sum32; /* per 16: 16 a block; per 32: 8 a block */
} sl_act_q8_256;

static inline size_t sl_act_q8_32_sums_at(size_t n_cols)
{
    return n_cols + n_cols / 32 * sizeof(float);
}

static inline size_t sl_act_q8_256_sums_at(size_t n_cols)
{
    return n_cols + n_cols / 256 * sizeof(float);
}

static inline sl_act_q8_32 sl_act_q8_32_row(const void *act, size_t n_cols)
{
    const char *p = act;
    return (sl_act_q8_32){(const int8_t *)act, (const float *)(const void *)(p + n_cols),
                          (const int32_t *)(const void *)(p + sl_act_q8_32_sums_at(n_cols))};
}

static inline sl_act_q8_256 sl_act_q8_256_row(const void *act, size_t n_cols)
{
    const char *p = act;
    const int16_t *sums = (const int16_t *)(const void *)(p + sl_act_q8_256_sums_at(n_cols));
    return (sl_act_q8_256){(const int8_t *)act, (const float *)(const void *)(p + n_cols), sums,
                           sums + n_cols / 16};
}

/* A block whose largest magnitude is below this has scale 0: amax / 127 would be subnormal, and its
 * reciprocal might overflow. */
#define SL_ACT_TINY 0x1p-119f

/* Bytes of scratch a product may use per column, where levels unpack 16 whole rows at a time; and
 * per column of a chunk of that many, where they unpack 64 rows. The larger of the two is there. */
enum { SL_MUL_SCRATCH_PER_COL = 24, SL_MUL_CHUNK_COLS = 2048, SL_MUL_SCRATCH_PER_CHUNK_COL = 96 };

#endif
