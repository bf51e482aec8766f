/* The figures of bench: medians and spreads over the repeats of a set, ratios of sets run by run.
 */
#ifndef SL_BENCH_FIGURES_H
#define SL_BENCH_FIGURES_H

#include "bench.h"

/* NaN: not known, or there is nothing to divide. */
typedef struct sl_spread {
    double least, median, most;
} sl_spread;

/* One phase of the runs of a set under a budget. */
typedef struct sl_bench_figures {
    uint32_t n;      /* complete runs */
    sl_spread rate;  /* tokens per second */
    sl_spread ratio; /* of rates: each run over the run of set A in the same repeat */
    double bound; /* tokens per second that disk and memory allow, for what was missed and used */
    double share; /* of that bound; median */
    double wait_share;                                       /* of the time */
    double hit_rate;                                         /* of needed experts */
    double precision;                                        /* of guesses */
    double read_per_token, missed_per_token, used_per_token; /* bytes; medians */
} sl_bench_figures;

sl_bench_figures sl_bench_figures_of(const sl_bench *b, uint32_t budget, uint32_t set,
                                     sl_trial_kind kind);
/* Of one run. */
double sl_trial_rate(const sl_trial_phase *p);
/* Seconds that disk and memory need for the phase; NaN: not known. */
double sl_trial_bound(const sl_bench *b, uint32_t set, const sl_trial_phase *p);
/* Of all runs of the set under the budget: the highest. */
uint64_t sl_bench_peak(const sl_bench *b, uint32_t budget, uint32_t set);

#endif
