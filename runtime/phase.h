/* What a phase of a run (prefill, decode) took: time, bytes, waiting; the closing lines on stderr
 * and the JSON of --stats. */
#ifndef SL_PHASE_H
#define SL_PHASE_H

#include "../stream/json.h"
#include "setup.h"

typedef struct sl_phase {
    uint64_t tokens;
    double seconds;
    sl_stream_stats io; /* of this phase alone, once ended */
    uint64_t begin_ns;
} sl_phase;

typedef struct sl_run_report {
    sl_phase prefill, decode;
    const char *ended; /* "end token", "length", ...; a literal */
    uint64_t generated;
    uint64_t seed;
    bool sampled; /* the seed counts */
} sl_run_report;

void sl_phase_begin(sl_phase *p, const sl_setup *s);
void sl_phase_end(sl_phase *p, const sl_setup *s, uint64_t tokens);
void sl_phase_write(sl_json_writer *w, const char *key, const sl_phase *p);
/* How the memory for weights is used: "memory.weights" of docs/stats-format.md. part_bytes 0: not
 * known. */
void sl_split_write(sl_json_writer *w, const sl_split *split, uint64_t part_bytes);
/* Members that say what ran where: command, model, context, threads, memory, I/O. */
void sl_run_about_write(sl_json_writer *w, const sl_setup *s, const sl_options *o);

/* Whether o->stats can be written, before the work is done. */
sl_status sl_run_report_check(const sl_options *o, sl_err *err);
void sl_run_report_say(const sl_run_report *r, const sl_setup *s, const sl_options *o);
/* To o->stats, whole or not at all; nothing when it was not asked for. */
sl_status sl_run_report_write(const sl_run_report *r, const sl_setup *s, const sl_options *o,
                              sl_err *err);

#endif
