/* sluice run: a prompt in, its continuation out, token by token. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "ids.h"
#include "phase.h"
#include "run_profile.h"
#include "report.h"
#include "sample.h"
#include "stop.h"
#include "term.h"
#include "warm_start.h"

typedef struct run {
    const sl_options *o;
    sl_setup setup;
    sl_ids prompt;
    sl_sampler *sampler;
    sl_detok detok;
    char *piece; /* sl_detok_room() bytes */
    sl_stop stop;
    sl_run_report report;
    sl_progress progress; /* of the prefill */
    uint64_t steps;
    int32_t next;   /* picked by the last evaluation */
    char last_byte; /* of the output */
} run;

static sl_status check_options(const sl_options *o, sl_err *err)
{
    if ((o->prompt != NULL) + (o->file != NULL) + (o->ids != NULL) > 1)
        return sl_fail(err, SL_EINVAL, "run: give only one of --prompt, --file and --ids");
    if (!o->prompt && !o->file && !o->ids && isatty(STDIN_FILENO))
        return sl_fail(err, SL_EINVAL,
                       "run: no prompt: give --prompt TEXT or --file FILE, or pipe a text in");
    if (o->print_ids && o->stop.n)
        return sl_fail(err, SL_EINVAL, "run: --stop is about text; it has no use with --print-ids");
    return SL_OK;
}

static sl_status need_tokenizer(const sl_setup *s, sl_err *err)
{
    if (s->tokenizer)
        return SL_OK;
    return sl_fail(err, s->why.code,
                   "no usable tokenizer (%.300s); --ids with --print-ids runs without one",
                   s->why.text);
}

static sl_status encode_prompt(run *r, const char *text, uint64_t len, sl_err *err)
{
    const sl_options *o = r->o;
    const sl_tokenizer *t = r->setup.tokenizer;
    sl_special special = o->special < 0 ? SL_SPECIAL_PARSE : (sl_special)o->special;
    sl_status st = SL_OK;
    if (sl_tokenizer_adds_bos(t))
        st = sl_ids_push(&r->prompt, sl_tokenizer_bos(t), err);
    if (!st)
        st = sl_tokenizer_encode(t, text, len, special, &r->prompt, err);
    /* The prompt says itself how it begins: one BOS is enough. */
    if (!st && r->prompt.n >= 2 && sl_tokenizer_adds_bos(t) &&
        r->prompt.id[1] == sl_tokenizer_bos(t)) {
        memmove(r->prompt.id, r->prompt.id + 1, (r->prompt.n - 1) * sizeof r->prompt.id[0]);
        r->prompt.n--;
    }
    return st;
}

static sl_status read_prompt(run *r, sl_err *err)
{
    const sl_options *o = r->o;
    const char *path = o->ids ? o->ids : o->file ? o->file : "-";
    char *text = NULL;
    uint64_t len = 0;
    sl_status st = SL_OK;
    if (!o->ids || !o->print_ids)
        st = need_tokenizer(&r->setup, err);
    if (st)
        return st;
    if (o->prompt)
        return encode_prompt(r, o->prompt, strlen(o->prompt), err);
    st = sl_read_input(path, &text, &len, err);
    if (!st && o->ids)
        st = sl_ids_parse(text, len, strcmp(path, "-") ? path : "standard input", &r->prompt, err);
    else if (!st)
        st = encode_prompt(r, text, len, err);
    free(text);
    return st;
}

static sl_status check_prompt(const run *r, sl_err *err)
{
    sl_model_info info = sl_model_about(r->setup.model);
    uint64_t most = r->o->n_ctx ? r->o->n_ctx : info.n_ctx_max;
    if (r->prompt.n == 0)
        return sl_fail(err, SL_EINVAL,
                       "the prompt is empty, and this model has no BOS token to "
                       "begin with");
    if (r->prompt.n > most)
        return sl_fail(err, SL_EINVAL,
                       "the prompt has %" PRIu64 " tokens, the context holds %" PRIu64
                       "; -c N makes it larger",
                       r->prompt.n, most);
    return SL_OK;
}

static uint64_t fresh_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = (uint64_t)time(NULL) * 1000003u ^ (uint64_t)getpid();
    return seed >> 11; /* short enough to type */
}

static sl_status open_output(run *r, sl_err *err)
{
    const sl_options *o = r->o;
    uint64_t room = 8;
    r->report.seed = o->seed_given ? o->seed : fresh_seed();
    r->report.sampled = o->temp > 0;
    sl_sample_options so = {o->temp,  o->top_k,          o->top_p,
                            o->min_p, o->repeat_penalty, r->report.seed};
    r->sampler = sl_sampler_new(sl_model_about(r->setup.model).n_vocab, &so);
    if (r->setup.tokenizer)
        room = sl_detok_room(r->setup.tokenizer);
    r->piece = malloc(room + 1);
    if (!r->sampler || !r->piece)
        return sl_fail(err, SL_ENOMEM, "out of memory for the sampler");
    return sl_stop_open(&r->stop, o->stop.text, o->stop.n, room, err);
}

static sl_status load(run *r, sl_err *err)
{
    uint64_t n = r->o->n_predict, prompt = r->prompt.n;
    uint64_t most = prompt + n < n || prompt + n > UINT32_MAX ? UINT32_MAX : prompt + n;
    uint64_t least = n < 256 ? prompt + n : prompt + 256;
    sl_demand d = {.min_ctx = (uint32_t)least,
                   .max_ctx = (uint32_t)most,
                   .max_rows = (uint32_t)prompt,
                   .buffers_bytes = sl_sampler_bytes(sl_model_about(r->setup.model).n_vocab) +
                                    r->prompt.cap * sizeof r->prompt.id[0]};
    return sl_setup_load(&r->setup, r->o, &d, err);
}

/* ---- output ---------------------------------------------------------------------------------- */
static void print(run *r, const char *data, uint64_t len)
{
    if (len == 0)
        return;
    sl_out(data, len);
    sl_out_flush();
    r->last_byte = data[len - 1];
}

/* true: a stop text has come. */
static bool print_piece(run *r, uint64_t len)
{
    const char *text;
    uint64_t text_len;
    bool found = sl_stop_push(&r->stop, r->piece, len, &text, &text_len);
    print(r, text, text_len);
    return found;
}

static sl_status emit(run *r, int32_t id, bool *stopped, sl_err *err)
{
    char text[16];
    uint64_t len = 0;
    if (r->o->print_ids) {
        len =
            (uint64_t)snprintf(text, sizeof text, "%s%" PRId32, r->report.generated ? " " : "", id);
        print(r, text, len);
        return SL_OK;
    }
    sl_status st = sl_detok_push(&r->detok, r->setup.tokenizer, id, true, r->piece, &len, err);
    if (!st)
        *stopped = print_piece(r, len);
    return st;
}

static void end_output(run *r, bool stopped)
{
    const char *text;
    uint64_t len = 0;
    if (!stopped && !r->o->print_ids && r->setup.tokenizer) {
        sl_detok_end(&r->detok, r->piece, &len);
        if (!print_piece(r, len)) {
            sl_stop_end(&r->stop, &text, &len);
            print(r, text, len);
        }
    }
    if (r->last_byte && r->last_byte != '\n' && (r->o->print_ids || isatty(STDOUT_FILENO)))
        print(r, "\n", 1);
}

/* ---- the loop -------------------------------------------------------------------------------- */
static sl_status pick(void *ctx, uint32_t first, uint32_t n, const float *logits)
{
    run *r = ctx;
    (void)first;
    uint64_t n_vocab = sl_model_about(r->setup.model).n_vocab;
    r->next = sl_sampler_pick(r->sampler, logits + (n - 1) * n_vocab);
    return SL_OK;
}

static bool cancelled(void *ctx)
{
    run *r = ctx;
    if (r->progress.total)
        sl_progress_update(&r->progress, ++r->steps);
    return sl_interrupted();
}

static sl_status evaluate(run *r, const int32_t *ids, uint32_t n, sl_err *err)
{
    sl_eval e = {.ids = ids, .n = n, .logits = pick, .cancel = cancelled, .ctx = r};
    return sl_session_eval(r->setup.session, &e, err);
}

static sl_status prefill(run *r, sl_err *err)
{
    uint32_t n = (uint32_t)r->prompt.n, chunk = r->setup.price.session.chunk;
    uint64_t passes = (n + chunk - 1) / chunk;
    for (uint32_t i = 0; i < n; i++)
        sl_sampler_accept(r->sampler, r->prompt.id[i]);
    sl_progress_begin(&r->progress, "reading the prompt",
                      passes * sl_plan_unit_count(sl_model_plan(r->setup.model)), false);
    sl_phase_begin(&r->report.prefill, &r->setup);
    sl_status st = evaluate(r, r->prompt.id, n, err);
    sl_phase_end(&r->report.prefill, &r->setup,
                 st ? sl_session_length(r->setup.session) : r->prompt.n);
    sl_progress_end(&r->progress);
    r->progress.total = 0;
    return st;
}

static bool is_end(const run *r, int32_t id)
{
    if (r->o->ignore_eos)
        return false;
    if (r->setup.tokenizer)
        return sl_tokenizer_is_end(r->setup.tokenizer, id);
    return id == sl_model_about(r->setup.model).eos;
}

/* Why generation ends now, before anything more is evaluated; NULL: it goes on. */
static const char *end_reason(const run *r)
{
    if (r->report.generated >= r->o->n_predict)
        return "length";
    if (sl_interrupted())
        return "interrupted";
    if (sl_out_failed())
        return "output closed";
    return NULL;
}

static sl_status generate(run *r, bool *stopped, sl_err *err)
{
    uint64_t evaluated = 0;
    sl_status st = SL_OK;
    sl_run_report *report = &r->report;
    sl_phase_begin(&report->decode, &r->setup);
    while (!st && !(report->ended = end_reason(r))) {
        int32_t id = r->next;
        if (is_end(r, id)) {
            report->ended = "end token";
            break;
        }
        st = emit(r, id, stopped, err);
        report->generated++;
        if (*stopped) {
            report->ended = "stop text";
            break;
        }
        if (st || (report->ended = end_reason(r)))
            break;
        if (sl_session_length(r->setup.session) == sl_session_capacity(r->setup.session)) {
            report->ended = "context full";
            break;
        }
        sl_sampler_accept(r->sampler, id);
        st = evaluate(r, &id, 1, err);
        evaluated += !st;
    }
    sl_phase_end(&report->decode, &r->setup, evaluated);
    return st;
}

static sl_status run_all(run *r, sl_err *err)
{
    bool stopped = false;
    sl_interrupt_catch();
    if (!r->o->no_warm_start)
        sl_warm_start_load(&r->setup);
    sl_status st = prefill(r, err);
    if (!st)
        st = generate(r, &stopped, err);
    if (!st && !r->o->no_warm_start)
        sl_warm_start_save(&r->setup);
    if (st == SL_ECANCELLED && sl_interrupted()) {
        r->report.ended = "interrupted";
        st = SL_OK;
    }
    end_output(r, stopped);
    if (st)
        return st;
    if (!strcmp(r->report.ended, "context full"))
        sl_log(SL_LOG_NOTE, "the context of %" PRIu32 " tokens is full; -c N makes it larger",
               sl_session_capacity(r->setup.session));
    sl_run_report_say(&r->report, &r->setup, r->o);
    st = sl_run_report_write(&r->report, &r->setup, r->o, err);
    return st ? st : sl_profile_end(&r->setup, r->o, err);
}

static void close_run(run *r)
{
    sl_stop_close(&r->stop);
    sl_sampler_free(&r->sampler);
    free(r->piece);
    sl_setup_close(&r->setup);
    sl_ids_free(&r->prompt);
}

int sl_cmd_run(const sl_options *o)
{
    run r = {.o = o};
    sl_err err = {0};
    if (check_options(o, &err))
        return sl_usage_error("%s", err.text);
    sl_status st = sl_run_report_check(o, &err);
    if (!st)
        st = sl_profile_check(o, &err);
    if (!st)
        st = sl_setup_open(&r.setup, o, &err);
    if (!st)
        r.o = &r.setup.options;
    if (!st)
        st = read_prompt(&r, &err);
    if (!st)
        st = check_prompt(&r, &err);
    if (!st)
        st = open_output(&r, &err);
    if (!st)
        st = load(&r, &err);
    if (!st)
        st = run_all(&r, &err);
    if (st)
        sl_complain("%s", err.text);
    close_run(&r);
    return st ? SL_EXIT_FAILED : sl_interrupted() ? sl_interrupt_exit() : SL_EXIT_OK;
}
