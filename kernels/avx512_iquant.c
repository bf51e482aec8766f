/* The codebook types with AVX-512: the tiles and bounds of avx2_iquant.c; one activation row meets
 * 64 columns at a time, signs are mask registers (avx2_grids.h), and 32 registers hold what
 * shuffles need. */
#include "avx2_grids.h"
#include "avx2_mul.h"
#include "levels.h"

MUL(iq2_xxs, 256, .n_in_16 = 1, .n_scales = 16, .n_mins = 8, .offset = 1)
MUL(iq2_xs, 256, .n_in_16 = 1, .n_scales = 16, .n_mins = 8, .offset = 1)
MUL(iq2_s, 256, .n_in_16 = 1, .n_scales = 16, .n_mins = 8, .offset = 1)
MUL(iq3_xxs, 256, .n_in_16 = 1, .n_scales = 16, .n_mins = 8, .offset = 1)
MUL(iq3_s, 256, .n_in_16 = 4, .n_scales = 16, .n_mins = 8, .offset = 1)
MUL(iq1_s, 256, .n_in_16 = 4, .n_scales = 16, .n_mins = 8, .offset = 1)
MUL(iq1_m, 256, .n_in_16 = 4, .n_scales = 16, .n_mins = 8, .offset = 1)

void sl_kernels_fill_avx512_iquant(sl_kernels *k)
{
    k->mul[SL_W_IQ2_XXS] = mul_iq2_xxs;
    k->mul[SL_W_IQ2_XS] = mul_iq2_xs;
    k->mul[SL_W_IQ2_S] = mul_iq2_s;
    k->mul[SL_W_IQ3_XXS] = mul_iq3_xxs;
    k->mul[SL_W_IQ3_S] = mul_iq3_s;
    k->mul[SL_W_IQ1_S] = mul_iq1_s;
    k->mul[SL_W_IQ1_M] = mul_iq1_m;
}
