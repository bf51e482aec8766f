/* Blocks of eight rows at a time, opened into tiles: one 32-bit lane per row, four columns in it.
 * For avx2_mul.h. */
#ifndef SL_AVX2_BLOCKS_H
#define SL_AVX2_BLOCKS_H

#include "avx2_step.h"
#include "half.h"
#include "quant.h"

/* q[k]: columns 4k .. 4k+3 of eight rows, one byte each, unsigned (Q8_0: sl_signed_bytes()). */
typedef struct sl_tile32 {
    __m256i q[8];
    __m256 d, m;
} sl_tile32;

/* scale[j]: the scale of sub-block j as sl_add_scaled() wants it; min[p]: the minima of sub-blocks
 * 2p and 2p+1 (Q6_K: the scales), to multiply a pair of sums of q. */
typedef struct sl_tile256 {
    __m256i q[64], scale[16], min[8];
    __m256 d, dmin;
} sl_tile256;

_Static_assert(2 * sizeof(sl_tile32) <= 32 * SL_MUL_SCRATCH_PER_COL &&
                   2 * sizeof(sl_tile256) <= 256 * SL_MUL_SCRATCH_PER_COL,
               "tiles of 16 rows fit the scratch");

typedef struct sl_rows8 {
    const uint8_t *p[8];
} sl_rows8;

/* Rows first .. first+7; rows from n_rows up stand in as the last one, and are not stored. */
SL_INLINE sl_rows8 sl_rows8_at(const void *w, size_t row_bytes, size_t first, size_t n_rows)
{
    sl_rows8 rows;
    for (size_t r = 0; r < 8; r++)
        rows.p[r] = (const uint8_t *)w + row_bytes * (first + r < n_rows ? first + r : n_rows - 1);
    return rows;
}

SL_INLINE __m256i sl_load_two(const uint8_t *low, const uint8_t *high)
{
    const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)low);
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)high);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

/* 16 bytes of each row, at byte at: out[k] has word k of row r in lane r. */
SL_INLINE void sl_words(const sl_rows8 *w, size_t at, __m256i out[4])
{
    const __m256i a = sl_load_two(w->p[0] + at, w->p[4] + at);
    const __m256i b = sl_load_two(w->p[1] + at, w->p[5] + at);
    const __m256i c = sl_load_two(w->p[2] + at, w->p[6] + at);
    const __m256i d = sl_load_two(w->p[3] + at, w->p[7] + at);
    const __m256i ab01 = _mm256_unpacklo_epi32(a, b), ab23 = _mm256_unpackhi_epi32(a, b);
    const __m256i cd01 = _mm256_unpacklo_epi32(c, d), cd23 = _mm256_unpackhi_epi32(c, d);
    out[0] = _mm256_unpacklo_epi64(ab01, cd01);
    out[1] = _mm256_unpackhi_epi64(ab01, cd01);
    out[2] = _mm256_unpacklo_epi64(ab23, cd23);
    out[3] = _mm256_unpackhi_epi64(ab23, cd23);
}

SL_INLINE __m128i sl_eight_shorts(const sl_rows8 *w, size_t at)
{
    __m128i h = _mm_cvtsi32_si128(sl_load_u16(w->p[0] + at));
    h = _mm_insert_epi16(h, sl_load_u16(w->p[1] + at), 1);
    h = _mm_insert_epi16(h, sl_load_u16(w->p[2] + at), 2);
    h = _mm_insert_epi16(h, sl_load_u16(w->p[3] + at), 3);
    h = _mm_insert_epi16(h, sl_load_u16(w->p[4] + at), 4);
    h = _mm_insert_epi16(h, sl_load_u16(w->p[5] + at), 5);
    h = _mm_insert_epi16(h, sl_load_u16(w->p[6] + at), 6);
    h = _mm_insert_epi16(h, sl_load_u16(w->p[7] + at), 7);
    return h;
}

/* One f16 of each row. */
SL_INLINE __m256 sl_halves(const sl_rows8 *w, size_t at)
{
    return _mm256_cvtph_ps(sl_eight_shorts(w, at));
}

/* Two f16 in each lane. */
SL_INLINE void sl_split_halves(__m256i words, __m256 *low, __m256 *high)
{
    const __m256i both = _mm256_packus_epi32(_mm256_and_si256(words, _mm256_set1_epi32(0xffff)),
                                             _mm256_srli_epi32(words, 16));
    const __m256i sorted = _mm256_permute4x64_epi64(both, 0xd8);
    *low = _mm256_cvtph_ps(_mm256_castsi256_si128(sorted));
    *high = _mm256_cvtph_ps(_mm256_extracti128_si256(sorted, 1));
}

SL_INLINE __m256i sl_low_nibbles(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

SL_INLINE __m256i sl_high_nibbles(__m256i v)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
}

/* ---- Types of 32; i: which block ---- */

SL_INLINE void sl_open_q8_0(const sl_rows8 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_q8_0);
    sl_words(w, at + 2, t->q);
    sl_words(w, at + 18, t->q + 4);
    SL_UNROLL
    for (int k = 0; k < 8; k++)
        t->q[k] = sl_signed_bytes(t->q[k]);
    t->d = sl_halves(w, at);
}

SL_INLINE void sl_split_nibbles(const __m256i words[4], __m256i q[8])
{
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        q[k] = sl_low_nibbles(words[k]);
        q[k + 4] = sl_high_nibbles(words[k]);
    }
}

/* Bits 4k .. 4k+3 of each lane: a byte of ones where set. */
SL_INLINE __m256i sl_four_bits(__m256i v, uint32_t k)
{
    const __m256i bits = _mm256_set1_epi32((int)(0x08040201u << (k & 1u) * 4u));
    const __m256i bytes = sl_pick(v, k / 2, k / 2, k / 2, k / 2);
    return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits);
}

/* Bits 4k .. 4k+3 of each lane become bit 4 of the bytes of q[k]. */
SL_INLINE void sl_add_fifth_bits(__m256i high, __m256i q[8])
{
    const __m256i sixteen = _mm256_set1_epi8(16);
    SL_UNROLL
    for (uint32_t k = 0; k < 8; k++)
        q[k] = _mm256_or_si256(q[k], _mm256_and_si256(sl_four_bits(high, k), sixteen));
}

SL_INLINE void sl_open_q4_0(const sl_rows8 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_q4_0);
    __m256i words[4];
    sl_words(w, at + 2, words);
    sl_split_nibbles(words, t->q);
    t->d = sl_halves(w, at);
}

SL_INLINE void sl_open_q4_1(const sl_rows8 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_q4_1);
    __m256i first[4], last[4];
    sl_words(w, at, first);
    sl_words(w, at + 4, last);
    sl_split_nibbles(last, t->q);
    sl_split_halves(first[0], &t->d, &t->m);
}

SL_INLINE void sl_open_q5_0(const sl_rows8 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_q5_0);
    __m256i first[4], last[4];
    sl_words(w, at + 2, first);
    sl_words(w, at + 6, last);
    sl_split_nibbles(last, t->q);
    sl_add_fifth_bits(first[0], t->q);
    t->d = sl_halves(w, at);
}

SL_INLINE void sl_open_q5_1(const sl_rows8 *w, size_t i, sl_tile32 *t)
{
    const size_t at = i * sizeof(sl_q5_1);
    __m256i first[4], last[4];
    sl_words(w, at, first);
    sl_words(w, at + 8, last);
    sl_split_nibbles(last, t->q);
    sl_add_fifth_bits(first[1], t->q);
    sl_split_halves(first[0], &t->d, &t->m);
}

/* ---- Types of 256 ---- */

/* The 16 bytes that Q4_K and Q5_K begin with: d, dmin and three words of packed scales, unpacked as
 * sl_k_scales() does, eight rows at once. six: scales of sub-blocks 0-3 and 4-7, minima likewise.
 */
typedef struct sl_k_head {
    __m256 d, dmin;
    __m256i six[4];
} sl_k_head;

SL_INLINE sl_k_head sl_open_k_words(const sl_rows8 *w, size_t at)
{
    const __m256i low4 = _mm256_set1_epi8(15), low6 = _mm256_set1_epi8(63);
    const __m256i top2 = _mm256_set1_epi8(0x30);
    __m256i word[4];
    sl_k_head h;
    sl_words(w, at, word);
    sl_split_halves(word[0], &h.d, &h.dmin);
    h.six[0] = _mm256_and_si256(word[1], low6);
    h.six[1] = _mm256_or_si256(_mm256_and_si256(word[3], low4),
                               _mm256_and_si256(_mm256_srli_epi16(word[1], 2), top2));
    h.six[2] = _mm256_and_si256(word[2], low6);
    h.six[3] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(word[3], 4), low4),
                               _mm256_and_si256(_mm256_srli_epi16(word[2], 2), top2));
    return h;
}

/* Bytes 2p and 2p+1 of each lane as int16. */
SL_INLINE __m256i sl_pair(__m256i bytes, uint32_t p)
{
    return sl_pick(bytes, 2 * p, 0x80, 2 * p + 1, 0x80);
}

SL_INLINE __m256i sl_signed_pair(__m256i bytes, uint32_t p)
{
    return _mm256_srai_epi16(sl_pick(bytes, 0x80, 2 * p, 0x80, 2 * p + 1), 8);
}

SL_INLINE void sl_open_k_head(const sl_rows8 *w, size_t at, sl_tile256 *t)
{
    const sl_k_head h = sl_open_k_words(w, at);
    t->d = h.d;
    t->dmin = h.dmin;
    SL_UNROLL
    for (uint32_t j = 0; j < 8; j++)
        t->scale[j] = sl_sub_scale(h.six[j / 4], j % 4);
    SL_UNROLL
    for (uint32_t p = 0; p < 4; p++)
        t->min[p] = sl_pair(h.six[2 + p / 2], p % 2);
}

SL_INLINE void sl_open_q4_k(const sl_rows8 *w, size_t i, sl_tile256 *t)
{
    const size_t at = i * sizeof(sl_q4_k);
    sl_open_k_head(w, at, t);
    for (int g = 0; g < 4; g++)
        for (int h = 0; h < 2; h++) {
            __m256i words[4];
            sl_words(w, at + 16 + (size_t)(32 * g + 16 * h), words);
            SL_UNROLL
            for (int k = 0; k < 4; k++) {
                t->q[16 * g + 4 * h + k] = sl_low_nibbles(words[k]);
                t->q[16 * g + 8 + 4 * h + k] = sl_high_nibbles(words[k]);
            }
        }
}

SL_INLINE void sl_open_q5_k(const sl_rows8 *w, size_t i, sl_tile256 *t)
{
    const size_t at = i * sizeof(sl_q5_k);
    const __m256i sixteen = _mm256_set1_epi8(16);
    __m256i high[8];
    sl_open_k_head(w, at, t);
    sl_words(w, at + 16, high);
    sl_words(w, at + 32, high + 4);
    for (int g = 0; g < 4; g++)
        for (int h = 0; h < 2; h++) {
            __m256i words[4];
            sl_words(w, at + 48 + (size_t)(32 * g + 16 * h), words);
            SL_UNROLL
            for (int k = 0; k < 4; k++) {
                /* two bits of this group at bits 4 and 5, the next group's come down */
                const __m256i bits = _mm256_slli_epi16(high[4 * h + k], 4);
                const __m256i low_bit = _mm256_and_si256(bits, sixteen);
                const __m256i high_bit =
                    _mm256_and_si256(_mm256_slli_epi16(high[4 * h + k], 3), sixteen);
                high[4 * h + k] = _mm256_srli_epi16(high[4 * h + k], 2);
                t->q[16 * g + 4 * h + k] = _mm256_or_si256(sl_low_nibbles(words[k]), low_bit);
                t->q[16 * g + 8 + 4 * h + k] = _mm256_or_si256(sl_high_nibbles(words[k]), high_bit);
            }
        }
}

SL_INLINE void sl_open_q6_k(const sl_rows8 *w, size_t i, sl_tile256 *t)
{
    const size_t at = i * sizeof(sl_q6_k);
    const __m256i top2 = _mm256_set1_epi8(0x30);
    __m256i scales[4];
    for (int h = 0; h < 2; h++)
        for (int part = 0; part < 2; part++) {
            __m256i a[4], b[4], high[4];
            sl_words(w, at + (size_t)(64 * h + 16 * part), a);
            sl_words(w, at + (size_t)(64 * h + 32 + 16 * part), b);
            sl_words(w, at + 128 + (size_t)(32 * h + 16 * part), high);
            __m256i *q = t->q + 32 * h + 4 * part;
            SL_UNROLL
            for (int k = 0; k < 4; k++) {
                const __m256i up4 = _mm256_slli_epi16(high[k], 4);
                const __m256i up2 = _mm256_slli_epi16(high[k], 2);
                const __m256i down2 = _mm256_srli_epi16(high[k], 2);
                q[k] = _mm256_or_si256(sl_low_nibbles(a[k]), _mm256_and_si256(up4, top2));
                q[k + 8] = _mm256_or_si256(sl_low_nibbles(b[k]), _mm256_and_si256(up2, top2));
                q[k + 16] = _mm256_or_si256(sl_high_nibbles(a[k]), _mm256_and_si256(high[k], top2));
                q[k + 24] = _mm256_or_si256(sl_high_nibbles(b[k]), _mm256_and_si256(down2, top2));
            }
        }
    sl_words(w, at + 192, scales);
    SL_UNROLL
    for (uint32_t j = 0; j < 16; j++)
        t->scale[j] = sl_signed_scales(scales[j / 4], j % 4, j % 4);
    SL_UNROLL
    for (uint32_t p = 0; p < 8; p++)
        t->min[p] = sl_signed_pair(scales[p / 2], p % 2);
    t->d = sl_halves(w, at + 208);
}

#endif
