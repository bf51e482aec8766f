#include "homes.h"

#include <stdlib.h>

#include "slab.h"

/* Three whole pieces and what is cut off at both ends; the ring is usually longer. */
#define GROUP_BYTES ((uint64_t)8 << 20)

uint64_t sl_homes_memory_bytes(const sl_plan *p)
{
    return (uint64_t)(sl_plan_always_count(p) + 1) * (sizeof(sl_home) + sizeof(uint32_t));
}

/* Whether all parts of the unit may be streamed: they must fit the ring twice. */
static bool unit_may(const sl_sched *s, uint32_t unit)
{
    uint64_t bytes = 0;
    for (uint32_t i = s->unit_first[unit]; i < s->unit_first[unit + 1]; i++)
        bytes += s->plan->parts[s->resident[i].part].slot_bytes;
    return 2 * bytes <= s->ring.bytes;
}

/* Number i of n when counted with its bits reversed: any first few numbers are spread evenly. */
static uint32_t reversed(uint32_t i)
{
    uint32_t r = 0;
    for (uint32_t bit = 0; bit < 32; bit++)
        r |= (i >> bit & 1) << (31 - bit);
    return r;
}

static int by_order(const void *a, const void *b)
{
    const uint32_t x = ((const sl_home *)a)->order, y = ((const sl_home *)b)->order;
    return x < y ? -1 : x > y;
}

static void group_end(sl_homes *h, sl_home *g, uint64_t end)
{
    g->from = sl_round_up(g->from, SL_SLAB_PIECE);
    g->to = sl_round_down(end, SL_SLAB_PIECE);
    g->order = reversed(h->n);
    if (g->n && g->to > g->from)
        h->home[h->n++] = *g;
    *g = (sl_home){0};
}

sl_status sl_homes_open(sl_homes *h, const sl_sched *s, const uint8_t *memory, sl_err *err)
{
    *h = (sl_homes){0};
    if (s->n_on_demand || !s->ring.bytes || !memory)
        return SL_OK;
    h->part = calloc(s->n_order + 1, sizeof *h->part);
    h->home = calloc(s->n_order + 1, sizeof *h->home);
    if (!h->part || !h->home) {
        sl_homes_close(h);
        return sl_fail(err, SL_ENOMEM, "streaming: out of memory");
    }
    sl_home g = {0};
    uint64_t end = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_order; i++) {
        const sl_resident *r = &s->resident[i];
        const sl_part *p = &s->plan->parts[r->part];
        if (!r->home)
            continue;
        if (!unit_may(s, p->unit) || (g.n && end - g.from >= GROUP_BYTES))
            group_end(h, &g, end);
        if (!unit_may(s, p->unit))
            continue;
        if (!g.n)
            g = (sl_home){.first = n, .from = (uint64_t)(r->home - memory)};
        end = (uint64_t)(r->home - memory) + p->slot_bytes;
        h->part[n++] = r->part;
        g.n++;
    }
    group_end(h, &g, end);
    qsort(h->home, h->n, sizeof *h->home, by_order);
    return SL_OK;
}

void sl_homes_close(sl_homes *h)
{
    free(h->part);
    free(h->home);
    *h = (sl_homes){0};
}

uint64_t sl_homes_bytes(const sl_homes *h, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += h->home[i].to - h->home[i].from;
    return bytes;
}
