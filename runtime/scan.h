/* Looks for values that cannot be: scales and floats that are NaN or infinite, type by type, in the
 * bytes as they lie in the file. */
#ifndef SL_SCAN_H
#define SL_SCAN_H

#include "../stream/checkpoint.h"

/* The first block of data (n_blocks whole blocks of the type) that holds a bad value; n_blocks:
 * none is bad. Types without floats have none. */
uint64_t sl_scan_blocks(sl_dtype type, const unsigned char *data, uint64_t n_blocks);

#endif
