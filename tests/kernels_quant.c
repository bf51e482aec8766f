/* What this proves, for every quantised weight type whose blocks hold everything (the others:
 * kernels_layouts), at every level this CPU has: blocks dequantise
 * to ggml's bits; the scalar products follow the law of docs/adding-a-kernel.md (restated here) and
 * stay within int8 noise of products in double; every level gives the scalar level's bits, for any
 * shape, alignment and content, and touches nothing but its outputs and scratch. --bench: speed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../kernels/half.h"
#include "../kernels/iq_grids.h"
#include "../kernels/kernels.h"
#include "../kernels/quant.h"
#include "lib_safetensors.h"
#include "lib_test.h"

typedef struct checked_type {
    sl_weight w;
    const char *file;
    int d_at, m_at; /* f16 fields of a block, -1: none */
} checked_type;

static const checked_type types[] = {
    {SL_W_F32, "quant/F32.safetensors", -1, -1},
    {SL_W_F16, "quant/F16.safetensors", -1, -1},
    {SL_W_BF16, "quant/BF16.safetensors", -1, -1},
    {SL_W_Q8_0, "quant/Q8_0.safetensors", 0, -1},
    {SL_W_Q4_0, "quant/Q4_0.safetensors", 0, -1},
    {SL_W_Q4_1, "quant/Q4_1.safetensors", 0, 2},
    {SL_W_Q5_0, "quant/Q5_0.safetensors", 0, -1},
    {SL_W_Q5_1, "quant/Q5_1.safetensors", 0, 2},
    {SL_W_Q4_K, "quant/Q4_K.safetensors", 0, 2},
    {SL_W_Q5_K, "quant/Q5_K.safetensors", 0, 2},
    {SL_W_Q6_K, "quant/Q6_K.safetensors", 208, -1},
    {SL_W_Q2_K, "quant/Q2_K.safetensors", 80, 82},
    {SL_W_Q3_K, "quant/Q3_K.safetensors", 108, -1},
    {SL_W_IQ4_NL, "quant/IQ4_NL.safetensors", 0, -1},
    {SL_W_IQ4_XS, "quant/IQ4_XS.safetensors", 0, -1},
    {SL_W_MXFP4, "quant/MXFP4.safetensors", -1, -1},
    {SL_W_NVFP4, "quant/NVFP4.safetensors", -1, -1},
    {SL_W_TQ1_0, "quant/TQ1_0.safetensors", 52, -1},
    {SL_W_TQ2_0, "quant/TQ2_0.safetensors", 64, -1},
    {SL_W_Q1_0, "quant/Q1_0.safetensors", 0, -1},
    {SL_W_Q2_0, "quant/Q2_0.safetensors", 0, -1},
    {SL_W_F64, "quant/F64.safetensors", -1, -1},
    {SL_W_IQ2_XXS, "quant/IQ2_XXS.safetensors", 0, -1},
    {SL_W_IQ2_XS, "quant/IQ2_XS.safetensors", 0, -1},
    {SL_W_IQ2_S, "quant/IQ2_S.safetensors", 0, -1},
    {SL_W_IQ3_XXS, "quant/IQ3_XXS.safetensors", 0, -1},
    {SL_W_IQ3_S, "quant/IQ3_S.safetensors", 0, -1},
    {SL_W_IQ1_S, "quant/IQ1_S.safetensors", 0, -1},
    {SL_W_IQ1_M, "quant/IQ1_M.safetensors", 48, -1},
};
enum { N_TYPES = sizeof types / sizeof types[0] };
_Static_assert((int)N_TYPES == (int)SL_W_FIRST_BESIDE, "every weight type is checked");

static sl_kernels levels[SL_CPU_LEVEL_COUNT];
static int n_levels;

static bool is_quantised(sl_weight w)
{
    return sl_weight_about(w)->act != SL_ACT_F32;
}

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

static void *must(void *p)
{
    if (!p) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return p;
}

/* n bytes at an address that is shift more than a multiple of 64, and nothing after them, so that
 * the address sanitizer sees every step beyond. free(*base). */
static void *shifted(size_t n, size_t shift, void **base)
{
    *base = NULL;
    if (posix_memalign(base, 64, n + shift + (n + shift == 0)))
        *base = NULL;
    return (char *)must(*base) + shift;
}

/* ---- Dequantise against the goldens ---- */

static void check_values(const checked_type *t, const char *text, size_t len, const char *raw_name,
                         const char *values_name)
{
    const sl_weight_info *about = sl_weight_about(t->w);
    size_t raw_bytes, value_bytes;
    const void *raw = test_tensor(text, len, raw_name, &raw_bytes);
    const float *want = test_tensor(text, len, values_name, &value_bytes);
    if (!CHECK(raw && want, "%s has no %s", t->file, raw_name))
        return;
    const size_t n = value_bytes / sizeof(float);
    if (!CHECK(n / about->block_values * about->block_bytes == raw_bytes, "%s", raw_name))
        return;
    for (int l = 0; l < n_levels; l++)
        for (size_t shift = 0; shift < 3; shift++) {
            void *w_base, *y_base;
            char *w = shifted(raw_bytes, shift, &w_base);
            float *y = shifted(n * sizeof(float), 4 * shift, &y_base);
            memcpy(w, raw, raw_bytes);
            levels[l].dequantize[t->w](w, y, n, NULL);
            const size_t at = first_difference(y, want, n);
            CHECK(at == n, "%s %s, level %s: value %zu is %a, expected %a", about->name, raw_name,
                  levels[l].level, at, (double)y[at % n], (double)want[at % n]);
            free(w_base);
            free(y_base);
        }
}

/* ---- The law, restated with one formula per value ---- */

static int nibble32(const uint8_t *q, int i)
{
    return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

static int bit(const uint8_t *p, int i)
{
    return p[i / 8] >> (i % 8) & 1;
}

/* E2M1, doubled. */
static int law_e2m1(int nibble)
{
    const int exponent = nibble >> 1 & 3, mantissa = nibble & 1;
    const int size = exponent ? (2 + mantissa) << (exponent - 1) : mantissa;
    return nibble & 8 ? -size : size;
}

static int law_iq4(int nibble)
{
    static const int codes[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};
    return codes[nibble];
}

/* Digit n after the point of b / 256 in base 3. */
static int law_ternary(int b, int n)
{
    for (; n >= 0; n--)
        b *= 3;
    return b / 256 % 3 - 1;
}

/* n bits from bit at up, the lowest first. */
static int bits(const uint8_t *p, int at, int n)
{
    int v = 0;
    for (int i = 0; i < n; i++)
        v |= bit(p, at + i) << i;
    return v;
}

static int grid8(const uint64_t *grid, int index, int i)
{
    return (int)(grid[index] >> i % 8 * 8 & 255);
}

static int grid4(const uint32_t *grid, int index, int i)
{
    return (int)(grid[index] >> i % 4 * 8 & 255);
}

/* Of value i % 8, from seven bits: the eighth makes the number of negative ones even. */
static int sign7(int seven, int i)
{
    if (i % 8 < 7)
        return seven >> i % 8 & 1 ? -1 : 1;
    int sign = 1;
    for (int k = 0; k < 7; k++)
        sign = seven >> k & 1 ? -sign : sign;
    return sign;
}

static int law_q(sl_weight w, const uint8_t *b, int i)
{
    const int nibble_k = i / 32 % 2 * 4, byte_k = i / 64 * 32 + i % 32;
    switch (w) {
    case SL_W_Q8_0:
        return (int8_t)b[2 + i];
    case SL_W_Q4_0:
        return nibble32(b + 2, i) - 8;
    case SL_W_Q4_1:
        return nibble32(b + 4, i);
    case SL_W_Q5_0:
        return nibble32(b + 6, i) + 16 * bit(b + 2, i) - 16;
    case SL_W_Q5_1:
        return nibble32(b + 8, i) + 16 * bit(b + 4, i);
    case SL_W_Q4_K:
        return b[16 + byte_k] >> nibble_k & 15;
    case SL_W_Q5_K:
        return (b[48 + byte_k] >> nibble_k & 15) + 16 * (b[16 + i % 32] >> (i / 32) & 1);
    case SL_W_Q6_K:
        return (b[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15) +
               16 * (b[128 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 32;
    case SL_W_Q2_K:
        return b[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    case SL_W_Q3_K:
        return (b[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) +
               4 * (b[i % 32] >> (i / 32) & 1) - 4;
    case SL_W_IQ4_NL:
        return law_iq4(nibble32(b + 2, i));
    case SL_W_IQ4_XS:
        return law_iq4(nibble32(b + 8 + i / 32 * 16, i % 32));
    case SL_W_MXFP4:
        return law_e2m1(nibble32(b + 1, i));
    case SL_W_NVFP4:
        return law_e2m1(b[4 + i / 16 * 8 + i % 8] >> (i % 16 / 8 * 4) & 15);
    case SL_W_TQ1_0:
        return i < 160   ? law_ternary(b[i % 32], i / 32)
               : i < 240 ? law_ternary(b[32 + i % 16], (i - 160) / 16)
                         : law_ternary(b[48 + i % 4], (i - 240) / 4);
    case SL_W_TQ2_0:
        return (b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1;
    case SL_W_Q1_0:
        return 2 * bit(b + 2, i) - 1;
    case SL_W_Q2_0:
        return 2 * bit(b + 2, 2 * i + 1) + bit(b + 2, 2 * i) - 1;
    case SL_W_IQ2_XXS:
        return grid8(sl_grid_iq2_xxs, b[2 + i / 32 * 8 + i / 8 % 4], i) *
               sign7(bits(b + 2, i / 32 * 64 + 32 + i / 8 % 4 * 7, 7), i);
    case SL_W_IQ2_XS:
        return grid8(sl_grid_iq2_xs, bits(b + 2, i / 8 * 16, 9), i) *
               sign7(bits(b + 2, i / 8 * 16 + 9, 7), i);
    case SL_W_IQ2_S:
        return grid8(sl_grid_iq2_s, b[2 + i / 8] + 256 * bits(b + 66, i / 8 * 2, 2), i) *
               (1 - 2 * bit(b + 34, i));
    case SL_W_IQ3_XXS:
        return grid4(sl_grid_iq3_xxs, b[2 + i / 4], i) *
               sign7(bits(b + 66, i / 32 * 32 + i / 8 % 4 * 7, 7), i);
    case SL_W_IQ3_S:
        return grid4(sl_grid_iq3_s, b[2 + i / 4] + 256 * bit(b + 66, i / 4), i) *
               (1 - 2 * bit(b + 74, i));
    case SL_W_IQ1_S: /* eighths */
        return grid8(sl_grid_iq1, b[2 + i / 8] + 256 * bits(b + 34, i / 32 * 16 + i / 8 % 4 * 3, 3),
                     i) -
               8 + (bit(b + 34, i / 32 * 16 + 15) ? -1 : 1);
    case SL_W_IQ1_M:
        return grid8(sl_grid_iq1, b[i / 8] + 256 * bits(b + 32, i / 8 * 4, 3), i) - 8 +
               (bit(b + 32, i / 8 * 4 + 3) ? -1 : 1);
    default:
        return 0;
    }
}

static int law_grid_scale(sl_weight w, const uint8_t *b, int i)
{
    switch (w) {
    case SL_W_IQ2_XXS:
        return bits(b + 2, i / 32 * 64 + 60, 4);
    case SL_W_IQ2_XS:
        return bits(b + 66, i / 16 * 4, 4);
    case SL_W_IQ2_S:
        return bits(b + 74, i / 16 * 4, 4);
    case SL_W_IQ3_XXS:
        return bits(b + 66, i / 32 * 32 + 28, 4);
    case SL_W_IQ3_S:
        return bits(b + 106, i / 32 * 4, 4);
    case SL_W_IQ1_S:
        return bits(b + 34, i / 32 * 16 + 12, 3);
    default: /* IQ1_M */
        return bits(b + 48, i / 64 * 16 + i / 16 % 4 * 3, 3);
    }
}

/* Scale (min false) or minimum of the sub-block of value i. */
static int law_scale(sl_weight w, const uint8_t *b, int i, bool min)
{
    if (w == SL_W_Q6_K)
        return min ? 0 : (int8_t)b[192 + i / 16];
    if (w == SL_W_Q2_K)
        return min ? b[i / 16] >> 4 : b[i / 16] & 15;
    if (w == SL_W_Q3_K) {
        const int j = i / 16, low = j < 8 ? b[96 + j] & 15 : b[96 + j - 8] >> 4;
        return low + 16 * (b[104 + j % 4] >> (j / 4 * 2) & 3) - 32;
    }
    if (w == SL_W_IQ4_XS) {
        const int j = i / 32, low = b[4 + j / 2] >> (j % 2 * 4) & 15;
        return low + 16 * bit(b + 2, 2 * j) + 32 * bit(b + 2, 2 * j + 1) - 32;
    }
    if (w >= SL_W_IQ2_XXS && w <= SL_W_IQ1_M)
        return min ? 0 : 2 * law_grid_scale(w, b, i) + 1;
    if (w != SL_W_Q4_K && w != SL_W_Q5_K)
        return 1;
    const uint8_t *s = b + 4 + (min ? 4 : 0);
    const int j = i / 32;
    if (j < 4)
        return s[j] & 63;
    return (min ? b[4 + j + 4] >> 4 : b[4 + j + 4] & 15) | s[j - 4] >> 6 << 4;
}

static float law_quantize(const float *x, int n, int *q)
{
    float amax = 0.0f;
    bool finite = true;
    for (int i = 0; i < n; i++) {
        finite = finite && isfinite(x[i]);
        amax = fmaxf(amax, fabsf(x[i]));
        q[i] = 0;
    }
    if (!finite)
        return NAN;
    if (amax < SL_ACT_TINY)
        return 0.0f;
    const float d = amax / 127.0f, inverse = 1.0f / d;
    int largest = 0, square = 0;
    float tq[16] = {0};
    for (int i = 0; i < n; i++) {
        const float t = x[i] * inverse;
        q[i] = (int)nearbyintf(t);
        largest = abs(q[i]) > largest ? abs(q[i]) : largest;
        square += q[i] * q[i];
        tq[i % 16] = fmaf(t, (float)q[i], tq[i % 16]);
    }
    CHECK(largest == 127, "%d", largest);
    for (int lanes = 8; lanes; lanes /= 2)
        for (int i = 0; i < lanes; i++)
            tq[i] += tq[i + lanes];
    return d * (tq[0] / (float)square);
}

/* d, and where the format counts in fractions, those. */
static float law_grid_d(const checked_type *t, const uint8_t *b)
{
    switch (t->w) {
    case SL_W_IQ2_XXS:
    case SL_W_IQ2_XS:
    case SL_W_IQ2_S:
    case SL_W_IQ1_S:
        return sl_half_load(b + t->d_at) / 8.0f;
    case SL_W_IQ3_XXS:
        return sl_half_load(b + t->d_at) / 4.0f;
    case SL_W_IQ1_M:
        return sl_half_to_float((uint16_t)(bits(b + 48, 12, 4) | bits(b + 48, 28, 4) << 4 |
                                           bits(b + 48, 44, 4) << 8 | bits(b + 48, 60, 4) << 12)) /
               8.0f;
    default:
        return sl_half_load(b + t->d_at);
    }
}

/* The factor of value i's integer. */
static float law_d(const checked_type *t, const uint8_t *b, int i)
{
    if (t->w == SL_W_MXFP4)
        return ldexpf(0.5f, b[0] - 127);
    if (t->w >= SL_W_IQ2_XXS && t->w <= SL_W_IQ1_M)
        return law_grid_d(t, b);
    if (t->w != SL_W_NVFP4)
        return sl_half_load(b + t->d_at);
    const int byte = b[i / 16], exponent = byte >> 3 & 15, mantissa = byte & 7;
    if (byte == 0x7f)
        return 0.0f;
    return 0.5f * (exponent ? ldexpf(1.0f + (float)mantissa / 8.0f, exponent - 7)
                            : ldexpf((float)mantissa, -9));
}

/* One step for as many values as have one w.d and one x.d. */
static float law_dot(const checked_type *t, const uint8_t *row, const float *x, size_t n_cols)
{
    const sl_weight_info *about = sl_weight_about(t->w);
    const int n_x = about->act == SL_ACT_Q8_256 ? 256 : 32, step = t->w == SL_W_NVFP4 ? 16 : n_x;
    float acc = 0.0f;
    for (size_t c = 0; c < n_cols; c += (size_t)n_x) {
        const uint8_t *b = row + c / about->block_values * about->block_bytes;
        const int at = (int)(c % about->block_values);
        int q[256];
        const float dx = law_quantize(x + c, n_x, q);
        for (int k = 0; k < n_x; k += step) {
            int64_t isum = 0, msum = 0;
            for (int i = k; i < k + step; i++) {
                isum += (int64_t)law_q(t->w, b, at + i) * q[i] * law_scale(t->w, b, at + i, false);
                msum += (int64_t)q[i] * law_scale(t->w, b, at + i, true);
            }
            acc = fmaf(law_d(t, b, at + k) * dx, (float)isum, acc);
            if (t->m_at < 0)
                continue;
            const float m = sl_half_load(b + t->m_at) * dx;
            acc = fmaf(n_x == 256 ? -m : m, (float)msum, acc);
        }
    }
    return acc;
}

/* ---- Products, scalar: against the goldens in double and against the law ---- */

/* A value of x is off by at most d/2, like a uniform random number: a product with n weights is
 * off by about sqrt(sum w^2 d^2 / 12). Six times that, plus the rounding of a float sum of this
 * size, is the bound. */
static double noise_bound(const float *values, const float *x, size_t n_cols, size_t block)
{
    double square = 0.0, size = 0.0;
    for (size_t c = 0; c < n_cols; c += block) {
        double amax = 0.0, wmax = 0.0;
        for (size_t i = c; i < c + block; i++) {
            amax = fmax(amax, fabs((double)x[i]));
            wmax = fmax(wmax, fabs((double)values[i]));
        }
        for (size_t i = c; i < c + block; i++)
            square += pow((double)values[i] * amax / 127.0, 2.0) / 12.0;
        size += wmax * amax * (double)block;
    }
    return 6.0 * sqrt(square) + size * 0x1p-20;
}

static void check_golden_product(const checked_type *t, const char *text, size_t len)
{
    const sl_weight_info *about = sl_weight_about(t->w);
    size_t bytes;
    const uint8_t *raw = test_tensor(text, len, "raw", &bytes);
    const float *values = test_tensor(text, len, "values", &bytes);
    const float *x = test_tensor(text, len, "x", &bytes);
    const double *want = test_tensor(text, len, "y", &bytes);
    if (!CHECK(raw && values && x && want && bytes == 16 * sizeof(double), "%s", t->file))
        return;
    const size_t n_cols = 1024, row_bytes = sl_weight_row_bytes(t->w, n_cols);
    const size_t act_bytes = sl_act_bytes(about->act, n_cols);
    void *act, *scratch;
    shifted(act_bytes, 0, &act);
    shifted(sl_mul_scratch_bytes(t->w, n_cols), 0, &scratch);
    float y[16];
    levels[0].quantize[about->act](x, act, n_cols);
    levels[0].mul[t->w](raw, row_bytes, 16, n_cols, act, act_bytes, 1, y, 16, scratch, NULL);
    for (int r = 0; r < 16; r++) {
        const double bound = noise_bound(values + (size_t)r * n_cols, x, n_cols,
                                         about->act == SL_ACT_Q8_256 ? 256 : 32);
        CHECK(fabs((double)y[r] - want[r]) <= bound, "%s row %d: %g, expected %g +- %g",
              about->name, r, (double)y[r], want[r], bound);
        const float law = law_dot(t, raw + (size_t)r * row_bytes, x, n_cols);
        CHECK(same_float(y[r], law), "%s row %d: %a, the law says %a", about->name, r, (double)y[r],
              (double)law);
    }
    free(act);
    free(scratch);
}

/* ---- Contents ---- */

typedef enum x_kind {
    X_NORMAL,
    X_ZERO,
    X_SUBNORMAL,
    X_NEAR_TINY,
    X_OUTLIER,
    X_EXTREME,
    X_HUGE,
    X_HALVES,
    X_INFINITE,
    X_NAN,
    X_COUNT
} x_kind;

static void fill_x(x_kind kind, float *x, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        const float f = test_random_float(seed);
        const bool odd = test_random(seed) >> 63;
        switch (kind) {
        case X_ZERO:
            x[i] = odd ? 0.0f : -0.0f;
            break;
        case X_SUBNORMAL:
            x[i] = f * 0x1p-130f;
            break;
        case X_NEAR_TINY:
            x[i] = i % 32 == 7 ? SL_ACT_TINY * (i / 32 % 2 ? 1.0f : 0.99999994f) : f * 0x1p-123f;
            break;
        case X_EXTREME:
            x[i] = odd ? 3.0f : -3.0f;
            break;
        case X_HUGE:
            x[i] = f * 0x1p125f;
            break;
        case X_HALVES: /* ties between two integers */
            x[i] = i % 32 == 3 ? 127.0f : (float)(int)(f * 60.0f) + 0.5f;
            break;
        default:
            x[i] = f;
        }
    }
    const size_t at = test_random(seed) % n;
    if (kind == X_OUTLIER)
        x[at] = -1000.0f;
    if (kind == X_INFINITE)
        x[at] = -INFINITY;
    if (kind == X_NAN)
        x[at] = NAN;
}

typedef enum w_kind {
    W_RANDOM,
    W_GOLDEN_RAND,
    W_GOLDEN_EDGE,
    W_ZERO,
    W_LOWEST,
    W_HIGHEST,
    W_COUNT
} w_kind;

static uint16_t random_half(uint64_t *seed)
{
    const uint16_t h = (uint16_t)test_random(seed);
    return (h & 0x7c00u) == 0x7c00u ? (uint16_t)(h ^ 0x4000u) : h;
}

/* IQ1_M has the nibbles of its d on top of four words. */
static void set_half(const checked_type *t, uint8_t *block, int at, uint16_t h)
{
    if (t->w == SL_W_IQ1_M && at >= 0)
        for (int i = 0; i < 4; i++)
            block[at + 2 * i + 1] =
                (uint8_t)((block[at + 2 * i + 1] & 15) | (h >> 4 * i & 15) << 4);
    else if (at >= 0)
        memcpy(block + at, &h, sizeof h);
}

static void fill_block(const checked_type *t, w_kind kind, uint8_t *block, uint64_t *seed)
{
    const size_t n = sl_weight_about(t->w)->block_bytes;
    for (size_t i = 0; i < n; i++)
        block[i] = (uint8_t)test_random(seed);
    /* 0x80: the lowest int8 as weight and as scale; 0xff: the largest nibbles and six-bit scales;
     * of IQ4, code and scale 0 are the largest magnitudes */
    const bool is_iq4 = t->w == SL_W_IQ4_NL || t->w == SL_W_IQ4_XS;
    if (kind == W_ZERO || kind == W_LOWEST)
        memset(block, kind == W_ZERO || is_iq4 ? 0 : 0x80, n);
    if (kind == W_HIGHEST)
        memset(block, t->w == SL_W_Q8_0 || t->w == SL_W_Q6_K ? 0x7f : 0xff, n);
    if (kind == W_HIGHEST && t->w == SL_W_Q6_K)
        memset(block, 0xff, 192);
    if (kind != W_ZERO) {
        set_half(t, block, t->d_at, random_half(seed));
        set_half(t, block, t->m_at, random_half(seed));
    }
}

static void fill_w(const checked_type *t, w_kind kind, const char *text, size_t len, uint8_t *w,
                   size_t n_blocks, uint64_t *seed)
{
    const size_t block_bytes = sl_weight_about(t->w)->block_bytes;
    size_t bytes = 0;
    const uint8_t *golden = NULL;
    if (kind == W_GOLDEN_RAND || kind == W_GOLDEN_EDGE)
        golden = test_tensor(text, len, kind == W_GOLDEN_RAND ? "rand_raw" : "edge_raw", &bytes);
    for (size_t i = 0; i < n_blocks; i++)
        if (golden)
            memcpy(w + i * block_bytes, golden + i * block_bytes % bytes, block_bytes);
        else
            fill_block(t, kind, w + i * block_bytes, seed);
}

/* ---- Codebooks, all of them: the goldens hold most points ---- */

static void check_grids(void)
{
    static const struct {
        const char *name;
        const void *table;
        size_t size;
    } grids[] = {
        {"iq2_xxs", sl_grid_iq2_xxs, sizeof sl_grid_iq2_xxs},
        {"iq2_xs", sl_grid_iq2_xs, sizeof sl_grid_iq2_xs},
        {"iq2_s", sl_grid_iq2_s, sizeof sl_grid_iq2_s},
        {"iq3_xxs", sl_grid_iq3_xxs, sizeof sl_grid_iq3_xxs},
        {"iq3_s", sl_grid_iq3_s, sizeof sl_grid_iq3_s},
        {"iq1", sl_grid_iq1, sizeof sl_grid_iq1},
    };
    size_t len = 0, bytes = 0;
    char *text = test_read(test_data("quant/GRIDS.safetensors"), &len);
    test_case("codebooks");
    for (size_t i = 0; i < sizeof grids / sizeof grids[0]; i++) {
        const void *want = text ? test_tensor(text, len, grids[i].name, &bytes) : NULL;
        CHECK(want && bytes == grids[i].size && memcmp(want, grids[i].table, bytes) == 0, "%s",
              grids[i].name);
    }
    free(text);
}

/* ---- Products: every level, shape and content against scalar ---- */

enum { MAX_ROWS = 83, MAX_BATCH = 33 };
#define CANARY sl_float_of_bits(0x7fc0beefu)

typedef struct problem {
    const checked_type *type;
    size_t n_cols, row_bytes, act_bytes;
    const uint8_t *w;
    const char *act;
    const float *want; /* [MAX_BATCH][MAX_ROWS], by the scalar level */
} problem;

/* One call with exact buffers; whether y is as wanted and nothing else was written. */
static void check_call(const problem *p, const sl_kernels *k, size_t n_rows, size_t n_batch,
                       size_t shift)
{
    const size_t y_stride = n_rows + shift % 4 + (n_rows == 0), w_bytes = n_rows * p->row_bytes;
    const size_t scratch_bytes = sl_mul_scratch_bytes(p->type->w, p->n_cols);
    const size_t n_y = n_batch ? (n_batch - 1) * y_stride + n_rows : 0;
    void *w_base, *act_base, *y_base, *scratch_base;
    uint8_t *w = shifted(w_bytes, shift, &w_base);
    char *act = shifted(n_batch * p->act_bytes, 0, &act_base);
    float *y = shifted(n_y * sizeof(float), 4 * (shift % 8), &y_base);
    void *scratch = shifted(scratch_bytes, 0, &scratch_base);
    memcpy(w, p->w, w_bytes);
    memcpy(act, p->act, n_batch * p->act_bytes);
    for (size_t i = 0; i < n_y; i++)
        y[i] = CANARY;
    k->mul[p->type->w](w, p->row_bytes, n_rows, p->n_cols, act, p->act_bytes, n_batch, y, y_stride,
                       scratch, NULL);
    size_t wrong = 0, spilt = 0, at = 0;
    float first = 0.0f;
    for (size_t i = 0; i < n_y; i++) {
        const size_t b = i / y_stride, r = i % y_stride;
        if (r >= n_rows)
            spilt += sl_bits_of_float(y[i]) != sl_bits_of_float(CANARY);
        else if (!same_float(y[i], p->want[b * MAX_ROWS + r]) && wrong++ == 0) {
            at = i;
            first = y[i];
        }
    }
    CHECK(wrong == 0,
          "%s at %s, %zu rows, %zu columns, batch %zu, shift %zu: %zu outputs differ, the first "
          "[%zu][%zu] %a",
          sl_weight_about(p->type->w)->name, k->level, n_rows, p->n_cols, n_batch, shift, wrong,
          at / y_stride, at % y_stride, (double)first);
    CHECK(spilt == 0, "%s at %s: wrote between the rows of y", sl_weight_about(p->type->w)->name,
          k->level);
    CHECK(memcmp(w, p->w, w_bytes) == 0 && memcmp(act, p->act, n_batch * p->act_bytes) == 0,
          "%s at %s: wrote to its inputs", sl_weight_about(p->type->w)->name, k->level);
    free(w_base);
    free(act_base);
    free(y_base);
    free(scratch_base);
}

/* For slow places, such as emulated CPUs: every slot and content, few shapes. */
static bool quick(void)
{
    return getenv("SL_TEST_QUICK") != NULL;
}

static void check_shapes(const problem *p, const sl_kernels *k)
{
    if (quick()) {
        check_call(p, k, 17, 1, 3);
        check_call(p, k, 17, 7, 5);
        return;
    }
    static const size_t batches[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33};
    static const size_t rows[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 40, 83};
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++)
        for (size_t j = 0; j < sizeof rows / sizeof rows[0]; j++)
            check_call(p, k, rows[j], batches[i], (i * 5 + j) % 67);
    for (size_t n = 1; n <= 40; n++) {
        check_call(p, k, n, 1, n);
        check_call(p, k, n, 6, n);
    }
}

static void check_contents(const checked_type *t, const char *text, size_t len)
{
    const sl_weight_info *about = sl_weight_about(t->w);
    const size_t blocks[] = {1, 2, 3, 16, 18, about->block_values == 32 ? 67 : 33};
    uint64_t seed = 1 + (uint64_t)t->w;
    const size_t n_sizes = getenv("SL_TEST_QUICK") ? 3 : sizeof blocks / sizeof blocks[0];
    for (int wk = 0; wk < W_COUNT; wk++)
        for (size_t s = 0; s < n_sizes; s++) {
            problem p = {.type = t, .n_cols = blocks[s] * about->block_values};
            p.row_bytes = sl_weight_row_bytes(t->w, p.n_cols);
            p.act_bytes = sl_act_bytes(about->act, p.n_cols);
            uint8_t *w = must(malloc(MAX_ROWS * p.row_bytes));
            float *x = must(malloc(p.n_cols * sizeof(float)));
            float *want = must(malloc(MAX_BATCH * MAX_ROWS * sizeof(float)));
            void *act, *scratch;
            shifted(MAX_BATCH * p.act_bytes, 0, &act);
            shifted(sl_mul_scratch_bytes(t->w, p.n_cols), 0, &scratch);
            memset(act, 0, MAX_BATCH * p.act_bytes);
            fill_w(t, (w_kind)wk, text, len, w, MAX_ROWS * blocks[s], &seed);
            for (size_t b = 0; b < MAX_BATCH; b++) {
                fill_x((x_kind)(b % X_COUNT), x, p.n_cols, &seed);
                levels[0].quantize[about->act](x, (char *)act + b * p.act_bytes, p.n_cols);
                for (size_t r = 0; r < MAX_ROWS; r += 5)
                    want[b * MAX_ROWS + r] = law_dot(t, w + r * p.row_bytes, x, p.n_cols);
            }
            float *scalar = must(malloc(MAX_BATCH * MAX_ROWS * sizeof(float)));
            levels[0].mul[t->w](w, p.row_bytes, MAX_ROWS, p.n_cols, act, p.act_bytes, MAX_BATCH,
                                scalar, MAX_ROWS, scratch, NULL);
            for (size_t i = 0; i < MAX_BATCH * MAX_ROWS; i++)
                if (i % MAX_ROWS % 5 == 0)
                    CHECK(same_float(scalar[i], want[i]), "%s: scalar %a, the law says %a",
                          about->name, (double)scalar[i], (double)want[i]);
            p.w = w;
            p.act = act;
            p.want = scalar;
            for (int l = 0; l < n_levels; l++)
                if (l > 0 || wk == W_RANDOM)
                    check_shapes(&p, &levels[l]);
            free(w);
            free(x);
            free(want);
            free(scalar);
            free(act);
            free(scratch);
        }
}

/* ---- Activations: every level against scalar ---- */

static void check_quantize(sl_act act)
{
    const size_t block = act == SL_ACT_Q8_32 ? 32 : 256;
    uint64_t seed = 99;
    for (int kind = 0; kind < X_COUNT; kind++)
        for (size_t n_blocks = 0; n_blocks <= 35; n_blocks++) {
            const size_t n = n_blocks * block, bytes = sl_act_bytes(act, n);
            void *x_base, *want, *got;
            float *x = shifted(n * sizeof(float), n_blocks % 16 * 4, &x_base);
            shifted(bytes, 0, &want);
            if (n)
                fill_x((x_kind)kind, x, n, &seed);
            memset(want, 0, bytes);
            levels[0].quantize[act](x, want, n);
            const float *d = (const float *)(const void *)((const char *)want + n);
            if (kind == X_NAN || kind == X_INFINITE) {
                bool nan = n == 0;
                for (size_t i = 0; i < n_blocks; i++)
                    nan = nan || isnan(d[i]);
                CHECK(nan, "a value that is not finite makes its block NaN");
            }
            for (int l = 1; l < n_levels; l++) {
                shifted(bytes, 0, &got);
                memset(got, 0, bytes);
                levels[l].quantize[act](x, got, n);
                const float *d_got = (const float *)(const void *)((const char *)got + n);
                const size_t sums = n + 4 * n_blocks;
                CHECK(memcmp(want, got, n) == 0 &&
                          first_difference(d, d_got, n_blocks) == n_blocks &&
                          memcmp((char *)want + sums, (char *)got + sums, bytes - sums) == 0,
                      "form %d, kind %d, %zu blocks at %s", (int)act, kind, n_blocks,
                      levels[l].level);
                free(got);
            }
            free(want);
            free(x_base);
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
static double time_mul(const sl_kernels *k, sl_weight w, const void *weights, size_t n_rows,
                       size_t n_cols, size_t n_batch)
{
    const sl_act form = sl_weight_about(w)->act;
    const size_t act_bytes = sl_act_bytes(form, n_cols);
    void *act, *scratch;
    float *x = must(malloc(n_cols * sizeof(float)));
    float *y = must(malloc(n_rows * n_batch * sizeof(float)));
    shifted(n_batch * act_bytes, 0, &act);
    shifted(sl_mul_scratch_bytes(w, n_cols), 0, &scratch);
    uint64_t seed = 5;
    for (size_t b = 0; b < n_batch; b++) {
        fill_x(X_NORMAL, x, n_cols, &seed);
        k->quantize[form](x, (char *)act + b * act_bytes, n_cols);
    }
    double best = 1e9, begin = seconds();
    for (int i = 0; i < 2 || seconds() - begin < 0.2; i++) {
        double t = seconds();
        k->mul[w](weights, sl_weight_row_bytes(w, n_cols), n_rows, n_cols, act, act_bytes, n_batch,
                  y, n_rows, scratch, NULL);
        t = seconds() - t;
        best = t < best ? t : best;
    }
    free(x);
    free(y);
    free(act);
    free(scratch);
    return best;
}

static void bench_quantize(const sl_kernels *k, sl_act form)
{
    enum { N = 4096, REPEAT = 200 };
    float *x = must(malloc(N * sizeof(float)));
    void *act;
    shifted(sl_act_bytes(form, N), 0, &act);
    uint64_t seed = 5;
    fill_x(X_NORMAL, x, N, &seed);
    double t = seconds();
    for (int i = 0; i < REPEAT; i++)
        k->quantize[form](x, act, N);
    t = (seconds() - t) / REPEAT;
    printf("quantize %-5s %-8s %6.2f ns/value\n", form == SL_ACT_Q8_32 ? "32" : "256", k->level,
           t * 1e9 / N);
    free(x);
    free(act);
}

static void bench(void)
{
    const size_t n_cols = 4096, bytes = (size_t)64 << 20;
    uint8_t *w;
    void *base;
    w = shifted(bytes, 0, &base);
    static const size_t batches[] = {2, 3, 4, 5, 8, 64, 512};
    enum { N_BATCHES = sizeof batches / sizeof batches[0] };
    printf("%-18s   GB/s, batch 1   G multiply-adds/s, batch\n", "");
    printf("%-8s %-8s  64 MB    1 MB", "type", "level");
    for (int i = 0; i < N_BATCHES; i++)
        printf("%8zu", batches[i]);
    putchar('\n');
    for (int i = 0; i < N_TYPES; i++) {
        const checked_type *t = &types[i];
        if (!is_quantised(t->w))
            continue;
        const size_t row_bytes = sl_weight_row_bytes(t->w, n_cols), n_rows = bytes / row_bytes;
        uint64_t seed = 3;
        fill_w(t, W_RANDOM, NULL, 0, w, 1000, &seed);
        const size_t some = 1000 * sl_weight_about(t->w)->block_bytes;
        for (size_t at = some; at < bytes; at += some)
            memcpy(w + at, w, at + some > bytes ? bytes - at : some);
        for (int l = 0; l < n_levels; l++) {
            const size_t rows = l ? n_rows : n_rows / 16, few = l ? 1024 : 16;
            const double one = time_mul(&levels[l], t->w, w, rows, n_cols, 1);
            const double near = time_mul(&levels[l], t->w, w, n_rows / 64, n_cols, 1);
            printf("%-8s %-8s %6.2f  %6.2f", sl_weight_about(t->w)->name, levels[l].level,
                   (double)(rows * row_bytes) / one * 1e-9,
                   (double)(n_rows / 64 * row_bytes) / near * 1e-9);
            for (int k = 0; k < N_BATCHES; k++) {
                const double many = time_mul(&levels[l], t->w, w, few, n_cols, batches[k]);
                printf("%8.1f", (double)(few * n_cols * batches[k]) / many * 1e-9);
            }
            putchar('\n');
            fflush(stdout);
        }
    }
    for (int l = 0; l < n_levels; l++) {
        bench_quantize(&levels[l], SL_ACT_Q8_32);
        bench_quantize(&levels[l], SL_ACT_Q8_256);
    }
    free(base);
}

int main(int argc, char **argv)
{
    for (int l = 0; l <= (int)sl_cpu_best(); l++)
        sl_kernels_init(&levels[n_levels++], (sl_cpu_level)l);
    if (argc > 1 && strcmp(argv[1], "--level") == 0) { /* for tests/levels.sh */
        puts(sl_cpu_level_name(sl_cpu_best()));
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        bench();
        return 0;
    }
    check_quantize(SL_ACT_Q8_32);
    check_quantize(SL_ACT_Q8_256);
    check_grids();
    for (int i = 0; i < N_TYPES; i++) {
        size_t len = 0;
        char *text = test_read(test_data(types[i].file), &len);
        test_case("%s", sl_weight_about(types[i].w)->name);
        CHECK(types[i].w == (sl_weight)i, "the table is in order");
        if (!CHECK(text, "%s", types[i].file))
            continue;
        check_values(&types[i], text, len, "raw", "values");
        if (types[i].w == SL_W_F16 || types[i].w == SL_W_BF16)
            check_values(&types[i], text, len, "table_raw", "table_values");
        if (is_quantised(types[i].w)) {
            check_values(&types[i], text, len, "rand_raw", "rand_values");
            check_values(&types[i], text, len, "edge_raw", "edge_values");
            check_golden_product(&types[i], text, len);
            check_contents(&types[i], text, len);
        }
        free(text);
    }
    return test_end();
}
