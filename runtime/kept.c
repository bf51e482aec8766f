#include "kept.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "../kernels/kernels.h"
#include "../kernels/workers.h"
#include "../stream/outfile.h"
#include "command.h"
#include "report.h"

enum { MOST_BYTES = 1 << 20 }; /* of a file: an entry has about 600 */

/* ---- this machine -----------------------------------------------------------------------------
 */
static bool cpu_name(char out[SL_KEPT_NAME])
{
    char line[256];
    bool found = false;
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        found = value && !strncmp(line, "model name", 10);
        if (found)
            snprintf(out, SL_KEPT_NAME, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
    }
    if (f)
        fclose(f);
    return found;
}

void sl_machine_look(sl_machine *out)
{
    struct utsname name;
    *out = (sl_machine){.cores = sl_cpu_physical_cores()};
    if (!cpu_name(out->cpu) && uname(&name) == 0)
        snprintf(out->cpu, sizeof out->cpu, "%s", name.machine);
    snprintf(out->level, sizeof out->level, "%s", sl_cpu_level_name(sl_cpu_best()));
}

bool sl_machine_same(const sl_machine *a, const sl_machine *b)
{
    return !strcmp(a->cpu, b->cpu) && !strcmp(a->level, b->level) && a->cores == b->cores;
}

/* ---- the model, and where its file is ---------------------------------------------------------
 */
static uint64_t hash(const char *text)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 0x100000001b3u;
    return h;
}

static void show_date(char out[24], time_t t)
{
    struct tm tm;
    if (!gmtime_r(&t, &tm) || !strftime(out, 24, "%Y-%m-%dT%H:%M:%SZ", &tm))
        out[0] = 0;
}

static sl_status identify(const sl_checkpoint *c, sl_kept *out, sl_err *err)
{
    uint64_t newest = 0;
    const char *first = sl_checkpoint_file(c, 0)->path;
    if (!realpath(first, out->model))
        return sl_fail_errno(err, errno, "%s: cannot follow", first);
    for (uint32_t i = 0; i < sl_checkpoint_file_count(c); i++) {
        const sl_file *f = sl_checkpoint_file(c, i);
        out->model_bytes += f->size;
        newest = f->mtime_ns > newest ? f->mtime_ns : newest;
    }
    show_date(out->model_date, (time_t)(newest / 1000000000));
    return SL_OK;
}

/* What a user calls the model: its file, or the folder of a file that is called as in all others.
 */
static void short_name(const char *path, char *out, size_t cap)
{
    const char *end = path + strlen(path), *base = strrchr(path, '/');
    if (base && base > path && !strcmp(end - strlen(".safetensors"), ".safetensors")) {
        end = base;
        while (base > path && base[-1] != '/')
            base--;
    } else {
        base = base ? base + 1 : path;
    }
    snprintf(out, cap, "%.*s", (int)(end - base < 120 ? end - base : 120), base);
}

static sl_status place(sl_kept *k, sl_err *err)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char name[128];
    int n = -1;
    short_name(k->model, name, sizeof name);
    if (config && config[0] == '/')
        n = snprintf(k->path, sizeof k->path, "%s", config);
    else if (home && home[0] == '/')
        n = snprintf(k->path, sizeof k->path, "%s/.config", home);
    if (n < 0 || (size_t)n + sizeof name + 40 > sizeof k->path) {
        k->path[0] = 0;
        return sl_fail(
            err, SL_EUNSUPPORTED,
            "no place to keep settings in: neither XDG_CONFIG_HOME nor HOME is a folder");
    }
    snprintf(k->path + n, sizeof k->path - (size_t)n, "/sluice/tuned/%s-%08x.json", name,
             (unsigned)(hash(k->model) & UINT32_MAX));
    return SL_OK;
}

/* ---- reading ----------------------------------------------------------------------------------
 */
static void take_text(const sl_json *object, const char *key, char *out, size_t cap)
{
    const char *text = sl_json_text(sl_json_get(object, key));
    snprintf(out, cap, "%s", text ? text : "");
}

static uint64_t take_uint(const sl_json *object, const char *key)
{
    int64_t v = 0;
    return sl_json_int(sl_json_get(object, key), &v) && v > 0 ? (uint64_t)v : 0;
}

static double take_number(const sl_json *object, const char *key)
{
    double v = 0;
    return sl_json_number(sl_json_get(object, key), &v) && isfinite(v) ? v : 0;
}

static void take_options(const sl_json *options, sl_kept_entry *e)
{
    for (const sl_json *j = sl_json_first(options); j; j = sl_json_next(j)) {
        const char *value = sl_json_text(j);
        if (!value)
            sl_fail(&e->bad, SL_EINVAL, "the value of '%.60s' is not a text", sl_json_key(j));
        else if (!strcmp(sl_json_key(j), "io") && !strcmp(value, "null"))
            sl_fail(&e->bad, SL_EINVAL, "io: 'null' computes on nothing, and is not kept");
        else
            sl_setting_add(&e->setting, sl_json_key(j), value, &e->bad);
    }
}

static void take_entry(const sl_json *j, sl_kept_entry *e)
{
    const sl_json *machine = sl_json_get(j, "machine");
    *e = (sl_kept_entry){.memory_bytes = take_uint(j, "memory"),
                         .default_s = take_number(j, "default_s"),
                         .tuned_s = take_number(j, "tuned_s"),
                         .gain = take_number(j, "gain"),
                         .pairs = (uint32_t)take_uint(j, "pairs"),
                         .faster = (uint32_t)take_uint(j, "faster"),
                         .n_prompt = (uint32_t)take_uint(j, "prompt_tokens"),
                         .n_tokens = (uint32_t)take_uint(j, "tokens")};
    take_text(machine, "cpu", e->machine.cpu, sizeof e->machine.cpu);
    take_text(machine, "level", e->machine.level, sizeof e->machine.level);
    e->machine.cores = (uint32_t)take_uint(machine, "cores");
    take_text(j, "date", e->date, sizeof e->date);
    take_text(j, "sluice", e->version, sizeof e->version);
    take_options(sl_json_get(j, "options"), e);
}

static sl_status take_all(const sl_json *j, sl_kept *k, sl_err *err)
{
    char date[24];
    int64_t version = 0;
    const sl_json *model = sl_json_get(j, "model"), *tuned = sl_json_get(j, "tuned");
    if (!sl_json_int(sl_json_get(j, "sluice_settings"), &version) || !model ||
        sl_json_type_of(tuned) != SL_JSON_ARRAY)
        return sl_fail(err, SL_EFORMAT, "%s: not a file of sluice tune", k->path);
    if (version != SL_KEPT_VERSION)
        return sl_fail(err, SL_EFORMAT, "%s: of version %" PRId64 "; this program reads version %d",
                       k->path, version, SL_KEPT_VERSION);
    take_text(model, "modified", date, sizeof date);
    k->changed = take_uint(model, "bytes") != k->model_bytes || strcmp(date, k->model_date) != 0;
    tuned = k->changed ? NULL : sl_json_first(tuned);
    for (; tuned && k->n < SL_KEPT_ENTRIES; tuned = sl_json_next(tuned))
        take_entry(tuned, &k->entry[k->n++]);
    return SL_OK;
}

static sl_status read_file(sl_kept *k, sl_err *err)
{
    struct stat st;
    char *text = NULL;
    uint64_t len = 0;
    sl_json *j = NULL;
    if (stat(k->path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? SL_OK
                   : sl_fail_errno(err, errno, "%s: cannot look at it", k->path);
    k->there = true;
    if (!S_ISREG(st.st_mode) || st.st_size > MOST_BYTES)
        return sl_fail(err, SL_EFORMAT, "%s: not a file of sluice tune", k->path);
    sl_status status = sl_read_input(k->path, &text, &len, err);
    if (!status)
        status = sl_json_parse(text, len, k->path, &j, err);
    if (!status)
        status = take_all(j, k, err);
    sl_json_free(&j);
    free(text);
    return status;
}

sl_status sl_kept_load(const sl_checkpoint *c, sl_kept *out, sl_err *err)
{
    *out = (sl_kept){0};
    sl_status st = identify(c, out, err);
    if (!st)
        st = place(out, err);
    return st ? st : read_file(out, err);
}

const char *sl_kept_budget(char *out, uint64_t memory_bytes)
{
    if (!memory_bytes)
        return "the floor";
    return sl_show_bytes(out, memory_bytes);
}

/* ---- finding ----------------------------------------------------------------------------------
 */
/* How far apart two budgets are, as a factor of at least 1. */
static double apart(uint64_t a, uint64_t b)
{
    const double x = (double)a, y = (double)b;
    if (a == b)
        return 1;
    return x <= 0 || y <= 0 ? (double)INFINITY : x > y ? x / y : y / x;
}

/* Of this machine, the one with the nearest budget; NULL: none. */
static const sl_kept_entry *nearest(const sl_kept *k, const sl_machine *m, uint64_t memory_bytes)
{
    const sl_kept_entry *best = NULL;
    for (uint32_t i = 0; i < k->n; i++) {
        const sl_kept_entry *e = &k->entry[i];
        if (sl_machine_same(&e->machine, m) &&
            (!best ||
             apart(e->memory_bytes, memory_bytes) < apart(best->memory_bytes, memory_bytes)))
            best = e;
    }
    return best;
}

const sl_kept_entry *sl_kept_find(const sl_kept *k, const sl_machine *m, uint64_t memory_bytes)
{
    const sl_kept_entry *e = nearest(k, m, memory_bytes);
    return e && apart(e->memory_bytes, memory_bytes) <= SL_KEPT_RATIO ? e : NULL;
}

/* ---- using ------------------------------------------------------------------------------------
 */
/* Why nothing of what there is can be used. */
static void say_why_not(const sl_kept *k, const sl_machine *m, uint64_t memory_bytes)
{
    char a[SL_SHORT], b[SL_SHORT];
    const sl_kept_entry *e = nearest(k, m, memory_bytes);
    if (k->changed)
        sl_log(SL_LOG_NOTE,
               "settings kept by sluice tune are not used: the model's size or date has changed "
               "since; tune again, or --no-kept");
    else if (e)
        sl_log(SL_LOG_NOTE,
               "settings kept by sluice tune are not used: they are for a budget of %s, this is %s",
               sl_kept_budget(a, e->memory_bytes), sl_kept_budget(b, memory_bytes));
    else if (k->n)
        sl_log(SL_LOG_NOTE,
               "settings kept by sluice tune are not used: they are for another machine (%s, %u "
               "cores, %s)",
               k->entry[0].machine.cpu, k->entry[0].machine.cores, k->entry[0].machine.level);
}

static bool use_entry(const sl_kept *k, const sl_kept_entry *e, sl_options *o)
{
    char text[SL_SETTING_TEXT];
    if (e->bad.code) {
        sl_log(SL_LOG_WARN, "%s: %s; its settings are not used", k->path, e->bad.text);
        return false;
    }
    const sl_setting used = sl_setting_apply(&e->setting, true, o);
    if (used.n)
        sl_log(SL_LOG_NOTE,
               "settings kept by sluice tune on %.10s: %s (%+.0f %%); --no-kept ignores them",
               e->date, sl_setting_show(text, &used), 100 * e->gain);
    return used.n > 0;
}

bool sl_kept_use(const sl_checkpoint *c, uint64_t memory_bytes, sl_options *o)
{
    sl_machine m;
    sl_err err = {0};
    bool used = false;
    sl_kept *k = malloc(sizeof *k);
    const sl_status st = k ? sl_kept_load(c, k, &err) : SL_EUNSUPPORTED;
    if (st && st != SL_EUNSUPPORTED) /* without a home, nothing can be there */
        sl_log(SL_LOG_WARN, "%s; no kept settings are used", err.text);
    if (!st && k->there) {
        sl_machine_look(&m);
        const sl_kept_entry *e = sl_kept_find(k, &m, memory_bytes);
        if (e)
            used = use_entry(k, e, o);
        else
            say_why_not(k, &m, memory_bytes);
    }
    free(k);
    return used;
}

/* ---- writing ----------------------------------------------------------------------------------
 */
static void write_entry(sl_json_writer *w, const sl_kept_entry *e)
{
    sl_json_write_object(w, NULL);
    sl_json_write_string(w, "date", e->date);
    sl_json_write_string(w, "sluice", e->version);
    sl_json_write_object(w, "machine");
    sl_json_write_string(w, "cpu", e->machine.cpu);
    sl_json_write_uint(w, "cores", e->machine.cores);
    sl_json_write_string(w, "level", e->machine.level);
    sl_json_write_close(w);
    sl_json_write_uint(w, "memory", e->memory_bytes);
    sl_json_write_object(w, "options");
    for (uint32_t i = 0; i < e->setting.n; i++)
        sl_json_write_string(w, e->setting.item[i].name, e->setting.item[i].value);
    sl_json_write_close(w);
    sl_json_write_double(w, "gain", e->gain);
    sl_json_write_double(w, "default_s", e->default_s);
    sl_json_write_double(w, "tuned_s", e->tuned_s);
    sl_json_write_uint(w, "pairs", e->pairs);
    sl_json_write_uint(w, "faster", e->faster);
    sl_json_write_uint(w, "prompt_tokens", e->n_prompt);
    sl_json_write_uint(w, "tokens", e->n_tokens);
    sl_json_write_close(w);
}

static sl_status as_text(const sl_kept *k, char **text, sl_err *err)
{
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "%s: out of memory", k->path);
    sl_json_write_object(w, NULL);
    sl_json_write_uint(w, "sluice_settings", SL_KEPT_VERSION);
    sl_json_write_object(w, "model");
    sl_json_write_string(w, "path", k->model);
    sl_json_write_uint(w, "bytes", k->model_bytes);
    sl_json_write_string(w, "modified", k->model_date);
    sl_json_write_close(w);
    sl_json_write_array(w, "tuned");
    for (uint32_t i = 0; i < k->n; i++)
        write_entry(w, &k->entry[i]);
    sl_json_write_close(w);
    sl_json_write_close(w);
    const sl_status st = sl_json_write_end(w, true, text, err);
    sl_json_writer_free(&w);
    return st;
}

/* The folders above the file. */
static sl_status make_folders(const char *path, sl_err *err)
{
    char part[PATH_MAX];
    for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return sl_fail_errno(err, errno, "%s: cannot make this folder", part);
    }
    return SL_OK;
}

static sl_status write_file(const sl_kept *k, sl_err *err)
{
    char *text = NULL;
    sl_outfile f;
    sl_status st = as_text(k, &text, err);
    if (!st)
        st = make_folders(k->path, err);
    if (!st)
        st = sl_outfile_open(&f, k->path, err);
    if (!st) {
        st = sl_outfile_write(&f, text, strlen(text), err);
        if (!st)
            st = sl_outfile_write(&f, "\n", 1, err);
        if (!st)
            st = sl_outfile_commit(&f, err);
        sl_outfile_abort(&f);
    }
    free(text);
    return st;
}

sl_status sl_kept_check(const sl_kept *k, sl_err *err)
{
    sl_outfile f;
    sl_status st = make_folders(k->path, err);
    if (st)
        return st;
    st = sl_outfile_open(&f, k->path, err);
    sl_outfile_abort(&f);
    return st;
}

static void remove_entry(sl_kept *k, uint32_t at)
{
    memmove(&k->entry[at], &k->entry[at + 1], (--k->n - at) * sizeof k->entry[0]);
}

/* Drops what the new entry stands for, and what cannot be used any more. */
static void drop(sl_kept *k, const sl_machine *m, uint64_t memory_bytes)
{
    const sl_kept_entry *same = sl_kept_find(k, m, memory_bytes);
    uint32_t n = 0;
    for (; same; same = sl_kept_find(k, m, memory_bytes))
        remove_entry(k, (uint32_t)(same - k->entry));
    while (n < k->n)
        if (k->entry[n].bad.code)
            remove_entry(k, n);
        else
            n++;
    if (k->n == SL_KEPT_ENTRIES) /* the oldest */
        remove_entry(k, 0);
}

sl_status sl_kept_save(sl_kept *k, const sl_machine *m, uint64_t memory_bytes,
                       const sl_kept_entry *e, sl_err *err)
{
    drop(k, m, memory_bytes);
    if (e) {
        sl_kept_entry *to = &k->entry[k->n++];
        *to = *e;
        to->machine = *m;
        to->memory_bytes = memory_bytes;
        snprintf(to->version, sizeof to->version, "%s", SL_VERSION);
        show_date(to->date, time(NULL));
    }
    k->changed = false;
    return k->n || k->there ? write_file(k, err) : SL_OK;
}

sl_status sl_kept_remove(const sl_kept *k, bool *there, sl_err *err)
{
    *there = unlink(k->path) == 0;
    return *there || errno == ENOENT || errno == ENOTDIR
               ? SL_OK
               : sl_fail_errno(err, errno, "%s: cannot remove", k->path);
}
