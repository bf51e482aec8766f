#include "disk_figures.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../stream/outfile.h"
#include "report.h"

enum { VERSION = 1, FILE_MOST = 1 << 20 };

/* ---- whose disk ------------------------------------------------------------------------------ */
/* The first line of a file under /sys without the blanks around it; "" when there is none. */
static void sys_text(const char *folder, const char *name, char out[SL_DISK_NAME])
{
    char path[PATH_MAX], line[SL_DISK_NAME] = "";
    snprintf(path, sizeof path, "%.3000s/%s", folder, name);
    out[0] = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    char *text = fgets(line, sizeof line, f);
    fclose(f);
    text += text ? strspn(text, " ") : 0;
    size_t n = text ? strcspn(text, "\n") : 0;
    while (n && text[n - 1] == ' ')
        n--;
    snprintf(out, SL_DISK_NAME, "%.*s", (int)n, text ? text : "");
}

static bool has(const char *folder, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.3000s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* folder: the device's in /sys. A partition lies in its disk's. */
static void look_at_device(const char *folder, sl_disk_id *id)
{
    char disk[PATH_MAX], text[SL_DISK_NAME], *slash;
    const char *name = strrchr(folder, '/');
    snprintf(disk, sizeof disk, "%s", folder);
    snprintf(id->name, sizeof id->name, "%.60s", name ? name + 1 : folder);
    if (has(disk, "partition") && (slash = strrchr(disk, '/')))
        *slash = 0;
    sys_text(disk, "device/model", id->model);
    sys_text(disk, "serial", id->serial);
    if (!*id->serial)
        sys_text(disk, "device/serial", id->serial);
    if (!*id->serial)
        sys_text(disk, "device/wwid", id->serial);
    sys_text(disk, "queue/rotational", text);
    id->virtual = strstr(disk, "/virtio") || !strncmp(id->model, "QEMU", 4) ||
                  strstr(id->model, "Virtual") || !strncmp(id->name, "xvd", 3);
    id->rotates = !strcmp(text, "1") && !id->virtual; /* virtual ones say so for no reason */
}

/* The file system's name from the mount table: the line whose device number is ours. */
static void look_at_mount(uint64_t device, char out[SL_DISK_NAME])
{
    char line[4096], number[32];
    FILE *f = fopen("/proc/self/mountinfo", "re");
    snprintf(number, sizeof number, " %u:%u ", major((dev_t)device), minor((dev_t)device));
    while (f && !*out && fgets(line, sizeof line, f)) {
        const char *dash = strstr(line, " - ");
        const char *at = strstr(line, number);
        if (dash && at && at < dash)
            sscanf(dash + 3, "%63s", out);
    }
    if (f)
        fclose(f);
}

sl_status sl_disk_identify(const char *path, sl_disk_id *out, sl_err *err)
{
    struct stat st;
    struct statfs fs;
    char link[64], folder[PATH_MAX];
    *out = (sl_disk_id){0};
    if (stat(path, &st) != 0 || statfs(path, &fs) != 0)
        return sl_fail_errno(err, errno, "cannot open %s", path);
    out->device = st.st_dev;
    memcpy(&out->filesystem_id, &fs.f_fsid, sizeof out->filesystem_id);
    snprintf(link, sizeof link, "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
    out->block = realpath(link, folder) != NULL;
    if (out->block)
        look_at_device(folder, out);
    look_at_mount(st.st_dev, out->filesystem);
    return SL_OK;
}

/* ---- the points ------------------------------------------------------------------------------ */
const sl_disk_point *sl_disk_point_find(const sl_disk_figures *f, sl_io io, uint64_t request_bytes,
                                        uint64_t in_flight_bytes, bool scattered)
{
    for (uint32_t i = 0; i < f->n_points; i++) {
        const sl_disk_point *p = &f->point[i];
        if (p->io == io && p->request_bytes == request_bytes && p->scattered == scattered &&
            (!in_flight_bytes || p->in_flight_bytes == in_flight_bytes))
            return p;
    }
    return NULL;
}

const uint32_t sl_disk_alone_bytes[SL_DISK_ALONE] = {4 << 10, 64 << 10, 1 << 20};

static bool usable(const sl_disk_point *p)
{
    return p && !p->refused && p->bytes_per_s > 0;
}

sl_disk_speed sl_disk_speed_of(const sl_disk_figures *f)
{
    const sl_stream_options usual = sl_stream_defaults();
    const uint64_t piece = usual.piece_bytes, flight = usual.in_flight_bytes;
    const sl_disk_point *direct = sl_disk_point_find(f, SL_IO_DIRECT, piece, flight, false);
    const sl_io io = usable(direct) ? SL_IO_DIRECT : SL_IO_PREAD;
    const sl_disk_point *p = sl_disk_point_find(f, io, piece, flight, false);
    const sl_disk_point *far = sl_disk_point_find(f, io, piece, flight, true);
    sl_disk_speed s = {0};
    if (!usable(p))
        return s;
    s.bytes_per_s = p->bytes_per_s;
    s.scattered_bytes_per_s = usable(far) ? far->bytes_per_s : p->bytes_per_s;
    for (unsigned i = 0; i < SL_DISK_ALONE; i++) {
        const uint32_t n = sl_disk_alone_bytes[i];
        const sl_disk_point *one = sl_disk_point_find(f, io, n, n, true);
        s.alone_s[i] = usable(one) ? one->p50_s : n / s.scattered_bytes_per_s;
    }
    s.cpu_s_per_byte = p->cpu_s_per_gib / (double)(1 << 30);
    return s;
}

double sl_disk_alone(const sl_disk_speed *d, double bytes)
{
    unsigned i = bytes > sl_disk_alone_bytes[1] ? 1 : 0;
    const double from = sl_disk_alone_bytes[i], to = sl_disk_alone_bytes[i + 1];
    const double at = bytes < from ? 0 : bytes > to ? 1 : (bytes - from) / (to - from);
    const double more = bytes > to ? (bytes - to) / d->scattered_bytes_per_s : 0;
    return d->alone_s[i] + at * (d->alone_s[i + 1] - d->alone_s[i]) + more;
}

sl_disk_speed sl_disk_speed_like(double bytes_per_s, double latency_s)
{
    sl_disk_speed d = {.bytes_per_s = bytes_per_s, .scattered_bytes_per_s = bytes_per_s};
    for (unsigned i = 0; i < SL_DISK_ALONE; i++)
        d.alone_s[i] = latency_s + sl_disk_alone_bytes[i] / bytes_per_s;
    return d;
}

void sl_disk_speed_limit(sl_disk_speed *d, double bytes_per_s)
{
    if (d->bytes_per_s > bytes_per_s)
        d->bytes_per_s = bytes_per_s;
    if (d->scattered_bytes_per_s > bytes_per_s)
        d->scattered_bytes_per_s = bytes_per_s;
    for (unsigned i = 0; i < SL_DISK_ALONE; i++)
        if (d->alone_s[i] < sl_disk_alone_bytes[i] / bytes_per_s)
            d->alone_s[i] = sl_disk_alone_bytes[i] / bytes_per_s;
}

/* ---- as JSON --------------------------------------------------------------------------------- */
static void write_point(sl_json_writer *w, const sl_disk_point *p)
{
    sl_json_write_object(w, NULL);
    sl_json_write_string(w, "io", sl_io_name(p->io));
    sl_json_write_uint(w, "request", p->request_bytes);
    sl_json_write_uint(w, "in_flight", p->in_flight_bytes);
    sl_json_write_bool(w, "scattered", p->scattered);
    sl_json_write_bool(w, "refused", p->refused);
    sl_json_write_bool(w, "proven", p->proven);
    sl_json_write_double(w, "bytes_per_s", p->bytes_per_s);
    sl_json_write_double(w, "cpu_s_per_gib", p->cpu_s_per_gib);
    sl_json_write_double(w, "median_s", p->p50_s);
    sl_json_write_double(w, "p99_s", p->p99_s);
    sl_json_write_close(w);
}

void sl_disk_figures_write(sl_json_writer *w, const sl_disk_figures *f)
{
    char number[32];
    snprintf(number, sizeof number, "%u:%u", major((dev_t)f->id.device),
             minor((dev_t)f->id.device));
    sl_json_write_uint(w, "version", VERSION);
    sl_json_write_string(w, "device", number);
    sl_json_write_string(w, "name", f->id.name);
    sl_json_write_string(w, "model", f->id.model);
    sl_json_write_string(w, "serial", f->id.serial);
    sl_json_write_string(w, "filesystem", f->id.filesystem);
    snprintf(number, sizeof number, "%016" PRIx64, f->id.filesystem_id);
    sl_json_write_string(w, "filesystem_id", number);
    sl_json_write_bool(w, "rotates", f->id.rotates);
    sl_json_write_bool(w, "virtual", f->id.virtual);
    sl_json_write_string(w, "measured", f->measured);
    sl_json_write_text(w, "file", (sl_text){f->file, strlen(f->file)});
    sl_json_write_uint(w, "file_bytes", f->file_bytes);
    sl_json_write_uint(w, "disk_limit", f->disk_limit);
    sl_json_write_bool(w, "proven", f->proven);
    const sl_disk_speed s = sl_disk_speed_of(f);
    sl_json_write_double(w, "bytes_per_s", s.bytes_per_s);
    sl_json_write_double(w, "scattered_bytes_per_s", s.scattered_bytes_per_s);
    sl_json_write_double(w, "piece_s", s.alone_s[SL_DISK_ALONE - 1]);
    sl_json_write_array(w, "points");
    for (uint32_t i = 0; i < f->n_points; i++)
        write_point(w, &f->point[i]);
    sl_json_write_close(w);
}

static bool number_of(const sl_json *j, const char *key, double *out)
{
    return sl_json_number(sl_json_get(j, key), out) && *out >= 0 && *out < 1e18;
}

static bool size_of(const sl_json *j, const char *key, uint64_t *out)
{
    int64_t n;
    bool ok = sl_json_int(sl_json_get(j, key), &n) && n >= 0;
    *out = ok ? (uint64_t)n : 0;
    return ok;
}

static bool read_point(const sl_json *j, sl_disk_point *p)
{
    const char *io = sl_json_text(sl_json_get(j, "io"));
    return io && sl_io_parse(io, &p->io) && size_of(j, "request", &p->request_bytes) &&
           size_of(j, "in_flight", &p->in_flight_bytes) &&
           sl_json_bool(sl_json_get(j, "scattered"), &p->scattered) &&
           sl_json_bool(sl_json_get(j, "refused"), &p->refused) &&
           sl_json_bool(sl_json_get(j, "proven"), &p->proven) &&
           number_of(j, "bytes_per_s", &p->bytes_per_s) &&
           number_of(j, "cpu_s_per_gib", &p->cpu_s_per_gib) &&
           number_of(j, "median_s", &p->p50_s) && number_of(j, "p99_s", &p->p99_s);
}

static bool copy_text(const sl_json *j, const char *key, char *out, size_t cap)
{
    const char *text = sl_json_text(sl_json_get(j, key));
    return text && snprintf(out, cap, "%s", text) < (int)cap;
}

/* id is who asks; what the file calls itself must be the same disk. */
static bool read_figures(const sl_json *j, const sl_disk_id *id, sl_disk_figures *f)
{
    int64_t version;
    sl_disk_id kept = {0};
    *f = (sl_disk_figures){.id = *id};
    if (!sl_json_int(sl_json_get(j, "version"), &version) || version != VERSION ||
        !copy_text(j, "model", kept.model, sizeof kept.model) ||
        !copy_text(j, "serial", kept.serial, sizeof kept.serial) || strcmp(kept.model, id->model) ||
        strcmp(kept.serial, id->serial) ||
        !copy_text(j, "measured", f->measured, sizeof f->measured) ||
        !copy_text(j, "file", f->file, sizeof f->file) ||
        !size_of(j, "file_bytes", &f->file_bytes) || !size_of(j, "disk_limit", &f->disk_limit) ||
        !sl_json_bool(sl_json_get(j, "proven"), &f->proven))
        return false;
    const sl_json *points = sl_json_get(j, "points");
    for (const sl_json *p = sl_json_first(points); p; p = sl_json_next(p))
        if (f->n_points == SL_DISK_POINTS || !read_point(p, &f->point[f->n_points++]))
            return false;
    return f->n_points > 0;
}

/* ---- kept ------------------------------------------------------------------------------------ */
bool sl_cache_folder(char *out, const char *name, bool make)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const char *const step[] = {"/sluice", "/", name};
    int n = -1;
    if (cache && cache[0] == '/')
        n = snprintf(out, PATH_MAX, "%s", cache);
    else if (home && home[0] == '/')
        n = snprintf(out, PATH_MAX, "%s/.cache", home);
    if (n < 0 || n > PATH_MAX - 128)
        return false;
    for (unsigned i = 0;; i++) {
        if (make && (out[n - 1] != '/') && mkdir(out, 0700) != 0 && errno != EEXIST)
            return false;
        if (i == sizeof step / sizeof *step)
            return true;
        n += snprintf(out + n, (size_t)(PATH_MAX - n), "%.60s", step[i]);
    }
}

/* FNV-1a, 64 bits. */
static uint64_t hash_text(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 0x100000001b3u;
    return (h ^ 0xff) * 0x100000001b3u;
}

static bool figures_path(char *out, const sl_disk_id *id, bool make)
{
    uint64_t h = hash_text(hash_text(0xcbf29ce484222325u, id->model), id->serial);
    char fs[32];
    snprintf(fs, sizeof fs, "%016" PRIx64, id->filesystem_id);
    h = hash_text(hash_text(h, id->filesystem), fs);
    if (!sl_cache_folder(out, "disks", make))
        return false;
    size_t n = strlen(out);
    /* A file system without a device of its own has another number after each start. */
    return snprintf(out + n, PATH_MAX - n, "/%u-%u-%016" PRIx64 ".json",
                    id->block ? major((dev_t)id->device) : 0,
                    id->block ? minor((dev_t)id->device) : 0, h) < (int)(PATH_MAX - n);
}

bool sl_disk_figures_load(const char *path, sl_disk_figures *out)
{
    char file[PATH_MAX], *text = NULL;
    sl_disk_id id;
    sl_err err = {0};
    sl_json *j = NULL;
    uint64_t len = 0;
    if (sl_disk_identify(path, &id, NULL) || !figures_path(file, &id, false) ||
        access(file, F_OK) != 0)
        return false;
    sl_status st = sl_read_input(file, &text, &len, &err);
    if (!st && len > FILE_MOST)
        st = sl_fail(&err, SL_EFORMAT, "%s: too long", file);
    if (!st)
        st = sl_json_parse(text, len, file, &j, &err);
    const bool ok = !st && read_figures(j, &id, out);
    if (st)
        sl_log(SL_LOG_NOTE, "%s; not used, 'sluice disk' measures anew", err.text);
    else if (!ok)
        sl_log(SL_LOG_NOTE, "%s: of another version or another disk; not used", file);
    sl_json_free(&j);
    free(text);
    return ok;
}

static sl_status write_file(const char *path, const sl_disk_figures *f, sl_err *err)
{
    sl_json_writer *w = sl_json_writer_new();
    char *text = NULL;
    sl_outfile out;
    if (!w)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    sl_json_write_object(w, NULL);
    sl_disk_figures_write(w, f);
    sl_json_write_close(w);
    sl_status st = sl_json_write_end(w, true, &text, err);
    sl_json_writer_free(&w);
    if (!st)
        st = sl_outfile_open(&out, path, err);
    if (st) {
        free(text);
        return st;
    }
    st = sl_outfile_write(&out, text, strlen(text), err);
    if (!st)
        st = sl_outfile_write(&out, "\n", 1, err);
    if (!st)
        st = sl_outfile_commit(&out, err);
    sl_outfile_abort(&out);
    free(text);
    return st;
}

sl_status sl_disk_figures_save(const sl_disk_figures *f, char *file_out, sl_err *err)
{
    if (!figures_path(file_out, &f->id, true))
        return sl_fail(err, SL_EUNSUPPORTED,
                       "neither XDG_CACHE_HOME nor HOME is a folder that can be "
                       "written");
    return write_file(file_out, f, err);
}
