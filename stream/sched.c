/* What to read next. A fetch is one part (or batch of rows); it stands in the list of its priority
 * until its last piece has been cut. The sequential list is filled only when it is empty, from a
 * cursor that walks the endless sequence of passes: so at most one part is queued ahead of its
 * turn, and what a unit or a row waits for never queues behind more than that. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched_impl.h"

enum {
    N_FETCHES = SL_SCHED_READS + 8, /* in flight, and the few that are listed without being so */
    MAX_TRIES = 100,                /* of one piece: EINTR, EAGAIN, short reads */
    CREDIT_NS = 2000000             /* late timers may catch up this much under a disk limit */
};

uint64_t sl_sched_memory_bytes(const sl_plan *p)
{
    uint64_t n = sl_plan_always_count(p);
    return (n + 1) * (sizeof(sl_resident) + sizeof(sl_ring_slot) + sizeof(uint32_t)) +
           (p->n_parts + 1) * sizeof(uint32_t) + (p->n_units + 1) * sizeof(uint32_t) +
           N_FETCHES * sizeof(sl_fetch) + SL_SCHED_READS * sizeof(sl_read) +
           sl_on_demand_memory_bytes(p);
}

/* Returns where the pinned slots end; NULL: the engine has its own memory. */
static uint8_t *slots_assign(sl_sched *s, const sl_sched_config *c)
{
    uint8_t *at = c->memory ? c->memory + c->ring_bytes : NULL;
    for (uint32_t i = 0; i < s->n_order; i++) {
        sl_resident *r = &s->resident[i];
        r->pinned = c->pinned[r->part] != 0;
        if (!r->pinned || !at)
            continue;
        r->data = r->home = at;
        at += s->plan->parts[r->part].slot_bytes;
    }
    return at;
}

static sl_status tables_make(sl_sched *s, const sl_plan *p, sl_err *err)
{
    uint32_t *order = calloc(s->n_order + 1, sizeof *order);
    s->resident = calloc(p->n_parts + 1, sizeof *s->resident);
    s->slots = calloc(s->n_order + 1, sizeof *s->slots);
    s->position = malloc((p->n_parts + 1) * sizeof *s->position);
    s->unit_first = calloc(p->n_units + 1, sizeof *s->unit_first);
    s->fetches = calloc(N_FETCHES, sizeof *s->fetches);
    s->reads = calloc(SL_SCHED_READS, sizeof *s->reads);
    if (!order || !s->resident || !s->slots || !s->position || !s->unit_first || !s->fetches ||
        !s->reads) {
        free(order);
        return sl_fail(err, SL_ENOMEM, "streaming: out of memory");
    }
    memset(s->position, 0xff, (p->n_parts + 1) * sizeof *s->position);
    sl_plan_order(p, order, s->unit_first);
    for (uint32_t i = 0; i < s->n_order; i++) {
        s->resident[i].part = order[i];
        s->position[order[i]] = i;
    }
    free(order);
    for (uint32_t i = 0; i < N_FETCHES; i++)
        s->fetches[i].next = i + 1 < N_FETCHES ? &s->fetches[i + 1] : NULL;
    for (uint32_t i = 0; i < SL_SCHED_READS; i++)
        s->reads[i].next = i + 1 < SL_SCHED_READS ? &s->reads[i + 1] : NULL;
    s->free_fetch = s->fetches;
    s->n_free_fetch = N_FETCHES;
    s->free_read = s->reads;
    return SL_OK;
}

sl_status sl_sched_open(sl_sched *s, const sl_sched_config *c, sl_err *err)
{
    *s = (sl_sched){.plan = c->plan,
                    .o = *c->options,
                    .clock = c->clock,
                    .release = c->release,
                    .ctx = c->ctx,
                    .n_order = sl_plan_always_count(c->plan),
                    .n_on_demand = sl_plan_on_demand_count(c->plan),
                    .ring_memory = c->memory,
                    .waiting = UINT32_MAX,
                    .cursor_pass = 1};
    uint64_t piece = s->o.piece_bytes > (1u << 30) ? 1u << 30 : s->o.piece_bytes;
    piece = sl_round_down(piece, c->plan->align);
    s->o.piece_bytes = piece ? piece : c->plan->align;
    sl_status st = tables_make(s, c->plan, err);
    if (st == SL_OK) {
        sl_ring_init(&s->ring, c->ring_bytes, s->slots, s->n_order + 1);
        st = sl_on_demand_open(s, c, slots_assign(s, c), err);
    }
    if (st)
        sl_sched_close(s);
    return st;
}

void sl_sched_close(sl_sched *s)
{
    free(s->resident);
    free(s->slots);
    free(s->position);
    free(s->unit_first);
    free(s->fetches);
    free(s->reads);
    sl_on_demand_close(s);
    *s = (sl_sched){0};
}

/* ---- fetches and their lists ---- */

void sl_fetch_list_add(sl_sched *s, sl_fetch *f, sl_priority priority)
{
    sl_fetch_list *l = &s->list[priority];
    f->priority = (uint8_t)priority;
    f->listed = true;
    f->next = NULL;
    f->prev = l->last;
    if (l->last)
        l->last->next = f;
    else
        l->first = f;
    l->last = f;
    s->news = true;
}

void sl_fetch_list_remove(sl_sched *s, sl_fetch *f)
{
    sl_fetch_list *l = &s->list[f->priority];
    if (!f->listed)
        return;
    if (f->prev)
        f->prev->next = f->next;
    else
        l->first = f->next;
    if (f->next)
        f->next->prev = f->prev;
    else
        l->last = f->prev;
    f->listed = false;
}

static sl_fetch *fetch_new(sl_sched *s, const sl_span *spans, uint32_t n_spans, uint8_t *base,
                           uint64_t pass)
{
    sl_fetch *f = s->free_fetch;
    if (!f)
        return NULL;
    s->free_fetch = f->next;
    s->n_free_fetch--;
    *f = (sl_fetch){.spans = spans, .n_spans = n_spans, .base = base, .pass = pass};
    return f;
}

void sl_fetch_free(sl_sched *s, sl_fetch *f)
{
    sl_fetch_list_remove(s, f);
    if (f->resident)
        f->resident->fetch = NULL;
    f->next = s->free_fetch;
    s->free_fetch = f;
    s->n_free_fetch++;
    s->news = true;
}

bool sl_part_queue(sl_sched *s, sl_resident *r, sl_priority priority, uint64_t pass)
{
    const sl_part *part = &s->plan->parts[r->part];
    if (part->n_spans == 0) {
        r->state = SL_PART_READY; /* nothing but empty extents */
        return true;
    }
    sl_fetch *f = fetch_new(s, part->spans, part->n_spans, r->data, pass);
    if (!f)
        return false;
    f->resident = r;
    r->fetch = f;
    r->state = SL_PART_QUEUED;
    sl_fetch_list_add(s, f, priority);
    return true;
}

/* A streamed part's memory goes back to the ring. Nothing may be in flight into it. */
static void slot_give_back(sl_sched *s, sl_resident *r)
{
    if (s->release)
        s->release(s->ctx, r->part);
    sl_ring_drop(&s->ring, r->slot);
    r->slot = NULL;
    r->state = SL_PART_ABSENT;
    s->news = true;
}

/* A streamed part is no longer wanted: at once, or when its last read has come back. */
static void slot_drop(sl_sched *s, sl_resident *r)
{
    sl_fetch *f = r->fetch;
    if (f && f->in_flight) {
        sl_fetch_list_remove(s, f);
        f->dropped = true;
        return;
    }
    if (f)
        sl_fetch_free(s, f);
    slot_give_back(s, r);
}

/* Drops the ring's slots of one pass, from a position on. */
void sl_slots_drop(sl_sched *s, uint64_t pass, uint32_t from)
{
    uint32_t first = s->ring.first, n = s->ring.n;
    for (uint32_t i = 0; i < n; i++) {
        const sl_ring_slot *slot = &s->ring.slots[(first + i) % s->ring.cap];
        if (!slot->dropped && slot->pass == pass && slot->pos >= from)
            slot_drop(s, &s->resident[slot->pos]);
    }
}

/* Between passes: what could not be read ahead, or in the pass before, is tried again by the next
 * pass. The reader goes back to the first streamed part among them. */
static void failures_forget(sl_sched *s)
{
    sl_on_demand_forget(s);
    for (uint32_t i = 0; i < s->n_order; i++) {
        sl_resident *r = &s->resident[i];
        if (r->state != SL_PART_FAILED)
            continue;
        if (r->pinned) {
            r->state = SL_PART_ABSENT;
            continue;
        }
        uint64_t pass = r->slot->pass;
        sl_slots_drop(s, pass, i);
        s->cursor_pass = pass;
        s->cursor = i;
    }
}

/* ---- the pass's side ---- */

void sl_sched_pass_begin(sl_sched *s, sl_pass_kind kind, uint32_t rows, uint32_t n_units)
{
    s->pass++;
    s->pass_rows = rows;
    s->hints_flow = kind == SL_PASS_PREFILL;
    s->needs_told = 0;
    s->in_pass = true;
    s->at_unit = 0;
    s->end = s->unit_first[n_units];
    s->stats.passes++;
    /* The reader took the whole plan for granted; a shorter pass does not want its end. */
    sl_slots_drop(s, s->pass, s->end);
    failures_forget(s);
    s->news = true; /* a pass ends elsewhere, and is followed by another */
}

void sl_sched_pass_end(sl_sched *s)
{
    if (!s->in_pass)
        return;
    s->in_pass = false;
    s->waiting = UINT32_MAX;
    sl_needs_end(s);
    sl_hints_end(s);
    sl_pool_tick(&s->pool, s->pass_rows);
    sl_slots_drop(s, s->pass, 0);
    if (s->cursor_pass <= s->pass) {
        s->cursor_pass = s->pass + 1;
        s->cursor = 0;
    }
    failures_forget(s);
    s->news = true;
}

sl_status sl_failure_tell(const sl_sched *s, const sl_failure *f, sl_err *err)
{
    const char *path = s->plan->files[f->file]->path;
    if (f->errno_value)
        return sl_fail_errno(err, f->errno_value, "%s: read of %u bytes at offset %llu", path,
                             f->len, (unsigned long long)f->offset);
    return sl_fail(err, SL_EIO,
                   "%s: no more bytes at offset %llu: the file is shorter than when it was opened "
                   "(%llu bytes)",
                   path, (unsigned long long)f->offset,
                   (unsigned long long)s->plan->files[f->file]->size);
}

/* A part that the entered unit lacks: its fetch moves to the front. */
static void demand(sl_sched *s, sl_resident *r, uint32_t position)
{
    bool passed = s->cursor_pass > s->pass || s->cursor > position;
    if (r->fetch && r->fetch->listed && r->fetch->priority != SL_DEMAND) {
        sl_fetch_list_remove(s, r->fetch);
        sl_fetch_list_add(s, r->fetch, SL_DEMAND);
    } else if (r->state == SL_PART_ABSENT && r->pinned && passed && !s->list[SL_DEMAND].first) {
        /* The reader has been here: an earlier read of it failed in the pass before. */
        sl_part_queue(s, r, SL_DEMAND, s->pass);
    }
}

sl_status sl_sched_enter(sl_sched *s, uint32_t unit, sl_err *err)
{
    bool all = true;
    s->waiting = UINT32_MAX;
    s->at_unit = unit;
    for (uint32_t i = s->unit_first[unit]; i < s->unit_first[unit + 1]; i++) {
        sl_resident *r = &s->resident[i];
        if (r->state == SL_PART_FAILED)
            return sl_failure_tell(s, &r->failure, err);
        if (r->state == SL_PART_READY)
            continue;
        all = false;
        demand(s, r, i);
    }
    if (all)
        return SL_OK;
    s->waiting = unit;
    return SL_EAGAIN;
}

void sl_sched_leave(sl_sched *s, uint32_t unit)
{
    for (uint32_t i = s->unit_first[unit]; i < s->unit_first[unit + 1]; i++)
        if (s->resident[i].slot)
            slot_drop(s, &s->resident[i]);
    s->at_unit = unit + 1;
    sl_needs_end(s);
}

void sl_sched_rows_start(sl_sched *s, const sl_span *spans, uint32_t n, uint8_t *base)
{
    sl_fetch *f = fetch_new(s, spans, n, base, s->pass);
    s->rows_busy = true;
    s->rows_failed = false;
    sl_fetch_list_add(s, f, SL_DEMAND);
}

sl_status sl_sched_rows_state(sl_sched *s, sl_err *err)
{
    if (s->rows_busy)
        return SL_EAGAIN;
    return s->rows_failed ? sl_failure_tell(s, &s->rows_failure, err) : SL_OK;
}

/* ---- the engine's side ---- */

static sl_priority cursor_priority(const sl_sched *s)
{
    bool waited = s->waiting != UINT32_MAX && s->cursor_pass == s->pass &&
                  s->cursor >= s->unit_first[s->waiting] &&
                  s->cursor < s->unit_first[s->waiting + 1];
    return waited ? SL_DEMAND : SL_SEQUENTIAL;
}

static bool slot_take(sl_sched *s, sl_resident *r)
{
    r->slot = sl_ring_take(&s->ring, s->plan->parts[r->part].slot_bytes);
    if (!r->slot)
        return false;
    r->slot->pass = s->cursor_pass;
    r->slot->pos = s->cursor;
    r->data = s->ring_memory ? s->ring_memory + r->slot->at : NULL;
    return true;
}

/* Queues the next part of the sequence that is not there yet. False: it has to wait, for room in
 * the ring, for its last use to end, or for the next pass (the reader is a pass ahead at most). */
static bool cursor_pull(sl_sched *s)
{
    while (s->pass && s->free_fetch) {
        uint32_t end = s->cursor_pass <= s->pass ? s->end : s->n_order;
        if (s->cursor >= end) {
            if (s->cursor_pass > s->pass)
                return false;
            s->cursor_pass++;
            s->cursor = 0;
            continue;
        }
        sl_resident *r = &s->resident[s->cursor];
        if (r->pinned && r->state != SL_PART_ABSENT) {
            s->cursor++;
            continue;
        }
        if (!r->pinned && (r->state != SL_PART_ABSENT || !slot_take(s, r)))
            return false;
        bool queued = sl_part_queue(s, r, cursor_priority(s), s->cursor_pass);
        s->cursor++;
        if (queued && r->fetch)
            return true;
    }
    return false;
}

static sl_fetch *next_fetch(sl_sched *s)
{
    if (s->list[SL_DEMAND].first || sl_need_pull(s))
        return s->list[SL_DEMAND].first;
    if (!s->list[SL_SEQUENTIAL].first && cursor_pull(s))
        return s->list[SL_DEMAND].first ? s->list[SL_DEMAND].first : s->list[SL_SEQUENTIAL].first;
    if (s->list[SL_SEQUENTIAL].first)
        return s->list[SL_SEQUENTIAL].first;
    if (!s->list[SL_PREDICTED].first)
        sl_hint_pull(s);
    return s->list[SL_PREDICTED].first;
}

/* Whether the disk limit lets len bytes out now; if so they are paid for. */
static bool pay(sl_sched *s, uint64_t len, uint64_t *wait_ns)
{
    if (!s->o.disk_limit)
        return true;
    uint64_t now = s->clock(s->ctx), from = s->paid_until;
    if (from + CREDIT_NS < now)
        from = now - CREDIT_NS;
    if (from > now) {
        *wait_ns = from - now;
        return false;
    }
    s->paid_until = from + (uint64_t)((double)len * 1e9 / (double)s->o.disk_limit);
    return true;
}

/* Guesses must not keep the disk busy when a unit comes to ask for what it needs. */
static bool hints_enough(const sl_sched *s, const sl_fetch *f, uint32_t len)
{
    return f->priority == SL_PREDICTED && !s->hints_flow && s->predicted_in_flight &&
           s->predicted_in_flight + len > s->o.hint_bytes;
}

static void first_piece(sl_sched *s, const sl_fetch *f)
{
    if (!f->resident || f->resident->state != SL_PART_QUEUED)
        return;
    f->resident->state = SL_PART_READING;
    if (f->pass > s->pass && !f->resident->on_demand) {
        s->stats.ahead_parts++;
        s->stats.ahead_bytes += s->plan->parts[f->resident->part].slot_bytes;
    }
}

static uint32_t piece_len(const sl_sched *s, const sl_fetch *f)
{
    uint64_t left = f->spans[f->span].len - f->cut;
    return (uint32_t)(left < s->o.piece_bytes ? left : s->o.piece_bytes);
}

static sl_read *cut(sl_sched *s, sl_fetch *f, uint32_t len)
{
    const sl_span *span = &f->spans[f->span];
    uint64_t need = span->need - f->cut;
    sl_read *r = s->free_read;
    s->free_read = r->next;
    *r = (sl_read){.file = span->file,
                   .offset = span->offset + f->cut,
                   .len = len,
                   .need = need < len ? (uint32_t)need : len,
                   .dest = f->base ? f->base + span->at + f->cut : NULL,
                   .fetch = (uint32_t)(f - s->fetches),
                   .first_stage = span->stage == 0,
                   .predicted = f->priority == SL_PREDICTED,
                   .priority = f->priority,
                   .number = ++s->n_reads};
    if (s->log) {
        r->submit_ns = s->clock(s->ctx);
        s->busy_from = s->in_flight_bytes ? s->busy_from : r->submit_ns;
    }
    first_piece(s, f);
    f->in_flight++;
    f->first_in_flight += r->first_stage;
    f->cut_bytes += len;
    s->predicted_in_flight += r->predicted ? len : 0;
    f->cut += len;
    if (f->cut == span->len) {
        f->cut = 0;
        f->span++;
    }
    if (f->span == f->n_spans)
        sl_fetch_list_remove(s, f);
    s->in_flight_bytes += len;
    s->stats.reads++;
    if (s->in_flight_bytes > s->stats.max_in_flight)
        s->stats.max_in_flight = s->in_flight_bytes;
    return r;
}

uint32_t sl_sched_next(sl_sched *s, sl_read **out, uint32_t max, uint64_t *wait_ns)
{
    uint32_t n = 0;
    *wait_ns = UINT64_MAX;
    s->starved = s->news = s->no_slot = false;
    for (; n < max && s->retry; n++) {
        out[n] = s->retry;
        s->retry = s->retry->next;
    }
    while (n < max && s->free_read) {
        sl_fetch *f = next_fetch(s);
        if (!f) {
            s->starved = true;
            break;
        }
        uint32_t len = piece_len(s, f);
        if (hints_enough(s, f, len)) {
            s->starved = true; /* a need goes out at once */
            break;
        }
        if (s->in_flight_bytes && s->in_flight_bytes + len > s->o.in_flight_bytes)
            break;
        if (!pay(s, len, wait_ns))
            break;
        out[n++] = cut(s, f, len);
    }
    return n;
}

static void fetch_fail(sl_sched *s, sl_fetch *f, const sl_read *r, int errno_value)
{
    sl_failure failure = {
        .errno_value = errno_value, .file = r->file, .len = r->len, .offset = r->offset + r->done};
    sl_fetch_list_remove(s, f);
    if (f->failed || f->dropped)
        return;
    f->failed = true;
    if (f->resident)
        f->resident->failure = failure;
    else
        s->rows_failure = failure;
}

/* The last piece is back. */
static void fetch_end(sl_sched *s, sl_fetch *f)
{
    sl_resident *r = f->resident;
    bool dropped = f->dropped, failed = f->failed;
    sl_fetch_free(s, f);
    if (!r) {
        s->rows_busy = false;
        s->rows_failed = failed;
    } else if (r->on_demand) {
        sl_on_demand_end(s, r, dropped, failed);
    } else if (dropped) {
        slot_give_back(s, r);
    } else {
        r->state = failed ? SL_PART_FAILED : SL_PART_READY;
    }
}

static void retry_add(sl_sched *s, sl_read *r)
{
    r->next = NULL;
    if (s->retry)
        s->retry_last->next = r;
    else
        s->retry = r;
    s->retry_last = r;
}

/* The one place where a read's result is judged. True: the piece is over, well or not; false: the
 * rest of it has to be read (again). Tries go on from the last aligned byte, as direct reads
 * must. */
static bool piece_over(sl_sched *s, sl_fetch *f, sl_read *r)
{
    if (f->dropped || f->failed) { /* nobody takes it up again without this piece */
        f->failed |= r->result < 0 || r->done + (uint32_t)r->result < r->need;
        return true;
    }
    bool again = r->result == -EINTR || r->result == -EAGAIN;
    if (r->result < 0 && (!again || ++r->tries >= MAX_TRIES)) {
        fetch_fail(s, f, r, -r->result);
        return true;
    }
    uint32_t have = r->done + (r->result > 0 ? (uint32_t)r->result : 0);
    if (have >= r->need)
        return true;
    uint32_t done = (uint32_t)sl_round_down(have, s->plan->align);
    if (!again && done == r->done)
        r->tries += MAX_TRIES / 4; /* the same short read again and again: the file ends there */
    else if (!again)
        r->tries++;
    if (r->result == 0 || r->tries >= MAX_TRIES) {
        r->done = have;
        fetch_fail(s, f, r, 0);
        return true;
    }
    r->done = done;
    return false;
}

static void inject(const sl_sched *s, sl_read *r)
{
    if (r->number != s->o.fail_read || r->tries)
        return;
    if (s->o.fail_errno)
        r->result = -s->o.fail_errno;
    else if (r->result > 0)
        r->result =
            (uint64_t)r->result > s->o.short_read ? r->result - (int32_t)s->o.short_read : 0;
}

/* READING -> FIRST, when that is so. */
static bool first_stage_there(const sl_sched *s, const sl_fetch *f)
{
    sl_resident *r = f->resident;
    if (!r || r->state != SL_PART_READING || f->failed || f->dropped || f->first_in_flight)
        return false;
    const uint32_t n = s->plan->parts[r->part].n_first_spans;
    if (!n || f->span < n)
        return false;
    r->state = SL_PART_FIRST;
    return true;
}

static void note(sl_sched *s, const sl_fetch *f, const sl_read *r)
{
    sl_read_log *log = s->log;
    const uint64_t now = s->clock(s->ctx), busy_ns = now - s->busy_from;
    s->busy_from = now;
    if (log->n == log->cap) {
        log->lost++;
        return;
    }
    log->note[log->n++] =
        (sl_read_note){.submit_ns = r->submit_ns,
                       .done_ns = now,
                       .busy_ns = busy_ns,
                       .bytes = r->done + (r->result > 0 ? (uint32_t)r->result : 0),
                       .part = f->resident ? f->resident->part : UINT32_MAX,
                       .priority = r->priority};
}

bool sl_sched_done(sl_sched *s, sl_read *r)
{
    sl_fetch *f = &s->fetches[r->fetch];
    inject(s, r);
    if (r->result > 0)
        s->stats.bytes_read += (uint64_t)r->result;
    if (!piece_over(s, f, r)) {
        retry_add(s, r);
        return false;
    }
    if (s->log)
        note(s, f, r);
    s->in_flight_bytes -= r->len;
    s->predicted_in_flight -= r->predicted ? r->len : 0;
    f->first_in_flight -= r->first_stage;
    r->next = s->free_read;
    s->free_read = r;
    if (--f->in_flight || f->listed)
        return first_stage_there(s, f);
    fetch_end(s, f);
    return true;
}
