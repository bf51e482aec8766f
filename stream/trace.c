/* Writing a trace. Records are bytes and varints, gathered in a block; a record never lies in two.
 * Blocks go out between passes, or when one is full. Reads are noted in one of two logs by the
 * thread that gets them, while the other one is written. */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

#include "compress.h"
#include "outfile.h"
#include "trace_impl.h"

enum {
    VARINT = 10,         /* bytes of the longest */
    FIELDS = 16 * VARINT /* of a record, beside its lists */
};

struct sl_trace_writer {
    sl_outfile file;
    sl_compressor *compressor;
    uint8_t *block, *packed;
    uint64_t at; /* filled bytes of block */
    uint64_t n_events;
    uint64_t (*clock)(void);
    uint64_t call_ns, return_ns; /* of the present call; of the one before, 0: there was none */
    uint64_t compute_ns;         /* between them, and in the one before while it did not wait */
    uint64_t inside_ns;          /* that part */
    const uint64_t *wait_ns;     /* the stream's counter, or NULL */
    uint64_t wait_from_ns;       /* its value at the call */
    uint64_t waited_ns;          /* since the last pass's end */
    uint64_t start_ns, max_bytes, written;
    uint64_t read_ns; /* when the last read came back */
    void (*told)(void *ctx, const sl_trace_event *e);
    void *ctx;
    sl_read_log log[2], *full; /* full: to be written, or NULL */
    /* where the pass is */
    sl_pass_kind pass;
    uint32_t pass_rows, next_unit, mark;
    bool in_pass, entered;
    bool open;   /* the file is */
    sl_err lost; /* why there is no file, if that is so */
};

/* ---- blocks ---- */

static void give_up(sl_trace_writer *t, const char *why)
{
    if (!t->open)
        return;
    t->open = false;
    sl_fail(&t->lost, SL_EIO, "%s", why);
    sl_outfile_abort(&t->file);
    sl_log(SL_LOG_WARN, "%s; the run goes on without a trace", why);
}

static void put_fixed(uint8_t *out, uint64_t v, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        out[i] = (uint8_t)(v >> (8 * i));
}

static void write_out(sl_trace_writer *t, const void *data, uint64_t len)
{
    sl_err err = {0};
    if (t->open && sl_outfile_write(&t->file, data, len, &err))
        give_up(t, err.text);
    t->written += len;
}

static void block_end(sl_trace_writer *t)
{
    const uint64_t len = t->at;
    t->at = 0;
    if (!t->open || !len)
        return;
    uint8_t *body = t->packed + SL_TRACE_BLOCK_HEAD;
    const uint64_t packed = sl_compressor_pack(t->compressor, t->block, len, body);
    put_fixed(t->packed, len, 4);
    put_fixed(t->packed + 4, packed, 4);
    if (packed)
        write_out(t, t->packed, SL_TRACE_BLOCK_HEAD + packed);
    else
        give_up(t, "trace: cannot compress");
}

/* ---- records ---- */

/* Room for a record with so many varints in lists. False: it is not written. */
static bool record(sl_trace_writer *t, uint8_t kind, uint64_t lists)
{
    const uint64_t most = FIELDS + SL_TRACE_NAME + lists * VARINT;
    if (!t->open)
        return false;
    if (most > SL_TRACE_BLOCK)
        give_up(t, "trace: more parts or rows at once than a record holds");
    if (most > SL_TRACE_BLOCK - t->at)
        block_end(t);
    if (!t->open)
        return false;
    t->block[t->at++] = kind;
    return true;
}

static void put(sl_trace_writer *t, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        t->block[t->at++] = (uint8_t)(v | 128);
    t->block[t->at++] = (uint8_t)v;
}

static void put_ns(sl_trace_writer *t, uint64_t ns)
{
    put(t, ns < SL_TRACE_MOST_NS ? ns : SL_TRACE_MOST_NS);
}

static void put_text(sl_trace_writer *t, const char *text)
{
    const uint64_t len = strnlen(text, SL_TRACE_NAME);
    put(t, len);
    memcpy(t->block + t->at, text, len);
    t->at += len;
}

/* Numbers that lie near each other: steps, with the sign in the lowest bit. */
static void put_steps(sl_trace_writer *t, const uint32_t *v, uint32_t n)
{
    int64_t last = 0;
    for (uint32_t i = 0; i < n; i++) {
        const int64_t step = (int64_t)v[i] - last;
        put(t, step < 0 ? (uint64_t)-step * 2 - 1 : (uint64_t)step * 2);
        last = v[i];
    }
}

/* ---- the plan ---- */

static void put_about(sl_trace_writer *t, const sl_plan *p, const sl_trace_about *a)
{
    const sl_stream_options *o = &a->options;
    uint64_t half_life;
    memcpy(&half_life, &o->half_life, sizeof half_life);
    if (!record(t, SL_TRACE_ABOUT, 0))
        return;
    put_text(t, a->model);
    put(t, a->other_bytes);
    put(t, p->align);
    put(t, o->io);
    put(t, o->memory_bytes);
    put(t, o->ring_bytes);
    put(t, o->in_flight_bytes);
    put(t, o->piece_bytes);
    put(t, o->policy);
    put(t, half_life);
    put(t, o->hint_bytes);
    put(t, o->disk_limit);
    put(t, o->max_row_batch);
    put(t, o->pool_bytes);
    put_text(t, a->command ? a->command : "");
    put(t, a->before_ns);
}

static sl_status put_part(sl_trace_writer *t, const sl_part *part, sl_err *err)
{
    if (part->n_places > SL_TRACE_EXTENTS)
        return sl_fail(err, SL_EUNSUPPORTED, "trace: a part of %u extents, of at most %d",
                       part->n_places, SL_TRACE_EXTENTS);
    if (!record(t, SL_TRACE_PART, 3 * SL_TRACE_EXTENTS))
        return SL_OK;
    put(t, part->unit);
    put(t, part->kind);
    put(t, part->n_first_places);
    put(t, part->n_places);
    for (uint32_t i = 0; i < part->n_places; i++) {
        put(t, part->places[i].extent.file);
        put(t, part->places[i].extent.offset);
        put(t, part->places[i].extent.len);
    }
    return SL_OK;
}

static sl_status put_plan(sl_trace_writer *t, const sl_plan *p, const sl_trace_about *a,
                          sl_err *err)
{
    static const char *const one[] = {"other"};
    sl_status st = SL_OK;
    for (uint32_t i = 0; i < p->n_files; i++)
        if (record(t, SL_TRACE_FILE, 0))
            put(t, p->files[i]->size);
    for (uint32_t i = 0; i < p->n_units; i++)
        if (record(t, SL_TRACE_UNIT, 0))
            put_text(t, p->units[i]);
    for (uint32_t i = 0; i < p->n_parts && !st; i++)
        st = put_part(t, &p->parts[i], err);
    for (uint32_t i = 0; i < p->n_tables; i++) {
        const sl_row_table *table = &p->tables[i];
        if (!record(t, SL_TRACE_TABLE, 0))
            continue;
        put_text(t, table->name);
        put(t, table->extent.file);
        put(t, table->extent.offset);
        put(t, table->extent.len);
        put(t, table->row_bytes);
    }
    for (uint32_t i = 0; i < (a->n_marks ? a->n_marks : 1); i++)
        if (record(t, SL_TRACE_MARK_NAME, 0))
            put_text(t, a->n_marks ? a->marks[i] : one[0]);
    record(t, SL_TRACE_PLANNED, 0);
    return st;
}

/* ---- begin and end ---- */

static void writer_free(sl_trace_writer **tp)
{
    sl_trace_writer *t = *tp;
    sl_outfile_abort(&t->file);
    sl_compressor_free(&t->compressor);
    free(t->block);
    free(t->packed);
    for (int i = 0; i < 2; i++)
        free(t->log[i].note);
    free(t);
    *tp = NULL;
}

static sl_status begin_file(sl_trace_writer *t, const char *path, const sl_plan *p,
                            const sl_trace_about *about, sl_err *err)
{
    uint8_t head[SL_TRACE_START] = SL_TRACE_MAGIC;
    t->compressor = sl_compressor_new(SL_TRACE_BLOCK);
    t->block = malloc(SL_TRACE_BLOCK);
    t->packed = malloc(SL_TRACE_BLOCK_HEAD + sl_compressor_bound(SL_TRACE_BLOCK));
    if (!t->compressor || !t->block || !t->packed)
        return sl_fail(err, SL_ENOMEM, "%s: out of memory", path);
    sl_status st = sl_outfile_open(&t->file, path, err);
    if (st)
        return st;
    t->open = true;
    put_fixed(head + SL_TRACE_MAGIC_LEN, SL_TRACE_VERSION, 4);
    write_out(t, head, sizeof head);
    put_about(t, p, about);
    st = put_plan(t, p, about, err);
    block_end(t);
    return st;
}

sl_status sl_trace_create(const char *path, const sl_plan *p, const sl_trace_about *about,
                          sl_trace_writer **out, sl_err *err)
{
    sl_trace_writer *t = calloc(1, sizeof *t);
    sl_status st = SL_OK;
    *out = NULL;
    if (!t)
        return sl_fail(err, SL_ENOMEM, "trace: out of memory");
    t->file.fd = -1;
    t->wait_ns = about->wait_ns;
    t->clock = about->clock ? about->clock : sl_now_ns;
    t->max_bytes = about->max_bytes;
    t->told = about->told;
    t->ctx = about->ctx;
    for (int i = 0; i < 2; i++) {
        t->log[i].note = malloc(SL_TRACE_READS * sizeof *t->log[i].note);
        t->log[i].cap = SL_TRACE_READS;
        if (!t->log[i].note)
            st = sl_fail(err, SL_ENOMEM, "trace: out of memory");
    }
    if (!st && path)
        st = begin_file(t, path, p, about, err);
    if (st)
        writer_free(&t);
    else
        t->start_ns = t->clock();
    *out = t;
    return st;
}

static void end_file(sl_trace_writer *t)
{
    uint8_t end[SL_TRACE_BLOCK_HEAD + SL_TRACE_TAIL] = {0};
    sl_err err = {0};
    if (!t->open)
        return;
    block_end(t);
    put_fixed(end + SL_TRACE_BLOCK_HEAD, t->n_events, SL_TRACE_TAIL);
    write_out(t, end, sizeof end);
    if (t->open && sl_outfile_commit(&t->file, &err))
        give_up(t, err.text);
    t->open = false;
}

sl_status sl_trace_finish(sl_trace_writer **tp, sl_err *err)
{
    sl_trace_writer *t = tp ? *tp : NULL;
    if (!t)
        return SL_OK;
    if (t->in_pass) {
        sl_trace_call(t);
        sl_trace_end(t);
    }
    end_file(t);
    const sl_err lost = t->lost;
    writer_free(tp);
    return lost.code ? sl_fail(err, lost.code, "%s", lost.text) : SL_OK;
}

/* ---- events ---- */

static void put_read(sl_trace_writer *t, const sl_read_note *r)
{
    put_ns(t, r->done_ns - t->read_ns);
    put_ns(t, r->done_ns - r->submit_ns);
    put_ns(t, r->busy_ns);
    put(t, r->bytes);
    put(t, r->priority);
    put(t, (uint64_t)(r->part + 1)); /* 0: rows */
    t->read_ns = r->done_ns;
}

static void put_counts(sl_trace_writer *t, const sl_need_stats *n)
{
    put(t, n->needs);
    put(t, n->hits);
    put(t, n->miss_bytes);
    put(t, n->guesses);
    put(t, n->guesses_right);
    put(t, n->hints);
    put(t, n->hints_useful);
    put(t, n->hints_late);
    put(t, n->hint_bytes);
    put(t, n->wasted_bytes);
}

static void put_totals(sl_trace_writer *t, const sl_trace_event *e)
{
    put_ns(t, e->at_ns);
    put(t, e->totals->bytes_read);
    put_ns(t, e->totals->io_cpu_ns);
    put(t, e->lost);
}

static void put_list(sl_trace_writer *t, const sl_trace_event *e)
{
    put(t, e->n);
    put_steps(t, e->item, e->n);
}

static void put_fields(sl_trace_writer *t, const sl_trace_event *e)
{
    switch (e->kind) {
    case SL_TRACE_PASS:
        put_ns(t, e->at_ns);
        put(t, e->pass);
        put(t, e->pass_rows);
        put(t, e->n_units);
        break;
    case SL_TRACE_NEED:
        put_list(t, e);
        for (uint32_t i = 0; i < e->n; i++)
            put(t, e->rows[i]);
        break;
    case SL_TRACE_GIVEN:
        put(t, e->max);
        put_list(t, e);
        break;
    case SL_TRACE_REST:
        put(t, e->part);
        break;
    case SL_TRACE_HINT:
        put_list(t, e);
        break;
    case SL_TRACE_ROWS:
        put(t, e->table);
        put_list(t, e);
        break;
    case SL_TRACE_USES:
        put(t, e->n);
        for (uint32_t i = 0; i < e->n; i++)
            put(t, e->item[i]);
        break;
    case SL_TRACE_MARK:
        put(t, e->mark);
        break;
    case SL_TRACE_READ:
        put_read(t, &e->read);
        break;
    case SL_TRACE_COUNTS:
        put(t, e->unit);
        put_counts(t, e->counts);
        break;
    case SL_TRACE_TOTALS:
        put_totals(t, e);
        break;
    case SL_TRACE_ENTER:
    case SL_TRACE_LEAVE:
    case SL_TRACE_END:
    case SL_TRACE_OVER:
        break;
    }
}

/* The others stand between what the pass does. */
static bool has_times(sl_trace_kind kind)
{
    return kind != SL_TRACE_READ && kind != SL_TRACE_COUNTS && kind != SL_TRACE_TOTALS;
}

static void tell(sl_trace_writer *t, const sl_trace_event *e)
{
    if (record(t, (uint8_t)e->kind, (uint64_t)e->n * (e->kind == SL_TRACE_NEED ? 2 : 1))) {
        if (has_times(e->kind)) {
            put_ns(t, e->compute_ns);
            put_ns(t, e->waited_ns);
        }
        put_fields(t, e);
        t->n_events++;
    }
    if (t->told)
        t->told(t->ctx, e);
}

static uint64_t since_start(const sl_trace_writer *t, uint64_t ns)
{
    return ns > t->start_ns ? ns - t->start_ns : 0;
}

static void tell_reads(sl_trace_writer *t)
{
    sl_read_log *log = t->full;
    t->full = NULL;
    for (uint32_t i = 0; log && i < log->n; i++) {
        sl_trace_event e = {.kind = SL_TRACE_READ, .pass = t->pass, .read = log->note[i]};
        e.read.done_ns = since_start(t, e.read.done_ns);
        e.read.submit_ns = since_start(t, e.read.submit_ns);
        tell(t, &e);
    }
    if (log)
        log->n = 0;
}

sl_read_log *sl_trace_reads(sl_trace_writer *t, sl_read_log *full)
{
    if (!full)
        return &t->log[0];
    if (!full->n || t->full)
        return full;
    t->full = full;
    return full == &t->log[0] ? &t->log[1] : &t->log[0];
}

void sl_trace_call(sl_trace_writer *t)
{
    t->call_ns = t->clock();
    t->compute_ns = t->return_ns ? t->call_ns - t->return_ns + t->inside_ns : 0;
    t->inside_ns = 0;
    t->wait_from_ns = t->wait_ns ? *t->wait_ns : 0;
}

/* The call that the event tells of returns next. */
static void happened(sl_trace_writer *t, sl_trace_event *e)
{
    const uint64_t waited = t->wait_ns ? *t->wait_ns - t->wait_from_ns : t->clock() - t->call_ns;
    t->waited_ns += waited;
    e->compute_ns = t->compute_ns;
    e->waited_ns = waited;
    e->pass = t->pass;
    e->pass_rows = t->pass_rows;
    tell_reads(t);
    tell(t, e);
    t->return_ns = t->clock();
    const uint64_t all = t->return_ns - t->call_ns;
    t->inside_ns = all > waited ? all - waited : 0;
}

void sl_trace_pass(sl_trace_writer *t, sl_pass_kind kind, uint32_t rows, uint32_t n_units)
{
    t->pass = kind;
    t->pass_rows = rows;
    t->in_pass = true;
    t->entered = false;
    t->next_unit = 0;
    sl_trace_event e = {
        .kind = SL_TRACE_PASS, .at_ns = since_start(t, t->call_ns), .n_units = n_units};
    happened(t, &e);
}

void sl_trace_enter(sl_trace_writer *t)
{
    sl_trace_event e = {.kind = SL_TRACE_ENTER, .unit = t->next_unit};
    t->entered = true;
    happened(t, &e);
}

void sl_trace_need(sl_trace_writer *t, const uint32_t *parts, const uint32_t *rows, uint32_t n)
{
    sl_trace_event e = {
        .kind = SL_TRACE_NEED, .unit = t->next_unit, .n = n, .item = parts, .rows = rows};
    happened(t, &e);
}

void sl_trace_given(sl_trace_writer *t, uint32_t max, const uint32_t *parts, uint32_t n)
{
    sl_trace_event e = {
        .kind = SL_TRACE_GIVEN, .unit = t->next_unit, .max = max, .n = n, .item = parts};
    happened(t, &e);
}

void sl_trace_rest(sl_trace_writer *t, uint32_t part)
{
    sl_trace_event e = {.kind = SL_TRACE_REST, .unit = t->next_unit, .part = part};
    happened(t, &e);
}

void sl_trace_hint(sl_trace_writer *t, const uint32_t *parts, uint32_t n)
{
    sl_trace_event e = {.kind = SL_TRACE_HINT, .n = n, .item = parts};
    happened(t, &e);
}

void sl_trace_leave(sl_trace_writer *t)
{
    sl_trace_event e = {.kind = SL_TRACE_LEAVE, .unit = t->next_unit};
    happened(t, &e);
    t->entered = false;
    t->next_unit++;
}

void sl_trace_rows(sl_trace_writer *t, uint32_t table, const uint32_t *rows, uint32_t n)
{
    sl_trace_event e = {.kind = SL_TRACE_ROWS, .table = table, .n = n, .item = rows};
    happened(t, &e);
}

void sl_trace_uses(sl_trace_writer *t, const float *use, uint32_t n)
{
    sl_trace_event e = {.kind = SL_TRACE_USES, .n = n};
    uint32_t *bits = malloc(((uint64_t)n + 1) * sizeof *bits);
    if (!bits)
        give_up(t, "trace: out of memory");
    if (bits && n)
        memcpy(bits, use, n * sizeof *bits);
    e.item = bits;
    e.n = bits ? n : 0;
    happened(t, &e);
    free(bits);
}

void sl_trace_mark(sl_trace_writer *t, uint32_t mark)
{
    if (mark == t->mark)
        return;
    sl_trace_event e = {.kind = SL_TRACE_MARK, .mark = mark};
    sl_trace_call(t);
    t->mark = mark;
    happened(t, &e);
}

void sl_trace_counts(sl_trace_writer *t, uint32_t unit, const sl_need_stats *n)
{
    const sl_trace_event e = {.kind = SL_TRACE_COUNTS, .pass = t->pass, .unit = unit, .counts = n};
    tell(t, &e);
}

void sl_trace_totals(sl_trace_writer *t, const sl_stream_stats *s)
{
    sl_trace_event last = {.kind = SL_TRACE_MARK}; /* what was computed since the last event */
    sl_trace_call(t);
    happened(t, &last);
    const sl_trace_event e = {.kind = SL_TRACE_TOTALS,
                              .pass = t->pass,
                              .at_ns = since_start(t, t->call_ns),
                              .totals = s,
                              .lost = t->log[0].lost + t->log[1].lost};
    tell(t, &e);
}

/* A block goes out here, where nobody waits for the pass, when it is half full. */
void sl_trace_end(sl_trace_writer *t)
{
    sl_trace_event e = {.kind = SL_TRACE_END};
    e.wait_ns = t->waited_ns + (t->wait_ns ? *t->wait_ns - t->wait_from_ns : 0);
    happened(t, &e);
    t->in_pass = false;
    t->waited_ns = 0;
    if (t->at > SL_TRACE_BLOCK / 2)
        block_end(t);
    if (t->max_bytes && t->written > t->max_bytes)
        end_file(t);
    t->return_ns = t->clock();
}
