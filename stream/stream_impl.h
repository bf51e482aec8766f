/* A stream's own state, and how its I/O thread is told: for stream.c and resize.c. */
#ifndef SL_STREAM_IMPL_H
#define SL_STREAM_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "homes.h"
#include "io_threads.h"
#include "pages.h"
#include "rows.h"
#include "slab.h"
#include "trace.h"

struct sl_stream {
    const sl_plan *plan;
    sl_stream_options o;
    sl_split split;
    sl_slab slab;
    sl_engine *engine;
    char engine_text[160], refused[320];
    pthread_t thread;
    bool thread_on, lock_on;
    sl_pages pages; /* stopped for good by the first resize */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* for the pass: a part or the rows are there, or failed */
    atomic_uint changes;    /* counts them, so that the pass can spin without the lock */
    /* Under the lock: */
    sl_sched sched;
    bool sleeping; /* the I/O thread is in engine->wait, or on its way there */
    bool waiting;  /* the pass is in pthread_cond_wait */
    bool quit, started;
    sl_status start_status;
    sl_err start_err;

    sl_homes homes; /* the resizing thread's */

    /* The pass's thread's: */
    sl_rows rows;
    bool in_pass;
    uint32_t n_units, next_unit, entered;
    bool needed;          /* the entered unit has said which on-demand parts */
    const void *step_ctx; /* of the step that wait_for() repeats */
    uint64_t wait_ns, waits;
    sl_trace_writer *trace;     /* NULL: none is written */
    sl_stream_stats trace_from; /* when it began */
    sl_pass_kind last_kind;
};

/* The pass may have made room or added work. Only a thread that had nothing left to read need be
 * told; any other comes round by itself. Waking it for nothing as well took 2.6 ms of each token of
 * 75 (docs/experiments.md). Holding the lock. */
static inline void sl_stream_kick(sl_stream *s)
{
    if (!s->sleeping || !s->sched.starved || !s->sched.news)
        return;
    s->sched.starved = false;
    s->engine->ops->wake(s->engine);
}

#endif
