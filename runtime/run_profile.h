/* The profile of a run: recorded by the stream while it runs (stream/profile.h), then said as a
 * table and a verdict, and written as JSON (docs/profile-format.md), trace events and a page. Main
 * thread only; the recording is fed by the thread that evaluates, which is the same. */
#ifndef SL_RUN_PROFILE_H
#define SL_RUN_PROFILE_H

#include "../stream/profile.h"
#include "setup.h"

/* The options ask for one. */
bool sl_profile_wanted(const sl_options *o);
/* Whether all that they ask for can be written, before the work is done. */
sl_status sl_profile_check(const sl_options *o, sl_err *err);

/* Begins what was asked for of --trace and of a profile. The timeline of a profile goes to a
 * temporary trace; where none can be made, a note says that it will be missing. */
sl_status sl_recording_begin(sl_setup *s, const sl_options *o, sl_err *err);
/* What it takes of the budget, with the plan as it is now. */
uint64_t sl_recording_bytes(const sl_setup *s, const sl_options *o);
void sl_recording_close(sl_setup *s);

/* After the last token: ends the recording, gives all memory of the run back (the setup is closed)
 * and reports; nothing without a profile. The table goes to stdout for `profile`, unless that takes
 * a document; to stderr otherwise. */
sl_status sl_profile_end(sl_setup *s, const sl_options *o, sl_err *err);
/* The same of the trace o->operand. */
sl_status sl_profile_of_trace(const sl_options *o, sl_err *err);
/* The file begins as a trace does, or is called one. */
bool sl_profile_is_trace(const char *path);

/* ---- between the files of the report ---- */

enum { SL_WHAT_IFS = 3, SL_VERDICT = 256, SL_CPU_NAME = 80 };

/* The recorded run with more memory, simulated. */
typedef struct sl_what_if {
    uint64_t more_bytes;
    double seconds, gain; /* of the last phase; tokens per second: 0.4 is 40 % more */
} sl_what_if;

typedef struct sl_profile_report {
    const sl_options *o;
    const char *model, *command;
    const sl_plan *plan;
    sl_profile *profile;
    const sl_profile_sums *sums;
    const char *const *marks; /* names */
    uint32_t n_marks;
    sl_trace *trace; /* NULL: there is none, and so no timeline */
    uint64_t passes; /* of the timeline, the first ones */
    bool complete;   /* these are all, and have all reads */
    sl_stream_options stream;
    sl_split split;
    sl_budget budget; /* of a trace: two terms, or the second alone */
    /* Of a live run: */
    bool live;
    char cpu[SL_CPU_NAME], engine[160];
    const char *cpu_level;
    unsigned n_threads;
    uint64_t machine_bytes, part_bytes, block_bytes;
    uint32_t chunk;
    int32_t predict;

    sl_what_if what_if[SL_WHAT_IFS];
    uint32_t n_what_ifs;
    char verdict[SL_VERDICT];
} sl_profile_report;

/* Seconds of one mark over the whole, and the name that docs/profile-format.md has for it. */
double sl_profile_other_s(const sl_profile_report *r); /* what is left over, lost time included */
const char *sl_pass_name(sl_pass_kind kind);
/* The phase that the verdict is about: decoding, if there was any, else the last. NULL: no pass. */
const sl_profile_phase *sl_profile_main_phase(const sl_profile_report *r);
uint64_t sl_profile_waited_ns(const sl_profile_work *w);
uint64_t sl_profile_computed_ns(const sl_profile_work *w);

/* Simulates more memory, then fills verdict. */
void sl_profile_judge(sl_profile_report *r);
/* The table with the verdict as its last line; malloc'ed, the caller frees. NULL: out of memory. */
char *sl_profile_table(const sl_profile_report *r);
/* The documents; likewise, *len without the final NUL. */
sl_status sl_profile_json(const sl_profile_report *r, char **out, size_t *len, sl_err *err);
sl_status sl_profile_events(const sl_profile_report *r, char **out, size_t *len, sl_err *err);

#endif
