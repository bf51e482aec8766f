/* scalar_float.c, eight values at a time. */
#include "avx2_dot.h"
#include "levels.h"
#include "vec_float.h"
#include "vec_transposed.h"

enum {
    BLOCK_BYTES = 256 << 10, /* of weights stay in the second-level cache while a batch passes */
    GEMV_ROWS = 4            /* at a time */
};

/* Prefetches the same place in the next rows: the hardware follows a row, but sees its end too
 * late. (4096 columns of f16 in memory, a Zen 5 core: 24 GB/s without, 38 with.) */
SL_INLINE void gemv(sl_weight type, const avx2_rows *t, size_t n_rows)
{
    const size_t whole = t->n_cols / SL_LANES * SL_LANES, ahead = GEMV_ROWS * t->row_bytes;
    size_t r = 0;
    for (; r + GEMV_ROWS <= n_rows; r += GEMV_ROWS)
        avx2_dot_tile(type, GEMV_ROWS, 1, t, r, 0, 0, whole, NULL, ahead);
    for (; r < n_rows; r++)
        avx2_dot_tile(type, 1, 1, t, r, 0, 0, whole, NULL, 0);
}

SL_INLINE void mul(sl_weight type, SL_MUL_ARGS)
{
    const avx2_rows t = {.w = w,
                         .row_bytes = row_bytes,
                         .x = act,
                         .x_stride = act_bytes / sizeof(float),
                         .n_cols = n_cols,
                         .y = y,
                         .y_stride = y_stride,
                         .stream = true};
    if (n_batch == 1) {
        gemv(type, &t, n_rows);
        return;
    }
    size_t step = row_bytes ? BLOCK_BYTES / row_bytes / 6 * 6 : 30;
    step = step < 12 ? 12 : step > 30 ? 30 : step;
    for (size_t r = 0; r < n_rows; r += step)
        avx2_dot_block(type, &t, r, r + step < n_rows ? r + step : n_rows, n_batch);
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

static void mul_f64(SL_MUL_ARGS)
{
    mul(SL_W_F64, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,
        beside);
}

void sl_kernels_fill_avx2_float(sl_kernels *k)
{
    k->mul[SL_W_F32] = mul_f32;
    k->mul[SL_W_F16] = mul_f16;
    k->mul[SL_W_BF16] = mul_bf16;
    k->mul[SL_W_F64] = mul_f64;
    vec_fill_rows(k);
    vec_fill_transposed(k);
}
