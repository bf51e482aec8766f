#include "ids.h"

#include <inttypes.h>
#include <string.h>

static bool is_separator(char c)
{
    return c && strchr(" \t\r\n,[]", c);
}

sl_status sl_ids_parse(const char *text, uint64_t len, const char *name, sl_ids *ids, sl_err *err)
{
    for (uint64_t i = 0; i < len;) {
        if (is_separator(text[i])) {
            i++;
            continue;
        }
        uint64_t begin = i;
        int64_t id = 0;
        for (; i < len && text[i] >= '0' && text[i] <= '9' && id <= INT32_MAX; i++)
            id = id * 10 + (text[i] - '0');
        bool ended = i == len || is_separator(text[i]);
        if (i == begin || !ended || id > INT32_MAX) {
            uint64_t word = 0;
            while (begin + word < len && word < 20 && !is_separator(text[begin + word]))
                word++;
            return sl_fail(err, SL_EINVAL,
                           "%s: at byte %" PRIu64
                           ": '%.*s' is not a token id; ids are whole numbers from 0 up",
                           name, begin, (int)word, text + begin);
        }
        sl_status st = sl_ids_push(ids, (int32_t)id, err);
        if (st)
            return st;
    }
    return SL_OK;
}
