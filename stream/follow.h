/* How memory follows a machine that changes: a rule, and what it looks at. It has no clock and
 * takes no memory itself; the caller does what it says. One thread. */
#ifndef SL_FOLLOW_H
#define SL_FOLLOW_H

#include "cgroup.h"

typedef struct sl_follow {
    uint64_t least_bytes, most_bytes; /* of what gives way, with all that does not */
    uint64_t reserve_bytes;           /* was to be left to others at the start */
    /* the rule's own: */
    uint64_t trouble_ns, grown_ns; /* when memory was last short, when it was last given */
    uint64_t window_ns, window_us; /* the present second, and the stalls when it began */
} sl_follow;

typedef struct sl_follow_look {
    uint64_t now_ns;       /* of any clock that does not jump */
    uint64_t memory_bytes; /* that the process may take now */
    /* What others may still take when the process has taken all of that; below zero: a limit has
     * fallen under what is used. */
    int64_t left_bytes;
    uint64_t stalled_us; /* that somebody waited for memory, so far; UINT64_MAX: not known */
    bool machine_wide;   /* anybody of the machine, not of our cgroup */
} sl_follow_look;

sl_follow sl_follow_start(uint64_t least_bytes, uint64_t most_bytes, uint64_t reserve_bytes,
                          uint64_t now_ns);
/* The memory that it should take from now on, from least to most. */
uint64_t sl_follow_step(sl_follow *f, const sl_follow_look *look);

/* The stalls of the cgroup that limits (its memory.pressure), else of the machine
 * (/proc/pressure/memory). False: this kernel counts none. */
bool sl_pressure_look(sl_text_reader *read, void *ctx, const sl_memory_view *view,
                      uint64_t *stalled_us, bool *machine_wide);

#endif
