/* Less memory for a stream, and more again, while passes go on. A thread that is not the pass's
 * does it: slots of the pool and the homes of pinned parts are emptied under the lock, a few at a
 * time, and their memory goes back to the system without it. */
#include <string.h>
#include <time.h>

#include "stream_impl.h"

enum {
    MOMENT_NS = 1000000,  /* until parts that are in use are looked at again: about a unit */
    MOMENTS_NS = 16000000 /* when that goes on: between passes it may do so for long */
};

static void nap(uint64_t ns)
{
    const struct timespec t = {.tv_nsec = (long)ns};
    nanosleep(&t, NULL);
}

/* Slots of a class whose memory is not free for others. */
static uint32_t slots_kept(const sl_pool *p, uint32_t c)
{
    uint32_t slot, entry;
    return sl_pool_beyond(p, c, UINT32_MAX, &slot, &entry) ? slot + 1 : p->class[c].n_slots;
}

void sl_stream_room_get(sl_stream *s, sl_stream_room *out)
{
    const sl_pool *p = &s->sched.pool;
    sl_pool_plan least;
    uint64_t kept = 0;
    sl_pool_choose(s->plan, 0, &least);
    *out = (sl_stream_room){.most_bytes = s->o.memory_bytes};
    pthread_mutex_lock(&s->lock);
    for (uint32_t c = 0; c < p->n_classes; c++) {
        kept += slots_kept(p, c) * p->class[c].slot_bytes;
        out->pool_slots += p->class[c].n_slots;
        out->most_pool_slots += p->class[c].n_most;
    }
    pthread_mutex_unlock(&s->lock);
    out->memory_bytes = out->most_bytes - (s->split.pool_bytes - kept);
    for (uint32_t i = 0; i < s->homes.n; i++)
        if (s->homes.home[i].given)
            out->memory_bytes -= s->homes.home[i].to - s->homes.home[i].from;
    out->least_bytes = out->most_bytes - (s->split.pool_bytes - least.least_bytes) -
                       sl_homes_bytes(&s->homes, s->homes.n);
}

static sl_resident *home_part(sl_stream *s, const sl_home *g, uint32_t i)
{
    return &s->sched.resident[s->sched.position[s->homes.part[g->first + i]]];
}

/* True: the group's parts are streamed, and their memory has gone. */
static bool home_give(sl_stream *s, sl_home *g)
{
    bool all = true;
    if (g->given)
        return true;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < g->n; i++)
        all &= home_part(s, g, i)->given_up ||
               sl_sched_give_up(&s->sched, s->homes.part[g->first + i]);
    sl_stream_kick(s);
    pthread_mutex_unlock(&s->lock);
    if (all)
        sl_slab_give_back(&s->slab, g->from, g->to);
    g->given = all;
    return all;
}

/* True: the group's parts are pinned again. */
static bool home_take(sl_stream *s, sl_home *g)
{
    bool all = true;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < g->n; i++)
        if (home_part(s, g, i)->given_up) {
            all &= sl_sched_take_back(&s->sched, s->homes.part[g->first + i]);
            g->given = false;
        }
    sl_stream_kick(s);
    pthread_mutex_unlock(&s->lock);
    return all;
}

/* As many groups as make up `less` bytes, and no more. True: it is so. */
static bool homes_move(sl_stream *s, uint64_t less)
{
    uint64_t bytes = 0;
    bool all = true;
    for (uint32_t i = 0; i < s->homes.n; i++) {
        sl_home *g = &s->homes.home[i];
        all &= bytes < less ? home_give(s, g) : home_take(s, g);
        bytes += g->to - g->from;
    }
    return all;
}

/* A few slots less. Copies are made without the lock, so that the pass does not wait for them. */
static sl_drain drain(sl_stream *s, bool keep)
{
    sl_move move;
    pthread_mutex_lock(&s->lock);
    const sl_drain d = sl_sched_drain(&s->sched, keep, &move);
    pthread_mutex_unlock(&s->lock);
    if (d != SL_DRAIN_MOVE)
        return d;
    const uint64_t begin = sl_now_ns();
    if (move.to)
        memcpy(move.to, move.from, move.bytes);
    const uint64_t took = sl_now_ns() - begin;
    pthread_mutex_lock(&s->lock);
    sl_sched_move_end(&s->sched);
    sl_stream_kick(s); /* a need may have found no slot meanwhile */
    pthread_mutex_unlock(&s->lock);
    nap(took); /* it takes memory bandwidth, and perhaps a core, from the pass: half is enough */
    return d;
}

static void give_back(sl_stream *s)
{
    const sl_pool *p = &s->sched.pool;
    const uint64_t pool_at = s->split.ring_bytes + s->split.pinned_bytes;
    if (s->split.io == SL_IO_MAPPED)
        return;
    for (uint32_t c = 0; c < p->n_classes; c++) {
        const sl_pool_class *k = &p->class[c];
        pthread_mutex_lock(&s->lock);
        const uint64_t kept = slots_kept(p, c);
        pthread_mutex_unlock(&s->lock);
        /* Nobody takes a slot beyond the limit, and nobody else moves the limit. */
        sl_slab_give_back(&s->slab, pool_at + k->at + kept * k->slot_bytes,
                          pool_at + k->at + k->n_most * k->slot_bytes);
    }
}

sl_status sl_stream_resize(sl_stream *s, uint64_t memory_bytes, uint64_t within_ns)
{
    const uint64_t begin = sl_now_ns();
    const uint64_t less = memory_bytes < s->o.memory_bytes ? s->o.memory_bytes - memory_bytes : 0;
    sl_pool_plan slots;
    sl_drain d = SL_DRAIN_MORE;
    uint64_t pause = MOMENT_NS;
    bool homes = false;
    sl_pool_choose(s->plan, less < s->split.pool_bytes ? s->split.pool_bytes - less : 0, &slots);
    for (uint32_t c = 0; c < slots.n_classes && !less; c++)
        slots.class[c].n_slots = s->sched.pool.class[c].n_most; /* no rounding */
    sl_pages_stop(&s->pages); /* what is given back must stay so */
    pthread_mutex_lock(&s->lock);
    sl_sched_pool_limit(&s->sched, &slots);
    sl_stream_kick(s);
    pthread_mutex_unlock(&s->lock);
    for (uint64_t taken = 0; (d != SL_DRAIN_DONE || !homes) && taken < within_ns;) {
        d = drain(s, taken < within_ns / 2);
        homes = homes_move(s, less);
        if (d == SL_DRAIN_HELD || (d == SL_DRAIN_DONE && !homes)) {
            give_back(s);
            nap(pause);
            pause = pause < MOMENTS_NS ? 2 * pause : pause;
        }
        taken = sl_now_ns() - begin;
    }
    give_back(s);
    return d == SL_DRAIN_DONE && homes ? SL_OK : SL_EAGAIN;
}
