/* The ring: order of taking is the order of the pass, which is why nothing cleverer is needed. */
#include "ring.h"

void sl_ring_init(sl_ring *r, uint64_t bytes, sl_ring_slot *slots, uint32_t cap)
{
    *r = (sl_ring){.bytes = bytes, .slots = slots, .cap = cap};
}

sl_ring_slot *sl_ring_take(sl_ring *r, uint64_t len)
{
    if (r->n == r->cap)
        return NULL;
    if (r->n == 0)
        r->head = r->used = 0;
    bool wraps = len > r->bytes - r->head;
    uint64_t skipped = wraps ? r->bytes - r->head : 0;
    uint64_t free_bytes = r->bytes - r->used;
    if (skipped > free_bytes || len > free_bytes - skipped)
        return NULL;
    sl_ring_slot *s = &r->slots[(r->first + r->n++) % r->cap];
    *s = (sl_ring_slot){
        .at = wraps ? 0 : r->head, .len = len, .skipped = skipped, .before = r->head};
    r->head = s->at + len;
    r->used += skipped + len;
    return s;
}

void sl_ring_drop(sl_ring *r, sl_ring_slot *slot)
{
    slot->dropped = true;
    while (r->n && r->slots[r->first].dropped) {
        r->used -= r->slots[r->first].skipped + r->slots[r->first].len;
        r->first = (r->first + 1) % r->cap;
        r->n--;
    }
    while (r->n) {
        const sl_ring_slot *last = &r->slots[(r->first + r->n - 1) % r->cap];
        if (!last->dropped)
            break;
        r->used -= last->skipped + last->len;
        r->head = last->before;
        r->n--;
    }
}
