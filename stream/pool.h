/* The pool: slots for on-demand parts, and who gives one up. Every part belongs to a class of about
 * its size; a class has equal slots. A part with a slot may be taken from (evictable) or not: the
 * scheduler holds what is needed, hinted or on its way, and releases it afterwards. Bookkeeping
 * only, under the scheduler's lock.
 *
 * Who goes: the evictable part of the class with the least key. A key says how much a part was
 * used, so that parts can be compared at any time without looking at the clock; keys survive
 * eviction. LRFU (Lee et al., "LRFU: a spectrum of policies", 2001): the sum over all uses of
 * 0.5^(age / half-life), kept as its logarithm at time 0.
 *
 * S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023) has queues
 * instead of keys: a tenth of the slots is a probation for parts that are new, and what is used
 * there more than once moves on to the main queue; a part that comes back soon after probation goes
 * there directly. Parts that are held are passed over. */
#ifndef SL_POOL_H
#define SL_POOL_H

#include "plan.h"

enum {
    SL_POOL_CLASSES = 16,
    SL_POOL_SLACK = 16, /* a class's parts differ by at most one in so many of the largest's size */
    SL_POOL_LEAST = 2,  /* slots of a class: one is read while the other is used */
    SL_POOL_MAIN = 0,   /* S3-FIFO's queues */
    SL_POOL_SMALL = 1
};

typedef struct sl_pool_queue { /* of entries with a slot, by prev and next */
    uint32_t newest, oldest, n;
} sl_pool_queue;

typedef struct sl_pool_class {
    uint64_t slot_bytes;
    uint32_t n_parts;
    uint32_t n_slots;   /* that may be given; those from here on are given up one by one */
    uint32_t n_most;    /* slots that there is memory for */
    uint32_t n_touched; /* slots from the first one on that have been given at some time */
    bool ordered;       /* false: every part has its slot, and there is nothing to keep in order */
    uint32_t n_free, n_heap; /* n_heap: evictable entries, with S3-FIFO too */
    uint32_t *free_slot;     /* [n_most], n_free of them, all below n_slots */
    uint32_t *owner;         /* [n_most] entry, UINT32_MAX: none */
    uint32_t *heap;          /* [n_most] evictable entries, least key first */
    uint64_t at;             /* of its first slot in the pool's memory */
    sl_pool_queue queue[2];
    uint32_t n_ghosts; /* entries that have left probation unused, ever */
} sl_pool_class;

typedef struct sl_pool_entry { /* a part */
    double key;
    uint32_t slot;    /* of its class; UINT32_MAX: none */
    uint32_t heap_at; /* UINT32_MAX: held, or without a slot */
    uint32_t class;
    uint32_t uses;       /* LFU's; S3-FIFO's, at most 3 */
    uint32_t prev, next; /* the rest is S3-FIFO's: newer and older in its queue; UINT32_MAX: none */
    uint32_t ghost;      /* number among the ghosts of its class, 0: none */
    uint8_t queue;
} sl_pool_entry;

typedef struct sl_pool {
    sl_policy policy;
    double half_life;     /* rows */
    double now;           /* rows that all passes have had */
    uint64_t n_uses;      /* LRU's clock */
    sl_pool_entry *entry; /* by index among the on-demand parts */
    uint32_t n;
    sl_pool_class class[SL_POOL_CLASSES];
    uint32_t n_classes;
    uint32_t moving, moving_to; /* entry that is being copied, and the slot; UINT32_MAX: none */
} sl_pool;

/* ---- how much: arithmetic ---- */
typedef struct sl_pool_plan {
    uint32_t n, n_classes, n_slots; /* on-demand parts, classes, slots of all */
    uint64_t part_bytes;            /* of all parts, as slots */
    uint64_t least_bytes;           /* the least that works */
    uint64_t bytes;                 /* of n_slots */
    struct {
        uint64_t slot_bytes;
        uint32_t n_parts, n_slots;
    } class[SL_POOL_CLASSES];
} sl_pool_plan;
/* The same share of every class's parts, in at most bytes (all of them when that is enough; never
 * under least_bytes). */
void sl_pool_choose(const sl_plan *p, uint64_t bytes, sl_pool_plan *out);

uint64_t sl_pool_memory_bytes(const sl_plan *p); /* heap, at the most */
/* Entry i is the i-th on-demand part of the plan. */
sl_status sl_pool_open(sl_pool *p, const sl_plan *plan, const sl_pool_plan *slots, sl_policy policy,
                       double half_life, sl_err *err);
void sl_pool_close(sl_pool *p);

/* Gives entry i a slot (it is then held). The slot is free, or another entry's that is evictable:
 * *victim, which has lost it, else UINT32_MAX. False: all slots are held. */
bool sl_pool_take(sl_pool *p, uint32_t i, uint32_t *victim);
/* Where entry i's slot lies in the pool's memory. */
uint64_t sl_pool_at(const sl_pool *p, uint32_t i);
void sl_pool_hold(sl_pool *p, uint32_t i);    /* not evictable; no matter if it was not */
void sl_pool_release(sl_pool *p, uint32_t i); /* evictable; it has a slot */
void sl_pool_drop(sl_pool *p, uint32_t i);    /* its slot is free, or given up */

/* ---- fewer slots, and more again ---- */

/* Class c has this many slots from now on, of at most n_most. Fewer: those beyond stay with their
 * parts until they are dropped, evicted or moved. After the first time parts are kept in order: all
 * that are evictable have to be released once more. */
void sl_pool_limit(sl_pool *p, uint32_t c, uint32_t n_slots);
/* The last slot of class c, from n_slots on and before `before`, that has an owner: *entry. False:
 * there is none. */
bool sl_pool_beyond(const sl_pool *p, uint32_t c, uint32_t before, uint32_t *slot, uint32_t *entry);
/* Takes the slot of the evictable entry of class c that is to go next; UINT32_MAX: there is none.
 */
uint32_t sl_pool_evict(sl_pool *p, uint32_t c);
/* Entry i, which is evictable, is being copied to a free slot of its class (moving_to): it is held
 * until sl_pool_move_end(). One at a time. False: no slot is free. */
bool sl_pool_move_start(sl_pool *p, uint32_t i);
/* moved: the copy is its slot now, and the old one free or given up; else the copy is forgotten.
 * The entry is still held. */
void sl_pool_move_end(sl_pool *p, bool moved);
/* Where slot moving_to of the moving entry lies in the pool's memory. */
uint64_t sl_pool_moving_at(const sl_pool *p);

/* rows of the pass's pass_rows use entry i. Before sl_pool_tick(). */
void sl_pool_use(sl_pool *p, uint32_t i, uint32_t rows, uint32_t pass_rows);
/* LRFU's sums as they are now, as logarithms; the others keep none (-INFINITY). */
void sl_pool_uses_get(const sl_pool *p, float *use);
void sl_pool_uses_set(sl_pool *p, const float *use); /* before the first pass */
void sl_pool_tick(sl_pool *p, uint32_t pass_rows);   /* a pass of so many rows is over */

#endif
