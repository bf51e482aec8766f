/* Vectors of floats by one set of names, so that what is the same at every level is written once
 * (vec_*.h). The flags of the file that includes this choose: 16 lanes with AVX-512, 8 with AVX2, 4
 * with NEON. Each name is one operation of the CPU, or as few as it takes. */
#ifndef SL_VEC_H
#define SL_VEC_H

#include "vmath.h"

#if defined(__AVX512F__)
#include "avx512_dot.h"

enum { VEC = 16 };
typedef __m512 vec;
typedef __mmask16 vec_mask;

SL_INLINE vec vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

SL_INLINE void vec_store(float *p, vec v)
{
    _mm512_storeu_ps(p, v);
}

/* The first n elements, 0 behind them; the others' memory is not touched. */
SL_INLINE vec vec_load_some(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(avx512_first(n), p);
}

SL_INLINE void vec_store_some(float *p, vec v, size_t n)
{
    _mm512_mask_storeu_ps(p, avx512_first(n), v);
}

SL_INLINE vec vec_load_as(sl_weight type, const uint8_t *p)
{
    return avx512_load(type, p);
}

/* The first n elements, 0 behind them. */
SL_INLINE vec vec_load_as_some(sl_weight type, const uint8_t *p, size_t n)
{
    return avx512_load_some(type, p, avx512_first(n));
}

SL_INLINE vec vec_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}

/* Rounded; all from -127 to 127. */
SL_INLINE void vec_store_i8(uint8_t *p, vec v)
{
    _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}

/* A half, in every lane. */
SL_INLINE vec vec_all_half(uint16_t h)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)h));
}

SL_INLINE vec vec_all(float x)
{
    return _mm512_set1_ps(x);
}

SL_INLINE vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

SL_INLINE vec vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}

SL_INLINE vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

SL_INLINE vec vec_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}

/* c + a * b and c - a * b, rounded once. */
SL_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

SL_INLINE vec vec_fnma(vec a, vec b, vec c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

/* a < b ? a : b and a > b ? a : b: the second when one is NaN. */
SL_INLINE vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

SL_INLINE vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

SL_INLINE vec vec_abs(vec a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}

SL_INLINE vec vec_neg(vec a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}

SL_INLINE vec vec_with_sign(vec size, vec from)
{
    return _mm512_or_ps(vec_abs(size), _mm512_and_ps(_mm512_set1_ps(-0.0f), from));
}

SL_INLINE vec_mask vec_less(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

/* Lanes from begin on, before end; either may lie outside. */
SL_INLINE vec_mask vec_lanes(int begin, int end)
{
    const __m512i at = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_mask_cmplt_epi32_mask(_mm512_cmpge_epi32_mask(at, _mm512_set1_epi32(begin)), at,
                                        _mm512_set1_epi32(end));
}

SL_INLINE vec vec_choose(vec_mask m, vec yes, vec no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}

/* Bit i: lane i. */
SL_INLINE unsigned vec_bits(vec_mask m)
{
    return m;
}

/* p * 2^e, e the difference of two floats' bits, in two factors: see sl_exp(). */
SL_INLINE vec vec_times_power(vec p, vec high, vec low)
{
    const __m512i bias = _mm512_set1_epi32(127);
    const __m512i e = _mm512_sub_epi32(_mm512_castps_si512(high), _mm512_castps_si512(low));
    const __m512i half = _mm512_srai_epi32(e, 1), rest = _mm512_sub_epi32(e, half);
    const __m512i a = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
    const __m512i b = _mm512_slli_epi32(_mm512_add_epi32(rest, bias), 23);
    return _mm512_mul_ps(_mm512_mul_ps(p, _mm512_castsi512_ps(a)), _mm512_castsi512_ps(b));
}

/* No lane is NaN. */
SL_INLINE float vec_largest(vec v)
{
    return _mm512_reduce_max_ps(v);
}

/* The larger of two in each lane, and of all lanes, as unsigned integers: magnitudes with NaN on
 * top. */
SL_INLINE vec vec_larger_bits(vec a, vec b)
{
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

SL_INLINE uint32_t vec_largest_bits(vec v)
{
    return _mm512_reduce_max_epu32(_mm512_castps_si512(v));
}

/* Values next to each other change places; the first of each two is negated. */
SL_INLINE vec vec_swap_pairs(vec v)
{
    return _mm512_permute_ps(v, 0xb1);
}

SL_INLINE vec vec_neg_even(vec v)
{
    return _mm512_xor_ps(v, _mm512_castsi512_ps(_mm512_set1_epi64(0x80000000)));
}

/* The first n of half as many elements as there are lanes, each twice. */
SL_INLINE vec vec_load_twice(const float *p, size_t n)
{
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m256 v = _mm256_maskz_loadu_ps((__mmask8)avx512_first(n), p);
    return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(v));
}

SL_INLINE void vec_store_half(uint16_t *p, vec v)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* The tree of lanes.h. */
SL_INLINE float vec_sum(const vec *lane)
{
    return avx512_sum(lane[0]);
}

#elif defined(__AVX2__)
#include "avx2_dot.h"

enum { VEC = 8 };
typedef __m256 vec;
typedef __m256 vec_mask;

SL_INLINE vec vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

SL_INLINE void vec_store(float *p, vec v)
{
    _mm256_storeu_ps(p, v);
}

SL_INLINE vec vec_load_as(sl_weight type, const uint8_t *p)
{
    return avx2_load(type, p);
}

SL_INLINE vec vec_load_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}

SL_INLINE void vec_store_i8(uint8_t *p, vec v)
{
    const __m256i q = _mm256_cvtps_epi32(v);
    const __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64((void *)p, _mm_packs_epi16(w, w));
}

SL_INLINE vec vec_all_half(uint16_t h)
{
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}

SL_INLINE vec vec_all(float x)
{
    return _mm256_set1_ps(x);
}

SL_INLINE vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

SL_INLINE vec vec_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}

SL_INLINE vec vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}

SL_INLINE vec vec_div(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}

SL_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

SL_INLINE vec vec_fnma(vec a, vec b, vec c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

SL_INLINE vec vec_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

SL_INLINE vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

SL_INLINE vec vec_abs(vec a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

SL_INLINE vec vec_neg(vec a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}

SL_INLINE vec vec_with_sign(vec size, vec from)
{
    return _mm256_or_ps(vec_abs(size), _mm256_and_ps(_mm256_set1_ps(-0.0f), from));
}

SL_INLINE vec_mask vec_less(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}

SL_INLINE vec_mask vec_lanes(int begin, int end)
{
    const __m256i at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), at),
                                                   _mm256_cmpgt_epi32(_mm256_set1_epi32(end), at)));
}

SL_INLINE vec vec_choose(vec_mask m, vec yes, vec no)
{
    return _mm256_blendv_ps(no, yes, m);
}

SL_INLINE unsigned vec_bits(vec_mask m)
{
    return (unsigned)_mm256_movemask_ps(m);
}

SL_INLINE vec vec_times_power(vec p, vec high, vec low)
{
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256i e = _mm256_sub_epi32(_mm256_castps_si256(high), _mm256_castps_si256(low));
    const __m256i half = _mm256_srai_epi32(e, 1), rest = _mm256_sub_epi32(e, half);
    const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}

SL_INLINE float vec_largest(vec v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

SL_INLINE vec vec_larger_bits(vec a, vec b)
{
    return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

SL_INLINE uint32_t vec_largest_bits(vec v)
{
    const __m256i bits = _mm256_castps_si256(v);
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1)));
}

SL_INLINE vec vec_swap_pairs(vec v)
{
    return _mm256_permute_ps(v, 0xb1);
}

SL_INLINE vec vec_neg_even(vec v)
{
    return _mm256_xor_ps(v, _mm256_castsi256_ps(_mm256_set1_epi64x(0x80000000)));
}

SL_INLINE vec vec_twice(const float *p)
{
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), twice);
}

SL_INLINE void vec_store_half(uint16_t *p, vec v)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

SL_INLINE float vec_sum(const vec *lane)
{
    return avx2_sum(lane[0], lane[1]);
}

#else
#include "neon_dot.h"

enum { VEC = 4 };
typedef float32x4_t vec;
typedef uint32x4_t vec_mask;

SL_INLINE vec vec_load(const float *p)
{
    return vld1q_f32(p);
}

SL_INLINE void vec_store(float *p, vec v)
{
    vst1q_f32(p, v);
}

SL_INLINE vec vec_load_as(sl_weight type, const uint8_t *p)
{
    return neon_load(type, p);
}

SL_INLINE vec vec_load_i8(const uint8_t *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    const int8x8_t bytes = vreinterpret_s8_u32(vdup_n_u32(four));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
}

SL_INLINE void vec_store_i8(uint8_t *p, vec v)
{
    const int16x4_t w = vmovn_s32(vcvtnq_s32_f32(v)); /* to nearest, ties to even */
    const uint32_t four = vget_lane_u32(vreinterpret_u32_s8(vmovn_s16(vcombine_s16(w, w))), 0);
    memcpy(p, &four, sizeof four);
}

SL_INLINE vec vec_all_half(uint16_t h)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h)));
}

SL_INLINE vec vec_all(float x)
{
    return vdupq_n_f32(x);
}

SL_INLINE vec vec_add(vec a, vec b)
{
    return vaddq_f32(a, b);
}

SL_INLINE vec vec_sub(vec a, vec b)
{
    return vsubq_f32(a, b);
}

SL_INLINE vec vec_mul(vec a, vec b)
{
    return vmulq_f32(a, b);
}

SL_INLINE vec vec_div(vec a, vec b)
{
    return vdivq_f32(a, b);
}

SL_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}

SL_INLINE vec vec_fnma(vec a, vec b, vec c)
{
    return vfmsq_f32(c, a, b);
}

SL_INLINE vec vec_min(vec a, vec b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

SL_INLINE vec vec_max(vec a, vec b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

SL_INLINE vec vec_abs(vec a)
{
    return vabsq_f32(a);
}

SL_INLINE vec vec_neg(vec a)
{
    return vnegq_f32(a);
}

SL_INLINE vec vec_with_sign(vec size, vec from)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), from, size);
}

SL_INLINE vec_mask vec_less(vec a, vec b)
{
    return vcltq_f32(a, b);
}

SL_INLINE vec_mask vec_lanes(int begin, int end)
{
    static const int32_t first_four[4] = {0, 1, 2, 3};
    const int32x4_t at = vld1q_s32(first_four);
    return vandq_u32(vcgeq_s32(at, vdupq_n_s32(begin)), vcltq_s32(at, vdupq_n_s32(end)));
}

SL_INLINE vec vec_choose(vec_mask m, vec yes, vec no)
{
    return vbslq_f32(m, yes, no);
}

SL_INLINE unsigned vec_bits(vec_mask m)
{
    static const uint32_t bit[4] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(m, vld1q_u32(bit)));
}

SL_INLINE vec vec_times_power(vec p, vec high, vec low)
{
    const int32x4_t bias = vdupq_n_s32(127);
    const int32x4_t e = vsubq_s32(vreinterpretq_s32_f32(high), vreinterpretq_s32_f32(low));
    const int32x4_t half = vshrq_n_s32(e, 1), rest = vsubq_s32(e, half);
    const int32x4_t a = vshlq_n_s32(vaddq_s32(half, bias), 23);
    const int32x4_t b = vshlq_n_s32(vaddq_s32(rest, bias), 23);
    return vmulq_f32(vmulq_f32(p, vreinterpretq_f32_s32(a)), vreinterpretq_f32_s32(b));
}

SL_INLINE float vec_largest(vec v)
{
    return vmaxvq_f32(v);
}

SL_INLINE vec vec_larger_bits(vec a, vec b)
{
    return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)));
}

SL_INLINE uint32_t vec_largest_bits(vec v)
{
    return vmaxvq_u32(vreinterpretq_u32_f32(v));
}

SL_INLINE vec vec_swap_pairs(vec v)
{
    return vrev64q_f32(v);
}

SL_INLINE vec vec_neg_even(vec v)
{
    const uint32x4_t minus = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000u));
    return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(v), minus));
}

SL_INLINE vec vec_twice(const float *p)
{
    const float32x2_t v = vld1_f32(p);
    return vcombine_f32(vdup_lane_f32(v, 0), vdup_lane_f32(v, 1));
}

SL_INLINE void vec_store_half(uint16_t *p, vec v)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}

SL_INLINE float vec_sum(const vec *lane)
{
    return neon_sum(lane);
}
#endif

#if !defined(__AVX512F__)
SL_INLINE vec vec_load_as_some(sl_weight type, const uint8_t *p, size_t n)
{
    uint8_t some[VEC * sizeof(double)] = {0};
    memcpy(some, p, n * sl_float_size(type));
    return vec_load_as(type, some);
}

SL_INLINE vec vec_load_some(const float *p, size_t n)
{
    float some[VEC] = {0};
    if (n == VEC)
        return vec_load(p);
    memcpy(some, p, n * sizeof *p);
    return vec_load(some);
}

SL_INLINE vec vec_load_twice(const float *p, size_t n)
{
    float some[VEC / 2] = {0};
    if (n == VEC / 2)
        return vec_twice(p);
    memcpy(some, p, n * sizeof *p);
    return vec_twice(some);
}

SL_INLINE void vec_store_some(float *p, vec v, size_t n)
{
    float all[VEC];
    if (n == VEC) {
        vec_store(p, v);
        return;
    }
    vec_store(all, v);
    memcpy(p, all, n * sizeof *p);
}
#endif

enum { VEC_LANES = SL_LANES / VEC }; /* vectors that hold the 16 virtual lanes */

/* What is left of n at place at, at most a vector. */
SL_INLINE size_t vec_left(size_t n, size_t at)
{
    return n - at < VEC ? n - at : VEC;
}

/* Does what is said for each vector of n elements: at is its place, some of its elements count. The
 * text stands twice, so that whole vectors test nothing. (AVX2: y += x 135 ns for 4096, else 245.)
 */
#define VEC_EACH(n, ...)                                                                           \
    do {                                                                                           \
        size_t at = 0;                                                                             \
        for (; at + VEC <= (n); at += VEC) {                                                       \
            const size_t some = VEC;                                                               \
            __VA_ARGS__                                                                            \
        }                                                                                          \
        if (at < (n)) {                                                                            \
            const size_t some = (n)-at;                                                            \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    } while (0)

/* x.y in the 16 lanes. */
static inline float vec_dot(const float *x, const float *y, size_t n)
{
    vec lane[VEC_LANES];
    SL_UNROLL
    for (int i = 0; i < VEC_LANES; i++)
        lane[i] = vec_all(0.0f);
    size_t at = 0;
    for (; at + SL_LANES <= n; at += SL_LANES) {
        SL_UNROLL
        for (size_t i = 0; i < VEC_LANES; i++)
            lane[i] = vec_fma(vec_load(x + at + VEC * i), vec_load(y + at + VEC * i), lane[i]);
    }
    SL_UNROLL
    for (size_t i = 0; i < VEC_LANES; i++, at += VEC) {
        if (at >= n)
            continue;
        const size_t some = vec_left(n, at); /* other lanes stay: adding 0 may change -0 */
        const vec sum = vec_fma(vec_load_some(x + at, some), vec_load_some(y + at, some), lane[i]);
        lane[i] = vec_choose(vec_lanes(0, (int)some), sum, lane[i]);
    }
    return vec_sum(lane);
}

#endif
