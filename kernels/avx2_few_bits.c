/* Products with weights of one to three bits, AVX2. Sums of pairs that must fit 16 bits, as in
 * avx2_quant.c:
 *
 *   type           weight byte   one pair             sums in 16 bits   most
 *   Q2_K TQ2_0     0 .. 3        2 *  3 * 127 =  762       16          12192
 *   fields of two bits in place, 0 .. 12         3048        8          24384
 *   Q3_K           0 .. 7        2 *  7 * 127 = 1778        4           7112
 *   in place       0 .. 28       2 * 28 * 127 = 7112        4          28448
 *   TQ1_0 Q1_0     0 .. 2        2 *  2 * 127 =  508       24          12192
 *   Q2_0           0 .. 3        2 *  3 * 127 =  762        8           6096
 *
 * The offsets, Q3_K's 4 and 1 of the others, are taken off afterwards, times the sums of q. */
#include "avx2_few_bits.h"
#include "avx2_mul.h"
#include "levels.h"

/* Types of 32 with an sl_single of their own. */
#undef SINGLE_32
#define SINGLE_32(type, parts, ...)                                                                \
    SL_INLINE __m256 single_##type(const sl_rows8 *w, size_t i, const void *act, size_t n_cols,    \
                                   __m256 acc)                                                     \
    {                                                                                              \
        return sl_single_##type(w, i, sl_act_q8_32_row(act, n_cols), acc);                         \
    }

MUL(q2_k, 256, .n_in_16 = 4, .n_scales = 16, .n_mins = 8, .has_dmin = 1)
MUL(q3_k, 256, .n_in_16 = 4, .n_scales = 16, .n_mins = 8, .offset = 4)
MUL(tq1_0, 256, .n_in_16 = 16, .n_scales = 4, .n_mins = 4, .offset = 1)
MUL(tq2_0, 256, .n_in_16 = 16, .n_scales = 4, .n_mins = 4, .offset = 1)
MUL_PARTS(q1_0, 32, 4, .n_in_16 = 8, .offset = 1)
MUL_PARTS(q2_0, 32, 2, .n_in_16 = 8, .offset = 1)

void sl_kernels_fill_avx2_few_bits(sl_kernels *k)
{
    k->mul[SL_W_Q2_K] = mul_q2_k;
    k->mul[SL_W_Q3_K] = mul_q3_k;
    k->mul[SL_W_TQ1_0] = mul_tq1_0;
    k->mul[SL_W_TQ2_0] = mul_tq2_0;
    k->mul[SL_W_Q1_0] = mul_q1_0;
    k->mul[SL_W_Q2_0] = mul_q2_0;
}
