/* Products with weights whose nibbles choose from 16 numbers, AVX2. Sums of pairs that must fit 16
 * bits, as in avx2_quant.c:
 *
 *   type             weight byte       one pair             sums in 16 bits   most
 *   IQ4_NL IQ4_XS    0 .. 127 (|w|)    2 * 127 * 127 = 32258       1          32258
 *   MXFP4            4 .. 28           2 *  28 * 127 =  7112       4          28448
 *   NVFP4            0 .. 12 (|w|)     2 *  12 * 127 =  3048       4          12192
 *
 * MXFP4's codes have 16 added. The others' sign goes to x, as Q8_0's: IQ4 is too large for an
 * offset, and activations have no sums of the 16 values that share a scale in NVFP4. */
#include "avx2_codes.h"
#include "avx2_mul.h"
#include "levels.h"

MUL(iq4_nl, 32, .n_in_16 = 1, .is_signed = 1)
MUL(iq4_xs, 256, .n_in_16 = 1, .is_signed = 1, .n_scales = 8)
MUL(mxfp4, 32, .n_in_16 = 4, .offset = 16)
MUL_PARTS(nvfp4, 32, 2, .n_in_16 = 4, .is_signed = 1, .halves = 1)

void sl_kernels_fill_avx2_codes(sl_kernels *k)
{
    k->mul[SL_W_IQ4_NL] = mul_iq4_nl;
    k->mul[SL_W_IQ4_XS] = mul_iq4_xs;
    k->mul[SL_W_MXFP4] = mul_mxfp4;
    k->mul[SL_W_NVFP4] = mul_nvfp4;
}
