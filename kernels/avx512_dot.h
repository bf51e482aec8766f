/* Rows of floats times rows of activations, as lanes.h defines it: one register holds the 16 lanes
 * of one output. For avx512_*.c only. */
#ifndef SL_AVX512_DOT_H
#define SL_AVX512_DOT_H

#include "avx2_dot.h"

/* The lanes that n of 16 elements take. */
SL_INLINE __mmask16 avx512_first(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

SL_INLINE __m512 avx512_widen(sl_weight type, __m256i half)
{
    if (type == SL_W_F16)
        return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

SL_INLINE __m512 avx512_narrow(__m512d first, __m512d last)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(first)), _mm512_cvtpd_ps(last),
                              1);
}

/* Sixteen elements. */
SL_INLINE __m512 avx512_load(sl_weight type, const uint8_t *p)
{
    if (type == SL_W_F32)
        return _mm512_loadu_ps(p);
    if (type == SL_W_F64)
        return avx512_narrow(_mm512_loadu_pd(p), _mm512_loadu_pd(p + 64));
    return avx512_widen(type, _mm256_loadu_si256((const void *)p));
}

/* Those of the mask, 0 for the others, whose memory is not touched. */
SL_INLINE __m512 avx512_load_some(sl_weight type, const uint8_t *p, __mmask16 some)
{
    if (type == SL_W_F32)
        return _mm512_maskz_loadu_ps(some, p);
    if (type == SL_W_F64)
        return avx512_narrow(_mm512_maskz_loadu_pd((__mmask8)some, p),
                             _mm512_maskz_loadu_pd((__mmask8)(some >> 8), p + 64));
    return avx512_widen(type, _mm256_maskz_loadu_epi16(some, p));
}

/* The tree of lanes.h for 16 outputs at once: element e of quarter k of the result is the sum of
 * v[k + 4 * e]. */
SL_INLINE __m512 avx512_sum16(const __m512 v[16])
{
    __m512 a[8], b[4];
    SL_UNROLL
    for (int i = 0; i < 8; i++)
        a[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x44),
                             _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xee));
    SL_UNROLL
    for (int i = 0; i < 4; i++)
        b[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xdd));
    __m512 c[2];
    SL_UNROLL
    for (int i = 0; i < 2; i++) {
        const __m512d x = _mm512_castps_pd(b[2 * i]), y = _mm512_castps_pd(b[2 * i + 1]);
        c[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    return _mm512_add_ps(_mm512_shuffle_ps(c[0], c[1], 0x88), _mm512_shuffle_ps(c[0], c[1], 0xdd));
}

SL_INLINE float avx512_sum(__m512 v)
{
    const __m256 s = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* Outputs of a tile, four rows of one activation row at a time: their lanes are added and stored
 * together. acc[i * B + j]: row i, activation row j. */
SL_INLINE void avx512_store_tile(const int R, const int B, const avx2_rows *t, size_t r, size_t b,
                                 const __m512 *acc)
{
    float *y = t->y + b * t->y_stride + r;
    if (R % 4 != 0) {
        SL_UNROLL
        for (int i = 0; i < R * B; i++)
            y[(size_t)(i % B) * t->y_stride + (size_t)(i / B)] = avx512_sum(acc[i]);
        return;
    }
    const int quads = R / 4 * B;
    SL_UNROLL
    for (int first = 0; first < quads; first += 4) {
        __m512 v[16];
        SL_UNROLL
        for (int i = 0; i < 16; i++) {
            const int quad = first + i % 4, row = quad / B * 4 + i / 4;
            v[i] = quad < quads ? acc[row * B + quad % B] : _mm512_setzero_ps();
        }
        const __m512 sum = avx512_sum16(v);
        SL_UNROLL
        for (int i = 0; i < 4; i++) {
            const int quad = first + i;
            if (quad >= quads)
                continue;
            _mm_storeu_ps(y + (size_t)(quad % B) * t->y_stride + 4 * (size_t)(quad / B),
                          i == 0   ? _mm512_castps512_ps128(sum)
                          : i == 1 ? _mm512_extractf32x4_ps(sum, 1)
                          : i == 2 ? _mm512_extractf32x4_ps(sum, 2)
                                   : _mm512_extractf32x4_ps(sum, 3));
        }
    }
}

/* R rows by B activation rows from (r, b) up, whole columns from .. to; the last chunk gives the
 * outputs, the others keep their sums. ahead: bytes to prefetch ahead, 0 none. */
SL_INLINE void avx512_dot_tile(sl_weight type, const int R, const int B, const avx2_rows *t,
                               size_t r, size_t b, size_t from, size_t to, __m512 *kept,
                               size_t ahead)
{
    const size_t size = avx2_size_of(type), whole = t->n_cols / SL_LANES * SL_LANES;
    const uint8_t *w = t->w + r * t->row_bytes;
    const float *x = t->x + b * t->x_stride;
    __m512 acc[32], u[16];
    SL_UNROLL
    for (int i = 0; i < R * B; i++)
        acc[i] = from ? kept[i] : _mm512_setzero_ps();
    for (size_t c = from; c < to; c += SL_LANES) {
        if (ahead) {
            SL_UNROLL
            for (int i = 0; i < R; i++)
                _mm_prefetch((const char *)w + (size_t)i * t->row_bytes + c * size + ahead,
                             _MM_HINT_T0);
        }
        SL_UNROLL
        for (int i = 0; i < R; i++)
            u[i] = avx512_load(type, w + (size_t)i * t->row_bytes + c * size);
        SL_UNROLL
        for (int j = 0; j < B; j++) {
            const __m512 v = _mm512_loadu_ps(x + (size_t)j * t->x_stride + c);
            SL_UNROLL
            for (int i = 0; i < R; i++)
                acc[i * B + j] = _mm512_fmadd_ps(u[i], v, acc[i * B + j]);
        }
    }
    if (to < whole) {
        SL_UNROLL
        for (int i = 0; i < R * B; i++)
            kept[i] = acc[i];
        return;
    }
    if (whole < t->n_cols) {
        const __mmask16 some = avx512_first(t->n_cols - whole);
        SL_UNROLL
        for (int i = 0; i < R; i++)
            u[i] = avx512_load_some(type, w + (size_t)i * t->row_bytes + whole * size, some);
        SL_UNROLL
        for (int j = 0; j < B; j++) {
            const __m512 v = _mm512_maskz_loadu_ps(some, x + (size_t)j * t->x_stride + whole);
            SL_UNROLL
            for (int i = 0; i < R; i++)
                acc[i * B + j] = _mm512_mask3_fmadd_ps(u[i], v, acc[i * B + j], some);
        }
    }
    avx512_store_tile(R, B, t, r, b, acc);
}

/* A chunk of six activation rows stays in the first-level cache while a strip's rows pass. */
enum { AVX512_CHUNK = 1024, AVX512_STRIP_ROWS = 64, AVX512_MOST_BATCH = 6 };

/* The chunk of B activation rows that a strip reads next comes in while this one is in use, a share
 * with each tile: its rows are too short for the hardware to see them coming. */
SL_INLINE void avx512_fetch_chunk(const int B, const float *x, size_t x_stride, size_t n_cols,
                                  size_t part, size_t n_parts)
{
    const size_t line = 64 / sizeof *x, lines = (n_cols + line - 1) / line;
    for (size_t i = lines * part / n_parts; i < lines * (part + 1) / n_parts; i++)
        for (int j = 0; j < B; j++)
            _mm_prefetch((const char *)(x + (size_t)j * x_stride + i * line), _MM_HINT_T1);
}

/* At most AVX512_STRIP_ROWS rows. */
SL_INLINE void avx512_dot_strip(sl_weight type, const int R, const int B, const avx2_rows *t,
                                size_t begin, size_t end, size_t b)
{
    const size_t whole = t->n_cols / SL_LANES * SL_LANES;
    __m512 kept[AVX512_STRIP_ROWS * AVX512_MOST_BATCH];
    const size_t parts = (end - begin) / R;
    size_t from = 0, to;
    do {
        to = whole - from > AVX512_CHUNK ? from + AVX512_CHUNK : whole;
        const bool fetch = b == 0 && from == 0;
        const float *x = t->x + b * t->x_stride;
        const float *ahead = to < whole ? x + to : x + B * t->x_stride;
        const size_t left = to < whole ? whole - to : whole;
        size_t r = begin;
        for (; r + R <= end; r += R) {
            if (fetch)
                for (size_t i = 0; i < (size_t)R; i++)
                    sl_prefetch_row(&t->next, r + i);
            if (t->stream)
                avx512_fetch_chunk(B, ahead, t->x_stride, left < AVX512_CHUNK ? left : AVX512_CHUNK,
                                   (r - begin) / R, parts);
            avx512_dot_tile(type, R, B, t, r, b, from, to, kept + (r - begin) * B,
                            b == 0 && t->stream ? R * t->row_bytes : 0);
        }
        for (; r < end; r++) {
            if (fetch)
                sl_prefetch_row(&t->next, r);
            avx512_dot_tile(type, 1, B, t, r, b, from, to, kept + (r - begin) * B, 0);
        }
        from = to;
    } while (to < whole);
}

/* Rows begin .. end, at most AVX512_STRIP_ROWS, by all n_batch activation rows. Of 32 registers, 24
 * are outputs, four weights, one an activation. */
SL_INLINE void avx512_dot_block(sl_weight type, const avx2_rows *t, size_t begin, size_t end,
                                size_t n_batch)
{
    size_t b = 0;
    for (; n_batch - b == 6 || n_batch - b > 8; b += 6)
        avx512_dot_strip(type, 4, 6, t, begin, end, b);
    for (; n_batch - b >= 4; b += 4)
        avx512_dot_strip(type, 4, 4, t, begin, end, b);
    if (n_batch - b == 3)
        avx512_dot_strip(type, 4, 3, t, begin, end, b);
    if (n_batch - b == 2)
        avx512_dot_strip(type, 8, 2, t, begin, end, b);
    if (n_batch - b == 1)
        avx512_dot_strip(type, 16, 1, t, begin, end, b);
}

#endif
