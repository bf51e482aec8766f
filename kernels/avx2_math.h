/* The steps of vmath.h, eight values at a time. For avx2_*.c only. */
#ifndef SL_AVX2_MATH_H
#define SL_AVX2_MATH_H

#include "vmath.h"

#include <immintrin.h>

static inline __m256 avx2_exp(__m256 x)
{
    /* Both give their second operand when one is NaN. */
    x = _mm256_min_ps(_mm256_set1_ps(SL_EXP_MAX), x);
    x = _mm256_max_ps(_mm256_set1_ps(SL_EXP_MIN), x);
    const __m256 round = _mm256_set1_ps(SL_EXP_ROUND), one = _mm256_set1_ps(1.0f);
    const __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(SL_EXP_LOG2E), round);
    const __m256 n = _mm256_sub_ps(t, round);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-SL_EXP_LN2_HI), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-SL_EXP_LN2_LO), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(SL_EXP_P6), r, _mm256_set1_ps(SL_EXP_P5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(SL_EXP_P4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(SL_EXP_P3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(SL_EXP_P2));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256i e = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_castps_si256(round));
    const __m256i half = _mm256_srai_epi32(e, 1), rest = _mm256_sub_epi32(e, half);
    const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}

static inline __m256 avx2_tanh(__m256 x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
    const __m256 size = _mm256_andnot_ps(sign, x), u = _mm256_mul_ps(x, x);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(SL_TANH_P4), u, _mm256_set1_ps(SL_TANH_P3));
    p = _mm256_fmadd_ps(p, u, _mm256_set1_ps(SL_TANH_P2));
    p = _mm256_fmadd_ps(p, u, _mm256_set1_ps(SL_TANH_P1));
    p = _mm256_fmadd_ps(p, u, _mm256_set1_ps(SL_TANH_P0));
    const __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(x, u), p, x);
    const __m256 e = _mm256_add_ps(avx2_exp(_mm256_add_ps(size, size)), one);
    const __m256 large = _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), e));
    const __m256 is_small = _mm256_cmp_ps(size, _mm256_set1_ps(SL_TANH_SPLIT), _CMP_LT_OQ);
    return _mm256_blendv_ps(_mm256_or_ps(large, _mm256_and_ps(sign, x)), small, is_small);
}

static inline __m256 avx2_silu(__m256 x)
{
    const __m256 e = avx2_exp(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)));
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

static inline __m256 avx2_sigmoid(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 e = avx2_exp(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)));
    return _mm256_div_ps(one, _mm256_add_ps(one, e));
}

static inline __m256 avx2_softplus(__m256 x)
{
    const __m256 u = avx2_exp(_mm256_or_ps(x, _mm256_set1_ps(-0.0f)));
    const __m256 s = _mm256_div_ps(u, _mm256_add_ps(_mm256_set1_ps(2.0f), u));
    const __m256 v = _mm256_mul_ps(s, s);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(SL_LOG1P_P3), v, _mm256_set1_ps(SL_LOG1P_P2));
    p = _mm256_fmadd_ps(p, v, _mm256_set1_ps(SL_LOG1P_P1));
    p = _mm256_fmadd_ps(p, v, _mm256_set1_ps(SL_LOG1P_P0));
    return _mm256_add_ps(_mm256_max_ps(x, _mm256_setzero_ps()),
                         _mm256_fmadd_ps(_mm256_mul_ps(s, v), p, _mm256_add_ps(s, s)));
}

static inline __m256 avx2_gelu(__m256 x)
{
    const __m256 a = _mm256_set1_ps(SL_GELU_A), b = _mm256_set1_ps(SL_GELU_B);
    const __m256 e = avx2_exp(_mm256_mul_ps(x, _mm256_fmadd_ps(_mm256_mul_ps(x, x), b, a)));
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

#endif
