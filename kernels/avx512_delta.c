/* scalar_delta.c, sixteen columns or channels at a time. */
#include "levels.h"
#include "vec_delta.h"

void sl_kernels_fill_avx512_delta(sl_kernels *k)
{
    vec_fill_delta(k);
}
