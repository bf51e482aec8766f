/* Writing a trace. Records are bytes and varints, gathered in a block; a record never lies in two.
 * Blocks go out between passes, or when one is full. */
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
    bool in_pass;
    bool failed; /* and said so: nothing more is written */
};

/* ---- blocks ---- */

static void give_up(sl_trace_writer *t, const char *why)
{
    if (t->failed)
        return;
    t->failed = true;
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
    if (!t->failed && sl_outfile_write(&t->file, data, len, &err))
        give_up(t, err.text);
}

static void block_end(sl_trace_writer *t)
{
    const uint64_t len = t->at;
    t->at = 0;
    if (t->failed || !len)
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
    if (most > SL_TRACE_BLOCK)
        give_up(t, "trace: more parts or rows at once than a record holds");
    if (most > SL_TRACE_BLOCK - t->at)
        block_end(t);
    if (t->failed)
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

static bool event(sl_trace_writer *t, sl_trace_kind kind, uint64_t lists)
{
    if (!record(t, (uint8_t)kind, lists))
        return false;
    put_ns(t, t->compute_ns);
    t->n_events++;
    return true;
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

static sl_status put_plan(sl_trace_writer *t, const sl_plan *p, sl_err *err)
{
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
    free(t);
    *tp = NULL;
}

sl_status sl_trace_create(const char *path, const sl_plan *p, const sl_trace_about *about,
                          sl_trace_writer **out, sl_err *err)
{
    uint8_t head[SL_TRACE_START] = SL_TRACE_MAGIC;
    sl_trace_writer *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return sl_fail(err, SL_ENOMEM, "%s: out of memory", path);
    t->file.fd = -1;
    t->wait_ns = about->wait_ns;
    t->clock = about->clock ? about->clock : sl_now_ns;
    t->compressor = sl_compressor_new(SL_TRACE_BLOCK);
    t->block = malloc(SL_TRACE_BLOCK);
    t->packed = malloc(SL_TRACE_BLOCK_HEAD + sl_compressor_bound(SL_TRACE_BLOCK));
    sl_status st = t->compressor && t->block && t->packed
                       ? sl_outfile_open(&t->file, path, err)
                       : sl_fail(err, SL_ENOMEM, "%s: out of memory", path);
    if (!st) {
        put_fixed(head + SL_TRACE_MAGIC_LEN, SL_TRACE_VERSION, 4);
        write_out(t, head, sizeof head);
        put_about(t, p, about);
        st = put_plan(t, p, err);
        block_end(t);
    }
    if (st)
        writer_free(&t);
    *out = t;
    return st;
}

void sl_trace_finish(sl_trace_writer **tp)
{
    uint8_t end[SL_TRACE_BLOCK_HEAD + SL_TRACE_TAIL] = {0};
    sl_trace_writer *t = tp ? *tp : NULL;
    sl_err err = {0};
    if (!t)
        return;
    if (t->in_pass) {
        sl_trace_call(t);
        sl_trace_end(t);
    }
    block_end(t);
    put_fixed(end + SL_TRACE_BLOCK_HEAD, t->n_events, SL_TRACE_TAIL);
    write_out(t, end, sizeof end);
    if (!t->failed && sl_outfile_commit(&t->file, &err))
        give_up(t, err.text);
    writer_free(tp);
}

/* ---- events ---- */

void sl_trace_call(sl_trace_writer *t)
{
    t->call_ns = t->clock();
    t->compute_ns = t->return_ns ? t->call_ns - t->return_ns + t->inside_ns : 0;
    t->inside_ns = 0;
    t->wait_from_ns = t->wait_ns ? *t->wait_ns : 0;
}

static void call_over(sl_trace_writer *t)
{
    t->return_ns = t->clock();
    const uint64_t all = t->return_ns - t->call_ns;
    const uint64_t waited = t->wait_ns ? *t->wait_ns - t->wait_from_ns : all;
    t->waited_ns += waited;
    t->inside_ns = all > waited ? all - waited : 0;
}

void sl_trace_pass(sl_trace_writer *t, sl_pass_kind kind, uint32_t rows, uint32_t n_units)
{
    if (event(t, SL_TRACE_PASS, 0)) {
        put(t, kind);
        put(t, rows);
        put(t, n_units);
    }
    t->in_pass = true;
    call_over(t);
}

void sl_trace_enter(sl_trace_writer *t)
{
    event(t, SL_TRACE_ENTER, 0);
    call_over(t);
}

void sl_trace_need(sl_trace_writer *t, const uint32_t *parts, const uint32_t *rows, uint32_t n)
{
    if (event(t, SL_TRACE_NEED, 2 * (uint64_t)n)) {
        put(t, n);
        put_steps(t, parts, n);
        for (uint32_t i = 0; i < n; i++)
            put(t, rows[i]);
    }
    call_over(t);
}

void sl_trace_given(sl_trace_writer *t, uint32_t max, const uint32_t *parts, uint32_t n)
{
    if (event(t, SL_TRACE_GIVEN, n)) {
        put(t, max);
        put(t, n);
        put_steps(t, parts, n);
    }
    call_over(t);
}

void sl_trace_rest(sl_trace_writer *t, uint32_t part)
{
    if (event(t, SL_TRACE_REST, 0))
        put(t, part);
    call_over(t);
}

void sl_trace_hint(sl_trace_writer *t, const uint32_t *parts, uint32_t n)
{
    if (event(t, SL_TRACE_HINT, n)) {
        put(t, n);
        put_steps(t, parts, n);
    }
    call_over(t);
}

void sl_trace_leave(sl_trace_writer *t)
{
    event(t, SL_TRACE_LEAVE, 0);
    call_over(t);
}

void sl_trace_rows(sl_trace_writer *t, uint32_t table, const uint32_t *rows, uint32_t n)
{
    if (event(t, SL_TRACE_ROWS, n)) {
        put(t, table);
        put(t, n);
        put_steps(t, rows, n);
    }
    call_over(t);
}

void sl_trace_uses(sl_trace_writer *t, const float *use, uint32_t n)
{
    if (event(t, SL_TRACE_USES, n)) {
        put(t, n);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &use[i], sizeof bits);
            put(t, bits);
        }
    }
    call_over(t);
}

/* A block goes out here, where nobody waits for the pass, when it is half full. */
void sl_trace_end(sl_trace_writer *t)
{
    call_over(t);
    if (event(t, SL_TRACE_END, 0))
        put_ns(t, t->waited_ns);
    t->in_pass = false;
    t->waited_ns = 0;
    if (t->at > SL_TRACE_BLOCK / 2)
        block_end(t);
    t->return_ns = t->clock();
}
