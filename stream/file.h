/* An open weight file: descriptor, size, identity, direct-I/O alignment. Opened once, read by
 * offset from any thread. */
#ifndef SL_FILE_H
#define SL_FILE_H

#include <sys/types.h>

#include "base.h"

typedef struct sl_file {
    char *path; /* as opened, for messages */
    int fd;     /* buffered, O_RDONLY | O_CLOEXEC, POSIX_FADV_RANDOM (we do our own read-ahead) */
    uint64_t size;
    uint64_t mtime_ns; /* with size and inode: the file's identity */
    uint64_t inode;
    uint64_t device;
} sl_file;

/* A regular file only (symlinks followed): a folder, a device or a pipe is an error that says so.
 */
sl_status sl_file_open(const char *path, sl_file **out, sl_err *err);
void sl_file_close(sl_file **f);
/* Exactly len bytes, or an error that names file and offset; a file that ends early is SL_EFORMAT
 * "truncated". EINTR and short reads are handled here. Buffered. */
sl_status sl_file_read(const sl_file *f, uint64_t offset, void *buf, uint64_t len, sl_err *err);
/* Drops the page cache of a range (rounded outwards). Advice only: failures are ignored. */
void sl_file_forget(const sl_file *f, uint64_t offset, uint64_t len);

#endif
