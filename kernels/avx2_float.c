/* scalar_float.c, eight values at a time. */
#include "avx2_dot.h"
#include "avx2_math.h"
#include "levels.h"

enum {
    BLOCK_BYTES = 256 << 10, /* of weights stay in the second-level cache while a batch passes */
    GEMV_ROWS = 4            /* at a time */
};

/* Prefetches the same place in the next rows: the hardware follows a row, but sees its end too
 * late. (4096 columns of f16 in memory, a Zen 5 core: 24 GB/s without, 38 with.) */
SL_INLINE void gemv(sl_weight type, const avx2_rows *t, size_t n_rows)
{
    const size_t whole = t->n_cols / SL_LANES * SL_LANES, ahead = GEMV_ROWS * t->row_bytes;
    size_t r = 0;
    for (; r + GEMV_ROWS <= n_rows; r += GEMV_ROWS)
        avx2_dot_tile(type, GEMV_ROWS, 1, t, r, 0, 0, whole, NULL, ahead);
    for (; r < n_rows; r++)
        avx2_dot_tile(type, 1, 1, t, r, 0, 0, whole, NULL, 0);
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
    size_t step = row_bytes ? BLOCK_BYTES / row_bytes / 6 * 6 : 30;
    step = step < 12 ? 12 : step > 30 ? 30 : step;
    for (size_t r = 0; r < n_rows; r += step)
        avx2_dot_block(type, &t, r, r + step < n_rows ? r + step : n_rows, n_batch);
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

static float sum_of_squares(const float *x, size_t n)
{
    __m256 lanes[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    size_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES) {
        const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        lanes[0] = _mm256_fmadd_ps(a, a, lanes[0]);
        lanes[1] = _mm256_fmadd_ps(b, b, lanes[1]);
    }
    if (i < n)
        avx2_dot_tail(SL_W_F32, (const uint8_t *)(x + i), x + i, n - i, lanes);
    return avx2_sum(lanes[0], lanes[1]);
}

static void rms_norm(SL_RMS_NORM_ARGS)
{
    const float mean = sum_of_squares(x, n) / (float)n;
    const float scale = 1.0f / sqrtf(mean + eps);
    const __m256 s = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), s);
        _mm256_storeu_ps(y + i, w ? _mm256_mul_ps(v, _mm256_loadu_ps(w + i)) : v);
    }
    for (; i < n; i++)
        y[i] = w ? x[i] * scale * w[i] : x[i] * scale;
}

static void rope_halves(SL_ROPE_ARGS)
{
    const size_t half = n_rot / 2;
    for (size_t h = 0; h < n_heads; h++, x += head_stride) {
        size_t i = 0;
        for (; i + 8 <= half; i += 8) {
            const __m256 c = _mm256_loadu_ps(cosine + i), s = _mm256_loadu_ps(sine + i);
            const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + half + i);
            _mm256_storeu_ps(x + i, _mm256_fnmadd_ps(b, s, _mm256_mul_ps(a, c)));
            _mm256_storeu_ps(x + half + i, _mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c)));
        }
        for (; i < half; i++) {
            const float a = x[i], b = x[half + i];
            x[i] = fmaf(-b, sine[i], a * cosine[i]);
            x[half + i] = fmaf(a, sine[i], b * cosine[i]);
        }
    }
}

/* Four values, each twice. */
static inline __m256 doubled(const float *p)
{
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), twice);
}

static void rope_pairs(SL_ROPE_ARGS)
{
    const __m256 minus = _mm256_setr_ps(-0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f, 0);
    const size_t half = n_rot / 2;
    for (size_t h = 0; h < n_heads; h++, x += head_stride) {
        size_t i = 0;
        for (; i + 4 <= half; i += 4) {
            const __m256 c = doubled(cosine + i), s = _mm256_xor_ps(doubled(sine + i), minus);
            const __m256 ab = _mm256_loadu_ps(x + 2 * i), ba = _mm256_permute_ps(ab, 0xb1);
            _mm256_storeu_ps(x + 2 * i, _mm256_fmadd_ps(ba, s, _mm256_mul_ps(ab, c)));
        }
        for (; i < half; i++) {
            const float a = x[2 * i], b = x[2 * i + 1];
            x[2 * i] = fmaf(-b, sine[i], a * cosine[i]);
            x[2 * i + 1] = fmaf(a, sine[i], b * cosine[i]);
        }
    }
}

static void silu_mul(SL_GLU_ARGS)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(
            y + i, _mm256_mul_ps(avx2_silu(_mm256_loadu_ps(gate + i)), _mm256_loadu_ps(up + i)));
    for (; i < n; i++)
        y[i] = sl_silu(gate[i]) * up[i];
}

static void gelu_mul(SL_GLU_ARGS)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(
            y + i, _mm256_mul_ps(avx2_gelu(_mm256_loadu_ps(gate + i)), _mm256_loadu_ps(up + i)));
    for (; i < n; i++)
        y[i] = sl_gelu(gate[i]) * up[i];
}

static void add(SL_ADD_ARGS)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++)
        y[i] += x[i];
}

static void to_f16(SL_TO_F16_ARGS)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(y + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        y[i] = sl_half_of_float(x[i]);
}

void sl_kernels_fill_avx2_float(sl_kernels *k)
{
    k->mul[SL_W_F32] = mul_f32;
    k->mul[SL_W_F16] = mul_f16;
    k->mul[SL_W_BF16] = mul_bf16;
    k->mul[SL_W_F64] = mul_f64;
    k->rms_norm = rms_norm;
    k->rope_halves = rope_halves;
    k->rope_pairs = rope_pairs;
    k->silu_mul = silu_mul;
    k->gelu_mul = gelu_mul;
    k->add = add;
    k->to_f16 = to_f16;
}
