/* Proves: every float slot but attention gives at every CPU level the scalar result, bit for bit;
 * writes nothing outside its output; does not depend on batch or row count; and the scalar results
 * are what the formulas say, against double. --bench prints speeds. */
#include "lib_test.h"

#include "../kernels/kernels.h"
#include "../kernels/lanes.h"
#include "../kernels/vmath.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* level; dequantize, mul, mul_transposed; quantize; 7 slots tested here; 5 in kernels_attention.c;
 * 10 in kernels_route.c; 5 in kernels_delta.c. */
_Static_assert(sizeof(sl_kernels) == sizeof(void *) * (1 + 2 * SL_W_COUNT + SL_W_TRANSPOSED_COUNT +
                                                       SL_ACT_COUNT + 7 + 5 + 10 + 5),
               "a new slot needs a test: then count it here");

enum { PAD = 64, MOST = 70000 };
static const float canary = -1234.5678f;

/* ---- what kernels are given ---- */

enum pattern { RANDOM, ZEROS, EXTREMES, DENORMALS, OUTLIER, NOT_FINITE, N_PATTERNS };
static const char *const pattern_names[] = {"random",    "zeros",   "extremes",
                                            "denormals", "outlier", "inf and nan"};
static uint64_t seed = 88172645463325252u;

static float value(enum pattern p, size_t i)
{
    static const float extremes[] = {3.4e38f, -3.4e38f, 1e30f, -1e-30f, 65504.0f, -65520.0f, 1.0f};
    const float r = test_random_float(&seed);
    switch (p) {
    case ZEROS:
        return test_random(&seed) & 1u << 20 ? 0.0f : -0.0f;
    case EXTREMES:
        return extremes[test_random(&seed) % 7];
    case DENORMALS:
        return r * (test_random(&seed) & 1u << 20 ? 1e-41f : 1e-7f);
    case OUTLIER:
        return i == 5 ? 30000.0f : r * 0.01f;
    case NOT_FINITE:
        return i % 37 == 11 ? INFINITY : i % 53 == 29 ? NAN : i % 71 == 8 ? -INFINITY : r;
    default:
        return r;
    }
}

static void fill(enum pattern p, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = value(p, i);
}

/* Which NaN a NaN is stays open; all else is bits. */
static bool same(const float *a, const float *b, size_t n, size_t *where)
{
    for (size_t i = 0; i < n; i++) {
        if (sl_bits_of_float(a[i]) != sl_bits_of_float(b[i]) && !(isnan(a[i]) && isnan(b[i]))) {
            *where = i;
            return false;
        }
    }
    return true;
}

#define CHECK_SAME(a, b, n)                                                                        \
    do {                                                                                           \
        size_t at_ = 0;                                                                            \
        CHECK(same(a, b, n, &at_), "at %zu: %a, not %a", at_, (double)(a)[at_], (double)(b)[at_]); \
    } while (0)

static float *room(size_t n)
{
    float *p = aligned_alloc(64, (n + 2 * PAD + 16) / 16 * 64);
    if (!p)
        abort();
    for (size_t i = 0; i < n + 2 * PAD; i++)
        p[i] = canary;
    return p;
}

static bool canaries(const float *p, size_t n)
{
    for (size_t i = 0; i < PAD; i++)
        if (p[i] != canary || p[PAD + n + i] != canary)
            return false;
    return true;
}

static const size_t lengths[] = {0,  1,  2,  7,  8,   9,   15,  16,   17,   31,   32,    33,
                                 34, 47, 63, 64, 100, 128, 255, 1024, 4095, 4096, 16383, 16385};
enum { N_LENGTHS = sizeof lengths / sizeof lengths[0] };

/* ---- products ---- */

static const sl_weight products[] = {SL_W_F32, SL_W_F16, SL_W_BF16, SL_W_F64};
static const char *const product_names[] = {"f32", "f16", "bf16", "f64"};
enum { N_PRODUCTS = sizeof products / sizeof products[0] };

static size_t size_of(sl_weight w)
{
    return w == SL_W_F64 ? 8 : w == SL_W_F32 ? 4 : 2;
}

static void weights_from(sl_weight type, enum pattern p, uint8_t *w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float f = value(p, i);
        const uint32_t bits = sl_bits_of_float(f);
        const uint16_t half = type == SL_W_F16 ? sl_half_of_float(f) : (uint16_t)(bits >> 16);
        const double d = (double)f * (1.0 + 1e-9 * (double)(i % 64)); /* rounds to f or beside it */
        if (type == SL_W_F64)
            memcpy(w + 8 * i, &d, 8);
        else if (type == SL_W_F32)
            memcpy(w + 4 * i, &f, 4);
        else
            memcpy(w + 2 * i, &half, 2);
    }
}

/* All outputs at once at one level against one at a time in scalar: so neither batch nor rows
 * matter. shift: of the weights, bytes. */
static void product_case(const sl_kernels *scalar, const sl_kernels *k, sl_weight type,
                         enum pattern p, size_t n_rows, size_t n_cols, size_t n_batch, size_t shift)
{
    const size_t row_bytes = n_cols * size_of(type) + (n_rows & 1) * 2, y_stride = n_rows + 3;
    const size_t act_bytes = (n_cols * 4 + 63) / 64 * 64;
    uint8_t *memory = malloc(n_rows * row_bytes + shift + 1), *w = memory + shift;
    float *x = room(n_batch * act_bytes / 4), *y = room(n_batch * y_stride);
    for (size_t r = 0; r < n_rows; r++)
        weights_from(type, p, w + r * row_bytes, n_cols);
    for (size_t b = 0; b < n_batch; b++)
        fill(p == DENORMALS ? RANDOM : p, x + PAD + b * act_bytes / 4, n_cols);
    k->mul[type](w, row_bytes, n_rows, n_cols, x + PAD, act_bytes, n_batch, y + PAD, y_stride, NULL,
                 NULL);
    CHECK(canaries(y, n_batch * y_stride));
    for (size_t b = 0; b < n_batch; b++) {
        for (size_t r = 0; r < y_stride; r++) {
            float one = canary;
            if (r < n_rows)
                scalar->mul[type](w + r * row_bytes, row_bytes, 1, n_cols,
                                  x + PAD + b * act_bytes / 4, act_bytes, 1, &one, 1, NULL, NULL);
            CHECK_SAME(y + PAD + b * y_stride + r, &one, 1);
        }
    }
    free(memory);
    free(x);
    free(y);
}

static void test_products(const sl_kernels *scalar, const sl_kernels *k)
{
    for (int t = 0; t < N_PRODUCTS; t++) {
        for (int p = 0; p < N_PATTERNS; p++) {
            for (int i = 0; i < N_LENGTHS; i++) {
                test_case("%s: mul %s, %s, %zu columns", k->level, product_names[t],
                          pattern_names[p], lengths[i]);
                const size_t many = lengths[i] > 300 ? 1 : 5;
                product_case(scalar, k, products[t], (enum pattern)p, 1 + many, lengths[i], 1, 1);
                product_case(scalar, k, products[t], (enum pattern)p, many, lengths[i], 4, 0);
            }
        }
        for (size_t n_batch = 1; n_batch <= 9; n_batch++) {
            for (size_t n_rows = 0; n_rows <= 14; n_rows++) {
                test_case("%s: mul %s, %zu rows, batch of %zu", k->level, product_names[t], n_rows,
                          n_batch);
                product_case(scalar, k, products[t], RANDOM, n_rows, 72, n_batch, n_rows);
            }
        }
        test_case("%s: mul %s, several blocks of rows", k->level, product_names[t]);
        product_case(scalar, k, products[t], RANDOM, 29, 6000, 2, 0);
        product_case(scalar, k, products[t], RANDOM, 33, 3001, 6, 1);
    }
}

/* Against scalar mul with the rows laid side by side. Weights end with their memory; the bytes
 * between a column's last element and the next column's first are other numbers. */
static void transposed_case(const sl_kernels *scalar, const sl_kernels *k, sl_weight type,
                            enum pattern p, size_t n_rows, size_t n_cols, size_t n_batch,
                            size_t gap)
{
    const size_t size = size_of(type), col_bytes = n_rows * size + gap, y_stride = n_rows + 3;
    const size_t act_bytes = (n_cols * 4 + 63) / 64 * 64, row_bytes = n_cols * size;
    const size_t w_bytes = n_cols ? (n_cols - 1) * col_bytes + n_rows * size : 0;
    uint8_t *memory = malloc(w_bytes + 1), *w = memory + 1,
            *straight = malloc(n_rows * row_bytes + 1);
    float *x = room(n_batch * act_bytes / 4), *y = room(n_batch * y_stride);
    memset(memory, 0x41, w_bytes + 1);
    for (size_t r = 0; r < n_rows; r++) {
        weights_from(type, p, straight + r * row_bytes, n_cols);
        for (size_t c = 0; c < n_cols; c++)
            memcpy(w + c * col_bytes + r * size, straight + r * row_bytes + c * size, size);
    }
    for (size_t b = 0; b < n_batch; b++)
        fill(p == DENORMALS ? RANDOM : p, x + PAD + b * act_bytes / 4, n_cols);
    k->mul_transposed[type](w, col_bytes, n_rows, n_cols, x + PAD, act_bytes, n_batch, y + PAD,
                            y_stride, NULL, NULL);
    CHECK(canaries(y, n_batch * y_stride));
    for (size_t b = 0; b < n_batch; b++) {
        for (size_t r = 0; r < y_stride; r++) {
            float one = canary;
            if (r < n_rows)
                scalar->mul[type](straight + r * row_bytes, row_bytes, 1, n_cols,
                                  x + PAD + b * act_bytes / 4, act_bytes, 1, &one, 1, NULL, NULL);
            CHECK_SAME(y + PAD + b * y_stride + r, &one, 1);
        }
    }
    free(memory);
    free(straight);
    free(x);
    free(y);
}

static void test_transposed(const sl_kernels *scalar, const sl_kernels *k)
{
    static const size_t many[] = {31, 32, 63, 64, 65, 100, 127, 128, 129, 300};
    for (int t = 0; t < SL_W_TRANSPOSED_COUNT; t++) {
        const sl_weight type = (sl_weight)t;
        const char *name = sl_weight_about(type)->name;
        for (int p = 0; p < N_PATTERNS; p++)
            for (size_t n_cols = 0; n_cols <= 50; n_cols += n_cols < 34 ? 1 : 4) {
                test_case("%s: mul_transposed %s, %s, %zu columns", k->level, name,
                          pattern_names[p], n_cols);
                transposed_case(scalar, k, type, (enum pattern)p, 37, n_cols, 1, 0);
                transposed_case(scalar, k, type, (enum pattern)p, 21, n_cols, 5, 2);
            }
        for (size_t n_batch = 1; n_batch <= 9; n_batch++)
            for (size_t n_rows = 0; n_rows <= 34; n_rows++) {
                test_case("%s: mul_transposed %s, %zu rows, batch of %zu", k->level, name, n_rows,
                          n_batch);
                transposed_case(scalar, k, type, RANDOM, n_rows, 40, n_batch, n_rows % 3);
            }
        for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
            test_case("%s: mul_transposed %s, %zu rows", k->level, name, many[i]);
            transposed_case(scalar, k, type, RANDOM, many[i], 333, 1, 6);
            transposed_case(scalar, k, type, RANDOM, many[i], 40, 7, 0);
        }
    }
}

static void test_product_value(const sl_kernels *k)
{
    enum { N = 3000 };
    for (int t = 0; t < N_PRODUCTS; t++) {
        test_case("%s: mul %s against double", k->level, product_names[t]);
        uint8_t *w = malloc(N * 8);
        float *x = room(N), y, wide;
        fill(RANDOM, x, N);
        weights_from(products[t], RANDOM, w, N);
        double sum = 0, size = 0;
        for (size_t i = 0; i < N; i++) {
            const uint8_t *at = w + i * size_of(products[t]);
            if (t == 0)
                memcpy(&wide, at, 4);
            else if (t == 3)
                wide = sl_load_f64(at);
            else
                wide = t == 1 ? sl_half_load(at) : sl_bfloat_to_float(sl_load_u16(at));
            sum += (double)wide * (double)x[i];
            size += fabs((double)wide * (double)x[i]);
        }
        k->mul[products[t]](w, 0, 1, N, x, N * 4, 1, &y, 1, NULL, NULL);
        CHECK(fabs(y - sum) < size * 1e-6, "%g, not %g", (double)y, sum);
        free(w);
        free(x);
    }
}

/* ---- one row in, one row out ---- */

typedef void row_fn(const sl_kernels *k, const float *a, const float *b, float *y, size_t n);

static void call_norm(const sl_kernels *k, const float *a, const float *b, float *y, size_t n)
{
    k->rms_norm(a, b, 1e-6f, y, n);
}
static void call_norm_alone(const sl_kernels *k, const float *a, const float *b, float *y, size_t n)
{
    k->rms_norm(a, NULL, 1e-6f, y, n);
}
static void call_silu(const sl_kernels *k, const float *a, const float *b, float *y, size_t n)
{
    k->silu_mul(a, b, y, n);
}
static void call_gelu(const sl_kernels *k, const float *a, const float *b, float *y, size_t n)
{
    k->gelu_mul(a, b, y, n);
}
static void call_add(const sl_kernels *k, const float *a, const float *b, float *y, size_t n)
{
    memcpy(y, b, n * sizeof *y);
    k->add(y, a, n);
}
static void call_copy(const sl_kernels *k, const float *a, const float *b, float *y, size_t n)
{
    k->quantize[SL_ACT_F32](a, y, n);
}
/* Halves come back as floats, so that all row functions compare alike. */
static void call_to_f16(const sl_kernels *k, const float *a, const float *b, float *y, size_t n)
{
    uint16_t *half = malloc(n * 2 + 4);
    half[n] = 0x5555;
    k->to_f16(a, half, n);
    CHECK(half[n] == 0x5555);
    for (size_t i = 0; i < n; i++)
        y[i] = sl_half_to_float(half[i]);
    free(half);
}

static const struct {
    const char *name;
    row_fn *call;
    bool in_place;
} rows[] = {{"rms_norm", call_norm, true}, {"rms_norm without weights", call_norm_alone, true},
            {"silu_mul", call_silu, true}, {"gelu_mul", call_gelu, true},
            {"add", call_add, false},      {"quantize f32", call_copy, false},
            {"to_f16", call_to_f16, false}};

static void row_case(const sl_kernels *scalar, const sl_kernels *k, row_fn *call, bool in_place,
                     enum pattern p, size_t n, size_t shift)
{
    float *a = room(n), *b = room(n), *expected = room(n), *y = room(n + shift);
    fill(p, a + shift, n);
    fill(p == NOT_FINITE ? RANDOM : p, b + shift, n);
    call(scalar, a + shift, b + shift, expected + PAD, n);
    call(k, a + shift, b + shift, y + PAD + shift, n);
    CHECK_SAME(y + PAD + shift, expected + PAD, n);
    CHECK(canaries(expected, n) && canaries(y + shift, n));
    if (in_place) {
        call(k, a + shift, b + shift, a + shift, n);
        CHECK_SAME(a + shift, expected + PAD, n);
    }
    free(a);
    free(b);
    free(expected);
    free(y);
}

static void test_rows(const sl_kernels *scalar, const sl_kernels *k)
{
    for (size_t f = 0; f < sizeof rows / sizeof rows[0]; f++) {
        for (int p = 0; p < N_PATTERNS; p++) {
            for (int i = 0; i < N_LENGTHS; i++) {
                test_case("%s: %s, %s, %zu values", k->level, rows[f].name, pattern_names[p],
                          lengths[i]);
                row_case(scalar, k, rows[f].call, rows[f].in_place, (enum pattern)p, lengths[i],
                         (size_t)i % 3);
            }
        }
    }
}

/* A NaN counts as the larger. (fmax() would drop it, and gcc 12 for aarch64 crashes on its loop.)
 */
static double larger(double a, double b)
{
    return b <= a ? a : b;
}

static void test_row_values(const sl_kernels *k)
{
    enum { N = 1000 };
    float *a = room(N), *b = room(N), *y = room(N);
    fill(RANDOM, a, N);
    fill(RANDOM, b, N);
    double square = 0, worst = 0;
    for (int i = 0; i < N; i++)
        square += (double)a[i] * (double)a[i];
    k->rms_norm(a, b, 1e-5f, y, N);
    for (int i = 0; i < N; i++) {
        const double exact = a[i] / sqrt(square / N + 1e-5) * b[i];
        worst = larger(worst, fabs(y[i] - exact) / (fabs(exact) + 1e-9));
    }
    test_case("%s: rms_norm against double", k->level);
    CHECK(worst < 1e-6, "%g", worst);
    for (int gelu = 0; gelu < 2; gelu++) {
        for (int i = 0; i < N; i++)
            a[i] = (float)(i - N / 2) / 40.0f;
        (gelu ? k->gelu_mul : k->silu_mul)(a, b, y, N);
        for (int i = worst = 0; i < N; i++) {
            const double x = a[i], u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
            const double exact = b[i] * (gelu ? x / (1 + exp(-2 * u)) : x / (1 + exp(-x)));
            worst = larger(worst, fabs(y[i] - exact) / (fabs(exact) + 1e-6));
        }
        test_case("%s: %s against double", k->level, gelu ? "gelu_mul" : "silu_mul");
        CHECK(worst < 1e-5, "%g", worst);
    }
    free(a);
    free(b);
    free(y);
}

/* Every half, and the floats halfway to the next: ties go to even. */
static void test_halves(const sl_kernels *k)
{
    test_case("%s: to_f16, every half", k->level);
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float x[8];
        uint16_t y[8];
        const float low = sl_half_to_float((uint16_t)h);
        const float high = h == 0x7bff ? 65536.0f : sl_half_to_float((uint16_t)(h + 1));
        const float middle = low + (high - low) / 2; /* exact */
        x[0] = low, x[1] = -low, x[2] = middle, x[3] = -middle;
        x[4] = nextafterf(middle, 0.0f), x[5] = nextafterf(middle, INFINITY), x[6] = x[7] = low;
        const uint16_t even = (uint16_t)(h + (h & 1)), up = (uint16_t)(h + 1);
        const uint16_t expected[6] = {
            (uint16_t)h, (uint16_t)(h | 0x8000), even, (uint16_t)(even | 0x8000), (uint16_t)h, up};
        k->to_f16(x, y, 8);
        for (int i = 0; i < 6; i++)
            if (y[i] != expected[i])
                CHECK(false, "%a gives %04x, not %04x", (double)x[i], y[i], expected[i]);
    }
    CHECK(true);
}

/* ---- rotary ---- */

static void rope_case(const sl_kernels *scalar, const sl_kernels *k, bool pairs, enum pattern p,
                      size_t n_heads, size_t head_dim, size_t n_rot)
{
    const size_t stride = head_dim + 3, n = n_heads * stride;
    float *x = room(n), *y = room(n), *angle = room(2 * n_rot);
    fill(p, x + PAD, n);
    memcpy(y + PAD, x + PAD, n * sizeof *y);
    fill(RANDOM, angle, 2 * n_rot);
    (pairs ? scalar->rope_pairs : scalar->rope_halves)(x + PAD, n_heads, stride, angle,
                                                       angle + n_rot / 2 + 1, n_rot);
    (pairs ? k->rope_pairs : k->rope_halves)(y + PAD, n_heads, stride, angle, angle + n_rot / 2 + 1,
                                             n_rot);
    CHECK_SAME(y + PAD, x + PAD, n);
    CHECK(canaries(y, n) && canaries(x, n));
    free(x);
    free(y);
    free(angle);
}

static void test_rope(const sl_kernels *scalar, const sl_kernels *k)
{
    static const size_t rotated[] = {0, 2, 6, 8, 14, 16, 18, 32, 64, 80, 128};
    for (int pairs = 0; pairs < 2; pairs++) {
        for (int p = 0; p < N_PATTERNS; p++) {
            for (size_t i = 0; i < sizeof rotated / sizeof rotated[0]; i++) {
                test_case("%s: rope_%s, %s, %zu dimensions", k->level, pairs ? "pairs" : "halves",
                          pattern_names[p], rotated[i]);
                rope_case(scalar, k, pairs, (enum pattern)p, 3, 128, rotated[i]);
                rope_case(scalar, k, pairs, (enum pattern)p, 1, rotated[i], rotated[i]);
            }
        }
    }
}

static void test_rope_value(const sl_kernels *k)
{
    float x[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, c[4], s[4], y[10];
    for (int i = 0; i < 4; i++) {
        c[i] = (float)cos(i + 1);
        s[i] = (float)sin(i + 1);
    }
    for (int pairs = 0; pairs < 2; pairs++) {
        test_case("%s: rope_%s turns each pair", k->level, pairs ? "pairs" : "halves");
        memcpy(y, x, sizeof y);
        (pairs ? k->rope_pairs : k->rope_halves)(y, 1, 10, c, s, 8);
        for (int i = 0; i < 4; i++) {
            const int a = pairs ? 2 * i : i, b = pairs ? 2 * i + 1 : i + 4;
            CHECK(fabs(y[a] - (x[a] * cos(i + 1) - x[b] * sin(i + 1))) < 1e-5);
            CHECK(fabs(y[b] - (x[b] * cos(i + 1) + x[a] * sin(i + 1))) < 1e-5);
        }
        CHECK(y[8] == 9 && y[9] == 10);
    }
}

/* ---- exp and tanh ---- */

static double ulps(float got, double exact)
{
    int e;
    frexp(exact, &e);
    return fabs((double)got - exact) / ldexp(1.0, e - 24 < -149 ? -149 : e - 24);
}

static double worst_ulps(float (*f)(float), double (*exact)(double), double from, double to)
{
    double worst = 0;
    const int steps = 1000000;
    for (int i = 0; i <= steps; i++) {
        const float x = (float)(from + (to - from) * i / steps);
        worst = fmax(worst, ulps(f(x), exact((double)x)));
    }
    return worst;
}

static void test_math(void)
{
    test_case("exp");
    const double normal = worst_ulps(sl_exp, exp, -87.33, 88.722);
    const double subnormal = worst_ulps(sl_exp, exp, -104, -87.33);
    const double near_zero = worst_ulps(sl_exp, exp, -1, 1);
    printf("exp: worst error %.3f ulp from -87.3 to 88.7, %.3f from -1 to 1, %.3f subnormal\n",
           normal, near_zero, subnormal);
    CHECK(normal < 2 && near_zero < 2 && subnormal < 2);
    CHECK(sl_exp(0.0f) == 1.0f && sl_exp(-0.0f) == 1.0f);
    CHECK(sl_exp(-INFINITY) == 0.0f && sl_exp(-104.0f) == 0.0f && sl_exp(-3e38f) == 0.0f);
    CHECK(sl_exp(INFINITY) == INFINITY && sl_exp(88.73f) == INFINITY && isnan(sl_exp(NAN)));
    CHECK(isfinite(sl_exp(88.7228f)));
    test_case("tanh");
    const double wide = worst_ulps(sl_tanh, tanh, -12, 12);
    const double small = worst_ulps(sl_tanh, tanh, -1, 1);
    const double tiny = worst_ulps(sl_tanh, tanh, 0, 1e-3);
    printf("tanh: worst error %.3f ulp from -12 to 12, %.3f from -1 to 1, %.3f up to 0.001\n", wide,
           small, tiny);
    CHECK(wide < 2 && small < 2 && tiny < 2);
    CHECK(sl_tanh(1e30f) == 1.0f && sl_tanh(-INFINITY) == -1.0f && isnan(sl_tanh(NAN)));
}

/* The vector exp sees values that the others do not pass it. */
static void test_math_levels(const sl_kernels *scalar, const sl_kernels *k)
{
    enum { N = MOST };
    float *x = room(N), *one = room(N), *a = room(N), *b = room(N);
    for (int i = 0; i < N; i++) {
        x[i] = sl_float_of_bits((uint32_t)i * 61356u); /* all magnitudes, both signs */
        one[i] = 1.0f;
    }
    test_case("%s: silu and gelu over all magnitudes", k->level);
    scalar->silu_mul(x, one, a, N);
    k->silu_mul(x, one, b, N);
    CHECK_SAME(b, a, N);
    scalar->gelu_mul(x, one, a, N);
    k->gelu_mul(x, one, b, N);
    CHECK_SAME(b, a, N);
    free(x);
    free(one);
    free(a);
    free(b);
}

/* ---- speed ---- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Best of some runs that together take a fifth of a second. */
static double time_product(sl_mul_fn *mul, sl_weight type, size_t n_rows, size_t n_cols,
                           size_t n_batch, bool transposed)
{
    const size_t act_bytes = n_cols * 4, bytes = n_rows * n_cols * size_of(type);
    const size_t row_bytes = (transposed ? n_rows : n_cols) * size_of(type);
    uint8_t *w = aligned_alloc(64, bytes);
    float *x = room(n_batch * n_cols), *y = room(n_batch * n_rows);
    fill(RANDOM, x, n_batch * n_cols);
    memset(w, 0x11, bytes);
    double best = 1e9, total = 0;
    while (total < 0.2) {
        const double start = seconds();
        mul(w, row_bytes, n_rows, n_cols, x, act_bytes, n_batch, y, n_rows, NULL, NULL);
        const double took = seconds() - start;
        best = took < best ? took : best;
        total += took;
    }
    free(w);
    free(x);
    free(y);
    return best;
}

static void bench_product(const char *level, const char *what, sl_mul_fn *mul, sl_weight type,
                          bool transposed)
{
    const bool slow = !strcmp(level, "scalar");
    const size_t n = 4096, big = slow ? 512 : 16384, size = size_of(type);
    const size_t some = slow ? 12 : 480, n_batch = slow ? 3 : 512;
    const double memory = time_product(mul, type, big, n, 1, transposed);
    const double cache = time_product(mul, type, 48, n, 1, transposed);
    const double batch = time_product(mul, type, some, n, n_batch, transposed);
    printf("%-8s %-14s %-4s  1 row: %6.2f GB/s from memory, %6.2f from cache;  512 rows: %6.1f "
           "GFLOP/s\n",
           level, what, sl_weight_about(type)->name, (double)(big * n * size) / memory * 1e-9,
           (double)(48 * n * size) / cache * 1e-9,
           2.0 * (double)(some * n_batch * n) / batch * 1e-9);
}

static void bench(sl_cpu_level best)
{
    for (unsigned l = 0; l <= best; l++) {
        sl_kernels k;
        sl_kernels_init(&k, (sl_cpu_level)l);
        for (int t = 0; t < N_PRODUCTS; t++)
            bench_product(k.level, "mul", k.mul[products[t]], products[t], false);
        for (int t = 0; t < SL_W_TRANSPOSED_COUNT; t++)
            bench_product(k.level, "mul_transposed", k.mul_transposed[t], (sl_weight)t, true);
    }
}

int main(int argc, char **argv)
{
    const sl_cpu_level best = sl_cpu_best();
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        bench(best);
        return 0;
    }
    sl_kernels scalar;
    sl_kernels_init(&scalar, SL_CPU_SCALAR);
    test_math();
    for (unsigned l = 0; l <= best; l++) {
        sl_kernels k;
        sl_kernels_init(&k, (sl_cpu_level)l);
        test_products(&scalar, &k);
        test_transposed(&scalar, &k);
        test_product_value(&k);
        test_rows(&scalar, &k);
        test_row_values(&k);
        test_halves(&k);
        test_rope(&scalar, &k);
        test_rope_value(&k);
        test_math_levels(&scalar, &k);
    }
    return test_end();
}
