/* tokenizer.json, any bytes: refused, or a tokenizer that turns any text into ids of its own and
 * back, whole and token by token alike. The text to encode is the document itself. */
#include <stdlib.h>
#include <string.h>

#include "../models/tokenizer.h"
#include "lib_fuzz.h"

enum { MOST_TEXT = 4096 };

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void stream(const sl_tokenizer *t, const sl_ids *ids, const char *whole, uint64_t len)
{
    char *out = malloc((size_t)sl_detok_room(t));
    sl_detok d = {0};
    uint64_t at = 0, n = 0;
    require(out != NULL);
    for (uint64_t i = 0; i <= ids->n; i++) {
        if (i < ids->n)
            require(sl_detok_push(&d, t, ids->id[i], false, out, &n, NULL) == SL_OK);
        else
            sl_detok_end(&d, out, &n);
        require(n <= len - at && memcmp(whole + at, out, (size_t)n) == 0);
        at += n;
    }
    require(at == len);
    free(out);
}

static void try_text(const sl_tokenizer *t, const char *text, uint64_t len, sl_special special)
{
    sl_ids ids = {0};
    char *back = NULL;
    uint64_t back_len = 0;
    if (sl_tokenizer_encode(t, text, len, special, &ids, NULL) == SL_OK &&
        sl_tokenizer_wrap(t, &ids, NULL) == SL_OK &&
        sl_tokenizer_decode(t, ids.id, ids.n, false, &back, &back_len, NULL) == SL_OK) {
        for (uint64_t i = 0; i < ids.n; i++)
            require(ids.id[i] >= 0 && (uint32_t)ids.id[i] < sl_tokenizer_size(t));
        if (sl_detok_room(t) < 1 << 16)
            stream(t, &ids, back, back_len);
    }
    free(back);
    sl_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = size ? (const char *)data : "";
    sl_tokenizer *t = NULL;
    sl_err err = {0};
    sl_status st = sl_tokenizer_from_json(text, size, "tokenizer.json", NULL, &t, &err);
    require((st == SL_OK) == (t != NULL) && err.code == st && (st == SL_OK || err.text[0]));
    if (t) {
        uint64_t len = size < MOST_TEXT ? size : MOST_TEXT;
        try_text(t, text, len, SL_SPECIAL_PARSE);
        try_text(t, text + size - len, len, SL_SPECIAL_TEXT);
    }
    sl_tokenizer_close(&t);
    return 0;
}
