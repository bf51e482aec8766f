/* The slots of this level for quantised products with AVX-VNNI; those that are not filled keep the
 * level below. */
#include "levels.h"

void sl_kernels_fill_avx2vnni_quant(sl_kernels *k)
{
    (void)k;
}
