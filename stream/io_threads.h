/* Threads that carry out reads one by one, for engines whose system calls block. Owned by one
 * engine; submit, wait and wake as in io.h. Also: how the stream's threads are started. */
#ifndef SL_IO_THREADS_H
#define SL_IO_THREADS_H

#include <pthread.h>

#include "io.h"

enum { SL_IO_THREADS = 4 };

/* Carries out one read (from r->done on); returns bytes or -errno. */
typedef int32_t sl_io_work(sl_engine *e, sl_read *r);

typedef struct sl_io_pool {
    sl_io_work *work;
    sl_engine *engine;
    pthread_mutex_t lock;
    pthread_cond_t todo_some, done_some;
    pthread_t thread[SL_IO_THREADS];
    uint32_t n_threads;
    /* Under the lock: */
    sl_read *todo, *todo_last, *done;
    bool quit, woken;
} sl_io_pool;

sl_status sl_io_pool_open(sl_io_pool *p, sl_io_work *work, sl_engine *e, sl_err *err);
void sl_io_pool_close(sl_io_pool *p); /* what is still queued is not carried out */
void sl_io_pool_submit(sl_io_pool *p, sl_read *const *reads, uint32_t n);
uint32_t sl_io_pool_wait(sl_io_pool *p, uint64_t timeout_ns, sl_read **done, uint32_t max);
void sl_io_pool_wake(sl_io_pool *p);
uint64_t sl_io_pool_cpu_ns(sl_io_pool *p);

/* A thread with all signals blocked and a small stack. */
int sl_thread_start(pthread_t *t, const char *name, void *(*run)(void *), void *arg);
/* The calling thread works in short bursts: asks for slices of 0.1 ms, so that the scheduler
 * (EEVDF, Linux 6.12 and later) lets it in at once when it wakes, though every core computes.
 * Decoding an 8B model in 4 GiB was 2.6 % faster so, and steadier (docs/experiments.md). Others
 * ignore it. */
void sl_thread_prompt(void);
uint64_t sl_thread_cpu_ns(pthread_t t);
/* A condition whose timed waits use CLOCK_MONOTONIC. */
void sl_cond_init(pthread_cond_t *c);

#endif
