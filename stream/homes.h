/* Pinned parts whose memory can be given up: in groups that hold whole pieces of 2 MiB, in an order
 * in which any first few of them are spread evenly over the pass, so that the disk has something to
 * do all the time, and more of them never bring one back. Bookkeeping of the one thread that
 * resizes a stream. */
#ifndef SL_HOMES_H
#define SL_HOMES_H

#include "sched.h"

typedef struct sl_home {
    uint32_t first, n; /* of sl_homes.part */
    uint64_t from, to; /* its whole pieces, offsets in the memory */
    bool given;        /* they are the kernel's */
    uint32_t order;    /* of giving up */
} sl_home;

typedef struct sl_homes {
    uint32_t *part; /* pinned parts, by address */
    sl_home *home;  /* in the order in which they are given up */
    uint32_t n;
} sl_homes;

uint64_t sl_homes_memory_bytes(const sl_plan *p);
/* memory: where offsets count from. None when parts are there on demand (they give way instead), or
 * there is no ring to stream through. */
sl_status sl_homes_open(sl_homes *h, const sl_sched *s, const uint8_t *memory, sl_err *err);
void sl_homes_close(sl_homes *h);
/* Bytes of the first n. */
uint64_t sl_homes_bytes(const sl_homes *h, uint32_t n);

#endif
