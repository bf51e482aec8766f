#include "tune_race.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "term.h"

/* A duel that is not won: so many pairs, and a median below this, will hardly come to the gain. */
enum { LOST_PAIRS = 6 };
static const double LOST_GAIN = 0.015;

/* ---- one run ----------------------------------------------------------------------------------
 */
static double seconds_of(const sl_trial *t)
{
    double s = 0;
    for (uint32_t i = 0; i < SL_TRIAL_PHASES; i++)
        s += t->phase[i].took.seconds;
    return s;
}

static sl_status check_output(sl_race *r, const sl_trial *t, const char *text, sl_err *err)
{
    if (r->hashed && t->hash != r->hash)
        return sl_fail(err, SL_EFORMAT,
                       "the output with %s is not that of the first run (%016llx, not %016llx): no "
                       "setting may change it; this is a bug of sluice, and nothing is kept",
                       text, (unsigned long long)t->hash, (unsigned long long)r->hash);
    r->hashed = true;
    r->hash = t->hash;
    return SL_OK;
}

static void say_run(const sl_race *r, const char *text, const sl_trial *t)
{
    const uint64_t s = (sl_now_ns() - r->begin_ns) / 1000000000;
    const sl_phase *decode = &t->phase[SL_WARM_DECODE].took;
    sl_say("%2u:%02u  %7.3f s, %7.2f tokens/s  %s%s", (unsigned)(s / 60), (unsigned)(s % 60),
           seconds_of(t), (double)decode->tokens / decode->seconds, text, r->why ? r->why : "");
}

/* Welford: the variance of a run of the defaults. */
static void note_noise(sl_race *r, double x)
{
    const double off = x - r->mean;
    r->mean += off / ++r->n_usual;
    r->squares += off * (x - r->mean);
}

sl_status sl_race_run(sl_race *r, const sl_setting *s, double *seconds, sl_trial *whole,
                      sl_err *err)
{
    sl_trial own, *t = whole ? whole : &own;
    sl_options o = *r->base;
    char text[SL_SETTING_TEXT];
    sl_err why = {0};
    const uint64_t begin = sl_now_ns();
    const sl_child_watch watch = {NULL, r->log, r->log_ctx};
    sl_setting_apply(s, false, &o);
    const sl_trial_job job = {.o = &o,
                              .cold_ids = r->cold_ids,
                              .warm_ids = r->warm_ids,
                              .n_prompt = r->n_prompt,
                              .n_tokens = r->n_tokens,
                              .wrong_output = ++r->n_runs == r->wrong_run};
    sl_status st = sl_trial_run(&job, t, &watch, &why);
    sl_setting_show(text, s);
    if (st)
        return sl_fail(err, st, "%s%s%s", s->n ? text : "", s->n ? ": " : "", why.text);
    r->run_s = (double)(sl_now_ns() - begin) / 1e9;
    *seconds = seconds_of(t);
    if (!s->n && !r->why)
        note_noise(r, log(*seconds));
    say_run(r, text, t);
    return check_output(r, t, text, err);
}

bool sl_race_time_for(const sl_race *r, uint64_t until_ns, uint32_t n_runs)
{
    return (double)sl_now_ns() + r->run_s * n_runs * 1e9 <= (double)until_ns;
}

/* A setting that this machine refuses (memory for a ring, an engine) is out of the race; only what
 * no other setting would change ends it. */
static bool is_out(sl_status st)
{
    return st == SL_EBUDGET || st == SL_EUNSUPPORTED || st == SL_EINVAL || st == SL_ENOMEM;
}

/* ---- successive halving -----------------------------------------------------------------------
 */
typedef struct runner {
    sl_setting setting;
    double log_sum; /* of its seconds over the defaults' */
    uint32_t n;
    bool out;
} runner;

static double mean_log(const runner *a)
{
    return a->out ? 1e30 : a->n ? a->log_sum / a->n : 0;
}

static int by_ratio(const void *a, const void *b)
{
    const double x = mean_log(a), y = mean_log(b);
    return (x > y) - (x < y);
}

static sl_status run_one(sl_race *r, runner *a, double *seconds, sl_err *err)
{
    sl_err why = {0};
    const sl_status st = sl_race_run(r, &a->setting, seconds, NULL, &why);
    a->out = is_out(st);
    return st && !a->out ? sl_fail(err, st, "%s", why.text) : SL_OK;
}

/* Defaults, two settings, defaults: each is held against the mean of those around it. */
static sl_status run_two(sl_race *r, runner *a, runner *b, double *before, sl_err *err)
{
    const sl_setting usual = {0};
    double s[2] = {0}, after = 0;
    runner *two[2] = {a, b};
    sl_status st = *before > 0 ? SL_OK : sl_race_run(r, &usual, before, NULL, err);
    for (uint32_t i = 0; !st && i < 2; i++)
        if (two[i])
            st = run_one(r, two[i], &s[i], err);
    if (!st)
        st = sl_race_run(r, &usual, &after, NULL, err);
    for (uint32_t i = 0; !st && i < 2; i++)
        if (two[i] && !two[i]->out) {
            two[i]->log_sum += log(s[i] / (0.5 * (*before + after)));
            two[i]->n++;
        }
    *before = after;
    return st;
}

sl_status sl_race_halve(sl_race *r, sl_setting *s, uint32_t n, uint64_t until_ns, double *ratio,
                        sl_err *err)
{
    runner *a = calloc(n + 1, sizeof *a);
    double before = 0;
    sl_status st = a ? SL_OK : sl_fail(err, SL_ENOMEM, "out of memory");
    for (uint32_t i = 0; a && i < n; i++)
        a[i].setting = s[i];
    for (uint32_t left = n; !st && left; left /= 2) {
        for (uint32_t i = 0; !st && i < left && sl_race_time_for(r, until_ns, 4); i += 2)
            st = run_two(r, &a[i], i + 1 < left ? &a[i + 1] : NULL, &before, err);
        if (a)
            qsort(a, left, sizeof *a, by_ratio);
    }
    if (!st) {
        s[0] = a[0].out ? (sl_setting){0} : a[0].setting;
        *ratio = a[0].out ? 1 : exp(mean_log(&a[0]));
    }
    free(a);
    return st;
}

/* ---- climbing ---------------------------------------------------------------------------------
 */
/* Faster by this in a pair of runs: worth a second one. In the mean of the two it must be TAKE, and
 * as much as one run of the defaults differs from another: or options that do nothing gather. */
static const double HOPE = 0.01, TAKE = 0.02;
/* After two rounds what still moves is noise. */
enum { MOST_ROUNDS = 2 };

typedef struct climber {
    double best_s; /* a run of the best so far, */
    uint32_t age;  /* and how many runs ago that was */
} climber;

/* Runs in a row share a run of the best; a drift has no time to matter. */
enum { MOST_AGE = 2 };

static sl_status run_best(sl_race *r, climber *c, const sl_setting *best, sl_err *err)
{
    if (c->best_s > 0 && c->age < MOST_AGE)
        return SL_OK;
    c->age = 0;
    return sl_race_run(r, best, &c->best_s, NULL, err);
}

/* The setting against the best so far, in runs that take turns; *ratio 1: not better. */
static sl_status compare(sl_race *r, climber *c, const sl_setting *best, const sl_setting *other,
                         double *ratio, sl_err *err)
{
    double a[2] = {0}, b[2] = {0};
    sl_err why = {0};
    *ratio = 1;
    sl_status st = run_best(r, c, best, err);
    if (st)
        return st;
    a[0] = c->best_s;
    c->age++;
    st = sl_race_run(r, other, &b[0], NULL, &why);
    if (is_out(st))
        return SL_OK;
    if (st)
        return sl_fail(err, st, "%s", why.text);
    if (b[0] > a[0] * (1 - HOPE))
        return SL_OK;
    st = sl_race_run(r, other, &b[1], NULL, err);
    if (!st)
        st = sl_race_run(r, best, &a[1], NULL, err);
    const double both = st ? 1 : sqrt(b[0] / a[0] * (b[1] / a[1]));
    const double noise = r->n_usual > 2 ? sqrt(r->squares / (r->n_usual - 1)) : 0;
    if (both <= 1 - (noise > TAKE ? noise : TAKE) && b[1] < a[1] * (1 - HOPE))
        *ratio = both;
    *c = (climber){*ratio < 1 ? 0 : a[1], 0};
    return st;
}

/* Places to try beside the present one, nearest first. Without an order: all. */
static uint32_t neighbours(const sl_dim *d, uint32_t at, uint8_t *place)
{
    uint32_t n = 0;
    if (!d->usual) {
        for (uint32_t i = 0; i < d->n; i++)
            if (i != at)
                place[n++] = (uint8_t)i;
        return n;
    }
    const uint32_t here = at ? at : d->usual;
    for (uint32_t step = 1; step <= 2; step++) {
        if (here + step < d->n)
            place[n++] = (uint8_t)sl_dim_place(d, here + step);
        if (here > step)
            place[n++] = (uint8_t)sl_dim_place(d, here - step);
    }
    return n;
}

static sl_status climb_one(sl_race *r, climber *c, const sl_space *space, uint32_t dim, sl_point *p,
                           uint64_t until_ns, double *ratio, bool *moved, sl_err *err)
{
    uint8_t place[SL_DIM_VALUES];
    const uint32_t n = neighbours(&space->dim[dim], p->at[dim], place);
    sl_status st = SL_OK;
    for (uint32_t i = 0; !st && i < n && sl_race_time_for(r, until_ns, 4); i++) {
        const sl_setting best = sl_space_setting(space, p);
        sl_point next = *p;
        double gain = 1;
        next.at[dim] = place[i];
        const sl_setting other = sl_space_setting(space, &next);
        st = compare(r, c, &best, &other, &gain, err);
        if (gain < 1) {
            *p = next;
            *ratio *= gain;
            *moved = true;
        }
    }
    return st;
}

sl_status sl_race_climb(sl_race *r, const sl_space *space, sl_point *p, uint64_t until_ns,
                        double *ratio, sl_err *err)
{
    sl_status st = SL_OK;
    climber c = {0};
    *ratio = 1;
    bool moved = true;
    for (uint32_t round = 0; round < MOST_ROUNDS && moved && !st; round++) {
        moved = false;
        for (uint32_t known = 0; known < 2; known++)
            for (uint32_t i = 0; !st && i < space->n && sl_race_time_for(r, until_ns, 4); i++)
                if (space->dim[i].simulated == (known == 1))
                    st = climb_one(r, &c, space, i, p, until_ns, ratio, &moved, err);
    }
    return st;
}

/* ---- the duel ---------------------------------------------------------------------------------
 */
static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* P(at least k of n) when each is as likely as not. */
static double sign_test(uint32_t n, uint32_t k)
{
    double p = pow(0.5, n), sum = 0;
    for (uint32_t i = 0; i <= n; i++) {
        sum += i >= k ? p : 0;
        p *= (double)(n - i) / (i + 1);
    }
    return sum;
}

void sl_duel_judge(sl_duel *d)
{
    double gain[SL_DUEL_PAIRS];
    d->faster = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        gain[i] = d->usual[i] / d->other[i] - 1;
        d->faster += gain[i] > 0;
    }
    qsort(gain, d->n, sizeof gain[0], by_value);
    d->gain = d->n ? 0.5 * (gain[(d->n - 1) / 2] + gain[d->n / 2]) : 0;
    d->chance = sign_test(d->n, d->faster);
}

bool sl_duel_won(const sl_duel *d)
{
    return d->n && d->gain >= SL_TUNE_GAIN && d->chance <= SL_TUNE_CHANCE;
}

bool sl_duel_lost(const sl_duel *d)
{
    return d->n >= LOST_PAIRS && d->gain < LOST_GAIN;
}

sl_status sl_race_duel(sl_race *r, const sl_setting *s, sl_duel *d, sl_err *err)
{
    const sl_setting usual = {0};
    sl_status st = SL_OK;
    *d = (sl_duel){0};
    while (!st && d->n < SL_DUEL_PAIRS && !sl_duel_won(d) && !sl_duel_lost(d) &&
           sl_race_time_for(r, r->end_ns, 2)) {
        const bool first = d->n % 2 == 0; /* A B, B A */
        double *a = &d->usual[d->n], *b = &d->other[d->n];
        st = sl_race_run(r, first ? &usual : s, first ? a : b, NULL, err);
        if (!st)
            st = sl_race_run(r, first ? s : &usual, first ? b : a, NULL, err);
        d->n += !st;
        sl_duel_judge(d);
    }
    return st;
}
