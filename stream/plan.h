/* Inside of a plan: parts with their spans (what is read) and places (where each extent then lies).
 * For the stream's own files; others use stream.h. Read-only once the stream is open. */
#ifndef SL_PLAN_H
#define SL_PLAN_H

#include "file.h"
#include "stream.h"

/* Extents of one file and stage that are nearer than this are read as one span: below about 64 KiB
 * a disk spends as long on a second request as on the bytes between. */
enum { SL_SPAN_GAP = 64 << 10, SL_ALIGN_MIN = 4096 };

/* One contiguous read: an aligned superset of some extents. len may reach past the end of the file
 * (by less than the alignment); need is what has to arrive. */
typedef struct sl_span {
    uint32_t file, stage;
    uint64_t offset; /* in the file; a multiple of the plan's alignment */
    uint64_t len;    /* likewise */
    uint64_t need;   /* bytes from offset up to the last wanted byte */
    uint64_t at;     /* in the slot; likewise a multiple */
} sl_span;

typedef struct sl_place {
    sl_extent extent;
    uint64_t at; /* first byte of the extent, in the slot */
} sl_place;

typedef struct sl_part {
    uint32_t unit;
    sl_part_kind kind;
    uint32_t n_places, places_cap, n_spans;
    sl_place *places; /* in the order they were added */
    sl_span *spans;   /* by stage, file and offset; at most n_places */
    uint64_t len_bytes, slot_bytes;
    uint32_t n_first_places, n_first_spans; /* of the first stage; 0: there is one stage */
} sl_part;

typedef struct sl_row_table {
    const char *name;
    sl_extent extent;
    uint64_t row_bytes;
} sl_row_table;

struct sl_plan {
    sl_arena *arena;
    sl_file **files;
    uint32_t n_files;
    uint64_t align; /* of reads: offset, length and memory */
    const char **units;
    uint32_t n_units, units_cap;
    sl_part *parts;
    uint32_t n_parts, parts_cap;
    sl_row_table *tables;
    uint32_t n_tables, tables_cap;
    sl_err err; /* the first thing that went wrong while building */
};

/* As sl_plan_new(), from files. Borrows them; copies the array. */
sl_plan *sl_plan_new_files(sl_file *const *files, uint32_t n);

uint32_t sl_plan_always_count(const sl_plan *p);
uint32_t sl_plan_on_demand_count(const sl_plan *p);
/* The ALWAYS parts in execution order (unit, then index): order has room for all of them,
 * unit_first for n_units + 1 positions in it. */
void sl_plan_order(const sl_plan *p, uint32_t *order, uint32_t *unit_first);

/* What rows and I/O take, from which sl_stream_split() starts. */
typedef struct sl_rows_need {
    uint64_t span_bytes;   /* the most that one row's aligned superset takes */
    uint64_t bounce_bytes; /* room for a wave of such reads */
    uint64_t cache_bytes;
    uint32_t cache_rows;
} sl_rows_need;
sl_rows_need sl_rows_plan(const sl_plan *p, const sl_stream_options *o);

/* As sl_stream_split(); pinned: NULL, or n_parts flags that say which parts stay; pool: NULL, or
 * the slots for the on-demand parts (pool.h). */
struct sl_pool_plan;
sl_status sl_split_choose(const sl_plan *p, const sl_stream_options *o, sl_split *out,
                          uint8_t *pinned, struct sl_pool_plan *pool, sl_err *err);

#endif
