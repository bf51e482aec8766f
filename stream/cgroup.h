/* What the kernel's text files say about memory. Files are read through a function, so that tests
 * can bring their own machine. */
#ifndef SL_CGROUP_H
#define SL_CGROUP_H

#include "budget.h"

/* Reads a file whole into text (cap bytes, terminated; a longer file is cut short). False: no such
 * file. */
typedef bool sl_text_reader(void *ctx, const char *path, char *text, size_t cap);
sl_text_reader sl_text_read; /* of this machine; ctx is not used */

/* As sl_memory_look(). */
sl_status sl_memory_look_with(sl_text_reader *read, void *ctx, sl_memory_view *out, sl_err *err);

/* "Name:   123 kB" (or, in memory.stat, "name 123") in a text of such lines. unit: what a number is
 * multiplied by. */
bool sl_text_field(const char *text, const char *name, uint64_t unit, uint64_t *out);

#endif
