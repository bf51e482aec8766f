/* sluice tune: looks for the settings with which a model runs fastest here, first on the simulator,
 * then on the machine, and keeps them if they are certain to be better than the defaults. */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "disk_figures.h"
#include "fnv.h"
#include "ids.h"
#include "kept.h"
#include "rates.h"
#include "report.h"
#include "term.h"
#include "tune_race.h"
#include "tune_simulate.h"

enum {
    SECONDS_USUAL = 300,
    PROMPT_MOST = 512, /* of a run; and a third of its time */
    PROMPT_LEAST = 8,
    TOKENS_MOST = 256,
    TOKENS_LEAST = 8,
    PROBE_PROMPT = 16,
    PROBE_TOKENS = 4,
    MOST_RACERS = SL_TUNE_FOUND + 2,
    DUEL_RUNS = 12, /* the shortest one that is won */
    DISK_LATENCY_NS = 80000,
    DISK_DEPTH = 32
};

/* Shares of the time: of the simulator, and after which the halving and the climbing end. */
static const double SIMULATE = 0.15, HALVE_UNTIL = 0.45, CLIMB_UNTIL = 0.6;
/* A setting that the runs so far make this much slower than the defaults gets no duel. */
static const double HOPELESS = 1.005;

typedef enum verdict { KEPT, NOT_FASTER, NOT_CERTAIN, NOT_ENOUGH, NOT_RACED } verdict;

typedef struct tune {
    const sl_options *o;
    sl_options base; /* without any of the settings */
    sl_setting start;
    sl_kept *kept;
    sl_machine machine;
    sl_survey model;
    sl_trial usual; /* a run with the defaults */
    double usual_s;
    uint64_t memory_bytes; /* the budget that the settings are for; 0: the floor */
    sl_ids given;
    int32_t *cold_ids, *warm_ids;
    sl_race race;
    double seconds; /* that it may take */
    sl_space space;
    uint32_t n_simulated;
    sl_setting best;
    uint32_t n_raced; /* runs that could have shown something better */
    double ratio;     /* its seconds over the defaults', before the duel */
    sl_duel duel;
    verdict verdict;
    bool was_kept; /* something was, before */
    uint64_t told[32];
    uint32_t n_told;
} tune;

/* Every run has the same to say. */
static void pass_on(void *ctx, sl_log_level level, const char *text)
{
    tune *t = ctx;
    const uint64_t hash = sl_fnv(SL_FNV_START, text, strlen(text));
    for (uint32_t i = 0; i < t->n_told; i++)
        if (t->told[i] == hash)
            return;
    if (t->n_told < sizeof t->told / sizeof t->told[0])
        t->told[t->n_told++] = hash;
    sl_log(level, "%s", text);
}

static uint64_t moment(const tune *t, double share)
{
    return t->race.begin_ns + (uint64_t)(share * t->seconds * 1e9);
}

/* ---- before the work --------------------------------------------------------------------------
 */
static sl_status load_kept(const sl_options *o, sl_kept *k, sl_err *err)
{
    sl_checkpoint *c = NULL;
    sl_status st = sl_checkpoint_open(o->operand, &c, err);
    if (!st)
        st = sl_kept_load(c, k, err);
    sl_checkpoint_close(&c);
    malloc_trim(0);
    return st;
}

/* What cannot be written is said before the work is done; what cannot be read will be replaced. */
static sl_status open_kept(tune *t, sl_err *err)
{
    sl_err why = {0};
    t->kept = calloc(1, sizeof *t->kept);
    if (!t->kept)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    sl_status st = load_kept(t->o, t->kept, &why);
    if (st && !t->kept->there)
        return sl_fail(err, st, "%s", why.text);
    if (st)
        sl_log(SL_LOG_WARN, "%s; what tune finds replaces it", why.text);
    sl_machine_look(&t->machine);
    return sl_kept_check(t->kept, err);
}

static sl_status look_at_model(const void *ctx, void *result, sl_err *err)
{
    const sl_options *o = ctx;
    sl_survey *out = result;
    sl_setup s;
    *out = (sl_survey){0};
    sl_status st = sl_setup_open(&s, o, err);
    if (!st) {
        const sl_model_info info = sl_model_about(s.model);
        out->n_vocab = info.n_vocab;
        out->n_ctx_max = info.n_ctx_max;
        out->n_used = info.n_used;
        snprintf(out->family, sizeof out->family, "%s", info.family);
        out->n_threads = sl_workers_count(s.workers);
        out->memory = (double)sl_setup_limit(&s, o);
    }
    sl_setup_close(&s);
    return st;
}

/* The budget stays what it is now, whatever others take meanwhile. */
static sl_status look(tune *t, sl_err *err)
{
    const sl_child_watch watch = {NULL, pass_on, t};
    sl_status st = sl_child_run(look_at_model, &t->base, &t->model, sizeof t->model, &watch, err);
    if (st)
        return st;
    t->memory_bytes = (uint64_t)t->model.memory;
    if (t->base.memory_mode == SL_MEMORY_AUTO) {
        t->base.memory_mode = SL_MEMORY_BYTES;
        t->base.memory_bytes = t->memory_bytes;
    }
    return SL_OK;
}

static sl_status read_ids(tune *t, sl_err *err)
{
    char *text = NULL;
    uint64_t len = 0;
    const char *path = t->o->ids;
    if (!path)
        return SL_OK;
    sl_status st = sl_read_input(path, &text, &len, err);
    if (!st)
        st = sl_ids_parse(text, len, strcmp(path, "-") ? path : "standard input", &t->given, err);
    if (!st && !t->given.n)
        st = sl_fail(err, SL_EINVAL, "tune: --ids: there are none");
    free(text);
    return st;
}

/* ---- what a run is ----------------------------------------------------------------------------
 */
static sl_status make_ids(tune *t, uint64_t n, sl_err *err)
{
    int32_t *cold = realloc(t->cold_ids, n * sizeof *cold);
    t->cold_ids = cold ? cold : t->cold_ids;
    int32_t *warm = realloc(t->warm_ids, n * sizeof *warm);
    t->warm_ids = warm ? warm : t->warm_ids;
    if (!cold || !warm)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    for (uint64_t i = 0; i < n; i++) {
        const bool own = t->given.n > 0;
        cold[i] = own ? t->given.id[i % t->given.n] : (int32_t)((100 + 37 * i) % t->model.n_vocab);
        warm[i] = own ? t->given.id[i % t->given.n] : (int32_t)((1000 + 53 * i) % t->model.n_vocab);
    }
    t->race.cold_ids = cold;
    t->race.warm_ids = warm;
    return SL_OK;
}

static uint32_t between(double x, uint32_t least, uint32_t most)
{
    return x < least ? least : x > most ? most : (uint32_t)x;
}

static double rate(const sl_trial *t, sl_trial_kind kind)
{
    const sl_phase *p = &t->phase[kind].took;
    return p->seconds > 0 ? (double)p->tokens / p->seconds : 1e9;
}

static sl_status set_length(tune *t, uint64_t n_prompt, uint64_t n_tokens, sl_err *err)
{
    const uint64_t most = t->o->n_ctx ? t->o->n_ctx : t->model.n_ctx_max;
    if (n_prompt + n_tokens > most)
        return sl_fail(err, SL_EINVAL,
                       "tune: %" PRIu64 " tokens (prompt and answer): the context holds %" PRIu64,
                       n_prompt + n_tokens, most);
    t->race.n_prompt = (uint32_t)n_prompt;
    t->race.n_tokens = (uint32_t)n_tokens;
    return make_ids(t, n_prompt, err);
}

/* As long as the time allows for about 60 runs: a third of it prompt, the rest decoding. */
static sl_status size_runs(tune *t, sl_err *err)
{
    const sl_options *o = t->o;
    const sl_setting usual = {0};
    sl_trial probe;
    double seconds, each;
    sl_status st = set_length(t, PROBE_PROMPT, PROBE_TOKENS, err);
    t->race.why = " (a short run, to see how long the others may be)";
    if (!st)
        st = sl_race_run(&t->race, &usual, &seconds, &probe, err);
    t->race.why = NULL;
    if (st)
        return st;
    each = t->seconds / 60 < 8 ? t->seconds / 60 : 8;
    each = each / 2 > 0.1 ? each / 2 : 0.1; /* of two texts */
    uint64_t prompt = between(rate(&probe, SL_WARM_PREFILL) * each / 3, PROMPT_LEAST, PROMPT_MOST);
    uint64_t tokens =
        between(rate(&probe, SL_WARM_DECODE) * each * 2 / 3, TOKENS_LEAST, TOKENS_MOST);
    const uint64_t most = o->n_ctx ? o->n_ctx : t->model.n_ctx_max;
    if (!o->n_prompt && o->n_predict == UINT64_MAX && prompt + tokens > most) {
        prompt = most / 2;
        tokens = most - prompt;
    }
    prompt = o->n_prompt ? o->n_prompt : t->given.n ? t->given.n : prompt;
    t->race.hashed = false; /* another text */
    return set_length(t, prompt, o->n_predict == UINT64_MAX ? tokens : o->n_predict, err);
}

/* ---- the simulator ----------------------------------------------------------------------------
 */
static sl_status trace_place(char out[PATH_MAX], sl_err *err)
{
    const char *folder = getenv("TMPDIR");
    snprintf(out, PATH_MAX, "%s/sluice-tune-XXXXXX", folder && *folder ? folder : "/tmp");
    const int fd = mkstemp(out);
    if (fd < 0)
        return sl_fail_errno(err, errno, "%s: cannot make a file for the trace", out);
    close(fd);
    return SL_OK;
}

/* A run from where the search begins; with more guesses than usual, so that there are some to
 * simulate. */
static sl_status record(tune *t, const char *path, sl_err *err)
{
    sl_options o = t->base;
    sl_setting s = t->start;
    char guesses[SL_VALUE];
    double seconds;
    o.trace = path;
    snprintf(guesses, sizeof guesses, "%u", 2 * t->model.n_used);
    if (t->model.n_used && sl_setting_add(&s, "predict", guesses, NULL) != SL_OK)
        sl_setting_add(&s, "predict", "auto", NULL);
    const sl_options *base = t->race.base;
    t->race.base = &o;
    t->race.why = " (with a trace, for the simulator)";
    sl_err why = {0};
    sl_status st = sl_race_run(&t->race, &s, &seconds, NULL, &why);
    if (st == SL_EBUDGET) { /* a budget near the floor */
        o.memory_bytes += SL_TRACE_MEMORY;
        sl_log(SL_LOG_NOTE, "one run takes 4 MiB more than the budget, for a trace");
        why = (sl_err){0};
        st = sl_race_run(&t->race, &s, &seconds, NULL, &why);
    }
    if (st)
        sl_fail(err, st, "%s", why.text);
    t->race.base = base;
    t->race.why = NULL;
    return st;
}

/* One read alone, of two sizes, says how long it takes to begin, and how fast one goes by itself.
 */
static void alone_of(const sl_disk_figures *f, sl_disk_model *d)
{
    const uint64_t small = 64 << 10, large = 1 << 20;
    const sl_disk_point *a = sl_disk_point_find(f, SL_IO_DIRECT, small, small, true);
    const sl_disk_point *b = sl_disk_point_find(f, SL_IO_DIRECT, large, large, true);
    const double more = a && b ? b->p50_s - a->p50_s : 0;
    if (more <= 0)
        return;
    d->alone_per_s = (double)(large - small) / more;
    const double begin = a->p50_s - (double)small / d->alone_per_s;
    d->latency_ns = begin > 0 ? (uint64_t)(begin * 1e9) : 0;
}

/* What many reads of two sizes gave says what each costs beside its bytes. */
static void each_of(const sl_disk_figures *f, sl_disk_model *d)
{
    const uint64_t small = 64 << 10, flight = sl_stream_defaults().in_flight_bytes;
    const sl_disk_point *a = sl_disk_point_find(f, SL_IO_DIRECT, small, flight, false);
    if (a && a->bytes_per_s > 0 && a->bytes_per_s < d->bytes_per_s)
        d->each_ns = (uint64_t)((double)small * (1e9 / a->bytes_per_s - 1e9 / d->bytes_per_s));
}

/* As the options say or sluice disk has measured it; bytes_per_s 0: not known. */
static sl_disk_model disk_of(const tune *t)
{
    sl_disk_model d = {.latency_ns = DISK_LATENCY_NS, .depth = DISK_DEPTH};
    const uint64_t said = sl_setup_disk_rate(t->o);
    sl_disk_figures *f = malloc(sizeof *f);
    if (!said && f && sl_disk_figures_load(t->kept->model, f)) {
        d.bytes_per_s = sl_disk_speed_of(f).bytes_per_s;
        alone_of(f, &d);
        each_of(f, &d);
    }
    free(f);
    if (said)
        d.bytes_per_s = (double)said;
    return d;
}

static sl_status measure_disk(const void *ctx, void *result, sl_err *err)
{
    sl_setup s;
    sl_rate_source from;
    sl_status st = sl_setup_open(&s, ctx, err);
    if (!st)
        st = sl_rates_disk(&s, ctx, result, &from, err);
    sl_setup_close(&s);
    return st;
}

static void say_simulated(const tune *t, const sl_tune_search *s, double seconds)
{
    char text[SL_SETTING_TEXT], took[SL_SHORT], disk[SL_SHORT];
    sl_setting best = {0};
    if (s->n_found)
        best = sl_space_setting(&t->space, &s->found[0].point);
    sl_say("simulated %u settings in %s, on a disk of %s and %.0f us", s->n_runs,
           sl_show_seconds(took, seconds), sl_show_rate(disk, s->disk.bytes_per_s),
           (double)s->disk.latency_ns / 1e3);
    sl_say("          the defaults %.3f s, the best %.3f s: %s", s->usual_s,
           s->n_found ? s->found[0].seconds : s->usual_s, sl_setting_show(text, &best));
}

static sl_status search(tune *t, const char *path, sl_tune_search *s, sl_err *err)
{
    sl_trace *trace = NULL;
    const sl_child_watch watch = {NULL, pass_on, t};
    sl_err why = {0};
    sl_status st = SL_OK;
    *s = (sl_tune_search){.space = &t->space,
                          .base = &t->base,
                          .n_used = t->model.n_used,
                          .budget_bytes = t->usual.budget_bytes,
                          .disk = disk_of(t),
                          .start = sl_space_point(&t->space, &t->start),
                          .until_ns = sl_now_ns() + (uint64_t)(SIMULATE * t->seconds * 1e9)};
    if (s->disk.bytes_per_s <= 0)
        st = sl_child_run(measure_disk, &t->base, &s->disk.bytes_per_s, sizeof s->disk.bytes_per_s,
                          &watch, err);
    if (st)
        return st;
    if (sl_trace_open(path, &trace, &why)) {
        sl_log(SL_LOG_WARN, "%s; the simulator is left out", why.text);
        return SL_OK;
    }
    const uint64_t begin = sl_now_ns();
    st = sl_tune_simulate(trace, s, err);
    sl_trace_close(&trace);
    malloc_trim(0); /* runs are forked from here, and pay for what this process holds */
    t->n_simulated = s->n_runs;
    if (!st && s->n_runs)
        say_simulated(t, s, (double)(sl_now_ns() - begin) / 1e9);
    return st;
}

/* Nothing found: *s says so. */
static sl_status simulate(tune *t, sl_tune_search *s, sl_err *err)
{
    char path[PATH_MAX];
    sl_err why = {0};
    *s = (sl_tune_search){0};
    if (sl_split_all_stay(&t->usual.split))
        return SL_OK;
    if (trace_place(path, &why)) {
        sl_log(SL_LOG_WARN, "%s; the simulator is left out", why.text);
        return SL_OK;
    }
    sl_status st = record(t, path, err);
    if (!st)
        st = search(t, path, s, err);
    unlink(path);
    return st;
}

/* ---- the machine ------------------------------------------------------------------------------
 */
static uint32_t racers(tune *t, const sl_tune_search *s, sl_setting *out)
{
    const sl_kept_entry *before = sl_kept_find(t->kept, &t->machine, t->memory_bytes);
    uint32_t n = 0;
    t->was_kept = before != NULL;
    if (before && !before->bad.code && before->setting.n)
        out[n++] = before->setting;
    if (t->start.n)
        out[n++] = t->start;
    for (uint32_t i = 0; i < s->n_found; i++)
        out[n++] = sl_space_setting(&t->space, &s->found[i].point);
    return n;
}

/* While nothing is better than the defaults there is nothing to duel with, but the time for one. */
static uint64_t climb_until(const tune *t, const sl_setting *from)
{
    const uint64_t usual = moment(t, CLIMB_UNTIL);
    const uint64_t duel_ns = (uint64_t)(DUEL_RUNS * t->race.run_s * 1e9);
    const uint64_t late = t->race.end_ns > duel_ns ? t->race.end_ns - duel_ns : 0;
    return from->n || late < usual ? usual : late;
}

static sl_status race(tune *t, const sl_tune_search *s, sl_err *err)
{
    sl_setting list[MOST_RACERS];
    const uint32_t n = racers(t, s, list);
    double climbed = 1;
    t->ratio = 1;
    const uint32_t before = t->race.n_runs;
    sl_status st = SL_OK;
    if (n)
        st = sl_race_halve(&t->race, list, n, moment(t, HALVE_UNTIL), &t->ratio, err);
    if (st)
        return st;
    if (!n || t->ratio >= 1) {
        list[0] = (sl_setting){0};
        t->ratio = 1;
    }
    sl_point p = sl_space_point(&t->space, &list[0]);
    st = sl_race_climb(&t->race, &t->space, &p, climb_until(t, &list[0]), &climbed, err);
    t->n_raced = t->race.n_runs - before;
    t->ratio *= climbed;
    t->best = sl_space_setting(&t->space, &p);
    if (!st && t->best.n && t->ratio < HOPELESS)
        st = sl_race_duel(&t->race, &t->best, &t->duel, err);
    return st;
}

/* ---- the verdict ------------------------------------------------------------------------------
 */
static verdict judge(const tune *t)
{
    if (sl_duel_won(&t->duel))
        return KEPT;
    if (!t->n_raced)
        return NOT_RACED;
    if (!t->best.n || (t->ratio >= HOPELESS && !t->duel.n))
        return NOT_FASTER;
    return sl_duel_lost(&t->duel) ? NOT_ENOUGH : NOT_CERTAIN;
}

static double median(const double *x, uint32_t n)
{
    double sorted[SL_DUEL_PAIRS];
    memcpy(sorted, x, n * sizeof *x);
    for (uint32_t i = 1; i < n; i++) /* few */
        for (uint32_t k = i; k > 0 && sorted[k] < sorted[k - 1]; k--) {
            const double swap = sorted[k];
            sorted[k] = sorted[k - 1];
            sorted[k - 1] = swap;
        }
    return n ? 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]) : 0;
}

static sl_status keep(tune *t, sl_err *err)
{
    const sl_kept_entry e = {.setting = t->best,
                             .default_s = median(t->duel.usual, t->duel.n),
                             .tuned_s = median(t->duel.other, t->duel.n),
                             .gain = t->duel.gain,
                             .pairs = t->duel.n,
                             .faster = t->duel.faster,
                             .n_prompt = t->race.n_prompt,
                             .n_tokens = t->race.n_tokens};
    if (t->verdict == KEPT)
        return sl_kept_save(t->kept, &t->machine, t->memory_bytes, &e, err);
    /* What was kept before has lost against the defaults now. */
    if (t->was_kept && (t->verdict == NOT_FASTER || t->verdict == NOT_ENOUGH))
        return sl_kept_save(t->kept, &t->machine, t->memory_bytes, NULL, err);
    return SL_OK;
}

static void print_verdict(const tune *t)
{
    char text[SL_SETTING_TEXT];
    const sl_duel *d = &t->duel;
    sl_setting_show(text, &t->best);
    if (t->verdict == NOT_FASTER) {
        sl_outf("nothing kept: no setting was faster than the defaults\n");
        return;
    }
    if (!t->best.n) {
        sl_outf("nothing kept: %s\n", sl_interrupted()
                                          ? "stopped before anything was certain"
                                          : "no time to try anything; --for gives more");
        return;
    }
    sl_outf("best      %s\n", text);
    if (d->n)
        sl_outf("against   the defaults: %.3f s instead of %.3f s, %+.1f %%; faster in %u of %u "
                "pairs\n",
                median(d->other, d->n), median(d->usual, d->n), 100 * d->gain, d->faster, d->n);
    if (t->verdict == KEPT)
        sl_outf("kept in   %s\n          run, eval and bench use it; --no-kept ignores it\n",
                t->kept->path);
    else
        sl_outf("nothing kept: %s\n", t->verdict == NOT_ENOUGH
                                          ? "that is not 3 % more"
                                          : "that is not certain; --for gives more time");
}

static void print_text(const tune *t)
{
    char a[SL_SHORT], b[SL_SHORT];
    const double took = (double)(sl_now_ns() - t->race.begin_ns) / 1e9;
    sl_outf("tried     %u settings simulated, %u runs here in %s; every output the same\n",
            t->n_simulated, t->race.n_runs, sl_show_seconds(a, took));
    sl_outf("a run     two texts, each of %u tokens of prompt and %u decoded, in %s\n",
            t->race.n_prompt, t->race.n_tokens, sl_kept_budget(b, t->memory_bytes));
    print_verdict(t);
    if (t->was_kept && (t->verdict == NOT_FASTER || t->verdict == NOT_ENOUGH))
        sl_outf("what was kept before is removed\n");
}

static void write_setting(sl_json_writer *w, const char *key, const sl_setting *s)
{
    sl_json_write_object(w, key);
    for (uint32_t i = 0; i < s->n; i++)
        sl_json_write_string(w, s->item[i].name, s->item[i].value);
    sl_json_write_close(w);
}

static sl_status print_json(const tune *t, sl_err *err)
{
    static const char *const words[] = {"kept", "not faster", "not certain", "not 3 % faster",
                                        "not tried"};
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "out of memory for the report");
    sl_json_write_object(w, NULL);
    sl_json_write_string(w, "model", t->o->operand);
    sl_json_write_uint(w, "memory", t->memory_bytes);
    sl_json_write_uint(w, "prompt_tokens", t->race.n_prompt);
    sl_json_write_uint(w, "tokens", t->race.n_tokens);
    sl_json_write_uint(w, "simulated", t->n_simulated);
    sl_json_write_uint(w, "runs", t->race.n_runs);
    sl_json_write_double(w, "seconds", (double)(sl_now_ns() - t->race.begin_ns) / 1e9);
    write_setting(w, "options", &t->best);
    sl_json_write_string(w, "verdict", words[t->verdict]);
    sl_json_write_double(w, "gain", t->duel.gain);
    sl_json_write_uint(w, "pairs", t->duel.n);
    sl_json_write_uint(w, "faster", t->duel.faster);
    sl_json_write_double(w, "default_s", t->duel.n ? median(t->duel.usual, t->duel.n) : t->usual_s);
    sl_json_write_double(w, "tuned_s", median(t->duel.other, t->duel.n));
    sl_json_write_string(w, "kept_in", t->verdict == KEPT ? t->kept->path : NULL);
    sl_json_write_close(w);
    return sl_report_json(&w, err);
}

/* ---- the whole --------------------------------------------------------------------------------
 */
static void begin(tune *t)
{
    const char *fault = getenv("SL_FAULT_OUTPUT");
    t->base = *t->o;
    t->start = sl_setting_given(t->o);
    t->seconds = t->o->seconds > 0 ? t->o->seconds : SECONDS_USUAL;
    sl_args_open(&t->base);
    t->race = (sl_race){.base = &t->base,
                        .begin_ns = sl_now_ns(),
                        .wrong_run = fault ? strtoull(fault, NULL, 10) : 0,
                        .log = pass_on,
                        .log_ctx = t};
    t->race.end_ns = moment(t, 1);
    sl_interrupt_catch();
}

static sl_status tune_all(tune *t, sl_err *err)
{
    const sl_setting usual = {0};
    sl_tune_search s;
    begin(t);
    sl_status st = open_kept(t, err);
    if (!st)
        st = read_ids(t, err);
    if (!st)
        st = look(t, err);
    if (!st)
        st = size_runs(t, err);
    if (!st)
        st = sl_race_run(&t->race, &usual, &t->usual_s, &t->usual, err);
    if (st)
        return st;
    sl_space_make(&t->space, &t->model, &t->usual, t->race.n_prompt);
    st = simulate(t, &s, err);
    return st ? st : race(t, &s, err);
}

static void close_tune(tune *t)
{
    sl_ids_free(&t->given);
    free(t->cold_ids);
    free(t->warm_ids);
    free(t->kept);
}

static int tune_model(const sl_options *o)
{
    tune t = {.o = o};
    sl_err err = {0};
    sl_status st = tune_all(&t, &err);
    const bool interrupted = st == SL_ECANCELLED && sl_interrupted();
    t.verdict = judge(&t);
    if (interrupted) {
        st = SL_OK;
        if (t.verdict != KEPT)
            t.verdict = NOT_CERTAIN; /* of nothing more can be said */
        err = (sl_err){0};
    }
    if (!st)
        st = keep(&t, &err);
    if (!st && o->json)
        st = print_json(&t, &err);
    else if (!st && t.race.n_runs)
        print_text(&t);
    if (st)
        sl_complain("%s", err.text);
    close_tune(&t);
    return st ? SL_EXIT_FAILED : interrupted ? sl_interrupt_exit() : SL_EXIT_OK;
}

/* ---- what is kept -----------------------------------------------------------------------------
 */
static void print_entry(const sl_kept_entry *e, bool here)
{
    char text[SL_SETTING_TEXT], memory[SL_SHORT];
    sl_outf("\n%s\n", sl_setting_show(text, &e->setting));
    if (e->bad.code)
        sl_outf("  not used   %s\n", e->bad.text);
    sl_outf("  budget     %s: used from two thirds of it to half as much again\n",
            sl_kept_budget(memory, e->memory_bytes));
    sl_outf("  machine    %s, %u cores, %s%s\n", e->machine.cpu, e->machine.cores, e->machine.level,
            here ? "" : " (not this one)");
    sl_outf("  measured   %.3f s instead of %.3f s, %+.1f %%; faster in %u of %u pairs\n",
            e->tuned_s, e->default_s, 100 * e->gain, e->faster, e->pairs);
    sl_outf("  tuned on   %s, sluice %s, texts of %u tokens of prompt and %u decoded\n", e->date,
            e->version, e->n_prompt, e->n_tokens);
}

static sl_status show_kept(const sl_options *o, sl_err *err)
{
    sl_machine m;
    sl_kept *k = calloc(1, sizeof *k);
    sl_status st = k ? load_kept(o, k, err) : sl_fail(err, SL_ENOMEM, "out of memory");
    sl_machine_look(&m);
    if (!st && !k->there)
        sl_outf("nothing is kept for %s\n", o->operand);
    else if (!st)
        sl_outf("%s%s\n", k->path,
                k->changed ? "\nnot used: the model's size or date has changed since" : "");
    for (uint32_t i = 0; !st && i < k->n; i++)
        print_entry(&k->entry[i], sl_machine_same(&k->entry[i].machine, &m));
    free(k);
    return st;
}

static sl_status reset_kept(const sl_options *o, sl_err *err)
{
    bool there = false;
    sl_err why = {0};
    sl_kept *k = calloc(1, sizeof *k);
    sl_status st = k ? load_kept(o, k, &why) : sl_fail(&why, SL_ENOMEM, "out of memory");
    if (st && !(k && k->there))
        st = sl_fail(err, st, "%s", why.text);
    else
        st = sl_kept_remove(k, &there, err);
    if (!st && there)
        sl_outf("removed %s\n", k->path);
    else if (!st)
        sl_outf("nothing is kept for %s\n", o->operand);
    free(k);
    return st;
}

int sl_cmd_tune(const sl_options *o)
{
    sl_err err = {0};
    if (o->show && o->reset)
        return sl_usage_error("tune: only one of --show and --reset");
    if (o->io == SL_IO_NULL)
        return sl_usage_error("tune: --io null computes on nothing: its output is wrong");
    if (o->n_predict == 0)
        return sl_usage_error("tune: --tokens: at least 1");
    if (!o->show && !o->reset)
        return tune_model(o);
    if (o->show ? show_kept(o, &err) : reset_kept(o, &err)) {
        sl_complain("%s", err.text);
        return SL_EXIT_FAILED;
    }
    return SL_EXIT_OK;
}
