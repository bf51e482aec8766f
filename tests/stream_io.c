/* Proves: whatever the engine, the refused kernel features, the sizes and the budget, the same
 * passes see the same, right bytes; memory stays inside the budget; a disk limit holds. */
#include <sys/mman.h>

#include "lib_stream.h"
#include "../stream/budget.h"

typedef struct setup {
    const char *name;
    sl_io io;
    uint32_t refuse;
    const char *engine; /* how its description begins */
} setup;

static const setup setups[] = {
    {"direct", SL_IO_DIRECT, 0, "direct (io_uring, O_DIRECT"},
    {"direct, no huge pages", SL_IO_DIRECT, SL_REFUSE_HUGE_PAGES,
     "direct (io_uring, O_DIRECT, small"},
    {"direct, no io_uring", SL_IO_DIRECT, SL_REFUSE_IO_URING, "pread (threads, O_DIRECT"},
    {"direct, no O_DIRECT", SL_IO_DIRECT, SL_REFUSE_O_DIRECT, "pread (threads, buffered"},
    {"direct, no locked memory", SL_IO_DIRECT, SL_REFUSE_MEMLOCK, "pread (threads, O_DIRECT"},
    {"direct, nothing", SL_IO_DIRECT,
     SL_REFUSE_IO_URING | SL_REFUSE_O_DIRECT | SL_REFUSE_HUGE_PAGES, "pread (threads, buffered"},
    {"pread", SL_IO_PREAD, 0, "pread (threads, O_DIRECT"},
    {"pread, no O_DIRECT", SL_IO_PREAD, SL_REFUSE_O_DIRECT, "pread (threads, buffered"},
    {"mapped", SL_IO_MAPPED, 0, "mapped ("},
    {"auto", SL_IO_AUTO, 0, ""},
};

static void rows_check(const fixture *x, sl_stream *s, uint64_t *seed, uint32_t n)
{
    static uint8_t out[512 * FIXTURE_ROW_BYTES];
    uint32_t row[512] = {0};
    uint64_t wrong = 0;
    sl_err err = {0};
    for (uint32_t i = 0; i < n; i++)
        row[i] = test_random(seed) % 4 ? test_random(seed) % FIXTURE_ROWS : i % 3;
    if (!CHECK(sl_rows_read(s, x->table, row, n, out, &err) == SL_OK, "%s", err.text))
        return;
    for (uint32_t i = 0; i < n; i++)
        wrong += fixture_wrong(1, 77 + (uint64_t)row[i] * FIXTURE_ROW_BYTES,
                               out + (uint64_t)i * FIXTURE_ROW_BYTES, FIXTURE_ROW_BYTES);
    CHECK(wrong == 0, "%u rows: %llu wrong bytes", n, (unsigned long long)wrong);
}

/* Enters units 0 to stop - 1 of a pass of n_units. */
static void pass(const fixture *x, sl_stream *s, uint32_t n_units, uint32_t stop)
{
    sl_err err = {0};
    CHECK(sl_pass_begin(s, SL_PASS_DECODE, 1, n_units, &err) == SL_OK, "%s", err.text);
    for (uint32_t u = 0; u < stop; u++) {
        if (!CHECK(sl_unit_enter(s, u, &err) == SL_OK, "unit %u: %s", u, err.text))
            break;
        CHECK(fixture_unit_right(x, s, u), "unit %u", u);
        if (u + 1 < stop || stop == n_units)
            sl_unit_leave(s, u);
    }
    sl_pass_end(s);
}

/* Bytes of the files in the page cache. */
static uint64_t cached_bytes(const fixture *x)
{
    uint64_t sum = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint32_t f = 0; f < FIXTURE_FILES; f++) {
        uint64_t n = (x->file[f]->size + page - 1) / page;
        unsigned char *in = calloc(n, 1);
        void *map = mmap(NULL, x->file[f]->size, PROT_READ, MAP_SHARED, x->file[f]->fd, 0);
        if (in && map != MAP_FAILED && mincore(map, x->file[f]->size, in) == 0)
            for (uint64_t i = 0; i < n; i++)
                sum += (in[i] & 1) * page;
        munmap(map, x->file[f]->size);
        free(in);
    }
    return sum;
}

static void cache_drop(const fixture *x)
{
    for (uint32_t f = 0; f < FIXTURE_FILES; f++)
        sl_file_forget(x->file[f], 0, x->file[f]->size);
}

/* Sanitizers keep books of their own, in the same memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MEMORY_COUNTS = 0 };
#else
enum { MEMORY_COUNTS = 1 };
#endif

static uint64_t anon_bytes(void)
{
    sl_memory_use use = {0};
    CHECK(sl_memory_use_now(&use, NULL) == SL_OK);
    return use.anon_bytes;
}

static void script(const fixture *x, const setup *t, sl_stream_options o)
{
    uint32_t n = sl_plan_unit_count(x->plan);
    uint64_t anon = anon_bytes();
    uint64_t seed = 7;
    sl_stream *s = NULL;
    sl_err err = {0};
    cache_drop(x);
    o.io = t->io;
    o.refuse = t->refuse;
    test_case("%s, %llu bytes, pieces of %llu", t->name, (unsigned long long)o.memory_bytes,
              (unsigned long long)o.piece_bytes);
    if (!CHECK(sl_stream_open(x->plan, &o, &s, &err) == SL_OK, "%s", err.text))
        return;
    CHECK(strncmp(sl_stream_engine(s), t->engine, strlen(t->engine)) == 0, "%s (%s)",
          sl_stream_engine(s), sl_stream_refused(s));
    CHECK((t->refuse != 0) == (sl_stream_refused(s)[0] != 0), "%s", sl_stream_refused(s));
    pass(x, s, n, n);
    rows_check(x, s, &seed, 512);
    pass(x, s, n - 1, n - 1);
    pass(x, s, n, n / 2);
    pass(x, s, 2, 2);
    rows_check(x, s, &seed, 3);
    for (uint32_t i = 0; i < 3; i++) {
        pass(x, s, n, n);
        rows_check(x, s, &seed, 1);
        uint64_t cached = t->io != SL_IO_AUTO ? cached_bytes(x) : 0;
        uint64_t own = anon_bytes() > anon && MEMORY_COUNTS ? anon_bytes() - anon : 0;
        CHECK(cached + own <= o.memory_bytes, "%llu bytes in the page cache, %llu of our own",
              (unsigned long long)cached, (unsigned long long)own);
    }
    sl_stream_stats st;
    sl_stream_stats_get(s, &st);
    const sl_split *split = sl_stream_split_of(s);
    CHECK(split->io_bytes + split->rows_bytes + split->ring_bytes + split->pinned_bytes <=
          o.memory_bytes);
    CHECK(st.max_in_flight <= o.in_flight_bytes || st.max_in_flight <= o.piece_bytes);
    CHECK(st.passes == 7 && st.rows_read == 518 && st.bytes_read > 0);
    CHECK((split->streamed_parts == 0) == (split->ring_bytes == 0));
    CHECK(st.ahead_parts > 0 || split->streamed_parts == 0);
    sl_stream_close(&s);
    CHECK(s == NULL);
}

static void all_setups(const fixture *x)
{
    sl_stream_options o = sl_stream_defaults();
    uint64_t all = fixture_all(x);
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        o.io = setups[i].io;
        uint64_t floor = fixture_floor(x, &o);
        const uint64_t memory[] = {floor, floor + (all - floor) / 3, all};
        for (size_t m = 0; m < sizeof memory / sizeof *memory; m++) {
            o.memory_bytes = memory[m];
            o.piece_bytes = 1 << 20;
            o.in_flight_bytes = 64 << 20;
            script(x, &setups[i], o);
            o.piece_bytes = 8192;
            o.in_flight_bytes = 30000;
            if (m == 1)
                script(x, &setups[i], o);
        }
    }
}

int main(void)
{
    fixture x;
    fixture_open(&x, 4 << 20, 12, 300 << 10);
    all_setups(&x);
    fixture_close(&x);
    return test_end();
}
