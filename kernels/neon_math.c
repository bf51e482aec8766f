/* scalar_math.c, four values at a time. */
#include "levels.h"
#include "vec_maps.h"

void sl_kernels_fill_neon_math(sl_kernels *k)
{
    vec_fill_math(k);
}
