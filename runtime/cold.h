/* Whether a run was cold: that none of the files' bytes were in the page cache when it began, and
 * that the block layer read what the run says it read. What the disk itself (or the host of a
 * virtual machine) keeps cannot be seen from here. */
#ifndef SL_COLD_H
#define SL_COLD_H

#include "../stream/checkpoint.h"

typedef struct sl_cold {
    bool proven;
    char how[128];         /* proven: the figures; otherwise why not; "" before sl_cold_end() */
    bool cache_known;      /* the kernel says what it caches */
    uint64_t cached_bytes; /* of the files, when the run began */
    uint64_t block_bytes, read_bytes;
    bool counted;         /* the block layer's bytes are known */
    uint64_t block_begin; /* its counter then */
} sl_cold;

/* Drops the files' pages from the page cache, and looks what is left. SL_EINVAL: SL_FAULT_CACHE
 * (CONTRIBUTING.md) is not understood. */
sl_status sl_cold_begin(sl_cold *c, const sl_checkpoint *files, sl_err *err);
/* The run is over and has read so many bytes: fills proven and how. */
void sl_cold_end(sl_cold *c, const sl_checkpoint *files, uint64_t read_bytes);

#endif
