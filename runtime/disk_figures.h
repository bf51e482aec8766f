/* What sluice disk measured, kept per device between runs: $XDG_CACHE_HOME/sluice/disks (else
 * ~/.cache/sluice/disks), one JSON file each (docs/formats.md), told apart by the device's numbers,
 * model and serial number and the file system's id. Others that need to know how fast a disk is
 * (plan, bench, tune) ask here. Main thread only. */
#ifndef SL_DISK_FIGURES_H
#define SL_DISK_FIGURES_H

#include "../stream/disk_probe.h"
#include "../stream/json.h"

enum { SL_DISK_NAME = 64, SL_DISK_POINTS = 32 };

/* The disk that a file or folder lies on. Texts are "" where nothing is known. */
typedef struct sl_disk_id {
    uint64_t device; /* st_dev */
    bool block;      /* it is a block device of its own: /sys/dev/block knows it */
    bool rotates, virtual;
    char name[SL_DISK_NAME]; /* "nvme0n1" */
    char model[SL_DISK_NAME], serial[SL_DISK_NAME];
    char filesystem[SL_DISK_NAME]; /* "ext4" */
    uint64_t filesystem_id;
} sl_disk_id;

/* SL_EIO: no such path, or it may not be looked at. */
sl_status sl_disk_identify(const char *path, sl_disk_id *out, sl_err *err);

/* One measurement. */
typedef struct sl_disk_point {
    sl_io io;
    uint64_t request_bytes, in_flight_bytes;
    bool scattered;
    bool refused; /* this engine does not work here: nothing below counts */
    bool proven;  /* the bytes came from storage, by the kernel's account */
    double bytes_per_s;
    double cpu_s_per_gib;
    double p50_s, p99_s; /* of a read */
} sl_disk_point;

typedef struct sl_disk_figures {
    sl_disk_id id;
    char measured[24]; /* UTC, ISO 8601 */
    char file[512];    /* that was read */
    uint64_t file_bytes;
    uint64_t disk_limit; /* they are of an emulated disk; 0: of this one */
    bool proven;         /* every point of the engine that streams is */
    uint32_t n_points;
    sl_disk_point point[SL_DISK_POINTS];
} sl_disk_figures;

/* The point, or NULL. in_flight_bytes 0: any. */
const sl_disk_point *sl_disk_point_find(const sl_disk_figures *f, sl_io io, uint64_t request_bytes,
                                        uint64_t in_flight_bytes, bool scattered);

/* The figures that matter to a stream, of the engine that streams (direct, or where it is refused,
 * pread), with pieces of 1 MiB. 0: not known. */
enum { SL_DISK_ALONE = 3 };
extern const uint32_t sl_disk_alone_bytes[SL_DISK_ALONE]; /* 4 KiB, 64 KiB, 1 MiB */
typedef struct sl_disk_speed {
    double bytes_per_s;            /* one after the other, with the usual bytes in flight */
    double scattered_bytes_per_s;  /* the same in any order */
    double alone_s[SL_DISK_ALONE]; /* one scattered read alone, from asking to having it */
    double cpu_s_per_byte;         /* of the I/O thread */
} sl_disk_speed;
/* A read of so many bytes alone, between the measured sizes by straight lines. */
double sl_disk_alone(const sl_disk_speed *d, double bytes);
/* A disk of this rate whose every read takes latency_s more; nothing else is known of it. */
sl_disk_speed sl_disk_speed_like(double bytes_per_s, double latency_s);
/* The same disk at no more than this rate. */
void sl_disk_speed_limit(sl_disk_speed *d, double bytes_per_s);
sl_disk_speed sl_disk_speed_of(const sl_disk_figures *f);

/* What is kept of the disk of path. False: nothing, or it is damaged or of another version (a note
 * says so). */
bool sl_disk_figures_load(const char *path, sl_disk_figures *out);
/* Keeps them. SL_EUNSUPPORTED: there is no home for them. file_out (PATH_MAX bytes): where. */
sl_status sl_disk_figures_save(const sl_disk_figures *f, char *file_out, sl_err *err);
/* Members into an open object, for reports and for the file. */
void sl_disk_figures_write(sl_json_writer *w, const sl_disk_figures *f);

/* Path of a folder of ours in the cache, made if make. False: there is no place for it. out has
 * PATH_MAX bytes. */
bool sl_cache_folder(char *out, const char *name, bool make);

#endif
