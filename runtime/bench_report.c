/* The report of bench as text. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_figures.h"
#include "report.h"
#include "term.h"

/* ---- cells ----------------------------------------------------------------------------------- */
static const char *show_rate(char *out, double x)
{
    if (isnan(x))
        snprintf(out, SL_SHORT, "-");
    else
        snprintf(out, SL_SHORT, "%.*f", x < 99.995 ? 2 : x < 999.95 ? 1 : 0, x);
    return out;
}

static const char *show_percent(char *out, double x)
{
    snprintf(out, SL_SHORT, isnan(x) ? "-" : "%.0f %%", 100 * x);
    return out;
}

static const char *show_size(char *out, double bytes)
{
    return isnan(bytes) ? "-" : sl_show_bytes(out, (uint64_t)(bytes + 0.5));
}

/* "9.57–10.30" in width columns, however many bytes the dash takes. */
static void print_range(int width, const char *low, const char *high)
{
    const int used = (int)(strlen(low) + strlen(high)) + 1;
    sl_outf("%*s%s–%s", width > used ? width - used : 0, "", low, high);
}

/* ---- the head -------------------------------------------------------------------------------- */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void print_token(const sl_survey *s)
{
    char a[SL_SHORT], b[SL_SHORT], c[SL_SHORT];
    if (!s->n_experts) {
        sl_outf("a token uses all of them\n");
        return;
    }
    const uint64_t experts = s->on_demand_bytes / s->n_experts * s->n_used;
    sl_outf("a token uses %s: %s always, %s in %" PRIu32 " of %" PRIu32 " experts per layer\n",
            sl_show_bytes(a, s->always_bytes + experts), sl_show_bytes(b, s->always_bytes),
            sl_show_bytes(c, experts), s->n_used, s->n_experts);
}

static void print_rates(const sl_survey *s)
{
    char a[SL_SHORT], b[SL_SHORT], c[SL_SHORT];
    sl_outf("disk %s", s->disk > 0 ? sl_show_rate(a, s->disk) : "unknown");
    if (s->disk > 0 && s->disk_least < 0.95 * s->disk)
        sl_outf(" (measured; %s at another time)", sl_show_rate(b, s->disk_least));
    else if (s->disk > 0)
        sl_outf(" (%s)", sl_rate_source_name(s->disk_source));
    sl_outf(", memory %s\n", s->memory > 0 ? sl_show_rate(c, s->memory) : "unknown");
}

static void print_head(const sl_bench *b)
{
    char a[SL_SHORT];
    const sl_survey *s = &b->survey;
    sl_outf("%s: %s, %s of weights\n", base_name(b->o->operand), s->family,
            sl_show_bytes(a, s->always_bytes + s->on_demand_bytes));
    print_token(s);
    sl_outf("%" PRIu32 " thread%s, %s; prompt %" PRIu32 " tokens, decode %" PRIu32 "; %" PRIu32
            " run%s\n",
            s->n_threads, s->n_threads == 1 ? "" : "s", sl_cpu_level_name(sl_setup_cpu_level(b->o)),
            b->n_prompt, b->n_tokens, b->n_repeats,
            b->n_repeats == 1 ? ""
            : b->n_sets > 1   ? "s of each, taking turns"
                              : "s");
    print_rates(s);
    for (uint32_t i = 0; i < b->n_sets && b->n_sets > 1; i++)
        sl_outf("%s: %s\n", sl_bench_name(i), *b->set[i].text ? b->set[i].text : "as given");
}

/* ---- a budget -------------------------------------------------------------------------------- */
static void print_split(const sl_split *s)
{
    char a[SL_SHORT], b[SL_SHORT];
    if (!s->streamed_bytes && !s->on_demand_parts)
        sl_outf("all weights stay");
    else if (s->streamed_bytes)
        sl_outf("%s stay, %s are streamed", sl_show_bytes(a, s->weights_bytes - s->streamed_bytes),
                sl_show_bytes(b, s->streamed_bytes));
    else
        sl_outf("%s stay", sl_show_bytes(a, s->weights_bytes));
    if (s->on_demand_parts)
        sl_outf(", and %.0f %% of the experts",
                100.0 * (double)s->pool_slots / (double)s->on_demand_parts);
}

/* What the memory of a set holds, how it was read, and whether cold. */
static void print_set(const sl_bench *b, uint32_t budget, uint32_t set, const sl_trial *t)
{
    char a[SL_SHORT];
    const sl_bench_cold cold = sl_bench_cold_of(b, budget, set);
    const char *name = b->n_sets > 1 ? sl_bench_name(set) : "";
    const int indent = b->n_sets > 1 ? 3 : 0;
    sl_outf("%s%s", name, *name ? ": " : "");
    print_split(&t->split);
    sl_outf("; peak %s\n", sl_show_bytes(a, sl_bench_peak(b, budget, set)));
    sl_outf("%*s%s%s%s\n", indent, "", t->engine, *t->refused ? "; refused: " : "", t->refused);
    sl_outf("%*scold: %sproven (%s)\n", indent, "", cold.proven ? "" : "not ", cold.how);
}

static void print_phase(const sl_bench *b, uint32_t budget, uint32_t set, sl_trial_kind kind)
{
    char a[SL_SHORT], c[SL_SHORT], d[SL_SHORT];
    const sl_bench_figures f = sl_bench_figures_of(b, budget, set, kind);
    sl_outf("%-2s%-12s %8s ", b->n_sets > 1 ? sl_bench_name(set) : "",
            sl_bench_phase_name(kind, true), show_rate(a, f.rate.median));
    print_range(17, show_rate(a, f.rate.least), show_rate(c, f.rate.most));
    sl_outf(" %6s", show_percent(a, f.share));
    sl_outf(" %6s", show_percent(a, f.wait_share));
    sl_outf(" %6s", show_percent(a, f.hit_rate));
    sl_outf(" %6s", show_percent(c, f.precision));
    sl_outf(" %10s\n", show_size(d, f.read_per_token));
}

/* Run by run over those of A in the same round. */
static void print_ratios(const sl_bench *b, uint32_t budget, uint32_t set)
{
    char low[SL_SHORT], high[SL_SHORT];
    sl_outf("%s/A", sl_bench_name(set));
    for (unsigned kind = 0; kind < SL_TRIAL_PHASES; kind++) {
        const sl_spread r = sl_bench_figures_of(b, budget, set, (sl_trial_kind)kind).ratio;
        snprintf(low, sizeof low, "%.2f (%.2f", r.median, r.least);
        snprintf(high, sizeof high, "%.2f)", r.most);
        print_range(19, low, high);
    }
    sl_out("\n", 1);
}

static void print_budget(const sl_bench *b, uint32_t budget)
{
    char a[SL_SHORT], c[SL_SHORT];
    uint64_t floor = 0;
    const sl_trial *any[SL_BENCH_SETS], *first = NULL;
    for (uint32_t s = 0; s < b->n_sets; s++) {
        any[s] = sl_bench_any(b, budget, s, &floor);
        first = first ? first : any[s];
    }
    if (!first && !floor)
        return; /* interrupted before it */
    const sl_memory_choice *asked = &b->budgets.item[budget];
    sl_outf("\nmemory %s%s", sl_show_bytes(a, first ? first->budget_bytes : asked->bytes),
            asked->mode == SL_MEMORY_AUTO    ? " (auto)"
            : asked->mode == SL_MEMORY_FLOOR ? " (the floor)"
                                             : "");
    if (!first) {
        sl_outf(": too little; %s is the least\n", sl_show_bytes(c, floor));
        return;
    }
    sl_outf("%s", b->n_sets > 1 ? "\n" : ": ");
    for (uint32_t s = 0; s < b->n_sets; s++)
        if (any[s])
            print_set(b, budget, s, any[s]);
    sl_outf("\n  %-12s %8s %17s %6s %6s %6s %6s %10s\n", "", "tokens/s", "lowest–highest  ",
            "bound", "waits", "hits", "right", "read/token");
    for (uint32_t s = 0; s < b->n_sets; s++)
        for (unsigned kind = 0; any[s] && kind < SL_TRIAL_PHASES; kind++)
            print_phase(b, budget, s, (sl_trial_kind)kind);
    if (b->n_sets > 1)
        sl_outf("\n   %19s%19s%19s%19s\n", "cold prefill", "cold decode", "warm prefill",
                "warm decode");
    for (uint32_t s = 1; s < b->n_sets; s++)
        if (any[s])
            print_ratios(b, budget, s);
}

/* ---- the end --------------------------------------------------------------------------------- */
static void print_output(const sl_bench *b)
{
    const uint32_t n = sl_bench_done(b);
    bool same = true;
    for (uint32_t s = 0; s < b->n_sets; s++) {
        if (sl_bench_same_output(b, s))
            continue;
        sl_outf("output: that of %s differs%s\n", sl_bench_name(s),
                sl_bench_lossy(b, s) ? ", as --kv and --io null may" : "");
        same = false;
    }
    if (same && n > 1)
        sl_outf("output: the same in all %" PRIu32 " runs\n", n);
}

void sl_bench_print_text(const sl_bench *b)
{
    print_head(b);
    for (uint32_t m = 0; m < b->budgets.n; m++)
        print_budget(b, m);
    if (sl_bench_done(b) > 1 || b->interrupted)
        sl_out("\n", 1);
    print_output(b);
    if (b->interrupted)
        sl_outf("interrupted: %" PRIu32 " of %" PRIu32 " runs are complete\n", sl_bench_done(b),
                b->budgets.n * b->n_sets * b->n_repeats);
}
