/* Products with quantised weights with SMMLA: two rows of eight bytes times two activation rows of
 * eight, twice the products of SDOT. For one activation row half of them would be for nothing: that
 * path is the same as NEON's. */
#include "levels.h"
#include "neon_types.h"

void sl_kernels_fill_neoni8mm_quant(sl_kernels *k)
{
    neon_fill_products(k);
}
