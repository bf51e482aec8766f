/* The mapped engine: the files are mapped, and threads bring ranges into the page cache and into
 * the mapping before they are needed; what has been used is dropped again if it is not pinned. When
 * everything fits, nothing is dropped, and a second start finds it all in the page cache.
 *
 * A file that is cut short by somebody while it is mapped raises SIGBUS where its bytes are used,
 * as for any program that maps files; sl_stream_mapped_path() tells a handler which file it was.
 * The other engines turn that into an error. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io_threads.h"

/* One POSIX_FADV_WILLNEED reads no more than the device's read-ahead size; 128 KiB is the least
 * that is in use. */
enum { WILLNEED_STEP = 128 << 10 };

typedef struct range {
    uint64_t from, to;
} range;

typedef struct mapped_engine {
    sl_engine base;
    sl_io_pool pool;
    const sl_plan *plan;
    uint64_t page;
    uint8_t **map;        /* by file */
    range *drop;          /* by span: what goes when the part goes */
    uint32_t *drop_first; /* by part: its first span in drop */
    uint32_t n_spans;
} mapped_engine;

/* ---- pages that two parts share ---- */

typedef struct owner {
    const sl_span *span;
    range *drop;
    uint32_t part;
    bool pinned;
} owner;

static int by_offset(const void *a, const void *b)
{
    const sl_span *x = ((const owner *)a)->span, *y = ((const owner *)b)->span;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static bool on_demand(const sl_plan *p, const owner *o)
{
    return p->parts[o->part].kind == SL_PART_ON_DEMAND;
}

/* The page between two neighbours goes with the one that is left last; a pinned one keeps it.
 * On-demand parts go in no order: either takes the page along, and the other faults it in again. */
static void share(const sl_plan *p, owner *a, owner *b)
{
    uint64_t from = b->drop->from, to = a->drop->to;
    if (a->span->file != b->span->file || from >= to || (a->pinned && b->pinned) ||
        (on_demand(p, a) && on_demand(p, b)))
        return;
    bool b_keeps =
        a->pinned != b->pinned ? b->pinned : p->parts[a->part].unit <= p->parts[b->part].unit;
    if (b_keeps)
        a->drop->to = from;
    else
        b->drop->from = to < b->drop->to ? to : b->drop->to;
}

static sl_status drops_make(mapped_engine *m, const uint8_t *pinned, sl_err *err)
{
    const sl_plan *p = m->plan;
    m->drop_first = calloc(p->n_parts + 1, sizeof *m->drop_first);
    for (uint32_t i = 0; i < p->n_parts; i++)
        m->n_spans += p->parts[i].n_spans;
    m->drop = calloc(m->n_spans + 1, sizeof *m->drop);
    owner *owners = calloc(m->n_spans + 1, sizeof *owners);
    if (!m->drop_first || !m->drop || !owners) {
        free(owners);
        return sl_fail(err, SL_ENOMEM, "streaming: out of memory");
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        m->drop_first[i] = n;
        for (uint32_t k = 0; k < p->parts[i].n_spans; k++) {
            const sl_span *s = &p->parts[i].spans[k];
            m->drop[n] = (range){sl_round_down(s->offset, m->page),
                                 sl_round_up(s->offset + s->need, m->page)};
            owners[n] = (owner){.span = s, .drop = &m->drop[n], .part = i, .pinned = pinned[i]};
            n++;
        }
    }
    qsort(owners, n, sizeof *owners, by_offset);
    for (uint32_t i = 0; i + 1 < n; i++)
        share(p, &owners[i], &owners[i + 1]);
    free(owners);
    return SL_OK;
}

static void mapped_release(sl_engine *e, uint32_t part)
{
    const mapped_engine *m = (const mapped_engine *)e;
    const sl_part *q = &m->plan->parts[part];
    for (uint32_t k = 0; k < q->n_spans; k++) {
        range d = m->drop[m->drop_first[part] + k];
        if (d.from >= d.to)
            continue;
        uint32_t file = q->spans[k].file;
        madvise(m->map[file] + d.from, d.to - d.from, MADV_DONTNEED);
        posix_fadvise(m->plan->files[file]->fd, (off_t)d.from, (off_t)(d.to - d.from),
                      POSIX_FADV_DONTNEED);
    }
}

/* ---- bringing ranges in ---- */

/* Reads the range through a small buffer: for kernels that cannot populate a mapping (before 5.14),
 * and to learn why one could not be. */
static int32_t read_through(int fd, uint64_t offset, uint32_t len)
{
    char buf[16 << 10];
    uint32_t at = 0;
    while (at < len) {
        uint32_t step = len - at < sizeof buf ? len - at : (uint32_t)sizeof buf;
        ssize_t n = pread(fd, buf, step, (off_t)(offset + at));
        if (n < 0)
            return at ? (int32_t)at : -errno;
        if (n == 0)
            break;
        at += (uint32_t)n;
    }
    return (int32_t)at;
}

static int32_t populate(const mapped_engine *m, const sl_read *r)
{
    const sl_file *f = m->plan->files[r->file];
    uint64_t from = sl_round_down(r->offset, m->page), to = r->offset + r->need;
    struct stat st;
    if (fstat(f->fd, &st) == 0 && (uint64_t)st.st_size < to) /* touching it would be fatal */
        return (uint64_t)st.st_size > r->offset ? (int32_t)((uint64_t)st.st_size - r->offset) : 0;
    for (uint64_t at = from; at < to; at += WILLNEED_STEP)
        posix_fadvise(f->fd, (off_t)at, (off_t)(to - at < WILLNEED_STEP ? to - at : WILLNEED_STEP),
                      POSIX_FADV_WILLNEED);
#ifdef MADV_POPULATE_READ
    if (madvise(m->map[r->file] + from, to - from, MADV_POPULATE_READ) == 0)
        return (int32_t)r->need;
#endif
    return read_through(f->fd, r->offset, r->need);
}

static int32_t work(sl_engine *e, sl_read *r)
{
    const mapped_engine *m = (const mapped_engine *)e;
    const sl_file *f = m->plan->files[r->file];
    if (!r->dest) {
        int32_t n = populate(m, r);
        return n < 0 ? n : n > (int32_t)r->done ? n - (int32_t)r->done : 0;
    }
    ssize_t n = pread(f->fd, r->dest + r->done, r->len - r->done, (off_t)(r->offset + r->done));
    int32_t result = n < 0 ? -errno : (int32_t)n;
    sl_file_forget(f, r->offset, r->len); /* leaves pages that are mapped */
    return result;
}

/* ---- the table ---- */

static void mapped_close(sl_engine **e)
{
    mapped_engine *m = (mapped_engine *)*e;
    if (!m)
        return;
    sl_io_pool_close(&m->pool);
    for (uint32_t i = 0; m->map && i < m->plan->n_files; i++)
        if (m->map[i])
            munmap(m->map[i], m->plan->files[i]->size);
    free(m->map);
    free(m->drop);
    free(m->drop_first);
    free(m);
    *e = NULL;
}

static sl_status maps_make(mapped_engine *m, sl_err *err)
{
    m->map = calloc(m->plan->n_files + 1, sizeof *m->map);
    if (!m->map)
        return sl_fail(err, SL_ENOMEM, "streaming: out of memory");
    for (uint32_t i = 0; i < m->plan->n_files; i++) {
        const sl_file *f = m->plan->files[i];
        if (f->size == 0)
            continue;
        void *at = mmap(NULL, f->size, PROT_READ, MAP_SHARED, f->fd, 0);
        if (at == MAP_FAILED)
            return sl_fail(err, SL_EUNSUPPORTED, "mmap refused (%s)", strerror(errno));
        m->map[i] = at;
        madvise(at, f->size, MADV_RANDOM); /* reads nothing that was not asked for */
    }
    return SL_OK;
}

static sl_status mapped_open(const sl_engine_config *c, sl_engine **out, sl_err *err)
{
    mapped_engine *m = calloc(1, sizeof *m);
    *out = m ? &m->base : NULL;
    if (!m)
        return sl_fail(err, SL_ENOMEM, "streaming: out of memory");
    m->base.ops = &sl_io_mapped;
    m->plan = c->plan;
    m->page = (uint64_t)sysconf(_SC_PAGESIZE);
    sl_status st = maps_make(m, err);
    if (st == SL_OK)
        st = drops_make(m, c->pinned, err);
    if (st == SL_OK)
        st = sl_io_pool_open(&m->pool, work, &m->base, err);
    if (st)
        mapped_close(out);
    return st;
}

static sl_status mapped_start(sl_engine *e, sl_err *err)
{
    return SL_OK;
}

static void mapped_submit(sl_engine *e, sl_read *const *reads, uint32_t n)
{
    sl_io_pool_submit(&((mapped_engine *)e)->pool, reads, n);
}

static uint32_t mapped_wait(sl_engine *e, uint64_t timeout_ns, sl_read **done, uint32_t max)
{
    return sl_io_pool_wait(&((mapped_engine *)e)->pool, timeout_ns, done, max);
}

static void mapped_wake(sl_engine *e)
{
    sl_io_pool_wake(&((mapped_engine *)e)->pool);
}

static const void *mapped_data(const sl_engine *e, uint32_t file, uint64_t offset)
{
    return ((const mapped_engine *)e)->map[file] + offset;
}

static uint32_t mapped_file(const sl_engine *e, const void *address)
{
    const mapped_engine *m = (const mapped_engine *)e;
    const uintptr_t at = (uintptr_t)address;
    for (uint32_t i = 0; i < m->plan->n_files; i++)
        if (m->map[i] && at >= (uintptr_t)m->map[i] &&
            at - (uintptr_t)m->map[i] < m->plan->files[i]->size)
            return i;
    return UINT32_MAX;
}

static uint64_t mapped_cpu_ns(sl_engine *e)
{
    return sl_io_pool_cpu_ns(&((mapped_engine *)e)->pool);
}

static const char *mapped_describe(const sl_engine *e)
{
    return "page cache, ranges brought in by threads";
}

const sl_engine_ops sl_io_mapped = {.open = mapped_open,
                                    .close = mapped_close,
                                    .start = mapped_start,
                                    .submit = mapped_submit,
                                    .wait = mapped_wait,
                                    .wake = mapped_wake,
                                    .data = mapped_data,
                                    .mapped = mapped_file,
                                    .release = mapped_release,
                                    .cpu_ns = mapped_cpu_ns,
                                    .describe = mapped_describe};
