/* exp, tanh and what is made of them, with defined steps: every CPU level takes the same ones, so
 * that results are the same bits everywhere. The C library's own functions differ between versions.
 * Errors (tests/kernels_float prints them): exp and tanh at most 2 units in the last place. */
#ifndef SL_VMATH_H
#define SL_VMATH_H

#include "half.h"

#include <math.h>

/* exp(x) = 2^n exp(r), n the integer nearest x / ln 2, |r| <= ln(2) / 2. Adding SL_EXP_ROUND rounds
 * to that integer and leaves it in the low bits. Outside the limits the result is 0 or infinity. */
#define SL_EXP_MAX    89.0f
#define SL_EXP_MIN    (-104.0f)
#define SL_EXP_LOG2E  0x1.715476p+0f
#define SL_EXP_ROUND  0x1.8p+23f
#define SL_EXP_LN2_HI 0x1.62e430p-1f
#define SL_EXP_LN2_LO (-0x1.05c610p-29f)
/* Minimax for (exp(r) - 1 - r) / r^2, relative error of exp(r) 3.1e-9. */
#define SL_EXP_P2 0x1.fffffcp-2f
#define SL_EXP_P3 0x1.555490p-3f
#define SL_EXP_P4 0x1.5558f4p-5f
#define SL_EXP_P5 0x1.123a64p-7f
#define SL_EXP_P6 0x1.6a23dap-10f

/* Up to SL_TANH_SPLIT tanh(x) = x + x^3 P(x^2), relative error 4.4e-9; from there
 * 1 - 2 / (exp(2x) + 1), which would cancel for small x. */
#define SL_TANH_SPLIT 0.625f
#define SL_TANH_P0    (-0x1.555532p-2f)
#define SL_TANH_P1    0x1.110726p-3f
#define SL_TANH_P2    (-0x1.b83c58p-5f)
#define SL_TANH_P3    0x1.52268ep-6f
#define SL_TANH_P4    (-0x1.75e198p-8f)

/* gelu, tanh form: x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3). -2u = x (A + B x^2). */
#define SL_GELU_A (-0x1.988454p+0f)
#define SL_GELU_B (-0x1.2444f2p-4f)

/* log(1 + u) = 2 artanh(s), s = u / (2 + u), = 2s + s^3 P(s^2): u from 0 to 1, relative error 5e-9.
 */
#define SL_LOG1P_P0 0x1.555500p-1f
#define SL_LOG1P_P1 0x1.99d27cp-2f
#define SL_LOG1P_P2 0x1.1eb60ap-2f
#define SL_LOG1P_P3 0x1.1ef89ap-2f

/* The clamped unit: both inputs are cut at this size. */
#define SL_CLAMP       7.0f
#define SL_CLAMP_SLOPE 1.702f

/* NaN stays NaN. Two factors for 2^n: one alone would overflow before, or round twice after, the
 * product does. */
static inline float sl_exp(float x)
{
    x = x > SL_EXP_MAX ? SL_EXP_MAX : x;
    x = x < SL_EXP_MIN ? SL_EXP_MIN : x;
    const float t = fmaf(x, SL_EXP_LOG2E, SL_EXP_ROUND), n = t - SL_EXP_ROUND;
    float r = fmaf(n, -SL_EXP_LN2_HI, x);
    r = fmaf(n, -SL_EXP_LN2_LO, r);
    float p = fmaf(SL_EXP_P6, r, SL_EXP_P5);
    p = fmaf(p, r, SL_EXP_P4);
    p = fmaf(p, r, SL_EXP_P3);
    p = fmaf(p, r, SL_EXP_P2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    const int32_t e = (int32_t)(sl_bits_of_float(t) - sl_bits_of_float(SL_EXP_ROUND));
    const int32_t half = e >> 1, rest = e - half;
    p *= sl_float_of_bits((uint32_t)(half + 127) << 23);
    return p * sl_float_of_bits((uint32_t)(rest + 127) << 23);
}

static inline float sl_tanh(float x)
{
    const float size = fabsf(x), u = x * x;
    float p = fmaf(SL_TANH_P4, u, SL_TANH_P3);
    p = fmaf(p, u, SL_TANH_P2);
    p = fmaf(p, u, SL_TANH_P1);
    p = fmaf(p, u, SL_TANH_P0);
    const float small = fmaf(x * u, p, x);
    const float large = 1.0f - 2.0f / (sl_exp(size + size) + 1.0f);
    return size < SL_TANH_SPLIT ? small : copysignf(large, x);
}

static inline float sl_silu(float x)
{
    return x / (1.0f + sl_exp(-x));
}

static inline float sl_sigmoid(float x)
{
    return 1.0f / (1.0f + sl_exp(-x));
}

/* log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)): relative error stays small on both sides. */
static inline float sl_softplus(float x)
{
    const float u = sl_exp(-fabsf(x)), s = u / (2.0f + u), v = s * s;
    float p = fmaf(SL_LOG1P_P3, v, SL_LOG1P_P2);
    p = fmaf(p, v, SL_LOG1P_P1);
    p = fmaf(p, v, SL_LOG1P_P0);
    return (x > 0.0f ? x : 0.0f) + fmaf(s * v, p, s + s);
}

/* NaN stays NaN: no comparison holds. */
static inline float sl_clamped_mul(float gate, float up)
{
    gate = gate > SL_CLAMP ? SL_CLAMP : gate;
    up = up > SL_CLAMP ? SL_CLAMP : up;
    up = up < -SL_CLAMP ? -SL_CLAMP : up;
    return gate / (1.0f + sl_exp(-SL_CLAMP_SLOPE * gate)) * (up + 1.0f);
}

static inline float sl_gelu(float x)
{
    return x / (1.0f + sl_exp(x * fmaf(x * x, SL_GELU_B, SL_GELU_A)));
}

/* Round to nearest even, as the CPUs' own conversions do. Adding 0.5 leaves a subnormal half's bits
 * at the end of the float. */
static inline uint16_t sl_half_of_float(float f)
{
    const uint32_t bits = sl_bits_of_float(f), sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN */
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* rounds above the largest half */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u)
        return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13);
    const uint32_t half = sl_bits_of_float(sl_float_of_bits(magnitude) + 0.5f);
    return (uint16_t)(sign | (half - sl_bits_of_float(0.5f)));
}

#endif
