/* The pread engine: threads, direct reads where the file system takes them; otherwise buffered, and
 * the page cache is dropped behind every read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "io_threads.h"

/* The page cache holds this much per thread at a time, which the split counts on. */
enum { BUFFERED_STEP = 256 << 10 };

typedef struct pread_engine {
    sl_engine base;
    sl_io_pool pool;
    const sl_plan *plan;
    sl_direct direct; /* n == 0: buffered */
} pread_engine;

static int32_t result_of(ssize_t n)
{
    return n < 0 ? -errno : (int32_t)n;
}

static int32_t read_direct(const pread_engine *e, const sl_read *r)
{
    return result_of(pread(e->direct.fd[r->file], r->dest + r->done, r->len - r->done,
                           (off_t)(r->offset + r->done)));
}

static int32_t read_buffered(const pread_engine *e, const sl_read *r)
{
    const sl_file *f = e->plan->files[r->file];
    uint32_t at = r->done;
    while (at < r->len) {
        uint32_t step = r->len - at < BUFFERED_STEP ? r->len - at : BUFFERED_STEP;
        int32_t n = result_of(pread(f->fd, r->dest + at, step, (off_t)(r->offset + at)));
        sl_file_forget(f, r->offset + at, step);
        if (n < 0 && at == r->done)
            return n;
        at += n > 0 ? (uint32_t)n : 0;
        if (n < (int32_t)step)
            break;
    }
    return (int32_t)(at - r->done);
}

static int32_t work(sl_engine *e, sl_read *r)
{
    const pread_engine *p = (const pread_engine *)e;
    return p->direct.n ? read_direct(p, r) : read_buffered(p, r);
}

static void pread_close(sl_engine **e)
{
    pread_engine *p = (pread_engine *)*e;
    if (!p)
        return;
    sl_io_pool_close(&p->pool);
    sl_direct_close(&p->direct);
    free(p);
    *e = NULL;
}

static sl_status pread_open(const sl_engine_config *c, sl_engine **out, sl_err *err)
{
    pread_engine *p = calloc(1, sizeof *p);
    *out = p ? &p->base : NULL;
    if (!p)
        return sl_fail(err, SL_ENOMEM, "streaming: out of memory");
    p->base.ops = &sl_io_pread;
    p->plan = c->plan;
    sl_err why = {0};
    sl_status st = sl_direct_open(c->plan, c->refuse, &p->direct, &why);
    snprintf(p->base.refused, sizeof p->base.refused, "%.79s", why.text);
    if (st == SL_ENOMEM)
        sl_fail(err, st, "%s", why.text);
    else
        st = sl_io_pool_open(&p->pool, work, &p->base, err);
    if (st)
        pread_close(out);
    return st;
}

static sl_status pread_start(sl_engine *e, sl_err *err)
{
    return SL_OK;
}

static void pread_submit(sl_engine *e, sl_read *const *reads, uint32_t n)
{
    sl_io_pool_submit(&((pread_engine *)e)->pool, reads, n);
}

static uint32_t pread_wait(sl_engine *e, uint64_t timeout_ns, sl_read **done, uint32_t max)
{
    return sl_io_pool_wait(&((pread_engine *)e)->pool, timeout_ns, done, max);
}

static void pread_wake(sl_engine *e)
{
    sl_io_pool_wake(&((pread_engine *)e)->pool);
}

static uint64_t pread_cpu_ns(sl_engine *e)
{
    return sl_io_pool_cpu_ns(&((pread_engine *)e)->pool);
}

static const char *pread_describe(const sl_engine *e)
{
    return ((const pread_engine *)e)->direct.n ? "threads, O_DIRECT"
                                               : "threads, buffered, page cache dropped behind";
}

const sl_engine_ops sl_io_pread = {.open = pread_open,
                                   .close = pread_close,
                                   .start = pread_start,
                                   .submit = pread_submit,
                                   .wait = pread_wait,
                                   .wake = pread_wake,
                                   .cpu_ns = pread_cpu_ns,
                                   .describe = pread_describe};
