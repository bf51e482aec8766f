#include "disk_probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "block_layer.h"
#include "plan.h"
#include "sched.h"
#include "slab.h"

enum {
    SAMPLES = 1 << 16, /* of times; later ones replace the first */
    MOST_BLOCKS = 16384
};

typedef struct trip { /* a read on its way; the engine knows its first member */
    sl_read read;
    uint64_t sent_ns;
} trip;

typedef struct probe {
    const sl_probe *p;
    sl_file *file;
    sl_plan *plan; /* a part per block, so that the engine can drop it behind */
    sl_slab slab;
    const sl_engine_ops *ops;
    sl_engine *engine;
    trip trips[SL_SCHED_READS];
    uint32_t idle[SL_SCHED_READS], n_idle;
    uint32_t depth;
    uint64_t block_bytes;
    uint64_t n_requests, per_block, stride;
    uint64_t sent, back, paid_until;
    uint16_t *done; /* requests of each block that came back */
    uint32_t *sample;
    sl_probe_result *out;
} probe;

static void probe_close(probe *b)
{
    if (b->engine)
        b->ops->close(&b->engine);
    /* Blocks that were read in part: what comes next must not find them. */
    if (b->p->io == SL_IO_MAPPED)
        sl_file_forget(b->file, 0, b->file->size);
    sl_slab_close(&b->slab);
    sl_plan_free(&b->plan);
    free(b->done);
    free(b->sample);
}

/* ---- set-up ---- */

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Steps of the golden section visit every request once and never two neighbours. */
static uint64_t stride_of(uint64_t n)
{
    uint64_t stride = (uint64_t)(0.6180339887 * (double)n);
    stride = stride ? stride : 1;
    while (common_divisor(stride, n) != 1)
        stride++;
    return stride;
}

static sl_status lay_out(probe *b, sl_err *err)
{
    const sl_probe *p = b->p;
    b->block_bytes = SL_PROBE_BLOCK;
    while (b->block_bytes > b->file->size / 8 && b->block_bytes > p->request_bytes)
        b->block_bytes /= 2;
    if (b->file->size < SL_PROBE_LEAST || b->file->size < b->block_bytes)
        return sl_fail(err, SL_EINVAL, "%s: too small a file (%llu bytes) for reads of %u",
                       b->file->path, (unsigned long long)b->file->size, p->request_bytes);
    uint64_t blocks = b->file->size / b->block_bytes;
    blocks = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
    b->per_block = b->block_bytes / p->request_bytes;
    b->n_requests = blocks * b->per_block;
    b->stride = p->scattered ? stride_of(b->n_requests) : 1;
    /* A block must be dropped before it is wanted again. */
    const uint64_t most = b->file->size / 2;
    uint64_t depth = (p->in_flight_bytes < most ? p->in_flight_bytes : most) / p->request_bytes;
    b->depth = depth < 1 ? 1 : depth > SL_SCHED_READS ? SL_SCHED_READS : (uint32_t)depth;
    b->plan = sl_plan_new_files(&b->file, 1);
    b->done = calloc(blocks, sizeof *b->done);
    b->sample = calloc(SAMPLES, sizeof *b->sample);
    if (!b->plan || !b->done || !b->sample)
        return sl_fail(err, SL_ENOMEM, "out of memory to measure the disk");
    const uint32_t unit = sl_plan_unit(b->plan, "disk");
    for (uint64_t i = 0; i < blocks; i++) {
        uint32_t part = sl_plan_part(b->plan, unit, SL_PART_ALWAYS);
        sl_plan_extent(b->plan, part, (sl_extent){0, i * b->block_bytes, b->block_bytes});
    }
    if (b->plan->err.code)
        return sl_fail(err, b->plan->err.code, "%s", b->plan->err.text);
    if (b->plan->align > p->request_bytes)
        return sl_fail(err, SL_EUNSUPPORTED, "reads must be multiples of %llu bytes here",
                       (unsigned long long)b->plan->align);
    return SL_OK;
}

static sl_status memory_make(probe *b, sl_err *err)
{
    if (b->ops->data)
        return SL_OK;
    sl_status st = sl_slab_open(&b->slab, (uint64_t)b->depth * b->p->request_bytes,
                                b->p->refuse & SL_REFUSE_HUGE_PAGES, err);
    if (!st)
        memset(b->slab.memory, 0, b->slab.bytes); /* the first touch is not the disk's time */
    return st;
}

static sl_status engine_make(probe *b, sl_err *err)
{
    uint8_t *pinned = calloc(b->plan->n_parts + 1, 1);
    if (!pinned)
        return sl_fail(err, SL_ENOMEM, "out of memory to measure the disk");
    const sl_engine_config c = {.plan = b->plan,
                                .pinned = pinned,
                                .depth = SL_SCHED_READS,
                                .refuse = b->p->refuse,
                                .memory = b->slab.memory,
                                .memory_bytes = b->slab.bytes};
    sl_status st = b->ops->open(&c, &b->engine, err);
    free(pinned);
    if (!st)
        st = b->ops->start(b->engine, err);
    if (!st)
        snprintf(b->out->engine, sizeof b->out->engine, "%s", b->ops->describe(b->engine));
    return st;
}

/* ---- reads ---- */

/* False: the limit holds the next read back, until *wait_ns from now. */
static bool may_send(probe *b, uint64_t now, uint64_t *wait_ns)
{
    if (!b->p->disk_limit)
        return true;
    if (now < b->paid_until) {
        *wait_ns = b->paid_until - now;
        return false;
    }
    b->paid_until = now + (uint64_t)((double)b->p->request_bytes * 1e9 / (double)b->p->disk_limit);
    return true;
}

static void send_one(probe *b, uint64_t now)
{
    const uint32_t i = b->idle[--b->n_idle], len = b->p->request_bytes;
    const uint64_t request = (b->p->start + b->sent++) % b->n_requests;
    /* n_requests and the stride are below 2^32: no overflow. */
    const uint64_t offset = request * b->stride % b->n_requests * len;
    trip *t = &b->trips[i];
    uint8_t *dest = b->ops->data ? NULL : b->slab.memory + (uint64_t)i * len;
    t->read = (sl_read){.len = len, .need = len, .offset = offset, .dest = dest};
    t->sent_ns = now;
    sl_read *r = &t->read;
    b->ops->submit(b->engine, &r, 1);
}

static sl_status failed(const probe *b, const sl_read *r, sl_err *err)
{
    if (r->result < 0)
        return sl_fail_errno(err, -r->result, "%s: reading %u bytes at offset %llu failed",
                             b->file->path, r->len, (unsigned long long)r->offset);
    return sl_fail(err, SL_EFORMAT, "%s: ends before offset %llu: cut short while it was read",
                   b->file->path, (unsigned long long)(r->offset + r->len));
}

/* What came back; *again: it has to go out once more for its rest. */
static sl_status take(probe *b, trip *t, uint64_t now, bool *again, sl_err *err)
{
    sl_read *r = &t->read;
    const uint64_t block = r->offset / b->block_bytes;
    *again = false;
    if (b->p->fail_read && ++b->back == b->p->fail_read)
        r->result = -b->p->fail_errno;
    *again = r->result == -EINTR || r->result == -EAGAIN ||
             (r->result > 0 && r->done + (uint32_t)r->result < r->need);
    if (*again && r->result > 0)
        r->done += (uint32_t)sl_round_down((uint32_t)r->result, b->plan->align);
    if (*again)
        return SL_OK;
    if (r->result <= 0)
        return failed(b, r, err);
    const uint64_t took = now - t->sent_ns;
    b->sample[b->out->reads++ % SAMPLES] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
    b->out->bytes += r->len;
    if (!b->ops->release)
        return SL_OK;
    if (b->p->scattered || ++b->done[block] == b->per_block) {
        b->done[block] = 0;
        b->ops->release(b->engine, (uint32_t)block);
    }
    return SL_OK;
}

static void rest(uint64_t ns)
{
    const struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&ts, NULL);
}

/* Sends until the time is over or a read fails, then waits for what is still on its way. */
static sl_status pump(probe *b, bool (*stop)(void), sl_err *err)
{
    sl_status st = SL_OK;
    uint64_t now = sl_now_ns();
    const uint64_t until = now + (uint64_t)(b->p->seconds * 1e9);
    for (;;) {
        uint64_t wait_ns = UINT64_MAX;
        bool over = st || now >= until || (stop && stop());
        while (!over && b->n_idle && may_send(b, now, &wait_ns))
            send_one(b, now);
        if (b->n_idle == b->depth) {
            if (over)
                return st;
            rest(wait_ns < until - now ? wait_ns : until - now);
            now = sl_now_ns();
            continue;
        }
        sl_read *back[SL_SCHED_READS];
        uint32_t n = b->ops->wait(b->engine, wait_ns, back, SL_SCHED_READS);
        now = sl_now_ns();
        for (uint32_t i = 0; i < n; i++) {
            trip *t = (trip *)(void *)back[i];
            bool again;
            sl_status mine = take(b, t, now, &again, st ? NULL : err);
            st = st ? st : mine;
            if (again)
                b->ops->submit(b->engine, &back[i], 1);
            else
                b->idle[b->n_idle++] = (uint32_t)(t - b->trips);
        }
    }
}

static uint64_t cpu_ns(const probe *b)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec + b->ops->cpu_ns(b->engine);
}

static int by_value(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void find_percentiles(probe *b)
{
    const uint64_t n = b->out->reads < SAMPLES ? b->out->reads : SAMPLES;
    if (!n)
        return;
    qsort(b->sample, n, sizeof *b->sample, by_value);
    b->out->p50_ns = b->sample[n / 2];
    b->out->p99_ns = b->sample[n - 1 - n / 100];
}

static sl_status measure(probe *b, bool (*stop)(void), sl_err *err)
{
    uint64_t before = 0, after = 0;
    sl_probe_result *out = b->out;
    b->n_idle = b->depth;
    for (uint32_t i = 0; i < b->depth; i++)
        b->idle[i] = i;
    out->storage_known = sl_process_disk_bytes(&before);
    const uint64_t cpu = cpu_ns(b), begin = sl_now_ns();
    sl_status st = pump(b, stop, err);
    out->wall_ns = sl_now_ns() - begin;
    out->cpu_ns = cpu_ns(b) - cpu;
    out->storage_known = out->storage_known && sl_process_disk_bytes(&after);
    out->storage_bytes = out->storage_known ? after - before : 0;
    out->next = (b->p->start + b->sent) % b->n_requests;
    find_percentiles(b);
    return st;
}

sl_status sl_probe_run(sl_file *f, const sl_probe *p, bool (*stop)(void), sl_probe_result *out,
                       sl_err *err)
{
    probe *b = calloc(1, sizeof *b);
    *out = (sl_probe_result){0};
    if (!b)
        return sl_fail(err, SL_ENOMEM, "out of memory to measure the disk");
    b->p = p;
    b->file = f;
    b->out = out;
    b->ops = p->io == SL_IO_MAPPED  ? &sl_io_mapped
             : p->io == SL_IO_PREAD ? &sl_io_pread
                                    : &sl_io_uring;
    sl_status st = lay_out(b, err);
    if (!st)
        st = memory_make(b, err);
    if (!st)
        st = engine_make(b, err);
    if (!st)
        st = measure(b, stop, err);
    probe_close(b);
    free(b);
    return st;
}

/* Read-ahead and metadata add a little; requests that a hole answers, or the page cache, lack. */
bool sl_probe_proven(const sl_probe_result *r)
{
    return r->storage_known && r->bytes && (double)r->storage_bytes >= 0.98 * (double)r->bytes;
}
