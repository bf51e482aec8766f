/* Proves: a profile's times add up to the clock, to the nanosecond, on a schedule worked out by
 * hand; of real streams it has every byte, wait and need that the stream itself counts, whether it
 * is fed while the run goes on or out of the trace; a file that ends early costs the timeline
 * alone. */
#include "../stream/profile.h"
#include "lib_stream.h"

enum { UNITS = 6, PER_UNIT = 10, LEN = 30000, PASSES = 40 };

static const char *const marks[] = {"other", "one", "two"};

static const char *trace_path(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/sluice-profile-%d.trace", fixture_folder(), (int)getpid());
    return path;
}

/* ---- by hand ---- */

static uint64_t now, waited;

static uint64_t test_clock(void)
{
    return now;
}

static void fed(void *ctx, const sl_trace_event *e)
{
    sl_profile_take(ctx, e);
}

/* A row of a timeline, as text. */
typedef struct drawn {
    char text[1000];
} drawn;

static void draw_compute(void *ctx, uint64_t start, uint64_t ns, int64_t unit, uint32_t mark)
{
    drawn *d = ctx;
    const size_t n = strlen(d->text);
    snprintf(d->text + n, sizeof d->text - n, "c%d+%d u%d m%d\n", (int)start, (int)ns, (int)unit,
             (int)mark);
}

static void draw_wait(void *ctx, uint64_t start, uint64_t ns, int64_t unit, int64_t part)
{
    drawn *d = ctx;
    const size_t n = strlen(d->text);
    snprintf(d->text + n, sizeof d->text - n, "w%d+%d u%d p%d\n", (int)start, (int)ns, (int)unit,
             (int)part);
}

static sl_trace_writer *after(sl_trace_writer *w, uint64_t ns)
{
    now += ns;
    sl_trace_call(w);
    return w;
}

static void by_hand(const fixture *x, const uint32_t *first)
{
    static drawn d;
    const sl_profile_sink sink = {.compute = draw_compute, .wait = draw_wait, .ctx = &d};
    sl_profile *p = sl_profile_new(x->plan, 1000, &sink);
    const sl_trace_about about = {.model = "m",
                                  .marks = marks,
                                  .n_marks = 3,
                                  .clock = test_clock,
                                  .wait_ns = &waited,
                                  .told = fed,
                                  .ctx = p};
    sl_trace_writer *w = NULL;
    const uint32_t part = first[0], rows = 1;
    test_case("by hand");
    now = 50;
    CHECK(p && sl_trace_create(NULL, x->plan, &about, &w, NULL) == SL_OK);
    sl_read_log *log = sl_trace_reads(w, NULL);
    sl_trace_pass(after(w, 10), SL_PASS_PREFILL, 4, 2);
    now += 5;
    sl_trace_mark(w, 1);
    after(w, 20);
    now += 7, waited += 7; /* of which a read had 6, and the gap before it 1 */
    log->note[log->n++] = (sl_read_note){now - 30, now - 1, 29, 500, x->plan->n_parts, 0};
    log->note[0].part = UINT32_MAX;
    log = sl_trace_reads(w, log);
    sl_trace_enter(w);
    now += 3; /* inside of the call, and not waiting */
    sl_trace_need(after(w, 40), &part, &rows, 1);
    after(w, 1);
    now += 9, waited += 9;
    log->note[log->n++] = (sl_read_note){now - 12, now, 12, 700, part, SL_PREDICTED};
    log = sl_trace_reads(w, log);
    sl_trace_given(w, 4, &part, 1);
    sl_trace_leave(after(w, 100));
    sl_trace_mark(w, 2);
    sl_trace_end(after(w, 200));
    now += 11; /* the rest of the program */
    const sl_stream_stats totals = {.bytes_read = 1200};
    sl_trace_totals(w, &totals);
    CHECK(sl_trace_finish(&w, NULL) == SL_OK);
    const sl_profile_sums *s = sl_profile_sums_of(p);
    CHECK(s->wall_ns == 1000 + now - 50, "%d", (int)s->wall_ns);
    CHECK(s->work.compute_ns[0] == 5 && s->work.wait_ns[1] == 16);
    CHECK(s->work.compute_ns[1] == 20 + 3 + 40 + 1 + 100 && s->work.compute_ns[2] == 211);
    CHECK(s->lost_ns == 10 && s->whole && s->passes == 1, "%d", (int)s->lost_ns);
    CHECK(s->io.busy_ns == 41 && s->io.overlap_ns == 29 - 6 + 12 - 9, "%d", (int)s->io.overlap_ns);
    CHECK(s->by_priority[SL_PREDICTED].bytes == 700 && s->by_priority[SL_DEMAND].reads == 1);
    CHECK(s->n_phases == 1 && s->phase[0].rows == 4 &&
          s->phase[0].end_ns - s->phase[0].start_ns == 5 + 16 + 20 + 3 + 40 + 1 + 100 + 200);
    const sl_profile_part *q = sl_profile_part_of(p, part);
    CHECK(q->needs == 1 && q->missed == 1 && q->io.bytes == 700);
    char expected[sizeof d.text];
    snprintf(expected, sizeof expected,
             "c1010+5 u0 m0\nc1015+20 u0 m1\nw1035+7 u0 p0\nc1042+44 u0 m1\nw1086+9 u0 p%u\n"
             "c1095+100 u0 m1\nc1195+200 u1 m2\nc1395+11 u-1 m2\n",
             part);
    CHECK(!strcmp(d.text, expected), "%s", d.text);
    sl_profile_free(&p);
}

/* ---- real streams ---- */

static void make_plan(fixture *x, uint32_t first[UNITS])
{
    fixture_open(x, 3 << 20, UNITS, 20000);
    for (uint32_t u = 0; u < UNITS; u++)
        for (uint32_t e = 0; e < PER_UNIT; e++) {
            const uint64_t at = (uint64_t)(u * PER_UNIT + e) * LEN + 77;
            const uint32_t part = sl_plan_part(x->plan, u, SL_PART_ON_DEMAND);
            first[u] = e ? first[u] : part;
            sl_plan_extent(x->plan, part, (sl_extent){0, at, LEN});
            sl_plan_part_stage(x->plan, part);
            sl_plan_extent(x->plan, part, (sl_extent){1, at + 5, LEN / 2});
        }
}

static void run_unit(sl_stream *s, uint32_t u, const uint32_t *first, uint64_t *seed)
{
    uint32_t parts[PER_UNIT], rows[PER_UNIT], got[PER_UNIT], n = 0, n_got;
    CHECK(sl_unit_enter(s, u, NULL) == SL_OK);
    sl_stream_mark(s, 1 + u % 2);
    for (uint32_t e = 0; e < PER_UNIT; e++)
        if (test_random(seed) % 3 == 0) {
            parts[n] = first[u] + e;
            rows[n++] = 1;
        }
    CHECK(sl_parts_need(s, parts, rows, n, NULL) == SL_OK);
    if (u + 1 < UNITS) {
        const uint32_t guess[2] = {first[u + 1], first[u + 1] + 5};
        sl_parts_hint(s, guess, 2);
    }
    do {
        CHECK(sl_parts_next(s, got, 4, &n_got, NULL) == SL_OK);
        for (uint32_t i = 0; i < n_got; i++)
            CHECK(sl_part_rest(s, got[i], NULL) == SL_OK);
    } while (n_got);
    for (volatile uint32_t i = 0; i < 3000; i++) /* some computing */
        ;
    sl_unit_leave(s, u);
}

static void run(const fixture *x, sl_stream *s, const uint32_t *first)
{
    static uint8_t out[8 * FIXTURE_ROW_BYTES];
    uint64_t seed = 5;
    for (uint32_t pass = 0; pass < PASSES; pass++) {
        const uint32_t rows[3] = {9, 2, pass};
        CHECK(sl_pass_begin(s, pass < 2 ? SL_PASS_PREFILL : SL_PASS_DECODE, pass < 2 ? 7 : 1, UNITS,
                            NULL) == SL_OK);
        CHECK(sl_rows_read(s, x->table, rows, 3, out, NULL) == SL_OK);
        for (uint32_t u = 0; u < UNITS; u++)
            run_unit(s, u, first, &seed);
        sl_stream_mark(s, 0);
        sl_pass_end(s);
    }
}

static uint64_t work_ns(const sl_profile_work *w)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < SL_TRACE_MARKS; i++)
        sum += w->compute_ns[i] + w->wait_ns[i];
    return sum;
}

static void adds_up(const fixture *x, sl_profile *p, const sl_stream_stats *stats)
{
    const sl_profile_sums *s = sl_profile_sums_of(p);
    sl_profile_unit all = {0};
    sl_profile_part parts = {0};
    uint64_t phases = 0, wait = 0;
    for (uint32_t u = 0; u <= UNITS; u++) {
        const sl_profile_unit *v = sl_profile_unit_of(p, u);
        CHECK(v->needs == v->hits + v->misses + v->late && v->in_time <= v->hits &&
                  v->io.overlap_ns <= v->io.busy_ns,
              "unit %u", u);
        all.io.bytes += v->io.bytes;
        all.io.reads += v->io.reads;
        all.io.busy_ns += v->io.busy_ns;
        all.io.overlap_ns += v->io.overlap_ns;
        all.wait_ns += v->wait_ns;
        all.needs += v->needs;
        all.wasted_bytes += v->wasted_bytes;
    }
    for (uint32_t i = 0; i < x->plan->n_parts; i++) {
        parts.needs += sl_profile_part_of(p, i)->needs;
        parts.missed += sl_profile_part_of(p, i)->missed;
    }
    for (uint32_t i = 0; i < s->n_phases; i++) {
        const sl_profile_phase *f = &s->phase[i];
        CHECK(work_ns(&f->work) == f->end_ns - f->start_ns, "phase %u: %llu, %llu", i,
              (unsigned long long)work_ns(&f->work), (unsigned long long)(f->end_ns - f->start_ns));
        phases += f->io.bytes;
    }
    for (uint32_t i = 0; i < SL_TRACE_MARKS; i++)
        wait += s->work.wait_ns[i];
    CHECK(work_ns(&s->work) + s->before_ns + s->lost_ns == s->wall_ns);
    CHECK(wait == stats->wait_ns && all.wait_ns == wait);
    CHECK(s->n_phases == 2 && s->phase[0].rows == 14 && s->phase[1].rows == PASSES - 2);
    CHECK(all.io.bytes == s->io.bytes && phases == s->io.bytes && all.io.reads == s->io.reads &&
          !s->lost_reads);
    /* Reads ahead may have come back behind its end. */
    CHECK(s->io.bytes <= stats->bytes_read && stats->bytes_read - s->io.bytes < 1 << 20 &&
          s->io.reads <= stats->reads && s->io.bytes > 1 << 20);
    CHECK(all.io.busy_ns == s->io.busy_ns && s->io.busy_ns <= s->wall_ns - s->before_ns &&
          all.io.overlap_ns == s->io.overlap_ns);
    CHECK(parts.needs == stats->need.needs && all.wasted_bytes == stats->need.wasted_bytes);
    CHECK(parts.missed == stats->need.needs - stats->need.hits, "%llu of %llu missed, %llu hits",
          (unsigned long long)parts.missed, (unsigned long long)parts.needs,
          (unsigned long long)stats->need.hits);
}

static void same(sl_profile *a, sl_profile *b)
{
    const sl_profile_sums *x = sl_profile_sums_of(a), *y = sl_profile_sums_of(b);
    CHECK(!memcmp(&x->work, &y->work, sizeof x->work) && !memcmp(&x->io, &y->io, sizeof x->io) &&
          x->wall_ns == y->wall_ns && x->rows == y->rows && x->passes == y->passes);
    for (uint32_t u = 0; u <= UNITS; u++)
        CHECK(!memcmp(sl_profile_unit_of(a, u), sl_profile_unit_of(b, u), sizeof(sl_profile_unit)),
              "unit %u", u);
}

static void real(const fixture *x, const uint32_t *first, sl_io io, uint64_t max_bytes)
{
    sl_stream_options o = sl_stream_defaults();
    sl_stream_stats stats;
    sl_stream *s = NULL;
    sl_trace *t = NULL;
    sl_err err = {0};
    sl_profile *live = sl_profile_new(x->plan, 77, NULL);
    const sl_trace_options to = {.path = trace_path(),
                                 .model = "m",
                                 .command = "c",
                                 .before_ns = 77,
                                 .max_bytes = max_bytes,
                                 .marks = marks,
                                 .n_marks = 3,
                                 .told = fed,
                                 .ctx = live};
    test_case("%s, file of at most %d bytes", sl_io_name(io), (int)max_bytes);
    o.io = io;
    o.memory_bytes = fixture_floor(x, &o) + 400000;
    CHECK(sl_stream_open(x->plan, &o, &s, &err) == SL_OK, "%s", err.text);
    CHECK(sl_stream_trace(s, &to, &err) == SL_OK, "%s", err.text);
    run(x, s, first);
    CHECK(sl_stream_trace_end(s, &err) == SL_OK, "%s", err.text);
    CHECK(sl_stream_trace_end(s, &err) == SL_OK, "no trace, no error");
    sl_stream_stats_get(s, &stats);
    sl_stream_close(&s);
    adds_up(x, live, &stats);
    if (!CHECK(sl_trace_open(trace_path(), &t, &err) == SL_OK, "%s", err.text))
        return;
    const sl_trace_about *about = sl_trace_about_of(t);
    CHECK(about->before_ns == 77 && !strcmp(about->command, "c") && about->n_marks == 3 &&
          !strcmp(about->marks[2], "two"));
    sl_profile *read = sl_profile_new(sl_trace_plan(t), about->before_ns, NULL);
    CHECK(sl_profile_take_all(read, t, UINT64_MAX, &err) == SL_OK, "%s", err.text);
    if (max_bytes) {
        CHECK(sl_trace_sums_of(t)->passes < PASSES && !sl_profile_sums_of(read)->whole);
    } else {
        same(live, read);
        sl_profile *some = sl_profile_new(sl_trace_plan(t), about->before_ns, NULL);
        CHECK(sl_profile_take_all(some, t, 5, &err) == SL_OK &&
              sl_profile_sums_of(some)->passes == 5);
        sl_profile_free(&some);
    }
    sl_profile_free(&read);
    sl_profile_free(&live);
    sl_trace_close(&t);
    unlink(trace_path());
}

int main(void)
{
    static const sl_io engines[] = {SL_IO_DIRECT, SL_IO_PREAD, SL_IO_MAPPED};
    fixture x;
    uint32_t first[UNITS];
    make_plan(&x, first);
    by_hand(&x, first);
    for (uint32_t i = 0; i < sizeof engines / sizeof *engines; i++)
        real(&x, first, engines[i], 0);
    real(&x, first, SL_IO_PREAD, 1);
    fixture_close(&x);
    return test_end();
}
