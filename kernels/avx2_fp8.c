/* Products with FP8 weights, AVX2: two registers hold the 16 lanes of one output, for the tile and
 * for the row, as scalar_layouts.c defines them. */
#include "levels.h"
#include "lanes.h"
#include "quant.h"
#include "scales.h"

#include <immintrin.h>

#define SL_INLINE static inline __attribute__((always_inline))
/* Tiles of constant size have to be unrolled whole, or their sums live in memory. */
#if defined(__clang__)
#define SL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SL_UNROLL _Pragma("GCC unroll 16")
#endif

enum { GEMV_ROWS = 4, OPEN_ROWS = 4, BATCH = 3 };
_Static_assert(OPEN_ROWS * sizeof(float) <= SL_MUL_SCRATCH_PER_COL, "the opened rows fit scratch");

/* Sixteen bytes to floats: a byte's exponent and mantissa are those of a half that is 2^8 smaller,
 * its sign extended is that half's sign. 0x7f and 0xff become NaN. */
SL_INLINE void open16(const uint8_t *p, __m256 out[2])
{
    const __m256i magnitude = _mm256_set1_epi16(0x3f80);
    const __m256 up = _mm256_set1_ps(256.0f);
    const __m256i bytes = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p));
    const __m256i shifted = _mm256_slli_epi16(bytes, 7);
    const __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(shifted, magnitude), magnitude);
    const __m256i half =
        _mm256_or_si256(_mm256_and_si256(shifted, _mm256_set1_epi16((short)0xbf80)), nan);
    out[0] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), up);
    out[1] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), up);
}

/* The last n < 16 columns; whole sixteens, so that nothing past the end is read. */
SL_INLINE void open_some(const uint8_t *p, size_t n, __m256 out[2])
{
    uint8_t bytes[16] = {0};
    memcpy(bytes, p, n);
    open16(bytes, out);
}

SL_INLINE __m256 load_floats(const float *p, size_t n)
{
    float v[8] = {0};
    memcpy(v, p, (n < 8 ? n : 8) * sizeof *p);
    return _mm256_loadu_ps(v);
}

/* Lanes past the end stay as they are: adding 0 would turn -0 into 0. */
SL_INLINE __m256 add_some(__m256 w, __m256 x, __m256 lane, size_t n)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i in = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n < 8 ? n : 8)), index);
    return _mm256_blendv_ps(lane, _mm256_fmadd_ps(w, x, lane), _mm256_castsi256_ps(in));
}

SL_INLINE float sum16(__m256 low, __m256 high)
{
    const __m256 s = _mm256_add_ps(low, high);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

typedef struct product {
    const uint8_t *w;
    size_t row_bytes, n_rows, n_cols;
    const char *act;
    size_t act_bytes, n_batch;
    float *y;
    size_t y_stride;
    float *opened; /* scratch: OPEN_ROWS rows of n_cols floats */
    const sl_scales *s;
} product;

SL_INLINE const float *x_of(const product *p, size_t b)
{
    return (const float *)(const void *)(p->act + b * p->act_bytes);
}

/* Scales of row r. */
SL_INLINE const void *scales_of(const product *p, size_t r)
{
    return (const char *)p->s->scale + sl_scales_at(p->s, r);
}

/* R rows from r up times B activation rows from b up. opened: the rows' floats are in scratch;
 * otherwise bytes are opened as they are read, and those of the next rows fetched. */
SL_INLINE void multiply(const product *p, const int R, const int B, int opened, size_t r, size_t b)
{
    const uint8_t *w = p->w + r * p->row_bytes;
    const size_t group = p->s->group < p->n_cols ? p->s->group : p->n_cols;
    __m256 total[6][2];
    SL_UNROLL
    for (int i = 0; i < R * B; i++)
        total[i][0] = total[i][1] = _mm256_setzero_ps();
    for (size_t c = 0, g = 0; c < p->n_cols; c += group, g++) {
        const size_t end = p->n_cols - c < group ? p->n_cols : c + group;
        __m256 lane[6][2];
        size_t at = c;
        SL_UNROLL
        for (int i = 0; i < R * B; i++)
            lane[i][0] = lane[i][1] = _mm256_setzero_ps();
        for (; at + 16 <= end; at += 16) {
            __m256 x[BATCH][2];
            SL_UNROLL
            for (int j = 0; j < B; j++) {
                x[j][0] = _mm256_loadu_ps(x_of(p, b + (size_t)j) + at);
                x[j][1] = _mm256_loadu_ps(x_of(p, b + (size_t)j) + at + 8);
            }
            SL_UNROLL
            for (int i = 0; i < R; i++) {
                __m256 v[2];
                if (opened) {
                    const float *f = p->opened + (r % OPEN_ROWS + (size_t)i) * p->n_cols + at;
                    v[0] = _mm256_loadu_ps(f);
                    v[1] = _mm256_loadu_ps(f + 8);
                } else {
                    const uint8_t *from = w + (size_t)i * p->row_bytes + at;
                    if (at % 64 < 16)
                        _mm_prefetch((const char *)((uintptr_t)from + GEMV_ROWS * p->row_bytes),
                                     _MM_HINT_T0);
                    open16(from, v);
                }
                SL_UNROLL
                for (int j = 0; j < B; j++) {
                    lane[i * B + j][0] = _mm256_fmadd_ps(v[0], x[j][0], lane[i * B + j][0]);
                    lane[i * B + j][1] = _mm256_fmadd_ps(v[1], x[j][1], lane[i * B + j][1]);
                }
            }
        }
        if (at < end) {
            const size_t n = end - at, n_high = n < 8 ? 0 : n - 8;
            for (int i = 0; i < R; i++) {
                __m256 v[2];
                open_some(w + (size_t)i * p->row_bytes + at, n, v);
                for (int j = 0; j < B; j++) {
                    const float *x = x_of(p, b + (size_t)j) + at;
                    __m256 *l = lane[i * B + j];
                    l[0] = add_some(v[0], load_floats(x, n), l[0], n);
                    if (n_high)
                        l[1] = add_some(v[1], load_floats(x + 8, n_high), l[1], n_high);
                }
            }
        }
        SL_UNROLL
        for (int i = 0; i < R; i++) {
            const __m256 d =
                _mm256_set1_ps(sl_scale_load(p->s->type, scales_of(p, r + (size_t)i), g));
            SL_UNROLL
            for (int k = i * B; k < (i + 1) * B; k++) {
                total[k][0] = _mm256_fmadd_ps(lane[k][0], d, total[k][0]);
                total[k][1] = _mm256_fmadd_ps(lane[k][1], d, total[k][1]);
            }
        }
    }
    SL_UNROLL
    for (int i = 0; i < R * B; i++)
        p->y[(b + (size_t)(i % B)) * p->y_stride + r + (size_t)(i / B)] =
            sum16(total[i][0], total[i][1]);
}

static void multiply_one(const product *p)
{
    size_t r = 0;
    for (; r + GEMV_ROWS <= p->n_rows; r += GEMV_ROWS)
        multiply(p, GEMV_ROWS, 1, 0, r, 0);
    for (; r < p->n_rows; r++)
        multiply(p, 1, 1, 0, r, 0);
}

/* Whole sixteens of each tile; what is left is opened from the bytes. */
static void open_rows(const product *p, size_t r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *w = p->w + (r + i) * p->row_bytes;
        float *out = p->opened + i * p->n_cols;
        for (size_t c = 0; c + 16 <= p->n_cols; c += 16) {
            __m256 v[2];
            open16(w + c, v);
            _mm256_storeu_ps(out + c, v[0]);
            _mm256_storeu_ps(out + c + 8, v[1]);
        }
    }
}

/* Four rows are opened once for all activation rows. With 16 registers, six outputs of two leave
 * room for the operands. */
static void multiply_many(const product *p)
{
    size_t r = 0;
    for (; r + OPEN_ROWS <= p->n_rows; r += OPEN_ROWS) {
        open_rows(p, r, OPEN_ROWS);
        size_t b = 0;
        for (; b + 3 <= p->n_batch; b += 3)
            for (size_t i = 0; i < OPEN_ROWS; i += 2)
                multiply(p, 2, 3, 1, r + i, b);
        for (; b < p->n_batch; b++)
            multiply(p, 4, 1, 1, r, b);
    }
    for (; r < p->n_rows; r++)
        for (size_t b = 0; b < p->n_batch; b++)
            multiply(p, 1, 1, 0, r, b);
}

static void mul_fp8(SL_MUL_ARGS)
{
    const product p = {w,       row_bytes, n_rows,   n_cols,  act,   act_bytes,
                       n_batch, y,         y_stride, scratch, beside};
    if (n_batch == 1)
        multiply_one(&p);
    else
        multiply_many(&p);
}

static void dequantize_fp8(SL_DEQUANTIZE_ARGS)
{
    const uint8_t *bytes = w;
    const size_t group = beside->group < n_cols ? beside->group : n_cols;
    for (size_t c = 0, g = 0; c < n_cols; c += group, g++) {
        const size_t end = n_cols - c < group ? n_cols : c + group;
        const float scale = sl_scale_load(beside->type, beside->scale, g);
        size_t at = c;
        for (; at + 16 <= end; at += 16) {
            __m256 v[2];
            open16(bytes + at, v);
            _mm256_storeu_ps(y + at, _mm256_mul_ps(v[0], _mm256_set1_ps(scale)));
            _mm256_storeu_ps(y + at + 8, _mm256_mul_ps(v[1], _mm256_set1_ps(scale)));
        }
        for (; at < end; at++)
            y[at] = sl_e4m3_to_float(bytes[at]) * scale;
    }
}

void sl_kernels_fill_avx2_fp8(sl_kernels *k)
{
    k->mul[SL_W_FP8] = mul_fp8;
    k->dequantize[SL_W_FP8] = dequantize_fp8;
}
