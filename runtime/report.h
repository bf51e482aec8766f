/* Numbers for people and for programs: sizes and times as short text, JSON on stdout. */
#ifndef SL_REPORT_H
#define SL_REPORT_H

#include "../stream/json.h"

enum { SL_SHORT = 32 };

/* "512 B", "6.1 MiB", "1.94 GiB": powers of 1024, as the options read them. Each returns out, which
 * has SL_SHORT bytes. */
const char *sl_show_bytes(char *out, uint64_t bytes);
const char *sl_show_rate(char *out, double bytes_per_s); /* "1.94 GiB/s" */
const char *sl_show_seconds(char *out,
                            double seconds); /* "42 us", "8.1 ms", "0.95 s", "2 min 05 s" */

/* The time now, UTC, as ISO 8601: "2026-11-30T21:04:35Z". out has 24 bytes. */
void sl_show_now(char *out);

/* Ends the document, prints it indented with a final newline on stdout, frees the writer. */
sl_status sl_report_json(sl_json_writer **w, sl_err *err);

/* A whole input: FILE, or standard input for "-". malloc'ed, NUL appended, the caller frees. */
sl_status sl_read_input(const char *path, char **out, uint64_t *len, sl_err *err);

#endif
