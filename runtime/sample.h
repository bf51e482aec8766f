/* From logits to the next token: greedy, or penalty, top-k, top-p, min-p, temperature (in this
 * order, as llama.cpp applies them). The same seed and logits give the same tokens on every machine
 * whose libm rounds exp() alike: sums run in a defined order in double. Allocates only when made.
 */
#ifndef SL_SAMPLE_H
#define SL_SAMPLE_H

#include "../stream/base.h"

typedef struct sl_sample_options {
    double temp;           /* 0: greedy */
    uint64_t top_k;        /* 0: all */
    double top_p;          /* 1: all; the best token always stays */
    double min_p;          /* 0: all */
    double repeat_penalty; /* 1: none */
    uint64_t seed;
} sl_sample_options;

enum { SL_REPEAT_WINDOW = 64 };

typedef struct sl_sampler sl_sampler;

sl_sampler *sl_sampler_new(uint32_t n_vocab, const sl_sample_options *o); /* NULL: out of memory */
void sl_sampler_free(sl_sampler **s);
uint64_t sl_sampler_bytes(uint32_t n_vocab); /* what sl_sampler_new() takes, for the budget */

/* A token of the prompt or of the answer: what the repetition penalty looks back on. */
void sl_sampler_accept(sl_sampler *s, int32_t id);
/* logits: n_vocab finite floats or -infinity, not all of them. Of equal ones the lowest id counts
 * as the greater. */
int32_t sl_sampler_pick(sl_sampler *s, const float *logits);

#endif
