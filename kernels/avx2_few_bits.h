/* Blocks of one to three bits a value, opened into tiles (avx2_blocks.h) or multiplied with one
 * activation row (avx2_single.h). For avx2_mul.h. */
#ifndef SL_AVX2_FEW_BITS_H
#define SL_AVX2_FEW_BITS_H

#include "avx2_blocks.h"
#include "avx2_single.h"

/* ---- Tiles ---- */

SL_INLINE __m256i sl_two_bits(__m256i v, int shift)
{
    return _mm256_and_si256(sl_shift(v, -shift), _mm256_set1_epi8(3));
}

/* 64 bytes of each row, as Q2_K, Q3_K and TQ2_0 have them. */
SL_INLINE void sl_open_two_bits(const sl_rows8 *w, size_t at, __m256i q[64])
{
    for (int h = 0; h < 2; h++)
        for (int part = 0; part < 2; part++) {
            __m256i words[4];
            sl_words(w, at + (size_t)(32 * h + 16 * part), words);
            SL_UNROLL
            for (int i = 0; i < 16; i++) /* word i % 4 of shift i / 4 */
                q[32 * h + 8 * (i / 4) + 4 * part + i % 4] = sl_two_bits(words[i % 4], i / 4 * 2);
        }
}

/* The scales and minima of 16 sub-blocks, four a vector. */
typedef struct sl_q2_head {
    __m256i scale[4], min[4];
    __m256 d, dmin;
} sl_q2_head;

SL_INLINE sl_q2_head sl_open_q2_head(const sl_rows8 *w, size_t at)
{
    sl_q2_head h;
    __m256i first[4], last[4];
    sl_words(w, at, first);
    sl_words(w, at + 68, last);
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        h.scale[k] = sl_low_nibbles(first[k]);
        h.min[k] = sl_high_nibbles(first[k]);
    }
    sl_split_halves(last[3], &h.d, &h.dmin);
    return h;
}

SL_INLINE void sl_open_q2_k(const sl_rows8 *w, size_t i, sl_tile256 *t)
{
    const size_t at = i * sizeof(sl_q2_k);
    const sl_q2_head h = sl_open_q2_head(w, at);
    sl_open_two_bits(w, at + 16, t->q);
    SL_UNROLL
    for (uint32_t j = 0; j < 16; j++)
        t->scale[j] = sl_sub_scale(h.scale[j / 4], j % 4);
    SL_UNROLL
    for (uint32_t p = 0; p < 8; p++)
        t->min[p] = sl_pair(h.min[p / 2], p % 2);
    t->d = h.d;
    t->dmin = h.dmin;
}

/* 16 signed scales, four a vector. */
SL_INLINE void sl_open_q3_scales(const sl_rows8 *w, size_t at, __m256i scale[4])
{
    __m256i word[4]; /* the last twelve bytes */
    sl_words(w, at + 92, word);
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        const __m256i low = k < 2 ? sl_low_nibbles(word[1 + k]) : sl_high_nibbles(word[k - 1]);
        const __m256i high = _mm256_slli_epi16(sl_two_bits(word[3], 2 * k), 4);
        scale[k] = _mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32));
    }
}

SL_INLINE void sl_open_q3_k(const sl_rows8 *w, size_t i, sl_tile256 *t)
{
    const size_t at = i * sizeof(sl_q3_k);
    __m256i scale[4], high[8];
    sl_open_two_bits(w, at + 32, t->q);
    sl_words(w, at, high);
    sl_words(w, at + 16, high + 4);
    for (int k = 0; k < 8; k++)
        SL_UNROLL
    for (int j = 0; j < 8; j++) {
        const __m256i bit = _mm256_and_si256(_mm256_slli_epi16(high[j], 2), _mm256_set1_epi8(4));
        t->q[8 * k + j] = _mm256_or_si256(t->q[8 * k + j], bit);
        high[j] = _mm256_srli_epi16(high[j], 1);
    }
    sl_open_q3_scales(w, at, scale);
    SL_UNROLL
    for (uint32_t j = 0; j < 16; j++)
        t->scale[j] = sl_signed_scales(scale[j / 4], j % 4, j % 4);
    SL_UNROLL
    for (uint32_t p = 0; p < 8; p++)
        t->min[p] = sl_signed_pair(scale[p / 2], p % 2);
    t->d = sl_halves(w, at + 108);
}

/* No scales but d. */
SL_INLINE void sl_open_ones(sl_tile256 *t, __m256 d)
{
    SL_UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        t->scale[j] = sl_sub_scale(_mm256_set1_epi8(1), 0);
        t->min[j] = _mm256_set1_epi16(1);
    }
    t->d = d;
}

SL_INLINE void sl_open_tq2_0(const sl_rows8 *w, size_t i, sl_tile256 *t)
{
    const size_t at = i * sizeof(sl_tq2_0);
    sl_open_two_bits(w, at, t->q);
    sl_open_ones(t, sl_halves(w, at + 64));
}

/* Bytes b of base 3, less 128: the first digit is 3 b / 256, the others are those of 3 b modulo
 * 256.
 */
SL_INLINE __m256i sl_base3(__m256i bytes)
{
    return _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
}

SL_INLINE __m256i sl_next_digit(__m256i *b)
{
    const __m256i one = _mm256_cmpgt_epi8(*b, _mm256_set1_epi8(85 - 128));
    const __m256i two = _mm256_cmpgt_epi8(*b, _mm256_set1_epi8(170 - 128));
    *b = _mm256_add_epi8(*b, _mm256_add_epi8(*b, *b));
    return _mm256_abs_epi8(_mm256_add_epi8(one, two));
}

SL_INLINE void sl_open_tq1_0(const sl_rows8 *w, size_t i, sl_tile256 *t)
{
    const size_t at = i * sizeof(sl_tq1_0);
    __m256i words[4];
    for (int part = 0; part < 3; part++) { /* of 16 bytes */
        sl_words(w, at + (size_t)(16 * part), words);
        SL_UNROLL
        for (int k = 0; k < 4; k++) {
            __m256i b = sl_base3(words[k]);
            for (int n = 0; n < 5; n++)
                t->q[(part < 2 ? 8 * n + 4 * part : 40 + 4 * n) + k] = sl_next_digit(&b);
        }
    }
    sl_words(w, at + 36, words);
    __m256i b = sl_base3(words[3]);
    for (int n = 0; n < 4; n++)
        t->q[60 + n] = sl_next_digit(&b);
    sl_open_ones(t, sl_halves(w, at + 52));
}

/* Part i % 4 of block i / 4; values doubled, 0 or 2. */
SL_INLINE void sl_open_q1_0(const sl_rows8 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i / 4 * sizeof(sl_q1_0);
    __m256i words[4];
    sl_words(w, at + 2, words);
    SL_UNROLL
    for (uint32_t k = 0; k < 8; k++)
        t->q[k] = _mm256_and_si256(sl_four_bits(words[i % 4], k), _mm256_set1_epi8(2));
    t->d = sl_halves(w, at);
}

/* Part i % 2 of block i / 2. */
SL_INLINE void sl_open_q2_0(const sl_rows8 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i / 2 * sizeof(sl_q2_0);
    __m256i words[4];
    sl_words(w, at + 2, words);
    SL_UNROLL
    for (uint32_t k = 0; k < 8; k++) {
        const uint32_t j = k % 4;
        const __m256i byte = sl_pick(words[i % 2 * 2 + k / 4], j, j, j, j);
        __m256i q = _mm256_and_si256(byte, _mm256_set1_epi32(3));
        SL_UNROLL
        for (int n = 1; n < 4; n++)
            q = _mm256_or_si256(
                q, _mm256_and_si256(_mm256_srli_epi32(byte, 2 * n), _mm256_set1_epi32(3 << 8 * n)));
        t->q[k] = q;
    }
    t->d = sl_halves(w, at);
}

/* ---- One activation row ---- */

/* Scales j and j+1 of bytes, in the first and in the second half; unsigned. */
SL_INLINE __m256i sl_two_scales(__m256i bytes, uint32_t j)
{
    const uint32_t a = 0x80008000u | j | j << 16;
    return _mm256_shuffle_epi8(bytes, sl_pattern(a, a + 0x00010001u));
}

/* Fields of two bits need no shift when four times the value fits: odd ones are masked in place,
 * the even ones' scales are four times theirs, and the sum is four times the block's. */
SL_INLINE __m256i sl_field(__m256i v, int k)
{
    return _mm256_and_si256(sl_shift(v, k < 2 ? 0 : -4), _mm256_set1_epi8(k & 1 ? 12 : 3));
}

SL_INLINE __m256i sl_sum_x16(const __m256i *pair, sl_act_q8_256 x, size_t i)
{
    __m256i sum = _mm256_setzero_si256();
    SL_UNROLL
    for (uint32_t p = 0; p < 8; p++)
        sum = sl_add_pairs(sum, pair[p], sl_broadcast32(x.sum16 + 16 * i + 2 * p));
    return sum;
}

SL_INLINE __m256 sl_single_q2_k(const sl_rows8 *w, size_t i, sl_act_q8_256 x, __m256 acc)
{
    const size_t at = i * sizeof(sl_q2_k);
    const sl_q2_head head = sl_open_q2_head(w, at);
    __m256i isum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    SL_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        __m256i words[2][4];
        SL_UNROLL
        for (int four = 0; four < 2; four++)
            sl_words_of_four(w->p + 4 * four, at + 16 + 32 * h, words[four]);
        SL_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            __m256i spread[4], q[4];
            sl_spread_x(x.q + 256 * i + 128 * h + 32 * k, spread);
            SL_UNROLL
            for (int four = 0; four < 2; four++) {
                __m256i scale = sl_four_twice(head.scale[2 * h + k / 2], four);
                if (!(k & 1))
                    scale = _mm256_slli_epi16(scale, 2);
                SL_UNROLL
                for (int j = 0; j < 4; j++)
                    q[j] = sl_field(words[four][j], (int)k);
                isum[four] =
                    sl_add_scaled(isum[four], q, spread, 4, sl_two_scales(scale, k % 2 * 2));
            }
        }
    }
    __m256i min[8];
    SL_UNROLL
    for (uint32_t p = 0; p < 8; p++)
        min[p] = sl_pair(head.min[p / 2], p % 2);
    const __m256 dx = _mm256_set1_ps(x.d[i]);
    const __m256i sum = _mm256_srai_epi32(sl_join_rows(isum[0], isum[1]), 2);
    acc = _mm256_fmadd_ps(_mm256_mul_ps(head.d, dx), _mm256_cvtepi32_ps(sum), acc);
    return _mm256_fnmadd_ps(_mm256_mul_ps(head.dmin, dx), _mm256_cvtepi32_ps(sl_sum_x16(min, x, i)),
                            acc);
}

/* Half h of a block, fields k: the third bit goes above the two. */
SL_INLINE __m256i sl_field_q3(__m256i v, __m256i high, int h, int k)
{
    const int from = 4 * h + k, to = k & 1 ? 4 : 2;
    const __m256i bit =
        _mm256_and_si256(sl_shift(high, to - from), _mm256_set1_epi8((char)(1 << to)));
    return _mm256_or_si256(sl_field(v, k), bit);
}

SL_INLINE __m256 sl_single_q3_k(const sl_rows8 *w, size_t i, sl_act_q8_256 x, __m256 acc)
{
    const size_t at = i * sizeof(sl_q3_k);
    __m256i scales[4], times4[4], isum[2]; /* four times -32 .. 31 fits a byte */
    sl_open_q3_scales(w, at, scales);
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        times4[k] = _mm256_add_epi8(scales[k], scales[k]);
        times4[k] = _mm256_add_epi8(times4[k], times4[k]);
    }
    SL_UNROLL
    for (int four = 0; four < 2; four++) {
        __m256i high[4], words[4], spread[4], q[4];
        isum[four] = _mm256_setzero_si256();
        sl_words_of_four(w->p + 4 * four, at, high);
        SL_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            sl_words_of_four(w->p + 4 * four, at + 32 + 32 * h, words);
            SL_UNROLL
            for (uint32_t k = 0; k < 4; k++) {
                const uint32_t j = k % 2 * 2;
                const __m256i scale = sl_four_twice((k & 1 ? scales : times4)[2 * h + k / 2], four);
                sl_spread_x(x.q + 256 * i + 128 * h + 32 * k, spread);
                SL_UNROLL
                for (int n = 0; n < 4; n++)
                    q[n] = sl_field_q3(words[n], high[n], (int)h, (int)k);
                isum[four] =
                    sl_add_scaled(isum[four], q, spread, 4, sl_signed_scales(scale, j, j + 1));
            }
        }
    }
    __m256i pair[8];
    SL_UNROLL
    for (uint32_t p = 0; p < 8; p++)
        pair[p] = sl_signed_pair(scales[p / 2], p % 2);
    const __m256i offset = _mm256_slli_epi32(sl_sum_x16(pair, x, i), 2);
    const __m256i sum =
        _mm256_sub_epi32(_mm256_srai_epi32(sl_join_rows(isum[0], isum[1]), 2), offset);
    const __m256 d = _mm256_mul_ps(sl_halves(w, at + 108), _mm256_set1_ps(x.d[i]));
    return _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(sum), acc);
}

/* Sums of values of one bit or two fit 16 bits for a whole block. */
SL_INLINE __m256i sl_sum_small(__m256i sum, __m256i q, __m256i x)
{
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(q, x));
    SL_KEEP_ORDER(sum);
    return sum;
}

SL_INLINE __m256i sl_widen(__m256i sum)
{
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}

SL_INLINE __m256i sl_sum_x(sl_act_q8_256 x, size_t i)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(x.sum32 + 8 * i));
    v = _mm_madd_epi16(v, _mm_set1_epi16(1));
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1));
    return _mm256_broadcastd_epi32(v);
}

/* The float step of a block whose integers are 1 too large. */
SL_INLINE __m256 sl_add_less_one(__m256 d, __m256i sum, sl_act_q8_256 x, size_t i, __m256 acc)
{
    sum = _mm256_sub_epi32(sum, sl_sum_x(x, i));
    return _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x.d[i])), _mm256_cvtepi32_ps(sum), acc);
}

SL_INLINE __m256 sl_single_tq2_0(const sl_rows8 *w, size_t i, sl_act_q8_256 x, __m256 acc)
{
    const size_t at = i * sizeof(sl_tq2_0);
    __m256i isum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    SL_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        __m256i words[2][4], sum[2][2]; /* of even fields, of odd ones */
        SL_UNROLL
        for (int four = 0; four < 2; four++) {
            sl_words_of_four(w->p + 4 * four, at + 32 * h, words[four]);
            sum[four][0] = sum[four][1] = _mm256_setzero_si256();
        }
        SL_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            __m256i spread[4];
            sl_spread_x(x.q + 256 * i + 128 * h + 32 * k, spread);
            SL_UNROLL
            for (int j = 0; j < 4; j++)
                SL_UNROLL
            for (int four = 0; four < 2; four++)
                sum[four][k & 1] =
                    sl_sum_small(sum[four][k & 1], sl_field(words[four][j], (int)k), spread[j]);
        }
        SL_UNROLL
        for (int four = 0; four < 2; four++) {
            isum[four] = sl_add_pairs(isum[four], sum[four][0], _mm256_set1_epi16(4));
            isum[four] = sl_add_pairs(isum[four], sum[four][1], _mm256_set1_epi16(1));
        }
    }
    const __m256i four_times = sl_join_rows(isum[0], isum[1]);
    return sl_add_less_one(sl_halves(w, at + 64), _mm256_srai_epi32(four_times, 2), x, i, acc);
}

SL_INLINE __m256 sl_single_tq1_0(const sl_rows8 *w, size_t i, sl_act_q8_256 x, __m256 acc)
{
    const size_t at = i * sizeof(sl_tq1_0);
    const int8_t *xq = x.q + 256 * i;
    __m256i isum[2], b[2][4];
    SL_UNROLL
    for (int four = 0; four < 2; four++) {
        isum[four] = _mm256_setzero_si256();
        sl_words_of_four(w->p + 4 * four, at, b[four]);
        SL_UNROLL
        for (int k = 0; k < 4; k++)
            b[four][k] = sl_base3(b[four][k]);
    }
    SL_UNROLL
    for (int n = 0; n < 5; n++) {
        __m256i spread[4];
        sl_spread_x(xq + 32 * n, spread);
        SL_UNROLL
        for (int k = 0; k < 4; k++)
            SL_UNROLL
        for (int four = 0; four < 2; four++)
            isum[four] = sl_sum_small(isum[four], sl_next_digit(&b[four][k]), spread[k]);
    }
    /* the last 96 values, all eight rows at once */
    __m256i words[4], last[4], sum = _mm256_setzero_si256();
    sl_words(w, at + 32, words);
    sl_words(w, at + 36, last);
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        __m256i v = sl_base3(words[k]);
        SL_UNROLL
        for (int n = 0; n < 5; n++)
            sum = sl_sum_small(sum, sl_next_digit(&v), sl_broadcast32(xq + 160 + 16 * n + 4 * k));
    }
    __m256i v = sl_base3(last[3]);
    SL_UNROLL
    for (int n = 0; n < 4; n++)
        sum = sl_sum_small(sum, sl_next_digit(&v), sl_broadcast32(xq + 240 + 4 * n));
    sum = _mm256_add_epi32(sl_widen(sum), sl_join_rows(sl_widen(isum[0]), sl_widen(isum[1])));
    return sl_add_less_one(sl_halves(w, at + 52), sum, x, i, acc);
}

SL_INLINE __m256i sl_both_halves(const int8_t *x)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)x));
}

/* Bit k of the four bytes of a word belongs to columns k, k + 8, k + 16, k + 24: x goes into that
 * order, and weights need a shift and a mask. */
SL_INLINE __m256 sl_single_q1_0(const sl_rows8 *w, size_t i, sl_act_q8_32 x, __m256 acc)
{
    const size_t at = i * sizeof(sl_q1_0);
    const __m256i pairs = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    const __m256 d = sl_halves(w, at);
    __m256i words[4];
    sl_words(w, at + 2, words);
    SL_UNROLL
    for (size_t p = 0; p < 4; p++) {
        const int8_t *xq = x.q + 128 * i + 32 * p;
        const __m256i a = _mm256_shuffle_epi8(sl_both_halves(xq), pairs);
        const __m256i b = _mm256_shuffle_epi8(sl_both_halves(xq + 16), pairs);
        const __m256i four[2] = {_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)};
        __m256i sum = _mm256_setzero_si256();
        SL_UNROLL
        for (int k = 0; k < 8; k++) {
            const __m256i bit = _mm256_and_si256(sl_shift(words[p], -k), _mm256_set1_epi8(1));
            sum = sl_sum_small(sum, bit, sl_same_word(four[k / 4], k % 4));
        }
        const __m256i isum = _mm256_sub_epi32(_mm256_madd_epi16(sum, _mm256_set1_epi16(2)),
                                              _mm256_set1_epi32(x.sum[4 * i + p]));
        acc = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x.d[4 * i + p])),
                              _mm256_cvtepi32_ps(isum), acc);
    }
    return acc;
}

/* Likewise: field k of a word belongs to columns k, k + 4, k + 8, k + 12. */
SL_INLINE __m256 sl_single_q2_0(const sl_rows8 *w, size_t i, sl_act_q8_32 x, __m256 acc)
{
    const size_t at = i * sizeof(sl_q2_0);
    const __m256i fours = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m256 d = sl_halves(w, at);
    __m256i words[4];
    sl_words(w, at + 2, words);
    SL_UNROLL
    for (size_t p = 0; p < 2; p++) {
        __m256i sum = _mm256_setzero_si256();
        SL_UNROLL
        for (size_t half = 0; half < 2; half++) {
            const __m256i xq =
                _mm256_shuffle_epi8(sl_both_halves(x.q + 64 * i + 32 * p + 16 * half), fours);
            SL_UNROLL
            for (int k = 0; k < 4; k++)
                sum =
                    sl_sum_small(sum, sl_two_bits(words[2 * p + half], 2 * k), sl_same_word(xq, k));
        }
        const __m256i isum = _mm256_sub_epi32(sl_widen(sum), _mm256_set1_epi32(x.sum[2 * i + p]));
        acc = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x.d[2 * i + p])),
                              _mm256_cvtepi32_ps(isum), acc);
    }
    return acc;
}

#endif
