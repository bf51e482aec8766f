/* The slots of this level for quantised products with AVX-512 VNNI; those that are not filled keep
 * the level below. */
#include "levels.h"

void sl_kernels_fill_avx512_quant(sl_kernels *k)
{
    (void)k;
}
