#include "plan_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "term.h"

/* ---- terms ----------------------------------------------------------------------------------- */
static const char WEIGHTS[] = "weights and I/O"; /* as sl_setup_price() calls it */

void sl_plan_terms(const sl_price *p, sl_budget *out)
{
    const sl_split *s = &p->split;
    *out = (sl_budget){.limit_bytes = p->budget.limit_bytes};
    const uint64_t parts =
        s->pinned_bytes + s->ring_bytes + s->pool_bytes + s->rows_bytes + s->io_bytes;
    for (uint32_t i = 0; i < p->budget.n_terms; i++) {
        const sl_budget_term *t = &p->budget.term[i];
        if (strcmp(t->name, WEIGHTS) != 0) {
            sl_budget_charge(out, t->name, t->bytes);
            continue;
        }
        sl_budget_charge(out, "pinned weights", s->pinned_bytes);
        sl_budget_charge(out, "ring", s->ring_bytes);
        sl_budget_charge(out, "expert pool", s->pool_bytes);
        sl_budget_charge(out, "rows", s->rows_bytes);
        sl_budget_charge(out, "I/O", s->io_bytes);
        if (t->bytes > parts)
            sl_budget_charge(out, "left over", t->bytes - parts);
    }
    if (sl_budget_left(out))
        sl_budget_charge(out, "left over", sl_budget_left(out));
}

static void print_terms(const sl_budget *b, const char *title)
{
    char text[SL_SHORT];
    sl_outf("\n%s %s\n", title, sl_show_bytes(text, b->limit_bytes));
    for (uint32_t i = 0; i < b->n_terms; i++)
        if (b->term[i].bytes)
            sl_outf("  %-16s %12s\n", b->term[i].name, sl_show_bytes(text, b->term[i].bytes));
}

/* ---- what it rests on ------------------------------------------------------------------------ */
static const char *day(const char *iso, char out[16])
{
    snprintf(out, 16, "%.10s", iso);
    return out;
}

static void print_disk(const sl_plan_report *r)
{
    char a[SL_SHORT], b[SL_SHORT], c[16];
    sl_outf("disk     %s, a MiB alone in %s; ", sl_show_rate(a, r->disk.bytes_per_s),
            sl_show_seconds(b, r->disk.alone_s[SL_DISK_ALONE - 1]));
    if (!strcmp(r->disk_source, "kept"))
        sl_outf("measured %s\n", day(r->disk_measured, c));
    else if (!strcmp(r->disk_source, "given"))
        sl_outf("given\n");
    else
        sl_outf("assumed: 'sluice disk' measures it\n");
}

static void print_kernels(const sl_plan_report *r)
{
    const sl_compute_speed *c = &r->compute;
    char a[SL_SHORT], b[SL_SHORT], d[16];
    const unsigned n = sl_workers_count(r->setup.workers);
    if (c->token_s <= 0)
        sl_outf("kernels  not measured: too little memory is free here\n");
    else
        sl_outf("kernels  %s a token, %s a row of a prompt, %u thread%s; measured %s\n",
                sl_show_seconds(a, c->token_s), sl_show_seconds(b, c->row_s), n, n == 1 ? "" : "s",
                c->kept ? day(c->measured, d) : "now");
    if (c->memory_bytes_per_s > 0)
        sl_outf("memory   %s\n", sl_show_rate(a, c->memory_bytes_per_s));
}

static const char *const reuse_names[] = {"usual", "kept", "trace"};

static void print_experts(const sl_plan_report *r)
{
    static const char *const how[] = {"hits as is usual for such models; a run keeps its own",
                                      "hits as the uses that the last runs kept let expect",
                                      "hits as in the trace"};
    const sl_model_info info = sl_model_about(r->setup.model);
    if (r->reuse.n)
        sl_outf("experts  %" PRIu32 " of %" PRIu32 " per layer; %s\n", info.n_used, info.n_experts,
                how[r->reuse.source]);
}

static void print_head(const sl_plan_report *r)
{
    char a[SL_SHORT], b[SL_SHORT];
    const sl_model_info info = sl_model_about(r->setup.model);
    const sl_plan_line *l = &r->line[0];
    sl_outf("%s%s%s: %s of weights, %s for a token\n", info.family, *info.name ? ", " : "",
            info.name,
            sl_show_bytes(a, l->price.split.weights_bytes + l->price.split.on_demand_bytes),
            sl_show_bytes(b, l->expect.used_bytes));
    print_disk(r);
    print_kernels(r);
    print_experts(r);
    sl_outf("context  %" PRIu32 " tokens%s\n", l->price.session.n_ctx,
            r->o->n_ctx ? "" : " (-c N prices another)");
    if (r->o->simulate_ram)
        sl_outf("machine  one with %s: --memory auto takes %s of it%s\n",
                sl_show_bytes(a, r->o->simulate_ram), sl_show_bytes(b, r->auto_bytes),
                r->auto_bytes < r->floor.floor_bytes ? ", less than the floor" : "");
}

/* ---- the table ------------------------------------------------------------------------------- */
static const char *or_unknown(char *out, double seconds)
{
    return seconds > 0 ? sl_show_seconds(out, seconds) : "?";
}

static const char *rate(char *out, double seconds)
{
    const double x = seconds > 0 ? 1 / seconds : 0;
    if (seconds > 0)
        snprintf(out, SL_SHORT, x < 9.995 ? "%.2f" : x < 99.95 ? "%.1f" : "%.0f", x);
    else
        snprintf(out, SL_SHORT, "?");
    return out;
}

static void print_line(const sl_plan_report *r, const sl_plan_line *l)
{
    char a[SL_SHORT], b[SL_SHORT], c[SL_SHORT], d[SL_SHORT], e[SL_SHORT], f[SL_SHORT], g[SL_SHORT];
    char hits[16] = "-";
    const sl_split *s = &l->price.split;
    if (r->reuse.n)
        snprintf(hits, sizeof hits, "%.0f %%", 100 * l->hits);
    sl_outf("  %-6s %9s %9s %9s %6s %8s %8s %7s %8s\n", l->name,
            sl_show_bytes(a, l->price.budget.limit_bytes),
            sl_show_bytes(b, s->weights_bytes - s->streamed_bytes + s->pool_bytes),
            sl_show_bytes(c, l->expect.read_bytes), hits, or_unknown(d, l->expect.bound_s),
            or_unknown(e, l->expect.token_s), rate(f, l->expect.token_s),
            rate(g, l->expect.prompt_row_s));
}

static void print_table(const sl_plan_report *r)
{
    sl_outf("\n  %-6s %9s %9s %9s %6s %8s %8s %7s %8s\n", "", "", "weights", "read a", "", "the",
            "", "", "prompt");
    sl_outf("  %-6s %9s %9s %9s %6s %8s %8s %7s %8s\n", "", "budget", "that stay", "token", "hits",
            "bound", "a token", "tok/s", "tok/s");
    for (uint32_t i = 0; i < r->n_lines; i++)
        print_line(r, &r->line[i]);
}

/* ---- the picture ----------------------------------------------------------------------------- */
enum { MEMORY_COLUMNS = 36, SPEED_COLUMNS = 16 };

static char letter_of(const char *term)
{
    static const struct {
        const char *name;
        char letter;
    } known[] = {{"pinned weights", 'W'}, {"expert pool", 'P'}, {"ring", 'R'},
                 {"KV cache", 'K'},       {"state", 'K'},       {"scratch", 'S'},
                 {"left over", '.'}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].name, term))
            return known[i].letter;
    return 'o';
}

/* Terms one after the other, each from where it begins to where it ends on a scale of most bytes.
 */
static void stack(const sl_price *p, uint64_t most, char out[MEMORY_COLUMNS + 1])
{
    static const char order[] = "WPRKSo.";
    sl_budget b;
    double at = 0;
    size_t n = 0;
    sl_plan_terms(p, &b);
    for (const char *c = order; *c; c++) {
        for (uint32_t i = 0; i < b.n_terms; i++)
            at += letter_of(b.term[i].name) == *c ? (double)b.term[i].bytes : 0;
        const double end = at / (double)most * MEMORY_COLUMNS + 0.5;
        while (n < MEMORY_COLUMNS && (double)(n + 1) <= end)
            out[n++] = *c;
    }
    out[n] = 0;
}

static void print_picture(const sl_plan_report *r)
{
    char a[SL_SHORT], b[SL_SHORT], memory[MEMORY_COLUMNS + 1], speed[SPEED_COLUMNS + 1];
    uint64_t most = 0;
    double fastest = 0;
    for (uint32_t i = 0; i < r->n_lines; i++) {
        const sl_plan_line *l = &r->line[i];
        const double tokens = l->expect.token_s > 0 ? 1 / l->expect.token_s : 0;
        /* What auto takes may be many times the model: its bar is cut off then. */
        if (r->n_lines == 1 || strcmp(l->name, "auto") != 0)
            most = l->price.budget.limit_bytes;
        fastest = tokens > fastest ? tokens : fastest;
    }
    sl_outf("\n  memory: W weights that stay, %sR ring, K context, S scratch, o other%s\n",
            r->reuse.n ? "P expert pool, " : "", ", . left over");
    for (uint32_t i = 0; i < r->n_lines; i++) {
        const sl_plan_line *l = &r->line[i];
        const double tokens = l->expect.token_s > 0 ? 1 / l->expect.token_s : 0;
        const int n = fastest > 0 ? (int)(tokens / fastest * SPEED_COLUMNS + 0.5) : 0;
        memset(speed, '#', (size_t)n);
        speed[n] = 0;
        stack(&l->price, most, memory);
        sl_outf("  %-6s %9s %-*s %6s %s\n", l->name, sl_show_bytes(a, l->price.budget.limit_bytes),
                MEMORY_COLUMNS, memory, rate(b, l->expect.token_s), speed);
    }
}

void sl_plan_print(const sl_plan_report *r)
{
    sl_budget terms;
    print_head(r);
    print_terms(&r->floor.floor, "floor");
    if (r->n_lines == 1 && r->line[0].price.budget.limit_bytes > r->floor.floor_bytes) {
        sl_plan_terms(&r->line[0].price, &terms);
        print_terms(&terms, "budget");
    }
    print_table(r);
    print_picture(r);
}

/* ---- JSON ------------------------------------------------------------------------------------ */
static void write_terms(sl_json_writer *w, const char *key, const sl_budget *b)
{
    sl_json_write_object(w, key);
    for (uint32_t i = 0; i < b->n_terms; i++)
        sl_json_write_uint(w, b->term[i].name, b->term[i].bytes);
    sl_json_write_close(w);
}

static double or_null(double x)
{
    return x > 0 ? x : (double)NAN;
}

static void write_expectation(sl_json_writer *w, const sl_expectation *e)
{
    sl_json_write_uint(w, "read_bytes_per_token", e->read_bytes);
    sl_json_write_uint(w, "used_bytes_per_token", e->used_bytes);
    sl_json_write_double(w, "seconds_per_token", or_null(e->token_s));
    sl_json_write_double(w, "tokens_per_s", e->token_s > 0 ? 1 / e->token_s : (double)NAN);
    sl_json_write_double(w, "bound_s", or_null(e->bound_s));
    sl_json_write_double(w, "disk_s", e->token_s > 0 ? e->read_s : (double)NAN);
    sl_json_write_double(w, "compute_s", or_null(e->compute_s));
    sl_json_write_double(w, "wait_s", e->token_s > 0 ? e->wait_s : (double)NAN);
    sl_json_write_double(w, "prompt_tokens_per_s",
                         e->prompt_row_s > 0 ? 1 / e->prompt_row_s : (double)NAN);
    sl_json_write_double(w, "first_prompt_s", or_null(e->first_prompt_s));
}

static void write_line(sl_json_writer *w, const sl_plan_report *r, const sl_plan_line *l)
{
    const sl_price *price = &l->price;
    sl_budget terms;
    sl_plan_terms(price, &terms);
    sl_json_write_object(w, NULL);
    sl_json_write_string(w, "name", l->name);
    sl_json_write_uint(w, "budget", price->budget.limit_bytes);
    write_terms(w, "terms", &terms);
    sl_json_write_uint(w, "context", price->session.n_ctx);
    sl_json_write_uint(w, "chunk", price->session.chunk);
    sl_json_write_uint(w, "part_bytes", price->part_bytes);
    sl_json_write_string(w, "io", sl_io_name(price->split.io));
    sl_json_write_uint(w, "weights_bytes", price->split.weights_bytes);
    sl_json_write_uint(w, "streamed_bytes", price->split.streamed_bytes);
    sl_json_write_uint(w, "pinned_bytes", price->split.pinned_bytes);
    sl_json_write_uint(w, "ring_bytes", price->split.ring_bytes);
    sl_json_write_uint(w, "pool_bytes", price->split.pool_bytes);
    sl_json_write_double(w, "hit_rate", r->reuse.n ? l->hits : (double)NAN);
    write_expectation(w, &l->expect);
    sl_json_write_close(w);
}

static void write_rates(sl_json_writer *w, const sl_plan_report *r)
{
    sl_json_write_double(w, "disk_bytes_per_s", r->disk.bytes_per_s);
    sl_json_write_double(w, "disk_piece_s", r->disk.alone_s[SL_DISK_ALONE - 1]);
    sl_json_write_string(w, "disk_source", r->disk_source);
    sl_json_write_double(w, "memory_bytes_per_s", or_null(r->compute.memory_bytes_per_s));
    sl_json_write_double(w, "kernels_token_s", or_null(r->compute.token_s));
    sl_json_write_double(w, "kernels_row_s", or_null(r->compute.row_s));
    sl_json_write_bool(w, "kernels_kept", r->compute.kept);
    sl_json_write_uint(w, "threads", sl_workers_count(r->setup.workers));
    sl_json_write_string(w, "reuse_source", r->reuse.n ? reuse_names[r->reuse.source] : NULL);
}

sl_status sl_plan_print_json(const sl_plan_report *r, sl_err *err)
{
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "out of memory for the report");
    sl_json_write_object(w, NULL);
    sl_json_write_string(w, "model", r->o->operand);
    sl_json_write_string(w, "family", sl_model_about(r->setup.model).family);
    write_rates(w, r);
    sl_json_write_uint(w, "auto", r->auto_bytes);
    sl_json_write_uint(w, "simulated_ram", r->o->simulate_ram);
    sl_json_write_uint(w, "floor", r->floor.floor_bytes);
    write_terms(w, "floor_terms", &r->floor.floor);
    sl_json_write_array(w, "budgets");
    for (uint32_t i = 0; i < r->n_lines; i++)
        write_line(w, r, &r->line[i]);
    sl_json_write_close(w);
    sl_json_write_close(w);
    return sl_report_json(&w, err);
}
