/* Byte layouts: blocks of quantised weights as GGUF files hold them, and activation rows as
 * sl_kernels.quantize writes them. Structs of bytes, so that a block may lie at any address. What
 * the numbers mean is in scalar_quant.c. */
#ifndef SL_QUANT_H
#define SL_QUANT_H

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

_Static_assert(sizeof(sl_q8_0) == 34 && sizeof(sl_q4_0) == 18 && sizeof(sl_q4_1) == 20 &&
                   sizeof(sl_q5_0) == 22 && sizeof(sl_q5_1) == 24 && sizeof(sl_q4_k) == 144 &&
                   sizeof(sl_q5_k) == 176 && sizeof(sl_q6_k) == 210,
               "blocks are as in the file");

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

/* Bytes of scratch a product may use per column. Vector levels unpack 16 rows at a time there. */
enum { SL_MUL_SCRATCH_PER_COL = 24 };

#endif
