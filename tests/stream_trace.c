/* Proves: a trace comes back as it was written, and tells what a real stream was asked for; a file
 * that is cut short, damaged, foreign or newer is refused with one clear error, wherever that is; a
 * disk that fills up costs the trace and not the run. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "../stream/trace.h"
#include "lib_stream.h"

enum { UNITS = 5, PER_UNIT = 8, LEN = 30000 };

static char logged[512];

static void note(void *ctx, sl_log_level level, const char *text)
{
    (void)ctx;
    if (level == SL_LOG_WARN)
        snprintf(logged, sizeof logged, "%s", text);
}

static const char *trace_path(const char *name)
{
    static char path[2][256];
    static unsigned turn;
    char *p = path[turn++ & 1];
    snprintf(p, sizeof path[0], "%s/%s", fixture_folder(), name);
    return p;
}

/* Dense parts, on-demand parts of two stages and a row table, in two files. */
static void make_plan(fixture *x, uint32_t first[UNITS])
{
    uint64_t seed = 7;
    fixture_open(x, 3 << 20, UNITS, 20000);
    for (uint32_t u = 0; u < UNITS; u++)
        for (uint32_t e = 0; e < PER_UNIT; e++) {
            const uint64_t at = (uint64_t)(u * PER_UNIT + e) * LEN + 77;
            uint32_t part = sl_plan_part(x->plan, u, SL_PART_ON_DEMAND);
            first[u] = e ? first[u] : part;
            sl_plan_extent(x->plan, part, (sl_extent){0, at, LEN});
            sl_plan_part_stage(x->plan, part);
            sl_plan_extent(x->plan, part, (sl_extent){1, at + 5, LEN / 2 + test_random(&seed) % 9});
        }
}

static sl_stream *open_stream(const fixture *x, uint64_t more)
{
    sl_stream_options o = sl_stream_defaults();
    sl_stream *s = NULL;
    sl_err err = {0};
    o.io = SL_IO_PREAD;
    o.memory_bytes = fixture_floor(x, &o) + more;
    o.policy = SL_POLICY_LRU;
    o.pool_bytes = 77;
    CHECK(sl_stream_open(x->plan, &o, &s, &err) == SL_OK, "%s", err.text);
    return s;
}

/* What the test asked the stream for, as the trace should tell it. */
typedef struct told {
    sl_trace_kind kind;
    uint32_t value, n, item[PER_UNIT], rows[PER_UNIT];
} told;

typedef struct script {
    told list[4000];
    uint32_t n;
} script;

static void tell(script *w, sl_trace_kind kind, uint32_t value, const uint32_t *item,
                 const uint32_t *rows, uint32_t n)
{
    told *t = &w->list[w->n++];
    *t = (told){.kind = kind, .value = value, .n = n};
    for (uint32_t i = 0; i < n; i++) {
        t->item[i] = item[i];
        t->rows[i] = rows ? rows[i] : 0;
    }
}

static void run_parts(sl_stream *s, script *w, uint32_t n_needed)
{
    uint32_t got[3], n, total = 0;
    do {
        CHECK(sl_parts_next(s, got, 3, &n, NULL) == SL_OK);
        tell(w, SL_TRACE_GIVEN, 3, got, NULL, n);
        for (uint32_t i = 0; i < n; i++) {
            CHECK(sl_part_rest(s, got[i], NULL) == SL_OK);
            tell(w, SL_TRACE_REST, got[i], NULL, NULL, 0);
        }
        total += n;
    } while (n);
    CHECK(total == n_needed);
}

static void run_unit(sl_stream *s, script *w, uint32_t u, const uint32_t *first, uint64_t *seed)
{
    uint32_t parts[PER_UNIT], rows[PER_UNIT], guess[2], n = 0;
    CHECK(sl_unit_enter(s, u, NULL) == SL_OK);
    tell(w, SL_TRACE_ENTER, u, NULL, NULL, 0);
    for (uint32_t e = 0; e < PER_UNIT; e++)
        if (test_random(seed) % 3 == 0) {
            parts[n] = first[u] + PER_UNIT - 1 - e;
            rows[n++] = 1 + (uint32_t)(test_random(seed) % 300);
        }
    CHECK(sl_parts_need(s, parts, rows, n, NULL) == SL_OK);
    tell(w, SL_TRACE_NEED, u, parts, rows, n);
    if (u + 1 < UNITS) {
        guess[0] = first[u + 1] + (uint32_t)(test_random(seed) % PER_UNIT);
        guess[1] = first[u + 1];
        sl_parts_hint(s, guess, 2);
        tell(w, SL_TRACE_HINT, 0, guess, NULL, 2);
    }
    run_parts(s, w, n);
    sl_unit_leave(s, u);
    tell(w, SL_TRACE_LEAVE, u, NULL, NULL, 0);
}

static void run_passes(const fixture *x, sl_stream *s, const uint32_t *first, uint32_t n, script *w)
{
    static uint8_t out[8 * FIXTURE_ROW_BYTES];
    uint64_t seed = 11;
    for (uint32_t pass = 0; pass < n; pass++) {
        const uint32_t rows[5] = {9, 2, 2, FIXTURE_ROWS - 1, pass};
        const sl_pass_kind kind = pass ? SL_PASS_DECODE : SL_PASS_PREFILL;
        const uint32_t n_units = pass == 2 ? UNITS - 1 : UNITS;
        CHECK(sl_rows_read(s, x->table, rows, 5, out, NULL) == SL_OK);
        tell(w, SL_TRACE_ROWS, x->table, rows, NULL, 5);
        CHECK(sl_pass_begin(s, kind, pass ? 1 : 300, n_units, NULL) == SL_OK);
        tell(w, SL_TRACE_PASS, n_units, NULL, NULL, 0);
        for (uint32_t u = 0; u < n_units; u++)
            run_unit(s, w, u, first, &seed);
        sl_pass_end(s);
        tell(w, SL_TRACE_END, 0, NULL, NULL, 0);
    }
}

static uint32_t value_of(const sl_trace_event *e)
{
    return e->kind == SL_TRACE_ROWS    ? e->table
           : e->kind == SL_TRACE_PASS  ? e->n_units
           : e->kind == SL_TRACE_GIVEN ? e->max
           : e->kind == SL_TRACE_REST  ? e->part
                                       : e->unit;
}

static bool same_event(const sl_trace_event *e, const told *t)
{
    if (e->kind == SL_TRACE_USES && t->kind == SL_TRACE_USES)
        return e->n == UNITS * PER_UNIT && !memcmp(&e->item[2], &(float){-1.0f}, 4);
    if (e->kind != t->kind || value_of(e) != t->value || e->n != t->n)
        return false;
    for (uint32_t i = 0; i < e->n; i++)
        if (e->item[i] != t->item[i] || (e->kind == SL_TRACE_NEED && e->rows[i] != t->rows[i]))
            return false;
    return true;
}

static bool same_span(const sl_span *a, const sl_span *b)
{
    return a->file == b->file && a->stage == b->stage && a->offset == b->offset &&
           a->len == b->len && a->need == b->need && a->at == b->at;
}

static void same_plan(const sl_plan *a, const sl_plan *b)
{
    CHECK(a->n_units == b->n_units && a->n_parts == b->n_parts && a->n_tables == b->n_tables &&
          a->align == b->align && a->n_files == b->n_files);
    for (uint32_t i = 0; i < a->n_parts && i < b->n_parts; i++) {
        const sl_part *p = &a->parts[i], *q = &b->parts[i];
        bool same = p->unit == q->unit && p->kind == q->kind && p->n_spans == q->n_spans &&
                    p->len_bytes == q->len_bytes && p->slot_bytes == q->slot_bytes &&
                    p->n_first_spans == q->n_first_spans;
        for (uint32_t k = 0; same && k < p->n_spans; k++)
            same = same_span(&p->spans[k], &q->spans[k]);
        CHECK(same, "part %u", i);
    }
    for (uint32_t i = 0; i < a->n_units && i < b->n_units; i++)
        CHECK(!strcmp(a->units[i], b->units[i]));
    CHECK(!strcmp(a->tables[0].name, b->tables[0].name) &&
          a->tables[0].row_bytes == b->tables[0].row_bytes &&
          a->tables[0].extent.len == b->tables[0].extent.len);
}

static void round_trip(const fixture *x, const uint32_t *first, const char *path)
{
    static script w;
    sl_trace *t = NULL;
    sl_trace_event e;
    sl_err err = {0};
    test_case("what a stream was asked for comes back");
    sl_stream *s = open_stream(x, 300000);
    unlink(path);
    const sl_trace_options o = {.path = path, .model = "some model", .other_bytes = 12345};
    CHECK(sl_stream_trace(s, &o, &err) == SL_OK, "%s", err.text);
    CHECK(sl_stream_trace(s, &o, NULL) == SL_EINVAL);
    float use[UNITS * PER_UNIT];
    for (uint32_t i = 0; i < UNITS * PER_UNIT; i++)
        use[i] = i % 3 ? -0.5f * (float)i : -INFINITY;
    sl_stream_uses_set(s, use);
    tell(&w, SL_TRACE_USES, 0, NULL, NULL, 0);
    run_passes(x, s, first, 6, &w);
    CHECK(access(path, F_OK) != 0, "it is in its place before it is whole");
    sl_stream_close(&s);
    if (!CHECK(sl_trace_open(path, &t, &err) == SL_OK, "%s", err.text))
        return;
    const sl_trace_about *a = sl_trace_about_of(t);
    CHECK(!strcmp(a->model, "some model") && a->other_bytes == 12345);
    CHECK(a->options.policy == SL_POLICY_LRU && a->options.half_life == 16 &&
          a->options.pool_bytes == 77 && a->options.io == SL_IO_PREAD &&
          a->options.piece_bytes == 1 << 20);
    same_plan(x->plan, sl_trace_plan(t));
    CHECK(sl_trace_sums_of(t)->events == w.n && sl_trace_sums_of(t)->prefill.rows == 300 &&
          sl_trace_sums_of(t)->decode.rows == 5);
    for (uint32_t round = 0; round < 2; round++, sl_trace_rewind(t, false)) {
        uint32_t i = 0;
        for (; i < w.n && sl_trace_next(t, &e, &err) == SL_OK; i++)
            if (!CHECK(same_event(&e, &w.list[i]), "event %u, kind %d, expected %d", i, e.kind,
                       w.list[i].kind))
                break;
        CHECK(i == w.n && sl_trace_next(t, &e, &err) == SL_OK && e.kind == SL_TRACE_OVER, "%s",
              err.text);
    }
    sl_trace_close(&t);
}

/* ---- bad files ---- */

static void write_file(const char *path, const char *data, size_t len)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, len, f) == len);
    if (f)
        fclose(f);
}

static void refused(const char *path, sl_status code, const char *words)
{
    sl_trace *t = NULL;
    sl_err err = {0};
    const sl_status st = sl_trace_open(path, &t, &err);
    CHECK(st == code && !t && strstr(err.text, words) && strstr(err.text, path), "%s: %s",
          sl_status_name(st), err.text);
    sl_trace_close(&t);
}

static bool same_events(sl_trace *a, sl_trace *b)
{
    sl_trace_event x, y;
    do {
        if (sl_trace_next(a, &x, NULL) || sl_trace_next(b, &y, NULL) || x.kind != y.kind ||
            x.compute_ns != y.compute_ns || x.n != y.n || x.part != y.part)
            return false;
        for (uint32_t i = 0; i < x.n; i++)
            if (x.item[i] != y.item[i])
                return false;
    } while (x.kind != SL_TRACE_OVER);
    sl_trace_rewind(b, false);
    return true;
}

static void bad_files(const char *path)
{
    size_t len = 0;
    char *data = test_read(path, &len);
    const char *bad = trace_path("bad.trace");
    CHECK(data && len > 200);
    test_case("cut at every byte");
    for (size_t n = 0; n < len; n++) {
        write_file(bad, data, n);
        refused(bad, SL_EFORMAT, n < 12 ? "is not a trace" : "cut short");
    }
    /* Some bits of a compressed block say nothing: then the same comes out. */
    test_case("each byte changed: refused, or it makes no difference");
    sl_trace *whole = NULL;
    CHECK(sl_trace_open(path, &whole, NULL) == SL_OK);
    uint32_t harmless = 0;
    for (size_t n = 0; n < len; n++) {
        sl_trace *t = NULL;
        sl_err err = {0};
        data[n] = (char)(data[n] ^ 64);
        write_file(bad, data, len);
        data[n] = (char)(data[n] ^ 64);
        const bool opens = sl_trace_open(bad, &t, &err) == SL_OK;
        CHECK(opens ? same_events(t, whole) : err.text[0] != 0, "byte %zu", n);
        harmless += opens;
        sl_trace_close(&t);
    }
    CHECK(harmless < len / 50, "%u of %zu", harmless, len);
    sl_trace_close(&whole);
    test_case("foreign, newer, longer");
    write_file(bad, "GGUF and more bytes", 19);
    refused(bad, SL_EFORMAT, "is not a trace");
    data[8] = 4;
    write_file(bad, data, len);
    refused(bad, SL_EUNSUPPORTED, "version 4; this program reads versions 1 to 3");
    for (data[8] = 1; data[8] < 3; data[8]++) { /* then its first record is too long */
        write_file(bad, data, len);
        refused(bad, SL_EFORMAT, "");
    }
    write_file(bad, data, len + 1); /* the NUL behind it */
    refused(bad, SL_EFORMAT, "bytes behind its end");
    refused("/no/such/file", SL_EIO, "No such file");
    unlink(bad);
    free(data);
}

/* ---- the disk ---- */

/* A limit on the length of files stands for a full disk. */
static void full_disk(const fixture *x, const uint32_t *first)
{
    static script w;
    const char *path = trace_path("full.trace");
    struct rlimit was, little;
    sl_err err = {0};
    test_case("a full disk costs the trace alone");
    CHECK(getrlimit(RLIMIT_FSIZE, &was) == 0);
    little = was;
    little.rlim_cur = 200;
    signal(SIGXFSZ, SIG_IGN);
    sl_stream *s = open_stream(x, 0);
    logged[0] = 0;
    w.n = 0;
    setrlimit(RLIMIT_FSIZE, &little);
    sl_trace_options o = {.path = path, .model = "m"};
    CHECK(sl_stream_trace(s, &o, &err) == SL_OK, "%s", err.text);
    run_passes(x, s, first, 4, &w);
    sl_stream_close(&s);
    setrlimit(RLIMIT_FSIZE, &was);
    CHECK(strstr(logged, "full.trace: cannot write") && strstr(logged, "goes on without a trace"),
          "logged: %s", logged);
    CHECK(access(path, F_OK) != 0);
    s = open_stream(x, 0);
    o.path = "/no/such/folder/t";
    CHECK(sl_stream_trace(s, &o, &err) == SL_EIO);
    sl_stream_close(&s);
}

/* Far more than a block holds, and a pass that the close ends. */
static void many_blocks(const fixture *x, const char *path)
{
    sl_trace *t = NULL;
    sl_err err = {0};
    uint32_t parts[64], rows[64], n = 0;
    sl_trace_writer *w = NULL;
    const sl_trace_about about = {.model = "m", .options = sl_stream_defaults()};
    test_case("many blocks");
    for (uint32_t i = 0; i < x->plan->n_parts; i++)
        if (x->plan->parts[i].kind == SL_PART_ON_DEMAND && x->plan->parts[i].unit == 0) {
            parts[n] = i;
            rows[n++] = 100000;
        }
    CHECK(sl_trace_create(path, x->plan, &about, &w, &err) == SL_OK, "%s", err.text);
    for (uint32_t i = 0; i < 60000; i++) {
        sl_trace_call(w);
        sl_trace_pass(w, SL_PASS_DECODE, 1, 1);
        sl_trace_call(w);
        sl_trace_enter(w);
        sl_trace_call(w);
        sl_trace_need(w, parts, rows, n);
        sl_trace_call(w);
        sl_trace_leave(w);
        if (i + 1 == 60000)
            break;
        sl_trace_call(w);
        sl_trace_end(w);
    }
    CHECK(sl_trace_finish(&w, &err) == SL_OK, "%s", err.text);
    CHECK(!w && sl_trace_open(path, &t, &err) == SL_OK, "%s", err.text);
    CHECK(t && sl_trace_sums_of(t)->events == 300000 && sl_trace_sums_of(t)->passes == 60000);
    sl_trace_close(&t);
}

int main(void)
{
    fixture x;
    uint32_t first[UNITS];
    const char *path = trace_path("round.trace");
    sl_log_set(note, NULL);
    make_plan(&x, first);
    round_trip(&x, first, path);
    bad_files(path);
    full_disk(&x, first);
    many_blocks(&x, trace_path("many.trace"));
    fixture_close(&x);
    return test_end();
}
