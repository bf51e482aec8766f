/* scalar_attention.c with NEON: 32 registers of 4 floats. */
#include "levels.h"
#include "vec_attention.h"

void sl_kernels_fill_neon_attention(sl_kernels *k)
{
    vec_fill_attention(k);
}
