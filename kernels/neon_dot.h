/* Rows of floats times rows of activations, as lanes.h defines it: four registers hold the 16 lanes
 * of one output. For neon_*.c only. */
#ifndef SL_NEON_DOT_H
#define SL_NEON_DOT_H

#include <arm_neon.h>

#include "float_rows.h"

/* Four elements, at any address. */
SL_INLINE float32x4_t neon_load(sl_weight type, const uint8_t *p)
{
    if (type == SL_W_F32)
        return vreinterpretq_f32_u8(vld1q_u8(p));
    if (type == SL_W_F64)
        return vcombine_f32(vcvt_f32_f64(vreinterpretq_f64_u8(vld1q_u8(p))),
                            vcvt_f32_f64(vreinterpretq_f64_u8(vld1q_u8(p + 16))));
    const uint16x4_t half = vreinterpret_u16_u8(vld1_u8(p));
    if (type == SL_W_F16)
        return vcvt_f32_f16(vreinterpret_f16_u16(half));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
}

/* The first two steps of the tree: 16 lanes become four. */
SL_INLINE float32x4_t neon_fold(const float32x4_t lane[4])
{
    return vaddq_f32(vaddq_f32(lane[0], lane[2]), vaddq_f32(lane[1], lane[3]));
}

/* And the last two. */
SL_INLINE float neon_sum(const float32x4_t lane[4])
{
    const float32x4_t q = neon_fold(lane);
    return vpadds_f32(vadd_f32(vget_low_f32(q), vget_high_f32(q)));
}

/* The lanes that a last, partial chunk of n columns reaches. Out of line: rare, and the tiles' own
 * sums must not get an address. */
static __attribute__((noinline)) void neon_dot_tail(sl_weight type, const uint8_t *w,
                                                    const float *x, size_t n, float32x4_t sum[4])
{
    float lane[SL_LANES];
    memcpy(lane, sum, sizeof lane);
    for (size_t i = 0; i < n; i++)
        lane[i] = fmaf(sl_load_float(type, w + i * sl_float_size(type)), x[i], lane[i]);
    memcpy(sum, lane, sizeof lane);
}

/* R rows by B activation rows from (r, b) up: at most six outputs, which take 24 of 32 registers.
 */
SL_INLINE void neon_dot_tile(sl_weight type, const int R, const int B, const sl_rows *t, size_t r,
                             size_t b)
{
    const size_t size = sl_float_size(type), whole = t->n_cols / SL_LANES * SL_LANES;
    const uint8_t *w = t->w + r * t->row_bytes;
    const float *x = t->x + b * t->x_stride;
    float32x4_t acc[6][4];
    SL_UNROLL
    for (int i = 0; i < R * B; i++)
        SL_UNROLL
    for (int part = 0; part < 4; part++)
        acc[i][part] = vdupq_n_f32(0.0f);
    for (size_t c = 0; c < whole; c += SL_LANES) {
        SL_UNROLL
        for (int part = 0; part < 4; part++) {
            const size_t at = c + 4 * (size_t)part;
            float32x4_t v[4];
            SL_UNROLL
            for (int j = 0; j < B; j++)
                v[j] = vld1q_f32(x + (size_t)j * t->x_stride + at);
            SL_UNROLL
            for (int i = 0; i < R; i++) {
                const float32x4_t u = neon_load(type, w + (size_t)i * t->row_bytes + at * size);
                SL_UNROLL
                for (int j = 0; j < B; j++)
                    acc[i * B + j][part] = vfmaq_f32(acc[i * B + j][part], u, v[j]);
            }
        }
    }
    SL_UNROLL
    for (int i = 0; i < R * B; i++) {
        float32x4_t lanes[4] = {acc[i][0], acc[i][1], acc[i][2], acc[i][3]};
        if (whole < t->n_cols)
            neon_dot_tail(type, w + (size_t)(i / B) * t->row_bytes + whole * size,
                          x + (size_t)(i % B) * t->x_stride + whole, t->n_cols - whole, lanes);
        t->y[(b + (size_t)(i % B)) * t->y_stride + r + (size_t)(i / B)] = neon_sum(lanes);
    }
}

SL_INLINE void neon_dot_strip(sl_weight type, const int R, const int B, const sl_rows *t,
                              size_t begin, size_t end, size_t b)
{
    size_t r = begin;
    for (; r + (size_t)R <= end; r += (size_t)R)
        neon_dot_tile(type, R, B, t, r, b);
    for (; r < end; r++)
        neon_dot_tile(type, 1, B, t, r, b);
}

/* Rows begin .. end by all n_batch activation rows. */
SL_INLINE void neon_dot_block(sl_weight type, const sl_rows *t, size_t begin, size_t end,
                              size_t n_batch)
{
    size_t b = 0;
    for (; n_batch - b == 3 || n_batch - b > 4; b += 3)
        neon_dot_strip(type, 2, 3, t, begin, end, b);
    for (; n_batch - b >= 2; b += 2)
        neon_dot_strip(type, 3, 2, t, begin, end, b);
    if (b < n_batch)
        neon_dot_strip(type, 4, 1, t, begin, end, b);
}

#endif
