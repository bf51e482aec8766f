/* Items of short lists, as options hold them: "2G,80,32", "2G:8G:2G". */
#ifndef SL_WORDS_H
#define SL_WORDS_H

#include "../stream/base.h"

enum { SL_WORD = 64 };

/* The item at *at, up to the mark or the end; *at then points behind the mark, or is NULL at the
 * end. false: there is none (*at is NULL), or it is empty or too long. */
bool sl_next_word(const char **at, char mark, char out[SL_WORD]);
/* The same, read as a size of at least one byte. */
bool sl_next_size(const char **at, char mark, uint64_t *out);

#endif
