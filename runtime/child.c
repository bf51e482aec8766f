#include "child.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "term.h"

/* The pipe carries records: a head, then len bytes. */
typedef enum record_kind { RECORD_PROGRESS, RECORD_LOG, RECORD_RESULT } record_kind;

typedef struct head {
    uint32_t kind; /* record_kind */
    uint32_t len;
    int32_t value; /* permille, sl_log_level, sl_status */
} head;

/* ---- the child ------------------------------------------------------------------------------- */
static struct {
    int fd;
    pthread_mutex_t lock; /* records of several threads stay whole */
    uint64_t told_ns;     /* main thread */
} child = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static bool write_all(const void *data, size_t len)
{
    const char *p = data;
    while (len) {
        ssize_t n = write(child.fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

/* a, then b, in one record. A parent that is gone is no reason to complain: nobody reads it. */
static void tell(record_kind kind, int32_t value, const void *a, size_t a_len, const void *b,
                 size_t b_len)
{
    const head h = {kind, (uint32_t)(a_len + b_len), value};
    pthread_mutex_lock(&child.lock);
    if (write_all(&h, sizeof h) && write_all(a, a_len))
        write_all(b, b_len);
    pthread_mutex_unlock(&child.lock);
}

static void tell_log(void *ctx, sl_log_level level, const char *text)
{
    (void)ctx;
    tell(RECORD_LOG, (int32_t)level, text, strlen(text) + 1, NULL, 0);
}

void sl_child_progress(uint32_t permille)
{
    const uint64_t now = sl_now_ns();
    if (child.fd < 0 || now - child.told_ns < 100000000)
        return;
    child.told_ns = now;
    tell(RECORD_PROGRESS, (int32_t)permille, NULL, 0, NULL, 0);
}

static _Noreturn void be_child(int fd, sl_child_fn *fn, const void *ctx, void *result, size_t len)
{
    sl_err err = {0};
    child.fd = fd;
    /* The terminal sends Ctrl-C to both; the parent passes it on as this, once. */
    signal(SIGINT, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sl_term_init(true, false);
    sl_log_set(tell_log, NULL);
    const sl_status st = fn(ctx, result, &err);
    tell(RECORD_RESULT, (int32_t)st, &err, sizeof err, result, len);
    _exit(0);
}

/* ---- the parent ------------------------------------------------------------------------------ */
typedef struct parent {
    int fd;
    pid_t pid;
    bool passed_on; /* the interrupt */
    const sl_child_watch *watch;
} parent;

/* False: the pipe has ended. */
static bool read_all(parent *p, void *data, size_t len)
{
    char *at = data;
    while (len) {
        if (sl_interrupted() && !p->passed_on) {
            p->passed_on = true;
            kill(p->pid, SIGTERM);
        }
        ssize_t n = read(p->fd, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static bool take_log(parent *p, const head *h)
{
    char text[2 * SL_ERR_TEXT];
    if (h->len == 0 || h->len > sizeof text || !read_all(p, text, h->len))
        return false;
    text[h->len - 1] = 0;
    if (p->watch->log)
        p->watch->log(p->watch->ctx, (sl_log_level)h->value, text);
    return true;
}

/* Reads until the result is there; false: it never came. */
static bool listen_to(parent *p, void *result, size_t len, sl_status *st, sl_err *told)
{
    head h;
    while (read_all(p, &h, sizeof h)) {
        if (h.kind == RECORD_RESULT) {
            *st = (sl_status)h.value;
            return h.len == sizeof *told + len && read_all(p, told, sizeof *told) &&
                   read_all(p, result, len);
        }
        if (h.kind == RECORD_LOG && !take_log(p, &h))
            return false;
        if (h.kind == RECORD_PROGRESS && p->watch->progress)
            p->watch->progress(p->watch->ctx, (uint32_t)h.value);
    }
    return false;
}

static int wait_for(pid_t pid)
{
    int how = 0;
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {}
    return how;
}

static sl_status died(int how, sl_err *err)
{
    if (!WIFSIGNALED(how))
        return sl_fail(err, SL_EIO, "the run ended without a result (exit %d)", WEXITSTATUS(how));
    return sl_fail(err, SL_EIO, "the run was killed by signal %d (%s)%s", WTERMSIG(how),
                   strsignal(WTERMSIG(how)),
                   WTERMSIG(how) == SIGKILL ? ": more memory than a limit around it allows?" : "");
}

sl_status sl_child_run(sl_child_fn *fn, const void *ctx, void *result, size_t len,
                       const sl_child_watch *watch, sl_err *err)
{
    static const sl_child_watch nothing = {0};
    int ends[2];
    sl_status st = SL_OK;
    sl_err told = {0};
    if (pipe(ends))
        return sl_fail_errno(err, errno, "cannot make a pipe");
    sl_out_flush(); /* or it would be printed twice */
    const pid_t pid = fork();
    if (pid < 0) {
        const int cause = errno;
        close(ends[0]);
        close(ends[1]);
        return sl_fail_errno(err, cause, "cannot start a process");
    }
    if (pid == 0) {
        close(ends[0]);
        be_child(ends[1], fn, ctx, result, len);
    }
    close(ends[1]);
    parent p = {.fd = ends[0], .pid = pid, .watch = watch ? watch : &nothing};
    const bool came = listen_to(&p, result, len, &st, &told);
    close(ends[0]);
    const int how = wait_for(pid);
    if (sl_interrupted() && (!came || st))
        return sl_fail(err, SL_ECANCELLED, "interrupted");
    if (!came)
        return died(how, err);
    return st ? sl_fail(err, st, "%s", told.text) : SL_OK;
}
