/* Where bytes really came from: the kernel's own accounts of what reached a disk, and of what its
 * page cache holds. For reports that claim to have measured a disk. Any thread. */
#ifndef SL_BLOCK_LAYER_H
#define SL_BLOCK_LAYER_H

#include "file.h"

/* Bytes that storage was asked for on behalf of this process, all its threads together
 * (/proc/self/io). Reads that the page cache answers are not in it. False: the kernel does not say.
 */
bool sl_process_disk_bytes(uint64_t *out);

/* Bytes read from a block device by everybody (/sys/dev/block). False: device is none of its
 * numbers, as with overlay, tmpfs, network and several-disk file systems. */
bool sl_device_read_bytes(uint64_t device, uint64_t *out);

/* The share (0 to 1) of a range that the page cache holds now; -1: not to be known (the kernel only
 * tells who owns the file or may write it). */
double sl_file_cached(const sl_file *f, uint64_t offset, uint64_t len);

#endif
