#include "budgets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../stream/budget.h"
#include "words.h"

static bool add(sl_budgets *b, sl_memory_mode mode, uint64_t bytes)
{
    if (b->n == SL_BUDGETS_MOST)
        return false;
    b->item[b->n++] = (sl_memory_choice){mode, bytes};
    return true;
}

static bool add_range(sl_budgets *b, const char *text)
{
    uint64_t from, to, step;
    if (!sl_next_size(&text, ':', &from))
        return false;
    if (!text)
        return add(b, SL_MEMORY_BYTES, from);
    if (!sl_next_size(&text, ':', &to) || !sl_next_size(&text, ':', &step) || text || to < from ||
        (to - from) / step >= SL_BUDGETS_MOST)
        return false;
    const uint64_t n = (to - from) / step + 1;
    for (uint64_t i = 0; i < n; i++)
        if (!add(b, SL_MEMORY_BYTES, from + i * step))
            return false;
    return true;
}

static bool add_item(sl_budgets *b, const char *text, bool words)
{
    if (words && !strcmp(text, "auto"))
        return add(b, SL_MEMORY_AUTO, 0);
    if (words && !strcmp(text, "floor"))
        return add(b, SL_MEMORY_FLOOR, 0);
    return add_range(b, text);
}

sl_status sl_budgets_parse(const char *text, bool words, sl_budgets *out, sl_err *err)
{
    const char *at = text;
    char item[SL_WORD];
    *out = (sl_budgets){.item = calloc(SL_BUDGETS_MOST, sizeof *out->item)};
    if (!out->item)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    do {
        if (!sl_next_word(&at, ',', item) || !add_item(out, item, words))
            return sl_fail(err, SL_EINVAL,
                           "--memory: '%.60s' is not accepted; %sa size such as 6G, a list (4G,6G) "
                           "or a range FROM:TO:STEP is, at most %d in all",
                           text, words ? "auto, floor, " : "", SL_BUDGETS_MOST);
    } while (at);
    return SL_OK;
}

void sl_budgets_free(sl_budgets *b)
{
    free(b->item);
    *b = (sl_budgets){0};
}
