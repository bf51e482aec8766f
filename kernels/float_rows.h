/* What all vector levels of the float products share: rows of floats of some type, their activation
 * rows, and what is read after them. */
#ifndef SL_FLOAT_ROWS_H
#define SL_FLOAT_ROWS_H

#include "inline.h"
#include "kernels.h"
#include "lanes.h"

SL_INLINE size_t sl_float_size(sl_weight type)
{
    return type == SL_W_F64 ? 8 : type == SL_W_F32 ? 4 : 2;
}

static inline float sl_load_float(sl_weight type, const uint8_t *p)
{
    return type == SL_W_F32   ? sl_load_f32(p)
           : type == SL_W_F64 ? sl_load_f64(p)
           : type == SL_W_F16 ? sl_load_f16(p)
                              : sl_load_bf16(p);
}

/* Rows that the caller reads next, brought in one by one as it works: all at once they would have
 * to be waited for. */
typedef struct sl_next {
    const uint8_t *rows;
    size_t stride, bytes; /* bytes: of a row, 0 for nothing */
} sl_next;

static inline void sl_prefetch_row(const sl_next *n, size_t r)
{
    for (size_t i = 0; i < n->bytes; i += 64)
        __builtin_prefetch(n->rows + r * n->stride + i);
}

typedef struct sl_rows {
    const uint8_t *w; /* rows of row_bytes */
    size_t row_bytes;
    const float *x; /* activation rows, x_stride floats apart */
    size_t x_stride;
    size_t n_cols;
    float *y; /* y[b * y_stride + r] */
    size_t y_stride;
    bool stream; /* rows come from memory: prefetch the following ones of their own */
    sl_next next;
} sl_rows;

#endif
