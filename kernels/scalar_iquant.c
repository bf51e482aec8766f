/* The definition of the codebook types, IQ1, IQ2 and IQ3: what their blocks mean, and their
 * products. The steps are those of scalar_quant.c for types of 256 without minima:
 *
 *   acc = fma(round(w.d * x.d), float(isum), acc)
 *
 * isum is exact: a value is an integer (codebook entry times sign; for IQ1 eighths, 8 * entry with
 * the delta of +-1 added), and so is what a sub-block's scale multiplies by, 2 s + 1. What remains
 * is a power of two, which w.d includes (a f16 times it is exact): 1/8 for IQ2 and IQ1, 1/4 for
 * IQ3_XXS, 1 for IQ3_S. The largest |isum| is IQ3_XXS's, 256 * 31 * 62 * 127 < 2^26. */
#include <math.h>

#include "half.h"
#include "iq_grids.h"
#include "levels.h"
#include "quant.h"

typedef struct grid_block {
    float d;
    int8_t scale[16]; /* per 16 */
    int8_t q[256];
} grid_block;

typedef void open_fn(const void *w, size_t i, grid_block *out);

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* out[0..7] = bytes of a codebook entry, negative where bits of sign are set. */
static void put_eight(uint64_t entry, uint32_t sign, int8_t *out)
{
    for (int k = 0; k < 8; k++) {
        const int value = (int)(entry >> 8 * k & 255);
        out[k] = (int8_t)(sign >> k & 1 ? -value : value);
    }
}

/* The eighth sign of seven, such that an even number of them is set. */
static uint32_t eight_signs(uint32_t seven)
{
    seven &= 127;
    return seven | (uint32_t)(__builtin_popcount(seven) & 1) << 7;
}

static int8_t odd(uint32_t s)
{
    return (int8_t)(2 * s + 1);
}

/* A byte per sub-block of 32, a nibble per 16. */
static void open_nibble_scales(const uint8_t scales[8], grid_block *out)
{
    for (int j = 0; j < 16; j++)
        out->scale[j] = odd(scales[j / 2] >> j % 2 * 4 & 15u);
}

static void open_iq2_xxs(const void *w, size_t i, grid_block *out)
{
    const sl_iq2_xxs *b = (const sl_iq2_xxs *)w + i;
    out->d = sl_half_load(b->d) * 0.125f;
    for (int j = 0; j < 8; j++) {
        const uint32_t signs = load_u32(b->q + 8 * j + 4);
        out->scale[2 * j] = out->scale[2 * j + 1] = odd(signs >> 28);
        for (int l = 0; l < 4; l++)
            put_eight(sl_grid_iq2_xxs[b->q[8 * j + l]], eight_signs(signs >> 7 * l),
                      out->q + 32 * j + 8 * l);
    }
}

static void open_iq2_xs(const void *w, size_t i, grid_block *out)
{
    const sl_iq2_xs *b = (const sl_iq2_xs *)w + i;
    out->d = sl_half_load(b->d) * 0.125f;
    open_nibble_scales(b->scales, out);
    for (int k = 0; k < 32; k++) {
        const uint32_t word = sl_load_u16(b->q + 2 * k);
        put_eight(sl_grid_iq2_xs[word & 511], eight_signs(word >> 9), out->q + 8 * k);
    }
}

static void open_iq2_s(const void *w, size_t i, grid_block *out)
{
    const sl_iq2_s *b = (const sl_iq2_s *)w + i;
    out->d = sl_half_load(b->d) * 0.125f;
    open_nibble_scales(b->scales, out);
    for (int k = 0; k < 32; k++) {
        const uint32_t top = b->high[k / 4] >> k % 4 * 2 & 3u;
        put_eight(sl_grid_iq2_s[b->q[k] | top << 8], b->signs[k], out->q + 8 * k);
    }
}

static void open_iq3_xxs(const void *w, size_t i, grid_block *out)
{
    const sl_iq3_xxs *b = (const sl_iq3_xxs *)w + i;
    out->d = sl_half_load(b->d) * 0.25f;
    for (int j = 0; j < 8; j++) {
        const uint32_t signs = load_u32(b->signs + 4 * j);
        out->scale[2 * j] = out->scale[2 * j + 1] = odd(signs >> 28);
        for (int l = 0; l < 4; l++) {
            const uint8_t *q = b->q + 8 * j + 2 * l;
            const uint64_t entry = sl_grid_iq3_xxs[q[0]] | (uint64_t)sl_grid_iq3_xxs[q[1]] << 32;
            put_eight(entry, eight_signs(signs >> 7 * l), out->q + 32 * j + 8 * l);
        }
    }
}

static void open_iq3_s(const void *w, size_t i, grid_block *out)
{
    const sl_iq3_s *b = (const sl_iq3_s *)w + i;
    out->d = sl_half_load(b->d);
    for (int j = 0; j < 16; j++)
        out->scale[j] = odd(b->scales[j / 4] >> j / 2 % 2 * 4 & 15u);
    for (int k = 0; k < 32; k++) {
        const uint32_t top = b->high[k / 4] >> k % 4 * 2;
        const uint32_t low = sl_grid_iq3_s[b->q[2 * k] | (top & 1) << 8];
        const uint32_t high = sl_grid_iq3_s[b->q[2 * k + 1] | (top >> 1 & 1) << 8];
        put_eight(low | (uint64_t)high << 32, b->signs[k], out->q + 8 * k);
    }
}

/* out[0..7] = 8 * grid value, one more or less. The table has 8 * (grid value + 1). */
static void put_eighths(uint64_t entry, uint32_t minus, int8_t *out)
{
    for (int k = 0; k < 8; k++)
        out[k] = (int8_t)((int)(entry >> 8 * k & 255) - 8 + (minus ? -1 : 1));
}

static void open_iq1_s(const void *w, size_t i, grid_block *out)
{
    const sl_iq1_s *b = (const sl_iq1_s *)w + i;
    out->d = sl_half_load(b->d) * 0.125f;
    for (int j = 0; j < 8; j++) {
        const uint32_t high = sl_load_u16(b->high + 2 * j);
        out->scale[2 * j] = out->scale[2 * j + 1] = odd(high >> 12 & 7);
        for (int l = 0; l < 4; l++)
            put_eighths(sl_grid_iq1[b->q[4 * j + l] | (high >> 3 * l & 7) << 8], high >> 15,
                        out->q + 32 * j + 8 * l);
    }
}

static void open_iq1_m(const void *w, size_t i, grid_block *out)
{
    const sl_iq1_m *b = (const sl_iq1_m *)w + i;
    uint32_t d = 0;
    for (int p = 0; p < 4; p++) {
        const uint32_t word = sl_load_u16(b->scales + 2 * p);
        d |= word >> 12 << 4 * p;
        for (int j = 0; j < 4; j++)
            out->scale[4 * p + j] = odd(word >> 3 * j & 7);
    }
    out->d = sl_half_to_float((uint16_t)d) * 0.125f;
    for (int k = 0; k < 32; k++) {
        const uint32_t high = b->high[k / 2] >> k % 2 * 4 & 15u;
        put_eighths(sl_grid_iq1[b->q[k] | (high & 7) << 8], high >> 3, out->q + 8 * k);
    }
}

/* Every product is exact (11 bits of d, 5 of the scale, 6 of the value fit the 24 of a float), so
 * the order of the factors is open. */
static inline void dequantize(open_fn *open, const void *w, float *y, size_t n_cols)
{
    grid_block b;
    for (size_t i = 0; i < n_cols / 256; i++) {
        open(w, i, &b);
        for (int k = 0; k < 256; k++)
            y[256 * i + (size_t)k] = b.d * (float)b.scale[k / 16] * (float)b.q[k];
    }
}

static float add_block(const grid_block *w, sl_act_q8_256 x, size_t i, float acc)
{
    int32_t isum = 0;
    for (int j = 0; j < 16; j++) {
        int32_t sub = 0;
        for (int k = 0; k < 16; k++)
            sub += w->q[16 * j + k] * x.q[256 * i + 16 * (size_t)j + (size_t)k];
        isum += w->scale[j] * sub;
    }
    return fmaf(w->d * x.d[i], (float)isum, acc);
}

/* The outputs of a row are its accumulators, so that a block is opened once for all of them. */
static inline void mul(open_fn *open, SL_MUL_ARGS)
{
    grid_block block;
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t b = 0; b < n_batch; b++)
            y[b * y_stride + r] = 0.0f;
        for (size_t i = 0; i < n_cols / 256; i++) {
            open((const char *)w + r * row_bytes, i, &block);
            for (size_t b = 0; b < n_batch; b++) {
                float *out = &y[b * y_stride + r];
                const sl_act_q8_256 x =
                    sl_act_q8_256_row((const char *)act + b * act_bytes, n_cols);
                *out = add_block(&block, x, i, *out);
            }
        }
    }
}

#define CODEBOOK(type)                                                                             \
    static void dequantize_##type(SL_DEQUANTIZE_ARGS)                                              \
    {                                                                                              \
        dequantize(open_##type, w, y, n_cols);                                                     \
    }                                                                                              \
    static void mul_##type(SL_MUL_ARGS)                                                            \
    {                                                                                              \
        mul(open_##type, w, row_bytes, n_rows, n_cols, act, act_bytes, n_batch, y, y_stride,       \
            scratch, beside);                                                                      \
    }
CODEBOOK(iq2_xxs)
CODEBOOK(iq2_xs)
CODEBOOK(iq2_s)
CODEBOOK(iq3_xxs)
CODEBOOK(iq3_s)
CODEBOOK(iq1_s)
CODEBOOK(iq1_m)

void sl_kernels_fill_scalar_iquant(sl_kernels *k)
{
#define FILL(slot, type)                                                                           \
    k->dequantize[slot] = dequantize_##type;                                                       \
    k->mul[slot] = mul_##type
    FILL(SL_W_IQ2_XXS, iq2_xxs);
    FILL(SL_W_IQ2_XS, iq2_xs);
    FILL(SL_W_IQ2_S, iq2_s);
    FILL(SL_W_IQ3_XXS, iq3_xxs);
    FILL(SL_W_IQ3_S, iq3_s);
    FILL(SL_W_IQ1_S, iq1_s);
    FILL(SL_W_IQ1_M, iq1_m);
#undef FILL
}
