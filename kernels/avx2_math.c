/* scalar_math.c, eight values at a time. */
#include "levels.h"
#include "vec_maps.h"

void sl_kernels_fill_avx2_math(sl_kernels *k)
{
    vec_fill_math(k);
}
