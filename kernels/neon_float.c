/* scalar_float.c, four values at a time. */
#include "levels.h"
#include "neon_dot.h"
#include "neon_math.h"

enum {
    BLOCK_BYTES = 128 << 10 /* of weights stay in the second-level cache while a batch passes */
};

SL_INLINE void mul(sl_weight type, SL_MUL_ARGS)
{
    const sl_rows t = {.w = w,
                       .row_bytes = row_bytes,
                       .x = act,
                       .x_stride = act_bytes / sizeof(float),
                       .n_cols = n_cols,
                       .y = y,
                       .y_stride = y_stride};
    size_t step = n_batch > 1 && row_bytes ? BLOCK_BYTES / row_bytes / 6 * 6 : n_rows;
    step = step < 6 ? 6 : step;
    for (size_t r = 0; r < n_rows; r += step)
        neon_dot_block(type, &t, r, r + step < n_rows ? r + step : n_rows, n_batch);
}

static void mul_f32(SL_MUL_ARGS)
{
    mul(SL_W_F32, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,
        beside);
}

static void mul_f16(SL_MUL_ARGS)
{
    mul(SL_W_F16, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,
        beside);
}

static void mul_bf16(SL_MUL_ARGS)
{
    mul(SL_W_BF16, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,
        beside);
}

static void rms_norm(SL_RMS_NORM_ARGS)
{
    float square;
    const sl_rows t = {.w = (const uint8_t *)x, .x = x, .n_cols = n, .y = &square};
    neon_dot_tile(SL_W_F32, 1, 1, &t, 0, 0);
    const float scale = 1.0f / sqrtf(square / (float)n + eps);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const float32x4_t v = vmulq_n_f32(vld1q_f32(x + i), scale);
        vst1q_f32(y + i, w ? vmulq_f32(v, vld1q_f32(w + i)) : v);
    }
    for (; i < n; i++)
        y[i] = w ? x[i] * scale * w[i] : x[i] * scale;
}

/* (a, b) turned: one product rounded, the other fused. */
SL_INLINE void turn(float32x4_t *a, float32x4_t *b, float32x4_t c, float32x4_t s)
{
    const float32x4_t a0 = *a, b0 = *b;
    *a = vfmsq_f32(vmulq_f32(a0, c), b0, s);
    *b = vfmaq_f32(vmulq_f32(b0, c), a0, s);
}

static void turn_one(float *a, float *b, float c, float s)
{
    const float a0 = *a, b0 = *b;
    *a = fmaf(-b0, s, a0 * c);
    *b = fmaf(a0, s, b0 * c);
}

static void rope_halves(SL_ROPE_ARGS)
{
    const size_t half = n_rot / 2;
    for (size_t h = 0; h < n_heads; h++, x += head_stride) {
        size_t i = 0;
        for (; i + 4 <= half; i += 4) {
            float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(x + half + i);
            turn(&a, &b, vld1q_f32(cosine + i), vld1q_f32(sine + i));
            vst1q_f32(x + i, a);
            vst1q_f32(x + half + i, b);
        }
        for (; i < half; i++)
            turn_one(x + i, x + half + i, cosine[i], sine[i]);
    }
}

static void rope_pairs(SL_ROPE_ARGS)
{
    const size_t half = n_rot / 2;
    for (size_t h = 0; h < n_heads; h++, x += head_stride) {
        size_t i = 0;
        for (; i + 4 <= half; i += 4) {
            float32x4x2_t ab = vld2q_f32(x + 2 * i);
            turn(&ab.val[0], &ab.val[1], vld1q_f32(cosine + i), vld1q_f32(sine + i));
            vst2q_f32(x + 2 * i, ab);
        }
        for (; i < half; i++)
            turn_one(x + 2 * i, x + 2 * i + 1, cosine[i], sine[i]);
    }
}

static void silu_mul(SL_GLU_ARGS)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(y + i, vmulq_f32(neon_silu(vld1q_f32(gate + i)), vld1q_f32(up + i)));
    for (; i < n; i++)
        y[i] = sl_silu(gate[i]) * up[i];
}

static void gelu_mul(SL_GLU_ARGS)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(y + i, vmulq_f32(neon_gelu(vld1q_f32(gate + i)), vld1q_f32(up + i)));
    for (; i < n; i++)
        y[i] = sl_gelu(gate[i]) * up[i];
}

static void add(SL_ADD_ARGS)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(y + i, vaddq_f32(vld1q_f32(y + i), vld1q_f32(x + i)));
    for (; i < n; i++)
        y[i] += x[i];
}

static void to_f16(SL_TO_F16_ARGS)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1_u16(y + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
    for (; i < n; i++)
        y[i] = sl_half_of_float(x[i]);
}

void sl_kernels_fill_neon_float(sl_kernels *k)
{
    k->mul[SL_W_F32] = mul_f32;
    k->mul[SL_W_F16] = mul_f16;
    k->mul[SL_W_BF16] = mul_bf16;
    k->rms_norm = rms_norm;
    k->rope_halves = rope_halves;
    k->rope_pairs = rope_pairs;
    k->silu_mul = silu_mul;
    k->gelu_mul = gelu_mul;
    k->add = add;
    k->to_f16 = to_f16;
}
