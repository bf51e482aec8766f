/* How the memory is used: I/O and row buffers first; then a ring for the parts that stream, and all
 * the rest for pinned parts; or, when everything that a pass always needs can stay, all the rest
 * for the pool. Arithmetic only. */
#include <stdlib.h>

#include "homes.h"
#include "plan.h"

enum {
    /* Read buffers of the buffered fall-back (4 threads x 256 KiB), stacks of the I/O threads as
     * far as they are touched, the submission and completion rings. Charged whatever the engine, so
     * that a fall-back never needs more than was promised. */
    IO_FIXED = (1 << 20) + (512 << 10),
    /* One 4 KiB page table per 2 MiB, for huge pages too (the kernel sets one aside to split them
     * with); a mapped file has nodes of the page cache's tree as well, about as much again. */
    TABLES_SLAB = 512,
    TABLES_MAPPED = 256
};
#define MIB ((uint64_t)1 << 20)

typedef struct unit_size {
    uint64_t bytes;
    uint32_t unit;
} unit_size;

typedef struct chooser {
    const sl_plan *plan;
    uint32_t n_order;
    uint32_t *order, *unit_first;
    unit_size *units; /* largest first */
    uint64_t total;   /* slot bytes of all ALWAYS parts */
    uint8_t *pinned;  /* by part */
} chooser;

static void chooser_free(chooser *c)
{
    free(c->order);
    free(c->unit_first);
    free(c->units);
    free(c->pinned);
}

static int by_size(const void *a, const void *b)
{
    const unit_size *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->unit < y->unit ? -1 : 1;
}

static bool chooser_make(chooser *c, const sl_plan *p)
{
    *c = (chooser){.plan = p, .n_order = sl_plan_always_count(p)};
    c->order = calloc(c->n_order + 1, sizeof *c->order);
    c->unit_first = calloc(p->n_units + 1, sizeof *c->unit_first);
    c->units = calloc(p->n_units + 1, sizeof *c->units);
    c->pinned = calloc(p->n_parts + 1, 1);
    if (!c->order || !c->unit_first || !c->units || !c->pinned)
        return false;
    sl_plan_order(p, c->order, c->unit_first);
    for (uint32_t u = 0; u < p->n_units; u++) {
        c->units[u].unit = u;
        for (uint32_t k = c->unit_first[u]; k < c->unit_first[u + 1]; k++)
            c->units[u].bytes += p->parts[c->order[k]].slot_bytes;
        c->total += c->units[u].bytes;
    }
    qsort(c->units, p->n_units, sizeof *c->units, by_size);
    return true;
}

/* The least memory for parts. The ring must hold the largest streamed unit twice: a unit's parts
 * are all there at once, and where the ring wraps up to one part's length stays unused. Pinning the
 * k largest units makes that smaller, and costs their own size. */
static uint64_t parts_floor(const chooser *c)
{
    uint64_t least = c->total, prefix = 0;
    for (uint32_t k = 0; k < c->plan->n_units; k++) {
        uint64_t need = prefix + 2 * c->units[k].bytes;
        if (need < least)
            least = need;
        prefix += c->units[k].bytes;
    }
    return least;
}

/* The ring one would like. 64 MiB, or twice the bytes in flight, keeps the disk busy; beyond that,
 * each byte of it is a byte less pinned, which is read again in every pass (docs/experiments.md has
 * the figures: at 100 MiB for a 98 MB model a ring of 4 MiB is twice as fast as one of half the
 * room). */
static uint64_t ring_wish(const sl_stream_options *o, uint64_t room)
{
    if (o->ring_bytes)
        return o->ring_bytes;
    uint64_t wish = room / 16, most = 2 * o->in_flight_bytes;
    most = most < 64 * MIB ? 64 * MIB : most;
    wish = wish < 4 * MIB ? 4 * MIB : wish;
    wish = wish < most ? wish : most;
    return wish < room / 2 ? wish : room / 2;
}

/* The ring when the k largest units, prefix bytes, are pinned; UINT64_MAX: the next one does not
 * fit twice beside them. */
static uint64_t ring_beside(const chooser *c, uint64_t wish, uint32_t k, uint64_t prefix,
                            uint64_t room)
{
    uint64_t least = 2 * c->units[k].bytes;
    if (prefix > room || least > room - prefix)
        return UINT64_MAX;
    return wish < least ? least : wish;
}

/* As few of the largest units pinned (their number is returned) as bring the ring to within a
 * quarter of the smallest possible: then most of the room is left for pins that are spread over the
 * pass. That there is room for at least one choice has been checked. */
static uint32_t ring_choose(const chooser *c, const sl_stream_options *o, uint64_t room,
                            uint64_t *ring)
{
    uint64_t wish = ring_wish(o, room), least = UINT64_MAX, prefix = 0;
    uint32_t k = 0;
    for (; k < c->plan->n_units; prefix += c->units[k++].bytes) {
        uint64_t r = ring_beside(c, wish, k, prefix, room);
        least = r < least ? r : least;
    }
    for (k = 0, prefix = 0; k + 1 < c->plan->n_units; prefix += c->units[k++].bytes)
        if (ring_beside(c, wish, k, prefix, room) <= least + least / 4)
            break;
    uint64_t r = ring_beside(c, wish, k, prefix, room);
    *ring = sl_round_down(r < room - prefix ? r : room - prefix, c->plan->align);
    return k;
}

/* Error diffusion over bytes: pins a share of budget / candidates of every stretch of the pass. */
static uint64_t pin_evenly(chooser *c, uint64_t budget)
{
    uint64_t open = 0, used = 0;
    for (uint32_t i = 0; i < c->n_order; i++)
        if (!c->pinned[c->order[i]])
            open += c->plan->parts[c->order[i]].slot_bytes;
    double share = open ? (double)budget / (double)open : 0, owed = 0;
    for (uint32_t i = 0; i < c->n_order; i++) {
        uint32_t part = c->order[i];
        uint64_t size = c->plan->parts[part].slot_bytes;
        if (c->pinned[part])
            continue;
        owed += share * (double)size;
        if (size > budget - used || owed < 0.5 * (double)size)
            continue;
        c->pinned[part] = 1;
        used += size;
        owed -= (double)size;
    }
    return used;
}

/* What the diffusion left over goes to any part that still fits, the first of the pass first. */
static uint64_t pin_rest(chooser *c, uint64_t budget)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < c->n_order; i++) {
        uint64_t size = c->plan->parts[c->order[i]].slot_bytes;
        if (c->pinned[c->order[i]] || size > budget - used)
            continue;
        c->pinned[c->order[i]] = 1;
        used += size;
    }
    return used;
}

static void pin(chooser *c, uint32_t n_forced, uint64_t budget)
{
    for (uint32_t k = 0; k < n_forced; k++) {
        uint32_t u = c->units[k].unit;
        for (uint32_t i = c->unit_first[u]; i < c->unit_first[u + 1]; i++)
            c->pinned[c->order[i]] = 1;
        budget -= c->units[k].bytes;
    }
    for (uint64_t used = 1; used && budget;) {
        used = pin_evenly(c, budget);
        budget -= used;
    }
    pin_rest(c, budget);
}

static void count(const chooser *c, sl_split *out)
{
    out->weights_bytes = sl_plan_always_bytes(c->plan);
    for (uint32_t i = 0; i < c->n_order; i++) {
        const sl_part *part = &c->plan->parts[c->order[i]];
        if (c->pinned[c->order[i]]) {
            out->pinned_bytes += part->slot_bytes;
            out->pinned_parts++;
        } else {
            out->streamed_bytes += part->len_bytes;
            out->streamed_parts++;
        }
    }
}

/* Room for parts in memory bytes, when fixed bytes and one table byte per `tables` are needed. */
static uint64_t room_in(uint64_t memory, uint64_t fixed, uint64_t tables)
{
    if (memory <= fixed)
        return 0;
    uint64_t room = memory - fixed;
    return sl_round_down(room - (room + tables - 1) / tables, SL_ALIGN_MIN);
}

static uint64_t memory_for(uint64_t room, uint64_t fixed, uint64_t tables)
{
    return fixed + room + SL_ALIGN_MIN + room / (tables - 1) + 1;
}

/* What the pool gets before ALWAYS parts are pinned: its least, or as asked for; all its parts and
 * what the others need at the least bound that. */
static uint64_t pool_first(const chooser *c, const sl_stream_options *o, uint64_t room,
                           const sl_pool_plan *pool)
{
    uint64_t most = room - parts_floor(c);
    most = most < pool->part_bytes ? most : pool->part_bytes;
    const uint64_t wish = o->pool_bytes < most ? o->pool_bytes : most;
    return wish > pool->least_bytes ? wish : pool->least_bytes;
}

/* Room for parts that is at least the floor's. What every pass needs comes first, unless the pool
 * is promised some; the rest is the pool's. */
static void use_room(chooser *c, const sl_stream_options *o, uint64_t room, sl_pool_plan *pool,
                     sl_split *out)
{
    sl_pool_choose(c->plan, pool_first(c, o, room, pool), pool);
    const uint64_t dense = room - pool->bytes;
    if (dense >= c->total) {
        pin(c, c->plan->n_units, c->total);
        sl_pool_choose(c->plan, room - c->total, pool);
        return;
    }
    uint32_t forced = ring_choose(c, o, dense, &out->ring_bytes);
    pin(c, forced, dense - out->ring_bytes);
}

static sl_status choose(chooser *c, const sl_stream_options *o, sl_split *out, sl_pool_plan *pool,
                        sl_err *err)
{
    sl_rows_need rows = sl_rows_plan(c->plan, o);
    out->rows_bytes = rows.bounce_bytes + rows.cache_bytes;
    uint64_t fixed = IO_FIXED + sl_sched_memory_bytes(c->plan) + sl_homes_memory_bytes(c->plan) +
                     out->rows_bytes;
    sl_pool_choose(c->plan, 0, pool);
    uint64_t all = c->total + pool->part_bytes;
    bool auto_mapped = o->io == SL_IO_AUTO && all <= room_in(o->memory_bytes, fixed, TABLES_MAPPED);
    out->io = o->io != SL_IO_AUTO ? o->io : auto_mapped ? SL_IO_MAPPED : SL_IO_DIRECT;
    uint64_t tables = out->io == SL_IO_MAPPED ? TABLES_MAPPED : TABLES_SLAB;
    uint64_t room = room_in(o->memory_bytes, fixed, tables);
    uint64_t need = parts_floor(c) + pool->least_bytes;
    out->floor_bytes = memory_for(need, fixed, tables);
    out->io_bytes = fixed - out->rows_bytes + room / (tables - 1);
    bool fits = o->memory_bytes >= out->floor_bytes;
    if (fits)
        use_room(c, o, room, pool, out);
    count(c, out);
    out->pool_bytes = pool->bytes;
    out->pool_slots = pool->n_slots;
    out->on_demand_parts = pool->n;
    out->on_demand_bytes = sl_plan_on_demand_bytes(c->plan);
    if (fits)
        return SL_OK;
    return sl_fail(err, SL_EBUDGET,
                   "streaming needs at least %llu bytes (I/O %llu, rows %llu, parts %llu), "
                   "there are %llu",
                   (unsigned long long)out->floor_bytes,
                   (unsigned long long)(out->floor_bytes - need - out->rows_bytes),
                   (unsigned long long)out->rows_bytes, (unsigned long long)need,
                   (unsigned long long)o->memory_bytes);
}

bool sl_split_all_stay(const sl_split *s)
{
    return !s->streamed_bytes && s->pool_slots == s->on_demand_parts;
}

sl_status sl_split_choose(const sl_plan *p, const sl_stream_options *o, sl_split *out,
                          uint8_t *pinned, sl_pool_plan *pool, sl_err *err)
{
    sl_pool_plan own;
    *out = (sl_split){0};
    pool = pool ? pool : &own;
    if (p->err.code)
        return sl_fail(err, p->err.code, "%s", p->err.text);
    chooser c;
    sl_status st = chooser_make(&c, p) ? choose(&c, o, out, pool, err)
                                       : sl_fail(err, SL_ENOMEM, "plan: out of memory");
    for (uint32_t i = 0; pinned && i < p->n_parts && st == SL_OK; i++)
        pinned[i] = c.pinned[i];
    chooser_free(&c);
    return st;
}

sl_status sl_stream_split(const sl_plan *p, const sl_stream_options *o, sl_split *out, sl_err *err)
{
    return sl_split_choose(p, o, out, NULL, NULL, err);
}
