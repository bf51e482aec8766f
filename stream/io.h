/* I/O engines behind one table: how bytes arrive. What to read and when is not known here
 * (sched.h). One thread owns an engine: it calls start, submit, wait and release; open and close
 * happen while no thread does; wake and cpu_ns may be called from any thread. */
#ifndef SL_IO_H
#define SL_IO_H

#include "file.h"
#include "plan.h"

/* One read, cut from a span. The engine fills result and hands the read back from wait(). */
typedef struct sl_read {
    uint32_t file;
    uint32_t len;    /* as asked for: an aligned superset */
    uint32_t need;   /* of these, bytes that must arrive (less than len only at a span's end) */
    uint32_t done;   /* arrived in earlier tries; a multiple of the alignment */
    uint64_t offset; /* of the first byte, whatever done is */
    uint8_t *dest;   /* NULL: bring the range into the file's mapping */
    int32_t result;  /* bytes, or -errno */

    /* The scheduler's. */
    uint32_t fetch, tries;
    bool first_stage, predicted;
    uint8_t priority;     /* when it went out; an sl_priority */
    uint64_t submit_ns;   /* likewise, if there is a log */
    uint64_t number;      /* counts all reads, from 1 */
    struct sl_read *next; /* of the list that it is in */
} sl_read;

typedef struct sl_engine sl_engine;

typedef struct sl_engine_config {
    const sl_plan *plan;   /* files, alignment; kept by the engine */
    const uint8_t *pinned; /* by part; for what may be dropped behind. Not kept. */
    uint32_t depth;        /* the most reads in flight at once */
    uint32_t refuse;       /* SL_REFUSE_* */
    uint8_t *memory;       /* where destinations lie */
    uint64_t memory_bytes;
} sl_engine_config;

typedef struct sl_engine_ops {
    sl_status (*open)(const sl_engine_config *c, sl_engine **out, sl_err *err);
    void (*close)(sl_engine **e);
    /* Called once, by the thread that will own the engine. */
    sl_status (*start)(sl_engine *e, sl_err *err);
    void (*submit)(sl_engine *e, sl_read *const *reads, uint32_t n);
    /* Waits for completions or wake(), at most timeout_ns (UINT64_MAX: for ever). At most max reads
     * into done; returns how many, 0 after a timeout or a wake. */
    uint32_t (*wait)(sl_engine *e, uint64_t timeout_ns, sl_read **done, uint32_t max);
    void (*wake)(sl_engine *e);
    /* Where a file's byte lies when the engine brings its own memory; NULL member: in the slot. */
    const void *(*data)(const sl_engine *e, uint32_t file, uint64_t offset);
    /* The file whose mapping holds the address, UINT32_MAX: none; NULL member: it maps nothing. May
     * be called from a signal handler. */
    uint32_t (*mapped)(const sl_engine *e, const void *address);
    /* The part's bytes will not be wanted before the next pass; NULL member: nothing to do. */
    void (*release)(sl_engine *e, uint32_t part);
    uint64_t (*cpu_ns)(sl_engine *e);            /* of the engine's own threads, so far */
    const char *(*describe)(const sl_engine *e); /* "io_uring, O_DIRECT" */
} sl_engine_ops;

struct sl_engine { /* first member of every engine */
    const sl_engine_ops *ops;
    char refused[80]; /* what the kernel refused and the engine did without */
};

extern const sl_engine_ops sl_io_uring, sl_io_pread, sl_io_mapped, sl_io_null;

/* Descriptors for direct reads, beside the files' own. */
typedef struct sl_direct {
    int *fd; /* by file */
    uint32_t n;
} sl_direct;

/* Opens every file of the plan O_DIRECT and tries a real read of each. All or none: SL_EUNSUPPORTED
 * when one refuses (err says which and why). */
sl_status sl_direct_open(const sl_plan *p, uint32_t refuse, sl_direct *out, sl_err *err);
void sl_direct_close(sl_direct *d);

#endif
