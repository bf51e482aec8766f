/* scalar_attention.c with a register for the 16 virtual lanes; ends of rows are masked. The first
 * queries bring in what comes next row by row: while the dots of some keys are made, their values;
 * while values are added, the next tile's keys. */
#include "attend.h"
#include "avx512_dot.h"
#include "avx512_math.h"
#include "levels.h"

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
    avx512_dot_block(type, &rows, 0, t.end - t.begin, t.n);
}

/* ---- softmax ---- */

/* Dots become weights; part [0] follows. moved: from the new maximum to the old; the exp of it
 * rescales what was before, and is taken for many queries at once (7 % of a prefill). Positions
 * outside the tile's range get weight 0, which adds nothing to a sum of weights. */
static void tile_weights(const sl_attn *a, tile t, float *score, float *part, float *moved,
                         float *sum)
{
    _Static_assert(SL_ATTN_TILE == 2 * SL_LANES, "two positions per lane");
    const __m512 scale = _mm512_set1_ps(a->scale), cap = _mm512_set1_ps(a->softcap);
    const __m512 none = _mm512_set1_ps(-INFINITY);
    const uint32_t seen = (uint32_t)(((uint64_t)1 << (t.end - t.at)) - 1) &
                          ~(uint32_t)(((uint64_t)1 << (t.begin - t.at)) - 1);
    const float old_max = part[0];
    __m512 s[2], max = _mm512_set1_ps(old_max);
    for (int i = 0; i < 2; i++) {
        s[i] = _mm512_mul_ps(_mm512_load_ps(score + SL_LANES * i), scale);
        if (a->softcap != 0.0f)
            s[i] = _mm512_mul_ps(cap, avx512_tanh(_mm512_div_ps(s[i], cap)));
        s[i] = _mm512_mask_blend_ps((__mmask16)(seen >> SL_LANES * i), none, s[i]);
        max = _mm512_max_ps(s[i], max); /* the second operand when the first is NaN */
    }
    const float new_max = _mm512_reduce_max_ps(max) + 0.0f;
    const __m512 m = _mm512_set1_ps(new_max);
    for (int i = 0; i < 2; i++) {
        s[i] = avx512_exp(_mm512_sub_ps(s[i], m));
        _mm512_store_ps(score + SL_LANES * i, s[i]);
    }
    *sum = avx512_sum(_mm512_add_ps(s[0], s[1]));
    *moved = old_max - new_max;
    part[0] = new_max;
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

/* N queries by C vectors of dimensions from d up; some: those of each vector that there are. */
SL_INLINE void values_tile(sl_weight type, const int N, const int C, const values *t, size_t q,
                           size_t d, __mmask16 some)
{
    const size_t step = SL_LANES * avx2_size_of(type);
    const uint8_t *v = t->v + d * avx2_size_of(type);
    const float *weight = t->weight + q * SL_ATTN_TILE;
    float *out = t->out + q * t->out_stride + d;
    __m512 acc[6][8];
    SL_UNROLL
    for (int i = 0; i < N; i++) {
        const __m512 r = _mm512_set1_ps(t->rescale[q + (size_t)i]);
        SL_UNROLL
        for (int c = 0; c < C; c++)
            acc[i][c] = _mm512_mul_ps(
                _mm512_maskz_loadu_ps(some, out + (size_t)i * t->out_stride + SL_LANES * c), r);
    }
    for (size_t j = 0; j < t->n_keys; j++, v += t->stride) {
        if (q + d == 0)
            avx2_prefetch_row(&t->next, j);
        __m512 x[8];
        SL_UNROLL
        for (int c = 0; c < C; c++)
            x[c] = some == 0xffff ? avx512_load(type, v + step * (size_t)c)
                                  : avx512_load_some(type, v + step * (size_t)c, some);
        SL_UNROLL
        for (int i = 0; i < N; i++) {
            const __m512 p = _mm512_set1_ps(weight[(size_t)i * SL_ATTN_TILE + j]);
            SL_UNROLL
            for (int c = 0; c < C; c++)
                acc[i][c] = _mm512_fmadd_ps(p, x[c], acc[i][c]);
        }
    }
    SL_UNROLL
    for (int i = 0; i < N; i++)
        SL_UNROLL
    for (int c = 0; c < C; c++)
        _mm512_mask_storeu_ps(out + (size_t)i * t->out_stride + SL_LANES * c, some, acc[i][c]);
}

SL_INLINE void values_strip(sl_weight type, const int N, const int C, const values *t, size_t q,
                            size_t dim)
{
    const size_t step = SL_LANES * (size_t)C;
    size_t d = 0;
    for (; d + step <= dim; d += step)
        values_tile(type, N, C, t, q, d, 0xffff);
    if (C > 4)
        for (; d + 4 * SL_LANES <= dim; d += 4 * SL_LANES)
            values_tile(type, N, 4, t, q, d, 0xffff);
    for (; d + SL_LANES <= dim; d += SL_LANES)
        values_tile(type, N, 1, t, q, d, 0xffff);
    if (d < dim)
        values_tile(type, N, 1, t, q, d, avx512_first(dim - d));
}

SL_INLINE void values_block(sl_weight type, const values *t, size_t n, size_t dim)
{
    size_t q = 0;
    for (; n - q == 6 || n - q > 8; q += 6)
        values_strip(type, 6, 4, t, q, dim);
    for (; q + 4 <= n; q += 4)
        values_strip(type, 4, 4, t, q, dim);
    for (; q + 2 <= n; q += 2)
        values_strip(type, 2, 8, t, q, dim);
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
    float *part = a->part + t.first * a->part_stride, sum[Q_BLOCK];
    for (size_t i = 0; i < t.n; i++)
        tile_weights(a, t, m->score[i], part + i * a->part_stride, &m->rescale[i], &sum[i]);
    for (size_t i = 0; i < t.n; i += SL_LANES) {
        const __mmask16 some = avx512_first(t.n - i < SL_LANES ? t.n - i : SL_LANES);
        _mm512_store_ps(m->rescale + i, avx512_exp(_mm512_maskz_load_ps(some, m->rescale + i)));
    }
    for (size_t i = 0; i < t.n; i++, part += a->part_stride)
        part[1] = fmaf(part[1], m->rescale[i], sum[i]);
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

SL_INLINE void widen_sixteen(__m128i q, __m512 d, float *out)
{
    _mm512_store_ps(out, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)), d));
}

SL_INLINE void widen(const uint8_t *row, float *out, size_t n)
{
    const uint8_t *scale = row + n;
    size_t i = 0;
    for (; i + SL_Q8_BLOCK <= n; i += SL_Q8_BLOCK, scale += 2) {
        const __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16((short)sl_load_u16(scale)));
        widen_sixteen(_mm_loadu_si128((const void *)(row + i)), d, out + i);
        widen_sixteen(_mm_loadu_si128((const void *)(row + i + SL_LANES)), d, out + i + SL_LANES);
    }
    for (; i < n; i += SL_LANES) {
        const __mmask16 some = avx512_first(n - i < SL_LANES ? n - i : SL_LANES);
        const __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16((short)sl_load_u16(scale)));
        widen_sixteen(_mm_maskz_loadu_epi8(some, row + i), d, out + i);
    }
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
    const __m512 low = _mm512_set1_ps(-127.0f), high = _mm512_set1_ps(127.0f);
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    for (size_t at = 0; at < n; at += SL_Q8_BLOCK) {
        const size_t left = n - at < SL_Q8_BLOCK ? n - at : SL_Q8_BLOCK;
        const uint32_t all = (uint32_t)(((uint64_t)1 << left) - 1);
        const __mmask16 some[2] = {(__mmask16)all, (__mmask16)(all >> SL_LANES)};
        const __m512 v[2] = {_mm512_maskz_loadu_ps(some[0], x + at),
                             _mm512_maskz_loadu_ps(some[1], x + at + SL_LANES)};
        const __m512i most =
            _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(v[0]), magnitude),
                             _mm512_and_si512(_mm512_castps_si512(v[1]), magnitude));
        float inverse;
        const uint16_t d = sl_q8_scale_of(_mm512_reduce_max_epu32(most), &inverse);
        memcpy(sl_q8_scale_at(row, n, at / SL_Q8_BLOCK), &d, sizeof d);
        for (int i = 0; i < 2; i++) {
            const __m512 t = _mm512_mul_ps(v[i], _mm512_set1_ps(inverse));
            const __m512i q = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(t, low), high));
            const __m128i b = _mm512_cvtepi32_epi8(inverse == 0.0f ? _mm512_setzero_si512() : q);
            _mm_mask_storeu_epi8((int8_t *)row + at + SL_LANES * i, some[i], b);
        }
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
        const __m512 r = _mm512_set1_ps(rescale);
        sum = fmaf(part[1], rescale, sum);
        for (size_t d = 0; d < dim_v; d += SL_LANES) {
            const __mmask16 some = avx512_first(dim_v - d < SL_LANES ? dim_v - d : SL_LANES);
            const __m512 v = _mm512_maskz_loadu_ps(some, part + 2 + d);
            const __m512 o = _mm512_maskz_loadu_ps(some, out + d);
            _mm512_mask_storeu_ps(out + d, some, _mm512_fmadd_ps(v, r, o));
        }
    }
    if (sink)
        sum += sl_exp(*sink - max);
    const float scale = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (size_t d = 0; d < dim_v; d++)
        out[d] *= scale;
}

void sl_kernels_fill_avx512_attention(sl_kernels *k)
{
    k->attn_f16 = attn_f16;
    k->attn_f32 = attn_f32;
    k->attn_q8 = attn_q8;
    k->to_q8 = to_q8;
    k->attn_merge = attn_merge;
}
