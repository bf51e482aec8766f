/* Blocks of the codebook types, IQ1, IQ2 and IQ3, for avx512_iquant.c. A codebook entry is looked
 * up as 16 bits (sl_points_*), places in the type's list of values: 32 entries of a row in a
 * vector, out of tables in registers where they are short. Shifts and one shuffle for 64 values
 * make signed values of places and signs. So the columns of a vector are not in order; a lane of
 * 32 bits still holds four of the same sixteen, lane L of 16 L .. 16 L + 15, as scales want it. */
#ifndef SL_AVX512_GRIDS_H
#define SL_AVX512_GRIDS_H

#include "avx512_blocks.h"
#include "iq_grids.h"
#include "kernels.h"

/* A block of one row. q: values and an offset, unsigned; byte 2 j and 2 j + 1 of q[k] are of column
 * 8 j + sl_grid_column(k, 0 and 1). */
typedef struct sl_grid_block {
    __m512i q[4], scale; /* scale: int32 of each lane */
} sl_grid_block;

/* Entries of eight: 0 4, 1 5, 2 6, 3 7; of four: 0 2, 1 3, 4 6, 5 7. */
SL_INLINE uint32_t sl_grid_column(int entry, uint32_t k, uint32_t second)
{
    return entry == 8 ? k + 4 * second : 4 * (k / 2) + k % 2 + 2 * second;
}

/* The same 16 bytes in every quarter. */
SL_INLINE __m512i sl_four_times(__m128i v)
{
    return _mm512_broadcast_i32x4(v);
}

SL_INLINE __m512i sl_load_64(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* 32 bytes as words. */
SL_INLINE __m512i sl_load_words(const uint8_t *p)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* Eight bytes to all eight places. */
SL_INLINE __m512i sl_load_eight_times(const uint8_t *p)
{
    long long v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi64(v);
}

/* Byte i of each eight in all words of the place's number i; 8 words of 16 bits in the others. */
SL_INLINE __m512i sl_byte_of_eight(const uint8_t *p)
{
    const __m512i v = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return _mm512_shuffle_epi8(v, sl_four_times(_mm_setr_epi16(
                                      (short)0x8000, (short)0x8000, (short)0x8000, (short)0x8000,
                                      (short)0x8008, (short)0x8008, (short)0x8008, (short)0x8008)));
}

/* mask ? a : b, bit by bit */
SL_INLINE __m512i sl_choose(__m512i mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}

/* ---- Lookups; bits of an index above those that count are anything ---- */

SL_INLINE __m512i sl_look_64(const uint16_t *t, __m512i index)
{
    return _mm512_permutex2var_epi16(sl_load_64(t), index, sl_load_64(t + 32));
}

SL_INLINE __m512i sl_look_256(const uint16_t *t, __m512i index)
{
    const __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
    const __mmask32 bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
    const __m512i a = _mm512_mask_mov_epi16(sl_look_64(t, index), bit6, sl_look_64(t + 64, index));
    const __m512i b =
        _mm512_mask_mov_epi16(sl_look_64(t + 128, index), bit6, sl_look_64(t + 192, index));
    return _mm512_mask_mov_epi16(a, bit7, b);
}

/* high: where bit 8 is. */
SL_INLINE __m512i sl_look_512(const uint16_t *t, __m512i index, __m512i high)
{
    const __mmask32 bit8 = _mm512_test_epi16_mask(high, _mm512_set1_epi16(256));
    return _mm512_mask_mov_epi16(sl_look_256(t, index), bit8, sl_look_256(t + 256, index));
}

SL_INLINE __m512i sl_look_1024(const uint16_t *t, __m512i index)
{
    const __mmask32 bit9 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(512));
    return _mm512_mask_mov_epi16(sl_look_512(t, index, index), bit9,
                                 sl_look_512(t + 512, index, index));
}

/* Eight of a long table by every other index. A masked broadcast is a load that keeps the other
 * lanes; seven masks are all there are. */
SL_INLINE __m256i sl_fetch_eight(const uint32_t *t, const uint16_t *index)
{
    __m256i v = _mm256_castsi128_si256(_mm_cvtsi32_si128((int)t[index[0]]));
    SL_UNROLL
    for (int k = 1; k < 8; k++)
        v = _mm256_mask_broadcastd_epi32(v, (__mmask8)(1 << k),
                                         _mm_cvtsi32_si128((int)t[index[2 * k]]));
    return v;
}

SL_INLINE __m512i sl_fetch_2048(const uint32_t *t, const uint16_t index[32])
{
    const __m512i even = _mm512_inserti64x4(_mm512_castsi256_si512(sl_fetch_eight(t, index)),
                                            sl_fetch_eight(t, index + 16), 1);
    const __m512i odd = _mm512_inserti64x4(_mm512_castsi256_si512(sl_fetch_eight(t, index + 1)),
                                           sl_fetch_eight(t, index + 17), 1);
    return sl_choose(_mm512_set1_epi32(0xffff), even, odd);
}

/* ---- Signs: a byte in each word, bit i for value i of eight ---- */

/* Seven signs a word to eight: bit 7 is their parity. */
SL_INLINE __m512i sl_eight_signs(__m512i seven)
{
    const __m512i odd = sl_four_times(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m512i nibble = _mm512_xor_si512(seven, _mm512_srli_epi16(seven, 4));
    return _mm512_or_si512(seven, _mm512_shuffle_epi8(odd, nibble));
}

/* Eights of bytes, four of which, from byte first up, are four times seven signs and a scale. */
SL_INLINE __m512i sl_signs_of_words(__m512i v, int first)
{
    const long long words = 0x0302020101000100 + first * 0x0101010101010101;
    const __m512i two =
        _mm512_shuffle_epi8(v, sl_four_times(_mm_set_epi64x(words + 0x0808080808080808, words)));
    const __m512i down = sl_four_times(_mm_setr_epi16(0, 7, 6, 5, 0, 7, 6, 5));
    return sl_eight_signs(_mm512_and_si512(_mm512_srlv_epi16(two, down), _mm512_set1_epi16(127)));
}

/* (a | b) & mask */
SL_INLINE __m512i sl_and_or(__m512i a, __m512i b, __m512i mask)
{
    return _mm512_ternarylogic_epi32(a, b, mask, 0xa8);
}

/* Values of 32 entries of eight: places of two bits, values v[0 .. 2]. Signs come beside the
 * places of a byte, at bits 2 and 3, two columns at a time: there are two tables, each of which
 * ignores the other's bit. */
SL_INLINE void sl_values_of_eight(__m512i places, __m512i signs, char zero, char one, char two,
                                  __m512i q[4])
{
    const char a = (char)(64 + zero), b = (char)(64 + one), c = (char)(64 + two);
    const char d = (char)(64 - zero), e = (char)(64 - one), f = (char)(64 - two);
    const __m512i by_bit2 =
        sl_four_times(_mm_setr_epi8(a, b, c, 0, d, e, f, 0, a, b, c, 0, d, e, f, 0));
    const __m512i by_bit3 =
        sl_four_times(_mm_setr_epi8(a, b, c, 0, a, b, c, 0, d, e, f, 0, d, e, f, 0));
    const __m512i two_bits = _mm512_set1_epi8(3);
    const __m512i s01 =
        sl_and_or(_mm512_slli_epi16(signs, 2), _mm512_slli_epi16(signs, 6), _mm512_set1_epi8(0x3c));
    const __m512i s23 = _mm512_srli_epi16(s01, 2);
    q[0] = _mm512_shuffle_epi8(by_bit2, sl_choose(two_bits, places, s01));
    q[1] = _mm512_shuffle_epi8(by_bit3, sl_choose(two_bits, _mm512_srli_epi16(places, 2), s01));
    q[2] = _mm512_shuffle_epi8(by_bit2, sl_choose(two_bits, _mm512_srli_epi16(places, 4), s23));
    q[3] = _mm512_shuffle_epi8(by_bit3, sl_choose(two_bits, _mm512_srli_epi16(places, 6), s23));
}

/* The IQ1 types: 8 times the place, and 2 where bit 2 of both bytes of a word of minus is clear. */
SL_INLINE void sl_values_of_iq1(__m512i places, __m512i minus, __m512i q[4])
{
    const __m512i value =
        sl_four_times(_mm_setr_epi8(2, 10, 18, 0, 0, 8, 16, 0, 2, 10, 18, 0, 0, 8, 16, 0));
    const __m512i two_bits = _mm512_set1_epi8(3);
    SL_UNROLL
    for (unsigned k = 0; k < 4; k++)
        q[k] = _mm512_shuffle_epi8(value,
                                   sl_choose(two_bits, _mm512_srli_epi16(places, 2 * k), minus));
}

/* Values of 64 entries of four, of the first and second half of each eight: places of three bits.
 * values: those of the places, then their opposites, and 64. */
SL_INLINE void sl_values_of_four(__m512i first, __m512i second, __m512i signs, __m128i values,
                                 __m512i q[4])
{
    const __m512i value = sl_four_times(values), three_bits = _mm512_set1_epi8(7);
    const __m512i both = _mm512_set1_epi8(0x18); /* signs of two columns */
    const __m512i s = _mm512_or_si512(signs, _mm512_slli_epi16(signs, 6));
    const __m512i s0 = _mm512_and_si512(_mm512_slli_epi16(s, 3), both);
    const __m512i s2 = _mm512_and_si512(_mm512_srli_epi16(s, 1), both);
    q[0] = _mm512_shuffle_epi8(value, sl_choose(three_bits, first, s0));
    q[1] = _mm512_shuffle_epi8(
        value, sl_choose(three_bits, _mm512_srli_epi16(first, 4), _mm512_srli_epi16(s0, 1)));
    q[2] = _mm512_shuffle_epi8(value, sl_choose(three_bits, second, s2));
    q[3] = _mm512_shuffle_epi8(
        value, sl_choose(three_bits, _mm512_srli_epi16(second, 4), _mm512_srli_epi16(s2, 1)));
}

/* ---- Scales: 2 s + 1 ---- */

/* s is in bits 1 up of each lane. */
SL_INLINE __m512i sl_odd(__m512i v, int mask)
{
    /* (v & mask) | 1 */
    return _mm512_ternarylogic_epi32(v, _mm512_set1_epi32(mask), _mm512_set1_epi32(1), 0xea);
}

/* s is the top four bits of the odd or (second 0) even words of 32. */
SL_INLINE __m512i sl_scale_of_words(__m512i v, int second)
{
    const __m512i twice =
        second ? _mm512_shuffle_epi32(v, _MM_PERM_DDBB) : _mm512_shuffle_epi32(v, _MM_PERM_CCAA);
    return _mm512_or_si512(_mm512_srli_epi32(twice, 27), _mm512_set1_epi32(1));
}

/* 16 nibbles of eight bytes. */
SL_INLINE __m512i sl_scale_of_nibbles(const uint8_t scales[8])
{
    const __m512i at =
        _mm512_setr_epi32(0x80800080, 0x80800080, 0x80800180, 0x80800180, 0x80800280, 0x80800280,
                          0x80800380, 0x80800380, 0x80800480, 0x80800480, 0x80800580, 0x80800580,
                          0x80800680, 0x80800680, 0x80800780, 0x80800780);
    const __m512i down = _mm512_setr_epi32(7, 11, 7, 11, 7, 11, 7, 11, 7, 11, 7, 11, 7, 11, 7, 11);
    return sl_odd(_mm512_srlv_epi32(_mm512_shuffle_epi8(sl_load_eight_times(scales), at), down),
                  0x1e);
}

/* ---- Types whose entries are looked up in registers ---- */

typedef void sl_grid_open_fn(const uint8_t *p, __m512i found, sl_grid_block *b);

SL_INLINE void sl_grid_open_iq2_xxs(const uint8_t *p, __m512i found, sl_grid_block *b)
{
    const __m512i v = sl_load_64(((const sl_iq2_xxs *)p)->q);
    const __m512i words =
        sl_four_times(_mm_setr_epi16((short)0x8000, (short)0x8001, (short)0x8002, (short)0x8003,
                                     (short)0x8008, (short)0x8009, (short)0x800a, (short)0x800b));
    const __m512i places = sl_look_256(sl_points_iq2_xxs, _mm512_shuffle_epi8(v, words));
    sl_values_of_eight(places, sl_signs_of_words(v, 4), 8, 25, 43, b->q);
    b->scale = sl_scale_of_words(v, 1);
}

SL_INLINE void sl_grid_open_iq2_xs(const uint8_t *p, __m512i found, sl_grid_block *b)
{
    const sl_iq2_xs *from = (const sl_iq2_xs *)p;
    const __m512i v = sl_load_64(from->q);
    const __m512i places = sl_look_512(sl_points_iq2_xs, v, v);
    sl_values_of_eight(places, sl_eight_signs(_mm512_srli_epi16(v, 9)), 8, 25, 43, b->q);
    b->scale = sl_scale_of_nibbles(from->scales);
}

SL_INLINE void sl_grid_open_iq3_xxs(const uint8_t *p, __m512i found, sl_grid_block *b)
{
    const sl_iq3_xxs *from = (const sl_iq3_xxs *)p;
    const __m512i v = sl_load_64(from->q);
    const __m512i words =
        _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)(const void *)from->signs));
    const __m512i first = sl_look_256(sl_points_iq3_xxs, v);
    const __m512i second = sl_look_256(sl_points_iq3_xxs, _mm512_srli_epi16(v, 8));
    sl_values_of_four(
        first, second, sl_signs_of_words(words, 0),
        _mm_setr_epi8(68, 76, 84, 92, 100, 108, 116, 126, 60, 52, 44, 36, 28, 20, 12, 2), b->q);
    b->scale = sl_scale_of_words(words, 0);
}

SL_INLINE void sl_grid_open_iq3_s(const uint8_t *p, __m512i found, sl_grid_block *b)
{
    const sl_iq3_s *from = (const sl_iq3_s *)p;
    const __m512i v = sl_load_64(from->q), high = sl_byte_of_eight(from->high);
    const __m512i up = sl_four_times(_mm_setr_epi16(8, 6, 4, 2, 8, 6, 4, 2));
    const __m512i bits = _mm512_sllv_epi16(high, up);
    const __m512i first = sl_look_512(sl_points_iq3_s, v, bits);
    const __m512i second =
        sl_look_512(sl_points_iq3_s, _mm512_srli_epi16(v, 8), _mm512_srli_epi16(bits, 1));
    sl_values_of_four(first, second, sl_load_words(from->signs),
                      _mm_setr_epi8(65, 67, 69, 71, 73, 75, 77, 79, 63, 61, 59, 57, 55, 53, 51, 49),
                      b->q);
    const __m512i at =
        _mm512_setr_epi32(0x80800080, 0x80800080, 0x80800080, 0x80800080, 0x80800180, 0x80800180,
                          0x80800180, 0x80800180, 0x80800280, 0x80800280, 0x80800280, 0x80800280,
                          0x80800380, 0x80800380, 0x80800380, 0x80800380);
    const __m512i down = _mm512_setr_epi32(7, 7, 11, 11, 7, 7, 11, 11, 7, 7, 11, 11, 7, 7, 11, 11);
    int32_t scales;
    memcpy(&scales, from->scales, sizeof scales);
    b->scale =
        sl_odd(_mm512_srlv_epi32(_mm512_shuffle_epi8(_mm512_set1_epi32(scales), at), down), 0x1e);
}

/* ---- Types of long codebooks: their indices go through memory, found: the entries ---- */

typedef __m512i sl_grid_index_fn(const uint8_t *p);

SL_INLINE __m512i sl_grid_index_iq2_s(const uint8_t *p)
{
    const sl_iq2_s *b = (const sl_iq2_s *)p;
    const __m512i up = sl_four_times(_mm_setr_epi16(8, 6, 4, 2, 8, 6, 4, 2));
    const __m512i top = _mm512_sllv_epi16(sl_byte_of_eight(b->high), up);
    return sl_or_and(sl_load_words(b->q), top, _mm512_set1_epi16(0x300));
}

SL_INLINE void sl_grid_open_iq2_s(const uint8_t *p, __m512i found, sl_grid_block *b)
{
    const sl_iq2_s *from = (const sl_iq2_s *)p;
    sl_values_of_eight(sl_look_1024(sl_points_iq2_s, sl_grid_index_iq2_s(p)),
                       sl_load_words(from->signs), 8, 25, 43, b->q);
    b->scale = sl_scale_of_nibbles(from->scales);
}

/* The words of high, each in the four words of its sub-block. */
SL_INLINE __m512i sl_words_iq1_s(const uint8_t *p)
{
    const sl_iq1_s *b = (const sl_iq1_s *)p;
    const __m512i v = _mm512_cvtepu16_epi64(sl_load16(b->high));
    return _mm512_shuffle_epi8(v, sl_four_times(_mm_setr_epi16(0x0100, 0x0100, 0x0100, 0x0100,
                                                               0x0908, 0x0908, 0x0908, 0x0908)));
}

SL_INLINE __m512i sl_grid_index_iq1_s(const uint8_t *p)
{
    const __m512i down = sl_four_times(_mm_setr_epi16(0, 3, 6, 9, 0, 3, 6, 9));
    const __m512i top = _mm512_slli_epi16(_mm512_srlv_epi16(sl_words_iq1_s(p), down), 8);
    return sl_or_and(sl_load_words(((const sl_iq1_s *)p)->q), top, _mm512_set1_epi16(0x700));
}

SL_INLINE void sl_grid_open_iq1_s(const uint8_t *p, __m512i found, sl_grid_block *b)
{
    const __m512i words = sl_words_iq1_s(p);
    const __m512i top = _mm512_srli_epi16(words, 13); /* bit 2: the delta's sign */
    sl_values_of_iq1(found, sl_and_or(top, _mm512_slli_epi16(top, 8), _mm512_set1_epi8(4)), b->q);
    b->scale = sl_odd(_mm512_srli_epi32(words, 27), 0x0e);
}

/* Nibble j of high in word j. */
SL_INLINE __m512i sl_nibbles_iq1_m(const uint8_t *p)
{
    const __m512i bytes = _mm512_cvtepu8_epi32(sl_load16(((const sl_iq1_m *)p)->high));
    return sl_and_or(bytes, _mm512_slli_epi32(bytes, 12), _mm512_set1_epi16(15));
}

SL_INLINE __m512i sl_grid_index_iq1_m(const uint8_t *p)
{
    const __m512i top = _mm512_slli_epi16(sl_nibbles_iq1_m(p), 8);
    return sl_or_and(sl_load_words(((const sl_iq1_m *)p)->q), top, _mm512_set1_epi16(0x700));
}

SL_INLINE void sl_grid_open_iq1_m(const uint8_t *p, __m512i found, sl_grid_block *b)
{
    const __m512i nibbles = sl_nibbles_iq1_m(p);
    const __m512i minus = sl_and_or(_mm512_srli_epi16(nibbles, 1), _mm512_slli_epi16(nibbles, 7),
                                    _mm512_set1_epi8(4));
    sl_values_of_iq1(found, minus, b->q);
    const __m512i at =
        _mm512_setr_epi32(0x80010080, 0x80010080, 0x80010080, 0x80010080, 0x80030280, 0x80030280,
                          0x80030280, 0x80030280, 0x80050480, 0x80050480, 0x80050480, 0x80050480,
                          0x80070680, 0x80070680, 0x80070680, 0x80070680);
    const __m512i down =
        _mm512_setr_epi32(7, 10, 13, 16, 7, 10, 13, 16, 7, 10, 13, 16, 7, 10, 13, 16);
    const __m512i scales = sl_load_eight_times(((const sl_iq1_m *)p)->scales);
    b->scale = sl_odd(_mm512_srlv_epi32(_mm512_shuffle_epi8(scales, at), down), 0x0e);
}

/* The d of IQ1_M. */
SL_INLINE uint16_t sl_d_iq1_m(const uint8_t *p)
{
    uint64_t s;
    memcpy(&s, p + offsetof(sl_iq1_m, scales), sizeof s);
    return (uint16_t)((s >> 12 & 0xf) | (s >> 24 & 0xf0) | (s >> 36 & 0xf00) | (s >> 48 & 0xf000));
}

SL_INLINE __m512 sl_ds_iq1_m(const sl_rows16 *w, size_t at)
{
    uint16_t d[16];
    for (int r = 0; r < 16; r++)
        d[r] = sl_d_iq1_m(w->p[r] + at);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)d));
}

#endif
