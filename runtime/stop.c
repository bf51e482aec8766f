#include "stop.h"

#include <stdlib.h>
#include <string.h>

/* held[0 .. printed) is what the last call gave out; it goes away at the next one. */
sl_status sl_stop_open(sl_stop *s, const char *const *text, uint32_t n_texts, uint64_t room,
                       sl_err *err)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < n_texts; i++)
        longest = strlen(text[i]) > longest ? strlen(text[i]) : longest;
    *s = (sl_stop){.text = text, .n_texts = n_texts, .cap = longest + room + 1};
    s->held = malloc(s->cap);
    return s->held ? SL_OK : sl_fail(err, SL_ENOMEM, "out of memory for the stop texts");
}

void sl_stop_close(sl_stop *s)
{
    free(s->held);
    *s = (sl_stop){0};
}

static uint64_t first_match(const sl_stop *s, uint64_t n)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < s->n_texts; i++) {
        const char *at = memmem(s->held, n, s->text[i], strlen(s->text[i]));
        if (at && (uint64_t)(at - s->held) < first)
            first = (uint64_t)(at - s->held);
    }
    return first;
}

/* Bytes at the end of held[0 .. n) that are the beginning of a stop text. */
static uint64_t possible_beginning(const sl_stop *s, uint64_t n)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < s->n_texts; i++) {
        uint64_t len = strlen(s->text[i]) - 1;
        for (len = len < n ? len : n; len > most; len--)
            if (!memcmp(s->held + n - len, s->text[i], len))
                most = len;
    }
    return most;
}

bool sl_stop_push(sl_stop *s, const char *data, uint64_t len, const char **out, uint64_t *out_len)
{
    /* The bytes given out last time lie in front of the held ones, which were moved to the end. */
    uint64_t n = s->n_held + len;
    memmove(s->held, s->held + (s->cap - s->n_held), s->n_held);
    memcpy(s->held + s->n_held, data, len);
    *out = s->held;
    uint64_t found = first_match(s, n);
    if (found != UINT64_MAX) {
        *out_len = found;
        s->n_held = 0;
        return true;
    }
    s->n_held = possible_beginning(s, n);
    *out_len = n - s->n_held;
    memmove(s->held + (s->cap - s->n_held), s->held + *out_len, s->n_held);
    return false;
}

void sl_stop_end(sl_stop *s, const char **out, uint64_t *out_len)
{
    *out = s->held + (s->cap - s->n_held);
    *out_len = s->n_held;
    s->n_held = 0;
}
