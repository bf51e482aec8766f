/* scalar_attention.c for up to Q_BLOCK queries at a time, which share loads of keys and values.
 * Queries that see the same keys of a tile go together; which do changes no bit. */
#include "levels.h"
#include "neon_dot.h"
#include "neon_math.h"

enum { Q_BLOCK = 32, VECTORS = SL_ATTN_TILE / 4 };

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

/* ---- scores ---- */

SL_INLINE void tile_dots(sl_weight type, const sl_attn *a, tile t, room *m)
{
    const neon_rows rows = {
        .w = (const uint8_t *)a->k + t.begin * a->k_stride,
        .row_bytes = a->k_stride,
        .x = a->q + t.first * a->q_stride,
        .x_stride = a->q_stride,
        .n_cols = a->dim_k,
        .y = &m->score[0][t.begin - t.at],
        .y_stride = SL_ATTN_TILE,
    };
    neon_dot_block(type, &rows, 0, t.end - t.begin, t.n);
}

/* ---- softmax ---- */

/* Dots become weights; part [0], [1] and rescale follow. Positions outside the tile's range get
 * weight 0, which adds nothing to a sum of weights. */
static void tile_weights(const sl_attn *a, tile t, float *score, float *part, float *rescale)
{
    static const uint32_t first_four[4] = {0, 1, 2, 3};
    const float32x4_t cap = vdupq_n_f32(a->softcap), none = vdupq_n_f32(-INFINITY);
    const uint32x4_t begin = vdupq_n_u32(t.begin - t.at), end = vdupq_n_u32(t.end - t.at);
    uint32x4_t at = vld1q_u32(first_four);
    float32x4_t s[VECTORS], most = none;
    for (int i = 0; i < VECTORS; i++) {
        s[i] = vmulq_n_f32(vld1q_f32(score + 4 * i), a->scale);
        if (a->softcap != 0.0f)
            s[i] = vmulq_f32(cap, neon_tanh(vdivq_f32(s[i], cap)));
        s[i] = vbslq_f32(vandq_u32(vcgeq_u32(at, begin), vcltq_u32(at, end)), s[i], none);
        most = vbslq_f32(vcgtq_f32(s[i], most), s[i], most); /* never a NaN */
        at = vaddq_u32(at, vdupq_n_u32(4));
    }
    const float old_max = part[0], tile_max = vmaxvq_f32(most);
    const float new_max = (tile_max > old_max ? tile_max : old_max) + 0.0f;
    for (int i = 0; i < VECTORS; i++) {
        s[i] = neon_exp(vsubq_f32(s[i], vdupq_n_f32(new_max)));
        vst1q_f32(score + 4 * i, s[i]);
    }
    _Static_assert(VECTORS == 8, "two positions per lane");
    float32x4_t lane[4];
    for (int i = 0; i < 4; i++)
        lane[i] = vaddq_f32(s[i], s[i + 4]);
    *rescale = sl_exp(old_max - new_max);
    part[0] = new_max;
    part[1] = fmaf(part[1], *rescale, neon_sum(lane));
}

/* ---- values ---- */

typedef struct values {
    const uint8_t *v; /* of the first key */
    size_t stride, n_keys;
    const float *weight; /* of the first query and key; queries SL_ATTN_TILE floats apart */
    const float *rescale;
    float *out; /* of the first query */
    size_t out_stride;
} values;

/* N queries by 4 * C dimensions from d up; N * C sums are at most 16 of 32 registers. */
SL_INLINE void values_tile(sl_weight type, const int N, const int C, const values *t, size_t q,
                           size_t d)
{
    const uint8_t *v = t->v + d * neon_size_of(type);
    const float *weight = t->weight + q * SL_ATTN_TILE;
    float *out = t->out + q * t->out_stride + d;
    float32x4_t acc[4][8];
    SL_UNROLL
    for (int i = 0; i < N; i++)
        SL_UNROLL
    for (int c = 0; c < C; c++)
        acc[i][c] = vmulq_n_f32(vld1q_f32(out + (size_t)i * t->out_stride + 4 * (size_t)c),
                                t->rescale[q + (size_t)i]);
    for (size_t j = 0; j < t->n_keys; j++, v += t->stride) {
        SL_UNROLL
        for (int c = 0; c < C; c++) {
            const float32x4_t x = neon_load(type, v + 4 * (size_t)c * neon_size_of(type));
            SL_UNROLL
            for (int i = 0; i < N; i++)
                acc[i][c] = vfmaq_n_f32(acc[i][c], x, weight[(size_t)i * SL_ATTN_TILE + j]);
        }
    }
    SL_UNROLL
    for (int i = 0; i < N; i++)
        SL_UNROLL
    for (int c = 0; c < C; c++)
        vst1q_f32(out + (size_t)i * t->out_stride + 4 * (size_t)c, acc[i][c]);
}

static void values_one(sl_weight type, const values *t, size_t q, size_t d)
{
    float *out = t->out + q * t->out_stride + d;
    float sum = *out * t->rescale[q];
    for (size_t j = 0; j < t->n_keys; j++)
        sum = fmaf(t->weight[q * SL_ATTN_TILE + j],
                   neon_load_one(type, t->v + j * t->stride + d * neon_size_of(type)), sum);
    *out = sum;
}

SL_INLINE void values_strip(sl_weight type, const int N, const int C, const values *t, size_t q,
                            size_t dim)
{
    const size_t step = 4 * (size_t)C;
    size_t d = 0;
    for (; d + step <= dim; d += step)
        values_tile(type, N, C, t, q, d);
    for (; d + 4 <= dim; d += 4)
        values_tile(type, N, 1, t, q, d);
    for (; d < dim; d++)
        for (int i = 0; i < N; i++)
            values_one(type, t, q + (size_t)i, d);
}

SL_INLINE void values_block(sl_weight type, const values *t, size_t n, size_t dim)
{
    size_t q = 0;
    for (; q + 4 <= n; q += 4)
        values_strip(type, 4, 4, t, q, dim);
    for (; q + 2 <= n; q += 2)
        values_strip(type, 2, 8, t, q, dim);
    if (q < n)
        values_strip(type, 1, 8, t, q, dim);
}

SL_INLINE void tile_values(sl_weight type, const sl_attn *a, tile t, room *m)
{
    const values job = {
        .v = (const uint8_t *)a->v + t.begin * a->v_stride,
        .stride = a->v_stride,
        .n_keys = t.end - t.begin,
        .weight = &m->score[0][t.begin - t.at],
        .rescale = m->rescale,
        .out = a->part + t.first * a->part_stride + 2,
        .out_stride = a->part_stride,
    };
    values_block(type, &job, t.n, a->dim_v);
}

/* ---- blocks of queries ---- */

SL_INLINE void attend_tile(sl_weight type, const sl_attn *a, tile t, room *m)
{
    if (t.end - t.begin < SL_ATTN_TILE)
        memset(m->score, 0, t.n * sizeof m->score[0]);
    tile_dots(type, a, t, m);
    for (size_t i = 0; i < t.n; i++)
        tile_weights(a, t, m->score[i], a->part + (t.first + i) * a->part_stride, &m->rescale[i]);
    tile_values(type, a, t, m);
}

static tile tile_of(const sl_attn *a, uint32_t at, size_t i)
{
    return (tile){at, max_u32(a->begin[i], at), min_u32(a->end[i], at + SL_ATTN_TILE), i, 1};
}

/* From query t.first on: those that see the same keys of the tile. */
static tile same_keys(const sl_attn *a, uint32_t at, size_t first, size_t end)
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

SL_INLINE void attend(sl_weight type, const sl_attn *a, size_t first, size_t end, room *m)
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
                attend_tile(type, a, t, m);
            i += t.n;
        }
    }
}

SL_INLINE void attn(sl_weight type, const sl_attn *a)
{
    room m;
    for (size_t i = 0; i < a->n_q; i += Q_BLOCK)
        attend(type, a, i, i + Q_BLOCK < a->n_q ? i + Q_BLOCK : a->n_q, &m);
}

static void attn_f16(const sl_attn *a)
{
    attn(SL_W_F16, a);
}

static void attn_f32(const sl_attn *a)
{
    attn(SL_W_F32, a);
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
        size_t d = 0;
        for (; d + 4 <= dim_v; d += 4)
            vst1q_f32(out + d, vfmaq_n_f32(vld1q_f32(out + d), vld1q_f32(part + 2 + d), rescale));
        for (; d < dim_v; d++)
            out[d] = fmaf(part[2 + d], rescale, out[d]);
    }
    if (sink)
        sum += sl_exp(*sink - max);
    const float scale = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (size_t d = 0; d < dim_v; d++)
        out[d] *= scale;
}

void sl_kernels_fill_neon_attention(sl_kernels *k)
{
    k->attn_f16 = attn_f16;
    k->attn_f32 = attn_f32;
    k->attn_merge = attn_merge;
}
