/* Blocks of the codebook types, IQ1, IQ2 and IQ3, for the 256-bit levels. What limits them is
 * fetching codebook entries, which no lane of another row can share: a row's 32 columns are one
 * vector here, and only the sums of a block are put into lanes, one row each. Everything that has a
 * vector form is done for a whole block at once: indices, the eighth signs, scales. For the files
 * that include avx2_mul.h. */
#ifndef SL_AVX2_GRIDS_H
#define SL_AVX2_GRIDS_H

#include "avx2_blocks.h"
#include "iq_grids.h"
#include "kernels.h"

/* A block of one row, all but its values. */
typedef struct sl_grid_head {
    __m256i scale;    /* byte j, in both halves: of values 16 j .. 16 j + 15 */
    __m256i sign[2];  /* a bit a value, in both halves: of the first and second 128 values */
    __m256i index[4]; /* 16 each, where they are not bytes of the block */
} sl_grid_head;

SL_INLINE __m128i sl_load_8(const void *p)
{
    return _mm_loadl_epi64((const __m128i *)p);
}

SL_INLINE __m128i sl_load_16(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

SL_INLINE __m256i sl_load_32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

SL_INLINE __m256i sl_twice_16(__m128i v)
{
    return _mm256_broadcastsi128_si256(v);
}

/* 2 s + 1 */
SL_INLINE __m256i sl_odd(__m256i s)
{
    return _mm256_add_epi8(_mm256_add_epi8(s, s), _mm256_set1_epi8(1));
}

/* 32 bytes of signs. */
SL_INLINE void sl_put_signs(sl_grid_head *h, __m256i signs)
{
    h->sign[0] = _mm256_permute2x128_si256(signs, signs, 0x00);
    h->sign[1] = _mm256_permute2x128_si256(signs, signs, 0x11);
}

/* Seven signs a byte to eight: bit 7 is their parity. */
SL_INLINE __m256i sl_eight_signs(__m256i seven)
{
    const __m256i odd = sl_twice_16(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i low = _mm256_shuffle_epi8(odd, sl_low_nibbles(seven));
    const __m256i high = _mm256_shuffle_epi8(odd, sl_high_nibbles(seven));
    return _mm256_or_si256(seven, _mm256_xor_si256(low, high));
}

/* Eight words of four times seven signs and a scale. */
SL_INLINE void sl_put_sign_words(sl_grid_head *h, __m256i w)
{
    const __m256i a = _mm256_and_si256(w, _mm256_set1_epi32(0x7f));
    const __m256i b = _mm256_and_si256(_mm256_slli_epi32(w, 1), _mm256_set1_epi32(0x7f00));
    const __m256i c = _mm256_and_si256(_mm256_slli_epi32(w, 2), _mm256_set1_epi32(0x7f0000));
    const __m256i d = _mm256_and_si256(_mm256_slli_epi32(w, 3), _mm256_set1_epi32(0x7f000000));
    sl_put_signs(h, sl_eight_signs(_mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d))));
    const __m256i s = _mm256_srli_epi32(w, 28);
    const __m256i eight = _mm256_permute4x64_epi64(_mm256_packus_epi32(s, s), 0x88);
    h->scale = sl_odd(_mm256_or_si256(eight, _mm256_slli_epi16(eight, 8)));
}

/* The nibbles of eight bytes, low ones first. */
SL_INLINE __m128i sl_sixteen_nibbles(__m128i v)
{
    const __m128i low4 = _mm_set1_epi8(15);
    return _mm_unpacklo_epi8(_mm_and_si128(v, low4), _mm_and_si128(_mm_srli_epi16(v, 4), low4));
}

/* 32 indices of more than eight bits: the low ones are q << shift, the top ones those bits of
 * high * factor that are in mask; word k of high belongs to index k. */
SL_INLINE void sl_put_indices(sl_grid_head *h, const uint8_t *q, int shift, const __m256i high[2],
                              __m256i factor, int mask)
{
    SL_UNROLL
    for (int k = 0; k < 2; k++) {
        const __m256i top =
            _mm256_and_si256(_mm256_mullo_epi16(high[k], factor), _mm256_set1_epi16((short)mask));
        const __m256i low = _mm256_slli_epi16(_mm256_cvtepu8_epi16(sl_load_16(q + 16 * k)), shift);
        h->index[k] = _mm256_or_si256(low, top);
    }
}

SL_INLINE void sl_head_iq2_xxs(const uint8_t *p, sl_grid_head *h)
{
    const sl_iq2_xxs *b = (const sl_iq2_xxs *)p;
    const __m256 a = _mm256_castsi256_ps(sl_load_32(b->q));
    const __m256 c = _mm256_castsi256_ps(sl_load_32(b->q + 32));
    const __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(a, c, 0xdd));
    sl_put_sign_words(h, _mm256_permute4x64_epi64(odd, 0xd8));
}

SL_INLINE void sl_head_iq2_xs(const uint8_t *p, sl_grid_head *h)
{
    const sl_iq2_xs *b = (const sl_iq2_xs *)p;
    const __m256i a = sl_load_32(b->q), c = sl_load_32(b->q + 32);
    const __m256i low9 = _mm256_set1_epi16(511);
    h->index[0] = _mm256_and_si256(a, low9);
    h->index[1] = _mm256_and_si256(c, low9);
    const __m256i seven = _mm256_packus_epi16(_mm256_srli_epi16(a, 9), _mm256_srli_epi16(c, 9));
    sl_put_signs(h, sl_eight_signs(_mm256_permute4x64_epi64(seven, 0xd8)));
    h->scale = sl_odd(sl_twice_16(sl_sixteen_nibbles(sl_load_8(b->scales))));
}

SL_INLINE void sl_head_iq2_s(const uint8_t *p, sl_grid_head *h)
{
    const sl_iq2_s *b = (const sl_iq2_s *)p;
    const __m256i bytes = sl_twice_16(sl_load_8(b->high)); /* each in four words */
    const __m256i high[2] = {
        _mm256_shuffle_epi8(bytes, _mm256_setr_epi64x((long long)0x8000800080008000u,
                                                      (long long)0x8001800180018001u,
                                                      (long long)0x8002800280028002u,
                                                      (long long)0x8003800380038003u)),
        _mm256_shuffle_epi8(bytes, _mm256_setr_epi64x((long long)0x8004800480048004u,
                                                      (long long)0x8005800580058005u,
                                                      (long long)0x8006800680068006u,
                                                      (long long)0x8007800780078007u))};
    sl_put_indices(h, b->q, 0, high, _mm256_set1_epi64x(0x0004001000400100), 0x300);
    sl_put_signs(h, sl_load_32(b->signs));
    h->scale = sl_odd(sl_twice_16(sl_sixteen_nibbles(sl_load_8(b->scales))));
}

SL_INLINE void sl_head_iq3_xxs(const uint8_t *p, sl_grid_head *h)
{
    sl_put_sign_words(h, sl_load_32(((const sl_iq3_xxs *)p)->signs));
}

SL_INLINE void sl_head_iq3_s(const uint8_t *p, sl_grid_head *h)
{
    const sl_iq3_s *b = (const sl_iq3_s *)p;
    const __m256i bytes = sl_twice_16(sl_load_8(b->high));
    const __m256i bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128);
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        const __m256i both = _mm256_shuffle_epi8(
            bytes, _mm256_setr_m128i(_mm_set1_epi16((short)(0x8000 | 2 * k)),
                                     _mm_set1_epi16((short)(0x8000 | (2 * k + 1)))));
        const __m256i set = _mm256_cmpeq_epi16(_mm256_and_si256(both, bit), bit);
        const __m256i low = _mm256_cvtepu8_epi16(sl_load_16(b->q + 16 * k));
        h->index[k] = _mm256_or_si256(low, _mm256_and_si256(set, _mm256_set1_epi16(256)));
    }
    sl_put_signs(h, sl_load_32(b->signs));
    int32_t scales;
    memcpy(&scales, b->scales, sizeof scales);
    const __m128i eight = sl_sixteen_nibbles(_mm_cvtsi32_si128(scales));
    h->scale = sl_odd(sl_twice_16(_mm_unpacklo_epi8(eight, eight)));
}

/* sign: the deltas' words, a bit 15 each. Indices are doubled, since the bits of the last one could
 * not be brought down by multiplying. */
SL_INLINE void sl_head_iq1_s(const uint8_t *p, sl_grid_head *h)
{
    const sl_iq1_s *b = (const sl_iq1_s *)p;
    const __m128i words = sl_load_16(b->high);
    const __m256i both = sl_twice_16(words); /* each in four words */
    const __m256i high[2] = {
        _mm256_shuffle_epi8(both, _mm256_setr_epi64x(0x0100010001000100, 0x0302030203020302,
                                                     0x0504050405040504, 0x0706070607060706)),
        _mm256_shuffle_epi8(both, _mm256_setr_epi64x(0x0908090809080908, 0x0b0a0b0a0b0a0b0a,
                                                     0x0d0c0d0c0d0c0d0c, 0x0f0e0f0e0f0e0f0e))};
    sl_put_indices(h, b->q, 1, high, _mm256_set1_epi64x(0x0001000800400200), 0xe00);
    const __m128i s = _mm_and_si128(_mm_srli_epi16(words, 12), _mm_set1_epi16(7));
    h->scale = sl_odd(sl_twice_16(_mm_or_si128(s, _mm_slli_epi16(s, 8))));
    h->sign[0] = h->sign[1] = sl_twice_16(words);
}

/* sign: a byte per index, 2 where the delta is positive, otherwise 0. */
SL_INLINE void sl_head_iq1_m(const uint8_t *p, sl_grid_head *h)
{
    const sl_iq1_m *b = (const sl_iq1_m *)p;
    const __m128i bytes = sl_load_16(b->high);
    const __m128i nibbles[2] = {sl_sixteen_nibbles(bytes),
                                sl_sixteen_nibbles(_mm_srli_si128(bytes, 8))};
    const __m256i high[2] = {_mm256_cvtepu8_epi16(nibbles[0]), _mm256_cvtepu8_epi16(nibbles[1])};
    sl_put_indices(h, b->q, 0, high, _mm256_set1_epi16(256), 0x700);
    const __m256i words =
        _mm256_shuffle_epi8(sl_twice_16(sl_load_8(b->scales)),
                            _mm256_setr_epi64x(0x0100010001000100, 0x0302030203020302,
                                               0x0504050405040504, 0x0706070607060706));
    const __m256i s =
        _mm256_srli_epi16(_mm256_mullo_epi16(words, _mm256_set1_epi64x(0x0010008004002000)), 13);
    h->scale = sl_odd(_mm256_permute4x64_epi64(_mm256_packus_epi16(s, s), 0x88));
    SL_UNROLL
    for (int k = 0; k < 2; k++)
        h->sign[k] = sl_twice_16(_mm_srli_epi16(_mm_andnot_si128(nibbles[k], _mm_set1_epi8(8)), 2));
}

/* Up to 64 indices, as the vectors of a head have them. */
typedef struct sl_grid_indices {
    uint16_t of[64];
} sl_grid_indices;

SL_INLINE void sl_store_indices(const sl_grid_head *h, int n_vectors, sl_grid_indices *out)
{
    SL_UNROLL
    for (int k = 0; k < n_vectors; k++)
        _mm256_storeu_si256((__m256i *)(void *)(out->of + 16 * k), h->index[k]);
}

/* Entries of columns 32 g .. 32 g + 31. */
SL_INLINE __m256i sl_four_entries(const uint64_t *grid, size_t a, size_t b, size_t c, size_t d)
{
    return _mm256_setr_epi64x((long long)grid[a], (long long)grid[b], (long long)grid[c],
                              (long long)grid[d]);
}

SL_INLINE __m256i sl_entries_by_index(const uint64_t *grid, const sl_grid_indices *x, int g)
{
    const uint16_t *i = x->of + 4 * g;
    return sl_four_entries(grid, i[0], i[1], i[2], i[3]);
}

SL_INLINE __m256i sl_entries_iq2_xxs(const uint8_t *p, const sl_grid_head *h,
                                     const sl_grid_indices *x, int g)
{
    const uint8_t *i = p + 2 + 8 * g;
    return sl_four_entries(sl_grid_iq2_xxs, i[0], i[1], i[2], i[3]);
}

SL_INLINE __m256i sl_entries_iq2_xs(const uint8_t *p, const sl_grid_head *h,
                                    const sl_grid_indices *x, int g)
{
    return sl_entries_by_index(sl_grid_iq2_xs, x, g);
}

SL_INLINE __m256i sl_entries_iq2_s(const uint8_t *p, const sl_grid_head *h,
                                   const sl_grid_indices *x, int g)
{
    return sl_entries_by_index(sl_grid_iq2_s, x, g);
}

SL_INLINE __m256i sl_entries_iq3_xxs(const uint8_t *p, const sl_grid_head *h,
                                     const sl_grid_indices *x, int g)
{
    const uint8_t *i = p + 2 + 8 * g;
    const uint32_t *t = sl_grid_iq3_xxs;
    return _mm256_setr_epi32((int)t[i[0]], (int)t[i[1]], (int)t[i[2]], (int)t[i[3]], (int)t[i[4]],
                             (int)t[i[5]], (int)t[i[6]], (int)t[i[7]]);
}

SL_INLINE __m256i sl_entries_iq3_s(const uint8_t *p, const sl_grid_head *h,
                                   const sl_grid_indices *x, int g)
{
    const uint16_t *i = x->of + 8 * g;
    const uint32_t *t = sl_grid_iq3_s;
    return _mm256_setr_epi32((int)t[i[0]], (int)t[i[1]], (int)t[i[2]], (int)t[i[3]], (int)t[i[4]],
                             (int)t[i[5]], (int)t[i[6]], (int)t[i[7]]);
}

SL_INLINE __m256i sl_entries_iq1_s(const uint8_t *p, const sl_grid_head *h,
                                   const sl_grid_indices *x, int g)
{
    int64_t v[4];
    SL_UNROLL
    for (int k = 0; k < 4; k++)
        memcpy(&v[k], (const char *)sl_grid_iq1 + 4 * (size_t)x->of[4 * g + k], sizeof v[k]);
    return _mm256_setr_epi64x(v[0], v[1], v[2], v[3]);
}

/* Bytes 4 g .. 4 g + 3 of sign, each eight times. */
SL_INLINE __m256i sl_sign_bytes(const sl_grid_head *h, int g)
{
    const long long b = g % 4 * 0x0404040404040404;
    return _mm256_shuffle_epi8(h->sign[g / 4],
                               _mm256_setr_epi64x(b, b + 0x0101010101010101, b + 0x0202020202020202,
                                                  b + 0x0303030303030303));
}

/* With 2 added where the delta is positive: values plus 9. */
SL_INLINE __m256i sl_entries_iq1_m(const uint8_t *p, const sl_grid_head *h,
                                   const sl_grid_indices *x, int g)
{
    return _mm256_add_epi8(sl_entries_by_index(sl_grid_iq1, x, g), sl_sign_bytes(h, g));
}

/* All ones where the value of columns 32 g .. 32 g + 31 is negative. */
SL_INLINE __m256i sl_negative(const sl_grid_head *h, int g)
{
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    const __m256i bytes = sl_sign_bytes(h, g);
    return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
}

/* v, negative where n is all ones. */
SL_INLINE __m256i sl_negate(__m256i v, __m256i n)
{
    return _mm256_sub_epi8(_mm256_xor_si256(v, n), n);
}

/* The scale of columns 32 g .. 32 g + 15 in the first half, of the next 16 in the second, as int16.
 */
SL_INLINE __m256i sl_scale_words(const sl_grid_head *h, int g)
{
    return _mm256_shuffle_epi8(h->scale,
                               _mm256_setr_m128i(_mm_set1_epi16((short)(0x8000 | 2 * g)),
                                                 _mm_set1_epi16((short)(0x8000 | (2 * g + 1)))));
}

/* ---- One row's block times one activation row: sums whose sum is isum ---- */

typedef void sl_grid_head_fn(const uint8_t *p, sl_grid_head *h);
typedef __m256i sl_entries_fn(const uint8_t *p, const sl_grid_head *h, const sl_grid_indices *x,
                              int g);
typedef __m256i sl_rest_fn(const sl_grid_head *h, sl_act_q8_256 x, size_t i);

/* The indices of a block of eight rows. A load of parts of what was just stored has to wait for it,
 * so all are stored before the first is used. Heads are opened again there, without indices. */
SL_INLINE void sl_find_indices(sl_grid_head_fn *head, int n_vectors, const sl_rows8 *w, size_t at,
                               sl_grid_indices out[8])
{
    if (!n_vectors)
        return;
    for (int r = 0; r < 8; r++) {
        sl_grid_head h;
        head(w->p[r] + at, &h);
        sl_store_indices(&h, n_vectors, &out[r]);
    }
}

SL_INLINE __m256i sl_rest_none(const sl_grid_head *h, sl_act_q8_256 x, size_t i)
{
    return _mm256_setzero_si256();
}

/* Entries are 8 more than 8 times the grid value: -8, and the delta. */
SL_INLINE __m256i sl_rest_iq1_s(const sl_grid_head *h, sl_act_q8_256 x, size_t i)
{
    const __m128i minus = _mm_srai_epi16(_mm256_castsi256_si128(h->sign[0]), 15);
    const __m128i offset =
        _mm_sub_epi16(_mm_add_epi16(minus, minus), _mm_set1_epi16(7)); /* -9 or -7 */
    const __m128i s = _mm_and_si128(_mm256_castsi256_si128(h->scale), _mm_set1_epi16(255));
    const __m128i sums = _mm_madd_epi16(_mm_mullo_epi16(s, offset), sl_load_16(x.sum32 + 8 * i));
    return _mm256_zextsi128_si256(sums);
}

SL_INLINE __m256i sl_rest_iq1_m(const sl_grid_head *h, sl_act_q8_256 x, size_t i)
{
    const __m256i s = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(h->scale));
    return _mm256_madd_epi16(_mm256_mullo_epi16(s, _mm256_set1_epi16(-9)),
                             sl_load_32(x.sum16 + 16 * i));
}

/* An entry is at most 62, so a pair is at most 2 * 62 * 127 = 15748, and a pair of the sums times a
 * scale fits 32 bits. */
SL_INLINE __m256i sl_grid_row(sl_grid_head_fn *head, sl_entries_fn *entries, sl_rest_fn *rest,
                              int has_signs, const uint8_t *p, const sl_grid_indices *at,
                              sl_act_q8_256 x, size_t i)
{
    sl_grid_head h;
    head(p, &h);
    __m256i isum = rest(&h, x, i);
    SL_UNROLL
    for (int g = 0; g < 8; g++) {
        __m256i v = sl_load_32(x.q + 256 * i + 32 * (size_t)g);
        if (has_signs)
            v = sl_negate(v, sl_negative(&h, g));
        const __m256i sum = _mm256_maddubs_epi16(entries(p, &h, at, g), v);
        isum = sl_add_pairs(isum, sum, sl_scale_words(&h, g));
    }
    return isum;
}

/* Lane r: the sum of the lanes of v[r]. */
SL_INLINE __m256i sl_sums_of_rows(const __m256i v[8])
{
    const __m256i a =
        _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    const __m256i b =
        _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}

/* The d of IQ1_M. */
SL_INLINE uint16_t sl_d_iq1_m(const uint8_t *p)
{
    uint64_t s;
    memcpy(&s, p + offsetof(sl_iq1_m, scales), sizeof s);
    return (uint16_t)((s >> 12 & 0xf) | (s >> 24 & 0xf0) | (s >> 36 & 0xf00) | (s >> 48 & 0xf000));
}

SL_INLINE __m256 sl_ds_iq1_m(const sl_rows8 *w, size_t at)
{
    uint16_t d[8];
    for (int r = 0; r < 8; r++)
        d[r] = sl_d_iq1_m(w->p[r] + at);
    return _mm256_cvtph_ps(sl_load_16(d));
}

/* ---- Eight rows opened into a tile ---- */

/* q: unsigned bytes, offset more than the values. Byte 32 g + k of a row is column 32 g + k. */
SL_INLINE void sl_open_grid(sl_grid_head_fn *head, sl_entries_fn *entries, int has_signs,
                            int is_iq1_s, int n_vectors, int offset, const sl_rows8 *w, size_t at,
                            sl_tile256 *t)
{
    uint8_t q[8][256], scale[8][16];
    sl_rows8 rows, scales;
    sl_grid_indices x[8];
    sl_find_indices(head, n_vectors, w, at, x);
    for (int r = 0; r < 8; r++) {
        sl_grid_head h;
        head(w->p[r] + at, &h);
        SL_UNROLL
        for (int g = 0; g < 8; g++) {
            __m256i v = entries(w->p[r] + at, &h, &x[r], g);
            if (has_signs)
                v = _mm256_add_epi8(sl_negate(v, sl_negative(&h, g)),
                                    _mm256_set1_epi8((char)offset));
            if (is_iq1_s) {
                const int minus = _mm256_movemask_epi8(h.sign[0]) >> (2 * g + 1) & 1;
                v = _mm256_add_epi8(v, _mm256_set1_epi8((char)(minus ? 0 : 2)));
            }
            _mm256_storeu_si256((__m256i *)(void *)(q[r] + 32 * g), v);
        }
        _mm_storeu_si128((__m128i *)(void *)scale[r], _mm256_castsi256_si128(h.scale));
        rows.p[r] = q[r];
        scales.p[r] = scale[r];
    }
    for (size_t k = 0; k < 16; k++)
        sl_words(&rows, 16 * k, t->q + 4 * k);
    __m256i words[4];
    sl_words(&scales, 0, words);
    SL_UNROLL
    for (uint32_t j = 0; j < 16; j++)
        t->scale[j] = sl_sub_scale(words[j / 4], j % 4);
    SL_UNROLL
    for (uint32_t p = 0; p < 8; p++)
        t->min[p] =
            _mm256_mullo_epi16(sl_pair(words[p / 2], p % 2), _mm256_set1_epi16((short)offset));
}

/* d: where a row's scale is, as floats; fraction: what it counts in. */
#define SL_GRID(type, ds, fraction, rest, n_vectors, has_signs, offset)                            \
    SL_INLINE __m256 sl_d_of_##type(const sl_rows8 *w, size_t at)                                  \
    {                                                                                              \
        return _mm256_mul_ps(ds(w, at), _mm256_set1_ps(fraction));                                 \
    }                                                                                              \
    SL_INLINE void sl_open_##type(const sl_rows8 *w, size_t i, sl_tile256 *t)                      \
    {                                                                                              \
        sl_open_grid(sl_head_##type, sl_entries_##type, has_signs,                                 \
                     sizeof(sl_##type) == sizeof(sl_iq1_s), n_vectors, offset, w,                  \
                     i * sizeof(sl_##type), t);                                                    \
        t->d = sl_d_of_##type(w, i * sizeof(sl_##type));                                           \
    }                                                                                              \
    SL_INLINE __m256 sl_single_##type(const sl_rows8 *w, size_t i, sl_act_q8_256 x, __m256 acc)    \
    {                                                                                              \
        const size_t at = i * sizeof(sl_##type);                                                   \
        sl_grid_indices indices[8];                                                                \
        __m256i sums[8];                                                                           \
        sl_find_indices(sl_head_##type, n_vectors, w, at, indices);                                \
        for (int r = 0; r < 8; r++)                                                                \
            sums[r] = sl_grid_row(sl_head_##type, sl_entries_##type, rest, has_signs,              \
                                  w->p[r] + at, &indices[r], x, i);                                \
        const __m256 d = _mm256_mul_ps(sl_d_of_##type(w, at), _mm256_set1_ps(x.d[i]));             \
        return _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(sl_sums_of_rows(sums)), acc);                 \
    }
SL_GRID(iq2_xxs, sl_halves, 0.125f, sl_rest_none, 0, 1, 64)
SL_GRID(iq2_xs, sl_halves, 0.125f, sl_rest_none, 2, 1, 64)
SL_GRID(iq2_s, sl_halves, 0.125f, sl_rest_none, 2, 1, 64)
SL_GRID(iq3_xxs, sl_halves, 0.25f, sl_rest_none, 0, 1, 64)
SL_GRID(iq3_s, sl_halves, 1.0f, sl_rest_none, 4, 1, 16)
SL_GRID(iq1_s, sl_halves, 0.125f, sl_rest_iq1_s, 2, 0, 9)
SL_GRID(iq1_m, sl_ds_iq1_m, 0.125f, sl_rest_iq1_m, 2, 0, 9)

#endif
