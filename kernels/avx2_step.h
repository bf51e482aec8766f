/* The innermost step of quantised products: weight bytes times activation bytes, summed exactly. In
 * two versions; the flags of the file that includes this choose. AVX2 adds pairs into 16 bits, as
 * many as fit (avx2_quant.c proves how many), then widens the sums. AVX-VNNI adds four products to
 * 32 bits at once, where the sums of a whole block fit. */
#ifndef SL_AVX2_STEP_H
#define SL_AVX2_STEP_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define SL_INLINE static inline __attribute__((always_inline))
/* Arrays of vectors live in registers only when every loop over them is unrolled. */
#if defined(__clang__)
#define SL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SL_UNROLL _Pragma("GCC unroll 16")
#endif

/* gcc would regroup long integer sums into trees and run out of registers: a third of the speed. */
#define SL_KEEP_ORDER(v) __asm__("" : "+x"(v))

enum { SL_MAX_TILES = 2, SL_MAX_COLS = 4 };

SL_INLINE __m256i sl_broadcast32(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* A shuffle of bytes inside each lane: what it takes is the same in all lanes of a half. */
SL_INLINE __m256i sl_pattern(uint32_t first, uint32_t second)
{
    const int a = (int)first, b = (int)second;
    return _mm256_setr_epi32(a, a + 0x04040404, a + 0x08080808, a + 0x0c0c0c0c, b, b + 0x04040404,
                             b + 0x08080808, b + 0x0c0c0c0c);
}

/* Bytes a b c d of each lane, chosen by index (0x80: zero). */
SL_INLINE __m256i sl_pick(__m256i v, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    const uint32_t pattern = a | b << 8 | c << 16 | d << 24;
    return _mm256_shuffle_epi8(v, sl_pattern(pattern, pattern));
}

/* Scale of a sub-block, byte j of each lane, twice as int16. */
SL_INLINE __m256i sl_sub_scale(__m256i bytes, uint32_t j)
{
    return sl_pick(bytes, j, 0x80, j, 0x80);
}

/* Signed ones; byte j in the first half, byte k in the second. */
SL_INLINE __m256i sl_signed_scales(__m256i bytes, uint32_t j, uint32_t k)
{
    const __m256i pattern =
        sl_pattern(0x00800080 | j << 8 | j << 24, 0x00800080 | k << 8 | k << 24);
    return _mm256_srai_epi16(_mm256_shuffle_epi8(bytes, pattern), 8);
}

SL_INLINE __m256i sl_multiply_pairs(__m256i w, __m256i x, int is_signed)
{
    return is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                     : _mm256_maddubs_epi16(w, x);
}

/* sum + the product of int16 pairs. */
SL_INLINE __m256i sl_add_pairs(__m256i sum, __m256i a, __m256i b)
{
#if defined(__AVXVNNI__)
    return _mm256_dpwssd_avx_epi32(sum, a, b);
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
#endif
}

/* isum + scale * the sum of n vectors' products, which fits 16 bits; for one activation row, where
 * four products at once gain nothing: their chain of sums is longer. */
SL_INLINE __m256i sl_add_scaled(__m256i isum, const __m256i *q, const __m256i *x, int n,
                                __m256i scale)
{
    __m256i sum = _mm256_maddubs_epi16(q[0], x[0]);
    SL_UNROLL
    for (int k = 1; k < n; k++) {
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(q[k], x[k]));
        SL_KEEP_ORDER(sum);
    }
    return sl_add_pairs(isum, sum, scale);
}

#if defined(__AVXVNNI__)

/* Signed weight bytes as the step takes them: plus 128, which is an offset to take off. */
SL_INLINE __m256i sl_signed_bytes(__m256i v)
{
    return _mm256_xor_si256(v, _mm256_set1_epi8(-128));
}

/* isum[c][r] += scale[r] (NULL: 1) * the products of n vectors of tile r and activation row c.
 * n_in_16, is_signed: of no account here. A whole multiplication costs less than to keep to 16 bits
 * for the sake of a short one. */
SL_INLINE void sl_add_products(const __m256i *const q[], const __m256i *scale, int n_tiles,
                               const int8_t *const x[], int n_x, int n, int n_in_16, int is_signed,
                               __m256i isum[SL_MAX_COLS][SL_MAX_TILES])
{
    __m256i sum[SL_MAX_COLS][SL_MAX_TILES];
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++)
        sum[c][r] = scale ? _mm256_setzero_si256() : isum[c][r];
    SL_UNROLL
    for (int k = 0; k < n; k++) {
        __m256i w[SL_MAX_TILES];
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            w[r] = q[r][k];
        SL_UNROLL
        for (int c = 0; c < n_x; c++) {
            const __m256i four = sl_broadcast32(x[c] + 4 * k);
            SL_UNROLL
            for (int r = 0; r < n_tiles; r++)
                sum[c][r] = _mm256_dpbusd_avx_epi32(sum[c][r], w[r], four);
        }
    }
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++)
        isum[c][r] =
            scale ? _mm256_add_epi32(isum[c][r],
                                     _mm256_mullo_epi32(sum[c][r], _mm256_srai_epi32(scale[r], 16)))
                  : sum[c][r];
}

#else /* AVX2 */

/* Signed weight bytes as the step takes them: as they are. */
SL_INLINE __m256i sl_signed_bytes(__m256i v)
{
    return v;
}

/* sum[c][r] = 16-bit sums of pairs, n vectors of tile r times activation row c. */
SL_INLINE void sl_sum_pairs(const __m256i *const q[], int n_tiles, const int8_t *const x[], int n_x,
                            int n, int is_signed, __m256i sum[SL_MAX_COLS][SL_MAX_TILES])
{
    SL_UNROLL
    for (int k = 0; k < n; k++) {
        __m256i w[SL_MAX_TILES];
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            w[r] = q[r][k];
        SL_UNROLL
        for (int c = 0; c < n_x; c++) {
            const __m256i four = sl_broadcast32(x[c] + 4 * k);
            SL_UNROLL
            for (int r = 0; r < n_tiles; r++) {
                const __m256i pairs = sl_multiply_pairs(w[r], four, is_signed);
                sum[c][r] = k ? _mm256_add_epi16(sum[c][r], pairs) : pairs;
                SL_KEEP_ORDER(sum[c][r]);
            }
        }
    }
}

/* isum[c][r] += scale[r] (NULL: 1) * the products of n vectors of tile r and activation row c.
 * n_in_16: as many fit 16 bits. is_signed: the weight bytes are. */
SL_INLINE void sl_add_products(const __m256i *const q[], const __m256i *scale, int n_tiles,
                               const int8_t *const x[], int n_x, int n, int n_in_16, int is_signed,
                               __m256i isum[SL_MAX_COLS][SL_MAX_TILES])
{
    SL_UNROLL
    for (int k = 0; k < n; k += n_in_16) {
        const __m256i *q_k[SL_MAX_TILES];
        const int8_t *x_k[SL_MAX_COLS];
        __m256i sum[SL_MAX_COLS][SL_MAX_TILES];
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            q_k[r] = q[r] + k;
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            x_k[c] = x[c] + 4 * k;
        sl_sum_pairs(q_k, n_tiles, x_k, n_x, n_in_16, is_signed, sum);
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            isum[c][r] =
                sl_add_pairs(isum[c][r], sum[c][r], scale ? scale[r] : _mm256_set1_epi16(1));
    }
}

#endif

#endif
