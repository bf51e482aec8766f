/* Products with codebook types with SDOT. */
#include "levels.h"
#include "neon_grids.h"

void sl_kernels_fill_neon_iquant(sl_kernels *k)
{
    neon_fill_grids(k);
}
