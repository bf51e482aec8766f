/* One measured run of a model under given options, and what this machine and model are like, each
 * in a process of its own (child.h). A trial evaluates a prompt and decodes greedily, cold; then,
 * with memory filled by that, another prompt and its decode, warm. Main thread only. */
#ifndef SL_TRIAL_H
#define SL_TRIAL_H

#include "child.h"
#include "cold.h"
#include "phase.h"
#include "rates.h"

typedef enum sl_trial_kind {
    SL_COLD_PREFILL,
    SL_COLD_DECODE,
    SL_WARM_PREFILL,
    SL_WARM_DECODE,
    SL_TRIAL_PHASES
} sl_trial_kind;

typedef struct sl_trial_job {
    const sl_options *o;                /* memory_mode and memory_bytes say the budget */
    const int32_t *cold_ids, *warm_ids; /* [n_prompt] each; borrowed */
    uint32_t n_prompt, n_tokens;
    bool wrong_output; /* for tests: the hash comes out as of another output */
} sl_trial_job;

typedef struct sl_trial_phase {
    sl_phase took;
    uint64_t missed_bytes; /* weights that this phase needed and memory did not hold */
    uint64_t used_bytes;   /* weights that its passes went through */
} sl_trial_phase;

typedef struct sl_trial {
    sl_trial_phase phase[SL_TRIAL_PHASES];
    uint64_t hash; /* of all generated ids, and of the logits at the end of every phase */
    uint64_t budget_bytes, charged_bytes, floor_bytes, part_bytes;
    uint32_t n_ctx, chunk, n_threads;
    sl_kv_type kv;
    sl_cpu_level level;
    sl_split split;
    char engine[96], refused[96];
    uint64_t peak_bytes; /* resident set of the run's process at most */
    sl_cold cold;
} sl_trial;

/* As sl_child_run(). SL_EBUDGET: out->floor_bytes is what would be enough. */
sl_status sl_trial_run(const sl_trial_job *job, sl_trial *out, const sl_child_watch *watch,
                       sl_err *err);

typedef struct sl_survey {
    char family[32];
    uint32_t n_vocab, n_ctx_max, n_experts, n_used, n_threads;
    uint64_t always_bytes;    /* weights that every token uses */
    uint64_t on_demand_bytes; /* experts */
    uint64_t auto_bytes;      /* what --memory auto takes here */
    double disk, memory;      /* bytes per second; 0: unknown */
    double disk_least;        /* the lowest, when measured more than once */
    sl_rate_source disk_source;
} sl_survey;

/* Headers of o->operand, and the rates of disk and memory (about two seconds). */
sl_status sl_survey_run(const sl_options *o, sl_survey *out, const sl_child_watch *watch,
                        sl_err *err);

#endif
