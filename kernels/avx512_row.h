/* One activation row, and of types of 256 up to four, AVX-512 VNNI: weights are read in the order
 * of their addresses, which is what memory gives most of (docs/experiments.md). So here a vector's
 * lanes are blocks that follow each other, not rows: sixteen blocks give their integer sums and
 * scales as floats, these wait in scratch, and when sixteen rows have theirs, they are turned and
 * every row adds its blocks in ascending order in a lane of its own, as scalar_quant.c says.
 * Activations are brought into the order of the lanes once a call. For avx512_quant.c, beside
 * avx512_mul.h. */
#ifndef SL_AVX512_ROW_H
#define SL_AVX512_ROW_H

#include "avx512_blocks.h"
#include "kernels.h"

/* Bytes from what is read to what is fetched. Less is late, much more leaves the first-level cache
 * before it is used; the hint for the second level alone is a fifth slower (Q4_K, 4096 columns from
 * memory at 55 GB/s: 8 KiB 42, 16 KiB 50, 24 KiB 42 GB/s). */
enum { SL_ROW_AHEAD = 16 << 10 };
enum { SL_ROW_LEAST_256 = 1024, SL_ROW_LEAST_32 = 512, SL_ROW_MOST_32 = 8192 };
enum { SL_ROW_MOST_256 = 32768 };   /* all activation rows together */
enum { SL_ROW_ENDLESS_256 = 3072 }; /* longer rows fill their pieces well enough */
enum { SL_ROW_MOST_BATCH = 4 };

/* What 1024 columns of activations give to a type of 256: x[i][k]: part i of each block, lanes as
 * the type's sums want them; sums: of q, block b in lane b. Past the end of a row: zeros. */
typedef struct sl_row_x256 {
    __m512i x[4][4], sums[2];
    __m128 d;
    __m128 fill[3];
} sl_row_x256;

/* What 512 columns give to a type of 32. sum: of q per block, times the type's offset. */
typedef struct sl_row_x32 {
    __m512i x[8], sum;
    __m512 d;
    __mmask16 some; /* which blocks there are */
} sl_row_x32;

SL_INLINE __m512i sl_load64(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* 16 bytes at p and three more times, stride bytes apart. */
SL_INLINE __m512i sl_load_4x16(const void *p, size_t stride)
{
    const uint8_t *at = p;
    __m512i v = _mm512_castsi128_si512(sl_load16(at));
    v = _mm512_inserti32x4(v, sl_load16(at + stride), 1);
    v = _mm512_inserti32x4(v, sl_load16(at + 2 * stride), 2);
    return _mm512_inserti32x4(v, sl_load16(at + 3 * stride), 3);
}

/* In each 128 bits: words k of v[0] .. v[3] become words 0 .. 3 of v[k]. */
SL_INLINE void sl_turn_words(__m512i v[4])
{
    const __m512i ab01 = _mm512_unpacklo_epi32(v[0], v[1]);
    const __m512i ab23 = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i cd01 = _mm512_unpacklo_epi32(v[2], v[3]);
    const __m512i cd23 = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(ab01, cd01);
    v[1] = _mm512_unpackhi_epi64(ab01, cd01);
    v[2] = _mm512_unpacklo_epi64(ab23, cd23);
    v[3] = _mm512_unpackhi_epi64(ab23, cd23);
}

/* Word r of 128 bits l: the sum of 128 bits l of v[r]. */
SL_INLINE __m512i sl_add_words(const __m512i v[4])
{
    const __m512i ab =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    const __m512i cd =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* Word r of 128 bits l: the sum of the words r of v[l]. */
SL_INLINE __m512i sl_add_lanes(const __m512i v[4])
{
    const __m512i ab = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x44),
                                        _mm512_shuffle_i32x4(v[0], v[1], 0xee));
    const __m512i cd = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x44),
                                        _mm512_shuffle_i32x4(v[2], v[3], 0xee));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(ab, cd, 0x88), _mm512_shuffle_i32x4(ab, cd, 0xdd));
}

/* Word r of 128 bits l changes places with word l of 128 bits r. */
SL_INLINE __m512i sl_turn_lanes(__m512i v)
{
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
}

/* ---- Types of 256: four blocks at a time ----
 *
 * 64 bytes of each of four blocks are turned into four vectors: a word has four columns of a block,
 * block b in word b of each 128 bits. What 128 bits have for columns: see each type. */

/* a[l] + four words of weights times four of x. */
SL_INLINE __m512i sl_row_dot4(const __m512i q[4], const __m512i x[4])
{
    __m512i sum = _mm512_setzero_si512();
    SL_UNROLL
    for (int k = 0; k < 4; k++)
        sum = _mm512_dpbusd_epi32(sum, q[k], x[k]);
    return sum;
}

SL_INLINE void sl_row_turned(const uint8_t *p, size_t block_bytes, __m512i v[4])
{
    SL_UNROLL
    for (size_t b = 0; b < 4; b++)
        v[b] = sl_load64(p + b * block_bytes);
    sl_turn_words(v);
}

/* 32 bytes of each block, twice. */
SL_INLINE void sl_row_turned_twice(const uint8_t *p, size_t block_bytes, __m512i v[4])
{
    SL_UNROLL
    for (size_t b = 0; b < 4; b++)
        v[b] = _mm512_broadcast_i64x4(
            _mm256_loadu_si256((const __m256i *)(const void *)(p + b * block_bytes)));
    sl_turn_words(v);
}

/* A shift for the first and one for the second half of a vector; bits cross bytes. */
SL_INLINE __m512i sl_halves_left(__m512i v, int first, int second)
{
    return _mm512_sllv_epi64(
        v, _mm512_setr_epi64(first, first, first, first, second, second, second, second));
}

SL_INLINE __m512i sl_halves_right(__m512i v, int first, int second)
{
    return _mm512_srlv_epi64(
        v, _mm512_setr_epi64(first, first, first, first, second, second, second, second));
}

/* Four blocks: sums still apart, and the first word of each. */
typedef struct sl_row_unit {
    __m512i isum[SL_ROW_MOST_BATCH]; /* block b: words b */
    __m512i msum[SL_ROW_MOST_BATCH]; /* block b: 128 bits b */
    __m512i head;                    /* block b: 128 bits b; word 0 holds d and dmin */
} sl_row_unit;
/* x: of n_x activation rows, step apart. */
typedef void sl_row_unit_fn(const uint8_t *p, const sl_row_x256 *x, size_t step, int n_x,
                            sl_row_unit *u);

/* Scales and minima of sl_k_scales() as int16: block b in 128 bits b, in order. */
SL_INLINE void sl_row_k_scales(__m512i head, __m512i *scale, __m512i *min)
{
    const __m512i zero = _mm512_setzero_si512();
    const __m512i twice = _mm512_shuffle_epi32(head, _MM_PERM_CCBB);
    const __m512i last = _mm512_shuffle_epi32(head, _MM_PERM_DDDD);
    const __m512i six = _mm512_set1_epi64(0x303030303f3f3f3f);
    const __m512i four = _mm512_set1_epi64(0x0f0f0f0f00000000);
    const __m512i bytes =
        sl_or_and(_mm512_and_si512(_mm512_srlv_epi32(twice, _mm512_set1_epi64(2ll << 32)), six),
                  _mm512_srlv_epi32(last, _mm512_set4_epi32(4, 0, 0, 0)), four);
    *scale = _mm512_unpacklo_epi8(bytes, zero);
    *min = _mm512_unpackhi_epi8(bytes, zero);
}

/* Pairs of scales of sub-blocks 4c and 4c + 1 in the first half, 4c + 2 and 4c + 3 in the second.
 */
SL_INLINE __m512i sl_row_pairs(__m512i scale, int c)
{
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 1, 5, 9, 13, 1, 5, 9, 13);
    return _mm512_permutexvar_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(2 * c)), scale);
}

/* 64 bytes of nibbles: sub-blocks 4c (low) and 4c + 1 (high) in the first half, 4c + 2 and 4c + 3
 * in the second; x[2c] meets the low, x[2c + 1] the high nibbles. Their sums fit 16 bits (16
 * products of at most 15 * 127), so a pair of them meets a pair of scales. High nibbles count 16
 * times. */
SL_INLINE void sl_row_unit_q4_k(const uint8_t *p, const sl_row_x256 *x, size_t step, int n_x,
                                sl_row_unit *u)
{
    const __m512i low = _mm512_set1_epi8(15), high = _mm512_set1_epi8((char)0xf0);
    __m512i scale, min;
    u->head = sl_load_4x16(p, sizeof(sl_q4_k));
    sl_row_k_scales(u->head, &scale, &min);
    SL_UNROLL
    for (int b = 0; b < n_x; b++) {
        u->msum[b] = _mm512_dpwssd_epi32(_mm512_setzero_si512(), min, x[(size_t)b * step].sums[0]);
        u->isum[b] = _mm512_setzero_si512();
    }
    SL_UNROLL
    for (int c = 0; c < 2; c++) {
        __m512i v[4], even[4], odd[4];
        sl_row_turned(p + 16 + 64 * c, sizeof(sl_q4_k), v);
        SL_UNROLL
        for (int k = 0; k < 4; k++) {
            even[k] = _mm512_and_si512(v[k], low);
            odd[k] = _mm512_and_si512(v[k], high);
        }
        const __m512i pairs = sl_row_pairs(scale, c);
        SL_UNROLL
        for (int b = 0; b < n_x; b++) {
            const sl_row_x256 *xb = x + (size_t)b * step;
            const __m512i first = sl_row_dot4(even, xb->x[2 * c]);
            const __m512i second = _mm512_slli_epi32(sl_row_dot4(odd, xb->x[2 * c + 1]), 12);
            u->isum[b] = _mm512_dpwssd_epi32(
                u->isum[b], _mm512_mask_blend_epi16(0xaaaaaaaa, first, second), pairs);
        }
    }
}

/* As Q4_K, but the sums do not fit 16 bits. */
SL_INLINE void sl_row_unit_q5_k(const uint8_t *p, const sl_row_x256 *x, size_t step, int n_x,
                                sl_row_unit *u)
{
    const __m512i sixteen = _mm512_set1_epi8(16);
    __m512i scale, min, fifth[4];
    u->head = sl_load_4x16(p, sizeof(sl_q5_k));
    sl_row_k_scales(u->head, &scale, &min);
    SL_UNROLL
    for (int b = 0; b < n_x; b++) {
        u->msum[b] = _mm512_dpwssd_epi32(_mm512_setzero_si512(), min, x[(size_t)b * step].sums[0]);
        u->isum[b] = _mm512_setzero_si512();
    }
    sl_row_turned_twice(p + 16, sizeof(sl_q5_k), fifth);
    SL_UNROLL
    for (int c = 0; c < 2; c++) {
        __m512i v[4], even[4], odd[4];
        sl_row_turned(p + 48 + 64 * c, sizeof(sl_q5_k), v);
        SL_UNROLL
        for (int k = 0; k < 4; k++) {
            const __m512i bit0 =
                c ? sl_halves_right(fifth[k], 0, 2) : sl_halves_left(fifth[k], 4, 2);
            const __m512i bit1 =
                c ? sl_halves_right(fifth[k], 1, 3) : sl_halves_left(fifth[k], 3, 1);
            even[k] = sl_or_and(sl_low_nibbles(v[k]), bit0, sixteen);
            odd[k] = sl_or_and(sl_high_nibbles(v[k]), bit1, sixteen);
        }
        const __m512i pairs = sl_row_pairs(scale, c);
        const __m512i first = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff));
        const __m512i second = _mm512_srli_epi32(pairs, 16);
        SL_UNROLL
        for (int b = 0; b < n_x; b++) {
            const sl_row_x256 *xb = x + (size_t)b * step;
            const __m512i sums =
                _mm512_add_epi32(_mm512_mullo_epi32(sl_row_dot4(even, xb->x[2 * c]), first),
                                 _mm512_mullo_epi32(sl_row_dot4(odd, xb->x[2 * c + 1]), second));
            u->isum[b] = _mm512_add_epi32(u->isum[b], sums);
        }
    }
}

/* 64 bytes of nibbles: low nibbles are columns 128h up, high ones 64 more, in order; so 128 bits
 * are a sub-block. sums[0]: of its first eight, sums[1]: of its last eight sub-blocks. */
SL_INLINE void sl_row_unit_q6_k(const uint8_t *p, const sl_row_x256 *x, size_t step, int n_x,
                                sl_row_unit *u)
{
    const __m512i zero = _mm512_setzero_si512(), top2 = _mm512_set1_epi8(0x30);
    const __m512i bytes = sl_load_4x16(p + 192, sizeof(sl_q6_k));
    const __m512i scales = sl_turn_lanes(bytes); /* sub-blocks 4i up in 128 bits i */
    const __m512i to_top =
        _mm512_setr_epi32(24, 24, 24, 24, 16, 16, 16, 16, 8, 8, 8, 8, 0, 0, 0, 0);
    /* bytes at the top of the int16, so times 256; 32 of it is left after >> 3 */
    const __m512i off_a = _mm512_srai_epi16(_mm512_unpacklo_epi8(zero, bytes), 3);
    const __m512i off_b = _mm512_srai_epi16(_mm512_unpackhi_epi8(zero, bytes), 3);
    SL_UNROLL
    for (int b = 0; b < n_x; b++) {
        const sl_row_x256 *xb = x + (size_t)b * step;
        const __m512i off =
            _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(zero, off_a, xb->sums[0]), off_b, xb->sums[1]);
        u->isum[b] = _mm512_sub_epi32(zero, sl_turn_lanes(off));
        u->msum[b] = zero;
    }
    SL_UNROLL
    for (int h = 0; h < 2; h++) {
        __m512i v[4], high[4], first[4], last[4];
        sl_row_turned(p + 64 * h, sizeof(sl_q6_k), v);
        sl_row_turned_twice(p + 128 + 32 * h, sizeof(sl_q6_k), high);
        SL_UNROLL
        for (int k = 0; k < 4; k++) {
            first[k] = sl_or_and(sl_low_nibbles(v[k]), sl_halves_left(high[k], 4, 2), top2);
            last[k] = sl_or_and(sl_high_nibbles(v[k]), sl_halves_right(high[k], 0, 2), top2);
        }
        const __m512i a = h ? _mm512_shuffle_i32x4(scales, scales, 0xaa)
                            : _mm512_shuffle_i32x4(scales, scales, 0x00);
        const __m512i b = h ? _mm512_shuffle_i32x4(scales, scales, 0xff)
                            : _mm512_shuffle_i32x4(scales, scales, 0x55);
        const __m512i scale_a = _mm512_srai_epi32(_mm512_sllv_epi32(a, to_top), 24);
        const __m512i scale_b = _mm512_srai_epi32(_mm512_sllv_epi32(b, to_top), 24);
        SL_UNROLL
        for (int i = 0; i < n_x; i++) {
            const sl_row_x256 *xb = x + (size_t)i * step;
            const __m512i sums =
                _mm512_add_epi32(_mm512_mullo_epi32(sl_row_dot4(first, xb->x[2 * h]), scale_a),
                                 _mm512_mullo_epi32(sl_row_dot4(last, xb->x[2 * h + 1]), scale_b));
            u->isum[i] = _mm512_add_epi32(u->isum[i], sums);
        }
    }
    const uint8_t *d = p + 208;
    __m128i heads = _mm_cvtsi32_si128(sl_load_u16(d));
    heads = _mm_insert_epi16(heads, sl_load_u16(d + sizeof(sl_q6_k)), 2);
    heads = _mm_insert_epi16(heads, sl_load_u16(d + 2 * sizeof(sl_q6_k)), 4);
    heads = _mm_insert_epi16(heads, sl_load_u16(d + 3 * sizeof(sl_q6_k)), 6);
    u->head = _mm512_castsi128_si512(heads);
}

/* ---- Types of 32: sixteen blocks at a time ---- */

/* Integer sums and scales, blocks in order. Blocks are whole 16-bit words that begin anywhere: the
 * bytes are loaded as they lie, and words are picked from two neighbouring vectors. Loads that
 * cross cache lines cost two, so smaller ones would be no cheaper. */
typedef void sl_row_chunk_fn(const uint8_t *p, const sl_row_x32 *x, __m512i *isum, __m512 *d);

/* n whole vectors, then 32 bytes. */
SL_INLINE void sl_row_load(const uint8_t *p, int n, __m512i v[9])
{
    SL_UNROLL
    for (int i = 0; i < n; i++)
        v[i] = sl_load64(p + 64 * i);
    v[n] = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)(p + 64 * n)));
}

/* Words i, i + 1 .. i + 7 for each of four i. */
SL_INLINE __m512i sl_row_words(int a, int b, int c, int d)
{
    const __m512i begin = _mm512_set_epi64(d, d, c, c, b, b, a, a);
    const __m512i four = _mm512_set4_epi32(0x00070006, 0x00050004, 0x00030002, 0x00010000);
    const __m512i spread = _mm512_or_si512(begin, _mm512_slli_epi64(begin, 16));
    return _mm512_add_epi16(_mm512_or_si512(spread, _mm512_slli_epi64(spread, 32)), four);
}

SL_INLINE void sl_row_chunk_q8_0(const uint8_t *p, const sl_row_x32 *x, __m512i *isum, __m512 *d)
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    /* scale 4m + j is word 4m + 17j of vectors 2m and 2m + 1 */
    const __m512i scales =
        _mm512_setr_epi32(0x00110000, 0x00330022, 0x00150004, 0x00370026, 0x00190008, 0x003b002a,
                          0x001d000c, 0x003f002e, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    __m512i v[9], sum[8], halves[4];
    sl_row_load(p, 8, v);
    SL_UNROLL
    for (int t = 0; t < 8; t++) { /* blocks 2t and 2t + 1 */
        const __m512i q = _mm512_permutex2var_epi16(
            v[t], sl_row_words(2 * t + 1, 2 * t + 9, 2 * t + 18, 2 * t + 26), v[t + 1]);
        sum[t] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_xor_si512(q, flip), x->x[t]);
    }
    SL_UNROLL
    for (int m = 0; m < 4; m++)
        halves[m] = _mm512_maskz_permutex2var_epi16(0xfu << 4 * m, v[2 * m], scales, v[2 * m + 1]);
    const __m512i ab = sl_add_words(sum), cd = sl_add_words(sum + 4);
    const __m512i sums =
        _mm512_add_epi32(_mm512_shuffle_i32x4(ab, cd, 0x88), _mm512_shuffle_i32x4(ab, cd, 0xdd));
    *isum = _mm512_sub_epi32(_mm512_permutexvar_epi32(order, sums), x->sum);
    *d = _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_or_si512(
        _mm512_or_si512(halves[0], halves[1]), _mm512_or_si512(halves[2], halves[3]))));
}

SL_INLINE void sl_row_chunk_q4_0(const uint8_t *p, const sl_row_x32 *x, __m512i *isum, __m512 *d)
{
    /* scale b is word 9b: of vectors 0 and 1, 2 and 3, and the last of 3 and 4 */
    const __m512i scales =
        _mm512_setr_epi32(0x00090000, 0x001b0012, 0x002d0024, 0x003f0036, 0x00110008, 0x0023001a,
                          0x0035002c, 0x0027003e, 0, 0, 0, 0, 0, 0, 0, 0);
    __m512i v[9], sum[4];
    sl_row_load(p, 4, v);
    SL_UNROLL
    for (int t = 0; t < 4; t++) { /* blocks 4t .. 4t + 3 */
        const __m512i q = _mm512_permutex2var_epi16(
            v[t], sl_row_words(4 * t + 1, 4 * t + 10, 4 * t + 19, 4 * t + 28), v[t + 1]);
        sum[t] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), sl_low_nibbles(q), x->x[2 * t]);
        sum[t] = _mm512_dpbusd_epi32(sum[t], sl_high_nibbles(q), x->x[2 * t + 1]);
    }
    const __m512i first = _mm512_maskz_permutex2var_epi16(0x00ff, v[0], scales, v[1]);
    const __m512i next = _mm512_maskz_permutex2var_epi16(0x7f00, v[2], scales, v[3]);
    const __m512i last = _mm512_maskz_permutex2var_epi16(0x8000, v[3], scales, v[4]);
    *isum = _mm512_sub_epi32(sl_turn_lanes(sl_add_words(sum)), x->sum);
    *d = _mm512_cvtph_ps(
        _mm512_castsi512_si256(_mm512_or_si512(_mm512_or_si512(first, next), last)));
}

/* What a piece of columns takes: activations, and two tables. The last of a row may be short. */
enum {
    SL_ROW_PIECE_256 = sizeof(sl_row_x256) + 2 * 16 * 4 * 4 * sizeof(float),
    SL_ROW_PIECE_32 = sizeof(sl_row_x32) + 2 * 4 * 16 * 4 * sizeof(float)
};
_Static_assert(SL_ROW_MOST_BATCH *SL_ROW_PIECE_256 *(SL_ROW_LEAST_256 + 768) <=
                       SL_MUL_SCRATCH_PER_COL * SL_ROW_LEAST_256 * 1024 &&
                   SL_ROW_PIECE_32 * (SL_ROW_LEAST_32 + 480) <=
                       SL_MUL_SCRATCH_PER_COL * SL_ROW_LEAST_32 * 512,
               "the pieces of the shortest rows, and so of all, fit the scratch");

/* ---- Activations ---- */

/* Blocks i .. i + 3; behind the row's last nothing, or (endless) its first again. in_order: 128
 * columns are two parts of x; else every second 32 belong to each. */
SL_INLINE void sl_row_prepare256(const char *act, size_t n_cols, size_t i, int in_order,
                                 int endless, sl_row_x256 *x)
{
    const size_t n_blocks = n_cols / 256, n = endless || n_blocks - i > 4 ? 4 : n_blocks - i;
    const char *sum16 = act + sl_act_q8_256_sums_at(n_cols), *sum32 = sum16 + n_cols / 8;
    size_t block[4];
    memset(x, 0, sizeof *x);
    for (size_t b = 0; b < n; b++) {
        const size_t k = block[b] = (i + b) % n_blocks;
        memcpy((char *)&x->d + 4 * b, act + n_cols + 4 * k, 4);
        memcpy((char *)&x->sums[0] + 16 * b, in_order ? sum16 + 32 * k : sum32 + 16 * k, 16);
        if (in_order)
            memcpy((char *)&x->sums[1] + 16 * b, sum16 + 32 * k + 16, 16);
    }
    for (size_t h = 0; h < 2; h++) {
        for (size_t b = 0; b < n; b++) {
            const char *q = act + 256 * block[b] + 128 * h;
            const __m512i v0 = sl_load64(q), v1 = sl_load64(q + 64);
            x->x[2 * h][b] = in_order ? v0 : _mm512_shuffle_i64x2(v0, v1, 0x44);
            x->x[2 * h + 1][b] = in_order ? v1 : _mm512_shuffle_i64x2(v0, v1, 0xee);
        }
        sl_turn_words(x->x[2 * h]);
        sl_turn_words(x->x[2 * h + 1]);
    }
}

/* in_order: blocks 2t and 2t + 1 meet x[t]; else the first halves of four meet x[2t], the others
 * x[2t + 1]. */
SL_INLINE void sl_row_prepare32(const char *act, size_t n_cols, size_t i, int in_order, int offset,
                                sl_row_x32 *x)
{
    const size_t n = n_cols / 32 - i < 16 ? n_cols / 32 - i : 16;
    const __mmask16 some = (__mmask16)((1u << n) - 1);
    const char *q = act + 32 * i, *d = act + n_cols + 4 * i;
    memset(x, 0, sizeof *x);
    x->some = some;
    x->d = _mm512_maskz_loadu_ps(some, d);
    x->sum = _mm512_mullo_epi32(_mm512_maskz_loadu_epi32(some, d + n_cols / 32 * 4),
                                _mm512_set1_epi32(offset));
    if (in_order)
        memcpy(x->x, q, 32 * n);
    else
        for (size_t b = 0; b < n; b++) {
            memcpy((char *)&x->x[b / 4 * 2] + b % 4 * 16, q + 32 * b, 16);
            memcpy((char *)&x->x[b / 4 * 2 + 1] + b % 4 * 16, q + 32 * b + 16, 16);
        }
}

/* ---- Pieces of rows: four blocks of 256, sixteen blocks of 32; a row's last may be short ----
 *
 * Or, when blocks of 256 do not come in fours and rows follow each other without a gap, pieces of
 * all rows as of one: after a few rows a piece begins where a row does, and meets the activations
 * of the first piece again. Experts are so: 768 columns, or 512. */

typedef struct sl_row_walk {
    const uint8_t *p, *end; /* of the matrix */
    size_t piece, n_pieces, piece_bytes, last_bytes;
} sl_row_walk;

SL_INLINE void sl_row_next(sl_row_walk *k)
{
    const int is_last = k->piece + 1 == k->n_pieces;
    k->p += is_last ? k->last_bytes : k->piece_bytes;
    k->piece = is_last ? 0 : k->piece + 1;
}

/* The piece, which may be read whole: a short one is followed by the next row, but not the last
 * row's, which is copied. Beyond the last row: anything. */
SL_INLINE const uint8_t *sl_row_piece(const sl_row_walk *k, uint8_t *copy)
{
    const size_t left = k->p < k->end ? (size_t)(k->end - k->p) : 0;
    if (left >= k->piece_bytes)
        return k->p;
    memcpy(copy, k->p, left);
    return copy;
}

SL_INLINE void sl_row_fetch(const uint8_t *p, size_t bytes)
{
    SL_UNROLL
    for (size_t at = 0; at < bytes; at += 64)
        _mm_prefetch((const char *)((uintptr_t)p + SL_ROW_AHEAD + at), _MM_HINT_T0);
}

/* ---- The float steps ---- */

/* Sums of a group of rows: block i of row r at r * stride + i. */
typedef struct sl_row_table {
    float *isum, *d, *msum, *dmin;
    size_t stride;
} sl_row_table;

SL_INLINE sl_row_table sl_row_table_at(float *p, size_t stride, size_t n_rows)
{
    const size_t n = n_rows * stride;
    return (sl_row_table){p, p + n, p + 2 * n, p + 3 * n, stride};
}

/* A full table, whose sums are added a few blocks at a time while the next one is filled: memory
 * would rest meanwhile. */
typedef struct sl_row_pending {
    sl_row_table t;
    size_t at, n_blocks;
    float *y;
    __m512 acc;
    __mmask16 lanes;
} sl_row_pending;

/* Types of 256 have sixteen rows in a table. Blocks at .. at + 3 of all. */
SL_INLINE void sl_row_turn_table(const float *p, size_t stride, __m512i v[4])
{
    SL_UNROLL
    for (size_t r = 0; r < 4; r++)
        v[r] = sl_load_4x16(p + r * stride, 4 * stride * sizeof *p);
    sl_turn_words(v);
}

SL_INLINE void sl_row_add256(sl_row_pending *f, int has_dmin)
{
    __m512i isum[4], d[4], msum[4], dmin[4];
    sl_row_turn_table(f->t.isum + f->at, f->t.stride, isum);
    sl_row_turn_table(f->t.d + f->at, f->t.stride, d);
    if (has_dmin) {
        sl_row_turn_table(f->t.msum + f->at, f->t.stride, msum);
        sl_row_turn_table(f->t.dmin + f->at, f->t.stride, dmin);
    }
    SL_UNROLL
    for (size_t k = 0; k < 4; k++) {
        if (f->at + k >= f->n_blocks)
            break;
        f->acc = _mm512_fmadd_ps(_mm512_castsi512_ps(d[k]), _mm512_castsi512_ps(isum[k]), f->acc);
        if (has_dmin)
            f->acc = _mm512_fnmadd_ps(_mm512_castsi512_ps(dmin[k]), _mm512_castsi512_ps(msum[k]),
                                      f->acc);
    }
    f->at += 4;
}

SL_INLINE __m128 sl_row_quarter(__m512i v, int l)
{
    const __m512 f = _mm512_castsi512_ps(v);
    return l == 0   ? _mm512_castps512_ps128(f)
           : l == 1 ? _mm512_extractf32x4_ps(f, 1)
           : l == 2 ? _mm512_extractf32x4_ps(f, 2)
                    : _mm512_extractf32x4_ps(f, 3);
}

/* Types of 32 have four: more would not fit the first-level cache. Blocks at .. at + 15 of all, of
 * which those past the end of a row have d = 0 and change nothing (no sum is ever -0). */
SL_INLINE void sl_row_add32(sl_row_pending *f)
{
    __m512i isum[4], d[4];
    __m128 acc = _mm512_castps512_ps128(f->acc);
    SL_UNROLL
    for (size_t r = 0; r < 4; r++) {
        isum[r] = sl_load64(f->t.isum + f->at + r * f->t.stride);
        d[r] = sl_load64(f->t.d + f->at + r * f->t.stride);
    }
    sl_turn_words(isum);
    sl_turn_words(d);
    SL_UNROLL
    for (int b = 0; b < 16; b++) /* in 128 bits b / 4 of vector b % 4 */
        acc =
            _mm_fmadd_ps(sl_row_quarter(d[b % 4], b / 4), sl_row_quarter(isum[b % 4], b / 4), acc);
    f->acc = _mm512_castps128_ps512(acc);
    f->at += 16;
}

/* ---- The loops ---- */

/* What the loop knows of a type; constants. */
typedef struct sl_row_form {
    sl_row_unit_fn *unit;   /* a type of 256, or */
    sl_row_chunk_fn *chunk; /* of 32 */
    size_t block_bytes;
    int in_order; /* see sl_row_prepare256(), sl_row_prepare32() */
    int has_dmin, offset;
} sl_row_form;

/* d and dmin of sixteen blocks in order. */
SL_INLINE void sl_row_heads(const sl_row_unit u[4], int has_dmin, __m512 *d, __m512 *dmin)
{
    if (has_dmin) {
        sl_split_halves(
            sl_turn_lanes(_mm512_unpacklo_epi64(_mm512_unpacklo_epi32(u[0].head, u[1].head),
                                                _mm512_unpacklo_epi32(u[2].head, u[3].head))),
            d, dmin);
        return;
    }
    __m512i heads = _mm512_inserti32x4(u[0].head, _mm512_castsi512_si128(u[1].head), 1);
    heads = _mm512_inserti32x4(heads, _mm512_castsi512_si128(u[2].head), 2);
    heads = _mm512_inserti32x4(heads, _mm512_castsi512_si128(u[3].head), 3);
    *dmin = *d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(heads));
}

/* Sixteen blocks: four pieces, of whichever rows. */
SL_INLINE void sl_row_step256(sl_row_form f, int n_x, sl_row_walk *walk, const sl_row_x256 *x,
                              const sl_row_table *t, size_t at)
{
    sl_row_unit u[4];
    const sl_row_x256 *here[4];
    __m512 d, dmin;
    SL_UNROLL
    for (int r = 0; r < 4; r++) {
        uint8_t copy[4 * sizeof(sl_q6_k)];
        const uint8_t *from = sl_row_piece(walk, copy);
        here[r] = x + walk->piece;
        sl_row_fetch(walk->p, 4 * f.block_bytes);
        f.unit(from, here[r], walk->n_pieces, n_x, &u[r]);
        sl_row_next(walk);
    }
    sl_row_heads(u, f.has_dmin, &d, &dmin);
    SL_UNROLL
    for (int b = 0; b < n_x; b++) {
        const size_t step = (size_t)b * walk->n_pieces;
        __m512 dx = _mm512_castps128_ps512(here[0][step].d);
        dx = _mm512_insertf32x4(dx, here[1][step].d, 1);
        dx = _mm512_insertf32x4(dx, here[2][step].d, 2);
        dx = _mm512_insertf32x4(dx, here[3][step].d, 3);
        const __m512i isum[4] = {u[0].isum[b], u[1].isum[b], u[2].isum[b], u[3].isum[b]};
        _mm512_storeu_ps(t[b].isum + at, _mm512_cvtepi32_ps(sl_add_lanes(isum)));
        _mm512_storeu_ps(t[b].d + at, _mm512_mul_ps(d, dx));
        if (!f.has_dmin)
            continue;
        const __m512i msum[4] = {u[0].msum[b], u[1].msum[b], u[2].msum[b], u[3].msum[b]};
        _mm512_storeu_ps(t[b].msum + at, _mm512_cvtepi32_ps(sl_turn_lanes(sl_add_words(msum))));
        _mm512_storeu_ps(t[b].dmin + at, _mm512_mul_ps(dmin, dx));
    }
}

/* Sixteen blocks: a piece. */
SL_INLINE void sl_row_step32(sl_row_form f, sl_row_walk *walk, const sl_row_x32 *x,
                             const sl_row_table *t, size_t at)
{
    uint8_t copy[16 * sizeof(sl_q8_0)];
    const sl_row_x32 *here = x + walk->piece;
    __m512i isum;
    __m512 d;
    sl_row_fetch(walk->p, 16 * f.block_bytes);
    f.chunk(sl_row_piece(walk, copy), here, &isum, &d);
    _mm512_storeu_ps(t->isum + at, _mm512_cvtepi32_ps(isum));
    _mm512_storeu_ps(t->d + at, _mm512_maskz_mul_ps(here->some, d, here->d));
    sl_row_next(walk);
}

/* Activations of all pieces, at the beginning of scratch; returns what follows. */
SL_INLINE void *sl_row_prepare(sl_row_form f, const char *act, size_t act_bytes, int n_x,
                               size_t n_cols, size_t n_pieces, int endless, void *scratch)
{
    sl_row_x256 *x256 = scratch;
    sl_row_x32 *x32 = scratch;
    for (int b = 0; b < n_x; b++, act += act_bytes)
        for (size_t i = 0; i < n_pieces; i++)
            if (f.unit)
                sl_row_prepare256(act, n_cols, 4 * i, f.in_order, endless, x256++);
            else
                sl_row_prepare32(act, n_cols, 16 * i, f.in_order, f.offset, x32++);
    return f.unit ? (void *)x256 : (void *)x32;
}

SL_INLINE void sl_row_add(sl_row_form f, sl_row_pending *p)
{
    if (f.unit)
        sl_row_add256(p, f.has_dmin);
    else
        sl_row_add32(p);
}

SL_INLINE void sl_row_finish(sl_row_form f, sl_row_pending *p)
{
    while (p->at < p->n_blocks)
        sl_row_add(f, p);
    _mm512_mask_storeu_ps(p->y, p->lanes, p->acc);
}

/* See "Pieces of rows". */
SL_INLINE int sl_row_endless(sl_row_form f, size_t n_cols, size_t row_bytes)
{
    return f.unit && n_cols / 256 % 4 && n_cols < SL_ROW_ENDLESS_256 &&
           row_bytes == n_cols / 256 * f.block_bytes;
}

/* n_x: 1, or with a type of 256 up to SL_ROW_MOST_BATCH. */
SL_INLINE void sl_row_mul(sl_row_form f, int n_x, const uint8_t *w, size_t row_bytes, size_t n_rows,
                          size_t n_cols, const char *act, size_t act_bytes, float *y,
                          size_t y_stride, void *scratch)
{
    const size_t values = f.unit ? 256 : 32, per_piece = f.unit ? 4 : 16, group = f.unit ? 16 : 4;
    const size_t n_blocks = n_cols / values, piece_bytes = per_piece * f.block_bytes;
    const int endless = n_x == 1 && sl_row_endless(f, n_cols, row_bytes);
    const size_t n_pieces = !endless       ? (n_blocks + per_piece - 1) / per_piece
                            : n_blocks % 2 ? n_blocks
                                           : n_blocks / 2;
    const size_t stride = endless ? n_blocks : n_pieces * per_piece;
    float *tables = sl_row_prepare(f, act, act_bytes, n_x, n_cols, n_pieces, endless, scratch);
    sl_row_walk walk = {
        w,           w + n_rows * row_bytes,
        0,           n_pieces,
        piece_bytes, endless ? piece_bytes : row_bytes - (n_pieces - 1) * piece_bytes};
    sl_row_pending full[SL_ROW_MOST_BATCH];
    SL_UNROLL
    for (int b = 0; b < n_x; b++)
        full[b] = (sl_row_pending){.y = y};
    int turn = 0;
    for (size_t row = 0; row < n_rows; row += group) {
        const size_t n = n_rows - row < group ? n_rows - row : group;
        sl_row_table t[SL_ROW_MOST_BATCH];
        SL_UNROLL
        for (int b = 0; b < n_x; b++)
            t[b] = sl_row_table_at(tables + (size_t)(n_x * turn + b) * 4 * group * stride, stride,
                                   group);
        for (size_t at = 0; at < n * stride; at += 16) {
            if (f.unit)
                sl_row_step256(f, n_x, &walk, scratch, t, at);
            else
                sl_row_step32(f, &walk, scratch, t, at);
            SL_UNROLL
            for (int b = 0; b < n_x; b++)
                if (at % 64 == (size_t)(16 * b) && full[b].at < full[b].n_blocks)
                    sl_row_add(f, &full[b]);
        }
        SL_UNROLL
        for (int b = 0; b < n_x; b++) {
            sl_row_finish(f, &full[b]);
            full[b] = (sl_row_pending){t[b],
                                       0,
                                       n_blocks,
                                       y + (size_t)b * y_stride + row,
                                       _mm512_setzero_ps(),
                                       (__mmask16)((1u << n) - 1)};
        }
        turn = !turn;
    }
    SL_UNROLL
    for (int b = 0; b < n_x; b++)
        sl_row_finish(f, &full[b]);
}

/* Whether this is the way. Pieces of shorter rows would be mostly empty; activations and tables of
 * longer ones leave the first-level cache, which only types of 256, with fewer sums, make up for.
 * Of those, what opening a piece costs is shared by the activation rows. */
SL_INLINE int sl_row_suits(sl_row_form f, size_t n_cols, size_t row_bytes, size_t n_batch)
{
    if (!f.unit)
        return n_batch == 1 && n_cols >= SL_ROW_LEAST_32 && n_cols <= SL_ROW_MOST_32;
    if (n_batch == 1 && sl_row_endless(f, n_cols, row_bytes))
        return 1;
    if (n_batch == 0 || n_batch > SL_ROW_MOST_BATCH || n_cols < SL_ROW_LEAST_256)
        return 0;
    return n_batch == 1 || n_batch * n_cols <= SL_ROW_MOST_256;
}

/* The product of a type: here or, by mul_type, in avx512_mul.h. */
#define ROW(type, ...)                                                                             \
    static void row_##type(SL_MUL_ARGS)                                                            \
    {                                                                                              \
        const sl_row_form f = {__VA_ARGS__, .block_bytes = sizeof(sl_##type)};                     \
        if (!sl_row_suits(f, n_cols, row_bytes, n_batch))                                          \
            mul_##type(w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride,         \
                       scratch, beside);                                                           \
        else if (n_batch == 1)                                                                     \
            sl_row_mul(f, 1, w, row_bytes, n_rows, n_cols, act, act_bytes, y, y_stride, scratch);  \
        else if (f.unit && n_batch == 2)                                                           \
            sl_row_mul(f, 2, w, row_bytes, n_rows, n_cols, act, act_bytes, y, y_stride, scratch);  \
        else if (f.unit && n_batch == 3)                                                           \
            sl_row_mul(f, 3, w, row_bytes, n_rows, n_cols, act, act_bytes, y, y_stride, scratch);  \
        else if (f.unit)                                                                           \
            sl_row_mul(f, 4, w, row_bytes, n_rows, n_cols, act, act_bytes, y, y_stride, scratch);  \
    }

#endif
