/* Blocks of sixteen rows at a time, opened so that a 32-bit lane holds four columns of its row. For
 * avx512_mul.h. Weight bytes are unsigned: Q8_0 and the types with an offset are multiplied as
 * they lie, and what the offset adds is taken off by sums of q of the activations. */
#ifndef SL_AVX512_BLOCKS_H
#define SL_AVX512_BLOCKS_H

#include <immintrin.h>

#include "half.h"
#include "quant.h"

#define SL_INLINE static inline __attribute__((always_inline))
/* Arrays of vectors live in registers only when every loop over them is unrolled. */
#if defined(__clang__)
#define SL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SL_UNROLL _Pragma("GCC unroll 16")
#endif

/* q[k]: columns 4k .. 4k+3. */
typedef struct sl_tile32 {
    __m512i q[8];
    __m512 d, m;
} sl_tile32;

/* What a block of 256 has beside its values. scale: byte j % 4 of scale[j / 4] is sub-block j's
 * (Q4_K, Q5_K: 8 unsigned, Q6_K: 16 signed). min[p]: a pair of int16 to multiply a pair of sums of
 * q: minima of sub-blocks 2p and 2p+1, or what is to be taken off (Q6_K: -32) times their scales.
 */
typedef struct sl_head256 {
    __m512i scale[4], min[8];
    __m512 d, dmin;
} sl_head256;

typedef struct sl_rows16 {
    const uint8_t *p[16];
} sl_rows16;

/* Rows first .. first+15; rows from n_rows up stand in as the last one, and are not stored. */
SL_INLINE sl_rows16 sl_rows16_at(const void *w, size_t row_bytes, size_t first, size_t n_rows)
{
    sl_rows16 rows;
    for (size_t r = 0; r < 16; r++)
        rows.p[r] = (const uint8_t *)w + row_bytes * (first + r < n_rows ? first + r : n_rows - 1);
    return rows;
}

SL_INLINE __m128i sl_load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* 16 bytes of rows r, r + 4, r + 8 and r + 12. */
SL_INLINE __m512i sl_load_four(const sl_rows16 *w, int r, size_t at)
{
    __m512i v = _mm512_castsi128_si512(sl_load16(w->p[r] + at));
    v = _mm512_inserti32x4(v, sl_load16(w->p[r + 4] + at), 1);
    v = _mm512_inserti32x4(v, sl_load16(w->p[r + 8] + at), 2);
    return _mm512_inserti32x4(v, sl_load16(w->p[r + 12] + at), 3);
}

/* 16 bytes of each row, at byte at: out[k] has word k of row r in lane r. */
SL_INLINE void sl_words(const sl_rows16 *w, size_t at, __m512i out[4])
{
    const __m512i a = sl_load_four(w, 0, at), b = sl_load_four(w, 1, at);
    const __m512i c = sl_load_four(w, 2, at), d = sl_load_four(w, 3, at);
    const __m512i ab01 = _mm512_unpacklo_epi32(a, b), ab23 = _mm512_unpackhi_epi32(a, b);
    const __m512i cd01 = _mm512_unpacklo_epi32(c, d), cd23 = _mm512_unpackhi_epi32(c, d);
    out[0] = _mm512_unpacklo_epi64(ab01, cd01);
    out[1] = _mm512_unpackhi_epi64(ab01, cd01);
    out[2] = _mm512_unpacklo_epi64(ab23, cd23);
    out[3] = _mm512_unpackhi_epi64(ab23, cd23);
}

SL_INLINE __m128i sl_eight_halves(const uint8_t *const p[8], size_t at)
{
    __m128i h = _mm_cvtsi32_si128(sl_load_u16(p[0] + at));
    h = _mm_insert_epi16(h, sl_load_u16(p[1] + at), 1);
    h = _mm_insert_epi16(h, sl_load_u16(p[2] + at), 2);
    h = _mm_insert_epi16(h, sl_load_u16(p[3] + at), 3);
    h = _mm_insert_epi16(h, sl_load_u16(p[4] + at), 4);
    h = _mm_insert_epi16(h, sl_load_u16(p[5] + at), 5);
    h = _mm_insert_epi16(h, sl_load_u16(p[6] + at), 6);
    return _mm_insert_epi16(h, sl_load_u16(p[7] + at), 7);
}

/* One f16 of each row. */
SL_INLINE __m512 sl_halves(const sl_rows16 *w, size_t at)
{
    return _mm512_cvtph_ps(_mm256_inserti128_si256(
        _mm256_castsi128_si256(sl_eight_halves(w->p, at)), sl_eight_halves(w->p + 8, at), 1));
}

/* Two f16 in each lane. */
SL_INLINE void sl_split_halves(__m512i words, __m512 *low, __m512 *high)
{
    *low = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
    *high = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16)));
}

SL_INLINE __m512i sl_low_nibbles(__m512i v)
{
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}

SL_INLINE __m512i sl_high_nibbles(__m512i v)
{
    return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}

/* a | (b & mask) */
SL_INLINE __m512i sl_or_and(__m512i a, __m512i b, __m512i mask)
{
    return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}

/* Bytes a b c d of each lane, chosen by index (0x80: zero). */
SL_INLINE __m512i sl_pick(__m512i v, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    const int bytes = (int)(a | b << 8 | c << 16 | d << 24);
    return _mm512_shuffle_epi8(
        v, _mm512_setr4_epi32(bytes, bytes + 0x04040404, bytes + 0x08080808, bytes + 0x0c0c0c0c));
}

/* ---- Types of 32; i: which block ---- */

SL_INLINE void sl_open_q8_0(const sl_rows16 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_q8_0);
    sl_words(w, at + 2, t->q);
    sl_words(w, at + 18, t->q + 4);
    SL_UNROLL
    for (int k = 0; k < 8; k++)
        t->q[k] = _mm512_xor_si512(t->q[k], _mm512_set1_epi8((char)0x80));
    t->d = sl_halves(w, at);
}

SL_INLINE void sl_split_nibbles(const __m512i words[4], __m512i q[8])
{
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        q[k] = sl_low_nibbles(words[k]);
        q[k + 4] = sl_high_nibbles(words[k]);
    }
}

/* Bits 4k .. 4k+3 of each lane become bit 4 of the bytes of q[k]. */
SL_INLINE void sl_add_fifth_bits(__m512i high, __m512i q[8])
{
    SL_UNROLL
    for (uint32_t k = 0; k < 8; k++) {
        const __m512i bytes = sl_pick(high, k / 2, k / 2, k / 2, k / 2);
        const __m512i bits = _mm512_set1_epi32((int)(0x08040201u << (k & 1u) * 4u));
        q[k] = _mm512_mask_add_epi8(q[k], _mm512_test_epi8_mask(bytes, bits), q[k],
                                    _mm512_set1_epi8(16));
    }
}

SL_INLINE void sl_open_q4_0(const sl_rows16 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_q4_0);
    __m512i words[4];
    sl_words(w, at + 2, words);
    sl_split_nibbles(words, t->q);
    t->d = sl_halves(w, at);
}

SL_INLINE void sl_open_q4_1(const sl_rows16 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_q4_1);
    __m512i first[4], last[4];
    sl_words(w, at, first);
    sl_words(w, at + 4, last);
    sl_split_nibbles(last, t->q);
    sl_split_halves(first[0], &t->d, &t->m);
}

SL_INLINE void sl_open_q5_0(const sl_rows16 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_q5_0);
    __m512i first[4], last[4];
    sl_words(w, at + 2, first);
    sl_words(w, at + 6, last);
    sl_split_nibbles(last, t->q);
    sl_add_fifth_bits(first[0], t->q);
    t->d = sl_halves(w, at);
}

SL_INLINE void sl_open_q5_1(const sl_rows16 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_q5_1);
    __m512i first[4], last[4];
    sl_words(w, at, first);
    sl_words(w, at + 8, last);
    sl_split_nibbles(last, t->q);
    sl_add_fifth_bits(first[1], t->q);
    sl_split_halves(first[0], &t->d, &t->m);
}

/* ---- Types of 256: a head, then four parts of 64 columns ----
 *
 * A part is 16 vectors. Q4_K, Q5_K: part g has columns 64g up, two sub-blocks of 32. Q6_K: part
 * 2h + p has four sub-blocks of 16, columns 128h + 16p, and 32, 64 and 96 more. */

/* Bytes 2p and 2p+1 of each lane as int16. */
SL_INLINE __m512i sl_pair(__m512i bytes, uint32_t p)
{
    return sl_pick(bytes, 2 * p, 0x80, 2 * p + 1, 0x80);
}

/* The 16 bytes that Q4_K and Q5_K begin with: d, dmin and three words of packed scales, unpacked as
 * sl_k_scales() does. */
SL_INLINE void sl_head_k(const sl_rows16 *w, size_t at, sl_head256 *h)
{
    const __m512i low4 = _mm512_set1_epi8(15), low6 = _mm512_set1_epi8(63);
    const __m512i top2 = _mm512_set1_epi8(0x30);
    __m512i word[4], min[2];
    sl_words(w, at, word);
    sl_split_halves(word[0], &h->d, &h->dmin);
    h->scale[0] = _mm512_and_si512(word[1], low6);
    h->scale[1] = sl_or_and(_mm512_and_si512(word[3], low4), _mm512_srli_epi16(word[1], 2), top2);
    min[0] = _mm512_and_si512(word[2], low6);
    min[1] = sl_or_and(sl_high_nibbles(word[3]), _mm512_srli_epi16(word[2], 2), top2);
    SL_UNROLL
    for (uint32_t p = 0; p < 4; p++)
        h->min[p] = sl_pair(min[p / 2], p % 2);
}

SL_INLINE void sl_head_q4_k(const sl_rows16 *w, size_t i, sl_head256 *h)
{
    sl_head_k(w, i * sizeof(sl_q4_k), h);
}

SL_INLINE void sl_part_q4_k(const sl_rows16 *w, size_t i, size_t g, __m512i q[16])
{
    const size_t at = i * sizeof(sl_q4_k) + 16 + 32 * g;
    SL_UNROLL
    for (int h = 0; h < 2; h++) {
        __m512i words[4];
        sl_words(w, at + (size_t)(16 * h), words);
        SL_UNROLL
        for (int k = 0; k < 4; k++) {
            q[4 * h + k] = sl_low_nibbles(words[k]);
            q[8 + 4 * h + k] = sl_high_nibbles(words[k]);
        }
    }
}

SL_INLINE void sl_head_q5_k(const sl_rows16 *w, size_t i, sl_head256 *h)
{
    sl_head_k(w, i * sizeof(sl_q5_k), h);
}

SL_INLINE void sl_part_q5_k(const sl_rows16 *w, size_t i, size_t g, __m512i q[16])
{
    const size_t at = i * sizeof(sl_q5_k);
    const __m512i sixteen = _mm512_set1_epi8(16);
    const __m128i down = _mm_cvtsi32_si128((int)(2 * g));
    SL_UNROLL
    for (int h = 0; h < 2; h++) {
        __m512i words[4], high[4];
        sl_words(w, at + 16 + (size_t)(16 * h), high);
        sl_words(w, at + 48 + 32 * g + (size_t)(16 * h), words);
        SL_UNROLL
        for (int k = 0; k < 4; k++) {
            const __m512i two = _mm512_srl_epi16(high[k], down);
            q[4 * h + k] = sl_or_and(sl_low_nibbles(words[k]), _mm512_slli_epi16(two, 4), sixteen);
            q[8 + 4 * h + k] =
                sl_or_and(sl_high_nibbles(words[k]), _mm512_slli_epi16(two, 3), sixteen);
        }
    }
}

SL_INLINE void sl_head_q6_k(const sl_rows16 *w, size_t i, sl_head256 *h)
{
    const size_t at = i * sizeof(sl_q6_k);
    sl_words(w, at + 192, h->scale);
    SL_UNROLL
    for (uint32_t p = 0; p < 8; p++) {
        /* bytes at the top of the int16, so times 256; -32 of it is left after >> 3 */
        const __m512i top = sl_pick(h->scale[p / 2], 0x80, 2 * (p % 2), 0x80, 2 * (p % 2) + 1);
        h->min[p] = _mm512_sub_epi16(_mm512_setzero_si512(), _mm512_srai_epi16(top, 3));
    }
    h->d = h->dmin = sl_halves(w, at + 208);
}

SL_INLINE void sl_part_q6_k(const sl_rows16 *w, size_t i, size_t part, __m512i q[16])
{
    const size_t at = i * sizeof(sl_q6_k), h = part / 2, p = part % 2;
    const __m512i top2 = _mm512_set1_epi8(0x30);
    __m512i a[4], b[4], high[4];
    sl_words(w, at + 64 * h + 16 * p, a);
    sl_words(w, at + 64 * h + 32 + 16 * p, b);
    sl_words(w, at + 128 + 32 * h + 16 * p, high);
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        q[k] = sl_or_and(sl_low_nibbles(a[k]), _mm512_slli_epi16(high[k], 4), top2);
        q[k + 4] = sl_or_and(sl_low_nibbles(b[k]), _mm512_slli_epi16(high[k], 2), top2);
        q[k + 8] = sl_or_and(sl_high_nibbles(a[k]), high[k], top2);
        q[k + 12] = sl_or_and(sl_high_nibbles(b[k]), _mm512_srli_epi16(high[k], 2), top2);
    }
}

/* Scale j of a head as int32; j constant. */
SL_INLINE __m512i sl_sub_scale(const sl_head256 *h, size_t j, int is_signed)
{
    const __m512i v = h->scale[j / 4];
    const unsigned up = 8 * (3 - (unsigned)(j % 4));
    return is_signed ? _mm512_srai_epi32(_mm512_slli_epi32(v, up), 24)
                     : _mm512_srli_epi32(_mm512_slli_epi32(v, up), 24);
}

#endif
