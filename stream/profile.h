/* What the events of a trace add up to: where the time of a run went, by mark, unit and part; what
 * the disk did meanwhile; and, for who wants to draw it, when. Fed with events in their order,
 * while a run goes on (sl_trace_options.told) or out of a file. Memory is taken at the start and
 * does not grow. One thread. Not here: words for people, files (runtime/). */
#ifndef SL_PROFILE_H
#define SL_PROFILE_H

#include "trace.h"

enum {
    SL_PROFILE_PHASES = 64,
    SL_PROFILE_ROWS = 200000, /* of the timeline that are worth keeping */
    SL_PROFILE_NONE = -1      /* no unit, no part */
};

/* Nanoseconds by mark. */
typedef struct sl_profile_work {
    uint64_t compute_ns[SL_TRACE_MARKS], wait_ns[SL_TRACE_MARKS];
} sl_profile_work;

typedef struct sl_profile_reads {
    uint64_t bytes, reads;
    uint64_t busy_ns;    /* shares of the time in which some read was out (sl_read_note) */
    uint64_t overlap_ns; /* of this, the pass was not waiting */
} sl_profile_reads;

/* Passes of one kind that follow each other: from the end of the phase before (the first: from its
 * first pass) to the end of the last pass. */
typedef struct sl_profile_phase {
    sl_pass_kind kind;
    uint64_t passes, rows;
    uint64_t start_ns, end_ns;
    sl_profile_work work; /* sums to the time between */
    sl_profile_reads io;  /* that came back in it */
} sl_profile_phase;

typedef struct sl_profile_unit {
    uint32_t mark; /* under which it is entered */
    /* From leaving the unit before it, or the pass's begin, to leaving it. */
    uint64_t compute_ns, wait_ns;
    sl_profile_reads io;
    /* Parts asked for: there; not there, nor on their way; there, brought for this use; still on
     * their way. needs = hits + misses + late. */
    uint64_t needs, hits, misses, in_time, late;
    uint64_t wasted_bytes;
    uint64_t guesses, guesses_right, guessed_needs; /* while decoding: of guessed_needs parts */
} sl_profile_unit;

typedef struct sl_profile_part { /* on demand */
    uint64_t needs, missed;      /* missed: came after it was asked for */
    sl_profile_reads io;
} sl_profile_part;

typedef struct sl_profile_sums {
    uint64_t wall_ns;     /* from the start of the program; all of work, before_ns and lost_ns */
    uint64_t before_ns;   /* until the recording begins */
    uint64_t lost_ns;     /* between events, in the recording itself */
    sl_profile_work work; /* of everything recorded */
    sl_profile_reads io, by_priority[SL_PRIORITIES];
    uint64_t io_cpu_ns;
    uint64_t lost_reads; /* in io, but in no unit */
    uint64_t passes;
    uint32_t n_phases;
    sl_profile_phase phase[SL_PROFILE_PHASES]; /* when all are used, the last one goes on */
    uint64_t rows;                             /* of the timeline */
    uint64_t kept_passes;                      /* passes before SL_PROFILE_ROWS were reached */
    bool whole;                                /* the end of the recording has come */
} sl_profile_sums;

/* Rows of a timeline: times since the start of the program; units as sl_profile_unit_of() has them.
 * Any may be NULL. */
typedef struct sl_profile_sink {
    void (*pass)(void *ctx, uint64_t start_ns, uint64_t end_ns, sl_pass_kind kind, uint32_t rows);
    void (*compute)(void *ctx, uint64_t start_ns, uint64_t ns, int64_t unit, uint32_t mark);
    void (*wait)(void *ctx, uint64_t start_ns, uint64_t ns, int64_t unit, int64_t part);
    void (*read)(void *ctx, uint64_t submit_ns, uint64_t done_ns, const sl_read_note *r,
                 int64_t unit, int64_t part);
    /* After each pass. needs: on-demand parts; io: since the pass before it ended. */
    void (*series)(void *ctx, uint64_t end_ns, sl_pass_kind kind, uint32_t rows, uint64_t needs,
                   uint64_t missed, uint64_t bytes, uint64_t wait_ns, uint64_t compute_ns);
    void *ctx;
} sl_profile_sink;

typedef struct sl_profile sl_profile;

/* Borrows the plan; sink (copied) may be NULL. before_ns: sl_trace_about. NULL: out of memory. */
sl_profile *sl_profile_new(const sl_plan *p, uint64_t before_ns, const sl_profile_sink *sink);
void sl_profile_free(sl_profile **p);
uint64_t sl_profile_memory_bytes(const sl_plan *p);

void sl_profile_take(sl_profile *p, const sl_trace_event *e);
/* All events of the trace, or those of its first passes. Rewinds it before and after. */
sl_status sl_profile_take_all(sl_profile *p, sl_trace *t, uint64_t passes, sl_err *err);

/* From here on another plan of the same units and parts, for the one of the beginning that goes. */
void sl_profile_plan(sl_profile *p, const sl_plan *plan);
/* After the last event. */
const sl_profile_sums *sl_profile_sums_of(sl_profile *p);
/* Units 0 .. n-1 are the plan's, unit n stands for all row tables. */
const sl_profile_unit *sl_profile_unit_of(const sl_profile *p, uint32_t unit);
const sl_profile_part *sl_profile_part_of(const sl_profile *p, uint32_t part);

#endif
