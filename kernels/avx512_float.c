/* scalar_float.c, sixteen values at a time; ends of rows are masked. */
#include "avx512_dot.h"
#include "levels.h"
#include "vec_float.h"
#include "vec_transposed.h"

/* Of weights, in the second-level cache while a batch passes. */
enum { BLOCK_BYTES = 512 << 10 };

/* ---- one activation row ---- */

/* Bytes that are read ahead at least, and bytes of two rows and an activation row with which the
 * rows that follow still fit the first-level cache. */
enum { AHEAD = 12 << 10, PAIR_BYTES = 24 << 10 };

/* Two rows from r up, while the bytes that follow come in in the order of their addresses: rows
 * side by side would be many short visits to the memory's pages. */
SL_INLINE void gemv_pair(sl_weight type, const avx2_rows *t, size_t r)
{
    enum { STEP = 4 * SL_LANES };
    const size_t size = avx2_size_of(type), line = 64;
    const uint8_t *w = t->w + r * t->row_bytes, *v = w + t->row_bytes;
    const uint8_t *next = w + (2 * t->row_bytes > AHEAD ? 2 * t->row_bytes : AHEAD);
    __m512 acc[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    size_t c = 0;
    for (; c + STEP <= t->n_cols; c += STEP, next += 2 * STEP * size) {
        SL_UNROLL
        for (size_t i = 0; i < 2 * STEP * size; i += line)
            _mm_prefetch((const char *)next + i, _MM_HINT_T0);
        SL_UNROLL
        for (size_t at = c; at < c + STEP; at += SL_LANES) {
            const __m512 x = _mm512_loadu_ps(t->x + at);
            acc[0] = _mm512_fmadd_ps(avx512_load(type, w + at * size), x, acc[0]);
            acc[1] = _mm512_fmadd_ps(avx512_load(type, v + at * size), x, acc[1]);
        }
    }
    for (; c < t->n_cols; c += SL_LANES) {
        const size_t left = t->n_cols - c;
        const __mmask16 some = avx512_first(left < SL_LANES ? left : SL_LANES);
        const __m512 x = _mm512_maskz_loadu_ps(some, t->x + c);
        acc[0] = _mm512_mask3_fmadd_ps(avx512_load_some(type, w + c * size, some), x, acc[0], some);
        acc[1] = _mm512_mask3_fmadd_ps(avx512_load_some(type, v + c * size, some), x, acc[1], some);
    }
    t->y[r] = avx512_sum(acc[0]);
    t->y[r + 1] = avx512_sum(acc[1]);
}

/* Long rows as AVX2 has them: for two there is no room, and one alone waits for its sums. (11008
 * columns of bf16 in memory: pairs 33, one row 33, this 39 GB/s of 47; 4096 columns: pairs 47, this
 * 51 of 59; 2048 columns: pairs 50, this 44 of 55.) */
SL_INLINE void gemv(sl_weight type, const avx2_rows *t, size_t n_rows)
{
    const size_t whole = t->n_cols / SL_LANES * SL_LANES;
    size_t r = 0;
    if (2 * t->row_bytes + t->n_cols * sizeof(float) <= PAIR_BYTES)
        for (; r + 2 <= n_rows; r += 2)
            gemv_pair(type, t, r);
    /* So many bytes that one row's sums keep up, and then addresses are in order; for F64 the
       hardware's own prefetches are best. */
    if (type == SL_W_F64 || type == SL_W_F32) {
        for (; r < n_rows; r++)
            avx512_dot_tile(type, 1, 1, t, r, 0, 0, whole, NULL, type == SL_W_F32 ? AHEAD : 0);
        return;
    }
    for (; r + 4 <= n_rows; r += 4)
        avx2_dot_tile(type, 4, 1, t, r, 0, 0, whole, NULL, 4 * t->row_bytes);
    for (; r < n_rows; r++)
        avx512_dot_tile(type, 1, 1, t, r, 0, 0, whole, NULL, 0);
}

SL_INLINE void mul(sl_weight type, SL_MUL_ARGS)
{
    const avx2_rows t = {.w = w,
                         .row_bytes = row_bytes,
                         .x = act,
                         .x_stride = act_bytes / sizeof(float),
                         .n_cols = n_cols,
                         .y = y,
                         .y_stride = y_stride,
                         .stream = true};
    if (n_batch == 1) {
        gemv(type, &t, n_rows);
        return;
    }
    size_t step = row_bytes ? BLOCK_BYTES / row_bytes / 16 * 16 : AVX512_STRIP_ROWS;
    step = step < 16 ? 16 : step > AVX512_STRIP_ROWS ? AVX512_STRIP_ROWS : step;
    for (size_t r = 0; r < n_rows; r += step)
        avx512_dot_block(type, &t, r, r + step < n_rows ? r + step : n_rows, n_batch);
}

static void mul_f32(SL_MUL_ARGS)
{
    mul(SL_W_F32, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,
        beside);
}

static void mul_f16(SL_MUL_ARGS)
{
    mul(SL_W_F16, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,
        beside);
}

static void mul_bf16(SL_MUL_ARGS)
{
    mul(SL_W_BF16, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,
        beside);
}

static void mul_f64(SL_MUL_ARGS)
{
    mul(SL_W_F64, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride, scratch,
        beside);
}

/* ---- rows ---- */

/* Whole vectors, then the rest under a mask: the body sees at, n's index of its first element, and
 * some, the elements that count. */
#define FOR_VECTORS(n)                                                                             \
    for (size_t at = 0; at < (n); at += SL_LANES)                                                  \
        for (__mmask16 some = avx512_first((n)-at < SL_LANES ? (n)-at : SL_LANES), once = 1; once; \
             once = 0)

static void dequantize_f16(SL_DEQUANTIZE_ARGS)
{
    const uint8_t *p = w;
    FOR_VECTORS(n_cols)
    _mm512_mask_storeu_ps(y + at, some, avx512_load_some(SL_W_F16, p + 2 * at, some));
}

static void dequantize_bf16(SL_DEQUANTIZE_ARGS)
{
    const uint8_t *p = w;
    FOR_VECTORS(n_cols)
    _mm512_mask_storeu_ps(y + at, some, avx512_load_some(SL_W_BF16, p + 2 * at, some));
}

void sl_kernels_fill_avx512_float(sl_kernels *k)
{
    k->dequantize[SL_W_F16] = dequantize_f16;
    k->dequantize[SL_W_BF16] = dequantize_bf16;
    k->mul[SL_W_F32] = mul_f32;
    k->mul[SL_W_F16] = mul_f16;
    k->mul[SL_W_BF16] = mul_bf16;
    k->mul[SL_W_F64] = mul_f64;
    vec_fill_rows(k);
    vec_fill_transposed(k);
}
