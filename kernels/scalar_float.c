/* What every float kernel computes, in its plainest form. The other levels equal this file bit for
 * bit, except that which NaN a NaN is stays open. */
#include "lanes.h"
#include "levels.h"
#include "vmath.h"

static inline void mul(sl_load_fn *load, size_t size, SL_MUL_ARGS)
{
    const uint8_t *rows = w, *xs = act;
    for (size_t b = 0; b < n_batch; b++) {
        const float *x = (const void *)(xs + b * act_bytes);
        for (size_t r = 0; r < n_rows; r++)
            y[b * y_stride + r] = sl_dot(load, size, rows + r * row_bytes, x, n_cols);
    }
}

static void mul_f32(SL_MUL_ARGS)
{
    mul(sl_load_f32, 4, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,
        beside);
}

static void mul_f16(SL_MUL_ARGS)
{
    mul(sl_load_f16, 2, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,
        beside);
}

static void mul_bf16(SL_MUL_ARGS)
{
    mul(sl_load_bf16, 2, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride,
        scratch, beside);
}

static void mul_f64(SL_MUL_ARGS)
{
    mul(sl_load_f64, 8, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,
        beside);
}

static inline void mul_transposed(sl_load_fn *load, size_t size, SL_MUL_ARGS)
{
    (void)scratch;
    (void)beside;
    for (size_t b = 0; b < n_batch; b++) {
        const float *x = (const void *)((const char *)act + b * act_bytes);
        for (size_t r = 0; r < n_rows; r++) {
            const uint8_t *at = (const uint8_t *)w + r * size;
            float lane[SL_LANES] = {0};
            for (size_t c = 0; c < n_cols; c++)
                lane[c % SL_LANES] = fmaf(load(at + c * row_bytes), x[c], lane[c % SL_LANES]);
            y[b * y_stride + r] = sl_lanes_sum(lane);
        }
    }
}

static void mul_transposed_f32(SL_MUL_ARGS)
{
    mul_transposed(sl_load_f32, 4, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y,
                   y_stride, scratch, beside);
}

static void mul_transposed_f16(SL_MUL_ARGS)
{
    mul_transposed(sl_load_f16, 2, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y,
                   y_stride, scratch, beside);
}

static void mul_transposed_bf16(SL_MUL_ARGS)
{
    mul_transposed(sl_load_bf16, 2, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y,
                   y_stride, scratch, beside);
}

static void quantize_f32(SL_QUANTIZE_ARGS)
{
    memcpy(out, x, n_cols * sizeof *x);
}

static void rms_norm(SL_RMS_NORM_ARGS)
{
    const float mean = sl_dot(sl_load_f32, sizeof *x, x, x, n) / (float)n;
    const float scale = 1.0f / sqrtf(mean + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = w ? x[i] * scale * w[i] : x[i] * scale;
}

/* (a, b) turned: one product rounded, the other fused. */
static inline void turn(float *a, float *b, float c, float s)
{
    const float a0 = *a, b0 = *b;
    *a = fmaf(-b0, s, a0 * c);
    *b = fmaf(a0, s, b0 * c);
}

static void rope_halves(SL_ROPE_ARGS)
{
    const size_t half = n_rot / 2;
    for (size_t h = 0; h < n_heads; h++, x += head_stride)
        for (size_t i = 0; i < half; i++)
            turn(x + i, x + half + i, cosine[i], sine[i]);
}

static void rope_pairs(SL_ROPE_ARGS)
{
    const size_t half = n_rot / 2;
    for (size_t h = 0; h < n_heads; h++, x += head_stride)
        for (size_t i = 0; i < half; i++)
            turn(x + 2 * i, x + 2 * i + 1, cosine[i], sine[i]);
}

static void silu_mul(SL_GLU_ARGS)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sl_silu(gate[i]) * up[i];
}

static void gelu_mul(SL_GLU_ARGS)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sl_gelu(gate[i]) * up[i];
}

static void add(SL_ADD_ARGS)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void to_f16(SL_TO_F16_ARGS)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sl_half_of_float(x[i]);
}

void sl_kernels_fill_scalar_float(sl_kernels *k)
{
    k->mul[SL_W_F32] = mul_f32;
    k->mul[SL_W_F16] = mul_f16;
    k->mul[SL_W_BF16] = mul_bf16;
    k->mul[SL_W_F64] = mul_f64;
    k->mul_transposed[SL_W_F32] = mul_transposed_f32;
    k->mul_transposed[SL_W_F16] = mul_transposed_f16;
    k->mul_transposed[SL_W_BF16] = mul_transposed_bf16;
    k->quantize[SL_ACT_F32] = quantize_f32;
    k->rms_norm = rms_norm;
    k->rope_halves = rope_halves;
    k->rope_pairs = rope_pairs;
    k->silu_mul = silu_mul;
    k->gelu_mul = gelu_mul;
    k->add = add;
    k->to_f16 = to_f16;
}
