/* Pages ahead of reads. A page of the slab is charged, cleared and mapped when it is first touched,
 * and the one that touches it is the I/O thread, with the disk idle behind it: 0.1 ms for 2 MiB, or
 * 4 ms where a host has to find the memory first. So another thread touches them a little earlier,
 * in time that nobody else wants (SCHED_IDLE), until all have been touched or the stream is
 * resized. No lock is shared with anybody: a thread of that class may be kept from running while it
 * holds one. */
#ifndef SL_PAGES_H
#define SL_PAGES_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "pool.h"
#include "slab.h"

enum { SL_PAGES_ZONES = 1 + SL_POOL_CLASSES, SL_PAGES_AHEAD = 256 << 20 };

typedef struct sl_pages_zone { /* memory that is used from its beginning on; offsets in the slab */
    uint64_t from, to, ahead;  /* ahead: bytes that may be touched before their use */
    uint64_t done;             /* touched up to here; the thread's */
    _Atomic uint64_t used;
} sl_pages_zone;

typedef struct sl_pages {
    uint8_t *memory;
    sl_pages_zone zone[SL_PAGES_ZONES]; /* the ring and what is pinned; then the pool's classes */
    uint32_t n;
    pthread_t thread;
    bool open, on; /* on: the thread has not been joined */
    atomic_bool quit, asleep;
    sem_t news;
} sl_pages;

/* The pool's memory begins at pool_at; all before it is touched. Of each class of the pool `ahead`
 * bytes are beyond what has been used, or as much again as has been used: while a prompt is read
 * the CPU has time for it, later it has not; but who needs little of a pool does not touch all of
 * it. No thread to be had, or no kernel that does it (before 5.14): reads touch their pages
 * themselves. p must not move. */
void sl_pages_open(sl_pages *p, const sl_slab *slab, const sl_pool *pool, uint64_t pool_at,
                   uint64_t ahead);
/* Slots may have been taken. Any thread, under the scheduler's lock. */
void sl_pages_used(sl_pages *p, const sl_pool *pool);
/* When this returns no page is touched any more. No matter if it was not opened. */
void sl_pages_stop(sl_pages *p);
void sl_pages_close(sl_pages *p); /* stops; nobody may call sl_pages_used() any more */

#endif
