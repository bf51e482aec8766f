/* sluice disk: what a disk gives through the engines that stream, and whether it was the disk. */
#include <inttypes.h>
#include <linux/limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../stream/block_layer.h"
#include "command.h"
#include "disk_figures.h"
#include "report.h"
#include "setup.h"
#include "term.h"
#include "test_file.h"

static const double SECONDS_USUAL = 5;
static const uint64_t KIB = 1 << 10, MIB = 1 << 20;

typedef struct disk {
    const sl_options *o;
    sl_test_file test;
    sl_disk_figures f;
    sl_stream_options usual;            /* bytes in flight, faults */
    double cached_before, cached_after; /* shares of the file; -1: not known */
    bool device_known;
    bool all_proven; /* every point, of every engine */
    uint64_t device_bytes, read_bytes, storage_bytes;
    uint64_t next;            /* byte of the file at which the next point begins */
    char why[3][SL_ERR_TEXT]; /* by engine: why it is refused */
    char kept[PATH_MAX];      /* file that they are kept in, "" if they are not */
    sl_progress progress;
} disk;

/* ---- what is measured ------------------------------------------------------------------------ */
static const sl_io engines[] = {SL_IO_DIRECT, SL_IO_MAPPED, SL_IO_PREAD};
static const uint32_t sizes_kib[] = {64, 256, 1024, 4096};
static const uint32_t flights_mib[] = {1, 4, 64}; /* beside the usual one */
enum {
    N_ENGINES = 3,
    N_SIZES = 4,
    N_FLIGHTS = 3,
    N_ALONE = SL_DISK_ALONE,
    N_POINTS = N_ENGINES * N_SIZES + N_FLIGHTS + 1 + N_ALONE
};
_Static_assert((int)N_POINTS <= (int)SL_DISK_POINTS, "all points have room");

static sl_disk_point *add(disk *d, sl_io io, uint64_t request, uint64_t in_flight, bool scattered)
{
    sl_disk_point *p = &d->f.point[d->f.n_points];
    if (request > d->test.file->size)
        return NULL;
    d->f.n_points++;
    *p = (sl_disk_point){
        .io = io, .request_bytes = request, .in_flight_bytes = in_flight, .scattered = scattered};
    return p;
}

static void fill_point(sl_disk_point *p, const sl_probe_result *r)
{
    const double gib = (double)r->bytes / (double)(1 << 30);
    p->proven = sl_probe_proven(r);
    p->bytes_per_s = r->wall_ns ? (double)r->bytes * 1e9 / (double)r->wall_ns : 0;
    p->cpu_s_per_gib = gib > 0 ? (double)r->cpu_ns / 1e9 / gib : 0;
    p->p50_s = (double)r->p50_ns / 1e9;
    p->p99_s = (double)r->p99_ns / 1e9;
}

static sl_status measure(disk *d, sl_disk_point *p, sl_err *err)
{
    if (!p)
        return SL_OK;
    const double seconds = d->o->seconds > 0 ? d->o->seconds : SECONDS_USUAL;
    const sl_probe probe = {.io = p->io,
                            .request_bytes = (uint32_t)p->request_bytes,
                            .in_flight_bytes = p->in_flight_bytes,
                            .scattered = p->scattered,
                            .seconds = seconds / N_POINTS,
                            .disk_limit = d->o->disk_limit,
                            .start = d->next / p->request_bytes,
                            .fail_read = d->usual.fail_read,
                            .fail_errno = d->usual.fail_errno,
                            .refuse = d->usual.refuse};
    sl_probe_result r;
    sl_err why = {0};
    sl_status st = sl_probe_run(d->test.file, &probe, sl_interrupted, &r, &why);
    sl_progress_update(&d->progress, d->f.n_points);
    if (st == SL_EUNSUPPORTED) {
        p->refused = true;
        snprintf(d->why[p->io == SL_IO_DIRECT   ? 0
                        : p->io == SL_IO_MAPPED ? 1
                                                : 2],
                 SL_ERR_TEXT, "%s", why.text);
        return SL_OK;
    }
    if (st)
        return sl_fail(err, st, "%s", why.text);
    if (sl_interrupted())
        return sl_fail(err, SL_ECANCELLED, "stopped");
    fill_point(p, &r);
    d->read_bytes += r.bytes;
    d->storage_bytes += r.storage_bytes;
    if (!p->scattered)
        d->next = r.next * p->request_bytes;
    return SL_OK;
}

static sl_status measure_sizes(disk *d, sl_err *err)
{
    sl_status st = SL_OK;
    for (unsigned i = 0; i < N_SIZES; i++)
        for (unsigned e = 0; !st && e < N_ENGINES; e++)
            st = measure(d, add(d, engines[e], sizes_kib[i] * KIB, d->usual.in_flight_bytes, false),
                         err);
    return st;
}

/* The rest is of the engine that streams. */
static sl_io streaming(const disk *d)
{
    return d->why[0][0] ? SL_IO_PREAD : SL_IO_DIRECT;
}

static sl_status measure_rest(disk *d, sl_err *err)
{
    const uint64_t piece = d->usual.piece_bytes;
    sl_status st = SL_OK;
    for (unsigned i = 0; !st && i < N_FLIGHTS; i++)
        st = measure(d, add(d, streaming(d), piece, flights_mib[i] * MIB, false), err);
    if (!st)
        st = measure(d, add(d, streaming(d), piece, d->usual.in_flight_bytes, true), err);
    for (unsigned i = 0; !st && i < N_ALONE; i++)
        st = measure(d, add(d, streaming(d), sl_disk_alone_bytes[i], sl_disk_alone_bytes[i], true),
                     err);
    return st;
}

/* What is kept and used is the engine's that streams: its points must all be the disk's. */
static void judge(disk *d)
{
    d->f.proven = true;
    d->all_proven = true;
    for (uint32_t i = 0; i < d->f.n_points; i++) {
        const sl_disk_point *p = &d->f.point[i];
        if (p->refused || p->proven)
            continue;
        d->all_proven = false;
        if (p->io == streaming(d))
            d->f.proven = false;
    }
}

static sl_status measure_all(disk *d, sl_err *err)
{
    sl_file *f = d->test.file;
    uint64_t before = 0, after = 0;
    if (f->size < SL_TEST_FILE_LEAST / 16)
        return sl_fail(err, SL_EINVAL,
                       "%s: too small to measure a disk with; a file of at least 1 MiB, or a "
                       "folder, is",
                       f->path);
    d->cached_before = d->test.temporary ? 0 : sl_file_cached(f, 0, f->size);
    sl_file_forget(f, 0, f->size);
    d->cached_after = sl_file_cached(f, 0, f->size);
    d->device_known = d->f.id.block && sl_device_read_bytes(f->device, &before);
    sl_progress_begin(&d->progress, "reading", N_POINTS, false);
    sl_status st = measure_sizes(d, err);
    if (!st)
        st = measure_rest(d, err);
    sl_progress_end(&d->progress);
    d->device_known = d->device_known && sl_device_read_bytes(f->device, &after);
    d->device_bytes = after - before;
    d->f.disk_limit = d->o->disk_limit;
    d->f.file_bytes = f->size;
    snprintf(d->f.file, sizeof d->f.file, "%.500s", f->path);
    sl_show_now(d->f.measured);
    judge(d);
    return st;
}

/* ---- the table ------------------------------------------------------------------------------- */
enum { BAR = 10, BAR_LONG = 40 };

static const char *bar(char *out, int width, double x, double most)
{
    int n = most > 0 ? (int)(x / most * width + 0.5) : 0;
    n = n > width ? width : n < 0 ? 0 : n;
    memset(out, '#', (size_t)n);
    out[n] = 0;
    return out;
}

static double fastest(const sl_disk_figures *f)
{
    double most = 0;
    for (uint32_t i = 0; i < f->n_points; i++)
        most = f->point[i].bytes_per_s > most ? f->point[i].bytes_per_s : most;
    return most;
}

static double gib(double bytes)
{
    return bytes / (double)(1 << 30);
}

static void print_device(const sl_disk_figures *f)
{
    const sl_disk_id *id = &f->id;
    char a[SL_SHORT];
    sl_outf("disk  %s%s%s%s%s%s, %s\n", *id->name ? id->name : "without a device",
            *id->model ? ", " : "", id->model, id->rotates ? ", rotating" : "",
            id->virtual ? ", virtual" : "", f->disk_limit ? ", limited by --disk-limit" : "",
            *id->filesystem ? id->filesystem : "unknown file system");
    sl_outf("file  %s, %s\n", f->file, sl_show_bytes(a, f->file_bytes));
    sl_outf("date  %s\n", f->measured);
}

static void print_cell(const sl_disk_point *p, double most)
{
    char text[BAR + 1];
    if (!p || p->refused)
        sl_outf("  %5s %-*s %4s", "-", BAR, p ? "refused" : "", "");
    else
        sl_outf("  %5.2f %-*s %3.0f%s", gib(p->bytes_per_s), BAR,
                bar(text, BAR, p->bytes_per_s, most), 1e3 * p->cpu_s_per_gib,
                p->proven ? " " : "?");
}

static void print_sizes(const sl_disk_figures *f, uint64_t in_flight, double most)
{
    char a[SL_SHORT];
    sl_outf("\none after the other, %s in flight: GiB/s, and ms of CPU per GiB\n",
            sl_show_bytes(a, in_flight));
    sl_outf("  %8s  %-21s  %-21s  %s\n", "reads of", "direct", "mapped", "pread");
    for (unsigned i = 0; i < N_SIZES; i++) {
        sl_outf("  %8s", sl_show_bytes(a, sizes_kib[i] * KIB));
        for (unsigned e = 0; e < N_ENGINES; e++)
            print_cell(sl_disk_point_find(f, engines[e], sizes_kib[i] * KIB, in_flight, false),
                       most);
        sl_out("\n", 1);
    }
}

static void print_point(const char *name, const sl_disk_point *p, double most)
{
    char text[BAR_LONG + 1];
    if (p && !p->refused)
        sl_outf("  %22s  %5.2f %s%s\n", name, gib(p->bytes_per_s),
                bar(text, BAR_LONG, p->bytes_per_s, most), p->proven ? "" : " ?");
}

static void print_flights(const sl_disk_figures *f, sl_io io, const sl_stream_options *usual,
                          double most)
{
    char a[SL_SHORT];
    sl_outf("\nreads of %s, %s, by bytes in flight: GiB/s\n", sl_show_bytes(a, usual->piece_bytes),
            sl_io_name(io));
    for (unsigned i = 0; i < N_FLIGHTS; i++) {
        const uint64_t here = flights_mib[i] * MIB;
        if (i && flights_mib[i - 1] * MIB < usual->in_flight_bytes && usual->in_flight_bytes < here)
            print_point(
                sl_show_bytes(a, usual->in_flight_bytes),
                sl_disk_point_find(f, io, usual->piece_bytes, usual->in_flight_bytes, false), most);
        print_point(sl_show_bytes(a, here),
                    sl_disk_point_find(f, io, usual->piece_bytes, here, false), most);
    }
    char name[64];
    snprintf(name, sizeof name, "%s, scattered", sl_show_bytes(a, usual->in_flight_bytes));
    print_point(name, sl_disk_point_find(f, io, usual->piece_bytes, usual->in_flight_bytes, true),
                most);
}

static void print_alone(const sl_disk_figures *f, sl_io io)
{
    char a[SL_SHORT], b[SL_SHORT], c[SL_SHORT];
    sl_outf("\none read alone, scattered, %s: time, and of the slowest in a hundred\n",
            sl_io_name(io));
    for (unsigned i = 0; i < N_ALONE; i++) {
        const sl_disk_point *p =
            sl_disk_point_find(f, io, sl_disk_alone_bytes[i], sl_disk_alone_bytes[i], true);
        if (p && !p->refused)
            sl_outf("  %22s  %9s  %9s%s\n", sl_show_bytes(a, sl_disk_alone_bytes[i]),
                    sl_show_seconds(b, p->p50_s), sl_show_seconds(c, p->p99_s),
                    p->proven ? "" : " ?");
    }
}

static sl_io streamed_with(const sl_disk_figures *f, const sl_stream_options *usual)
{
    const sl_disk_point *p =
        sl_disk_point_find(f, SL_IO_DIRECT, usual->piece_bytes, usual->in_flight_bytes, false);
    return p && !p->refused ? SL_IO_DIRECT : SL_IO_PREAD;
}

static void print_figures(const sl_disk_figures *f)
{
    const sl_stream_options usual = sl_stream_defaults();
    const double most = fastest(f);
    const sl_io io = streamed_with(f, &usual);
    print_device(f);
    print_sizes(f, usual.in_flight_bytes, most);
    print_flights(f, io, &usual, most);
    print_alone(f, io);
}

/* ---- was it the disk? ------------------------------------------------------------------------ */
static void print_proof(const disk *d)
{
    char a[SL_SHORT], b[SL_SHORT], c[SL_SHORT];
    const sl_disk_figures *f = &d->f;
    sl_out("\n", 1);
    if (d->cached_before > 0.005)
        sl_outf("%.0f %% of the file was in the page cache and was dropped from it first.\n",
                100 * d->cached_before);
    if (d->cached_after > 0.005)
        sl_outf(
            "%.0f %% of it stays in memory: its file system keeps it there, or another program has "
            "it mapped.\n",
            100 * d->cached_after);
    if (f->proven && !d->all_proven)
        sl_outf("Marked ?: partly from the page cache, which drops small files slowly.\n");
    if (f->proven)
        sl_outf("proven: of %s read the kernel counts %s from storage\n",
                sl_show_bytes(a, d->read_bytes), sl_show_bytes(b, d->storage_bytes));
    else
        sl_outf("NOT proven (?): of %s read the kernel counts %s from storage.\nThe rest came from "
                "memory, or from a file system that has no disk of its own\nor does not count "
                "(tmpfs, overlay, network). These are not a disk's figures.\n",
                sl_show_bytes(a, d->read_bytes), sl_show_bytes(b, d->storage_bytes));
    if (d->device_known && (double)d->device_bytes > 1.1 * (double)d->storage_bytes)
        sl_outf("Others read %s from it meanwhile: alone it gives more.\n",
                sl_show_bytes(c, d->device_bytes - d->storage_bytes));
    if (f->id.virtual)
        sl_outf("A virtual disk: what its host keeps in memory cannot be seen from here.\n");
    for (unsigned e = 0; e < N_ENGINES; e++)
        if (d->why[e][0])
            sl_outf("%s: %s\n", sl_io_name(engines[e]), d->why[e]);
}

/* Only what is a disk's is kept, and not the figures of an emulated one. */
static void keep(disk *d)
{
    sl_err err = {0};
    if (!d->f.proven || d->f.disk_limit)
        return;
    if (sl_disk_figures_save(&d->f, d->kept, &err)) {
        d->kept[0] = 0;
        sl_log(SL_LOG_WARN, "the figures are not kept: %s", err.text);
    }
}

static sl_status print_json(const disk *d, bool measured, sl_err *err)
{
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "out of memory for the report");
    sl_json_write_object(w, NULL);
    sl_disk_figures_write(w, &d->f);
    if (measured) {
        sl_json_write_bool(w, "temporary", d->test.temporary);
        sl_json_write_uint(w, "read_bytes", d->read_bytes);
        sl_json_write_uint(w, "storage_bytes", d->storage_bytes);
        if (d->device_known)
            sl_json_write_uint(w, "device_bytes", d->device_bytes);
        sl_json_write_double(w, "cached_before", d->cached_before < 0 ? NAN : d->cached_before);
        sl_json_write_double(w, "cached_after", d->cached_after < 0 ? NAN : d->cached_after);
        sl_json_write_string(w, "kept", *d->kept ? d->kept : NULL);
    }
    sl_json_write_close(w);
    return sl_report_json(&w, err);
}

/* ---- the command ----------------------------------------------------------------------------- */
static int show(disk *d)
{
    sl_err err = {0};
    if (sl_disk_identify(d->o->operand, &d->f.id, &err)) {
        sl_complain("%s", err.text);
        return SL_EXIT_FAILED;
    }
    if (!sl_disk_figures_load(d->o->operand, &d->f)) {
        sl_complain("nothing is kept of the disk of %s; 'sluice disk %s' measures it",
                    d->o->operand, d->o->operand);
        return SL_EXIT_FAILED;
    }
    sl_status st = SL_OK;
    if (d->o->json)
        st = print_json(d, false, &err);
    else
        print_figures(&d->f);
    if (st)
        sl_complain("%s", err.text);
    return st ? SL_EXIT_FAILED : SL_EXIT_OK;
}

static sl_status run(disk *d, sl_err *err)
{
    const double seconds = d->o->seconds > 0 ? d->o->seconds : SECONDS_USUAL;
    sl_status st = sl_setup_faults(&d->usual, err);
    if (!st)
        st = sl_test_file_open(d->o->operand, d->o->size_bytes, 2 * seconds, &d->test, err);
    if (!st)
        st =
            sl_disk_identify(d->test.temporary ? d->o->operand : d->test.file->path, &d->f.id, err);
    if (!st)
        st = measure_all(d, err);
    return st;
}

int sl_cmd_disk(const sl_options *o)
{
    disk *d = calloc(1, sizeof *d);
    sl_err err = {0};
    if (!d) {
        sl_complain("out of memory");
        return SL_EXIT_FAILED;
    }
    d->o = o;
    d->usual = sl_stream_defaults();
    if (o->show) {
        int status = show(d);
        free(d);
        return status;
    }
    sl_interrupt_catch();
    sl_status st = run(d, &err);
    if (!st)
        keep(d);
    if (!st && o->json)
        st = print_json(d, true, &err);
    else if (!st) {
        print_figures(&d->f);
        print_proof(d);
        if (*d->kept)
            sl_say("kept for plan, bench and tune: %s", d->kept);
    }
    const bool interrupted = st == SL_ECANCELLED && sl_interrupted();
    if (st && !interrupted)
        sl_complain("%s", err.text);
    sl_test_file_close(&d->test);
    free(d);
    return interrupted ? sl_interrupt_exit() : st ? SL_EXIT_FAILED : SL_EXIT_OK;
}
