/* Bump allocation in a list of blocks; the newest block is at the front. */
#include <stdlib.h>
#include <string.h>

#include "base.h"

enum { FIRST_BLOCK = 4 << 10, LAST_BLOCK = 1 << 20, ALIGN = 16 };

typedef struct block {
    struct block *next;
    size_t used, cap; /* of the bytes behind the head */
} block;

struct sl_arena {
    block *front;
    size_t next_cap;
    uint64_t bytes;
};

static const size_t head_bytes = (sizeof(block) + ALIGN - 1) & ~(size_t)(ALIGN - 1);

sl_arena *sl_arena_new(void)
{
    sl_arena *a = calloc(1, sizeof *a);
    if (a) {
        a->next_cap = FIRST_BLOCK;
        a->bytes = sizeof *a;
    }
    return a;
}

void sl_arena_free(sl_arena **a)
{
    if (!a || !*a)
        return;
    for (block *b = (*a)->front; b;) {
        block *next = b->next;
        free(b);
        b = next;
    }
    free(*a);
    *a = NULL;
}

/* A block that has room for n bytes, at the front unless it is a one-off (the front may still have
 * room for small ones). */
static block *add_block(sl_arena *a, size_t n)
{
    bool one_off = n > a->next_cap / 4 && a->front;
    size_t cap = n > a->next_cap || one_off ? n : a->next_cap;
    block *b = malloc(head_bytes + cap);
    if (!b)
        return NULL;
    *b = (block){NULL, 0, cap};
    a->bytes += head_bytes + cap;
    if (one_off) {
        b->next = a->front->next;
        a->front->next = b;
        return b;
    }
    b->next = a->front;
    a->front = b;
    if (a->next_cap < LAST_BLOCK)
        a->next_cap *= 2;
    return b;
}

void *sl_arena_alloc(sl_arena *a, uint64_t n, uint64_t size)
{
    uint64_t bytes;
    if (!sl_mul_size(n, size, &bytes) || bytes > PTRDIFF_MAX / 2)
        return NULL;
    size_t need = (size_t)sl_round_up(bytes ? bytes : 1, ALIGN);
    block *b = a->front;
    if (!b || b->cap - b->used < need)
        b = add_block(a, need);
    if (!b)
        return NULL;
    void *p = (char *)b + head_bytes + b->used;
    b->used += need;
    return memset(p, 0, need);
}

char *sl_arena_strndup(sl_arena *a, const char *s, uint64_t len)
{
    char *copy = len < UINT64_MAX ? sl_arena_alloc(a, len + 1, 1) : NULL;
    if (copy)
        memcpy(copy, s, (size_t)len);
    return copy;
}

uint64_t sl_arena_bytes(const sl_arena *a)
{
    return a->bytes;
}
