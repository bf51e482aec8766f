/* Reading a trace. Nothing in the file is believed: records are decoded with bounds, and each event
 * is held against what a pass may do, so that who replays it need not look. */
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "compress.h"
#include "trace_impl.h"

enum {
    MOST_FILES = 4096,
    NOT_NEEDED = 0,
    NEEDED,
    GIVEN /* states of a part */
};
#define MOST_BYTES ((uint64_t)1 << 50)
#define NO_UNIT    UINT32_MAX

struct sl_trace {
    sl_file *file;
    uint32_t version;
    uint64_t offset; /* of the next block */
    uint64_t first_offset, first_at;
    uint8_t *block, *packed;
    uint64_t len, at; /* of the block: its length, the next byte */
    uint64_t block_offset;
    bool bad;  /* a record ran past its block, or a number is none */
    bool over; /* the empty block has come */

    char *model, *command;
    char *mark[SL_TRACE_MARKS];
    sl_trace_about about;
    sl_file *files; /* of the plan: sizes alone */
    uint32_t n_files;
    sl_plan *plan;
    sl_trace_sums sums;

    uint32_t *item, *rows; /* of the present event */
    uint32_t list_cap;
    /* where the pass is */
    uint64_t n_events;
    bool details;
    uint64_t carried_ns; /* computed before a MARK that is not shown */
    uint64_t waited_ns;  /* since the last pass's end */
    uint64_t read_ns;    /* when the last read came back */
    sl_need_stats counts;
    sl_stream_stats totals;
    bool begun, in_pass, needed; /* begun: a pass has */
    sl_pass_kind pass;
    uint32_t pass_rows, n_units, next_unit, entered;
    uint8_t *state; /* by part */
    uint32_t *wanted, n_wanted;
};

/* ---- blocks ---- */

static sl_status damaged(const sl_trace *t, const char *what, sl_err *err)
{
    return sl_fail(err, SL_EFORMAT, "%s: the trace is damaged: %s, in the block at offset %llu",
                   t->file->path, what, (unsigned long long)t->block_offset);
}

static sl_status cut_short(const sl_trace *t, sl_err *err)
{
    return sl_fail(err, SL_EFORMAT, "%s: the trace is cut short: it ends at offset %llu",
                   t->file->path, (unsigned long long)t->file->size);
}

static uint64_t fixed(const uint8_t *p, uint32_t size)
{
    sl_bytes b = sl_bytes_over(p, size);
    return sl_bytes_uint(&b, size);
}

static sl_status read_tail(sl_trace *t, sl_err *err)
{
    uint8_t tail[SL_TRACE_TAIL];
    if (t->file->size - t->offset < sizeof tail)
        return cut_short(t, err);
    sl_status st = sl_file_read(t->file, t->offset, tail, sizeof tail, err);
    if (st)
        return st;
    if (fixed(tail, sizeof tail) != t->n_events)
        return damaged(t, "another number of events than its end says", err);
    if (t->file->size - t->offset > sizeof tail)
        return damaged(t, "bytes behind its end", err);
    t->over = true;
    return SL_OK;
}

/* The next block; t->over: there is none. */
static sl_status next_block(sl_trace *t, sl_err *err)
{
    uint8_t head[SL_TRACE_BLOCK_HEAD];
    t->block_offset = t->offset;
    t->len = t->at = 0;
    if (t->file->size - t->offset < sizeof head)
        return cut_short(t, err);
    sl_status st = sl_file_read(t->file, t->offset, head, sizeof head, err);
    if (st)
        return st;
    t->offset += sizeof head;
    const uint64_t len = fixed(head, 4), packed = fixed(head + 4, 4);
    if (!len && !packed)
        return read_tail(t, err);
    if (!len || len > SL_TRACE_BLOCK || packed > sl_compressor_bound(SL_TRACE_BLOCK))
        return damaged(t, "a block of an impossible length", err);
    if (packed > t->file->size - t->offset)
        return cut_short(t, err);
    st = sl_file_read(t->file, t->offset, t->packed, packed, err);
    if (st)
        return st;
    t->offset += packed;
    if (!sl_compressor_unpack(t->packed, packed, t->block, len))
        return damaged(t, "a checksum is wrong", err);
    t->len = len;
    return SL_OK;
}

/* ---- records ---- */

static uint8_t get_byte(sl_trace *t)
{
    if (t->at < t->len)
        return t->block[t->at++];
    t->bad = true;
    return 0;
}

/* At most `most`, else the record is bad. */
static uint64_t get(sl_trace *t, uint64_t most)
{
    uint64_t v = 0;
    for (uint32_t shift = 0; shift < 64; shift += 7) {
        const uint64_t byte = get_byte(t);
        if (shift == 63 && byte > 1)
            break;
        v |= (byte & 127) << shift;
        if (byte < 128) {
            t->bad |= v > most;
            return t->bad ? 0 : v;
        }
    }
    t->bad = true;
    return 0;
}

static uint32_t get32(sl_trace *t, uint64_t most)
{
    return (uint32_t)get(t, most < UINT32_MAX ? most : UINT32_MAX);
}

/* malloc'ed; NULL: bad, or out of memory. */
static char *get_text(sl_trace *t)
{
    const uint64_t len = get(t, SL_TRACE_NAME);
    t->bad |= len > t->len - t->at || (len && memchr(t->block + t->at, 0, len));
    if (t->bad)
        return NULL;
    t->at += len;
    return strndup((const char *)t->block + t->at - len, len);
}

/* n numbers below limit, as steps. */
static void get_steps(sl_trace *t, uint32_t *out, uint32_t n, uint32_t limit)
{
    int64_t v = 0;
    for (uint32_t i = 0; i < n && !t->bad; i++) {
        const uint64_t step = get(t, (uint64_t)UINT32_MAX * 2);
        v += step & 1 ? -(int64_t)(step / 2) - 1 : (int64_t)(step / 2);
        t->bad |= v < 0 || v >= limit;
        out[i] = (uint32_t)v;
    }
}

/* ---- the plan ---- */

static void get_options(sl_trace *t, uint64_t *align)
{
    sl_stream_options *o = &t->about.options;
    *o = sl_stream_defaults();
    t->about.other_bytes = get(t, MOST_BYTES);
    *align = get(t, 1 << 20);
    t->bad |= *align < SL_ALIGN_MIN || (*align & (*align - 1));
    o->io = (sl_io)get(t, SL_IO_NULL);
    o->memory_bytes = get(t, MOST_BYTES);
    o->ring_bytes = get(t, MOST_BYTES);
    o->in_flight_bytes = get(t, MOST_BYTES);
    o->piece_bytes = get(t, MOST_BYTES);
    o->policy = (sl_policy)get(t, SL_POLICIES - 1);
    const uint64_t half_life = get(t, UINT64_MAX);
    memcpy(&o->half_life, &half_life, sizeof half_life);
    t->bad |= !(o->half_life >= 0.01 && o->half_life <= 1e9);
    o->hint_bytes = get(t, MOST_BYTES);
    o->disk_limit = get(t, MOST_BYTES);
    o->max_row_batch = get32(t, SL_TRACE_MAX_ROWS);
    if (t->version >= 2)
        o->pool_bytes = get(t, MOST_BYTES);
    if (t->version < 3)
        return;
    t->command = get_text(t);
    t->about.command = t->command;
    t->about.before_ns = get(t, SL_TRACE_MOST_NS);
}

static sl_status get_about(sl_trace *t, uint64_t *align, sl_err *err)
{
    t->bad |= get_byte(t) != SL_TRACE_ABOUT;
    t->model = get_text(t);
    get_options(t, align);
    if (!t->bad && (!t->model || (t->version > 2 && !t->command)))
        return sl_fail(err, SL_ENOMEM, "%s: out of memory", t->file->path);
    t->about.model = t->model;
    return t->bad ? damaged(t, "its first record is not one", err) : SL_OK;
}

/* Files come first, and the plan wants them all at once. */
static sl_status get_files(sl_trace *t, uint64_t align, sl_err *err)
{
    static char name[] = "a file of the trace";
    sl_file **list = NULL;
    sl_status st = SL_OK;
    t->files = calloc(MOST_FILES, sizeof *t->files);
    list = calloc(MOST_FILES, sizeof *list);
    for (; t->files && list && !t->bad && t->at < t->len && t->block[t->at] == SL_TRACE_FILE;) {
        t->at++;
        if (t->n_files == MOST_FILES) {
            t->bad = true;
            break;
        }
        sl_file *f = &t->files[t->n_files];
        *f = (sl_file){.path = name, .fd = -1, .size = get(t, MOST_BYTES)};
        list[t->n_files++] = f;
    }
    t->plan = list && t->files ? sl_plan_new_files(list, t->n_files) : NULL;
    free(list);
    if (!t->plan)
        st = sl_fail(err, SL_ENOMEM, "%s: out of memory", t->file->path);
    else
        t->plan->align = align;
    return st ? st : t->bad ? damaged(t, "a record of a file is not one", err) : SL_OK;
}

static void get_part(sl_trace *t)
{
    const uint32_t unit = get32(t, UINT32_MAX);
    const sl_part_kind kind = (sl_part_kind)get(t, SL_PART_ON_DEMAND);
    const uint32_t first = get32(t, SL_TRACE_EXTENTS), n = get32(t, SL_TRACE_EXTENTS);
    t->bad |= first > n;
    if (t->bad)
        return;
    const uint32_t part = sl_plan_part(t->plan, unit, kind);
    for (uint32_t i = 0; i < n && !t->bad && !t->plan->err.code; i++) {
        sl_extent e = {.file = get32(t, UINT32_MAX)};
        e.offset = get(t, MOST_BYTES);
        e.len = get(t, MOST_BYTES);
        sl_plan_extent(t->plan, part, e);
        if (i + 1 == first)
            sl_plan_part_stage(t->plan, part);
    }
}

static void get_table(sl_trace *t)
{
    char *name = get_text(t);
    sl_extent e = {.file = get32(t, UINT32_MAX)};
    e.offset = get(t, MOST_BYTES);
    e.len = get(t, MOST_BYTES);
    const uint64_t row_bytes = get(t, 1 << 28);
    if (!t->bad && name)
        sl_plan_row_table(t->plan, name, e, row_bytes);
    free(name);
}

static void get_unit(sl_trace *t)
{
    char *name = get_text(t);
    if (!t->bad && name)
        sl_plan_unit(t->plan, name);
    free(name);
}

static void get_mark(sl_trace *t)
{
    if (t->about.n_marks == SL_TRACE_MARKS)
        t->bad = true;
    else
        t->mark[t->about.n_marks] = get_text(t);
    if (!t->bad && !t->mark[t->about.n_marks])
        sl_fail(&t->plan->err, SL_ENOMEM, "out of memory");
    t->about.n_marks += !t->bad;
}

static sl_status get_plan(sl_trace *t, sl_err *err)
{
    t->about.marks = (const char *const *)t->mark;
    for (;;) {
        sl_status st = t->at == t->len ? next_block(t, err) : SL_OK;
        if (st)
            return st;
        if (t->over)
            return damaged(t, "its plan has no end", err);
        const uint8_t kind = get_byte(t);
        if (kind == SL_TRACE_PLANNED && (t->about.n_marks || t->version < 3))
            return SL_OK;
        if (kind == SL_TRACE_UNIT)
            get_unit(t);
        else if (kind == SL_TRACE_PART)
            get_part(t);
        else if (kind == SL_TRACE_TABLE)
            get_table(t);
        else if (kind == SL_TRACE_MARK_NAME && t->version > 2)
            get_mark(t);
        else
            t->bad = true;
        if (t->plan->err.code == SL_ENOMEM)
            return sl_fail(err, SL_ENOMEM, "%s: out of memory", t->file->path);
        if (t->bad || t->plan->err.code)
            return damaged(t, t->bad ? "a record of its plan is not one" : t->plan->err.text, err);
    }
}

/* ---- events ---- */

static bool all_of_unit(const sl_trace *t, const sl_trace_event *e, uint32_t unit)
{
    for (uint32_t i = 0; i < e->n; i++) {
        const sl_part *p = &t->plan->parts[e->item[i]];
        if (p->kind != SL_PART_ON_DEMAND || p->unit != unit)
            return false;
    }
    return true;
}

static void forget_wanted(sl_trace *t)
{
    for (uint32_t i = 0; i < t->n_wanted; i++)
        t->state[t->wanted[i]] = NOT_NEEDED;
    t->n_wanted = 0;
    t->needed = false;
}

static bool get_list(sl_trace *t, sl_trace_event *e, uint32_t limit)
{
    e->n = get32(t, t->list_cap);
    if (!t->bad)
        get_steps(t, t->item, e->n, limit);
    e->item = t->item;
    return !t->bad;
}

static bool take_pass(sl_trace *t, sl_trace_event *e)
{
    if (t->version > 2)
        e->at_ns = get(t, SL_TRACE_MOST_NS);
    t->pass = (sl_pass_kind)get(t, SL_PASS_VERIFY);
    t->pass_rows = get32(t, SL_TRACE_MAX_ROWS);
    e->n_units = t->n_units = get32(t, t->plan->n_units);
    const bool ok = !t->in_pass && t->pass_rows && !t->bad;
    t->in_pass = t->begun = true;
    t->next_unit = 0;
    t->entered = NO_UNIT;
    return ok;
}

static bool take_need(sl_trace *t, sl_trace_event *e)
{
    if (t->entered == NO_UNIT || t->needed || !get_list(t, e, t->plan->n_parts) ||
        !all_of_unit(t, e, t->entered))
        return false;
    for (uint32_t i = 0; i < e->n; i++) {
        const uint32_t part = e->item[i];
        t->rows[i] = get32(t, SL_TRACE_MAX_ROWS);
        if (t->bad || !t->rows[i] || t->state[part] != NOT_NEEDED)
            return false;
        t->state[part] = NEEDED;
        t->wanted[t->n_wanted++] = part;
    }
    e->rows = t->rows;
    e->unit = t->entered;
    t->needed = true;
    return true;
}

static bool take_given(sl_trace *t, sl_trace_event *e)
{
    e->max = get32(t, UINT32_MAX);
    e->unit = t->entered;
    if (!t->needed || !get_list(t, e, t->plan->n_parts) || e->n > e->max)
        return false;
    for (uint32_t i = 0; i < e->n; i++) {
        if (t->state[e->item[i]] != NEEDED)
            return false;
        t->state[e->item[i]] = GIVEN;
    }
    return true;
}

static bool take_rest(sl_trace *t, sl_trace_event *e)
{
    e->part = get32(t, UINT32_MAX);
    e->unit = t->entered;
    return !t->bad && t->in_pass && e->part < t->plan->n_parts && t->state[e->part] == GIVEN;
}

static bool take_hint(sl_trace *t, sl_trace_event *e)
{
    return t->in_pass && get_list(t, e, t->plan->n_parts) && e->n &&
           all_of_unit(t, e, t->plan->parts[e->item[0]].unit);
}

static bool take_rows(sl_trace *t, sl_trace_event *e)
{
    e->table = get32(t, UINT32_MAX);
    if (t->bad || e->table >= t->plan->n_tables)
        return false;
    const sl_row_table *table = &t->plan->tables[e->table];
    const uint64_t n_rows = table->extent.len / table->row_bytes;
    return get_list(t, e, n_rows < UINT32_MAX ? (uint32_t)n_rows : UINT32_MAX) &&
           e->n <= t->about.options.max_row_batch;
}

/* Logarithms of sums: none is NaN or very large. */
static bool take_uses(sl_trace *t, sl_trace_event *e)
{
    e->n = get32(t, t->list_cap);
    e->item = t->item;
    for (uint32_t i = 0; i < e->n && !t->bad; i++) {
        float use;
        t->item[i] = get32(t, UINT32_MAX);
        memcpy(&use, &t->item[i], sizeof use);
        t->bad |= !(use < 1e6f);
    }
    return !t->begun && e->n == sl_plan_on_demand_count(t->plan);
}

static bool take_enter(sl_trace *t, sl_trace_event *e)
{
    e->unit = t->entered = t->next_unit;
    return t->in_pass && t->next_unit < t->n_units && !t->n_wanted && !t->needed;
}

static bool take_leave(sl_trace *t, sl_trace_event *e)
{
    e->unit = t->entered;
    if (t->entered == NO_UNIT)
        return false;
    t->next_unit = t->entered + 1;
    t->entered = NO_UNIT;
    forget_wanted(t);
    return true;
}

static bool take_end(sl_trace *t, sl_trace_event *e)
{
    e->wait_ns = t->version > 2 ? t->waited_ns : get(t, SL_TRACE_MOST_NS);
    t->waited_ns = 0;
    if (!t->in_pass)
        return false;
    t->in_pass = false;
    t->entered = NO_UNIT;
    forget_wanted(t);
    return true;
}

static bool take_mark(sl_trace *t, sl_trace_event *e)
{
    e->mark = get32(t, UINT32_MAX);
    return e->mark < t->about.n_marks;
}

static bool take_read(sl_trace *t, sl_trace_event *e)
{
    sl_read_note *r = &e->read;
    t->read_ns += get(t, SL_TRACE_MOST_NS);
    r->done_ns = t->read_ns;
    const uint64_t took = get(t, SL_TRACE_MOST_NS);
    r->submit_ns = took < r->done_ns ? r->done_ns - took : 0;
    r->busy_ns = get(t, SL_TRACE_MOST_NS);
    r->bytes = get32(t, UINT32_MAX);
    r->priority = (uint8_t)get(t, SL_PRIORITIES - 1);
    r->part = get32(t, t->plan->n_parts) - 1;
    return t->read_ns <= SL_TRACE_MOST_NS && took <= r->done_ns && r->busy_ns <= r->done_ns;
}

static bool take_counts(sl_trace *t, sl_trace_event *e)
{
    sl_need_stats *n = &t->counts;
    uint64_t *const field[] = {&n->needs,         &n->hits,        &n->miss_bytes,   &n->guesses,
                               &n->guesses_right, &n->hints,       &n->hints_useful, &n->hints_late,
                               &n->hint_bytes,    &n->wasted_bytes};
    e->unit = get32(t, UINT32_MAX);
    for (uint32_t i = 0; i < sizeof field / sizeof *field; i++)
        *field[i] = get(t, (uint64_t)1 << 60);
    e->counts = n;
    return e->unit < t->plan->n_units;
}

static bool take_totals(sl_trace *t, sl_trace_event *e)
{
    e->at_ns = get(t, SL_TRACE_MOST_NS);
    t->totals.bytes_read = get(t, (uint64_t)1 << 60);
    t->totals.io_cpu_ns = get(t, SL_TRACE_MOST_NS);
    e->lost = get(t, (uint64_t)1 << 60);
    e->totals = &t->totals;
    return !t->in_pass;
}

static bool take_event(sl_trace *t, sl_trace_event *e)
{
    switch (e->kind) {
    case SL_TRACE_PASS:
        return take_pass(t, e);
    case SL_TRACE_ENTER:
        return t->entered == NO_UNIT && take_enter(t, e);
    case SL_TRACE_NEED:
        return take_need(t, e);
    case SL_TRACE_GIVEN:
        return take_given(t, e);
    case SL_TRACE_REST:
        return take_rest(t, e);
    case SL_TRACE_HINT:
        return take_hint(t, e);
    case SL_TRACE_LEAVE:
        return take_leave(t, e);
    case SL_TRACE_ROWS:
        return take_rows(t, e);
    case SL_TRACE_END:
        return take_end(t, e);
    case SL_TRACE_USES:
        return take_uses(t, e);
    case SL_TRACE_MARK:
        return t->version > 2 && take_mark(t, e);
    case SL_TRACE_READ:
        return t->version > 2 && take_read(t, e);
    case SL_TRACE_COUNTS:
        return t->version > 2 && take_counts(t, e);
    case SL_TRACE_TOTALS:
        return t->version > 2 && take_totals(t, e);
    case SL_TRACE_OVER:
        break;
    }
    return false;
}

static bool is_detail(sl_trace_kind kind)
{
    return kind >= SL_TRACE_MARK && kind <= SL_TRACE_TOTALS;
}

/* The others have no time. */
static bool get_times(sl_trace *t, sl_trace_event *e)
{
    if (e->kind >= SL_TRACE_READ && e->kind <= SL_TRACE_TOTALS)
        return !t->bad;
    e->compute_ns = get(t, SL_TRACE_MOST_NS);
    e->waited_ns = t->version > 2 ? get(t, SL_TRACE_MOST_NS) : 0;
    t->waited_ns += e->waited_ns;
    return !t->bad;
}

static sl_status next_event(sl_trace *t, sl_trace_event *e, sl_err *err)
{
    *e = (sl_trace_event){.kind = SL_TRACE_OVER};
    sl_status st = t->at == t->len && !t->over ? next_block(t, err) : SL_OK;
    if (st)
        return st;
    if (t->over)
        return t->in_pass ? damaged(t, "its last pass has no end", err) : SL_OK;
    e->kind = (sl_trace_kind)get_byte(t);
    if (!get_times(t, e) || !take_event(t, e) || t->bad)
        return damaged(t, "an event does not fit where it stands", err);
    e->pass = t->pass;
    e->pass_rows = t->pass_rows;
    t->n_events++;
    return SL_OK;
}

sl_status sl_trace_next(sl_trace *t, sl_trace_event *e, sl_err *err)
{
    sl_status st;
    while (!(st = next_event(t, e, err)) && !t->details && is_detail(e->kind)) {
        t->carried_ns += e->compute_ns;
    }
    e->compute_ns += t->carried_ns;
    t->carried_ns = 0;
    return st;
}

void sl_trace_rewind(sl_trace *t, bool details)
{
    t->details = details;
    t->carried_ns = t->waited_ns = t->read_ns = 0;
    /* The block that holds the first event may hold the end of the plan as well. */
    t->offset = t->first_offset;
    t->len = t->at = 0;
    t->over = t->bad = t->begun = t->in_pass = false;
    t->n_events = 0;
    t->entered = NO_UNIT;
    forget_wanted(t);
    if (next_block(t, NULL) == SL_OK)
        t->at = t->first_at;
}

/* ---- open and close ---- */

static sl_status read_head(sl_trace *t, sl_err *err)
{
    uint8_t head[SL_TRACE_START];
    if (t->file->size < sizeof head)
        return sl_fail(err, SL_EFORMAT, "%s: is not a trace, or was cut short (%llu bytes)",
                       t->file->path, (unsigned long long)t->file->size);
    sl_status st = sl_file_read(t->file, 0, head, sizeof head, err);
    if (st)
        return st;
    if (memcmp(head, SL_TRACE_MAGIC, SL_TRACE_MAGIC_LEN) != 0)
        return sl_fail(err, SL_EFORMAT, "%s: is not a trace (sluice run --trace FILE makes one)",
                       t->file->path);
    const uint64_t version = fixed(head + SL_TRACE_MAGIC_LEN, 4);
    if (version < 1 || version > SL_TRACE_VERSION)
        return sl_fail(err, SL_EUNSUPPORTED,
                       "%s: a trace of version %llu; this program reads versions 1 to %d",
                       t->file->path, (unsigned long long)version, SL_TRACE_VERSION);
    t->version = (uint32_t)version;
    t->offset = sizeof head;
    return SL_OK;
}

static sl_status make_lists(sl_trace *t, sl_err *err)
{
    const uint32_t parts = t->plan->n_parts, rows = t->about.options.max_row_batch;
    t->list_cap = parts > rows ? parts : rows;
    t->item = calloc((uint64_t)t->list_cap + 1, sizeof *t->item);
    t->rows = calloc((uint64_t)t->list_cap + 1, sizeof *t->rows);
    t->wanted = calloc((uint64_t)parts + 1, sizeof *t->wanted);
    t->state = calloc((uint64_t)parts + 1, 1);
    if (t->item && t->rows && t->wanted && t->state)
        return SL_OK;
    return sl_fail(err, SL_ENOMEM, "%s: out of memory", t->file->path);
}

static void add_up(sl_trace_sums *s, const sl_trace_event *e, uint64_t *pass_ns)
{
    s->events++;
    s->compute_ns += e->compute_ns;
    *pass_ns += e->compute_ns;
    if (e->kind == SL_TRACE_NEED)
        s->needs += e->n;
    if (e->kind != SL_TRACE_END)
        return;
    const bool prefill = e->pass == SL_PASS_PREFILL;
    s->passes++;
    (prefill ? &s->prefill.passes : &s->decode.passes)[0]++;
    (prefill ? &s->prefill.rows : &s->decode.rows)[0] += e->pass_rows;
    (prefill ? &s->prefill.compute_ns : &s->decode.compute_ns)[0] += *pass_ns;
    (prefill ? &s->prefill.wait_ns : &s->decode.wait_ns)[0] += e->wait_ns;
    *pass_ns = 0;
}

static sl_status walk(sl_trace *t, sl_err *err)
{
    sl_trace_event e;
    uint64_t pass_ns = 0;
    sl_status st;
    while (!(st = sl_trace_next(t, &e, err)) && e.kind != SL_TRACE_OVER) {
        add_up(&t->sums, &e, &pass_ns);
        if (t->sums.compute_ns > ((uint64_t)1 << 60))
            return damaged(t, "more time than there is", err);
    }
    return st;
}

static sl_status open_all(sl_trace *t, sl_err *err)
{
    uint64_t align = 0;
    t->block = malloc(SL_TRACE_BLOCK);
    t->packed = malloc(sl_compressor_bound(SL_TRACE_BLOCK));
    if (!t->block || !t->packed)
        return sl_fail(err, SL_ENOMEM, "%s: out of memory", t->file->path);
    sl_status st = read_head(t, err);
    if (!st)
        st = next_block(t, err);
    if (!st)
        st = get_about(t, &align, err);
    if (!st)
        st = get_files(t, align, err);
    if (!st)
        st = get_plan(t, err);
    if (!st)
        st = make_lists(t, err);
    if (st)
        return st;
    t->first_offset = t->block_offset;
    t->first_at = t->at;
    t->entered = NO_UNIT;
    st = walk(t, err);
    sl_trace_rewind(t, false);
    return st;
}

sl_status sl_trace_open(const char *path, sl_trace **out, sl_err *err)
{
    *out = NULL;
    sl_trace *t = calloc(1, sizeof *t);
    if (!t)
        return sl_fail(err, SL_ENOMEM, "%s: out of memory", path);
    sl_status st = sl_file_open(path, &t->file, err);
    if (!st)
        st = open_all(t, err);
    if (st)
        sl_trace_close(&t);
    *out = t;
    return st;
}

void sl_trace_close(sl_trace **tp)
{
    sl_trace *t = tp ? *tp : NULL;
    if (!t)
        return;
    sl_plan_free(&t->plan);
    sl_file_close(&t->file);
    free(t->files);
    free(t->model);
    free(t->command);
    for (int i = 0; i < SL_TRACE_MARKS; i++)
        free(t->mark[i]);
    free(t->block);
    free(t->packed);
    free(t->item);
    free(t->rows);
    free(t->wanted);
    free(t->state);
    free(t);
    *tp = NULL;
}

const sl_plan *sl_trace_plan(const sl_trace *t)
{
    return t->plan;
}

uint32_t sl_trace_version(const sl_trace *t)
{
    return t->version;
}

const sl_trace_about *sl_trace_about_of(const sl_trace *t)
{
    return &t->about;
}

const sl_trace_sums *sl_trace_sums_of(const sl_trace *t)
{
    return &t->sums;
}
