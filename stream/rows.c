/* A batch is sorted by row, so that a row asked for twice is read once and rows of one block share
 * a read. The cache is direct-mapped: decode asks for one row per token, and the few most frequent
 * tokens are a good part of any text. */
#include <stdlib.h>
#include <string.h>

#include "rows.h"

enum { BOUNCE_BYTES = 1 << 20, CACHE_BYTES = 256 << 10, CACHE_ROWS = 256 };

static uint64_t max_row_bytes(const sl_plan *p)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < p->n_tables; i++)
        if (p->tables[i].row_bytes > most)
            most = p->tables[i].row_bytes;
    return most;
}

sl_rows_need sl_rows_plan(const sl_plan *p, const sl_stream_options *o)
{
    sl_rows_need n = {0};
    uint64_t row = max_row_bytes(p);
    if (row == 0)
        return n;
    n.span_bytes = sl_round_up(row, p->align) + p->align;
    uint64_t waves = BOUNCE_BYTES / n.span_bytes, batch = o->max_row_batch ? o->max_row_batch : 1;
    n.bounce_bytes = n.span_bytes * (waves == 0 ? 1 : waves < batch ? waves : batch);
    n.cache_rows = (uint32_t)(CACHE_BYTES / row);
    if (n.cache_rows > CACHE_ROWS)
        n.cache_rows = CACHE_ROWS;
    n.cache_bytes = sl_round_up(n.cache_rows * row, p->align);
    return n;
}

static uint64_t max_spans(const sl_plan *p, sl_rows_need need)
{
    return need.bounce_bytes / p->align + 1;
}

uint64_t sl_rows_memory_bytes(const sl_plan *p, const sl_stream_options *o)
{
    sl_rows_need need = sl_rows_plan(p, o);
    if (!need.span_bytes)
        return 0;
    return need.cache_rows * sizeof(uint64_t) + (uint64_t)o->max_row_batch * sizeof(sl_row_want) +
           max_spans(p, need) * sizeof(sl_span);
}

sl_status sl_rows_open(sl_rows *r, const sl_plan *p, const sl_stream_options *o, uint8_t *memory,
                       sl_err *err)
{
    *r = (sl_rows){.plan = p, .max_batch = o->max_row_batch, .need = sl_rows_plan(p, o)};
    r->bounce = memory;
    r->cache = memory ? memory + r->need.bounce_bytes : NULL;
    r->slot_bytes = max_row_bytes(p);
    r->tag = calloc(r->need.cache_rows + 1, sizeof *r->tag);
    r->want = calloc((size_t)o->max_row_batch + 1, sizeof *r->want);
    r->spans = calloc(max_spans(p, r->need), sizeof *r->spans);
    if (r->tag && r->want && r->spans)
        return SL_OK;
    sl_rows_close(r);
    return sl_fail(err, SL_ENOMEM, "streaming: out of memory");
}

void sl_rows_close(sl_rows *r)
{
    free(r->tag);
    free(r->want);
    free(r->spans);
    *r = (sl_rows){0};
}

static uint8_t *cached(sl_rows *r, uint32_t table, uint32_t row, uint64_t **tag)
{
    uint64_t key = ((uint64_t)table << 32 | row) + 1;
    uint64_t slot = (key * 0x9e3779b97f4a7c15u >> 32) % r->need.cache_rows;
    *tag = &r->tag[slot];
    return r->cache ? r->cache + slot * r->slot_bytes : NULL;
}

static bool cache_get(sl_rows *r, uint32_t table, uint32_t row, void *out)
{
    uint64_t *tag;
    if (!r->need.cache_rows)
        return false;
    const uint8_t *data = cached(r, table, row, &tag);
    if (*tag != ((uint64_t)table << 32 | row) + 1)
        return false;
    if (out)
        memcpy(out, data, r->plan->tables[table].row_bytes);
    return true;
}

static void cache_put(sl_rows *r, uint32_t table, uint32_t row, const void *in)
{
    uint64_t *tag;
    if (!r->need.cache_rows)
        return;
    uint8_t *data = cached(r, table, row, &tag);
    *tag = ((uint64_t)table << 32 | row) + 1;
    if (in)
        memcpy(data, in, r->plan->tables[table].row_bytes);
}

/* Shell's sort, in place: qsort() may allocate. */
static void sort(sl_row_want *w, uint32_t n)
{
    for (uint32_t gap = n / 2; gap > 0; gap /= 2)
        for (uint32_t i = gap; i < n; i++) {
            sl_row_want x = w[i];
            uint32_t k = i;
            for (; k >= gap && w[k - gap].row > x.row; k -= gap)
                w[k] = w[k - gap];
            w[k] = x;
        }
}

/* Adds a row's bytes to the wave; false when the bounce buffer has no room left. */
static bool wave_add(sl_rows *r, const sl_row_table *t, sl_row_want *w)
{
    uint64_t align = r->plan->align, first = t->extent.offset + (uint64_t)w->row * t->row_bytes;
    uint64_t from = sl_round_down(first, align), end = first + t->row_bytes;
    sl_span *last = r->n_spans ? &r->spans[r->n_spans - 1] : NULL;
    bool joins = last && from <= last->offset + last->len;
    uint64_t has = joins ? last->offset + last->len : from;
    uint64_t more = end > has ? sl_round_up(end, align) - has : 0;
    if (more > r->need.bounce_bytes - r->filled)
        return false;
    if (!joins) {
        last = &r->spans[r->n_spans++];
        *last = (sl_span){.file = t->extent.file, .offset = from, .at = r->filled};
    }
    last->len += more;
    if (end - last->offset > last->need)
        last->need = end - last->offset;
    r->filled += more;
    w->at = last->at + (first - last->offset);
    return true;
}

/* Reads the wave and hands out its rows, want[from] to want[to - 1]. */
static sl_status wave_read(sl_rows *r, uint32_t table, uint32_t from, uint32_t to, uint8_t *out,
                           sl_rows_fetch *fetch, void *ctx, sl_err *err)
{
    uint64_t row_bytes = r->plan->tables[table].row_bytes;
    sl_status st = r->n_spans ? fetch(ctx, r->spans, r->n_spans, r->bounce, err) : SL_OK;
    r->n_spans = 0;
    r->filled = 0;
    for (uint32_t i = from; i < to && st == SL_OK; i++) {
        const sl_row_want *w = &r->want[i];
        if (out)
            memcpy(out + w->index * row_bytes, r->bounce + w->at, row_bytes);
        if (i == from || w[-1].row != w->row)
            cache_put(r, table, w->row, r->bounce ? r->bounce + w->at : NULL);
    }
    return st;
}

sl_status sl_rows_get(sl_rows *r, uint32_t table, const uint32_t *row, uint32_t n, void *out,
                      sl_rows_fetch *fetch, void *ctx, sl_err *err)
{
    const sl_row_table *t = &r->plan->tables[table];
    uint64_t n_rows = t->extent.len / t->row_bytes;
    uint32_t n_want = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (row[i] >= n_rows)
            return sl_fail(err, SL_EINVAL, "row table %s: row %u, of which there are %llu", t->name,
                           row[i], (unsigned long long)n_rows);
        if (cache_get(r, table, row[i], out ? (uint8_t *)out + i * t->row_bytes : NULL))
            r->n_hits++;
        else
            r->want[n_want++] = (sl_row_want){.row = row[i], .index = i};
    }
    r->n_read += n;
    sort(r->want, n_want);
    sl_status st = SL_OK;
    for (uint32_t from = 0, i = 0; i < n_want && st == SL_OK; from = i) {
        while (i < n_want && wave_add(r, t, &r->want[i]))
            i++;
        st = wave_read(r, table, from, i, out, fetch, ctx, err);
    }
    return st;
}
