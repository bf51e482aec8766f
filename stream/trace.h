/* A trace: what a run asked of its stream, how long it computed and waited in between, and which
 * reads came back, in a file (docs/formats.md). Written by the pass's thread while it runs; read by
 * the simulator and the profile. The plan is in it, so a trace stands for itself.
 *
 * Writing: the stream calls sl_trace_call() when the pass calls it, and tells what was asked for
 * with one of the functions below just before it returns. What it waited in between is waiting, all
 * the rest is computing. Somebody may be told of each event as it is written, by the pass's thread.
 * A failed write is a warning, said once: the run goes on without a file. */
#ifndef SL_TRACE_H
#define SL_TRACE_H

#include "plan.h"
#include "sched.h"

enum {
    SL_TRACE_VERSION = 3, /* 1: without pool_bytes; 1, 2: without details; both are read as well */
    SL_TRACE_BLOCK = 1 << 20,  /* bytes of records that are compressed together */
    SL_TRACE_MEMORY = 4 << 20, /* what a writer takes */
    SL_TRACE_READS = 4096,     /* that came back, noted between two events; more are lost */
    SL_TRACE_MARKS = 16,       /* kinds of computing, at most */
    SL_TRACE_EXTENTS = 64,     /* of a part, at most */
    SL_TRACE_NAME = 4096,      /* bytes of a name, at most */
    SL_TRACE_MAX_ROWS = 1 << 17
};

struct sl_trace_event;

/* What is told of a run beside its plan. */
typedef struct sl_trace_about {
    const char *model;         /* its name */
    const char *command;       /* what ran, "" if unknown */
    const char *const *marks;  /* names of what the pass computes (sl_stream_mark()) */
    uint32_t n_marks;          /* at least one: that of the beginning and between passes */
    uint64_t before_ns;        /* from the start of the program to that of the trace */
    uint64_t max_bytes;        /* of the writer's file: then it ends; 0: any length */
    uint64_t other_bytes;      /* of the budget, for all but the stream; 0: unknown */
    sl_stream_options options; /* faults and refusals are not kept */
    uint64_t (*clock)(void);   /* the writer's; NULL: sl_now_ns() */
    /* The writer's, too: nanoseconds waited so far, as the stream counts them. The rest of a call
     * (locks, waking the I/O thread) counts as computing. NULL: all of a call is waiting. */
    const uint64_t *wait_ns;
    /* The writer's: NULL, or told of each event, with the lists of the caller; ctx for it. */
    void (*told)(void *ctx, const struct sl_trace_event *e);
    void *ctx;
} sl_trace_about;

/* ---- writing ---- */
typedef struct sl_trace_writer sl_trace_writer;

/* Writes beside path; NULL: no file, only about->told. The plan is written at once and not kept.
 */
sl_status sl_trace_create(const char *path, const sl_plan *p, const sl_trace_about *about,
                          sl_trace_writer **out, sl_err *err);
/* Ends the file and brings it to its place; a pass that has not ended ends here. Accepts NULL.
 * Not SL_OK: there is no file (err: why), whenever that was. */
sl_status sl_trace_finish(sl_trace_writer **t, sl_err *err);
/* Takes what has been noted, if anything was, and gives an empty log to go on with; NULL at first.
 * The notes are told with the next event. */
sl_read_log *sl_trace_reads(sl_trace_writer *t, sl_read_log *full);

void sl_trace_call(sl_trace_writer *t);
void sl_trace_pass(sl_trace_writer *t, sl_pass_kind kind, uint32_t rows, uint32_t n_units);
void sl_trace_enter(sl_trace_writer *t);
void sl_trace_need(sl_trace_writer *t, const uint32_t *parts, const uint32_t *rows, uint32_t n);
void sl_trace_given(sl_trace_writer *t, uint32_t max, const uint32_t *parts, uint32_t n);
void sl_trace_rest(sl_trace_writer *t, uint32_t part);
void sl_trace_hint(sl_trace_writer *t, const uint32_t *parts, uint32_t n);
void sl_trace_leave(sl_trace_writer *t);
void sl_trace_rows(sl_trace_writer *t, uint32_t table, const uint32_t *rows, uint32_t n);
void sl_trace_end(sl_trace_writer *t);
void sl_trace_uses(sl_trace_writer *t, const float *use, uint32_t n);
void sl_trace_mark(sl_trace_writer *t, uint32_t mark);
/* Counters so far, of a unit; of all. Outside a pass. */
void sl_trace_counts(sl_trace_writer *t, uint32_t unit, const sl_need_stats *n);
void sl_trace_totals(sl_trace_writer *t, const sl_stream_stats *s);

/* ---- reading ---- */
/* What the pass did; the numbers are the file's. */
typedef enum sl_trace_kind {
    SL_TRACE_PASS = 16,
    SL_TRACE_ENTER,
    SL_TRACE_NEED,
    SL_TRACE_GIVEN,
    SL_TRACE_REST,
    SL_TRACE_HINT,
    SL_TRACE_LEAVE,
    SL_TRACE_ROWS,
    SL_TRACE_END,
    SL_TRACE_USES, /* before the first pass: what sl_stream_uses_set() was told */
    /* Only for those who ask for details: */
    SL_TRACE_MARK,   /* the pass begins to compute something else */
    SL_TRACE_READ,   /* a read came back */
    SL_TRACE_COUNTS, /* of a unit, at the end and where prefill and decode meet */
    SL_TRACE_TOTALS, /* the last event of a trace that was not cut off */
    SL_TRACE_OVER    /* no more events */
} sl_trace_kind;

typedef struct sl_trace_event {
    sl_trace_kind kind;
    uint64_t compute_ns;           /* between the event before and this one */
    uint64_t waited_ns;            /* then, in the call that it tells of */
    uint64_t at_ns;                /* PASS, TOTALS: since the start of the trace, before it */
    sl_pass_kind pass;             /* PASS, END */
    uint32_t pass_rows;            /* likewise */
    uint32_t n_units;              /* PASS */
    uint32_t unit;                 /* of the part, entered or left */
    uint32_t part;                 /* REST */
    uint32_t table;                /* ROWS */
    uint32_t max;                  /* GIVEN: asked for at most */
    uint64_t wait_ns;              /* END: since the END before */
    uint32_t mark;                 /* MARK: what is computed from here on */
    sl_read_note read;             /* READ: times since the start of the trace */
    const sl_need_stats *counts;   /* COUNTS: of the unit, since the start */
    const sl_stream_stats *totals; /* TOTALS: bytes_read, io_cpu_ns */
    uint64_t lost;                 /* TOTALS: reads that no event tells of */
    uint32_t n;                    /* of the lists; the reader's, until its next call */
    const uint32_t *item;          /* NEED, GIVEN, HINT: parts; ROWS: rows; USES: bits of floats */
    const uint32_t *rows;          /* NEED: by part */
} sl_trace_event;

typedef struct sl_trace_sums {
    uint64_t events, needs, compute_ns;
    uint64_t passes;
    struct {
        uint64_t passes, rows, compute_ns, wait_ns;
    } prefill, decode; /* as the run was measured; a decode row is a token */
} sl_trace_sums;

typedef struct sl_trace sl_trace;

/* Reads all of it: whatever comes out of the functions below makes sense for the plan. SL_EFORMAT:
 * not a trace, damaged, cut short, or of a newer version. */
sl_status sl_trace_open(const char *path, sl_trace **out, sl_err *err);
void sl_trace_close(sl_trace **t);
const sl_plan *sl_trace_plan(const sl_trace *t);
const sl_trace_about *sl_trace_about_of(const sl_trace *t);
const sl_trace_sums *sl_trace_sums_of(const sl_trace *t);
/* Up to 2: without waits of single events, and without details. */
uint32_t sl_trace_version(const sl_trace *t);
/* Back to the first event; details: whether MARK, READ, COUNTS and TOTALS come too. Without them,
 * what was computed before a MARK counts for the event behind it. */
void sl_trace_rewind(sl_trace *t, bool details);
sl_status sl_trace_next(sl_trace *t, sl_trace_event *e, sl_err *err);

#endif
