/* One activation row times eight rows of the types of 256, without a tile in memory: loads and
 * stores are what limits this case, so whole vectors are loaded and little is stored. Rows 0-3 and
 * 4-7 are worked on apart, a vector holds two words of each of four rows. For avx2_mul.h;
 * avx2_quant.c says how many pair sums fit 16 bits. */
#ifndef SL_AVX2_SINGLE_H
#define SL_AVX2_SINGLE_H

#include "avx2_blocks.h"

/* 32 bytes of four rows: out[k] has word k of row r in lane r, word 4 + k in lane 4 + r. */
SL_INLINE void sl_words_of_four(const uint8_t *const p[4], size_t at, __m256i out[4])
{
    __m256i v[4];
    SL_UNROLL
    for (int r = 0; r < 4; r++)
        v[r] = _mm256_loadu_si256((const __m256i *)(const void *)(p[r] + at));
    const __m256i ab01 = _mm256_unpacklo_epi32(v[0], v[1]),
                  ab23 = _mm256_unpackhi_epi32(v[0], v[1]);
    const __m256i cd01 = _mm256_unpacklo_epi32(v[2], v[3]),
                  cd23 = _mm256_unpackhi_epi32(v[2], v[3]);
    out[0] = _mm256_unpacklo_epi64(ab01, cd01);
    out[1] = _mm256_unpackhi_epi64(ab01, cd01);
    out[2] = _mm256_unpacklo_epi64(ab23, cd23);
    out[3] = _mm256_unpackhi_epi64(ab23, cd23);
}

/* Word k of each half, in all its lanes; k: a constant. */
SL_INLINE __m256i sl_same_word(__m256i v, int k)
{
    return k == 0   ? _mm256_shuffle_epi32(v, 0x00)
           : k == 1 ? _mm256_shuffle_epi32(v, 0x55)
           : k == 2 ? _mm256_shuffle_epi32(v, 0xaa)
                    : _mm256_shuffle_epi32(v, 0xff);
}

/* 32 values of x to meet them: out[k] has word k in all lanes of the first half, word 4 + k in all
 * of the second. */
SL_INLINE void sl_spread_x(const int8_t *x, __m256i out[4])
{
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)x);
    out[0] = _mm256_shuffle_epi32(v, 0x00);
    out[1] = _mm256_shuffle_epi32(v, 0x55);
    out[2] = _mm256_shuffle_epi32(v, 0xaa);
    out[3] = _mm256_shuffle_epi32(v, 0xff);
}

/* Both halves of each: rows 0-3 of a, rows 4-7 of b. */
SL_INLINE __m256i sl_join_rows(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}

/* The float steps of Q4_K and Q5_K. */
SL_INLINE __m256 sl_add_k_sums(const sl_k_head *h, __m256i isum, sl_act_q8_256 x, size_t i,
                               __m256 acc)
{
    const __m256 dx = _mm256_set1_ps(x.d[i]);
    __m256i msum = _mm256_setzero_si256();
    SL_UNROLL
    for (uint32_t p = 0; p < 4; p++)
        msum = sl_add_pairs(msum, sl_pair(h->six[2 + p / 2], p % 2),
                            sl_broadcast32(x.sum32 + 8 * i + 2 * p));
    acc = _mm256_fmadd_ps(_mm256_mul_ps(h->d, dx), _mm256_cvtepi32_ps(isum), acc);
    return _mm256_fnmadd_ps(_mm256_mul_ps(h->dmin, dx), _mm256_cvtepi32_ps(msum), acc);
}

/* Rows 0-3 or 4-7 in both halves. */
SL_INLINE __m256i sl_four_twice(__m256i rows, int four)
{
    return four ? _mm256_permute2x128_si256(rows, rows, 0x11)
                : _mm256_permute2x128_si256(rows, rows, 0x00);
}

/* Left by n bits, or right by -n; a mask must follow, bits cross bytes. */
SL_INLINE __m256i sl_shift(__m256i v, int n)
{
    return n > 0 ? _mm256_slli_epi16(v, n) : n < 0 ? _mm256_srli_epi16(v, -n) : v;
}

/* q_at: where the 128 bytes of nibbles begin. high: of Q5_K, its fifth bits by four rows. */
SL_INLINE __m256i sl_single_nibbles(const sl_rows8 *w, size_t q_at, const sl_k_head *head,
                                    const __m256i high[2][4], const int8_t *x)
{
    const __m256i sixteen = _mm256_set1_epi8(16);
    __m256i isum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    SL_UNROLL
    for (uint32_t g = 0; g < 4; g++) {
        const uint32_t j = 2 * g % 4;
        __m256i x0[4], x1[4];
        sl_spread_x(x + 64 * g, x0);
        sl_spread_x(x + 64 * g + 32, x1);
        SL_UNROLL
        for (int four = 0; four < 2; four++) {
            const __m256i six = sl_four_twice(head->six[g / 2], four);
            __m256i words[4], q0[4], q1[4];
            sl_words_of_four(w->p + 4 * four, q_at + 32 * g, words);
            SL_UNROLL
            for (int k = 0; k < 4; k++) {
                q0[k] = sl_low_nibbles(words[k]);
                q1[k] = sl_high_nibbles(words[k]);
                if (!high)
                    continue;
                const __m256i bit0 = sl_shift(high[four][k], 4 - 2 * (int)g);
                const __m256i bit1 = sl_shift(high[four][k], 3 - 2 * (int)g);
                q0[k] = _mm256_or_si256(q0[k], _mm256_and_si256(bit0, sixteen));
                q1[k] = _mm256_or_si256(q1[k], _mm256_and_si256(bit1, sixteen));
            }
            isum[four] = sl_add_scaled(isum[four], q0, x0, 4, sl_sub_scale(six, j));
            isum[four] = sl_add_scaled(isum[four], q1, x1, 4, sl_sub_scale(six, j + 1));
        }
    }
    return sl_join_rows(isum[0], isum[1]);
}

SL_INLINE __m256 sl_single_q4_k(const sl_rows8 *w, size_t i, sl_act_q8_256 x, __m256 acc)
{
    const size_t at = i * sizeof(sl_q4_k);
    const sl_k_head head = sl_open_k_words(w, at);
    const __m256i isum = sl_single_nibbles(w, at + 16, &head, NULL, x.q + 256 * i);
    return sl_add_k_sums(&head, isum, x, i, acc);
}

SL_INLINE __m256 sl_single_q5_k(const sl_rows8 *w, size_t i, sl_act_q8_256 x, __m256 acc)
{
    const size_t at = i * sizeof(sl_q5_k);
    const sl_k_head head = sl_open_k_words(w, at);
    __m256i high[2][4];
    sl_words_of_four(w->p, at + 16, high[0]);
    sl_words_of_four(w->p + 4, at + 16, high[1]);
    const __m256i isum = sl_single_nibbles(w, at + 48, &head, high, x.q + 256 * i);
    return sl_add_k_sums(&head, isum, x, i, acc);
}

/* Half of sl_words_of_four(): words 2 part and 2 part + 1. */
SL_INLINE void sl_half_words_of_four(const uint8_t *const p[4], size_t at, int part, __m256i out[2])
{
    __m256i v[4];
    SL_UNROLL
    for (int r = 0; r < 4; r++)
        v[r] = _mm256_loadu_si256((const __m256i *)(const void *)(p[r] + at));
    const __m256i ab = part ? _mm256_unpackhi_epi32(v[0], v[1]) : _mm256_unpacklo_epi32(v[0], v[1]);
    const __m256i cd = part ? _mm256_unpackhi_epi32(v[2], v[3]) : _mm256_unpacklo_epi32(v[2], v[3]);
    out[0] = _mm256_unpacklo_epi64(ab, cd);
    out[1] = _mm256_unpackhi_epi64(ab, cd);
}

/* Four rows, half h of a block, words 2 part and 2 part + 1 of each 32 values: as many as fit the
 * registers at a time. Four times 32 values, in sub-blocks of 16. */
SL_INLINE __m256i sl_single_q6_part(const uint8_t *const p[4], size_t at, int h, int part,
                                    const int8_t *x, const __m256i scales[4], __m256i isum)
{
    const __m256i top2 = _mm256_set1_epi8(0x30);
    __m256i low[2][2], high[2];
    sl_half_words_of_four(p, at + (size_t)(64 * h), part, low[0]);
    sl_half_words_of_four(p, at + (size_t)(64 * h) + 32, part, low[1]);
    sl_half_words_of_four(p, at + 128 + (size_t)(32 * h), part, high);
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        const __m256i values = _mm256_loadu_si256((const __m256i *)(const void *)(x + 32 * k));
        const __m256i spread[2] = {
            part ? _mm256_shuffle_epi32(values, 0xaa) : _mm256_shuffle_epi32(values, 0x00),
            part ? _mm256_shuffle_epi32(values, 0xff) : _mm256_shuffle_epi32(values, 0x55)};
        __m256i q[2];
        SL_UNROLL
        for (int i = 0; i < 2; i++) {
            const __m256i bits = sl_shift(high[i], 4 - 2 * k);
            q[i] = _mm256_or_si256(k < 2 ? sl_low_nibbles(low[k % 2][i])
                                         : sl_high_nibbles(low[k % 2][i]),
                                   _mm256_and_si256(bits, top2));
        }
        isum = sl_add_scaled(isum, q, spread, 2, scales[k]);
        SL_KEEP_ORDER(isum);
    }
    return isum;
}

SL_INLINE __m256 sl_single_q6_k(const sl_rows8 *w, size_t i, sl_act_q8_256 x, __m256 acc)
{
    const size_t at = i * sizeof(sl_q6_k);
    __m256i scales[4], isum[2], msum = _mm256_setzero_si256();
    sl_words(w, at + 192, scales);
    SL_UNROLL
    for (int four = 0; four < 2; four++) {
        isum[four] = _mm256_setzero_si256();
        SL_UNROLL
        for (int h = 0; h < 2; h++) {
            const __m256i first = sl_four_twice(scales[2 * h], four);
            const __m256i second = sl_four_twice(scales[2 * h + 1], four);
            const __m256i scale[4] = {sl_signed_scales(first, 0, 1), sl_signed_scales(first, 2, 3),
                                      sl_signed_scales(second, 0, 1),
                                      sl_signed_scales(second, 2, 3)};
            SL_UNROLL
            for (int part = 0; part < 2; part++)
                isum[four] = sl_single_q6_part(w->p + 4 * four, at, h, part,
                                               x.q + 256 * i + 128 * h, scale, isum[four]);
        }
    }
    SL_UNROLL
    for (uint32_t p = 0; p < 8; p++)
        msum = sl_add_pairs(msum, sl_signed_pair(scales[p / 2], p % 2),
                            sl_broadcast32(x.sum16 + 16 * i + 2 * p));
    const __m256i sum =
        _mm256_sub_epi32(sl_join_rows(isum[0], isum[1]), _mm256_slli_epi32(msum, 5));
    const __m256 d = _mm256_mul_ps(sl_halves(w, at + 208), _mm256_set1_ps(x.d[i]));
    return _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(sum), acc);
}

#endif
