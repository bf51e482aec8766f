/* Attention of every vector level, as scalar_attention.c defines it: up to Q_BLOCK queries at a
 * time, which share loads of keys and values; those that see the same keys of a tile go together.
 * Which do changes no bit. The first queries bring in what comes next row by row: while the dots of
 * some keys are made, their values; while values are added, the next tile's keys. (AVX2, group of 8
 * heads, 4096 keys of 128 f32 in memory: 3.9 ms without, 1.8 ms with. Float copies of a tile for
 * many queries were no gain.) */
#ifndef SL_VEC_ATTENTION_H
#define SL_VEC_ATTENTION_H

#include "q8_row.h"
#include "vec_math.h"

enum { Q_BLOCK = 32 };

/* What a level has registers for: the vectors of values that six, four and two queries take
 * together (0: six are too many), and how it makes dots. */
#if defined(__AVX512F__)
enum { BY_SIX = 4, BY_FOUR = 4, BY_TWO = 8 };
#define DOT_BLOCK avx512_dot_block
#elif defined(__AVX2__)
enum { BY_SIX = 0, BY_FOUR = 2, BY_TWO = 4 };
#define DOT_BLOCK avx2_dot_block
#else
enum { BY_SIX = 0, BY_FOUR = 4, BY_TWO = 8 };
#define DOT_BLOCK neon_dot_block
#endif

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

/* How rows are stored. next: bring in what is read next. */
typedef struct form {
    sl_weight type;
    bool next, q8;
} form;

static inline uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- scores ---- */

SL_INLINE void tile_dots(form f, const sl_attn *a, tile t, room *m)
{
    const sl_rows rows = {
        .w = (const uint8_t *)a->k + t.begin * a->k_stride,
        .row_bytes = a->k_stride,
        .x = a->q + t.first * a->q_stride,
        .x_stride = a->q_stride,
        .n_cols = a->dim_k,
        .y = &m->score[0][t.begin - t.at],
        .y_stride = SL_ATTN_TILE,
        .next = {(const uint8_t *)a->v + t.begin * a->v_stride, a->v_stride,
                 t.first || !f.next ? 0 : a->dim_v * sl_float_size(f.type)},
    };
    DOT_BLOCK(f.type, &rows, 0, t.end - t.begin, t.n);
}

/* ---- softmax ---- */

enum { TILE_VECS = SL_ATTN_TILE / VEC };

/* Dots become weights; part [0] follows. moved: from the new maximum to the old. Positions outside
 * the tile's range get weight 0, which adds nothing to a sum of weights. */
static inline void tile_weights(const sl_attn *a, tile t, float *score, float *part, float *moved,
                                float *sum)
{
    const vec scale = vec_all(a->scale), cap = vec_all(a->softcap), none = vec_all(-INFINITY);
    const float old_max = part[0];
    vec s[TILE_VECS], max = vec_all(old_max), lane[VEC_LANES];
    SL_UNROLL
    for (int i = 0; i < TILE_VECS; i++) {
        const int at = (int)t.at + VEC * i;
        s[i] = vec_mul(vec_load(score + VEC * i), scale);
        if (a->softcap != 0.0f)
            s[i] = vec_mul(cap, vec_tanh(vec_div(s[i], cap)));
        if (t.end - t.begin < SL_ATTN_TILE)
            s[i] = vec_choose(vec_lanes((int)t.begin - at, (int)t.end - at), s[i], none);
        max = vec_max(s[i], max); /* the second when the first is NaN */
    }
    const float new_max = vec_largest(max) + 0.0f;
    SL_UNROLL
    for (int i = 0; i < TILE_VECS; i++) {
        s[i] = vec_exp(vec_sub(s[i], vec_all(new_max)));
        vec_store(score + VEC * i, s[i]);
    }
    _Static_assert(TILE_VECS == 2 * VEC_LANES, "two positions per lane");
    SL_UNROLL
    for (int i = 0; i < VEC_LANES; i++)
        lane[i] = vec_add(s[i], s[i + VEC_LANES]);
    *sum = vec_sum(lane);
    *moved = old_max - new_max;
    part[0] = new_max;
}

/* The factors by which what came before shrinks are exps of many queries at once (AVX-512: 7 % of a
 * prefill). */
SL_INLINE void tile_scores(form f, const sl_attn *a, tile t, room *m)
{
    if (t.end - t.begin < SL_ATTN_TILE)
        memset(m->score, 0, t.n * sizeof m->score[0]);
    tile_dots(f, a, t, m);
    float *part = a->part + t.first * a->part_stride, sum[Q_BLOCK];
    for (size_t i = 0; i < t.n; i++)
        tile_weights(a, t, m->score[i], part + i * a->part_stride, &m->rescale[i], &sum[i]);
    for (size_t i = 0; i < t.n; i += VEC)
        vec_store(m->rescale + i, vec_exp(vec_load(m->rescale + i)));
    for (size_t i = 0; i < t.n; i++, part += a->part_stride)
        part[1] = fmaf(part[1], m->rescale[i], sum[i]);
}

/* ---- values ---- */

typedef struct values {
    const uint8_t *v; /* of the first key */
    size_t stride, n_keys;
    const float *weight; /* of the first query and key; queries SL_ATTN_TILE floats apart */
    const float *rescale;
    float *out; /* of the first query */
    size_t out_stride;
    sl_next next;
} values;

/* N queries by C vectors of dimensions from d up; of a single vector the last n, at most, count. */
SL_INLINE void values_tile(sl_weight type, const int N, const int C, const values *t, size_t q,
                           size_t d, size_t n)
{
    const size_t step = VEC * sl_float_size(type);
    const uint8_t *v = t->v + d * sl_float_size(type);
    const float *weight = t->weight + q * SL_ATTN_TILE;
    float *out = t->out + q * t->out_stride + d;
    const bool values_first = N > C; /* the fewer of the two stay in registers */
    vec acc[6][8];
    SL_UNROLL
    for (int i = 0; i < N; i++) {
        const vec r = vec_all(t->rescale[q + (size_t)i]);
        SL_UNROLL
        for (int c = 0; c < C; c++)
            acc[i][c] = vec_mul(vec_load(out + (size_t)i * t->out_stride + VEC * c), r);
    }
    for (size_t j = 0; j < t->n_keys; j++, v += t->stride) {
        if (q + d == 0)
            sl_prefetch_row(&t->next, j);
        vec p[6], x[8];
        SL_UNROLL
        for (int c = 0; values_first && c < C; c++)
            x[c] = vec_load_as(type, v + step * (size_t)c);
        SL_UNROLL
        for (int i = 0; !values_first && i < N; i++)
            p[i] = vec_all(weight[(size_t)i * SL_ATTN_TILE + j]);
        if (values_first) {
            SL_UNROLL
            for (int i = 0; i < N; i++) {
                const vec by = vec_all(weight[(size_t)i * SL_ATTN_TILE + j]);
                SL_UNROLL
                for (int c = 0; c < C; c++)
                    acc[i][c] = vec_fma(by, x[c], acc[i][c]);
            }
        } else {
            SL_UNROLL
            for (int c = 0; c < C; c++) {
                const vec value = vec_load_as(type, v + step * (size_t)c);
                SL_UNROLL
                for (int i = 0; i < N; i++)
                    acc[i][c] = vec_fma(p[i], value, acc[i][c]);
            }
        }
    }
    SL_UNROLL
    for (int i = 0; i < N; i++) {
        float *to = out + (size_t)i * t->out_stride;
        if (n < VEC) {
            float last[VEC];
            vec_store(last, acc[i][0]);
            memcpy(to + VEC - n, last + VEC - n, n * sizeof *to);
            continue;
        }
        SL_UNROLL
        for (int c = 0; c < C; c++)
            vec_store(to + VEC * c, acc[i][c]);
    }
}

static void values_one(sl_weight type, const values *t, size_t q, size_t d)
{
    float *out = t->out + q * t->out_stride + d;
    float sum = *out * t->rescale[q];
    for (size_t j = 0; j < t->n_keys; j++)
        sum = fmaf(t->weight[q * SL_ATTN_TILE + j],
                   sl_load_float(type, t->v + j * t->stride + d * sl_float_size(type)), sum);
    *out = sum;
}

/* The last vector overlaps the one before it: what that has already is computed and not stored. */
SL_INLINE void values_strip(sl_weight type, const int N, const int C, const values *t, size_t q,
                            size_t dim)
{
    size_t d = 0;
    for (; d + VEC * (size_t)C <= dim; d += VEC * (size_t)C)
        values_tile(type, N, C, t, q, d, VEC);
    if (C > 4)
        for (; d + VEC * 4 <= dim; d += VEC * 4)
            values_tile(type, N, 4, t, q, d, VEC);
    for (; d + VEC <= dim; d += VEC)
        values_tile(type, N, 1, t, q, d, VEC);
    if (d < dim && d > 0)
        values_tile(type, N, 1, t, q, dim - VEC, dim - d);
    else
        for (; d < dim; d++)
            for (int i = 0; i < N; i++)
                values_one(type, t, q + (size_t)i, d);
}

SL_INLINE void values_block(sl_weight type, const values *t, size_t n, size_t dim)
{
    size_t q = 0;
    if (BY_SIX)
        for (; n - q == 6 || n - q > 8; q += 6)
            values_strip(type, 6, BY_SIX, t, q, dim);
    for (; q + 4 <= n; q += 4)
        values_strip(type, 4, BY_FOUR, t, q, dim);
    for (; q + 2 <= n; q += 2)
        values_strip(type, 2, BY_TWO, t, q, dim);
    if (q < n)
        values_strip(type, 1, 8, t, q, dim);
}

SL_INLINE void tile_values(form f, const sl_attn *a, tile t, room *m)
{
    const values job = {
        .v = (const uint8_t *)a->v + t.begin * a->v_stride,
        .stride = a->v_stride,
        .n_keys = t.end - t.begin,
        .weight = &m->score[0][t.begin - t.at],
        .rescale = m->rescale,
        .out = a->part + t.first * a->part_stride + 2,
        .out_stride = a->part_stride,
        .next = {(const uint8_t *)a->k + t.end * a->k_stride, a->k_stride,
                 t.first || !f.next ? 0 : a->dim_k * sl_float_size(f.type)},
    };
    values_block(f.type, &job, t.n, a->dim_v);
}

/* ---- rows of to_q8 ---- */

/* n values of a row to floats; out has room for a multiple of 16. */
SL_INLINE void widen(const uint8_t *row, float *out, size_t n)
{
    const uint8_t *q = row, *scale = row + n;
    for (size_t left = n / SL_Q8_BLOCK; left > 0; left--, q += SL_Q8_BLOCK, scale += 2) {
        const vec d = vec_all_half(sl_load_u16(scale));
        SL_UNROLL
        for (int i = 0; i < SL_Q8_BLOCK; i += VEC)
            vec_store(out + i, vec_mul(vec_load_i8(q + i), d));
        out += SL_Q8_BLOCK;
    }
    for (size_t i = 0; i < n % SL_Q8_BLOCK; i++)
        out[i] = sl_q8_value(row, n, n / SL_Q8_BLOCK * SL_Q8_BLOCK + i);
}

/* The rows of a tile as floats, by their place in the tile. Meanwhile rows that are read next come
 * in. Out of line: it needs the registers. */
static __attribute__((noinline)) void widen_rows(const uint8_t *rows, size_t row_stride, size_t n,
                                                 tile t, const sl_next *next, float *out,
                                                 size_t out_stride)
{
    for (size_t j = t.begin; j < t.end; j++) {
        sl_prefetch_row(next, j - t.begin);
        widen(rows + j * row_stride, out + (j - t.at) * out_stride, n);
    }
}

/* The tile is widened once for all queries of the call; then it is one of floats. */
SL_INLINE void attend_widened(const sl_attn *a, tile t, room *m)
{
    _Alignas(64) float wide[SL_ATTN_TILE * SL_ATTN_MAX_DIM];
    const form floats = {.type = SL_W_F32};
    const size_t k_stride = (a->dim_k + SL_LANES - 1) / SL_LANES * SL_LANES;
    const size_t v_stride = (a->dim_v + SL_LANES - 1) / SL_LANES * SL_LANES;
    const sl_next next_v = {(const uint8_t *)a->v + t.begin * a->v_stride, a->v_stride,
                            t.first ? 0 : a->dim_v};
    const sl_next next_k = {(const uint8_t *)a->k + t.end * a->k_stride, a->k_stride,
                            t.first ? 0 : a->dim_k};
    const tile in = {0, t.begin - t.at, t.end - t.at, t.first, t.n};
    sl_attn f = *a;
    f.k = f.v = wide;
    f.k_stride = k_stride * sizeof *wide;
    f.v_stride = v_stride * sizeof *wide;
    widen_rows(a->k, a->k_stride, a->dim_k, t, &next_v, wide, k_stride);
    tile_scores(floats, &f, in, m);
    widen_rows(a->v, a->v_stride, a->dim_v, t, &next_k, wide, v_stride);
    tile_values(floats, &f, in, m);
}

static void to_q8(SL_TO_Q8_ARGS)
{
    enum { VECS = SL_Q8_BLOCK / VEC };
    const vec low = vec_all(-127.0f), high = vec_all(127.0f);
    uint8_t *q = row, bytes[SL_Q8_BLOCK];
    for (size_t at = 0; at < n; at += SL_Q8_BLOCK) {
        const size_t left = n - at < SL_Q8_BLOCK ? n - at : SL_Q8_BLOCK;
        float padded[SL_Q8_BLOCK] = {0};
        const float *from = left < SL_Q8_BLOCK ? memcpy(padded, x + at, left * sizeof *x) : x + at;
        vec v[VECS], most = vec_all(0.0f);
        SL_UNROLL
        for (int i = 0; i < VECS; i++) {
            v[i] = vec_load(from + VEC * i);
            most = vec_larger_bits(most, vec_abs(v[i]));
        }
        float inverse;
        const uint16_t d = sl_q8_scale_of(vec_largest_bits(most), &inverse);
        memcpy(sl_q8_scale_at(row, n, at / SL_Q8_BLOCK), &d, sizeof d);
        if (inverse == 0.0f) {
            memset(q + at, 0, left);
            continue;
        }
        SL_UNROLL
        for (int i = 0; i < VECS; i++) {
            const vec t = vec_mul(v[i], vec_all(inverse));
            vec_store_i8(bytes + VEC * i, vec_min(vec_max(t, low), high));
        }
        memcpy(q + at, bytes, left);
    }
}

/* ---- blocks of queries ---- */

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

SL_INLINE void attend_tile(form f, const sl_attn *a, tile t, room *m)
{
    if (f.q8) {
        attend_widened(a, t, m);
        return;
    }
    tile_scores(f, a, t, m);
    tile_values(f, a, t, m);
}

SL_INLINE void attend(form f, const sl_attn *a, size_t first, size_t end, room *m)
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
                attend_tile(f, a, t, m);
            i += t.n;
        }
    }
}

SL_INLINE void attn(form f, const sl_attn *a)
{
    room m;
    memset(m.rescale, 0, sizeof m.rescale); /* whole vectors of it are read */
    for (size_t i = 0; i < a->n_q; i += Q_BLOCK)
        attend(f, a, i, i + Q_BLOCK < a->n_q ? i + Q_BLOCK : a->n_q, &m);
}

static void attn_f16(const sl_attn *a)
{
    attn((form){.type = SL_W_F16, .next = true}, a);
}

static void attn_f32(const sl_attn *a)
{
    attn((form){.type = SL_W_F32, .next = true}, a);
}

static void attn_q8(const sl_attn *a)
{
    attn((form){.q8 = true}, a);
}

static void attn_merge(SL_ATTN_MERGE_ARGS)
{
    float max = sink ? *sink : -INFINITY, sum = 0.0f;
    for (size_t i = 0; i < n_parts; i++)
        max = part[i * part_stride] > max ? part[i * part_stride] : max;
    memset(out, 0, dim_v * sizeof *out);
    for (size_t i = 0; i < n_parts; i++, part += part_stride) {
        if (part[1] == 0.0f)
            continue;
        const float rescale = sl_exp(part[0] - max);
        sum = fmaf(part[1], rescale, sum);
        VEC_EACH(dim_v, {
            const vec v = vec_load_some(part + 2 + at, some);
            vec_store_some(out + at, vec_fma(v, vec_all(rescale), vec_load_some(out + at, some)),
                           some);
        });
    }
    if (sink)
        sum += sl_exp(*sink - max);
    const float scale = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (size_t d = 0; d < dim_v; d++)
        out[d] *= scale;
}

static inline void vec_fill_attention(sl_kernels *k)
{
    k->attn_f16 = attn_f16;
    k->attn_f32 = attn_f32;
    k->attn_q8 = attn_q8;
    k->to_q8 = to_q8;
    k->attn_merge = attn_merge;
}

#endif
