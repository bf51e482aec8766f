#include "profile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    WAITS = 256,             /* that a read's time may lie in */
    PENDING = SL_TRACE_READS /* reads between two events */
};

typedef struct interval {
    uint64_t from, to;
} interval;

typedef struct part_state {
    uint64_t submit_ns, done_ns; /* first and last of the reads since its last use; 0: none */
    uint64_t need_ns;            /* when it was asked for; on demand */
    uint64_t visit;              /* to its unit, in which it was, and nothing has come since */
} part_state;

typedef struct pending_read {
    uint64_t done_ns, busy_ns;
    uint32_t unit, part;
    uint8_t priority;
} pending_read;

struct sl_profile {
    const sl_plan *plan;
    sl_profile_sums sums;
    sl_profile_sink sink;
    sl_profile_unit *unit;     /* n_units + 1 */
    sl_profile_part *part;     /* n_parts */
    part_state *state;         /* n_parts */
    sl_need_stats *counts;     /* n_units: the last that came */
    uint32_t *order, *unit_at; /* sl_plan_order() */

    uint64_t now_ns; /* since the recording began */
    uint32_t mark;
    bool in_pass;
    uint64_t visit; /* counts units entered */
    uint32_t next_unit, n_units;
    sl_profile_phase *phase; /* the present one; NULL: no pass yet */
    sl_profile_work between; /* since the last pass's end */
    uint64_t pass_start_ns;
    uint64_t pass_needs, pass_missed, pass_bytes, pass_wait_ns, pass_compute_ns;

    /* the present row of computing */
    uint64_t span_from, span_ns;
    int64_t span_unit;
    uint32_t span_mark;

    interval waits[WAITS]; /* a ring */
    uint64_t n_waits;
    pending_read *pending;
    uint32_t n_pending;
};

/* ---- begin and end ---- */

uint64_t sl_profile_memory_bytes(const sl_plan *p)
{
    return sizeof(sl_profile) +
           ((uint64_t)p->n_units + 2) * (sizeof(sl_profile_unit) + sizeof(sl_need_stats) + 4) +
           (uint64_t)p->n_parts * (sizeof(sl_profile_part) + sizeof(part_state) + 4) +
           PENDING * sizeof(pending_read);
}

sl_profile *sl_profile_new(const sl_plan *plan, uint64_t before_ns, const sl_profile_sink *sink)
{
    sl_profile *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->plan = plan;
    p->sums.before_ns = before_ns;
    if (sink)
        p->sink = *sink;
    p->unit = calloc((uint64_t)plan->n_units + 1, sizeof *p->unit);
    p->counts = calloc((uint64_t)plan->n_units + 1, sizeof *p->counts);
    p->unit_at = calloc((uint64_t)plan->n_units + 1, sizeof *p->unit_at);
    p->part = calloc((uint64_t)plan->n_parts + 1, sizeof *p->part);
    p->state = calloc((uint64_t)plan->n_parts + 1, sizeof *p->state);
    p->order = calloc((uint64_t)plan->n_parts + 1, sizeof *p->order);
    p->pending = calloc(PENDING, sizeof *p->pending);
    if (!p->unit || !p->counts || !p->unit_at || !p->part || !p->state || !p->order || !p->pending)
        sl_profile_free(&p);
    else
        sl_plan_order(plan, p->order, p->unit_at);
    return p;
}

void sl_profile_free(sl_profile **pp)
{
    sl_profile *p = pp ? *pp : NULL;
    if (!p)
        return;
    free(p->unit);
    free(p->counts);
    free(p->unit_at);
    free(p->part);
    free(p->state);
    free(p->order);
    free(p->pending);
    free(p);
    *pp = NULL;
}

/* ---- time ---- */

static uint64_t shown(const sl_profile *p, uint64_t ns)
{
    return p->sums.before_ns + ns;
}

static void span_end(sl_profile *p)
{
    if (!p->span_ns)
        return;
    p->sums.rows++;
    if (p->sink.compute)
        p->sink.compute(p->sink.ctx, shown(p, p->span_from), p->span_ns, p->span_unit,
                        p->span_mark);
    p->span_ns = 0;
}

/* The unit that the present time belongs to: the one that is entered or will be next, the last one
 * until the pass ends. */
static int64_t present_unit(const sl_profile *p)
{
    if (!p->in_pass || !p->n_units)
        return SL_PROFILE_NONE;
    return p->next_unit < p->n_units ? p->next_unit : p->n_units - 1;
}

static sl_profile_work *present_work(sl_profile *p)
{
    return p->in_pass ? &p->phase->work : &p->between;
}

static void compute(sl_profile *p, uint64_t ns)
{
    const int64_t unit = present_unit(p);
    if (!ns)
        return;
    if (unit != p->span_unit || p->mark != p->span_mark || p->span_from + p->span_ns != p->now_ns)
        span_end(p);
    if (!p->span_ns) {
        p->span_from = p->now_ns;
        p->span_unit = unit;
        p->span_mark = p->mark;
    }
    p->span_ns += ns;
    p->now_ns += ns;
    p->sums.work.compute_ns[p->mark] += ns;
    present_work(p)->compute_ns[p->mark] += ns;
    if (unit >= 0)
        p->unit[unit].compute_ns += ns;
    p->pass_compute_ns += p->in_pass ? ns : 0;
}

/* Where the unit's ALWAYS parts begin. */
static int64_t first_part(const sl_profile *p, uint32_t unit)
{
    const uint32_t at = p->unit_at[unit];
    return at < p->unit_at[unit + 1] ? (int64_t)p->order[at] : SL_PROFILE_NONE;
}

static void wait(sl_profile *p, const sl_trace_event *e)
{
    const bool rows = e->kind == SL_TRACE_ROWS;
    const int64_t unit = rows ? (int64_t)p->plan->n_units : present_unit(p);
    const int64_t part = rows || unit < 0            ? SL_PROFILE_NONE
                         : e->kind == SL_TRACE_REST  ? (int64_t)e->part
                         : e->kind != SL_TRACE_GIVEN ? first_part(p, (uint32_t)unit)
                         : e->n                      ? (int64_t)e->item[0]
                                                     : SL_PROFILE_NONE;
    const uint64_t ns = e->waited_ns;
    if (!ns)
        return;
    span_end(p);
    p->sums.rows++;
    if (p->sink.wait)
        p->sink.wait(p->sink.ctx, shown(p, p->now_ns), ns, unit, part);
    p->waits[p->n_waits++ % WAITS] = (interval){p->now_ns, p->now_ns + ns};
    p->now_ns += ns;
    p->sums.work.wait_ns[p->mark] += ns;
    present_work(p)->wait_ns[p->mark] += ns;
    if (unit >= 0)
        p->unit[unit].wait_ns += ns;
    p->pass_wait_ns += p->in_pass ? ns : 0;
}

/* ---- reads ---- */

static uint64_t overlap(interval a, interval b)
{
    const uint64_t from = a.from > b.from ? a.from : b.from, to = a.to < b.to ? a.to : b.to;
    return to > from ? to - from : 0;
}

/* How much of it the pass waited. */
static uint64_t waited_in(const sl_profile *p, interval a)
{
    uint64_t sum = 0;
    for (uint64_t i = p->n_waits; i > 0 && p->n_waits - i < WAITS; i--) {
        const interval w = p->waits[(i - 1) % WAITS];
        if (w.to <= a.from)
            break;
        sum += overlap(a, w);
    }
    return sum;
}

static void add_overlap(sl_profile *p, const pending_read *r, uint64_t ns)
{
    p->sums.io.overlap_ns += ns;
    p->sums.by_priority[r->priority].overlap_ns += ns;
    p->unit[r->unit].io.overlap_ns += ns;
    if (r->part < p->plan->n_parts)
        p->part[r->part].io.overlap_ns += ns;
    if (p->phase)
        p->phase->io.overlap_ns += ns;
}

/* All waits up to now are known. */
static void reads_end(sl_profile *p)
{
    for (uint32_t i = 0; i < p->n_pending; i++) {
        const pending_read *r = &p->pending[i];
        const interval busy = {r->done_ns - r->busy_ns, r->done_ns};
        add_overlap(p, r, r->busy_ns - waited_in(p, busy));
    }
    p->n_pending = 0;
}

static void add_read(sl_profile_reads *sum, const sl_read_note *r)
{
    sum->bytes += r->bytes;
    sum->reads++;
    sum->busy_ns += r->busy_ns;
}

static void part_read(sl_profile *p, const sl_read_note *r)
{
    part_state *s = &p->state[r->part];
    if (!s->done_ns || r->submit_ns < s->submit_ns)
        s->submit_ns = r->submit_ns;
    s->done_ns = r->done_ns;
    add_read(&p->part[r->part].io, r);
    if (s->visit && s->visit == p->visit && r->done_ns > s->need_ns) {
        s->visit = 0;
        p->part[r->part].missed++;
        p->pass_missed++;
    }
}

static void read_back(sl_profile *p, const sl_read_note *r)
{
    const bool rows = r->part >= p->plan->n_parts;
    const uint32_t unit = rows ? p->plan->n_units : p->plan->parts[r->part].unit;
    if (p->n_pending == PENDING)
        reads_end(p);
    p->pending[p->n_pending++] = (pending_read){r->done_ns, r->busy_ns, unit, r->part, r->priority};
    add_read(&p->sums.io, r);
    add_read(&p->sums.by_priority[r->priority], r);
    add_read(&p->unit[unit].io, r);
    if (p->phase)
        add_read(&p->phase->io, r);
    if (!rows)
        part_read(p, r);
    p->pass_bytes += r->bytes;
    p->sums.rows++;
    if (p->sink.read)
        p->sink.read(p->sink.ctx, shown(p, r->submit_ns), shown(p, r->done_ns), r, unit,
                     rows ? SL_PROFILE_NONE : (int64_t)r->part);
}

/* ---- what the pass asks for ---- */

/* called_ns: when it asked. */
static void enter(sl_profile *p, uint32_t unit, uint64_t called_ns)
{
    sl_profile_unit *u = &p->unit[unit];
    u->mark = p->mark;
    p->visit++;
    for (uint32_t i = p->unit_at[unit]; i < p->unit_at[unit + 1]; i++) {
        part_state *s = &p->state[p->order[i]];
        const bool came = s->done_ns > 0, there = s->done_ns <= called_ns;
        u->needs++;
        u->hits += there;
        u->in_time += came && there;
        u->late += !there && s->submit_ns < called_ns;
        u->misses += !there && s->submit_ns >= called_ns;
        s->submit_ns = s->done_ns = 0;
    }
}

static void need(sl_profile *p, const sl_trace_event *e)
{
    for (uint32_t i = 0; i < e->n; i++) {
        part_state *s = &p->state[e->item[i]];
        s->need_ns = p->now_ns;
        s->visit = p->visit;
        p->part[e->item[i]].needs++;
    }
    p->pass_needs += e->n;
}

/* ---- passes ---- */

static void add_work(sl_profile_work *sum, const sl_profile_work *w)
{
    for (int i = 0; i < SL_TRACE_MARKS; i++) {
        sum->compute_ns[i] += w->compute_ns[i];
        sum->wait_ns[i] += w->wait_ns[i];
    }
}

static void phase_begin(sl_profile *p, sl_pass_kind kind)
{
    sl_profile_sums *s = &p->sums;
    const bool first = !p->phase;
    if (!first && (p->phase->kind == kind || s->n_phases == SL_PROFILE_PHASES))
        return;
    const uint64_t start = first ? shown(p, p->now_ns) : p->phase->end_ns;
    p->phase = &s->phase[s->n_phases++];
    *p->phase = (sl_profile_phase){.kind = kind, .start_ns = start};
    if (first) /* what was before it is in no phase */
        p->between = (sl_profile_work){0};
}

static void begin_pass(sl_profile *p, const sl_trace_event *e)
{
    if (e->at_ns > p->now_ns) { /* spent on writing the trace */
        p->between.compute_ns[0] += p->phase ? e->at_ns - p->now_ns : 0;
        p->sums.lost_ns += e->at_ns - p->now_ns;
        span_end(p);
        p->now_ns = e->at_ns;
    }
    phase_begin(p, e->pass);
    add_work(&p->phase->work, &p->between);
    p->between = (sl_profile_work){0};
    p->pass_start_ns = p->now_ns;
    p->pass_needs = p->pass_missed = p->pass_wait_ns = p->pass_compute_ns = 0;
    p->in_pass = true;
    p->next_unit = 0;
    p->n_units = e->n_units;
}

static void end_pass(sl_profile *p, const sl_trace_event *e)
{
    span_end(p);
    p->in_pass = false;
    p->phase->passes++;
    p->phase->rows += e->pass_rows;
    p->phase->end_ns = shown(p, p->now_ns);
    p->sums.rows += 2;
    p->sums.passes++;
    if (p->sums.rows <= SL_PROFILE_ROWS)
        p->sums.kept_passes = p->sums.passes;
    if (p->sink.pass)
        p->sink.pass(p->sink.ctx, shown(p, p->pass_start_ns), shown(p, p->now_ns), e->pass,
                     e->pass_rows);
    if (p->sink.series)
        p->sink.series(p->sink.ctx, shown(p, p->now_ns), e->pass, e->pass_rows, p->pass_needs,
                       p->pass_missed, p->pass_bytes, p->pass_wait_ns, p->pass_compute_ns);
    p->pass_bytes = 0;
}

/* Counters of a unit since the start; what came since the last time belongs to the phase. */
static void counts(sl_profile *p, const sl_trace_event *e)
{
    sl_need_stats step = *e->counts;
    sl_profile_unit *u = &p->unit[e->unit];
    sl_need_stats_add(&step, &p->counts[e->unit], -1);
    p->counts[e->unit] = *e->counts;
    if (!p->phase) /* of passes before the recording */
        return;
    u->needs += step.needs;
    u->hits += step.hits;
    u->in_time += step.hints_useful;
    u->late += step.hints_late;
    u->misses += step.needs - step.hits - step.hints_late;
    u->wasted_bytes += step.wasted_bytes;
    if (p->phase->kind == SL_PASS_PREFILL)
        return;
    u->guesses += step.guesses;
    u->guesses_right += step.guesses_right;
    u->guessed_needs += step.needs;
}

static void totals(sl_profile *p, const sl_trace_event *e)
{
    sl_profile_reads *io = &p->sums.io;
    if (e->at_ns > p->now_ns) {
        span_end(p);
        p->sums.lost_ns += e->at_ns - p->now_ns;
        p->now_ns = e->at_ns;
    }
    io->bytes = e->totals->bytes_read;
    io->reads += e->lost;
    p->sums.io_cpu_ns = e->totals->io_cpu_ns;
    p->sums.lost_reads = e->lost;
    p->sums.whole = true;
}

void sl_profile_take(sl_profile *p, const sl_trace_event *e)
{
    if (e->kind == SL_TRACE_READ) {
        read_back(p, &e->read);
        return;
    }
    compute(p, e->compute_ns);
    const uint64_t called_ns = p->now_ns;
    wait(p, e);
    switch (e->kind) {
    case SL_TRACE_PASS:
        begin_pass(p, e);
        break;
    case SL_TRACE_ENTER:
        enter(p, e->unit, called_ns);
        break;
    case SL_TRACE_NEED:
        need(p, e);
        break;
    case SL_TRACE_LEAVE:
        p->visit++; /* what comes now is none of its */
        p->next_unit = e->unit + 1;
        break;
    case SL_TRACE_END:
        end_pass(p, e);
        break;
    case SL_TRACE_MARK:
        p->mark = e->mark;
        break;
    case SL_TRACE_COUNTS:
        counts(p, e);
        break;
    case SL_TRACE_TOTALS:
        totals(p, e);
        break;
    case SL_TRACE_GIVEN:
    case SL_TRACE_REST:
    case SL_TRACE_HINT:
    case SL_TRACE_ROWS:
    case SL_TRACE_USES:
    case SL_TRACE_READ:
    case SL_TRACE_OVER:
        break;
    }
    reads_end(p);
}

sl_status sl_profile_take_all(sl_profile *p, sl_trace *t, uint64_t passes, sl_err *err)
{
    sl_trace_event e;
    sl_status st;
    sl_trace_rewind(t, true);
    while (!(st = sl_trace_next(t, &e, err)) && e.kind != SL_TRACE_OVER) {
        if (e.kind == SL_TRACE_PASS && p->sums.passes >= passes)
            break; /* not sooner: what was read ahead comes back after the last pass */
        sl_profile_take(p, &e);
    }
    span_end(p);
    sl_trace_rewind(t, false);
    return st;
}

/* ---- what came of it ---- */

void sl_profile_plan(sl_profile *p, const sl_plan *plan)
{
    assert(plan->n_units == p->plan->n_units && plan->n_parts == p->plan->n_parts);
    p->plan = plan;
}

const sl_profile_sums *sl_profile_sums_of(sl_profile *p)
{
    sl_profile_sums *s = &p->sums;
    reads_end(p);
    span_end(p);
    s->wall_ns = s->before_ns + p->now_ns;
    return s;
}

const sl_profile_unit *sl_profile_unit_of(const sl_profile *p, uint32_t unit)
{
    return &p->unit[unit];
}

const sl_profile_part *sl_profile_part_of(const sl_profile *p, uint32_t part)
{
    return &p->part[part];
}
