#include "words.h"

#include <stdio.h>
#include <string.h>

#include "../stream/budget.h"

bool sl_next_word(const char **at, char mark, char out[SL_WORD])
{
    if (!*at)
        return false;
    const char *end = strchr(*at, mark);
    const size_t len = end ? (size_t)(end - *at) : strlen(*at);
    if (!len || len >= SL_WORD)
        return false;
    snprintf(out, SL_WORD, "%.*s", (int)len, *at);
    *at = end ? end + 1 : NULL;
    return true;
}

bool sl_next_size(const char **at, char mark, uint64_t *out)
{
    char text[SL_WORD];
    return sl_next_word(at, mark, text) && sl_size_parse(text, out) && *out > 0;
}
