/* What a disk gives through the stream's own engines (io.h): reads of one size, so many at a time,
 * out of one file, each timed. Computes nothing and keeps nothing. The caller's thread owns the
 * engine meanwhile. Not here: what to measure and how to tell it (runtime/cmd_disk.c). */
#ifndef SL_DISK_PROBE_H
#define SL_DISK_PROBE_H

#include "stream.h"

enum {
    SL_PROBE_BLOCK = 4 << 20,  /* the largest request; what is dropped behind at once */
    SL_PROBE_LEAST = 64 << 10, /* the smallest file that makes sense */
    SL_PROBE_TEXT = 96
};

typedef struct sl_probe {
    sl_io io;                 /* direct, mapped or pread */
    uint32_t request_bytes;   /* a power of two from 4 KiB to SL_PROBE_BLOCK */
    uint64_t in_flight_bytes; /* rounded down to requests: at least one, at most 128 of them, and at
                                 most half of the file */
    bool scattered;           /* in an order without neighbours; else one after the other */
    double seconds;
    uint64_t disk_limit; /* bytes per second; 0: none */
    uint64_t start;      /* request (sequential: offset / request_bytes) to begin with */
    uint64_t fail_read;  /* fault injection, as in sl_stream_options */
    int fail_errno;
    uint32_t refuse;
} sl_probe;

typedef struct sl_probe_result {
    uint64_t reads, bytes, wall_ns;
    uint64_t cpu_ns;            /* of this thread and the engine's; not of interrupts */
    uint64_t p50_ns, p99_ns;    /* of a read, from submission to completion; 0: none came back */
    uint64_t storage_bytes;     /* that the kernel counts as fetched from storage */
    bool storage_known;         /* false: the kernel does not count them */
    uint64_t next;              /* request after the last one */
    char engine[SL_PROBE_TEXT]; /* what the engine calls itself */
} sl_probe_result;

/* SL_EUNSUPPORTED: this engine is refused here (err says why). SL_EIO, SL_EFORMAT: a read failed,
 * the file was cut short; err names file, offset and cause. stop (may be NULL): true ends it early.
 */
sl_status sl_probe_run(sl_file *f, const sl_probe *p, bool (*stop)(void), sl_probe_result *out,
                       sl_err *err);

/* The larger part of what was read came from storage, by the kernel's account. */
bool sl_probe_proven(const sl_probe_result *r);

#endif
