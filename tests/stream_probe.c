/* What this proves: a disk is measured by each engine, every read is a real one (bytes counted by
 * the kernel match), a rate is obeyed, the order is what was asked for and visits everything; what
 * comes from memory is not called proven; errors name file, offset and cause, and nothing is left
 * in flight. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../stream/block_layer.h"
#include "../stream/disk_probe.h"
#include "lib_test.h"

enum { FILE_BYTES = 8 << 20 };

static char path[] = "probe-test-XXXXXX";

static bool make_file(void)
{
    int fd = mkostemp(path, O_CLOEXEC);
    uint32_t *data = malloc(FILE_BYTES), x = 1;
    for (size_t i = 0; i < FILE_BYTES / 4; i++)
        data[i] = x = x * 1664525 + 1013904223;
    bool ok = fd >= 0 && write(fd, data, FILE_BYTES) == FILE_BYTES && fsync(fd) == 0;
    free(data);
    if (fd >= 0)
        close(fd);
    return ok;
}

static sl_probe usual(sl_io io)
{
    return (sl_probe){
        .io = io, .request_bytes = 64 << 10, .in_flight_bytes = 1 << 20, .seconds = 0.05};
}

static void test_engines(sl_file *f)
{
    static const sl_io io[] = {SL_IO_DIRECT, SL_IO_MAPPED, SL_IO_PREAD};
    for (unsigned i = 0; i < 3; i++)
        for (unsigned scattered = 0; scattered < 2; scattered++) {
            sl_probe p = usual(io[i]);
            sl_probe_result r;
            sl_err err = {0};
            p.scattered = scattered;
            sl_status st = sl_probe_run(f, &p, NULL, &r, &err);
            if (st == SL_EUNSUPPORTED)
                continue;
            CHECK(st == SL_OK, "%s: %s", sl_io_name(io[i]), err.text);
            CHECK(r.reads > 0 && r.bytes == r.reads * p.request_bytes, "reads and bytes");
            CHECK(r.p50_ns > 0 && r.p50_ns <= r.p99_ns && r.p99_ns <= r.wall_ns, "percentiles");
            CHECK(r.engine[0], "the engine has a name");
        }
}

static void test_limit(sl_file *f)
{
    sl_probe p = usual(SL_IO_PREAD);
    sl_probe_result r;
    p.disk_limit = 10 << 20;
    p.seconds = 0.2;
    CHECK(sl_probe_run(f, &p, NULL, &r, NULL) == SL_OK, "limited");
    CHECK(r.bytes <= (3 << 20), "%llu bytes in 0.2 s at 10 MiB/s", (unsigned long long)r.bytes);
    CHECK(r.bytes >= (1 << 20), "%llu bytes: far under the limit", (unsigned long long)r.bytes);
}

/* A page that another mapping holds cannot be dropped: reads through the page cache are not the
 * disk's, and must not pass for it. */
static void test_cached(sl_file *f)
{
    sl_probe p = usual(SL_IO_MAPPED);
    sl_probe_result r;
    sl_file_forget(f, 0, f->size);
    double before = sl_file_cached(f, 0, f->size);
    CHECK(before >= 0 && before < 0.5, "%.2f cached after dropping", before);
    void *at = mmap(NULL, f->size, PROT_READ, MAP_SHARED | MAP_POPULATE, f->fd, 0);
    CHECK(at != MAP_FAILED, "mapped");
    CHECK(sl_file_cached(f, 0, f->size) > 0.9, "populated pages are seen");
    CHECK(sl_probe_run(f, &p, NULL, &r, NULL) == SL_OK, "measured");
    CHECK(r.bytes > 0 && !sl_probe_proven(&r), "%llu of %llu bytes pass for the disk's",
          (unsigned long long)r.storage_bytes, (unsigned long long)r.bytes);
    munmap(at, f->size);
}

static void test_errors(sl_file *f)
{
    sl_probe p = usual(SL_IO_PREAD);
    sl_probe_result r;
    sl_err err = {0};
    p.fail_read = 5;
    p.fail_errno = EIO;
    CHECK(sl_probe_run(f, &p, NULL, &r, &err) == SL_EIO, "an injected fault ends it");
    CHECK(strstr(err.text, path) && strstr(err.text, "at offset") &&
              strstr(err.text, strerror(EIO)),
          "'%s'", err.text);
    p = usual(SL_IO_DIRECT);
    p.refuse = SL_REFUSE_IO_URING;
    err = (sl_err){0};
    CHECK(sl_probe_run(f, &p, NULL, &r, &err) == SL_EUNSUPPORTED && strstr(err.text, "io_uring"),
          "refused: '%s'", err.text);
    CHECK(truncate(path, FILE_BYTES / 2) == 0, "cut short");
    p = usual(SL_IO_PREAD);
    err = (sl_err){0};
    CHECK(sl_probe_run(f, &p, NULL, &r, &err) == SL_EFORMAT && strstr(err.text, "cut short"),
          "'%s'", err.text);
    p.request_bytes = 4 << 20;
    CHECK(truncate(path, 100 << 10) == 0, "cut shorter");
    sl_file *small = NULL;
    CHECK(sl_file_open(path, &small, NULL) == SL_OK, "opened");
    err = (sl_err){0};
    CHECK(sl_probe_run(small, &p, NULL, &r, &err) == SL_EINVAL && strstr(err.text, "too small"),
          "'%s'", err.text);
    sl_file_close(&small);
}

static bool stop_now(void)
{
    return true;
}

static void test_stop(sl_file *f)
{
    sl_probe p = usual(SL_IO_PREAD);
    sl_probe_result r;
    p.seconds = 60;
    CHECK(sl_probe_run(f, &p, stop_now, &r, NULL) == SL_OK && r.wall_ns < 5000000000u,
          "stopped at once");
}

int main(void)
{
    sl_file *f = NULL;
    CHECK(make_file() && sl_file_open(path, &f, NULL) == SL_OK, "a test file");
    if (f) {
        test_engines(f);
        test_limit(f);
        test_stop(f);
        test_cached(f);
        test_errors(f);
    }
    sl_file_close(&f);
    unlink(path);
    return test_end();
}
