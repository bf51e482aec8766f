/* Less at once and by as much as is missing, more slowly: a program that comes back every few
 * seconds must not make the same bytes be read each time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "follow.h"

static const uint64_t SECOND_NS = 1000000000;

enum {
    /* Somebody waited for memory a tenth of a second long in a second: more than the noise of a
     * busy machine (under one percent), less than what people notice as thrashing. */
    STALL_US = 100000,
    QUIET_SECONDS = 10, /* longer than the usual pause between two runs of a build or a test */
    STEPS = 16          /* from least to most in as many seconds; also what a stall costs */
};

static uint64_t less(uint64_t bytes, uint64_t by)
{
    return bytes > by ? bytes - by : 0;
}

sl_follow sl_follow_start(uint64_t least_bytes, uint64_t most_bytes, uint64_t reserve_bytes,
                          uint64_t now_ns)
{
    return (sl_follow){.least_bytes = least_bytes,
                       .most_bytes = most_bytes,
                       .reserve_bytes = reserve_bytes,
                       .trouble_ns = now_ns,
                       .grown_ns = now_ns,
                       .window_us = UINT64_MAX};
}

/* True once for each second in which somebody waited too long. Stalls of the whole machine are
 * mostly those of cgroups that thrash at limits of their own, which we cannot help: they count when
 * others have taken of the reserve as well. */
static bool stalled(sl_follow *f, const sl_follow_look *l)
{
    if (l->stalled_us == UINT64_MAX)
        return false;
    const bool first = f->window_us == UINT64_MAX;
    if (!first && l->now_ns - f->window_ns < SECOND_NS)
        return false;
    const uint64_t us = first ? 0 : l->stalled_us - f->window_us;
    const uint64_t ns = first ? 0 : l->now_ns - f->window_ns;
    f->window_ns = l->now_ns;
    f->window_us = l->stalled_us;
    if (first || us < STALL_US * ns / SECOND_NS)
        return false;
    return !l->machine_wide || l->left_bytes < (int64_t)f->reserve_bytes / 4 * 3;
}

uint64_t sl_follow_step(sl_follow *f, const sl_follow_look *l)
{
    const int64_t reserve = (int64_t)f->reserve_bytes;
    const uint64_t step = (f->most_bytes - f->least_bytes) / STEPS + 1;
    const uint64_t missing = less(f->most_bytes, l->memory_bytes);
    const uint64_t more = missing < step ? missing : step;
    uint64_t wish = l->memory_bytes;
    if (l->left_bytes < reserve / 2) /* small changes are not followed */
        wish = less(wish, (uint64_t)(reserve - l->left_bytes));
    if (stalled(f, l) && wish > less(l->memory_bytes, step))
        wish = less(l->memory_bytes, step);
    if (wish < l->memory_bytes) {
        f->trouble_ns = l->now_ns;
    } else if (l->now_ns - f->trouble_ns >= QUIET_SECONDS * SECOND_NS &&
               l->now_ns - f->grown_ns >= SECOND_NS && l->left_bytes >= reserve + (int64_t)more) {
        f->grown_ns = l->now_ns;
        wish += more;
    }
    return wish < f->least_bytes ? f->least_bytes : wish;
}

/* "some avg10=0.00 avg60=0.13 avg300=0.88 total=237391611" */
static bool total_of(const char *text, uint64_t *out)
{
    const char *at = strncmp(text, "some ", 5) == 0 ? strstr(text, "total=") : NULL;
    char *end = NULL;
    if (!at || at[6] < '0' || at[6] > '9')
        return false;
    *out = strtoull(at + 6, &end, 10);
    return true;
}

bool sl_pressure_look(sl_text_reader *read, void *ctx, const sl_memory_view *view,
                      uint64_t *stalled_us, bool *machine_wide)
{
    char path[sizeof view->cgroup + 32], text[512];
    snprintf(path, sizeof path, "%s/memory.pressure", view->cgroup);
    *machine_wide = false;
    if (view->cgroup[0] && read(ctx, path, text, sizeof text) && total_of(text, stalled_us))
        return true;
    *machine_wide = true;
    return read(ctx, "/proc/pressure/memory", text, sizeof text) && total_of(text, stalled_us);
}
