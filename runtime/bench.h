/* What bench measured of a model, and its figures; cmd_bench.c fills it, bench_report.c and
 * bench_export.c print it. */
#ifndef SL_BENCH_H
#define SL_BENCH_H

#include "budgets.h"
#include "trial.h"

enum { SL_BENCH_SETS = SL_MAX_TEXTS + 1 };

/* Options that are compared: the command line's own first, then those of each --vs over them. */
typedef struct sl_bench_set {
    const char *text; /* as given; "" for the first */
    char *words;      /* what the options' strings point into */
    sl_options o;
} sl_bench_set;

typedef struct sl_bench_run {
    enum { SL_RUN_ABSENT, SL_RUN_DONE, SL_RUN_UNDER_FLOOR } state;
    uint32_t at; /* which run it was, from 1 */
    sl_trial t;
} sl_bench_run;

typedef struct sl_bench {
    const sl_options *o;
    sl_budgets budgets;
    sl_bench_set set[SL_BENCH_SETS];
    uint32_t n_sets, n_repeats, n_prompt, n_tokens;
    bool own_ids; /* --ids */
    sl_survey survey;
    sl_bench_run *run; /* [budgets][sets][repeats] */
    bool interrupted;
} sl_bench;

sl_bench_run *sl_bench_run_of(const sl_bench *b, uint32_t budget, uint32_t set, uint32_t repeat);
/* "A", "B", ... */
const char *sl_bench_name(uint32_t set);
/* A set may change the output: --kv rounds, --io null reads nothing. */
bool sl_bench_lossy(const sl_bench *b, uint32_t set);
/* Whether all runs of the set, under all budgets, gave the output of the first run of all. */
bool sl_bench_same_output(const sl_bench *b, uint32_t set);
uint32_t sl_bench_done(const sl_bench *b); /* complete runs */

/* "cold prefill" or "cold_prefill". */
const char *sl_bench_phase_name(sl_trial_kind kind, bool words);
/* Whether every complete run of the set under the budget was cold; how, or why the first other one
 * was not. */
typedef struct sl_bench_cold {
    bool proven;
    const char *how;
} sl_bench_cold;
sl_bench_cold sl_bench_cold_of(const sl_bench *b, uint32_t budget, uint32_t set);
/* A complete run of the set under the budget, for what all of them have alike; NULL: none. *floor:
 * then what would be enough, 0 if that is not the reason. */
const sl_trial *sl_bench_any(const sl_bench *b, uint32_t budget, uint32_t set, uint64_t *floor);

/* On stdout. Text has at most 80 columns, but for names and options that are longer. */
void sl_bench_print_text(const sl_bench *b);
void sl_bench_print_csv(const sl_bench *b); /* a line per run and phase */
void sl_bench_print_markdown(const sl_bench *b);
sl_status sl_bench_print_json(const sl_bench *b, sl_err *err);

#endif
