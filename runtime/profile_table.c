/* A profile for people: where the time went, what the disk did, the units that took longest, and
 * one sentence about what limited the run. 80 columns. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_profile.h"
#include "report.h"
#include "term.h"

enum { UNITS_SHOWN = 12, COLUMNS = 3 };

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* ---- where the time went ---- */

/* A column: everything, or one kind of passes. */
typedef struct column {
    const char *title;
    sl_profile_work work;
    uint64_t ns, startup_ns, lost_ns, rows;
} column;

static void add_phase(column *c, const sl_profile_phase *p)
{
    for (uint32_t i = 0; i < SL_TRACE_MARKS; i++) {
        c->work.compute_ns[i] += p->work.compute_ns[i];
        c->work.wait_ns[i] += p->work.wait_ns[i];
    }
    c->ns += p->end_ns - p->start_ns;
    c->rows += p->rows;
}

static void make_columns(const sl_profile_report *r, column c[COLUMNS])
{
    const sl_profile_sums *s = r->sums;
    c[0] = (column){.title = "all",
                    .work = s->work,
                    .ns = s->wall_ns,
                    .startup_ns = s->before_ns,
                    .lost_ns = s->lost_ns};
    c[1] = (column){.title = "prefill"};
    c[2] = (column){.title = "decode"};
    for (uint32_t i = 0; i < s->n_phases; i++)
        add_phase(&c[s->phase[i].kind == SL_PASS_PREFILL ? 1 : 2], &s->phase[i]);
}

enum { PERCENT = 6 }; /* columns */

/* Columns that nothing was printed in come before the next thing that is. */
static void put_time(FILE *out, uint64_t ns, uint64_t whole, int *blanks)
{
    char a[SL_SHORT];
    fprintf(out, "%*s %10s", *blanks, "", ns ? sl_show_seconds(a, seconds(ns)) : "-");
    *blanks = ns ? 0 : PERCENT;
    if (ns)
        fprintf(out, " %3.0f %%", percent(ns, whole));
}

static void put_line(FILE *out, const char *name, const uint64_t ns[COLUMNS],
                     const column c[COLUMNS])
{
    int blanks = 0;
    if (!ns[0])
        return;
    fprintf(out, "  %-17.17s", name);
    for (uint32_t i = 0; i < COLUMNS; i++)
        if (c[i].ns)
            put_time(out, ns[i], c[i].ns, &blanks);
    fputs("\n", out);
}

static void put_times(const sl_profile_report *r, FILE *out)
{
    column c[COLUMNS];
    make_columns(r, c);
    int blanks = 0;
    fprintf(out, "\n%-19s", "time");
    for (uint32_t i = 0; i < COLUMNS; i++, blanks = PERCENT)
        if (c[i].ns)
            fprintf(out, "%*s %10s", blanks, "", c[i].title);
    fputs("\n", out);
    put_line(out, "startup", (uint64_t[]){c[0].startup_ns, 0, 0}, c);
    for (uint32_t m = 1; m <= r->n_marks; m++) {
        const uint32_t k = m % r->n_marks; /* "other" comes last */
        uint64_t ns[COLUMNS];
        for (uint32_t i = 0; i < COLUMNS; i++)
            ns[i] = c[i].work.compute_ns[k] + (k ? 0 : c[i].lost_ns);
        put_line(out, r->marks[k], ns, c);
    }
    for (uint32_t k = 0; k < r->n_marks; k++) {
        char name[32];
        uint64_t ns[COLUMNS];
        for (uint32_t i = 0; i < COLUMNS; i++)
            ns[i] = c[i].work.wait_ns[k];
        snprintf(name, sizeof name, "wait: %.20s", r->marks[k]);
        put_line(out, name, ns, c);
    }
    put_line(out, "sum", (uint64_t[]){c[0].ns, c[1].ns, c[2].ns}, c);
}

/* ---- what the disk did ---- */

static void put_classes(const sl_profile_report *r, FILE *out)
{
    const sl_profile_sums *s = r->sums;
    static const char *const why[SL_PRIORITIES] = {"when it was waited for", "ahead in order",
                                                   "for guesses"};
    const char *comma = "";
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < SL_PRIORITIES; i++)
        bytes += s->by_priority[i].bytes;
    fputs("  read ", out);
    for (uint32_t i = 0; i < SL_PRIORITIES; i++) {
        if (!s->by_priority[i].bytes)
            continue;
        fprintf(out, "%s%.0f %% %s", comma, percent(s->by_priority[i].bytes, bytes), why[i]);
        comma = ", ";
    }
    fputs("\n", out);
}

static void put_experts(const sl_profile_report *r, FILE *out)
{
    sl_profile_unit all = {0};
    char a[SL_SHORT];
    for (uint32_t u = 0; u < sl_plan_unit_count(r->plan); u++) {
        const sl_profile_unit *v = sl_profile_unit_of(r->profile, u);
        if (!v->guesses && !v->guessed_needs && !v->wasted_bytes)
            continue;
        all.needs += v->needs;
        all.hits += v->hits;
        all.in_time += v->in_time;
        all.late += v->late;
        all.wasted_bytes += v->wasted_bytes;
        all.guesses += v->guesses;
        all.guesses_right += v->guesses_right;
        all.guessed_needs += v->guessed_needs;
    }
    if (!all.needs)
        return;
    fprintf(out,
            "  experts: %" PRIu64 " needed: %.0f %% there (%.0f %% in time), %.0f %% late, "
            "%.0f %% missing\n",
            all.needs, percent(all.hits, all.needs), percent(all.in_time, all.needs),
            percent(all.late, all.needs), percent(all.needs - all.hits - all.late, all.needs));
    if (all.guesses)
        fprintf(out, "  guesses: precision %.0f %%, recall %.0f %%; %s read for nothing\n",
                percent(all.guesses_right, all.guesses),
                percent(all.guesses_right, all.guessed_needs), sl_show_bytes(a, all.wasted_bytes));
}

static void put_disk(const sl_profile_report *r, FILE *out)
{
    const sl_profile_reads *io = &r->sums->io;
    char a[SL_SHORT], b[SL_SHORT], c[SL_SHORT];
    fputs("\ndisk\n", out);
    if (!io->bytes) {
        fputs("  nothing was read\n", out);
        return;
    }
    fprintf(out, "  %s in %" PRIu64 " reads, %s at %s, of which %.0f %% beside computing\n",
            sl_show_bytes(a, io->bytes), io->reads, sl_show_seconds(b, seconds(io->busy_ns)),
            sl_show_rate(c, io->busy_ns ? (double)io->bytes / seconds(io->busy_ns) : 0),
            percent(io->overlap_ns, io->busy_ns));
    put_classes(r, out);
    put_experts(r, out);
}

/* ---- units ---- */

typedef struct ranked {
    uint32_t unit;
    uint64_t ns;
} ranked;

static int by_time(const void *a, const void *b)
{
    const uint64_t x = ((const ranked *)a)->ns, y = ((const ranked *)b)->ns;
    return x != y ? (x < y) - (x > y)
                  : (int)((const ranked *)a)->unit - (int)((const ranked *)b)->unit;
}

static int by_unit(const void *a, const void *b)
{
    return (int)((const ranked *)a)->unit - (int)((const ranked *)b)->unit;
}

static const char *time_or_dash(char *out, uint64_t ns)
{
    return ns ? sl_show_seconds(out, seconds(ns)) : "-";
}

static void put_unit(const sl_profile_report *r, FILE *out, uint32_t unit)
{
    const sl_profile_unit *u = sl_profile_unit_of(r->profile, unit);
    const bool rows = unit == sl_plan_unit_count(r->plan);
    char a[SL_SHORT], b[SL_SHORT], c[SL_SHORT], d[SL_SHORT], there[16] = "-", late[24] = "-";
    if (u->needs) {
        snprintf(there, sizeof there, "%.0f %%", percent(u->hits, u->needs));
        snprintf(late, sizeof late, "%.0f %%", percent(u->late, u->needs));
    }
    fprintf(out, "  %-24.24s %9s %9s %9s %9s %5s %5s\n",
            rows ? "rows" : sl_plan_unit_name(r->plan, unit), time_or_dash(a, u->compute_ns),
            time_or_dash(b, u->wait_ns), time_or_dash(c, u->io.busy_ns),
            u->io.bytes ? sl_show_bytes(d, u->io.bytes) : "-", there, late);
}

static void put_units(const sl_profile_report *r, FILE *out, ranked *list)
{
    const uint32_t all = sl_plan_unit_count(r->plan) + 1;
    uint32_t n = 0;
    for (uint32_t u = 0; u < all; u++) {
        const sl_profile_unit *v = sl_profile_unit_of(r->profile, u);
        if (v->compute_ns + v->wait_ns + v->io.bytes)
            list[n++] = (ranked){u, v->compute_ns + v->wait_ns};
    }
    const uint32_t shown = r->o->verbose || n <= UNITS_SHOWN ? n : UNITS_SHOWN;
    qsort(list, n, sizeof *list, by_time);
    qsort(list, shown, sizeof *list, by_unit);
    fprintf(out, "\n%-26s %9s %9s %9s %9s %5s %5s\n",
            shown < n ? "units that took longest" : "units", "compute", "wait", "disk", "read",
            "there", "late");
    for (uint32_t i = 0; i < shown; i++)
        put_unit(r, out, list[i].unit);
    if (shown < n)
        fprintf(out, "  and %" PRIu32 " more: --verbose prints them all\n", n - shown);
}

static void put_all(const sl_profile_report *r, FILE *out, ranked *list)
{
    char a[SL_SHORT], b[SL_SHORT];
    uint64_t rows[2] = {0};
    for (uint32_t i = 0; i < r->sums->n_phases; i++)
        rows[r->sums->phase[i].kind != SL_PASS_PREFILL] += r->sums->phase[i].rows;
    fprintf(out, "%.60s: %" PRIu64 " tokens of prompts, %" PRIu64 " decoded; %s in %s\n", r->model,
            rows[0], rows[1], sl_show_seconds(a, seconds(r->sums->wall_ns)),
            sl_show_bytes(b, r->budget.limit_bytes));
    put_times(r, out);
    put_disk(r, out);
    put_units(r, out, list);
    if (!r->complete)
        fputs("\nThe run was longer than its timeline, which is that of its first passes alone.\n",
              out);
    fprintf(out, "\n%s\n", r->verdict);
}

char *sl_profile_table(const sl_profile_report *r)
{
    char *text = NULL;
    size_t len = 0;
    ranked *list = calloc((uint64_t)sl_plan_unit_count(r->plan) + 1, sizeof *list);
    FILE *out = list ? open_memstream(&text, &len) : NULL;
    if (out)
        put_all(r, out, list);
    free(list);
    if (out && fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}
