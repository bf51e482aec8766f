/* sluice simulate: a trace replayed under one budget or a list of them, as a table, CSV or JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../stream/simulate.h"
#include "budgets.h"
#include "command.h"
#include "report.h"
#include "setup.h"
#include "term.h"
#include "words.h"

enum { DISK_USUAL_LATENCY_US = 80, DISK_USUAL_DEPTH = 32 };

typedef struct line {
    uint64_t budget;
    bool under_floor; /* then only the floor below is known */
    uint64_t floor;   /* the least budget that works */
    sl_simulation s;
} line;

typedef struct command {
    const sl_options *o;
    sl_trace *trace;
    const sl_trace_about *about;
    const sl_trace_sums *sums;
    sl_simulate_options so;
    sl_budgets budgets; /* none: the run's own */
    line *lines;
    uint32_t n_lines;
    sl_progress progress;
    uint64_t done; /* passes of the lines before */
} command;

/* ---- options --------------------------------------------------------------------------------- */
static bool next_number(const char **at, double most, double *out)
{
    char text[SL_WORD], *end;
    if (!sl_next_word(at, ',', text))
        return false;
    *out = strtod(text, &end);
    return !*end && *out >= 0 && *out <= most;
}

static sl_status read_disk(command *c, sl_err *err)
{
    const char *at = c->o->disk_model;
    uint64_t rate = (uint64_t)2 << 30, alone = 0;
    double latency = DISK_USUAL_LATENCY_US, depth = DISK_USUAL_DEPTH;
    bool ok = !at || sl_next_size(&at, ',', &rate);
    if (ok && at)
        ok = next_number(&at, 1e9, &latency);
    if (ok && at)
        ok = next_number(&at, 65536, &depth);
    if (ok && at)
        ok = sl_next_size(&at, ',', &alone) && alone >= 1000000 && !at;
    c->so.disk = (sl_disk_model){.bytes_per_s = (double)rate,
                                 .latency_ns = (uint64_t)(latency * 1000 + 0.5),
                                 .depth = (uint32_t)depth,
                                 .alone_per_s = (double)alone};
    if (ok && rate >= 1000000 && rate <= (uint64_t)1 << 49 && depth >= 1)
        return SL_OK;
    return sl_fail(
        err, SL_EINVAL,
        "--disk: '%.60s' is not accepted; RATE[,LATENCY[,DEPTH[,ALONE]]] is: a size of at "
        "least 1M, microseconds, 1 to 65536 reads, a size of at least 1M",
        c->o->disk_model);
}

static void read_rest(command *c)
{
    const sl_options *o = c->o;
    sl_stream_options *s = &c->so.stream;
    *s = c->about->options;
    if (s->io == SL_IO_NULL)
        s->io = SL_IO_AUTO;
    if (o->disk_model)
        s->disk_limit = 0;
    sl_setup_speed(o, s);
    c->so.hints = o->predict < 0 ? SL_SIMULATE_ALL_HINTS : o->predict;
}

/* ---- the runs -------------------------------------------------------------------------------- */
static bool progress(void *ctx, uint64_t passes)
{
    command *c = ctx;
    sl_progress_update(&c->progress, c->done + passes);
    return sl_interrupted();
}

static sl_status run_line(command *c, line *l, sl_err *err)
{
    const uint64_t other = c->about->other_bytes;
    sl_err why = {0};
    c->so.stream.memory_bytes = l->budget > other ? l->budget - other : 0;
    sl_status st = sl_simulate(c->trace, &c->so, &l->s, &why);
    l->floor = l->s.split.floor_bytes + other;
    l->under_floor = st == SL_EBUDGET;
    c->done += c->sums->passes;
    return st == SL_EBUDGET ? SL_OK : st ? sl_fail(err, st, "%s", why.text) : SL_OK;
}

static sl_status run_all(command *c, sl_err *err)
{
    const uint32_t n = c->budgets.n ? c->budgets.n : 1;
    sl_status st = SL_OK;
    c->lines = calloc(n, sizeof *c->lines);
    if (!c->lines)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    c->so.progress = progress;
    c->so.ctx = c;
    sl_interrupt_catch();
    sl_progress_begin(&c->progress, "simulating", n * c->sums->passes, false);
    for (; c->n_lines < n && !st; c->n_lines++) {
        line *l = &c->lines[c->n_lines];
        l->budget = c->budgets.n ? c->budgets.item[c->n_lines].bytes
                                 : c->about->options.memory_bytes + c->about->other_bytes;
        st = run_line(c, l, err);
    }
    sl_progress_end(&c->progress);
    const line *l = c->lines;
    char a[SL_SHORT], b[SL_SHORT];
    if (!st && n == 1 && l->under_floor)
        st = sl_fail(err, SL_EBUDGET,
                     "--memory %s is too little memory; for the parts of this trace %s is the "
                     "least that works",
                     sl_show_bytes(a, l->budget), sl_show_bytes(b, l->floor));
    return st;
}

/* ---- the report ------------------------------------------------------------------------------ */
static double per(double x, double n)
{
    return n > 0 ? x / n : (double)NAN;
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static double rate_of(const sl_simulated *p)
{
    return per((double)p->rows, seconds(p->ns));
}

static double hit_rate(const line *l)
{
    return per((double)l->s.decode.need.hits, (double)l->s.decode.need.needs);
}

static double optimal_rate(const line *l)
{
    return per((double)l->s.optimal_hits, (double)l->s.decode.need.needs);
}

static void print_percent(double x)
{
    if (isnan(x))
        sl_outf(" %9s", "-");
    else
        sl_outf(" %7.1f %%", 100 * x);
}

static void print_number(int width, int digits, double x)
{
    if (isnan(x))
        sl_outf(" %*s", width, "-");
    else
        sl_outf(" %*.*f", width, digits, x);
}

static void print_per_token(uint64_t bytes, uint64_t tokens)
{
    char a[SL_SHORT];
    sl_outf(" %10s", tokens ? sl_show_bytes(a, bytes / tokens) : "-");
}

static void print_line(const line *l)
{
    char a[SL_SHORT], b[SL_SHORT];
    const sl_simulated *p = &l->s.prefill, *d = &l->s.decode;
    sl_outf("  %9s", sl_show_bytes(a, l->budget));
    if (l->under_floor) {
        sl_outf("   too little: %s is the least\n", sl_show_bytes(b, l->floor));
        return;
    }
    sl_outf(" %10s", p->passes ? sl_show_seconds(a, seconds(p->ns)) : "-");
    print_number(10, 2, rate_of(d));
    print_percent(per((double)d->wait_ns, (double)d->ns));
    print_percent(hit_rate(l));
    print_percent(optimal_rate(l));
    print_per_token(d->bytes_read, d->rows);
    print_per_token(d->need.wasted_bytes, d->rows);
    print_number(9, 1, per((double)d->evictions, (double)d->rows));
    sl_out("\n", 1);
}

static void print_table(const command *c)
{
    char a[SL_SHORT], b[SL_SHORT];
    const sl_trace_sums *s = c->sums;
    const sl_disk_model *d = &c->so.disk;
    const double prefill = seconds(s->prefill.compute_ns + s->prefill.wait_ns);
    const double decode = seconds(s->decode.compute_ns + s->decode.wait_ns);
    sl_outf("%s: %" PRIu64 " tokens of prefill, %" PRIu64 " decoded", c->about->model,
            s->prefill.rows, s->decode.rows);
    if (decode > 0)
        sl_outf("; as it ran, %s and %.2f tokens/s, %.1f %% of the time waiting",
                sl_show_seconds(a, prefill), (double)s->decode.rows / decode,
                100 * seconds(s->decode.wait_ns) / decode);
    sl_outf("\ndisk: %s, %.0f us, %" PRIu32 " at a time", sl_show_rate(b, d->bytes_per_s),
            (double)d->latency_ns / 1e3, d->depth);
    if (d->alone_per_s > 0)
        sl_outf(", %s for one alone", sl_show_rate(b, d->alone_per_s));
    sl_outf("\n\n");
    sl_outf("  %9s %10s %10s %9s %9s %9s %10s %10s %9s\n", "", "", "", "", "", "best", "read a",
            "wasted a", "evicted a");
    sl_outf("  %9s %10s %10s %9s %9s %9s %10s %10s %9s\n",
            c->about->other_bytes ? "budget" : "weights", "prefill", "tokens/s", "waiting", "hits",
            "hits", "token", "token", "token");
    for (uint32_t i = 0; i < c->n_lines; i++)
        print_line(&c->lines[i]);
}

/* One column or member. */
typedef struct figure {
    const char *name;
    double value;
} figure;

enum { N_FIGURES = 20 };

static uint32_t figures_of(const line *l, figure f[N_FIGURES])
{
    const sl_simulated *p = &l->s.prefill, *d = &l->s.decode;
    const figure all[] = {{"prefill_s", seconds(p->ns)},
                          {"prefill_wait_s", seconds(p->wait_ns)},
                          {"prefill_bytes_read", (double)p->bytes_read},
                          {"decode_s", seconds(d->ns)},
                          {"decode_tokens_per_s", rate_of(d)},
                          {"decode_wait_s", seconds(d->wait_ns)},
                          {"decode_compute_s", seconds(d->compute_ns)},
                          {"decode_bytes_read", (double)d->bytes_read},
                          {"needs", (double)d->need.needs},
                          {"hits", (double)d->need.hits},
                          {"hit_rate", hit_rate(l)},
                          {"optimal_hit_rate", optimal_rate(l)},
                          {"guesses", (double)d->need.guesses},
                          {"guesses_right", (double)d->need.guesses_right},
                          {"wasted_bytes", (double)d->need.wasted_bytes},
                          {"evictions", (double)d->evictions},
                          {"pool_slots", l->s.split.pool_slots},
                          {"ring_bytes", (double)l->s.split.ring_bytes},
                          {"pinned_bytes", (double)l->s.split.pinned_bytes},
                          {"streamed_bytes", (double)l->s.split.streamed_bytes}};
    _Static_assert(sizeof all / sizeof all[0] == N_FIGURES, "as many as there is room for");
    memcpy(f, all, sizeof all);
    return N_FIGURES;
}

static void print_csv(const command *c)
{
    figure f[N_FIGURES];
    const uint32_t n = figures_of(&c->lines[0], f);
    sl_outf("budget_bytes,floor_bytes");
    for (uint32_t k = 0; k < n; k++)
        sl_outf(",%s", f[k].name);
    sl_out("\n", 1);
    for (uint32_t i = 0; i < c->n_lines; i++) {
        const line *l = &c->lines[i];
        figures_of(l, f);
        sl_outf("%" PRIu64 ",%" PRIu64, l->budget, l->floor);
        for (uint32_t k = 0; k < n; k++) {
            sl_out(",", 1);
            if (!l->under_floor && !isnan(f[k].value))
                sl_outf("%.12g", f[k].value);
        }
        sl_out("\n", 1);
    }
}

static void write_run(sl_json_writer *w, const command *c)
{
    const sl_trace_sums *s = c->sums;
    sl_json_write_object(w, "run");
    sl_json_write_uint(w, "prefill_tokens", s->prefill.rows);
    sl_json_write_double(w, "prefill_s", seconds(s->prefill.compute_ns + s->prefill.wait_ns));
    sl_json_write_uint(w, "decode_tokens", s->decode.rows);
    sl_json_write_double(w, "decode_s", seconds(s->decode.compute_ns + s->decode.wait_ns));
    sl_json_write_double(w, "decode_wait_s", seconds(s->decode.wait_ns));
    sl_json_write_close(w);
}

static sl_status print_json(const command *c, sl_err *err)
{
    figure f[N_FIGURES];
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "out of memory for the report");
    sl_json_write_object(w, NULL);
    sl_json_write_string(w, "trace", c->o->operand);
    sl_json_write_string(w, "model", c->about->model);
    write_run(w, c);
    sl_json_write_double(w, "disk_bytes_per_s", c->so.disk.bytes_per_s);
    sl_json_write_double(w, "disk_latency_s", seconds(c->so.disk.latency_ns));
    sl_json_write_uint(w, "disk_depth", c->so.disk.depth);
    sl_json_write_double(w, "disk_alone_bytes_per_s", c->so.disk.alone_per_s);
    sl_json_write_uint(w, "other_bytes", c->about->other_bytes);
    sl_json_write_array(w, "budgets");
    for (uint32_t i = 0; i < c->n_lines; i++) {
        const line *l = &c->lines[i];
        const uint32_t n = l->under_floor ? 0 : figures_of(l, f);
        sl_json_write_object(w, NULL);
        sl_json_write_uint(w, "budget", l->budget);
        sl_json_write_uint(w, "floor", l->floor);
        for (uint32_t k = 0; k < n; k++)
            sl_json_write_double(w, f[k].name, f[k].value);
        sl_json_write_close(w);
    }
    sl_json_write_close(w);
    sl_json_write_close(w);
    return sl_report_json(&w, err);
}

static sl_status report(const command *c, sl_err *err)
{
    if (c->o->json)
        return print_json(c, err);
    if (c->o->csv)
        print_csv(c);
    else
        print_table(c);
    return SL_OK;
}

int sl_cmd_simulate(const sl_options *o)
{
    command c = {.o = o};
    sl_err err = {0};
    if (o->csv && o->json)
        return sl_usage_error("simulate: only one of --csv and --json");
    if ((o->memory_list && sl_budgets_parse(o->memory_list, false, &c.budgets, &err)) ||
        read_disk(&c, &err)) {
        sl_budgets_free(&c.budgets);
        return sl_usage_error("%s", err.text);
    }
    sl_status st = sl_trace_open(o->operand, &c.trace, &err);
    if (!st) {
        c.about = sl_trace_about_of(c.trace);
        c.sums = sl_trace_sums_of(c.trace);
        read_rest(&c);
        st = run_all(&c, &err);
    }
    if (!st)
        st = report(&c, &err);
    const bool interrupted = st == SL_ECANCELLED && sl_interrupted();
    if (st && !interrupted)
        sl_complain("%s", err.text);
    free(c.lines);
    sl_budgets_free(&c.budgets);
    sl_trace_close(&c.trace);
    return interrupted ? sl_interrupt_exit() : st ? SL_EXIT_FAILED : SL_EXIT_OK;
}
