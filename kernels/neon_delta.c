/* scalar_delta.c, four columns or channels at a time. */
#include "levels.h"
#include "vec_delta.h"

void sl_kernels_fill_neon_delta(sl_kernels *k)
{
    vec_fill_delta(k);
}
