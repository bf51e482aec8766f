/* The surface, and the I/O thread. The pass's thread and the I/O thread share the scheduler under
 * one lock; the engine belongs to the I/O thread, except for wake and release. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stream_impl.h"

enum {
    SPIN_NS = 10000, /* about what going to sleep and being woken costs */
    NO_UNIT = UINT32_MAX
};

static const char *const io_names[] = {"auto", "direct", "mapped", "pread", "null"};

bool sl_io_parse(const char *text, sl_io *out)
{
    for (uint32_t i = 0; i < sizeof io_names / sizeof *io_names; i++)
        if (strcmp(text, io_names[i]) == 0) {
            *out = (sl_io)i;
            return true;
        }
    return false;
}

const char *sl_io_name(sl_io io)
{
    return io_names[io];
}

const char *sl_policy_name(sl_policy policy)
{
    static const char *const names[SL_POLICIES] = {"lrfu", "lru", "lfu", "s3fifo"};
    return names[policy];
}

sl_stream_options sl_stream_defaults(void)
{
    return (sl_stream_options){.in_flight_bytes = 24 << 20,
                               .piece_bytes = 1 << 20,
                               .half_life = 16,
                               .hint_bytes = 3 << 20,
                               .max_row_batch = 512};
}

/* ---- the I/O thread ---- */

static void tell_pass(sl_stream *s)
{
    atomic_fetch_add_explicit(&s->changes, 1, memory_order_release);
    if (s->waiting)
        pthread_cond_signal(&s->changed);
}

static bool start_engine(sl_stream *s)
{
    sl_err err = {0};
    sl_status st = s->engine->ops->start(s->engine, &err);
    pthread_mutex_lock(&s->lock);
    s->started = true;
    s->start_status = st;
    s->start_err = err;
    pthread_cond_signal(&s->changed);
    return st == SL_OK; /* holding the lock */
}

static void *io_thread(void *arg)
{
    sl_stream *s = arg;
    const sl_engine_ops *ops = s->engine->ops;
    sl_read *reads[SL_SCHED_READS];
    sl_thread_prompt();
    bool go = start_engine(s);
    /* Reads in flight are waited for before the thread ends: their memory goes away next. */
    while (go && (!s->quit || s->sched.in_flight_bytes)) {
        uint64_t wait_ns;
        uint32_t n = 0;
        if (!s->quit || s->sched.retry)
            n = sl_sched_next(&s->sched, reads, SL_SCHED_READS, &wait_ns);
        else
            wait_ns = UINT64_MAX;
        if (n)
            sl_pages_used(&s->pages, &s->sched.pool);
        s->sleeping = true;
        pthread_mutex_unlock(&s->lock);
        ops->submit(s->engine, reads, n);
        n = ops->wait(s->engine, wait_ns, reads, SL_SCHED_READS);
        pthread_mutex_lock(&s->lock);
        s->sleeping = false;
        bool changed = false;
        for (uint32_t i = 0; i < n; i++)
            changed |= sl_sched_done(&s->sched, reads[i]);
        if (changed)
            tell_pass(s);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Waits until something has changed since `seen`. Holding the lock. */
static void wait_change(sl_stream *s, unsigned seen)
{
    pthread_mutex_unlock(&s->lock);
    uint64_t end = sl_now_ns() + SPIN_NS;
    while (atomic_load_explicit(&s->changes, memory_order_acquire) == seen && sl_now_ns() < end)
        ;
    pthread_mutex_lock(&s->lock);
    s->waiting = true;
    while (atomic_load_explicit(&s->changes, memory_order_relaxed) == seen)
        pthread_cond_wait(&s->changed, &s->lock);
    s->waiting = false;
}

/* ---- open and close ---- */

static uint64_t clock_now(void *ctx)
{
    return sl_now_ns();
}

static void release_part(void *ctx, uint32_t part)
{
    sl_stream *s = ctx;
    s->engine->ops->release(s->engine, part);
}

static void note_refused(sl_stream *s, const char *text)
{
    size_t n = strlen(s->refused);
    if (text[0] && !strstr(s->refused, text)) /* two engines may have met the same refusal */
        snprintf(s->refused + n, sizeof s->refused - n, "%s%s", n ? "; " : "", text);
}

static void engine_stop(sl_stream *s)
{
    if (s->thread_on) {
        pthread_mutex_lock(&s->lock);
        s->quit = true;
        s->engine->ops->wake(s->engine);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        s->thread_on = false;
    }
    sl_pages_close(&s->pages);
    if (s->engine)
        s->engine->ops->close(&s->engine);
    sl_sched_close(&s->sched);
}

static sl_status thread_run(sl_stream *s, sl_err *err)
{
    s->started = s->quit = false;
    int r = sl_thread_start(&s->thread, "sluice-io", io_thread, s);
    if (r)
        return sl_fail_errno(err, r, "cannot start the I/O thread");
    s->thread_on = true;
    pthread_mutex_lock(&s->lock);
    while (!s->started)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return s->start_status ? sl_fail(err, s->start_status, "%s", s->start_err.text) : SL_OK;
}

static uint64_t slots_bytes(const sl_split *s)
{
    return s->ring_bytes + s->pinned_bytes + s->pool_bytes;
}

static sl_status engine_try(sl_stream *s, const sl_engine_ops *ops, const uint8_t *pinned,
                            const sl_pool_plan *pool, sl_err *err)
{
    bool own = ops->data != NULL;
    sl_engine_config c = {.plan = s->plan,
                          .pinned = pinned,
                          .depth = SL_SCHED_READS,
                          .refuse = s->o.refuse,
                          .memory = own ? NULL : s->slab.memory,
                          .memory_bytes = own ? 0 : slots_bytes(&s->split)};
    sl_sched_config sc = {.plan = s->plan,
                          .options = &s->o,
                          .pinned = pinned,
                          .memory = c.memory,
                          .ring_bytes = s->split.ring_bytes,
                          .pool = pool,
                          .clock = clock_now,
                          .release = ops->release ? release_part : NULL,
                          .ctx = s};
    sl_status st = ops->open(&c, &s->engine, err);
    if (st == SL_OK)
        st = sl_sched_open(&s->sched, &sc, err);
    if (st == SL_OK && !own)
        sl_pages_open(&s->pages, &s->slab, &s->sched.pool,
                      s->split.ring_bytes + s->split.pinned_bytes, SL_PAGES_AHEAD);
    if (st == SL_OK)
        st = thread_run(s, err);
    if (st)
        engine_stop(s);
    return st;
}

/* The engines for one way of I/O, best first; NULL ends the list. */
static const sl_engine_ops *const *engines_of(sl_io io)
{
    static const sl_engine_ops *const direct[] = {&sl_io_uring, &sl_io_pread, NULL};
    static const sl_engine_ops *const mapped[] = {&sl_io_mapped, NULL};
    static const sl_engine_ops *const pread[] = {&sl_io_pread, NULL};
    static const sl_engine_ops *const null[] = {&sl_io_null, NULL};
    return io == SL_IO_MAPPED  ? mapped
           : io == SL_IO_PREAD ? pread
           : io == SL_IO_NULL  ? null
                               : direct;
}

static sl_status memory_take(sl_stream *s, sl_err *err)
{
    uint64_t bytes = s->split.rows_bytes;
    if (s->split.io != SL_IO_MAPPED)
        bytes += slots_bytes(&s->split);
    sl_slab_close(&s->slab);
    sl_rows_close(&s->rows);
    sl_status st = sl_slab_open(&s->slab, bytes, s->o.refuse & SL_REFUSE_HUGE_PAGES, err);
    if (st)
        return st;
    uint8_t *rows = s->slab.memory ? s->slab.memory + (bytes - s->split.rows_bytes) : NULL;
    return sl_rows_open(&s->rows, s->plan, &s->o, rows, err);
}

/* Splits the memory for one way of I/O, then tries its engines. SL_EUNSUPPORTED: all refused. */
static sl_status io_try(sl_stream *s, sl_io io, uint8_t *pinned, sl_err *err)
{
    sl_pool_plan pool;
    s->o.io = io;
    sl_status st = sl_split_choose(s->plan, &s->o, &s->split, pinned, &pool, err);
    if (st == SL_OK)
        st = memory_take(s, err);
    if (st)
        return st;
    for (const sl_engine_ops *const *e = engines_of(s->split.io); *e; e++) {
        sl_err why = {0};
        st = engine_try(s, *e, pinned, &pool, &why);
        if (st == SL_OK)
            return st;
        if (st != SL_EUNSUPPORTED)
            return sl_fail(err, st, "%s", why.text);
        note_refused(s, why.text);
    }
    return st;
}

static void describe(sl_stream *s)
{
    const sl_engine_ops *ops = s->engine->ops;
    bool slab = s->split.io != SL_IO_MAPPED && s->split.io != SL_IO_NULL;
    note_refused(s, s->engine->refused);
    if (ops == &sl_io_pread && s->split.io == SL_IO_DIRECT)
        s->split.io = SL_IO_PREAD;
    if (slab && s->slab.memory && !s->slab.huge)
        note_refused(s, "huge pages refused");
    snprintf(s->engine_text, sizeof s->engine_text, "%s (%s%s)", sl_io_name(s->split.io),
             ops->describe(s->engine),
             !slab          ? ""
             : s->slab.huge ? ", huge pages"
                            : ", small pages");
    if (s->refused[0])
        sl_log(SL_LOG_WARN, "%s; reading with %s", s->refused, s->engine_text);
}

sl_status sl_stream_open(const sl_plan *p, const sl_stream_options *o, sl_stream **out, sl_err *err)
{
    *out = NULL;
    sl_stream *s = calloc(1, sizeof *s);
    uint8_t *pinned = calloc(p->n_parts + 1, 1);
    sl_status st = s && pinned ? SL_OK : sl_fail(err, SL_ENOMEM, "streaming: out of memory");
    if (st == SL_OK) {
        s->plan = p;
        s->o = *o;
        s->entered = NO_UNIT;
        pthread_mutex_init(&s->lock, NULL);
        sl_cond_init(&s->changed);
        s->lock_on = true;
        st = io_try(s, o->io, pinned, err);
        if (st == SL_EUNSUPPORTED && s->split.io == SL_IO_MAPPED)
            st = io_try(s, SL_IO_DIRECT, pinned, err);
    }
    free(pinned);
    if (st == SL_EUNSUPPORTED)
        st = sl_fail(err, st, "no way to read the files: %s", s->refused);
    if (st) {
        sl_stream_close(&s);
        return st;
    }
    st = sl_homes_open(&s->homes, &s->sched, s->slab.memory, err);
    if (st) {
        sl_stream_close(&s);
        return st;
    }
    describe(s);
    *out = s;
    return SL_OK;
}

void sl_stream_close(sl_stream **sp)
{
    sl_stream *s = sp ? *sp : NULL;
    if (!s)
        return;
    sl_stream_trace_end(s, NULL);
    engine_stop(s);
    sl_homes_close(&s->homes);
    sl_rows_close(&s->rows);
    sl_slab_close(&s->slab);
    if (s->lock_on) {
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
    }
    free(s);
    *sp = NULL;
}

const sl_split *sl_stream_split_of(const sl_stream *s)
{
    return &s->split;
}

const char *sl_stream_engine(const sl_stream *s)
{
    return s->engine_text;
}

const char *sl_stream_refused(const sl_stream *s)
{
    return s->refused;
}

const char *sl_stream_mapped_path(const sl_stream *s, const void *address)
{
    const sl_engine_ops *ops = s->engine->ops;
    uint32_t file = ops->mapped ? ops->mapped(s->engine, address) : UINT32_MAX;
    return file == UINT32_MAX ? NULL : s->plan->files[file]->path;
}

/* ---- the trace ---- */

static void trace_counts(sl_stream *s)
{
    sl_need_stats n;
    for (uint32_t u = 0; s->sched.unit_stats && u < s->plan->n_units; u++) {
        sl_stream_need_stats(s, u, &n);
        if (n.needs || n.guesses)
            sl_trace_counts(s->trace, u, &n);
    }
}

sl_status sl_stream_trace(sl_stream *s, const sl_trace_options *o, sl_err *err)
{
    const sl_trace_about about = {.model = o->model,
                                  .command = o->command,
                                  .marks = o->marks,
                                  .n_marks = o->n_marks,
                                  .other_bytes = o->other_bytes,
                                  .before_ns = o->before_ns,
                                  .max_bytes = o->max_bytes,
                                  .options = s->o,
                                  .wait_ns = &s->wait_ns,
                                  .told = o->told,
                                  .ctx = o->ctx};
    if (s->trace || s->in_pass)
        return sl_fail(err, SL_EINVAL, "trace: %s",
                       s->trace ? "one is being written" : "a pass has begun");
    sl_status st = sl_trace_create(o->path, s->plan, &about, &s->trace, err);
    if (st)
        return st;
    sl_stream_stats_get(s, &s->trace_from);
    pthread_mutex_lock(&s->lock);
    s->sched.log = sl_trace_reads(s->trace, NULL);
    s->sched.busy_from = sl_now_ns();
    s->trace_from.bytes_read = s->sched.stats.bytes_read; /* from here on reads are noted */
    pthread_mutex_unlock(&s->lock);
    trace_counts(s);
    return SL_OK;
}

/* Ends what a function does under the lock: reads that came back go to the trace. */
static void pass_unlock(sl_stream *s)
{
    if (s->trace)
        s->sched.log = sl_trace_reads(s->trace, s->sched.log);
    pthread_mutex_unlock(&s->lock);
}

sl_status sl_stream_trace_end(sl_stream *s, sl_err *err)
{
    sl_stream_stats now;
    if (!s->trace)
        return SL_OK;
    sl_pass_end(s);
    pthread_mutex_lock(&s->lock);
    sl_trace_reads(s->trace, s->sched.log);
    s->sched.log = NULL;
    const uint64_t bytes_read = s->sched.stats.bytes_read; /* those that are noted */
    pthread_mutex_unlock(&s->lock);
    sl_stream_stats_get(s, &now);
    now.bytes_read = bytes_read - s->trace_from.bytes_read;
    now.io_cpu_ns -= s->trace_from.io_cpu_ns;
    trace_counts(s);
    sl_trace_totals(s->trace, &now);
    return sl_trace_finish(&s->trace, err);
}

void sl_stream_mark(sl_stream *s, uint32_t mark)
{
    if (s->trace)
        sl_trace_mark(s->trace, mark);
}

/* Before anything else, in every function that a trace tells of. */
static inline void trace_call(const sl_stream *s)
{
    if (s->trace)
        sl_trace_call(s->trace);
}

/* ---- the pass ---- */

sl_status sl_pass_begin(sl_stream *s, sl_pass_kind kind, uint32_t rows, uint32_t n_units,
                        sl_err *err)
{
    if (s->trace && s->sched.stats.passes && kind != s->last_kind)
        trace_counts(s);
    s->last_kind = kind;
    trace_call(s);
    if (s->in_pass || n_units > s->plan->n_units)
        return sl_fail(err, SL_EINVAL, "pass of %u units: %s", n_units,
                       s->in_pass ? "the one before has not ended" : "the plan has fewer");
    pthread_mutex_lock(&s->lock);
    sl_sched_pass_begin(&s->sched, kind, rows, n_units);
    sl_stream_kick(s);
    pass_unlock(s);
    s->in_pass = true;
    s->n_units = n_units;
    s->next_unit = 0;
    s->entered = NO_UNIT;
    if (s->trace)
        sl_trace_pass(s->trace, kind, rows, n_units);
    return SL_OK;
}

void sl_pass_end(sl_stream *s)
{
    if (!s->in_pass)
        return;
    trace_call(s);
    pthread_mutex_lock(&s->lock);
    sl_sched_pass_end(&s->sched);
    sl_stream_kick(s);
    pass_unlock(s);
    s->in_pass = false;
    s->entered = NO_UNIT;
    if (s->trace)
        sl_trace_end(s->trace);
}

/* Calls step until it says something else than "not yet". Holding the lock. */
static sl_status wait_for(sl_stream *s, sl_status (*step)(sl_stream *, sl_err *), sl_err *err)
{
    unsigned seen = atomic_load_explicit(&s->changes, memory_order_relaxed);
    sl_status st = step(s, err);
    if (st != SL_EAGAIN)
        return st;
    uint64_t since = sl_now_ns();
    s->waits++;
    while (st == SL_EAGAIN) {
        sl_stream_kick(s);
        wait_change(s, seen);
        seen = atomic_load_explicit(&s->changes, memory_order_relaxed);
        st = step(s, err);
    }
    s->wait_ns += sl_now_ns() - since;
    return st;
}

static sl_status enter_step(sl_stream *s, sl_err *err)
{
    return sl_sched_enter(&s->sched, s->next_unit, err);
}

sl_status sl_unit_enter(sl_stream *s, uint32_t unit, sl_err *err)
{
    trace_call(s);
    if (!s->in_pass || s->entered != NO_UNIT || unit != s->next_unit || unit >= s->n_units)
        return sl_fail(err, SL_EINVAL, "unit %u entered out of order (unit %u of %u is next%s)",
                       unit, s->next_unit, s->n_units, s->in_pass ? "" : ", no pass has begun");
    pthread_mutex_lock(&s->lock);
    sl_status st = wait_for(s, enter_step, err);
    pass_unlock(s);
    if (st) {
        sl_pass_end(s);
        return st;
    }
    s->entered = unit;
    s->needed = false;
    if (s->trace)
        sl_trace_enter(s->trace);
    return SL_OK;
}

void sl_unit_leave(sl_stream *s, uint32_t unit)
{
    if (s->entered != unit)
        return;
    trace_call(s);
    pthread_mutex_lock(&s->lock);
    sl_sched_leave(&s->sched, unit);
    sl_stream_kick(s);
    pass_unlock(s);
    s->entered = NO_UNIT;
    s->next_unit = unit + 1;
    if (s->trace)
        sl_trace_leave(s->trace);
}

const void *sl_part_data(const sl_stream *s, uint32_t part, uint32_t extent)
{
    const sl_place *place = &s->plan->parts[part].places[extent];
    if (s->engine->ops->data)
        return s->engine->ops->data(s->engine, place->extent.file, place->extent.offset);
    /* Read without the lock: a held part's slot does not move. */
    return s->sched.resident[s->sched.position[part]].data + place->at;
}

/* ---- on-demand parts ---- */

static bool need_is_right(const sl_stream *s, const uint32_t *parts, const uint32_t *rows,
                          uint32_t n)
{
    bool right = s->entered != NO_UNIT && !s->needed;
    for (uint32_t i = 0; right && i < n; i++) {
        const sl_part *p = parts[i] < s->plan->n_parts ? &s->plan->parts[parts[i]] : NULL;
        right = p && p->kind == SL_PART_ON_DEMAND && p->unit == s->entered && rows[i] &&
                s->sched.resident[s->sched.position[parts[i]]].want <= SL_WANT_HINTED;
    }
    return right;
}

sl_status sl_parts_need(sl_stream *s, const uint32_t *parts, const uint32_t *rows, uint32_t n,
                        sl_err *err)
{
    trace_call(s);
    if (!need_is_right(s, parts, rows, n))
        return sl_fail(err, SL_EINVAL,
                       "%u parts needed: they must be on-demand parts of the entered unit, "
                       "asked for once",
                       n);
    pthread_mutex_lock(&s->lock);
    sl_sched_need(&s->sched, s->entered, parts, rows, n);
    sl_stream_kick(s);
    pass_unlock(s);
    s->needed = true;
    if (s->trace)
        sl_trace_need(s->trace, parts, rows, n);
    return SL_OK;
}

typedef struct next_parts {
    uint32_t *parts, max, *n;
} next_parts;

static sl_status next_step(sl_stream *s, sl_err *err)
{
    const next_parts *w = s->step_ctx;
    return sl_sched_parts(&s->sched, w->parts, w->max, w->n, err);
}

sl_status sl_parts_next(sl_stream *s, uint32_t *parts, uint32_t max, uint32_t *n, sl_err *err)
{
    next_parts w = {parts, max, n};
    trace_call(s);
    *n = 0;
    if (s->entered == NO_UNIT || !s->needed)
        return sl_fail(err, SL_EINVAL, "next part: none were asked for");
    pthread_mutex_lock(&s->lock);
    s->step_ctx = &w;
    sl_status st = wait_for(s, next_step, err);
    sl_stream_kick(s);
    pass_unlock(s);
    if (st)
        sl_pass_end(s);
    else if (s->trace)
        sl_trace_given(s->trace, max, parts, *n);
    return st;
}

static sl_status rest_step(sl_stream *s, sl_err *err)
{
    return sl_sched_part_rest(&s->sched, *(const uint32_t *)s->step_ctx, err);
}

sl_status sl_part_rest(sl_stream *s, uint32_t part, sl_err *err)
{
    trace_call(s);
    if (part >= s->plan->n_parts || s->plan->parts[part].unit != s->entered ||
        s->sched.resident[s->sched.position[part]].want != SL_WANT_GIVEN)
        return sl_fail(err, SL_EINVAL, "rest of part %u: it was not given", part);
    pthread_mutex_lock(&s->lock);
    s->step_ctx = &part;
    sl_status st = wait_for(s, rest_step, err);
    pass_unlock(s);
    if (st)
        sl_pass_end(s);
    else if (s->trace)
        sl_trace_rest(s->trace, part);
    return st;
}

void sl_parts_hint(sl_stream *s, const uint32_t *parts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (parts[i] >= s->plan->n_parts || s->plan->parts[parts[i]].kind != SL_PART_ON_DEMAND ||
            s->plan->parts[parts[i]].unit != s->plan->parts[parts[0]].unit)
            return;
    if (!s->in_pass || !n)
        return;
    trace_call(s);
    pthread_mutex_lock(&s->lock);
    sl_sched_hint(&s->sched, parts, n);
    sl_stream_kick(s);
    pass_unlock(s);
    if (s->trace)
        sl_trace_hint(s->trace, parts, n);
}

const void *sl_part_peek(sl_stream *s, uint32_t part, uint32_t extent)
{
    const sl_resident *r = &s->sched.resident[s->sched.position[part]];
    bool there;
    pthread_mutex_lock(&s->lock);
    there = r->pinned && r->state == SL_PART_READY;
    pthread_mutex_unlock(&s->lock);
    return there ? sl_part_data(s, part, extent) : NULL;
}

static sl_status rows_step(sl_stream *s, sl_err *err)
{
    return sl_sched_rows_state(&s->sched, err);
}

static sl_status rows_fetch(void *ctx, const sl_span *spans, uint32_t n, uint8_t *base, sl_err *err)
{
    sl_stream *s = ctx;
    pthread_mutex_lock(&s->lock);
    sl_sched_rows_start(&s->sched, spans, n, base);
    sl_status st = wait_for(s, rows_step, err);
    pass_unlock(s);
    return st;
}

sl_status sl_rows_read(sl_stream *s, uint32_t table, const uint32_t *row, uint32_t n, void *out,
                       sl_err *err)
{
    if (table >= s->plan->n_tables || n > s->o.max_row_batch)
        return sl_fail(err, SL_EINVAL, "%u rows of row table %u: at most %u rows of %u tables", n,
                       table, s->o.max_row_batch, s->plan->n_tables);
    trace_call(s);
    sl_status st = sl_rows_get(&s->rows, table, row, n, out, rows_fetch, s, err);
    if (!st && s->trace)
        sl_trace_rows(s->trace, table, row, n);
    return st;
}

void sl_need_stats_add(sl_need_stats *sum, const sl_need_stats *u, int sign)
{
    const uint64_t one = sign < 0 ? UINT64_MAX : 1; /* -1: the sums wrap round */
    sum->needs += one * u->needs;
    sum->hits += one * u->hits;
    sum->miss_bytes += one * u->miss_bytes;
    sum->guesses += one * u->guesses;
    sum->guesses_right += one * u->guesses_right;
    sum->hints += one * u->hints;
    sum->hints_useful += one * u->hints_useful;
    sum->hints_late += one * u->hints_late;
    sum->hint_bytes += one * u->hint_bytes;
    sum->wasted_bytes += one * u->wasted_bytes;
}

void sl_stream_uses_get(sl_stream *s, float *use)
{
    pthread_mutex_lock(&s->lock);
    sl_pool_uses_get(&s->sched.pool, use);
    pthread_mutex_unlock(&s->lock);
}

void sl_stream_uses_set(sl_stream *s, const float *use)
{
    trace_call(s);
    pthread_mutex_lock(&s->lock);
    sl_pool_uses_set(&s->sched.pool, use);
    pthread_mutex_unlock(&s->lock);
    if (s->trace)
        sl_trace_uses(s->trace, use, s->sched.pool.n);
}

void sl_stream_need_stats(sl_stream *s, uint32_t unit, sl_need_stats *out)
{
    *out = (sl_need_stats){0};
    pthread_mutex_lock(&s->lock);
    if (s->sched.unit_stats && unit < s->plan->n_units)
        *out = s->sched.unit_stats[unit];
    pthread_mutex_unlock(&s->lock);
}

void sl_stream_stats_get(sl_stream *s, sl_stream_stats *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->sched.stats;
    for (uint32_t u = 0; s->sched.unit_stats && u < s->plan->n_units; u++)
        sl_need_stats_add(&out->need, &s->sched.unit_stats[u], 1);
    pthread_mutex_unlock(&s->lock);
    out->wait_ns = s->wait_ns;
    out->waits = s->waits;
    out->rows_read = s->rows.n_read;
    out->row_hits = s->rows.n_hits;
    out->io_cpu_ns = sl_thread_cpu_ns(s->thread) + s->engine->ops->cpu_ns(s->engine);
}
