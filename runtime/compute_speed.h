/* How fast this machine computes a model, without its weights: passes of the model's own code over
 * memory that holds no weights (the null engine), so that every product has its true shape, type
 * and place in memory. Kept per CPU, threads, program version and shape in
 * $XDG_CACHE_HOME/sluice/speeds (docs/formats.md). Main thread only. */
#ifndef SL_COMPUTE_SPEED_H
#define SL_COMPUTE_SPEED_H

#include "args.h"
#include "setup.h"

typedef struct sl_compute_speed {
    double token_s; /* to compute one token alone, all its weights from memory; 0: not known */
    double row_s;   /* to compute a row of a prefill pass; 0: not known */
    double memory_bytes_per_s; /* sl_memory_rate(); 0: not known */
    uint64_t measured_in;      /* bytes of memory */
    char measured[24];         /* UTC, ISO 8601 */
    bool kept;                 /* known from an earlier time */
} sl_compute_speed;

/* What is kept, else (or if anew) measured in about a second and at most most_bytes of memory, and
 * then kept. Where that is too little *out stays zero. The model of s must not be loaded; it is
 * only looked at. Errors: out of memory, interrupted. */
sl_status sl_compute_speed_get(const sl_setup *s, const sl_options *o, uint64_t most_bytes,
                               bool anew, sl_compute_speed *out, sl_err *err);

#endif
