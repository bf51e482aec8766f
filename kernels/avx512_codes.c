/* Products with weights whose nibbles choose from 16 numbers, AVX-512 VNNI: the types;
 * avx512_mul.h multiplies. The numbers are -127 .. 113 in IQ4 and -12 .. 12 in MXFP4: offsets of
 * 128 and 12 make them unsigned. */
#include "avx512_codes.h"
#include "avx512_mul.h"
#include "levels.h"

TYPE_32(iq4_nl, .offset = 128)
TYPE_32(mxfp4, .offset = 12)
TYPE_256(iq4_xs, .n_scales = 8, .is_signed = 1, .offset = 128)

void sl_kernels_fill_avx512_codes(sl_kernels *k)
{
    k->mul[SL_W_IQ4_NL] = mul_iq4_nl;
    k->mul[SL_W_IQ4_XS] = mul_iq4_xs;
    k->mul[SL_W_MXFP4] = mul_mxfp4;
}
