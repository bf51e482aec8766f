/* Products with quantised weights with SDOT: four bytes times four bytes in each lane. */
#include "levels.h"
#include "neon_types.h"

void sl_kernels_fill_neon_quant(sl_kernels *k)
{
    neon_fill_products(k);
}
