/* Proves: a simulation gives the times that one works out by hand; the same every time; as many
 * hits and evictions as the run that the trace is of; and the best hits are what trying everything
 * finds, and never fewer than a policy has. */
#include "../stream/optimal.h"
#include "../stream/simulate.h"
#include "lib_stream.h"

enum { MB = 1 << 20, US = 1000, MS = 1000000 };

static uint64_t now;

static uint64_t test_clock(void)
{
    return now;
}

static const char *trace_path(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/simulate.trace", fixture_folder());
    return path;
}

/* ---- by hand ---- */

static sl_file fake = {.path = NULL, .fd = -1, .size = 1 << 30};

static sl_plan *fake_plan(void)
{
    static char name[] = "fake.gguf";
    sl_file *f = &fake;
    fake.path = name;
    return sl_plan_new_files(&f, 1);
}

static void add_part(sl_plan *p, uint32_t unit, sl_part_kind kind, uint64_t at_mb)
{
    sl_plan_extent(p, sl_plan_part(p, unit, kind), (sl_extent){0, at_mb * MB, MB});
}

static sl_trace_writer *writer(const sl_plan *p)
{
    sl_trace_about about = {.model = "m", .options = sl_stream_defaults(), .clock = test_clock};
    sl_trace_writer *w = NULL;
    sl_err err = {0};
    about.options.io = SL_IO_DIRECT;
    CHECK(sl_trace_create(trace_path(), p, &about, &w, &err) == SL_OK, "%s", err.text);
    now = 1;
    return w;
}

/* The pass has computed for so long. */
static sl_trace_writer *after(sl_trace_writer *w, uint64_t ns)
{
    now += ns;
    sl_trace_call(w);
    now += 7 * MS; /* waiting, which is none of the replay's business */
    return w;
}

/* 1 MiB in a millisecond. */
static sl_simulate_options options(const sl_trace *t, uint64_t memory, uint64_t latency_ns,
                                   uint32_t depth)
{
    sl_simulate_options o = {.stream = sl_trace_about_of(t)->options,
                             .disk = {1048576000.0, latency_ns, depth},
                             .hints = SL_SIMULATE_ALL_HINTS};
    o.stream.memory_bytes = memory;
    return o;
}

static sl_trace *reopen(sl_trace_writer *w)
{
    sl_trace *t = NULL;
    sl_err err = {0};
    CHECK(sl_trace_finish(&w, &err) == SL_OK, "%s", err.text);
    CHECK(sl_trace_open(trace_path(), &t, &err) == SL_OK, "%s", err.text);
    return t;
}

static void dense_pass(sl_trace_writer *w, sl_pass_kind kind)
{
    sl_trace_pass(after(w, 0), kind, 1, 2);
    sl_trace_enter(after(w, 0));
    sl_trace_leave(after(w, 300 * US));
    sl_trace_enter(after(w, 0));
    sl_trace_leave(after(w, 500 * US));
    sl_trace_end(after(w, 0));
}

static void dense(void)
{
    sl_plan *p = fake_plan();
    sl_simulation s;
    sl_err err = {0};
    test_case("two units of 1 MiB: read once, then there");
    for (uint32_t u = 0; u < 2; u++) {
        sl_plan_unit(p, "u");
        add_part(p, u, SL_PART_ALWAYS, 10 * u);
    }
    sl_trace_writer *w = writer(p);
    dense_pass(w, SL_PASS_PREFILL);
    dense_pass(w, SL_PASS_DECODE);
    sl_trace *t = reopen(w);
    sl_simulate_options o = options(t, 64 * MB, 100 * US, 1);
    CHECK(sl_simulate(t, &o, &s, &err) == SL_OK, "%s", err.text);
    /* 0.1 + 1: the first is there; it takes 0.3; the second comes at 2.2; it takes 0.5. */
    CHECK(s.prefill.ns == 2700 * US && s.prefill.wait_ns == 1900 * US &&
              s.prefill.compute_ns == 800 * US,
          "%llu ns", (unsigned long long)s.prefill.ns);
    CHECK(s.prefill.bytes_read == 2 * MB && s.decode.bytes_read == 0);
    CHECK(s.decode.ns == 800 * US && s.decode.wait_ns == 0 && s.decode.rows == 1);
    o.disk.depth = 2; /* both latencies at once: the second comes at 2.1 */
    CHECK(sl_simulate(t, &o, &s, &err) == SL_OK && s.prefill.ns == 2600 * US);
    o.disk.alone_per_s = o.disk.bytes_per_s / 2; /* a millisecond more, both at once: 2.1 and 3.1 */
    CHECK(sl_simulate(t, &o, &s, &err) == SL_OK && s.prefill.ns == 3600 * US, "%llu ns",
          (unsigned long long)s.prefill.ns);
    o.disk.depth = 1; /* 2.1 and 4.2 */
    CHECK(sl_simulate(t, &o, &s, &err) == SL_OK && s.prefill.ns == 4700 * US);
    o.disk.each_ns = 50 * US; /* 2.15 and 4.3 */
    CHECK(sl_simulate(t, &o, &s, &err) == SL_OK && s.prefill.ns == 4800 * US);
    o.stream.memory_bytes = 1 * MB;
    CHECK(sl_simulate(t, &o, &s, &err) == SL_EBUDGET && s.split.floor_bytes > 1 * MB);
    o.disk.depth = 0;
    CHECK(sl_simulate(t, &o, &s, NULL) == SL_EINVAL);
    sl_trace_close(&t);
    sl_plan_free(&p);
}

/* Needs two parts of which the first has a row and the second three; they were given at once. */
static void expert_pass(sl_trace_writer *w, uint32_t a, uint32_t b, uint32_t guess)
{
    const uint32_t parts[2] = {a, b}, rows[2] = {1, 3};
    sl_trace_pass(after(w, 0), SL_PASS_DECODE, 1, 2);
    sl_trace_enter(after(w, 0));
    sl_trace_hint(after(w, 0), &guess, 1);
    sl_trace_leave(after(w, 5 * MS));
    sl_trace_enter(after(w, 0));
    sl_trace_need(after(w, 10 * US), parts, rows, 2);
    sl_trace_given(after(w, 40 * US), 8, parts, 2);
    sl_trace_given(after(w, 200 * US), 8, NULL, 0);
    sl_trace_leave(after(w, 20 * US));
    sl_trace_end(after(w, 0));
}

static void experts(void)
{
    sl_plan *p = fake_plan();
    sl_simulation s;
    sl_err err = {0};
    test_case("experts: computing is shared out by rows");
    sl_plan_unit(p, "first");
    sl_plan_unit(p, "second");
    for (uint32_t i = 0; i < 4; i++)
        add_part(p, 1, SL_PART_ON_DEMAND, 10 * i);
    sl_trace_writer *w = writer(p);
    expert_pass(w, 0, 1, 0);
    expert_pass(w, 0, 2, 3);
    sl_trace *t = reopen(w);
    sl_simulate_options o = options(t, 64 * MB, 0, 1);
    o.hints = 0;
    CHECK(sl_simulate(t, &o, &s, &err) == SL_OK, "%s", err.text);
    /* First pass: 5.01 when both are asked for, the first comes at 6.01 and takes 0.05, the second
     * at 7.01 and takes 0.15, then 0.02: 7.18. Second pass: the first is there, and takes 0.05
     * after 0.04; the other comes 1 after it was asked for: 5 + 0.01 + 1 + 0.15 + 0.02. */
    CHECK(s.decode.ns == 7180 * US + 6180 * US, "%llu ns", (unsigned long long)s.decode.ns);
    CHECK(s.decode.need.needs == 4 && s.decode.need.hits == 1 && s.optimal_hits == 1);
    CHECK(s.decode.bytes_read == 3 * MB && s.decode.need.guesses == 0);
    o.hints = SL_SIMULATE_ALL_HINTS;
    CHECK(sl_simulate(t, &o, &s, &err) == SL_OK, "%s", err.text);
    /* The first pass guesses right: one read fewer to wait for. The second guesses in vain. */
    CHECK(s.decode.ns == 6180 * US + 6180 * US, "%llu ns", (unsigned long long)s.decode.ns);
    CHECK(s.decode.need.hits == 2 && s.decode.need.guesses == 2 &&
          s.decode.need.guesses_right == 1 && s.decode.need.wasted_bytes == MB);
    sl_trace_close(&t);
    sl_plan_free(&p);
}

/* ---- against a run ---- */

enum { UNITS = 6, PER_UNIT = 10, LEN = 50000 };

static void file_plan(fixture *x, uint32_t first[UNITS])
{
    *x = (fixture){0};
    for (uint32_t f = 0; f < FIXTURE_FILES; f++)
        x->file[f] = fixture_file(x->path[f], sizeof x->path[f], f, 4 << 20);
    x->plan = sl_plan_new_files(x->file, FIXTURE_FILES);
    for (uint32_t u = 0; u < UNITS; u++) {
        sl_plan_unit(x->plan, "u");
        sl_plan_extent(x->plan, sl_plan_part(x->plan, u, SL_PART_ALWAYS),
                       (sl_extent){1, 1000 * (u + 1), 700});
        for (uint32_t e = 0; e < PER_UNIT; e++) {
            const uint64_t at = (uint64_t)(u * PER_UNIT + e) * LEN + 77;
            uint32_t part = sl_plan_part(x->plan, u, SL_PART_ON_DEMAND);
            first[u] = e ? first[u] : part;
            sl_plan_extent(x->plan, part, (sl_extent){0, at, LEN});
            sl_plan_part_stage(x->plan, part);
            sl_plan_extent(x->plan, part, (sl_extent){1, at + 5, LEN / 2});
        }
    }
}

/* Some parts are needed more often than others. */
static uint32_t choose(const uint32_t *first, uint32_t u, uint64_t *seed, uint32_t *parts,
                       uint32_t *rows)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < PER_UNIT; e++)
        if (test_random(seed) % (e + 2) == 0) {
            parts[n] = first[u] + e;
            rows[n++] = 1;
        }
    return n;
}

static void run_unit(sl_stream *s, const uint32_t *first, uint32_t u, uint64_t *seed)
{
    uint32_t parts[PER_UNIT], rows[PER_UNIT], n_got, n = choose(first, u, seed, parts, rows);
    CHECK(sl_unit_enter(s, u, NULL) == SL_OK && sl_parts_need(s, parts, rows, n, NULL) == SL_OK);
    do {
        CHECK(sl_parts_next(s, parts, 4, &n_got, NULL) == SL_OK);
        for (uint32_t i = 0; i < n_got; i++)
            CHECK(sl_part_rest(s, parts[i], NULL) == SL_OK);
    } while (n_got);
    sl_unit_leave(s, u);
}

static sl_stream_stats run(const fixture *x, const uint32_t *first, const sl_stream_options *o,
                           uint64_t seed)
{
    sl_stream *s = NULL;
    sl_stream_stats stats = {0};
    sl_err err = {0};
    if (!CHECK(sl_stream_open(x->plan, o, &s, &err) == SL_OK, "%s", err.text))
        return stats;
    const sl_trace_options t = {.path = trace_path(), .model = "m"};
    CHECK(sl_stream_trace(s, &t, &err) == SL_OK, "%s", err.text);
    float use[UNITS * PER_UNIT];
    for (uint32_t i = 0; i < UNITS * PER_UNIT; i++)
        use[i] = (float)(test_random(&seed) % 100) / 20 - 2;
    if (seed % 2)
        sl_stream_uses_set(s, use);
    for (uint32_t pass = 0; pass < 30; pass++) {
        CHECK(sl_pass_begin(s, SL_PASS_DECODE, 1, UNITS, NULL) == SL_OK);
        for (uint32_t u = 0; u < UNITS; u++)
            run_unit(s, first, u, &seed);
        sl_pass_end(s);
    }
    sl_stream_stats_get(s, &stats);
    sl_stream_close(&s);
    return stats;
}

/* Nobody guesses, so under LRU what is in the pool does not depend on time. Under the others a part
 * that was just used may give up its slot, or not yet, to one that the same unit needs. */
static void as_it_ran(void)
{
    fixture x;
    uint32_t first[UNITS];
    file_plan(&x, first);
    for (uint32_t i = 0; i < 4 * SL_POLICIES; i++) {
        test_case("run %u", i);
        sl_stream_options o = sl_stream_defaults();
        sl_simulation s, again;
        sl_trace *t = NULL;
        sl_err err = {0};
        o.io = SL_IO_PREAD;
        o.policy = (sl_policy)(i % SL_POLICIES);
        o.memory_bytes = fixture_floor(&x, &o) + i / SL_POLICIES * 1000000;
        const sl_stream_stats real = run(&x, first, &o, i + 1);
        if (!CHECK(sl_trace_open(trace_path(), &t, &err) == SL_OK, "%s", err.text))
            continue;
        sl_simulate_options so = options(t, o.memory_bytes, 30 * US, 4);
        CHECK(sl_simulate(t, &so, &s, &err) == SL_OK, "%s", err.text);
        CHECK(sl_simulate(t, &so, &again, &err) == SL_OK && !memcmp(&s, &again, sizeof s));
        const int64_t more = (int64_t)(s.decode.need.hits - real.need.hits);
        CHECK(s.decode.need.needs == real.need.needs && more <= 20 && more >= -20,
              "%llu of %llu hits, %llu in the run", (unsigned long long)s.decode.need.hits,
              (unsigned long long)s.decode.need.needs, (unsigned long long)real.need.hits);
        if (o.policy == SL_POLICY_LRU && i >= SL_POLICIES)
            CHECK(!more && s.decode.need.miss_bytes == real.need.miss_bytes &&
                  s.decode.evictions == real.evictions && s.decode.bytes_read == real.bytes_read);
        CHECK(s.optimal_hits >= real.need.hits && s.optimal_hits <= real.need.needs);
        CHECK(s.decode.ns == s.decode.wait_ns + s.decode.compute_ns);
        CHECK(sl_trace_sums_of(t)->decode.compute_ns == s.decode.compute_ns);
        sl_trace_close(&t);
    }
    fixture_close(&x);
}

/* ---- the best policy ---- */

enum { MOST = 14, KINDS = 5 };

typedef struct sequence {
    uint32_t n, part[MOST], request[MOST], slots;
    uint8_t counted[MOST];
} sequence;

static uint32_t ones(uint32_t set)
{
    return (uint32_t)__builtin_popcount(set);
}

/* The most hits from need i on, with these parts kept: every choice is tried. */
static uint32_t try_all(const sequence *q, uint32_t i, uint32_t kept)
{
    uint32_t to = i, hits = 0, all = kept, best = 0;
    if (i == q->n)
        return 0;
    for (; to < q->n && q->request[to] == q->request[i]; to++) {
        hits += q->counted[to] && (kept >> q->part[to] & 1);
        all |= 1u << q->part[to];
    }
    for (uint32_t next = all;; next = (next - 1) & all) {
        if (ones(next) <= q->slots && (ones(next) == q->slots || next == all || !next)) {
            const uint32_t more = try_all(q, to, next);
            best = more > best ? more : best;
        }
        if (!next)
            break;
    }
    return hits + best;
}

static uint64_t best_hits(const sequence *q)
{
    static const uint32_t class_of[KINDS] = {0};
    const sl_optimal_needs o = {.n = q->n,
                                .part = q->part,
                                .request = q->request,
                                .counted = q->counted,
                                .n_parts = KINDS,
                                .n_classes = 1,
                                .class_of = class_of,
                                .slots = &q->slots};
    uint64_t hits = 0;
    CHECK(sl_optimal_hits(&o, &hits, NULL) == SL_OK);
    return hits;
}

static void optimal(void)
{
    test_case("the best hits, by hand");
    sequence q = {.n = 6,
                  .part = {0, 1, 2, 0, 1, 2},
                  .request = {0, 1, 2, 3, 4, 5},
                  .counted = {1, 1, 1, 1, 1, 1},
                  .slots = 2};
    CHECK(best_hits(&q) == 2);
    q.slots = 3;
    CHECK(best_hits(&q) == 3);
    q.slots = 1;
    CHECK(best_hits(&q) == 1);
    q.counted[3] = 0; /* its hit is worth nothing: another is kept */
    CHECK(best_hits(&q) == 1);
    uint64_t seed = 3;
    for (uint32_t i = 0; i < 3000; i++) {
        test_case("the best hits, sequence %u", i);
        q = (sequence){.n = 1 + (uint32_t)(test_random(&seed) % MOST),
                       .slots = 1 + (uint32_t)(test_random(&seed) % 3)};
        uint32_t used = 0;
        for (uint32_t k = 0; k < q.n; k++) {
            do
                q.part[k] = (uint32_t)(test_random(&seed) % KINDS);
            while (used >> q.part[k] & 1);
            used |= 1u << q.part[k];
            q.counted[k] = test_random(&seed) % 4 != 0;
            const bool ends = test_random(&seed) % 2 || ones(used) == KINDS;
            if (k + 1 < q.n)
                q.request[k + 1] = q.request[k] + ends;
            used = ends ? 0 : used;
        }
        CHECK(best_hits(&q) == try_all(&q, 0, 0), "%llu, %u by trying all",
              (unsigned long long)best_hits(&q), try_all(&q, 0, 0));
    }
}

int main(void)
{
    dense();
    experts();
    as_it_ran();
    optimal();
    return test_end();
}
