/* Products with FP8 weights, AVX-512: a register holds the 16 lanes of one output, as
 * scalar_layouts.c defines them. E4M3 numbers are looked up as bfloat16, which holds them exactly,
 * 32 at a time. */
#include "avx512_dot.h"
#include "levels.h"
#include "quant.h"
#include "scales.h"

/* Rows opened at a time, and what a tile of them meets: 24 of 32 registers are sums. */
enum {
    OPEN_ROWS = 12,
    TILE_ROWS = 4,
    BATCH = 6,
    MOST_DIRECT = 3,
    ACT_BYTES = 512 << 10,
    CHUNK_COLS = 512
};
_Static_assert(OPEN_ROWS * sizeof(uint16_t) <= SL_MUL_SCRATCH_PER_COL,
               "the opened rows fit the scratch");

/* bfloat16 of the numbers without a sign, 32 in a part. */
typedef struct numbers {
    __m512i part[4];
} numbers;

SL_INLINE numbers e4m3_numbers(void)
{
    const __m512i first = _mm512_cvtepu8_epi16(
        _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                         21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31));
    /* eighths of 2^-6: 0 to 7 times 2^-9 */
    const __m512i subnormal =
        _mm512_zextsi128_si512(_mm_setr_epi16(0, 118 << 7, 119 << 7, 119 << 7 | 0x40, 120 << 7,
                                              120 << 7 | 0x20, 120 << 7 | 0x40, 120 << 7 | 0x60));
    numbers n;
    SL_UNROLL
    for (short k = 0; k < 4; k++) {
        const __m512i byte = _mm512_add_epi16(first, _mm512_set1_epi16((short)(32 * k)));
        n.part[k] = _mm512_add_epi16(_mm512_slli_epi16(byte, 4), _mm512_set1_epi16(120 << 7));
    }
    n.part[0] = _mm512_mask_mov_epi16(n.part[0], 0xff, subnormal);
    n.part[3] = _mm512_mask_mov_epi16(n.part[3], 1u << 31, _mm512_set1_epi16(0x7fc0));
    return n;
}

/* A byte in each word to a bfloat16. */
SL_INLINE __m512i look_up(const numbers *n, __m512i byte)
{
    const __m512i low = _mm512_permutex2var_epi16(n->part[0], byte, n->part[1]);
    const __m512i high = _mm512_permutex2var_epi16(n->part[2], byte, n->part[3]);
    const __mmask32 bit6 = _mm512_test_epi16_mask(byte, _mm512_set1_epi16(64));
    const __m512i v = _mm512_mask_mov_epi16(low, bit6, high);
    return _mm512_ternarylogic_epi32(v, _mm512_slli_epi16(byte, 8),
                                     _mm512_set1_epi16((short)0x8000), 0xf8);
}

/* 32 numbers; their order is that of the bytes. */
SL_INLINE __m512i open32(const numbers *n, const uint8_t *p)
{
    return look_up(n, _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)p)));
}

SL_INLINE __m256i open_some(const numbers *n, const uint8_t *p, __mmask16 some)
{
    return _mm512_castsi512_si256(
        look_up(n, _mm512_cvtepu8_epi16(_mm256_zextsi128_si256(_mm_maskz_loadu_epi8(some, p)))));
}

typedef struct product {
    const uint8_t *w;
    size_t row_bytes, n_rows, n_cols;
    const char *act;
    size_t act_bytes, n_batch;
    float *y;
    size_t y_stride;
    uint16_t *opened; /* scratch: OPEN_ROWS rows of n_cols */
    const sl_scales *s;
    size_t group; /* columns of a tile of scales, not more than there are */
} product;

SL_INLINE const float *x_of(const product *p, size_t b)
{
    return (const float *)(const void *)(p->act + b * p->act_bytes);
}

/* Where the scales of row r begin. */
SL_INLINE const void *scales_of(const product *p, size_t r)
{
    return (const char *)p->s->scale + sl_scales_at(p->s, r);
}

SL_INLINE __m512 scale_at(const product *p, const void *scales, size_t g)
{
    return _mm512_set1_ps(sl_scale_load(p->s->type, scales, g));
}

SL_INLINE __mmask16 columns_at(size_t c, size_t end)
{
    return end - c < SL_LANES ? avx512_first(end - c) : 0xffff;
}

/* ---- Few activation rows: bytes are opened as they are read ---- */

/* R rows from r up times all B activation rows. The rows that follow come in in the order of their
 * addresses. */
SL_INLINE void multiply_few(const product *p, const numbers *n, const int R, const int B, size_t r)
{
    const __m512i pairs = _mm512_or_si512(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_slli_epi32(
            _mm512_setr_epi32(16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31), 16));
    const uint8_t *w = p->w + r * p->row_bytes;
    const float *x = x_of(p, 0);
    const size_t x_stride = p->act_bytes / sizeof *x;
    uintptr_t next = (uintptr_t)w + (size_t)R * p->row_bytes;
    const void *scales[TILE_ROWS];
    __m512 total[TILE_ROWS * MOST_DIRECT];
    SL_UNROLL
    for (int i = 0; i < R; i++)
        scales[i] = scales_of(p, r + (size_t)i);
    SL_UNROLL
    for (int i = 0; i < R * B; i++)
        total[i] = _mm512_setzero_ps();
    for (size_t from = 0, g = 0; from < p->n_cols; from += p->group, g++) {
        const size_t end = p->n_cols - from < p->group ? p->n_cols : from + p->group;
        __m512 lane[TILE_ROWS * MOST_DIRECT];
        size_t c = from;
        SL_UNROLL
        for (int i = 0; i < R * B; i++)
            lane[i] = _mm512_setzero_ps();
        for (; c + 2 * SL_LANES <= end; c += 2 * SL_LANES, next += 32 * (size_t)R) {
            SL_UNROLL
            for (int i = 0; i < 32 * R; i += 64)
                _mm_prefetch((const char *)next + i, _MM_HINT_T0);
            SL_UNROLL
            for (int i = 0; i < R; i++) {
                const __m512i bytes = _mm512_cvtepu8_epi16(
                    _mm256_loadu_si256((const void *)(w + (size_t)i * p->row_bytes + c)));
                const __m512i v = look_up(n, _mm512_permutexvar_epi16(pairs, bytes));
                const __m512 first = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
                const __m512 second =
                    _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000)));
                SL_UNROLL
                for (int j = 0; j < B; j++) {
                    const float *from_x = x + (size_t)j * x_stride + c;
                    __m512 *l = &lane[i * B + j];
                    *l = _mm512_fmadd_ps(first, _mm512_loadu_ps(from_x), *l);
                    *l = _mm512_fmadd_ps(second, _mm512_loadu_ps(from_x + SL_LANES), *l);
                }
            }
        }
        for (; c < end; c += SL_LANES) {
            const __mmask16 some = columns_at(c, end);
            SL_UNROLL
            for (int i = 0; i < R; i++) {
                const __m512 u =
                    avx512_widen(SL_W_BF16, open_some(n, w + (size_t)i * p->row_bytes + c, some));
                SL_UNROLL
                for (int j = 0; j < B; j++)
                    lane[i * B + j] = _mm512_mask3_fmadd_ps(
                        u, _mm512_maskz_loadu_ps(some, x + (size_t)j * x_stride + c),
                        lane[i * B + j], some);
            }
        }
        SL_UNROLL
        for (int i = 0; i < R; i++) {
            const __m512 scale = scale_at(p, scales[i], g);
            SL_UNROLL
            for (int j = 0; j < B; j++)
                total[i * B + j] = _mm512_fmadd_ps(lane[i * B + j], scale, total[i * B + j]);
        }
    }
    SL_UNROLL
    for (int i = 0; i < R * B; i++)
        p->y[(size_t)(i % B) * p->y_stride + r + (size_t)(i / B)] = avx512_sum(total[i]);
}

SL_INLINE void multiply_direct(const product *p, const numbers *n, const int B)
{
    size_t r = 0;
    for (; r + TILE_ROWS <= p->n_rows; r += TILE_ROWS)
        multiply_few(p, n, TILE_ROWS, B, r);
    for (; r < p->n_rows; r++)
        multiply_few(p, n, 1, B, r);
}

/* ---- Many: rows are opened once ---- */

/* Rows r .. r + n. Matrices may be prefetched past their end. */
SL_INLINE void open_rows(const product *p, const numbers *e4m3, size_t r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *w = p->w + (r + i) * p->row_bytes;
        uint16_t *out = p->opened + i * p->n_cols;
        size_t c = 0;
        for (; c + 32 <= p->n_cols; c += 32) {
            _mm_prefetch((const char *)((uintptr_t)w + OPEN_ROWS * p->row_bytes + c), _MM_HINT_T1);
            _mm512_storeu_si512(out + c, open32(e4m3, w + c));
        }
        for (; c < p->n_cols; c += SL_LANES) {
            const __mmask16 some = columns_at(c, p->n_cols);
            _mm256_mask_storeu_epi16(out + c, some, open_some(e4m3, w + c, some));
        }
    }
}

/* total[i * B + j] += R opened rows times B activation rows in the columns of one tile, number g,
 * of scales. */
SL_INLINE void add_tile(const product *p, const int R, const int B, const uint16_t *w,
                        const void *const *scales, size_t b, size_t from, size_t end, size_t g,
                        __m512 *total)
{
    const float *x = x_of(p, b);
    const size_t x_stride = p->act_bytes / sizeof *x;
    __m512 lane[TILE_ROWS * BATCH];
    size_t c = from;
    SL_UNROLL
    for (int i = 0; i < R * B; i++)
        lane[i] = _mm512_setzero_ps();
    for (; c + SL_LANES <= end; c += SL_LANES) {
        __m512 u[TILE_ROWS];
        SL_UNROLL
        for (int i = 0; i < R; i++)
            u[i] = avx512_load(SL_W_BF16, (const uint8_t *)(w + (size_t)i * p->n_cols + c));
        SL_UNROLL
        for (int j = 0; j < B; j++) {
            const __m512 v = _mm512_loadu_ps(x + (size_t)j * x_stride + c);
            SL_UNROLL
            for (int i = 0; i < R; i++)
                lane[i * B + j] = _mm512_fmadd_ps(u[i], v, lane[i * B + j]);
        }
    }
    if (c < end) {
        const __mmask16 some = columns_at(c, end);
        SL_UNROLL
        for (int i = 0; i < R; i++) {
            const uint8_t *q = (const uint8_t *)(w + (size_t)i * p->n_cols + c);
            const __m512 u = avx512_load_some(SL_W_BF16, q, some);
            SL_UNROLL
            for (int j = 0; j < B; j++)
                lane[i * B + j] = _mm512_mask3_fmadd_ps(
                    u, _mm512_maskz_loadu_ps(some, x + (size_t)j * x_stride + c), lane[i * B + j],
                    some);
        }
    }
    SL_UNROLL
    for (int i = 0; i < R; i++) {
        const __m512 scale = scale_at(p, scales[i], g);
        SL_UNROLL
        for (int j = 0; j < B; j++)
            total[i * B + j] = _mm512_fmadd_ps(lane[i * B + j], scale, total[i * B + j]);
    }
}

/* n opened rows, of which the first is row r, times activation rows b .. b + B: as many columns at
 * a time as stay in the first-level cache. */
SL_INLINE void multiply_opened(const product *p, const int B, size_t r, size_t n, size_t b)
{
    const size_t step = p->group < CHUNK_COLS ? CHUNK_COLS / p->group : 1; /* tiles */
    __m512 total[OPEN_ROWS * BATCH];
    const void *scales[OPEN_ROWS];
    for (size_t i = 0; i < n; i++)
        scales[i] = scales_of(p, r + i);
    for (size_t i = 0; i < n * (size_t)B; i++)
        total[i] = _mm512_setzero_ps();
    for (size_t first = 0; first * p->group < p->n_cols; first += step)
        for (size_t i = 0; i < n; i += n - i < TILE_ROWS ? 1 : TILE_ROWS)
            for (size_t g = first; g < first + step && g * p->group < p->n_cols; g++) {
                const size_t c = g * p->group;
                const size_t end = p->n_cols - c < p->group ? p->n_cols : c + p->group;
                const uint16_t *w = p->opened + i * p->n_cols;
                if (n - i < TILE_ROWS)
                    add_tile(p, 1, B, w, scales + i, b, c, end, g, total + i * (size_t)B);
                else
                    add_tile(p, TILE_ROWS, B, w, scales + i, b, c, end, g, total + i * (size_t)B);
            }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < (size_t)B; j++)
            p->y[(b + j) * p->y_stride + r + i] = avx512_sum(total[i * (size_t)B + j]);
}

/* Twelve rows are too few to read all activations again for them from beyond the second-level
 * cache: rows are opened again for every so many. */
static void multiply_many(const product *p, const numbers *e4m3)
{
    size_t most = ACT_BYTES / (p->act_bytes + 1) / BATCH * BATCH;
    most = most < BATCH ? BATCH : most;
    for (size_t begin = 0; begin < p->n_batch; begin += most) {
        const size_t end = p->n_batch - begin < most ? p->n_batch : begin + most;
        for (size_t r = 0; r < p->n_rows; r += OPEN_ROWS) {
            const size_t n = p->n_rows - r < OPEN_ROWS ? p->n_rows - r : OPEN_ROWS;
            size_t b = begin;
            open_rows(p, e4m3, r, n);
            for (; b + BATCH <= end; b += BATCH)
                multiply_opened(p, BATCH, r, n, b);
            for (; b + 4 <= end; b += 4)
                multiply_opened(p, 4, r, n, b);
            for (; b + 2 <= end; b += 2)
                multiply_opened(p, 2, r, n, b);
            if (b < end)
                multiply_opened(p, 1, r, n, b);
        }
    }
}

static void mul_fp8(SL_MUL_ARGS)
{
    const product p = {
        w,        row_bytes, n_rows,  n_cols,
        act,      act_bytes, n_batch, y,
        y_stride, scratch,   beside,  beside->group < n_cols ? beside->group : n_cols + !n_cols};
    const numbers n = e4m3_numbers();
    if (n_batch == 1)
        multiply_direct(&p, &n, 1);
    else if (n_batch == 2)
        multiply_direct(&p, &n, 2);
    else if (n_batch == 3)
        multiply_direct(&p, &n, 3);
    else
        multiply_many(&p, &n);
}

static void dequantize_fp8(SL_DEQUANTIZE_ARGS)
{
    const numbers n = e4m3_numbers();
    const uint8_t *p = w;
    for (size_t c = 0; c < n_cols; c += SL_LANES) {
        const __mmask16 some = columns_at(c, n_cols);
        const __m512 v = avx512_widen(SL_W_BF16, open_some(&n, p + c, some));
        const float scale = sl_scale_load(beside->type, beside->scale, c / beside->group);
        _mm512_mask_storeu_ps(y + c, some, _mm512_mul_ps(v, _mm512_set1_ps(scale)));
    }
}

void sl_kernels_fill_avx512_fp8(sl_kernels *k)
{
    k->mul[SL_W_FP8] = mul_fp8;
    k->dequantize[SL_W_FP8] = dequantize_fp8;
}
