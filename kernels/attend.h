/* How vector levels walk over queries and tiles of keys: up to Q_BLOCK queries at a time, which
 * share loads; those that see the same keys of a tile go together. Which do changes no bit. */
#ifndef SL_ATTEND_H
#define SL_ATTEND_H

#include "avx2_dot.h"

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

#endif
