#include "phase.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../stream/outfile.h"
#include "report.h"
#include "term.h"

void sl_phase_begin(sl_phase *p, const sl_setup *s)
{
    *p = (sl_phase){.begin_ns = sl_now_ns()};
    sl_stream_stats_get(sl_model_stream(s->model), &p->io);
}

void sl_phase_end(sl_phase *p, const sl_setup *s, uint64_t tokens)
{
    sl_stream_stats now, was = p->io;
    sl_stream_stats_get(sl_model_stream(s->model), &now);
    p->tokens = tokens;
    p->seconds = (double)(sl_now_ns() - p->begin_ns) / 1e9;
    p->io = (sl_stream_stats){.bytes_read = now.bytes_read - was.bytes_read,
                              .reads = now.reads - was.reads,
                              .wait_ns = now.wait_ns - was.wait_ns,
                              .waits = now.waits - was.waits,
                              .passes = now.passes - was.passes,
                              .rows_read = now.rows_read - was.rows_read,
                              .row_hits = now.row_hits - was.row_hits,
                              .ahead_parts = now.ahead_parts - was.ahead_parts,
                              .ahead_bytes = now.ahead_bytes - was.ahead_bytes,
                              .max_in_flight = now.max_in_flight,
                              .evictions = now.evictions - was.evictions,
                              .need = now.need,
                              .io_cpu_ns = now.io_cpu_ns - was.io_cpu_ns};
    sl_need_stats_add(&p->io.need, &was.need, -1);
}

static double wait_seconds(const sl_phase *p)
{
    return (double)p->io.wait_ns / 1e9;
}

static double compute_seconds(const sl_phase *p)
{
    double s = p->seconds - wait_seconds(p);
    return s > 0 ? s : 0;
}

/* Seconds that a disk of this rate needs for what must be read per token; 0: nothing, or unknown.
 */
static double bound_seconds(const sl_setup *s, const sl_options *o)
{
    uint64_t rate = sl_setup_disk_rate(o);
    const sl_split *split = sl_stream_split_of(sl_model_stream(s->model));
    return rate ? (double)split->streamed_bytes / (double)rate : 0;
}

static void say_phase(const char *name, const sl_phase *p)
{
    char a[SL_SHORT], b[SL_SHORT], c[SL_SHORT], d[SL_SHORT];
    if (!p->begin_ns)
        return;
    sl_say("%s: %" PRIu64 " tokens in %s (%.2f tokens/s); read %s, waited %s, computed %s", name,
           p->tokens, sl_show_seconds(a, p->seconds),
           p->seconds > 0 ? (double)p->tokens / p->seconds : 0.0,
           sl_show_bytes(b, p->io.bytes_read), sl_show_seconds(c, wait_seconds(p)),
           sl_show_seconds(d, compute_seconds(p)));
}

static void say_experts(const sl_stream_stats *io)
{
    const sl_need_stats *n = &io->need;
    char a[SL_SHORT], b[SL_SHORT];
    if (!n->needs)
        return;
    sl_say("experts: %.0f %% of %" PRIu64 " were in the pool, %s read when needed",
           100.0 * (double)n->hits / (double)n->needs, n->needs, sl_show_bytes(a, n->miss_bytes));
    if (n->guesses)
        sl_say("prediction: %.0f %% of the guesses right (%.0f %% of what was needed); %s read "
               "ahead, %s for nothing",
               100.0 * (double)n->guesses_right / (double)n->guesses,
               100.0 * (double)n->guesses_right / (double)n->needs, sl_show_bytes(a, n->hint_bytes),
               sl_show_bytes(b, n->wasted_bytes));
}

void sl_run_report_say(const sl_run_report *r, const sl_setup *s, const sl_options *o)
{
    char a[SL_SHORT], b[SL_SHORT];
    const sl_phase *d = &r->decode;
    double bound = bound_seconds(s, o);
    say_phase("prefill", &r->prefill);
    say_phase("decode", d);
    if (!d->tokens || d->seconds <= 0)
        return;
    double each = d->seconds / (double)d->tokens;
    say_experts(&d->io);
    if (bound > 0)
        sl_say("bound: the disk needs %s per token at the least, the run took %s: %.0f %% of the "
               "bound",
               sl_show_seconds(a, bound), sl_show_seconds(b, each), 100 * bound / each);
    else if (sl_stream_split_of(sl_model_stream(s->model))->streamed_bytes)
        sl_say("disk: %s while decoding; %.0f %% of the time was waiting for it",
               sl_show_rate(a, (double)d->io.bytes_read / d->seconds),
               100 * wait_seconds(d) / d->seconds);
}

static void write_needs(sl_json_writer *w, const sl_need_stats *n)
{
    sl_json_write_uint(w, "needs", n->needs);
    sl_json_write_uint(w, "hits", n->hits);
    sl_json_write_uint(w, "miss_bytes", n->miss_bytes);
    sl_json_write_uint(w, "guesses", n->guesses);
    sl_json_write_uint(w, "guesses_right", n->guesses_right);
    sl_json_write_uint(w, "hints", n->hints);
    sl_json_write_uint(w, "hints_useful", n->hints_useful);
    sl_json_write_uint(w, "hints_late", n->hints_late);
    sl_json_write_uint(w, "hint_bytes", n->hint_bytes);
    sl_json_write_uint(w, "wasted_bytes", n->wasted_bytes);
}

/* Since the start, unit by unit. */
static void write_units(sl_json_writer *w, const sl_setup *s)
{
    const sl_plan *p = sl_model_plan(s->model);
    sl_need_stats n;
    sl_json_write_array(w, "experts_by_unit");
    for (uint32_t u = 0; u < sl_plan_unit_count(p); u++) {
        sl_stream_need_stats(sl_model_stream(s->model), u, &n);
        if (!n.needs)
            continue;
        sl_json_write_object(w, NULL);
        sl_json_write_uint(w, "unit", u);
        write_needs(w, &n);
        sl_json_write_close(w);
    }
    sl_json_write_close(w);
}

void sl_phase_write(sl_json_writer *w, const char *key, const sl_phase *p)
{
    sl_json_write_object(w, key);
    sl_json_write_uint(w, "tokens", p->tokens);
    sl_json_write_double(w, "seconds", p->seconds);
    sl_json_write_uint(w, "bytes_read", p->io.bytes_read);
    sl_json_write_double(w, "wait_s", wait_seconds(p));
    sl_json_write_double(w, "compute_s", compute_seconds(p));
    sl_json_write_uint(w, "reads", p->io.reads);
    sl_json_write_uint(w, "waits", p->io.waits);
    sl_json_write_uint(w, "passes", p->io.passes);
    sl_json_write_uint(w, "ahead_parts", p->io.ahead_parts);
    sl_json_write_uint(w, "ahead_bytes", p->io.ahead_bytes);
    if (p->io.need.needs) {
        sl_json_write_object(w, "experts");
        sl_json_write_uint(w, "evictions", p->io.evictions);
        write_needs(w, &p->io.need);
        sl_json_write_close(w);
    }
    sl_json_write_close(w);
}

void sl_split_write(sl_json_writer *w, const sl_split *split, uint64_t part_bytes)
{
    sl_json_write_uint(w, "pass", split->weights_bytes);
    sl_json_write_uint(w, "streamed", split->streamed_bytes);
    sl_json_write_uint(w, "pinned", split->pinned_bytes);
    sl_json_write_uint(w, "ring", split->ring_bytes);
    if (split->on_demand_parts) {
        sl_json_write_uint(w, "experts", split->on_demand_bytes);
        sl_json_write_uint(w, "expert_parts", split->on_demand_parts);
        sl_json_write_uint(w, "pool", split->pool_bytes);
        sl_json_write_uint(w, "pool_slots", split->pool_slots);
    }
    sl_json_write_uint(w, "rows", split->rows_bytes);
    sl_json_write_uint(w, "io", split->io_bytes);
    if (part_bytes)
        sl_json_write_uint(w, "part", part_bytes);
}

static void write_memory(sl_json_writer *w, const sl_setup *s)
{
    const sl_budget *b = &s->price.budget;
    const sl_split *split = sl_stream_split_of(sl_model_stream(s->model));
    sl_memory_use use = {0};
    sl_memory_use_now(&use, NULL);
    sl_json_write_object(w, "memory");
    sl_json_write_uint(w, "budget", b->limit_bytes);
    sl_json_write_uint(w, "peak", use.peak_bytes);
    sl_json_write_uint(w, "floor", s->price.floor_bytes);
    sl_json_write_object(w, "terms");
    for (uint32_t i = 0; i < b->n_terms; i++)
        sl_json_write_uint(w, b->term[i].name, b->term[i].bytes);
    sl_json_write_close(w);
    sl_json_write_object(w, "weights");
    sl_split_write(w, split, s->price.part_bytes);
    sl_json_write_close(w);
    sl_json_write_close(w);
}

static void write_io(sl_json_writer *w, const sl_setup *s, const sl_options *o)
{
    sl_stream_stats io;
    sl_stream_stats_get(sl_model_stream(s->model), &io);
    sl_json_write_object(w, "io");
    sl_json_write_string(w, "engine", sl_stream_engine(sl_model_stream(s->model)));
    sl_json_write_string(w, "mode", sl_io_name(sl_stream_split_of(sl_model_stream(s->model))->io));
    sl_json_write_string(w, "refused", sl_stream_refused(sl_model_stream(s->model)));
    sl_json_write_uint(w, "disk_limit", o->disk_limit);
    sl_json_write_uint(w, "bytes_read", io.bytes_read);
    sl_json_write_uint(w, "reads", io.reads);
    sl_json_write_double(w, "wait_s", (double)io.wait_ns / 1e9);
    sl_json_write_uint(w, "ahead_parts", io.ahead_parts);
    sl_json_write_uint(w, "ahead_bytes", io.ahead_bytes);
    sl_json_write_uint(w, "max_in_flight", io.max_in_flight);
    sl_json_write_uint(w, "rows_read", io.rows_read);
    sl_json_write_uint(w, "row_hits", io.row_hits);
    sl_json_write_double(w, "cpu_s", (double)io.io_cpu_ns / 1e9);
    sl_json_write_close(w);
}

static void write_bound(sl_json_writer *w, const sl_run_report *r, const sl_setup *s,
                        const sl_options *o)
{
    double bound = bound_seconds(s, o);
    double each = r->decode.tokens ? r->decode.seconds / (double)r->decode.tokens : 0;
    if (bound <= 0 || each <= 0)
        return;
    sl_json_write_object(w, "bound");
    sl_json_write_uint(w, "disk_bytes_per_s", sl_setup_disk_rate(o));
    sl_json_write_double(w, "seconds_per_token", bound);
    sl_json_write_double(w, "share", bound / each);
    sl_json_write_close(w);
}

static void write_predict(sl_json_writer *w, int32_t predict)
{
    if (predict == SL_PREDICT_AUTO)
        sl_json_write_string(w, "predict", "auto");
    else
        sl_json_write_uint(w, "predict", (uint64_t)predict);
}

/* What the options of docs/tuning.md came to, by their names. */
static void write_settings(sl_json_writer *w, const sl_setup *s)
{
    const sl_split *split = sl_stream_split_of(sl_model_stream(s->model));
    const sl_stream_options *so = &s->price.stream;
    sl_json_write_object(w, "settings");
    sl_json_write_uint(w, "threads", sl_workers_count(s->workers));
    sl_json_write_uint(w, "chunk", s->price.session.chunk);
    sl_json_write_uint(w, "part", s->price.part_bytes);
    sl_json_write_uint(w, "ring", split->ring_bytes);
    sl_json_write_uint(w, "pool", split->pool_bytes);
    write_predict(w, s->price.session.predict);
    sl_json_write_uint(w, "predict-layers", s->price.session.predict_layers);
    sl_json_write_uint(w, "hints", so->hint_bytes);
    sl_json_write_string(w, "io", sl_io_name(split->io));
    sl_json_write_uint(w, "in-flight", so->in_flight_bytes);
    sl_json_write_uint(w, "piece", so->piece_bytes);
    sl_json_write_string(w, "policy", sl_policy_name(so->policy));
    sl_json_write_double(w, "half-life", so->half_life);
    sl_json_write_close(w);
}

void sl_run_about_write(sl_json_writer *w, const sl_setup *s, const sl_options *o)
{
    sl_json_write_string(w, "command", o->command);
    sl_json_write_string(w, "model", o->operand);
    sl_json_write_string(w, "family", sl_model_about(s->model).family);
    sl_json_write_uint(w, "context", s->price.session.n_ctx);
    sl_json_write_uint(w, "chunk", s->price.session.chunk);
    sl_json_write_string(w, "kv", sl_kv_name(s->price.session.kv));
    sl_json_write_uint(w, "threads", sl_workers_count(s->workers));
    sl_json_write_string(w, "cpu_level", sl_cpu_level_name(sl_setup_cpu_level(o)));
    write_settings(w, s);
    write_memory(w, s);
    write_io(w, s, o);
}

static void write_all(sl_json_writer *w, const sl_run_report *r, const sl_setup *s,
                      const sl_options *o)
{
    sl_json_write_object(w, NULL);
    sl_run_about_write(w, s, o);
    sl_json_write_string(w, "ended", r->ended);
    sl_json_write_uint(w, "generated", r->generated);
    if (r->sampled)
        sl_json_write_uint(w, "seed", r->seed);
    sl_phase_write(w, "prefill", &r->prefill);
    sl_phase_write(w, "decode", &r->decode);
    write_bound(w, r, s, o);
    if (r->prefill.io.need.needs)
        write_units(w, s);
    sl_json_write_close(w);
}

sl_status sl_run_report_check(const sl_options *o, sl_err *err)
{
    sl_outfile file;
    if (!o->stats)
        return SL_OK;
    sl_status st = sl_outfile_open(&file, o->stats, err);
    sl_outfile_abort(&file);
    return st;
}

sl_status sl_run_report_write(const sl_run_report *r, const sl_setup *s, const sl_options *o,
                              sl_err *err)
{
    char *text = NULL;
    sl_outfile file;
    if (!o->stats)
        return SL_OK;
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "%s: out of memory", o->stats);
    write_all(w, r, s, o);
    sl_status st = sl_json_write_end(w, true, &text, err);
    sl_json_writer_free(&w);
    if (st)
        return st;
    st = sl_outfile_open(&file, o->stats, err);
    if (!st) {
        st = sl_outfile_write(&file, text, strlen(text), err);
        if (!st)
            st = sl_outfile_write(&file, "\n", 1, err);
        if (!st)
            st = sl_outfile_commit(&file, err);
        sl_outfile_abort(&file);
    }
    free(text);
    return st;
}
