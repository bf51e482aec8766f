/* sluice eval: one context of text or ids; its perplexity, and on request all logits and the
 * residual between layers as a safetensors file. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "ids.h"
#include "phase.h"
#include "run_profile.h"
#include "report.h"
#include "safetensors_out.h"
#include "term.h"

typedef struct eval {
    const sl_options *o;
    sl_setup setup;
    sl_ids ids;
    sl_run_report report;
    sl_progress progress;
    uint64_t steps;
    double nll; /* sum over the predicted tokens */
    uint64_t n_predicted;
    sl_safetensors_out out; /* matrix 0: logits; 1 + i: hidden.i */
    sl_matrix_out *matrix;
    sl_err write_err; /* of the callbacks that cannot return one */
} eval;

static sl_status check_options(const sl_options *o, sl_err *err)
{
    if (!o->text == !o->ids)
        return sl_fail(err, SL_EINVAL, "eval: give either --text FILE or --ids FILE");
    if (o->hidden && !o->logits)
        return sl_fail(err, SL_EINVAL,
                       "eval: --hidden adds to the file of --logits; give that, "
                       "too");
    return SL_OK;
}

static sl_status encode(eval *e, const char *text, uint64_t len, sl_err *err)
{
    const sl_tokenizer *t = e->setup.tokenizer;
    sl_special special = e->o->special < 0 ? SL_SPECIAL_TEXT : (sl_special)e->o->special;
    sl_status st = SL_OK;
    if (!t)
        return sl_fail(err, e->setup.why.code, "no usable tokenizer (%.300s); --ids needs none",
                       e->setup.why.text);
    if (sl_tokenizer_adds_bos(t))
        st = sl_ids_push(&e->ids, sl_tokenizer_bos(t), err);
    return st ? st : sl_tokenizer_encode(t, text, len, special, &e->ids, err);
}

static sl_status read_ids(eval *e, sl_err *err)
{
    const char *path = e->o->ids ? e->o->ids : e->o->text;
    const char *name = strcmp(path, "-") ? path : "standard input";
    char *text = NULL;
    uint64_t len = 0;
    sl_status st = sl_read_input(path, &text, &len, err);
    if (!st)
        st = e->o->ids ? sl_ids_parse(text, len, name, &e->ids, err) : encode(e, text, len, err);
    free(text);
    if (!st && e->ids.n == 0)
        st = sl_fail(err, SL_EINVAL, "%s: there is no token in it", name);
    return st;
}

/* Cuts the tokens to the context, and says so. */
static void cut_ids(eval *e)
{
    uint64_t own = sl_model_about(e->setup.model).n_ctx_max;
    uint64_t most = e->o->n_ctx ? e->o->n_ctx : own;
    if (e->ids.n <= most)
        return;
    sl_log(SL_LOG_NOTE,
           "%" PRIu64 " tokens, of which the first %" PRIu64 " (the context) are "
           "evaluated",
           e->ids.n, most);
    e->ids.n = most;
}

static sl_status load(eval *e, sl_err *err)
{
    uint32_t n = (uint32_t)e->ids.n;
    sl_demand d = {.min_ctx = n,
                   .max_ctx = n,
                   .max_rows = n,
                   .all_logits = true,
                   .buffers_bytes = e->ids.cap * sizeof e->ids.id[0]};
    return sl_setup_load(&e->setup, e->o, &d, err);
}

static sl_status open_output(eval *e, sl_err *err)
{
    sl_model_info info = sl_model_about(e->setup.model);
    uint32_t n = e->o->hidden ? info.n_layers + 2 : 1;
    if (!e->o->logits)
        return SL_OK;
    e->matrix = calloc(n, sizeof e->matrix[0]);
    if (!e->matrix)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    e->matrix[0] = (sl_matrix_out){"logits", e->ids.n, info.n_vocab, 0};
    for (uint32_t i = 1; i < n; i++) {
        e->matrix[i] = (sl_matrix_out){"", e->ids.n, info.n_embd, 0};
        snprintf(e->matrix[i].name, sizeof e->matrix[i].name, "hidden.%" PRIu32, i - 1);
    }
    return sl_safetensors_out_open(&e->out, e->o->logits, e->matrix, n, err);
}

/* -log of the probability of id: log of the sum of exp, minus its logit; in double, id order. */
static double negative_log(const float *logits, uint32_t n_vocab, int32_t id)
{
    float best = logits[0];
    double sum = 0;
    for (uint32_t i = 1; i < n_vocab; i++)
        best = logits[i] > best ? logits[i] : best;
    for (uint32_t i = 0; i < n_vocab; i++)
        sum += exp((double)logits[i] - (double)best);
    return log(sum) + (double)best - (double)logits[id];
}

static sl_status take_logits(void *ctx, uint32_t first, uint32_t n, const float *logits)
{
    eval *e = ctx;
    uint32_t n_vocab = sl_model_about(e->setup.model).n_vocab;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t predicted = (uint64_t)first + i + 1;
        if (predicted >= e->ids.n)
            break;
        e->nll += negative_log(logits + (uint64_t)i * n_vocab, n_vocab, e->ids.id[predicted]);
        e->n_predicted++;
    }
    if (!e->o->logits)
        return SL_OK;
    return sl_safetensors_out_rows(&e->out, 0, first, n, logits, &e->write_err);
}

static void take_hidden(void *ctx, uint32_t index, uint32_t first, uint32_t n, const float *rows)
{
    eval *e = ctx;
    if (!e->write_err.code)
        sl_safetensors_out_rows(&e->out, 1 + index, first, n, rows, &e->write_err);
}

static bool cancelled(void *ctx)
{
    eval *e = ctx;
    sl_progress_update(&e->progress, ++e->steps);
    return sl_interrupted() || e->write_err.code;
}

static sl_status evaluate(eval *e, sl_err *err)
{
    uint32_t n = (uint32_t)e->ids.n, chunk = e->setup.price.session.chunk;
    uint64_t passes = (n + chunk - 1) / chunk;
    sl_err inner = {0};
    sl_eval ev = {.ids = e->ids.id,
                  .n = n,
                  .all_logits = true,
                  .logits = take_logits,
                  .hidden = e->o->hidden ? take_hidden : NULL,
                  .cancel = cancelled,
                  .ctx = e};
    sl_interrupt_catch();
    sl_progress_begin(&e->progress, "evaluating",
                      passes * sl_plan_unit_count(sl_model_plan(e->setup.model)), false);
    sl_phase_begin(&e->report.prefill, &e->setup);
    sl_status st = sl_session_eval(e->setup.session, &ev, &inner);
    sl_phase_end(&e->report.prefill, &e->setup, sl_session_length(e->setup.session));
    sl_progress_end(&e->progress);
    if (e->write_err.code)
        return sl_fail(err, e->write_err.code, "%s", e->write_err.text);
    if (st == SL_ECANCELLED && sl_interrupted())
        return sl_fail(err, st, "interrupted after %" PRIu32 " of %" PRIu32 " tokens",
                       sl_session_length(e->setup.session), n);
    e->report.ended = "length";
    return st ? sl_fail(err, st, "%s", inner.text) : SL_OK;
}

static sl_status print_result(const eval *e, sl_err *err)
{
    double mean = e->n_predicted ? e->nll / (double)e->n_predicted : NAN;
    if (!e->o->json) {
        if (e->n_predicted)
            sl_outf("perplexity %.6f over %" PRIu64 " tokens\n", exp(mean), e->n_predicted);
        else
            sl_outf("perplexity undefined: one token predicts nothing\n");
        return SL_OK;
    }
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "out of memory for the report");
    sl_json_write_object(w, NULL);
    sl_json_write_uint(w, "tokens", e->ids.n);
    sl_json_write_uint(w, "predicted", e->n_predicted);
    sl_json_write_double(w, "nll", mean);
    sl_json_write_double(w, "perplexity", exp(mean));
    sl_json_write_close(w);
    return sl_report_json(&w, err);
}

static sl_status finish(eval *e, sl_err *err)
{
    sl_status st = SL_OK;
    if (e->o->logits)
        st = sl_safetensors_out_commit(&e->out, err);
    if (!st)
        st = print_result(e, err);
    if (st)
        return st;
    sl_run_report_say(&e->report, &e->setup, e->o);
    st = sl_run_report_write(&e->report, &e->setup, e->o, err);
    return st ? st : sl_profile_end(&e->setup, e->o, err);
}

int sl_cmd_eval(const sl_options *o)
{
    eval e = {.o = o, .out.file.fd = -1};
    sl_err err = {0};
    if (check_options(o, &err))
        return sl_usage_error("%s", err.text);
    sl_status st = sl_run_report_check(o, &err);
    if (!st)
        st = sl_profile_check(o, &err);
    if (!st)
        st = sl_setup_open(&e.setup, o, &err);
    if (!st)
        e.o = &e.setup.options;
    if (!st)
        st = read_ids(&e, &err);
    if (!st) {
        cut_ids(&e);
        st = open_output(&e, &err);
    }
    if (!st)
        st = load(&e, &err);
    if (!st)
        st = evaluate(&e, &err);
    if (!st)
        st = finish(&e, &err);
    if (st)
        sl_complain("%s", err.text);
    sl_safetensors_out_abort(&e.out);
    sl_setup_close(&e.setup);
    sl_ids_free(&e.ids);
    free(e.matrix);
    return !st ? SL_EXIT_OK : sl_interrupted() ? sl_interrupt_exit() : SL_EXIT_FAILED;
}
