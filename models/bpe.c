/* Byte-pair merging. Merges lie in rank order; a hash table leads from a pair of ids to its rank.
 * Short pieces (nearly all) are merged by scanning for the lowest rank; long ones with a heap over
 * a linked list, so that 5,000 letters or 2,000 spaces stay cheap. Both take the lowest rank first
 * and the leftmost of equals. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"

enum { SHORT = 40, SLOT_BITS = 24 };
static const uint32_t none = UINT32_MAX;

void sl_bpe_free(sl_bpe *b)
{
    free(b->merge);
    free(b->slot);
    *b = (sl_bpe){0};
}

uint64_t sl_bpe_bytes(const sl_bpe *b)
{
    return (uint64_t)b->cap * sizeof *b->merge + (uint64_t)b->n_slots * sizeof *b->slot;
}

static sl_status no_memory(sl_err *err)
{
    return sl_fail(err, SL_ENOMEM, "out of memory for merging tokens");
}

sl_status sl_bpe_add(sl_bpe *b, sl_merge m, sl_err *err)
{
    if (b->n >= SL_TOKEN_LIMIT)
        return sl_fail(err, SL_EUNSUPPORTED, "more than %d merges", SL_TOKEN_LIMIT);
    if (b->n == b->cap) {
        uint32_t cap = b->cap ? b->cap + b->cap / 2 : 1024;
        sl_merge *grown = realloc(b->merge, cap * sizeof *grown);
        if (!grown)
            return no_memory(err);
        b->merge = grown;
        b->cap = cap;
    }
    b->merge[b->n++] = m;
    return SL_OK;
}

static uint64_t hash_pair(int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

/* The slot that holds the pair, or the free one where it belongs. */
static uint32_t find_slot(const sl_bpe *b, int32_t left, int32_t right, uint64_t hash)
{
    uint32_t i = (uint32_t)((hash >> 32) * b->n_slots >> 32);
    for (; b->slot[i]; i = i + 1 < b->n_slots ? i + 1 : 0) {
        if (b->slot[i] >> SLOT_BITS != (hash & 0xff))
            continue;
        const sl_merge *m = &b->merge[(b->slot[i] & ((1u << SLOT_BITS) - 1)) - 1];
        if (m->left == left && m->right == right)
            break;
    }
    return i;
}

sl_status sl_bpe_index(sl_bpe *b, sl_err *err)
{
    sl_merge *fit = b->n ? realloc(b->merge, b->n * sizeof *fit) : NULL;
    if (fit) {
        b->merge = fit;
        b->cap = b->n;
    }
    uint32_t n_slots = b->n + b->n / 3 + 2;
    uint32_t *slot = calloc(n_slots, sizeof *slot);
    if (!slot)
        return no_memory(err);
    free(b->slot);
    b->slot = slot;
    b->n_slots = n_slots;
    for (uint32_t rank = 0; rank < b->n; rank++) {
        const sl_merge *m = &b->merge[rank];
        uint64_t hash = hash_pair(m->left, m->right);
        slot[find_slot(b, m->left, m->right, hash)] =
            (uint32_t)(hash & 0xff) << SLOT_BITS | (rank + 1);
    }
    return SL_OK;
}

static uint32_t rank_of(const sl_bpe *b, int32_t left, int32_t right)
{
    uint32_t slot = b->slot[find_slot(b, left, right, hash_pair(left, right))];
    return slot ? (slot & ((1u << SLOT_BITS) - 1)) - 1 : none;
}

void sl_bpe_work_free(sl_bpe_work *w)
{
    free(w->symbol);
    free(w->node);
    free(w->heap);
    *w = (sl_bpe_work){0};
}

/* Room for need items of item_bytes at *block; what is there is kept. */
static sl_status grow(void *block, uint64_t *cap, uint64_t need, size_t item_bytes, sl_err *err)
{
    void *old;
    memcpy(&old, block, sizeof old);
    if (need <= *cap)
        return SL_OK;
    uint64_t more = *cap + *cap / 2, bytes;
    more = more > need ? more : need + 64;
    void *grown = sl_mul_size(more, item_bytes, &bytes) ? realloc(old, (size_t)bytes) : NULL;
    if (!grown)
        return no_memory(err);
    memcpy(block, &grown, sizeof grown);
    *cap = more;
    return SL_OK;
}

sl_status sl_bpe_room(sl_bpe_work *w, uint64_t n, sl_err *err)
{
    return grow(&w->symbol, &w->symbol_cap, n, sizeof *w->symbol, err);
}

/* rank[i] belongs to the pair (symbol[i], symbol[i + 1]). */
static uint32_t merge_short(const sl_bpe *b, int32_t *symbol, uint32_t n)
{
    uint32_t rank[SHORT];
    for (uint32_t i = 0; i + 1 < n; i++)
        rank[i] = rank_of(b, symbol[i], symbol[i + 1]);
    while (n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < n; i++)
            best = rank[i] < rank[best] ? i : best;
        if (rank[best] == none)
            break;
        symbol[best] = b->merge[rank[best]].result;
        n--;
        memmove(symbol + best + 1, symbol + best + 2, (n - best - 1) * sizeof *symbol);
        memmove(rank + best, rank + best + 1, (n - best - 1) * sizeof *rank);
        if (best > 0)
            rank[best - 1] = rank_of(b, symbol[best - 1], symbol[best]);
        if (best + 1 < n)
            rank[best] = rank_of(b, symbol[best], symbol[best + 1]);
    }
    return n;
}

static void heap_down(uint64_t *heap, uint64_t n, uint64_t i)
{
    uint64_t key = heap[i];
    for (uint64_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (heap[child] >= key)
            break;
        heap[i] = heap[child];
    }
    heap[i] = key;
}

static sl_status heap_push(sl_bpe_work *w, uint64_t *n, uint64_t key, sl_err *err)
{
    sl_status st = grow(&w->heap, &w->heap_cap, *n + 1, sizeof *w->heap, err);
    if (st)
        return st;
    uint64_t i = (*n)++;
    for (; i > 0 && w->heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = key;
    return SL_OK;
}

static uint64_t heap_pop(sl_bpe_work *w, uint64_t *n)
{
    uint64_t top = w->heap[0];
    w->heap[0] = w->heap[--*n];
    if (*n)
        heap_down(w->heap, *n, 0);
    return top;
}

/* Looks the pair at place i up again and queues it. */
static sl_status rank_pair(const sl_bpe *b, sl_bpe_work *w, uint32_t i, uint64_t *n_heap,
                           sl_err *err)
{
    sl_bpe_node *node = &w->node[i];
    node->rank = node->next == none ? none : rank_of(b, node->id, w->node[node->next].id);
    if (node->rank == none)
        return SL_OK;
    return heap_push(w, n_heap, (uint64_t)node->rank << 32 | i, err);
}

/* Fills nodes and heap from the symbols. */
static sl_status link_nodes(const sl_bpe *b, sl_bpe_work *w, uint32_t n, uint64_t *n_heap,
                            sl_err *err)
{
    sl_status st = grow(&w->node, &w->node_cap, n, sizeof *w->node, err);
    if (!st)
        st = grow(&w->heap, &w->heap_cap, n, sizeof *w->heap, err);
    if (st)
        return st;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rank = i + 1 < n ? rank_of(b, w->symbol[i], w->symbol[i + 1]) : none;
        w->node[i] = (sl_bpe_node){w->symbol[i], i ? i - 1 : none, i + 1 < n ? i + 1 : none, rank};
        if (rank != none)
            w->heap[(*n_heap)++] = (uint64_t)rank << 32 | i;
    }
    for (uint64_t i = *n_heap / 2; i-- > 0;)
        heap_down(w->heap, *n_heap, i);
    return SL_OK;
}

/* A queued entry is stale when its place has been swallowed or has another rank by now: the pair at
 * a place only ever grows, so the same rank means the same pair. */
static sl_status merge_long(const sl_bpe *b, sl_bpe_work *w, uint32_t n, sl_err *err)
{
    uint64_t n_heap = 0;
    sl_status st = link_nodes(b, w, n, &n_heap, err);
    while (!st && n_heap) {
        uint64_t key = heap_pop(w, &n_heap);
        sl_bpe_node *left = &w->node[(uint32_t)key];
        if (left->rank != key >> 32)
            continue;
        sl_bpe_node *right = &w->node[left->next];
        left->id = b->merge[left->rank].result;
        left->next = right->next;
        right->rank = none;
        if (left->next != none)
            w->node[left->next].prev = (uint32_t)key;
        st = rank_pair(b, w, (uint32_t)key, &n_heap, err);
        if (!st && left->prev != none)
            st = rank_pair(b, w, left->prev, &n_heap, err);
    }
    return st;
}

sl_status sl_bpe_run(const sl_bpe *b, sl_bpe_work *w, uint64_t n, sl_ids *ids, sl_err *err)
{
    if (n >= none)
        return sl_fail(err, SL_EINVAL, "a piece of text is longer than 4 GiB");
    sl_status st = SL_OK;
    if (n <= SHORT) {
        uint32_t left = n ? merge_short(b, w->symbol, (uint32_t)n) : 0;
        for (uint32_t i = 0; i < left && !st; i++)
            st = sl_ids_push(ids, w->symbol[i], err);
        return st;
    }
    st = merge_long(b, w, (uint32_t)n, err);
    for (uint32_t i = 0; i != none && !st; i = w->node[i].next)
        st = sl_ids_push(ids, w->node[i].id, err);
    return st;
}
