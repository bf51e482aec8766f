/* Rows of row tables: which of them are cached, how the others are read in waves. The pass's
 * thread only. */
#ifndef SL_ROWS_H
#define SL_ROWS_H

#include "plan.h"

typedef struct sl_row_want {
    uint32_t row, index; /* of the table; in the caller's list */
    uint64_t at;         /* in the bounce buffer */
} sl_row_want;

typedef struct sl_rows {
    const sl_plan *plan;
    uint32_t max_batch;
    sl_rows_need need;
    uint8_t *bounce, *cache;
    uint64_t *tag; /* of a cache row: table and row, plus 1; 0: empty */
    uint64_t slot_bytes;
    sl_row_want *want; /* max_batch */
    sl_span *spans;    /* one wave */
    uint32_t n_spans;
    uint64_t filled; /* of the bounce buffer */
    uint64_t n_read, n_hits;
} sl_rows;

/* Reads spans to base + span.at and waits for them. */
typedef sl_status sl_rows_fetch(void *ctx, const sl_span *spans, uint32_t n, uint8_t *base,
                                sl_err *err);

uint64_t sl_rows_memory_bytes(const sl_plan *p, const sl_stream_options *o); /* heap */
/* memory: bounce_bytes + cache_bytes of sl_rows_plan(), aligned as reads are; NULL: no bytes are
 * kept, and sl_rows_get()'s out is NULL too (a simulation). */
sl_status sl_rows_open(sl_rows *r, const sl_plan *p, const sl_stream_options *o, uint8_t *memory,
                       sl_err *err);
void sl_rows_close(sl_rows *r);
sl_status sl_rows_get(sl_rows *r, uint32_t table, const uint32_t *row, uint32_t n, void *out,
                      sl_rows_fetch *fetch, void *ctx, sl_err *err);

#endif
