#include "pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* ---- how much ---- */

/* The largest on-demand part of less than limit bytes. False: there is none. */
static bool largest_below(const sl_plan *p, uint64_t limit, uint64_t *out)
{
    bool found = false;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const uint64_t bytes = p->parts[i].slot_bytes;
        if (p->parts[i].kind != SL_PART_ON_DEMAND || bytes >= limit || (found && bytes <= *out))
            continue;
        *out = bytes;
        found = true;
    }
    return found;
}

/* The smallest class that a part fits. */
static uint32_t class_of(const sl_pool_plan *p, uint64_t bytes)
{
    uint32_t c = p->n_classes - 1;
    while (c > 0 && p->class[c].slot_bytes < bytes)
        c--;
    return c;
}

/* Classes from the largest part down; each takes all that are nearly as large as its first, and the
 * last one all the rest. */
static void make_classes(const sl_plan *p, sl_pool_plan *out)
{
    uint64_t limit = UINT64_MAX, bytes = 0;
    *out = (sl_pool_plan){0};
    while (out->n_classes < SL_POOL_CLASSES && largest_below(p, limit, &bytes)) {
        out->class[out->n_classes++].slot_bytes = bytes;
        limit = bytes - bytes / SL_POOL_SLACK;
    }
    for (uint32_t i = 0; i < p->n_parts; i++) {
        if (p->parts[i].kind != SL_PART_ON_DEMAND)
            continue;
        const uint32_t c = class_of(out, p->parts[i].slot_bytes);
        out->class[c].n_parts++;
        out->part_bytes += out->class[c].slot_bytes;
        out->n++;
    }
}

static void count_bytes(sl_pool_plan *p)
{
    p->n_slots = 0;
    p->bytes = 0;
    for (uint32_t c = 0; c < p->n_classes; c++) {
        p->n_slots += p->class[c].n_slots;
        p->bytes += p->class[c].n_slots * p->class[c].slot_bytes;
    }
}

void sl_pool_choose(const sl_plan *p, uint64_t bytes, sl_pool_plan *out)
{
    make_classes(p, out);
    for (uint32_t c = 0; c < out->n_classes; c++) {
        const uint32_t n = out->class[c].n_parts;
        out->class[c].n_slots = n < SL_POOL_LEAST ? n : SL_POOL_LEAST;
    }
    count_bytes(out);
    out->least_bytes = out->bytes;
    const double share = out->part_bytes ? (double)bytes / (double)out->part_bytes : 0;
    for (uint32_t c = 0; c < out->n_classes; c++) {
        const uint32_t n = out->class[c].n_parts;
        const uint32_t wish = share >= 1 ? n : (uint32_t)(share * n);
        const uint32_t least = out->class[c].n_slots;
        out->class[c].n_slots = wish > least ? wish : least;
    }
    count_bytes(out);
    /* The least of a small class may have been more than its share. */
    for (uint32_t c = 0; c < out->n_classes && out->bytes > bytes;) {
        if (out->class[c].n_slots > SL_POOL_LEAST) {
            out->class[c].n_slots--;
            out->bytes -= out->class[c].slot_bytes;
        } else {
            c++;
        }
    }
    count_bytes(out);
}

/* ---- open and close ---- */

uint64_t sl_pool_memory_bytes(const sl_plan *p)
{
    return (uint64_t)sl_plan_on_demand_count(p) * (sizeof(sl_pool_entry) + 3 * sizeof(uint32_t));
}

sl_status sl_pool_open(sl_pool *p, const sl_plan *plan, const sl_pool_plan *slots, sl_policy policy,
                       double half_life, sl_err *err)
{
    *p = (sl_pool){.policy = policy,
                   .half_life = half_life,
                   .n = slots->n,
                   .n_classes = slots->n_classes,
                   .moving = NONE};
    uint64_t at = 0;
    bool ok = true;
    p->entry = calloc(p->n + 1, sizeof *p->entry);
    for (uint32_t c = 0; c < p->n_classes; c++) {
        sl_pool_class *k = &p->class[c];
        k->slot_bytes = slots->class[c].slot_bytes;
        k->n_parts = slots->class[c].n_parts;
        k->n_slots = k->n_most = k->n_free = slots->class[c].n_slots;
        k->ordered = k->n_slots < k->n_parts;
        k->at = at;
        k->queue[0] = k->queue[1] = (sl_pool_queue){NONE, NONE, 0};
        at += k->n_slots * k->slot_bytes;
        k->free_slot = calloc(k->n_slots + 1, sizeof *k->free_slot);
        k->heap = calloc(k->n_slots + 1, sizeof *k->heap);
        k->owner = malloc((k->n_slots + 1) * sizeof *k->owner);
        ok = ok && k->free_slot && k->heap && k->owner;
        for (uint32_t i = 0; ok && i < k->n_slots; i++) /* the first one on top */
            k->free_slot[i] = k->n_slots - 1 - i;
        if (k->owner)
            memset(k->owner, 0xff, (k->n_slots + 1) * sizeof *k->owner);
    }
    if (!p->entry || !ok) {
        sl_pool_close(p);
        return sl_fail(err, SL_ENOMEM, "streaming: out of memory");
    }
    for (uint32_t i = 0, n = 0; i < plan->n_parts; i++)
        if (plan->parts[i].kind == SL_PART_ON_DEMAND)
            p->entry[n++] = (sl_pool_entry){.key = -INFINITY,
                                            .slot = NONE,
                                            .heap_at = NONE,
                                            .class = class_of(slots, plan->parts[i].slot_bytes)};
    return SL_OK;
}

void sl_pool_close(sl_pool *p)
{
    for (uint32_t c = 0; c < p->n_classes; c++) {
        free(p->class[c].free_slot);
        free(p->class[c].heap);
        free(p->class[c].owner);
    }
    free(p->entry);
    *p = (sl_pool){0};
}

/* ---- the heap of a class: least key first ---- */

static void heap_put(sl_pool *p, sl_pool_class *k, uint32_t at, uint32_t i)
{
    k->heap[at] = i;
    p->entry[i].heap_at = at;
}

static void heap_up(sl_pool *p, sl_pool_class *k, uint32_t at, uint32_t i)
{
    while (at > 0 && p->entry[i].key < p->entry[k->heap[(at - 1) / 2]].key) {
        heap_put(p, k, at, k->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(p, k, at, i);
}

static void heap_down(sl_pool *p, sl_pool_class *k, uint32_t at, uint32_t i)
{
    for (uint32_t next; (next = 2 * at + 1) < k->n_heap; at = next) {
        if (next + 1 < k->n_heap && p->entry[k->heap[next + 1]].key < p->entry[k->heap[next]].key)
            next++;
        if (!(p->entry[k->heap[next]].key < p->entry[i].key))
            break;
        heap_put(p, k, at, k->heap[next]);
    }
    heap_put(p, k, at, i);
}

static void heap_remove(sl_pool *p, sl_pool_class *k, uint32_t at)
{
    const uint32_t last = k->heap[--k->n_heap];
    p->entry[k->heap[at]].heap_at = NONE;
    if (at == k->n_heap)
        return;
    if (at > 0 && p->entry[last].key < p->entry[k->heap[(at - 1) / 2]].key)
        heap_up(p, k, at, last);
    else
        heap_down(p, k, at, last);
}

/* ---- S3-FIFO ---- */

enum { USES_MOST = 3, SMALL_SHARE = 10 };

static void queue_push(sl_pool *p, sl_pool_class *k, uint8_t which, uint32_t i)
{
    sl_pool_queue *q = &k->queue[which];
    sl_pool_entry *e = &p->entry[i];
    e->queue = which;
    e->prev = NONE;
    e->next = q->newest;
    if (q->n++)
        p->entry[q->newest].prev = i;
    else
        q->oldest = i;
    q->newest = i;
}

static void queue_remove(sl_pool *p, sl_pool_class *k, uint32_t i)
{
    sl_pool_entry *e = &p->entry[i];
    sl_pool_queue *q = &k->queue[e->queue];
    if (e->prev == NONE)
        q->newest = e->next;
    else
        p->entry[e->prev].next = e->next;
    if (e->next == NONE)
        q->oldest = e->prev;
    else
        p->entry[e->next].prev = e->prev;
    q->n--;
}

/* It has a slot now: on probation, unless it has just left that. As many are remembered as the main
 * queue has slots. */
static void queue_enter(sl_pool *p, sl_pool_class *k, uint32_t i)
{
    sl_pool_entry *e = &p->entry[i];
    const uint32_t remembered = k->n_slots - k->n_slots / SMALL_SHARE;
    const bool back = e->ghost && k->n_ghosts - e->ghost < remembered;
    e->ghost = 0;
    queue_push(p, k, back ? SL_POOL_MAIN : SL_POOL_SMALL, i);
}

/* Once through a queue, the oldest first: the first evictable entry of few uses. The others start
 * again in the main queue. NONE: there was no such entry. */
static uint32_t queue_sweep(sl_pool *p, sl_pool_class *k, uint8_t which)
{
    const uint32_t enough = which == SL_POOL_SMALL ? 2 : 1;
    uint32_t i = k->queue[which].oldest;
    for (uint32_t n = k->queue[which].n, newer; n > 0; n--, i = newer) {
        sl_pool_entry *e = &p->entry[i];
        newer = e->prev;
        if (e->heap_at == NONE)
            continue;
        if (e->uses < enough)
            return i;
        queue_remove(p, k, i);
        e->uses = which == SL_POOL_SMALL ? 0 : e->uses - 1;
        queue_push(p, k, SL_POOL_MAIN, i);
        newer = newer == NONE ? i : newer;
    }
    return NONE;
}

/* Some entry of the class is evictable. After so many turns none of the main queue has uses left,
 * and what has left the small queue had none to begin with. */
static uint32_t queue_victim(sl_pool *p, sl_pool_class *k)
{
    const uint32_t share = k->n_slots / SMALL_SHARE, small = share ? share : 1;
    uint32_t victim = NONE;
    if (k->queue[SL_POOL_SMALL].n >= small)
        victim = queue_sweep(p, k, SL_POOL_SMALL);
    for (uint32_t turn = 0; turn <= USES_MOST && victim == NONE; turn++)
        victim = queue_sweep(p, k, SL_POOL_MAIN);
    if (victim == NONE)
        victim = queue_sweep(p, k, SL_POOL_SMALL);
    return victim != NONE ? victim : queue_sweep(p, k, SL_POOL_MAIN);
}

/* It has lost its slot. */
static void queue_leave(sl_pool *p, sl_pool_class *k, uint32_t i)
{
    sl_pool_entry *e = &p->entry[i];
    queue_remove(p, k, i);
    e->uses = 0;
}

static void queue_use(sl_pool_entry *e, uint32_t rows)
{
    const uint32_t had = e->slot == NONE ? 0 : e->uses, add = e->slot == NONE ? rows - 1 : rows;
    e->uses = add > USES_MOST - had ? USES_MOST : had + add; /* the first use brings it in */
}

/* ---- slots ---- */

static sl_pool_class *class_at(sl_pool *p, uint32_t i)
{
    return &p->class[p->entry[i].class];
}

static void evictable_not(sl_pool *p, sl_pool_class *k, uint32_t i)
{
    if (p->policy != SL_POLICY_S3FIFO) {
        heap_remove(p, k, p->entry[i].heap_at);
    } else {
        p->entry[i].heap_at = NONE;
        k->n_heap--;
    }
}

static uint32_t victim_take(sl_pool *p, sl_pool_class *k)
{
    const bool queues = p->policy == SL_POLICY_S3FIFO;
    const uint32_t i = queues ? queue_victim(p, k) : k->heap[0];
    evictable_not(p, k, i);
    if (queues) {
        queue_leave(p, k, i);
        p->entry[i].ghost = p->entry[i].queue == SL_POOL_SMALL ? ++k->n_ghosts : 0;
    }
    return i;
}

static void slot_give(sl_pool *p, sl_pool_class *k, uint32_t i, uint32_t slot)
{
    p->entry[i].slot = slot;
    k->owner[slot] = i;
    k->n_touched = slot < k->n_touched ? k->n_touched : slot + 1;
}

/* The slot is free; one that is given up is nobody's. */
static void slot_return(sl_pool_class *k, uint32_t slot)
{
    k->owner[slot] = NONE;
    if (slot < k->n_slots)
        k->free_slot[k->n_free++] = slot;
}

bool sl_pool_take(sl_pool *p, uint32_t i, uint32_t *victim)
{
    sl_pool_class *k = class_at(p, i);
    *victim = NONE;
    if (k->n_free) {
        slot_give(p, k, i, k->free_slot[--k->n_free]);
    } else if (k->n_heap) {
        *victim = victim_take(p, k);
        slot_give(p, k, i, p->entry[*victim].slot);
        p->entry[*victim].slot = NONE;
    } else {
        return false;
    }
    if (p->policy == SL_POLICY_S3FIFO)
        queue_enter(p, k, i);
    return true;
}

uint64_t sl_pool_at(const sl_pool *p, uint32_t i)
{
    const sl_pool_class *k = &p->class[p->entry[i].class];
    return k->at + p->entry[i].slot * k->slot_bytes;
}

void sl_pool_hold(sl_pool *p, uint32_t i)
{
    if (p->entry[i].heap_at != NONE)
        evictable_not(p, class_at(p, i), i);
}

void sl_pool_release(sl_pool *p, uint32_t i)
{
    sl_pool_class *k = class_at(p, i);
    if (!k->ordered || p->entry[i].heap_at != NONE || i == p->moving)
        return;
    if (p->policy == SL_POLICY_S3FIFO)
        p->entry[i].heap_at = k->n_heap++; /* no more than a mark */
    else
        heap_up(p, k, k->n_heap++, i);
}

void sl_pool_drop(sl_pool *p, uint32_t i)
{
    sl_pool_class *k = class_at(p, i);
    sl_pool_hold(p, i);
    if (p->policy == SL_POLICY_S3FIFO)
        queue_leave(p, k, i);
    slot_return(k, p->entry[i].slot);
    p->entry[i].slot = NONE;
}

/* ---- fewer slots, and more again ---- */

void sl_pool_limit(sl_pool *p, uint32_t c, uint32_t n_slots)
{
    sl_pool_class *k = &p->class[c];
    const uint32_t before = k->n_slots;
    uint32_t n = 0;
    k->n_slots = n_slots < k->n_most ? n_slots : k->n_most;
    k->ordered |= k->n_slots < k->n_parts;
    for (uint32_t f = 0; f < k->n_free; f++)
        if (k->free_slot[f] < k->n_slots)
            k->free_slot[n++] = k->free_slot[f];
    k->n_free = n;
    for (uint32_t slot = before; slot < k->n_slots; slot++)
        if (k->owner[slot] == NONE)
            k->free_slot[k->n_free++] = slot;
}

bool sl_pool_beyond(const sl_pool *p, uint32_t c, uint32_t before, uint32_t *slot, uint32_t *entry)
{
    const sl_pool_class *k = &p->class[c];
    uint32_t at = before < k->n_most ? before : k->n_most;
    while (at > k->n_slots && k->owner[at - 1] == NONE)
        at--;
    if (at <= k->n_slots)
        return false;
    *slot = at - 1;
    *entry = k->owner[at - 1];
    return true;
}

uint32_t sl_pool_evict(sl_pool *p, uint32_t c)
{
    sl_pool_class *k = &p->class[c];
    if (!k->n_heap)
        return NONE;
    const uint32_t i = victim_take(p, k);
    slot_return(k, p->entry[i].slot);
    p->entry[i].slot = NONE;
    return i;
}

bool sl_pool_move_start(sl_pool *p, uint32_t i)
{
    sl_pool_class *k = class_at(p, i);
    if (!k->n_free)
        return false;
    sl_pool_hold(p, i);
    p->moving = i;
    p->moving_to = k->free_slot[--k->n_free];
    k->owner[p->moving_to] = i;
    return true;
}

void sl_pool_move_end(sl_pool *p, bool moved)
{
    const uint32_t i = p->moving;
    sl_pool_class *k = class_at(p, i);
    p->moving = NONE;
    slot_return(k, moved ? p->entry[i].slot : p->moving_to);
    if (moved)
        p->entry[i].slot = p->moving_to;
}

uint64_t sl_pool_moving_at(const sl_pool *p)
{
    const sl_pool_class *k = &p->class[p->entry[p->moving].class];
    return k->at + p->moving_to * k->slot_bytes;
}

/* ---- keys ---- */

/* log2 of the sum over the pass's rows of 0.5^(age / half-life), seen from time 0, when rows of
 * them use the part, evenly spread. */
static double lrfu_of_pass(const sl_pool *p, uint32_t rows, uint32_t pass_rows)
{
    const double per_row = exp2(1 / p->half_life) - 1, length = pass_rows / p->half_life;
    const double all = length < 32 ? log2(exp2(length) - 1) : length;
    return p->now / p->half_life + all - log2(per_row) + log2((double)rows / pass_rows);
}

void sl_pool_use(sl_pool *p, uint32_t i, uint32_t rows, uint32_t pass_rows)
{
    sl_pool_entry *e = &p->entry[i];
    if (p->policy == SL_POLICY_S3FIFO) {
        queue_use(e, rows);
        return;
    }
    const bool ordered = e->heap_at != NONE;
    sl_pool_hold(p, i);
    e->uses += rows;
    if (p->policy == SL_POLICY_LRU) {
        e->key = (double)++p->n_uses;
    } else if (p->policy == SL_POLICY_LFU) {
        e->key = e->uses;
    } else {
        const double add = lrfu_of_pass(p, rows, pass_rows);
        const double most = add > e->key ? add : e->key, least = add > e->key ? e->key : add;
        e->key = most + log2(1 + exp2(least - most));
    }
    if (ordered)
        sl_pool_release(p, i);
}

void sl_pool_tick(sl_pool *p, uint32_t pass_rows)
{
    p->now += pass_rows;
}

void sl_pool_uses_get(const sl_pool *p, float *use)
{
    for (uint32_t i = 0; i < p->n; i++)
        use[i] = p->policy == SL_POLICY_LRFU ? (float)(p->entry[i].key - p->now / p->half_life)
                                             : -INFINITY;
}

void sl_pool_uses_set(sl_pool *p, const float *use)
{
    for (uint32_t i = 0; i < p->n && p->policy == SL_POLICY_LRFU; i++)
        p->entry[i].key = isnan(use[i]) ? -INFINITY : (double)use[i];
}
