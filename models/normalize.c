/* Unicode normal form C with utf8proc (the one file that uses it), and the character classes that
 * added tokens ask about. Text is taken apart into clusters, a character and the marks (or Hangul
 * vowels and finals) behind it: nothing composes or reorders over their borders. A cluster of one
 * character without a decomposition, as nearly all are, stays as it is and costs one look-up. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "tokenizer_impl.h"

void sl_buffer_free(sl_buffer *b)
{
    free(b->data);
    *b = (sl_buffer){0};
}

sl_status sl_buffer_reserve(sl_buffer *b, uint64_t more, sl_err *err)
{
    uint64_t need, cap = b->cap + b->cap / 2;
    bool ok = sl_add_size(b->len, more, &need) && need < PTRDIFF_MAX;
    if (ok && need <= b->cap)
        return SL_OK;
    cap = ok && cap < need ? need + 64 : cap;
    char *grown = ok ? realloc(b->data, (size_t)cap) : NULL;
    if (!grown)
        return sl_fail(err, SL_ENOMEM, "out of memory for text");
    b->data = grown;
    b->cap = cap;
    return SL_OK;
}

static sl_status append(sl_buffer *b, const char *s, uint64_t len, sl_err *err)
{
    sl_status st = sl_buffer_reserve(b, len, err);
    if (!st && len) {
        memcpy(b->data + b->len, s, (size_t)len);
        b->len += len;
    }
    return st;
}

uint32_t sl_utf8_get(const char *s, uint32_t *len)
{
    const uint8_t *p = (const uint8_t *)s;
    *len = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    uint32_t c = *len == 1 ? p[0] : p[0] & (0x7fu >> *len);
    for (uint32_t i = 1; i < *len; i++)
        c = c << 6 | (p[i] & 0x3f);
    return c;
}

bool sl_is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

bool sl_is_word(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default: /* joiners; letters in circles and squares */
        return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
               (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
               (c >= 0x1f170 && c <= 0x1f189);
    }
}

/* Whether c joins the cluster before it: marks, and Hangul vowels and finals. */
static bool joins(uint32_t c)
{
    if (c < 0x300)
        return false;
    if (c >= 0x1160 && c <= 0x11ff)
        return true;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
           category == UTF8PROC_CATEGORY_ME;
}

/* Hangul syllables decompose by rule, not by table, and are composed already. */
static bool decomposes(uint32_t c)
{
    if (c < 0xc0)
        return false;
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)c);
    return p->decomp_type == 0 && p->decomp_seqindex != UINT16_MAX;
}

/* Bytes of the cluster at s[0, left); *dirty: it may not be in normal form. */
static uint64_t cluster_len(const char *s, uint64_t left, bool *dirty)
{
    uint32_t n;
    uint32_t c = sl_utf8_get(s, &n);
    uint64_t len = n;
    *dirty = decomposes(c) || joins(c);
    while (len < left && (s[len] & 0x80) && joins(sl_utf8_get(s + len, &n))) {
        len += n;
        *dirty = true;
    }
    return len;
}

typedef struct mark {
    utf8proc_int32_t c;
    uint32_t order; /* combining class << 24 | place; the place keeps the sort stable */
} mark;

static int by_order(const void *a, const void *b)
{
    const mark *x = a, *y = b;
    return (x->order > y->order) - (x->order < y->order);
}

/* Canonical order: runs of characters with a combining class, sorted by it. (utf8proc's own order
 * is quadratic in the length of a run, which a hostile text chooses.) */
static void sort_marks(mark *m, uint64_t n)
{
    for (uint64_t start = 0, i = 0; i <= n; i++) {
        if (i < n && m[i].order >> 24)
            continue;
        if (i > start + 1)
            qsort(m + start, (size_t)(i - start), sizeof *m, by_order);
        start = i + 1;
    }
}

/* A character decomposes canonically into at most four. */
enum { MOST = 4 };

static uint64_t decompose(sl_text text, mark *out)
{
    uint64_t n = 0;
    for (uint64_t at = 0; at < text.len;) {
        uint32_t len;
        int last_class = 0;
        utf8proc_int32_t c = (utf8proc_int32_t)sl_utf8_get(text.data + at, &len), parts[MOST];
        utf8proc_ssize_t n_parts = utf8proc_decompose_char(
            c, parts, MOST, UTF8PROC_STABLE | UTF8PROC_COMPOSE, &last_class);
        if (n_parts < 1 || n_parts > MOST) {
            parts[0] = c;
            n_parts = 1;
        }
        for (utf8proc_ssize_t i = 0; i < n_parts; i++, n++) {
            uint32_t combining = (uint32_t)utf8proc_get_property(parts[i])->combining_class;
            out[n] = (mark){parts[i], combining << 24 | (uint32_t)(n & 0xffffff)};
        }
        at += len;
    }
    return n;
}

/* No language has so many marks on one character; the bound keeps the memory for a hostile text
 * small. */
enum { MAX_CLUSTER_BYTES = 1 << 20, FEW = 64 };

static sl_status compose_in(mark *m, utf8proc_int32_t *c, sl_text cluster, sl_buffer *b,
                            sl_err *err)
{
    uint64_t n = decompose(cluster, m);
    sort_marks(m, n);
    for (uint64_t i = 0; i < n; i++)
        c[i] = m[i].c;
    utf8proc_ssize_t kept =
        utf8proc_normalize_utf32(c, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    sl_status st = sl_buffer_reserve(b, (uint64_t)kept * 4, err);
    for (utf8proc_ssize_t i = 0; i < kept && !st; i++)
        b->len += sl_utf8_put((uint32_t)c[i], b->data + b->len);
    return st;
}

static sl_status append_composed(sl_buffer *b, sl_text cluster, sl_err *err)
{
    mark few[FEW];
    utf8proc_int32_t few_c[FEW];
    uint64_t room = cluster.len * MOST; /* characters are no more than bytes */
    if (room <= FEW)
        return compose_in(few, few_c, cluster, b, err);
    if (cluster.len > MAX_CLUSTER_BYTES)
        return sl_fail(err, SL_EUNSUPPORTED, "more than %d bytes of marks on one character",
                       MAX_CLUSTER_BYTES);
    mark *m = malloc((size_t)room * sizeof *m);
    utf8proc_int32_t *c = malloc((size_t)room * sizeof *c);
    sl_status st = m && c ? compose_in(m, c, cluster, b, err)
                          : sl_fail(err, SL_ENOMEM, "out of memory for normalising text");
    free(m);
    free(c);
    return st;
}

sl_status sl_normalize_nfc(sl_text text, sl_buffer *buffer, sl_text *out, sl_err *err)
{
    sl_status st = SL_OK;
    uint64_t copied = 0; /* text before it is in buffer, if anything is */
    bool changed = false;
    buffer->len = 0;
    for (uint64_t at = 0; at < text.len && !st;) {
        bool dirty = false;
        uint64_t len = 1;
        /* ASCII, and nothing that could join it behind it. */
        if ((text.data[at] & 0x80) || (at + 1 < text.len && (text.data[at + 1] & 0x80)))
            len = cluster_len(text.data + at, text.len - at, &dirty);
        if (dirty) {
            st = append(buffer, text.data + copied, at - copied, err);
            uint64_t before = buffer->len;
            if (!st)
                st = append_composed(buffer, (sl_text){text.data + at, len}, err);
            copied = at + len;
            changed |= !st && (buffer->len - before != len ||
                               memcmp(buffer->data + before, text.data + at, (size_t)len) != 0);
        }
        at += len;
    }
    if (st || !changed) {
        *out = text;
        return st;
    }
    st = append(buffer, text.data + copied, text.len - copied, err);
    *out = (sl_text){buffer->data, buffer->len};
    return st;
}
