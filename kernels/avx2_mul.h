/* Products with quantised weights, 256 bits, for every level that has a version of avx2_step.h: the
 * file of the level includes this and says, type by type, MUL(type, 32 or 256, how). Rows lie in
 * lanes: a vector holds four columns of eight rows, an activation row is broadcast four columns at
 * a time, and every lane keeps its row's sums. So each output is computed exactly as scalar_quant.c
 * says, whatever the batch. */
#ifndef SL_AVX2_MUL_H
#define SL_AVX2_MUL_H

#include "avx2_blocks.h"
#include "avx2_single.h"
#include "kernels.h"

/* How a type's tile is multiplied. */
typedef struct form32 {
    int n_in_16;   /* pair sums that fit 16 bits */
    int is_signed; /* weight bytes are signed */
    int offset;    /* to take off, a power of two; 0: none */
    int has_m;
    int halves; /* m is the scale of the second half */
} form32;

typedef struct form256 {
    int n_in_16, is_signed, n_scales;
    int n_mins;   /* min goes with the sums of q: 4: per 32, 8: per 16 */
    int has_dmin; /* min holds minima; else what to multiply the offset with */
    int offset;
} form256;

/* s - offset * sum */
SL_INLINE __m256i take_off(__m256i s, __m256i sum, int offset)
{
    if (!offset)
        return s;
    return _mm256_sub_epi32(
        s, offset == 1 ? sum : _mm256_slli_epi32(sum, __builtin_ctz((unsigned)offset)));
}

/* isum[c][r] = n vectors of tile r, from vector k up, times those columns of activation row c. */
SL_INLINE void sum_products(form32 f, const sl_tile32 *t, int n_tiles, const sl_act_q8_32 *x,
                            int n_x, size_t i, int k, int n,
                            __m256i isum[SL_MAX_COLS][SL_MAX_TILES])
{
    const __m256i *q[SL_MAX_TILES];
    const int8_t *xq[SL_MAX_COLS];
    SL_UNROLL
    for (int r = 0; r < n_tiles; r++)
        q[r] = t[r].q + k;
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        xq[c] = x[c].q + 32 * i + 4 * k;
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            isum[c][r] = _mm256_setzero_si256();
    }
    sl_add_products(q, NULL, n_tiles, xq, n_x, n, f.n_in_16, f.is_signed, isum);
}

SL_INLINE void multiply_halves(form32 f, const sl_tile32 *t, int n_tiles, const sl_act_q8_32 *x,
                               int n_x, size_t i, __m256 acc[SL_MAX_COLS][SL_MAX_TILES])
{
    SL_UNROLL
    for (int h = 0; h < 2; h++) {
        __m256i isum[SL_MAX_COLS][SL_MAX_TILES];
        sum_products(f, t, n_tiles, x, n_x, i, 4 * h, 4, isum);
        SL_UNROLL
        for (int c = 0; c < n_x; c++) {
            const __m256 dx = _mm256_set1_ps(x[c].d[i]);
            SL_UNROLL
            for (int r = 0; r < n_tiles; r++)
                acc[c][r] = _mm256_fmadd_ps(_mm256_mul_ps(h ? t[r].m : t[r].d, dx),
                                            _mm256_cvtepi32_ps(isum[c][r]), acc[c][r]);
        }
    }
}

/* acc[c][r] += block i of n_tiles tiles times n_x activation rows. */
SL_INLINE void multiply32(form32 f, const sl_tile32 *t, int n_tiles, const sl_act_q8_32 *x, int n_x,
                          size_t i, __m256 acc[SL_MAX_COLS][SL_MAX_TILES])
{
    __m256i isum[SL_MAX_COLS][SL_MAX_TILES];
    if (f.halves) {
        multiply_halves(f, t, n_tiles, x, n_x, i, acc);
        return;
    }
    sum_products(f, t, n_tiles, x, n_x, i, 0, 8, isum);
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        const __m256 dx = _mm256_set1_ps(x[c].d[i]);
        const __m256i sum = _mm256_set1_epi32(x[c].sum[i]);
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++) {
            const __m256i s = take_off(isum[c][r], sum, f.offset);
            acc[c][r] =
                _mm256_fmadd_ps(_mm256_mul_ps(t[r].d, dx), _mm256_cvtepi32_ps(s), acc[c][r]);
            if (f.has_m)
                acc[c][r] =
                    _mm256_fmadd_ps(_mm256_mul_ps(t[r].m, dx), _mm256_cvtepi32_ps(sum), acc[c][r]);
        }
    }
}

SL_INLINE void multiply256(form256 f, const sl_tile256 *t, int n_tiles, const sl_act_q8_256 *x,
                           int n_x, size_t i, __m256 acc[SL_MAX_COLS][SL_MAX_TILES])
{
    __m256i isum[SL_MAX_COLS][SL_MAX_TILES], msum[SL_MAX_COLS][SL_MAX_TILES];
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++)
        isum[c][r] = msum[c][r] = _mm256_setzero_si256();
    const int per_scale = 64 / f.n_scales; /* vectors of a sub-block */
    for (int j = 0; j < f.n_scales; j++) {
        const __m256i *q[SL_MAX_TILES];
        const int8_t *xq[SL_MAX_COLS];
        __m256i scale[SL_MAX_TILES];
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++) {
            q[r] = t[r].q + j * per_scale;
            scale[r] = t[r].scale[j];
        }
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            xq[c] = x[c].q + 256 * i + 4 * (size_t)(j * per_scale);
        sl_add_products(q, scale, n_tiles, xq, n_x, per_scale, f.n_in_16, f.is_signed, isum);
    }
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        const int16_t *sums = f.n_mins == 4 ? x[c].sum32 + 8 * i : x[c].sum16 + 16 * i;
        SL_UNROLL
        for (int p = 0; p < f.n_mins; p++) {
            const __m256i pair = sl_broadcast32(sums + 2 * p);
            SL_UNROLL
            for (int r = 0; r < n_tiles; r++)
                msum[c][r] = sl_add_pairs(msum[c][r], t[r].min[p], pair);
        }
        const __m256 dx = _mm256_set1_ps(x[c].d[i]);
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++) {
            const __m256i s = take_off(isum[c][r], msum[c][r], f.offset);
            acc[c][r] =
                _mm256_fmadd_ps(_mm256_mul_ps(t[r].d, dx), _mm256_cvtepi32_ps(s), acc[c][r]);
            if (f.has_dmin)
                acc[c][r] = _mm256_fnmadd_ps(_mm256_mul_ps(t[r].dmin, dx),
                                             _mm256_cvtepi32_ps(msum[c][r]), acc[c][r]);
        }
    }
}

SL_INLINE void store_rows(float *y, __m256 v, size_t n)
{
    if (n >= 8) {
        _mm256_storeu_ps(y, v);
        return;
    }
    float lanes[8];
    _mm256_storeu_ps(lanes, v);
    memcpy(y, lanes, n * sizeof *y);
}

/* Eight rows leave the hardware prefetcher with eight streams, which is too many: the next eight
 * rows, which are contiguous, are fetched in order, a piece with each block of these. Addresses
 * past the end of the matrix are harmless. */
SL_INLINE void fetch_ahead(uintptr_t next, size_t i, size_t block_bytes)
{
    for (size_t k = 0; k < 8 * block_bytes; k += 64)
        _mm_prefetch((const char *)(next + i * 8 * block_bytes + k), _MM_HINT_T0);
}

typedef struct product {
    const void *w;
    size_t row_bytes, n_rows, n_cols;
    const char *act;
    size_t act_bytes, n_batch;
    float *y;
    size_t y_stride;
    void *scratch;
} product;

/* What the loops below know of a type. All arguments of this kind are constants where they are
 * used, so that everything is inlined. */
typedef void open_fn(const sl_rows8 *w, size_t i, void *tile);
typedef void multiply_fn(const void *tiles, int n_tiles, const char *act, size_t act_bytes,
                         size_t n_cols, int n_x, size_t i, __m256 acc[SL_MAX_COLS][SL_MAX_TILES]);
typedef __m256 single_fn(const sl_rows8 *w, size_t i, const void *act, size_t n_cols, __m256 acc);
typedef struct form {
    open_fn *open;
    multiply_fn *multiply;
    single_fn *single;
    size_t block_values, block_bytes;
    size_t n_tiles, tile_bytes; /* tiles of 8 rows of a block, and of a tile */
} form;

SL_INLINE void clear(__m256 acc[SL_MAX_COLS][SL_MAX_TILES], int n_x, int n_tiles)
{
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++)
        acc[c][r] = _mm256_setzero_ps();
}

SL_INLINE void store(const product *p, size_t row, size_t b, __m256 acc[SL_MAX_COLS][SL_MAX_TILES],
                     int n_x, int n_tiles)
{
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++) {
        const size_t at = row + 8 * (size_t)r;
        if (at < p->n_rows)
            store_rows(p->y + (b + (size_t)c) * p->y_stride + at, acc[c][r], p->n_rows - at);
    }
}

/* One activation row: blocks are multiplied as they are opened. */
SL_INLINE void multiply_one(const product *p, form f)
{
    for (size_t row = 0; row < p->n_rows; row += 8) {
        const sl_rows8 rows = sl_rows8_at(p->w, p->row_bytes, row, p->n_rows);
        const uintptr_t next = (uintptr_t)p->w + (row + 8) * p->row_bytes;
        __m256 acc = _mm256_setzero_ps();
        for (size_t i = 0; i < p->n_cols / f.block_values; i++) {
            fetch_ahead(next, i, f.block_bytes);
            acc = f.single(&rows, i, p->act, p->n_cols, acc);
        }
        store_rows(p->y + row, acc, p->n_rows - row);
    }
}

SL_INLINE void open_sixteen(const product *p, form f, size_t row)
{
    const size_t n_blocks = p->n_cols / f.block_values;
    char *tile = p->scratch;
    for (size_t r = 0; r < 16; r += 8) {
        const sl_rows8 rows = sl_rows8_at(p->w, p->row_bytes, row + r, p->n_rows);
        const uintptr_t next = (uintptr_t)p->w + (row + r + 8) * p->row_bytes;
        for (size_t i = 0; i < n_blocks; i++) {
            fetch_ahead(next, i, f.block_bytes);
            for (size_t j = i * f.n_tiles; j < (i + 1) * f.n_tiles; j++)
                f.open(&rows, j, tile + (2 * j + r / 8) * f.tile_bytes);
        }
    }
}

/* The sixteen opened rows times activation rows b .. b+n_x-1. */
SL_INLINE void pass_opened(const product *p, form f, size_t row, size_t b, int n_x)
{
    const char *tiles = p->scratch, *act = p->act + b * p->act_bytes;
    __m256 acc[SL_MAX_COLS][SL_MAX_TILES];
    clear(acc, n_x, 2);
    for (size_t i = 0; i < p->n_cols / f.block_values * f.n_tiles; i++)
        f.multiply(tiles + 2 * i * f.tile_bytes, 2, act, p->act_bytes, p->n_cols, n_x, i, acc);
    store(p, row, b, acc, n_x, 2);
}

/* Several activation rows: sixteen weight rows are opened once, into scratch. */
SL_INLINE void multiply_many(const product *p, form f)
{
    for (size_t row = 0; row < p->n_rows; row += 16) {
        open_sixteen(p, f, row);
        size_t b = 0;
        for (; b + 4 <= p->n_batch; b += 4)
            pass_opened(p, f, row, b, 4);
        if (p->n_batch - b == 3)
            pass_opened(p, f, row, b, 3);
        else if (p->n_batch - b == 2)
            pass_opened(p, f, row, b, 2);
        else if (p->n_batch - b == 1)
            pass_opened(p, f, row, b, 1);
    }
}

/* How many blocks of 32 or 256 values of x, values, a block of the type is: parts. */
#define MUL(type, values, ...) MUL_PARTS(type, values, 1, __VA_ARGS__)
#define MUL_PARTS(type, values, parts, ...)                                                        \
    SL_INLINE void open_##type(const sl_rows8 *w, size_t i, void *tile)                            \
    {                                                                                              \
        sl_open_##type(w, i, tile);                                                                \
    }                                                                                              \
    SL_INLINE void multiply_##type(const void *tiles, int n_tiles, const char *act,                \
                                   size_t act_bytes, size_t n_cols, int n_x, size_t i,             \
                                   __m256 acc[SL_MAX_COLS][SL_MAX_TILES])                          \
    {                                                                                              \
        sl_act_q8_##values x[SL_MAX_COLS];                                                         \
        SL_UNROLL                                                                                  \
        for (int c = 0; c < n_x; c++)                                                              \
            x[c] = sl_act_q8_##values##_row(act + (size_t)c * act_bytes, n_cols);                  \
        multiply##values((form##values){__VA_ARGS__}, tiles, n_tiles, x, n_x, i, acc);             \
    }                                                                                              \
    SINGLE_##values(type, parts, __VA_ARGS__) static void mul_##type(SL_MUL_ARGS)                  \
    {                                                                                              \
        const product p = {w,         row_bytes, n_rows, n_cols,   act,                            \
                           act_bytes, n_batch,   y,      y_stride, scratch};                       \
        const form f = {                                                                           \
            open_##type,       multiply_##type, single_##type,          (values) * (parts),        \
            sizeof(sl_##type), parts,           sizeof(sl_tile##values)};                          \
        if (n_batch == 1)                                                                          \
            multiply_one(&p, f);                                                                   \
        else                                                                                       \
            multiply_many(&p, f);                                                                  \
    }
/* A tile of 32 columns stays in registers, as long as no loop surrounds it: one part or two. */
#define SINGLE_32(type, parts, ...)                                                                \
    SL_INLINE __m256 single_part_##type(const sl_rows8 *w, size_t i, const sl_act_q8_32 *x,        \
                                        __m256 acc)                                                \
    {                                                                                              \
        __m256 sums[SL_MAX_COLS][SL_MAX_TILES] = {{acc}};                                          \
        sl_tile32 tile;                                                                            \
        sl_open_##type(w, i, &tile);                                                               \
        multiply32((form32){__VA_ARGS__}, &tile, 1, x, 1, i, sums);                                \
        return sums[0][0];                                                                         \
    }                                                                                              \
    SL_INLINE __m256 single_##type(const sl_rows8 *w, size_t i, const void *act, size_t n_cols,    \
                                   __m256 acc)                                                     \
    {                                                                                              \
        const sl_act_q8_32 x = sl_act_q8_32_row(act, n_cols);                                      \
        _Static_assert((parts) <= 2, "one part or two");                                           \
        acc = single_part_##type(w, i * (parts), &x, acc);                                         \
        return (parts) == 2 ? single_part_##type(w, i * (parts) + 1, &x, acc) : acc;               \
    }
#define SINGLE_256(type, parts, ...)                                                               \
    SL_INLINE __m256 single_##type(const sl_rows8 *w, size_t i, const void *act, size_t n_cols,    \
                                   __m256 acc)                                                     \
    {                                                                                              \
        return sl_single_##type(w, i, sl_act_q8_256_row(act, n_cols), acc);                        \
    }

#endif
