#include "block_layer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

bool sl_process_disk_bytes(uint64_t *out)
{
    char line[128];
    FILE *f = fopen("/proc/self/io", "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "read_bytes: %" SCNu64, out) == 1;
    if (f)
        fclose(f);
    return found;
}

bool sl_device_read_bytes(uint64_t device, uint64_t *out)
{
    char path[64];
    uint64_t sectors = 0; /* of 512 bytes, whatever the device's own are */
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/stat", major((dev_t)device),
             minor((dev_t)device));
    FILE *f = fopen(path, "re");
    bool found = f && fscanf(f, "%*u %*u %" SCNu64, &sectors) == 1;
    if (f)
        fclose(f);
    *out = sectors * 512;
    return found;
}

/* Since Linux 5.2 mincore() calls everything resident when the asker could not have put it there.
 */
static bool may_know(const sl_file *f)
{
    struct stat st;
    char link[48];
    snprintf(link, sizeof link, "/proc/self/fd/%d", f->fd);
    return fstat(f->fd, &st) == 0 && (st.st_uid == geteuid() || access(link, W_OK) == 0);
}

/* Resident pages of a range that starts at a page. */
static bool count_pages(const sl_file *f, uint64_t offset, uint64_t len, uint64_t page,
                        uint64_t *resident)
{
    uint64_t n = (len + page - 1) / page;
    unsigned char *in = malloc(n);
    void *at = in ? mmap(NULL, len, PROT_READ, MAP_SHARED, f->fd, (off_t)offset) : MAP_FAILED;
    bool ok = at != MAP_FAILED && mincore(at, len, in) == 0;
    for (uint64_t i = 0; ok && i < n; i++)
        *resident += in[i] & 1;
    if (at != MAP_FAILED)
        munmap(at, len);
    free(in);
    return ok;
}

double sl_file_cached(const sl_file *f, uint64_t offset, uint64_t len)
{
    enum { WINDOW = 1 << 30 };
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = sl_round_down(offset, page);
    const uint64_t end = offset + len < f->size ? offset + len : f->size;
    uint64_t resident = 0;
    if (first >= end || !may_know(f))
        return -1;
    for (uint64_t at = first; at < end; at += WINDOW)
        if (!count_pages(f, at, end - at < WINDOW ? end - at : WINDOW, page, &resident))
            return -1;
    return (double)resident / (double)((end - first + page - 1) / page);
}
