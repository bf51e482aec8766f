/* scalar_attention.c for queries that share loads of keys and values (attend.h). The first queries
 * bring in what comes next row by row: while the dots of some keys are made, their values; while
 * values are added, the next tile's keys. (Group of 8 heads, 4096 keys of 128 f32 in memory: 3.9 ms
 * without, 1.8 ms with. Float copies of a tile for many queries were no gain.) */
#include "attend.h"
#include "avx2_math.h"
#include "levels.h"

enum { VECTORS = SL_ATTN_TILE / 8 };

/* ---- scores ---- */

SL_INLINE void tile_dots(sl_weight type, bool fetch, const sl_attn *a, tile t, room *m)
{
    const avx2_rows rows = {
        .w = (const uint8_t *)a->k + t.begin * a->k_stride,
        .row_bytes = a->k_stride,
        .x = a->q + t.first * a->q_stride,
        .x_stride = a->q_stride,
        .n_cols = a->dim_k,
        .y = &m->score[0][t.begin - t.at],
        .y_stride = SL_ATTN_TILE,
        .next = {(const uint8_t *)a->v + t.begin * a->v_stride, a->v_stride,
                 t.first || !fetch ? 0 : a->dim_v * avx2_size_of(type)},
    };
    avx2_dot_block(type, &rows, 0, t.end - t.begin, t.n);
}

/* ---- softmax ---- */

static inline float max_of(__m256 v, float other)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    const float max = _mm_cvtss_f32(m);
    return (max > other ? max : other) + 0.0f;
}

/* Dots become weights; part [0], [1] and rescale follow. Positions outside the tile's range get
 * weight 0, which adds nothing to a sum of weights. */
static void tile_weights(const sl_attn *a, tile t, float *score, float *part, float *rescale)
{
    const __m256 scale = _mm256_set1_ps(a->scale), cap = _mm256_set1_ps(a->softcap);
    const __m256 none = _mm256_set1_ps(-INFINITY);
    const __m256i first = _mm256_set1_epi32((int)(t.begin - t.at) - 1);
    const __m256i last = _mm256_set1_epi32((int)(t.end - t.at));
    __m256i at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256 s[VECTORS], max = none;
    for (int i = 0; i < VECTORS; i++) {
        s[i] = _mm256_mul_ps(_mm256_load_ps(score + 8 * i), scale);
        if (a->softcap != 0.0f)
            s[i] = _mm256_mul_ps(cap, avx2_tanh(_mm256_div_ps(s[i], cap)));
        const __m256i seen =
            _mm256_and_si256(_mm256_cmpgt_epi32(at, first), _mm256_cmpgt_epi32(last, at));
        s[i] = _mm256_blendv_ps(none, s[i], _mm256_castsi256_ps(seen));
        max = _mm256_max_ps(s[i], max); /* the second operand when the first is NaN */
        at = _mm256_add_epi32(at, _mm256_set1_epi32(8));
    }
    const float old_max = part[0], new_max = max_of(max, old_max);
    const __m256 m = _mm256_set1_ps(new_max);
    for (int i = 0; i < VECTORS; i++) {
        s[i] = avx2_exp(_mm256_sub_ps(s[i], m));
        _mm256_store_ps(score + 8 * i, s[i]);
    }
    _Static_assert(VECTORS == 4, "two positions per lane");
    const float sum = avx2_sum(_mm256_add_ps(s[0], s[2]), _mm256_add_ps(s[1], s[3]));
    *rescale = sl_exp(old_max - new_max);
    part[0] = new_max;
    part[1] = fmaf(part[1], *rescale, sum);
}

/* ---- values ---- */

typedef struct values {
    const uint8_t *v; /* of the first key */
    size_t stride, n_keys;
    const float *weight; /* of the first query and key; queries SL_ATTN_TILE floats apart */
    const float *rescale;
    float *out; /* of the first query */
    size_t out_stride;
    avx2_next next;
} values;

/* N queries by 8 * C dimensions from d up. */
SL_INLINE void values_tile(sl_weight type, const int N, const int C, const values *t, size_t q,
                           size_t d)
{
    const uint8_t *v = t->v + d * avx2_size_of(type);
    const float *weight = t->weight + q * SL_ATTN_TILE;
    float *out = t->out + q * t->out_stride + d;
    __m256 acc[4][8];
    SL_UNROLL
    for (int i = 0; i < N; i++) {
        const __m256 r = _mm256_broadcast_ss(t->rescale + q + (size_t)i);
        SL_UNROLL
        for (int c = 0; c < C; c++)
            acc[i][c] =
                _mm256_mul_ps(_mm256_loadu_ps(out + (size_t)i * t->out_stride + 8 * (size_t)c), r);
    }
    for (size_t j = 0; j < t->n_keys; j++, v += t->stride) {
        if (q + d == 0)
            avx2_prefetch_row(&t->next, j);
        __m256 p[4];
        SL_UNROLL
        for (int i = 0; i < N; i++)
            p[i] = _mm256_broadcast_ss(weight + (size_t)i * SL_ATTN_TILE + j);
        SL_UNROLL
        for (int c = 0; c < C; c++) {
            const __m256 x = avx2_load(type, v + 8 * (size_t)c * avx2_size_of(type));
            SL_UNROLL
            for (int i = 0; i < N; i++)
                acc[i][c] = _mm256_fmadd_ps(p[i], x, acc[i][c]);
        }
    }
    SL_UNROLL
    for (int i = 0; i < N; i++)
        SL_UNROLL
    for (int c = 0; c < C; c++)
        _mm256_storeu_ps(out + (size_t)i * t->out_stride + 8 * (size_t)c, acc[i][c]);
}

static void values_one(sl_weight type, const values *t, size_t q, size_t d)
{
    float *out = t->out + q * t->out_stride + d;
    float sum = *out * t->rescale[q];
    for (size_t j = 0; j < t->n_keys; j++)
        sum = fmaf(t->weight[q * SL_ATTN_TILE + j],
                   avx2_load_one(type, t->v + j * t->stride + d * avx2_size_of(type)), sum);
    *out = sum;
}

SL_INLINE void values_strip(sl_weight type, const int N, const int C, const values *t, size_t q,
                            size_t dim)
{
    const size_t step = 8 * (size_t)C;
    size_t d = 0;
    for (; d + step <= dim; d += step)
        values_tile(type, N, C, t, q, d);
    for (; d + 8 <= dim; d += 8)
        values_tile(type, N, 1, t, q, d);
    for (; d < dim; d++)
        for (int i = 0; i < N; i++)
            values_one(type, t, q + (size_t)i, d);
}

SL_INLINE void values_block(sl_weight type, const values *t, size_t n, size_t dim)
{
    size_t q = 0;
    for (; q + 4 <= n; q += 4)
        values_strip(type, 4, 2, t, q, dim);
    for (; q + 2 <= n; q += 2)
        values_strip(type, 2, 4, t, q, dim);
    if (q < n)
        values_strip(type, 1, 8, t, q, dim);
}

SL_INLINE void tile_values(sl_weight type, bool fetch, const sl_attn *a, tile t, room *m)
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
                 t.first || !fetch ? 0 : a->dim_k * avx2_size_of(type)},
    };
    values_block(type, &job, t.n, a->dim_v);
}

/* ---- blocks of queries ---- */

/* fetch: bring in what is read next. */
SL_INLINE void tile_weighed(sl_weight type, bool fetch, const sl_attn *a, tile t, room *m)
{
    if (t.end - t.begin < SL_ATTN_TILE)
        memset(m->score, 0, t.n * sizeof m->score[0]);
    tile_dots(type, fetch, a, t, m);
    for (size_t i = 0; i < t.n; i++)
        tile_weights(a, t, m->score[i], a->part + (t.first + i) * a->part_stride, &m->rescale[i]);
}

SL_INLINE void tile_f16(const sl_attn *a, tile t, room *m)
{
    tile_weighed(SL_W_F16, true, a, t, m);
    tile_values(SL_W_F16, true, a, t, m);
}

SL_INLINE void tile_f32(const sl_attn *a, tile t, room *m)
{
    tile_weighed(SL_W_F32, true, a, t, m);
    tile_values(SL_W_F32, true, a, t, m);
}

static void attn_f16(const sl_attn *a)
{
    attn(tile_f16, a);
}

static void attn_f32(const sl_attn *a)
{
    attn(tile_f32, a);
}

SL_INLINE void scores_f32(const sl_attn *a, tile t, room *m)
{
    tile_weighed(SL_W_F32, false, a, t, m);
}

SL_INLINE void values_f32(const sl_attn *a, tile t, room *m)
{
    tile_values(SL_W_F32, false, a, t, m);
}

SL_INLINE void widen_eight(const uint8_t *q, __m256 d, float *out)
{
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)q));
    _mm256_store_ps(out, _mm256_mul_ps(_mm256_cvtepi32_ps(wide), d));
}

SL_INLINE void widen(const uint8_t *row, float *out, size_t n)
{
    const uint8_t *scale = row + n;
    size_t i = 0;
    for (; i + SL_Q8_BLOCK <= n; i += SL_Q8_BLOCK, scale += 2) {
        const __m256 d = _mm256_cvtph_ps(_mm_set1_epi16((short)sl_load_u16(scale)));
        SL_UNROLL
        for (size_t c = i; c < i + SL_Q8_BLOCK; c += 8)
            widen_eight(row + c, d, out + c);
    }
    for (; i < n; i++)
        out[i] = sl_q8_value(row, n, i);
}

SL_INLINE void tile_q8(const sl_attn *a, tile t, room *m)
{
    attend_widened(widen, scores_f32, values_f32, a, t, m);
}

static void attn_q8(const sl_attn *a)
{
    attn(tile_q8, a);
}

static void to_q8(SL_TO_Q8_ARGS)
{
    const __m256 low = _mm256_set1_ps(-127.0f), high = _mm256_set1_ps(127.0f);
    float padded[SL_Q8_BLOCK];
    int8_t bytes[SL_Q8_BLOCK];
    for (size_t at = 0; at < n; at += SL_Q8_BLOCK) {
        const size_t left = n - at < SL_Q8_BLOCK ? n - at : SL_Q8_BLOCK;
        const float *from = x + at;
        if (left < SL_Q8_BLOCK) {
            memset(padded, 0, sizeof padded);
            from = memcpy(padded, from, left * sizeof *from);
        }
        __m256 v[4];
        __m256i most = _mm256_setzero_si256();
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(from + 8 * i);
            most = _mm256_max_epu32(
                most, _mm256_and_si256(_mm256_castps_si256(v[i]), _mm256_set1_epi32(0x7fffffff)));
        }
        __m128i m = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
        m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
        m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
        float inverse;
        const uint16_t d = sl_q8_scale_of((uint32_t)_mm_cvtsi128_si32(m), &inverse);
        memcpy(sl_q8_scale_at(row, n, at / SL_Q8_BLOCK), &d, sizeof d);
        __m256i q[4];
        for (int i = 0; i < 4; i++) {
            const __m256 t = _mm256_mul_ps(v[i], _mm256_set1_ps(inverse));
            q[i] = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(t, low), high));
        }
        __m256i b =
            _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        b = _mm256_permutevar8x32_epi32(b, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        if (inverse == 0.0f)
            b = _mm256_setzero_si256();
        _mm256_storeu_si256((void *)bytes, b);
        memcpy((int8_t *)row + at, bytes, left);
    }
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
        const __m256 r = _mm256_set1_ps(rescale);
        sum = fmaf(part[1], rescale, sum);
        size_t d = 0;
        for (; d + 8 <= dim_v; d += 8)
            _mm256_storeu_ps(out + d, _mm256_fmadd_ps(_mm256_loadu_ps(part + 2 + d), r,
                                                      _mm256_loadu_ps(out + d)));
        for (; d < dim_v; d++)
            out[d] = fmaf(part[2 + d], rescale, out[d]);
    }
    if (sink)
        sum += sl_exp(*sink - max);
    const float scale = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (size_t d = 0; d < dim_v; d++)
        out[d] *= scale;
}

void sl_kernels_fill_avx2_attention(sl_kernels *k)
{
    k->attn_f16 = attn_f16;
    k->attn_f32 = attn_f32;
    k->attn_q8 = attn_q8;
    k->to_q8 = to_q8;
    k->attn_merge = attn_merge;
}
