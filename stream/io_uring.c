/* The direct engine: io_uring reads into the slots, past the page cache. */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io.h"

typedef struct uring_engine {
    sl_engine base;
    struct io_uring ring;
    uint32_t entries;
    int refused; /* an errno: pretend that the kernel said so */
    bool ring_open, fixed_files;
    sl_direct direct;
    int wake_fd;
    uint64_t wake_value; /* where the read of wake_fd goes */
    bool wake_armed;
} uring_engine;

static void uring_close(sl_engine **e)
{
    uring_engine *u = (uring_engine *)*e;
    if (!u)
        return;
    if (u->ring_open)
        io_uring_queue_exit(&u->ring);
    if (u->wake_fd >= 0)
        close(u->wake_fd);
    sl_direct_close(&u->direct);
    free(u);
    *e = NULL;
}

static sl_status uring_open(const sl_engine_config *c, sl_engine **out, sl_err *err)
{
    uring_engine *u = calloc(1, sizeof *u);
    *out = u ? &u->base : NULL;
    if (!u)
        return sl_fail(err, SL_ENOMEM, "streaming: out of memory");
    u->base.ops = &sl_io_uring;
    u->entries = c->depth + 2;
    u->refused = c->refuse & SL_REFUSE_IO_URING  ? ENOSYS
                 : c->refuse & SL_REFUSE_MEMLOCK ? ENOMEM
                                                 : 0;
    u->wake_fd = eventfd(0, EFD_CLOEXEC);
    sl_status st = u->wake_fd < 0 ? sl_fail(err, SL_EUNSUPPORTED, "no event descriptor to be had")
                                  : sl_direct_open(c->plan, c->refuse, &u->direct, err);
    if (st)
        uring_close(out);
    return st;
}

/* One thread submits and reaps, so completions may wait for it (6.1); older kernels do without. */
static int ring_make(uring_engine *u)
{
    struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    int r = io_uring_queue_init_params(u->entries, &u->ring, &p);
    if (r == -EINVAL) {
        p = (struct io_uring_params){0};
        r = io_uring_queue_init_params(u->entries, &u->ring, &p);
    }
    u->ring_open = r == 0;
    return -r;
}

/* The ring is made here, by the thread that will own it. */
static sl_status uring_start(sl_engine *e, sl_err *err)
{
    uring_engine *u = (uring_engine *)e;
    int r = u->refused ? u->refused : ring_make(u);
    if (r == ENOMEM) /* kernels before 5.12 count the rings as locked memory */
        return sl_fail(err, SL_EUNSUPPORTED, "io_uring refused (limit of locked memory)");
    if (r)
        return sl_fail(err, SL_EUNSUPPORTED, "io_uring refused (%s)", strerror(r));
    u->fixed_files =
        u->direct.n && io_uring_register_files(&u->ring, u->direct.fd, u->direct.n) == 0;
    return SL_OK;
}

/* The queue holds every read that may be in flight, and the wake: it is full only when a submission
 * was put off by the kernel, and then trying again is all there is to do. */
static struct io_uring_sqe *sqe_get(uring_engine *u)
{
    struct io_uring_sqe *sqe;
    while (!(sqe = io_uring_get_sqe(&u->ring)))
        io_uring_submit(&u->ring);
    return sqe;
}

static void uring_submit(sl_engine *e, sl_read *const *reads, uint32_t n)
{
    uring_engine *u = (uring_engine *)e;
    for (uint32_t i = 0; i < n; i++) {
        sl_read *r = reads[i];
        struct io_uring_sqe *sqe = sqe_get(u);
        int fd = u->fixed_files ? (int)r->file : u->direct.fd[r->file];
        io_uring_prep_read(sqe, fd, r->dest + r->done, r->len - r->done, r->offset + r->done);
        if (u->fixed_files)
            io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
        io_uring_sqe_set_data(sqe, r);
    }
}

static void wake_arm(uring_engine *u)
{
    if (u->wake_armed)
        return;
    struct io_uring_sqe *sqe = sqe_get(u);
    io_uring_prep_read(sqe, u->wake_fd, &u->wake_value, sizeof u->wake_value, 0);
    io_uring_sqe_set_data(sqe, NULL);
    u->wake_armed = true;
}

static uint32_t uring_wait(sl_engine *e, uint64_t timeout_ns, sl_read **done, uint32_t max)
{
    uring_engine *u = (uring_engine *)e;
    struct __kernel_timespec ts = {.tv_sec = (long long)(timeout_ns / 1000000000u),
                                   .tv_nsec = (long long)(timeout_ns % 1000000000u)};
    struct io_uring_cqe *cqe;
    wake_arm(u);
    /* Errors here (EINTR, ETIME, EAGAIN, EBUSY) all mean: look at what is there, then come back. */
    io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, timeout_ns == UINT64_MAX ? NULL : &ts,
                                     NULL);
    unsigned head, seen = 0, n = 0;
    io_uring_for_each_cqe(&u->ring, head, cqe)
    {
        sl_read *r = io_uring_cqe_get_data(cqe);
        if (n == max)
            break;
        seen++;
        if (r) {
            r->result = cqe->res;
            done[n++] = r;
        } else {
            u->wake_armed = false;
        }
    }
    io_uring_cq_advance(&u->ring, seen);
    return n;
}

static void uring_wake(sl_engine *e)
{
    uint64_t one = 1;
    /* Fails only when the counter is full, and then the owner is being woken anyway. */
    ssize_t n = write(((uring_engine *)e)->wake_fd, &one, sizeof one);
    (void)n;
}

static uint64_t uring_cpu_ns(sl_engine *e)
{
    return 0;
}

static const char *uring_describe(const sl_engine *e)
{
    return ((const uring_engine *)e)->fixed_files ? "io_uring, O_DIRECT"
                                                  : "io_uring, O_DIRECT, unregistered files";
}

const sl_engine_ops sl_io_uring = {.open = uring_open,
                                   .close = uring_close,
                                   .start = uring_start,
                                   .submit = uring_submit,
                                   .wait = uring_wait,
                                   .wake = uring_wake,
                                   .cpu_ns = uring_cpu_ns,
                                   .describe = uring_describe};
