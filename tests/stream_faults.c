/* Proves: a read that fails, comes back short or finds the file cut ends the pass with an error
 * that names file, offset and cause, whichever read it is, and the passes after it are right again;
 * calls out of order are refused; a stream can be closed at any moment. */
#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "lib_stream.h"

/* The allocator, told to refuse one call. Sanitizers bring their own, which stays as it is. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ALLOCATOR_FAILS 1
static atomic_long refuse_in; /* calls until the refused one; 0: none */

static bool refused(void)
{
    return atomic_load(&refuse_in) > 0 && atomic_fetch_sub(&refuse_in, 1) == 1;
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *at, size_t size);
void *__libc_memalign(size_t align, size_t size);

void *malloc(size_t size)
{
    return refused() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return refused() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *at, size_t size)
{
    return refused() ? NULL : __libc_realloc(at, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return refused() ? NULL : __libc_memalign(align, size);
}
#else
#define ALLOCATOR_FAILS 0
static atomic_long refuse_in;
#endif

static const sl_io engines[] = {SL_IO_DIRECT, SL_IO_PREAD, SL_IO_MAPPED};

static sl_stream *stream_of(const fixture *x, const sl_stream_options *o)
{
    sl_stream *s = NULL;
    sl_err err = {0};
    CHECK(sl_stream_open(x->plan, o, &s, &err) == SL_OK, "%s", err.text);
    return s;
}

static sl_status whole_pass(const fixture *x, sl_stream *s, sl_err *err)
{
    uint32_t n = sl_plan_unit_count(x->plan);
    uint32_t rows[3] = {5, 599, 5};
    uint8_t out[3 * FIXTURE_ROW_BYTES];
    sl_status st = sl_pass_begin(s, SL_PASS_DECODE, 1, n, err);
    if (st == SL_OK)
        st = sl_rows_read(s, x->table, rows, 3, out, err);
    if (st == SL_OK)
        CHECK(fixture_wrong(1, 77 + 599 * FIXTURE_ROW_BYTES, out + FIXTURE_ROW_BYTES,
                            FIXTURE_ROW_BYTES) == 0);
    for (uint32_t u = 0; u < n && st == SL_OK; u++) {
        st = sl_unit_enter(s, u, err);
        if (st == SL_OK)
            CHECK(fixture_unit_right(x, s, u), "unit %u", u);
        sl_unit_leave(s, u);
    }
    sl_pass_end(s);
    return st;
}

/* Four passes in which read number n fails. Returns whether there was such a read. */
static bool fail_nth(const fixture *x, sl_stream_options o, uint64_t n)
{
    uint32_t failed = 0;
    sl_stream_stats stats;
    o.fail_read = n;
    sl_stream *s = stream_of(x, &o);
    for (uint32_t pass = 0; s && pass < 4; pass++) {
        sl_err err = {0};
        if (whole_pass(x, s, &err) == SL_OK)
            continue;
        failed++;
        CHECK(err.code == SL_EIO && err.errno_value == o.fail_errno, "%s", err.text);
        CHECK(strstr(err.text, "sluice-test-") && strstr(err.text, "offset"), "%s", err.text);
        CHECK(!o.fail_errno || strstr(err.text, strerror(o.fail_errno)), "%s", err.text);
    }
    CHECK(failed <= 1, "%u passes failed", failed);
    sl_stream_stats_get(s, &stats);
    sl_stream_close(&s);
    return stats.reads >= n;
}

static void every_read(const fixture *x)
{
    for (size_t e = 0; e < sizeof engines / sizeof *engines; e++) {
        sl_stream_options o = sl_stream_defaults();
        o.io = engines[e];
        o.piece_bytes = 128 << 10;
        o.memory_bytes = fixture_floor(x, &o) + (200 << 10);
        bool more = true;
        for (uint64_t n = 1; more && n < 500; n += n < 12 || e == 0 ? 1 : 9) {
            test_case("%s, read %llu", sl_io_name(o.io), (unsigned long long)n);
            o.fail_errno = n % 3 ? EIO : 0;
            o.short_read = 1 << 30; /* nothing at all: the file seems to end there */
            more = fail_nth(x, o, n);
        }
        CHECK(!more, "the loop came to an end");
    }
}

static void harmless(const fixture *x)
{
    const int errnos[] = {0, EINTR, EAGAIN};
    for (size_t i = 0; i < 3; i++)
        for (uint64_t n = 1; n < 20; n++) {
            test_case("read %llu: %s", (unsigned long long)n, i ? strerror(errnos[i]) : "short");
            sl_stream_options o = sl_stream_defaults();
            o.io = SL_IO_DIRECT;
            o.memory_bytes = fixture_floor(x, &o);
            o.fail_read = n;
            o.fail_errno = errnos[i];
            o.short_read = 777;
            sl_stream *s = stream_of(x, &o);
            sl_err err = {0};
            CHECK(whole_pass(x, s, &err) == SL_OK, "%s", err.text);
            CHECK(whole_pass(x, s, &err) == SL_OK, "%s", err.text);
            sl_stream_close(&s);
        }
}

/* The file is cut behind its first tenth, and put right again. */
static void cut_short(fixture *x)
{
    for (size_t e = 0; e < sizeof engines / sizeof *engines; e++) {
        test_case("%s, cut short", sl_io_name(engines[e]));
        sl_stream_options o = sl_stream_defaults();
        sl_err err = {0};
        o.io = engines[e];
        o.memory_bytes = fixture_floor(x, &o);
        sl_stream *s = stream_of(x, &o);
        CHECK(whole_pass(x, s, &err) == SL_OK, "%s", err.text);
        uint64_t size = x->file[0]->size;
        CHECK(truncate(x->path[0], (off_t)(size / 10)) == 0);
        sl_status st = SL_OK; /* the first pass may still find all of it read ahead */
        for (uint32_t i = 0; i < 2 && st == SL_OK && engines[e] != SL_IO_MAPPED; i++)
            st = whole_pass(x, s, &err);
        for (uint32_t u = 0; engines[e] == SL_IO_MAPPED && st == SL_OK && u < 2; u++) {
            /* Without touching the bytes: that would be fatal. */
            sl_pass_begin(s, SL_PASS_DECODE, 1, sl_plan_unit_count(x->plan), &err);
            for (uint32_t k = 0; k < sl_plan_unit_count(x->plan) && st == SL_OK; k++) {
                st = sl_unit_enter(s, k, &err);
                sl_unit_leave(s, k);
            }
            sl_pass_end(s);
        }
        CHECK(st == SL_EIO && strstr(err.text, "shorter than when it was opened"), "%s", err.text);
        CHECK(strstr(err.text, x->path[0]) && strstr(err.text, "offset"), "%s", err.text);
        int fd = open(x->path[0], O_WRONLY);
        uint8_t *bytes = malloc(size);
        for (uint64_t i = 0; i < size; i++)
            bytes[i] = fixture_byte(0, i);
        CHECK(pwrite(fd, bytes, size, 0) == (ssize_t)size && fsync(fd) == 0);
        free(bytes);
        close(fd);
        err = (sl_err){0};
        CHECK(whole_pass(x, s, &err) == SL_OK, "%s", err.text);
        sl_stream_close(&s);
    }
}

static void misuse(const fixture *x)
{
    test_case("calls out of order");
    sl_stream_options o = sl_stream_defaults();
    o.memory_bytes = fixture_floor(x, &o);
    sl_stream *s = stream_of(x, &o);
    uint32_t n = sl_plan_unit_count(x->plan), part = 0, got, rows[600] = {600};
    static uint8_t out[600 * FIXTURE_ROW_BYTES];
    CHECK(sl_unit_enter(s, 0, NULL) == SL_EINVAL, "before the pass");
    sl_unit_leave(s, 0);
    sl_pass_end(s);
    CHECK(sl_pass_begin(s, SL_PASS_DECODE, 1, n + 1, NULL) == SL_EINVAL);
    CHECK(sl_pass_begin(s, SL_PASS_DECODE, 1, n, NULL) == SL_OK);
    CHECK(sl_pass_begin(s, SL_PASS_DECODE, 1, n, NULL) == SL_EINVAL, "twice");
    CHECK(sl_unit_enter(s, 1, NULL) == SL_EINVAL, "not the first");
    CHECK(sl_unit_enter(s, 0, NULL) == SL_OK && sl_unit_enter(s, 1, NULL) == SL_EINVAL, "two");
    CHECK(fixture_unit_right(x, s, 0));
    sl_unit_leave(s, 1);
    CHECK(fixture_unit_right(x, s, 0), "leaving another one changes nothing");
    sl_unit_leave(s, 0);
    CHECK(sl_unit_enter(s, 0, NULL) == SL_EINVAL, "again");
    CHECK(sl_rows_read(s, x->table, rows, 513, out, NULL) == SL_EINVAL, "more than the batch");
    CHECK(sl_rows_read(s, 9, rows, 1, out, NULL) == SL_EINVAL, "no such table");
    CHECK(sl_rows_read(s, x->table, rows, 1, out, NULL) == SL_EINVAL, "no such row");
    CHECK(sl_rows_read(s, x->table, rows, 0, out, NULL) == SL_OK);
    CHECK(sl_parts_need(s, &part, rows, 1, NULL) == SL_EINVAL, "no unit is entered");
    CHECK(sl_parts_next(s, &part, 1, &got, NULL) == SL_EINVAL, "nothing was asked for");
    CHECK(sl_part_rest(s, part, NULL) == SL_EINVAL, "nothing was given");
    sl_parts_hint(s, &part, 1);
    CHECK(sl_unit_enter(s, 1, NULL) == SL_OK && fixture_unit_right(x, s, 1));
    sl_stream_close(&s); /* inside a unit */
    sl_stream_close(&s);
    sl_stream_close(NULL);

    test_case("closing at any moment");
    o.memory_bytes += 1 << 20;
    for (uint32_t i = 0; i < 30; i++) {
        o.io = i % 4 ? engines[i % 3] : SL_IO_NULL;
        s = stream_of(x, &o);
        if (i % 5 && sl_pass_begin(s, SL_PASS_PREFILL, 9, n, NULL) == SL_OK && i % 2)
            CHECK(sl_unit_enter(s, 0, NULL) == SL_OK);
        sl_stream_close(&s);
    }
}

static double seconds_of_pass(const fixture *x, sl_stream *s)
{
    sl_err err = {0};
    uint64_t start = sl_now_ns();
    uint32_t n = sl_plan_unit_count(x->plan);
    CHECK(sl_pass_begin(s, SL_PASS_DECODE, 1, n, &err) == SL_OK);
    for (uint32_t u = 0; u < n; u++) {
        CHECK(sl_unit_enter(s, u, &err) == SL_OK, "%s", err.text);
        sl_unit_leave(s, u);
    }
    sl_pass_end(s);
    return (double)(sl_now_ns() - start) * 1e-9;
}

/* A slower disk, emulated: passes take as long as their bytes do. */
static void disk_limit(const fixture *x)
{
    for (size_t e = 0; e < sizeof engines / sizeof *engines; e++) {
        test_case("%s under a disk limit", sl_io_name(engines[e]));
        sl_stream_options o = sl_stream_defaults();
        o.io = engines[e];
        o.disk_limit = 60 << 20;
        o.piece_bytes = 128 << 10;
        o.memory_bytes = fixture_floor(x, &o);
        sl_stream *s = stream_of(x, &o);
        sl_stream_stats was, is;
        seconds_of_pass(x, s);
        /* A busy machine may hold up a thread; nothing but the limit can hold all of five back. */
        double seconds = 0, ideal = 0;
        for (int i = 0; i < 5 && (i == 0 || seconds > 1.1 * ideal + 0.02); i++) {
            sl_stream_stats_get(s, &was);
            seconds = seconds_of_pass(x, s) + seconds_of_pass(x, s);
            sl_stream_stats_get(s, &is);
            ideal = (double)(is.bytes_read - was.bytes_read) / (double)o.disk_limit;
            CHECK(seconds >= 0.95 * ideal, "%.3f s for %.3f", seconds, ideal);
            CHECK(is.waits > was.waits && is.wait_ns > was.wait_ns && is.passes == was.passes + 2);
        }
        CHECK(seconds <= 1.1 * ideal + 0.02, "%.3f s for %.3f", seconds, ideal);
        sl_stream_close(&s);
    }
    test_case("measuring the disk");
    sl_stream_options o = sl_stream_defaults();
    double rate = 0;
    sl_err err = {0};
    o.disk_limit = 40 << 20;
    o.piece_bytes = 128 << 10;
    o.memory_bytes = fixture_floor(x, &o);
    for (int i = 0; i < 5 && rate <= 0.8 * (40 << 20); i++) { /* of a busy machine one is enough */
        CHECK(sl_stream_measure_disk(x->plan, &o, 0.2, &rate, &err) == SL_OK, "%s", err.text);
        CHECK(rate < 1.1 * (40 << 20), "%.1f MB/s", rate * 1e-6);
    }
    CHECK(rate > 0.8 * (40 << 20), "%.1f MB/s", rate * 1e-6);
}

static void zeros(const fixture *x)
{
    test_case("null");
    sl_stream_options o = sl_stream_defaults();
    o.io = SL_IO_NULL;
    o.memory_bytes = fixture_floor(x, &o);
    sl_stream *s = stream_of(x, &o);
    CHECK(strcmp(sl_stream_engine(s), "null (no I/O, zeros)") == 0, "%s", sl_stream_engine(s));
    CHECK(sl_pass_begin(s, SL_PASS_DECODE, 1, 2, NULL) == SL_OK);
    CHECK(sl_unit_enter(s, 0, NULL) == SL_OK);
    const uint8_t *data = sl_part_data(s, 0, 0);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < x->plan->parts[0].places[0].extent.len; i++)
        sum += data[i];
    CHECK(sum == 0);
    sl_stream_close(&s);
}

/* Every allocation of opening, refused once: an error that says so, and nothing left behind. After
 * opening there are none. */
static void every_allocation(const fixture *x)
{
    for (size_t e = 0; ALLOCATOR_FAILS && e < sizeof engines / sizeof *engines; e++) {
        sl_stream_options o = sl_stream_defaults();
        o.io = engines[e];
        o.memory_bytes = fixture_floor(x, &o);
        bool more = true;
        for (long n = 1; more && n < 300; n++) {
            test_case("%s, allocation %ld", sl_io_name(o.io), n);
            sl_stream *s = NULL;
            sl_err err = {0};
            atomic_store(&refuse_in, n);
            sl_status st = sl_stream_open(x->plan, &o, &s, &err);
            more = atomic_load(&refuse_in) == 0;
            atomic_store(&refuse_in, 0);
            CHECK((st == SL_OK) == !more && (st == SL_OK) == (s != NULL), "%s", err.text);
            CHECK(st == SL_OK || err.text[0]);
            CHECK(st == SL_OK || st == SL_ENOMEM || err.errno_value, "%s", err.text);
            atomic_store(&refuse_in, 1);
            if (s && !more)
                CHECK(whole_pass(x, s, &err) == SL_OK && whole_pass(x, s, &err) == SL_OK, "%s",
                      err.text);
            CHECK(!s || atomic_load(&refuse_in) == 1, "an allocation in a pass");
            atomic_store(&refuse_in, 0);
            sl_stream_close(&s);
        }
        CHECK(!more, "the loop came to an end");
    }
}

/* The way to a file may change while it is in use. */
static void unlinked(void)
{
    fixture x;
    sl_err err = {0};
    test_case("the file's name is gone");
    fixture_open(&x, 2 << 20, 4, 100 << 10);
    for (uint32_t f = 0; f < FIXTURE_FILES; f++)
        unlink(x.path[f]);
    for (size_t e = 0; e < sizeof engines / sizeof *engines; e++) {
        sl_stream_options o = sl_stream_defaults();
        o.io = engines[e];
        o.memory_bytes = fixture_floor(&x, &o);
        sl_stream *s = stream_of(&x, &o);
        CHECK(whole_pass(&x, s, &err) == SL_OK, "%s", err.text);
        sl_stream_close(&s);
    }
    fixture_close(&x);
}

int main(void)
{
    fixture x;
    fixture_open(&x, 3 << 19, 6, 150 << 10);
    every_read(&x);
    harmless(&x);
    misuse(&x);
    disk_limit(&x);
    zeros(&x);
    every_allocation(&x);
    cut_short(&x);
    fixture_close(&x);
    unlinked();
    return test_end();
}
