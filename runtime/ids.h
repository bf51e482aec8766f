/* Token ids as text: decimal numbers separated by blanks, commas, lines; brackets are ignored, so
 * that a JSON array reads as well. */
#ifndef SL_IDS_H
#define SL_IDS_H

#include "../models/tokenizer.h"

/* Appends. name: the input, for messages. */
sl_status sl_ids_parse(const char *text, uint64_t len, const char *name, sl_ids *ids, sl_err *err);

#endif
