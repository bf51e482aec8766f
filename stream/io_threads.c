/* A queue, a few threads, a list of what is done. */
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "io_threads.h"

enum { STACK_BYTES = 256 << 10 };

int sl_thread_start(pthread_t *t, const char *name, void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* of this thread's own making: its handler can say what happened */
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = pthread_create(t, &attr, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (r == 0)
        pthread_setname_np(*t, name);
    return r;
}

/* From sched_setattr(2); glibc 2.36 has no name for it. */
typedef struct sched_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
} sched_attributes;

void sl_thread_prompt(void)
{
    const sched_attributes a = {.size = sizeof a, .runtime_ns = 100000};
    long ignored = syscall(SYS_sched_setattr, 0, &a, 0);
    (void)ignored;
}

uint64_t sl_thread_cpu_ns(pthread_t t)
{
    clockid_t clock;
    struct timespec ts;
    if (pthread_getcpuclockid(t, &clock) || clock_gettime(clock, &ts))
        return 0;
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void sl_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

static void *worker(void *arg)
{
    sl_io_pool *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->todo && !p->quit)
            pthread_cond_wait(&p->todo_some, &p->lock);
        if (p->quit)
            break;
        sl_read *r = p->todo;
        p->todo = r->next;
        pthread_mutex_unlock(&p->lock);
        r->result = p->work(p->engine, r);
        pthread_mutex_lock(&p->lock);
        r->next = p->done;
        p->done = r;
        pthread_cond_signal(&p->done_some);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

sl_status sl_io_pool_open(sl_io_pool *p, sl_io_work *work, sl_engine *e, sl_err *err)
{
    *p = (sl_io_pool){.work = work, .engine = e};
    pthread_mutex_init(&p->lock, NULL);
    sl_cond_init(&p->todo_some);
    sl_cond_init(&p->done_some);
    for (uint32_t i = 0; i < SL_IO_THREADS; i++) {
        int r = sl_thread_start(&p->thread[i], "sluice-read", worker, p);
        if (r) {
            sl_io_pool_close(p);
            return sl_fail_errno(err, r, "cannot start an I/O thread");
        }
        p->n_threads++;
    }
    return SL_OK;
}

void sl_io_pool_close(sl_io_pool *p)
{
    if (!p->work)
        return;
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_broadcast(&p->todo_some);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->n_threads; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->todo_some);
    pthread_cond_destroy(&p->done_some);
    pthread_mutex_destroy(&p->lock);
    p->work = NULL;
}

void sl_io_pool_submit(sl_io_pool *p, sl_read *const *reads, uint32_t n)
{
    if (!n)
        return;
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < n; i++) {
        reads[i]->next = NULL;
        if (p->todo)
            p->todo_last->next = reads[i];
        else
            p->todo = reads[i];
        p->todo_last = reads[i];
        pthread_cond_signal(&p->todo_some);
    }
    pthread_mutex_unlock(&p->lock);
}

static struct timespec deadline(uint64_t timeout_ns)
{
    uint64_t at = sl_now_ns() + timeout_ns;
    return (struct timespec){.tv_sec = (time_t)(at / 1000000000u),
                             .tv_nsec = (long)(at % 1000000000u)};
}

uint32_t sl_io_pool_wait(sl_io_pool *p, uint64_t timeout_ns, sl_read **done, uint32_t max)
{
    struct timespec until = {0};
    if (timeout_ns != UINT64_MAX)
        until = deadline(timeout_ns);
    pthread_mutex_lock(&p->lock);
    while (!p->done && !p->woken) {
        if (timeout_ns == UINT64_MAX)
            pthread_cond_wait(&p->done_some, &p->lock);
        else if (pthread_cond_timedwait(&p->done_some, &p->lock, &until))
            break;
    }
    p->woken = false;
    uint32_t n = 0;
    for (; n < max && p->done; n++) {
        done[n] = p->done;
        p->done = p->done->next;
    }
    pthread_mutex_unlock(&p->lock);
    return n;
}

void sl_io_pool_wake(sl_io_pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->woken = true;
    pthread_cond_signal(&p->done_some);
    pthread_mutex_unlock(&p->lock);
}

uint64_t sl_io_pool_cpu_ns(sl_io_pool *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_threads; i++)
        sum += sl_thread_cpu_ns(p->thread[i]);
    return sum;
}
