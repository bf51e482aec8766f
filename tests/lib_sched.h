/* A scheduler on a virtual clock, with an engine that completes reads when and how the test says,
 * and its invariants. All static, as in lib_stream.h. */
#ifndef SL_LIB_SCHED_H
#define SL_LIB_SCHED_H

#include "lib_stream.h"

enum { N_OUT = SL_SCHED_READS, MEMORY = 8 << 20, BOUNCE = 64 << 10, STRIDE = 61 };

typedef struct sim {
    sl_file file;
    sl_plan *plan;
    sl_stream_options o;
    sl_split split;
    sl_pool_plan pool;
    uint8_t pinned[256];
    uint8_t *memory, *bounce;
    sl_sched s;
    bool open;
    sl_read *out[N_OUT]; /* the engine's */
    uint32_t n_out;
    bool back; /* a read is: the I/O thread comes round by itself */
    uint64_t now, wait_ns;
    uint64_t sent; /* bytes */
} sim;

static inline uint64_t sim_clock(void *ctx)
{
    return ((sim *)ctx)->now;
}

static inline void sim_new(sim *m)
{
    static char path[] = "fake.gguf";
    *m = (sim){.file = {.path = path, .fd = -1, .size = 1 << 30}};
    sl_file *f = &m->file;
    m->plan = sl_plan_new_files(&f, 1);
    m->o = sl_stream_defaults();
    m->o.io = SL_IO_DIRECT;
}

/* One unit of one part of len bytes. */
static inline void sim_unit(sim *m, uint64_t offset, uint64_t len)
{
    uint32_t u = sl_plan_unit(m->plan, "u");
    sl_plan_extent(m->plan, sl_plan_part(m->plan, u, SL_PART_ALWAYS), (sl_extent){0, offset, len});
}

/* room: bytes for parts beyond the floor. */
static inline void sim_open(sim *m, uint64_t room)
{
    sl_err err = {0};
    m->o.memory_bytes = 0;
    sl_split_choose(m->plan, &m->o, &m->split, NULL, NULL, NULL);
    m->o.memory_bytes = m->split.floor_bytes + room;
    CHECK(sl_split_choose(m->plan, &m->o, &m->split, m->pinned, &m->pool, &err) == SL_OK, "%s",
          err.text);
    uint64_t bytes = m->split.ring_bytes + m->split.pinned_bytes + m->split.pool_bytes;
    m->memory = calloc(1, bytes + BOUNCE);
    m->bounce = m->memory + bytes;
    sl_sched_config c = {.plan = m->plan,
                         .options = &m->o,
                         .pinned = m->pinned,
                         .memory = m->memory,
                         .ring_bytes = m->split.ring_bytes,
                         .pool = &m->pool,
                         .clock = sim_clock,
                         .ctx = m};
    m->open = CHECK(sl_sched_open(&m->s, &c, &err) == SL_OK, "%s", err.text);
}

static inline void sim_close(sim *m)
{
    sl_sched_close(&m->s);
    sl_plan_free(&m->plan);
    free(m->memory);
}

static inline uint32_t issue(sim *m)
{
    const uint32_t before = m->n_out;
    const bool asleep = m->s.starved && !m->s.news && !m->back;
    m->back = false;
    m->n_out += sl_sched_next(&m->s, m->out + m->n_out, N_OUT - m->n_out, &m->wait_ns);
    for (uint32_t i = before; i < m->n_out; i++)
        m->sent += m->out[i]->len - m->out[i]->done;
    CHECK(!asleep || m->n_out == before, "the I/O thread was not told of %u reads",
          m->n_out - before);
    return m->n_out - before;
}

static inline bool complete(sim *m, uint32_t i, int32_t result)
{
    sl_read *r = m->out[i];
    m->out[i] = m->out[--m->n_out];
    m->back = true;
    r->result = result == INT32_MAX ? (int32_t)(r->len - r->done) : result;
    for (int32_t k = 0; r->dest && k < r->result; k++)
        if ((r->offset + r->done + (uint64_t)k) % STRIDE == 0)
            r->dest[r->done + (uint32_t)k] = fixture_byte(0, r->offset + r->done + (uint64_t)k);
    return sl_sched_done(&m->s, r);
}

static inline void complete_all(sim *m)
{
    while (m->n_out || issue(m))
        while (m->n_out)
            complete(m, 0, INT32_MAX);
}

/* The engine's oldest read, by number. */
static inline uint32_t oldest(const sim *m)
{
    uint32_t k = 0;
    for (uint32_t i = 1; i < m->n_out; i++)
        if (m->out[i]->number < m->out[k]->number)
            k = i;
    return k;
}

static inline sl_status enter_driven(sim *m, uint32_t unit, sl_err *err)
{
    sl_status st;
    while ((st = sl_sched_enter(&m->s, unit, err)) == SL_EAGAIN) {
        issue(m);
        if (!CHECK(m->n_out, "unit %u: nothing in flight and nothing to read", unit))
            return SL_EIO;
        complete(m, oldest(m), INT32_MAX);
    }
    return st;
}

static inline bool part_right(const sim *m, const sl_resident *r)
{
    const sl_part *part = &m->plan->parts[r->part];
    for (uint32_t e = 0; e < part->n_places; e++) {
        sl_extent at = part->places[e].extent;
        const uint8_t *data = r->data + part->places[e].at;
        for (uint64_t k = (STRIDE - at.offset % STRIDE) % STRIDE; k < at.len; k += STRIDE)
            if (data[k] != fixture_byte(0, at.offset + k))
                return false;
    }
    return true;
}

static inline bool right(const sim *m, uint32_t unit)
{
    for (uint32_t i = m->s.unit_first[unit]; i < m->s.unit_first[unit + 1]; i++)
        if (!part_right(m, &m->s.resident[i]))
            return false;
    return true;
}

/* ---- invariants ---- */

static inline bool reads_right(const sim *m)
{
    uint64_t in_flight = 0;
    uint32_t n = m->n_out, n_free = 0;
    for (uint32_t i = 0; i < m->n_out; i++) {
        const sl_read *r = m->out[i];
        const sl_fetch *f = &m->s.fetches[r->fetch];
        in_flight += r->len;
        if (f->in_flight == 0)
            return false;
        /* Into memory that nobody else may use: a slot not given back, a pinned one, the bounce. */
        const sl_resident *p = f->resident;
        if (p && p->on_demand &&
            m->s.pool.entry[p - m->s.resident - m->s.n_order].slot == UINT32_MAX)
            return false;
        if (p && !p->on_demand && !p->pinned && (!p->slot || p->slot->dropped))
            return false;
    }
    for (const sl_read *r = m->s.retry; r; r = r->next, n++)
        in_flight += r->len;
    for (const sl_read *r = m->s.free_read; r; r = r->next)
        n_free++;
    return n + n_free == SL_SCHED_READS && in_flight == m->s.in_flight_bytes &&
           (in_flight <= m->o.in_flight_bytes || n == 1);
}

static inline bool ring_right(const sl_sched *s)
{
    const sl_ring *r = &s->ring;
    uint64_t used = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        const sl_ring_slot *a = &r->slots[(r->first + i) % r->cap];
        used += a->len + a->skipped;
        if (a->at + a->len > r->bytes)
            return false;
        for (uint32_t k = 0; k < i; k++) {
            const sl_ring_slot *b = &r->slots[(r->first + k) % r->cap];
            if (a->at < b->at + b->len && b->at < a->at + a->len)
                return false;
        }
    }
    return used == (r->n ? r->used : 0) && used <= r->bytes;
}

static inline bool parts_right(const sl_sched *s)
{
    for (uint32_t i = 0; i < s->n_order; i++) {
        const sl_resident *r = &s->resident[i];
        bool moving = r->state == SL_PART_QUEUED || r->state == SL_PART_READING;
        bool has_slot = !r->pinned && r->state != SL_PART_ABSENT;
        if (moving != (r->fetch != NULL) || has_slot != (r->slot != NULL))
            return false;
        if (r->fetch && r->fetch->resident != r)
            return false;
        if (r->state == SL_PART_READING && !r->fetch->in_flight && !r->fetch->listed)
            return false;
    }
    return true;
}

/* Every slot that may be given is used, free, or what a part is being moved to; those beyond are
 * nobody's or used. */
static inline bool slots_right(const sl_pool *p, uint32_t c, uint32_t used)
{
    const sl_pool_class *k = &p->class[c];
    const bool moving = p->moving != UINT32_MAX && p->entry[p->moving].class == c;
    for (uint32_t f = 0; f < k->n_free; f++)
        if (k->free_slot[f] >= k->n_slots || k->owner[k->free_slot[f]] != UINT32_MAX)
            return false;
    for (uint32_t slot = 0; slot < k->n_most; slot++) {
        const uint32_t i = k->owner[slot];
        if (i != UINT32_MAX && p->entry[i].slot != slot && !(moving && slot == p->moving_to))
            return false;
    }
    return used + k->n_free + (moving && p->moving_to < k->n_slots) == k->n_slots;
}

static inline bool pool_right(const sl_sched *s)
{
    uint32_t used[SL_POOL_CLASSES] = {0}, in_heap[SL_POOL_CLASSES] = {0};
    for (uint32_t i = 0; i < s->n_on_demand; i++) {
        const sl_resident *r = &s->resident[s->n_order + i];
        const sl_pool_entry *e = &s->pool.entry[i];
        const sl_pool_class *k = &s->pool.class[e->class];
        const bool moving =
            r->state == SL_PART_QUEUED || r->state == SL_PART_READING || r->state == SL_PART_FIRST;
        const bool unwanted = r->state == SL_PART_READY && r->want == SL_WANT_NOTHING;
        const bool failed = r->state == SL_PART_FAILED && r->want == SL_WANT_GIVEN;
        if (moving != (r->fetch != NULL) ||
            (moving || failed || r->state == SL_PART_READY) != (e->slot != UINT32_MAX))
            return false;
        if ((unwanted && k->ordered && i != s->pool.moving) != (e->heap_at != UINT32_MAX))
            return false; /* who is wanted or on its way keeps its slot; all others may lose it */
        used[e->class] += e->slot < k->n_slots;
        if (e->slot != UINT32_MAX && k->owner[e->slot] != i)
            return false;
        in_heap[e->class] += e->heap_at != UINT32_MAX;
        for (uint32_t j = 0; j < i && e->slot != UINT32_MAX; j++)
            if (s->pool.entry[j].class == e->class && s->pool.entry[j].slot == e->slot)
                return false;
        if (e->heap_at != UINT32_MAX && e->heap_at > 0 &&
            s->pool.entry[k->heap[(e->heap_at - 1) / 2]].key > e->key)
            return false;
    }
    for (uint32_t c = 0; c < s->pool.n_classes; c++)
        if (!slots_right(&s->pool, c, used[c]) || in_heap[c] != s->pool.class[c].n_heap)
            return false;
    return true;
}

static inline bool lists_right(const sl_sched *s)
{
    for (uint32_t p = 0; p < SL_PRIORITIES; p++)
        for (const sl_fetch *f = s->list[p].first; f; f = f->next)
            if (!f->listed || f->priority != p || f->dropped || f->failed || f->span >= f->n_spans)
                return false;
    return true;
}

static inline bool holds(const sim *m)
{
    return CHECK(reads_right(m)) && CHECK(ring_right(&m->s)) && CHECK(parts_right(&m->s)) &&
           CHECK(pool_right(&m->s)) && CHECK(lists_right(&m->s));
}

#endif
