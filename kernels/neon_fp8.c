/* Products with FP8 weights, whose scales stand beside the blocks (scalar_layouts.c): four
 * registers are the 16 lanes of a tile of columns; weights are decoded once for up to four
 * activation rows. */
#include "levels.h"
#include "neon_dot.h"
#include "scales.h"

enum { MOST_ROWS = 4 }; /* activation rows */

/* Sixteen numbers. Exponent and mantissa are those of a half whose exponent counts from 8 lower. */
SL_INLINE void decode(const uint8_t *p, float32x4_t w[4])
{
    const uint8x16_t bytes = vld1q_u8(p);
    const uint16x8_t wide[2] = {vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)};
    SL_UNROLL
    for (int i = 0; i < 2; i++) {
        const uint16x8_t size = vandq_u16(wide[i], vdupq_n_u16(0x7f));
        const uint16x8_t sign = vshlq_n_u16(vandq_u16(wide[i], vdupq_n_u16(0x80)), 8);
        const uint16x8_t nan = vandq_u16(vceqq_u16(size, vdupq_n_u16(0x7f)), vdupq_n_u16(0x7e00));
        const uint16x8_t half = vorrq_u16(vorrq_u16(vshlq_n_u16(size, 7), sign), nan);
        w[2 * i] = vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(half))), 256.0f);
        w[2 * i + 1] = vmulq_n_f32(vcvt_high_f32_f16(vreinterpretq_f16_u16(half)), 256.0f);
    }
}

/* One row by B activation rows. */
SL_INLINE void dot_row(const int B, const uint8_t *row, const void *scale, const sl_scales *s,
                       const float *x, size_t x_stride, size_t n_cols, float *y, size_t y_stride)
{
    float32x4_t total[MOST_ROWS][4];
    for (int b = 0; b < B; b++)
        for (int i = 0; i < 4; i++)
            total[b][i] = vdupq_n_f32(0.0f);
    for (size_t c = 0, g = 0; c < n_cols; c += s->group, g++) {
        const size_t end = n_cols - c < s->group ? n_cols : c + s->group;
        const float d = sl_scale_load(s->type, scale, g);
        float32x4_t lane[MOST_ROWS][4];
        SL_UNROLL
        for (int b = 0; b < B; b++)
            SL_UNROLL
        for (int i = 0; i < 4; i++)
            lane[b][i] = vdupq_n_f32(0.0f);
        size_t at = c;
        for (; at + SL_LANES <= end; at += SL_LANES) {
            float32x4_t w[4];
            decode(row + at, w);
            SL_UNROLL
            for (size_t b = 0; b < (size_t)B; b++)
                SL_UNROLL
            for (size_t i = 0; i < 4; i++)
                lane[b][i] = vfmaq_f32(lane[b][i], w[i], vld1q_f32(x + b * x_stride + at + 4 * i));
        }
        for (size_t b = 0; at < end && b < (size_t)B; b++) {
            float some[SL_LANES];
            memcpy(some, lane[b], sizeof some);
            for (size_t i = at; i < end; i++)
                some[i - at] = fmaf(sl_e4m3_to_float(row[i]), x[b * x_stride + i], some[i - at]);
            memcpy(lane[b], some, sizeof some);
        }
        SL_UNROLL
        for (int b = 0; b < B; b++)
            SL_UNROLL
        for (int i = 0; i < 4; i++)
            total[b][i] = vfmaq_n_f32(total[b][i], lane[b][i], d);
    }
    for (size_t b = 0; b < (size_t)B; b++)
        y[b * y_stride] = neon_sum(total[b]);
}

static void mul_fp8(SL_MUL_ARGS)
{
    const size_t stride = act_bytes / sizeof(float);
    for (size_t r = 0; r < n_rows; r++) {
        const uint8_t *row = (const uint8_t *)w + r * row_bytes;
        const void *scale = (const char *)beside->scale + sl_scales_at(beside, r);
        const float *x = act;
        size_t b = 0;
        for (; b + 4 <= n_batch; b += 4)
            dot_row(4, row, scale, beside, x + b * stride, stride, n_cols, y + b * y_stride + r,
                    y_stride);
        for (; b < n_batch; b++)
            dot_row(1, row, scale, beside, x + b * stride, stride, n_cols, y + b * y_stride + r,
                    y_stride);
    }
}

void sl_kernels_fill_neon_fp8(sl_kernels *k)
{
    k->mul[SL_W_FP8] = mul_fp8;
}
