#include "optimal.h"

#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX

typedef struct later { /* a part and its next use, as it was when this was written down */
    uint64_t next;
    uint32_t part;
} later;

typedef struct keeper {
    const sl_optimal_needs *o;
    uint64_t *next;   /* by need: the next one of the same part, if it counts; else NEVER */
    uint64_t *known;  /* by part: the next use that its newest entry has */
    uint8_t *kept;    /* by part */
    later **heap;     /* by class; the furthest next use first, with old entries among them */
    uint64_t *n_heap; /* by class */
    uint32_t *n_kept; /* by class */
} keeper;

static void keeper_close(keeper *k)
{
    for (uint32_t c = 0; k->heap && c < k->o->n_classes; c++)
        free(k->heap[c]);
    free(k->next);
    free(k->known);
    free(k->kept);
    free(k->heap);
    free(k->n_heap);
    free(k->n_kept);
}

/* Every need writes one entry down, so that is how many a heap may hold. */
static bool keeper_open(keeper *k)
{
    const sl_optimal_needs *o = k->o;
    k->next = calloc(o->n + 1, sizeof *k->next);
    k->known = calloc((uint64_t)o->n_parts + 1, sizeof *k->known);
    k->kept = calloc((uint64_t)o->n_parts + 1, 1);
    k->heap = calloc((uint64_t)o->n_classes + 1, sizeof *k->heap);
    k->n_heap = calloc((uint64_t)o->n_classes + 1, sizeof *k->n_heap);
    k->n_kept = calloc((uint64_t)o->n_classes + 1, sizeof *k->n_kept);
    if (!k->next || !k->known || !k->kept || !k->heap || !k->n_heap || !k->n_kept)
        return false;
    for (uint64_t i = 0; i < o->n; i++)
        k->n_heap[o->class_of[o->part[i]]]++;
    bool ok = true;
    for (uint32_t c = 0; c < o->n_classes; c++) {
        k->heap[c] = malloc((k->n_heap[c] + 1) * sizeof **k->heap);
        ok = ok && k->heap[c];
        k->n_heap[c] = 0;
    }
    return ok;
}

/* Backwards, with each part's nearest need so far. One that does not count brings the part for
 * nothing, so until then it need not be kept. */
static void find_next(keeper *k)
{
    const sl_optimal_needs *o = k->o;
    for (uint32_t p = 0; p < o->n_parts; p++)
        k->known[p] = NEVER;
    for (uint64_t i = o->n; i-- > 0;) {
        k->next[i] = k->known[o->part[i]];
        k->known[o->part[i]] = o->counted[i] ? i : NEVER;
    }
    memset(k->known, 0, o->n_parts * sizeof *k->known);
}

static void swap(later *a, later *b)
{
    const later x = *a;
    *a = *b;
    *b = x;
}

static void heap_add(keeper *k, uint32_t c, later x)
{
    later *h = k->heap[c];
    uint64_t i = k->n_heap[c]++;
    for (h[i] = x; i > 0 && h[(i - 1) / 2].next < h[i].next; i = (i - 1) / 2)
        swap(&h[i], &h[(i - 1) / 2]);
}

static later heap_take(keeper *k, uint32_t c)
{
    later *h = k->heap[c], top = h[0];
    const uint64_t n = --k->n_heap[c];
    h[0] = h[n];
    for (uint64_t i = 0;;) {
        uint64_t child = 2 * i + 1;
        if (child + 1 < n && h[child + 1].next > h[child].next)
            child++;
        if (child >= n || h[child].next <= h[i].next)
            return top;
        swap(&h[i], &h[child]);
        i = child;
    }
}

static void keep(keeper *k, uint64_t need)
{
    const uint32_t part = k->o->part[need], c = k->o->class_of[part];
    k->n_kept[c] += !k->kept[part];
    k->kept[part] = 1;
    k->known[part] = k->next[need];
    heap_add(k, c, (later){k->next[need], part});
}

static void drop_furthest(keeper *k, uint32_t c)
{
    while (k->n_kept[c] > k->o->slots[c]) {
        const later x = heap_take(k, c);
        if (!k->kept[x.part] || k->known[x.part] != x.next)
            continue; /* written down before the part was used again */
        k->kept[x.part] = 0;
        k->n_kept[c]--;
    }
}

sl_status sl_optimal_hits(const sl_optimal_needs *o, uint64_t *hits, sl_err *err)
{
    keeper k = {.o = o};
    *hits = 0;
    if (!keeper_open(&k)) {
        keeper_close(&k);
        return sl_fail(err, SL_ENOMEM, "optimal policy: out of memory");
    }
    find_next(&k);
    for (uint64_t from = 0, to = 0; from < o->n; from = to) {
        for (; to < o->n && o->request[to] == o->request[from]; to++)
            *hits += o->counted[to] && k.kept[o->part[to]];
        for (uint64_t i = from; i < to; i++)
            keep(&k, i);
        for (uint32_t c = 0; c < o->n_classes; c++)
            drop_furthest(&k, c);
    }
    keeper_close(&k);
    return SL_OK;
}
