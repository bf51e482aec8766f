/* Rows of floats times rows of activations, as lanes.h defines it: two registers hold the 16 lanes
 * of one output. For avx2_*.c, and avx512_*.c where it has no better. */
#ifndef SL_AVX2_DOT_H
#define SL_AVX2_DOT_H

#include "float_rows.h"

#include <immintrin.h>

#define avx2_size_of sl_float_size
typedef sl_rows avx2_rows;

/* Eight elements. */
SL_INLINE __m256 avx2_load(sl_weight type, const uint8_t *p)
{
    if (type == SL_W_F32)
        return _mm256_loadu_ps((const void *)p);
    if (type == SL_W_F64)
        return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd((const void *)(p + 32))),
                               _mm256_cvtpd_ps(_mm256_loadu_pd((const void *)p)));
    const __m128i half = _mm_loadu_si128((const void *)p);
    if (type == SL_W_F16)
        return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* The rest of the tree for four outputs, whose lanes i and i + 8 are already added. */
SL_INLINE __m128 avx2_sum4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    const __m256 ac =
        _mm256_add_ps(_mm256_permute2f128_ps(a, c, 0x20), _mm256_permute2f128_ps(a, c, 0x31));
    const __m256 bd =
        _mm256_add_ps(_mm256_permute2f128_ps(b, d, 0x20), _mm256_permute2f128_ps(b, d, 0x31));
    const __m256d ac2 = _mm256_castps_pd(ac), bd2 = _mm256_castps_pd(bd);
    const __m256 abcd = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(ac2, bd2)),
                                      _mm256_castpd_ps(_mm256_unpackhi_pd(ac2, bd2)));
    const __m256 sum = _mm256_add_ps(abcd, _mm256_movehdup_ps(abcd));
    return _mm_shuffle_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1), 0x88);
}

SL_INLINE float avx2_sum(__m256 lo, __m256 hi)
{
    const __m256 s = _mm256_add_ps(lo, hi);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* The lanes that a last, partial chunk of n columns reaches: sum [0] lanes 0 to 7, [1] 8 to 15. Out
 * of line: rare, and the tiles' own sums must not get an address. */
static __attribute__((noinline)) void avx2_dot_tail(sl_weight type, const uint8_t *w,
                                                    const float *x, size_t n, __m256 sum[2])
{
    float lane[SL_LANES];
    memcpy(lane, sum, sizeof lane);
    for (size_t i = 0; i < n; i++)
        lane[i] = fmaf(sl_load_float(type, w + i * avx2_size_of(type)), x[i], lane[i]);
    memcpy(sum, lane, sizeof lane);
}

/* Sums of a tile between two chunks of columns: [output][lanes 0 to 7, 8 to 15]. */
typedef __m256 avx2_kept[2];

/* R rows by B activation rows from (r, b) up, whole columns from .. to; the last chunk gives the
 * outputs, the others keep their sums. ahead: bytes to prefetch ahead, 0 none. */
SL_INLINE void avx2_dot_tile(sl_weight type, const int R, const int B, const avx2_rows *t, size_t r,
                             size_t b, size_t from, size_t to, avx2_kept *kept, size_t ahead)
{
    const size_t size = avx2_size_of(type), whole = t->n_cols / SL_LANES * SL_LANES;
    const uint8_t *w = t->w + r * t->row_bytes;
    const float *x = t->x + b * t->x_stride;
    __m256 acc[16][2];
    SL_UNROLL
    for (int i = 0; i < R * B; i++) {
        acc[i][0] = from ? kept[i][0] : _mm256_setzero_ps();
        acc[i][1] = from ? kept[i][1] : _mm256_setzero_ps();
    }
    for (size_t c = from; c < to; c += SL_LANES) {
        if (ahead) {
            SL_UNROLL
            for (int i = 0; i < R; i++)
                _mm_prefetch((const char *)w + (size_t)i * t->row_bytes + c * size + ahead,
                             _MM_HINT_T0);
        }
        SL_UNROLL
        for (int half = 0; half < 2; half++) {
            const size_t at = c + 8 * (size_t)half;
            __m256 v[4];
            SL_UNROLL
            for (int j = 0; j < B; j++) {
                v[j] = _mm256_loadu_ps(x + (size_t)j * t->x_stride + at);
                /* Keeps gcc from loading it again for every row: 90 instead of 120 GFLOP/s. */
                __asm__("" : "+x"(v[j]));
            }
            SL_UNROLL
            for (int i = 0; i < R; i++) {
                const __m256 u = avx2_load(type, w + (size_t)i * t->row_bytes + at * size);
                SL_UNROLL
                for (int j = 0; j < B; j++)
                    acc[i * B + j][half] = _mm256_fmadd_ps(u, v[j], acc[i * B + j][half]);
            }
        }
    }
    if (to < whole) {
        SL_UNROLL
        for (int i = 0; i < R * B; i++) {
            kept[i][0] = acc[i][0];
            kept[i][1] = acc[i][1];
        }
        return;
    }
    float out[16];
    __m256 sum[16];
    SL_UNROLL
    for (int i = 0; i < R * B; i++) {
        __m256 lanes[2] = {acc[i][0], acc[i][1]};
        if (whole < t->n_cols)
            avx2_dot_tail(type, w + (size_t)(i / B) * t->row_bytes + whole * size,
                          x + (size_t)(i % B) * t->x_stride + whole, t->n_cols - whole, lanes);
        sum[i] = _mm256_add_ps(lanes[0], lanes[1]);
    }
    SL_UNROLL
    for (int i = R * B; i < (R * B + 3) / 4 * 4; i++)
        sum[i] = _mm256_setzero_ps();
    SL_UNROLL
    for (int i = 0; i < R * B; i += 4)
        _mm_storeu_ps(out + i, avx2_sum4(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]));
    SL_UNROLL
    for (int i = 0; i < R * B; i++)
        t->y[(b + (size_t)(i % B)) * t->y_stride + r + (size_t)(i / B)] = out[i];
}

/* A chunk of three activation rows stays in the first-level cache while a strip's rows pass: f32
 * with 4096 columns 97 instead of 87 GFLOP/s. */
enum { AVX2_CHUNK = 1024, AVX2_STRIP_ROWS = 32 };

/* At most AVX2_STRIP_ROWS rows. */
SL_INLINE void avx2_dot_strip(sl_weight type, const int R, const int B, const avx2_rows *t,
                              size_t begin, size_t end, size_t b)
{
    const size_t whole = t->n_cols / SL_LANES * SL_LANES;
    avx2_kept kept[AVX2_STRIP_ROWS * 3];
    size_t from = 0, to;
    do {
        to = whole - from > AVX2_CHUNK ? from + AVX2_CHUNK : whole;
        size_t r = begin;
        for (; r + R <= end; r += R) {
            if (b == 0 && from == 0)
                for (size_t i = 0; i < (size_t)R; i++)
                    sl_prefetch_row(&t->next, r + i);
            avx2_dot_tile(type, R, B, t, r, b, from, to, kept + (r - begin) * B,
                          b == 0 && t->stream ? R * t->row_bytes : 0);
        }
        for (; r < end; r++)
            avx2_dot_tile(type, 1, B, t, r, b, from, to, kept + (r - begin) * B, 0);
        from = to;
    } while (to < whole);
}

/* Rows begin .. end, at most AVX2_STRIP_ROWS, by all n_batch activation rows. With 16 registers, 6
 * outputs of two registers each leave room for the operands. */
SL_INLINE void avx2_dot_block(sl_weight type, const avx2_rows *t, size_t begin, size_t end,
                              size_t n_batch)
{
    size_t b = 0;
    for (; n_batch - b == 3 || n_batch - b > 4; b += 3)
        avx2_dot_strip(type, 2, 3, t, begin, end, b);
    for (; n_batch - b >= 2; b += 2)
        avx2_dot_strip(type, 3, 2, t, begin, end, b);
    if (b < n_batch)
        avx2_dot_strip(type, 4, 1, t, begin, end, b);
}

#endif
