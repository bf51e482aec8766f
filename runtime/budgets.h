/* The memory budgets of one command line: "4G", "3G,4G,6G", "2G:8G:2G", or several of these
 * separated by commas. Main thread only. */
#ifndef SL_BUDGETS_H
#define SL_BUDGETS_H

#include "args.h"

enum { SL_BUDGETS_MOST = 1000 };

typedef struct sl_memory_choice {
    sl_memory_mode mode;
    uint64_t bytes; /* of SL_MEMORY_BYTES */
} sl_memory_choice;

typedef struct sl_budgets {
    uint32_t n;
    sl_memory_choice *item; /* [n], malloc'ed */
} sl_budgets;

/* words: auto and floor are accepted, too. SL_EINVAL: err names --memory, the text and what is
 * accepted. Free *out also after an error. */
sl_status sl_budgets_parse(const char *text, bool words, sl_budgets *out, sl_err *err);
void sl_budgets_free(sl_budgets *b);

#endif
