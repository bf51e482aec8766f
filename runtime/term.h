/* The terminal: what goes to stderr (notes, progress, errors), how wide and how colourful, and
 * stdout with its failures remembered. Log lines may come from any thread; the rest is the main
 * thread's. */
#ifndef SL_TERM_H
#define SL_TERM_H

#include "../stream/base.h"

/* Takes over the log hook: warnings and notes go to stderr as "warning: ..." and "note: ...",
 * debug lines only when verbose; quiet hides all of them and sl_say(). */
void sl_term_init(bool quiet, bool verbose);
bool sl_term_quiet(void);
/* When sl_term_init() was called: the start of the program. */
uint64_t sl_term_start_ns(void);
/* Columns of stderr; 80 when it is not a terminal. */
unsigned sl_term_width(void);

/* A line on stderr, unless quiet. */
void sl_say(const char *format, ...) SL_PRINTF(1, 2);
/* "sluice: error: ..." on stderr, always. Control bytes of the text are made visible. */
void sl_complain(const char *format, ...) SL_PRINTF(1, 2);

/* ---- stdout: written through these, so that a full disk or a closed pipe is noticed ---- */
/* false: a write has failed, now or before; the caller may stop. */
bool sl_out(const void *data, uint64_t len);
bool sl_outf(const char *format, ...) SL_PRINTF(1, 2);
bool sl_out_flush(void);
bool sl_out_failed(void);
/* The end of the program: flushes, and turns a failed write into its exit status (141 for a closed
 * pipe, without a message). */
int sl_out_end(int exit_status);

/* ---- progress of long work: nothing in the first two seconds; then one line that is redrawn on a
 * terminal, or a line every ten seconds elsewhere ---- */
typedef struct sl_progress {
    const char *what; /* "reading weights" */
    uint64_t total;   /* 0: unknown */
    bool bytes;       /* the count is of bytes */
    uint64_t start_ns, shown_ns;
} sl_progress;

void sl_progress_begin(sl_progress *p, const char *what, uint64_t total, bool bytes);
void sl_progress_update(sl_progress *p, uint64_t done);
void sl_progress_end(sl_progress *p);

/* ---- Ctrl-C: the first one asks to stop, the second one kills ---- */
void sl_interrupt_catch(void);
bool sl_interrupted(void);
int sl_interrupt_exit(void); /* 128 + the signal */

#endif
