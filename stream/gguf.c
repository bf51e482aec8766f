/* GGUF, versions 2 and 3, little-endian, one file or a split. docs/formats.md is the specification
 * of what is read and refused here. Headers come in blocks through the cursor; what is kept goes
 * into the checkpoint's arena, long arrays into blocks of their own. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "checkpoint_build.h"

enum {
    HEADER_BYTES = 24,
    MAX_KEY = 65535,         /* the format's own limit */
    MAX_NAME = 255,          /* the format says 64; some writers go beyond */
    MAX_NESTING = 4,         /* arrays within arrays */
    MAX_NESTED_ITEMS = 65536 /* of all arrays of arrays together */
};
/* No real header comes near (262,144 tokens of 5 to 11 bytes and as many merges take 9 MiB); it
 * bounds what a hostile file can make us hold. */
static const uint64_t max_header = 128u << 20;

/* A shard while its header is read. */
typedef struct gguf {
    sl_checkpoint *c;
    sl_file *f; /* owned by c */
    uint32_t file;
    sl_bytes b;
    sl_err *err;
    uint64_t n_tensors, n_meta, alignment, data_at;
    bool keep_meta; /* shard 1 */
    /* split.*: UINT64_MAX when absent */
    uint64_t split_no, split_count, split_tensors;
    char where[192]; /* "metadata key 'x'", for messages */
} gguf;

/* id in the file -> type; the ids that were taken out of the format keep their names. */
static const struct {
    int type; /* -1: removed */
    const char *removed;
} types[] = {
    [0] = {SL_F32, 0},         [1] = {SL_F16, 0},         [2] = {SL_Q4_0, 0},
    [3] = {SL_Q4_1, 0},        [4] = {-1, "Q4_2"},        [5] = {-1, "Q4_3"},
    [6] = {SL_Q5_0, 0},        [7] = {SL_Q5_1, 0},        [8] = {SL_Q8_0, 0},
    [9] = {SL_Q8_1, 0},        [10] = {SL_Q2_K, 0},       [11] = {SL_Q3_K, 0},
    [12] = {SL_Q4_K, 0},       [13] = {SL_Q5_K, 0},       [14] = {SL_Q6_K, 0},
    [15] = {SL_Q8_K, 0},       [16] = {SL_IQ2_XXS, 0},    [17] = {SL_IQ2_XS, 0},
    [18] = {SL_IQ3_XXS, 0},    [19] = {SL_IQ1_S, 0},      [20] = {SL_IQ4_NL, 0},
    [21] = {SL_IQ3_S, 0},      [22] = {SL_IQ2_S, 0},      [23] = {SL_IQ4_XS, 0},
    [24] = {SL_I8, 0},         [25] = {SL_I16, 0},        [26] = {SL_I32, 0},
    [27] = {SL_I64, 0},        [28] = {SL_F64, 0},        [29] = {SL_IQ1_M, 0},
    [30] = {SL_BF16, 0},       [31] = {-1, "Q4_0_4_4"},   [32] = {-1, "Q4_0_4_8"},
    [33] = {-1, "Q4_0_8_8"},   [34] = {SL_TQ1_0, 0},      [35] = {SL_TQ2_0, 0},
    [36] = {-1, "IQ4_NL_4_4"}, [37] = {-1, "IQ4_NL_4_8"}, [38] = {-1, "IQ4_NL_8_8"},
    [39] = {SL_MXFP4, 0},      [40] = {SL_NVFP4, 0},      [41] = {SL_Q1_0, 0},
    [42] = {SL_Q2_0, 0},
};
enum { N_TYPES = sizeof types / sizeof *types };

static unsigned long long ull(uint64_t v)
{
    return v;
}

/* The cursor stopped: the file ends here, or a read failed and has said so. */
static sl_status stopped(gguf *g, const char *what)
{
    if (g->b.status != SL_OK)
        return g->b.status;
    return sl_fail(g->err, SL_EFORMAT,
                   "%s is truncated: it ends at byte %llu, inside %s at offset %llu", g->f->path,
                   ull(g->f->size), what, ull(sl_bytes_position(&g->b)));
}

static sl_status out_of_memory(gguf *g)
{
    return sl_fail(g->err, SL_ENOMEM, "%s: out of memory for its header (%s)", g->f->path,
                   g->where);
}

/* ---- header ---- */

static sl_status check_magic(gguf *g)
{
    uint64_t len = sl_bytes_left(&g->b) < 512 ? sl_bytes_left(&g->b) : 512;
    if (len == 0)
        return sl_fail(g->err, SL_EFORMAT, "%s is empty (0 bytes)", g->f->path);
    const uint8_t *head = sl_bytes_fill(&g->b, len) ? g->b.data : NULL;
    if (!head)
        return stopped(g, "the header");
    if (len >= 4 && memcmp(head, "GGUF", 4) == 0)
        return SL_OK;
    const char *what = sl_impostor(head, len);
    if (!what && len >= 4 && memcmp(head, "FUGG", 4) == 0)
        what = "a GGUF file with its bytes swapped";
    if (!what && len >= 4 &&
        (!memcmp(head, "lmgg", 4) || !memcmp(head, "GGML", 4) || !memcmp(head, "tjgg", 4) ||
         !memcmp(head, "fmgg", 4)))
        what = "an older GGML file: convert the model again";
    return sl_fail(g->err, SL_EFORMAT,
                   "%s is no GGUF file: it does not begin with the magic 'GGUF'%s%s", g->f->path,
                   what ? "; it looks like " : "", what ? what : "");
}

static sl_status read_header(gguf *g)
{
    sl_status status = check_magic(g);
    if (status != SL_OK)
        return status;
    if (g->f->size < HEADER_BYTES)
        return sl_fail(g->err, SL_EFORMAT,
                       "%s is truncated: it has %llu bytes, a GGUF header takes %d", g->f->path,
                       ull(g->f->size), HEADER_BYTES);
    sl_bytes_u32(&g->b);
    uint32_t version = sl_bytes_u32(&g->b), swapped = __builtin_bswap32(version);
    if (swapped >= 1 && swapped <= 3)
        return sl_fail(g->err, SL_EUNSUPPORTED,
                       "%s is a big-endian GGUF file (version bytes 00 00 00 %02u); only "
                       "little-endian files are read: convert it with gguf_convert_endian.py",
                       g->f->path, swapped);
    if (version != 2 && version != 3)
        return sl_fail(g->err, SL_EUNSUPPORTED,
                       "%s: GGUF version %u at offset 4; versions 2 and 3 are read%s", g->f->path,
                       version, version == 1 ? ": convert the model again" : "");
    g->n_tensors = sl_bytes_u64(&g->b);
    g->n_meta = sl_bytes_u64(&g->b);
    /* The smallest record: a name of one byte, one dimension; the smallest pair: an u8. */
    enum { LEAST_RECORD = 8 + 1 + 4 + 8 + 4 + 8, LEAST_PAIR = 8 + 1 + 4 + 1 };
    uint64_t left = sl_bytes_left(&g->b);
    if (g->n_meta > left / LEAST_PAIR)
        return sl_fail(
            g->err, SL_EFORMAT,
            "%s claims %llu metadata pairs at offset 16; its %llu bytes cannot hold them",
            g->f->path, ull(g->n_meta), ull(g->f->size));
    if (g->n_tensors > left / LEAST_RECORD)
        return sl_fail(g->err, SL_EFORMAT,
                       "%s claims %llu tensors at offset 8; its %llu bytes cannot hold them",
                       g->f->path, ull(g->n_tensors), ull(g->f->size));
    return SL_OK;
}

/* ---- metadata ---- */

uint32_t sl_meta_size(sl_meta_type t)
{
    static const uint8_t size[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return (unsigned)t < sizeof size ? size[t] : 0;
}

bool sl_meta_scalar(sl_bytes *b, sl_meta *m)
{
    uint32_t size = sl_meta_size(m->type);
    uint64_t u = sl_bytes_uint(b, size);
    uint32_t low = (uint32_t)u;
    float f;
    switch (m->type) {
    case SL_META_I8:
    case SL_META_I16:
    case SL_META_I32:
    case SL_META_I64:
        m->v.i = (int64_t)(u << (64 - 8 * size)) >> (64 - 8 * size);
        break;
    case SL_META_F32:
        memcpy(&f, &low, sizeof f);
        m->v.f = f;
        break;
    case SL_META_F64:
        memcpy(&m->v.f, &u, sizeof u);
        break;
    default:
        m->v.u = u;
    }
    return !b->failed && (m->type != SL_META_BOOL || u <= 1);
}

/* The length of a string, checked against what is left and against limit. */
static sl_status read_len(gguf *g, const char *what, uint64_t limit, uint64_t *len)
{
    uint64_t at = sl_bytes_position(&g->b);
    *len = sl_bytes_u64(&g->b);
    if (g->b.failed)
        return stopped(g, what);
    if (*len > sl_bytes_left(&g->b) || *len > limit)
        return sl_fail(g->err, SL_EFORMAT,
                       "%s: %s has a length of %llu bytes at offset %llu; %s %llu", g->f->path,
                       what, ull(*len), ull(at),
                       *len > sl_bytes_left(&g->b) ? "the file has only" : "the most is",
                       *len > sl_bytes_left(&g->b) ? ull(sl_bytes_left(&g->b)) : ull(limit));
    return SL_OK;
}

static sl_status header_budget(gguf *g, uint64_t more)
{
    if (more > max_header || sl_bytes_position(&g->b) > max_header - more)
        return sl_fail(g->err, SL_EFORMAT, "%s: %s would make the header larger than %llu MiB",
                       g->f->path, g->where, ull(max_header >> 20));
    return SL_OK;
}

static sl_status read_string(gguf *g, sl_text *out)
{
    uint64_t len;
    sl_status status = read_len(g, g->where, UINT64_MAX, &len);
    if (status == SL_OK)
        status = header_budget(g, len);
    if (status != SL_OK)
        return status;
    const uint8_t *p = sl_bytes_take(&g->b, len);
    if (!p && len)
        return stopped(g, g->where);
    out->len = len;
    out->data = sl_arena_strndup(g->c->arena, (const char *)p, len);
    return out->data ? SL_OK : out_of_memory(g);
}

/* Copies len bytes in pieces, so that the window stays small. */
static bool copy_out(gguf *g, uint8_t *to, uint64_t len)
{
    while (len) {
        uint64_t n = len < SL_BYTES_BLOCK ? len : SL_BYTES_BLOCK;
        const uint8_t *p = sl_bytes_take(&g->b, n);
        if (!p)
            return false;
        memcpy(to, p, n);
        to += n;
        len -= n;
    }
    return true;
}

/* Small ones from the arena, long ones in a block that sl_checkpoint_trim() can free. */
static void *array_memory(gguf *g, uint64_t n, uint64_t size)
{
    uint64_t len;
    if (!sl_mul_size(n, size, &len))
        return NULL;
    if (len <= 1024)
        return sl_arena_alloc(g->c->arena, len ? len : 1, 1);
    void *p = malloc(len);
    if (p && sl_checkpoint_add_block(g->c, p, len, g->err) != SL_OK)
        p = NULL; /* freed there */
    return p;
}

static sl_status check_bools(gguf *g, const uint8_t *data, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (data[i] > 1)
            return sl_fail(g->err, SL_EFORMAT, "%s: %s: element %llu is %u, a bool is 0 or 1",
                           g->f->path, g->where, ull(i), data[i]);
    return SL_OK;
}

static sl_status read_numbers(gguf *g, sl_meta *m)
{
    uint64_t len;
    uint32_t size = sl_meta_size(m->v.a.type);
    if (!sl_mul_size(m->v.a.n, size, &len) || len > sl_bytes_left(&g->b))
        return sl_fail(g->err, SL_EFORMAT,
                       "%s: %s claims %llu elements of %u bytes; the file has only %llu bytes left "
                       "at offset %llu",
                       g->f->path, g->where, ull(m->v.a.n), size, ull(sl_bytes_left(&g->b)),
                       ull(sl_bytes_position(&g->b)));
    sl_status status = header_budget(g, len);
    if (status != SL_OK)
        return status;
    uint8_t *data = array_memory(g, m->v.a.n, size);
    if (!data)
        return out_of_memory(g);
    if (!copy_out(g, data, len))
        return stopped(g, g->where);
    m->v.a.data = data;
    m->v.a.len = len;
    return m->v.a.type == SL_META_BOOL ? check_bools(g, data, m->v.a.n) : SL_OK;
}

/* Reads n strings, each with its length before it, into a block that grows as they really come: a
 * claimed count alone allocates nothing. */
static sl_status pack_strings(gguf *g, uint64_t n, uint8_t **out, uint64_t *out_len)
{
    uint8_t *pack = NULL;
    uint64_t len = 0, cap = 0, size = 0;
    sl_status status = SL_OK;
    for (uint64_t i = 0; i < n && status == SL_OK; i++) {
        if ((status = read_len(g, g->where, UINT64_MAX, &size)) != SL_OK ||
            (status = header_budget(g, size)) != SL_OK)
            break;
        if (len + 8 + size > cap) {
            cap = 2 * cap > len + 8 + size ? 2 * cap : len + 8 + size + 4096;
            uint8_t *p = realloc(pack, cap);
            if (!p) {
                status = out_of_memory(g);
                break;
            }
            pack = p;
        }
        for (int k = 0; k < 8; k++)
            pack[len + k] = (uint8_t)(size >> (8 * k));
        if (!copy_out(g, pack + len + 8, size))
            status = stopped(g, g->where);
        len += 8 + size;
    }
    if (status != SL_OK) {
        free(pack);
        return status;
    }
    void *fit = realloc(pack, len); /* smaller: cannot fail, and if it does the old one is fine */
    *out = fit ? fit : pack;
    *out_len = len;
    return SL_OK;
}

static sl_status read_strings(gguf *g, sl_meta *m)
{
    uint64_t n = m->v.a.n, len;
    uint8_t *pack;
    if (n > sl_bytes_left(&g->b) / 8)
        return sl_fail(g->err, SL_EFORMAT,
                       "%s: %s claims %llu strings; the file has only %llu bytes left at offset "
                       "%llu",
                       g->f->path, g->where, ull(n), ull(sl_bytes_left(&g->b)),
                       ull(sl_bytes_position(&g->b)));
    if (n == 0)
        return SL_OK;
    sl_status status = pack_strings(g, n, &pack, &len);
    if (status == SL_OK)
        status = sl_checkpoint_add_block(g->c, pack, len, g->err);
    if (status != SL_OK)
        return status;
    m->v.a.data = pack;
    m->v.a.len = len;
    sl_text *text = array_memory(g, n, sizeof *text);
    if (!text)
        return out_of_memory(g);
    sl_bytes b = sl_bytes_over(pack, len);
    for (uint64_t i = 0; i < n; i++) {
        text[i].len = sl_bytes_u64(&b);
        text[i].data = (const char *)sl_bytes_take(&b, text[i].len);
    }
    m->v.a.text = text;
    return SL_OK;
}

static sl_status read_array(gguf *g, sl_meta *m, uint32_t depth);

/* Arrays of arrays: the format allows them, hardly anyone writes them. */
static sl_status read_arrays(gguf *g, sl_meta *m, uint32_t depth)
{
    enum { LEAST_ARRAY = 4 + 8 };
    if (m->v.a.n > sl_bytes_left(&g->b) / LEAST_ARRAY)
        return sl_fail(g->err, SL_EFORMAT,
                       "%s: %s claims %llu arrays; the file has only %llu bytes left", g->f->path,
                       g->where, ull(m->v.a.n), ull(sl_bytes_left(&g->b)));
    g->c->nested_items += m->v.a.n;
    if (depth >= MAX_NESTING || g->c->nested_items > MAX_NESTED_ITEMS)
        return sl_fail(g->err, SL_EUNSUPPORTED,
                       "%s: %s: arrays nested deeper than %d, or more than %d of them", g->f->path,
                       g->where, MAX_NESTING, MAX_NESTED_ITEMS);
    sl_meta *items = sl_arena_alloc(g->c->arena, m->v.a.n ? m->v.a.n : 1, sizeof *items);
    if (!items)
        return out_of_memory(g);
    sl_status status = SL_OK;
    for (uint64_t i = 0; i < m->v.a.n && status == SL_OK; i++) {
        items[i].type = SL_META_ARRAY;
        status = read_array(g, &items[i], depth + 1);
    }
    m->v.a.items = items;
    return status;
}

static sl_status read_array(gguf *g, sl_meta *m, uint32_t depth)
{
    uint64_t at = sl_bytes_position(&g->b);
    uint32_t type = sl_bytes_u32(&g->b);
    m->v.a.n = sl_bytes_u64(&g->b);
    if (g->b.failed)
        return stopped(g, g->where);
    m->v.a.type = (sl_meta_type)type;
    if (type == SL_META_STRING)
        return read_strings(g, m);
    if (type == SL_META_ARRAY)
        return read_arrays(g, m, depth);
    if (type > SL_META_F64)
        return sl_fail(g->err, SL_EFORMAT, "%s: %s: unknown element type %u at offset %llu",
                       g->f->path, g->where, type, ull(at));
    return read_numbers(g, m);
}

static sl_status read_value(gguf *g, sl_meta *m)
{
    uint64_t at = sl_bytes_position(&g->b);
    uint32_t type = sl_bytes_u32(&g->b);
    if (g->b.failed)
        return stopped(g, g->where);
    if (type > SL_META_F64)
        return sl_fail(g->err, SL_EFORMAT, "%s: %s: unknown value type %u at offset %llu",
                       g->f->path, g->where, type, ull(at));
    m->type = (sl_meta_type)type;
    if (type == SL_META_STRING)
        return read_string(g, &m->v.s);
    if (type == SL_META_ARRAY)
        return read_array(g, m, 1);
    if (sl_meta_scalar(&g->b, m))
        return SL_OK;
    if (g->b.failed)
        return stopped(g, g->where);
    return sl_fail(g->err, SL_EFORMAT, "%s: %s is %llu at offset %llu, a bool is 0 or 1",
                   g->f->path, g->where, ull(m->v.u), ull(at + 4));
}

static sl_status read_key(gguf *g, uint64_t i, const char **key)
{
    uint64_t len, at = sl_bytes_position(&g->b);
    snprintf(g->where, sizeof g->where, "key of metadata pair %llu of %llu", ull(i + 1),
             ull(g->n_meta));
    sl_status status = read_len(g, g->where, MAX_KEY, &len);
    if (status == SL_OK)
        status = header_budget(g, len);
    if (status != SL_OK)
        return status;
    const uint8_t *p = sl_bytes_take(&g->b, len);
    if (!p)
        return stopped(g, g->where);
    if (len == 0 || memchr(p, 0, len))
        return sl_fail(g->err, SL_EFORMAT, "%s: the %s is empty or has a NUL in it, at offset %llu",
                       g->f->path, g->where, ull(at));
    if (!sl_utf8_valid(p, len))
        sl_log(SL_LOG_WARN, "%s: the %s is not UTF-8, at offset %llu", g->f->path, g->where,
               ull(at));
    *key = sl_arena_strndup(g->c->arena, (const char *)p, len);
    if (!*key)
        return out_of_memory(g);
    snprintf(g->where, sizeof g->where, "metadata key '%.150s'", *key);
    return SL_OK;
}

static sl_status take_alignment(gguf *g, const sl_meta *m)
{
    if (m->type != SL_META_U32)
        return sl_fail(g->err, SL_EFORMAT, "%s: general.alignment has the type %s, expected u32",
                       g->f->path, sl_meta_type_name(m->type));
    if (m->v.u < 8 || (m->v.u & (m->v.u - 1)) != 0)
        return sl_fail(g->err, SL_EFORMAT,
                       "%s: general.alignment is %llu, expected a power of two from 8 up",
                       g->f->path, ull(m->v.u));
    g->alignment = m->v.u;
    return SL_OK;
}

static sl_status take_split(gguf *g, const sl_meta *m, uint64_t *out)
{
    int64_t v;
    if (!sl_meta_int(m, &v) || v < 0)
        return sl_fail(g->err, SL_EFORMAT, "%s: %s is no integer from 0 up (type %s)", g->f->path,
                       m->key, sl_meta_type_name(m->type));
    *out = (uint64_t)v;
    return SL_OK;
}

static sl_status take_meta(gguf *g, const sl_meta *m)
{
    if (strcmp(m->key, "general.alignment") == 0)
        return take_alignment(g, m);
    if (strcmp(m->key, "split.no") == 0)
        return take_split(g, m, &g->split_no);
    if (strcmp(m->key, "split.count") == 0)
        return take_split(g, m, &g->split_count);
    if (strcmp(m->key, "split.tensors.count") == 0)
        return take_split(g, m, &g->split_tensors);
    return SL_OK;
}

static sl_status read_metadata(gguf *g)
{
    sl_status status = SL_OK;
    for (uint64_t i = 0; i < g->n_meta && status == SL_OK; i++) {
        sl_meta m = {0};
        status = read_key(g, i, &m.key);
        if (status == SL_OK)
            status = read_value(g, &m);
        if (status == SL_OK)
            status = take_meta(g, &m);
        if (status == SL_OK && g->keep_meta)
            status = sl_checkpoint_add_meta(g->c, &m, g->err);
    }
    return status;
}

/* ---- tensor table ---- */

static sl_status read_name(gguf *g, uint64_t i, const char **name)
{
    uint64_t len, at = sl_bytes_position(&g->b);
    snprintf(g->where, sizeof g->where, "name of tensor %llu of %llu", ull(i + 1),
             ull(g->n_tensors));
    sl_status status = read_len(g, g->where, MAX_NAME, &len);
    if (status == SL_OK)
        status = header_budget(g, len);
    if (status != SL_OK)
        return status;
    const uint8_t *p = sl_bytes_take(&g->b, len);
    if (!p && len)
        return stopped(g, g->where);
    if (len == 0 || memchr(p, 0, len) || !sl_utf8_valid(p, len))
        return sl_fail(g->err, SL_EFORMAT,
                       "%s: the %s is empty, not UTF-8 or has a NUL in it, at offset %llu",
                       g->f->path, g->where, ull(at));
    *name = sl_arena_strndup(g->c->arena, (const char *)p, len);
    if (!*name)
        return out_of_memory(g);
    snprintf(g->where, sizeof g->where, "tensor '%.150s'", *name);
    return SL_OK;
}

static sl_status read_dims(gguf *g, sl_tensor *t)
{
    uint32_t n = sl_bytes_u32(&g->b);
    if (g->b.failed)
        return stopped(g, g->where);
    if (n < 1 || n > 4)
        return sl_fail(g->err, SL_EFORMAT, "%s: %s has %u dimensions, expected 1 to 4", g->f->path,
                       g->where, n);
    t->n_dims = n;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t dim = sl_bytes_u64(&g->b);
        if (g->b.failed)
            return stopped(g, g->where);
        if (dim == 0)
            return sl_fail(g->err, SL_EFORMAT, "%s: %s: dimension %u is 0", g->f->path, g->where,
                           i);
        t->dims[n - 1 - i] = dim;
    }
    return SL_OK;
}

static sl_status read_type(gguf *g, sl_tensor *t)
{
    uint64_t at = sl_bytes_position(&g->b);
    uint32_t id = sl_bytes_u32(&g->b);
    if (g->b.failed)
        return stopped(g, g->where);
    if (id >= N_TYPES)
        return sl_fail(g->err, SL_EUNSUPPORTED, "%s: %s has the unknown type %u at offset %llu",
                       g->f->path, g->where, id, ull(at));
    if (types[id].type < 0)
        return sl_fail(g->err, SL_EUNSUPPORTED,
                       "%s: %s has type %u (%s), which was taken out of the format: quantise the "
                       "model again",
                       g->f->path, g->where, id, types[id].removed);
    t->type = (sl_dtype)types[id].type;
    return SL_OK;
}

static sl_status measure(gguf *g, sl_tensor *t)
{
    char shape[128];
    const sl_dtype_info *type = sl_dtype_about(t->type);
    if (t->dims[t->n_dims - 1] % type->block_values != 0)
        return sl_fail(g->err, SL_EFORMAT,
                       "%s: %s: a row of %llu values is no whole number of %s blocks (%u values)",
                       g->f->path, g->where, ull(t->dims[t->n_dims - 1]), type->name,
                       type->block_values);
    if (!sl_tensor_measure(t))
        return sl_fail(g->err, SL_EFORMAT,
                       "%s: %s of shape %s and type %s is larger than 2^63 bytes", g->f->path,
                       g->where, sl_tensor_shape(t, shape, sizeof shape), type->name);
    return SL_OK;
}

/* Reads record i. The offset is still relative to the data, which begins behind the table. */
static sl_status read_record(gguf *g, uint64_t i, sl_tensor *t)
{
    sl_status status;
    if ((status = read_name(g, i, &t->name)) != SL_OK || (status = read_dims(g, t)) != SL_OK ||
        (status = read_type(g, t)) != SL_OK || (status = measure(g, t)) != SL_OK)
        return status;
    t->extent.offset = sl_bytes_u64(&g->b);
    t->extent.file = g->file;
    if (g->b.failed)
        return stopped(g, g->where);
    if (t->extent.offset % g->alignment != 0)
        return sl_fail(g->err, SL_EFORMAT,
                       "%s: %s has the offset %llu, which is no multiple of the alignment %llu",
                       g->f->path, g->where, ull(t->extent.offset), ull(g->alignment));
    return SL_OK;
}

static sl_status read_table(gguf *g)
{
    sl_status status = SL_OK;
    for (uint64_t i = 0; i < g->n_tensors && status == SL_OK; i++) {
        sl_tensor t = {0};
        status = read_record(g, i, &t);
        if (status == SL_OK)
            status = sl_checkpoint_add_tensor(g->c, &t, g->err);
    }
    return status;
}

/* Makes the offsets absolute. Of the tensors that do not fit the file, the message names the one
 * that reaches farthest: it tells how long the file should be. */
static sl_status place_tensors(gguf *g, uint32_t first)
{
    sl_checkpoint *c = g->c;
    uint64_t start = sl_round_up(sl_bytes_position(&g->b), g->alignment), end = 0;
    const sl_tensor *last = NULL;
    for (uint32_t i = first; i < c->n_tensors; i++) {
        sl_extent *e = &c->tensor[i].extent;
        uint64_t to;
        if (!sl_add_size(e->offset, start, &e->offset) || !sl_add_size(e->offset, e->len, &to))
            return sl_fail(g->err, SL_EFORMAT, "%s: tensor '%.100s' has an impossible offset",
                           g->f->path, c->tensor[i].name);
        if (to > end) {
            end = to;
            last = &c->tensor[i];
        }
    }
    if (end > g->f->size)
        return sl_fail(
            g->err, SL_EFORMAT,
            "%s is truncated: it has %llu bytes, but tensor '%.100s' takes %llu bytes at "
            "offset %llu, up to byte %llu",
            g->f->path, ull(g->f->size), last->name, ull(last->extent.len),
            ull(last->extent.offset), ull(end));
    /* A missing or whole last padding is fine. */
    if (last && g->f->size > sl_round_up(end, g->alignment))
        sl_log(SL_LOG_WARN, "%s: %llu trailing bytes after the last tensor ('%.100s') are ignored",
               g->f->path, ull(g->f->size - sl_round_up(end, g->alignment)), last->name);
    g->data_at = end;
    return SL_OK;
}

/* Opens path as the next file of c and reads its header. */
static sl_status read_shard(gguf *g, const char *path)
{
    uint32_t first = g->c->n_tensors;
    g->file = g->c->n_files;
    g->alignment = 32;
    g->split_no = g->split_count = g->split_tensors = UINT64_MAX;
    snprintf(g->where, sizeof g->where, "header");
    sl_status status = sl_file_open(path, &g->f, g->err);
    if (status == SL_OK)
        status = sl_checkpoint_add_file(g->c, g->f, g->err);
    if (status != SL_OK)
        return status;
    g->b = sl_bytes_of_file(g->f, 0, g->f->size, g->err);
    if ((status = read_header(g)) == SL_OK && (status = read_metadata(g)) == SL_OK &&
        (status = read_table(g)) == SL_OK)
        status = place_tensors(g, first);
    sl_bytes_close(&g->b);
    return status;
}

/* ---- splits ---- */

static void shard_path(char *out, size_t cap, const char *path, uint64_t stem, uint32_t no,
                       uint32_t count)
{
    snprintf(out, cap, "%.*s-%05u-of-%05u.gguf", (int)stem, path, no, count);
}

/* Is any other shard of the set there? */
static bool has_sibling(const char *path, uint64_t stem, uint32_t no, uint32_t count)
{
    char other[PATH_MAX];
    for (uint32_t i = 1; i <= count; i++) {
        shard_path(other, sizeof other, path, stem, i, count);
        if (i != no && access(other, F_OK) == 0)
            return true;
    }
    return false;
}

/* The set's place: beside the path as given, where links in a download cache have their siblings;
 * when no other shard is there, beside the file that the link leads to. real has PATH_MAX bytes.
 * Returns path or real; NULL: the name is no shard's. */
static const char *find_set(const char *path, char *real, uint64_t *stem, uint32_t *no,
                            uint32_t *count)
{
    uint64_t real_stem;
    uint32_t real_no, real_count;
    bool named = sl_shard_parse(path, ".gguf", stem, no, count);
    if (named && (*no < 1 || *no > *count || *count == 1 || has_sibling(path, *stem, *no, *count)))
        return path;
    if (realpath(path, real) && sl_shard_parse(real, ".gguf", &real_stem, &real_no, &real_count) &&
        (!named || has_sibling(real, real_stem, real_no, real_count))) {
        *stem = real_stem;
        *no = real_no;
        *count = real_count;
        return real;
    }
    return named ? path : NULL;
}

static sl_status check_shard(gguf *g, uint32_t no, uint32_t count)
{
    if (count == 1 && g->split_count == UINT64_MAX)
        return SL_OK;
    if (g->split_count != count)
        return sl_fail(g->err, SL_EFORMAT, "%s: split.count is %lld, the name says %u shards",
                       g->f->path, (long long)g->split_count, count);
    if (g->split_no != no - 1)
        return sl_fail(g->err, SL_EFORMAT,
                       "%s: split.no is %lld, expected %u (counted from 0) by its name", g->f->path,
                       (long long)g->split_no, no - 1);
    return SL_OK;
}

static sl_status read_set_shard(gguf *g, const char *path, uint32_t no, uint32_t count)
{
    if (access(path, F_OK) != 0)
        return sl_fail_errno(g->err, errno, "shard %u of %u, %s, is missing", no, count, path);
    g->keep_meta = no == 1;
    sl_status status = read_shard(g, path);
    return status == SL_OK ? check_shard(g, no, count) : status;
}

static sl_status read_set(gguf *g, const char *path, uint64_t stem, uint32_t no, uint32_t count)
{
    if (no < 1 || no > count)
        return sl_fail(g->err, SL_EINVAL,
                       "%s: shard %05u-of-%05u cannot be: shards go from 1 to %u", path, no, count,
                       count);
    uint64_t total = UINT64_MAX;
    for (uint32_t i = 1; i <= count; i++) {
        char name[PATH_MAX];
        shard_path(name, sizeof name, path, stem, i, count);
        sl_status status = read_set_shard(g, name, i, count);
        if (status != SL_OK)
            return status;
        if (i > 1 && g->split_tensors != total)
            return sl_fail(g->err, SL_EFORMAT,
                           "%s: split.tensors.count is %lld, %lld in the first shard", name,
                           (long long)g->split_tensors, (long long)total);
        total = g->split_tensors;
    }
    if (total != UINT64_MAX && total != g->c->n_tensors)
        return sl_fail(g->err, SL_EFORMAT,
                       "%s: split.tensors.count is %llu, the %u shards hold %u tensors",
                       g->c->file[0]->path, ull(total), count, g->c->n_tensors);
    return SL_OK;
}

/* A file whose name is no shard's must be whole. */
static sl_status read_single(gguf *g, const char *path)
{
    g->keep_meta = true;
    sl_status status = read_shard(g, path);
    if (status != SL_OK || g->split_count == UINT64_MAX || g->split_count == 1)
        return status;
    const char *hint = sl_round_up(g->data_at, g->alignment) < g->f->size
                           ? "; shards joined with cat are no merged file, use llama-gguf-split "
                             "--merge"
                           : "";
    return sl_fail(g->err, SL_EFORMAT,
                   "%s: split.count is %llu, so it is one shard of a split; such a file must be "
                   "named like NAME-00001-of-%05llu.gguf, with the others beside it%s",
                   g->f->path, ull(g->split_count), ull(g->split_count), hint);
}

sl_status sl_gguf_open(sl_checkpoint *c, const char *path, sl_err *err)
{
    gguf g = {.c = c, .err = err};
    char real[PATH_MAX];
    uint64_t stem;
    uint32_t no, count;
    c->format = SL_FORMAT_GGUF;
    const char *set = find_set(path, real, &stem, &no, &count);
    sl_status status = set ? read_set(&g, set, stem, no, count) : read_single(&g, path);
    if (status != SL_OK)
        return status;
    c->path = sl_arena_strndup(c->arena, c->file[0]->path, strlen(c->file[0]->path));
    return c->path ? SL_OK : out_of_memory(&g);
}
