/* Products with weights of one to three bits, AVX-512 VNNI: the types; avx512_mul.h multiplies Q2_K
 * and Q3_K as it does others. The offset of the types below is 1 (Q3_K: 4). */
#include "avx512_few_bits.h"
#include "avx512_mul.h"
#include "levels.h"

TYPE_256(q2_k, .n_scales = 16, .has_dmin = 1)
TYPE_256(q3_k, .n_scales = 16, .is_signed = 1, .offset = 4)

/* ---- TQ1_0, TQ2_0: no scales but d ---- */

typedef struct tile_ones {
    __m512i q[64];
    __m512 d;
} tile_ones;

_Static_assert(CHUNK_TILES * sizeof(tile_ones) <= 256 * SL_MUL_SCRATCH_PER_CHUNK_COL &&
                   CHUNK_TILES * 33 * sizeof(__m512i) <= 128 * SL_MUL_SCRATCH_PER_CHUNK_COL &&
                   CHUNK_TILES * 17 * sizeof(__m512i) <= 64 * SL_MUL_SCRATCH_PER_CHUNK_COL,
               "tiles of a chunk fit the scratch");

/* Less the sum of the block's q. */
SL_INLINE __m512i less_sum256(acts a, int c, size_t i)
{
    const char *sums = a.first + (size_t)c * a.stride + sl_act_q8_256_sums_at(a.n_cols) +
                       a.n_cols / 16 * 2 + 16 * i;
    __m512i sum = _mm512_setzero_si512();
    SL_UNROLL
    for (int p = 0; p < 4; p++)
        sum = _mm512_dpwssd_epi32(sum, _mm512_set1_epi16(-1), broadcast32(sums + 4 * p));
    return sum;
}

SL_INLINE __m512 add_ones(__m512 d, acts a, int c, size_t i, __m512i isum, __m512 acc)
{
    const __m512 dx = broadcast_float(a.first + (size_t)c * a.stride + a.n_cols + 4 * i);
    return _mm512_fmadd_ps(_mm512_mul_ps(d, dx), _mm512_cvtepi32_ps(isum), acc);
}

SL_INLINE void multiply_ones(const void *tiles, int n_tiles, acts a, int n_x, size_t i,
                             size_t i_tile, __m512 acc[MAX_COLS][MAX_TILES])
{
    const tile_ones *t = (const tile_ones *)tiles + i_tile * (size_t)n_tiles;
    __m512i isum[MAX_COLS][MAX_TILES];
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++)
        isum[c][r] = less_sum256(a, c, i);
    for (int k = 0; k < 64; k += 8) {
        const __m512i *q[MAX_TILES];
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            q[r] = t[r].q + k;
        add_products(q, n_tiles, a.first + 256 * i + 4 * (size_t)k, a.stride, n_x, 8, isum);
    }
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++)
        acc[c][r] = add_ones(t[r].d, a, c, i, isum[c][r], acc[c][r]);
}

SL_INLINE void open_tq2_0(const sl_rows16 *w, size_t i, void *tile)
{
    tile_ones *t = tile;
    for (size_t part = 0; part < 4; part++) {
        __m512i q[16];
        sl_part_fields(w, i * sizeof(sl_tq2_0), part, q);
        SL_UNROLL
        for (size_t k = 0; k < 16; k++)
            t->q[32 * (part / 2) + 8 * (k / 4) + 4 * (part % 2) + k % 4] = q[k];
    }
    t->d = sl_halves(w, i * sizeof(sl_tq2_0) + 64);
}

/* Fields stay where they are in a byte: each place has a sum of its own, 4^n times too large. */
SL_INLINE void direct_tq2_0(const sl_rows16 *w, uintptr_t next, size_t next_step, acts a, int n_x,
                            size_t i, __m512 acc[MAX_COLS][MAX_TILES])
{
    const size_t at = i * sizeof(sl_tq2_0);
    __m512i sum[MAX_COLS][4];
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int n = 0; n < 4; n++)
        sum[c][n] = _mm512_setzero_si512();
    SL_UNROLL
    for (size_t part = 0; part < 4; part++) {
        const char *x = a.first + 256 * i + 128 * (part / 2) + 16 * (part % 2);
        __m512i words[4];
        fetch_ahead(next + part * next_step, 4 * sizeof(sl_tq2_0));
        sl_words(w, at + sl_field_bytes(part), words);
        SL_UNROLL
        for (int k = 0; k < 4; k++)
            SL_UNROLL
        for (int n = 0; n < 4; n++) {
            const __m512i q = _mm512_and_si512(words[k], _mm512_set1_epi8((char)(3u << 2 * n)));
            SL_UNROLL
            for (int c = 0; c < n_x; c++)
                sum[c][n] = _mm512_dpbusd_epi32(
                    sum[c][n], q, broadcast32(x + (size_t)c * a.stride + 32 * n + 4 * k));
        }
    }
    const __m512 d = sl_halves(w, at + 64);
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        __m512i isum = _mm512_add_epi32(less_sum256(a, c, i), sum[c][0]);
        SL_UNROLL
        for (unsigned n = 1; n < 4; n++)
            isum = _mm512_add_epi32(isum, _mm512_srai_epi32(sum[c][n], 2 * n));
        acc[c][0] = add_ones(d, a, c, i, isum, acc[c][0]);
    }
}

SL_INLINE void multiply_tq2_0(const void *tiles, int n_tiles, acts a, int n_x, size_t i,
                              size_t i_tile, __m512 acc[MAX_COLS][MAX_TILES])
{
    multiply_ones(tiles, n_tiles, a, n_x, i, i_tile, acc);
}

MUL(tq2_0, 256, sizeof(tile_ones), 0)

SL_INLINE void open_tq1_0(const sl_rows16 *w, size_t i, void *tile)
{
    tile_ones *t = tile;
    sl_digits_tq1_0(w, i, t->q);
    t->d = sl_halves(w, i * sizeof(sl_tq1_0) + 52);
}

/* Digit n of rests r is (3 r[n] - r[n+1]) / 256, so rests are multiplied instead of digits: with
 * the columns of their own digit, and with those of the digit before. */
typedef struct rests {
    __m512i own[MAX_COLS], before[MAX_COLS];
} rests;

/* The n_digits values of a word; x: of the first digit, step to the next one's. */
SL_INLINE void add_rests(rests *s, __m512i r, int n_digits, const char *x, size_t step,
                         size_t stride, int n_x)
{
    SL_UNROLL
    for (int n = 0; n < n_digits; n++) {
        const __m512i next = sl_next_rest(r);
        SL_UNROLL
        for (int c = 0; c < n_x; c++) {
            const __m512i four = broadcast32(x + (size_t)c * stride + (size_t)n * step);
            s->own[c] = _mm512_dpbusd_epi32(s->own[c], r, four);
            s->before[c] = _mm512_dpbusd_epi32(s->before[c], next, four);
        }
        r = next;
    }
}

SL_INLINE void direct_tq1_0(const sl_rows16 *w, uintptr_t next, size_t next_step, acts a, int n_x,
                            size_t i, __m512 acc[MAX_COLS][MAX_TILES])
{
    const size_t at = i * sizeof(sl_tq1_0);
    const char *x = a.first + 256 * i;
    __m512i words[4];
    const int n_ways = n_x == 1 ? 4 : n_x == 2 ? 2 : 1; /* a chain of all sums takes long */
    rests s[4];
    SL_UNROLL
    for (int way = 0; way < n_ways; way++)
        SL_UNROLL
    for (int c = 0; c < n_x; c++)
        s[way].own[c] = s[way].before[c] = _mm512_setzero_si512();
    SL_UNROLL
    for (size_t part = 0; part < 3; part++) {
        fetch_ahead(next + part * next_step, 4 * sizeof(sl_tq1_0));
        sl_words(w, at + 16 * part, words);
        SL_UNROLL
        for (int k = 0; k < 4; k++)
            add_rests(&s[k % n_ways], words[k], 5, x + sl_tq1_column(part, 0, (size_t)k),
                      part < 2 ? 32 : 16, a.stride, n_x);
    }
    fetch_ahead(next + 3 * next_step, 4 * sizeof(sl_tq1_0));
    sl_words(w, at + 36, words);
    add_rests(s, words[3], 4, x + 240, 4, a.stride, n_x);
    const __m512 d = sl_halves(w, at + 52);
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        SL_UNROLL
        for (int way = 1; way < n_ways; way++) {
            s[0].own[c] = _mm512_add_epi32(s[0].own[c], s[way].own[c]);
            s[0].before[c] = _mm512_add_epi32(s[0].before[c], s[way].before[c]);
        }
        const __m512i thrice = _mm512_add_epi32(s[0].own[c], _mm512_slli_epi32(s[0].own[c], 1));
        const __m512i digits = _mm512_srai_epi32(_mm512_sub_epi32(thrice, s[0].before[c]), 8);
        acc[c][0] = add_ones(d, a, c, i, _mm512_add_epi32(digits, less_sum256(a, c, i)), acc[c][0]);
    }
}

SL_INLINE void multiply_tq1_0(const void *tiles, int n_tiles, acts a, int n_x, size_t i,
                              size_t i_tile, __m512 acc[MAX_COLS][MAX_TILES])
{
    multiply_ones(tiles, n_tiles, a, n_x, i, i_tile, acc);
}

MUL(tq1_0, 256, sizeof(tile_ones), 0)

/* ---- Q1_0, Q2_0: a block is four or two of the activations' ----
 *
 * A tile is the vectors of the parts, then d. */

SL_INLINE __m512i less_sum32(acts a, int c, size_t j)
{
    const char *sums = a.first + (size_t)c * a.stride + sl_act_q8_32_sums_at(a.n_cols);
    return _mm512_sub_epi32(_mm512_setzero_si512(), broadcast32(sums + 4 * j));
}

SL_INLINE void multiply_parts(size_t n_parts, const __m512i *t, int n_tiles, acts a, int n_x,
                              size_t i, __m512 acc[MAX_COLS][MAX_TILES])
{
    for (size_t p = 0; p < n_parts; p++) {
        const size_t j = i * n_parts + p;
        const __m512i *q[MAX_TILES];
        __m512i sum[MAX_COLS][MAX_TILES];
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            q[r] = t + (size_t)r * (8 * n_parts + 1) + 8 * p;
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            sum[c][r] = less_sum32(a, c, j);
        add_products(q, n_tiles, a.first + 32 * j, a.stride, n_x, 8, sum);
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            SL_UNROLL
        for (int r = 0; r < n_tiles; r++) {
            const __m512 d = _mm512_castsi512_ps(t[(size_t)r * (8 * n_parts + 1) + 8 * n_parts]);
            acc[c][r] = add_ones(d, a, c, j, sum[c][r], acc[c][r]);
        }
    }
}

/* Activations in the order of bits: bit k of the four bytes of a word belongs to columns k, k + 8,
 * k + 16, k + 24. */
static void order_of_bits(const char *x, char *out)
{
    const __m128i pairs = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    const __m128i a = _mm_shuffle_epi8(sl_load16((const uint8_t *)x), pairs);
    const __m128i b = _mm_shuffle_epi8(sl_load16((const uint8_t *)x + 16), pairs);
    _mm_storeu_si128((__m128i *)(void *)out, _mm_unpacklo_epi16(a, b));
    _mm_storeu_si128((__m128i *)(void *)(out + 16), _mm_unpackhi_epi16(a, b));
}

/* Likewise: field k of a word belongs to columns k, k + 4, k + 8, k + 12. */
static void order_of_fields(const char *x, char *out)
{
    const __m128i fours = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (int h = 0; h < 32; h += 16)
        _mm_storeu_si128((__m128i *)(void *)(out + h),
                         _mm_shuffle_epi8(sl_load16((const uint8_t *)x + h), fours));
}

SL_INLINE void open_q1_0(const sl_rows16 *w, size_t i, void *tile)
{
    __m512i *t = tile;
    sl_bits_q1_0(w, i, t);
    t[32] = _mm512_castps_si512(sl_halves(w, i * sizeof(sl_q1_0)));
}

SL_INLINE void multiply_q1_0(const void *tiles, int n_tiles, acts a, int n_x, size_t i,
                             size_t i_tile, __m512 acc[MAX_COLS][MAX_TILES])
{
    multiply_parts(4, (const __m512i *)tiles + 33 * i_tile * (size_t)n_tiles, n_tiles, a, n_x, i,
                   acc);
}

/* a: in the order of bits. */
SL_INLINE void direct_q1_0(const sl_rows16 *w, uintptr_t next, size_t next_step, acts a, int n_x,
                           size_t i, __m512 acc[MAX_COLS][MAX_TILES])
{
    const __m512 d = sl_halves(w, i * sizeof(sl_q1_0));
    __m512i words[4];
    fetch_ahead(next, 16 * sizeof(sl_q1_0));
    sl_words(w, i * sizeof(sl_q1_0) + 2, words);
    SL_UNROLL
    for (size_t p = 0; p < 4; p++) {
        __m512i sum[MAX_COLS];
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            sum[c] = less_sum32(a, c, 4 * i + p);
        SL_UNROLL
        for (unsigned k = 0; k < 8; k++) {
            const __m512i twice = _mm512_and_si512(sl_bit_to(words[p], k, 1), _mm512_set1_epi8(2));
            SL_UNROLL
            for (int c = 0; c < n_x; c++)
                sum[c] = _mm512_dpbusd_epi32(
                    sum[c], twice,
                    broadcast32(a.first + (size_t)c * a.stride + 128 * i + 32 * p + 4 * k));
        }
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            acc[c][0] = add_ones(d, a, c, 4 * i + p, sum[c], acc[c][0]);
    }
}

MUL(q1_0, 128, 33 * sizeof(__m512i), 0)

SL_INLINE void open_q2_0(const sl_rows16 *w, size_t i, void *tile)
{
    __m512i *t = tile;
    sl_fields_q2_0(w, i, t);
    t[16] = _mm512_castps_si512(sl_halves(w, i * sizeof(sl_q2_0)));
}

SL_INLINE void multiply_q2_0(const void *tiles, int n_tiles, acts a, int n_x, size_t i,
                             size_t i_tile, __m512 acc[MAX_COLS][MAX_TILES])
{
    multiply_parts(2, (const __m512i *)tiles + 17 * i_tile * (size_t)n_tiles, n_tiles, a, n_x, i,
                   acc);
}

/* a: in the order of fields. */
SL_INLINE void direct_q2_0(const sl_rows16 *w, uintptr_t next, size_t next_step, acts a, int n_x,
                           size_t i, __m512 acc[MAX_COLS][MAX_TILES])
{
    const __m512 d = sl_halves(w, i * sizeof(sl_q2_0));
    __m512i words[4];
    fetch_ahead(next, 16 * sizeof(sl_q2_0));
    sl_words(w, i * sizeof(sl_q2_0) + 2, words);
    SL_UNROLL
    for (size_t p = 0; p < 2; p++) {
        __m512i sum[MAX_COLS];
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            sum[c] = less_sum32(a, c, 2 * i + p);
        SL_UNROLL
        for (unsigned k = 0; k < 8; k++) {
            const __m512i q = sl_two_bits(words[2 * p + k / 4], k % 4);
            SL_UNROLL
            for (int c = 0; c < n_x; c++)
                sum[c] = _mm512_dpbusd_epi32(
                    sum[c], q,
                    broadcast32(a.first + (size_t)c * a.stride + 64 * i + 32 * p + 4 * k));
        }
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            acc[c][0] = add_ones(d, a, c, 2 * i + p, sum[c], acc[c][0]);
    }
}

MUL(q2_0, 64, 17 * sizeof(__m512i), 0)

/* Few activation rows are put in the order that direct_ wants. */
#define REORDERED(type, order)                                                                     \
    static void mul_reordered_##type(SL_MUL_ARGS)                                                  \
    {                                                                                              \
        if (n_batch <= DIRECT_COLS) {                                                              \
            reorder(order, act, act_bytes, n_batch, n_cols, scratch);                              \
            act = scratch;                                                                         \
        }                                                                                          \
        mul_##type(w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,    \
                   beside);                                                                        \
    }
REORDERED(q1_0, order_of_bits)
REORDERED(q2_0, order_of_fields)

void sl_kernels_fill_avx512_few_bits(sl_kernels *k)
{
    k->mul[SL_W_Q2_K] = mul_q2_k;
    k->mul[SL_W_Q3_K] = mul_q3_k;
    k->mul[SL_W_TQ1_0] = mul_tq1_0;
    k->mul[SL_W_TQ2_0] = mul_tq2_0;
    k->mul[SL_W_Q1_0] = mul_reordered_q1_0;
    k->mul[SL_W_Q2_0] = mul_reordered_q2_0;
}
