#include "tune_simulate.h"

#include <stdlib.h>
#include <string.h>

#include "setup.h"
#include "term.h"

/* A value has to bring this much, or the option is left alone: less than what the simulator is
 * wrong by, and than what a run can show. */
static const double WORTH = 0.003;

enum { MOST_RUNS = 4096, MOST_DESCENTS = 5 };

typedef struct search {
    sl_tune_search *s;
    sl_trace *trace;
    sl_found *run; /* [MOST_RUNS] what was simulated */
    uint32_t n;
    uint64_t random;
    sl_status st;
    sl_err *err;
} search;

static bool over(const search *x)
{
    return x->st || x->n == MOST_RUNS || sl_now_ns() >= x->s->until_ns;
}

static bool stop(void *ctx, uint64_t passes)
{
    (void)ctx, (void)passes;
    return sl_interrupted();
}

static double run(search *x, const sl_point *p)
{
    sl_options o = *x->s->base;
    sl_simulation out;
    const sl_setting setting = sl_space_setting(x->s->space, p);
    const sl_stream_options usual = sl_stream_defaults();
    sl_simulate_options so = {
        .stream = sl_trace_about_of(x->trace)->options, .disk = x->s->disk, .progress = stop};
    sl_setting_apply(&setting, false, &o);
    so.stream.io = SL_IO_DIRECT;
    /* No run that counts writes a trace. */
    so.stream.memory_bytes = x->s->budget_bytes + SL_TRACE_MEMORY;
    so.stream.memory_bytes -= sl_trace_about_of(x->trace)->other_bytes;
    so.stream.ring_bytes = usual.ring_bytes;
    so.stream.pool_bytes = usual.pool_bytes;
    so.stream.in_flight_bytes = usual.in_flight_bytes;
    so.stream.piece_bytes = usual.piece_bytes;
    so.stream.hint_bytes = usual.hint_bytes;
    so.stream.policy = usual.policy;
    so.stream.half_life = usual.half_life;
    sl_setup_speed(&o, &so.stream);
    so.hints = o.predict < 0 ? (int64_t)x->s->n_used : (int64_t)o.predict;
    x->st = sl_simulate(x->trace, &so, &out, x->err);
    return (double)(out.prefill.ns + out.decode.ns) / 1e9;
}

/* Seconds; what was simulated before is remembered. A search that is over gives a time that is
 * never the best. */
static double seconds(search *x, const sl_point *p)
{
    for (uint32_t i = 0; i < x->n; i++)
        if (!memcmp(&x->run[i].point, p, sizeof *p))
            return x->run[i].seconds;
    if (over(x))
        return 1e30;
    const double s = run(x, p);
    if (x->st)
        return 1e30;
    x->run[x->n++] = (sl_found){*p, s};
    return s;
}

/* One option takes its best value. True: it moved. */
static bool move(search *x, uint32_t dim, sl_found *best)
{
    sl_point p = best->point;
    sl_found found = *best;
    for (uint32_t v = 0; v < x->s->space->dim[dim].n; v++) {
        p.at[dim] = (uint8_t)sl_dim_place(&x->s->space->dim[dim], v);
        const double s = seconds(x, &p);
        if (s < found.seconds * (1 - WORTH) || (!v && s <= found.seconds))
            found = (sl_found){p, s};
    }
    const bool moved = found.point.at[dim] != best->point.at[dim];
    *best = found;
    return moved;
}

/* Options that bring next to nothing are left open. */
static void simplify(search *x, sl_found *best)
{
    for (uint32_t i = 0; i < x->s->space->n; i++) {
        sl_point p = best->point;
        p.at[i] = 0;
        const double s = best->point.at[i] ? seconds(x, &p) : 1e30;
        if (s <= best->seconds * (1 + WORTH))
            *best = (sl_found){p, s};
    }
}

static sl_found descend(search *x, sl_point from)
{
    const sl_space *space = x->s->space;
    sl_found best = {from, seconds(x, &from)};
    for (bool moved = true; moved && !over(x);) {
        moved = false;
        for (uint32_t i = 0; i < space->n && !over(x); i++)
            moved |= space->dim[i].simulated && move(x, i, &best);
    }
    simplify(x, &best);
    return best;
}

static sl_point anywhere(search *x)
{
    sl_point p = {0};
    for (uint32_t i = 0; i < x->s->space->n; i++) {
        x->random = x->random * 6364136223846793005u + 1442695040888963407u;
        const sl_dim *d = &x->s->space->dim[i];
        if (d->simulated)
            p.at[i] = (uint8_t)sl_dim_place(d, (uint32_t)((x->random >> 33) % d->n));
    }
    return p;
}

/* In its place by seconds, if it is faster than the defaults and not there yet. */
static void keep(sl_tune_search *s, const sl_found *f)
{
    uint32_t i = 0;
    if (f->seconds >= s->usual_s * (1 - WORTH))
        return;
    while (i < s->n_found && s->found[i].seconds < f->seconds)
        i++;
    for (uint32_t k = 0; k < s->n_found; k++)
        if (!memcmp(&s->found[k].point, &f->point, sizeof f->point))
            return;
    if (i == SL_TUNE_FOUND)
        return;
    s->n_found += s->n_found < SL_TUNE_FOUND;
    memmove(&s->found[i + 1], &s->found[i], (s->n_found - 1 - i) * sizeof s->found[0]);
    s->found[i] = *f;
}

/* Each option of the best point by itself: where the simulator errs, it rarely errs for all. */
static void keep_singles(search *x, const sl_found *best)
{
    for (uint32_t i = 0; i < x->s->space->n; i++) {
        sl_found one = {.seconds = 1e30};
        one.point.at[i] = best->point.at[i];
        if (one.point.at[i])
            one.seconds = seconds(x, &one.point);
        keep(x->s, &one);
    }
}

sl_status sl_tune_simulate(sl_trace *trace, sl_tune_search *s, sl_err *err)
{
    search x = {.s = s, .trace = trace, .random = 1, .err = err};
    const sl_point usual = {0};
    s->n_found = 0;
    x.run = malloc(MOST_RUNS * sizeof *x.run);
    if (!x.run)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    s->usual_s = seconds(&x, &usual);
    for (uint32_t i = 0; i < MOST_DESCENTS && !over(&x); i++) {
        const sl_found best = descend(&x, i ? anywhere(&x) : s->start);
        keep(s, &best);
    }
    if (s->n_found && !x.st) {
        const sl_found best = s->found[0];
        keep_singles(&x, &best);
    }
    s->n_runs = x.n;
    free(x.run);
    return x.st;
}
