/* Stop texts: holds output back as long as it may turn out to be the beginning of one, also across
 * token borders. */
#ifndef SL_STOP_H
#define SL_STOP_H

#include "../stream/base.h"

typedef struct sl_stop {
    const char *const *text; /* n_texts, each at least one byte */
    uint32_t n_texts;
    char *held;
    uint64_t n_held, cap;
} sl_stop;

/* room: the most bytes that one push adds. Borrows the texts. */
sl_status sl_stop_open(sl_stop *s, const char *const *text, uint32_t n_texts, uint64_t room,
                       sl_err *err);
void sl_stop_close(sl_stop *s);

/* Adds len bytes (at most room). *out, *out_len: what may be printed now, valid until the next
 * call. Returns true when a stop text was found: *out then ends just before the first one. */
bool sl_stop_push(sl_stop *s, const char *data, uint64_t len, const char **out, uint64_t *out_len);
/* The end of the output: what was held back. */
void sl_stop_end(sl_stop *s, const char **out, uint64_t *out_len);

#endif
