#include "cold.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../stream/block_layer.h"
#include "report.h"

static void drop(const sl_file *f)
{
    fdatasync(f->fd); /* pages of a file just written stay otherwise */
    posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* This process alone, where the kernel keeps account of that; otherwise the device that holds the
 * (first) file, on which others read as well. */
static bool counter_now(const sl_checkpoint *files, uint64_t *bytes)
{
    return sl_process_disk_bytes(bytes) ||
           sl_device_read_bytes(sl_checkpoint_file(files, 0)->device, bytes);
}

static void look(sl_cold *c, const sl_file *f)
{
    const double share = sl_file_cached(f, 0, f->size);
    c->cache_known = c->cache_known && share >= 0;
    if (share > 0)
        c->cached_bytes += (uint64_t)(share * (double)f->size + 0.5);
}

/* ---- for tests ------------------------------------------------------------------------------- */
static void read_whole(const sl_file *f)
{
    static char buffer[64 << 10];
    for (off_t at = 0; pread(f->fd, buffer, sizeof buffer, at) > 0; at += (off_t)sizeof buffer) {}
}

static sl_status fault(const sl_checkpoint *files, const char *when, sl_err *err)
{
    const char *asked = getenv("SL_FAULT_CACHE");
    if (!asked)
        return SL_OK;
    if (strcmp(asked, "before") && strcmp(asked, "after"))
        return sl_fail(err, SL_EINVAL, "SL_FAULT_CACHE: '%.40s' is not before or after", asked);
    for (uint32_t i = 0; !strcmp(asked, when) && i < sl_checkpoint_file_count(files); i++)
        read_whole(sl_checkpoint_file(files, i));
    return SL_OK;
}

/* ---- both ------------------------------------------------------------------------------------ */
sl_status sl_cold_begin(sl_cold *c, const sl_checkpoint *files, sl_err *err)
{
    const uint32_t n = sl_checkpoint_file_count(files);
    *c = (sl_cold){.cache_known = true};
    for (uint32_t i = 0; i < n; i++)
        drop(sl_checkpoint_file(files, i));
    sl_status st = fault(files, "before", err);
    for (uint32_t i = 0; i < n; i++)
        look(c, sl_checkpoint_file(files, i));
    if (!st)
        st = fault(files, "after", err);
    c->counted = counter_now(files, &c->block_begin);
    return st;
}

/* Reads that were counted by the one side and not yet by the other when the run ended. */
static bool about_as_much(uint64_t block, uint64_t read)
{
    return block >= read - read / 100;
}

void sl_cold_end(sl_cold *c, const sl_checkpoint *files, uint64_t read_bytes)
{
    char a[SL_SHORT], b[SL_SHORT];
    uint64_t now = 0;
    c->read_bytes = read_bytes;
    c->counted = c->counted && counter_now(files, &now);
    c->block_bytes = c->counted ? now - c->block_begin : 0;
    c->proven = c->cache_known && !c->cached_bytes && c->counted &&
                about_as_much(c->block_bytes, read_bytes);
    if (c->cached_bytes)
        snprintf(c->how, sizeof c->how, "%s of the files stayed in the page cache",
                 sl_show_bytes(a, c->cached_bytes));
    else if (!c->cache_known)
        snprintf(c->how, sizeof c->how, "of other users' files the kernel hides what it caches");
    else if (!c->counted)
        snprintf(c->how, sizeof c->how, "no counter of the block layer can be read here");
    else
        snprintf(c->how, sizeof c->how, "%sread %s, the block layer %s%s",
                 c->proven ? "none cached before; " : "", sl_show_bytes(b, read_bytes),
                 c->proven ? "" : "only ", sl_show_bytes(a, c->block_bytes));
}
