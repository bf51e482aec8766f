/* sluice bench: how fast a model is here, cold and warm, beside what disk and memory allow; under
 * several budgets, and with several sets of options that take turns. Every run is a process of its
 * own (trial.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "bench_kernels.h"
#include "command.h"
#include "fnv.h"
#include "ids.h"
#include "report.h"
#include "term.h"

enum { PROMPT_USUAL = 512, TOKENS_USUAL = 64, REPEATS_USUAL = 3, MOST_RUNS = 100000 };

typedef struct bench {
    sl_bench b;
    sl_ids given;                 /* --ids */
    int32_t *cold_ids, *warm_ids; /* [n_prompt] */
    sl_progress progress;
    uint32_t n_runs, at; /* of all; the one that runs */
    uint64_t told[64];   /* hashes of notes and warnings: each is passed on once */
    uint32_t n_told;
    uint32_t wrong_output; /* for tests: the run whose output is to differ; 0: none */
} bench;

/* ---- options --------------------------------------------------------------------------------- */
static sl_status read_given_ids(bench *c, sl_err *err)
{
    const char *path = c->b.o->ids;
    const char *name = strcmp(path, "-") ? path : "standard input";
    char *text = NULL;
    uint64_t len = 0;
    sl_status st = sl_read_input(path, &text, &len, err);
    if (!st)
        st = sl_ids_parse(text, len, name, &c->given, err);
    free(text);
    if (!st && !c->given.n)
        st = sl_fail(err, SL_EINVAL, "%s: there is no token in it", name);
    if (!st && c->b.o->n_prompt > c->given.n)
        st = sl_fail(err, SL_EINVAL, "%s: holds %" PRIu64 " tokens, --prompt-tokens wants %" PRIu64,
                     name, c->given.n, c->b.o->n_prompt);
    return st;
}

static sl_status check_counts(bench *c, sl_err *err)
{
    const sl_options *o = c->b.o;
    sl_bench *b = &c->b;
    const uint64_t n_runs = (uint64_t)b->budgets.n * b->n_sets * b->n_repeats;
    if (!o->n_predict)
        return sl_fail(err, SL_EINVAL, "bench: --tokens: at least 1");
    if (o->csv + o->json + o->markdown > 1)
        return sl_fail(err, SL_EINVAL, "bench: only one of --csv, --json and --markdown");
    if (o->trace && n_runs > 1)
        return sl_fail(err, SL_EINVAL,
                       "bench: --trace keeps one run: it goes with one budget, -r 1 and no --vs");
    if (n_runs > MOST_RUNS)
        return sl_fail(err, SL_EINVAL, "bench: %" PRIu64 " runs are more than %d", n_runs,
                       MOST_RUNS);
    c->n_runs = (uint32_t)n_runs;
    return SL_OK;
}

static const sl_command *own_command(void)
{
    const sl_command *c = sl_commands();
    while (c->run != sl_cmd_bench)
        c++;
    return c;
}

/* What all sets have alike. */
static const char *alike(const sl_options *a, const sl_options *b)
{
    return a->memory_list != b->memory_list ? "--memory"
           : a->n_ctx != b->n_ctx           ? "--ctx"
           : a->disk_rate != b->disk_rate   ? "--disk"
                                            : NULL;
}

static sl_status read_set(bench *c, const char *text, sl_err *err)
{
    sl_bench_set *set = &c->b.set[c->b.n_sets++];
    sl_err why = {0};
    *set = (sl_bench_set){.text = text, .words = strdup(text), .o = *c->b.o};
    if (!set->words)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    sl_status st = sl_args_parse_settings(own_command(), set->words, &set->o, &why);
    const char *both = st ? NULL : alike(&set->o, c->b.o);
    if (both)
        st = sl_fail(&why, SL_EINVAL, "%s is the same for all sets", both);
    return st ? sl_fail(err, st, "bench: --vs '%.100s': %s", text, why.text) : SL_OK;
}

static sl_status read_options(bench *c, sl_err *err)
{
    sl_bench *b = &c->b;
    const sl_options *o = b->o;
    const char *fault = getenv("SL_FAULT_OUTPUT");
    c->wrong_output = fault ? (uint32_t)strtoul(fault, NULL, 10) : 0;
    sl_status st = read_set(c, "", err);
    for (uint32_t i = 0; !st && i < o->versus.n; i++)
        st = read_set(c, o->versus.text[i], err);
    if (!st)
        st = sl_budgets_parse(o->memory_list ? o->memory_list : "auto", true, &b->budgets, err);
    b->n_repeats = o->n_repeats ? (uint32_t)o->n_repeats : o->trace ? 1 : REPEATS_USUAL;
    b->n_tokens = o->n_predict == UINT64_MAX ? TOKENS_USUAL : (uint32_t)o->n_predict;
    b->own_ids = o->ids != NULL;
    if (!st)
        st = check_counts(c, err);
    return st;
}

/* ---- ids ------------------------------------------------------------------------------------- */
static sl_status check_length(const bench *c, sl_err *err)
{
    const sl_bench *b = &c->b;
    const uint64_t most = b->o->n_ctx ? b->o->n_ctx : b->survey.n_ctx_max;
    const uint64_t n = (uint64_t)b->n_prompt + b->n_tokens;
    return n <= most ? SL_OK
                     : sl_fail(err, SL_EINVAL,
                               "bench: %" PRIu64 " tokens (prompt and answer): the context holds "
                               "%" PRIu64,
                               n, most);
}

/* Made-up prompts that differ, or the given one twice. */
static sl_status make_ids(bench *c, sl_err *err)
{
    sl_bench *b = &c->b;
    const uint64_t n = b->n_prompt, n_vocab = b->survey.n_vocab;
    c->cold_ids = malloc(n * sizeof *c->cold_ids);
    c->warm_ids = malloc(n * sizeof *c->warm_ids);
    if (!c->cold_ids || !c->warm_ids)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    for (uint64_t i = 0; i < n; i++) {
        c->cold_ids[i] = b->own_ids ? c->given.id[i] : (int32_t)((100 + 37 * i) % n_vocab);
        c->warm_ids[i] = b->own_ids ? c->given.id[i] : (int32_t)((1000 + 53 * i) % n_vocab);
    }
    return SL_OK;
}

/* ---- the runs -------------------------------------------------------------------------------- */
static void show_progress(void *ctx, uint32_t permille)
{
    bench *c = ctx;
    sl_progress_update(&c->progress, 1000ull * c->at + permille);
}

/* Every run has the same to say. */
static void pass_on(void *ctx, sl_log_level level, const char *text)
{
    bench *c = ctx;
    const uint64_t hash = sl_fnv(SL_FNV_START, text, strlen(text));
    for (uint32_t i = 0; i < c->n_told; i++)
        if (c->told[i] == hash)
            return;
    if (c->n_told < sizeof c->told / sizeof c->told[0])
        c->told[c->n_told++] = hash;
    sl_log(level, "%s", text);
}

static sl_status named(const bench *c, uint32_t set, sl_status st, const char *text, sl_err *err)
{
    const char *options = c->b.set[set].text;
    if (c->b.n_sets == 1)
        return sl_fail(err, st, "%s", text);
    return sl_fail(err, st, "%s (%s): %s", sl_bench_name(set), *options ? options : "as given",
                   text);
}

/* auto is the same for all runs, and does not follow the machine. */
static void set_budget(const sl_bench *b, uint32_t budget, sl_options *o)
{
    o->memory_mode = b->budgets.item[budget].mode;
    o->memory_bytes = b->budgets.item[budget].bytes;
    if (o->memory_mode == SL_MEMORY_AUTO) {
        o->memory_mode = SL_MEMORY_BYTES;
        o->memory_bytes = b->survey.auto_bytes;
    }
}

/* A budget under the floor is a line of the report, unless it is the only one. */
static sl_status time_one(bench *c, uint32_t budget, uint32_t set, uint32_t repeat, sl_err *err)
{
    sl_bench *b = &c->b;
    sl_bench_run *run = sl_bench_run_of(b, budget, set, repeat);
    sl_options o = b->set[set].o;
    const sl_child_watch watch = {show_progress, pass_on, c};
    sl_err why = {0};
    set_budget(b, budget, &o);
    const sl_trial_job job = {.o = &o,
                              .cold_ids = c->cold_ids,
                              .warm_ids = c->warm_ids,
                              .n_prompt = b->n_prompt,
                              .n_tokens = b->n_tokens,
                              .wrong_output = c->at + 1 == c->wrong_output};
    sl_status st = sl_trial_run(&job, &run->t, &watch, &why);
    run->at = ++c->at;
    sl_progress_update(&c->progress, 1000ull * c->at);
    if (st == SL_EBUDGET && b->budgets.n > 1) {
        run->state = SL_RUN_UNDER_FLOOR;
        return SL_OK;
    }
    run->state = st ? SL_RUN_ABSENT : SL_RUN_DONE;
    return st ? named(c, set, st, why.text, err) : SL_OK;
}

/* Sets take turns, forwards and backwards, so that a disk or a clock that drifts favours none. */
static sl_status time_all(bench *c, sl_err *err)
{
    const sl_bench *b = &c->b;
    sl_status st = SL_OK;
    sl_progress_begin(&c->progress, "timing", 1000ull * c->n_runs, false);
    for (uint32_t r = 0; r < b->n_repeats && !st; r++)
        for (uint32_t m = 0; m < b->budgets.n && !st; m++)
            for (uint32_t s = 0; s < b->n_sets && !st; s++)
                st = time_one(c, m, r % 2 ? b->n_sets - 1 - s : s, r, err);
    sl_progress_end(&c->progress);
    return st;
}

/* Once more at the end: a disk, a clock or a neighbour may have changed meanwhile, and what is
 * called a bound should be one. */
static sl_status survey_again(bench *c, sl_err *err)
{
    const sl_child_watch watch = {NULL, pass_on, c};
    sl_survey *s = &c->b.survey, late;
    if (s->disk_source != SL_RATE_MEASURED)
        return SL_OK;
    sl_status st = sl_survey_run(c->b.o, &late, &watch, err);
    s->disk_least = late.disk < s->disk ? late.disk : s->disk;
    s->disk = late.disk > s->disk ? late.disk : s->disk;
    s->memory = late.memory > s->memory ? late.memory : s->memory;
    return st;
}

static sl_status prepare(bench *c, sl_err *err)
{
    sl_bench *b = &c->b;
    const sl_child_watch watch = {NULL, pass_on, c};
    sl_status st = b->own_ids ? read_given_ids(c, err) : SL_OK;
    b->n_prompt = (uint32_t)(b->o->n_prompt ? b->o->n_prompt
                             : b->own_ids   ? c->given.n
                                            : PROMPT_USUAL);
    b->run = calloc(c->n_runs, sizeof *b->run);
    if (!st && !b->run)
        st = sl_fail(err, SL_ENOMEM, "out of memory");
    if (!st)
        st = sl_survey_run(b->o, &b->survey, &watch, err);
    if (!st)
        st = check_length(c, err);
    return st ? st : make_ids(c, err);
}

/* Any option may change the speed and none the output, but for those that say so. */
static sl_status judge_output(const sl_bench *b, sl_err *err)
{
    for (uint32_t s = 0; s < b->n_sets; s++)
        if (!sl_bench_same_output(b, s) && !sl_bench_lossy(b, s))
            return sl_fail(err, SL_EINVAL,
                           "the output of %s differs from that of the first run: a bug, or memory "
                           "or a disk that fails",
                           sl_bench_name(s));
    return SL_OK;
}

static sl_status print(const sl_bench *b, sl_err *err)
{
    if (b->o->json)
        return sl_bench_print_json(b, err);
    if (b->o->csv)
        sl_bench_print_csv(b);
    else if (b->o->markdown)
        sl_bench_print_markdown(b);
    else
        sl_bench_print_text(b);
    return SL_OK;
}

static void close_bench(bench *c)
{
    sl_bench *b = &c->b;
    for (uint32_t s = 0; s < b->n_sets; s++)
        free(b->set[s].words);
    sl_budgets_free(&b->budgets);
    sl_ids_free(&c->given);
    free(c->cold_ids);
    free(c->warm_ids);
    free(b->run);
}

/* What was measured before an error or Ctrl-C is printed all the same. */
static int report(bench *c, sl_status st, sl_err *err)
{
    sl_bench *b = &c->b;
    sl_err late = {0};
    b->interrupted = st == SL_ECANCELLED && sl_interrupted();
    if (!st || sl_bench_done(b)) {
        sl_status printed = print(b, &late);
        if (!printed && !sl_bench_done(b))
            printed = sl_fail(&late, SL_EBUDGET, "none of these budgets is enough");
        if (!printed)
            printed = judge_output(b, &late);
        if (!st && printed)
            st = sl_fail(err, printed, "%s", late.text);
    }
    if (st && !b->interrupted)
        sl_complain("%s", err->text);
    return b->interrupted ? sl_interrupt_exit() : st ? SL_EXIT_FAILED : SL_EXIT_OK;
}

static int bench_model(const sl_options *o)
{
    bench c = {.b = {.o = o}};
    sl_err err = {0};
    int code = SL_EXIT_USAGE;
    if (read_options(&c, &err)) {
        sl_usage_error("%s", err.text);
    } else {
        sl_interrupt_catch();
        sl_status st = prepare(&c, &err);
        if (!st)
            st = time_all(&c, &err);
        if (!st)
            st = survey_again(&c, &err);
        code = report(&c, st, &err);
    }
    close_bench(&c);
    return code;
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
