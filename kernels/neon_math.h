/* The steps of vmath.h, four values at a time. For neon_*.c only. */
#ifndef SL_NEON_MATH_H
#define SL_NEON_MATH_H

#include <arm_neon.h>

#include "vmath.h"

/* p * r + c */
static inline float32x4_t neon_step(float32x4_t p, float32x4_t r, float c)
{
    return vfmaq_f32(vdupq_n_f32(c), p, r);
}

static inline float32x4_t neon_exp(float32x4_t x)
{
    /* Comparisons with NaN are false, so that it stays; vminq_f32() would do as well, vminnmq_f32()
     * would not. */
    const float32x4_t most = vdupq_n_f32(SL_EXP_MAX), least = vdupq_n_f32(SL_EXP_MIN);
    x = vbslq_f32(vcgtq_f32(x, most), most, x);
    x = vbslq_f32(vcltq_f32(x, least), least, x);
    const float32x4_t round = vdupq_n_f32(SL_EXP_ROUND);
    const float32x4_t t = vfmaq_f32(round, x, vdupq_n_f32(SL_EXP_LOG2E));
    const float32x4_t n = vsubq_f32(t, round);
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(SL_EXP_LN2_HI));
    r = vfmsq_f32(r, n, vdupq_n_f32(SL_EXP_LN2_LO));
    float32x4_t p = neon_step(vdupq_n_f32(SL_EXP_P6), r, SL_EXP_P5);
    p = neon_step(p, r, SL_EXP_P4);
    p = neon_step(p, r, SL_EXP_P3);
    p = neon_step(p, r, SL_EXP_P2);
    p = neon_step(p, r, 1.0f);
    p = neon_step(p, r, 1.0f);
    const int32x4_t bias = vdupq_n_s32(127);
    const int32x4_t e = vsubq_s32(vreinterpretq_s32_f32(t), vreinterpretq_s32_f32(round));
    const int32x4_t half = vshrq_n_s32(e, 1), rest = vsubq_s32(e, half);
    const int32x4_t a = vshlq_n_s32(vaddq_s32(half, bias), 23);
    const int32x4_t b = vshlq_n_s32(vaddq_s32(rest, bias), 23);
    return vmulq_f32(vmulq_f32(p, vreinterpretq_f32_s32(a)), vreinterpretq_f32_s32(b));
}

static inline float32x4_t neon_tanh(float32x4_t x)
{
    const float32x4_t one = vdupq_n_f32(1.0f), size = vabsq_f32(x), u = vmulq_f32(x, x);
    float32x4_t p = neon_step(vdupq_n_f32(SL_TANH_P4), u, SL_TANH_P3);
    p = neon_step(p, u, SL_TANH_P2);
    p = neon_step(p, u, SL_TANH_P1);
    p = neon_step(p, u, SL_TANH_P0);
    const float32x4_t small = vfmaq_f32(x, vmulq_f32(x, u), p);
    const float32x4_t e = vaddq_f32(neon_exp(vaddq_f32(size, size)), one);
    const float32x4_t large = vsubq_f32(one, vdivq_f32(vdupq_n_f32(2.0f), e));
    const float32x4_t with_sign = vbslq_f32(vdupq_n_u32(0x80000000u), x, large);
    return vbslq_f32(vcltq_f32(size, vdupq_n_f32(SL_TANH_SPLIT)), small, with_sign);
}

static inline float32x4_t neon_silu(float32x4_t x)
{
    return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), neon_exp(vnegq_f32(x))));
}

static inline float32x4_t neon_gelu(float32x4_t x)
{
    const float32x4_t u = neon_step(vmulq_f32(x, x), vdupq_n_f32(SL_GELU_B), SL_GELU_A);
    return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), neon_exp(vmulq_f32(x, u))));
}

#endif
