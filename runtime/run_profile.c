#include "run_profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../stream/outfile.h"
#include "profile_html.h"
#include "report.h"
#include "term.h"

/* A temporary trace ends there; the sums go on. About a thousand tokens of the 30B-A3B shape. */
static const uint64_t TEMPORARY_MOST = 64 << 20;
/* Of the budget, all of which is free when a profile is written, what its text may take: rows of
 * the timeline have about 50 bytes, and the text is there twice while it grows. */
enum { BYTES_OF_A_ROW = 256 };

bool sl_profile_wanted(const sl_options *o)
{
    return o->profile || o->trace_events || o->html;
}

/* ---- outputs ---- */

static sl_status open_output(sl_outfile *f, const char *path, sl_err *err)
{
    if (strcmp(path, "-") != 0)
        return sl_outfile_open(f, path, err);
    sl_out_flush();
    *f = (sl_outfile){.fd = dup(STDOUT_FILENO), .path = strdup("standard output")};
    if (f->fd >= 0 && f->path)
        return SL_OK;
    sl_outfile_abort(f);
    return sl_fail(err, SL_EIO, "standard output: cannot open");
}

static bool is_stdout(const char *path)
{
    return path && !strcmp(path, "-");
}

static const char *json_path(const sl_options *o)
{
    return o->profile && o->profile[0] ? o->profile : NULL;
}

sl_status sl_profile_check(const sl_options *o, sl_err *err)
{
    const char *const paths[] = {json_path(o), o->trace_events, o->html};
    const size_t n = sizeof paths / sizeof *paths;
    int to_stdout = 0;
    sl_status st = SL_OK;
    for (size_t i = 0; i < n && !st; i++) {
        sl_outfile f = {.fd = -1};
        to_stdout += is_stdout(paths[i]);
        if (!paths[i] || is_stdout(paths[i]))
            continue;
        st = sl_outfile_open(&f, paths[i], err);
        sl_outfile_abort(&f);
    }
    if (!st && to_stdout > 1)
        st = sl_fail(err, SL_EINVAL, "a profile: only one document can go to standard output");
    return st;
}

typedef sl_status writer_fn(sl_outfile *f, const char *text, uint64_t len, sl_err *err);

static sl_status write_document(const char *path, writer_fn *write, const char *text, uint64_t len,
                                sl_err *err)
{
    sl_outfile f;
    if (!path)
        return SL_OK;
    sl_status st = open_output(&f, path, err);
    if (st)
        return st;
    st = write(&f, text, len, err);
    if (!st)
        st = sl_outfile_commit(&f, err);
    sl_outfile_abort(&f);
    return st;
}

static sl_status write_plain(sl_outfile *f, const char *text, uint64_t len, sl_err *err)
{
    return sl_outfile_write(f, text, len, err);
}

static sl_status write_json(const sl_profile_report *r, sl_err *err)
{
    const char *path = json_path(r->o);
    char *text = NULL;
    size_t len = 0;
    if (!path && !r->o->html)
        return SL_OK;
    sl_status st = sl_profile_json(r, &text, &len, err);
    if (!st)
        st = write_document(path, write_plain, text, len, err);
    if (!st)
        st = write_document(r->o->html, sl_profile_html_write, text, len, err);
    free(text);
    return st;
}

static sl_status write_events(const sl_profile_report *r, sl_err *err)
{
    char *text = NULL;
    size_t len = 0;
    if (!r->o->trace_events)
        return SL_OK;
    sl_status st = sl_profile_events(r, &text, &len, err);
    if (!st)
        st = write_document(r->o->trace_events, write_plain, text, len, err);
    free(text);
    return st;
}

static sl_status say_table(const sl_profile_report *r, sl_err *err)
{
    const sl_options *o = r->o;
    const bool taken = is_stdout(json_path(o)) || is_stdout(o->trace_events) || is_stdout(o->html);
    char *text = sl_profile_table(r);
    if (!text)
        return sl_fail(err, SL_ENOMEM, "out of memory for the profile");
    if (!strcmp(o->command, "profile") && !taken) {
        sl_outf("%s", text);
    } else {
        for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
            sl_say("%.*s", (int)(end - line), line);
    }
    free(text);
    return SL_OK;
}

/* ---- the report ---- */

const char *sl_pass_name(sl_pass_kind kind)
{
    return kind == SL_PASS_PREFILL ? "prefill" : kind == SL_PASS_DECODE ? "decode" : "verify";
}

double sl_profile_other_s(const sl_profile_report *r)
{
    return (double)(r->sums->work.compute_ns[0] + r->sums->lost_ns) / 1e9;
}

/* Which passes the timeline has. */
static void choose_passes(sl_profile_report *r)
{
    const sl_profile_sums *s = r->sums;
    const uint64_t most = r->live ? r->budget.limit_bytes / BYTES_OF_A_ROW : UINT64_MAX;
    const uint64_t in_file = r->trace ? sl_trace_sums_of(r->trace)->passes : 0;
    r->passes = s->kept_passes;
    if (s->rows > most && s->passes)
        r->passes = (uint64_t)((double)s->passes * (double)most / (double)s->rows);
    r->passes = r->passes < s->kept_passes ? r->passes : s->kept_passes;
    r->passes = r->passes < in_file ? r->passes : in_file;
    r->complete = r->trace && r->passes == s->passes && !s->lost_reads;
}

static sl_status report(sl_profile_report *r, sl_err *err)
{
    r->sums = sl_profile_sums_of(r->profile);
    choose_passes(r);
    sl_profile_judge(r);
    sl_status st = write_json(r, err);
    if (!st)
        st = write_events(r, err);
    return st ? st : say_table(r, err);
}

/* ---- the recording ---- */

uint64_t sl_recording_bytes(const sl_setup *s, const sl_options *o)
{
    const bool wanted = sl_profile_wanted(o);
    return (o->trace || wanted ? SL_TRACE_MEMORY : 0) +
           (wanted ? sl_profile_memory_bytes(sl_model_plan(s->model)) : 0);
}

static void feed(void *ctx, const sl_trace_event *e)
{
    sl_profile_take(ctx, e);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* malloc'ed; NULL: out of memory. */
static char *temporary_path(void)
{
    const char *folder = getenv("TMPDIR");
    char *path = NULL;
    if (!folder || !folder[0])
        folder = access("/var/tmp", W_OK) == 0 ? "/var/tmp" : "/tmp";
    return asprintf(&path, "%s/sluice-profile-%ld", folder, (long)getpid()) < 0 ? NULL : path;
}

static uint64_t block_bytes(void)
{
    char line[80];
    unsigned long long bytes = 0;
    FILE *f = fopen("/proc/self/io", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "read_bytes: %llu", &bytes) == 1)
            break;
    if (f)
        fclose(f);
    return bytes;
}

sl_status sl_recording_begin(sl_setup *s, const sl_options *o, sl_err *err)
{
    const sl_price *p = &s->price;
    sl_trace_options t = {.path = o->trace,
                          .model = base_name(o->operand),
                          .command = o->command,
                          .before_ns = sl_now_ns() - sl_term_start_ns(),
                          .marks = sl_work_names,
                          .n_marks = SL_WORKS,
                          .other_bytes = sl_budget_charged(&p->budget) - p->stream.memory_bytes};
    if (!sl_profile_wanted(o))
        return o->trace ? sl_stream_trace(sl_model_stream(s->model), &t, err) : SL_OK;
    s->profile = sl_profile_new(sl_model_plan(s->model), t.before_ns, NULL);
    if (!s->profile)
        return sl_fail(err, SL_ENOMEM, "out of memory for the profile");
    t.told = feed;
    t.ctx = s->profile;
    s->block_bytes = block_bytes();
    if (o->trace)
        return sl_stream_trace(sl_model_stream(s->model), &t, err);
    s->profile_trace = temporary_path();
    t.path = s->profile_trace;
    t.max_bytes = TEMPORARY_MOST;
    sl_err why = {.text = "out of memory"};
    if (t.path && sl_stream_trace(sl_model_stream(s->model), &t, &why) == SL_OK)
        return SL_OK;
    sl_log(SL_LOG_NOTE, "%s; the profile will have no timeline (TMPDIR=FOLDER puts it elsewhere)",
           why.text);
    t.path = NULL;
    return sl_stream_trace(sl_model_stream(s->model), &t, err);
}

void sl_recording_close(sl_setup *s)
{
    if (s->profile_trace)
        unlink(s->profile_trace);
    free(s->profile_trace);
    s->profile_trace = NULL;
    sl_profile_free(&s->profile);
}

/* ---- of a run ---- */

static void cpu_name(char out[SL_CPU_NAME])
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    snprintf(out, SL_CPU_NAME, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon)
            continue;
        colon += 1 + strspn(colon + 1, " ");
        snprintf(out, SL_CPU_NAME, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    if (f)
        fclose(f);
}

/* What is known only while the model is open. */
static void look_at_run(sl_profile_report *r, const sl_setup *s)
{
    const sl_stream *stream = sl_model_stream(s->model);
    const sl_options *o = r->o;
    sl_memory_view view = {0};
    sl_memory_look(&view, NULL);
    r->live = true;
    r->model = base_name(o->operand);
    r->command = o->command;
    r->stream = s->price.stream;
    r->split = *sl_stream_split_of(stream);
    r->stream.io = r->split.io;
    r->budget = s->price.budget;
    cpu_name(r->cpu);
    snprintf(r->engine, sizeof r->engine, "%s", sl_stream_engine(stream));
    r->cpu_level = sl_cpu_level_name(sl_setup_cpu_level(o));
    r->n_threads = sl_workers_count(s->workers);
    r->machine_bytes = view.total_bytes;
    r->part_bytes = s->price.part_bytes;
    r->chunk = s->price.session.chunk;
    r->predict = s->price.session.predict;
    r->marks = sl_work_names;
    r->n_marks = SL_WORKS;
}

sl_status sl_profile_end(sl_setup *s, const sl_options *o, sl_err *err)
{
    sl_profile_report r = {.o = o, .profile = s->profile};
    sl_err why = {0};
    if (!s->profile)
        return SL_OK;
    look_at_run(&r, s);
    sl_status st = sl_stream_trace_end(sl_model_stream(s->model), NULL); /* said already */
    r.block_bytes = block_bytes() - s->block_bytes;
    const char *path = o->trace ? o->trace : s->profile_trace;
    if (!st && path && sl_trace_open(path, &r.trace, &why))
        sl_log(SL_LOG_WARN, "%s; the profile has no timeline", why.text);
    r.plan = r.trace ? sl_trace_plan(r.trace) : sl_model_plan(s->model);
    if (r.trace) { /* whose plan is the same: the model is no longer needed */
        sl_profile_plan(s->profile, r.plan);
        sl_setup_release(s);
    }
    st = report(&r, err);
    sl_trace_close(&r.trace);
    sl_recording_close(s);
    return st;
}

/* ---- of a trace ---- */

bool sl_profile_is_trace(const char *path)
{
    char magic[8];
    const size_t len = strlen(path);
    FILE *f = fopen(path, "re");
    const bool is = f && fread(magic, 1, sizeof magic, f) == sizeof magic &&
                    !memcmp(magic, "SLTRACE\n", sizeof magic);
    if (f)
        fclose(f);
    return is || (len > 6 && !strcmp(path + len - 6, ".trace"));
}

static void look_at_trace(sl_profile_report *r)
{
    const sl_trace_about *a = sl_trace_about_of(r->trace);
    r->plan = sl_trace_plan(r->trace);
    r->model = a->model;
    r->command = a->command;
    r->stream = a->options;
    r->marks = a->marks;
    r->n_marks = a->n_marks;
    sl_stream_split(r->plan, &r->stream, &r->split, NULL);
    r->budget.limit_bytes = a->other_bytes + a->options.memory_bytes;
    if (a->other_bytes)
        sl_budget_charge(&r->budget, "other", a->other_bytes);
    sl_budget_charge(&r->budget, "weights and I/O", a->options.memory_bytes);
}

sl_status sl_profile_of_trace(const sl_options *o, sl_err *err)
{
    sl_profile_report r = {.o = o};
    sl_status st = sl_trace_open(o->operand, &r.trace, err);
    if (st)
        return st;
    if (sl_trace_version(r.trace) < 3)
        st = sl_fail(err, SL_EUNSUPPORTED,
                     "%s: a trace of version %u, which has no reads and no waits; --trace of this "
                     "program records them",
                     o->operand, sl_trace_version(r.trace));
    if (!st) {
        look_at_trace(&r);
        r.profile = sl_profile_new(r.plan, sl_trace_about_of(r.trace)->before_ns, NULL);
        st = r.profile ? sl_profile_take_all(r.profile, r.trace, UINT64_MAX, err)
                       : sl_fail(err, SL_ENOMEM, "out of memory for the profile");
    }
    if (!st)
        st = report(&r, err);
    sl_profile_free(&r.profile);
    sl_trace_close(&r.trace);
    return st;
}
