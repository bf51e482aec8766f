/* sluice bench: how fast a model is here. The first prefill reads what the budget keeps; after it
 * prefill and decode are timed in turns, each from an empty context. Ids are made up: the time does
 * not depend on them, as long as experts do not. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench_kernels.h"
#include "command.h"
#include "phase.h"
#include "report.h"
#include "term.h"

enum { PROMPT_USUAL = 512, TOKENS_USUAL = 64, REPEATS_USUAL = 3 };

typedef struct bench {
    const sl_options *o;
    sl_setup setup;
    uint32_t n_prompt, n_tokens, n_repeats;
    int32_t *ids;               /* [the longer of the two] */
    sl_phase first;             /* the first prefill */
    sl_phase *prefill, *decode; /* [n_repeats] */
    sl_progress progress;
    uint64_t done; /* tokens */
} bench;

static sl_status check_options(bench *b, sl_err *err)
{
    const sl_options *o = b->o;
    const uint64_t tokens = o->n_predict == UINT64_MAX ? TOKENS_USUAL : o->n_predict;
    b->n_prompt = o->n_prompt ? (uint32_t)o->n_prompt : PROMPT_USUAL;
    b->n_tokens = (uint32_t)tokens;
    b->n_repeats = o->n_repeats ? (uint32_t)o->n_repeats : REPEATS_USUAL;
    if (!b->n_tokens)
        return sl_fail(err, SL_EINVAL, "bench: --tokens: at least 1");
    return SL_OK;
}

static uint32_t longest(const bench *b)
{
    return b->n_prompt > b->n_tokens ? b->n_prompt : b->n_tokens;
}

static sl_status load(bench *b, sl_err *err)
{
    const uint32_t n = longest(b), n_vocab = sl_model_about(b->setup.model).n_vocab;
    const uint32_t own = sl_model_about(b->setup.model).n_ctx_max;
    const uint64_t most = b->o->n_ctx ? b->o->n_ctx : own;
    const uint64_t bytes = n * sizeof *b->ids + 2 * b->n_repeats * sizeof *b->prefill;
    const sl_demand d = {.min_ctx = n, .max_ctx = n, .max_rows = n, .buffers_bytes = bytes};
    if (n > most)
        return sl_fail(err, SL_EINVAL, "bench: %" PRIu32 " tokens: the context holds %" PRIu64, n,
                       most);
    b->ids = malloc(n * sizeof *b->ids);
    b->prefill = calloc(b->n_repeats, sizeof *b->prefill);
    b->decode = calloc(b->n_repeats, sizeof *b->decode);
    if (!b->ids || !b->prefill || !b->decode)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < n; i++)
        b->ids[i] = (int32_t)((100 + 37 * (uint64_t)i) % n_vocab);
    return sl_setup_load(&b->setup, b->o, &d, err);
}

/* ---- the runs -------------------------------------------------------------------------------- */
static bool cancelled(void *ctx)
{
    (void)ctx;
    return sl_interrupted();
}

static sl_status take_logits(void *ctx, uint32_t first, uint32_t n, const float *logits)
{
    (void)ctx, (void)first, (void)n, (void)logits;
    return SL_OK;
}

static sl_status evaluate(bench *b, const int32_t *ids, uint32_t n, sl_err *err)
{
    const sl_eval e = {.ids = ids, .n = n, .logits = take_logits, .cancel = cancelled, .ctx = b};
    sl_status st = sl_session_eval(b->setup.session, &e, err);
    sl_progress_update(&b->progress, b->done += n);
    return st;
}

static sl_status time_prefill(bench *b, sl_phase *p, sl_err *err)
{
    sl_status st = sl_session_rewind(b->setup.session, 0, err);
    sl_phase_begin(p, &b->setup);
    if (!st)
        st = evaluate(b, b->ids, b->n_prompt, err);
    sl_phase_end(p, &b->setup, b->n_prompt);
    return st;
}

static sl_status time_decode(bench *b, sl_phase *p, sl_err *err)
{
    sl_status st = sl_session_rewind(b->setup.session, 0, err);
    sl_phase_begin(p, &b->setup);
    for (uint32_t i = 0; !st && i < b->n_tokens; i++)
        st = evaluate(b, b->ids + i, 1, err);
    sl_phase_end(p, &b->setup, b->n_tokens);
    return st;
}

static sl_status time_all(bench *b, sl_err *err)
{
    const uint64_t each = (uint64_t)b->n_prompt + b->n_tokens;
    sl_interrupt_catch();
    sl_progress_begin(&b->progress, "timing", b->n_prompt + each * b->n_repeats, false);
    sl_status st = time_prefill(b, &b->first, err);
    for (uint32_t i = 0; !st && i < b->n_repeats; i++) {
        st = time_prefill(b, &b->prefill[i], err);
        if (!st)
            st = time_decode(b, &b->decode[i], err);
    }
    sl_progress_end(&b->progress);
    return st;
}

/* ---- the report ------------------------------------------------------------------------------ */
typedef struct spread {
    double least, median, most; /* tokens per second */
} spread;

static int by_seconds(const void *a, const void *b)
{
    const double x = ((const sl_phase *)a)->seconds, y = ((const sl_phase *)b)->seconds;
    return (x > y) - (x < y);
}

static double rate_of(const sl_phase *p)
{
    return p->seconds > 0 ? (double)p->tokens / p->seconds : 0;
}

/* Sorts p. */
static spread spread_of(sl_phase *p, uint32_t n)
{
    qsort(p, n, sizeof *p, by_seconds);
    return (spread){rate_of(&p[n - 1]), (rate_of(&p[(n - 1) / 2]) + rate_of(&p[n / 2])) / 2,
                    rate_of(&p[0])};
}

static void say_phases(const char *name, sl_phase *p, uint32_t n)
{
    const spread s = spread_of(p, n);
    char read[SL_SHORT];
    sl_outf("%-14s %7" PRIu64 " %10.2f   %8.2f – %-8.2f  %s\n", name, p->tokens, s.median, s.least,
            s.most, sl_show_bytes(read, p[n / 2].io.bytes_read));
}

static void say_report(bench *b)
{
    const sl_split *split = sl_stream_split_of(sl_model_stream(b->setup.model));
    const sl_model_info info = sl_model_about(b->setup.model);
    const unsigned n_threads = sl_workers_count(b->setup.workers);
    char weights[SL_SHORT], streamed[SL_SHORT];
    sl_outf("%s: %s, %s of weights a token, %s of them from disk; %u thread%s, %s\n", b->o->operand,
            info.family, sl_show_bytes(weights, split->weights_bytes),
            sl_show_bytes(streamed, split->streamed_bytes), n_threads, n_threads == 1 ? "" : "s",
            sl_cpu_level_name(b->o->cpu_level < 0 ? sl_cpu_best() : (sl_cpu_level)b->o->cpu_level));
    sl_outf("                tokens   tokens/s    lowest – highest   read each time\n");
    say_phases("first prefill", &b->first, 1);
    say_phases("prefill", b->prefill, b->n_repeats);
    say_phases("decode", b->decode, b->n_repeats);
}

static void write_phases(sl_json_writer *w, const char *key, sl_phase *p, uint32_t n)
{
    const spread s = spread_of(p, n);
    sl_json_write_object(w, key);
    sl_json_write_uint(w, "tokens", p->tokens);
    sl_json_write_double(w, "tokens_per_s", s.median);
    sl_json_write_double(w, "tokens_per_s_least", s.least);
    sl_json_write_double(w, "tokens_per_s_most", s.most);
    sl_json_write_array(w, "runs");
    for (uint32_t i = 0; i < n; i++)
        sl_phase_write(w, NULL, &p[i]);
    sl_json_write_close(w);
    sl_json_write_close(w);
}

static sl_status write_report(bench *b, sl_err *err)
{
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "out of memory for the report");
    sl_json_write_object(w, NULL);
    sl_run_about_write(w, &b->setup, b->o);
    write_phases(w, "first_prefill", &b->first, 1);
    write_phases(w, "prefill", b->prefill, b->n_repeats);
    write_phases(w, "decode", b->decode, b->n_repeats);
    sl_json_write_close(w);
    sl_status st = sl_report_json(&w, err);
    sl_json_writer_free(&w);
    return st;
}

static void close_bench(bench *b)
{
    sl_setup_close(&b->setup);
    free(b->ids);
    free(b->prefill);
    free(b->decode);
}

static int bench_model(const sl_options *o)
{
    bench b = {.o = o};
    sl_err err = {0};
    if (check_options(&b, &err))
        return sl_usage_error("%s", err.text);
    sl_status st = sl_setup_open(&b.setup, o, &err);
    if (!st)
        st = load(&b, &err);
    if (!st)
        st = time_all(&b, &err);
    if (!st && o->json)
        st = write_report(&b, &err);
    else if (!st)
        say_report(&b);
    const bool interrupted = st == SL_ECANCELLED && sl_interrupted();
    if (st && !interrupted)
        sl_complain("%s", err.text);
    close_bench(&b);
    return interrupted ? sl_interrupt_exit() : st ? SL_EXIT_FAILED : SL_EXIT_OK;
}

int sl_cmd_bench(const sl_options *o)
{
    const bool kernels = o->kernels || o->memory_rate;
    if (kernels && o->operand)
        return sl_usage_error("bench: %s takes no file ('%.100s')",
                              o->kernels ? "--kernels" : "--memory-rate", o->operand);
    if (!kernels && !o->operand)
        return sl_usage_error("bench: say what to time: a MODEL, or --kernels");
    return kernels ? sl_bench_kernels(o) : bench_model(o);
}
