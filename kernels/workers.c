/* Worker threads for parallel regions.
 *
 * A region is open or closed; the gate says which. Threads enter an open region, work on their own
 * run of tasks from the front, then take halves of others' runs from the back. The caller works
 * too; when no task is left it closes the gate and waits for those inside only. A thread that wakes
 * late, because another process has its core, finds the gate closed and costs nothing: its run was
 * taken by the others.
 *
 *   gate:  epoch | CLOSED | ASLEEP | WAITED | inside
 *          sl_workers_run  opens: next epoch, nobody inside; closes; then sets WAITED to sleep
 *          enter, leave    inside + 1, inside - 1, by threads
 *          wait_for_region sets ASLEEP before a thread sleeps
 *
 * All of it in one word: every change is a read-modify-write of the gate, so that no wake-up can
 * fall between a look and a sleep, and the kernel compares the same word before it sleeps. */
#include "workers.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Attention keeps two converted tiles of keys on the stack; sanitizers make frames many times as
 * large. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STACK_KIB 4096
#else
#define STACK_KIB 256
#endif

enum {
    GATE_INSIDE = 0x1fff, /* mask of the count */
    GATE_WAITED = 0x2000, /* the caller sleeps until nobody is inside */
    GATE_ASLEEP = 0x4000, /* some thread may sleep until a region opens */
    GATE_CLOSED = 0x8000,
    GATE_EPOCH = 0x10000, /* one epoch; they wrap, which at worst makes one thread miss a region */
    MAX_THREADS = 4096,
    STACK_BYTES = STACK_KIB << 10,
    SPIN_NS = 50000,  /* a wake costs the caller 5 us and reaches a thread after up to 20 (KVM) */
    WAKE_THREADS = 1, /* futex wake bits: those who sleep share the gate's address */
    WAKE_CALLER = 2
};

/* A run of tasks: end << 32 | next. Cache lines of their own: owners count on them. */
typedef struct run {
    _Alignas(64) _Atomic uint64_t tasks;
} run;

typedef struct thread {
    sl_workers *pool;
    pthread_t id;
    unsigned number; /* 1 .. count - 1 */
} thread;

struct sl_workers {
    _Alignas(64) _Atomic uint32_t gate;
    /* Written by the caller while nobody is inside; read by threads inside. */
    sl_task_fn *fn;
    void *ctx;
    size_t first; /* task 0 of the region */
    bool stop;
    /* Fixed from open to close. */
    bool spin;
    unsigned count;
    run *runs;       /* [count] */
    thread *threads; /* [count]; [0] is the caller and unused */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint32_t bits)
{
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, NULL, NULL, bits);
}

static void futex_wake(_Atomic uint32_t *word, uint32_t bits)
{
    syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL, bits);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* One step of a spin. It yields, because whom it waits for may need this very core: a woken thread
 * often lands on that of the caller, who would else stand still until the thread sleeps again. */
static void pause_briefly(void)
{
    sched_yield();
    for (int i = 0; i < 4; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
}

/* ---- runs of tasks ---- */

static uint64_t run_of(uint64_t next, uint64_t end)
{
    return end << 32 | next;
}

/* Relaxed throughout: a run is only numbers. What tasks read and write is ordered by the gate, and
 * one winner per exchange makes each task run once. */
static bool take_front(run *r, size_t *task)
{
    uint64_t seen = atomic_load_explicit(&r->tasks, memory_order_relaxed);
    for (;;) {
        const uint64_t next = seen & UINT32_MAX, end = seen >> 32;
        if (next == end)
            return false;
        if (atomic_compare_exchange_weak_explicit(&r->tasks, &seen, run_of(next + 1, end),
                                                  memory_order_relaxed, memory_order_relaxed)) {
            *task = (size_t)next;
            return true;
        }
    }
}

/* The back half of a run, at least one task: *out. */
static bool take_back(run *r, uint64_t *out)
{
    uint64_t seen = atomic_load_explicit(&r->tasks, memory_order_relaxed);
    for (;;) {
        const uint64_t next = seen & UINT32_MAX, end = seen >> 32, keep = (end - next) / 2;
        if (next == end)
            return false;
        if (atomic_compare_exchange_weak_explicit(&r->tasks, &seen, run_of(next, next + keep),
                                                  memory_order_relaxed, memory_order_relaxed)) {
            *out = run_of(next + keep, end);
            return true;
        }
    }
}

/* Refills this worker's empty run from the next one that has tasks. */
static bool steal(sl_workers *w, unsigned self)
{
    for (unsigned i = 1; i < w->count; i++) {
        uint64_t got;
        if (take_back(&w->runs[(self + i) % w->count], &got)) {
            atomic_store_explicit(&w->runs[self].tasks, got, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

static void work(sl_workers *w, unsigned self)
{
    size_t task;
    do {
        while (take_front(&w->runs[self], &task))
            w->fn(w->ctx, w->first + task, self);
    } while (steal(w, self));
}

/* ---- threads ---- */

/* Returns the gate, once it differs from the epoch that this thread has seen. */
static uint32_t wait_for_region(sl_workers *w, uint32_t epoch)
{
    uint64_t deadline = 0;
    for (;;) {
        /* Relaxed: enter() acquires. */
        uint32_t gate = atomic_load_explicit(&w->gate, memory_order_relaxed);
        if (gate / GATE_EPOCH != epoch)
            return gate;
        if (w->spin) {
            const uint64_t now = now_ns();
            if (!deadline)
                deadline = now + SPIN_NS;
            if (now < deadline) {
                pause_briefly();
                continue;
            }
        }
        /* Relaxed: the exchange that opens the next region reads ASLEEP, or this one fails. */
        const uint32_t asleep = gate | GATE_ASLEEP;
        if (gate == asleep ||
            atomic_compare_exchange_strong_explicit(&w->gate, &gate, asleep, memory_order_relaxed,
                                                    memory_order_relaxed))
            futex_wait(&w->gate, asleep, WAKE_THREADS);
    }
}

/* False: the region was over before this thread came. */
static bool enter(sl_workers *w, uint32_t gate)
{
    while (!(gate & GATE_CLOSED))
        /* Acquire: fn, ctx and all that the caller wrote before it opened the gate. */
        if (atomic_compare_exchange_weak_explicit(&w->gate, &gate, gate + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

static void leave(sl_workers *w)
{
    /* Release: what tasks wrote, for the caller's look at the count. */
    const uint32_t gate = atomic_fetch_sub_explicit(&w->gate, 1, memory_order_release);
    if ((gate & GATE_INSIDE) == 1 && (gate & GATE_WAITED))
        futex_wake(&w->gate, WAKE_CALLER);
}

static void *thread_main(void *arg)
{
    const thread *self = arg;
    sl_workers *w = self->pool;
    uint32_t epoch = 0;
    for (bool stop = false; !stop;) {
        const uint32_t gate = wait_for_region(w, epoch);
        epoch = gate / GATE_EPOCH;
        if (!enter(w, gate))
            continue;
        stop = w->stop;
        if (!stop)
            work(w, self->number);
        leave(w);
    }
    return NULL;
}

/* ---- the caller ---- */

static void open_gate(sl_workers *w)
{
    const uint32_t gate = atomic_load_explicit(&w->gate, memory_order_relaxed);
    const uint32_t next = (gate / GATE_EPOCH + 1) * GATE_EPOCH;
    /* Release: fn, ctx, runs and the caller's data, for those who enter. Between the two lines only
     * ASLEEP can change. */
    const uint32_t old = atomic_exchange_explicit(&w->gate, next, memory_order_release);
    if (old & GATE_ASLEEP)
        futex_wake(&w->gate, WAKE_THREADS);
}

static void close_gate(sl_workers *w)
{
    uint64_t deadline = 0;
    /* Acquire here and below: what the tasks of those who have left wrote. */
    uint32_t gate = atomic_fetch_or_explicit(&w->gate, GATE_CLOSED, memory_order_acquire);
    while (gate & GATE_INSIDE) {
        const uint64_t now = w->spin ? now_ns() : 0;
        if (!deadline)
            deadline = now + SPIN_NS;
        if (w->spin && now < deadline) {
            pause_briefly();
        } else {
            /* Relaxed: the last to leave reads WAITED, or this sees the count at 0. */
            gate = atomic_fetch_or_explicit(&w->gate, GATE_WAITED, memory_order_relaxed);
            gate |= GATE_WAITED;
            if (gate & GATE_INSIDE)
                futex_wait(&w->gate, gate, WAKE_CALLER);
        }
        gate = atomic_load_explicit(&w->gate, memory_order_acquire);
    }
}

static void run_region(sl_workers *w, size_t n_tasks)
{
    for (unsigned i = 0; i < w->count; i++) { /* rounded up: the caller is never left out */
        const uint64_t begin = ((uint64_t)n_tasks * i + w->count - 1) / w->count;
        const uint64_t end = ((uint64_t)n_tasks * (i + 1) + w->count - 1) / w->count;
        atomic_store_explicit(&w->runs[i].tasks, run_of(begin, end), memory_order_relaxed);
    }
    open_gate(w);
    work(w, 0);
    close_gate(w);
}

void sl_workers_run(sl_workers *w, sl_task_fn *fn, void *ctx, size_t n_tasks)
{
    const size_t most = UINT32_MAX; /* a run holds 32-bit numbers */
    if (w->count == 1 || n_tasks == 1) {
        for (size_t i = 0; i < n_tasks; i++)
            fn(ctx, i, 0);
        return;
    }
    w->fn = fn;
    w->ctx = ctx;
    for (w->first = 0; n_tasks > 0; w->first += most) {
        const size_t n = n_tasks < most ? n_tasks : most;
        run_region(w, n);
        n_tasks -= n;
    }
}

static unsigned cpus_in_mask(void)
{
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return UINT_MAX; /* more CPUs than a mask of this size holds */
    return (unsigned)CPU_COUNT(&mask);
}

/* Signals are the business of the program's own threads: these block them all. */
static int start_thread(thread *t, const pthread_attr_t *attr)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* of this thread's own making: its handler can say what happened */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&t->id, attr, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) {
        char name[16];
        snprintf(name, sizeof name, "sluice-w%u", t->number);
        pthread_setname_np(t->id, name);
    }
    return rc;
}

/* Sets count to 1 plus the threads that run. */
static int start_threads(sl_workers *w, unsigned n_threads)
{
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc != 0)
        return rc;
    pthread_attr_setstacksize(&attr, STACK_BYTES); /* the guard page is the default */
    for (unsigned i = 1; i < n_threads && rc == 0; i++) {
        w->threads[i] = (thread){.pool = w, .number = i};
        rc = start_thread(&w->threads[i], &attr);
        if (rc == 0)
            w->count++;
    }
    pthread_attr_destroy(&attr);
    return rc;
}

sl_workers *sl_workers_open(unsigned n_threads)
{
    if (n_threads == 0)
        n_threads = sl_cpu_physical_cores();
    if (n_threads > MAX_THREADS) {
        errno = EINVAL;
        return NULL;
    }
    sl_workers *w = aligned_alloc(_Alignof(sl_workers), sizeof *w);
    if (!w)
        return NULL;
    *w = (sl_workers){.gate = GATE_CLOSED, .count = 1, .spin = cpus_in_mask() >= n_threads};
    w->runs = aligned_alloc(_Alignof(run), n_threads * sizeof *w->runs);
    w->threads = calloc(n_threads, sizeof *w->threads);
    int rc = w->runs && w->threads ? start_threads(w, n_threads) : ENOMEM;
    if (rc != 0) {
        sl_workers_close(&w);
        errno = rc;
    }
    return w;
}

void sl_workers_close(sl_workers **w)
{
    sl_workers *p = w ? *w : NULL;
    if (!p)
        return;
    p->stop = true;
    open_gate(p); /* and leave it open: every thread comes through */
    for (unsigned i = 1; i < p->count; i++)
        pthread_join(p->threads[i].id, NULL);
    free(p->threads);
    free(p->runs);
    free(p);
    *w = NULL;
}

unsigned sl_workers_count(const sl_workers *w)
{
    return w->count;
}

uint64_t sl_workers_stack_bytes(const sl_workers *w)
{
    return (uint64_t)(w->count - 1) * STACK_BYTES;
}
