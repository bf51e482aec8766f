/* The JSON of a profile, as docs/profile-format.md has it. What is small goes through the writer;
 * rows of numbers are printed as they come, since a tree of them would take many times their text.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "phase.h"
#include "run_profile.h"
#include "report.h"

static const char *const classes[SL_PRIORITIES] = {"demand", "sequential", "predicted"};

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static double share(uint64_t part, uint64_t whole)
{
    return (double)part / (double)whole; /* 0 / 0 is written as null */
}

/* ---- members that are small ---- */

static void write_options(sl_json_writer *w, const sl_profile_report *r)
{
    const sl_stream_options *o = &r->stream;
    sl_json_write_object(w, "options");
    sl_json_write_string(w, "io", sl_io_name(o->io));
    sl_json_write_uint(w, "memory_bytes", o->memory_bytes);
    sl_json_write_uint(w, "ring", o->ring_bytes);
    sl_json_write_uint(w, "pool", o->pool_bytes);
    sl_json_write_uint(w, "hints", o->hint_bytes);
    sl_json_write_uint(w, "in-flight", o->in_flight_bytes);
    sl_json_write_uint(w, "piece", o->piece_bytes);
    sl_json_write_string(w, "policy", sl_policy_name(o->policy));
    sl_json_write_double(w, "half-life", o->half_life);
    sl_json_write_uint(w, "disk-limit", o->disk_limit);
    if (r->live) {
        sl_json_write_uint(w, "part", r->part_bytes);
        sl_json_write_uint(w, "chunk", r->chunk);
        if (r->predict == SL_PREDICT_AUTO)
            sl_json_write_string(w, "predict", "auto");
        else
            sl_json_write_int(w, "predict", r->predict);
    }
    sl_json_write_close(w);
}

static void write_machine(sl_json_writer *w, const sl_profile_report *r)
{
    if (!r->live) {
        sl_json_write_string(w, "machine", NULL);
        return;
    }
    sl_json_write_object(w, "machine");
    sl_json_write_string(w, "cpu", r->cpu);
    sl_json_write_string(w, "cpu_level", r->cpu_level);
    sl_json_write_uint(w, "threads", r->n_threads);
    sl_json_write_uint(w, "memory_bytes", r->machine_bytes);
    sl_json_write_string(w, "engine", r->engine);
    sl_json_write_close(w);
}

static void write_budget(sl_json_writer *w, const sl_profile_report *r)
{
    sl_json_write_object(w, "budget");
    sl_json_write_uint(w, "limit", r->budget.limit_bytes);
    sl_json_write_object(w, "terms");
    for (uint32_t i = 0; i < r->budget.n_terms; i++)
        sl_json_write_uint(w, r->budget.term[i].name, r->budget.term[i].bytes);
    sl_json_write_close(w);
    sl_json_write_object(w, "weights");
    sl_split_write(w, &r->split, r->part_bytes);
    sl_json_write_close(w);
    sl_json_write_close(w);
}

static void write_categories(sl_json_writer *w, const sl_profile_report *r)
{
    const sl_profile_sums *s = r->sums;
    sl_json_write_object(w, "categories");
    sl_json_write_double(w, "startup", seconds(s->before_ns));
    for (uint32_t i = 1; i < r->n_marks; i++)
        sl_json_write_double(w, r->marks[i], seconds(s->work.compute_ns[i]));
    sl_json_write_double(w, "wait", seconds(sl_profile_waited_ns(&s->work)));
    sl_json_write_double(w, "other", sl_profile_other_s(r));
    sl_json_write_close(w);
}

static void write_waits(sl_json_writer *w, const sl_profile_report *r, const sl_profile_work *work)
{
    sl_json_write_object(w, "waits");
    for (uint32_t i = 0; i < r->n_marks; i++)
        sl_json_write_double(w, r->marks[i], seconds(work->wait_ns[i]));
    sl_json_write_close(w);
}

static void write_phase(sl_json_writer *w, const sl_profile_report *r, const sl_profile_phase *p)
{
    const uint64_t compute = sl_profile_computed_ns(&p->work);
    sl_json_write_object(w, NULL);
    sl_json_write_string(w, "kind", sl_pass_name(p->kind));
    sl_json_write_uint(w, "passes", p->passes);
    sl_json_write_uint(w, "rows", p->rows);
    sl_json_write_double(w, "start_s", seconds(p->start_ns));
    sl_json_write_double(w, "seconds", seconds(p->end_ns - p->start_ns));
    sl_json_write_uint(w, "bytes_read", p->io.bytes);
    sl_json_write_double(w, "busy_s", seconds(p->io.busy_ns));
    sl_json_write_double(w, "wait_s", seconds(sl_profile_waited_ns(&p->work)));
    sl_json_write_double(w, "compute_s", seconds(compute));
    sl_json_write_double(w, "bound_s", seconds(compute > p->io.busy_ns ? compute : p->io.busy_ns));
    sl_json_write_object(w, "categories");
    for (uint32_t i = 0; i < r->n_marks; i++)
        sl_json_write_double(w, r->marks[i], seconds(p->work.compute_ns[i]));
    sl_json_write_double(w, "wait", seconds(sl_profile_waited_ns(&p->work)));
    sl_json_write_close(w);
    write_waits(w, r, &p->work);
    sl_json_write_close(w);
}

static void write_reads(sl_json_writer *w, const char *key, const sl_profile_reads *io)
{
    sl_json_write_object(w, key);
    sl_json_write_uint(w, "bytes", io->bytes);
    sl_json_write_uint(w, "reads", io->reads);
    sl_json_write_double(w, "busy_s", seconds(io->busy_ns));
    sl_json_write_close(w);
}

static void write_io(sl_json_writer *w, const sl_profile_report *r)
{
    const sl_profile_sums *s = r->sums;
    sl_json_write_object(w, "io");
    sl_json_write_uint(w, "bytes_read", s->io.bytes);
    sl_json_write_uint(w, "reads", s->io.reads);
    sl_json_write_double(w, "busy_s", seconds(s->io.busy_ns));
    sl_json_write_double(w, "overlap_s", seconds(s->io.overlap_ns));
    sl_json_write_double(w, "bandwidth", share(s->io.bytes, s->io.busy_ns) * 1e9);
    sl_json_write_double(w, "cpu_s", seconds(s->io_cpu_ns));
    if (r->live)
        sl_json_write_uint(w, "block_bytes", r->block_bytes);
    else
        sl_json_write_string(w, "block_bytes", NULL);
    sl_json_write_uint(w, "lost", s->lost_reads);
    sl_json_write_object(w, "by_class");
    for (uint32_t i = 0; i < SL_PRIORITIES; i++)
        write_reads(w, classes[i], &s->by_priority[i]);
    sl_json_write_close(w);
    sl_json_write_close(w);
}

static void write_unit(sl_json_writer *w, const sl_profile_report *r, uint32_t unit)
{
    const sl_profile_unit *u = sl_profile_unit_of(r->profile, unit);
    const bool rows = unit == sl_plan_unit_count(r->plan);
    sl_json_write_object(w, NULL);
    sl_json_write_string(w, "name", rows ? "rows" : sl_plan_unit_name(r->plan, unit));
    sl_json_write_uint(w, "index", unit);
    sl_json_write_string(w, "kind", r->marks[u->mark]);
    sl_json_write_double(w, "compute_s", seconds(u->compute_ns));
    sl_json_write_double(w, "wait_s", seconds(u->wait_ns));
    sl_json_write_double(w, "read_s", seconds(u->io.busy_ns));
    sl_json_write_double(w, "overlap_s", seconds(u->io.overlap_ns));
    sl_json_write_uint(w, "bytes", u->io.bytes);
    sl_json_write_uint(w, "reads", u->io.reads);
    sl_json_write_uint(w, "needs", u->needs);
    sl_json_write_uint(w, "hits", u->hits);
    sl_json_write_uint(w, "misses", u->misses);
    sl_json_write_uint(w, "in_time", u->in_time);
    sl_json_write_uint(w, "late", u->late);
    sl_json_write_uint(w, "wasted_bytes", u->wasted_bytes);
    sl_json_write_double(w, "precision", share(u->guesses_right, u->guesses));
    sl_json_write_double(w, "recall",
                         u->guesses ? share(u->guesses_right, u->guessed_needs) : share(0, 0));
    sl_json_write_close(w);
}

static void write_what_if(sl_json_writer *w, const sl_profile_report *r)
{
    sl_json_write_array(w, "what_if");
    for (uint32_t i = 0; i < r->n_what_ifs; i++) {
        sl_json_write_object(w, NULL);
        sl_json_write_uint(w, "more_bytes", r->what_if[i].more_bytes);
        sl_json_write_double(w, "seconds", r->what_if[i].seconds);
        sl_json_write_double(w, "gain", r->what_if[i].gain);
        sl_json_write_close(w);
    }
    sl_json_write_close(w);
}

static void write_head(sl_json_writer *w, const sl_profile_report *r)
{
    sl_json_write_object(w, NULL);
    sl_json_write_uint(w, "sluice_profile", 1);
    sl_json_write_string(w, "model", r->model);
    sl_json_write_string(w, "file", r->o->operand);
    sl_json_write_string(w, "command", r->command);
    sl_json_write_string(w, "verdict", r->verdict);
    write_options(w, r);
    write_machine(w, r);
    write_budget(w, r);
    sl_json_write_double(w, "wall_s", seconds(r->sums->wall_ns));
    write_categories(w, r);
    write_waits(w, r, &r->sums->work);
    sl_json_write_array(w, "phases");
    for (uint32_t i = 0; i < r->sums->n_phases; i++)
        write_phase(w, r, &r->sums->phase[i]);
    sl_json_write_close(w);
    write_io(w, r);
    write_what_if(w, r);
    sl_json_write_array(w, "units");
    for (uint32_t u = 0; u <= sl_plan_unit_count(r->plan); u++)
        write_unit(w, r, u);
    sl_json_write_close(w);
    sl_json_write_close(w);
}

/* ---- rows ---- */

typedef struct rows {
    FILE *out;
    uint64_t n;
} rows;

static FILE *next_row(rows *w)
{
    fputs(w->n++ ? ",\n" : "\n", w->out);
    return w->out;
}

static void put_pass(void *ctx, uint64_t start, uint64_t end, sl_pass_kind kind, uint32_t n_rows)
{
    fprintf(next_row(ctx), "[%.6f,%.6f,\"%s\",%" PRIu32 "]", seconds(start), seconds(end),
            sl_pass_name(kind), n_rows);
}

static void put_compute(void *ctx, uint64_t start, uint64_t ns, int64_t unit, uint32_t mark)
{
    fprintf(next_row(ctx), "[%.6f,%.6f,%" PRId64 ",%" PRIu32 "]", seconds(start), seconds(ns), unit,
            mark);
}

static void put_wait(void *ctx, uint64_t start, uint64_t ns, int64_t unit, int64_t part)
{
    fprintf(next_row(ctx), "[%.6f,%.6f,%" PRId64 ",%" PRId64 "]", seconds(start), seconds(ns), unit,
            part);
}

static void put_read(void *ctx, uint64_t submit, uint64_t done, const sl_read_note *r, int64_t unit,
                     int64_t part)
{
    fprintf(next_row(ctx), "[%.6f,%.6f,%" PRIu32 ",%u,%" PRId64 ",%" PRId64 "]", seconds(submit),
            seconds(done), r->bytes, (unsigned)r->priority, unit, part);
}

static void put_series(void *ctx, uint64_t end, sl_pass_kind kind, uint32_t n_rows, uint64_t needs,
                       uint64_t missed, uint64_t bytes, uint64_t wait, uint64_t compute)
{
    FILE *out = next_row(ctx);
    fprintf(out, "{\"t\":%.6f,\"kind\":\"%s\",\"rows\":%" PRIu32 ",\"hit_rate\":", seconds(end),
            sl_pass_name(kind), n_rows);
    if (needs)
        fprintf(out, "%.4f", share(needs - missed, needs));
    else
        fputs("null", out);
    fprintf(out, ",\"bytes\":%" PRIu64 ",\"wait_s\":%.6f,\"compute_s\":%.6f}", bytes, seconds(wait),
            seconds(compute));
}

/* One walk over the trace for each array: the rows of several do not fit into memory. */
static sl_status put_rows(const sl_profile_report *r, FILE *out, const char *name,
                          sl_profile_sink sink, sl_err *err)
{
    rows w = {.out = out};
    sl_status st = SL_OK;
    fprintf(out, "\"%s\":[", name);
    sink.ctx = &w;
    if (r->trace) {
        sl_profile *p = sl_profile_new(r->plan, r->sums->before_ns, &sink);
        st = p ? sl_profile_take_all(p, r->trace, r->passes, err)
               : sl_fail(err, SL_ENOMEM, "out of memory for the profile");
        sl_profile_free(&p);
    }
    fputs("]", out);
    return st;
}

static void write_names(sl_json_writer *w, const char *key, const char *const *names, uint32_t n)
{
    sl_json_write_array(w, key);
    for (uint32_t i = 0; i < n; i++)
        sl_json_write_string(w, NULL, names[i]);
    sl_json_write_close(w);
}

/* The beginning of an object whose rest is printed. */
static sl_status put_open(FILE *out, sl_json_writer **w, sl_err *err)
{
    char *text = NULL;
    sl_status st = sl_json_write_end(*w, false, &text, err);
    if (!st)
        fwrite(text, 1, strlen(text) - 1, out);
    free(text);
    sl_json_writer_free(w);
    return st;
}

static sl_status put_about_timeline(const sl_profile_report *r, FILE *out, sl_err *err)
{
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return SL_ENOMEM;
    sl_json_write_object(w, NULL);
    sl_json_write_bool(w, "complete", r->complete);
    write_names(w, "kinds", r->marks, r->n_marks);
    write_names(w, "classes", classes, SL_PRIORITIES);
    sl_json_write_close(w);
    fputs(",\n\"timeline\":", out);
    return put_open(out, &w, err);
}

static sl_status put_timeline(const sl_profile_report *r, FILE *out, sl_err *err)
{
    const struct {
        const char *before, *name;
        sl_profile_sink sink;
    } array[] = {{",\n", "passes", {.pass = put_pass}},
                 {",\n", "compute", {.compute = put_compute}},
                 {",\n", "waits", {.wait = put_wait}},
                 {",\n", "reads", {.read = put_read}},
                 {"},\n", "series", {.series = put_series}}};
    sl_status st = put_about_timeline(r, out, err);
    for (size_t i = 0; i < sizeof array / sizeof *array && !st; i++) {
        fputs(array[i].before, out);
        st = put_rows(r, out, array[i].name, array[i].sink, err);
    }
    return st;
}

static void put_parts(const sl_profile_report *r, FILE *out)
{
    rows w = {.out = out};
    fputs(",\n\"parts\":[", out);
    for (uint32_t i = 0; i < sl_plan_part_count(r->plan); i++) {
        const sl_profile_part *p = sl_profile_part_of(r->profile, i);
        const sl_part_view about = sl_plan_part_view(r->plan, i);
        if (about.kind != SL_PART_ON_DEMAND || !(p->needs || p->io.reads))
            continue;
        fprintf(next_row(&w), "[%" PRIu32 ",%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.6f]",
                i, about.unit, p->needs, p->needs - p->missed, p->io.bytes, seconds(p->io.busy_ns));
    }
    fputs("]", out);
}

static sl_status put_all(const sl_profile_report *r, FILE *out, sl_err *err)
{
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return SL_ENOMEM;
    write_head(w, r);
    sl_status st = put_open(out, &w, err);
    if (st)
        return st;
    put_parts(r, out);
    st = put_timeline(r, out, err);
    fputs("}\n", out);
    return st;
}

sl_status sl_profile_json(const sl_profile_report *r, char **out, size_t *len, sl_err *err)
{
    *out = NULL;
    FILE *f = open_memstream(out, len);
    sl_status st = f ? put_all(r, f, err) : SL_ENOMEM;
    if (f && (fclose(f) != 0 || !*out) && !st)
        st = SL_ENOMEM;
    if (st) {
        free(*out);
        *out = NULL;
        return st == SL_ENOMEM ? sl_fail(err, st, "out of memory for the profile") : st;
    }
    return SL_OK;
}
