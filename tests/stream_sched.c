/* Proves: the scheduler's promises, on a virtual clock and with an engine that completes reads when
 * and how the test says. Order of service, the cap on bytes in flight, reading ahead across passes,
 * early ends, failing reads, the disk limit; then random schedules with every invariant checked
 * after each step. */
#include <errno.h>

#include "lib_sched.h"

/* ---- one promise at a time ---- */

static void four_parts(sim *m, uint64_t room)
{
    sim_new(m);
    for (uint64_t u = 0; u < 4; u++)
        sim_unit(m, u << 20, 64 << 10);
    m->o.piece_bytes = 16 << 10;
    sim_open(m, room);
}

static void order(void)
{
    test_case("reads go out in the order of the pass, and on into the next");
    sim m;
    four_parts(&m, 0);
    CHECK(m.split.streamed_parts == 4 && m.split.ring_bytes == 128 << 10);
    CHECK(issue(&m) == 0, "nothing is read before the first pass");
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 4);
    CHECK(issue(&m) == 8, "two parts fit the ring");
    for (uint32_t i = 0; i < 8; i++)
        CHECK(m.out[i]->offset == ((uint64_t)(i / 4) << 20) + (i % 4 << 14));
    CHECK(sl_sched_enter(&m.s, 0, NULL) == SL_EAGAIN);
    for (uint32_t i = 0; i < 4; i++)
        CHECK(complete(&m, oldest(&m), INT32_MAX) == (i == 3), "the pass is told once, at the end");
    CHECK(sl_sched_enter(&m.s, 0, NULL) == SL_OK && right(&m, 0));
    CHECK(issue(&m) == 0 && m.s.starved, "its slot is held");
    sl_sched_leave(&m.s, 0);
    CHECK(issue(&m) == 4 && m.out[m.n_out - 1]->offset >> 20 == 2, "and free now");
    for (uint32_t u = 1; u < 4; u++) {
        CHECK(enter_driven(&m, u, NULL) == SL_OK && right(&m, u));
        CHECK(m.s.stats.ahead_parts == 0 || u == 3);
        sl_sched_leave(&m.s, u);
        issue(&m);
    }
    CHECK(m.s.stats.ahead_parts == 2, "the ring is full of the next pass's first parts");
    sl_sched_pass_end(&m.s);
    complete_all(&m);
    CHECK(m.s.resident[0].state == SL_PART_READY && m.s.resident[1].state == SL_PART_READY);
    uint64_t reads = m.s.stats.reads;
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 4);
    CHECK(sl_sched_enter(&m.s, 0, NULL) == SL_OK && right(&m, 0) && m.s.stats.reads == reads);
    sim_close(&m);
}

static void pinned_once(void)
{
    test_case("pinned parts are read once, when the reader first comes to them");
    sim m;
    four_parts(&m, 1 << 20);
    CHECK(m.split.pinned_parts == 4 && m.split.ring_bytes == 0);
    for (uint32_t pass = 0; pass < 3; pass++) {
        sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 4);
        for (uint32_t u = 0; u < 4; u++) {
            CHECK(enter_driven(&m, u, NULL) == SL_OK && right(&m, u));
            sl_sched_leave(&m.s, u);
        }
        sl_sched_pass_end(&m.s);
    }
    CHECK(m.s.stats.reads == 16 && m.s.stats.bytes_read == 256 << 10);
    sim_close(&m);
}

static void demand(void)
{
    test_case("rows overtake what is queued");
    sim m;
    four_parts(&m, 0);
    m.s.o.in_flight_bytes = m.o.in_flight_bytes = 32 << 10;
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 4);
    CHECK(issue(&m) == 2, "the cap");
    sl_span row = {.offset = 512 << 20, .len = 4096, .need = 4096};
    sl_sched_rows_start(&m.s, &row, 1, m.bounce);
    CHECK(sl_sched_rows_state(&m.s, NULL) == SL_EAGAIN && issue(&m) == 0);
    complete(&m, oldest(&m), INT32_MAX);
    CHECK(issue(&m) == 1 && m.out[m.n_out - 1]->offset == row.offset, "the row is next");
    CHECK(complete(&m, m.n_out - 1, INT32_MAX) && sl_sched_rows_state(&m.s, NULL) == SL_OK);

    test_case("a queued part that a unit waits for is upgraded");
    CHECK(m.s.list[SL_DEMAND].first == NULL && m.s.list[SL_SEQUENTIAL].first != NULL);
    CHECK(sl_sched_enter(&m.s, 0, NULL) == SL_EAGAIN);
    CHECK(m.s.list[SL_DEMAND].first == m.s.resident[0].fetch && !m.s.list[SL_SEQUENTIAL].first);
    while (m.s.list[SL_DEMAND].first) {
        issue(&m);
        complete(&m, oldest(&m), INT32_MAX);
        CHECK(m.s.in_flight_bytes <= 32 << 10);
    }
    CHECK(m.s.stats.max_in_flight == 32 << 10);
    complete_all(&m);
    sim_close(&m);
}

static void early_end(void)
{
    test_case("a pass that ends early leaves nothing behind");
    sim m;
    four_parts(&m, 0);
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 4);
    CHECK(issue(&m) == 8);
    for (uint32_t i = 0; i < 4; i++)
        complete(&m, oldest(&m), INT32_MAX);
    CHECK(sl_sched_enter(&m.s, 0, NULL) == SL_OK);
    sl_sched_pass_end(&m.s); /* inside unit 0, part 1 in flight */
    CHECK(m.s.resident[0].state == SL_PART_ABSENT && m.s.resident[1].state == SL_PART_READING);
    CHECK(holds(&m));
    CHECK(issue(&m) == 4 && m.out[m.n_out - 1]->offset >> 20 == 0, "the next pass, from unit 0");
    CHECK(issue(&m) == 0, "part 1's memory is not used before its old reads are back");
    while (m.n_out) {
        complete(&m, oldest(&m), INT32_MAX);
        CHECK(holds(&m));
    }
    CHECK(m.s.resident[1].state == SL_PART_ABSENT && m.s.resident[0].state == SL_PART_READY);
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 4);
    CHECK(enter_driven(&m, 0, NULL) == SL_OK && right(&m, 0));

    test_case("a shorter pass drops what lies beyond its end");
    sl_sched_pass_end(&m.s);
    complete_all(&m);
    CHECK(m.s.resident[0].state == SL_PART_READY && m.s.resident[1].state == SL_PART_READY);
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 1);
    CHECK(m.s.resident[0].state == SL_PART_READY && m.s.resident[1].state == SL_PART_ABSENT);
    CHECK(enter_driven(&m, 0, NULL) == SL_OK);
    sl_sched_leave(&m.s, 0);
    sl_sched_pass_end(&m.s);
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 4);
    for (uint32_t u = 0; u < 4; u++) {
        CHECK(enter_driven(&m, u, NULL) == SL_OK && right(&m, u) && holds(&m));
        sl_sched_leave(&m.s, u);
    }
    sim_close(&m);
}

static void results(void)
{
    test_case("short reads go on, EINTR and EAGAIN try again");
    sim m;
    four_parts(&m, 0);
    m.s.o.piece_bytes = 64 << 10;
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 4);
    issue(&m);
    CHECK(!complete(&m, oldest(&m), -EINTR) && !complete(&m, 0, 10000));
    CHECK(m.n_out == 0 && issue(&m) == 2);
    CHECK(m.out[0]->done == 0 && m.out[1]->done == 8192, "from the last aligned byte");
    CHECK(complete(&m, 0, -EAGAIN) == false && complete(&m, 0, INT32_MAX) && issue(&m) == 1);
    CHECK(complete(&m, 0, INT32_MAX));
    CHECK(sl_sched_enter(&m.s, 0, NULL) == SL_OK && right(&m, 0) && right(&m, 1));

    test_case("the end of the file need not be aligned");
    sim_close(&m);
    sim_new(&m);
    m.file.size = 100000;
    sim_unit(&m, 90001, 9999);
    sim_open(&m, 1 << 20);
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 1);
    if (CHECK(issue(&m) == 1))
        CHECK(m.out[0]->len == 16384 && m.out[0]->need == 100000 - 86016, "%u of %u",
              m.out[0]->need, m.out[0]->len);
    CHECK(complete(&m, 0, 100000 - 86016));
    CHECK(sl_sched_enter(&m.s, 0, NULL) == SL_OK && right(&m, 0));
    sim_close(&m);

    test_case("a file that has become shorter");
    sl_err err = {0};
    four_parts(&m, 0);
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 4);
    issue(&m);
    complete(&m, 0, 4096);
    for (uint32_t k = 0; k < 20 && m.s.resident[0].state != SL_PART_FAILED; k++) {
        issue(&m);
        complete(&m, oldest(&m), m.out[oldest(&m)]->done ? 0 : INT32_MAX);
    }
    CHECK(sl_sched_enter(&m.s, 0, &err) == SL_EIO && strstr(err.text, "fake.gguf") &&
              strstr(err.text, "shorter than when it was opened") && strstr(err.text, "4096"),
          "%s", err.text);
    sl_sched_pass_end(&m.s);
    complete_all(&m);
    sim_close(&m);

    test_case("EINTR for ever is an error");
    err = (sl_err){0};
    four_parts(&m, 0);
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 4);
    for (uint32_t k = 0; k < 2000 && sl_sched_enter(&m.s, 0, &err) == SL_EAGAIN; k++) {
        issue(&m);
        complete(&m, oldest(&m), -EINTR);
    }
    CHECK(err.code == SL_EIO && err.errno_value == EINTR, "%s", err.text);
    sim_close(&m);
}

/* Fails read number n; the unit that needs it says so, and the next passes are right. */
static bool fail_nth(uint64_t n, uint64_t room, int errno_value)
{
    sim m;
    four_parts(&m, room);
    m.s.o.fail_read = n;
    m.s.o.fail_errno = errno_value;
    m.s.o.short_read = 1 << 30;
    uint32_t failed = 0;
    for (uint32_t pass = 0; pass < 4; pass++) {
        sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 4);
        for (uint32_t u = 0; u < 4; u++) {
            sl_err err = {0};
            sl_status st = enter_driven(&m, u, &err);
            if (st == SL_OK) {
                CHECK(right(&m, u), "pass %u unit %u", pass, u);
                sl_sched_leave(&m.s, u);
                continue;
            }
            failed++;
            CHECK(st == SL_EIO && strstr(err.text, "fake.gguf") && strstr(err.text, "offset") &&
                      err.errno_value == errno_value,
                  "%s", err.text);
            break;
        }
        holds(&m);
        sl_sched_pass_end(&m.s);
        holds(&m);
    }
    complete_all(&m);
    bool reached = m.s.n_reads >= n;
    CHECK(failed <= 1, "%u failures", failed);
    sim_close(&m);
    return reached;
}

static void failures(void)
{
    const uint64_t rooms[] = {0, 70 << 10, 1 << 20};
    for (size_t i = 0; i < 3; i++)
        for (uint64_t n = 1; n < 200; n++) {
            test_case("read %llu fails, room %llu", (unsigned long long)n,
                      (unsigned long long)rooms[i]);
            if (!fail_nth(n, rooms[i], n % 2 ? EIO : 0))
                break;
        }
}

static void disk_limit(void)
{
    test_case("a disk limit, on the virtual clock");
    sim m;
    sim_new(&m);
    for (uint64_t u = 0; u < 16; u++)
        sim_unit(&m, u << 20, 1 << 20);
    m.o.disk_limit = 100 << 20;
    m.o.piece_bytes = 256 << 10;
    sim_open(&m, 0);
    sl_sched_pass_begin(&m.s, SL_PASS_DECODE, 1, 16);
    m.now = 1000000000;
    uint64_t start = m.now;
    for (uint32_t u = 0; u < 16; u++) {
        while (sl_sched_enter(&m.s, u, NULL) == SL_EAGAIN) {
            issue(&m);
            if (m.n_out)
                complete(&m, 0, INT32_MAX);
            else if (CHECK(m.wait_ns != UINT64_MAX))
                m.now += m.wait_ns;
        }
        sl_sched_leave(&m.s, u);
    }
    double seconds = (double)(m.now - start) * 1e-9, ideal = 16.0 / 100;
    CHECK(seconds > 0.95 * ideal && seconds < 1.01 * ideal, "%.4f s for %.4f", seconds, ideal);

    test_case("an idle disk saves nothing up");
    m.now += 10000000000u;
    m.sent = 0;
    while (m.n_out)
        complete(&m, 0, INT32_MAX);
    while (issue(&m))
        ;
    CHECK(m.sent <= (256 << 10) * 2, "%llu bytes at once", (unsigned long long)m.sent);
    complete_all(&m);
    sim_close(&m);
}

/* ---- random schedules ---- */

typedef struct walker { /* a pass that does what it likes */
    bool in_pass, inside, rows;
    uint32_t unit, n_units;
    sl_span row;
} walker;

static void random_plan(sim *m, uint64_t *seed)
{
    sim_new(m);
    uint64_t at = test_random(seed) % 9000;
    for (uint64_t u = test_random(seed) % 6 + 1; u > 0; u--) {
        uint32_t unit = sl_plan_unit(m->plan, "u");
        for (uint64_t p = test_random(seed) % 3 + (u == 1); p > 0; p--) {
            uint32_t part = sl_plan_part(m->plan, unit, SL_PART_ALWAYS);
            for (uint64_t e = test_random(seed) % 3; e > 0; e--) {
                uint64_t len = test_random(seed) % 12000;
                sl_plan_extent(m->plan, part, (sl_extent){0, at, len});
                at += len + (test_random(seed) % 4 ? 0 : 80000);
            }
        }
    }
    m->o.piece_bytes = 4096u << test_random(seed) % 3;
    m->o.in_flight_bytes = 1000 + test_random(seed) % 60000;
    sim_open(m, test_random(seed) % 3 ? test_random(seed) % 60000 : 0);
}

static int32_t random_result(const sl_read *r, uint64_t *seed, bool may_fail)
{
    switch (test_random(seed) % 16) {
    case 0:
        return -EINTR;
    case 1:
        return (int32_t)(test_random(seed) % (r->len - r->done) + 1);
    case 2:
        return may_fail && test_random(seed) % 4 == 0 ? -EIO : INT32_MAX;
    default:
        return INT32_MAX;
    }
}

static void walk(sim *m, walker *w, uint64_t *seed, bool may_end)
{
    if (!w->in_pass) {
        w->n_units = 1 + (uint32_t)(test_random(seed) % m->plan->n_units);
        sl_sched_pass_begin(&m->s, SL_PASS_DECODE, 1, w->n_units);
        *w = (walker){.in_pass = true, .n_units = w->n_units};
    } else if (w->rows) {
        w->rows = sl_sched_rows_state(&m->s, NULL) == SL_EAGAIN;
    } else if (may_end && test_random(seed) % 40 == 0) {
        sl_sched_pass_end(&m->s);
        w->in_pass = false;
    } else if (w->inside) {
        CHECK(right(m, w->unit), "at leaving");
        sl_sched_leave(&m->s, w->unit);
        w->inside = false;
        if (++w->unit == w->n_units) {
            sl_sched_pass_end(&m->s);
            w->in_pass = false;
        }
    } else if (test_random(seed) % 20 == 0) {
        w->row = (sl_span){.offset = 999 << 12, .len = 8192, .need = 8000};
        sl_sched_rows_start(&m->s, &w->row, 1, m->bounce);
        w->rows = true;
    } else {
        sl_status st = sl_sched_enter(&m->s, w->unit, NULL);
        w->inside = st == SL_OK;
        if (st == SL_OK)
            CHECK(right(m, w->unit), "at entering");
        else if (st != SL_EAGAIN)
            sl_sched_pass_end(&m->s);
        w->in_pass = st == SL_OK || st == SL_EAGAIN;
    }
}

/* What is given up is spoilt: nobody may read it until it has been read again. */
static void random_resize(sim *m, uint64_t *seed)
{
    const uint32_t part = (uint32_t)(test_random(seed) % m->plan->n_parts);
    uint8_t *home = m->s.resident[m->s.position[part]].home;
    if (test_random(seed) % 3 == 0)
        sl_sched_take_back(&m->s, part);
    else if (sl_sched_give_up(&m->s, part))
        memset(home, 0xee, m->plan->parts[part].slot_bytes);
}

static bool step(sim *m, walker *w, uint64_t *seed)
{
    switch (test_random(seed) % 5) {
    case 4:
        random_resize(m, seed);
        break;
    case 0:
        issue(m);
        break;
    case 1:
        walk(m, w, seed, true);
        break;
    default:
        if (m->n_out) {
            uint32_t i = (uint32_t)(test_random(seed) % m->n_out);
            complete(m, i, random_result(m->out[i], seed, true));
        }
    }
    return holds(m);
}

/* From any state, the current pass and a whole one after it come to their end. */
static void finish(sim *m, walker *w, uint64_t *seed)
{
    for (uint32_t pass = 0; pass < 3; pass++) {
        uint32_t idle = 0;
        for (bool done = false; !done && idle < 400; idle++) {
            bool was = w->in_pass;
            uint32_t unit = w->unit;
            issue(m);
            while (m->n_out)
                complete(m, (uint32_t)(test_random(seed) % m->n_out), INT32_MAX);
            walk(m, w, seed, false);
            idle = w->unit == unit ? idle : 0;
            done = was && !w->in_pass;
        }
        CHECK(idle < 400, "stuck");
    }
}

static void random_schedules(void)
{
    for (uint64_t run = 1; run <= 10000; run++) {
        uint64_t seed = run * 0x9e3779b97f4a7c15u;
        sim m;
        walker w = {0};
        test_case("schedule %llu", (unsigned long long)run);
        random_plan(&m, &seed);
        bool ok = m.open;
        for (uint32_t i = 0; i < 150 && ok; i++)
            ok = step(&m, &w, &seed);
        if (ok)
            finish(&m, &w, &seed);
        sim_close(&m);
    }
}

int main(void)
{
    order();
    pinned_once();
    demand();
    early_end();
    results();
    failures();
    disk_limit();
    random_schedules();
    return test_end();
}
