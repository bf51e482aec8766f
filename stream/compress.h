/* Blocks of bytes made smaller, each with a checksum of its own. The only user of zstd. An object
 * belongs to one thread at a time. */
#ifndef SL_COMPRESS_H
#define SL_COMPRESS_H

#include "base.h"

typedef struct sl_compressor sl_compressor;

/* For blocks of up to most bytes: nothing is allocated later. NULL: out of memory. */
sl_compressor *sl_compressor_new(uint64_t most);
void sl_compressor_free(sl_compressor **c);
uint64_t sl_compressor_bound(uint64_t len); /* the most that len bytes become */
/* Into out, which has sl_compressor_bound(len) bytes. Returns how many; 0: it failed. */
uint64_t sl_compressor_pack(sl_compressor *c, const void *data, uint64_t len, void *out);
/* False: not exactly len bytes, damaged, or out of memory. */
bool sl_compressor_unpack(const void *packed, uint64_t packed_len, void *out, uint64_t len);

#endif
