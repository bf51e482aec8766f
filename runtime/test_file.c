#include "test_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "report.h"
#include "term.h"

enum { CHUNK = 4 << 20 };

/* ---- one that is there ----------------------------------------------------------------------- */
/* The largest readable file of the folder into best; 0: there is none. */
static sl_status look_through(const char *folder, char best[PATH_MAX], uint64_t *size, sl_err *err)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    *size = 0;
    if (!d)
        return sl_fail_errno(err, errno, "cannot open %s", folder);
    while ((e = readdir(d)) != NULL) {
        char path[PATH_MAX];
        struct stat st;
        if (snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < (int)sizeof path &&
            stat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size > *size &&
            access(path, R_OK) == 0) {
            *size = (uint64_t)st.st_size;
            snprintf(best, PATH_MAX, "%s", path);
        }
    }
    closedir(d);
    return SL_OK;
}

/* ---- a temporary one ------------------------------------------------------------------------- */
static sl_status room_for(const char *folder, uint64_t *bytes, sl_err *err)
{
    struct statvfs v;
    char a[SL_SHORT], b[SL_SHORT];
    if (statvfs(folder, &v) != 0)
        return sl_fail_errno(err, errno, "cannot open %s", folder);
    const uint64_t free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    if (*bytes && free_bytes < *bytes + *bytes / 16)
        return sl_fail(err, SL_EBUDGET, "%s: %s are free, too little for a temporary file of %s",
                       folder, sl_show_bytes(a, free_bytes), sl_show_bytes(b, *bytes));
    if (!*bytes)
        *bytes = free_bytes / 4 < SL_TEST_FILE_USUAL ? free_bytes / 4 : SL_TEST_FILE_USUAL;
    *bytes = sl_round_down(*bytes, CHUNK);
    if (*bytes < SL_TEST_FILE_LEAST)
        return sl_fail(err, SL_EBUDGET,
                       "%s: %s are free; a temporary file of at least %s, a quarter of it, is "
                       "needed to measure with",
                       folder, sl_show_bytes(a, free_bytes), sl_show_bytes(b, SL_TEST_FILE_LEAST));
    return SL_OK;
}

static int open_nameless(const char *folder)
{
    char path[PATH_MAX];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
        return fd;
    if (snprintf(path, sizeof path, "%s/.sluice-disk-XXXXXX", folder) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

/* Random, so that no disk or file system can make it smaller. */
static void fill(uint64_t *data, size_t n, uint64_t *state)
{
    uint64_t x = *state;
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        data[i] = x;
    }
    *state = x;
}

static bool write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

static sl_status write_random(int fd, const char *folder, uint64_t bytes, double seconds,
                              sl_err *err)
{
    uint64_t *data = malloc(CHUNK), state = sl_now_ns() | 1, done = 0;
    const uint64_t until = sl_now_ns() + (uint64_t)(seconds * 1e9);
    sl_progress progress;
    sl_status st = data ? SL_OK : sl_fail(err, SL_ENOMEM, "out of memory to measure the disk");
    sl_progress_begin(&progress, "writing a temporary file", bytes, true);
    while (!st && done < bytes && (done < SL_TEST_FILE_LEAST || sl_now_ns() < until)) {
        fill(data, CHUNK / sizeof *data, &state);
        if (sl_interrupted())
            st = sl_fail(err, SL_ECANCELLED, "stopped");
        else if (!write_all(fd, (const char *)data, CHUNK))
            st = sl_fail_errno(err, errno, "%s: cannot write a temporary file", folder);
        done += CHUNK;
        sl_progress_update(&progress, done);
    }
    if (!st && fsync(fd) != 0)
        st = sl_fail_errno(err, errno, "%s: cannot write a temporary file", folder);
    sl_progress_end(&progress);
    free(data);
    return st;
}

static sl_status make_temporary(const char *folder, uint64_t bytes, double seconds,
                                sl_test_file *out, sl_err *err)
{
    char link[48], name[PATH_MAX + 32];
    sl_status st = room_for(folder, &bytes, err);
    if (st)
        return st;
    int fd = open_nameless(folder);
    if (fd < 0)
        return sl_fail_errno(err, errno, "%s: cannot make a temporary file", folder);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    snprintf(name, sizeof name, "a temporary file in %.4000s", folder);
    st = write_random(fd, folder, bytes, seconds, err);
    if (!st)
        st = sl_file_open(link, &out->file, err);
    close(fd);
    char *copy = st ? NULL : strdup(name);
    if (!st && !copy)
        st = sl_fail(err, SL_ENOMEM, "out of memory to measure the disk");
    if (st) {
        sl_file_close(&out->file);
        return st;
    }
    free(out->file->path);
    out->file->path = copy;
    out->temporary = true;
    return SL_OK;
}

sl_status sl_test_file_open(const char *path, uint64_t bytes, double seconds, sl_test_file *out,
                            sl_err *err)
{
    struct stat st;
    char best[PATH_MAX] = "";
    uint64_t size = 0;
    *out = (sl_test_file){0};
    if (stat(path, &st) != 0)
        return sl_fail_errno(err, errno, "cannot open %s", path);
    if (S_ISBLK(st.st_mode))
        return sl_fail(err, SL_EINVAL, "%s is a device: name a file or a folder on it", path);
    if (!S_ISDIR(st.st_mode))
        return sl_file_open(path, &out->file, err);
    sl_status r = bytes ? SL_OK : look_through(path, best, &size, err);
    if (!r && size >= SL_TEST_FILE_GOOD)
        return sl_file_open(best, &out->file, err);
    return r ? r : make_temporary(path, bytes, seconds, out, err);
}

void sl_test_file_close(sl_test_file *t)
{
    sl_file_close(&t->file);
}
