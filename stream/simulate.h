/* The scheduler on a virtual clock: replays a trace with other memory, another disk or another
 * policy, through the very sources that a run uses (sched.c, on_demand.c, pool.c, ring.c, rows.c,
 * split.c). The same input gives the same result, to the nanosecond. What it does not model: the
 * time that threads take to wake each other, and I/O that takes CPU time from the pass. */
#ifndef SL_SIMULATE_H
#define SL_SIMULATE_H

#include "trace.h"

/* Reads wait for one of depth places, then take latency_ns, at the same time for all, and then
 * their bytes, one after the other, at bytes_per_s. A disk that needs several reads at a time to
 * reach that gives one by itself no more than alone_per_s: what is missing counts as latency. Each
 * read costs each_ns beside its bytes, so that small ones reach less. */
typedef struct sl_disk_model {
    double bytes_per_s; /* at least 1 MB */
    uint64_t latency_ns;
    uint32_t depth;
    double alone_per_s; /* 0: bytes_per_s */
    uint64_t each_ns;
} sl_disk_model;

enum { SL_SIMULATE_ALL_HINTS = -1 };

typedef struct sl_simulate_options {
    sl_stream_options stream; /* the trace's, with what is to be different; disk_limit is obeyed */
    sl_disk_model disk;
    int64_t hints; /* of each guess: the first so many, SL_SIMULATE_ALL_HINTS: all */
    /* NULL, or called after each pass; true: stop (SL_ECANCELLED). */
    bool (*progress)(void *ctx, uint64_t passes);
    void *ctx;
} sl_simulate_options;

typedef struct sl_simulated { /* what prefill or decode took */
    uint64_t passes, rows;
    uint64_t ns; /* from the end of the phase's last pass or the start; of this, */
    uint64_t wait_ns, compute_ns;
    uint64_t bytes_read, evictions;
    sl_need_stats need;
} sl_simulated;

typedef struct sl_simulation {
    sl_split split;
    sl_simulated prefill, decode; /* verifying counts as decoding */
    uint64_t optimal_hits;        /* of decode.need.needs, at the most (optimal.h) */
} sl_simulation;

/* SL_EBUDGET: the plan's floor is above o->stream.memory_bytes (out->split says which). The trace
 * is rewound. */
sl_status sl_simulate(sl_trace *t, const sl_simulate_options *o, sl_simulation *out, sl_err *err);

#endif
