/* The steps of vmath.h, sixteen values at a time. For avx512_*.c only. */
#ifndef SL_AVX512_MATH_H
#define SL_AVX512_MATH_H

#include "vmath.h"

#include <immintrin.h>

static inline __m512 avx512_exp(__m512 x)
{
    /* Both give their second operand when one is NaN. */
    x = _mm512_min_ps(_mm512_set1_ps(SL_EXP_MAX), x);
    x = _mm512_max_ps(_mm512_set1_ps(SL_EXP_MIN), x);
    const __m512 round = _mm512_set1_ps(SL_EXP_ROUND), one = _mm512_set1_ps(1.0f);
    const __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(SL_EXP_LOG2E), round);
    const __m512 n = _mm512_sub_ps(t, round);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-SL_EXP_LN2_HI), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-SL_EXP_LN2_LO), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(SL_EXP_P6), r, _mm512_set1_ps(SL_EXP_P5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SL_EXP_P4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SL_EXP_P3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SL_EXP_P2));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    const __m512i bias = _mm512_set1_epi32(127);
    const __m512i e = _mm512_sub_epi32(_mm512_castps_si512(t), _mm512_castps_si512(round));
    const __m512i half = _mm512_srai_epi32(e, 1), rest = _mm512_sub_epi32(e, half);
    const __m512i a = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
    const __m512i b = _mm512_slli_epi32(_mm512_add_epi32(rest, bias), 23);
    return _mm512_mul_ps(_mm512_mul_ps(p, _mm512_castsi512_ps(a)), _mm512_castsi512_ps(b));
}

static inline __m512 avx512_tanh(__m512 x)
{
    const __m512 sign = _mm512_set1_ps(-0.0f), one = _mm512_set1_ps(1.0f);
    const __m512 size = _mm512_andnot_ps(sign, x), u = _mm512_mul_ps(x, x);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(SL_TANH_P4), u, _mm512_set1_ps(SL_TANH_P3));
    p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(SL_TANH_P2));
    p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(SL_TANH_P1));
    p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(SL_TANH_P0));
    const __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(x, u), p, x);
    const __m512 e = _mm512_add_ps(avx512_exp(_mm512_add_ps(size, size)), one);
    const __m512 large = _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2.0f), e));
    const __mmask16 is_small = _mm512_cmp_ps_mask(size, _mm512_set1_ps(SL_TANH_SPLIT), _CMP_LT_OQ);
    return _mm512_mask_blend_ps(is_small, _mm512_or_ps(large, _mm512_and_ps(sign, x)), small);
}

static inline __m512 avx512_silu(__m512 x)
{
    const __m512 e = avx512_exp(_mm512_xor_ps(x, _mm512_set1_ps(-0.0f)));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

static inline __m512 avx512_sigmoid(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 e = avx512_exp(_mm512_xor_ps(x, _mm512_set1_ps(-0.0f)));
    return _mm512_div_ps(one, _mm512_add_ps(one, e));
}

static inline __m512 avx512_softplus(__m512 x)
{
    const __m512 u = avx512_exp(_mm512_or_ps(x, _mm512_set1_ps(-0.0f)));
    const __m512 s = _mm512_div_ps(u, _mm512_add_ps(_mm512_set1_ps(2.0f), u));
    const __m512 v = _mm512_mul_ps(s, s);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(SL_LOG1P_P3), v, _mm512_set1_ps(SL_LOG1P_P2));
    p = _mm512_fmadd_ps(p, v, _mm512_set1_ps(SL_LOG1P_P1));
    p = _mm512_fmadd_ps(p, v, _mm512_set1_ps(SL_LOG1P_P0));
    return _mm512_add_ps(_mm512_max_ps(x, _mm512_setzero_ps()),
                         _mm512_fmadd_ps(_mm512_mul_ps(s, v), p, _mm512_add_ps(s, s)));
}

static inline __m512 avx512_gelu(__m512 x)
{
    const __m512 a = _mm512_set1_ps(SL_GELU_A), b = _mm512_set1_ps(SL_GELU_B);
    const __m512 e = avx512_exp(_mm512_mul_ps(x, _mm512_fmadd_ps(_mm512_mul_ps(x, x), b, a)));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

#endif
