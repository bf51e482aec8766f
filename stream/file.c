#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"

static const char *kind_name(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a folder";
    if (S_ISFIFO(mode))
        return "a pipe";
    if (S_ISSOCK(mode))
        return "a socket";
    return "a device";
}

/* O_NONBLOCK only for the open itself (a pipe would block it). It must go afterwards: io_uring
 * answers EAGAIN on a descriptor that has it. */
static sl_status open_regular(sl_file *f, sl_err *err)
{
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0)
        return sl_fail_errno(err, errno, "cannot open %s", f->path);
    struct stat st;
    if (fstat(f->fd, &st) < 0)
        return sl_fail_errno(err, errno, "cannot stat %s", f->path);
    if (!S_ISREG(st.st_mode))
        return sl_fail(err, SL_EINVAL, "%s is %s, expected a regular file", f->path,
                       kind_name(st.st_mode));
    int flags = fcntl(f->fd, F_GETFL);
    if (flags < 0 || fcntl(f->fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return sl_fail_errno(err, errno, "cannot set the flags of %s", f->path);
    f->size = (uint64_t)st.st_size;
    f->mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
    f->inode = st.st_ino;
    f->device = st.st_dev;
    posix_fadvise(f->fd, 0, 0, POSIX_FADV_RANDOM);
    return SL_OK;
}

sl_status sl_file_open(const char *path, sl_file **out, sl_err *err)
{
    *out = NULL;
    sl_file *f = calloc(1, sizeof *f);
    if (f) {
        f->fd = -1;
        f->path = strdup(path);
    }
    sl_status status = f && f->path
                           ? open_regular(f, err)
                           : sl_fail(err, SL_ENOMEM, "out of memory while opening %s", path);
    if (status != SL_OK)
        sl_file_close(&f);
    *out = f;
    return status;
}

void sl_file_close(sl_file **f)
{
    if (!f || !*f)
        return;
    if ((*f)->fd >= 0)
        close((*f)->fd);
    free((*f)->path);
    free(*f);
    *f = NULL;
}

sl_status sl_file_read(const sl_file *f, uint64_t offset, void *buf, uint64_t len, sl_err *err)
{
    uint64_t done = 0;
    while (done < len) {
        size_t want = len - done < (1u << 30) ? (size_t)(len - done) : 1u << 30;
        ssize_t n = pread(f->fd, (char *)buf + done, want, (off_t)(offset + done));
        if (n > 0) {
            done += (uint64_t)n;
        } else if (n == 0) {
            return sl_fail(err, SL_EFORMAT,
                           "%s is truncated: wanted %llu bytes at offset %llu, the file ends after "
                           "%llu of them",
                           f->path, (unsigned long long)len, (unsigned long long)offset,
                           (unsigned long long)done);
        } else if (errno != EINTR) {
            return sl_fail_errno(err, errno, "%s: reading %llu bytes at offset %llu failed",
                                 f->path, (unsigned long long)len, (unsigned long long)offset);
        }
    }
    return SL_OK;
}

void sl_file_forget(const sl_file *f, uint64_t offset, uint64_t len)
{
    /* The kernel keeps pages that the range covers only in part, so it is rounded outwards. */
    uint64_t from = sl_round_down(offset, 4096), to = sl_round_up(offset + len, 4096);
    if (len)
        posix_fadvise(f->fd, (off_t)from, (off_t)(to - from), POSIX_FADV_DONTNEED);
}

/* ---- the cursor of bytes.h over a file ---- */

sl_bytes sl_bytes_of_file(const sl_file *f, uint64_t offset, uint64_t len, sl_err *err)
{
    return (sl_bytes){.file = f, .offset = offset, .total = len, .err = err};
}

void sl_bytes_close(sl_bytes *b)
{
    if (b->file)
        sl_file_forget(b->file, b->offset, b->base + b->len);
    free(b->buf);
    *b = (sl_bytes){.failed = true};
}

/* The window must hold n bytes. */
static bool window_grow(sl_bytes *b, uint64_t n)
{
    uint64_t cap = n < SL_BYTES_BLOCK ? SL_BYTES_BLOCK : n;
    if (cap > b->total)
        cap = b->total;
    if (b->cap >= cap)
        return true;
    uint8_t *p = realloc(b->buf, cap);
    if (!p) {
        b->status =
            sl_fail(b->err, SL_ENOMEM, "%s: out of memory: %llu bytes for a block of its header",
                    b->file->path, (unsigned long long)cap);
        return false;
    }
    b->buf = p;
    b->cap = cap;
    return true;
}

bool sl_bytes_fill(sl_bytes *b, uint64_t n)
{
    if (b->failed || n > sl_bytes_left(b) || !b->file || !window_grow(b, n)) {
        b->failed = true;
        return false;
    }
    b->data = b->buf;
    b->len -= b->at;
    memmove(b->buf, b->buf + b->at, b->len);
    b->base += b->at;
    b->at = 0;
    uint64_t rest = b->total - b->base - b->len;
    uint64_t want = b->cap - b->len < rest ? b->cap - b->len : rest;
    b->status = sl_file_read(b->file, b->offset + b->base + b->len, b->buf + b->len, want, b->err);
    if (b->status == SL_OK)
        b->len += want;
    else
        b->failed = true;
    return !b->failed;
}
