/* The definition of products whose scales stand beside the blocks (kernels.h, sl_scales; bytes:
 * scales.h). Other levels give the same bits.
 *
 * MLX4, MLX8 and MXFP4 read int8 activations as the types of 32 in scalar_quant.c do, 32 columns at
 * a time in ascending order, with one accumulator that starts at 0; isum is the exact sum of
 * integer weights times q of the activations:
 *
 *   MXFP4        acc = fma(round(2^(e-128) * x.d), float(isum), acc)    weights: twice E2M1
 *   MLX4 MLX8    acc = fma(round(scale * x.d), float(isum), acc)
 *                acc = fma(round(bias * x.d), float(sum of q), acc)     afterwards
 *
 * FP8 reads floats. A tile's columns go into 16 virtual lanes that start at 0, lane i takes columns
 * i, i + 16, ... of the tile with fused multiply-add. After each tile, in ascending order, all 16
 * lanes are added to those of the row: total[i] = fma(lane[i], scale, total[i]). At the end the
 * tree of lanes.h adds the totals. */
#include "lanes.h"
#include "levels.h"
#include "quant.h"
#include "scales.h"

typedef int value_fn(const uint8_t *row, size_t i);

static uint32_t nibble(const uint8_t *row, size_t i)
{
    return (uint32_t)row[i / 2] >> (i % 2 * 4) & 15;
}

static int value_mlx4(const uint8_t *row, size_t i)
{
    return (int)nibble(row, i);
}

static int value_mlx8(const uint8_t *row, size_t i)
{
    return row[i];
}

static int value_mxfp4(const uint8_t *row, size_t i)
{
    return sl_e2m1_twice(nibble(row, i));
}

/* ---- Dequantise ---- */

static inline void dequantize_affine(value_fn *value, SL_DEQUANTIZE_ARGS)
{
    for (size_t i = 0; i < n_cols; i++) {
        const size_t g = i / beside->group;
        const float product = (float)value(w, i) * sl_scale_load(beside->type, beside->scale, g);
        y[i] = product + sl_scale_load(beside->type, beside->bias, g);
    }
}

static void dequantize_mlx4(SL_DEQUANTIZE_ARGS)
{
    dequantize_affine(value_mlx4, w, y, n_cols, beside);
}

static void dequantize_mlx8(SL_DEQUANTIZE_ARGS)
{
    dequantize_affine(value_mlx8, w, y, n_cols, beside);
}

static void dequantize_mxfp4(SL_DEQUANTIZE_ARGS)
{
    const uint8_t *scales = beside->scale;
    for (size_t i = 0; i < n_cols;
         i++) { /* code 8 is -0, as other readers of these files have it */
        const uint32_t code = nibble(w, i);
        const float size = (float)sl_e2m1_twice(code & 7);
        y[i] = (code & 8 ? -size : size) * sl_e8m0_half(scales[i / beside->group]);
    }
}

static void dequantize_fp8(SL_DEQUANTIZE_ARGS)
{
    for (size_t i = 0; i < n_cols; i++)
        y[i] = sl_e4m3_to_float(((const uint8_t *)w)[i]) *
               sl_scale_load(beside->type, beside->scale, i / beside->group);
}

/* ---- Products ---- */

static inline float dot_affine(value_fn *value, const uint8_t *row, const void *scale,
                               const void *bias, const sl_scales *s, sl_act_q8_32 x, size_t n_cols)
{
    float acc = 0.0f;
    for (size_t i = 0; i < n_cols / 32; i++) {
        const size_t g = 32 * i / s->group;
        int32_t isum = 0;
        for (size_t k = 32 * i; k < 32 * i + 32; k++)
            isum += value(row, k) * x.q[k];
        const float d =
            bias ? sl_scale_load(s->type, scale, g) : sl_e8m0_half(((const uint8_t *)scale)[g]);
        acc = fmaf(d * x.d[i], (float)isum, acc);
        if (bias)
            acc = fmaf(sl_scale_load(s->type, bias, g) * x.d[i], (float)x.sum[i], acc);
    }
    return acc;
}

static inline void mul_affine(value_fn *value, SL_MUL_ARGS)
{
    for (size_t b = 0; b < n_batch; b++) {
        const sl_act_q8_32 x = sl_act_q8_32_row((const char *)act + b * act_bytes, n_cols);
        for (size_t r = 0; r < n_rows; r++) {
            const size_t at = sl_scales_at(beside, r);
            const void *bias = beside->bias ? (const char *)beside->bias + at : NULL;
            y[b * y_stride + r] =
                dot_affine(value, (const uint8_t *)w + r * row_bytes,
                           (const char *)beside->scale + at, bias, beside, x, n_cols);
        }
    }
}

static void mul_mlx4(SL_MUL_ARGS)
{
    mul_affine(value_mlx4, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride,
               scratch, beside);
}

static void mul_mlx8(SL_MUL_ARGS)
{
    mul_affine(value_mlx8, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride,
               scratch, beside);
}

static void mul_mxfp4(SL_MUL_ARGS)
{
    mul_affine(value_mxfp4, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride,
               scratch, beside);
}

static float dot_fp8(const uint8_t *row, const void *scale, const sl_scales *s, const float *x,
                     size_t n_cols)
{
    float total[SL_LANES] = {0};
    for (size_t c = 0, g = 0; c < n_cols; c += s->group, g++) {
        const size_t n = n_cols - c < s->group ? n_cols - c : s->group;
        const float d = sl_scale_load(s->type, scale, g);
        float lane[SL_LANES] = {0};
        for (size_t i = 0; i < n; i++)
            lane[i % SL_LANES] = fmaf(sl_e4m3_to_float(row[c + i]), x[c + i], lane[i % SL_LANES]);
        for (int i = 0; i < SL_LANES; i++)
            total[i] = fmaf(lane[i], d, total[i]);
    }
    return sl_lanes_sum(total);
}

static void mul_fp8(SL_MUL_ARGS)
{
    for (size_t b = 0; b < n_batch; b++) {
        const float *x = (const void *)((const char *)act + b * act_bytes);
        for (size_t r = 0; r < n_rows; r++)
            y[b * y_stride + r] =
                dot_fp8((const uint8_t *)w + r * row_bytes,
                        (const char *)beside->scale + sl_scales_at(beside, r), beside, x, n_cols);
    }
}

void sl_kernels_fill_scalar_layouts(sl_kernels *k)
{
    k->dequantize[SL_W_MLX4] = dequantize_mlx4;
    k->dequantize[SL_W_MLX8] = dequantize_mlx8;
    k->dequantize[SL_W_MXFP4_SPLIT] = dequantize_mxfp4;
    k->dequantize[SL_W_FP8] = dequantize_fp8;
    k->mul[SL_W_MLX4] = mul_mlx4;
    k->mul[SL_W_MLX8] = mul_mlx8;
    k->mul[SL_W_MXFP4_SPLIT] = mul_mxfp4;
    k->mul[SL_W_FP8] = mul_fp8;
}
