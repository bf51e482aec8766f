/* The scheduler: which read goes out next, and what is resident. A state machine without threads
 * and without an engine: the caller holds one lock round every call, carries reads to an engine and
 * results back, and gives the clock, so that a simulator can run the same code in its own time.
 *
 * States of a part (sl_resident.state) and who moves it:
 *
 *            cursor_pull, demand_start             first piece: cut
 *   ABSENT ---------------------------> QUEUED -----------------------> READING
 *     ^ ^                                 |                               | |
 *     | |  slot_drop (nothing in flight)  |      last piece: fetch_end    | |
 *     | +---------------------------------+                               | |
 *     |                                                                   | |
 *     +---------------- fetch_end, when slot_drop came before ------------+ |
 *     |                                                                     |
 *     +-- sl_sched_leave, slot_drop ------- READY <-------- all arrived ----+
 *     |                                                                     |
 *     +-- sl_sched_pass_end, slot_drop ---- FAILED <------- a read failed --+
 *
 * A pinned part stays READY. A streamed part has a ring slot from QUEUED on; its memory is not used
 * again while a read into it is in flight. An on-demand part has a pool slot from QUEUED on, stays
 * READY when nobody wants it any more, and becomes ABSENT when another takes its slot; between
 * READING and READY it is FIRST when its first stage is there. What the pass wants of it
 * (sl_resident.want):
 *
 *   NOTHING -- sl_sched_hint ----> HINTED
 *   NOTHING -- sl_sched_need ----> NEEDED
 *   HINTED --- sl_sched_need ----> NEEDED, or NOTHING when it names others of the unit
 *   HINTED --- sl_sched_hint ----> NOTHING when it names others of the unit
 *   NEEDED --- sl_sched_parts ---> GIVEN
 *   GIVEN ---- the next sl_sched_parts, sl_sched_leave, sl_sched_pass_end ----> NOTHING
 *
 * Only a READY part that nobody wants may lose its slot. */
#ifndef SL_SCHED_H
#define SL_SCHED_H

#include "io.h"
#include "pool.h"
#include "predict.h"
#include "ring.h"

enum {
    SL_SCHED_READS = 128, /* reads in flight at once, at most; an engine's depth */
    SL_HINT_UNITS = 4     /* units with on-demand parts that are hinted at once, at most */
};

typedef enum sl_part_state {
    SL_PART_ABSENT,
    SL_PART_QUEUED,
    SL_PART_READING,
    SL_PART_FIRST, /* on demand: the first stage is there */
    SL_PART_READY,
    SL_PART_FAILED
} sl_part_state;

typedef enum sl_want { SL_WANT_NOTHING, SL_WANT_HINTED, SL_WANT_NEEDED, SL_WANT_GIVEN } sl_want;

typedef enum sl_priority { SL_DEMAND, SL_SEQUENTIAL, SL_PREDICTED, SL_PRIORITIES } sl_priority;

typedef struct sl_failure {
    int errno_value; /* 0: the file ended early */
    uint32_t file, len;
    uint64_t offset;
} sl_failure;

typedef struct sl_fetch sl_fetch;

typedef struct sl_resident { /* a part */
    uint32_t part;
    uint8_t state; /* sl_part_state */
    uint8_t want;  /* sl_want, of an on-demand part */
    bool pinned, on_demand;
    bool given_up;      /* pinned at open, streamed for now: its memory is the kernel's */
    uint8_t guessed;    /* came because of a hint that was made so many units ahead, and nobody has
                           needed it yet; 0: no */
    uint8_t *data;      /* its slot; NULL when the engine has its own memory */
    uint8_t *home;      /* of a part that was pinned at open */
    sl_ring_slot *slot; /* of a streamed part that is not ABSENT */
    sl_fetch *fetch;    /* QUEUED or READING */
    sl_failure failure; /* FAILED */
} sl_resident;

struct sl_fetch { /* one part or one batch of rows on its way */
    sl_fetch *prev, *next;
    sl_resident *resident; /* NULL: rows */
    const sl_span *spans;
    uint32_t n_spans, span;
    uint64_t cut; /* bytes of the current span that went out */
    uint8_t *base;
    uint64_t pass;                       /* that will need it */
    uint64_t cut_bytes;                  /* in all */
    uint32_t in_flight, first_in_flight; /* reads; of these, of the first stage */
    uint8_t priority;
    bool listed, dropped, failed;
};

typedef struct sl_fetch_list {
    sl_fetch *first, *last;
} sl_fetch_list;

typedef struct sl_sched_config {
    const sl_plan *plan;
    const sl_stream_options *options; /* copied */
    const uint8_t *pinned;            /* by part; not kept */
    uint8_t *memory;                  /* the ring, then the pinned slots; NULL: engine's own */
    uint64_t ring_bytes;
    const sl_pool_plan *pool; /* its slots lie behind the pinned ones */
    uint64_t (*clock)(void *ctx);
    void (*release)(void *ctx, uint32_t part); /* NULL, or told when a slot is given back */
    void *ctx;                                 /* of both */
} sl_sched_config;

/* On-demand parts in the order in which they are to be read. */
typedef struct sl_queue {
    uint32_t *position; /* in sl_sched.resident */
    uint32_t n, next;   /* next: the first that may still have to be read */
    uint32_t unit;
} sl_queue;

/* A read that came back, for a trace. */
typedef struct sl_read_note {
    uint64_t submit_ns, done_ns;
    /* Of the time until done_ns, what no read before it was told: since the one before it came
     * back, or since it went out when none was out then. Sums to the time in which any was out. */
    uint64_t busy_ns;
    uint32_t bytes, part; /* part UINT32_MAX: rows */
    uint8_t priority;
} sl_read_note;

typedef struct sl_read_log {
    sl_read_note *note;
    uint32_t n, cap;
    uint64_t lost; /* reads for which there was no room */
} sl_read_log;

/* The hints of one unit. */
typedef struct sl_hints {
    sl_queue queue;
    /* Bytes that they brought and wasted, by how far ahead: [0] is the next unit. */
    uint64_t useful[SL_HINT_UNITS], wasted[SL_HINT_UNITS];
} sl_hints;

typedef struct sl_sched {
    const sl_plan *plan;
    sl_stream_options o;
    uint64_t (*clock)(void *ctx);
    void (*release)(void *ctx, uint32_t part);
    void *ctx;

    sl_resident *resident; /* ALWAYS parts in the pass's order, then the on-demand parts */
    uint32_t *position;    /* of a part */
    uint32_t *unit_first;  /* n_units + 1 positions */
    uint32_t n_order, n_on_demand;
    uint8_t *ring_memory;
    sl_ring ring;
    sl_ring_slot *slots;

    uint8_t *pool_memory;
    sl_pool pool; /* entry i: resident n_order + i */
    sl_queue need;
    sl_hints hints[SL_HINT_UNITS]; /* of the unit with rank r: number r % SL_HINT_UNITS */
    uint32_t queue_cap;            /* of need and hints */
    bool on_demand_failed;         /* some part is FAILED */
    sl_predict *predict;           /* by unit and how far ahead */
    sl_need_stats *unit_stats;     /* by unit; NULL: nothing on demand */
    uint32_t *rank;                /* by unit: units with on-demand parts before it */
    uint32_t needs_told;           /* such units that this pass has come past */

    sl_fetch_list list[SL_PRIORITIES];
    sl_fetch *fetches;
    sl_fetch *free_fetch; /* by next */
    uint32_t n_free_fetch;
    sl_read *reads;
    sl_read *free_read, *retry, *retry_last; /* by next */

    uint64_t pass;   /* the current or last one, from 1 */
    uint32_t end;    /* its end, a position */
    bool in_pass;    /* between begin and end */
    bool hints_flow; /* the pass reads ahead through hints: no limit on them in flight */
    uint32_t pass_rows;
    uint32_t waiting;     /* unit that the pass waits for, UINT32_MAX: none */
    uint32_t at_unit;     /* entered or waited for last, or the one behind it when that was left */
    uint64_t cursor_pass; /* the reader's: next to be fetched */
    uint32_t cursor;

    bool rows_busy;
    sl_failure rows_failure;
    bool rows_failed;

    uint64_t in_flight_bytes, predicted_in_flight;
    uint64_t paid_until; /* disk_limit: when the bytes sent so far are paid for */
    bool starved;        /* the last sl_sched_next() found nothing to read */
    bool news;           /* since then: something to read, or room for it */
    bool no_slot;        /* it found a part that is wanted, and no slot for it */
    uint64_t n_reads;    /* counts them, for fault injection */
    sl_read_log *log;    /* NULL, or where reads that come back are noted; the caller's */
    uint64_t busy_from;  /* with a log: the time until then has been told */
    sl_stream_stats stats;
} sl_sched;

/* Heap for a plan's scheduler. */
uint64_t sl_sched_memory_bytes(const sl_plan *p);
sl_status sl_sched_open(sl_sched *s, const sl_sched_config *c, sl_err *err);
void sl_sched_close(sl_sched *s);

/* The pass's side. */
void sl_sched_pass_begin(sl_sched *s, sl_pass_kind kind, uint32_t rows, uint32_t n_units);
void sl_sched_pass_end(sl_sched *s);
/* SL_OK: all there, and held until leave. SL_EAGAIN: asked for, with priority. SL_EIO, SL_EFORMAT:
 * a read failed. */
sl_status sl_sched_enter(sl_sched *s, uint32_t unit, sl_err *err);
void sl_sched_leave(sl_sched *s, uint32_t unit);
/* On-demand parts of the entered unit, once per unit. */
void sl_sched_need(sl_sched *s, uint32_t unit, const uint32_t *parts, const uint32_t *rows,
                   uint32_t n);
/* Takes back what was given before; then as sl_parts_next(), or SL_EAGAIN: none is there yet. */
sl_status sl_sched_parts(sl_sched *s, uint32_t *parts, uint32_t max, uint32_t *n, sl_err *err);
/* SL_OK: all stages of a given part are there. */
sl_status sl_sched_part_rest(sl_sched *s, uint32_t part, sl_err *err);
void sl_sched_hint(sl_sched *s, const uint32_t *parts, uint32_t n);
/* One batch at a time. spans (kept until done) go to base + span.at. */
void sl_sched_rows_start(sl_sched *s, const sl_span *spans, uint32_t n, uint8_t *base);
sl_status sl_sched_rows_state(sl_sched *s, sl_err *err); /* SL_EAGAIN: not yet */

/* A third one's side (drain.c): fewer slots for on-demand parts, or more again. slots: as many as
 * at open or fewer of each class. Those beyond are given up by sl_sched_drain(). */
void sl_sched_pool_limit(sl_sched *s, const sl_pool_plan *slots);
typedef enum sl_drain {
    SL_DRAIN_DONE, /* all have been given up */
    SL_DRAIN_HELD, /* the rest holds parts that are in use: again in a while */
    SL_DRAIN_MORE, /* again at once, without the lock in between */
    SL_DRAIN_MOVE  /* copy bytes from `from` to `to`, without the lock; then sl_sched_move_end() */
} sl_drain;
typedef struct sl_move { /* both NULL: the engine has its own memory, there is nothing to copy */
    const uint8_t *from;
    uint8_t *to;
    uint64_t bytes;
} sl_move;
/* Gives up (takes back) the memory of a part that was pinned at open: it is streamed (read once)
 * from its next use on. False: not now, since the pass may be reading it, or the reader would not
 * come to it before it is needed; or never, since the ring would be too small for its unit. */
bool sl_sched_give_up(sl_sched *s, uint32_t part);
bool sl_sched_take_back(sl_sched *s, uint32_t part);
/* keep: what is used least goes, and the rest moves together; otherwise what is in those slots
 * goes, which is faster. */
sl_drain sl_sched_drain(sl_sched *s, bool keep, sl_move *out);
void sl_sched_move_end(sl_sched *s);

/* The engine's side. Reads to go out now, at most max of them; *wait_ns: ask again after that long
 * even if nothing happens (UINT64_MAX: no need). */
uint32_t sl_sched_next(sl_sched *s, sl_read **out, uint32_t max, uint64_t *wait_ns);
/* A read came back. True: something that a pass may wait for has changed. */
bool sl_sched_done(sl_sched *s, sl_read *r);

#endif
