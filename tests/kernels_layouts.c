/* What this proves, for every weight type whose scales stand beside its blocks, at every level this
 * CPU has: rows dequantise to the values that independent readers give; the scalar products follow
 * the law of docs/adding-a-kernel.md (restated here) and stay within the noise of the activations'
 * form of products in double; every level gives the scalar level's bits, for any shape, first row,
 * alignment and content, and touches nothing but its outputs and scratch. --bench: speed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../kernels/half.h"
#include "../kernels/kernels.h"
#include "../kernels/quant.h"
#include "lib_safetensors.h"
#include "lib_test.h"

static sl_kernels levels[SL_CPU_LEVEL_COUNT];
static int n_levels;

typedef struct golden {
    sl_weight type;
    const char *file, *weight, *scale, *bias;
    size_t n_rows, n_cols;
    sl_scale stored;
    uint32_t group, block_rows;
} golden;

#define DATA(name) "quant/layouts/" name ".safetensors"
static const golden goldens[] = {
    {SL_W_MLX4, DATA("mlx_affine_4bit_g32_f16"), "weight", "scales", "biases", 24, 512,
     SL_SCALE_F16, 32, 1},
    {SL_W_MLX4, DATA("mlx_affine_4bit_g64_bf16"), "weight", "scales", "biases", 24, 512,
     SL_SCALE_BF16, 64, 1},
    {SL_W_MLX4, DATA("mlx_affine_4bit_g128_bf16"), "weight", "scales", "biases", 24, 512,
     SL_SCALE_BF16, 128, 1},
    {SL_W_MLX8, DATA("mlx_affine_8bit_g64_bf16"), "weight", "scales", "biases", 24, 512,
     SL_SCALE_BF16, 64, 1},
    {SL_W_MXFP4_SPLIT, DATA("gptoss_mxfp4"), "blocks", "scales", NULL, 48, 128, SL_SCALE_E8M0, 32,
     1},
    {SL_W_FP8, DATA("fp8_block128_f32"), "weight", "weight_scale_inv", NULL, 200, 320, SL_SCALE_F32,
     128, 128},
    {SL_W_FP8, DATA("fp8_block128_bf16"), "weight", "weight_scale_inv", NULL, 256, 384,
     SL_SCALE_BF16, 128, 128},
    {SL_W_FP8, DATA("fp8_block128_ue8m0"), "weight", "weight_scale_inv", NULL, 130, 257,
     SL_SCALE_E8M0, 128, 128},
    {SL_W_FP8, DATA("fp8_per_row"), "weight", "weight_scale", NULL, 32, 256, SL_SCALE_BF16, 256, 1},
    {SL_W_FP8, DATA("fp8_per_tensor"), "weight", "weight_scale", NULL, 32, 256, SL_SCALE_F32,
     1u << 20, 1u << 20},
};

/* Any NaN equals any NaN. */
static bool same_float(float a, float b)
{
    return sl_bits_of_float(a) == sl_bits_of_float(b) || (isnan(a) && isnan(b));
}

static size_t first_difference(const float *a, const float *b, size_t n)
{
    size_t i = 0;
    while (i < n && same_float(a[i], b[i]))
        i++;
    return i;
}

/* n bytes at an address that is shift more than a multiple of 64, and nothing after them, so that
 * the address sanitizer sees every step beyond. free(*base). */
static void *shifted(size_t n, size_t shift, void **base)
{
    *base = NULL;
    if (posix_memalign(base, 64, n + shift + (n + shift == 0))) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    memset(*base, 0, n + shift);
    return (char *)*base + shift;
}

/* ---- A matrix of any of the types ---- */

typedef struct matrix {
    sl_weight type;
    size_t n_rows, n_cols, row_bytes;
    const uint8_t *w;
    sl_scales s;
    size_t bytes_of_scales;
} matrix;

static size_t tiles(size_t n, uint32_t per)
{
    return (n + per - 1) / per;
}

static size_t stored_size(sl_scale s)
{
    return s == SL_SCALE_F32 ? 4 : s == SL_SCALE_E8M0 ? 1 : 2;
}

static matrix matrix_of(sl_weight type, size_t n_rows, size_t n_cols, sl_scale stored,
                        uint32_t group, uint32_t block_rows)
{
    matrix m = {.type = type, .n_rows = n_rows, .n_cols = n_cols};
    m.row_bytes = sl_weight_row_bytes(type, n_cols);
    m.s = (sl_scales){.type = stored, .group = group, .block_rows = block_rows};
    m.s.scale_bytes = tiles(n_cols, group) * stored_size(stored);
    m.bytes_of_scales = tiles(n_rows, block_rows) * m.s.scale_bytes;
    return m;
}

/* What a product that begins at row r gets. */
static sl_scales scales_from(const sl_scales *s, size_t r)
{
    sl_scales out = *s;
    const size_t at = r / s->block_rows * s->scale_bytes;
    out.scale = (const char *)s->scale + at;
    out.bias = s->bias ? (const char *)s->bias + at : NULL;
    out.first_row = (uint32_t)(r % s->block_rows);
    return out;
}

/* ---- The law, restated ---- */

static float law_e4m3(uint8_t b)
{
    const int e = b >> 3 & 15, m = b & 7;
    const double size = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return e == 15 && m == 7 ? NAN : (float)(b & 128 ? -size : size);
}

static float law_stored(sl_scale type, const void *p, size_t i)
{
    const uint8_t *b = (const uint8_t *)p + i * stored_size(type);
    float f;
    switch (type) {
    case SL_SCALE_F16:
        return sl_half_load(b);
    case SL_SCALE_BF16:
        return sl_float_of_bits((uint32_t)(b[0] | b[1] << 8) << 16);
    case SL_SCALE_E8M0:
        return *b == 255 ? NAN : (float)ldexp(1, *b - 127);
    default:
        memcpy(&f, b, sizeof f);
        return f;
    }
}

static int law_integer(sl_weight type, const uint8_t *row, size_t i)
{
    static const int codes[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    const int nibble = i & 1 ? row[i / 2] >> 4 : row[i / 2] & 15;
    if (type == SL_W_MLX8)
        return row[i];
    if (type == SL_W_MLX4)
        return nibble;
    return nibble & 8 ? -codes[nibble & 7] : codes[nibble & 7];
}

/* act: a row as quantize made it; its own law is in kernels_quant.c. */
static float law_dot(const matrix *m, size_t r, const void *act)
{
    const uint8_t *row = m->w + r * m->row_bytes;
    const sl_scales s = scales_from(&m->s, r);
    float acc = 0.0f;
    if (m->type == SL_W_FP8) {
        const float *x = act;
        float total[16] = {0};
        for (size_t c = 0; c < m->n_cols; c += s.group) {
            float lane[16] = {0};
            for (size_t i = c; i < m->n_cols && i < c + s.group; i++)
                lane[(i - c) % 16] = fmaf(law_e4m3(row[i]), x[i], lane[(i - c) % 16]);
            for (int l = 0; l < 16; l++)
                total[l] = fmaf(lane[l], law_stored(s.type, s.scale, c / s.group), total[l]);
        }
        for (int half = 8; half; half /= 2)
            for (int l = 0; l < half; l++)
                total[l] += total[l + half];
        return total[0];
    }
    const int8_t *q = act;
    const float *d = (const void *)(q + m->n_cols);
    for (size_t c = 0; c < m->n_cols; c += 32) {
        const size_t g = c / s.group;
        int isum = 0, xsum = 0;
        for (size_t i = c; i < c + 32; i++) {
            isum += law_integer(m->type, row, i) * q[i];
            xsum += q[i];
        }
        const float scale = m->type == SL_W_MXFP4_SPLIT
                                ? (float)ldexp(1, ((const uint8_t *)s.scale)[g] - 128)
                                : law_stored(s.type, s.scale, g);
        acc = fmaf(scale * d[c / 32], (float)isum, acc);
        if (s.bias)
            acc = fmaf(law_stored(s.type, s.bias, g) * d[c / 32], (float)xsum, acc);
    }
    return acc;
}

/* ---- Goldens ---- */

static bool load(const golden *g, const char *text, size_t len, matrix *m)
{
    size_t bytes = 0, n = 0;
    *m = matrix_of(g->type, g->n_rows, g->n_cols, g->stored, g->group, g->block_rows);
    m->w = test_tensor(text, len, g->weight, &bytes);
    m->s.scale = test_tensor(text, len, g->scale, &n);
    bool ok = m->w && m->s.scale && bytes == m->n_rows * m->row_bytes && n == m->bytes_of_scales;
    if (g->bias) {
        m->s.bias = test_tensor(text, len, g->bias, &n);
        ok = ok && m->s.bias && n == m->bytes_of_scales;
    }
    return CHECK(ok, "%s", g->file);
}

static void check_values(const golden *g, const matrix *m, const float *want)
{
    for (int l = 0; l < n_levels; l++)
        for (size_t r = 0; r < m->n_rows; r++) {
            void *w_base, *y_base, *s_base;
            const size_t shift = r % 5, s_bytes = m->s.scale_bytes;
            uint8_t *w = shifted(m->row_bytes, shift, &w_base);
            float *y = shifted(m->n_cols * sizeof(float), 4 * shift, &y_base);
            memcpy(w, m->w + r * m->row_bytes, m->row_bytes);
            sl_scales s = scales_from(&m->s, r);
            char *copy = shifted((s.bias ? 2 : 1) * s_bytes, s_bytes % 4 ? 1 : 0, &s_base);
            memcpy(copy, s.scale, s_bytes);
            s.scale = copy;
            if (s.bias)
                s.bias = memcpy(copy + s_bytes, s.bias, s_bytes);
            levels[l].dequantize[m->type](w, y, m->n_cols, &s);
            const size_t at = first_difference(y, want + r * m->n_cols, m->n_cols);
            CHECK(at == m->n_cols, "%s, level %s, row %zu: value %zu is %a, expected %a", g->file,
                  levels[l].level, r, at, (double)y[at % m->n_cols],
                  (double)want[r * m->n_cols + at % m->n_cols]);
            free(w_base);
            free(y_base);
            free(s_base);
        }
}

/* A value of x in int8 is off by at most d/2, like a uniform random number: a product with n
 * weights is off by about sqrt(sum w^2 d^2 / 12). Six times that, plus the rounding of float sums
 * of this size (all of it for FP8, whose x is exact), is the bound. */
static double bound_of(const matrix *m, const float *values, const float *x)
{
    double square = 0.0, size = 0.0;
    for (size_t c = 0; c < m->n_cols; c += 32) {
        const size_t end = c + 32 < m->n_cols ? c + 32 : m->n_cols;
        double amax = 0.0;
        for (size_t i = c; i < end; i++)
            amax = fmax(amax, fabs((double)x[i]));
        for (size_t i = c; i < end; i++) {
            square += pow((double)values[i] * amax / 127.0, 2.0) / 12.0;
            size += fabs((double)values[i] * (double)x[i]);
        }
    }
    return m->type == SL_W_FP8 ? size * 0x1p-20 : 6.0 * sqrt(square) + size * 0x1p-18;
}

static void check_products(const golden *g, const matrix *m, const float *values, const float *x,
                           const double *want)
{
    const sl_act form = sl_weight_about(m->type)->act;
    void *act, *scratch;
    shifted(sl_act_bytes(form, m->n_cols), 0, &act);
    shifted(sl_mul_scratch_bytes(m->type, m->n_cols), 0, &scratch);
    levels[0].quantize[form](x, act, m->n_cols);
    for (size_t r = 0; r < m->n_rows; r++) {
        const float *row = values + r * m->n_cols;
        const sl_scales s = scales_from(&m->s, r);
        float y;
        levels[0].mul[m->type](m->w + r * m->row_bytes, m->row_bytes, 1, m->n_cols, act,
                               sl_act_bytes(form, m->n_cols), 1, &y, 1, scratch, &s);
        const float law = law_dot(m, r, act);
        CHECK(same_float(y, law), "%s row %zu: %a, the law says %a", g->file, r, (double)y,
              (double)law);
        bool finite = true;
        for (size_t i = 0; i < m->n_cols; i++)
            finite = finite && isfinite(row[i]);
        if (!finite)
            continue;
        const double bound = bound_of(m, row, x);
        CHECK(fabs((double)y - want[r]) <= bound, "%s row %zu: %g, expected %g +- %g", g->file, r,
              (double)y, want[r], bound);
    }
    free(act);
    free(scratch);
}

static void check_golden(const golden *g)
{
    size_t len = 0, bytes = 0;
    char *text = test_read(test_data(g->file), &len);
    matrix m;
    test_case("%s", g->file);
    if (CHECK(text, "%s", g->file) && load(g, text, len, &m)) {
        const float *values = test_tensor(text, len, "values", &bytes);
        const float *x = test_tensor(text, len, "x", &bytes);
        const double *y = test_tensor(text, len, "y", &bytes);
        if (CHECK(values && x && y && bytes == m.n_rows * sizeof *y, "%s", g->file)) {
            check_values(g, &m, values);
            check_products(g, &m, values, x, y);
        }
    }
    free(text);
}

/* Every byte as E4M3, every byte as E8M0. */
static void check_tables(void)
{
    size_t len = 0, bytes = 0;
    char *text = test_read(test_data(DATA("fp8_tables")), &len);
    const float *e4m3 = text ? test_tensor(text, len, "e4m3fn", &bytes) : NULL;
    const float *e8m0 = text ? test_tensor(text, len, "e8m0", &bytes) : NULL;
    uint8_t all[256], one = 0x38;
    const float unit = 1.0f;
    test_case("tables");
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)i;
    if (CHECK(e4m3 && e8m0 && bytes == 1024))
        for (int l = 0; l < n_levels; l++) {
            float y[256];
            const sl_scales s = {.scale = &unit, .group = 256, .block_rows = 1};
            levels[l].dequantize[SL_W_FP8](all, y, 256, &s);
            CHECK(first_difference(y, e4m3, 256) == 256, "%s", levels[l].level);
            for (int i = 0; i < 255; i++) {
                const sl_scales t = {
                    .scale = &all[i], .type = SL_SCALE_E8M0, .group = 1, .block_rows = 1};
                levels[l].dequantize[SL_W_FP8](&one, y, 1, &t);
                CHECK(same_float(y[0], e8m0[i]), "%s: 2^(%d - 127) is %a", levels[l].level, i,
                      (double)y[0]);
            }
        }
    free(text);
}

/* ---- Every level, shape and content against scalar ---- */

typedef enum content { C_RANDOM, C_ZERO, C_HIGHEST, C_LOWEST, C_EDGE_SCALES, C_COUNT } content;

static uint32_t random_scale(sl_scale type, bool edge, uint64_t *seed)
{
    static const float edges[] = {0.0f,   -0.0f,    0x1p-149f, -0x1p-130f, 0x1.fffffep+127f,
                                  -1e38f, INFINITY, -INFINITY, NAN,        1.0f};
    static const uint16_t halves[] = {0,      0x8000, 1,      0x83ff, 0x7bff,
                                      0xfbff, 0x7c00, 0xfc00, 0x7e01, 0x3c00};
    const uint64_t r = test_random(seed);
    const float f = edge ? edges[r % 10] : test_random_float(seed) * 0.01f;
    if (type == SL_SCALE_E8M0)
        return edge ? (uint32_t)(r >> 8 & 255) : 110 + (uint32_t)(r >> 8) % 30;
    if (type == SL_SCALE_F16)
        return edge ? halves[r % 10] : 0x1000u + (uint32_t)(r >> 8 & 0x93ff);
    return type == SL_SCALE_BF16 ? sl_bits_of_float(f) >> 16 : sl_bits_of_float(f);
}

static void fill(const matrix *m, content c, uint8_t *w, uint8_t *scales, size_t n_scales,
                 uint64_t *seed)
{
    const size_t bytes = m->n_rows * m->row_bytes, size = stored_size(m->s.type);
    for (size_t i = 0; i < bytes; i++) {
        w[i] = (uint8_t)test_random(seed);
        /* NaN among many weights would hide all others */
        if (m->type == SL_W_FP8 && (w[i] & 0x7f) == 0x7f && test_random(seed) % 64)
            w[i] ^= 1;
    }
    if (c == C_ZERO)
        memset(w, 0, bytes);
    if (c == C_HIGHEST)
        memset(w, m->type == SL_W_FP8 ? 0x7e : m->type == SL_W_MXFP4_SPLIT ? 0x77 : 0xff, bytes);
    if (c == C_LOWEST)
        memset(w, m->type == SL_W_MXFP4_SPLIT ? 0xff : 0x80, bytes);
    for (size_t i = 0; i < n_scales; i++) {
        const uint32_t bits =
            random_scale(m->s.type, c == C_EDGE_SCALES && test_random(seed) % 4 == 0, seed);
        memcpy(scales + i * size, &bits, size);
    }
}

static void fill_x(size_t kind, float *x, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = test_random_float(seed);
    for (size_t i = 0; i < n; i++)
        switch (kind % 8) {
        case 1:
            x[i] = 0.0f;
            break;
        case 2:
            x[i] = copysignf(3.0f, x[i]); /* every q is 127 or -127 */
            break;
        case 3:
            x[i] *= 0x1p-140f;
            break;
        case 4:
            x[i] *= i % 50 == 7 ? 1000.0f : 1.0f;
            break;
        case 5:
            x[i] *= 0x1p+120f;
            break;
        case 6:
            x[i] = i == n / 2 ? (kind % 16 < 8 ? NAN : INFINITY) : x[i];
            break;
        default:
            break;
        }
}

enum { MAX_ROWS = 43, MAX_BATCH = 17 };
#define CANARY sl_float_of_bits(0x7fc0beefu)

typedef struct problem {
    const matrix *m;
    size_t act_bytes;
    const char *act;
    const float *want; /* [MAX_BATCH][MAX_ROWS], by the scalar level */
} problem;

/* One call with exact buffers; whether y is as wanted and nothing else was written. */
static void check_call(const problem *p, const sl_kernels *k, size_t first, size_t n_rows,
                       size_t n_batch, size_t shift)
{
    const matrix *m = p->m;
    const size_t y_stride = n_rows + shift % 4 + (n_rows == 0), w_bytes = n_rows * m->row_bytes;
    const size_t n_y = n_batch ? (n_batch - 1) * y_stride + n_rows : 0;
    void *w_base, *act_base, *y_base, *scratch, *scale_base, *bias_base;
    uint8_t *w = shifted(w_bytes, shift, &w_base);
    char *act = shifted(n_batch * p->act_bytes, 0, &act_base);
    float *y = shifted(n_y * sizeof(float), 4 * (shift % 8), &y_base);
    shifted(sl_mul_scratch_bytes(m->type, m->n_cols), 0, &scratch);
    sl_scales s = scales_from(&m->s, first);
    const size_t s_bytes = tiles(s.first_row + n_rows, s.block_rows) * s.scale_bytes * !!n_rows;
    s.scale = memcpy(shifted(s_bytes, shift % 7, &scale_base), s.scale, s_bytes);
    char *bias = shifted(s_bytes, shift % 3, &bias_base);
    s.bias = s.bias ? memcpy(bias, s.bias, s_bytes) : NULL;
    memcpy(w, m->w + first * m->row_bytes, w_bytes);
    memcpy(act, p->act, n_batch * p->act_bytes);
    for (size_t i = 0; i < n_y; i++)
        y[i] = CANARY;
    k->mul[m->type](w, m->row_bytes, n_rows, m->n_cols, act, p->act_bytes, n_batch, y, y_stride,
                    scratch, &s);
    size_t wrong = 0, spilt = 0, at = 0;
    float first_wrong = 0.0f;
    for (size_t i = 0; i < n_y; i++) {
        const size_t b = i / y_stride, r = i % y_stride;
        if (r >= n_rows)
            spilt += sl_bits_of_float(y[i]) != sl_bits_of_float(CANARY);
        else if (!same_float(y[i], p->want[b * MAX_ROWS + first + r]) && wrong++ == 0) {
            at = i;
            first_wrong = y[i];
        }
    }
    const char *name = sl_weight_about(m->type)->name;
    CHECK(wrong == 0,
          "%s at %s, rows %zu + %zu, %zu columns, group %u, batch %zu: %zu outputs differ, the "
          "first [%zu][%zu] is %a, not %a",
          name, k->level, first, n_rows, m->n_cols, s.group, n_batch, wrong, at / y_stride,
          at % y_stride, (double)first_wrong,
          (double)p->want[at / y_stride * MAX_ROWS + first + at % y_stride]);
    CHECK(spilt == 0, "%s at %s: wrote between the rows of y", name, k->level);
    CHECK(memcmp(w, m->w + first * m->row_bytes, w_bytes) == 0 &&
              memcmp(act, p->act, n_batch * p->act_bytes) == 0,
          "%s at %s: wrote to its inputs", name, k->level);
    free(w_base);
    free(act_base);
    free(y_base);
    free(scratch);
    free(scale_base);
    free(bias_base);
}

static void check_shapes(const problem *p, const sl_kernels *k)
{
    static const size_t batches[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 17};
    static const size_t rows[] = {0, 1, 2, 3, 7, 8, 9, 16, 17, 31, 40};
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++)
        for (size_t j = 0; j < sizeof rows / sizeof rows[0]; j++)
            check_call(p, k, (i + j) % 4, rows[j], batches[i], (i * 5 + j) % 67);
    for (size_t n = 1; n <= 39; n++)
        check_call(p, k, n % 5, n - n % 5 + 1, 1, n);
}

/* Fills m; whether scalar follows the law, and the other levels scalar. */
static void check_contents(matrix *m, content c, uint64_t *seed)
{
    const size_t n_scales = m->bytes_of_scales / stored_size(m->s.type);
    const sl_act form = sl_weight_about(m->type)->act;
    const bool has_bias = m->type == SL_W_MLX4 || m->type == SL_W_MLX8;
    problem p = {.m = m, .act_bytes = sl_act_bytes(form, m->n_cols)};
    void *w, *scales, *biases, *act, *scratch, *y, *x;
    shifted(m->n_rows * m->row_bytes, 0, &w);
    shifted(m->bytes_of_scales, 0, &scales);
    shifted(m->bytes_of_scales, 0, &biases);
    shifted(MAX_BATCH * p.act_bytes, 0, &act);
    shifted(sl_mul_scratch_bytes(m->type, m->n_cols), 0, &scratch);
    shifted(sizeof(float) * MAX_BATCH * MAX_ROWS, 0, &y);
    shifted(sizeof(float) * m->n_cols, 0, &x);
    fill(m, c, w, biases, n_scales, seed);
    fill(m, c, w, scales, n_scales, seed);
    m->w = w;
    m->s.scale = scales;
    m->s.bias = has_bias ? biases : NULL;
    for (size_t b = 0; b < MAX_BATCH; b++) {
        fill_x(b, x, m->n_cols, seed);
        levels[0].quantize[form](x, (char *)act + b * p.act_bytes, m->n_cols);
    }
    levels[0].mul[m->type](w, m->row_bytes, MAX_ROWS, m->n_cols, act, p.act_bytes, MAX_BATCH, y,
                           MAX_ROWS, scratch, &m->s);
    p.act = act;
    p.want = y;
    for (size_t b = 0; b < MAX_BATCH; b++)
        for (size_t r = 0; r < MAX_ROWS; r += 3) {
            const float law = law_dot(m, r, p.act + b * p.act_bytes);
            const float got = p.want[b * MAX_ROWS + r];
            CHECK(same_float(got, law), "%s: scalar %a, the law says %a",
                  sl_weight_about(m->type)->name, (double)got, (double)law);
        }
    for (int l = 0; l < n_levels; l++)
        if (l > 0 || c == C_RANDOM)
            check_shapes(&p, &levels[l]);
    free(w);
    free(scales);
    free(biases);
    free(act);
    free(scratch);
    free(y);
    free(x);
}

static void check_type(sl_weight type)
{
    static const struct {
        size_t n_cols;
        sl_scale stored;
        uint32_t group, block_rows;
    } affine[] = {{32, SL_SCALE_F16, 32, 1},     {96, SL_SCALE_BF16, 32, 1},
                  {576, SL_SCALE_BF16, 64, 1},   {832, SL_SCALE_F16, 64, 1},
                  {1152, SL_SCALE_BF16, 128, 1}, {544, SL_SCALE_F16, 32, 1}},
      split[] = {{32, SL_SCALE_E8M0, 32, 1},
                 {96, SL_SCALE_E8M0, 32, 1},
                 {576, SL_SCALE_E8M0, 32, 1}},
      fp8[] = {{1, SL_SCALE_F32, 128, 16},       {16, SL_SCALE_BF16, 128, 16},
               {33, SL_SCALE_F32, 64, 1},        {128, SL_SCALE_E8M0, 128, 128},
               {300, SL_SCALE_F32, 128, 7},      {640, SL_SCALE_BF16, 128, 16},
               {271, SL_SCALE_F32, 1u << 20, 1}, {160, SL_SCALE_E8M0, 16, 3}};
    uint64_t seed = 1 + (uint64_t)type;
    const size_t n = type == SL_W_FP8           ? sizeof fp8 / sizeof fp8[0]
                     : type == SL_W_MXFP4_SPLIT ? sizeof split / sizeof split[0]
                                                : sizeof affine / sizeof affine[0];
    test_case("%s", sl_weight_about(type)->name);
    for (int c = 0; c < C_COUNT; c++)
        for (size_t i = 0; i < n; i++) {
            matrix m = type == SL_W_FP8 ? matrix_of(type, MAX_ROWS, fp8[i].n_cols, fp8[i].stored,
                                                    fp8[i].group, fp8[i].block_rows)
                       : type == SL_W_MXFP4_SPLIT
                           ? matrix_of(type, MAX_ROWS, split[i].n_cols, split[i].stored,
                                       split[i].group, split[i].block_rows)
                           : matrix_of(type, MAX_ROWS, affine[i].n_cols, affine[i].stored,
                                       affine[i].group, affine[i].block_rows);
            check_contents(&m, (content)c, &seed);
        }
}

/* ---- Speed ---- */

/* Of this thread, so that a busy machine does little harm. */
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best of the calls that fit a fifth of a second (at least two). */
static double time_mul(const sl_kernels *k, const matrix *m, size_t n_rows, size_t n_batch)
{
    const sl_act form = sl_weight_about(m->type)->act;
    const size_t act_bytes = sl_act_bytes(form, m->n_cols);
    void *act, *scratch, *x, *y;
    shifted(m->n_cols * sizeof(float), 0, &x);
    shifted(n_rows * n_batch * sizeof(float), 0, &y);
    shifted(n_batch * act_bytes, 0, &act);
    shifted(sl_mul_scratch_bytes(m->type, m->n_cols), 0, &scratch);
    uint64_t seed = 5;
    for (size_t b = 0; b < n_batch; b++) {
        fill_x(0, x, m->n_cols, &seed);
        k->quantize[form](x, (char *)act + b * act_bytes, m->n_cols);
    }
    double best = 1e9, begin = seconds();
    for (int i = 0; i < 2 || seconds() - begin < 0.2; i++) {
        double t = seconds();
        k->mul[m->type](m->w, m->row_bytes, n_rows, m->n_cols, act, act_bytes, n_batch, y, n_rows,
                        scratch, &m->s);
        t = seconds() - t;
        best = t < best ? t : best;
    }
    free(x);
    free(y);
    free(act);
    free(scratch);
    return best;
}

static void bench(void)
{
    static const golden shapes[] = {
        {.type = SL_W_MLX4, .stored = SL_SCALE_BF16, .group = 64, .block_rows = 1},
        {.type = SL_W_MLX8, .stored = SL_SCALE_BF16, .group = 64, .block_rows = 1},
        {.type = SL_W_MXFP4_SPLIT, .stored = SL_SCALE_E8M0, .group = 32, .block_rows = 1},
        {.type = SL_W_FP8, .stored = SL_SCALE_F32, .group = 128, .block_rows = 128},
    };
    static const size_t batches[] = {2, 4, 8, 64, 512};
    enum { N_COLS = 4096, N_BATCHES = sizeof batches / sizeof batches[0] };
    printf("%-18s   GB/s, batch 1   G multiply-adds/s, batch\n", "");
    printf("%-8s %-8s  64 MB    1 MB", "type", "level");
    for (int i = 0; i < N_BATCHES; i++)
        printf("%8zu", batches[i]);
    putchar('\n');
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const golden *g = &shapes[i];
        const size_t n_rows = ((size_t)64 << 20) / sl_weight_row_bytes(g->type, N_COLS);
        matrix m = matrix_of(g->type, n_rows, N_COLS, g->stored, g->group, g->block_rows);
        void *w, *scales;
        uint64_t seed = 3;
        shifted(n_rows * m.row_bytes, 0, &w);
        shifted(m.bytes_of_scales, 0, &scales);
        fill(&m, C_RANDOM, w, scales, m.bytes_of_scales / stored_size(g->stored), &seed);
        m.w = w;
        m.s.scale = scales;
        m.s.bias = g->type == SL_W_MLX4 || g->type == SL_W_MLX8 ? scales : NULL;
        for (int l = 0; l < n_levels; l++) {
            const size_t rows = l ? n_rows : n_rows / 16, few = l ? 1024 : 16;
            const double one = time_mul(&levels[l], &m, rows, 1);
            const double near = time_mul(&levels[l], &m, n_rows / 64, 1);
            printf("%-8s %-8s %6.2f  %6.2f", sl_weight_about(g->type)->name, levels[l].level,
                   (double)(rows * m.row_bytes) / one * 1e-9,
                   (double)(n_rows / 64 * m.row_bytes) / near * 1e-9);
            for (int k = 0; k < N_BATCHES; k++)
                printf("%8.1f", (double)(few * N_COLS * batches[k]) /
                                    time_mul(&levels[l], &m, few, batches[k]) * 1e-9);
            putchar('\n');
            fflush(stdout);
        }
        free(w);
        free(scales);
    }
}

int main(int argc, char **argv)
{
    for (int l = 0; l <= (int)sl_cpu_best(); l++)
        sl_kernels_init(&levels[n_levels++], (sl_cpu_level)l);
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        bench();
        return 0;
    }
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++)
        check_golden(&goldens[i]);
    check_tables();
    for (int type = SL_W_FIRST_BESIDE; type < SL_W_COUNT; type++)
        check_type((sl_weight)type);
    return test_end();
}
