/* Streaming: parts of a model's files come into memory just ahead of the pass that needs them and
 * go behind it, inside a fixed number of bytes. Speaks of files, extents, parts, units, slots and
 * passes; what a unit computes is not known here. One thread (the pass) calls everything below on a
 * stream; the stream's own I/O thread does the reading. */
#ifndef SL_STREAM_H
#define SL_STREAM_H

#include "base.h"
#include "checkpoint.h"

/* ------------------------------------------------------------------------------------------------
 * plan A plan lists the units of a pass in execution order, and the parts that each needs. Built by
 * the model, then read-only. */
typedef struct sl_plan sl_plan;

typedef enum sl_part_kind {
    SL_PART_ALWAYS,   /* needed whenever its unit runs: pinned, or streamed through the ring */
    SL_PART_ON_DEMAND /* needed when routed: lives in the pool (experts) */
} sl_part_kind;

sl_plan *sl_plan_new(const sl_checkpoint *c); /* borrows the checkpoint; NULL: out of memory */
void sl_plan_free(sl_plan **p);
/* Each returns the new index; out of memory is remembered and reported by sl_stream_open(). name is
 * copied. */
uint32_t sl_plan_unit(sl_plan *p, const char *name);
uint32_t sl_plan_part(sl_plan *p, uint32_t unit, sl_part_kind kind);
uint32_t sl_plan_extent(sl_plan *p, uint32_t part,
                        sl_extent e); /* index of the extent within its part */
/* The extents added so far are the part's first stage: they are read first, and usable while the
 * rest is on its way. */
void sl_plan_part_stage(sl_plan *p, uint32_t part);
uint32_t sl_plan_row_table(sl_plan *p, const char *name, sl_extent e,
                           uint64_t row_bytes); /* a matrix read by row */

uint32_t sl_plan_unit_count(const sl_plan *p);
const char *sl_plan_unit_name(const sl_plan *p, uint32_t unit);
uint32_t sl_plan_part_count(const sl_plan *p);
typedef struct sl_part_view {
    const char *unit_name;
    uint32_t unit;
    sl_part_kind kind;
    uint32_t n_extents;
    uint64_t len_bytes;  /* sum of its extents */
    uint64_t slot_bytes; /* what it takes in memory: aligned supersets of its merged extents */
} sl_part_view;
sl_part_view sl_plan_part_view(const sl_plan *p, uint32_t part);
uint64_t sl_plan_always_bytes(
    const sl_plan *p); /* weight bytes of one pass (S in docs/streaming.md) */
uint64_t sl_plan_on_demand_bytes(const sl_plan *p);
uint64_t sl_plan_memory_bytes(const sl_plan *p); /* heap held by the plan's own tables */

/* ------------------------------------------------------------------------------------------------
 * split of the memory */
typedef enum sl_io { SL_IO_AUTO, SL_IO_DIRECT, SL_IO_MAPPED, SL_IO_PREAD, SL_IO_NULL } sl_io;
bool sl_io_parse(const char *text, sl_io *out);
const char *sl_io_name(sl_io io);

/* Which on-demand part gives up its slot: the least used, uses counting half after half_life rows;
 * the least recently used; the one with the fewest uses; the oldest that was not used meanwhile
 * (pool.h says more). */
typedef enum sl_policy { SL_POLICY_LRFU, SL_POLICY_LRU, SL_POLICY_LFU, SL_POLICY_S3FIFO } sl_policy;
enum { SL_POLICIES = SL_POLICY_S3FIFO + 1 };
const char *sl_policy_name(sl_policy policy); /* as the options have it: "lrfu" */

typedef struct sl_stream_options {
    sl_io io;
    uint64_t
        memory_bytes;    /* for parts, ring, row cache and I/O buffers together; from the budget */
    uint64_t ring_bytes; /* 0: chosen */
    uint64_t pool_bytes; /* for on-demand parts at least, even where ALWAYS parts then have to be
                            streamed; 0: what is left when those stay */
    uint64_t in_flight_bytes; /* default 24 MiB */
    uint64_t piece_bytes;     /* reads are cut to this; default 1 MiB */
    sl_policy policy;
    double half_life;    /* rows; default 16 */
    uint64_t hint_bytes; /* of guesses in flight while decoding; default 3 MiB */
    uint64_t disk_limit; /* bytes per second; 0: none. Emulates a slower disk. */
    uint32_t
        max_row_batch; /* most rows of a row table that one sl_rows_read() asks for; default 512 */
    /* Fault injection for tests: read number n (from 1) fails with this errno, or gives this many
     * bytes less; 0: none. */
    uint64_t fail_read;
    int fail_errno;
    uint64_t short_read;
    uint32_t refuse; /* SL_REFUSE_* bits: pretend that the kernel refuses, to test the fallbacks */
} sl_stream_options;
enum {
    SL_REFUSE_IO_URING = 1,
    SL_REFUSE_O_DIRECT = 2,
    SL_REFUSE_HUGE_PAGES = 4,
    SL_REFUSE_MEMLOCK = 8 /* no locked memory: io_uring as kernels before 5.12 refuse it then */
};
sl_stream_options sl_stream_defaults(void);

/* How memory_bytes would be used. Pure arithmetic: no I/O. */
typedef struct sl_split {
    sl_io io; /* AUTO resolved: direct when anything is streamed, mapped when everything fits */
    uint64_t floor_bytes;    /* the least memory_bytes that works */
    uint64_t pinned_bytes;   /* slot bytes of the pinned parts */
    uint64_t ring_bytes;     /* 0 when everything is pinned */
    uint64_t rows_bytes;     /* row cache and its I/O buffers */
    uint64_t io_bytes;       /* queues, tables, stacks of I/O threads, the kernel's page tables */
    uint64_t weights_bytes;  /* S: weight bytes of one pass */
    uint64_t streamed_bytes; /* S - R: of these, read again in every pass */
    uint32_t pinned_parts, streamed_parts;
    uint64_t pool_bytes;      /* of the slots for on-demand parts */
    uint64_t on_demand_bytes; /* of all on-demand parts */
    uint32_t pool_slots, on_demand_parts;
} sl_split;
/* Nothing is read twice. */
bool sl_split_all_stay(const sl_split *s);
/* SL_EBUDGET when memory_bytes < floor_bytes (*out is filled all the same, nothing pinned). An
 * error that was made while building the plan is reported here and by sl_stream_open(). */
sl_status sl_stream_split(const sl_plan *p, const sl_stream_options *o, sl_split *out, sl_err *err);

/* ------------------------------------------------------------------------------------------------
 * stream */
typedef struct sl_stream sl_stream;

/* Probes the engines (falls back one step at a time, each said once through sl_log), reserves the
 * memory, starts the I/O thread. Reads no weights yet: pinned parts are read when the first pass
 * comes near them. The plan must outlive the stream. */
sl_status sl_stream_open(const sl_plan *p, const sl_stream_options *o, sl_stream **out,
                         sl_err *err);
void sl_stream_close(sl_stream **s);
const sl_split *sl_stream_split_of(const sl_stream *s);
/* "direct (io_uring, O_DIRECT, huge pages)" and so on; refused: what was refused, "" if nothing.
 * Owned by the stream. */
const char *sl_stream_engine(const sl_stream *s);
const char *sl_stream_refused(const sl_stream *s);
/* The path of the file whose mapping holds the address; NULL: none. For a handler of SIGBUS, which
 * the system sends when a mapped file was cut short: may be called from one. */
const char *sl_stream_mapped_path(const sl_stream *s, const void *address);

/* Keeps a trace of all passes from here on (trace.h). A disk that fills up later is a warning, and
 * the run goes on. Takes SL_TRACE_MEMORY. */
struct sl_trace_event;
typedef struct sl_trace_options {
    const char *path;            /* where it is when it has ended; NULL: no file */
    const char *model, *command; /* names to tell */
    uint64_t other_bytes;        /* of the budget that memory_bytes came from, what went to others;
                                    0: not known */
    uint64_t before_ns;          /* from the start of the program until now */
    uint64_t max_bytes;          /* the file ends when it has so many; 0: any length */
    const char *const *marks;    /* names of the marks, n_marks of them; 0: one, "other" */
    uint32_t n_marks;
    /* NULL, or told of each event by the pass's thread, the file's end or not. */
    void (*told)(void *ctx, const struct sl_trace_event *e);
    void *ctx;
} sl_trace_options;
sl_status sl_stream_trace(sl_stream *s, const sl_trace_options *o, sl_err *err);
/* Ends it now instead of at close. Not SL_OK: there is no file, and err says why. */
sl_status sl_stream_trace_end(sl_stream *s, sl_err *err);
/* The pass (or what comes between passes) computes something else from here on: an index of the
 * trace's marks, 0 at first. Nothing without a trace. */
void sl_stream_mark(sl_stream *s, uint32_t mark);

/* A pass enters units 0 .. n_units-1, one after the other (fewer than the plan's when the head is
 * not wanted). Reads run ahead in that order and across the end: the next pass is taken to start at
 * unit 0. */
typedef enum sl_pass_kind { SL_PASS_PREFILL, SL_PASS_DECODE, SL_PASS_VERIFY } sl_pass_kind;
sl_status sl_pass_begin(sl_stream *s, sl_pass_kind kind, uint32_t rows, uint32_t n_units,
                        sl_err *err);
/* Also ends a pass early (error, cancel): the next one starts clean. */
void sl_pass_end(sl_stream *s);

/* Waits until the unit's ALWAYS parts are there; their bytes stay until sl_unit_leave().
 * SL_EIO: a read failed (err names file, offset and cause) and the pass has ended; the stream stays
 * usable, the next pass tries again. SL_EINVAL: not the next unit, or one is entered already; the
 * pass goes on. */
sl_status sl_unit_enter(sl_stream *s, uint32_t unit, sl_err *err);
void sl_unit_leave(sl_stream *s, uint32_t unit);
/* Bytes of one extent of an ALWAYS part of the entered unit, or of an on-demand part that
 * sl_parts_next() gave. Any alignment. Valid until sl_unit_leave() (sl_parts_next()). Any thread
 * may call it while the unit is entered. */
const void *sl_part_data(const sl_stream *s, uint32_t part, uint32_t extent);

/* On-demand parts of the entered unit (experts), once per unit: which ones this pass uses, and how
 * many of its rows use each (rows[i] >= 1; for the pool's counters). All that are missing go out at
 * once, in this order, as far as there are slots. SL_EINVAL: not on-demand parts of this unit. */
sl_status sl_parts_need(sl_stream *s, const uint32_t *parts, const uint32_t *rows, uint32_t n,
                        sl_err *err);
/* Waits until some of the needed parts are there (their first stage: sl_plan_part_stage()) and
 * gives up to max of them, each once: residents first, then as they arrive. *n = 0: all have been
 * given. Their bytes stay until the next call or sl_unit_leave(). A part may need the slot of one
 * that was given before, so the pass must not wait for all of them first. SL_EIO: as
 * sl_unit_enter(). */
sl_status sl_parts_next(sl_stream *s, uint32_t *parts, uint32_t max, uint32_t *n, sl_err *err);
/* Waits for the second stage of a part that sl_parts_next() gave. */
sl_status sl_part_rest(sl_stream *s, uint32_t part, sl_err *err);
/* Guesses what a later unit will need (all parts of one unit, the likeliest first): read when the
 * disk has nothing else to do. They expire when that unit says what it needs. Costs nothing when
 * guessing does not pay. */
void sl_parts_hint(sl_stream *s, const uint32_t *parts, uint32_t n);
/* As sl_part_data(), of any pinned ALWAYS part in the middle of a pass; NULL: not pinned, or not
 * read yet. */
const void *sl_part_peek(sl_stream *s, uint32_t part, uint32_t extent);

/* Rows of a row table, in one batch: row[i] goes to out + i * row_bytes. n <= max_row_batch. Inside
 * or outside a pass. SL_EIO: some of out is not filled; the pass, if there is one, goes on. */
sl_status sl_rows_read(sl_stream *s, uint32_t table, const uint32_t *row, uint32_t n, void *out,
                       sl_err *err);

/* What happened to the on-demand parts of a unit. */
typedef struct sl_need_stats {
    uint64_t needs;         /* parts asked for */
    uint64_t hits;          /* of these, there already: bytes that a guess brought included */
    uint64_t miss_bytes;    /* read because they were needed */
    uint64_t guesses;       /* parts hinted */
    uint64_t guesses_right; /* of these, needed then */
    uint64_t hints;         /* parts hinted that were not there */
    uint64_t hints_useful;  /* of these, needed and there in time */
    uint64_t hints_late;    /* needed, but still on their way */
    uint64_t hint_bytes;    /* read for guesses */
    uint64_t wasted_bytes;  /* of these, for parts that were not needed then */
} sl_need_stats;
/* sign -1: subtracts. */
void sl_need_stats_add(sl_need_stats *sum, const sl_need_stats *u, int sign);

typedef struct sl_stream_stats {
    uint64_t bytes_read; /* from disk (or page cache, by engine), aligned supersets included */
    uint64_t reads;
    uint64_t wait_ns; /* the pass waited for a part or a row */
    uint64_t waits;
    uint64_t passes;
    uint64_t rows_read, row_hits;
    uint64_t
        ahead_parts; /* parts whose first read went out before the pass that needs them had begun */
    uint64_t ahead_bytes;
    uint64_t max_in_flight; /* bytes */
    uint64_t io_cpu_ns;     /* CPU time of the I/O thread(s) */
    uint64_t evictions;     /* on-demand parts that lost their slot to another */
    sl_need_stats need;     /* of all units */
} sl_stream_stats;
void sl_stream_stats_get(sl_stream *s,
                         sl_stream_stats *out); /* since open; subtract two to get an interval */

/* How much of its memory a stream takes, as memory_bytes of the options: on-demand parts can do
 * with fewer slots; without such parts pinned ones can be streamed, if there is a ring; all else
 * stays as it was split. */
typedef struct sl_stream_room {
    uint64_t memory_bytes;                /* now */
    uint64_t least_bytes, most_bytes;     /* most: since open */
    uint32_t pool_slots, most_pool_slots; /* that may be given now, and at the most */
} sl_stream_room;
void sl_stream_room_get(sl_stream *s, sl_stream_room *out);
/* Makes it memory_bytes, within least and most, while passes go on in their own thread: the caller,
 * which may be any one thread, does the work, gives whole pieces of 2 MiB back to the kernel and
 * takes within_ns at the most. What is used most is kept for the first half of that time; what is
 * in the way after it goes. More memory is there at once, and charged as it is filled. SL_EAGAIN:
 * some parts are in use where memory is to be given back; call it again. */
sl_status sl_stream_resize(sl_stream *s, uint64_t memory_bytes, uint64_t within_ns);

/* How much each on-demand part was used, in the order of the plan (split.on_demand_parts of them):
 * log2 of the sum over its uses of 0.5^(age / half_life), -INFINITY: never. To keep for the next
 * time; set between open and the first pass. */
void sl_stream_uses_get(sl_stream *s, float *use);
void sl_stream_uses_set(sl_stream *s, const float *use);
/* Of one unit, since open; all zero for a unit without on-demand parts. */
void sl_stream_need_stats(sl_stream *s, uint32_t unit, sl_need_stats *out);

/* Passes that compute nothing over the plan's own files for about seconds: bytes per second that
 * this disk gives (under o->disk_limit, if any). Takes the plan's floor and 64 MiB while it runs,
 * but no more than o->memory_bytes unless that is 0. */
sl_status sl_stream_measure_disk(const sl_plan *p, const sl_stream_options *o, double seconds,
                                 double *bytes_per_s, sl_err *err);

#endif
