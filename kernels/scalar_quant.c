/* The definition of everything quantised: what weight blocks mean, how activations become int8, and
 * in which steps a product is computed. Other levels give the same bits.
 *
 * A product goes through the blocks of a row in ascending order with one float accumulator,
 * starting at 0. With isum the exact integer sum of the block (integer weights, times integer
 * sub-block scales, times q of the activations):
 *
 *   types of 32       acc = fma(round(w.d * x.d), float(isum), acc)
 *     Q4_1 Q5_1       acc = fma(round(w.m * x.d), float(sum of q), acc)   afterwards
 *     NVFP4           the first step twice, for 16 values each with their own w.d
 *   types of 256      acc = fma(round(w.d * x.d), float(isum), acc)
 *     Q2_K Q4_K Q5_K  acc = fma(-round(w.dmin * x.d), float(msum), acc)   afterwards,
 *                                                msum = sum over sub-blocks of minimum * sum of q
 *
 * Q1_0 (blocks of 128), Q2_0 and NVFP4 (of 64) are multiplied as types of 32: one step per 32
 * values of x. The integers of MXFP4 and NVFP4 are twice their values, w.d half their scale.
 *
 * Sizes: |q| <= 127. The largest |isum| is Q6_K's, 256 * 128 * 32 * 127 < 2^28, so 32 bits hold
 * every sum and every partial sum. */
#include <math.h>

#include "lanes.h"
#include "levels.h"
#include "quant.h"
#include "scales.h"

/* ---- Blocks opened: integers, and the floats they are multiplied with ---- */

typedef struct block32 {
    float d, m; /* m: of types that have one; NVFP4: the scale of the second half */
    int8_t q[32];
} block32;

/* What m is. */
enum { NO_M, ADDED_M, SECOND_HALF };

typedef struct block256 {
    float d, dmin;
    int8_t scale[16]; /* per 16 */
    uint8_t min[16];  /* per 16 */
    int8_t q[256];
} block256;

/* i: which 32, or 256, values of the row. */
typedef void open32_fn(const void *w, size_t i, block32 *out);
typedef void open256_fn(const void *w, size_t i, block256 *out);

static void open_q8_0(const void *w, size_t i, block32 *out)
{
    const sl_q8_0 *b = (const sl_q8_0 *)w + i;
    out->d = sl_half_load(b->d);
    memcpy(out->q, b->q, sizeof out->q);
}

/* Values 0 .. 15, or 0 .. 31 with the fifth bits in high, less offset. */
static void open_nibbles(const uint8_t q[16], uint32_t high, int offset, int8_t out[32])
{
    for (int i = 0; i < 16; i++) {
        out[i] = (int8_t)((int)((q[i] & 15u) | (high >> i & 1u) << 4) - offset);
        out[i + 16] = (int8_t)((int)((q[i] >> 4) | (high >> (i + 16) & 1u) << 4) - offset);
    }
}

static uint32_t load_u32(const uint8_t p[4])
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void open_q4_0(const void *w, size_t i, block32 *out)
{
    const sl_q4_0 *b = (const sl_q4_0 *)w + i;
    out->d = sl_half_load(b->d);
    open_nibbles(b->q, 0, 8, out->q);
}

static void open_q4_1(const void *w, size_t i, block32 *out)
{
    const sl_q4_1 *b = (const sl_q4_1 *)w + i;
    out->d = sl_half_load(b->d);
    out->m = sl_half_load(b->m);
    open_nibbles(b->q, 0, 0, out->q);
}

static void open_q5_0(const void *w, size_t i, block32 *out)
{
    const sl_q5_0 *b = (const sl_q5_0 *)w + i;
    out->d = sl_half_load(b->d);
    open_nibbles(b->q, load_u32(b->high), 16, out->q);
}

static void open_q5_1(const void *w, size_t i, block32 *out)
{
    const sl_q5_1 *b = (const sl_q5_1 *)w + i;
    out->d = sl_half_load(b->d);
    out->m = sl_half_load(b->m);
    open_nibbles(b->q, load_u32(b->high), 0, out->q);
}

static void open_k_scales(const uint8_t packed[12], block256 *out)
{
    uint8_t both[16];
    sl_k_scales(packed, both);
    for (int j = 0; j < 16; j++) {
        out->scale[j] = (int8_t)both[j / 2];
        out->min[j] = both[8 + j / 2];
    }
}

static void open_q4_k(const void *w, size_t i, block256 *out)
{
    const sl_q4_k *b = (const sl_q4_k *)w + i;
    out->d = sl_half_load(b->d);
    out->dmin = sl_half_load(b->dmin);
    open_k_scales(b->scales, out);
    for (int g = 0; g < 4; g++)
        for (int k = 0; k < 32; k++) {
            out->q[64 * g + k] = b->q[32 * g + k] & 15;
            out->q[64 * g + 32 + k] = b->q[32 * g + k] >> 4;
        }
}

static void open_q5_k(const void *w, size_t i, block256 *out)
{
    const sl_q5_k *b = (const sl_q5_k *)w + i;
    out->d = sl_half_load(b->d);
    out->dmin = sl_half_load(b->dmin);
    open_k_scales(b->scales, out);
    for (int g = 0; g < 4; g++)
        for (int k = 0; k < 32; k++) {
            const int q = b->q[32 * g + k], high = b->high[k] >> (2 * g);
            out->q[64 * g + k] = (int8_t)((q & 15) | (high & 1) << 4);
            out->q[64 * g + 32 + k] = (int8_t)(q >> 4 | (high >> 1 & 1) << 4);
        }
}

static void open_q6_k(const void *w, size_t i, block256 *out)
{
    const sl_q6_k *b = (const sl_q6_k *)w + i;
    out->d = sl_half_load(b->d);
    memcpy(out->scale, b->scales, sizeof out->scale);
    for (int h = 0; h < 2; h++)
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < 32; j++) {
                const int low = b->low[64 * h + 32 * (k & 1) + j] >> (k & 2 ? 4 : 0) & 15;
                const int high = b->high[32 * h + j] >> (2 * k) & 3;
                out->q[128 * h + 32 * k + j] = (int8_t)((low | high << 4) - 32);
            }
}

static void open_q2_k(const void *w, size_t i, block256 *out)
{
    const sl_q2_k *b = (const sl_q2_k *)w + i;
    out->d = sl_half_load(b->d);
    out->dmin = sl_half_load(b->dmin);
    for (int j = 0; j < 16; j++) {
        out->scale[j] = b->scales[j] & 15;
        out->min[j] = b->scales[j] >> 4;
    }
    for (int k = 0; k < 256; k++)
        out->q[k] = b->q[k / 128 * 32 + k % 32] >> (k / 32 % 4 * 2) & 3;
}

static void open_q3_k(const void *w, size_t i, block256 *out)
{
    const sl_q3_k *b = (const sl_q3_k *)w + i;
    out->d = sl_half_load(b->d);
    for (int j = 0; j < 16; j++) {
        const int low = b->scales[j % 8] >> (j / 8 * 4) & 15;
        const int high = b->scales[8 + j % 4] >> (j / 4 * 2) & 3;
        out->scale[j] = (int8_t)((low | high << 4) - 32);
    }
    for (int k = 0; k < 256; k++) {
        const int low = b->q[k / 128 * 32 + k % 32] >> (k / 32 % 4 * 2) & 3;
        out->q[k] = (int8_t)((low | (b->high[k % 32] >> (k / 32) & 1) << 2) - 4);
    }
}

static void open_codes(const uint8_t *q, int half, const int8_t code[16], int8_t *out)
{
    for (int k = 0; k < half; k++) {
        out[k] = code[q[k] & 15];
        out[k + half] = code[q[k] >> 4];
    }
}

static void open_iq4_nl(const void *w, size_t i, block32 *out)
{
    const sl_iq4_nl *b = (const sl_iq4_nl *)w + i;
    out->d = sl_half_load(b->d);
    open_codes(b->q, 16, sl_iq4_codes, out->q);
}

static void open_iq4_xs(const void *w, size_t i, block256 *out)
{
    const sl_iq4_xs *b = (const sl_iq4_xs *)w + i;
    const uint32_t high = sl_load_u16(b->scales_high);
    out->d = sl_half_load(b->d);
    for (int j = 0; j < 8; j++) {
        const uint32_t low = b->scales_low[j / 2] >> (j % 2 * 4) & 15u;
        const int scale = (int)(low | (high >> (2 * j) & 3u) << 4) - 32;
        out->scale[2 * j] = out->scale[2 * j + 1] = (int8_t)scale;
        open_codes(b->q + 16 * j, 16, sl_iq4_codes, out->q + 32 * j);
    }
}

static void open_mxfp4(const void *w, size_t i, block32 *out)
{
    const sl_mxfp4 *b = (const sl_mxfp4 *)w + i;
    out->d = sl_e8m0_half(b->scale);
    open_codes(b->q, 16, sl_e2m1_codes, out->q);
}

static void open_nvfp4(const void *w, size_t i, block32 *out)
{
    const sl_nvfp4 *b = (const sl_nvfp4 *)w + i / 2;
    const size_t sub = i % 2 * 2;
    out->d = sl_half_of_ue4m3(b->scale[sub]);
    out->m = sl_half_of_ue4m3(b->scale[sub + 1]);
    open_codes(b->q + 8 * sub, 8, sl_e2m1_codes, out->q);
    open_codes(b->q + 8 * sub + 8, 8, sl_e2m1_codes, out->q + 16);
}

/* Digit n of base 3, the most significant one first: the byte is the fraction b / 256. */
static int8_t ternary(uint8_t b, int n)
{
    static const uint8_t power[] = {1, 3, 9, 27, 81};
    return (int8_t)(((uint8_t)(b * power[n]) * 3 >> 8) - 1);
}

static void open_tq1_0(const void *w, size_t i, block256 *out)
{
    const sl_tq1_0 *b = (const sl_tq1_0 *)w + i;
    out->d = sl_half_load(b->d);
    memset(out->scale, 1, sizeof out->scale);
    for (int k = 0; k < 160; k++)
        out->q[k] = ternary(b->q[k % 32], k / 32);
    for (int k = 0; k < 80; k++)
        out->q[160 + k] = ternary(b->q[32 + k % 16], k / 16);
    for (int k = 0; k < 16; k++)
        out->q[240 + k] = ternary(b->last[k % 4], k / 4);
}

static void open_tq2_0(const void *w, size_t i, block256 *out)
{
    const sl_tq2_0 *b = (const sl_tq2_0 *)w + i;
    out->d = sl_half_load(b->d);
    memset(out->scale, 1, sizeof out->scale);
    for (int k = 0; k < 256; k++)
        out->q[k] = (int8_t)((b->q[k / 128 * 32 + k % 32] >> (k / 32 % 4 * 2) & 3) - 1);
}

static void open_q1_0(const void *w, size_t i, block32 *out)
{
    const sl_q1_0 *b = (const sl_q1_0 *)w + i / 4;
    const uint32_t bits = load_u32(b->q + i % 4 * 4);
    out->d = sl_half_load(b->d);
    for (int k = 0; k < 32; k++)
        out->q[k] = bits >> k & 1 ? 1 : -1;
}

static void open_q2_0(const void *w, size_t i, block32 *out)
{
    const sl_q2_0 *b = (const sl_q2_0 *)w + i / 2;
    out->d = sl_half_load(b->d);
    for (size_t k = 0; k < 32; k++)
        out->q[k] = (int8_t)((b->q[i % 2 * 8 + k / 4] >> (k % 4 * 2) & 3) - 1);
}

/* ---- Dequantise ---- */

static inline void dequantize32(open32_fn *open, int m_is, const void *w, float *y, size_t n_cols)
{
    block32 b;
    for (size_t i = 0; i < n_cols / 32; i++) {
        open(w, i, &b);
        for (int k = 0; k < 32; k++) {
            const float d = m_is == SECOND_HALF && k >= 16 ? b.m : b.d;
            const float product = d * (float)b.q[k];
            y[32 * i + (size_t)k] = m_is == ADDED_M ? product + b.m : product;
        }
    }
}

static inline void dequantize256(open256_fn *open, int has_min, const void *w, float *y,
                                 size_t n_cols)
{
    block256 b;
    for (size_t i = 0; i < n_cols / 256; i++) {
        open(w, i, &b);
        for (int k = 0; k < 256; k++) {
            const float product = b.d * (float)b.scale[k / 16] * (float)b.q[k];
            y[256 * i + (size_t)k] = has_min ? product - b.dmin * (float)b.min[k / 16] : product;
        }
    }
}

static void dequantize_f32(SL_DEQUANTIZE_ARGS)
{
    memcpy(y, w, n_cols * sizeof *y);
}

static void dequantize_f16(SL_DEQUANTIZE_ARGS)
{
    for (size_t i = 0; i < n_cols; i++)
        y[i] = sl_half_load((const char *)w + 2 * i);
}

static void dequantize_bf16(SL_DEQUANTIZE_ARGS)
{
    for (size_t i = 0; i < n_cols; i++)
        y[i] = sl_bfloat_to_float(sl_load_u16((const char *)w + 2 * i));
}

static void dequantize_f64(SL_DEQUANTIZE_ARGS)
{
    for (size_t i = 0; i < n_cols; i++)
        y[i] = sl_load_f64((const char *)w + 8 * i);
}

/* ---- Activations to int8 ----
 *
 * amax = largest |x| of the block. Not finite, or a NaN among x: d = NaN, q = 0, so that every
 * product with the row is NaN. Below SL_ACT_TINY: d = 0, q = 0. Else t = round(x * round(1 / s))
 * with s = round(amax / 127), q = nearest even integer to t. Three roundings, each within 2^-24, so
 * |q| stays below 127.5: nothing to clamp.
 *
 * The scale that goes with these q is the one with the least squared error, sum(x q) / sum(q^2):
 * d = round(s * round(sum(t q) / sum(q^2))), the first sum in 16 virtual lanes (lanes.h), the
 * second exact. */
static float quantize_block(const float *x, size_t n, int8_t *q)
{
    uint32_t amax_bits = 0; /* magnitudes compare as integers; infinities and NaN are the largest */
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = sl_bits_of_float(x[i]) & 0x7fffffffu;
        amax_bits = bits > amax_bits ? bits : amax_bits;
    }
    const float amax = sl_float_of_bits(amax_bits);
    memset(q, 0, n);
    if (!isfinite(amax))
        return NAN;
    if (amax < SL_ACT_TINY)
        return 0.0f;
    const float scale = amax / 127.0f, inverse = 1.0f / scale;
    float lane[SL_LANES] = {0};
    int32_t square = 0;
    for (size_t i = 0; i < n; i++) {
        const float t = x[i] * inverse;
        q[i] = (int8_t)lrintf(t);
        lane[i % SL_LANES] = fmaf(t, (float)q[i], lane[i % SL_LANES]);
        square += q[i] * q[i];
    }
    return scale * (sl_lanes_sum(lane) / (float)square);
}

static int sum_of(const int8_t *q, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += q[i];
    return sum;
}

static void quantize_q8_32(SL_QUANTIZE_ARGS)
{
    char *row = out;
    int8_t *q = out;
    float *d = (float *)(void *)(row + n_cols);
    int32_t *sum = (int32_t *)(void *)(row + sl_act_q8_32_sums_at(n_cols));
    for (size_t i = 0; i < n_cols / 32; i++) {
        d[i] = quantize_block(x + 32 * i, 32, q + 32 * i);
        sum[i] = sum_of(q + 32 * i, 32);
    }
}

static void quantize_q8_256(SL_QUANTIZE_ARGS)
{
    char *row = out;
    int8_t *q = out;
    float *d = (float *)(void *)(row + n_cols);
    int16_t *sum16 = (int16_t *)(void *)(row + sl_act_q8_256_sums_at(n_cols));
    int16_t *sum32 = sum16 + n_cols / 16;
    for (size_t i = 0; i < n_cols / 256; i++)
        d[i] = quantize_block(x + 256 * i, 256, q + 256 * i);
    for (size_t i = 0; i < n_cols / 16; i++)
        sum16[i] = (int16_t)sum_of(q + 16 * i, 16);
    for (size_t i = 0; i < n_cols / 32; i++)
        sum32[i] = (int16_t)sum_of(q + 32 * i, 32);
}

/* ---- Products ---- */

static int32_t dot(const int8_t *w, const int8_t *x, int n)
{
    int32_t sum = 0;
    for (int k = 0; k < n; k++)
        sum += w[k] * x[k];
    return sum;
}

static float add_block32(const block32 *w, int m_is, sl_act_q8_32 x, size_t i, float acc)
{
    const int8_t *xq = x.q + 32 * i;
    if (m_is == SECOND_HALF) {
        acc = fmaf(w->d * x.d[i], (float)dot(w->q, xq, 16), acc);
        return fmaf(w->m * x.d[i], (float)dot(w->q + 16, xq + 16, 16), acc);
    }
    acc = fmaf(w->d * x.d[i], (float)dot(w->q, xq, 32), acc);
    return m_is == ADDED_M ? fmaf(w->m * x.d[i], (float)x.sum[i], acc) : acc;
}

static float add_block256(const block256 *w, int has_min, sl_act_q8_256 x, size_t i, float acc)
{
    int32_t isum = 0, msum = 0;
    for (int j = 0; j < 16; j++)
        isum += w->scale[j] * dot(w->q + 16 * j, x.q + 256 * i + 16 * j, 16);
    acc = fmaf(w->d * x.d[i], (float)isum, acc);
    if (!has_min)
        return acc;
    for (int j = 0; j < 16; j++)
        msum += w->min[j] * x.sum16[16 * i + (size_t)j];
    return fmaf(-(w->dmin * x.d[i]), (float)msum, acc);
}

/* The outputs of a row are its accumulators, so that a block is opened once for all of them. */
static inline void mul32(open32_fn *open, int m_is, SL_MUL_ARGS)
{
    block32 block;
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t b = 0; b < n_batch; b++)
            y[b * y_stride + r] = 0.0f;
        for (size_t i = 0; i < n_cols / 32; i++) {
            open((const char *)w + r * row_bytes, i, &block);
            for (size_t b = 0; b < n_batch; b++) {
                float *out = &y[b * y_stride + r];
                const sl_act_q8_32 x = sl_act_q8_32_row((const char *)act + b * act_bytes, n_cols);
                *out = add_block32(&block, m_is, x, i, *out);
            }
        }
    }
}

static inline void mul256(open256_fn *open, int has_min, SL_MUL_ARGS)
{
    block256 block;
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t b = 0; b < n_batch; b++)
            y[b * y_stride + r] = 0.0f;
        for (size_t i = 0; i < n_cols / 256; i++) {
            open((const char *)w + r * row_bytes, i, &block);
            for (size_t b = 0; b < n_batch; b++) {
                float *out = &y[b * y_stride + r];
                const sl_act_q8_256 x =
                    sl_act_q8_256_row((const char *)act + b * act_bytes, n_cols);
                *out = add_block256(&block, has_min, x, i, *out);
            }
        }
    }
}

#define QUANTISED(type, values, m_is)                                                              \
    static void dequantize_##type(SL_DEQUANTIZE_ARGS)                                              \
    {                                                                                              \
        dequantize##values(open_##type, m_is, w, y, n_cols);                                       \
    }                                                                                              \
    static void mul_##type(SL_MUL_ARGS)                                                            \
    {                                                                                              \
        mul##values(open_##type, m_is, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y,   \
                    y_stride, scratch, beside);                                                    \
    }
QUANTISED(q8_0, 32, NO_M)
QUANTISED(q4_0, 32, NO_M)
QUANTISED(q4_1, 32, ADDED_M)
QUANTISED(q5_0, 32, NO_M)
QUANTISED(q5_1, 32, ADDED_M)
QUANTISED(q4_k, 256, 1)
QUANTISED(q5_k, 256, 1)
QUANTISED(q6_k, 256, 0)
QUANTISED(q2_k, 256, 1)
QUANTISED(q3_k, 256, 0)
QUANTISED(iq4_nl, 32, NO_M)
QUANTISED(iq4_xs, 256, 0)
QUANTISED(mxfp4, 32, NO_M)
QUANTISED(nvfp4, 32, SECOND_HALF)
QUANTISED(tq1_0, 256, 0)
QUANTISED(tq2_0, 256, 0)
QUANTISED(q1_0, 32, NO_M)
QUANTISED(q2_0, 32, NO_M)

void sl_kernels_fill_scalar_quant(sl_kernels *k)
{
    k->dequantize[SL_W_F32] = dequantize_f32;
    k->dequantize[SL_W_F16] = dequantize_f16;
    k->dequantize[SL_W_BF16] = dequantize_bf16;
    k->dequantize[SL_W_F64] = dequantize_f64;
    k->quantize[SL_ACT_Q8_32] = quantize_q8_32;
    k->quantize[SL_ACT_Q8_256] = quantize_q8_256;
#define FILL(slot, type)                                                                           \
    k->dequantize[slot] = dequantize_##type;                                                       \
    k->mul[slot] = mul_##type
    FILL(SL_W_Q8_0, q8_0);
    FILL(SL_W_Q4_0, q4_0);
    FILL(SL_W_Q4_1, q4_1);
    FILL(SL_W_Q5_0, q5_0);
    FILL(SL_W_Q5_1, q5_1);
    FILL(SL_W_Q4_K, q4_k);
    FILL(SL_W_Q5_K, q5_k);
    FILL(SL_W_Q6_K, q6_k);
    FILL(SL_W_Q2_K, q2_k);
    FILL(SL_W_Q3_K, q3_k);
    FILL(SL_W_IQ4_NL, iq4_nl);
    FILL(SL_W_IQ4_XS, iq4_xs);
    FILL(SL_W_MXFP4, mxfp4);
    FILL(SL_W_NVFP4, nvfp4);
    FILL(SL_W_TQ1_0, tq1_0);
    FILL(SL_W_TQ2_0, tq2_0);
    FILL(SL_W_Q1_0, q1_0);
    FILL(SL_W_Q2_0, q2_0);
#undef FILL
}
