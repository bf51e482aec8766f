/* A file that is either whole or absent: written beside its place, moved there when complete. A
 * device or pipe is written directly. */
#ifndef SL_OUTFILE_H
#define SL_OUTFILE_H

#include "../stream/base.h"

typedef struct sl_outfile {
    int fd;
    char *path;      /* where it will be; links resolved */
    char *temporary; /* NULL: written directly */
} sl_outfile;

/* Refuses a folder, and a path whose folder cannot be written, before any work is done. */
sl_status sl_outfile_open(sl_outfile *f, const char *path, sl_err *err);
/* All of len bytes at offset (files only), or after what was written before. */
sl_status sl_outfile_write_at(sl_outfile *f, uint64_t offset, const void *data, uint64_t len,
                              sl_err *err);
sl_status sl_outfile_write(sl_outfile *f, const void *data, uint64_t len, sl_err *err);
/* Brings it to the disk and to its place; closes. On an error nothing is left behind. */
sl_status sl_outfile_commit(sl_outfile *f, sl_err *err);
/* Closes and removes what was written; nothing after a commit. */
void sl_outfile_abort(sl_outfile *f);

#endif
