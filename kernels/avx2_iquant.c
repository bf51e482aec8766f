/* The codebook types, IQ1, IQ2 and IQ3, AVX2. As unsigned bytes, offset more than their values, in
 * a tile (see avx2_quant.c for the bound, 32767):
 *
 *   type              weight byte      one pair             sums in 16 bits   most
 *   IQ2, IQ3_XXS      2 .. 126         2 * 126 * 127 = 32004      1          32004
 *   IQ3_S             1 .. 31          2 * 31 * 127 = 7874        4          31496
 *   IQ1               0 .. 18          2 * 18 * 127 = 4572        4          18288
 *
 * min is offset * scale, at most 64 * 31. */
#include "avx2_grids.h"
#include "avx2_mul.h"
#include "levels.h"

MUL(iq2_xxs, 256, .n_in_16 = 1, .n_scales = 16, .n_mins = 8, .offset = 1)
MUL(iq2_xs, 256, .n_in_16 = 1, .n_scales = 16, .n_mins = 8, .offset = 1)
MUL(iq2_s, 256, .n_in_16 = 1, .n_scales = 16, .n_mins = 8, .offset = 1)
MUL(iq3_xxs, 256, .n_in_16 = 1, .n_scales = 16, .n_mins = 8, .offset = 1)
MUL(iq3_s, 256, .n_in_16 = 4, .n_scales = 16, .n_mins = 8, .offset = 1)
MUL(iq1_s, 256, .n_in_16 = 4, .n_scales = 16, .n_mins = 8, .offset = 1)
MUL(iq1_m, 256, .n_in_16 = 4, .n_scales = 16, .n_mins = 8, .offset = 1)

/* y[0..15] = d * q */
static inline void store_sixteen(float *y, __m128i q, float d)
{
    const __m256 by = _mm256_set1_ps(d);
    const __m256i q0 = _mm256_cvtepi8_epi32(q), q1 = _mm256_cvtepi8_epi32(_mm_srli_si128(q, 8));
    _mm256_storeu_ps(y, _mm256_mul_ps(by, _mm256_cvtepi32_ps(q0)));
    _mm256_storeu_ps(y + 8, _mm256_mul_ps(by, _mm256_cvtepi32_ps(q1)));
}

/* All products but the last are exact, so are the scalar ones. */
SL_INLINE void dequantize_block(sl_grid_head_fn *head, sl_entries_fn *entries, int has_signs,
                                int is_iq1_s, int n_vectors, const uint8_t *p, float d, float *y)
{
    sl_grid_head h;
    uint8_t scale[16];
    sl_grid_indices x;
    head(p, &h);
    sl_store_indices(&h, n_vectors, &x);
    _mm_storeu_si128((__m128i *)(void *)scale, _mm256_castsi256_si128(h.scale));
    SL_UNROLL
    for (int g = 0; g < 8; g++) {
        __m256i v = entries(p, &h, &x, g);
        if (has_signs)
            v = sl_negate(v, sl_negative(&h, g));
        else if (is_iq1_s)
            v = _mm256_sub_epi8(v, _mm256_set1_epi8(p[35 + 2 * g] >> 7 ? 9 : 7));
        else
            v = _mm256_sub_epi8(v, _mm256_set1_epi8(9));
        store_sixteen(y + 32 * g, _mm256_castsi256_si128(v), d * (float)scale[2 * g]);
        store_sixteen(y + 32 * g + 16, _mm256_extracti128_si256(v, 1), d * (float)scale[2 * g + 1]);
    }
}

#define DEQUANTIZE(type, d_of, fraction, n_vectors, has_signs, is_iq1_s)                           \
    static void dequantize_##type(SL_DEQUANTIZE_ARGS)                                              \
    {                                                                                              \
        const uint8_t *p = w;                                                                      \
        for (size_t i = 0; i < n_cols / 256; i++, p += sizeof(sl_##type))                          \
            dequantize_block(sl_head_##type, sl_entries_##type, has_signs, is_iq1_s, n_vectors, p, \
                             (d_of) * (fraction), y + 256 * i);                                    \
    }
DEQUANTIZE(iq2_xxs, sl_half_load(p), 0.125f, 0, 1, 0)
DEQUANTIZE(iq2_xs, sl_half_load(p), 0.125f, 2, 1, 0)
DEQUANTIZE(iq2_s, sl_half_load(p), 0.125f, 2, 1, 0)
DEQUANTIZE(iq3_xxs, sl_half_load(p), 0.25f, 0, 1, 0)
DEQUANTIZE(iq3_s, sl_half_load(p), 1.0f, 4, 1, 0)
DEQUANTIZE(iq1_s, sl_half_load(p), 0.125f, 2, 0, 1)
DEQUANTIZE(iq1_m, sl_half_to_float(sl_d_iq1_m(p)), 0.125f, 2, 0, 0)

void sl_kernels_fill_avx2_iquant(sl_kernels *k)
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
