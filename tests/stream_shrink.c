/* Proves: a stream's memory shrinks and grows again while passes go on: what it gives back the
 * process no longer has, within the time that was asked for; what was used most is kept; a part
 * that the pass holds stays where it is until it is let go, and memory beyond comes back at once.
 * The bytes are right on every engine at any moment. tests/stream_pool.c does the same step by
 * step, in random schedules. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "../stream/budget.h"
#include "lib_stream.h"

enum { PARTS = 96, STEP = 40 << 10, LEN = 1 << 20, FEW = 8 };

static const uint64_t SECOND = 1000000000;

/* One unit of PARTS parts of a mebibyte, which overlap in the file. */
static void overlapping(fixture *x)
{
    *x = (fixture){0};
    for (uint32_t f = 0; f < FIXTURE_FILES; f++)
        x->file[f] = fixture_file(x->path[f], sizeof x->path[f], f, 6 << 20);
    x->plan = sl_plan_new_files(x->file, FIXTURE_FILES);
    sl_plan_unit(x->plan, "u");
    for (uint32_t i = 0; i < PARTS; i++)
        sl_plan_extent(x->plan, sl_plan_part(x->plan, 0, SL_PART_ON_DEMAND),
                       (sl_extent){i % FIXTURE_FILES, (uint64_t)i * STEP + 5, LEN});
}

static sl_stream *stream_of(const fixture *x, sl_io io, uint64_t room)
{
    sl_stream_options o = sl_stream_defaults();
    sl_stream *s = NULL;
    sl_err err = {0};
    o.io = io;
    o.memory_bytes = fixture_floor(x, &o) + room;
    CHECK(sl_stream_open(x->plan, &o, &s, &err) == SL_OK, "%s", err.text);
    return s;
}

static bool part_bytes_right(const fixture *x, const sl_stream *s, uint32_t part)
{
    const sl_extent at = x->plan->parts[part].places[0].extent;
    const uint8_t *data = sl_part_data(s, part, 0);
    uint64_t wrong = 0;
    for (uint64_t k = 0; k < at.len; k += 64 << 10)
        wrong += fixture_wrong(at.file, at.offset + k, data + k, 512);
    return CHECK(!wrong, "part %u: %llu wrong bytes", part, (unsigned long long)wrong);
}

/* A pass that uses n parts from first on. */
static bool pass_over(const fixture *x, sl_stream *s, uint32_t first, uint32_t n)
{
    uint32_t parts[PARTS], rows[PARTS], got[4], n_got = 1, total = 0;
    sl_err err = {0};
    for (uint32_t i = 0; i < n; i++) {
        parts[i] = (first + i) % PARTS;
        rows[i] = 1;
    }
    sl_status st = sl_pass_begin(s, SL_PASS_DECODE, 1, 1, &err);
    st = st ? st : sl_unit_enter(s, 0, &err);
    st = st ? st : sl_parts_need(s, parts, rows, n, &err);
    while (!st && n_got) {
        st = sl_parts_next(s, got, 4, &n_got, &err);
        for (uint32_t i = 0; !st && i < n_got; i++, total++)
            part_bytes_right(x, s, got[i]);
    }
    sl_unit_leave(s, 0);
    sl_pass_end(s);
    return CHECK(!st && total == n, "%u of %u parts: %s", total, n, err.text);
}

static uint64_t hits_of(sl_stream *s)
{
    sl_stream_stats st;
    sl_stream_stats_get(s, &st);
    return st.need.hits;
}

static uint64_t anonymous(void)
{
    sl_memory_use use = {0};
    sl_memory_use_now(&use, NULL);
    return use.anon_bytes;
}

/* Under sanitizers, whose own memory would be counted. */
static bool quick(void)
{
    return getenv("SL_TEST_QUICK") != NULL;
}

static void gives_back(const fixture *x, sl_io io)
{
    test_case("%s: memory goes back, and what is used most stays", sl_io_name(io));
    sl_stream *s = stream_of(x, io, (PARTS + 8) * (uint64_t)LEN);
    sl_stream_room room;
    if (!s)
        return;
    pass_over(x, s, 0, PARTS);
    for (uint32_t i = 0; i < 20; i++)
        pass_over(x, s, PARTS - FEW, FEW);
    sl_stream_room_get(s, &room);
    CHECK(room.pool_slots == PARTS && room.most_pool_slots == PARTS &&
          room.memory_bytes == room.most_bytes);
    const uint64_t had = anonymous(), less = 80ull * LEN, begin = sl_now_ns();
    CHECK(sl_stream_resize(s, room.most_bytes - less, SECOND) == SL_OK);
    CHECK(sl_now_ns() - begin < SECOND, "%llu ns", (unsigned long long)(sl_now_ns() - begin));
    sl_stream_room_get(s, &room);
    CHECK(room.pool_slots < PARTS - 79 && room.memory_bytes <= room.most_bytes - less);
    const uint64_t has = anonymous();
    CHECK(io == SL_IO_MAPPED || quick() || has + less * 9 / 10 <= had, "%llu bytes, %llu before",
          (unsigned long long)has, (unsigned long long)had);
    const uint64_t hits = hits_of(s);
    pass_over(x, s, PARTS - FEW, FEW);
    CHECK(hits_of(s) - hits == FEW, "%llu of the most used were kept",
          (unsigned long long)(hits_of(s) - hits));
    pass_over(x, s, 0, PARTS); /* more than fit */
    CHECK(quick() || anonymous() <= has + (4 << 20), "it grows by itself");
    CHECK(sl_stream_resize(s, UINT64_MAX, SECOND) == SL_OK);
    pass_over(x, s, 0, PARTS);
    const uint64_t again = hits_of(s);
    pass_over(x, s, 0, PARTS);
    CHECK(hits_of(s) - again == PARTS, "all fit again");
    sl_stream_room_get(s, &room);
    CHECK(room.pool_slots == PARTS && room.memory_bytes == room.most_bytes);
    CHECK(sl_stream_resize(s, 0, SECOND) == SL_OK);
    sl_stream_room_get(s, &room);
    CHECK(room.pool_slots == 2 && room.memory_bytes == room.least_bytes);
    pass_over(x, s, 0, PARTS);
    sl_stream_close(&s);
}

static void in_use(const fixture *x)
{
    test_case("a part in use stays where it is");
    sl_stream *s = stream_of(x, SL_IO_PREAD, (PARTS + 8) * (uint64_t)LEN);
    uint32_t parts[FEW], rows[FEW], got[FEW], n = 0;
    const void *data[FEW];
    if (!s)
        return;
    pass_over(x, s, 0, PARTS);
    for (uint32_t i = 0; i < FEW; i++) {
        parts[i] = PARTS - FEW + i;
        rows[i] = 1;
    }
    CHECK(!sl_pass_begin(s, SL_PASS_DECODE, 1, 1, NULL) && !sl_unit_enter(s, 0, NULL) &&
          !sl_parts_need(s, parts, rows, FEW, NULL) && !sl_parts_next(s, got, FEW, &n, NULL));
    CHECK(n == FEW);
    for (uint32_t i = 0; i < n; i++)
        data[i] = sl_part_data(s, got[i], 0);
    CHECK(sl_stream_resize(s, 0, SECOND / 20) == SL_EAGAIN);
    for (uint32_t i = 0; i < n; i++)
        CHECK(sl_part_data(s, got[i], 0) == data[i] && part_bytes_right(x, s, got[i]));
    sl_unit_leave(s, 0);
    CHECK(sl_stream_resize(s, 0, SECOND) == SL_OK);
    sl_pass_end(s);
    pass_over(x, s, PARTS - FEW, FEW);
    sl_stream_close(&s);
}

typedef struct resizer {
    sl_stream *s;
    atomic_bool stop;
    atomic_uint n;
} resizer;

static void *resize_on(void *arg)
{
    resizer *r = arg;
    sl_stream_room room;
    uint64_t seed = 9;
    sl_stream_room_get(r->s, &room);
    while (!atomic_load(&r->stop)) {
        const uint64_t span = room.most_bytes - room.least_bytes;
        sl_stream_resize(r->s, room.least_bytes + test_random(&seed) % (span + 1),
                         test_random(&seed) % 4 ? SECOND / 20 : SECOND / 500);
        r->n++;
        sched_yield();
    }
    return NULL;
}

static void at_any_moment(const fixture *x, sl_io io)
{
    test_case("%s: passes while memory shrinks and grows", sl_io_name(io));
    resizer r = {.s = stream_of(x, io, 60 * (uint64_t)LEN)};
    pthread_t thread;
    uint64_t seed = 3;
    const uint32_t passes = quick() ? 60 : 120;
    if (!r.s || !CHECK(pthread_create(&thread, NULL, resize_on, &r) == 0))
        return;
    /* More where the resizing thread comes late: sanitizers, a busy machine. */
    for (uint32_t i = 0; i < passes || (atomic_load(&r.n) <= 3 && i < 100 * passes); i++)
        pass_over(x, r.s, (uint32_t)(test_random(&seed) % PARTS),
                  1 + (uint32_t)(test_random(&seed) % (i % 10 ? FEW : PARTS)));
    atomic_store(&r.stop, true);
    pthread_join(thread, NULL);
    CHECK(r.n > 3, "resized %u times", r.n);
    sl_stream_close(&r.s);
}

/* ---- parts that every pass needs ---- */

enum { UNITS = 24, UNIT_LEN = 3 << 20 };

static void dense(fixture *x)
{
    *x = (fixture){0};
    for (uint32_t f = 0; f < FIXTURE_FILES; f++)
        x->file[f] = fixture_file(x->path[f], sizeof x->path[f], f, 6 << 20);
    x->plan = sl_plan_new_files(x->file, FIXTURE_FILES);
    for (uint32_t i = 0; i < UNITS; i++) {
        sl_plan_unit(x->plan, "u");
        sl_plan_extent(x->plan, sl_plan_part(x->plan, i, SL_PART_ALWAYS),
                       (sl_extent){i % FIXTURE_FILES, (uint64_t)i * STEP + 5, UNIT_LEN});
    }
}

/* Bytes that the pass read. */
static uint64_t dense_pass(const fixture *x, sl_stream *s, bool look)
{
    sl_stream_stats before, after;
    sl_err err = {0};
    sl_stream_stats_get(s, &before);
    sl_status st = sl_pass_begin(s, SL_PASS_DECODE, 1, UNITS, &err);
    for (uint32_t u = 0; !st && u < UNITS; u++) {
        st = sl_unit_enter(s, u, &err);
        if (!st && look)
            part_bytes_right(x, s, u);
        sl_unit_leave(s, u);
    }
    sl_pass_end(s);
    CHECK(!st, "%s", err.text);
    sl_stream_stats_get(s, &after);
    return after.bytes_read - before.bytes_read;
}

static uint64_t dense_passes(const fixture *x, sl_stream *s, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += dense_pass(x, s, true);
    return bytes / n;
}

static void pinned_parts(const fixture *x, sl_io io)
{
    test_case("%s: pinned parts are streamed for a while", sl_io_name(io));
    sl_stream *s = stream_of(x, io, 16 * (uint64_t)UNIT_LEN);
    sl_stream_room room;
    if (!s)
        return;
    const sl_split *split = sl_stream_split_of(s);
    dense_passes(x, s, 2);
    const uint64_t usual = dense_passes(x, s, 3), had = anonymous(), less = 16 << 20;
    CHECK(split->streamed_parts > 2 && split->pinned_parts > 10, "%u streamed, %u pinned",
          split->streamed_parts, split->pinned_parts);
    sl_stream_room_get(s, &room);
    CHECK(room.memory_bytes == room.most_bytes &&
          room.least_bytes < room.most_bytes - split->pinned_bytes / 2);
    /* Between passes what was read ahead cannot be given up; the next pass comes by. */
    sl_status st = sl_stream_resize(s, room.most_bytes - less, SECOND / 10);
    for (uint32_t i = 0; st == SL_EAGAIN && i < 10; i++) {
        dense_pass(x, s, true);
        st = sl_stream_resize(s, room.most_bytes - less, SECOND / 10);
    }
    CHECK(st == SL_OK);
    sl_stream_room_get(s, &room);
    CHECK(room.memory_bytes <= room.most_bytes - less);
    CHECK(quick() || anonymous() + less * 9 / 10 <= had, "%llu bytes, %llu before",
          (unsigned long long)anonymous(), (unsigned long long)had);
    const uint64_t more = dense_passes(x, s, 3);
    CHECK(more >= usual + less && more <= usual + 3 * less, "%llu bytes a pass, %llu before",
          (unsigned long long)more, (unsigned long long)usual);
    CHECK(quick() || anonymous() + less * 9 / 10 <= had, "it grows by itself");
    for (uint32_t i = 0; i < 10 && sl_stream_resize(s, UINT64_MAX, SECOND / 10); i++)
        dense_pass(x, s, true);
    dense_passes(x, s, 3);
    sl_stream_room_get(s, &room);
    CHECK(room.memory_bytes == room.most_bytes);
    const uint64_t again = dense_passes(x, s, 3);
    CHECK(again <= usual + UNIT_LEN, "%llu bytes a pass again, %llu before",
          (unsigned long long)again, (unsigned long long)usual);
    sl_stream_close(&s);
}

static void pinned_at_any_moment(const fixture *x, sl_io io)
{
    test_case("%s: passes while pinned parts come and go", sl_io_name(io));
    resizer r = {.s = stream_of(x, io, 16 * (uint64_t)UNIT_LEN)};
    pthread_t thread;
    if (!r.s || !CHECK(pthread_create(&thread, NULL, resize_on, &r) == 0))
        return;
    for (uint32_t i = 0; i < (quick() ? 10u : 20u) || (r.n < 4 && i < 1000); i++)
        dense_pass(x, r.s, true);
    atomic_store(&r.stop, true);
    pthread_join(thread, NULL);
    CHECK(r.n > 3, "resized %u times", r.n);
    sl_stream_close(&r.s);
}

int main(void)
{
    fixture x;
    overlapping(&x);
    gives_back(&x, SL_IO_DIRECT);
    gives_back(&x, SL_IO_PREAD);
    gives_back(&x, SL_IO_MAPPED);
    in_use(&x);
    at_any_moment(&x, SL_IO_DIRECT);
    at_any_moment(&x, SL_IO_PREAD);
    at_any_moment(&x, SL_IO_MAPPED);
    fixture_close(&x);
    dense(&x);
    pinned_parts(&x, SL_IO_DIRECT);
    pinned_parts(&x, SL_IO_PREAD);
    pinned_at_any_moment(&x, SL_IO_DIRECT);
    pinned_at_any_moment(&x, SL_IO_PREAD);
    fixture_close(&x);
    return test_end();
}
