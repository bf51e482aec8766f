/* The report of bench for other programs: CSV, Markdown, JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_figures.h"
#include "report.h"
#include "term.h"

/* ---- CSV ------------------------------------------------------------------------------------- */
static void csv_number(double x)
{
    if (isnan(x))
        sl_outf(",");
    else
        sl_outf(",%.9g", x);
}

/* In quotes, which are doubled inside. */
static void csv_text(const char *text)
{
    sl_out(",\"", 2);
    for (; *text; text++)
        sl_outf(*text == '"' ? "\"%c" : "%c", *text);
    sl_out("\"", 1);
}

static double share_of(double some, double whole)
{
    return whole > 0 ? some / whole : (double)NAN;
}

static void csv_phase(const sl_bench *b, const sl_bench_run *run, uint32_t set, uint32_t repeat,
                      sl_trial_kind kind)
{
    const sl_trial_phase *p = &run->t.phase[kind];
    const sl_need_stats *n = &p->took.io.need;
    const double bound = sl_trial_bound(b, set, p);
    sl_outf("%" PRIu32 ",%" PRIu64 ",%s", run->at, run->t.budget_bytes, sl_bench_name(set));
    csv_text(b->set[set].text);
    sl_outf(",%" PRIu32 ",%s,%" PRIu64, repeat + 1, sl_bench_phase_name(kind, false),
            p->took.tokens);
    csv_number(p->took.seconds);
    csv_number(sl_trial_rate(p));
    csv_number(bound);
    csv_number(bound / p->took.seconds);
    csv_number((double)p->took.io.wait_ns / 1e9);
    sl_outf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64, p->took.io.bytes_read, p->missed_bytes,
            p->used_bytes);
    csv_number(share_of((double)n->hits, (double)n->needs));
    csv_number(share_of((double)n->guesses_right, (double)n->guesses));
    sl_outf(",%" PRIu64 ",%d,%016" PRIx64 "\n", run->t.peak_bytes, run->t.cold.proven, run->t.hash);
}

void sl_bench_print_csv(const sl_bench *b)
{
    sl_outf("run,budget_bytes,set,options,repeat,phase,tokens,seconds,tokens_per_s,bound_s,"
            "bound_share,wait_s,bytes_read,missed_bytes,used_bytes,hit_rate,guesses_right,"
            "peak_bytes,cold_proven,output\n");
    for (uint32_t m = 0; m < b->budgets.n; m++)
        for (uint32_t s = 0; s < b->n_sets; s++)
            for (uint32_t r = 0; r < b->n_repeats; r++) {
                const sl_bench_run *run = sl_bench_run_of(b, m, s, r);
                for (unsigned kind = 0; run->state == SL_RUN_DONE && kind < SL_TRIAL_PHASES; kind++)
                    csv_phase(b, run, s, r, (sl_trial_kind)kind);
            }
}

/* ---- Markdown -------------------------------------------------------------------------------- */
static void markdown_percent(double x)
{
    if (isnan(x))
        sl_outf(" |");
    else
        sl_outf(" %.0f %% |", 100 * x);
}

static void markdown_spread(sl_spread s)
{
    if (isnan(s.median))
        sl_outf(" |");
    else if (s.least < s.most)
        sl_outf(" %.2f (%.2f–%.2f) |", s.median, s.least, s.most);
    else
        sl_outf(" %.2f |", s.median);
}

/* Bars would end the cell. */
static void markdown_options(const char *text)
{
    sl_out(" `", 2);
    for (; *text; text++)
        sl_outf(*text == '|' ? "\\%c" : "%c", *text);
    sl_outf("` |");
}

static void markdown_phase(const sl_bench *b, uint32_t m, uint32_t set, sl_trial_kind kind)
{
    char a[SL_SHORT];
    uint64_t floor;
    const sl_trial *any = sl_bench_any(b, m, set, &floor);
    const sl_bench_figures f = sl_bench_figures_of(b, m, set, kind);
    if (!any)
        return;
    const bool unproven = kind < SL_WARM_PREFILL && !sl_bench_cold_of(b, m, set).proven;
    sl_outf("| %s |", sl_show_bytes(a, any->budget_bytes));
    if (b->n_sets > 1)
        markdown_options(*b->set[set].text ? b->set[set].text : "as given");
    sl_outf(" %s%s |", sl_bench_phase_name(kind, true), unproven ? " (not proven)" : "");
    markdown_spread(f.rate);
    if (b->n_sets > 1)
        markdown_spread(f.ratio);
    markdown_percent(f.share);
    markdown_percent(f.wait_share);
    markdown_percent(f.hit_rate);
    markdown_percent(f.precision);
    sl_outf(" %.1f | %" PRIu64 " |\n", f.read_per_token / 1e6, sl_bench_peak(b, m, set) >> 20);
}

void sl_bench_print_markdown(const sl_bench *b)
{
    const bool sets = b->n_sets > 1;
    sl_outf("| memory |%s | tokens/s |%s of the bound | waits | hits | guesses right | MB read per "
            "token | peak MiB |\n",
            sets ? " options |" : "", sets ? " against the first |" : "");
    sl_outf("|---|%s---|---|%s---|---|---|---|---|---|\n", sets ? "---|" : "", sets ? "---|" : "");
    for (uint32_t m = 0; m < b->budgets.n; m++)
        for (uint32_t s = 0; s < b->n_sets; s++)
            for (unsigned kind = 0; kind < SL_TRIAL_PHASES; kind++)
                markdown_phase(b, m, s, (sl_trial_kind)kind);
}

/* ---- JSON ------------------------------------------------------------------------------------ */
static void write_spread(sl_json_writer *w, const char *key, sl_spread s)
{
    sl_json_write_object(w, key);
    sl_json_write_double(w, "median", s.median);
    sl_json_write_double(w, "lowest", s.least);
    sl_json_write_double(w, "highest", s.most);
    sl_json_write_close(w);
}

static void write_phase(sl_json_writer *w, const sl_bench *b, uint32_t m, uint32_t set,
                        sl_trial_kind kind)
{
    const sl_bench_figures f = sl_bench_figures_of(b, m, set, kind);
    sl_json_write_object(w, sl_bench_phase_name(kind, false));
    write_spread(w, "tokens_per_s", f.rate);
    if (b->n_sets > 1)
        write_spread(w, "ratio", f.ratio);
    sl_json_write_double(w, "bound_tokens_per_s", f.bound);
    sl_json_write_double(w, "bound_share", f.share);
    sl_json_write_double(w, "wait_share", f.wait_share);
    sl_json_write_double(w, "hit_rate", f.hit_rate);
    sl_json_write_double(w, "guesses_right", f.precision);
    sl_json_write_double(w, "read_bytes_per_token", f.read_per_token);
    sl_json_write_double(w, "missed_bytes_per_token", f.missed_per_token);
    sl_json_write_double(w, "used_bytes_per_token", f.used_per_token);
    sl_json_write_array(w, "runs");
    for (uint32_t r = 0; r < b->n_repeats; r++) {
        const sl_bench_run *run = sl_bench_run_of(b, m, set, r);
        if (run->state == SL_RUN_DONE)
            sl_phase_write(w, NULL, &run->t.phase[kind].took);
    }
    sl_json_write_close(w);
    sl_json_write_close(w);
}

static void write_memory(sl_json_writer *w, const sl_trial *t)
{
    sl_json_write_object(w, "memory");
    sl_json_write_uint(w, "budget", t->budget_bytes);
    sl_json_write_uint(w, "used", t->charged_bytes);
    sl_json_write_uint(w, "floor", t->floor_bytes);
    sl_json_write_object(w, "weights");
    sl_split_write(w, &t->split, t->part_bytes);
    sl_json_write_close(w);
    sl_json_write_close(w);
}

static void write_runs(sl_json_writer *w, const sl_bench *b, uint32_t m, uint32_t set)
{
    char output[17];
    sl_json_write_array(w, "runs");
    for (uint32_t r = 0; r < b->n_repeats; r++) {
        const sl_bench_run *run = sl_bench_run_of(b, m, set, r);
        if (run->state != SL_RUN_DONE)
            continue;
        snprintf(output, sizeof output, "%016" PRIx64, run->t.hash);
        sl_json_write_object(w, NULL);
        sl_json_write_uint(w, "run", run->at);
        sl_json_write_string(w, "output", output);
        sl_json_write_uint(w, "peak", run->t.peak_bytes);
        sl_json_write_bool(w, "cold_proven", run->t.cold.proven);
        sl_json_write_string(w, "cold_how", run->t.cold.how);
        sl_json_write_uint(w, "cached_bytes", run->t.cold.cached_bytes);
        sl_json_write_uint(w, "block_layer_bytes", run->t.cold.block_bytes);
        sl_json_write_uint(w, "read_bytes", run->t.cold.read_bytes);
        sl_json_write_close(w);
    }
    sl_json_write_close(w);
}

static void write_set(sl_json_writer *w, const sl_bench *b, uint32_t m, uint32_t set)
{
    uint64_t floor;
    const sl_trial *t = sl_bench_any(b, m, set, &floor);
    sl_json_write_object(w, NULL);
    sl_json_write_string(w, "set", sl_bench_name(set));
    if (!t && floor)
        sl_json_write_uint(w, "floor", floor); /* the budget is less */
    if (t) {
        sl_json_write_uint(w, "context", t->n_ctx);
        sl_json_write_uint(w, "chunk", t->chunk);
        sl_json_write_string(w, "kv", sl_kv_name(t->kv));
        sl_json_write_uint(w, "threads", t->n_threads);
        sl_json_write_string(w, "cpu_level", sl_cpu_level_name(t->level));
        sl_json_write_string(w, "engine", t->engine);
        sl_json_write_string(w, "mode", sl_io_name(t->split.io));
        sl_json_write_string(w, "refused", t->refused);
        sl_json_write_bool(w, "cold_proven", sl_bench_cold_of(b, m, set).proven);
        sl_json_write_uint(w, "peak", sl_bench_peak(b, m, set));
        write_memory(w, t);
        for (unsigned kind = 0; kind < SL_TRIAL_PHASES; kind++)
            write_phase(w, b, m, set, (sl_trial_kind)kind);
        write_runs(w, b, m, set);
    }
    sl_json_write_close(w);
}

static void write_sets(sl_json_writer *w, const sl_bench *b)
{
    sl_json_write_array(w, "sets");
    for (uint32_t s = 0; s < b->n_sets; s++) {
        sl_json_write_object(w, NULL);
        sl_json_write_string(w, "set", sl_bench_name(s));
        sl_json_write_string(w, "options", b->set[s].text);
        sl_json_write_bool(w, "same_output", sl_bench_same_output(b, s));
        sl_json_write_close(w);
    }
    sl_json_write_close(w);
}

static void write_budgets(sl_json_writer *w, const sl_bench *b)
{
    uint64_t floor;
    sl_json_write_array(w, "budgets");
    for (uint32_t m = 0; m < b->budgets.n; m++) {
        const sl_trial *t = sl_bench_any(b, m, 0, &floor);
        sl_json_write_object(w, NULL);
        sl_json_write_uint(w, "budget", t ? t->budget_bytes : b->budgets.item[m].bytes);
        sl_json_write_array(w, "sets");
        for (uint32_t s = 0; s < b->n_sets; s++)
            write_set(w, b, m, s);
        sl_json_write_close(w);
        sl_json_write_close(w);
    }
    sl_json_write_close(w);
}

static double known(double rate)
{
    return rate > 0 ? rate : (double)NAN;
}

sl_status sl_bench_print_json(const sl_bench *b, sl_err *err)
{
    const sl_survey *s = &b->survey;
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "out of memory for the report");
    sl_json_write_object(w, NULL);
    sl_json_write_string(w, "command", "bench");
    sl_json_write_string(w, "model", b->o->operand);
    sl_json_write_string(w, "family", s->family);
    sl_json_write_uint(w, "always_bytes", s->always_bytes);
    sl_json_write_uint(w, "experts_bytes", s->on_demand_bytes);
    sl_json_write_uint(w, "experts_per_layer", s->n_experts);
    sl_json_write_uint(w, "experts_per_token", s->n_used);
    sl_json_write_double(w, "disk_bytes_per_s", known(s->disk));
    sl_json_write_double(w, "disk_bytes_per_s_lowest", known(s->disk_least));
    sl_json_write_string(w, "disk_source", sl_rate_source_name(s->disk_source));
    sl_json_write_double(w, "memory_bytes_per_s", known(s->memory));
    sl_json_write_uint(w, "prompt_tokens", b->n_prompt);
    sl_json_write_uint(w, "decode_tokens", b->n_tokens);
    sl_json_write_uint(w, "repeats", b->n_repeats);
    sl_json_write_bool(w, "interrupted", b->interrupted);
    write_sets(w, b);
    write_budgets(w, b);
    sl_json_write_close(w);
    sl_status st = sl_report_json(&w, err);
    sl_json_writer_free(&w);
    return st;
}
