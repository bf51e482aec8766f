/* scalar_attention.c with AVX2: 16 registers of 8 floats. */
#include "levels.h"
#include "vec_attention.h"

void sl_kernels_fill_avx2_attention(sl_kernels *k)
{
    vec_fill_attention(k);
}
