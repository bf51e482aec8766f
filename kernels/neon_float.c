/* scalar_float.c, four values at a time. */
#include "levels.h"
#include "vec_float.h"
#include "vec_transposed.h"
#include "neon_dot.h"

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

static void mul_f64(SL_MUL_ARGS)
{
    mul(SL_W_F64, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,
        beside);
}

static void mul_bf16(SL_MUL_ARGS)
{
    mul(SL_W_BF16, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,
        beside);
}

void sl_kernels_fill_neon_float(sl_kernels *k)
{
    k->mul[SL_W_F32] = mul_f32;
    k->mul[SL_W_F16] = mul_f16;
    k->mul[SL_W_BF16] = mul_bf16;
    k->mul[SL_W_F64] = mul_f64;
    vec_fill_rows(k);
    vec_fill_transposed(k);
}
