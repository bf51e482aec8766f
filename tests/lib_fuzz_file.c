#include "lib_fuzz_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A few names are enough: one memfd each, and a link with the right ending that leads to it. */
static struct slot {
    char name[32], path[FUZZ_PATH];
    int fd;
} slots[4];
static char folder[] = "/tmp/sl_fuzz_XXXXXX";

static void clean(void)
{
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        if (slots[i].name[0])
            unlink(slots[i].path);
    rmdir(folder);
}

static void make_folder(void)
{
    static int made;
    if (made++)
        return;
    if (!mkdtemp(folder))
        abort();
    atexit(clean);
}

static struct slot *find_slot(const char *name)
{
    struct slot *s = slots, *end = slots + sizeof slots / sizeof *slots;
    while (s < end && s->name[0] && strcmp(s->name, name) != 0)
        s++;
    if (s == end)
        abort();
    if (!s->name[0]) {
        snprintf(s->name, sizeof s->name, "%s", name);
        snprintf(s->path, sizeof s->path, "%s/%s", folder, name);
        s->fd = memfd_create(name, 0);
    }
    return s;
}

void fuzz_file(const char *name, const void *data, size_t size, char path[FUZZ_PATH])
{
    char target[32];
    make_folder();
    struct slot *s = find_slot(name);
    snprintf(target, sizeof target, "/proc/self/fd/%d", s->fd);
    if (ftruncate(s->fd, 0) || pwrite(s->fd, data, size, 0) != (ssize_t)size)
        abort();
    if (access(s->path, F_OK) != 0 && symlink(target, s->path) != 0)
        abort();
    memcpy(path, s->path, FUZZ_PATH);
}

void fuzz_file_remove(const char *name)
{
    make_folder();
    unlink(find_slot(name)->path);
}
