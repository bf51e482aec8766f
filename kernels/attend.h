/* How vector levels walk over queries and tiles of keys: up to Q_BLOCK queries at a time, which
 * share loads; those that see the same keys of a tile go together. Which do changes no bit. */
#ifndef SL_ATTEND_H
#define SL_ATTEND_H

#include "avx2_dot.h"
#include "q8_row.h"

enum { Q_BLOCK = 32 };

/* Queries first .. first + n of a block and the keys begin .. end of the tile at position at. */
typedef struct tile {
    uint32_t at, begin, end;
    size_t first, n;
} tile;

/* Scratch of a call, on the stack. score is [query - first][position - at]. */
typedef struct room {
    _Alignas(64) float score[Q_BLOCK][SL_ATTN_TILE];
    _Alignas(64) float rescale[Q_BLOCK];
} room;

static inline uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Scores, weights and values of a tile whose range is not empty. */
typedef void attend_fn(const sl_attn *a, tile t, room *m);

static inline tile tile_of(const sl_attn *a, uint32_t at, size_t i)
{
    return (tile){at, max_u32(a->begin[i], at), min_u32(a->end[i], at + SL_ATTN_TILE), i, 1};
}

/* From query t.first on: those that see the same keys of the tile. */
static inline tile same_keys(const sl_attn *a, uint32_t at, size_t first, size_t end)
{
    tile t = tile_of(a, at, first);
    while (t.first + t.n < end) {
        const tile next = tile_of(a, at, t.first + t.n);
        if (next.begin != t.begin || next.end != t.end)
            break;
        t.n++;
    }
    return t;
}

SL_INLINE void attend(attend_fn *attend_tile, const sl_attn *a, size_t first, size_t end, room *m)
{
    const uint32_t split = a->split * SL_ATTN_SPLIT;
    uint32_t begin = UINT32_MAX, stop = 0;
    for (size_t i = first; i < end; i++) {
        float *part = a->part + i * a->part_stride;
        part[0] = -INFINITY;
        memset(part + 1, 0, (a->dim_v + 1) * sizeof *part);
        begin = min_u32(begin, a->begin[i]);
        stop = max_u32(stop, a->end[i]);
    }
    begin = max_u32(begin, split) / SL_ATTN_TILE * SL_ATTN_TILE;
    stop = min_u32(stop, split + SL_ATTN_SPLIT);
    for (uint32_t at = begin; at < stop; at += SL_ATTN_TILE) {
        for (size_t i = first; i < end;) {
            const tile t = same_keys(a, at, i, end);
            if (t.begin < t.end)
                attend_tile(a, t, m);
            i += t.n;
        }
    }
}

SL_INLINE void attn(attend_fn *attend_tile, const sl_attn *a)
{
    room m;
    for (size_t i = 0; i < a->n_q; i += Q_BLOCK)
        attend(attend_tile, a, i, i + Q_BLOCK < a->n_q ? i + Q_BLOCK : a->n_q, &m);
}

/* ---- rows of to_q8 ---- */

/* n values of a row to floats; out has room for a multiple of 16. */
typedef void widen_fn(const uint8_t *row, float *out, size_t n);
/* Scores and weights of a tile of f32; then its values. */
typedef void scores_f32_fn(const sl_attn *a, tile t, room *m);
typedef void values_f32_fn(const sl_attn *a, tile t, room *m);

/* The rows of a tile as floats, by their place in the tile. Meanwhile rows that are read next come
 * in. */
SL_INLINE void widen_rows(widen_fn *widen, const uint8_t *rows, size_t row_stride, size_t n, tile t,
                          const avx2_next *next, float *out, size_t out_stride)
{
    for (size_t j = t.begin; j < t.end; j++) {
        avx2_prefetch_row(next, j - t.begin);
        widen(rows + j * row_stride, out + (j - t.at) * out_stride, n);
    }
}

/* The tile is widened once for all queries of the call; then it is one of floats. */
SL_INLINE void attend_widened(widen_fn *widen, scores_f32_fn *scores, values_f32_fn *values,
                              const sl_attn *a, tile t, room *m)
{
    _Alignas(64) float wide[SL_ATTN_TILE * SL_ATTN_MAX_DIM];
    const size_t k_stride = (a->dim_k + SL_LANES - 1) / SL_LANES * SL_LANES;
    const size_t v_stride = (a->dim_v + SL_LANES - 1) / SL_LANES * SL_LANES;
    const avx2_next next_v = {(const uint8_t *)a->v + t.begin * a->v_stride, a->v_stride,
                              t.first ? 0 : a->dim_v};
    const avx2_next next_k = {(const uint8_t *)a->k + t.end * a->k_stride, a->k_stride,
                              t.first ? 0 : a->dim_k};
    const tile in = {0, t.begin - t.at, t.end - t.at, t.first, t.n};
    sl_attn f = *a;
    f.k = f.v = wide;
    f.k_stride = k_stride * sizeof *wide;
    f.v_stride = v_stride * sizeof *wide;
    widen_rows(widen, a->k, a->k_stride, a->dim_k, t, &next_v, wide, k_stride);
    scores(&f, in, m);
    widen_rows(widen, a->v, a->v_stride, a->dim_v, t, &next_k, wide, v_stride);
    values(&f, in, m);
}

#endif
