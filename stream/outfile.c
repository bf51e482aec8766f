#include "outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void forget(sl_outfile *f)
{
    free(f->path);
    free(f->temporary);
    *f = (sl_outfile){.fd = -1};
}

static sl_status open_temporary(sl_outfile *f, sl_err *err)
{
    if (asprintf(&f->temporary, "%s.part-XXXXXX", f->path) < 0) {
        f->temporary = NULL;
        return sl_fail(err, SL_ENOMEM, "%s: out of memory", f->path);
    }
    f->fd = mkostemp(f->temporary, O_CLOEXEC);
    if (f->fd < 0)
        return sl_fail_errno(err, errno, "%s: cannot create a file in its folder", f->path);
    mode_t mask = umask(0);
    umask(mask);
    if (fchmod(f->fd, 0666 & ~mask) < 0)
        return sl_fail_errno(err, errno, "%s: cannot set its permissions", f->path);
    return SL_OK;
}

sl_status sl_outfile_open(sl_outfile *f, const char *path, sl_err *err)
{
    struct stat st;
    sl_status status = SL_OK;
    *f = (sl_outfile){.fd = -1};
    bool there = stat(path, &st) == 0;
    /* A link keeps pointing where it points: the file behind it is what is replaced. */
    f->path = there && S_ISREG(st.st_mode) ? realpath(path, NULL) : strdup(path);
    if (!f->path) {
        status = sl_fail(err, SL_ENOMEM, "%s: out of memory", path);
    } else if (there && S_ISDIR(st.st_mode)) {
        status = sl_fail(err, SL_EINVAL, "%s: is a folder, not a file", path);
    } else if (there && !S_ISREG(st.st_mode)) {
        f->fd = open(path, O_WRONLY | O_CLOEXEC);
        if (f->fd < 0)
            status = sl_fail_errno(err, errno, "%s: cannot open", path);
    } else {
        status = open_temporary(f, err);
    }
    if (status)
        sl_outfile_abort(f);
    return status;
}

sl_status sl_outfile_write(sl_outfile *f, const void *data, uint64_t len, sl_err *err)
{
    for (const char *at = data; len > 0;) {
        ssize_t n = write(f->fd, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return sl_fail_errno(err, n < 0 ? errno : EIO, "%s: cannot write", f->path);
        at += n;
        len -= (uint64_t)n;
    }
    return SL_OK;
}

sl_status sl_outfile_write_at(sl_outfile *f, uint64_t offset, const void *data, uint64_t len,
                              sl_err *err)
{
    for (const char *at = data; len > 0;) {
        ssize_t n = pwrite(f->fd, at, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return sl_fail_errno(err, n < 0 ? errno : EIO, "%s: cannot write at offset %llu",
                                 f->path, (unsigned long long)offset);
        at += n;
        offset += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return SL_OK;
}

sl_status sl_outfile_commit(sl_outfile *f, sl_err *err)
{
    sl_status st = SL_OK;
    if (f->temporary) {
        if (fsync(f->fd) < 0)
            st = sl_fail_errno(err, errno, "%s: cannot write", f->path);
        else if (rename(f->temporary, f->path) < 0)
            st = sl_fail_errno(err, errno, "%s: cannot move the finished file there", f->path);
    }
    if (st) {
        sl_outfile_abort(f);
        return st;
    }
    close(f->fd);
    forget(f);
    return SL_OK;
}

void sl_outfile_abort(sl_outfile *f)
{
    if (f->fd >= 0) {
        close(f->fd);
        if (f->temporary)
            unlink(f->temporary);
    }
    forget(f);
}
