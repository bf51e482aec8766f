/* What a token and a prompt will take under a split of the memory, from what disk, memory and
 * kernels give: arithmetic only, no I/O. The pipeline's structure is in it (docs/streaming.md), no
 * fitted factor. For plan, bench and tune. Any thread. */
#ifndef SL_EXPECT_H
#define SL_EXPECT_H

#include "disk_figures.h"

/* The experts of a model and how they come to be there. */
typedef struct sl_expect_experts {
    uint32_t n_layers;  /* with experts; 0: none */
    uint32_t n_experts; /* of a layer */
    uint32_t n_used;    /* of these, by a token */
    double hit_rate;    /* share of a token's experts that the pool holds, without guesses */
    double recall;      /* of what is missing, the share that was guessed a layer before */
    double wasted;      /* bytes read for wrong guesses, per byte read for right ones */
} sl_expect_experts;

typedef struct sl_expect {
    sl_disk_speed disk;
    double token_s, row_s;     /* sl_compute_speed */
    double memory_bytes_per_s; /* 0: not known */
    uint32_t chunk;            /* rows of a prefill pass */
    uint32_t prompt;           /* rows of a prompt */
    bool cores_shared; /* the I/O thread has no core of its own: what it takes holds all threads up,
                          since they meet after every product */
    sl_expect_experts experts;
} sl_expect;

typedef struct sl_expectation {
    uint64_t used_bytes;              /* weights of a token */
    uint64_t read_bytes;              /* of these, from disk (and what is read in vain) */
    double token_s;                   /* 0: not known, as all below */
    double read_s, compute_s, wait_s; /* the disk's time, the CPU's, and what the CPU waits */
    double bound_s;        /* no program can be faster: max(missing / disk, used / memory) */
    double prompt_row_s;   /* of a prompt, when memory holds what it keeps */
    double first_prompt_s; /* of the first one, which reads what is kept too */
} sl_expectation;

sl_expectation sl_expect_of(const sl_expect *x, const sl_split *s);

#endif
