#include "reuse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../stream/simulate.h"
#include "../stream/trace.h"
#include "report.h"
#include "warm_start.h"

/* 1 - (1 - share^0.75)^3.9: the hits of the 30B-A3B shape (128 experts, 8 used, routing with a real
 * model's reuse) in pools of 7 to 50 %, between those of 64 tokens with all first uses and those
 * without any (docs/experiments.md). Used alike, it would be the share itself. */
static const double USUAL_SPREAD = 0.75, USUAL_REUSE = 3.9;

/* Of the guesses of two trained models: 74 and 90 % of what was needed had been guessed, 3 to 10 %
 * of the bytes were read in vain. */
static const double USUAL_RECALL = 0.8, USUAL_WASTED = 0.05;

double sl_reuse_usual(double share)
{
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return 1 - pow(1 - pow(share, USUAL_SPREAD), USUAL_REUSE);
}

/* ---- from uses ------------------------------------------------------------------------------- */
/* A sum over uses of 0.5^(age / h) of a part that is used with chance p has the mean p * h / ln 2
 * and, by chance alone, half of that as its variance. What the layer's parts differ by beyond that
 * is their own: shares are drawn to the mean by the rest. share: [n], one layer's. */
static void settle(double *share, uint32_t n)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += share[i];
        squares += share[i] * share[i];
    }
    const double mean = sum / n, variance = squares / n - mean * mean, chance = mean / 2;
    const double own = variance > chance ? 1 - chance / variance : 0;
    for (uint32_t i = 0; i < n && sum > 0; i++)
        share[i] = (mean + own * (share[i] - mean)) / sum;
}

static int larger_first(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

bool sl_reuse_of_uses(const float *use, const uint32_t *unit, uint32_t n, double *hits)
{
    double *share = malloc(((size_t)n + 1) * sizeof *share), sum = 0;
    for (uint32_t i = 0; share && i < n; i++)
        sum += share[i] = isfinite(use[i]) ? exp2((double)use[i]) : 0;
    for (uint32_t i = 0, first = 0; share && i < n; i++)
        if (i + 1 == n || unit[i + 1] != unit[i]) {
            settle(share + first, i + 1 - first);
            first = i + 1;
        }
    if (!share || !(sum > 0) || !isfinite(sum)) {
        free(share);
        return false;
    }
    qsort(share, n, sizeof *share, larger_first);
    sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += share[i];
    hits[0] = 0;
    for (uint32_t i = 0; i < n; i++)
        hits[i + 1] = i + 1 == n ? 1 : hits[i] + share[i] / sum;
    free(share);
    return true;
}

/* What the last run kept, if it kept anything; otherwise r stays as it is. */
static void take_kept(const sl_setup *s, sl_reuse *r)
{
    const sl_plan *p = sl_model_plan(s->model);
    float *use = sl_warm_start_uses(s, r->n);
    uint32_t *unit = malloc(((size_t)r->n + 1) * sizeof *unit), n = 0;
    r->hits = malloc(((size_t)r->n + 1) * sizeof *r->hits);
    for (uint32_t i = 0; use && unit && i < sl_plan_part_count(p) && n < r->n; i++) {
        const sl_part_view v = sl_plan_part_view(p, i);
        if (v.kind == SL_PART_ON_DEMAND)
            unit[n++] = v.unit;
    }
    if (use && unit && r->hits && n == r->n && sl_reuse_of_uses(use, unit, n, r->hits))
        r->source = SL_REUSE_KEPT;
    free(use);
    free(unit);
}

/* ---- from a trace ---------------------------------------------------------------------------- */
static sl_status replay(const sl_reuse *r, const sl_stream_options *stream, int64_t hints,
                        sl_simulation *out, sl_err *err)
{
    sl_simulate_options o = {.stream = *stream,
                             .disk = {.bytes_per_s = 2e9, .latency_ns = 100000, .depth = 32},
                             .hints = hints};
    return sl_simulate(r->trace, &o, out, err);
}

static sl_status take_trace(const sl_setup *s, const char *path, sl_reuse *r, sl_err *err)
{
    sl_status st = sl_trace_open(path, &r->trace, err);
    if (st)
        return st;
    sl_simulation sim;
    const sl_plan *theirs = sl_trace_plan(r->trace), *ours = sl_model_plan(s->model);
    if (sl_plan_on_demand_bytes(theirs) != sl_plan_on_demand_bytes(ours) ||
        sl_plan_always_bytes(theirs) != sl_plan_always_bytes(ours))
        return sl_fail(err, SL_EINVAL, "%s is a trace of another model: %s", path,
                       sl_trace_about_of(r->trace)->model);
    if (!sl_trace_sums_of(r->trace)->decode.rows)
        return sl_fail(err, SL_EINVAL, "%s: no token was decoded in this trace", path);
    r->source = SL_REUSE_TRACE;
    const sl_stream_options own = sl_trace_about_of(r->trace)->options;
    if (replay(r, &own, SL_SIMULATE_ALL_HINTS, &sim, NULL) || !sim.decode.need.guesses)
        return SL_OK;
    const sl_need_stats *n = &sim.decode.need;
    r->recall = (double)n->guesses_right / (double)n->needs;
    r->wasted = n->guesses_right ? (double)(n->guesses - n->guesses_right) / (double)n->guesses : 0;
    return SL_OK;
}

sl_status sl_reuse_open(const sl_setup *s, const char *trace, sl_reuse *out, sl_err *err)
{
    const sl_plan *p = sl_model_plan(s->model);
    *out = (sl_reuse){.recall = USUAL_RECALL, .wasted = USUAL_WASTED};
    for (uint32_t i = 0; i < sl_plan_part_count(p); i++)
        out->n += sl_plan_part_view(p, i).kind == SL_PART_ON_DEMAND;
    if (trace && !out->n)
        return sl_fail(err, SL_EINVAL, "--trace-in: this model has no experts: nothing to learn");
    if (trace)
        return take_trace(s, trace, out, err);
    if (out->n)
        take_kept(s, out);
    return SL_OK;
}

void sl_reuse_close(sl_reuse *r)
{
    free(r->hits);
    sl_trace_close(&r->trace);
    *r = (sl_reuse){0};
}

sl_status sl_reuse_hits(const sl_reuse *r, const sl_split *split, const sl_stream_options *stream,
                        double *hits, sl_err *err)
{
    *hits = 1;
    if (!r->n || split->pool_slots >= r->n)
        return SL_OK;
    if (r->source == SL_REUSE_KEPT)
        *hits = r->hits[split->pool_slots];
    if (r->source == SL_REUSE_USUAL)
        *hits = sl_reuse_usual((double)split->pool_slots / r->n);
    if (r->source != SL_REUSE_TRACE)
        return SL_OK;
    sl_simulation sim;
    sl_status st = replay(r, stream, 0, &sim, err);
    if (!st)
        *hits = (double)sim.decode.need.hits / (double)sim.decode.need.needs;
    return st;
}
