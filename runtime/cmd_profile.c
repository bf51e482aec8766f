/* sluice profile: runs a model for some tokens, as run would, and says where the time went; or says
 * it of a trace. What the model writes is not shown. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "ids.h"
#include "run_profile.h"
#include "report.h"
#include "sample.h"
#include "term.h"

enum { TOKENS_USUAL = 32, PROMPT_IDS = 64 };

/* Ordinary words: experts are used as texts use them. */
static const char usual_text[] =
    "The old lighthouse stood at the end of the pier, and for forty years nobody had asked who "
    "kept "
    "its lamp. Every evening a boat went out with oil and bread, and every morning it came back "
    "empty. When the harbour was rebuilt, the engineers found a ledger with the weather of each "
    "day, "
    "written in a careful hand. The last line said: tomorrow the wind will turn, and";

typedef struct profile {
    const sl_options *o;
    sl_setup setup;
    sl_ids prompt;
    sl_sampler *sampler;
    sl_progress progress;
    uint64_t steps;
    uint32_t n_tokens;
    int32_t next; /* picked by the last evaluation */
} profile;

static sl_status check_options(const sl_options *o, sl_err *err)
{
    if ((o->prompt != NULL) + (o->file != NULL) + (o->ids != NULL) > 1)
        return sl_fail(err, SL_EINVAL, "profile: give only one of --prompt, --file and --ids");
    return SL_OK;
}

/* ---- the prompt ---- */

static sl_status encode(profile *p, const char *text, uint64_t len, sl_err *err)
{
    const sl_tokenizer *t = p->setup.tokenizer;
    const sl_special special = p->o->special < 0 ? SL_SPECIAL_PARSE : (sl_special)p->o->special;
    sl_status st = SL_OK;
    if (!t)
        return sl_fail(err, p->setup.why.code,
                       "no usable tokenizer (%.300s); --ids needs none, nor does no prompt at all",
                       p->setup.why.text);
    if (sl_tokenizer_adds_bos(t))
        st = sl_ids_push(&p->prompt, sl_tokenizer_bos(t), err);
    return st ? st : sl_tokenizer_encode(t, text, len, special, &p->prompt, err);
}

/* Without a tokenizer there are no words: ids that are as good as any. */
static sl_status make_ids(profile *p, sl_err *err)
{
    const uint32_t n_vocab = sl_model_about(p->setup.model).n_vocab;
    sl_status st = SL_OK;
    for (uint32_t i = 0; i < PROMPT_IDS && !st; i++)
        st = sl_ids_push(&p->prompt, (int32_t)((100 + 37 * (uint64_t)i) % n_vocab), err);
    return st;
}

static sl_status read_prompt(profile *p, sl_err *err)
{
    const sl_options *o = p->o;
    const char *path = o->ids ? o->ids : o->file;
    char *text = NULL;
    uint64_t len = 0;
    if (o->prompt)
        return encode(p, o->prompt, strlen(o->prompt), err);
    if (!path)
        return p->setup.tokenizer ? encode(p, usual_text, strlen(usual_text), err)
                                  : make_ids(p, err);
    sl_status st = sl_read_input(path, &text, &len, err);
    if (!st && o->ids)
        st = sl_ids_parse(text, len, strcmp(path, "-") ? path : "standard input", &p->prompt, err);
    else if (!st)
        st = encode(p, text, len, err);
    free(text);
    return st;
}

static sl_status check_prompt(const profile *p, sl_err *err)
{
    const uint32_t own = sl_model_about(p->setup.model).n_ctx_max;
    const uint64_t most = p->o->n_ctx ? p->o->n_ctx : own;
    if (p->prompt.n == 0)
        return sl_fail(err, SL_EINVAL, "profile: the prompt is empty");
    if (p->prompt.n + p->n_tokens > most)
        return sl_fail(err, SL_EINVAL,
                       "profile: %" PRIu64 " tokens of prompt and %" PRIu32
                       " more, the context holds %" PRIu64,
                       p->prompt.n, p->n_tokens, most);
    return SL_OK;
}

/* ---- the run ---- */

static sl_status load(profile *p, sl_err *err)
{
    const sl_options *o = p->o;
    const uint32_t n_vocab = sl_model_about(p->setup.model).n_vocab;
    const uint32_t n = (uint32_t)p->prompt.n + p->n_tokens;
    const sl_sample_options so = {o->temp, o->top_k, o->top_p, o->min_p, o->repeat_penalty, 1};
    const sl_demand d = {.min_ctx = n,
                         .max_ctx = n,
                         .max_rows = (uint32_t)p->prompt.n,
                         .buffers_bytes =
                             sl_sampler_bytes(n_vocab) + p->prompt.cap * sizeof p->prompt.id[0]};
    p->sampler = sl_sampler_new(n_vocab, &so);
    if (!p->sampler)
        return sl_fail(err, SL_ENOMEM, "out of memory for the sampler");
    return sl_setup_load(&p->setup, o, &d, err);
}

static bool cancelled(void *ctx)
{
    profile *p = ctx;
    sl_progress_update(&p->progress, ++p->steps);
    return sl_interrupted();
}

static sl_status pick(void *ctx, uint32_t first, uint32_t n, const float *logits)
{
    profile *p = ctx;
    (void)first;
    const uint64_t n_vocab = sl_model_about(p->setup.model).n_vocab;
    p->next = sl_sampler_pick(p->sampler, logits + (n - 1) * n_vocab);
    return SL_OK;
}

static sl_status evaluate(profile *p, const int32_t *ids, uint32_t n, sl_err *err)
{
    const sl_eval e = {.ids = ids, .n = n, .logits = pick, .cancel = cancelled, .ctx = p};
    return sl_session_eval(p->setup.session, &e, err);
}

/* Ctrl-C ends it early: what has been recorded is reported. */
static sl_status run(profile *p, sl_err *err)
{
    const uint32_t n = (uint32_t)p->prompt.n, chunk = p->setup.price.session.chunk;
    const uint64_t units = sl_plan_unit_count(sl_model_plan(p->setup.model));
    sl_interrupt_catch();
    for (uint32_t i = 0; i < n; i++)
        sl_sampler_accept(p->sampler, p->prompt.id[i]);
    sl_progress_begin(&p->progress, "running", ((n + chunk - 1) / chunk + p->n_tokens) * units,
                      false);
    sl_status st = evaluate(p, p->prompt.id, n, err);
    for (uint32_t i = 0; i < p->n_tokens && !st; i++) {
        const int32_t id = p->next;
        sl_sampler_accept(p->sampler, id);
        st = evaluate(p, &id, 1, err);
    }
    sl_progress_end(&p->progress);
    return st == SL_ECANCELLED && sl_interrupted() ? SL_OK : st;
}

static int profile_model(const sl_options *o)
{
    profile p = {.o = o};
    sl_err err = {0};
    p.n_tokens = o->n_predict == UINT64_MAX ? TOKENS_USUAL : (uint32_t)o->n_predict;
    if (check_options(o, &err))
        return sl_usage_error("%s", err.text);
    sl_status st = sl_profile_check(o, &err);
    if (!st)
        st = sl_setup_open(&p.setup, o, &err);
    if (!st) {
        p.o = &p.setup.options;
        st = read_prompt(&p, &err);
    }
    if (!st)
        st = check_prompt(&p, &err);
    if (!st)
        st = load(&p, &err);
    if (!st)
        st = run(&p, &err);
    if (!st)
        st = sl_profile_end(&p.setup, p.o, &err);
    if (st)
        sl_complain("%s", err.text);
    sl_setup_close(&p.setup);
    sl_sampler_free(&p.sampler);
    sl_ids_free(&p.prompt);
    return st ? SL_EXIT_FAILED : sl_interrupted() ? sl_interrupt_exit() : SL_EXIT_OK;
}

static int profile_trace(const sl_options *o)
{
    sl_err err = {0};
    if (o->run_option)
        return sl_usage_error("profile: %s is about running a MODEL; '%.100s' is a trace of a run",
                              o->run_option, o->operand);
    sl_interrupt_catch();
    sl_status st = sl_profile_check(o, &err);
    if (!st)
        st = sl_profile_of_trace(o, &err);
    if (st)
        sl_complain("%s", err.text);
    return st ? SL_EXIT_FAILED : SL_EXIT_OK;
}

int sl_cmd_profile(const sl_options *o)
{
    sl_options mine = *o;
    mine.profile = o->profile_json ? o->profile_json : "";
    return sl_profile_is_trace(o->operand) ? profile_trace(&mine) : profile_model(&mine);
}
