/* Products with quantised weights, AVX-VNNI: which types there are; avx2_mul.h multiplies, with
 * this level's step of avx2_step.h. No sum can overflow 32 bits or is clipped (VPDPBUSD, not
 * VPDPBUSDS). Q8_0 comes with 128 added to its bytes, an offset like that of Q4_0. */
#include "avx2_mul.h"
#include "levels.h"

MUL(q8_0, 32, .offset = 128)
MUL(q4_0, 32, .offset = 8)
MUL(q4_1, 32, .has_m = 1)
MUL(q5_0, 32, .offset = 16)
MUL(q5_1, 32, .has_m = 1)
MUL(q4_k, 256, .n_scales = 8, .n_mins = 4, .has_dmin = 1)
MUL(q5_k, 256, .n_scales = 8, .n_mins = 4, .has_dmin = 1)
MUL(q6_k, 256, .n_scales = 16, .n_mins = 8, .offset = 32)

void sl_kernels_fill_avx2vnni_quant(sl_kernels *k)
{
    k->mul[SL_W_Q8_0] = mul_q8_0;
    k->mul[SL_W_Q4_0] = mul_q4_0;
    k->mul[SL_W_Q4_1] = mul_q4_1;
    k->mul[SL_W_Q5_0] = mul_q5_0;
    k->mul[SL_W_Q5_1] = mul_q5_1;
    k->mul[SL_W_Q4_K] = mul_q4_k;
    k->mul[SL_W_Q5_K] = mul_q5_k;
    k->mul[SL_W_Q6_K] = mul_q6_k;
}
