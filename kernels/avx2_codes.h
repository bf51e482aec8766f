/* Blocks of nibbles that choose from 16 numbers, opened into tiles (avx2_blocks.h) or multiplied
 * with one activation row (avx2_single.h). For avx2_mul.h. */
#ifndef SL_AVX2_CODES_H
#define SL_AVX2_CODES_H

#include "avx2_blocks.h"
#include "avx2_single.h"
#include "avx2_step.h"
#include "scales.h"

/* 16 numbers in both halves, for _mm256_shuffle_epi8. */
SL_INLINE __m256i sl_code_table(const int8_t codes[16])
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)codes));
}

SL_INLINE void sl_open_nibble_codes(const __m256i words[4], __m256i table, __m256i q[8])
{
    sl_split_nibbles(words, q);
    SL_UNROLL
    for (int k = 0; k < 8; k++)
        q[k] = _mm256_shuffle_epi8(table, q[k]);
}

SL_INLINE void sl_open_iq4_nl(const sl_rows8 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_iq4_nl);
    __m256i words[4];
    sl_words(w, at + 2, words);
    sl_open_nibble_codes(words, sl_code_table(sl_iq4_codes), t->q);
    t->d = sl_halves(w, at);
}

/* d and, four a vector, the signed scales. */
typedef struct sl_iq4_head {
    __m256 d;
    __m256i scale[2];
} sl_iq4_head;

SL_INLINE sl_iq4_head sl_open_iq4_head(const sl_rows8 *w, size_t at)
{
    __m256i word[4];
    __m256 ignored;
    sl_iq4_head h;
    sl_words(w, at, word);
    sl_split_halves(word[0], &h.d, &ignored);
    const __m256i even = sl_low_nibbles(word[1]), odd = sl_high_nibbles(word[1]);
    SL_UNROLL
    for (uint32_t k = 0; k < 2; k++) {
        const __m256i low = _mm256_or_si256(sl_pick(even, 2 * k, 0x80, 2 * k + 1, 0x80),
                                            sl_pick(odd, 0x80, 2 * k, 0x80, 2 * k + 1));
        const __m256i bits = sl_pick(word[0], 2 + k, 2 + k, 2 + k, 2 + k);
        __m256i high = _mm256_setzero_si256(); /* bits 2j of byte j to bits 4 and 5 */
        SL_UNROLL
        for (int j = 0; j < 4; j++)
            high = _mm256_or_si256(high, _mm256_and_si256(sl_shift(bits, 4 - 2 * j),
                                                          _mm256_set1_epi32(0x30 << 8 * j)));
        h.scale[k] = _mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32));
    }
    return h;
}

SL_INLINE void sl_open_iq4_xs(const sl_rows8 *w, size_t i, sl_tile256 *t)
{
    const size_t at = i * sizeof(sl_iq4_xs);
    const __m256i table = sl_code_table(sl_iq4_codes);
    const sl_iq4_head h = sl_open_iq4_head(w, at);
    for (size_t j = 0; j < 8; j++) {
        __m256i words[4];
        sl_words(w, at + 8 + 16 * j, words);
        sl_open_nibble_codes(words, table, t->q + 8 * j);
    }
    SL_UNROLL
    for (uint32_t j = 0; j < 8; j++)
        t->scale[j] = sl_signed_scales(h.scale[j / 4], j % 4, j % 4);
    t->d = h.d;
}

/* The E2M1 codes are made unsigned: 16 is added, and taken off the sums. */
SL_INLINE void sl_open_mxfp4(const sl_rows8 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_mxfp4);
    const __m256i table = _mm256_add_epi8(sl_code_table(sl_e2m1_codes), _mm256_set1_epi8(16));
    __m256i words[4];
    sl_words(w, at + 1, words);
    sl_open_nibble_codes(words, table, t->q);
    /* sl_e8m0_half() */
    const __m256i e =
        _mm256_and_si256(_mm256_cvtepu16_epi32(sl_eight_shorts(w, at)), _mm256_set1_epi32(255));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    t->d = _mm256_castsi256_ps(
        _mm256_blendv_epi8(subnormal, normal, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1))));
}

/* Part i % 2 of block i / 2: two sub-blocks of 16, the second one's scale is m. An e4m3 number of
 * no sign is a half with an exponent that counts from 8 lower. */
SL_INLINE void sl_open_nvfp4(const sl_rows8 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i / 2 * sizeof(sl_nvfp4);
    const uint32_t first = (uint32_t)(i % 2 * 2);
    const __m256i table = sl_code_table(sl_e2m1_codes);
    __m256i words[4], head[4];
    sl_words(w, at + 4 + i % 2 * 16, words);
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        const int to = k / 2 * 4 + k % 2; /* low nibbles, then high ones, of each 8 bytes */
        t->q[to] = _mm256_shuffle_epi8(table, sl_low_nibbles(words[k]));
        t->q[to + 2] = _mm256_shuffle_epi8(table, sl_high_nibbles(words[k]));
    }
    sl_words(w, at, head);
    const __m256i both =
        first ? sl_pick(head[0], 2, 0x80, 3, 0x80) : sl_pick(head[0], 0, 0x80, 1, 0x80);
    const __m256i is_zero = _mm256_cmpeq_epi16(both, _mm256_set1_epi16(0x7f));
    const __m256i bits = _mm256_slli_epi16(_mm256_and_si256(both, _mm256_set1_epi16(0x7f)), 7);
    const __m256 half_of_256 = _mm256_set1_ps(128.0f);
    sl_split_halves(_mm256_andnot_si256(is_zero, bits), &t->d, &t->m);
    t->d = _mm256_mul_ps(t->d, half_of_256);
    t->m = _mm256_mul_ps(t->m, half_of_256);
}

/* ---- One activation row ---- */

/* isum + scale * pairs of signed products. */
SL_INLINE __m256i sl_add_signed(__m256i isum, __m256i q, __m256i x, __m256i scale)
{
    isum = sl_add_pairs(isum, sl_multiply_pairs(q, x, 1), scale);
    SL_KEEP_ORDER(isum);
    return isum;
}

/* 32 bytes of a row are two sub-blocks, low nibbles their first 16 values: x comes in that order.
 */
SL_INLINE __m256 sl_single_iq4_xs(const sl_rows8 *w, size_t i, sl_act_q8_256 x, __m256 acc)
{
    const size_t at = i * sizeof(sl_iq4_xs);
    const __m256i table = sl_code_table(sl_iq4_codes);
    const sl_iq4_head head = sl_open_iq4_head(w, at);
    __m256i isum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    SL_UNROLL
    for (uint32_t g = 0; g < 4; g++) {
        const uint8_t *xq = (const uint8_t *)x.q + 256 * i + 64 * g;
        const __m256i low = sl_load_two(xq, xq + 32), high = sl_load_two(xq + 16, xq + 48);
        SL_UNROLL
        for (int four = 0; four < 2; four++) {
            const uint32_t j = 2 * g % 4;
            const __m256i scale =
                sl_signed_scales(sl_four_twice(head.scale[g / 2], four), j, j + 1);
            __m256i words[4];
            sl_words_of_four(w->p + 4 * four, at + 8 + 32 * g, words);
            SL_UNROLL
            for (int k = 0; k < 4; k++) {
                const __m256i q0 = _mm256_shuffle_epi8(table, sl_low_nibbles(words[k]));
                const __m256i q1 = _mm256_shuffle_epi8(table, sl_high_nibbles(words[k]));
                isum[four] = sl_add_signed(isum[four], q0, sl_same_word(low, k), scale);
                isum[four] = sl_add_signed(isum[four], q1, sl_same_word(high, k), scale);
            }
        }
    }
    const __m256 d = _mm256_mul_ps(head.d, _mm256_set1_ps(x.d[i]));
    return _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(sl_join_rows(isum[0], isum[1])), acc);
}

#endif
