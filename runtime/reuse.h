/* How often a token's experts are in the pool already, as a function of the pool's size: from a
 * trace, from what an earlier run kept (warm_start.h), or from a usual model. Main thread only. */
#ifndef SL_REUSE_H
#define SL_REUSE_H

#include "setup.h"

typedef enum sl_reuse_source {
    SL_REUSE_USUAL, /* as found for a trained model of 128 experts (docs/experiments.md) */
    SL_REUSE_KEPT,  /* from the uses that the last runs of this model kept */
    SL_REUSE_TRACE  /* from a trace, replayed */
} sl_reuse_source;

typedef struct sl_reuse {
    sl_reuse_source source;
    uint32_t n;             /* expert parts of the model; 0: it has none */
    double *hits;           /* KEPT: [n + 1] hit rate by slots */
    struct sl_trace *trace; /* TRACE */
    double recall, wasted;  /* of guesses: sl_expect_experts */
} sl_reuse;

/* trace: path or NULL. Errors: the trace is none, damaged, or of another model. */
sl_status sl_reuse_open(const sl_setup *s, const char *trace, sl_reuse *out, sl_err *err);
void sl_reuse_close(sl_reuse *r);
/* With this split, out of stream->memory_bytes. SL_EBUDGET: a replay does not fit. */
sl_status sl_reuse_hits(const sl_reuse *r, const sl_split *split, const sl_stream_options *stream,
                        double *hits, sl_err *err);

/* Hit rate by slots of pools that keep the most used of n parts: use [n] as sl_stream_uses_get()
 * gives it, unit [n] tells which layer a part belongs to (ascending); hits [n + 1]. A part's share
 * is drawn to its layer's mean as far as chance alone would spread so few uses. False: no uses, or
 * out of memory. */
bool sl_reuse_of_uses(const float *use, const uint32_t *unit, uint32_t n, double *hits);
/* Of a pool with places for this share of all experts. */
double sl_reuse_usual(double share);

#endif
