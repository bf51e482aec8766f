/* What every command that loads a model does the same way: open it, read its tokenizer, price the
 * budget, load, open a session; and the counters of its phases. Main thread only. */
#ifndef SL_SETUP_H
#define SL_SETUP_H

#include "../models/model.h"
#include "args.h"
#include "elastic.h"

/* What the command wants of the session. */
typedef struct sl_demand {
    uint32_t min_ctx;  /* positions that it cannot do without */
    uint32_t max_ctx;  /* positions that it can use; UINT32_MAX: as many as there are */
    uint32_t max_rows; /* the longest run of tokens that it evaluates at once */
    bool all_logits;
    uint64_t buffers_bytes; /* the command's own: sampler, ids, output */
} sl_demand;

/* The memory of a run under one limit: every term, and what the options that were left open became.
 */
typedef struct sl_price {
    sl_budget budget; /* limit and all terms, the weights' memory included */
    uint64_t floor_bytes;
    sl_budget floor; /* the floor's terms; limit = floor_bytes */
    uint64_t part_bytes;
    sl_session_options session;
    sl_stream_options stream;
    sl_split split;
} sl_price;

typedef struct sl_setup {
    sl_options options; /* as given to sl_setup_open(), with what sluice tune has kept */
    sl_options given;   /* as given */
    bool kept;          /* they differ */
    sl_model *model;
    const sl_tokenizer *tokenizer; /* NULL: none that works; why says the reason */
    sl_err why;
    sl_workers *workers;
    sl_session *session;
    sl_price price;
    uint64_t resident_bytes;    /* of this process when the tables had been read */
    uint64_t auto_bytes;        /* what --memory auto takes here */
    uint64_t reserve_bytes;     /* what it leaves to others */
    uint64_t elastic_bytes;     /* what following the machine, or a socket, takes */
    sl_elastic *elastic;        /* NULL: memory stays as it is */
    struct sl_profile *profile; /* of this run; NULL: none (run_profile.h) */
    char *profile_trace;        /* where its timeline is meanwhile */
    uint64_t block_bytes;       /* read for this process when it began */
} sl_setup;

/* Model (no weights), tokenizer, workers. Settings that sluice tune has kept for this model and
 * budget are used for run, eval and bench, and told, unless o->no_kept. Zeroes *s first; close it
 * also after an error. */
sl_status sl_setup_open(sl_setup *s, const sl_options *o, sl_err *err);
/* Pure arithmetic, but for the plan of the model, which is laid out anew for this limit (0: the
 * floor). SL_EBUDGET: under the floor; err names every term, and *out holds the floor. */
sl_status sl_setup_price(sl_setup *s, const sl_options *o, const sl_demand *d, uint64_t limit,
                         sl_price *out, sl_err *err);
/* The limit that the options ask for: auto, floor (0) or a size. */
uint64_t sl_setup_limit(const sl_setup *s, const sl_options *o);
/* Price, memory, I/O, session; says on stderr what was obtained. */
sl_status sl_setup_load(sl_setup *s, const sl_options *o, const sl_demand *d, sl_err *err);
void sl_setup_close(sl_setup *s);
/* All but what was recorded of the run. */
void sl_setup_release(sl_setup *s);

/* What the options say of how the stream goes about it (docs/tuning.md) goes to *out; what they
 * leave open stays as it is. */
void sl_setup_speed(const sl_options *o, sl_stream_options *out);

/* The rate that seconds per token are computed with, 0 if none was given, and the assumed one then.
 */
uint64_t sl_setup_disk_rate(const sl_options *o);
enum { SL_DISK_ASSUMED_MIB = 2048 };

/* The kernels that the options ask for; sl_setup_load() refuses a level that this CPU lacks. */
sl_cpu_level sl_setup_cpu_level(const sl_options *o);

/* Environment for tests (CONTRIBUTING.md): SL_FAULT_READ=N:errno, SL_REFUSE=io_uring,o_direct,...
 */
sl_status sl_setup_faults(sl_stream_options *o, sl_err *err);

#endif
