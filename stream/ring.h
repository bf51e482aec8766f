/* A ring of bytes that slots of any length are taken from in order and given back in any order;
 * room comes free from both ends: behind the pass, and where reading ahead is taken back. The
 * scheduler's, under its lock. */
#ifndef SL_RING_H
#define SL_RING_H

#include "base.h"

typedef struct sl_ring_slot {
    uint64_t at, len;
    uint64_t skipped; /* bytes left unused before it, at the ring's end */
    uint64_t before;  /* the ring's head before it was taken */
    uint64_t pass;    /* owner's notes: which pass and position it is for */
    uint32_t pos;
    bool dropped;
} sl_ring_slot;

typedef struct sl_ring {
    uint64_t bytes, head, used; /* head: where the next slot goes; used: skipped bytes included */
    sl_ring_slot *slots;        /* a circular queue, cap of them */
    uint32_t cap, first, n;
} sl_ring;

/* slots: cap of them, the caller's. */
void sl_ring_init(sl_ring *r, uint64_t bytes, sl_ring_slot *slots, uint32_t cap);
/* The next slot; NULL: no room now. A slot keeps its address until it is dropped. */
sl_ring_slot *sl_ring_take(sl_ring *r, uint64_t len);
void sl_ring_drop(sl_ring *r, sl_ring_slot *slot);

#endif
