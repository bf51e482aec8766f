#include "memory_rate.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    TASKS = 64,
    WALKS = 4, /* with each distance, at least */
    WORDS = 8,
    LEAST_NS = 100000000,
    HUGE_PAGE = 2 << 20
};

/* Bytes from what is read to what is fetched: which is best depends on the CPU's own prefetcher,
 * and on how long memory takes. 0: the CPU alone. */
static const size_t distances[] = {0, 1 << 10, 4 << 10, 8 << 10, 16 << 10};

/* 16 bytes: every CPU here has such registers, and two loads of them per cycle outrun any memory.
 */
typedef uint64_t vector __attribute__((vector_size(16)));

typedef struct sweep {
    const vector *data;
    size_t n_each;     /* vectors per task, a multiple of WORDS */
    size_t ahead;      /* bytes */
    vector sum[TASKS]; /* used, so that the loads are not left out */
} sweep;

static void sum_run(void *ctx, size_t task, unsigned worker)
{
    sweep *s = ctx;
    const vector *at = s->data + task * s->n_each;
    const uintptr_t next = (uintptr_t)at + s->ahead; /* may lie past the end */
    vector a = {0}, b = {0}, c = {0}, d = {0};       /* an array would live in memory */
    (void)worker;
    for (size_t i = 0; i < s->n_each; i += WORDS) {
        __builtin_prefetch((const void *)(next + i * sizeof *at));
        __builtin_prefetch((const void *)(next + (i + WORDS / 2) * sizeof *at));
        a += at[i] ^ at[i + 4];
        b += at[i + 1] ^ at[i + 5];
        c += at[i + 2] ^ at[i + 6];
        d += at[i + 3] ^ at[i + 7];
    }
    s->sum[task] = a + b + c + d;
}

void *sl_huge_alloc(uint64_t bytes)
{
    void *p = aligned_alloc(HUGE_PAGE, sl_round_up(bytes, HUGE_PAGE));
    if (p)
        madvise(p, sl_round_up(bytes, HUGE_PAGE), MADV_HUGEPAGE); /* advice */
    return p;
}

sl_status sl_memory_rate(sl_workers *w, uint64_t bytes, double *rate, sl_err *err)
{
    const size_t n_each = bytes / sizeof(vector) / TASKS / WORDS * WORDS;
    const size_t size = n_each * TASKS * sizeof(vector);
    uint64_t best = UINT64_MAX;
    void *data = sl_huge_alloc(size);
    if (!data)
        return sl_fail(err, SL_ENOMEM, "out of memory to measure its bandwidth");
    memset(data, 1, size);
    sweep s = {.data = data, .n_each = n_each};
    const size_t n_distances = sizeof distances / sizeof distances[0];
    const uint64_t first = sl_now_ns();
    for (size_t i = 0; i < WALKS * n_distances || sl_now_ns() - first < LEAST_NS; i++) {
        s.ahead = distances[i % n_distances];
        uint64_t begin = sl_now_ns();
        sl_workers_run(w, sum_run, &s, TASKS);
        uint64_t took = sl_now_ns() - begin;
        best = took < best ? took : best;
    }
    free(data);
    *rate = (double)size / ((double)(best ? best : 1) / 1e9);
    return SL_OK;
}
