/* Products with codebook types with SMMLA: neoni8mm_quant.c says where it is used. */
#include "levels.h"
#include "neon_grids.h"

void sl_kernels_fill_neoni8mm_iquant(sl_kernels *k)
{
    neon_fill_grids(k);
}
