/* Proves: what --memory auto makes of a machine that changes, on a clock of the test's own: less at
 * once and by what is missing, small changes not followed, more only after quiet and step by step,
 * stalls counted by the second and by whose they are; and where pressure is read. */
#include <stdio.h>
#include <string.h>

#include "../stream/follow.h"
#include "lib_test.h"

static const uint64_t GIB = 1ull << 30, MIB = 1ull << 20, SECOND = 1000000000;

typedef struct machine {
    sl_follow f;
    sl_follow_look l;
    int64_t room; /* of all that we and others may take */
} machine;

static machine machine_new(void)
{
    machine m = {.f = sl_follow_start(GIB, 5 * GIB, 512 * MIB, 0),
                 .room = (int64_t)(5 * GIB + 512 * MIB)};
    m.l = (sl_follow_look){.memory_bytes = 5 * GIB, .stalled_us = UINT64_MAX};
    return m;
}

/* A fifth of a second goes by. */
static uint64_t tick(machine *m)
{
    m->l.now_ns += SECOND / 5;
    m->l.left_bytes = m->room - (int64_t)m->l.memory_bytes;
    m->l.memory_bytes = sl_follow_step(&m->f, &m->l);
    return m->l.memory_bytes;
}

static void limits(void)
{
    test_case("less at once, by what is missing");
    machine m = machine_new();
    for (uint32_t i = 0; i < 100; i++)
        CHECK(tick(&m) == 5 * GIB);
    m.room -= 200 * (int64_t)MIB; /* 312 MiB left: not worth it */
    CHECK(tick(&m) == 5 * GIB);
    m.room -= (int64_t)GIB;
    CHECK(tick(&m) == 5 * GIB - GIB - 200 * MIB && tick(&m) == 5 * GIB - GIB - 200 * MIB);
    m.room = 0;
    CHECK(tick(&m) == GIB, "the least");
    test_case("more after ten quiet seconds, a sixteenth a second");
    m.room = (int64_t)(4 * GIB);
    for (uint32_t i = 0; i < 49; i++)
        CHECK(tick(&m) == GIB, "tick %u", i);
    CHECK(tick(&m) == GIB + 256 * MIB + 1);
    for (uint32_t i = 0; i < 5; i++)
        tick(&m);
    CHECK(m.l.memory_bytes == GIB + 512 * MIB + 2);
    for (uint32_t i = 0; i < 200; i++)
        tick(&m);
    CHECK(m.l.memory_bytes <= 4 * GIB - 512 * MIB && m.l.memory_bytes > 3 * GIB,
          "with the reserve");
    CHECK(m.room - (int64_t)m.l.memory_bytes < (int64_t)(512 + 257) * (int64_t)MIB);
    m.room = (int64_t)(16 * GIB);
    for (uint32_t i = 0; i < 200; i++)
        CHECK(tick(&m) <= 5 * GIB);
    CHECK(m.l.memory_bytes == 5 * GIB, "never more than at the start");
}

static void stalls(void)
{
    test_case("a second with a tenth of stalls costs a sixteenth");
    machine m = machine_new();
    m.l.stalled_us = 77000000;
    for (uint32_t i = 0; i < 50; i++) {
        m.l.stalled_us += 15000; /* 75 ms a second */
        CHECK(tick(&m) == 5 * GIB);
    }
    for (uint32_t i = 0; i < 11; i++) {
        m.l.stalled_us += 25000;
        tick(&m);
    }
    CHECK(m.l.memory_bytes == 5 * GIB - 2 * (256 * MIB + 1), "%llu",
          (unsigned long long)m.l.memory_bytes);
    test_case("stalls of the machine count when memory is short there");
    m = machine_new();
    m.l.stalled_us = 0;
    m.l.machine_wide = true;
    m.room = (int64_t)(5 * GIB + 400 * MIB);
    for (uint32_t i = 0; i < 20; i++, m.l.stalled_us += 100000)
        CHECK(tick(&m) == 5 * GIB);
    m.room = (int64_t)(5 * GIB + 300 * MIB);
    for (uint32_t i = 0; i < 6; i++, m.l.stalled_us += 100000)
        tick(&m);
    CHECK(m.l.memory_bytes < 5 * GIB);
}

static bool from_table(void *ctx, const char *path, char *text, size_t cap)
{
    const char *const *t = ctx;
    for (; *t; t += 2)
        if (strcmp(t[0], path) == 0) {
            snprintf(text, cap, "%s", t[1]);
            return true;
        }
    return false;
}

static void pressure(void)
{
    test_case("where pressure is read");
    static const char *const both[] = {
        "/cg/a/memory.pressure",
        "some avg10=0.00 avg60=0.13 avg300=0.88 total=1234\nfull avg10=0.00 total=5\n",
        "/proc/pressure/memory", "some avg10=0.00 avg60=0.13 avg300=0.88 total=99\n", NULL};
    static const char *const odd[] = {"/proc/pressure/memory", "some total=-1\n", NULL};
    sl_memory_view v = {.cgroup = "/cg/a"};
    uint64_t us = 0;
    bool wide = true;
    const void *t = both;
    CHECK(sl_pressure_look(from_table, (void *)(uintptr_t)t, &v, &us, &wide) && us == 1234 &&
          !wide);
    v.cgroup[3] = 0;
    CHECK(sl_pressure_look(from_table, (void *)(uintptr_t)t, &v, &us, &wide) && us == 99 && wide);
    t = odd;
    CHECK(!sl_pressure_look(from_table, (void *)(uintptr_t)t, &v, &us, &wide));
    t = both + 4;
    CHECK(!sl_pressure_look(from_table, (void *)(uintptr_t)t, &v, &us, &wide));
}

int main(void)
{
    limits();
    stalls();
    pressure();
    return test_end();
}
