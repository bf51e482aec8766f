/* Proves: each task of a region runs exactly once, by a worker of the pool, whatever the numbers of
 * tasks and threads; what is written before a region is seen in it and the other way round; threads
 * block signals and have names; a pool that cannot be opened says why. --bench prints the cost of a
 * region. */
#include "lib_test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#include "../kernels/workers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed = 88172645463325252u;

/* ---- each task once ---- */

enum { MOST_TASKS = 3000 };

typedef struct count {
    _Atomic unsigned runs[MOST_TASKS];
    size_t plain[MOST_TASKS]; /* written in tasks, read after: the pool orders it */
    size_t before;            /* written before, read in tasks */
    _Atomic unsigned bad;
    unsigned n_workers;
    unsigned spin; /* uneven work */
} count;

static void count_task(void *ctx, size_t task, unsigned worker)
{
    count *c = ctx;
    if (task >= MOST_TASKS || worker >= c->n_workers) {
        atomic_fetch_add(&c->bad, 1);
        return;
    }
    for (volatile unsigned i = 0; task % 7 == 0 && i < c->spin; i++)
        ;
    atomic_fetch_add_explicit(&c->runs[task], 1, memory_order_relaxed);
    c->plain[task] = c->before + task;
}

static void count_region(sl_workers *w, count *c, size_t n_tasks)
{
    bool once = true;
    memset(c, 0, sizeof *c);
    c->n_workers = sl_workers_count(w);
    c->before = (size_t)test_random(&seed);
    c->spin = (unsigned)(test_random(&seed) % 3000);
    sl_workers_run(w, count_task, c, n_tasks);
    for (size_t i = 0; i < MOST_TASKS; i++) {
        once &= c->runs[i] == (i < n_tasks);
        once &= c->plain[i] == (i < n_tasks ? c->before + i : 0);
    }
    CHECK(once && c->bad == 0, "%zu tasks, %u threads", n_tasks, c->n_workers);
}

static void test_once(void)
{
    count *c = malloc(sizeof *c);
    for (unsigned n = 1; n <= 5; n++) {
        test_case("%u threads", n);
        sl_workers *w = sl_workers_open(n);
        if (!CHECK(w != NULL, "errno %d", errno))
            continue;
        CHECK(sl_workers_count(w) == n);
        /* 256 KiB each; more under sanitizers, which make frames larger */
        const uint64_t stacks = sl_workers_stack_bytes(w), least = (n - 1) * (256u << 10);
        CHECK(SANITIZED ? stacks >= least : stacks == least, "%llu", (unsigned long long)stacks);
        for (size_t tasks = 0; tasks < 20; tasks++)
            count_region(w, c, tasks);
        for (int round = 0; round < 300; round++) {
            count_region(w, c, test_random(&seed) % MOST_TASKS);
            if (round % 100 == 0)
                usleep(2000); /* long enough for threads to sleep */
        }
        sl_workers_close(&w);
        CHECK(w == NULL);
    }
    free(c);
}

/* ---- many small regions ---- */

static void add_task(void *ctx, size_t task, unsigned worker)
{
    atomic_fetch_add_explicit((_Atomic uint64_t *)ctx, task + 1, memory_order_relaxed);
}

static void test_stress(void)
{
    for (unsigned n = 2; n <= 4; n++) {
        const int regions = 100000 / (n == 2 ? 1 : 10);
        test_case("%d small regions, %u threads", regions, n);
        sl_workers *w = sl_workers_open(n);
        _Atomic uint64_t sum = 0;
        uint64_t expected = 0;
        for (int i = 0; i < regions && w; i++) {
            const size_t tasks = (size_t)i % 7;
            sl_workers_run(w, add_task, &sum, tasks);
            expected += tasks * (tasks + 1) / 2;
            if (sum != expected)
                break;
        }
        CHECK(w && sum == expected);
        sl_workers_close(&w);
    }
}

static void test_open_close(void)
{
    test_case("open and close");
    _Atomic uint64_t sum = 0;
    for (int i = 0; i < 200; i++) {
        sl_workers *w = sl_workers_open(1 + (unsigned)i % 4);
        CHECK(w != NULL);
        if (w && i % 3 == 0)
            sl_workers_run(w, add_task, &sum, 5);
        sl_workers_close(&w);
    }
    sl_workers_close(NULL);
    errno = 0;
    CHECK(sl_workers_open(1000000) == NULL && errno == EINVAL);
    sl_workers *w = sl_workers_open(0);
    CHECK(w && sl_workers_count(w) == sl_cpu_physical_cores());
    CHECK(sl_cpu_physical_cores() >= 1);
    CHECK(sl_cpu_physical_cores() <= (unsigned)sysconf(_SC_NPROCESSORS_CONF));
    sl_workers_close(&w);
}

/* ---- threads ---- */

typedef struct meeting {
    _Atomic unsigned arrived; /* every task waits for all, so each needs a thread of its own */
    unsigned n;
    char names[4][16];
    bool blocked[4];
} meeting;

static void meet_task(void *ctx, size_t task, unsigned worker)
{
    meeting *m = ctx;
    sigset_t mask;
    pthread_getname_np(pthread_self(), m->names[worker], sizeof m->names[0]);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    m->blocked[worker] = sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM);
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->n)
        usleep(50);
}

static void test_threads(void)
{
    test_case("all threads work at once");
    sl_workers *w = sl_workers_open(4);
    for (int round = 0; round < 20 && w; round++) {
        meeting m = {.n = 4};
        sl_workers_run(w, meet_task, &m, 4);
        CHECK(m.arrived == 4);
        for (unsigned i = 1; i < 4; i++) {
            char name[16];
            snprintf(name, sizeof name, "sluice-w%u", i);
            CHECK(strcmp(m.names[i], name) == 0, "%s", m.names[i]);
            CHECK(m.blocked[i]);
        }
        CHECK(!m.blocked[0]);
    }
    sl_workers_close(&w);
}

/* ---- speed ---- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void empty_task(void *ctx, size_t task, unsigned worker)
{
}

static void spin_task(void *ctx, size_t task, unsigned worker)
{
    const double end = seconds() + 5e-6;
    while (seconds() < end)
        ;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median, since other programs' turns are not the pool's. */
static void bench_regions(sl_workers *w, sl_task_fn *fn, unsigned gap_us, const char *what)
{
    enum { REGIONS = 501 };
    double took[REGIONS];
    for (int i = 0; i < REGIONS; i++) {
        const double start = seconds();
        sl_workers_run(w, fn, NULL, 16);
        took[i] = seconds() - start;
        for (const double end = seconds() + gap_us * 1e-6; seconds() < end;)
            ;
    }
    qsort(took, REGIONS, sizeof took[0], by_size);
    printf("%u threads, 16 tasks of %s, %4u us apart: median %7.2f us, 90 of 100 below %7.2f us\n",
           sl_workers_count(w), what, gap_us, took[REGIONS / 2] * 1e6,
           took[REGIONS * 9 / 10] * 1e6);
}

static void bench(void)
{
    for (unsigned n = 1; n <= 4; n *= 2) {
        sl_workers *w = sl_workers_open(n);
        for (unsigned gap = 0; gap <= 1000 && w; gap = gap ? gap * 10 : 10) {
            bench_regions(w, empty_task, gap, "nothing");
            bench_regions(w, spin_task, gap, "5 us");
        }
        sl_workers_close(&w);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        bench();
        return 0;
    }
    test_once();
    test_stress();
    test_open_close();
    test_threads();
    return test_end();
}
