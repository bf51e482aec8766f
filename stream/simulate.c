/* A unit with on-demand parts is taken apart before it is replayed: which parts it needs, and how
 * long the pass computed on each, in its first stage and after. Parts that were given together
 * share the time by their rows. So another order of arrival, or other hits, still add up to the
 * same computing. */
#include "simulate.h"

#include <stdlib.h>
#include <string.h>

#include "optimal.h"
#include "rows.h"
#include "sched.h"

#define NEVER UINT64_MAX

typedef struct trip { /* a read in the disk */
    sl_read *read;
    uint64_t done_ns;
} trip;

typedef struct step { /* what a unit does beside its parts: compute, then hint or read rows */
    sl_trace_kind kind;
    uint64_t compute_ns;
    uint32_t given;           /* parts that it had been given by then */
    uint32_t table, first, n; /* of the list in items */
} step;

typedef struct simulator {
    sl_trace *trace;
    const sl_plan *plan;
    const sl_simulate_options *o;
    sl_stream_options stream;
    sl_sched sched;
    sl_rows rows;
    bool sched_open, rows_open;

    uint64_t now, wait_ns;
    uint64_t timer;             /* when the scheduler wants to be asked again */
    trip trips[SL_SCHED_READS]; /* a queue: reads come back in the order that they went */
    uint32_t first_trip, n_trips;
    uint64_t pipe_ns;   /* when the bytes of all reads so far have gone by */
    uint64_t *place_ns; /* [depth] when the place is free; a circle */
    uint32_t next_place;

    /* the unit taken apart */
    uint32_t *need, *need_rows, n_need, need_max; /* need_max: parts asked for at once */
    uint64_t *first_ns, *rest_ns;                 /* by place in need */
    uint32_t *at;                                 /* by part: its place in need */
    uint32_t *given;                              /* of the present batch */
    bool has_rest, complete;
    uint32_t n_wanted; /* parts that the pass took before it left */
    step *steps;
    uint32_t n_steps, steps_cap, n_lead; /* the first n_lead come before any part */
    uint32_t *items;
    uint64_t n_items, items_cap;
    uint64_t tail_ns;
    sl_trace_event last; /* LEAVE or END */

    uint64_t mark_ns, mark_wait_ns, mark_compute_ns, compute_ns;
    sl_stream_stats mark_stats;
    sl_need_stats mark_need;
} simulator;

/* ---- the disk and the clock ---- */

static uint64_t clock_now(void *ctx)
{
    return ((simulator *)ctx)->now;
}

static uint64_t later_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t latency_ns(const sl_disk_model *d, uint64_t len)
{
    const bool slower = d->alone_per_s > 0 && d->alone_per_s < d->bytes_per_s;
    const double each = slower ? 1e9 / d->alone_per_s - 1e9 / d->bytes_per_s : 0;
    return d->latency_ns + (uint64_t)((double)len * each + 0.5);
}

static void disk_take(simulator *s, sl_read *r)
{
    const sl_disk_model *d = &s->o->disk;
    const uint64_t len = r->len - r->done, start = later_of(s->now, s->place_ns[s->next_place]);
    const uint64_t bytes_ns = (uint64_t)((double)len * 1e9 / d->bytes_per_s + 0.5);
    s->pipe_ns = later_of(s->pipe_ns, start + latency_ns(d, len)) + bytes_ns + d->each_ns;
    s->place_ns[s->next_place] = s->pipe_ns;
    s->next_place = (s->next_place + 1) % d->depth;
    s->trips[(s->first_trip + s->n_trips++) % SL_SCHED_READS] = (trip){r, s->pipe_ns};
}

/* What the I/O thread does when it is woken. */
static void issue(simulator *s)
{
    sl_read *reads[SL_SCHED_READS];
    uint64_t wait_ns;
    const uint32_t n = sl_sched_next(&s->sched, reads, SL_SCHED_READS - s->n_trips, &wait_ns);
    s->timer = wait_ns == UINT64_MAX ? NEVER : s->now + wait_ns;
    for (uint32_t i = 0; i < n; i++)
        disk_take(s, reads[i]);
}

static uint64_t next_ns(const simulator *s)
{
    const uint64_t back = s->n_trips ? s->trips[s->first_trip].done_ns : NEVER;
    return back < s->timer ? back : s->timer;
}

/* Whatever happens at next_ns(). */
static void happen(simulator *s)
{
    s->now = later_of(s->now, next_ns(s));
    while (s->n_trips && s->trips[s->first_trip].done_ns <= s->now) {
        sl_read *r = s->trips[s->first_trip].read;
        s->first_trip = (s->first_trip + 1) % SL_SCHED_READS;
        s->n_trips--;
        r->result = (int32_t)(r->len - r->done);
        sl_sched_done(&s->sched, r);
    }
    issue(s);
}

static void compute(simulator *s, uint64_t ns)
{
    const uint64_t until = s->now + ns;
    while (next_ns(s) <= until)
        happen(s);
    s->now = until;
    s->compute_ns += ns;
}

static sl_status wait_for(simulator *s, sl_status (*ready)(simulator *, const void *, sl_err *),
                          const void *what, sl_err *err)
{
    const uint64_t since = s->now;
    sl_status st = ready(s, what, err);
    issue(s);
    while (st == SL_EAGAIN) {
        if (next_ns(s) == NEVER)
            return sl_fail(err, SL_EINVAL, "simulation: the pass waits for what nobody reads");
        happen(s);
        st = ready(s, what, err);
    }
    s->wait_ns += s->now - since;
    issue(s);
    return st;
}

/* ---- a unit taken apart ---- */

static bool grow(void **array, uint64_t *cap, uint64_t want, size_t size)
{
    if (want <= *cap)
        return true;
    const uint64_t n = want > 2 * *cap ? want : 2 * *cap;
    void *a = realloc(*array, n * size);
    if (!a)
        return false;
    *array = a;
    *cap = n;
    return true;
}

static sl_status add_step(simulator *s, const sl_trace_event *e, uint32_t given, sl_err *err)
{
    void *steps = s->steps, *items = s->items;
    uint64_t cap = s->steps_cap;
    const bool ok = grow(&steps, &cap, (uint64_t)s->n_steps + 1, sizeof *s->steps) &&
                    grow(&items, &s->items_cap, s->n_items + e->n, sizeof *s->items);
    s->steps = steps;
    s->steps_cap = (uint32_t)cap;
    s->items = items;
    if (!ok)
        return sl_fail(err, SL_ENOMEM, "simulation: out of memory");
    const bool list = e->kind == SL_TRACE_HINT || e->kind == SL_TRACE_ROWS;
    s->steps[s->n_steps++] = (step){.kind = e->kind,
                                    .compute_ns = given == UINT32_MAX ? e->compute_ns : 0,
                                    .given = given,
                                    .table = e->table,
                                    .first = (uint32_t)s->n_items,
                                    .n = list ? e->n : 0};
    if (list && e->n)
        memcpy(s->items + s->n_items, e->item, e->n * sizeof *e->item);
    s->n_items += list ? e->n : 0;
    return SL_OK;
}

static void take_need(simulator *s, const sl_trace_event *e)
{
    s->n_need = e->n;
    for (uint32_t i = 0; i < e->n; i++) {
        s->need[i] = e->item[i];
        s->need_rows[i] = e->rows[i];
        s->first_ns[i] = s->rest_ns[i] = 0;
        s->at[e->item[i]] = i;
    }
    s->n_steps = s->n_lead = 0;
    s->n_items = 0;
    s->need_max = s->n_wanted = 0;
    s->has_rest = s->complete = false;
    s->tail_ns = 0;
}

/* A batch of given parts has been computed on. */
static void share(simulator *s, uint32_t n, uint64_t first_ns, uint64_t rest_ns)
{
    uint64_t rows = 0, so_far = 0, first = 0, rest = 0;
    for (uint32_t i = 0; i < n; i++)
        rows += s->need_rows[s->at[s->given[i]]];
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t k = s->at[s->given[i]];
        so_far += s->need_rows[k];
        const double upto = (double)so_far / (double)rows;
        const uint64_t f = (uint64_t)((double)first_ns * upto);
        const uint64_t r = (uint64_t)((double)rest_ns * upto);
        s->first_ns[k] += f - first;
        s->rest_ns[k] += r - rest;
        first = f;
        rest = r;
    }
}

/* From behind NEED to the event that leaves the unit, which goes to s->last. */
static sl_status take_apart(simulator *s, sl_err *err)
{
    sl_trace_event e;
    uint32_t n = 0;
    uint64_t first = 0, rest = 0;
    bool begun = false, resting = false;
    sl_status st;
    while (!(st = sl_trace_next(s->trace, &e, err))) {
        if (e.kind == SL_TRACE_OVER)
            return sl_fail(err, SL_EFORMAT, "simulation: the trace ends inside a unit");
        *(resting ? &rest : &first) += begun ? e.compute_ns : 0;
        const bool leaves = e.kind == SL_TRACE_LEAVE || e.kind == SL_TRACE_END;
        if (!begun && !leaves)
            st = add_step(s, &e, UINT32_MAX, err);
        else if (e.kind == SL_TRACE_HINT || e.kind == SL_TRACE_ROWS)
            st = add_step(s, &e, s->n_wanted, err);
        if (st)
            return st;
        if (e.kind == SL_TRACE_REST)
            s->has_rest = resting = true;
        if (e.kind != SL_TRACE_GIVEN && !leaves)
            continue;
        if (n)
            share(s, n, first, rest);
        else
            s->tail_ns += first + rest;
        if (!begun)
            s->n_lead = s->n_steps;
        if (leaves) {
            s->tail_ns += begun ? 0 : e.compute_ns;
            s->last = e;
            return SL_OK;
        }
        first = rest = 0;
        resting = false;
        begun = true;
        n = e.n;
        s->need_max = later_of(s->need_max, e.max);
        s->n_wanted += n;
        s->complete |= n == 0;
        if (n)
            memcpy(s->given, e.item, n * sizeof *e.item);
    }
    return st;
}

/* ---- replay ---- */

static sl_status rows_ready(simulator *s, const void *what, sl_err *err)
{
    (void)what;
    return sl_sched_rows_state(&s->sched, err);
}

static sl_status rows_fetch(void *ctx, const sl_span *spans, uint32_t n, uint8_t *base, sl_err *err)
{
    simulator *s = ctx;
    sl_sched_rows_start(&s->sched, spans, n, base);
    return wait_for(s, rows_ready, NULL, err);
}

static void hint(simulator *s, const uint32_t *parts, uint32_t n)
{
    if (s->o->hints >= 0 && s->o->hints < n)
        n = (uint32_t)s->o->hints;
    if (!n)
        return;
    sl_sched_hint(&s->sched, parts, n);
    issue(s);
}

static sl_status do_step(simulator *s, const step *x, sl_err *err)
{
    compute(s, x->compute_ns);
    if (x->kind == SL_TRACE_HINT)
        hint(s, s->items + x->first, x->n);
    if (x->kind == SL_TRACE_ROWS)
        return sl_rows_get(&s->rows, x->table, s->items + x->first, x->n, NULL, rows_fetch, s, err);
    return SL_OK;
}

typedef struct batch {
    uint32_t *parts, max, *n;
} batch;

static sl_status parts_ready(simulator *s, const void *what, sl_err *err)
{
    const batch *b = what;
    return sl_sched_parts(&s->sched, b->parts, b->max, b->n, err);
}

static sl_status rest_ready(simulator *s, const void *what, sl_err *err)
{
    return sl_sched_part_rest(&s->sched, *(const uint32_t *)what, err);
}

static sl_status compute_batch(simulator *s, const uint32_t *parts, uint32_t n, sl_err *err)
{
    uint64_t first = 0, rest = 0;
    sl_status st = SL_OK;
    for (uint32_t i = 0; i < n; i++) {
        first += s->first_ns[s->at[parts[i]]];
        rest += s->rest_ns[s->at[parts[i]]];
    }
    compute(s, first);
    for (uint32_t i = 0; i < n && s->has_rest && !st; i++)
        st = wait_for(s, rest_ready, &parts[i], err);
    compute(s, rest);
    return st;
}

static sl_status replay_parts(simulator *s, sl_err *err)
{
    sl_status st = SL_OK;
    uint32_t next = s->n_lead, n_given = 0, n = 0;
    for (uint32_t i = 0; i < s->n_lead && !st; i++)
        st = do_step(s, &s->steps[i], err);
    do {
        const batch b = {s->given, s->need_max, &n};
        n = 0;
        if (!st && (s->complete || n_given < s->n_wanted))
            st = wait_for(s, parts_ready, &b, err);
        if (!st && n)
            st = compute_batch(s, s->given, n, err);
        n_given += n;
        for (; !st && next < s->n_steps && (s->steps[next].given <= n_given || !n); next++)
            st = do_step(s, &s->steps[next], err);
    } while (n && !st);
    compute(s, s->tail_ns);
    return st;
}

static sl_status enter_ready(simulator *s, const void *what, sl_err *err)
{
    return sl_sched_enter(&s->sched, *(const uint32_t *)what, err);
}

static void need_stats(const simulator *s, sl_need_stats *out)
{
    *out = (sl_need_stats){0};
    for (uint32_t u = 0; s->sched.unit_stats && u < s->plan->n_units; u++)
        sl_need_stats_add(out, &s->sched.unit_stats[u], 1);
}

static void end_pass(simulator *s, const sl_trace_event *e, sl_simulation *out)
{
    sl_simulated *p = e->pass == SL_PASS_PREFILL ? &out->prefill : &out->decode;
    sl_need_stats need;
    sl_sched_pass_end(&s->sched);
    issue(s);
    need_stats(s, &need);
    p->passes++;
    p->rows += e->pass_rows;
    p->ns += s->now - s->mark_ns;
    p->wait_ns += s->wait_ns - s->mark_wait_ns;
    p->compute_ns += s->compute_ns - s->mark_compute_ns;
    p->bytes_read += s->sched.stats.bytes_read - s->mark_stats.bytes_read;
    p->evictions += s->sched.stats.evictions - s->mark_stats.evictions;
    sl_need_stats_add(&p->need, &need, 1);
    sl_need_stats_add(&p->need, &s->mark_need, -1);
    s->mark_ns = s->now;
    s->mark_wait_ns = s->wait_ns;
    s->mark_compute_ns = s->compute_ns;
    s->mark_stats = s->sched.stats;
    s->mark_need = need;
}

static sl_status set_uses(simulator *s, const sl_trace_event *e, sl_err *err)
{
    float *use = malloc(((uint64_t)e->n + 1) * sizeof *use);
    if (!use)
        return sl_fail(err, SL_ENOMEM, "simulation: out of memory");
    if (e->n)
        memcpy(use, e->item, e->n * sizeof *use);
    sl_pool_uses_set(&s->sched.pool, use);
    free(use);
    return SL_OK;
}

static sl_status replay_event(simulator *s, const sl_trace_event *e, sl_simulation *out,
                              sl_err *err);

static sl_status replay_need(simulator *s, const sl_trace_event *e, sl_simulation *out, sl_err *err)
{
    take_need(s, e);
    sl_sched_need(&s->sched, e->unit, s->need, s->need_rows, s->n_need);
    issue(s);
    sl_status st = take_apart(s, err);
    if (!st)
        st = replay_parts(s, err);
    s->last.compute_ns = 0; /* has been shared out */
    return st ? st : replay_event(s, &s->last, out, err);
}

static sl_status replay_event(simulator *s, const sl_trace_event *e, sl_simulation *out,
                              sl_err *err)
{
    compute(s, e->compute_ns);
    switch (e->kind) {
    case SL_TRACE_PASS:
        sl_sched_pass_begin(&s->sched, e->pass, e->pass_rows, e->n_units);
        issue(s);
        break;
    case SL_TRACE_ENTER:
        return wait_for(s, enter_ready, &e->unit, err);
    case SL_TRACE_NEED:
        return replay_need(s, e, out, err);
    case SL_TRACE_HINT:
        hint(s, e->item, e->n);
        break;
    case SL_TRACE_ROWS:
        return sl_rows_get(&s->rows, e->table, e->item, e->n, NULL, rows_fetch, s, err);
    case SL_TRACE_LEAVE:
        sl_sched_leave(&s->sched, e->unit);
        issue(s);
        break;
    case SL_TRACE_END:
        end_pass(s, e, out);
        if (s->o->progress && s->o->progress(s->o->ctx, out->prefill.passes + out->decode.passes))
            return sl_fail(err, SL_ECANCELLED, "stopped");
        break;
    case SL_TRACE_USES:
        return set_uses(s, e, err);
    case SL_TRACE_GIVEN:
    case SL_TRACE_REST:
    case SL_TRACE_MARK: /* these four do not come */
    case SL_TRACE_READ:
    case SL_TRACE_COUNTS:
    case SL_TRACE_TOTALS:
    case SL_TRACE_OVER:
        break;
    }
    return SL_OK;
}

static sl_status replay(simulator *s, sl_simulation *out, sl_err *err)
{
    sl_trace_event e;
    sl_trace_rewind(s->trace, false);
    sl_status st = sl_trace_next(s->trace, &e, err);
    while (!st && e.kind != SL_TRACE_OVER) {
        st = replay_event(s, &e, out, err);
        if (!st)
            st = sl_trace_next(s->trace, &e, err);
    }
    return st;
}

/* ---- the bound beside it ---- */

typedef struct needs {
    uint32_t *part, *request, *class_of;
    uint8_t *counted;
    uint32_t slots[SL_POOL_CLASSES];
} needs;

static sl_status collect(simulator *s, needs *n, uint64_t cap, uint64_t *count, sl_err *err)
{
    sl_trace_event e;
    uint32_t request = 0;
    sl_trace_rewind(s->trace, false);
    sl_status st = sl_trace_next(s->trace, &e, err);
    for (; !st && e.kind != SL_TRACE_OVER; st = sl_trace_next(s->trace, &e, err)) {
        for (uint32_t i = 0; e.kind == SL_TRACE_NEED && i < e.n && *count < cap; i++) {
            n->part[*count] = s->sched.position[e.item[i]] - s->sched.n_order;
            n->request[*count] = request;
            n->counted[(*count)++] = e.pass != SL_PASS_PREFILL;
        }
        request += e.kind == SL_TRACE_NEED;
    }
    return st;
}

static sl_status bound(simulator *s, sl_simulation *out, sl_err *err)
{
    const uint64_t cap = sl_trace_sums_of(s->trace)->needs;
    const sl_pool *pool = &s->sched.pool;
    needs n = {.part = calloc(cap + 1, 4),
               .request = calloc(cap + 1, 4),
               .class_of = calloc((uint64_t)pool->n + 1, 4),
               .counted = calloc(cap + 1, 1)};
    uint64_t count = 0;
    sl_status st = SL_OK;
    if (!n.part || !n.request || !n.class_of || !n.counted)
        st = sl_fail(err, SL_ENOMEM, "simulation: out of memory");
    for (uint32_t i = 0; !st && i < pool->n; i++)
        n.class_of[i] = pool->entry[i].class;
    for (uint32_t c = 0; c < pool->n_classes; c++)
        n.slots[c] = pool->class[c].n_slots;
    if (!st)
        st = collect(s, &n, cap, &count, err);
    const sl_optimal_needs o = {.n = count,
                                .part = n.part,
                                .request = n.request,
                                .counted = n.counted,
                                .n_parts = pool->n,
                                .n_classes = pool->n_classes,
                                .class_of = n.class_of,
                                .slots = n.slots};
    if (!st)
        st = sl_optimal_hits(&o, &out->optimal_hits, err);
    free(n.part);
    free(n.request);
    free(n.class_of);
    free(n.counted);
    return st;
}

/* ---- begin and end ---- */

static sl_status make_lists(simulator *s, sl_err *err)
{
    const uint64_t n = (uint64_t)s->plan->n_parts + 1; /* one unit may have them all */
    s->need = calloc(n, sizeof *s->need);
    s->need_rows = calloc(n, sizeof *s->need_rows);
    s->first_ns = calloc(n, sizeof *s->first_ns);
    s->rest_ns = calloc(n, sizeof *s->rest_ns);
    s->given = calloc(n, sizeof *s->given);
    s->at = calloc(n, sizeof *s->at);
    s->place_ns = calloc(s->o->disk.depth, sizeof *s->place_ns);
    if (s->need && s->need_rows && s->first_ns && s->rest_ns && s->given && s->at && s->place_ns)
        return SL_OK;
    return sl_fail(err, SL_ENOMEM, "simulation: out of memory");
}

static sl_status open_sched(simulator *s, sl_simulation *out, sl_err *err)
{
    uint8_t *pinned = calloc((uint64_t)s->plan->n_parts + 1, 1);
    sl_pool_plan pool;
    if (!pinned)
        return sl_fail(err, SL_ENOMEM, "simulation: out of memory");
    sl_status st = sl_split_choose(s->plan, &s->stream, &out->split, pinned, &pool, err);
    const sl_sched_config c = {.plan = s->plan,
                               .options = &s->stream,
                               .pinned = pinned,
                               .ring_bytes = out->split.ring_bytes,
                               .pool = &pool,
                               .clock = clock_now,
                               .ctx = s};
    if (!st)
        st = sl_sched_open(&s->sched, &c, err);
    s->sched_open = !st;
    free(pinned);
    return st;
}

static void close_all(simulator *s)
{
    if (s->sched_open)
        sl_sched_close(&s->sched);
    if (s->rows_open)
        sl_rows_close(&s->rows);
    free(s->place_ns);
    free(s->need);
    free(s->need_rows);
    free(s->first_ns);
    free(s->rest_ns);
    free(s->given);
    free(s->at);
    free(s->steps);
    free(s->items);
    free(s);
}

static sl_status check(const sl_simulate_options *o, sl_err *err)
{
    if (o->disk.bytes_per_s >= 1e6 && o->disk.bytes_per_s <= 1e15 && o->disk.depth &&
        o->disk.depth <= 65536 && o->disk.latency_ns <= (uint64_t)1000000000000)
        return SL_OK;
    return sl_fail(err, SL_EINVAL,
                   "simulation: a disk has at least 1 MB/s, at most 1000 s of latency, and a depth "
                   "of 1 to 65536");
}

sl_status sl_simulate(sl_trace *t, const sl_simulate_options *o, sl_simulation *out, sl_err *err)
{
    *out = (sl_simulation){0};
    sl_status st = check(o, err);
    if (st)
        return st;
    simulator *s = calloc(1, sizeof *s);
    if (!s)
        return sl_fail(err, SL_ENOMEM, "simulation: out of memory");
    s->trace = t;
    s->plan = sl_trace_plan(t);
    s->o = o;
    s->stream = o->stream;
    s->stream.fail_read = 0;
    s->timer = NEVER;
    st = open_sched(s, out, err);
    if (!st)
        st = make_lists(s, err);
    if (!st)
        st = sl_rows_open(&s->rows, s->plan, &s->stream, NULL, err);
    s->rows_open = !st;
    if (!st)
        st = replay(s, out, err);
    if (!st && s->sched.pool.n)
        st = bound(s, out, err);
    close_all(s);
    sl_trace_rewind(t, false);
    return st;
}
