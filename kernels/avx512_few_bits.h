/* Blocks of one to three bits a value, sixteen rows at a time, as avx512_blocks.h opens others. For
 * avx512_mul.h. */
#ifndef SL_AVX512_FEW_BITS_H
#define SL_AVX512_FEW_BITS_H

#include "avx512_blocks.h"

/* Bits 2n and 2n+1 of each byte; n: a constant. */
SL_INLINE __m512i sl_two_bits(__m512i v, unsigned n)
{
    return _mm512_and_si512(n ? _mm512_srli_epi16(v, 2 * n) : v, _mm512_set1_epi8(3));
}

/* ---- Q2_K, Q3_K, TQ2_0: part 2h + p has columns 128h + 32n + 16p up in bits 2n of 16 bytes ----
 */

SL_INLINE size_t sl_field_bytes(size_t part)
{
    return 32 * (part / 2) + 16 * (part % 2);
}

SL_INLINE void sl_part_fields(const sl_rows16 *w, size_t at, size_t part, __m512i q[16])
{
    __m512i words[4];
    sl_words(w, at + sl_field_bytes(part), words);
    SL_UNROLL
    for (unsigned n = 0; n < 4; n++)
        SL_UNROLL
    for (int k = 0; k < 4; k++)
        q[4 * n + (unsigned)k] = sl_two_bits(words[k], n);
}

SL_INLINE void sl_head_q2_k(const sl_rows16 *w, size_t i, sl_head256 *h)
{
    const size_t at = i * sizeof(sl_q2_k);
    __m512i first[4], last[4];
    sl_words(w, at, first);
    sl_words(w, at + 68, last);
    sl_split_halves(last[3], &h->d, &h->dmin);
    SL_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        h->scale[k] = sl_low_nibbles(first[k]);
        const __m512i min = sl_high_nibbles(first[k]);
        h->min[2 * k] = sl_pair(min, 0);
        h->min[2 * k + 1] = sl_pair(min, 1);
    }
}

SL_INLINE void sl_part_q2_k(const sl_rows16 *w, size_t i, size_t part, __m512i q[16])
{
    sl_part_fields(w, i * sizeof(sl_q2_k) + 16, part, q);
}

SL_INLINE void sl_head_q3_k(const sl_rows16 *w, size_t i, sl_head256 *h)
{
    const size_t at = i * sizeof(sl_q3_k);
    __m512i last[4]; /* the last twelve bytes of scales are words 1 to 3 */
    sl_words(w, at + 92, last);
    SL_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        const __m512i low = k < 2 ? sl_low_nibbles(last[1 + k]) : sl_high_nibbles(last[k - 1]);
        const __m512i high =
            k < 2 ? _mm512_slli_epi16(last[3], 4 - 2 * k) : _mm512_srli_epi16(last[3], 2 * k - 4);
        h->scale[k] =
            _mm512_sub_epi8(sl_or_and(low, high, _mm512_set1_epi8(0x30)), _mm512_set1_epi8(32));
        SL_UNROLL
        for (uint32_t p = 0; p < 2; p++) {
            /* bytes at the top of the int16, so times 256; 4 times are to be taken off */
            const __m512i top = sl_pick(h->scale[k], 0x80, 2 * p, 0x80, 2 * p + 1);
            h->min[2 * k + p] = _mm512_sub_epi16(_mm512_setzero_si512(), _mm512_srai_epi16(top, 6));
        }
    }
    h->d = h->dmin = sl_halves(w, at + 108);
}

/* v's bit from at bit to. */
SL_INLINE __m512i sl_bit_to(__m512i v, unsigned from, unsigned to)
{
    return from < to   ? _mm512_slli_epi16(v, to - from)
           : from > to ? _mm512_srli_epi16(v, from - to)
                       : v;
}

SL_INLINE void sl_part_q3_k(const sl_rows16 *w, size_t i, size_t part, __m512i q[16])
{
    const size_t at = i * sizeof(sl_q3_k);
    __m512i words[4], high[4];
    sl_words(w, at + 32 + sl_field_bytes(part), words);
    sl_words(w, at + 16 * (part % 2), high);
    SL_UNROLL
    for (unsigned n = 0; n < 4; n++)
        SL_UNROLL
    for (int k = 0; k < 4; k++)
        q[4 * n + (unsigned)k] =
            sl_or_and(sl_two_bits(words[k], n), sl_bit_to(high[k], 4 * (unsigned)(part / 2) + n, 2),
                      _mm512_set1_epi8(4));
}

/* ---- TQ1_0: bytes are fractions of 256, their digits of base 3 are values ---- */

/* What is left behind the first digit: 3 r modulo 256. The digit itself is (3 r - that) / 256. */
SL_INLINE __m512i sl_next_rest(__m512i r)
{
    return _mm512_add_epi8(r, _mm512_add_epi8(r, r));
}

SL_INLINE __m512i sl_digit(__m512i r)
{
    const __m512i one = _mm512_set1_epi8(1);
    const __m512i first =
        _mm512_maskz_mov_epi8(_mm512_cmpgt_epu8_mask(r, _mm512_set1_epi8(85)), one);
    const __mmask64 two = _mm512_cmpgt_epu8_mask(r, _mm512_set1_epi8((char)170));
    return _mm512_mask_add_epi8(first, two, first, one);
}

/* The columns of digit n of word k of 16 bytes, which are three such parts. */
SL_INLINE size_t sl_tq1_column(size_t part, size_t n, size_t k)
{
    return (part < 2 ? 32 * n + 16 * part : 160 + 16 * n) + 4 * k;
}

/* All values, one more than they are; columns in order. */
SL_INLINE void sl_digits_tq1_0(const sl_rows16 *w, size_t i, __m512i q[64])
{
    const size_t at = i * sizeof(sl_tq1_0);
    __m512i words[4], last[4];
    for (size_t part = 0; part < 3; part++) {
        sl_words(w, at + 16 * part, words);
        SL_UNROLL
        for (size_t k = 0; k < 4; k++)
            for (size_t n = 0; n < 5; n++, words[k] = sl_next_rest(words[k]))
                q[sl_tq1_column(part, n, k) / 4] = sl_digit(words[k]);
    }
    sl_words(w, at + 36, last);
    for (size_t n = 0; n < 4; n++, last[3] = sl_next_rest(last[3]))
        q[60 + n] = sl_digit(last[3]);
}

/* ---- Q1_0 and Q2_0; columns in order ---- */

/* Twice the bits: 0 or 2, one more than the values. */
SL_INLINE void sl_bits_q1_0(const sl_rows16 *w, size_t i, __m512i q[32])
{
    __m512i words[4];
    sl_words(w, i * sizeof(sl_q1_0) + 2, words);
    SL_UNROLL
    for (int p = 0; p < 4; p++)
        SL_UNROLL
    for (uint32_t k = 0; k < 8; k++) {
        const __m512i bits = _mm512_set1_epi32((int)(0x08040201u << (k & 1u) * 4u));
        const __m512i bytes = sl_pick(words[p], k / 2, k / 2, k / 2, k / 2);
        q[8 * p + (int)k] =
            _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(bytes, bits), _mm512_set1_epi8(2));
    }
}

/* One more than the values. */
SL_INLINE void sl_fields_q2_0(const sl_rows16 *w, size_t i, __m512i q[16])
{
    /* the two fields of a nibble, in place, to themselves */
    const __m512i table =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0));
    const __m512i fields = _mm512_set1_epi32(0x0c030c03);
    __m512i words[4];
    sl_words(w, i * sizeof(sl_q2_0) + 2, words);
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        const __m512i high = _mm512_srli_epi16(words[k], 4);
        SL_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            const __m512i four = _mm512_mask_blend_epi8(
                0xccccccccccccccccu, sl_pick(words[k], j, j, j, j), sl_pick(high, j, j, j, j));
            q[4 * k + (int)j] = _mm512_shuffle_epi8(table, _mm512_and_si512(four, fields));
        }
    }
}

#endif
