/* The pool gives slots up, and takes them back; pinned parts are streamed for a while. Whoever
 * calls this is neither the pass nor the I/O thread: parts that are wanted or on their way keep
 * their slots until they are let go, and a part that is worth keeping is copied to a slot that
 * stays, outside the lock, while the pass may go on reading it where it is. */
#include "sched_impl.h"

enum { AT_ONCE = 16 /* evictions while the pass may wait for the lock: some microseconds */ };

static sl_resident *resident_of(sl_sched *s, uint32_t entry)
{
    return &s->resident[s->n_order + entry];
}

void sl_sched_pool_limit(sl_sched *s, const sl_pool_plan *slots)
{
    s->news = true;
    for (uint32_t c = 0; c < s->pool.n_classes; c++)
        sl_pool_limit(&s->pool, c, slots->class[c].n_slots);
    for (uint32_t i = 0; i < s->n_on_demand; i++)
        if (resident_of(s, i)->state == SL_PART_READY && resident_of(s, i)->want == SL_WANT_NOTHING)
            sl_pool_release(&s->pool, i);
}

static void move_start(sl_sched *s, uint32_t entry, sl_move *out)
{
    sl_pool_move_start(&s->pool, entry);
    const sl_resident *r = resident_of(s, entry);
    *out = (sl_move){.from = r->data, .bytes = s->plan->parts[r->part].slot_bytes};
    if (s->pool_memory)
        out->to = s->pool_memory + sl_pool_moving_at(&s->pool);
}

/* One slot of the class less, or room for the part in it. */
static sl_drain drain_class(sl_sched *s, uint32_t c, bool keep, sl_move *out)
{
    sl_drain found = SL_DRAIN_DONE;
    for (uint32_t slot = UINT32_MAX, i; sl_pool_beyond(&s->pool, c, slot, &slot, &i);) {
        if (s->pool.entry[i].heap_at == UINT32_MAX) {
            found = SL_DRAIN_HELD;
            continue;
        }
        if (keep && s->pool.class[c].n_free) {
            move_start(s, i, out);
            return SL_DRAIN_MOVE;
        }
        if (keep) {
            sl_resident_forget(s, resident_of(s, sl_pool_evict(&s->pool, c)));
        } else {
            sl_resident_forget(s, resident_of(s, i));
            sl_pool_drop(&s->pool, i);
        }
        return SL_DRAIN_MORE;
    }
    return found;
}

sl_drain sl_sched_drain(sl_sched *s, bool keep, sl_move *out)
{
    sl_drain result = SL_DRAIN_DONE;
    uint32_t n = 0;
    for (uint32_t c = 0; c < s->pool.n_classes; c++) {
        sl_drain d;
        while ((d = drain_class(s, c, keep, out)) == SL_DRAIN_MORE)
            if (++n == AT_ONCE)
                return d;
        if (d == SL_DRAIN_MOVE)
            return d;
        result = d == SL_DRAIN_HELD ? d : result;
    }
    return result;
}

void sl_sched_move_end(sl_sched *s)
{
    const uint32_t entry = s->pool.moving;
    sl_resident *r = resident_of(s, entry);
    /* The pass has the address of a part that it was given. */
    const bool moved = r->want != SL_WANT_GIVEN;
    sl_pool_move_end(&s->pool, moved);
    s->news = true;
    if (moved && s->pool_memory)
        r->data = s->pool_memory + sl_pool_at(&s->pool, entry);
    if (r->want == SL_WANT_NOTHING)
        sl_pool_release(&s->pool, entry);
}

/* ---- pinned parts ---- */

/* Whether the reader comes to a position before a pass needs it next. */
static bool reader_comes(const sl_sched *s, uint32_t position, uint32_t unit)
{
    const bool in_this = s->in_pass && position < s->end && unit >= s->at_unit;
    const uint64_t pass = in_this ? s->pass : s->pass + 1;
    return s->cursor_pass < pass || (s->cursor_pass == pass && s->cursor <= position);
}

/* A unit's parts must fit the ring twice (docs/streaming.md). */
static bool ring_holds(const sl_sched *s, uint32_t unit, uint64_t more)
{
    uint64_t bytes = more;
    for (uint32_t i = s->unit_first[unit]; i < s->unit_first[unit + 1]; i++)
        bytes += s->resident[i].pinned ? 0 : s->plan->parts[s->resident[i].part].slot_bytes;
    return 2 * bytes <= s->ring.bytes;
}

/* Between passes the reader can go back: what it has read ahead from there on is dropped. */
static bool reader_back(sl_sched *s, uint32_t position)
{
    if (s->in_pass)
        return false;
    sl_slots_drop(s, s->pass + 1, position);
    if (s->cursor_pass == s->pass + 1 && s->cursor > position)
        s->cursor = position;
    return true;
}

bool sl_sched_give_up(sl_sched *s, uint32_t part)
{
    const uint32_t position = s->position[part], unit = s->plan->parts[part].unit;
    sl_resident *r = &s->resident[position];
    const bool entered = s->in_pass && unit == s->at_unit;
    if (!r->pinned || entered || (r->state != SL_PART_READY && r->state != SL_PART_ABSENT) ||
        !ring_holds(s, unit, s->plan->parts[part].slot_bytes))
        return false;
    if (!reader_comes(s, position, unit) && !reader_back(s, position))
        return false;
    r->pinned = false;
    r->given_up = true;
    r->state = SL_PART_ABSENT;
    r->data = NULL;
    s->news = true;
    return true;
}

bool sl_sched_take_back(sl_sched *s, uint32_t part)
{
    sl_resident *r = &s->resident[s->position[part]];
    if (!r->given_up)
        return false;
    if (r->state != SL_PART_ABSENT && !reader_back(s, s->position[part]))
        return false;
    if (r->state != SL_PART_ABSENT) /* a read into the ring is still out */
        return false;
    r->pinned = true;
    r->given_up = false;
    r->data = r->home;
    s->news = true;
    return true;
}
