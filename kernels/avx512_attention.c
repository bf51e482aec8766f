/* scalar_attention.c with AVX-512: 32 registers of 16 floats. */
#include "levels.h"
#include "vec_attention.h"

void sl_kernels_fill_avx512_attention(sl_kernels *k)
{
    vec_fill_attention(k);
}
