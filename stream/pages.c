#include "pages.h"

#include <sched.h>
#include <sys/mman.h>

#include "io_threads.h"

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

static uint64_t target_of(const sl_pages_zone *z)
{
    const uint64_t used = atomic_load_explicit(&z->used, memory_order_relaxed);
    const uint64_t room = z->to > used ? z->to - used : 0, again = used - z->from;
    const uint64_t ahead = z->ahead > again ? z->ahead : again;
    return used + (room < ahead ? room : ahead);
}

/* The next zone after number `last`, in turn, that is to be touched further; n: none is. */
static uint32_t zone_next(const sl_pages *p, uint32_t last)
{
    for (uint32_t i = 1; i <= p->n; i++) {
        const uint32_t k = (last + i) % p->n;
        if (p->zone[k].done < target_of(&p->zone[k]))
            return k;
    }
    return p->n;
}

static bool over(const sl_pages *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->zone[i].done < p->zone[i].to)
            return false;
    return true;
}

/* False: the kernel cannot, or will not. */
static bool touch(sl_pages *p, sl_pages_zone *z)
{
    const uint64_t used = atomic_load_explicit(&z->used, memory_order_relaxed);
    const uint64_t from = z->done > used ? z->done : used; /* reads have touched the rest */
    const uint64_t piece = sl_round_down(from, SL_SLAB_PAGE);
    const uint64_t next = sl_round_down(from, SL_SLAB_PIECE) + SL_SLAB_PIECE;
    const uint64_t to = next < z->to ? next : z->to;
    z->done = to;
    return piece >= to || madvise(p->memory + piece, to - piece, MADV_POPULATE_WRITE) == 0;
}

static void *pages_thread(void *arg)
{
    sl_pages *p = arg;
    const struct sched_param none = {0};
    pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
    for (uint32_t k = 0; !atomic_load(&p->quit) && !over(p);) {
        uint32_t next = zone_next(p, k);
        if (next == p->n) {
            /* Sequentially consistent, as in sl_pages_used(): either this sees what was used, or
             * that sees this asleep. */
            atomic_store(&p->asleep, true);
            if (zone_next(p, k) == p->n && !atomic_load(&p->quit))
                sem_wait(&p->news);
            atomic_store(&p->asleep, false);
            continue;
        }
        if (!touch(p, &p->zone[next]))
            break;
        k = next;
    }
    return NULL;
}

static void zone_add(sl_pages *p, uint64_t from, uint64_t to, uint64_t ahead)
{
    sl_pages_zone *z = &p->zone[p->n++];
    z->from = z->done = from;
    z->to = to;
    z->ahead = ahead;
    atomic_init(&z->used, from);
}

void sl_pages_open(sl_pages *p, const sl_slab *slab, const sl_pool *pool, uint64_t pool_at,
                   uint64_t ahead)
{
    *p = (sl_pages){.memory = slab->memory};
    if (!slab->memory)
        return;
    zone_add(p, 0, pool_at, pool_at);
    for (uint32_t c = 0; c < pool->n_classes; c++) {
        const sl_pool_class *k = &pool->class[c];
        const uint64_t at = pool_at + k->at;
        zone_add(p, at, at + k->n_most * k->slot_bytes, ahead);
    }
    atomic_init(&p->quit, false);
    atomic_init(&p->asleep, false);
    p->open = sem_init(&p->news, 0, 0) == 0;
    p->on = p->open && sl_thread_start(&p->thread, "sluice-pages", pages_thread, p) == 0;
}

void sl_pages_used(sl_pages *p, const sl_pool *pool)
{
    if (!p->open)
        return;
    for (uint32_t c = 0; c < pool->n_classes; c++) {
        sl_pages_zone *z = &p->zone[1 + c];
        atomic_store(&z->used, z->from + pool->class[c].n_touched * pool->class[c].slot_bytes);
    }
    if (atomic_load(&p->asleep) && atomic_exchange(&p->asleep, false))
        sem_post(&p->news);
}

void sl_pages_stop(sl_pages *p)
{
    const struct sched_param none = {0};
    if (!p->on)
        return;
    p->on = false;
    atomic_store(&p->quit, true);
    sem_post(&p->news);
    pthread_setschedparam(p->thread, SCHED_OTHER, &none); /* it would come to its end late */
    pthread_join(p->thread, NULL);
}

void sl_pages_close(sl_pages *p)
{
    sl_pages_stop(p);
    if (p->open)
        sem_destroy(&p->news);
    p->open = false;
}
