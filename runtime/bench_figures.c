#include "bench_figures.h"

#include <math.h>
#include <stdlib.h>

static double per(double x, double n)
{
    return n > 0 ? x / n : (double)NAN;
}

double sl_trial_rate(const sl_trial_phase *p)
{
    return per((double)p->took.tokens, p->took.seconds);
}

/* A limit that the set has of its own may be lower than the disk. */
static double disk_of(const sl_bench *b, uint32_t set)
{
    const double limit = (double)b->set[set].o.disk_limit, disk = b->survey.disk;
    return limit > 0 && (disk <= 0 || limit < disk) ? limit : disk;
}

double sl_trial_bound(const sl_bench *b, uint32_t set, const sl_trial_phase *p)
{
    const double s = sl_rates_bound(disk_of(b, set), b->survey.memory, (double)p->missed_bytes,
                                    (double)p->used_bytes);
    return s > 0 ? s : (double)NAN;
}

/* ---- medians --------------------------------------------------------------------------------- */
enum { MOST_REPEATS = 1000 };

typedef struct sample {
    uint32_t n;
    double x[MOST_REPEATS];
} sample;

static void add(sample *s, double x)
{
    if (!isnan(x) && s->n < MOST_REPEATS)
        s->x[s->n++] = x;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static sl_spread spread_of(sample *s)
{
    const uint32_t n = s->n;
    if (!n)
        return (sl_spread){(double)NAN, (double)NAN, (double)NAN};
    qsort(s->x, n, sizeof s->x[0], by_value);
    return (sl_spread){s->x[0], (s->x[(n - 1) / 2] + s->x[n / 2]) / 2, s->x[n - 1]};
}

typedef double figure_fn(const sl_bench *b, uint32_t set, const sl_trial_phase *p);

static double rate(const sl_bench *b, uint32_t set, const sl_trial_phase *p)
{
    return sl_trial_rate(p);
}
static double share(const sl_bench *b, uint32_t set, const sl_trial_phase *p)
{
    return sl_trial_bound(b, set, p) / p->took.seconds;
}
static double bound(const sl_bench *b, uint32_t set, const sl_trial_phase *p)
{
    return (double)p->took.tokens / sl_trial_bound(b, set, p);
}
static double read_per_token(const sl_bench *b, uint32_t set, const sl_trial_phase *p)
{
    return per((double)p->took.io.bytes_read, (double)p->took.tokens);
}
static double missed_per_token(const sl_bench *b, uint32_t set, const sl_trial_phase *p)
{
    return per((double)p->missed_bytes, (double)p->took.tokens);
}
static double used_per_token(const sl_bench *b, uint32_t set, const sl_trial_phase *p)
{
    return per((double)p->used_bytes, (double)p->took.tokens);
}

static const sl_trial_phase *phase_of(const sl_bench *b, uint32_t budget, uint32_t set,
                                      uint32_t repeat, sl_trial_kind kind)
{
    const sl_bench_run *run = sl_bench_run_of(b, budget, set, repeat);
    return run->state == SL_RUN_DONE ? &run->t.phase[kind] : NULL;
}

static sl_spread spread_over(const sl_bench *b, uint32_t budget, uint32_t set, sl_trial_kind kind,
                             figure_fn *figure)
{
    sample s = {0};
    for (uint32_t r = 0; r < b->n_repeats; r++) {
        const sl_trial_phase *p = phase_of(b, budget, set, r, kind);
        if (p)
            add(&s, figure(b, set, p));
    }
    return spread_of(&s);
}

static sl_spread ratio_over(const sl_bench *b, uint32_t budget, uint32_t set, sl_trial_kind kind)
{
    sample s = {0};
    for (uint32_t r = 0; r < b->n_repeats; r++) {
        const sl_trial_phase *p = phase_of(b, budget, set, r, kind);
        const sl_trial_phase *first = phase_of(b, budget, 0, r, kind);
        if (p && first)
            add(&s, sl_trial_rate(p) / sl_trial_rate(first));
    }
    return spread_of(&s);
}

sl_bench_figures sl_bench_figures_of(const sl_bench *b, uint32_t budget, uint32_t set,
                                     sl_trial_kind kind)
{
    sl_bench_figures f = {0};
    sl_need_stats need = {0};
    double seconds = 0, waits = 0;
    for (uint32_t r = 0; r < b->n_repeats; r++) {
        const sl_trial_phase *p = phase_of(b, budget, set, r, kind);
        if (!p)
            continue;
        f.n++;
        sl_need_stats_add(&need, &p->took.io.need, 1);
        seconds += p->took.seconds;
        waits += (double)p->took.io.wait_ns / 1e9;
    }
    f.rate = spread_over(b, budget, set, kind, rate);
    f.ratio = ratio_over(b, budget, set, kind);
    f.bound = spread_over(b, budget, set, kind, bound).median;
    f.share = spread_over(b, budget, set, kind, share).median;
    f.wait_share = per(waits, seconds);
    f.hit_rate = per((double)need.hits, (double)need.needs);
    f.precision = per((double)need.guesses_right, (double)need.guesses);
    f.read_per_token = spread_over(b, budget, set, kind, read_per_token).median;
    f.missed_per_token = spread_over(b, budget, set, kind, missed_per_token).median;
    f.used_per_token = spread_over(b, budget, set, kind, used_per_token).median;
    return f;
}

uint64_t sl_bench_peak(const sl_bench *b, uint32_t budget, uint32_t set)
{
    uint64_t peak = 0;
    for (uint32_t r = 0; r < b->n_repeats; r++) {
        const sl_bench_run *run = sl_bench_run_of(b, budget, set, r);
        if (run->state == SL_RUN_DONE && run->t.peak_bytes > peak)
            peak = run->t.peak_bytes;
    }
    return peak;
}

/* ---- runs ------------------------------------------------------------------------------------ */
sl_bench_run *sl_bench_run_of(const sl_bench *b, uint32_t budget, uint32_t set, uint32_t repeat)
{
    return &b->run[((uint64_t)budget * b->n_sets + set) * b->n_repeats + repeat];
}

const char *sl_bench_name(uint32_t set)
{
    static const char *const name[SL_BENCH_SETS] = {"A", "B", "C", "D", "E", "F", "G", "H", "I",
                                                    "J", "K", "L", "M", "N", "O", "P", "Q"};
    return name[set];
}

const char *sl_bench_phase_name(sl_trial_kind kind, bool words)
{
    static const char *const name[SL_TRIAL_PHASES][2] = {{"cold_prefill", "cold prefill"},
                                                         {"cold_decode", "cold decode"},
                                                         {"warm_prefill", "warm prefill"},
                                                         {"warm_decode", "warm decode"}};
    return name[kind][words];
}

sl_bench_cold sl_bench_cold_of(const sl_bench *b, uint32_t budget, uint32_t set)
{
    sl_bench_cold cold = {.how = "no run was complete"};
    for (uint32_t r = 0; r < b->n_repeats; r++) {
        const sl_bench_run *run = sl_bench_run_of(b, budget, set, r);
        if (run->state != SL_RUN_DONE)
            continue;
        cold = (sl_bench_cold){run->t.cold.proven, run->t.cold.how};
        if (!cold.proven)
            break;
    }
    return cold;
}

const sl_trial *sl_bench_any(const sl_bench *b, uint32_t budget, uint32_t set, uint64_t *floor)
{
    *floor = 0;
    for (uint32_t r = 0; r < b->n_repeats; r++) {
        const sl_bench_run *run = sl_bench_run_of(b, budget, set, r);
        if (run->state == SL_RUN_DONE)
            return &run->t;
        if (run->state == SL_RUN_UNDER_FLOOR)
            *floor = run->t.floor_bytes;
    }
    return NULL;
}

bool sl_bench_lossy(const sl_bench *b, uint32_t set)
{
    const sl_options *o = &b->set[set].o, *first = &b->set[0].o;
    return o->kv != first->kv || o->io == SL_IO_NULL || first->io == SL_IO_NULL;
}

/* The complete run that came before all others. */
static const sl_bench_run *first_run(const sl_bench *b)
{
    const uint64_t n = (uint64_t)b->budgets.n * b->n_sets * b->n_repeats;
    const sl_bench_run *first = NULL;
    for (uint64_t i = 0; i < n; i++)
        if (b->run[i].state == SL_RUN_DONE && (!first || b->run[i].at < first->at))
            first = &b->run[i];
    return first;
}

bool sl_bench_same_output(const sl_bench *b, uint32_t set)
{
    const sl_bench_run *first = first_run(b);
    for (uint32_t m = 0; m < b->budgets.n; m++)
        for (uint32_t r = 0; r < b->n_repeats; r++) {
            const sl_bench_run *run = sl_bench_run_of(b, m, set, r);
            if (run->state == SL_RUN_DONE && run->t.hash != first->t.hash)
                return false;
        }
    return true;
}

uint32_t sl_bench_done(const sl_bench *b)
{
    const uint64_t n = (uint64_t)b->budgets.n * b->n_sets * b->n_repeats;
    uint32_t done = 0;
    for (uint64_t i = 0; b->run && i < n; i++)
        done += b->run[i].state == SL_RUN_DONE;
    return done;
}
