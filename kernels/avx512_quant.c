/* Products with quantised weights, AVX-512 VNNI: which types there are; avx512_mul.h multiplies.
 * Weight bytes are unsigned: Q8_0 by an offset of 128, through the sign bit; Q4_0, Q5_0 and Q6_K
 * have theirs in the file. */
#include "avx512_mul.h"
#include "avx512_row.h"
#include "levels.h"

TYPE_32(q8_0, .offset = 128)
TYPE_32(q4_0, .offset = 8)
TYPE_32(q4_1, .has_m = 1)
TYPE_32(q5_0, .offset = 16)
TYPE_32(q5_1, .has_m = 1)
TYPE_256(q4_k, .n_scales = 8, .has_dmin = 1)
TYPE_256(q5_k, .n_scales = 8, .has_dmin = 1)
TYPE_256(q6_k, .n_scales = 16, .is_signed = 1, .offset = 32)

ROW(q8_0, .chunk = sl_row_chunk_q8_0, .in_order = 1, .offset = 128)
ROW(q4_0, .chunk = sl_row_chunk_q4_0, .offset = 8)
ROW(q4_k, .unit = sl_row_unit_q4_k, .has_dmin = 1)
ROW(q5_k, .unit = sl_row_unit_q5_k, .has_dmin = 1)
ROW(q6_k, .unit = sl_row_unit_q6_k, .in_order = 1)

void sl_kernels_fill_avx512_quant(sl_kernels *k)
{
    k->mul[SL_W_Q8_0] = row_q8_0;
    k->mul[SL_W_Q4_0] = row_q4_0;
    k->mul[SL_W_Q4_1] = mul_q4_1;
    k->mul[SL_W_Q5_0] = mul_q5_0;
    k->mul[SL_W_Q5_1] = mul_q5_1;
    k->mul[SL_W_Q4_K] = row_q4_k;
    k->mul[SL_W_Q5_K] = row_q5_k;
    k->mul[SL_W_Q6_K] = row_q6_k;
}
