/* The slots of this level for float kernels with AVX-512; those that are not filled keep the level
 * below. */
#include "levels.h"

void sl_kernels_fill_avx512_float(sl_kernels *k)
{
    (void)k;
}
