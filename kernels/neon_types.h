/* The types whose values are in the block, or a table of 16 numbers away: how each is multiplied.
 * For the levels of NEON. */
#ifndef SL_NEON_TYPES_H
#define SL_NEON_TYPES_H

#include "neon_product.h"

NEON_MUL_32(q8_0, .d_at = 0)
NEON_MUL_32(q4_0, .d_at = 0, .offset = 8)
NEON_MUL_32(q4_1, .d_at = 0, .m_at = 2)
NEON_MUL_32(q5_0, .d_at = 0, .offset = 16)
NEON_MUL_32(q5_1, .d_at = 0, .m_at = 2)
NEON_MUL_32(iq4_nl, .d_at = 0)
NEON_MUL_32(mxfp4, .d_kind = NEON_D_BLOCK, .d = neon_d_mxfp4)
NEON_MUL_PARTS(nvfp4, 2, .d_kind = NEON_D_BLOCK, .d = neon_d_nvfp4, .halves = true)
NEON_MUL_PARTS(q1_0, 4, .d_at = 0)
NEON_MUL_PARTS(q2_0, 2, .d_at = 0, .offset = 1)
NEON_MUL_BESIDE(mlx4, 16, .d_kind = NEON_D_AFFINE)
NEON_MUL_BESIDE(mlx8, 32, .d_kind = NEON_D_AFFINE, .sum_offset = -128)
NEON_MUL_BESIDE(mxfp4_split, 16, .d_kind = NEON_D_E8M0)
NEON_MUL_256(q4_k, k, 8, .d_at = 0, .m_at = 2, .n_mins = 8)
NEON_MUL_256(q5_k, k, 8, .d_at = 0, .m_at = 2, .n_mins = 8)
NEON_MUL_256(q6_k, q6_k, 16, .d_at = 208, .offset = 32)
NEON_MUL_256(q2_k, q2_k, 16, .d_at = 80, .m_at = 82, .n_mins = 16)
NEON_MUL_256(q3_k, q3_k, 16, .d_at = 108, .offset = 4)
NEON_MUL_256(iq4_xs, iq4_xs, 8, .d_at = 0)
NEON_MUL_256(tq1_0, one, 8, .d_at = 52)
NEON_MUL_256(tq2_0, one, 8, .d_at = 64)

static inline void neon_fill_products(sl_kernels *k)
{
    k->mul[SL_W_Q8_0] = mul_q8_0;
    k->mul[SL_W_Q4_0] = mul_q4_0;
    k->mul[SL_W_Q4_1] = mul_q4_1;
    k->mul[SL_W_Q5_0] = mul_q5_0;
    k->mul[SL_W_Q5_1] = mul_q5_1;
    k->mul[SL_W_Q4_K] = mul_q4_k;
    k->mul[SL_W_Q5_K] = mul_q5_k;
    k->mul[SL_W_Q6_K] = mul_q6_k;
    k->mul[SL_W_Q2_K] = mul_q2_k;
    k->mul[SL_W_Q3_K] = mul_q3_k;
    k->mul[SL_W_IQ4_NL] = mul_iq4_nl;
    k->mul[SL_W_IQ4_XS] = mul_iq4_xs;
    k->mul[SL_W_MXFP4] = mul_mxfp4;
    k->mul[SL_W_NVFP4] = mul_nvfp4;
    k->mul[SL_W_TQ1_0] = mul_tq1_0;
    k->mul[SL_W_TQ2_0] = mul_tq2_0;
    k->mul[SL_W_Q1_0] = mul_q1_0;
    k->mul[SL_W_Q2_0] = mul_q2_0;
    k->mul[SL_W_MLX4] = mul_mlx4;
    k->mul[SL_W_MLX8] = mul_mlx8;
    k->mul[SL_W_MXFP4_SPLIT] = mul_mxfp4_split;
}

#endif
