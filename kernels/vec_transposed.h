/* Products with matrices of floats that lie column after column, for every vector level:
 * neighbouring outputs are in the lanes of a register, and each of the 16 virtual lanes of lanes.h
 * has registers of its own. For many activation rows one virtual lane comes after the other, its
 * sums in registers; for one, columns come in the order of their addresses, the sums of all in the
 * first-level cache. */
#ifndef SL_VEC_TRANSPOSED_H
#define SL_VEC_TRANSPOSED_H

#include "vec.h"

/* ---- some activation rows ---- */

enum {
    COLUMN_AHEAD = 8 * SL_LANES,    /* columns, of which the bytes are fetched ahead */
    COLUMN_WIDE = VEC == 8 ? 2 : 4, /* vectors of outputs of a tile */
    COLUMN_ROWS = 4,                /* activation rows of it, at most */
    COLUMN_SUMS = COLUMN_WIDE * COLUMN_ROWS
};

/* The column that is read COLUMN_AHEAD / SL_LANES steps after c: of this lane, or of the next one.
 */
SL_INLINE size_t column_ahead(size_t c, size_t n_cols)
{
    const size_t next = c + COLUMN_AHEAD;
    if (next < n_cols)
        return next;
    const size_t end = n_cols - 1 - (n_cols - 1 - c) % SL_LANES + SL_LANES;
    const size_t wrapped = c % SL_LANES + 1 + (next - end);
    return wrapped < n_cols ? wrapped : c;
}

/* R vectors of outputs by B activation rows from (r, b) up. some: outputs of the only vector, where
 * R is 1. */
SL_INLINE void transposed_tile(sl_weight type, const int R, const int B, const sl_rows *t, size_t r,
                               size_t b, size_t some)
{
    const size_t size = sl_float_size(type), line = 64, bytes = (size_t)R * VEC * size;
    const uint8_t *w = t->w + r * size;
    const float *x = t->x + b * t->x_stride;
    vec kept[SL_LANES][COLUMN_SUMS];
    for (size_t lane = 0; lane < SL_LANES; lane++) {
        vec acc[COLUMN_SUMS];
        SL_UNROLL
        for (int i = 0; i < R * B; i++)
            acc[i] = vec_all(0.0f);
        for (size_t c = lane; c < t->n_cols; c += SL_LANES) {
            const uint8_t *at = w + c * t->row_bytes;
            vec u[COLUMN_WIDE];
            if (b == 0) {
                const uint8_t *next = w + column_ahead(c, t->n_cols) * t->row_bytes;
                SL_UNROLL
                for (size_t i = 0; i < bytes; i += line)
                    __builtin_prefetch(next + i);
            }
            SL_UNROLL
            for (int i = 0; i < R; i++)
                u[i] = some == VEC ? vec_load_as(type, at + (size_t)i * VEC * size)
                                   : vec_load_as_some(type, at, some);
            SL_UNROLL
            for (int j = 0; j < B; j++) {
                const vec v = vec_all(x[(size_t)j * t->x_stride + c]);
                SL_UNROLL
                for (int i = 0; i < R; i++)
                    acc[i * B + j] = vec_fma(u[i], v, acc[i * B + j]);
            }
        }
        SL_UNROLL
        for (int i = 0; i < R * B; i++)
            kept[lane][i] = acc[i];
    }
    SL_UNROLL
    for (int i = 0; i < R * B; i++) {
        for (int half = SL_LANES / 2; half > 0; half /= 2)
            for (int lane = 0; lane < half; lane++)
                kept[lane][i] = vec_add(kept[lane][i], kept[lane + half][i]);
        vec_store_some(t->y + (b + (size_t)(i % B)) * t->y_stride + r + (size_t)(i / B) * VEC,
                       kept[0][i], some);
    }
}

/* ---- one activation row ---- */

/* Steps of a lane that are taken together (each sum is then loaded and stored once for four), the
 * columns of all lanes then, outputs of a strip: 16 KiB of sums, 512 bytes of a column in 16 bits.
 * (One matrix of 1536 x 2048 bf16 after the other in memory, huge pages: 23 GB/s, 60 from cache; a
 * lane after the other 21 and 14 at AVX-512 and AVX2.) */
enum { STRIP_STEPS = 4, STRIP_COLUMNS = STRIP_STEPS * SL_LANES, STRIP_ROWS = 256 };

/* n_steps columns of each lane from c up times a strip of n vectors, added to its lanes. */
SL_INLINE void strip_columns(sl_weight type, const int n_steps, const sl_rows *t, size_t r,
                             size_t n, size_t c, vec lanes[SL_LANES][STRIP_ROWS / VEC])
{
    const size_t size = sl_float_size(type), step = SL_LANES * t->row_bytes;
    for (size_t lane = 0; lane < SL_LANES && c + lane < t->n_cols; lane++) {
        const uint8_t *w = t->w + (c + lane) * t->row_bytes + r * size;
        vec x[STRIP_STEPS];
        SL_UNROLL
        for (int i = 0; i < n_steps; i++)
            x[i] = vec_all(t->x[c + lane + (size_t)i * SL_LANES]);
        for (int i = 0; i < n_steps; i++) /* runs are too short for the hardware to see */
            for (size_t at = 0; at < n * VEC * size; at += 64)
                __builtin_prefetch(w + ((size_t)i + STRIP_STEPS) * step + at);
        for (size_t v = 0; v < n; v++) {
            vec sum = lanes[lane][v];
            SL_UNROLL
            for (int i = 0; i < n_steps; i++)
                sum = vec_fma(vec_load_as(type, w + (size_t)i * step + v * VEC * size), x[i], sum);
            lanes[lane][v] = sum;
        }
    }
}

/* n vectors of outputs from r up: columns in the order of their addresses, a few at a time, all
 * lanes in the first-level cache. */
SL_INLINE void transposed_strip(sl_weight type, const sl_rows *t, size_t r, size_t n)
{
    vec lanes[SL_LANES][STRIP_ROWS / VEC];
    for (size_t lane = 0; lane < SL_LANES; lane++)
        for (size_t v = 0; v < n; v++)
            lanes[lane][v] = vec_all(0.0f);
    size_t c = 0;
    for (; c + STRIP_COLUMNS <= t->n_cols; c += STRIP_COLUMNS)
        strip_columns(type, STRIP_STEPS, t, r, n, c, lanes);
    for (; c < t->n_cols; c += SL_LANES)
        strip_columns(type, 1, t, r, n, c, lanes);
    for (size_t v = 0; v < n; v++) {
        for (int half = SL_LANES / 2; half > 0; half /= 2)
            for (int lane = 0; lane < half; lane++)
                lanes[lane][v] = vec_add(lanes[lane][v], lanes[lane + half][v]);
        vec_store(t->y + r + v * VEC, lanes[0][v]);
    }
}

/* R vectors of outputs from r up by all activation rows. */
SL_INLINE void transposed_block(sl_weight type, const int R, const sl_rows *t, size_t r,
                                size_t n_batch, size_t some)
{
    size_t b = 0;
    for (; n_batch - b >= COLUMN_ROWS; b += COLUMN_ROWS)
        transposed_tile(type, R, COLUMN_ROWS, t, r, b, some);
    for (; n_batch - b >= 2; b += 2)
        transposed_tile(type, R, 2, t, r, b, some);
    if (b < n_batch)
        transposed_tile(type, R, 1, t, r, b, some);
}

SL_INLINE void mul_transposed(sl_weight type, SL_MUL_ARGS)
{
    const sl_rows t = {.w = w,
                       .row_bytes = row_bytes,
                       .x = act,
                       .x_stride = act_bytes / sizeof(float),
                       .n_cols = n_cols,
                       .y = y,
                       .y_stride = y_stride};
    size_t r = 0;
    (void)scratch;
    (void)beside;
    while (n_batch == 1 && r + VEC <= n_rows) {
        const size_t left = (n_rows - r) / VEC, most = STRIP_ROWS / VEC,
                     n = left < most ? left : most;
        transposed_strip(type, &t, r, n);
        r += n * VEC;
    }
    for (; r + COLUMN_WIDE * VEC <= n_rows; r += COLUMN_WIDE * VEC)
        transposed_block(type, COLUMN_WIDE, &t, r, n_batch, VEC);
    for (; r < n_rows; r += VEC)
        transposed_block(type, 1, &t, r, n_batch, vec_left(n_rows, r));
}

static void mul_transposed_f32(SL_MUL_ARGS)
{
    mul_transposed(SL_W_F32, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride,
                   scratch, beside);
}

static void mul_transposed_f16(SL_MUL_ARGS)
{
    mul_transposed(SL_W_F16, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride,
                   scratch, beside);
}

static void mul_transposed_bf16(SL_MUL_ARGS)
{
    mul_transposed(SL_W_BF16, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride,
                   scratch, beside);
}

static inline void vec_fill_transposed(sl_kernels *k)
{
    k->mul_transposed[SL_W_F32] = mul_transposed_f32;
    k->mul_transposed[SL_W_F16] = mul_transposed_f16;
    k->mul_transposed[SL_W_BF16] = mul_transposed_bf16;
}

#endif
