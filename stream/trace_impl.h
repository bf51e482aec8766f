/* Between the writer and the reader of traces: the file's constants. */
#ifndef SL_TRACE_IMPL_H
#define SL_TRACE_IMPL_H

#include "trace.h"

#define SL_TRACE_MAGIC "SLTRACE\n"
/* The longest time of an event: 13 days. */
#define SL_TRACE_MOST_NS ((uint64_t)1 << 50)

enum {
    SL_TRACE_MAGIC_LEN = 8,
    SL_TRACE_START = SL_TRACE_MAGIC_LEN + 4, /* of the first block */
    SL_TRACE_BLOCK_HEAD = 8,
    SL_TRACE_TAIL = 8 /* behind the empty block that ends a file */
};

/* Records before the first event. */
enum {
    SL_TRACE_ABOUT = 1,
    SL_TRACE_FILE,
    SL_TRACE_UNIT,
    SL_TRACE_PART,
    SL_TRACE_TABLE,
    SL_TRACE_PLANNED,
    SL_TRACE_MARK_NAME
};

#endif
