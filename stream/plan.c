/* The plan: units, parts, extents; how a part's extents become aligned reads and places in a slot.
 * The layout of a part is worked out again whenever an extent is added, so that a plan is always
 * ready to be looked at. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <fcntl.h>

#include "plan.h"

/* The least alignment that direct reads of this file accept; 4096 when the kernel does not say.
 * Looked up here because the layout of every slot depends on it. */
static uint64_t direct_align(const sl_file *f)
{
#ifdef STATX_DIOALIGN
    struct statx x;
    if (statx(f->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) == 0 && (x.stx_mask & STATX_DIOALIGN)) {
        uint64_t a = x.stx_dio_offset_align > x.stx_dio_mem_align ? x.stx_dio_offset_align
                                                                  : x.stx_dio_mem_align;
        if (a > SL_ALIGN_MIN && a <= (1u << 20) && (a & (a - 1)) == 0)
            return a;
    }
#endif
    return SL_ALIGN_MIN;
}

sl_plan *sl_plan_new_files(sl_file *const *files, uint32_t n)
{
    sl_plan *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->arena = sl_arena_new();
    p->files = p->arena ? sl_arena_alloc(p->arena, n ? n : 1, sizeof *p->files) : NULL;
    if (!p->files) {
        sl_plan_free(&p);
        return NULL;
    }
    p->n_files = n;
    p->align = SL_ALIGN_MIN;
    for (uint32_t i = 0; i < n; i++) {
        p->files[i] = files[i];
        uint64_t a = direct_align(files[i]);
        if (a > p->align)
            p->align = a;
    }
    return p;
}

sl_plan *sl_plan_new(const sl_checkpoint *c)
{
    uint32_t n = sl_checkpoint_file_count(c);
    sl_file **files = calloc(n ? n : 1, sizeof(sl_file *));
    if (!files)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        files[i] = sl_checkpoint_file(c, i);
    sl_plan *p = sl_plan_new_files(files, n);
    free(files);
    return p;
}

void sl_plan_free(sl_plan **p)
{
    if (!p || !*p)
        return;
    free((*p)->units);
    free((*p)->parts);
    free((*p)->tables);
    sl_arena_free(&(*p)->arena);
    free(*p);
    *p = NULL;
}

/* Room for one more element; false (remembered in p->err) when there is none. */
static bool grow(sl_plan *p, void **array, uint32_t *cap, uint32_t n, size_t size)
{
    if (n < *cap)
        return true;
    uint32_t want = *cap ? *cap * 2 : 64;
    void *a = want > *cap ? realloc(*array, want * size) : NULL;
    if (!a) {
        sl_fail(&p->err, SL_ENOMEM, "plan: out of memory");
        return false;
    }
    *array = a;
    *cap = want;
    return true;
}

uint32_t sl_plan_unit(sl_plan *p, const char *name)
{
    void *a = p->units;
    bool ok = grow(p, &a, &p->units_cap, p->n_units, sizeof *p->units);
    p->units = a;
    const char *copy = ok ? sl_arena_strndup(p->arena, name, strlen(name)) : NULL;
    if (!copy) {
        sl_fail(&p->err, SL_ENOMEM, "plan: out of memory");
        return 0;
    }
    p->units[p->n_units] = copy;
    return p->n_units++;
}

uint32_t sl_plan_part(sl_plan *p, uint32_t unit, sl_part_kind kind)
{
    if (unit >= p->n_units) {
        sl_fail(&p->err, SL_EINVAL, "plan: part of unit %u, of which there are %u", unit,
                p->n_units);
        return 0;
    }
    void *a = p->parts;
    bool ok = grow(p, &a, &p->parts_cap, p->n_parts, sizeof *p->parts);
    p->parts = a;
    if (!ok)
        return 0;
    p->parts[p->n_parts] = (sl_part){.unit = unit, .kind = kind};
    return p->n_parts++;
}

static bool places_grow(sl_plan *p, sl_part *part)
{
    if (part->n_places < part->places_cap)
        return true;
    uint32_t cap = part->places_cap ? part->places_cap * 2 : 2;
    sl_place *places = sl_arena_alloc(p->arena, cap, sizeof *places);
    sl_span *spans = sl_arena_alloc(p->arena, cap, sizeof *spans);
    if (!places || !spans)
        return false;
    if (part->n_places)
        memcpy(places, part->places, part->n_places * sizeof *places);
    part->places = places;
    part->spans = spans;
    part->places_cap = cap;
    return true;
}

/* Which stage of the part place i belongs to. */
static uint32_t stage_of(const sl_part *part, uint32_t i)
{
    return part->n_first_places && i >= part->n_first_places;
}

static bool before(const sl_span *a, const sl_span *b)
{
    if (a->stage != b->stage)
        return a->stage < b->stage;
    return a->file != b->file ? a->file < b->file : a->offset < b->offset;
}

/* One span per extent, sorted by insertion: parts have a handful of extents. */
static void spans_sorted(sl_part *part)
{
    part->n_spans = 0;
    for (uint32_t i = 0; i < part->n_places; i++) {
        const sl_extent *e = &part->places[i].extent;
        if (!e->len)
            continue;
        const sl_span span = {
            .file = e->file, .stage = stage_of(part, i), .offset = e->offset, .need = e->len};
        uint32_t k = part->n_spans++;
        for (; k > 0 && before(&span, &part->spans[k - 1]); k--)
            part->spans[k] = part->spans[k - 1];
        part->spans[k] = span;
    }
}

static void spans_merge(sl_part *part)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < part->n_spans; i++) {
        sl_span s = part->spans[i], *last = n ? &part->spans[n - 1] : NULL;
        uint64_t end = s.offset + s.need;
        if (last && last->stage == s.stage && last->file == s.file &&
            s.offset < last->offset + last->need + SL_SPAN_GAP) {
            if (end > last->offset + last->need)
                last->need = end - last->offset;
        } else {
            part->spans[n++] = s;
        }
    }
    part->n_spans = n;
}

static uint64_t place_in_slot(const sl_part *part, const sl_extent *e, uint32_t stage)
{
    for (uint32_t i = 0; i < part->n_spans; i++) {
        const sl_span *s = &part->spans[i];
        if (s->stage == stage && s->file == e->file && e->offset >= s->offset &&
            e->offset + e->len <= s->offset + s->need)
            return s->at + (e->offset - s->offset);
    }
    return 0; /* an empty extent */
}

static void layout(const sl_plan *p, sl_part *part)
{
    spans_sorted(part);
    spans_merge(part);
    uint64_t at = 0;
    for (uint32_t i = 0; i < part->n_spans; i++) {
        sl_span *s = &part->spans[i];
        uint64_t head = s->offset & (p->align - 1);
        s->offset -= head;
        s->need += head;
        s->len = sl_round_up(s->need, p->align);
        s->at = at;
        at += s->len;
    }
    part->slot_bytes = at;
    part->n_first_spans = 0;
    while (part->n_first_places && part->n_first_spans < part->n_spans &&
           part->spans[part->n_first_spans].stage == 0)
        part->n_first_spans++;
    for (uint32_t i = 0; i < part->n_places; i++)
        part->places[i].at = place_in_slot(part, &part->places[i].extent, stage_of(part, i));
}

static bool extent_fits(sl_plan *p, const sl_extent *e)
{
    uint64_t end;
    if (e->file < p->n_files && sl_add_size(e->offset, e->len, &end) &&
        end <= p->files[e->file]->size)
        return true;
    sl_fail(&p->err, SL_EINVAL, "plan: %s: bytes %llu+%llu lie outside the file",
            e->file < p->n_files ? p->files[e->file]->path : "no such file",
            (unsigned long long)e->offset, (unsigned long long)e->len);
    return false;
}

uint32_t sl_plan_extent(sl_plan *p, uint32_t part, sl_extent e)
{
    if (part >= p->n_parts) {
        sl_fail(&p->err, SL_EINVAL, "plan: extent of part %u, of which there are %u", part,
                p->n_parts);
        return 0;
    }
    sl_part *q = &p->parts[part];
    if (!extent_fits(p, &e))
        return 0;
    if (!places_grow(p, q)) {
        sl_fail(&p->err, SL_ENOMEM, "plan: out of memory");
        return 0;
    }
    q->places[q->n_places] = (sl_place){.extent = e};
    q->len_bytes += e.len;
    q->n_places++;
    layout(p, q);
    return q->n_places - 1;
}

void sl_plan_part_stage(sl_plan *p, uint32_t part)
{
    if (part < p->n_parts)
        p->parts[part].n_first_places = p->parts[part].n_places;
}

uint32_t sl_plan_row_table(sl_plan *p, const char *name, sl_extent e, uint64_t row_bytes)
{
    if (!extent_fits(p, &e))
        return 0;
    if (row_bytes == 0 || e.len % row_bytes || row_bytes > UINT32_MAX / 2) {
        sl_fail(&p->err, SL_EINVAL, "plan: row table %s: %llu bytes in rows of %llu", name,
                (unsigned long long)e.len, (unsigned long long)row_bytes);
        return 0;
    }
    void *a = p->tables;
    bool ok = grow(p, &a, &p->tables_cap, p->n_tables, sizeof *p->tables);
    p->tables = a;
    const char *copy = ok ? sl_arena_strndup(p->arena, name, strlen(name)) : NULL;
    if (!copy) {
        sl_fail(&p->err, SL_ENOMEM, "plan: out of memory");
        return 0;
    }
    p->tables[p->n_tables] = (sl_row_table){.name = copy, .extent = e, .row_bytes = row_bytes};
    return p->n_tables++;
}

uint32_t sl_plan_unit_count(const sl_plan *p)
{
    return p->n_units;
}

const char *sl_plan_unit_name(const sl_plan *p, uint32_t unit)
{
    return p->units[unit];
}

uint32_t sl_plan_part_count(const sl_plan *p)
{
    return p->n_parts;
}

sl_part_view sl_plan_part_view(const sl_plan *p, uint32_t part)
{
    const sl_part *q = &p->parts[part];
    return (sl_part_view){.unit_name = p->units[q->unit],
                          .unit = q->unit,
                          .kind = q->kind,
                          .n_extents = q->n_places,
                          .len_bytes = q->len_bytes,
                          .slot_bytes = q->slot_bytes};
}

static uint64_t bytes_of_kind(const sl_plan *p, sl_part_kind kind)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_parts; i++)
        if (p->parts[i].kind == kind)
            sum += p->parts[i].len_bytes;
    return sum;
}

uint64_t sl_plan_always_bytes(const sl_plan *p)
{
    return bytes_of_kind(p, SL_PART_ALWAYS);
}

uint64_t sl_plan_on_demand_bytes(const sl_plan *p)
{
    return bytes_of_kind(p, SL_PART_ON_DEMAND);
}

uint64_t sl_plan_memory_bytes(const sl_plan *p)
{
    return sizeof *p + sl_arena_bytes(p->arena) + (uint64_t)p->units_cap * sizeof *p->units +
           (uint64_t)p->parts_cap * sizeof *p->parts + (uint64_t)p->tables_cap * sizeof *p->tables;
}

uint32_t sl_plan_always_count(const sl_plan *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_parts; i++)
        n += p->parts[i].kind == SL_PART_ALWAYS;
    return n;
}

uint32_t sl_plan_on_demand_count(const sl_plan *p)
{
    return p->n_parts - sl_plan_always_count(p);
}

void sl_plan_order(const sl_plan *p, uint32_t *order, uint32_t *unit_first)
{
    memset(unit_first, 0, (p->n_units + 1) * sizeof *unit_first);
    for (uint32_t i = 0; i < p->n_parts; i++)
        if (p->parts[i].kind == SL_PART_ALWAYS)
            unit_first[p->parts[i].unit + 1]++;
    for (uint32_t u = 0; u < p->n_units; u++)
        unit_first[u + 1] += unit_first[u];
    /* Each unit's start serves as its write position, which leaves it at the next unit's start. */
    for (uint32_t i = 0; i < p->n_parts; i++)
        if (p->parts[i].kind == SL_PART_ALWAYS)
            order[unit_first[p->parts[i].unit]++] = i;
    for (uint32_t u = p->n_units; u > 0; u--)
        unit_first[u] = unit_first[u - 1];
    unit_first[0] = 0;
}
