#include "compute_speed.h"

#include <inttypes.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../stream/outfile.h"
#include "command.h"
#include "disk_figures.h"
#include "memory_rate.h"
#include "report.h"
#include "term.h"

enum { KEPT_VERSION = 2, KEPT_MOST = 1 << 16, CPU_NAME = 128, SAMPLES = 64 };

/* Rows of the prefill pass: as many as one tile of the kernels takes, so that more of them cost no
 * less each. */
enum { ROWS = 64, CONTEXT = 128 };

/* More than any cache holds, so that weights come from memory as in a run. */
static const uint64_t ROOM_BYTES = 512 << 20, ROOM_LEAST = 32 << 20;
static const double DECODE_S = 0.5, LONGEST_S = 4;

/* ---- who it is for --------------------------------------------------------------------------- */
static void cpu_name(char out[CPU_NAME])
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    snprintf(out, CPU_NAME, "unknown CPU");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        snprintf(out, CPU_NAME, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (f)
        fclose(f);
}

typedef struct identity {
    char text[512]; /* all that the figures depend on, in words */
    char path[PATH_MAX];
} identity;

static sl_cpu_level level_of(const sl_options *o)
{
    return o->cpu_level < 0 ? sl_cpu_best() : (sl_cpu_level)o->cpu_level;
}

/* False: there is no place to keep them. */
static bool identify(const sl_setup *s, const sl_options *o, bool make, identity *out)
{
    const sl_model_info i = sl_model_about(s->model);
    const sl_plan *p = sl_model_plan(s->model);
    char cpu[CPU_NAME];
    uint64_t h = 0xcbf29ce484222325u;
    cpu_name(cpu);
    snprintf(out->text, sizeof out->text,
             "sluice %s, %s, %s, %u threads; %s of %" PRIu32 " layers, %" PRIu32 " wide, %" PRIu32
             " of %" PRIu32 " experts, vocabulary %" PRIu32 ", %" PRIu64 " parameters, %" PRIu64
             " + %" PRIu64 " bytes",
             SL_VERSION, cpu, sl_cpu_level_name(level_of(o)), sl_workers_count(s->workers),
             i.family, i.n_layers, i.n_embd, i.n_used, i.n_experts, i.n_vocab, i.n_params,
             sl_plan_always_bytes(p), sl_plan_on_demand_bytes(p));
    for (const char *c = out->text; *c; c++)
        h = (h ^ (uint8_t)*c) * 0x100000001b3u;
    if (!sl_cache_folder(out->path, "speeds", make))
        return false;
    const size_t n = strlen(out->path);
    return snprintf(out->path + n, sizeof out->path - n, "/%016" PRIx64 ".json", h) <
           (int)(sizeof out->path - n);
}

/* ---- kept ------------------------------------------------------------------------------------ */
static bool read_kept(const sl_json *j, const char *text, sl_compute_speed *out)
{
    int64_t version, bytes = 0;
    const char *what = sl_json_text(sl_json_get(j, "what"));
    const char *when = sl_json_text(sl_json_get(j, "measured"));
    if (!sl_json_int(sl_json_get(j, "version"), &version) || version != KEPT_VERSION || !what ||
        strcmp(what, text) != 0 || !when ||
        !sl_json_number(sl_json_get(j, "token_s"), &out->token_s) ||
        !sl_json_number(sl_json_get(j, "row_s"), &out->row_s) ||
        !sl_json_number(sl_json_get(j, "memory_bytes_per_s"), &out->memory_bytes_per_s) ||
        !sl_json_int(sl_json_get(j, "measured_in"), &bytes))
        return false;
    snprintf(out->measured, sizeof out->measured, "%.23s", when);
    out->measured_in = (uint64_t)bytes;
    out->kept = true;
    return out->token_s > 0 && out->token_s < 1e6 && out->row_s >= 0 && out->row_s < 1e6;
}

static bool load(const identity *id, sl_compute_speed *out)
{
    char *text = NULL;
    uint64_t len = 0;
    sl_json *j = NULL;
    sl_err err = {0};
    if (access(id->path, F_OK) != 0)
        return false;
    sl_status st = sl_read_input(id->path, &text, &len, &err);
    if (!st && len > KEPT_MOST)
        st = sl_fail(&err, SL_EFORMAT, "%s: too long", id->path);
    if (!st)
        st = sl_json_parse(text, len, id->path, &j, &err);
    const bool ok = !st && read_kept(j, id->text, out);
    if (!ok) {
        sl_log(SL_LOG_NOTE, "%s; measured anew",
               st ? err.text : "kept speeds are of another version");
        *out = (sl_compute_speed){0};
    }
    sl_json_free(&j);
    free(text);
    return ok;
}

static sl_status write_kept(const identity *id, const sl_compute_speed *s, sl_err *err)
{
    sl_json_writer *w = sl_json_writer_new();
    char *text = NULL;
    sl_outfile f;
    if (!w)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    sl_json_write_object(w, NULL);
    sl_json_write_uint(w, "version", KEPT_VERSION);
    sl_json_write_string(w, "what", id->text);
    sl_json_write_string(w, "measured", s->measured);
    sl_json_write_double(w, "token_s", s->token_s);
    sl_json_write_double(w, "row_s", s->row_s);
    sl_json_write_double(w, "memory_bytes_per_s", s->memory_bytes_per_s);
    sl_json_write_uint(w, "measured_in", s->measured_in);
    sl_json_write_close(w);
    sl_status st = sl_json_write_end(w, true, &text, err);
    sl_json_writer_free(&w);
    if (!st)
        st = sl_outfile_open(&f, id->path, err);
    if (!st) {
        st = sl_outfile_write(&f, text, strlen(text), err);
        if (!st)
            st = sl_outfile_commit(&f, err);
        sl_outfile_abort(&f);
    }
    free(text);
    return st;
}

/* ---- measured -------------------------------------------------------------------------------- */
typedef struct measurement {
    sl_model *model;
    sl_session *session;
    uint64_t until_ns; /* of a pass: it is given up then */
    uint64_t steps;    /* that the pass has come to */
} measurement;

static bool cancel(void *ctx)
{
    measurement *m = ctx;
    m->steps++;
    return sl_now_ns() > m->until_ns || sl_interrupted();
}

static sl_status ignore_logits(void *ctx, uint32_t first, uint32_t n, const float *logits)
{
    (void)ctx, (void)first, (void)n, (void)logits;
    return SL_OK;
}

/* One pass over n rows without what it waited; *share: how much of it was done. */
static sl_status time_pass(measurement *m, uint32_t n, uint64_t steps, double *seconds,
                           double *share, sl_err *err)
{
    int32_t ids[ROWS] = {0};
    sl_stream_stats before, after;
    sl_err why = {0};
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(i % sl_model_about(m->model).n_vocab);
    const sl_eval e = {.ids = ids, .n = n, .logits = ignore_logits, .cancel = cancel, .ctx = m};
    m->steps = 0;
    sl_stream_stats_get(sl_model_stream(m->model), &before);
    const uint64_t begin = sl_now_ns();
    m->until_ns = begin + (uint64_t)(LONGEST_S * 1e9);
    sl_status st = sl_session_eval(m->session, &e, &why);
    const uint64_t took = sl_now_ns() - begin;
    sl_stream_stats_get(sl_model_stream(m->model), &after);
    const uint64_t waited = after.wait_ns - before.wait_ns;
    *seconds = (double)(took > waited ? took - waited : took) / 1e9;
    *share = !st ? 1 : steps ? (double)(m->steps - 1) / (double)steps : 0;
    if (st == SL_ECANCELLED && !sl_interrupted())
        return SL_OK;
    return st ? sl_fail(err, st, "%s", why.text) : SL_OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The quarter of the passes that went fastest were disturbed least; its slowest counts. */
static sl_status time_passes(measurement *m, sl_compute_speed *out, sl_err *err)
{
    double sample[SAMPLES], share;
    unsigned n = 0;
    sl_status st = time_pass(m, 1, 0, &sample[0], &share, err); /* touches memory */
    const uint64_t steps = m->steps, end = sl_now_ns() + (uint64_t)(DECODE_S * 1e9);
    while (!st && share == 1 && n < SAMPLES && (n < 4 || sl_now_ns() < end))
        st = time_pass(m, 1, steps, &sample[n++], &share, err);
    if (st || share < 1 || !n)
        return st; /* a machine so slow that a token takes seconds: not known */
    qsort(sample, n, sizeof *sample, by_value);
    out->token_s = sample[n / 4];
    sl_log(SL_LOG_DEBUG,
           "%u passes of a row: %.1f to %.1f ms, a quarter below %.1f, half below %.1f", n,
           1e3 * sample[0], 1e3 * sample[n - 1], 1e3 * out->token_s, 1e3 * sample[n / 2]);
    double seconds = 0, best = 0;
    for (unsigned i = 0; !st && i < 2 && (i == 0 || best * ROWS < 0.5); i++) {
        st = sl_session_rewind(m->session, 0, err);
        if (!st)
            st = time_pass(m, ROWS, steps, &seconds, &share, err);
        const double row = share > 0.02 ? seconds / share / ROWS : 0;
        best = i == 0 || row < best ? row : best;
    }
    out->row_s = best;
    return st;
}

/* Room for what every token needs and some hundred megabytes of experts, or for a long ring. */
static sl_status open_measurement(measurement *m, const sl_setup *s, const sl_options *o,
                                  uint64_t most_bytes, uint64_t *taken, sl_err *err)
{
    const sl_model_options mo = sl_model_defaults();
    sl_status st = sl_model_open(o->operand, &mo, &m->model, err);
    if (st)
        return st;
    const sl_plan *p = sl_model_plan(m->model);
    const bool experts = sl_plan_on_demand_bytes(p) > 0;
    sl_session_options so = sl_session_defaults(m->model);
    sl_stream_options stream = sl_stream_defaults();
    sl_split split;
    so.n_ctx = CONTEXT;
    so.chunk = ROWS;
    so.kv = (sl_kv_type)o->kv;
    so.saved_states = 0;
    so.predict = experts ? (int32_t)sl_model_about(m->model).n_used : 0;
    stream.io = SL_IO_NULL;
    stream.max_row_batch = ROWS;
    sl_stream_split(p, &stream, &split, NULL);
    const sl_session_price price = sl_session_cost(m->model, &so, sl_workers_count(s->workers));
    const uint64_t own = price.kv_bytes + price.state_bytes + price.scratch_bytes;
    /* All experts of a token, and more: of a smaller pool some slots would be used again and again,
     * and answer from a cache. */
    const sl_model_info info = sl_model_about(m->model);
    uint64_t want = ROOM_BYTES;
    if (experts)
        want += sl_plan_always_bytes(p) +
                sl_plan_on_demand_bytes(p) / info.n_experts * info.n_used / 4 * 5;
    want = want > split.floor_bytes ? want : split.floor_bytes;
    const uint64_t left = most_bytes > own ? most_bytes - own : 0;
    stream.memory_bytes = want < left ? want : left;
    stream.ring_bytes = experts ? 0 : stream.memory_bytes / 2;
    *taken = stream.memory_bytes;
    if (stream.memory_bytes < split.floor_bytes)
        return SL_EBUDGET;
    st = sl_model_load(m->model, &stream, s->workers, level_of(o), err);
    return st ? st : sl_session_open(m->model, &so, &m->session, err);
}

static sl_status measure(const sl_setup *s, const sl_options *o, uint64_t most_bytes,
                         sl_compute_speed *out, sl_err *err)
{
    measurement m = {0};
    sl_status st = open_measurement(&m, s, o, most_bytes, &out->measured_in, err);
    if (!st)
        st = time_passes(&m, out, err);
    sl_session_close(&m.session);
    sl_model_close(&m.model);
    sl_show_now(out->measured);
    if (st == SL_EBUDGET)
        st = SL_OK;
    const uint64_t room = most_bytes < ROOM_BYTES ? most_bytes : ROOM_BYTES;
    if (!st && room >= ROOM_LEAST)
        st = sl_memory_rate(s->workers, room, &out->memory_bytes_per_s, err);
    return st;
}

sl_status sl_compute_speed_get(const sl_setup *s, const sl_options *o, uint64_t most_bytes,
                               bool anew, sl_compute_speed *out, sl_err *err)
{
    identity id;
    sl_err why = {0};
    *out = (sl_compute_speed){0};
    if (!anew && identify(s, o, false, &id) && load(&id, out))
        return SL_OK;
    sl_status st = measure(s, o, most_bytes, out, err);
    if (st || out->token_s <= 0)
        return st;
    if (!identify(s, o, true, &id) || write_kept(&id, out, &why))
        sl_log(SL_LOG_NOTE, "the speed of the kernels is not kept: %s",
               why.text[0] ? why.text : "there is no folder for it");
    return SL_OK;
}
