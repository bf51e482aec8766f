/* sluice plan: the price of a model in memory, and what a token and a prompt will take, before any
 * weight is read. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../stream/budget.h"
#include "command.h"
#include "plan_report.h"
#include "report.h"
#include "term.h"

static const uint64_t MIB = 1 << 20;

/* One context and prompt for all budgets, so that the lines differ in one thing only. */
enum { ROWS = 512, STEPS = 8 };

typedef struct plan {
    sl_plan_report r;
    sl_demand demand;
} plan;

/* ---- what the machine gives ------------------------------------------------------------------ */
/* Latency where nobody measured it: of a usual NVMe drive, from asking to the first byte. */
static const double ASSUMED_LATENCY_S = 100e-6;

/* What is given comes first, then what sluice disk keeps, then an assumption. */
static void find_disk(sl_plan_report *r)
{
    const sl_options *o = r->o;
    sl_disk_figures *f = calloc(1, sizeof *f);
    r->disk_source = "assumed";
    r->disk = sl_disk_speed_like(SL_DISK_ASSUMED_MIB * (double)MIB, ASSUMED_LATENCY_S);
    const char *file = sl_checkpoint_file(sl_model_checkpoint(r->setup.model), 0)->path;
    if (o->disk_rate) {
        r->disk_source = "given";
        r->disk = sl_disk_speed_like((double)o->disk_rate, ASSUMED_LATENCY_S);
    } else if (f && sl_disk_figures_load(file, f) && sl_disk_speed_of(f).bytes_per_s > 0) {
        r->disk_source = "kept";
        r->disk = sl_disk_speed_of(f);
        memcpy(r->disk_measured, f->measured, sizeof r->disk_measured);
    }
    if (o->disk_limit) {
        sl_disk_speed_limit(&r->disk, (double)o->disk_limit);
        r->disk_source = o->disk_rate ? "given" : r->disk_source;
    }
    free(f);
}

/* In at most half of what is free here. */
static sl_status find_kernels(plan *p, sl_err *err)
{
    sl_plan_report *r = &p->r;
    return sl_compute_speed_get(&r->setup, r->o, r->setup.auto_bytes / 2, r->o->measure,
                                &r->compute, err);
}

/* What --memory auto takes; of a machine of another size, as if nothing else ran there: 512 MiB (an
 * eighth of a small one) are the system's. */
static uint64_t auto_limit(const sl_plan_report *r)
{
    const uint64_t ram = r->o->simulate_ram, half_gib = 512 * MIB;
    if (!ram)
        return r->setup.auto_bytes;
    const uint64_t system = ram / 8 < half_gib ? ram / 8 : half_gib;
    const sl_memory_view view = {
        .total_bytes = ram, .available_bytes = ram - system, .cgroup_limit = UINT64_MAX};
    return sl_memory_auto(&view);
}

/* ---- the budgets ----------------------------------------------------------------------------- */
static sl_status price(plan *p, uint64_t limit, sl_price *out, sl_err *err)
{
    return sl_setup_price(&p->r.setup, p->r.o, &p->demand, limit, out, err);
}

/* The least limit with which nothing is streamed: between the floor and the whole model with all
 * its terms, by halving. */
static sl_status whole_limit(plan *p, uint64_t floor, uint64_t *out, sl_err *err)
{
    sl_price at;
    uint64_t low = floor, high = floor;
    sl_status st = price(p, floor, &at, err);
    while (!st && !sl_split_all_stay(&at.split)) {
        high += high;
        st = price(p, high, &at, err);
    }
    while (!st && high - low > MIB) {
        uint64_t mid = low + (high - low) / 2;
        st = price(p, mid, &at, err);
        if (!sl_split_all_stay(&at.split))
            low = mid;
        else
            high = mid;
    }
    *out = sl_round_up(high, MIB);
    return st;
}

static sl_status add_line(plan *p, const char *name, uint64_t limit, sl_err *err)
{
    sl_plan_line *l = &p->r.line[p->r.n_lines];
    /* Of a small model several steps are the same: the last one's name stays. */
    if (p->r.n_lines && l[-1].price.budget.limit_bytes >= limit) {
        l[-1].name = name;
        return SL_OK;
    }
    p->r.n_lines++;
    l->name = name;
    return price(p, limit, &l->price, err);
}

/* Steps from the floor to a resident model, and in its place among them what auto takes. */
static sl_status add_steps(plan *p, uint64_t floor, uint64_t whole, sl_err *err)
{
    static const char *const name[] = {"floor", "13 %", "25 %", "38 %", "50 %",
                                       "63 %",  "75 %", "88 %", "100 %"};
    const uint64_t own = sl_round_down(p->r.auto_bytes, MIB);
    bool told = own < floor;
    sl_status st = SL_OK;
    for (uint64_t i = 0; !st && i <= STEPS; i++) {
        const uint64_t limit = i == 0       ? floor
                               : i == STEPS ? whole
                                            : sl_round_up(floor + (whole - floor) / STEPS * i, MIB);
        if (!told && own <= limit) {
            st = add_line(p, "auto", own, err);
            told = true;
        }
        if (!st)
            st = add_line(p, name[i], limit, err);
    }
    return st || told ? st : add_line(p, "auto", own, err);
}

static sl_status price_lines(plan *p, sl_err *err)
{
    const sl_options *o = p->r.o;
    uint64_t whole = 0;
    sl_status st = price(p, 0, &p->r.floor, err);
    if (st)
        return st;
    const uint64_t floor = p->r.floor.floor_bytes;
    if (o->memory_mode == SL_MEMORY_BYTES)
        return add_line(p, "asked", o->memory_bytes, err);
    if (o->memory_mode == SL_MEMORY_FLOOR || floor == UINT64_MAX)
        return add_line(p, "floor", floor, err);
    st = whole_limit(p, floor, &whole, err);
    return st ? st : add_steps(p, floor, whole, err);
}

/* ---- what to expect of them ------------------------------------------------------------------ */
static sl_expect expect_with(const plan *p, const sl_plan_line *l)
{
    const sl_plan_report *r = &p->r;
    const sl_model_info info = sl_model_about(r->setup.model);
    const unsigned n_threads = sl_workers_count(r->setup.workers);
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    sl_expect x = {.disk = r->disk,
                   .token_s = r->compute.token_s,
                   .row_s = r->compute.row_s,
                   .memory_bytes_per_s = r->compute.memory_bytes_per_s,
                   .chunk = l->price.session.chunk,
                   .prompt = ROWS,
                   .cores_shared = cpus > 0 && n_threads >= (unsigned long)cpus,
                   .experts = {.hit_rate = l->hits,
                               .recall = r->o->predict ? r->reuse.recall : 0,
                               .wasted = r->reuse.wasted}};
    if (r->reuse.n) {
        x.experts.n_experts = info.n_experts;
        x.experts.n_used = info.n_used;
        x.experts.n_layers = r->reuse.n / info.n_experts;
    }
    return x;
}

static sl_status expect_lines(plan *p, sl_err *err)
{
    sl_status st = SL_OK;
    for (uint32_t i = 0; !st && i < p->r.n_lines; i++) {
        sl_plan_line *l = &p->r.line[i];
        st = sl_reuse_hits(&p->r.reuse, &l->price.split, &l->price.stream, &l->hits, err);
        p->r.expect = expect_with(p, l);
        l->expect = sl_expect_of(&p->r.expect, &l->price.split);
    }
    return st;
}

static sl_status run(plan *p, sl_err *err)
{
    sl_plan_report *r = &p->r;
    sl_status st = sl_setup_open(&r->setup, r->o, err);
    if (st)
        return st;
    r->auto_bytes = auto_limit(r);
    p->demand = (sl_demand){.min_ctx = ROWS,
                            .max_ctx = ROWS,
                            .max_rows = ROWS,
                            .buffers_bytes = 16ull * sl_model_about(r->setup.model).n_vocab};
    st = sl_reuse_open(&r->setup, r->o->trace_in, &r->reuse, err);
    if (!st)
        st = price_lines(p, err);
    if (st)
        return st;
    find_disk(r);
    st = find_kernels(p, err);
    if (!st)
        st = expect_lines(p, err);
    return st;
}

int sl_cmd_plan(const sl_options *o)
{
    plan *p = calloc(1, sizeof *p);
    sl_err err = {0};
    if (!p) {
        sl_complain("out of memory");
        return SL_EXIT_FAILED;
    }
    p->r.o = o;
    sl_interrupt_catch();
    sl_status st = run(p, &err);
    if (!st && o->json)
        st = sl_plan_print_json(&p->r, &err);
    else if (!st)
        sl_plan_print(&p->r);
    const bool interrupted = st == SL_ECANCELLED && sl_interrupted();
    if (st && !interrupted)
        sl_complain("%s", err.text);
    sl_reuse_close(&p->r.reuse);
    sl_setup_close(&p->r.setup);
    free(p);
    return interrupted ? sl_interrupt_exit() : st ? SL_EXIT_FAILED : SL_EXIT_OK;
}
