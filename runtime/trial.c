#include "trial.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fnv.h"
#include "sample.h"
#include "term.h"

/* What the waiting parent holds: charged to the same cgroup as the child. */
static const uint64_t PARENT_BYTES = 2 << 20;

typedef struct trial {
    const sl_trial_job *job;
    sl_setup setup;
    sl_sampler *sampler;
    sl_trial *out;
    int32_t next;
    bool last; /* of its phase: its logits are hashed */
    uint32_t n_vocab;
    uint64_t steps, most_steps, weight; /* of the progress */
} trial;

/* ---- evaluation ------------------------------------------------------------------------------ */
/* So many rows of a prefill pass take about as long as a decode pass, for the progress: 7 where
 * weights are in memory, 11 where experts are streamed. */
enum { ROWS_OF_A_TOKEN = 10 };

static uint64_t prefill_weight(const trial *t)
{
    const uint32_t n = t->job->n_prompt, rows = n < t->out->chunk ? n : t->out->chunk;
    return 1 + rows / ROWS_OF_A_TOKEN;
}

static bool cancelled(void *ctx)
{
    trial *t = ctx;
    t->steps += t->weight;
    sl_child_progress((uint32_t)(t->steps < t->most_steps ? 1000 * t->steps / t->most_steps : 999));
    return sl_interrupted();
}

static void hash(trial *t, const void *data, size_t len)
{
    t->out->hash = sl_fnv(t->out->hash, data, len);
}

static sl_status pick(void *ctx, uint32_t first, uint32_t n, const float *logits)
{
    trial *t = ctx;
    const float *row = logits + (uint64_t)(n - 1) * t->n_vocab;
    (void)first;
    t->next = sl_sampler_pick(t->sampler, row);
    hash(t, &t->next, sizeof t->next);
    if (t->last)
        hash(t, row, t->n_vocab * sizeof *row);
    return SL_OK;
}

static sl_status evaluate(trial *t, const int32_t *ids, uint32_t n, bool last, sl_err *err)
{
    const sl_eval e = {.ids = ids, .n = n, .logits = pick, .cancel = cancelled, .ctx = t};
    t->last = last;
    return sl_session_eval(t->setup.session, &e, err);
}

/* ---- what a phase needed --------------------------------------------------------------------- */
static void count_bytes(const trial *t, sl_trial_phase *p, bool first)
{
    const sl_split *s = &t->out->split;
    const sl_stream_stats *io = &p->took.io;
    const sl_need_stats *n = &io->need;
    const uint64_t each = s->on_demand_parts ? s->on_demand_bytes / s->on_demand_parts : 0;
    uint64_t missed = s->streamed_bytes * io->passes + n->miss_bytes + n->hint_bytes;
    missed -= n->wasted_bytes < missed ? n->wasted_bytes : missed;
    if (first)
        missed += s->weights_bytes - s->streamed_bytes;
    /* Passes before the last one of a long prompt leave the head out. */
    p->missed_bytes = missed < io->bytes_read ? missed : io->bytes_read;
    p->used_bytes = s->weights_bytes * io->passes + n->needs * each;
}

static sl_status prefill(trial *t, const int32_t *ids, sl_trial_kind kind, sl_err *err)
{
    sl_trial_phase *p = &t->out->phase[kind];
    t->weight = prefill_weight(t);
    sl_phase_begin(&p->took, &t->setup);
    const sl_status st = evaluate(t, ids, t->job->n_prompt, true, err);
    sl_phase_end(&p->took, &t->setup, t->job->n_prompt);
    count_bytes(t, p, kind == SL_COLD_PREFILL);
    return st;
}

static sl_status decode(trial *t, sl_trial_kind kind, sl_err *err)
{
    sl_trial_phase *p = &t->out->phase[kind];
    const uint32_t n = t->job->n_tokens;
    sl_status st = SL_OK;
    t->weight = 1;
    sl_phase_begin(&p->took, &t->setup);
    for (uint32_t i = 0; !st && i < n; i++) {
        const int32_t id = t->next;
        st = evaluate(t, &id, 1, i + 1 == n, err);
    }
    sl_phase_end(&p->took, &t->setup, n);
    count_bytes(t, p, false);
    return st;
}

static sl_status both_texts(trial *t, sl_err *err)
{
    const sl_checkpoint *files = sl_model_checkpoint(t->setup.model);
    sl_status st = prefill(t, t->job->cold_ids, SL_COLD_PREFILL, err);
    if (!st)
        st = decode(t, SL_COLD_DECODE, err);
    sl_cold_end(&t->out->cold, files,
                t->out->phase[SL_COLD_PREFILL].took.io.bytes_read +
                    t->out->phase[SL_COLD_DECODE].took.io.bytes_read);
    if (!st)
        st = sl_session_rewind(t->setup.session, 0, err);
    if (!st)
        st = prefill(t, t->job->warm_ids, SL_WARM_PREFILL, err);
    return st ? st : decode(t, SL_WARM_DECODE, err);
}

/* ---- the run --------------------------------------------------------------------------------- */
static void describe(trial *t)
{
    const sl_price *p = &t->setup.price;
    sl_trial *out = t->out;
    sl_stream *stream = sl_model_stream(t->setup.model);
    out->budget_bytes = p->budget.limit_bytes;
    out->charged_bytes = sl_budget_charged(&p->budget);
    out->part_bytes = p->part_bytes;
    out->n_ctx = p->session.n_ctx;
    out->chunk = p->session.chunk;
    out->kv = p->session.kv;
    out->n_threads = sl_workers_count(t->setup.workers);
    out->level = sl_setup_cpu_level(t->job->o);
    out->split = *sl_stream_split_of(stream);
    snprintf(out->engine, sizeof out->engine, "%s", sl_stream_engine(stream));
    snprintf(out->refused, sizeof out->refused, "%s", sl_stream_refused(stream));
    const uint64_t passes = (t->job->n_prompt + out->chunk - 1) / out->chunk;
    t->most_steps = 2 * (sl_plan_unit_count(sl_model_plan(t->setup.model)) + 1) *
                    (passes * prefill_weight(t) + t->job->n_tokens);
}

static sl_status load(trial *t, sl_err *err)
{
    static const sl_sample_options greedy = {.top_p = 1, .repeat_penalty = 1};
    const uint32_t n = t->job->n_prompt + t->job->n_tokens;
    t->n_vocab = sl_model_about(t->setup.model).n_vocab;
    const sl_demand d = {.min_ctx = n,
                         .max_ctx = n,
                         .max_rows = t->job->n_prompt,
                         .buffers_bytes = PARENT_BYTES + sl_sampler_bytes(t->n_vocab) +
                                          2ull * t->job->n_prompt * sizeof t->next};
    t->sampler = sl_sampler_new(t->n_vocab, &greedy);
    if (!t->sampler)
        return sl_fail(err, SL_ENOMEM, "out of memory for the sampler");
    sl_status st = sl_cold_begin(&t->out->cold, sl_model_checkpoint(t->setup.model), err);
    if (!st)
        st = sl_setup_load(&t->setup, &t->setup.options, &d, err);
    t->out->floor_bytes = t->setup.price.floor_bytes;
    if (!st)
        describe(t);
    return st;
}

static sl_status run_trial(const void *ctx, void *result, sl_err *err)
{
    trial t = {.job = ctx, .out = result};
    sl_memory_use use = {0};
    *t.out = (sl_trial){.hash = SL_FNV_START};
    sl_status st = sl_setup_open(&t.setup, t.job->o, err);
    if (!st)
        st = load(&t, err);
    if (!st)
        st = both_texts(&t, err);
    if (!st)
        st = sl_memory_use_now(&use, err);
    t.out->peak_bytes = use.peak_bytes;
    t.out->hash ^= t.job->wrong_output;
    sl_sampler_free(&t.sampler);
    sl_setup_close(&t.setup);
    return st;
}

sl_status sl_trial_run(const sl_trial_job *job, sl_trial *out, const sl_child_watch *watch,
                       sl_err *err)
{
    *out = (sl_trial){0};
    return sl_child_run(run_trial, job, out, sizeof *out, watch, err);
}

/* ---- the survey ------------------------------------------------------------------------------ */
static sl_status run_survey(const void *ctx, void *result, sl_err *err)
{
    sl_options with = *(const sl_options *)ctx;
    const sl_options *o = &with;
    sl_survey *out = result;
    sl_setup s;
    *out = (sl_survey){0};
    with.no_kept = true; /* the runs say what is used in their budgets */
    sl_status st = sl_setup_open(&s, o, err);
    if (!st) {
        const sl_model_info info = sl_model_about(s.model);
        snprintf(out->family, sizeof out->family, "%s", info.family);
        out->n_vocab = info.n_vocab;
        out->n_ctx_max = info.n_ctx_max;
        out->n_experts = info.n_experts;
        out->n_used = info.n_used;
        out->n_threads = sl_workers_count(s.workers);
        out->auto_bytes = s.auto_bytes;
        out->always_bytes = sl_plan_always_bytes(sl_model_plan(s.model));
        out->on_demand_bytes = sl_plan_on_demand_bytes(sl_model_plan(s.model));
        st = sl_rates_disk(&s, o, &out->disk, &out->disk_source, err);
        out->disk_least = out->disk;
    }
    if (!st)
        st = sl_rates_memory(&s, &out->memory, err);
    sl_setup_close(&s);
    return st;
}

sl_status sl_survey_run(const sl_options *o, sl_survey *out, const sl_child_watch *watch,
                        sl_err *err)
{
    *out = (sl_survey){0};
    return sl_child_run(run_survey, o, out, sizeof *out, watch, err);
}
