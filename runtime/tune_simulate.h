/* sluice tune on the simulator: a run's trace replayed under other settings. Coordinate descent:
 * one option after the other takes the value with which the replay ends first, until none moves;
 * then again from points drawn at random, since the options depend on each other. Main thread only.
 */
#ifndef SL_TUNE_SIMULATE_H
#define SL_TUNE_SIMULATE_H

#include "../stream/simulate.h"
#include "tune_space.h"

enum { SL_TUNE_FOUND = 8 };

typedef struct sl_found {
    sl_point point;
    double seconds; /* simulated */
} sl_found;

typedef struct sl_tune_search {
    sl_space *space;
    const sl_options *base; /* what the settings go over */
    uint32_t n_used;        /* experts of a token: what --predict auto guesses */
    uint64_t budget_bytes;  /* of a run without a trace */
    sl_disk_model disk;
    sl_point start;
    uint64_t until_ns;

    double usual_s; /* out: with the defaults */
    uint32_t n_runs;
    uint32_t n_found;
    sl_found found[SL_TUNE_FOUND]; /* best first, each faster than the defaults */
} sl_tune_search;

/* trace: a run in the budget in question. SL_ECANCELLED: Ctrl-C. */
sl_status sl_tune_simulate(sl_trace *trace, sl_tune_search *s, sl_err *err);

#endif
