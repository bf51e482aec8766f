/* Products with quantised weights, AVX2. Rows lie in lanes: a vector holds four columns of eight
 * rows, an activation row is broadcast four columns at a time, and every lane keeps its row's sums.
 * So each output is computed exactly as scalar_quant.c says, whatever the batch.
 *
 * A product of unsigned weight bytes and signed activations adds pairs into 16 bits
 * (_mm256_maddubs_epi16), which must not saturate at 32767. With |q of x| <= 127:
 *
 *   type        weight byte      one pair             sums in 16 bits   most
 *   Q4          0 .. 15          2 * 15 * 127 = 3810        8          30480
 *   Q5          0 .. 31          2 * 31 * 127 = 7874        4          31496
 *   Q6_K        0 .. 63          2 * 63 * 127 = 16002       2          32004
 *   Q8_0        0 .. 128 (|w|)   2 * 128 * 127 = 32512      1          32512
 *
 * The offsets 8, 16 and 32 of Q4_0, Q5_0 and Q6_K are taken off afterwards, times the sums of q.
 * For Q8_0 the sign of w goes to x, which is exact because x is never -128; w = -128 becomes the
 * unsigned byte 128. */
#include "avx2_blocks.h"
#include "avx2_single.h"
#include "levels.h"

/* How a type's tile is multiplied. */
typedef struct form32 {
    int n_in_16;     /* pair sums that fit 16 bits */
    int is_signed;   /* weight bytes are signed */
    int offset_log2; /* of the offset to take off; 0: none */
    int has_m;
} form32;

typedef struct form256 {
    int n_in_16, n_scales, n_mins, has_dmin;
} form256;

SL_INLINE __m256i multiply_pairs(__m256i w, __m256i x, int is_signed)
{
    return is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                     : _mm256_maddubs_epi16(w, x);
}

enum { MAX_TILES = 2, MAX_COLS = 4 };

/* sum[c][r] = 16-bit pair sums of n vectors of tile r times activation row c. */
SL_INLINE void sum_pairs(const __m256i *const q[], int n_tiles, const int8_t *const x[], int n_x,
                         int n, int is_signed, __m256i sum[MAX_COLS][MAX_TILES])
{
    SL_UNROLL
    for (int k = 0; k < n; k++) {
        __m256i w[MAX_TILES];
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            w[r] = q[r][k];
        SL_UNROLL
        for (int c = 0; c < n_x; c++) {
            const __m256i four = sl_broadcast32(x[c] + 4 * k);
            SL_UNROLL
            for (int r = 0; r < n_tiles; r++) {
                const __m256i pairs = multiply_pairs(w[r], four, is_signed);
                sum[c][r] = k ? _mm256_add_epi16(sum[c][r], pairs) : pairs;
                SL_KEEP_ORDER(sum[c][r]);
            }
        }
    }
}

/* acc[c][r] += block i of n_tiles tiles times n_x activation rows. */
SL_INLINE void multiply32(form32 f, const sl_tile32 *t, int n_tiles, const sl_act_q8_32 *x, int n_x,
                          size_t i, __m256 acc[MAX_COLS][MAX_TILES])
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i isum[MAX_COLS][MAX_TILES];
    SL_UNROLL
    for (int k = 0; k < 8; k += f.n_in_16) {
        const __m256i *q[MAX_TILES];
        const int8_t *xq[MAX_COLS];
        __m256i sum[MAX_COLS][MAX_TILES];
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            q[r] = t[r].q + k;
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            xq[c] = x[c].q + 32 * i + 4 * k;
        sum_pairs(q, n_tiles, xq, n_x, f.n_in_16, f.is_signed, sum);
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            SL_UNROLL
        for (int r = 0; r < n_tiles; r++) {
            const __m256i s = _mm256_madd_epi16(sum[c][r], ones);
            isum[c][r] = k ? _mm256_add_epi32(isum[c][r], s) : s;
        }
    }
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        const __m256 dx = _mm256_set1_ps(x[c].d[i]);
        const __m256i sum = _mm256_set1_epi32(x[c].sum[i]);
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++) {
            __m256i s = isum[c][r];
            if (f.offset_log2)
                s = _mm256_sub_epi32(s, _mm256_slli_epi32(sum, f.offset_log2));
            acc[c][r] =
                _mm256_fmadd_ps(_mm256_mul_ps(t[r].d, dx), _mm256_cvtepi32_ps(s), acc[c][r]);
            if (f.has_m)
                acc[c][r] =
                    _mm256_fmadd_ps(_mm256_mul_ps(t[r].m, dx), _mm256_cvtepi32_ps(sum), acc[c][r]);
        }
    }
}

SL_INLINE void multiply256(form256 f, const sl_tile256 *t, int n_tiles, const sl_act_q8_256 *x,
                           int n_x, size_t i, __m256 acc[MAX_COLS][MAX_TILES])
{
    __m256i isum[MAX_COLS][MAX_TILES], msum[MAX_COLS][MAX_TILES];
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++)
        isum[c][r] = msum[c][r] = _mm256_setzero_si256();
    const int per_scale = 64 / f.n_scales; /* vectors of a sub-block */
    for (int j = 0; j < f.n_scales; j++)
        SL_UNROLL
    for (int k = 0; k < per_scale; k += f.n_in_16) {
        const int at = j * per_scale + k;
        const __m256i *q[MAX_TILES];
        const int8_t *xq[MAX_COLS];
        __m256i sum[MAX_COLS][MAX_TILES];
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            q[r] = t[r].q + at;
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            xq[c] = x[c].q + 256 * i + 4 * (size_t)at;
        sum_pairs(q, n_tiles, xq, n_x, f.n_in_16, 0, sum);
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            isum[c][r] = _mm256_add_epi32(isum[c][r], _mm256_madd_epi16(sum[c][r], t[r].scale[j]));
    }
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        const int16_t *sums = f.has_dmin ? x[c].sum32 + 8 * i : x[c].sum16 + 16 * i;
        SL_UNROLL
        for (int p = 0; p < f.n_mins; p++) {
            const __m256i pair = sl_broadcast32(sums + 2 * p);
            SL_UNROLL
            for (int r = 0; r < n_tiles; r++)
                msum[c][r] = _mm256_add_epi32(msum[c][r], _mm256_madd_epi16(t[r].min[p], pair));
        }
        const __m256 dx = _mm256_set1_ps(x[c].d[i]);
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++) {
            __m256i s = isum[c][r];
            if (!f.has_dmin) /* Q6_K: min holds the scales, the offset is 32 */
                s = _mm256_sub_epi32(s, _mm256_slli_epi32(msum[c][r], 5));
            acc[c][r] =
                _mm256_fmadd_ps(_mm256_mul_ps(t[r].d, dx), _mm256_cvtepi32_ps(s), acc[c][r]);
            if (f.has_dmin)
                acc[c][r] = _mm256_fnmadd_ps(_mm256_mul_ps(t[r].dmin, dx),
                                             _mm256_cvtepi32_ps(msum[c][r]), acc[c][r]);
        }
    }
}

SL_INLINE void store_rows(float *y, __m256 v, size_t n)
{
    if (n >= 8) {
        _mm256_storeu_ps(y, v);
        return;
    }
    float lanes[8];
    _mm256_storeu_ps(lanes, v);
    memcpy(y, lanes, n * sizeof *y);
}

/* Eight rows leave the hardware prefetcher with eight streams, which is too many: the next eight
 * rows, which are contiguous, are fetched in order, a piece with each block of these. Addresses
 * past the end of the matrix are harmless. */
SL_INLINE void fetch_ahead(uintptr_t next, size_t i, size_t block_bytes)
{
    for (size_t k = 0; k < 8 * block_bytes; k += 64)
        _mm_prefetch((const char *)(next + i * 8 * block_bytes + k), _MM_HINT_T0);
}

typedef struct product {
    const void *w;
    size_t row_bytes, n_rows, n_cols;
    const char *act;
    size_t act_bytes, n_batch;
    float *y;
    size_t y_stride;
    void *scratch;
} product;

/* What the loops below know of a type. All arguments of this kind are constants where they are
 * used, so that everything is inlined. */
typedef void open_fn(const sl_rows8 *w, size_t i, void *tile);
typedef void multiply_fn(const void *tiles, int n_tiles, const char *act, size_t act_bytes,
                         size_t n_cols, int n_x, size_t i, __m256 acc[MAX_COLS][MAX_TILES]);
typedef __m256 single_fn(const sl_rows8 *w, size_t i, const void *act, size_t n_cols, __m256 acc);
typedef struct form {
    open_fn *open;
    multiply_fn *multiply;
    single_fn *single;
    size_t block_values, block_bytes, tile_bytes;
} form;

SL_INLINE void clear(__m256 acc[MAX_COLS][MAX_TILES], int n_x, int n_tiles)
{
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++)
        acc[c][r] = _mm256_setzero_ps();
}

SL_INLINE void store(const product *p, size_t row, size_t b, __m256 acc[MAX_COLS][MAX_TILES],
                     int n_x, int n_tiles)
{
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++) {
        const size_t at = row + 8 * (size_t)r;
        if (at < p->n_rows)
            store_rows(p->y + (b + (size_t)c) * p->y_stride + at, acc[c][r], p->n_rows - at);
    }
}

/* One activation row: blocks are multiplied as they are opened. */
SL_INLINE void multiply_one(const product *p, form f)
{
    for (size_t row = 0; row < p->n_rows; row += 8) {
        const sl_rows8 rows = sl_rows8_at(p->w, p->row_bytes, row, p->n_rows);
        const uintptr_t next = (uintptr_t)p->w + (row + 8) * p->row_bytes;
        __m256 acc = _mm256_setzero_ps();
        for (size_t i = 0; i < p->n_cols / f.block_values; i++) {
            fetch_ahead(next, i, f.block_bytes);
            acc = f.single(&rows, i, p->act, p->n_cols, acc);
        }
        store_rows(p->y + row, acc, p->n_rows - row);
    }
}

SL_INLINE void open_sixteen(const product *p, form f, size_t row)
{
    const size_t n_blocks = p->n_cols / f.block_values;
    char *tile = p->scratch;
    for (size_t r = 0; r < 16; r += 8) {
        const sl_rows8 rows = sl_rows8_at(p->w, p->row_bytes, row + r, p->n_rows);
        const uintptr_t next = (uintptr_t)p->w + (row + r + 8) * p->row_bytes;
        for (size_t i = 0; i < n_blocks; i++) {
            fetch_ahead(next, i, f.block_bytes);
            f.open(&rows, i, tile + (2 * i + r / 8) * f.tile_bytes);
        }
    }
}

/* The sixteen opened rows times activation rows b .. b+n_x-1. */
SL_INLINE void pass_opened(const product *p, form f, size_t row, size_t b, int n_x)
{
    const char *tiles = p->scratch, *act = p->act + b * p->act_bytes;
    __m256 acc[MAX_COLS][MAX_TILES];
    clear(acc, n_x, 2);
    for (size_t i = 0; i < p->n_cols / f.block_values; i++)
        f.multiply(tiles + 2 * i * f.tile_bytes, 2, act, p->act_bytes, p->n_cols, n_x, i, acc);
    store(p, row, b, acc, n_x, 2);
}

/* Several activation rows: sixteen weight rows are opened once, into scratch. */
SL_INLINE void multiply_many(const product *p, form f)
{
    for (size_t row = 0; row < p->n_rows; row += 16) {
        open_sixteen(p, f, row);
        size_t b = 0;
        for (; b + 4 <= p->n_batch; b += 4)
            pass_opened(p, f, row, b, 4);
        if (p->n_batch - b == 3)
            pass_opened(p, f, row, b, 3);
        else if (p->n_batch - b == 2)
            pass_opened(p, f, row, b, 2);
        else if (p->n_batch - b == 1)
            pass_opened(p, f, row, b, 1);
    }
}

#define MUL(type, values, ...)                                                                     \
    SL_INLINE void open_##type(const sl_rows8 *w, size_t i, void *tile)                            \
    {                                                                                              \
        sl_open_##type(w, i, tile);                                                                \
    }                                                                                              \
    SL_INLINE void multiply_##type(const void *tiles, int n_tiles, const char *act,                \
                                   size_t act_bytes, size_t n_cols, int n_x, size_t i,             \
                                   __m256 acc[MAX_COLS][MAX_TILES])                                \
    {                                                                                              \
        sl_act_q8_##values x[MAX_COLS];                                                            \
        SL_UNROLL                                                                                  \
        for (int c = 0; c < n_x; c++)                                                              \
            x[c] = sl_act_q8_##values##_row(act + (size_t)c * act_bytes, n_cols);                  \
        multiply##values((form##values){__VA_ARGS__}, tiles, n_tiles, x, n_x, i, acc);             \
    }                                                                                              \
    SINGLE_##values(type, __VA_ARGS__) static void mul_##type(SL_MUL_ARGS)                         \
    {                                                                                              \
        const product p = {w,         row_bytes, n_rows, n_cols,   act,                            \
                           act_bytes, n_batch,   y,      y_stride, scratch};                       \
        const form f = {open_##type, multiply_##type,   single_##type,                             \
                        values,      sizeof(sl_##type), sizeof(sl_tile##values)};                  \
        if (n_batch == 1)                                                                          \
            multiply_one(&p, f);                                                                   \
        else                                                                                       \
            multiply_many(&p, f);                                                                  \
    }
/* A tile of 32 columns stays in registers. */
#define SINGLE_32(type, ...)                                                                       \
    SL_INLINE __m256 single_##type(const sl_rows8 *w, size_t i, const void *act, size_t n_cols,    \
                                   __m256 acc)                                                     \
    {                                                                                              \
        const sl_act_q8_32 x = sl_act_q8_32_row(act, n_cols);                                      \
        __m256 sums[MAX_COLS][MAX_TILES] = {{acc}};                                                \
        sl_tile32 tile;                                                                            \
        sl_open_##type(w, i, &tile);                                                               \
        multiply32((form32){__VA_ARGS__}, &tile, 1, &x, 1, i, sums);                               \
        return sums[0][0];                                                                         \
    }
#define SINGLE_256(type, ...)                                                                      \
    SL_INLINE __m256 single_##type(const sl_rows8 *w, size_t i, const void *act, size_t n_cols,    \
                                   __m256 acc)                                                     \
    {                                                                                              \
        return sl_single_##type(w, i, sl_act_q8_256_row(act, n_cols), acc);                        \
    }
MUL(q8_0, 32, .n_in_16 = 1, .is_signed = 1)
MUL(q4_0, 32, .n_in_16 = 8, .offset_log2 = 3)
MUL(q4_1, 32, .n_in_16 = 8, .has_m = 1)
MUL(q5_0, 32, .n_in_16 = 4, .offset_log2 = 4)
MUL(q5_1, 32, .n_in_16 = 4, .has_m = 1)
MUL(q4_k, 256, .n_in_16 = 8, .n_scales = 8, .n_mins = 4, .has_dmin = 1)
MUL(q5_k, 256, .n_in_16 = 4, .n_scales = 8, .n_mins = 4, .has_dmin = 1)
MUL(q6_k, 256, .n_in_16 = 2, .n_scales = 16, .n_mins = 8)

void sl_kernels_fill_avx2_quant(sl_kernels *k)
{
    sl_kernels_fill_avx2_dequant(k);
    k->mul[SL_W_Q8_0] = mul_q8_0;
    k->mul[SL_W_Q4_0] = mul_q4_0;
    k->mul[SL_W_Q4_1] = mul_q4_1;
    k->mul[SL_W_Q5_0] = mul_q5_0;
    k->mul[SL_W_Q5_1] = mul_q5_1;
    k->mul[SL_W_Q4_K] = mul_q4_k;
    k->mul[SL_W_Q5_K] = mul_q5_k;
    k->mul[SL_W_Q6_K] = mul_q6_k;
}
