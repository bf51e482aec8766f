/* Descriptors for direct reads. The files' own stay buffered: the page cache serves their headers
 * and small tensors. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"

/* Opens the very file that f is, even if its path now leads elsewhere; without /proc the path must
 * still lead to it. */
static int reopen(const sl_file *f)
{
    char link[48];
    snprintf(link, sizeof link, "/proc/self/fd/%d", f->fd);
    int fd = open(link, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    struct stat st;
    fd = open(f->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &st) || st.st_ino != f->inode || st.st_dev != f->device)) {
        close(fd);
        errno = ESTALE;
        return -1;
    }
    return fd;
}

/* Some file systems accept the flag and refuse the read. */
static sl_status probe(const sl_plan *p, const sl_file *f, int *fd, void *buf, sl_err *err)
{
    *fd = reopen(f);
    if (*fd < 0)
        return sl_fail(err, SL_EUNSUPPORTED, "O_DIRECT refused (errno %d)", errno);
    if (pread(*fd, buf, p->align, 0) < 0)
        return sl_fail(err, SL_EUNSUPPORTED, "O_DIRECT read refused (errno %d)", errno);
    return SL_OK;
}

sl_status sl_direct_open(const sl_plan *p, uint32_t refuse, sl_direct *out, sl_err *err)
{
    *out = (sl_direct){0};
    if (refuse & SL_REFUSE_O_DIRECT)
        return sl_fail(err, SL_EUNSUPPORTED, "O_DIRECT refused (by request)");
    void *buf = aligned_alloc(p->align, p->align);
    out->fd = malloc((p->n_files + 1) * sizeof *out->fd);
    sl_status st = SL_OK;
    if (!buf || !out->fd)
        st = sl_fail(err, SL_ENOMEM, "streaming: out of memory");
    for (uint32_t i = 0; i < p->n_files && st == SL_OK; i++) {
        out->fd[i] = -1;
        out->n++;
        st = probe(p, p->files[i], &out->fd[i], buf, err);
    }
    free(buf);
    if (st)
        sl_direct_close(out);
    return st;
}

void sl_direct_close(sl_direct *d)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (d->fd[i] >= 0)
            close(d->fd[i]);
    free(d->fd);
    *d = (sl_direct){0};
}
