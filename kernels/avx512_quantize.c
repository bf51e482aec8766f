/* Activations to int8, scalar_quant.c sixteen values at a time. Blocks of 32 are short, so sixteen
 * of them share what is done once per block: divisions, and sums over lanes. */
#include "avx512_dot.h"
#include "levels.h"
#include "quant.h"

enum { GROUP = 16 }; /* blocks of 32 */

/* The larger, of all lanes of 16 vectors: lane i is v[i]'s. */
SL_INLINE __m512i largest_of_each(const __m512i v[GROUP])
{
    __m512i a[8], b[4], c[2];
    SL_UNROLL
    for (int i = 0; i < 8; i++)
        a[i] = _mm512_max_epu32(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    SL_UNROLL
    for (int i = 0; i < 4; i++)
        b[i] = _mm512_max_epu32(_mm512_unpacklo_epi64(a[2 * i], a[2 * i + 1]),
                                _mm512_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
    SL_UNROLL
    for (int i = 0; i < 2; i++)
        c[i] = _mm512_max_epu32(_mm512_shuffle_i32x4(b[2 * i], b[2 * i + 1], 0x88),
                                _mm512_shuffle_i32x4(b[2 * i], b[2 * i + 1], 0xdd));
    return _mm512_max_epu32(_mm512_shuffle_i32x4(c[0], c[1], 0x88),
                            _mm512_shuffle_i32x4(c[0], c[1], 0xdd));
}

/* Sums of the lower and upper half of 8 vectors: lane 2 i is v[i]'s lower one's. */
SL_INLINE __m512i sum_of_halves(const __m512i v[GROUP / 2])
{
    __m512i a[4], b[2];
    SL_UNROLL
    for (int i = 0; i < 4; i++)
        a[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    SL_UNROLL
    for (int i = 0; i < 2; i++)
        b[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(a[2 * i], a[2 * i + 1]),
                                _mm512_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
    const __m512i s = _mm512_add_epi32(_mm512_shuffle_i32x4(b[0], b[1], 0x88),
                                       _mm512_shuffle_i32x4(b[0], b[1], 0xdd));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15), s);
}

/* Four vectors of values from -127 to 127, in order. */
SL_INLINE __m512i bytes_of(const __m512i q[4])
{
    const __m512i v =
        _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
}

/* Sums of four bytes, and of their squares. */
SL_INLINE __m512i sums_of_four(__m512i q)
{
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), q);
}

SL_INLINE __m512i add_squares(__m512i sum, __m512i q)
{
    const __m512i magnitude = _mm512_abs_epi8(q);
    return _mm512_dpbusd_epi32(sum, magnitude, magnitude);
}

SL_INLINE __m512i magnitudes(const float *x)
{
    return _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi32(0x7fffffff));
}

/* t = x * inverse, rounded to q; lanes += t * q. */
SL_INLINE __m512i rounded(const float *x, __m512 inverse, __m512 *lanes)
{
    const __m512 t = _mm512_mul_ps(_mm512_loadu_ps(x), inverse);
    const __m512i q = _mm512_cvtps_epi32(t);
    *lanes = _mm512_fmadd_ps(t, _mm512_cvtepi32_ps(q), *lanes);
    return q;
}

/* The scale that takes the largest magnitudes to 127 and its inverse; blocks whose q are all 0 have
 * inverse 0. Returns which blocks are not such. */
SL_INLINE __mmask16 scales_of(__m512i largest, __m512 *scale, __m512 *inverse)
{
    const __m512 amax = _mm512_castsi512_ps(largest);
    const __mmask16 finite = _mm512_cmplt_epu32_mask(largest, _mm512_set1_epi32(0x7f800000));
    const __mmask16 some =
        _mm512_mask_cmp_ps_mask(finite, amax, _mm512_set1_ps(SL_ACT_TINY), _CMP_GE_OQ);
    const __m512 s = _mm512_maskz_div_ps(some, amax, _mm512_set1_ps(127.0f));
    *inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(1.0f), s);
    *scale = _mm512_mask_mov_ps(_mm512_set1_ps(NAN), finite, s);
    return some;
}

/* n <= GROUP blocks. */
static void quantize_group(const float *x, size_t n, int8_t *q, float *d, int32_t *sum)
{
    __m512i largest[GROUP], sums[GROUP / 2], squares[GROUP / 2];
    __m512 lanes[GROUP], scale, by;
    float inverse[GROUP];
    for (size_t i = 0; i < n; i++)
        largest[i] = _mm512_max_epu32(magnitudes(x + 32 * i), magnitudes(x + 32 * i + 16));
    for (size_t i = n; i < GROUP; i++) {
        largest[i] = sums[i / 2] = squares[i / 2] = _mm512_setzero_si512();
        lanes[i] = _mm512_setzero_ps();
    }
    const __mmask16 some = scales_of(largest_of_each(largest), &scale, &by);
    _mm512_storeu_ps(inverse, by);
    for (size_t i = 0; i < n; i += 2) {
        __m512i v[4];
        SL_UNROLL
        for (size_t k = 0; k < 2; k++) {
            const size_t block = i + k;
            v[2 * k] = v[2 * k + 1] = _mm512_setzero_si512();
            lanes[block] = _mm512_setzero_ps();
            if (block < n && (some >> block & 1)) { /* 0 * infinity would not give 0 */
                const __m512 all = _mm512_set1_ps(inverse[block]);
                v[2 * k] = rounded(x + 32 * block, all, &lanes[block]);
                v[2 * k + 1] = rounded(x + 32 * block + 16, all, &lanes[block]);
            }
        }
        const __m512i bytes = bytes_of(v);
        if (i + 1 < n)
            _mm512_storeu_si512(q + 32 * i, bytes);
        else
            _mm256_storeu_si256((void *)(q + 32 * i), _mm512_castsi512_si256(bytes));
        sums[i / 2] = sums_of_four(bytes);
        squares[i / 2] = add_squares(_mm512_setzero_si512(), bytes);
    }
    /* the sum of lane 4 k + e comes out as element e of quarter k */
    __m512 turned[GROUP];
    SL_UNROLL
    for (int i = 0; i < GROUP; i++)
        turned[i] = lanes[i % 4 * 4 + i / 4];
    const __m512 fit =
        _mm512_div_ps(avx512_sum16(turned), _mm512_cvtepi32_ps(sum_of_halves(squares)));
    const __mmask16 blocks = avx512_first(n);
    _mm512_mask_storeu_ps(d, blocks, _mm512_mask_mul_ps(scale, some, scale, fit));
    _mm512_mask_storeu_epi32(sum, blocks, sum_of_halves(sums));
}

static void quantize_q8_32(SL_QUANTIZE_ARGS)
{
    char *row = out;
    float *d = (float *)(void *)(row + n_cols);
    int32_t *sum = (int32_t *)(void *)(row + sl_act_q8_32_sums_at(n_cols));
    const size_t n_blocks = n_cols / 32;
    for (size_t i = 0; i < n_blocks; i += GROUP)
        quantize_group(x + 32 * i, n_blocks - i < GROUP ? n_blocks - i : GROUP,
                       (int8_t *)row + 32 * i, d + i, sum + i);
}

/* Sums of 16 of 256 values, from those of four: sum 4 g + l lies in quarter l of fours[g]. */
SL_INLINE __m256i sums_of_sixteen(const __m512i fours[4])
{
    const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(fours[0], fours[1]),
                                       _mm512_unpackhi_epi32(fours[0], fours[1]));
    const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(fours[2], fours[3]),
                                       _mm512_unpackhi_epi32(fours[2], fours[3]));
    const __m512i s = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    return _mm512_cvtepi32_epi16(_mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), s));
}

static void quantize_q8_256(SL_QUANTIZE_ARGS)
{
    char *row = out;
    float *d = (float *)(void *)(row + n_cols);
    int16_t *sum16 = (int16_t *)(void *)(row + sl_act_q8_256_sums_at(n_cols));
    int16_t *sum32 = sum16 + n_cols / 16;
    for (size_t i = 0; i < n_cols / 256; i++, x += 256) {
        __m512i largest = magnitudes(x), fours[4], squares = _mm512_setzero_si512();
        __m512 lanes = _mm512_setzero_ps(), scale, by;
        for (size_t k = 16; k < 256; k += 16)
            largest = _mm512_max_epu32(largest, magnitudes(x + k));
        const __m512i all = _mm512_set1_epi32((int)_mm512_reduce_max_epu32(largest));
        const __mmask16 some = scales_of(all, &scale, &by);
        SL_UNROLL
        for (size_t g = 0; g < 4; g++) {
            __m512i v[4];
            SL_UNROLL
            for (size_t k = 0; k < 4; k++)
                v[k] = rounded(x + 64 * g + 16 * k, by, &lanes);
            /* 0 * infinity would not give 0 */
            const __m512i bytes = _mm512_maskz_mov_epi8(some ? ~(__mmask64)0 : 0, bytes_of(v));
            _mm512_storeu_si512(row + 256 * i + 64 * g, bytes);
            fours[g] = sums_of_four(bytes);
            squares = add_squares(squares, bytes);
        }
        const __m256i sums = sums_of_sixteen(fours);
        _mm256_storeu_si256((void *)(sum16 + 16 * i), sums);
        _mm_storeu_si128((void *)(sum32 + 8 * i),
                         _mm256_cvtepi32_epi16(_mm256_madd_epi16(sums, _mm256_set1_epi16(1))));
        d[i] = _mm512_cvtss_f32(scale);
        if (some)
            d[i] *= avx512_sum(lanes) / (float)_mm512_reduce_add_epi32(squares);
    }
}

void sl_kernels_fill_avx512_quantize(sl_kernels *k)
{
    k->quantize[SL_ACT_Q8_32] = quantize_q8_32;
    k->quantize[SL_ACT_Q8_256] = quantize_q8_256;
}
