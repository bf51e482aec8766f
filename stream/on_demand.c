/* On-demand parts: needs and hints become reads one at a time, when the engine asks for more, and a
 * part takes its slot only then: so nothing is evicted for a read that does not go out, and what is
 * already out is never more than the bytes in flight. */
#include <stdlib.h>
#include <string.h>

#include "sched_impl.h"

/* ---- open and close ---- */

static uint32_t most_of_a_unit(const sl_plan *p, uint32_t *by_unit)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->n_parts; i++)
        if (p->parts[i].kind == SL_PART_ON_DEMAND && ++by_unit[p->parts[i].unit] > most)
            most = by_unit[p->parts[i].unit];
    return most;
}

uint64_t sl_on_demand_memory_bytes(const sl_plan *p)
{
    const uint64_t n = sl_plan_on_demand_count(p);
    return n ? n * (sizeof(sl_resident) + 2 * sizeof(uint32_t)) +
                   p->n_units * (sizeof(sl_need_stats) + SL_HINT_UNITS * sizeof(sl_predict) +
                                 2 * sizeof(uint32_t)) +
                   sl_pool_memory_bytes(p)
             : 0;
}

/* False: out of memory. */
static bool tables_open(sl_sched *s)
{
    const sl_plan *p = s->plan;
    uint32_t *count = s->rank = calloc(p->n_units, sizeof *s->rank);
    s->unit_stats = calloc(p->n_units, sizeof *s->unit_stats);
    s->predict = calloc((size_t)p->n_units * SL_HINT_UNITS, sizeof *s->predict);
    if (!count || !s->unit_stats || !s->predict)
        return false;
    s->queue_cap = most_of_a_unit(p, count);
    for (uint32_t u = 0, before = 0; u < p->n_units; u++) {
        const bool some = count[u] > 0;
        s->rank[u] = before;
        before += some;
    }
    bool all = (s->need.position = calloc(s->queue_cap, sizeof *s->need.position)) != NULL;
    for (uint32_t i = 0; i < SL_HINT_UNITS; i++) {
        sl_queue *q = &s->hints[i].queue;
        all &= (q->position = calloc(s->queue_cap, sizeof *q->position)) != NULL;
    }
    return all;
}

sl_status sl_on_demand_open(sl_sched *s, const sl_sched_config *c, uint8_t *memory, sl_err *err)
{
    const sl_plan *p = s->plan;
    if (!s->n_on_demand)
        return SL_OK;
    if (!tables_open(s))
        return sl_fail(err, SL_ENOMEM, "streaming: out of memory");
    s->pool_memory = memory;
    for (uint32_t i = 0, n = s->n_order; i < p->n_parts; i++) {
        if (p->parts[i].kind != SL_PART_ON_DEMAND)
            continue;
        s->resident[n] = (sl_resident){.part = i, .on_demand = true};
        s->position[i] = n++;
    }
    return sl_pool_open(&s->pool, p, c->pool, s->o.policy, s->o.half_life, err);
}

void sl_on_demand_close(sl_sched *s)
{
    free(s->need.position);
    for (uint32_t i = 0; i < SL_HINT_UNITS; i++)
        free(s->hints[i].queue.position);
    free(s->rank);
    free(s->unit_stats);
    free(s->predict);
    sl_pool_close(&s->pool);
}

static sl_hints *hints_of(sl_sched *s, uint32_t unit)
{
    return &s->hints[s->rank[unit] % SL_HINT_UNITS];
}

/* ---- slots ---- */

static uint32_t entry_of(const sl_sched *s, const sl_resident *r)
{
    return (uint32_t)(r - s->resident) - s->n_order;
}

static uint64_t bytes_of(const sl_sched *s, const sl_resident *r)
{
    return s->plan->parts[r->part].slot_bytes;
}

static sl_need_stats *stats_of(sl_sched *s, const sl_resident *r)
{
    return &s->unit_stats[s->plan->parts[r->part].unit];
}

void sl_resident_forget(sl_sched *s, sl_resident *r)
{
    if (s->release)
        s->release(s->ctx, r->part);
    r->state = SL_PART_ABSENT;
    r->data = NULL;
    r->guessed = 0;
}

static bool slot_take(sl_sched *s, sl_resident *r)
{
    uint32_t victim;
    if (!sl_pool_take(&s->pool, entry_of(s, r), &victim)) {
        s->no_slot = true;
        return false;
    }
    if (victim != UINT32_MAX) {
        sl_resident_forget(s, &s->resident[s->n_order + victim]);
        s->stats.evictions++;
    }
    r->data = s->pool_memory ? s->pool_memory + sl_pool_at(&s->pool, entry_of(s, r)) : NULL;
    return true;
}

static void slot_free(sl_sched *s, sl_resident *r)
{
    sl_resident_forget(s, r);
    sl_pool_drop(&s->pool, entry_of(s, r));
}

void sl_on_demand_end(sl_sched *s, sl_resident *r, bool dropped, bool failed)
{
    if (failed && r->want == SL_WANT_GIVEN) {
        r->state = SL_PART_FAILED; /* the pass still uses the first stage */
        return;
    }
    if (dropped || failed) {
        slot_free(s, r);
        r->state = failed && !dropped ? SL_PART_FAILED : SL_PART_ABSENT;
        s->on_demand_failed |= failed;
        if (dropped && r->want == SL_WANT_NEEDED)
            s->need.next = 0; /* wanted again while it was being dropped */
        if (dropped && r->want == SL_WANT_HINTED)
            hints_of(s, s->plan->parts[r->part].unit)->queue.next = 0;
        return;
    }
    r->state = SL_PART_READY;
    if (r->want == SL_WANT_NOTHING)
        sl_pool_release(&s->pool, entry_of(s, r));
}

/* Nobody wants it any more. What has not been asked of the disk yet never will be; a part whose
 * reads are all out is kept. */
static void let_go(sl_sched *s, sl_resident *r)
{
    sl_fetch *f = r->fetch;
    r->want = SL_WANT_NOTHING;
    s->news |= s->no_slot;
    if (r->state == SL_PART_READY) {
        sl_pool_release(&s->pool, entry_of(s, r));
    } else if (r->state == SL_PART_FAILED && s->pool.entry[entry_of(s, r)].slot != UINT32_MAX) {
        slot_free(s, r);
    } else if (f && f->listed && f->in_flight) {
        sl_fetch_list_remove(s, f);
        f->dropped = true;
        s->news = true; /* it may have been too large for the room that guesses have */
    } else if (f && f->listed) {
        sl_fetch_free(s, f);
        slot_free(s, r);
    }
}

/* Wanted, while a read for an earlier wish is still out. */
static void take_up(sl_sched *s, sl_resident *r, sl_priority priority)
{
    sl_fetch *f = r->fetch;
    if (f->dropped && f->span < f->n_spans && !f->failed)
        sl_fetch_list_add(s, f, priority);
    f->dropped = f->failed && f->dropped;
    if (f->listed && f->priority > priority) {
        sl_fetch_list_remove(s, f);
        sl_fetch_list_add(s, f, priority);
    }
}

/* ---- needs ---- */

/* What a hint brought is needed. */
static void guess_useful(sl_sched *s, sl_resident *r, uint64_t bytes)
{
    if (r->guessed)
        hints_of(s, s->plan->parts[r->part].unit)->useful[r->guessed - 1] += bytes;
    r->guessed = 0;
}

static void need_one(sl_sched *s, sl_resident *r, sl_need_stats *u)
{
    u->needs++;
    if (r->state == SL_PART_FAILED)
        r->state = SL_PART_ABSENT;
    if (r->state == SL_PART_ABSENT) {
        u->miss_bytes += bytes_of(s, r);
        s->news = true;
    } else if (r->state == SL_PART_READY) {
        u->hits++;
        u->hints_useful += r->guessed > 0;
        guess_useful(s, r, bytes_of(s, r));
        sl_pool_hold(&s->pool, entry_of(s, r));
    } else {
        u->hints_late += r->guessed > 0;
        guess_useful(s, r, r->fetch->cut_bytes);
        take_up(s, r, SL_DEMAND);
    }
    r->guessed = 0;
}

/* A hint that has turned out wrong, or is in the way. */
static void hint_end(sl_sched *s, sl_resident *r)
{
    if (r->guessed) {
        const uint64_t bytes = r->fetch ? r->fetch->cut_bytes : bytes_of(s, r);
        stats_of(s, r)->wasted_bytes += bytes;
        hints_of(s, s->plan->parts[r->part].unit)->wasted[r->guessed - 1] += bytes;
    }
    r->guessed = 0;
    let_go(s, r);
}

static bool among(const uint32_t *parts, uint32_t n, uint32_t part)
{
    for (uint32_t i = 0; i < n; i++)
        if (parts[i] == part)
            return true;
    return false;
}

/* But those of the n parts stay hinted; the queue is empty all the same. */
static void hints_drop(sl_sched *s, sl_hints *h, const uint32_t *but, uint32_t n)
{
    for (uint32_t i = 0; i < h->queue.n; i++) {
        sl_resident *r = &s->resident[h->queue.position[i]];
        if (r->want == SL_WANT_HINTED && !among(but, n, r->part))
            hint_end(s, r);
    }
    h->queue.n = h->queue.next = 0;
}

void sl_hints_end(sl_sched *s)
{
    for (uint32_t i = 0; i < SL_HINT_UNITS; i++)
        hints_drop(s, &s->hints[i], NULL, 0);
}

/* The unit has said what it needs. */
static void hints_learn(sl_sched *s, uint32_t unit)
{
    sl_hints *h = hints_of(s, unit);
    for (uint32_t far = 0; far < SL_HINT_UNITS; far++) {
        if (!s->hints_flow)
            sl_predict_learn(&s->predict[unit * SL_HINT_UNITS + far], h->useful[far],
                             h->wasted[far]);
        h->useful[far] = h->wasted[far] = 0;
    }
}

void sl_sched_need(sl_sched *s, uint32_t unit, const uint32_t *parts, const uint32_t *rows,
                   uint32_t n)
{
    sl_need_stats *u = &s->unit_stats[unit];
    s->need.n = s->need.next = 0;
    s->need.unit = unit;
    if (!n)
        return;
    for (uint32_t i = 0; i < n; i++) {
        sl_resident *r = &s->resident[s->position[parts[i]]];
        u->guesses_right += r->want == SL_WANT_HINTED;
        r->want = SL_WANT_NEEDED;
        s->need.position[s->need.n++] = s->position[parts[i]];
        sl_pool_use(&s->pool, entry_of(s, r), rows[i], s->pass_rows);
    }
    const bool hinted = hints_of(s, unit)->queue.n && hints_of(s, unit)->queue.unit == unit;
    if (hinted)
        hints_drop(s, hints_of(s, unit), NULL, 0);
    for (uint32_t i = 0; i < n; i++)
        need_one(s, &s->resident[s->need.position[i]], u);
    if (hinted)
        hints_learn(s, unit);
    s->needs_told = s->rank[unit] + 1;
}

/* The hints of the next unit that will need something (far 0), and of those behind it. */
static sl_queue *hinted_ahead(sl_sched *s, uint32_t far)
{
    return &s->hints[(s->needs_told + far) % SL_HINT_UNITS].queue;
}

/* Nothing is held but by hints: the last of them gives way. */
static bool hint_yields(sl_sched *s, const sl_resident *to)
{
    const uint32_t class = s->pool.entry[entry_of(s, to)].class;
    for (uint32_t far = SL_HINT_UNITS; far > 0; far--) {
        const sl_queue *q = hinted_ahead(s, far - 1);
        for (uint32_t i = q->n; i > 0; i--) {
            sl_resident *r = &s->resident[q->position[i - 1]];
            const bool idle =
                r->state == SL_PART_READY || (r->fetch && r->fetch->listed && !r->fetch->in_flight);
            if (r->want != SL_WANT_HINTED || !idle || s->pool.entry[entry_of(s, r)].class != class)
                continue;
            hint_end(s, r);
            return true;
        }
    }
    return false;
}

static bool may_queue(const sl_sched *s)
{
    return s->n_free_fetch > SL_FETCHES_SPARED;
}

bool sl_need_pull(sl_sched *s)
{
    while (s->need.next < s->need.n && may_queue(s)) {
        sl_resident *r = &s->resident[s->need.position[s->need.next]];
        if (r->want != SL_WANT_NEEDED || r->state != SL_PART_ABSENT) {
            s->need.next++;
            continue;
        }
        if (!slot_take(s, r) && !(hint_yields(s, r) && slot_take(s, r)))
            return false;
        s->need.next++;
        if (sl_part_queue(s, r, SL_DEMAND, s->pass) && r->fetch)
            return true;
    }
    return false;
}

/* What the pass was given goes back. A part whose second stage nobody waited for is released when
 * it comes. */
static void take_back(sl_sched *s)
{
    for (uint32_t i = 0; i < s->need.n; i++) {
        sl_resident *r = &s->resident[s->need.position[i]];
        if (r->want == SL_WANT_GIVEN)
            let_go(s, r);
    }
}

sl_status sl_sched_parts(sl_sched *s, uint32_t *parts, uint32_t max, uint32_t *n, sl_err *err)
{
    bool missing = false;
    *n = 0;
    take_back(s);
    for (uint32_t i = 0; i < s->need.n && *n < max; i++) {
        sl_resident *r = &s->resident[s->need.position[i]];
        if (r->want != SL_WANT_NEEDED)
            continue;
        if (r->state == SL_PART_FAILED)
            return sl_failure_tell(s, &r->failure, err);
        if (r->state != SL_PART_READY && r->state != SL_PART_FIRST) {
            missing = true;
            continue;
        }
        r->want = SL_WANT_GIVEN;
        parts[(*n)++] = r->part;
    }
    return *n || !missing ? SL_OK : SL_EAGAIN;
}

sl_status sl_sched_part_rest(sl_sched *s, uint32_t part, sl_err *err)
{
    const sl_resident *r = &s->resident[s->position[part]];
    if (r->state == SL_PART_FAILED)
        return sl_failure_tell(s, &r->failure, err);
    return r->state == SL_PART_READY ? SL_OK : SL_EAGAIN;
}

void sl_needs_end(sl_sched *s)
{
    for (uint32_t i = 0; i < s->need.n; i++) {
        sl_resident *r = &s->resident[s->need.position[i]];
        if (r->want == SL_WANT_NEEDED || r->want == SL_WANT_GIVEN)
            let_go(s, r);
    }
    s->need.n = s->need.next = 0;
}

/* ---- hints ---- */

static void hint_one(sl_sched *s, sl_queue *q, sl_resident *r)
{
    sl_need_stats *u = stats_of(s, r);
    if (r->want == SL_WANT_NOTHING) {
        r->want = SL_WANT_HINTED;
        u->guesses++;
        if (r->state == SL_PART_READY)
            sl_pool_hold(&s->pool, entry_of(s, r));
        else
            u->hints++;
        if (r->fetch)
            take_up(s, r, SL_PREDICTED);
    }
    if (r->want == SL_WANT_HINTED) {
        s->news |= r->state == SL_PART_ABSENT;
        q->position[q->n++] = (uint32_t)(r - s->resident);
    }
}

void sl_sched_hint(sl_sched *s, const uint32_t *parts, uint32_t n)
{
    const uint32_t unit = s->plan->parts[parts[0]].unit, far = s->rank[unit] - s->needs_told;
    sl_hints *h = hints_of(s, unit);
    if (far >= SL_HINT_UNITS) /* too far ahead, or behind the pass */
        return;
    if (!s->hints_flow && !sl_predict_pays(&s->predict[unit * SL_HINT_UNITS + far], far > 0))
        return;
    hints_drop(s, h, parts, n);
    if (h->queue.unit != unit)
        *h = (sl_hints){.queue = {.position = h->queue.position, .unit = unit}};
    for (uint32_t i = 0; i < n && h->queue.n < s->queue_cap; i++)
        hint_one(s, &h->queue, &s->resident[s->position[parts[i]]]);
}

static bool pull_hint_of(sl_sched *s, sl_queue *q, uint32_t far)
{
    while (q->next < q->n && may_queue(s)) {
        sl_resident *r = &s->resident[q->position[q->next]];
        if (r->want != SL_WANT_HINTED || r->state != SL_PART_ABSENT) {
            q->next++;
            continue;
        }
        if (!slot_take(s, r))
            return false;
        q->next++;
        r->guessed = (uint8_t)(far + 1);
        stats_of(s, r)->hint_bytes += bytes_of(s, r);
        if (sl_part_queue(s, r, SL_PREDICTED, s->pass) && r->fetch)
            return true;
    }
    return false;
}

bool sl_hint_pull(sl_sched *s)
{
    for (uint32_t far = 0; far < SL_HINT_UNITS; far++)
        if (pull_hint_of(s, hinted_ahead(s, far), far))
            return true;
    return false;
}

void sl_on_demand_forget(sl_sched *s)
{
    for (uint32_t i = 0; s->on_demand_failed && i < s->n_on_demand; i++) {
        sl_resident *r = &s->resident[s->n_order + i];
        if (r->state == SL_PART_FAILED)
            r->state = SL_PART_ABSENT;
    }
    s->on_demand_failed = false;
}
