/* Blocks to floats and activations to int8, NEON. The arithmetic of every value is that of
 * scalar_quant.c: each product and sum rounded, none fused. */
#include <math.h>

#include "levels.h"
#include "neon_blocks.h"
#include "neon_dot.h"

/* ---- Dequantise ---- */

/* y[0..15] = d * q, plus m when has_m. */
SL_INLINE void store_sixteen(float *y, int8x16_t q, float d, int has_m, float m)
{
    const int16x8_t half[2] = {vmovl_s8(vget_low_s8(q)), vmovl_high_s8(q)};
    SL_UNROLL
    for (int i = 0; i < 4; i++) {
        const int32x4_t four =
            i % 2 ? vmovl_high_s16(half[i / 2]) : vmovl_s16(vget_low_s16(half[i / 2]));
        const float32x4_t product = vmulq_n_f32(vcvtq_f32_s32(four), d);
        vst1q_f32(y + 4 * i, has_m ? vaddq_f32(product, vdupq_n_f32(m)) : product);
    }
}

static void dequantize_f32(SL_DEQUANTIZE_ARGS)
{
    memcpy(y, w, n_cols * sizeof *y);
}

static void dequantize_f16(SL_DEQUANTIZE_ARGS)
{
    const uint8_t *p = w;
    size_t i = 0;
    for (; i + 4 <= n_cols; i += 4)
        vst1q_f32(y + i, neon_load(SL_W_F16, p + 2 * i));
    for (; i < n_cols; i++)
        y[i] = sl_load_f16(p + 2 * i);
}

static void dequantize_bf16(SL_DEQUANTIZE_ARGS)
{
    const uint8_t *p = w;
    size_t i = 0;
    for (; i + 4 <= n_cols; i += 4)
        vst1q_f32(y + i, neon_load(SL_W_BF16, p + 2 * i));
    for (; i < n_cols; i++)
        y[i] = sl_load_bf16(p + 2 * i);
}

/* offset: taken off every value. m_at: where the block's minimum is, or 0. */
#define DEQUANTIZE_32(type, offset, m_at)                                                          \
    static void dequantize_##type(SL_DEQUANTIZE_ARGS)                                              \
    {                                                                                              \
        const uint8_t *b = w;                                                                      \
        for (size_t i = 0; i < n_cols / 32; i++, b += sizeof(sl_##type)) {                         \
            int8x16_t q[2];                                                                        \
            neon_open_##type(b, q);                                                                \
            const float d = sl_half_load(b), m = (m_at) ? sl_half_load(b + (m_at)) : 0.0f;         \
            for (int k = 0; k < 2; k++)                                                            \
                store_sixteen(y + 32 * i + 16 * k, vsubq_s8(q[k], vdupq_n_s8(offset)), d,          \
                              (m_at) != 0, m);                                                     \
        }                                                                                          \
    }
DEQUANTIZE_32(q8_0, 0, 0)
DEQUANTIZE_32(q4_0, 8, 0)
DEQUANTIZE_32(q4_1, 0, 2)
DEQUANTIZE_32(q5_0, 16, 0)
DEQUANTIZE_32(q5_1, 0, 2)

/* -(dmin * minimum) is added: the same bits as subtracting. */
#define DEQUANTIZE_K(type)                                                                         \
    static void dequantize_##type(SL_DEQUANTIZE_ARGS)                                              \
    {                                                                                              \
        const uint8_t *b = w;                                                                      \
        for (size_t i = 0; i < n_cols / 256; i++, b += sizeof(sl_##type)) {                        \
            uint8_t scales[16];                                                                    \
            sl_k_scales(b + 4, scales);                                                            \
            const float d = sl_half_load(b), dmin = sl_half_load(b + 2);                           \
            for (int half = 0; half < 2; half++) {                                                 \
                int8x16_t q[8];                                                                    \
                neon_open_##type(b, half, q);                                                      \
                for (int k = 0; k < 8; k++) {                                                      \
                    const int j = 4 * half + k / 2;                                                \
                    store_sixteen(y + 256 * i + 128 * half + 16 * k, q[k], d * (float)scales[j],   \
                                  1, -(dmin * (float)scales[8 + j]));                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
DEQUANTIZE_K(q4_k)
DEQUANTIZE_K(q5_k)

static void dequantize_q6_k(SL_DEQUANTIZE_ARGS)
{
    const sl_q6_k *b = w;
    for (size_t i = 0; i < n_cols / 256; i++, b++) {
        const float d = sl_half_load(b->d);
        for (int half = 0; half < 2; half++) {
            int8x16_t q[8];
            neon_open_q6_k(b->low, half, q);
            for (int k = 0; k < 8; k++)
                store_sixteen(y + 256 * i + 128 * half + 16 * k, vsubq_s8(q[k], vdupq_n_s8(32)),
                              d * (float)b->scales[8 * half + k], 0, 0.0f);
        }
    }
}

/* ---- Activations to int8 ---- */

/* The largest magnitude of n values, and what takes them to -127 .. 127; inverse 0: all q are 0. */
static float scale_of(const float *x, size_t n, float *inverse)
{
    uint32x4_t amax = vdupq_n_u32(0);
    for (size_t i = 0; i < n; i += 4)
        amax = vmaxq_u32(amax, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
    const float a = sl_float_of_bits(vmaxvq_u32(amax));
    *inverse = 0.0f;
    if (!isfinite(a))
        return NAN;
    if (a < SL_ACT_TINY)
        return 0.0f;
    const float scale = a / 127.0f;
    *inverse = 1.0f / scale;
    return scale;
}

/* What the least-squares scale is made of: 16 lanes of t * q, and sums of q^2. */
typedef struct fit {
    float32x4_t tq[4];
    int32x4_t square;
} fit;

static inline int32x4_t rounded(const float *x, float inverse, float32x4_t *lanes)
{
    const float32x4_t t = vmulq_n_f32(vld1q_f32(x), inverse);
    const int32x4_t q = vcvtnq_s32_f32(t); /* to nearest, ties to even */
    *lanes = vfmaq_f32(*lanes, t, vcvtq_f32_s32(q));
    return q;
}

/* 16 values to bytes; returns their sum. */
static inline int quantize_16(const float *x, float inverse, fit *f, int8_t *out)
{
    if (inverse == 0.0f) { /* 0 * infinity would not give 0 */
        vst1q_s8(out, vdupq_n_s8(0));
        return 0;
    }
    int32x4_t q[4];
    SL_UNROLL
    for (int i = 0; i < 4; i++)
        q[i] = rounded(x + 4 * i, inverse, &f->tq[i]);
    const int16x8_t a = vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1]));
    const int16x8_t b = vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]));
    const int8x16_t bytes = vcombine_s8(vmovn_s16(a), vmovn_s16(b));
    f->square = vdotq_s32(f->square, bytes, bytes);
    vst1q_s8(out, bytes);
    return vaddlvq_s8(bytes);
}

static float fitted(const fit *f, float scale)
{
    return scale * (neon_sum(f->tq) / (float)vaddvq_s32(f->square));
}

static void quantize_q8_32(SL_QUANTIZE_ARGS)
{
    char *row = out;
    int8_t *q = out;
    float *d = (float *)(void *)(row + n_cols);
    int32_t *sum = (int32_t *)(void *)(row + sl_act_q8_32_sums_at(n_cols));
    for (size_t i = 0; i < n_cols / 32; i++) {
        fit f = {0};
        float inverse;
        const float scale = scale_of(x + 32 * i, 32, &inverse);
        const int first = quantize_16(x + 32 * i, inverse, &f, q + 32 * i);
        sum[i] = first + quantize_16(x + 32 * i + 16, inverse, &f, q + 32 * i + 16);
        d[i] = inverse != 0.0f ? fitted(&f, scale) : scale;
    }
}

static void quantize_q8_256(SL_QUANTIZE_ARGS)
{
    char *row = out;
    int8_t *q = out;
    float *d = (float *)(void *)(row + n_cols);
    int16_t *sum16 = (int16_t *)(void *)(row + sl_act_q8_256_sums_at(n_cols));
    int16_t *sum32 = sum16 + n_cols / 16;
    for (size_t i = 0; i < n_cols / 256; i++) {
        fit f = {0};
        float inverse;
        const float scale = scale_of(x + 256 * i, 256, &inverse);
        for (size_t j = 16 * i; j < 16 * i + 16; j++)
            sum16[j] = (int16_t)quantize_16(x + 16 * j, inverse, &f, q + 16 * j);
        for (size_t j = 8 * i; j < 8 * i + 8; j++)
            sum32[j] = (int16_t)(sum16[2 * j] + sum16[2 * j + 1]);
        d[i] = inverse != 0.0f ? fitted(&f, scale) : scale;
    }
}

void sl_kernels_fill_neon_dequant(sl_kernels *k)
{
    k->dequantize[SL_W_F32] = dequantize_f32;
    k->dequantize[SL_W_F16] = dequantize_f16;
    k->dequantize[SL_W_BF16] = dequantize_bf16;
    k->dequantize[SL_W_Q8_0] = dequantize_q8_0;
    k->dequantize[SL_W_Q4_0] = dequantize_q4_0;
    k->dequantize[SL_W_Q4_1] = dequantize_q4_1;
    k->dequantize[SL_W_Q5_0] = dequantize_q5_0;
    k->dequantize[SL_W_Q5_1] = dequantize_q5_1;
    k->dequantize[SL_W_Q4_K] = dequantize_q4_k;
    k->dequantize[SL_W_Q5_K] = dequantize_q5_k;
    k->dequantize[SL_W_Q6_K] = dequantize_q6_k;
    k->quantize[SL_ACT_Q8_32] = quantize_q8_32;
    k->quantize[SL_ACT_Q8_256] = quantize_q8_256;
}
