/* The timeline of a profile as trace events, the JSON that ui.perfetto.dev and chrome://tracing
 * open: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
 * Written as it is walked over: thread 1 passes, 2 computing, 3 waits, from 4 on lanes of reads. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../stream/json.h"
#include "run_profile.h"

enum { PASSES = 1, COMPUTE, WAITS, READS, LANES = SL_SCHED_READS };

typedef struct writer {
    const sl_profile_report *r;
    FILE *out;
    char **name;                /* of units, quoted as JSON is; the last is that of row tables */
    char *mark[SL_TRACE_MARKS]; /* likewise */
    uint64_t free_ns[LANES];    /* when a lane's last read came back */
    uint32_t n_lanes;
    uint64_t last_end_ns; /* of a pass */
} writer;

/* Microseconds, which is what the format counts in. */
static double us(uint64_t ns)
{
    return (double)ns / 1e3;
}

static const char *name_of(const writer *w, int64_t unit)
{
    return unit < 0 ? "\"between passes\"" : w->name[unit];
}

static void put_thread(const writer *w, int thread, const char *name, int number)
{
    char text[32];
    snprintf(text, sizeof text, number ? "%s %d" : "%s", name, number);
    fprintf(w->out,
            ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":"
            "\"%s\"}},\n{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":1,\"tid\":%d,"
            "\"args\":{\"sort_index\":%d}}",
            thread, text, thread, thread);
}

static void put_event(const writer *w, int thread, const char *name, const char *category,
                      uint64_t start, uint64_t ns)
{
    fprintf(w->out,
            ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":%s,\"cat\":%s",
            thread, us(start), us(ns), name, category);
}

static void put_counter(const writer *w, const char *name, uint64_t at, double value)
{
    fprintf(w->out,
            ",\n{\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"name\":\"%s\",\"args\":{\"value\":%.6g}}",
            us(at), name, value);
}

static void pass(void *ctx, uint64_t start, uint64_t end, sl_pass_kind kind, uint32_t rows)
{
    writer *w = ctx;
    char name[40];
    snprintf(name, sizeof name, "\"%s\"", sl_pass_name(kind));
    put_event(w, PASSES, name, "\"pass\"", start, end - start);
    fprintf(w->out, ",\"args\":{\"rows\":%" PRIu32 "}}", rows);
}

static void compute(void *ctx, uint64_t start, uint64_t ns, int64_t unit, uint32_t mark)
{
    writer *w = ctx;
    put_event(w, COMPUTE, name_of(w, unit), w->mark[mark], start, ns);
    fputs("}", w->out);
}

static void wait(void *ctx, uint64_t start, uint64_t ns, int64_t unit, int64_t part)
{
    writer *w = ctx;
    put_event(w, WAITS, name_of(w, unit), "\"wait\"", start, ns);
    fprintf(w->out, ",\"args\":{\"part\":%" PRId64 "}}", part);
}

/* Reads come in the order in which they ended: one that began before a lane's last one ended needs
 * another lane. */
static uint32_t lane_for(writer *w, uint64_t submit, uint64_t done)
{
    uint32_t i = 0;
    while (i < w->n_lanes && w->free_ns[i] > submit)
        i++;
    if (i == LANES) /* cannot be: no more are out at once */
        i = LANES - 1;
    if (i == w->n_lanes) {
        w->n_lanes++;
        put_thread(w, READS + (int)i, "reads", (int)i + 1);
    }
    w->free_ns[i] = done;
    return i;
}

static void read_back(void *ctx, uint64_t submit, uint64_t done, const sl_read_note *r,
                      int64_t unit, int64_t part)
{
    static const char *const classes[] = {"\"demand\"", "\"sequential\"", "\"predicted\""};
    writer *w = ctx;
    const uint32_t lane = lane_for(w, submit, done);
    put_event(w, READS + (int)lane, name_of(w, unit), classes[r->priority], submit, done - submit);
    fprintf(w->out, ",\"args\":{\"bytes\":%" PRIu32 ",\"part\":%" PRId64 "}}", r->bytes, part);
}

static void series(void *ctx, uint64_t end, sl_pass_kind kind, uint32_t rows, uint64_t needs,
                   uint64_t missed, uint64_t bytes, uint64_t wait_ns, uint64_t compute_ns)
{
    writer *w = ctx;
    (void)kind, (void)rows, (void)wait_ns, (void)compute_ns;
    if (needs)
        put_counter(w, "hits %", end, 100.0 * (double)(needs - missed) / (double)needs);
    if (end > w->last_end_ns)
        put_counter(w, "MB/s", end, (double)bytes * 1e3 / (double)(end - w->last_end_ns));
    w->last_end_ns = end;
}

/* ---- names ---- */

/* As JSON writes it. */
static char *quoted(const char *text)
{
    char *out = NULL;
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return NULL;
    sl_json_write_array(w, NULL);
    sl_json_write_string(w, NULL, text);
    sl_json_write_close(w);
    if (sl_json_write_end(w, false, &out, NULL) == SL_OK) { /* ["text"] */
        const size_t len = strlen(out) - 2;
        memmove(out, out + 1, len);
        out[len] = 0;
    }
    sl_json_writer_free(&w);
    return out;
}

static bool make_names(writer *w)
{
    const uint32_t n = sl_plan_unit_count(w->r->plan);
    bool ok = (w->name = calloc((uint64_t)n + 1, sizeof *w->name)) != NULL;
    for (uint32_t u = 0; ok && u <= n; u++)
        ok = (w->name[u] = quoted(u < n ? sl_plan_unit_name(w->r->plan, u) : "rows")) != NULL;
    for (uint32_t i = 0; ok && i < w->r->n_marks; i++)
        ok = (w->mark[i] = quoted(w->r->marks[i])) != NULL;
    return ok;
}

static void free_names(writer *w)
{
    for (uint32_t u = 0; w->name && u <= sl_plan_unit_count(w->r->plan); u++)
        free(w->name[u]);
    for (uint32_t i = 0; i < SL_TRACE_MARKS; i++)
        free(w->mark[i]);
    free(w->name);
}

/* ---- all of it ---- */

static sl_status put_all(writer *w, sl_err *err)
{
    const sl_profile_sink sink = {pass, compute, wait, read_back, series, w};
    char *model = quoted(w->r->model);
    sl_status st = model && make_names(w) ? SL_OK : SL_ENOMEM;
    if (!st) {
        fprintf(w->out,
                "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"ph\":\"M\",\"name\":"
                "\"process_name\",\"pid\":1,\"args\":{\"name\":%s}}",
                model);
        put_thread(w, PASSES, "passes", 0);
        put_thread(w, COMPUTE, "compute", 0);
        put_thread(w, WAITS, "waits", 0);
    }
    if (!st && w->r->trace) {
        sl_profile *p = sl_profile_new(w->r->plan, w->r->sums->before_ns, &sink);
        st = p ? sl_profile_take_all(p, w->r->trace, w->r->passes, err) : SL_ENOMEM;
        sl_profile_free(&p);
    }
    fputs("\n]}\n", w->out);
    free(model);
    return st;
}

sl_status sl_profile_events(const sl_profile_report *r, char **out, size_t *len, sl_err *err)
{
    writer w = {.r = r, .out = open_memstream(out, len)};
    sl_status st = w.out ? put_all(&w, err) : SL_ENOMEM;
    if (w.out && fclose(w.out) != 0 && !st)
        st = SL_ENOMEM;
    free_names(&w);
    if (!st)
        return SL_OK;
    free(*out);
    *out = NULL;
    return st == SL_ENOMEM ? sl_fail(err, st, "out of memory for the profile") : st;
}
