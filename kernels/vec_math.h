/* The steps of vmath.h for a vector. */
#ifndef SL_VEC_MATH_H
#define SL_VEC_MATH_H

#include "vec.h"

/* p * r + c */
SL_INLINE vec vec_step(vec p, vec r, float c)
{
    return vec_fma(p, r, vec_all(c));
}

SL_INLINE vec vec_exp(vec x)
{
    /* NaN stays: the second is taken when one is NaN. */
    x = vec_min(vec_all(SL_EXP_MAX), x);
    x = vec_max(vec_all(SL_EXP_MIN), x);
    const vec round = vec_all(SL_EXP_ROUND);
    const vec t = vec_fma(x, vec_all(SL_EXP_LOG2E), round), n = vec_sub(t, round);
    vec r = vec_fma(n, vec_all(-SL_EXP_LN2_HI), x);
    r = vec_fma(n, vec_all(-SL_EXP_LN2_LO), r);
    vec p = vec_step(vec_all(SL_EXP_P6), r, SL_EXP_P5);
    p = vec_step(p, r, SL_EXP_P4);
    p = vec_step(p, r, SL_EXP_P3);
    p = vec_step(p, r, SL_EXP_P2);
    p = vec_step(p, r, 1.0f);
    p = vec_step(p, r, 1.0f);
    return vec_times_power(p, t, round);
}

SL_INLINE vec vec_tanh(vec x)
{
    const vec one = vec_all(1.0f), size = vec_abs(x), u = vec_mul(x, x);
    vec p = vec_step(vec_all(SL_TANH_P4), u, SL_TANH_P3);
    p = vec_step(p, u, SL_TANH_P2);
    p = vec_step(p, u, SL_TANH_P1);
    p = vec_step(p, u, SL_TANH_P0);
    const vec small = vec_fma(vec_mul(x, u), p, x);
    const vec e = vec_add(vec_exp(vec_add(size, size)), one);
    const vec large = vec_with_sign(vec_sub(one, vec_div(vec_all(2.0f), e)), x);
    return vec_choose(vec_less(size, vec_all(SL_TANH_SPLIT)), small, large);
}

SL_INLINE vec vec_silu(vec x)
{
    return vec_div(x, vec_add(vec_all(1.0f), vec_exp(vec_neg(x))));
}

SL_INLINE vec vec_sigmoid(vec x)
{
    const vec one = vec_all(1.0f);
    return vec_div(one, vec_add(one, vec_exp(vec_neg(x))));
}

SL_INLINE vec vec_softplus(vec x)
{
    const vec u = vec_exp(vec_neg(vec_abs(x))), s = vec_div(u, vec_add(vec_all(2.0f), u));
    const vec v = vec_mul(s, s);
    vec p = vec_step(vec_all(SL_LOG1P_P3), v, SL_LOG1P_P2);
    p = vec_step(p, v, SL_LOG1P_P1);
    p = vec_step(p, v, SL_LOG1P_P0);
    return vec_add(vec_max(x, vec_all(0.0f)), vec_fma(vec_mul(s, v), p, vec_add(s, s)));
}

SL_INLINE vec vec_gelu(vec x)
{
    const vec u = vec_step(vec_mul(x, x), vec_all(SL_GELU_B), SL_GELU_A);
    return vec_div(x, vec_add(vec_all(1.0f), vec_exp(vec_mul(x, u))));
}

#endif
