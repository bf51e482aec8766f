/* Token texts: one block of bytes, offsets by id, and a hash table from text to id. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"

enum { SLOT_ID_BITS = 24 };

void sl_vocab_free(sl_vocab *v)
{
    free(v->text);
    free(v->at);
    free(v->flags);
    free(v->slot);
    *v = (sl_vocab){0};
}

uint64_t sl_vocab_bytes(const sl_vocab *v)
{
    return v->text_cap + (uint64_t)v->cap * (sizeof *v->at + sizeof *v->flags) +
           (uint64_t)v->n_slots * sizeof *v->slot;
}

static sl_status no_memory(sl_err *err)
{
    return sl_fail(err, SL_ENOMEM, "out of memory for the vocabulary");
}

sl_status sl_vocab_keep(sl_vocab *v, sl_text text, uint32_t *at, sl_err *err)
{
    /* Place 0 means "no text", so the block begins with an unused byte. */
    uint64_t place = v->text_len ? v->text_len : 1, need;
    if (text.len > UINT32_MAX || !sl_add_size(place, text.len + 5, &need) || need > UINT32_MAX)
        return sl_fail(err, SL_EUNSUPPORTED, "the token texts are larger than 4 GiB");
    if (need > v->text_cap) {
        uint64_t cap = v->text_cap + v->text_cap / 2;
        cap = cap > need ? cap : need + 4096;
        uint8_t *grown = realloc(v->text, (size_t)cap);
        if (!grown)
            return no_memory(err);
        v->text = grown;
        v->text_cap = cap;
    }
    uint8_t *p = v->text + place;
    uint64_t left = text.len;
    for (; left >= 0x80; left >>= 7)
        *p++ = (uint8_t)(left | 0x80);
    *p++ = (uint8_t)left;
    if (text.len)
        memcpy(p, text.data, (size_t)text.len);
    v->text_len = (uint64_t)(p - v->text) + text.len;
    *at = (uint32_t)place;
    if (text.len > v->longest)
        v->longest = (uint32_t)text.len;
    return SL_OK;
}

sl_text sl_vocab_text(const sl_vocab *v, uint32_t at)
{
    if (!at)
        return (sl_text){NULL, 0};
    const uint8_t *p = v->text + at;
    uint64_t len = 0;
    unsigned shift = 0;
    for (; *p & 0x80; shift += 7)
        len |= (uint64_t)(*p++ & 0x7f) << shift;
    len |= (uint64_t)*p++ << shift;
    return (sl_text){(const char *)p, len};
}

/* Both arrays grow before cap does, so that a failure between them leaves a sound vocabulary. */
static sl_status grow_ids(sl_vocab *v, uint32_t need, sl_err *err)
{
    uint32_t cap = v->cap + v->cap / 2;
    cap = cap > need ? cap : need + 256;
    uint32_t *at = realloc(v->at, cap * sizeof *at);
    if (!at)
        return no_memory(err);
    v->at = at;
    uint8_t *flags = realloc(v->flags, cap);
    if (!flags)
        return no_memory(err);
    v->flags = flags;
    memset(at + v->cap, 0, (cap - v->cap) * sizeof *at);
    memset(flags + v->cap, 0, cap - v->cap);
    v->cap = cap;
    return SL_OK;
}

sl_status sl_vocab_set(sl_vocab *v, uint32_t id, uint32_t at, unsigned flags, sl_err *err)
{
    if (id >= v->cap) {
        sl_status st = grow_ids(v, id + 1, err);
        if (st)
            return st;
    }
    v->at[id] = at;
    v->flags[id] = (uint8_t)flags;
    if (id >= v->n)
        v->n = id + 1;
    return SL_OK;
}

void sl_vocab_shrink(sl_vocab *v)
{
    uint8_t *text = v->text_len ? realloc(v->text, (size_t)v->text_len) : NULL;
    if (text) {
        v->text = text;
        v->text_cap = v->text_len;
    }
    uint32_t *at = v->n ? realloc(v->at, v->n * sizeof *at) : NULL;
    if (!at)
        return;
    v->at = at;
    v->cap = v->n; /* flags may stay larger than it says */
    uint8_t *flags = realloc(v->flags, v->n);
    if (flags)
        v->flags = flags;
}

static uint64_t hash_text(sl_text text)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < text.len; i++)
        h = (h ^ (uint8_t)text.data[i]) * 0x100000001b3u;
    h ^= h >> 32;
    h *= 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint32_t first_slot(const sl_vocab *v, uint64_t hash)
{
    return (uint32_t)((hash >> 32) * v->n_slots >> 32);
}

static bool slot_is(const sl_vocab *v, uint32_t slot, uint64_t hash, sl_text text)
{
    if (slot >> SLOT_ID_BITS != (hash & 0xff))
        return false;
    uint32_t id = (slot & ((1u << SLOT_ID_BITS) - 1)) - 1;
    sl_text have = sl_vocab_text(v, v->at[id]);
    return have.len == text.len && memcmp(have.data, text.data, (size_t)text.len) == 0;
}

/* The slot that holds the text, or the free one where it belongs. */
static uint32_t find_slot(const sl_vocab *v, uint64_t hash, sl_text text)
{
    uint32_t i = first_slot(v, hash);
    while (v->slot[i] && !slot_is(v, v->slot[i], hash, text))
        i = i + 1 < v->n_slots ? i + 1 : 0;
    return i;
}

sl_status sl_vocab_index(sl_vocab *v, uint32_t *n_twice, uint32_t *twice, sl_err *err)
{
    uint32_t n_slots = v->n + v->n / 3 + 2;
    uint32_t *slot = calloc(n_slots, sizeof *slot);
    if (!slot)
        return no_memory(err);
    free(v->slot);
    v->slot = slot;
    v->n_slots = n_slots;
    for (uint32_t id = 0; id < v->n; id++) {
        if (!v->at[id])
            continue;
        sl_text text = sl_vocab_text(v, v->at[id]);
        uint64_t hash = hash_text(text);
        uint32_t i = find_slot(v, hash, text);
        uint32_t held = slot[i] & ((1u << SLOT_ID_BITS) - 1);
        if (held && n_twice && twice) {
            (*n_twice)++;
            *twice = id;
        }
        if (!held || v->at[held - 1] < v->at[id])
            slot[i] = (uint32_t)(hash & 0xff) << SLOT_ID_BITS | (id + 1);
    }
    return SL_OK;
}

int32_t sl_vocab_find(const sl_vocab *v, sl_text text, unsigned flags)
{
    if (!v->n_slots || text.len > v->longest)
        return -1;
    uint32_t held = v->slot[find_slot(v, hash_text(text), text)] & ((1u << SLOT_ID_BITS) - 1);
    return held && v->flags[held - 1] & flags ? (int32_t)held - 1 : -1;
}

sl_quoted sl_quote(sl_text text)
{
    sl_quoted q = {{'"'}};
    size_t at = 1;
    for (uint64_t i = 0; i < text.len;) {
        uint32_t n = sl_utf8_len(text.data + i, text.len - i);
        uint8_t c = (uint8_t)text.data[i];
        if (i >= 64) {
            memcpy(q.s + at, "...", 3);
            at += 3;
            break;
        }
        if (n == 0 || c < 0x20 || c == 0x7f || c == '"' || c == '\\') {
            at += (size_t)snprintf(q.s + at, 5, "\\x%02X", c);
            i++;
        } else {
            memcpy(q.s + at, text.data + i, n);
            at += n;
            i += n;
        }
    }
    q.s[at] = '"';
    q.s[at + 1] = '\0';
    return q;
}
