/* The slots of this level for attention with AVX-512; those that are not filled keep the level
 * below. */
#include "levels.h"

void sl_kernels_fill_avx512_attention(sl_kernels *k)
{
    (void)k;
}
