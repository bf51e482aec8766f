#include "warm_start.h"

#include <errno.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../stream/file.h"
#include "../stream/outfile.h"
#include "fnv.h"
#include "report.h"

static const char magic[8] = "SLWARM1\n";

typedef struct header {
    char magic[8];
    uint64_t model; /* hash of what it was made for */
    uint64_t n;     /* floats that follow, then their hash */
} header;

static uint64_t model_hash(const sl_setup *s)
{
    const sl_checkpoint *c = sl_model_checkpoint(s->model);
    uint64_t h = SL_FNV_START;
    for (uint32_t i = 0; i < sl_checkpoint_file_count(c); i++) {
        const sl_file *f = sl_checkpoint_file(c, i);
        char *path = realpath(f->path, NULL);
        h = path ? sl_fnv(h, path, strlen(path)) : h;
        free(path);
        h = sl_fnv(h, &f->size, sizeof f->size);
        h = sl_fnv(h, &f->mtime_ns, sizeof f->mtime_ns);
    }
    return h;
}

/* False: there is no place for it. */
static bool cache_path(char *out, size_t cap, uint64_t model, bool make)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && cache[0] == '/')
        n = snprintf(out, cap, "%s", cache);
    else if (home && home[0] == '/')
        n = snprintf(out, cap, "%s/.cache", home);
    if (n < 0 || (size_t)n + 64 > cap)
        return false;
    if (make && mkdir(out, 0700) != 0 && errno != EEXIST)
        return false;
    n += snprintf(out + n, cap - (size_t)n, "/sluice");
    if (make && mkdir(out, 0700) != 0 && errno != EEXIST)
        return false;
    snprintf(out + n, cap - (size_t)n, "/experts-%016llx.bin", (unsigned long long)model);
    return true;
}

static bool read_floats(FILE *f, uint64_t model, float *use, uint32_t n)
{
    header h;
    uint64_t sum;
    return fread(&h, sizeof h, 1, f) == 1 && !memcmp(h.magic, magic, sizeof magic) &&
           h.model == model && h.n == n && fread(use, sizeof *use, n, f) == n &&
           fread(&sum, sizeof sum, 1, f) == 1 && sum == sl_fnv(h.model, use, n * sizeof *use);
}

float *sl_warm_start_uses(const sl_setup *s, uint32_t n)
{
    const uint64_t model = model_hash(s);
    char path[PATH_MAX];
    if (!n || !cache_path(path, sizeof path, model, false))
        return NULL;
    FILE *f = fopen(path, "rb");
    float *use = f ? malloc(n * sizeof *use) : NULL;
    if (use && !read_floats(f, model, use, n)) {
        sl_log(SL_LOG_NOTE, "%s: damaged or of another version; not used", path);
        free(use);
        use = NULL;
    }
    if (f)
        fclose(f);
    return use;
}

void sl_warm_start_load(const sl_setup *s)
{
    sl_stream *stream = sl_model_stream(s->model);
    float *use = sl_warm_start_uses(s, sl_stream_split_of(stream)->on_demand_parts);
    if (use)
        sl_stream_uses_set(stream, use);
    free(use);
}

static sl_status write_file(const char *path, uint64_t model, const float *use, uint32_t n,
                            sl_err *err)
{
    header h = {.model = model, .n = n};
    const uint64_t sum = sl_fnv(model, use, n * sizeof *use);
    sl_outfile f;
    memcpy(h.magic, magic, sizeof magic);
    sl_status st = sl_outfile_open(&f, path, err);
    if (st)
        return st;
    st = sl_outfile_write(&f, &h, sizeof h, err);
    if (!st)
        st = sl_outfile_write(&f, use, n * sizeof *use, err);
    if (!st)
        st = sl_outfile_write(&f, &sum, sizeof sum, err);
    if (!st)
        st = sl_outfile_commit(&f, err);
    sl_outfile_abort(&f);
    return st;
}

void sl_warm_start_save(const sl_setup *s)
{
    sl_stream *stream = sl_model_stream(s->model);
    const uint32_t n = sl_stream_split_of(stream)->on_demand_parts;
    const uint64_t model = model_hash(s);
    char path[PATH_MAX];
    sl_err err = {0};
    if (!n)
        return;
    float *use = malloc(n * sizeof *use);
    if (!use || !cache_path(path, sizeof path, model, true)) {
        free(use);
        return; /* no home: nothing is kept */
    }
    sl_stream_uses_get(stream, use);
    if (write_file(path, model, use, n, &err))
        sl_log(SL_LOG_NOTE, "how much the experts were used is not kept: %s", err.text);
    free(use);
}
