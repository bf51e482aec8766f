/* sluice plan: the price of a model in memory and the seconds per token to expect, before any
 * weight is read. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "rates.h"
#include "report.h"
#include "term.h"

typedef struct plan {
    const sl_options *o;
    sl_setup setup;
    sl_demand demand;
    double disk, memory; /* bytes per second */
    sl_rate_source disk_source;
} plan;

/* ---- one line of the table ------------------------------------------------------------------- */
/* Bytes of experts that a token uses. */
static uint64_t expert_bytes(const plan *p, const sl_price *price)
{
    const sl_model_info info = sl_model_about(p->setup.model);
    return info.n_experts ? price->split.on_demand_bytes / info.n_experts * info.n_used : 0;
}

/* What a token reads. Experts: as if all were used alike. Texts use some of them again and again,
 * so a run reads less. */
static uint64_t read_bytes(const plan *p, const sl_price *price)
{
    const sl_split *s = &price->split;
    const double misses =
        s->on_demand_parts ? 1 - (double)s->pool_slots / (double)s->on_demand_parts : 0;
    return s->streamed_bytes + (uint64_t)(misses * (double)expert_bytes(p, price));
}

static uint64_t used_bytes(const plan *p, const sl_price *price)
{
    return price->split.weights_bytes + expert_bytes(p, price);
}

/* 0: not known. */
static double token_seconds(const plan *p, const sl_price *price)
{
    return sl_rates_bound(p->disk, p->memory, (double)read_bytes(p, price),
                          (double)used_bytes(p, price));
}

static void print_line(const plan *p, const sl_price *price, const char *name)
{
    char a[SL_SHORT], b[SL_SHORT], c[SL_SHORT], d[SL_SHORT];
    double s = token_seconds(p, price);
    bool known = s > 0;
    uint64_t stays =
        price->split.weights_bytes - price->split.streamed_bytes + price->split.pool_bytes;
    sl_outf("  %-6s %10s %10s %10s %10s %10.3g\n", name,
            sl_show_bytes(a, price->budget.limit_bytes), sl_show_bytes(b, stays),
            sl_show_bytes(c, read_bytes(p, price)), known ? sl_show_seconds(d, s) : "?",
            known ? 1 / s : 0.0);
}

static void print_terms(const sl_budget *b, const char *title)
{
    char text[SL_SHORT];
    sl_outf("%s %s\n", title, sl_show_bytes(text, b->limit_bytes));
    for (uint32_t i = 0; i < b->n_terms; i++)
        sl_outf("  %-16s %12s\n", b->term[i].name, sl_show_bytes(text, b->term[i].bytes));
}

static void write_terms(sl_json_writer *w, const char *key, const sl_budget *b)
{
    sl_json_write_object(w, key);
    for (uint32_t i = 0; i < b->n_terms; i++)
        sl_json_write_uint(w, b->term[i].name, b->term[i].bytes);
    sl_json_write_close(w);
}

static void write_line(sl_json_writer *w, const plan *p, const sl_price *price)
{
    sl_json_write_object(w, NULL);
    sl_json_write_uint(w, "budget", price->budget.limit_bytes);
    write_terms(w, "terms", &price->budget);
    sl_json_write_uint(w, "context", price->session.n_ctx);
    sl_json_write_uint(w, "chunk", price->session.chunk);
    sl_json_write_uint(w, "part_bytes", price->part_bytes);
    sl_json_write_string(w, "io", sl_io_name(price->split.io));
    sl_json_write_uint(w, "weights_bytes", price->split.weights_bytes);
    sl_json_write_uint(w, "streamed_bytes", price->split.streamed_bytes);
    sl_json_write_uint(w, "pinned_bytes", price->split.pinned_bytes);
    sl_json_write_uint(w, "ring_bytes", price->split.ring_bytes);
    sl_json_write_uint(w, "pool_bytes", price->split.pool_bytes);
    sl_json_write_uint(w, "read_bytes_per_token", read_bytes(p, price));
    sl_json_write_uint(w, "used_bytes_per_token", used_bytes(p, price));
    double seconds = token_seconds(p, price);
    sl_json_write_double(w, "seconds_per_token", seconds > 0 ? seconds : (double)NAN);
    sl_json_write_close(w);
}

/* ---- the list -------------------------------------------------------------------------------- */
enum { MOST_LINES = 5 };

typedef struct lines {
    sl_price price[MOST_LINES];
    const char *name[MOST_LINES];
    uint32_t n;
} lines;

/* The least limit with which nothing is streamed: between the floor and the whole model with all
 * its terms, by halving. */
static sl_status whole_limit(plan *p, uint64_t floor, uint64_t *out, sl_err *err)
{
    sl_price price;
    uint64_t low = floor, high = floor, step = 1 << 20;
    sl_status st = sl_setup_price(&p->setup, p->o, &p->demand, floor, &price, err);
    while (!st && !sl_split_all_stay(&price.split)) {
        high += high;
        st = sl_setup_price(&p->setup, p->o, &p->demand, high, &price, err);
    }
    while (!st && high - low > step) {
        uint64_t mid = low + (high - low) / 2;
        st = sl_setup_price(&p->setup, p->o, &p->demand, mid, &price, err);
        if (!sl_split_all_stay(&price.split))
            low = mid;
        else
            high = mid;
    }
    *out = sl_round_up(high, step);
    return st;
}

static sl_status add_line(plan *p, lines *l, const char *name, uint64_t limit, sl_err *err)
{
    l->name[l->n] = name;
    return sl_setup_price(&p->setup, p->o, &p->demand, limit, &l->price[l->n++], err);
}

/* The floor and budgets with 25 / 50 / 75 / 100 % of the way to a resident model; or the one asked
 * for. */
static sl_status price_lines(plan *p, lines *l, sl_err *err)
{
    static const char *const name[] = {"25 %", "50 %", "75 %", "100 %"};
    uint64_t whole = 0;
    if (p->o->memory_mode == SL_MEMORY_BYTES)
        return add_line(p, l, "asked", p->o->memory_bytes, err);
    sl_status st = add_line(p, l, "floor", 0, err);
    if (p->o->memory_mode == SL_MEMORY_FLOOR)
        return st;
    uint64_t floor = l->price[0].floor_bytes;
    if (!st)
        st = whole_limit(p, floor, &whole, err);
    for (uint64_t i = 1; !st && i <= 4; i++)
        st = add_line(p, l, name[i - 1],
                      i == 4 ? whole : sl_round_up(floor + (whole - floor) / 4 * i, 1 << 20), err);
    return st;
}

static void print_table(const plan *p, const lines *l)
{
    char a[SL_SHORT], b[SL_SHORT];
    sl_model_info info = sl_model_about(p->setup.model);
    sl_outf("%s%s%s, %s of weights per token\n", info.family, *info.name ? ": " : "", info.name,
            sl_show_bytes(a, used_bytes(p, &l->price[0])));
    if (info.n_experts)
        sl_outf("of these %s in %" PRIu32 " of %" PRIu32 " experts per layer: taken as used alike; "
                "a text repeats itself and reads less\n",
                sl_show_bytes(a, expert_bytes(p, &l->price[0])), info.n_used, info.n_experts);
    sl_outf("disk %s", p->disk > 0 ? sl_show_rate(a, p->disk) : "unknown");
    if (p->disk > 0)
        sl_outf(" (%s)", sl_rate_source_name(p->disk_source));
    sl_outf(", memory %s\n", p->memory > 0 ? sl_show_rate(b, p->memory) : "unknown");
    sl_outf("context %" PRIu32 " tokens%s\n\n", l->price[0].session.n_ctx,
            p->o->n_ctx ? "" : " (-c N prices another)");
    print_terms(&l->price[0].floor, "floor");
    if (p->o->memory_mode == SL_MEMORY_BYTES) {
        sl_out("\n", 1);
        print_terms(&l->price[0].budget, "budget");
    }
    sl_outf("\n  %-6s %10s %10s %10s %10s %10s\n", "", "budget", "stays", "read", "per token",
            "tokens/s");
    for (uint32_t i = 0; i < l->n; i++)
        print_line(p, &l->price[i], l->name[i]);
}

static sl_status print_json(const plan *p, const lines *l, sl_err *err)
{
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "out of memory for the report");
    sl_json_write_object(w, NULL);
    sl_json_write_string(w, "model", p->o->operand);
    sl_json_write_string(w, "family", sl_model_about(p->setup.model).family);
    sl_json_write_double(w, "disk_bytes_per_s", p->disk > 0 ? p->disk : (double)NAN);
    sl_json_write_string(w, "disk_source", sl_rate_source_name(p->disk_source));
    sl_json_write_double(w, "memory_bytes_per_s", p->memory > 0 ? p->memory : (double)NAN);
    sl_json_write_uint(w, "auto", p->setup.auto_bytes);
    sl_json_write_uint(w, "floor", l->price[0].floor_bytes);
    write_terms(w, "floor_terms", &l->price[0].floor);
    sl_json_write_array(w, "budgets");
    for (uint32_t i = 0; i < l->n; i++)
        write_line(w, p, &l->price[i]);
    sl_json_write_close(w);
    sl_json_write_close(w);
    return sl_report_json(&w, err);
}

int sl_cmd_plan(const sl_options *o)
{
    plan p = {.o = o};
    lines l = {.n = 0};
    sl_err err = {0};
    sl_status st = sl_setup_open(&p.setup, o, &err);
    if (!st) {
        /* One context for all budgets, so that the lines differ in one thing only. */
        p.demand = (sl_demand){.min_ctx = 512,
                               .max_ctx = 512,
                               .max_rows = 512,
                               .buffers_bytes = 16ull * sl_model_about(p.setup.model).n_vocab};
        st = price_lines(&p, &l, &err);
    }
    if (!st)
        st = sl_rates_disk(&p.setup, o, &p.disk, &p.disk_source, &err);
    if (!st)
        st = sl_rates_memory(&p.setup, &p.memory, &err);
    if (!st && o->json)
        st = print_json(&p, &l, &err);
    else if (!st)
        print_table(&p, &l);
    if (st)
        sl_complain("%s", err.text);
    sl_setup_close(&p.setup);
    return st ? SL_EXIT_FAILED : SL_EXIT_OK;
}
