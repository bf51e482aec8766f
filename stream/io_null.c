/* The null engine: every read is there at once, as zeros. What is left is the time of compute. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "io.h"

typedef struct null_engine {
    sl_engine base;
    sl_read *done;
    int wake_fd;
} null_engine;

static void null_close(sl_engine **e)
{
    null_engine *z = (null_engine *)*e;
    if (!z)
        return;
    if (z->wake_fd >= 0)
        close(z->wake_fd);
    free(z);
    *e = NULL;
}

static sl_status null_open(const sl_engine_config *c, sl_engine **out, sl_err *err)
{
    null_engine *z = calloc(1, sizeof *z);
    *out = z ? &z->base : NULL;
    if (!z)
        return sl_fail(err, SL_ENOMEM, "streaming: out of memory");
    z->base.ops = &sl_io_null;
    z->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (z->wake_fd < 0) {
        null_close(out);
        return sl_fail(err, SL_EUNSUPPORTED, "no event descriptor to be had");
    }
    /* Untouched memory is one shared page of zeros, which would be read from the cache. */
    for (uint64_t i = 0; i < c->memory_bytes; i += 4096)
        c->memory[i] = 0;
    return SL_OK;
}

static sl_status null_start(sl_engine *e, sl_err *err)
{
    return SL_OK;
}

static void null_submit(sl_engine *e, sl_read *const *reads, uint32_t n)
{
    null_engine *z = (null_engine *)e;
    for (uint32_t i = 0; i < n; i++) {
        reads[i]->result = (int32_t)(reads[i]->len - reads[i]->done);
        reads[i]->next = z->done;
        z->done = reads[i];
    }
}

static uint32_t null_wait(sl_engine *e, uint64_t timeout_ns, sl_read **done, uint32_t max)
{
    null_engine *z = (null_engine *)e;
    uint32_t n = 0;
    uint64_t count;
    for (; n < max && z->done; n++) {
        done[n] = z->done;
        z->done = z->done->next;
    }
    if (n)
        return n;
    struct pollfd p = {.fd = z->wake_fd, .events = POLLIN};
    struct timespec ts = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                          .tv_nsec = (long)(timeout_ns % 1000000000u)};
    if (ppoll(&p, 1, timeout_ns == UINT64_MAX ? NULL : &ts, NULL) > 0 &&
        read(z->wake_fd, &count, sizeof count) < 0)
        return 0; /* somebody woke us for nothing */
    return 0;
}

static void null_wake(sl_engine *e)
{
    uint64_t one = 1;
    ssize_t n = write(((null_engine *)e)->wake_fd, &one, sizeof one);
    (void)n; /* fails only when the counter is full: awake already */
}

static uint64_t null_cpu_ns(sl_engine *e)
{
    return 0;
}

static const char *null_describe(const sl_engine *e)
{
    return "no I/O, zeros";
}

const sl_engine_ops sl_io_null = {.open = null_open,
                                  .close = null_close,
                                  .start = null_start,
                                  .submit = null_submit,
                                  .wait = null_wait,
                                  .wake = null_wake,
                                  .cpu_ns = null_cpu_ns,
                                  .describe = null_describe};
