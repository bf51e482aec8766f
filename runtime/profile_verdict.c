/* What limited a run, in one sentence. What more memory would give comes out of the simulator: the
 * recorded run with that memory, against the same simulation without it. */
#include <stdio.h>
#include <string.h>

#include "../stream/simulate.h"
#include "run_profile.h"
#include "report.h"
#include "term.h"

/* Shares of the time that is waited: from here on the disk decides, or is worth a word. Gains: the
 * least that is worth naming, and the one that is enough to look no further. */
static const double DISK_BOUND = 0.5, DISK_COUNTS = 0.1, GAIN_LEAST = 0.03, GAIN_ENOUGH = 0.1;
/* A part of less than this of the wait is not what a run waits for. */
static const double MOSTLY = 0.5;

uint64_t sl_profile_waited_ns(const sl_profile_work *w)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < SL_TRACE_MARKS; i++)
        sum += w->wait_ns[i];
    return sum;
}

uint64_t sl_profile_computed_ns(const sl_profile_work *w)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < SL_TRACE_MARKS; i++)
        sum += w->compute_ns[i];
    return sum;
}

const sl_profile_phase *sl_profile_main_phase(const sl_profile_report *r)
{
    const sl_profile_sums *s = r->sums;
    for (uint32_t i = s->n_phases; i > 0; i--)
        if (s->phase[i - 1].kind != SL_PASS_PREFILL)
            return &s->phase[i - 1];
    return s->n_phases ? &s->phase[s->n_phases - 1] : NULL;
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static double waited_share(const sl_profile_phase *p)
{
    return share(sl_profile_waited_ns(&p->work), p->end_ns - p->start_ns);
}

/* ---- more memory ---- */

typedef struct simulation {
    sl_progress progress;
    uint64_t done;
} simulation;

static bool progress(void *ctx, uint64_t passes)
{
    simulation *s = ctx;
    sl_progress_update(&s->progress, s->done + passes);
    return sl_interrupted();
}

/* Seconds that the phase takes with so many bytes more; 0: it cannot be said. */
static double simulate(const sl_profile_report *r, simulation *s, uint64_t more, bool *all_stay)
{
    const sl_profile_phase *p = sl_profile_main_phase(r);
    const sl_profile_reads *io = &r->sums->io;
    sl_simulate_options o = {
        .stream = r->stream, .hints = SL_SIMULATE_ALL_HINTS, .progress = progress, .ctx = s};
    sl_simulation out;
    /* The disk as it was: its rate has all of its latency in it. */
    o.disk = (sl_disk_model){.bytes_per_s = (double)io->bytes * 1e9 / (double)io->busy_ns,
                             .depth = SL_SCHED_READS};
    o.disk.bytes_per_s = o.disk.bytes_per_s < 1e6 ? 1e6 : o.disk.bytes_per_s;
    if (o.stream.io == SL_IO_NULL)
        o.stream.io = SL_IO_AUTO;
    o.stream.memory_bytes += more;
    sl_status st = sl_simulate(r->trace, &o, &out, NULL);
    s->done += sl_trace_sums_of(r->trace)->passes;
    if (st)
        return 0;
    *all_stay = sl_split_all_stay(&out.split);
    return (double)(p->kind == SL_PASS_PREFILL ? out.prefill.ns : out.decode.ns) / 1e9;
}

/* A quarter of the budget, as a power of two; then twice and four times that. */
static uint64_t first_step(const sl_profile_report *r)
{
    uint64_t step = 1 << 20;
    while (2 * step <= r->budget.limit_bytes / 4)
        step *= 2;
    return step;
}

static void ask_simulator(sl_profile_report *r)
{
    simulation s = {0};
    bool all_stay = false;
    sl_progress_begin(&s.progress, "simulating more memory",
                      (SL_WHAT_IFS + 1) * sl_trace_sums_of(r->trace)->passes, false);
    const double base = simulate(r, &s, 0, &all_stay);
    uint64_t more = first_step(r);
    for (; base > 0 && !all_stay && r->n_what_ifs < SL_WHAT_IFS; more *= 2) {
        const double then = simulate(r, &s, more, &all_stay);
        if (then <= 0)
            break;
        r->what_if[r->n_what_ifs++] = (sl_what_if){more, then, base / then - 1};
    }
    sl_progress_end(&s.progress);
}

static const sl_what_if *worth_naming(const sl_profile_report *r)
{
    const sl_what_if *best = NULL;
    for (uint32_t i = 0; i < r->n_what_ifs; i++) {
        if (r->what_if[i].gain >= GAIN_ENOUGH)
            return &r->what_if[i];
        if (r->what_if[i].gain >= GAIN_LEAST)
            best = &r->what_if[i];
    }
    return best;
}

/* ---- the sentence ---- */

/* The kind that takes more than the others; share of the time in *most. */
static const char *largest(const sl_profile_report *r, const sl_profile_phase *p, double *most)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < r->n_marks; i++)
        if (p->work.compute_ns[i] > p->work.compute_ns[best])
            best = i;
    *most = share(p->work.compute_ns[best], p->end_ns - p->start_ns);
    return r->marks[best];
}

static const char *waits_for(const sl_profile_report *r, const sl_profile_phase *p)
{
    const uint64_t all = sl_profile_waited_ns(&p->work);
    for (uint32_t i = 0; i < r->n_marks; i++)
        if (!strcmp(r->marks[i], "experts") && share(p->work.wait_ns[i], all) >= MOSTLY)
            return "experts";
    return "weights";
}

static void say_gain(sl_profile_report *r)
{
    const sl_what_if *w = worth_naming(r);
    const size_t n = strlen(r->verdict);
    char a[SL_SHORT], gain[32];
    if (w && w->gain < 9)
        snprintf(gain, sizeof gain, "+%.0f %%", 100 * w->gain);
    else if (w)
        snprintf(gain, sizeof gain, "%.0fx", w->gain + 1);
    if (w)
        snprintf(r->verdict + n, sizeof r->verdict - n, "; %s more would give %s",
                 sl_show_bytes(a, w->more_bytes), gain);
    else if (r->n_what_ifs)
        snprintf(r->verdict + n, sizeof r->verdict - n, "; more memory would give little");
}

void sl_profile_judge(sl_profile_report *r)
{
    const sl_profile_phase *p = sl_profile_main_phase(r);
    if (!p) {
        snprintf(r->verdict, sizeof r->verdict, "no token was evaluated");
        return;
    }
    const char *of = p->kind == SL_PASS_PREFILL ? "prompt" : "token";
    const double waited = waited_share(p);
    double most;
    const char *kind = largest(r, p, &most);
    if (r->trace && r->sums->io.busy_ns && waited >= DISK_COUNTS)
        ask_simulator(r);
    if (waited >= DISK_BOUND)
        snprintf(r->verdict, sizeof r->verdict, "disk-bound: %.0f %% of the %s waits for %s",
                 100 * waited, of, waits_for(r, p));
    else if (waited >= DISK_COUNTS)
        snprintf(r->verdict, sizeof r->verdict,
                 "compute and disk: %.0f %% of the %s is %.20s, %.0f %% waits for %s", 100 * most,
                 of, kind, 100 * waited, waits_for(r, p));
    else
        snprintf(r->verdict, sizeof r->verdict,
                 "compute-bound: %.0f %% of the %s is %.20s, %.0f %% waits for the disk",
                 100 * most, of, kind, 100 * waited);
    say_gain(r);
}
