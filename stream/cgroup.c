/* Memory cgroups, v1 and v2, also side by side: every group from ours up to the root of the mount
 * may have a limit; the one with the least left decides. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cgroup.h"

enum { TEXT_BYTES = 64 << 10, PATH_BYTES = 1024 };

typedef struct looker {
    sl_text_reader *read;
    void *ctx;
    char *text; /* TEXT_BYTES, of the file that is looked at */
    sl_memory_view *out;
} looker;

/* One memory controller: where it is mounted, and our group in it. */
typedef struct controller {
    bool v2;
    char mount[PATH_BYTES], root[PATH_BYTES], group[PATH_BYTES];
} controller;

bool sl_text_field(const char *text, const char *name, uint64_t unit, uint64_t *out)
{
    size_t n = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) != 0 || !strchr(": \t", line[n]) || !line[n])
            continue;
        const char *at = line + n;
        at += *at == ':';
        at += strspn(at, " \t");
        char *end;
        unsigned long long v = strtoull(at, &end, 10);
        return end != at && sl_mul_size(v, unit, out);
    }
    return false;
}

static bool number(looker *l, const char *folder, const char *name, uint64_t *out)
{
    char path[2 * PATH_BYTES + 64], *end;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!l->read(l->ctx, path, l->text, TEXT_BYTES))
        return false;
    *out = strtoull(l->text, &end, 10);
    return end != l->text; /* "max" is not a number */
}

static uint64_t stat_field(looker *l, const char *folder, const char *name)
{
    char path[2 * PATH_BYTES + 64];
    uint64_t v = 0;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (!l->read(l->ctx, path, l->text, TEXT_BYTES) || !sl_text_field(l->text, name, 1, &v))
        return 0;
    return v;
}

/* The limit of one group, if it has one and it leaves less than those seen so far. */
static void group_look(looker *l, const controller *c, const char *folder)
{
    uint64_t limit = UINT64_MAX, high, used = 0;
    if (!number(l, folder, c->v2 ? "memory.max" : "memory.limit_in_bytes", &limit))
        limit = UINT64_MAX;
    if (c->v2 && number(l, folder, "memory.high", &high) && high < limit)
        limit = high;
    if (limit >= (uint64_t)1 << 60) /* v1 has no word for "none", only a huge number */
        return;
    if (!number(l, folder, c->v2 ? "memory.current" : "memory.usage_in_bytes", &used))
        used = 0;
    /* Page cache that nobody has touched twice is given up without a fight. */
    uint64_t easy = stat_field(l, folder, c->v2 ? "inactive_file" : "total_inactive_file");
    used = used > easy ? used - easy : 0;
    uint64_t left = limit > used ? limit - used : 0;
    sl_memory_view *v = l->out;
    uint64_t best = v->cgroup_limit > v->cgroup_used ? v->cgroup_limit - v->cgroup_used : 0;
    if (v->cgroup_limit != UINT64_MAX && best <= left)
        return;
    v->cgroup_limit = limit;
    v->cgroup_used = used;
    snprintf(v->cgroup, sizeof v->cgroup, "%.*s", (int)sizeof v->cgroup - 1, folder);
}

static void groups_walk(looker *l, const controller *c)
{
    char folder[2 * PATH_BYTES];
    const char *group = c->group;
    size_t root = strcmp(c->root, "/") == 0 ? 0 : strlen(c->root);
    /* In a container the mount shows a subtree; a group outside it is invisible, its root is what
     * there is. */
    if (root)
        group = strncmp(group, c->root, root) == 0 ? group + root : "";
    int n = snprintf(folder, PATH_BYTES, "%s%s", c->mount, strcmp(group, "/") == 0 ? "" : group);
    if (n < 0 || n >= PATH_BYTES)
        return;
    for (size_t least = strlen(c->mount);;) {
        group_look(l, c, folder);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < least)
            break;
        *slash = 0;
    }
}

static bool word_in(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at && *at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == 0))
            return true;
    }
    return false;
}

/* "4:memory:/a/b" (v1) or "0::/a/b" (v2) */
static bool group_find(const char *text, controller *c)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        char controllers[256] = "";
        line += *line == '\n';
        const char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        const char *end = line + strcspn(line, "\n");
        if (!second || second > end)
            continue;
        snprintf(controllers, sizeof controllers, "%.*s", (int)(second - first - 1), first + 1);
        if (c->v2 ? controllers[0] != 0 : !word_in(controllers, "memory"))
            continue;
        int n = snprintf(c->group, sizeof c->group, "%.*s", (int)(end - second - 1), second + 1);
        return n > 0 && n < (int)sizeof c->group;
    }
    return false;
}

/* mountinfo: "35 31 0:32 ROOT MOUNT options [more] - TYPE SOURCE OPTIONS" */
static bool mount_find(const char *text, controller *c)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        char copy[4096], type[32], options[1024];
        line += *line == '\n';
        snprintf(copy, sizeof copy, "%.*s", (int)strcspn(line, "\n"), line);
        const char *tail = strstr(copy, " - ");
        if (!tail || sscanf(tail + 3, "%31s %*s %1023s", type, options) != 2)
            continue;
        if (strcmp(type, c->v2 ? "cgroup2" : "cgroup") != 0 ||
            (!c->v2 && !word_in(options, "memory")))
            continue;
        return sscanf(copy, "%*s %*s %*s %1023s %1023s", c->root, c->mount) == 2;
    }
    return false;
}

static void controller_look(looker *l, bool v2)
{
    controller c = {.v2 = v2};
    if (l->read(l->ctx, "/proc/self/mountinfo", l->text, TEXT_BYTES) && mount_find(l->text, &c) &&
        l->read(l->ctx, "/proc/self/cgroup", l->text, TEXT_BYTES) && group_find(l->text, &c))
        groups_walk(l, &c);
}

sl_status sl_memory_look_with(sl_text_reader *read, void *ctx, sl_memory_view *out, sl_err *err)
{
    *out = (sl_memory_view){.cgroup_limit = UINT64_MAX};
    looker l = {.read = read, .ctx = ctx, .text = malloc(TEXT_BYTES), .out = out};
    if (!l.text)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    bool ok = read(ctx, "/proc/meminfo", l.text, TEXT_BYTES) &&
              sl_text_field(l.text, "MemTotal", 1024, &out->total_bytes) &&
              sl_text_field(l.text, "MemAvailable", 1024, &out->available_bytes);
    if (ok) {
        controller_look(&l, false);
        controller_look(&l, true);
    }
    free(l.text);
    return ok ? SL_OK : sl_fail(err, SL_EIO, "/proc/meminfo: no MemTotal and MemAvailable");
}

bool sl_text_read(void *ctx, const char *path, char *text, size_t cap)
{
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    for (ssize_t k; n + 1 < cap && (k = read(fd, text + n, cap - 1 - n)) > 0;)
        n += (size_t)k;
    close(fd);
    text[n] = 0;
    return true;
}

sl_status sl_memory_look(sl_memory_view *out, sl_err *err)
{
    return sl_memory_look_with(sl_text_read, NULL, out, err);
}

sl_status sl_memory_use_now(sl_memory_use *out, sl_err *err)
{
    char text[8192];
    uint64_t shared = 0;
    *out = (sl_memory_use){0};
    if (!sl_text_read(NULL, "/proc/self/status", text, sizeof text) ||
        !sl_text_field(text, "RssAnon", 1024, &out->anon_bytes) ||
        !sl_text_field(text, "RssFile", 1024, &out->file_bytes) ||
        !sl_text_field(text, "VmHWM", 1024, &out->peak_bytes))
        return sl_fail(err, SL_EIO, "/proc/self/status: no RssAnon, RssFile and VmHWM");
    if (sl_text_field(text, "RssShmem", 1024, &shared))
        out->file_bytes += shared;
    return SL_OK;
}
