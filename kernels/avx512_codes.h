/* Blocks of nibbles that choose from 16 numbers, sixteen rows at a time, as avx512_blocks.h opens
 * others. The numbers come with an offset, so that they are unsigned. For avx512_mul.h. */
#ifndef SL_AVX512_CODES_H
#define SL_AVX512_CODES_H

#include "avx512_blocks.h"
#include "scales.h"

/* Codes with offset added, four times for _mm512_shuffle_epi8. */
SL_INLINE __m512i sl_code_table(const int8_t codes[16], int offset)
{
    return _mm512_add_epi8(
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)codes)),
        _mm512_set1_epi8((char)offset));
}

/* Words of 16 bytes: low nibbles are the first half of 32 columns, high ones the second. */
SL_INLINE void sl_open_codes(const __m512i words[4], __m512i table, __m512i q[8])
{
    sl_split_nibbles(words, q);
    SL_UNROLL
    for (int k = 0; k < 8; k++)
        q[k] = _mm512_shuffle_epi8(table, q[k]);
}

/* ---- Types of 32 ---- */

SL_INLINE void sl_open_iq4_nl(const sl_rows16 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_iq4_nl);
    __m512i words[4];
    sl_words(w, at + 2, words);
    sl_open_codes(words, sl_code_table(sl_iq4_codes, 128), t->q);
    t->d = sl_halves(w, at);
}

/* sl_e8m0_half() of the low byte of each lane. */
SL_INLINE __m512 sl_e8m0_halves(__m512i v)
{
    const __m512i e = _mm512_and_si512(v, _mm512_set1_epi32(255));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __mmask16 is_small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(
        _mm512_mask_sllv_epi32(normal, is_small, _mm512_set1_epi32(0x00200000), e));
}

SL_INLINE void sl_open_mxfp4(const sl_rows16 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_mxfp4);
    __m512i words[4], first[4];
    sl_words(w, at + 1, words);
    sl_words(w, at, first);
    sl_open_codes(words, sl_code_table(sl_e2m1_codes, 12), t->q);
    t->d = sl_e8m0_halves(first[0]);
}

/* A block is two of the activations'. In each, m is the scale of the second half. An e4m3 number of
 * no sign is a half with an exponent that counts from 8 lower. */
SL_INLINE void sl_open_nvfp4(const sl_rows16 *w, size_t i, sl_tile32 t[2])
{
    const size_t at = i * sizeof(sl_nvfp4);
    const __m512i table = sl_code_table(sl_e2m1_codes, 12), seven = _mm512_set1_epi16(0x7f);
    __m512i head[4];
    sl_words(w, at, head);
    SL_UNROLL
    for (uint32_t p = 0; p < 2; p++) {
        __m512i words[4];
        sl_words(w, at + 4 + 16 * p, words);
        SL_UNROLL
        for (int k = 0; k < 4; k++) {
            const int to = k / 2 * 4 + k % 2; /* low nibbles, then high ones, of each 8 bytes */
            t[p].q[to] = _mm512_shuffle_epi8(table, sl_low_nibbles(words[k]));
            t[p].q[to + 2] = _mm512_shuffle_epi8(table, sl_high_nibbles(words[k]));
        }
        const __m512i both = sl_pair(head[0], p); /* 0x7f stands for 0 */
        const __m512i bits = _mm512_and_si512(both, seven);
        sl_split_halves(_mm512_maskz_slli_epi16(_mm512_cmpneq_epi16_mask(both, seven), bits, 7),
                        &t[p].d, &t[p].m);
        t[p].d = _mm512_mul_ps(t[p].d, _mm512_set1_ps(128.0f)); /* half of 2^8 */
        t[p].m = _mm512_mul_ps(t[p].m, _mm512_set1_ps(128.0f));
    }
}

/* ---- IQ4_XS ---- */

/* a where the mask is set, else b. */
SL_INLINE __m512i sl_choose(__m512i mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}

SL_INLINE void sl_head_iq4_xs(const sl_rows16 *w, size_t i, sl_head256 *h)
{
    const __m512i even = _mm512_set1_epi16(255);
    __m512i word[4];
    sl_words(w, i * sizeof(sl_iq4_xs), word);
    sl_split_halves(word[0], &h->d, &h->dmin); /* the second is none, and not used */
    SL_UNROLL
    for (uint32_t k = 0; k < 2; k++) {
        /* four scales: two bytes of low bits, one of high ones, spread over the bytes of a lane */
        const __m512i two = sl_pick(word[1], 2 * k, 0x80, 2 * k + 1, 0x80);
        const __m512i one = sl_pick(word[0], 2 + k, 0x80, 2 + k, 0x80);
        const __m512i low =
            _mm512_and_si512(sl_choose(even, two, _mm512_slli_epi16(two, 4)), _mm512_set1_epi8(15));
        const __m512i high = sl_choose(even, _mm512_sllv_epi16(one, _mm512_set1_epi32(0x00000004)),
                                       _mm512_sllv_epi16(one, _mm512_set1_epi32(0x0006000a)));
        h->scale[k] =
            _mm512_sub_epi8(sl_or_and(low, high, _mm512_set1_epi8(0x30)), _mm512_set1_epi8(32));
        SL_UNROLL
        for (uint32_t p = 0; p < 2; p++) {
            /* at the top of an int16, times 256; half of it is to be taken off */
            const __m512i top = sl_pick(h->scale[k], 0x80, 2 * p, 0x80, 2 * p + 1);
            h->min[2 * k + p] = _mm512_sub_epi16(_mm512_setzero_si512(), _mm512_srai_epi16(top, 1));
        }
    }
}

SL_INLINE void sl_part_iq4_xs(const sl_rows16 *w, size_t i, size_t g, __m512i q[16])
{
    const size_t at = i * sizeof(sl_iq4_xs) + 8 + 32 * g;
    const __m512i table = sl_code_table(sl_iq4_codes, 128);
    SL_UNROLL
    for (int h = 0; h < 2; h++) {
        __m512i words[4];
        sl_words(w, at + (size_t)(16 * h), words);
        sl_open_codes(words, table, q + 8 * h);
    }
}

#endif
