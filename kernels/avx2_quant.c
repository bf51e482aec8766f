/* Products with quantised weights, AVX2: which types there are; avx2_mul.h multiplies.
 *
 * A product of unsigned weight bytes and signed activations adds pairs into 16 bits
 * (_mm256_maddubs_epi16), which must not saturate at 32767. With |q of x| <= 127:
 *
 *   type        weight byte      one pair             sums in 16 bits   most
 *   Q4          0 .. 15          2 * 15 * 127 = 3810        8          30480
 *   Q5          0 .. 31          2 * 31 * 127 = 7874        4          31496
 *   Q6_K        0 .. 63          2 * 63 * 127 = 16002       2          32004
 *   Q8_0        0 .. 128 (|w|)   2 * 128 * 127 = 32512      1          32512
 *
 * The offsets 8, 16 and 32 of Q4_0, Q5_0 and Q6_K are taken off afterwards, times the sums of q.
 * For Q8_0 the sign of w goes to x, which is exact because x is never -128; w = -128 becomes the
 * unsigned byte 128. */
#include "avx2_mul.h"
#include "levels.h"

MUL(q8_0, 32, .n_in_16 = 1, .is_signed = 1)
MUL(q4_0, 32, .n_in_16 = 8, .offset = 8)
MUL(q4_1, 32, .n_in_16 = 8, .has_m = 1)
MUL(q5_0, 32, .n_in_16 = 4, .offset = 16)
MUL(q5_1, 32, .n_in_16 = 4, .has_m = 1)
MUL(q4_k, 256, .n_in_16 = 8, .n_scales = 8, .n_mins = 4, .has_dmin = 1)
MUL(q5_k, 256, .n_in_16 = 4, .n_scales = 8, .n_mins = 4, .has_dmin = 1)
MUL(q6_k, 256, .n_in_16 = 2, .n_scales = 16, .n_mins = 8, .offset = 32)

void sl_kernels_fill_avx2_quant(sl_kernels *k)
{
    sl_kernels_fill_avx2_dequant(k);
    k->mul[SL_W_Q8_0] = mul_q8_0;
    k->mul[SL_W_Q4_0] = mul_q4_0;
    k->mul[SL_W_Q4_1] = mul_q4_1;
    k->mul[SL_W_Q5_0] = mul_q5_0;
    k->mul[SL_W_Q5_1] = mul_q5_1;
    k->mul[SL_W_Q4_K] = mul_q4_k;
    k->mul[SL_W_Q5_K] = mul_q5_k;
    k->mul[SL_W_Q6_K] = mul_q6_k;
}
