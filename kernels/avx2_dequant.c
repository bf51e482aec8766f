/* Blocks to floats and activations to int8, AVX2. The arithmetic of every value is that of
 * scalar_quant.c: each product and sum rounded, none fused. */
#include <immintrin.h>
#include <math.h>

#include "avx2_dot.h"
#include "half.h"
#include "levels.h"
#include "quant.h"
#include "scales.h"

static inline __m128i load16(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

static inline __m256i load32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* ---- Dequantise ---- */

/* y[0..31] = d * q, plus m when has_m. q: 32 signed bytes. */
static inline void store_scaled(float *y, __m256i q, float d, int has_m, float m)
{
    const __m256 scale = _mm256_set1_ps(d), add = _mm256_set1_ps(m);
    const __m128i half[2] = {_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1)};
    for (int i = 0; i < 4; i++) {
        const __m128i bytes = i & 1 ? _mm_srli_si128(half[i / 2], 8) : half[i / 2];
        const __m256 f = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
        const __m256 product = _mm256_mul_ps(scale, f);
        _mm256_storeu_ps(y + 8 * i, has_m ? _mm256_add_ps(product, add) : product);
    }
}

/* 16 bytes -> 32 nibbles, the low ones first. */
static inline __m256i nibbles(const uint8_t *q)
{
    const __m128i v = load16(q);
    const __m256i both =
        _mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

/* Byte i is 16 where bit i is set. */
static inline __m256i fifth_bits(const uint8_t high[4])
{
    uint32_t word;
    memcpy(&word, high, sizeof word);
    const __m256i spread = _mm256_shuffle_epi8(
        _mm256_set1_epi32((int)word),
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
    const __m256i bits = _mm256_set1_epi64x((long long)0x8040201008040201u);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bits), bits);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

static void dequantize_f32(SL_DEQUANTIZE_ARGS)
{
    memcpy(y, w, n_cols * sizeof *y);
}

static void dequantize_f16(SL_DEQUANTIZE_ARGS)
{
    const char *p = w;
    size_t i = 0;
    for (; i + 8 <= n_cols; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(load16(p + 2 * i)));
    for (; i < n_cols; i++)
        y[i] = sl_half_load(p + 2 * i);
}

static void dequantize_bf16(SL_DEQUANTIZE_ARGS)
{
    const char *p = w;
    size_t i = 0;
    for (; i + 8 <= n_cols; i += 8) {
        const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p + 2 * i)), 16);
        _mm256_storeu_ps(y + i, _mm256_castsi256_ps(bits));
    }
    for (; i < n_cols; i++)
        y[i] = sl_bfloat_to_float(sl_load_u16(p + 2 * i));
}

static void dequantize_f64(SL_DEQUANTIZE_ARGS)
{
    const char *p = w;
    size_t i = 0;
    for (; i + 4 <= n_cols; i += 4)
        _mm_storeu_ps(y + i, _mm256_cvtpd_ps(_mm256_loadu_pd((const void *)(p + 8 * i))));
    for (; i < n_cols; i++)
        y[i] = sl_load_f64(p + 8 * i);
}

static void dequantize_q8_0(SL_DEQUANTIZE_ARGS)
{
    const sl_q8_0 *b = w;
    for (size_t i = 0; i < n_cols / 32; i++, b++, y += 32)
        store_scaled(y, load32(b->q), sl_half_load(b->d), 0, 0.0f);
}

static void dequantize_q4_0(SL_DEQUANTIZE_ARGS)
{
    const sl_q4_0 *b = w;
    for (size_t i = 0; i < n_cols / 32; i++, b++, y += 32) {
        const __m256i q = _mm256_sub_epi8(nibbles(b->q), _mm256_set1_epi8(8));
        store_scaled(y, q, sl_half_load(b->d), 0, 0.0f);
    }
}

static void dequantize_q4_1(SL_DEQUANTIZE_ARGS)
{
    const sl_q4_1 *b = w;
    for (size_t i = 0; i < n_cols / 32; i++, b++, y += 32)
        store_scaled(y, nibbles(b->q), sl_half_load(b->d), 1, sl_half_load(b->m));
}

static void dequantize_q5_0(SL_DEQUANTIZE_ARGS)
{
    const sl_q5_0 *b = w;
    for (size_t i = 0; i < n_cols / 32; i++, b++, y += 32) {
        const __m256i q = _mm256_or_si256(nibbles(b->q), fifth_bits(b->high));
        store_scaled(y, _mm256_sub_epi8(q, _mm256_set1_epi8(16)), sl_half_load(b->d), 0, 0.0f);
    }
}

static void dequantize_q5_1(SL_DEQUANTIZE_ARGS)
{
    const sl_q5_1 *b = w;
    for (size_t i = 0; i < n_cols / 32; i++, b++, y += 32) {
        const __m256i q = _mm256_or_si256(nibbles(b->q), fifth_bits(b->high));
        store_scaled(y, q, sl_half_load(b->d), 1, sl_half_load(b->m));
    }
}

/* Sub-blocks j and j+1 of a k-block. -(dmin * minimum) is added: the same bits as subtracting. */
static inline void store_sub_blocks(float *y, __m256i low, __m256i high, int j, float d, float dmin,
                                    const uint8_t scales[16])
{
    for (int s = 0; s < 2; s++)
        store_scaled(y + 32 * s, s ? high : low, d * (float)scales[j + s], 1,
                     -(dmin * (float)scales[8 + j + s]));
}

static void dequantize_q4_k(SL_DEQUANTIZE_ARGS)
{
    const sl_q4_k *b = w;
    const __m256i low4 = _mm256_set1_epi8(15);
    for (size_t i = 0; i < n_cols / 256; i++, b++, y += 256) {
        uint8_t scales[16];
        sl_k_scales(b->scales, scales);
        const float d = sl_half_load(b->d), dmin = sl_half_load(b->dmin);
        for (int g = 0; g < 4; g++) {
            const __m256i q = load32(b->q + 32 * g);
            store_sub_blocks(y + 64 * g, _mm256_and_si256(q, low4),
                             _mm256_and_si256(_mm256_srli_epi16(q, 4), low4), 2 * g, d, dmin,
                             scales);
        }
    }
}

static void dequantize_q5_k(SL_DEQUANTIZE_ARGS)
{
    const sl_q5_k *b = w;
    const __m256i low4 = _mm256_set1_epi8(15), sixteen = _mm256_set1_epi8(16);
    for (size_t i = 0; i < n_cols / 256; i++, b++, y += 256) {
        uint8_t scales[16];
        sl_k_scales(b->scales, scales);
        const float d = sl_half_load(b->d), dmin = sl_half_load(b->dmin);
        __m256i high = load32(b->high);
        for (int g = 0; g < 4; g++, high = _mm256_srli_epi16(high, 2)) {
            const __m256i q = load32(b->q + 32 * g);
            const __m256i bit0 = _mm256_and_si256(_mm256_slli_epi16(high, 4), sixteen);
            const __m256i bit1 = _mm256_and_si256(_mm256_slli_epi16(high, 3), sixteen);
            store_sub_blocks(y + 64 * g, _mm256_or_si256(_mm256_and_si256(q, low4), bit0),
                             _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(q, 4), low4), bit1),
                             2 * g, d, dmin, scales);
        }
    }
}

/* y[0..15] = d * q, plus m when has_m */
static inline void store_sixteen_with(float *y, __m128i q, float d, int has_m, float m)
{
    const __m256 scale = _mm256_set1_ps(d), add = _mm256_set1_ps(m);
    for (int i = 0; i < 2; i++, q = _mm_srli_si128(q, 8)) {
        const __m256 f = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q));
        const __m256 product = _mm256_mul_ps(scale, f);
        _mm256_storeu_ps(y + 8 * i, has_m ? _mm256_add_ps(product, add) : product);
    }
}

static inline void store_sixteen(float *y, __m128i q, float d)
{
    store_sixteen_with(y, q, d, 0, 0.0f);
}

static void dequantize_q6_k(SL_DEQUANTIZE_ARGS)
{
    const sl_q6_k *b = w;
    const __m256i low4 = _mm256_set1_epi8(15), top2 = _mm256_set1_epi8(0x30);
    for (size_t i = 0; i < n_cols / 256; i++, b++, y += 256) {
        const float d = sl_half_load(b->d);
        for (int part = 0; part < 8; part++) { /* 32 values */
            const int k = part % 4;
            const __m256i low = load32(b->low + 64 * (part / 4) + 32 * (k & 1));
            const __m256i high = load32(b->high + 32 * (part / 4));
            const __m256i q4 = _mm256_and_si256(k & 2 ? _mm256_srli_epi16(low, 4) : low, low4);
            const __m256i up = _mm256_sll_epi16(_mm256_srl_epi16(high, _mm_cvtsi32_si128(2 * k)),
                                                _mm_cvtsi32_si128(4));
            const __m256i q = _mm256_sub_epi8(_mm256_or_si256(q4, _mm256_and_si256(up, top2)),
                                              _mm256_set1_epi8(32));
            float *out = y + 32 * part;
            store_sixteen(out, _mm256_castsi256_si128(q), d * (float)b->scales[2 * part]);
            store_sixteen(out + 16, _mm256_extracti128_si256(q, 1),
                          d * (float)b->scales[2 * part + 1]);
        }
    }
}

/* Values 32k .. 32k+31 of 128, two bits each. */
static inline __m256i two_bits(const uint8_t q[32], int k)
{
    return _mm256_and_si256(_mm256_srl_epi16(load32(q), _mm_cvtsi32_si128(2 * k)),
                            _mm256_set1_epi8(3));
}

static void dequantize_q2_k(SL_DEQUANTIZE_ARGS)
{
    const sl_q2_k *b = w;
    for (size_t i = 0; i < n_cols / 256; i++, b++, y += 256) {
        const float d = sl_half_load(b->d), dmin = sl_half_load(b->dmin);
        for (int part = 0; part < 8; part++) { /* 32 values */
            const __m256i q = two_bits(b->q + 32 * (part / 4), part % 4);
            const __m128i half[2] = {_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1)};
            for (int k = 0; k < 2; k++) {
                const int both = b->scales[2 * part + k];
                store_sixteen_with(y + 32 * part + 16 * k, half[k], d * (float)(both & 15), 1,
                                   -(dmin * (float)(both >> 4)));
            }
        }
    }
}

static void dequantize_q3_k(SL_DEQUANTIZE_ARGS)
{
    const sl_q3_k *b = w;
    for (size_t i = 0; i < n_cols / 256; i++, b++, y += 256) {
        const float d = sl_half_load(b->d);
        const __m256i high = load32(b->high);
        for (int part = 0; part < 8; part++) {
            const __m256i bit =
                _mm256_slli_epi16(_mm256_and_si256(_mm256_srl_epi16(high, _mm_cvtsi32_si128(part)),
                                                   _mm256_set1_epi8(1)),
                                  2);
            const __m256i q =
                _mm256_sub_epi8(_mm256_or_si256(two_bits(b->q + 32 * (part / 4), part % 4), bit),
                                _mm256_set1_epi8(4));
            const __m128i half[2] = {_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1)};
            for (int k = 0; k < 2; k++) {
                const int j = 2 * part + k, low = b->scales[j % 8] >> (j / 8 * 4) & 15;
                const int scale = (low | (b->scales[8 + j % 4] >> (j / 4 * 2) & 3) << 4) - 32;
                store_sixteen(y + 16 * j, half[k], d * (float)scale);
            }
        }
    }
}

static void dequantize_tq2_0(SL_DEQUANTIZE_ARGS)
{
    const sl_tq2_0 *b = w;
    for (size_t i = 0; i < n_cols / 256; i++, b++, y += 256)
        for (int part = 0; part < 8; part++) {
            const __m256i q = two_bits(b->q + 32 * (part / 4), part % 4);
            store_scaled(y + 32 * part, _mm256_sub_epi8(q, _mm256_set1_epi8(1)), sl_half_load(b->d),
                         0, 0.0f);
        }
}

static void dequantize_q1_0(SL_DEQUANTIZE_ARGS)
{
    const sl_q1_0 *b = w;
    for (size_t i = 0; i < n_cols / 128; i++, b++, y += 128)
        for (int part = 0; part < 4; part++) {
            const __m256i q = _mm256_srli_epi16(fifth_bits(b->q + 4 * part), 3); /* 0 or 2 */
            store_scaled(y + 32 * part, _mm256_sub_epi8(q, _mm256_set1_epi8(1)), sl_half_load(b->d),
                         0, 0.0f);
        }
}

static inline __m256i code_table(const int8_t codes[16])
{
    return _mm256_broadcastsi128_si256(load16(codes));
}

static void dequantize_iq4_nl(SL_DEQUANTIZE_ARGS)
{
    const sl_iq4_nl *b = w;
    for (size_t i = 0; i < n_cols / 32; i++, b++, y += 32)
        store_scaled(y, _mm256_shuffle_epi8(code_table(sl_iq4_codes), nibbles(b->q)),
                     sl_half_load(b->d), 0, 0.0f);
}

static void dequantize_iq4_xs(SL_DEQUANTIZE_ARGS)
{
    const sl_iq4_xs *b = w;
    for (size_t i = 0; i < n_cols / 256; i++, b++, y += 256)
        for (int j = 0; j < 8; j++) {
            const int low = b->scales_low[j / 2] >> (j % 2 * 4) & 15;
            const int scale = (low | (sl_load_u16(b->scales_high) >> (2 * j) & 3) << 4) - 32;
            store_scaled(y + 32 * j,
                         _mm256_shuffle_epi8(code_table(sl_iq4_codes), nibbles(b->q + 16 * j)),
                         sl_half_load(b->d) * (float)scale, 0, 0.0f);
        }
}

static void dequantize_mxfp4(SL_DEQUANTIZE_ARGS)
{
    const sl_mxfp4 *b = w;
    for (size_t i = 0; i < n_cols / 32; i++, b++, y += 32)
        store_scaled(y, _mm256_shuffle_epi8(code_table(sl_e2m1_codes), nibbles(b->q)),
                     sl_e8m0_half(b->scale), 0, 0.0f);
}

static void dequantize_nvfp4(SL_DEQUANTIZE_ARGS)
{
    const sl_nvfp4 *b = w;
    const __m128i table = load16(sl_e2m1_codes);
    for (size_t i = 0; i < n_cols / 64; i++, b++, y += 64)
        for (int j = 0; j < 4; j++) {
            const __m128i v = _mm_loadl_epi64((const __m128i *)(const void *)(b->q + 8 * j));
            const __m128i both =
                _mm_and_si128(_mm_unpacklo_epi64(v, _mm_srli_epi16(v, 4)), _mm_set1_epi8(15));
            store_sixteen(y + 16 * j, _mm_shuffle_epi8(table, both), sl_half_of_ue4m3(b->scale[j]));
        }
}

/* ---- Activations to int8 ---- */

static inline uint32_t largest(__m256i v)
{
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

/* The largest magnitude of n values, and what takes them to -127 .. 127; inverse 0: all q are 0. */
static inline float scale_of(const float *x, size_t n, float *inverse)
{
    __m256i amax = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += 8)
        amax =
            _mm256_max_epu32(amax, _mm256_and_si256(load32(x + i), _mm256_set1_epi32(0x7fffffff)));
    const float a = sl_float_of_bits(largest(amax));
    *inverse = 0.0f;
    if (!isfinite(a))
        return NAN;
    if (a < SL_ACT_TINY)
        return 0.0f;
    const float scale = a / 127.0f;
    *inverse = 1.0f / scale;
    return scale;
}

/* What the least-squares scale is made of: 16 lanes of t * q, and sums of q^2. */
typedef struct fit {
    __m256 tq[2];
    __m256i square;
} fit;

static inline float fitted(const fit *f, float scale)
{
    __m128i q =
        _mm_add_epi32(_mm256_castsi256_si128(f->square), _mm256_extracti128_si256(f->square, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1));
    return scale * (avx2_sum(f->tq[0], f->tq[1]) / (float)_mm_cvtsi128_si32(q));
}

static inline __m256i rounded(const float *x, __m256 inverse, __m256 *lanes)
{
    const __m256 t = _mm256_mul_ps(_mm256_loadu_ps(x), inverse);
    const __m256i q = _mm256_cvtps_epi32(t);
    *lanes = _mm256_fmadd_ps(t, _mm256_cvtepi32_ps(q), *lanes);
    return q;
}

/* 32 values to bytes. */
static inline __m256i quantize_32(const float *x, float inverse, fit *f)
{
    if (inverse == 0.0f) /* 0 * infinity would not give 0 */
        return _mm256_setzero_si256();
    const __m256 by = _mm256_set1_ps(inverse);
    const __m256i q0 = rounded(x, by, &f->tq[0]), q1 = rounded(x + 8, by, &f->tq[1]);
    const __m256i q2 = rounded(x + 16, by, &f->tq[0]), q3 = rounded(x + 24, by, &f->tq[1]);
    const __m256i a = _mm256_packs_epi32(q0, q1), b = _mm256_packs_epi32(q2, q3);
    f->square = _mm256_add_epi32(f->square, _mm256_madd_epi16(a, a));
    f->square = _mm256_add_epi32(f->square, _mm256_madd_epi16(b, b));
    /* packing works in halves: words of four values lie in the order 0 2 4 6 1 3 5 7 */
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Sums of four bytes each. */
static inline __m256i sums_of_four(__m256i q)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
}

/* Sums of the two halves of 32 bytes. */
static inline void sums_of_sixteen(__m256i q, int32_t out[2])
{
    __m256i s = sums_of_four(q);
    s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4e));
    s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0xb1));
    out[0] = _mm256_cvtsi256_si32(s);
    out[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(s, 1));
}

static void quantize_q8_32(SL_QUANTIZE_ARGS)
{
    char *row = out;
    float *d = (float *)(void *)(row + n_cols);
    int32_t *sum = (int32_t *)(void *)(row + sl_act_q8_32_sums_at(n_cols));
    for (size_t i = 0; i < n_cols / 32; i++) {
        fit f = {0};
        float inverse;
        int32_t sums[2];
        d[i] = scale_of(x + 32 * i, 32, &inverse);
        const __m256i q = quantize_32(x + 32 * i, inverse, &f);
        if (inverse != 0.0f)
            d[i] = fitted(&f, d[i]);
        _mm256_storeu_si256((__m256i *)(void *)(row + 32 * i), q);
        sums_of_sixteen(q, sums);
        sum[i] = sums[0] + sums[1];
    }
}

static void quantize_q8_256(SL_QUANTIZE_ARGS)
{
    char *row = out;
    float *d = (float *)(void *)(row + n_cols);
    int16_t *sum16 = (int16_t *)(void *)(row + sl_act_q8_256_sums_at(n_cols));
    int16_t *sum32 = sum16 + n_cols / 16;
    for (size_t i = 0; i < n_cols / 256; i++) {
        fit f = {0};
        float inverse;
        d[i] = scale_of(x + 256 * i, 256, &inverse);
        for (size_t j = 8 * i; j < 8 * i + 8; j++) {
            int32_t sums[2];
            const __m256i q = quantize_32(x + 32 * j, inverse, &f);
            _mm256_storeu_si256((__m256i *)(void *)(row + 32 * j), q);
            sums_of_sixteen(q, sums);
            sum16[2 * j] = (int16_t)sums[0];
            sum16[2 * j + 1] = (int16_t)sums[1];
            sum32[j] = (int16_t)(sums[0] + sums[1]);
        }
        if (inverse != 0.0f)
            d[i] = fitted(&f, d[i]);
    }
}

void sl_kernels_fill_avx2_dequant(sl_kernels *k)
{
    k->dequantize[SL_W_F32] = dequantize_f32;
    k->dequantize[SL_W_F16] = dequantize_f16;
    k->dequantize[SL_W_BF16] = dequantize_bf16;
    k->dequantize[SL_W_Q8_0] = dequantize_q8_0;
    k->dequantize[SL_W_Q4_0] = dequantize_q4_0;
    k->dequantize[SL_W_Q4_1] = dequantize_q4_1;
    k->dequantize[SL_W_Q5_0] = dequantize_q5_0;
    k->dequantize[SL_W_Q5_1] = dequantize_q5_1;
    k->dequantize[SL_W_Q4_K] = dequantize_q4_k;
    k->dequantize[SL_W_Q5_K] = dequantize_q5_k;
    k->dequantize[SL_W_Q6_K] = dequantize_q6_k;
    k->dequantize[SL_W_F64] = dequantize_f64;
    k->dequantize[SL_W_Q2_K] = dequantize_q2_k;
    k->dequantize[SL_W_Q3_K] = dequantize_q3_k;
    k->dequantize[SL_W_TQ2_0] = dequantize_tq2_0;
    k->dequantize[SL_W_Q1_0] = dequantize_q1_0;
    k->dequantize[SL_W_IQ4_NL] = dequantize_iq4_nl;
    k->dequantize[SL_W_IQ4_XS] = dequantize_iq4_xs;
    k->dequantize[SL_W_MXFP4] = dequantize_mxfp4;
    k->dequantize[SL_W_NVFP4] = dequantize_nvfp4;
    k->quantize[SL_ACT_Q8_32] = quantize_q8_32;
    k->quantize[SL_ACT_Q8_256] = quantize_q8_256;
}
