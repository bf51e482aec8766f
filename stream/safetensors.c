/* safetensors: one file, or an index with its shards. docs/formats.md is the specification of what
 * is read and refused here. Headers and indexes go through the pull reader; of a header only names
 * and shapes are kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint_build.h"
#include "json.h"

enum { LENGTH_BYTES = 8, MAX_NAME = 4096 };
static const uint64_t max_header = 100u << 20; /* the limit of the format's own library */
static const uint64_t max_index = 100u << 20;

/* A file while its header is read. */
typedef struct header {
    sl_checkpoint *c;
    sl_file *f; /* owned by c */
    uint32_t file;
    sl_json_reader *r;
    sl_err *err;
    uint64_t data_at, data_len; /* the data section in the file */
    char about[160];            /* "tensor 'x'", for messages */
} header;

static unsigned long long ull(uint64_t v)
{
    return v;
}

static const struct {
    const char *name;
    sl_dtype type;
} dtypes[] = {{"BOOL", SL_BOOL},       {"U8", SL_U8},           {"I8", SL_I8},
              {"F4", SL_F4},           {"F8_E4M3", SL_F8_E4M3}, {"F8_E5M2", SL_F8_E5M2},
              {"F8_E8M0", SL_F8_E8M0}, {"I16", SL_I16},         {"U16", SL_U16},
              {"F16", SL_F16},         {"BF16", SL_BF16},       {"I32", SL_I32},
              {"U32", SL_U32},         {"F32", SL_F32},         {"C64", SL_C64},
              {"F64", SL_F64},         {"I64", SL_I64},         {"U64", SL_U64}};

/* ---- one tensor's entry ---- */

typedef struct entry {
    sl_tensor t;
    uint64_t begin, end;
    bool has_dtype, has_shape, has_offsets;
} entry;

static bool read_dtype(header *h, entry *e)
{
    sl_text text;
    if (!sl_json_read_string(h->r, &text))
        return false;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (sl_text_is(text, dtypes[i].name)) {
            e->t.type = dtypes[i].type;
            return true;
        }
    return sl_json_reject(h->r, SL_EUNSUPPORTED, "unknown dtype '%.40s'", text.data);
}

static bool read_shape(header *h, entry *e)
{
    if (!sl_json_enter_array(h->r))
        return false;
    while (sl_json_next_item(h->r)) {
        if (e->t.n_dims == SL_MAX_DIMS)
            return sl_json_reject(h->r, SL_EUNSUPPORTED, "more than %d dimensions", SL_MAX_DIMS);
        sl_json_read_uint(h->r, &e->t.dims[e->t.n_dims++]);
    }
    return !sl_json_failed(h->r);
}

static bool read_offsets(header *h, entry *e)
{
    uint64_t v[2] = {0, 0};
    uint32_t n = 0;
    if (!sl_json_enter_array(h->r))
        return false;
    while (sl_json_next_item(h->r)) {
        if (n == 2)
            return sl_json_reject(h->r, SL_EFORMAT, "data_offsets has more than two numbers");
        sl_json_read_uint(h->r, &v[n++]);
    }
    if (!sl_json_failed(h->r) && n != 2)
        return sl_json_reject(h->r, SL_EFORMAT, "data_offsets has %u numbers, expected two", n);
    e->begin = v[0];
    e->end = v[1];
    return !sl_json_failed(h->r);
}

static bool once(header *h, bool *seen, const char *key)
{
    if (*seen)
        return sl_json_reject(h->r, SL_EFORMAT, "%s is there twice", key);
    return *seen = true;
}

static bool read_member(header *h, entry *e, sl_text key)
{
    if (sl_text_is(key, "dtype"))
        return once(h, &e->has_dtype, "dtype") && read_dtype(h, e);
    if (sl_text_is(key, "shape"))
        return once(h, &e->has_shape, "shape") && read_shape(h, e);
    if (sl_text_is(key, "data_offsets"))
        return once(h, &e->has_offsets, "data_offsets") && read_offsets(h, e);
    return sl_json_skip(h->r);
}

static bool check_entry(header *h, entry *e)
{
    char shape[192];
    if (!e->has_dtype || !e->has_shape || !e->has_offsets)
        return sl_json_reject(h->r, SL_EFORMAT, "it has no %s",
                              !e->has_dtype   ? "dtype"
                              : !e->has_shape ? "shape"
                                              : "data_offsets");
    const char *type = sl_dtype_about(e->t.type)->name;
    sl_tensor_shape(&e->t, shape, sizeof shape);
    if (!sl_tensor_measure(&e->t))
        return sl_json_reject(h->r, SL_EFORMAT,
                              "shape %s with dtype %s is no whole number of bytes below 2^63",
                              shape, type);
    if (e->end < e->begin || e->end - e->begin != e->t.extent.len)
        return sl_json_reject(h->r, SL_EFORMAT,
                              "data_offsets [%llu, %llu], but shape %s with dtype %s takes %llu "
                              "bytes",
                              ull(e->begin), ull(e->end), shape, type, ull(e->t.extent.len));
    if (e->end > h->data_len)
        return sl_json_reject(h->r, SL_EFORMAT,
                              "data_offsets [%llu, %llu] reach past the end of the file, which has "
                              "%llu bytes of data: it is truncated",
                              ull(e->begin), ull(e->end), ull(h->data_len));
    return true;
}

static bool read_entry(header *h, sl_text key)
{
    entry e = {.t.extent.file = h->file};
    if (key.len == 0 || key.len > MAX_NAME || memchr(key.data, 0, key.len))
        return sl_json_reject(h->r, SL_EFORMAT,
                              "a tensor's name is empty, longer than %d bytes or has a NUL in it",
                              MAX_NAME);
    e.t.name = sl_text_keep(h->c->arena, key).data;
    if (!e.t.name)
        return sl_json_reject(h->r, SL_ENOMEM, "out of memory for the header");
    snprintf(h->about, sizeof h->about, "tensor '%.140s'", e.t.name);
    sl_json_about(h->r, h->about);
    for (bool any = sl_json_enter_object(h->r); any && sl_json_next_key(h->r, &key);)
        read_member(h, &e, key);
    if (sl_json_failed(h->r) || !check_entry(h, &e))
        return false;
    e.t.extent.offset = h->data_at + e.begin;
    sl_json_about(h->r, NULL);
    return sl_checkpoint_add_tensor(h->c, &e.t, h->err) == SL_OK;
}

/* ---- __metadata__: text by key ---- */

static bool add_text(header *h, const char *key)
{
    sl_text text;
    if (!sl_json_read_string(h->r, &text))
        return false;
    sl_meta m = {.key = key, .type = SL_META_STRING, .v.s = sl_text_keep(h->c->arena, text)};
    if (!m.v.s.data)
        return sl_json_reject(h->r, SL_ENOMEM, "out of memory for __metadata__");
    return sl_checkpoint_add_meta(h->c, &m, h->err) == SL_OK;
}

/* Kept from the first file that has the key. Anything but text is skipped with a warning: nothing
 * depends on it. */
static bool read_metadata(header *h)
{
    sl_text key;
    if (sl_json_peek(h->r) != SL_JSON_OBJECT) {
        sl_log(SL_LOG_WARN, "%s: __metadata__ is %s, expected an object", h->f->path,
               sl_json_type_name(sl_json_peek(h->r)));
        return sl_json_skip(h->r);
    }
    for (bool any = sl_json_enter_object(h->r); any && sl_json_next_key(h->r, &key);) {
        const char *name = sl_text_keep(h->c->arena, key).data;
        if (!name)
            return sl_json_reject(h->r, SL_ENOMEM, "out of memory for __metadata__");
        bool ok;
        if (sl_json_peek(h->r) != SL_JSON_STRING) {
            sl_log(SL_LOG_WARN, "%s: __metadata__ '%.100s' is %s, expected a string", h->f->path,
                   name, sl_json_type_name(sl_json_peek(h->r)));
            ok = sl_json_skip(h->r);
        } else if (sl_names_find(&h->c->meta_names, name) != SL_NAMES_ABSENT) {
            ok = sl_json_skip(h->r);
        } else {
            ok = add_text(h, name);
        }
        if (!ok)
            return false;
    }
    return !sl_json_failed(h->r);
}

/* ---- one file ---- */

static bool read_members(header *h)
{
    sl_text key;
    for (bool any = sl_json_enter_object(h->r); any && sl_json_next_key(h->r, &key);)
        if (!(sl_text_is(key, "__metadata__") ? read_metadata(h) : read_entry(h, key)))
            return false;
    return !sl_json_failed(h->r);
}

static sl_status read_header(header *h, uint64_t len)
{
    char name[4200];
    snprintf(name, sizeof name, "%s: header", h->f->path);
    sl_status status = sl_json_reader_of_file(h->f, LENGTH_BYTES, len, name, &h->r, h->err);
    if (status != SL_OK)
        return status;
    if (read_members(h))
        status = sl_json_read_end(h->r);
    else
        status = h->err->code;
    sl_json_reader_close(&h->r);
    return status;
}

/* The first 8 bytes: how long the header is. */
static sl_status read_length(header *h, uint64_t *len)
{
    uint8_t head[64] = {0};
    uint64_t n = h->f->size < sizeof head ? h->f->size : sizeof head;
    if (n == 0)
        return sl_fail(h->err, SL_EFORMAT, "%s is empty (0 bytes)", h->f->path);
    sl_status status = sl_file_read(h->f, 0, head, n, h->err);
    if (status != SL_OK)
        return status;
    const char *what = sl_impostor(head, n);
    if (what)
        return sl_fail(h->err, SL_EFORMAT, "%s is no safetensors file; its header looks like %s",
                       h->f->path, what);
    if (n < LENGTH_BYTES)
        return sl_fail(h->err, SL_EFORMAT,
                       "%s is truncated: it has %llu bytes, the length of the header alone takes 8",
                       h->f->path, ull(n));
    sl_bytes b = sl_bytes_over(head, n);
    *len = sl_bytes_u64(&b);
    if (*len > max_header || *len > h->f->size - LENGTH_BYTES || *len < 2)
        return sl_fail(
            h->err, SL_EFORMAT,
            "%s: the header's length is %llu at offset 0, expected 2 to %llu (the file "
            "has %llu bytes, the format allows %llu)",
            h->f->path, ull(*len),
            ull(h->f->size - LENGTH_BYTES < max_header ? h->f->size - LENGTH_BYTES : max_header),
            ull(h->f->size), ull(max_header));
    return SL_OK;
}

static int by_offset(const void *a, const void *b)
{
    const sl_extent *x = &(*(const sl_tensor *const *)a)->extent;
    const sl_extent *y = &(*(const sl_tensor *const *)b)->extent;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->len < y->len ? -1 : x->len > y->len;
}

/* The tensors of a file must cover its data without holes (the format's own rule: it leaves no
 * place for anything hidden). Only pointers are sorted: the name table holds places in c->tensor.
 */
static sl_status check_cover(header *h, uint32_t first)
{
    uint64_t n = h->c->n_tensors - first, at = h->data_at;
    const sl_tensor **t = malloc(n * sizeof *t);
    if (!t)
        return sl_fail(h->err, SL_ENOMEM, "%s: out of memory for its table", h->f->path);
    for (uint64_t i = 0; i < n; i++)
        t[i] = &h->c->tensor[first + i];
    qsort(t, n, sizeof *t, by_offset);
    sl_status status = SL_OK;
    for (uint64_t i = 0; i < n && status == SL_OK; i++) {
        if (t[i]->extent.offset > at)
            status = sl_fail(h->err, SL_EFORMAT,
                             "%s: header: %llu unused bytes at offset %llu before tensor '%.100s': "
                             "the format allows no holes",
                             h->f->path, ull(t[i]->extent.offset - at), ull(at), t[i]->name);
        else if (t[i]->extent.offset < at)
            status =
                sl_fail(h->err, SL_EFORMAT,
                        "%s: header: tensor '%.100s' at offset %llu overlaps tensor '%.100s', "
                        "which ends at %llu",
                        h->f->path, t[i]->name, ull(t[i]->extent.offset), t[i - 1]->name, ull(at));
        at = t[i]->extent.offset + t[i]->extent.len;
    }
    free((void *)t);
    if (status == SL_OK && at < h->f->size)
        sl_log(SL_LOG_WARN, "%s: %llu trailing bytes after the last tensor are ignored", h->f->path,
               ull(h->f->size - at));
    return status;
}

static sl_status read_file(sl_checkpoint *c, const char *path, sl_err *err)
{
    header h = {.c = c, .file = c->n_files, .err = err};
    uint32_t first = c->n_tensors;
    uint64_t len = 0;
    sl_status status = sl_file_open(path, &h.f, err);
    if (status == SL_OK)
        status = sl_checkpoint_add_file(c, h.f, err);
    if (status == SL_OK)
        status = read_length(&h, &len);
    if (status != SL_OK)
        return status;
    h.data_at = LENGTH_BYTES + len;
    h.data_len = h.f->size - h.data_at;
    status = read_header(&h, len);
    if (status == SL_OK && c->n_tensors == first)
        status = sl_fail(err, SL_EFORMAT, "%s: there are no tensors in its header", path);
    return status == SL_OK ? check_cover(&h, first) : status;
}

sl_status sl_safetensors_open_file(sl_checkpoint *c, const char *path, sl_err *err)
{
    sl_err own = {0};
    return read_file(c, path, err ? err : &own);
}

/* ---- an index and its shards ---- */

/* weight_map while the shards are read. In an arena of its own. */
typedef struct weight_map {
    sl_arena *arena;
    const char *path, *folder; /* of the index; the folder with its slash */
    sl_json_reader *r;
    sl_err *err;
    const char **shard;
    uint32_t n_shards, cap_shards;
    sl_names shards; /* name -> number */
    struct {
        const char *name;
        uint32_t shard;
    } * tensor;
    uint32_t n_tensors, cap_tensors;
    sl_names tensors;
    bool has_map;
    double total_size; /* as claimed; negative: not there */
    char about[160];
} weight_map;

static bool no_memory(weight_map *m)
{
    return sl_json_reject(m->r, SL_ENOMEM, "out of memory for the index");
}

/* A shard lies beside its index: a plain file name. */
static bool plain_name(const char *s)
{
    return s[0] && s[0] != '.' && !strchr(s, '/');
}

static bool shard_number(weight_map *m, sl_text text, uint32_t *no)
{
    const char *name = sl_text_keep(m->arena, text).data;
    if (!name)
        return no_memory(m);
    if (!plain_name(name) || memchr(text.data, 0, text.len))
        return sl_json_reject(m->r, SL_EFORMAT,
                              "the shard '%.200s' is no plain file name beside the index", name);
    *no = sl_names_find(&m->shards, name);
    if (*no != SL_NAMES_ABSENT)
        return true;
    void *items = (void *)m->shard;
    if (!sl_grow(&items, m->n_shards, &m->cap_shards, sizeof *m->shard))
        return no_memory(m);
    m->shard = items;
    *no = m->n_shards;
    m->shard[m->n_shards++] = name;
    return sl_names_add(&m->shards, name, *no) || no_memory(m);
}

static bool map_tensor(weight_map *m, sl_text key)
{
    sl_text file;
    uint32_t shard;
    const char *name = sl_text_keep(m->arena, key).data;
    if (!name)
        return no_memory(m);
    snprintf(m->about, sizeof m->about, "weight_map of tensor '%.120s'", name);
    sl_json_about(m->r, m->about);
    if (memchr(key.data, 0, key.len) || sl_names_find(&m->tensors, name) != SL_NAMES_ABSENT)
        return sl_json_reject(m->r, SL_EFORMAT, "it is there twice, or its name has a NUL in it");
    if (!sl_json_read_string(m->r, &file) || !shard_number(m, file, &shard))
        return false;
    sl_json_about(m->r, NULL);
    void *items = m->tensor;
    if (!sl_grow(&items, m->n_tensors, &m->cap_tensors, sizeof *m->tensor))
        return no_memory(m);
    m->tensor = items;
    m->tensor[m->n_tensors].name = name;
    m->tensor[m->n_tensors].shard = shard;
    return sl_names_add(&m->tensors, name, m->n_tensors++) || no_memory(m);
}

static bool read_map(weight_map *m)
{
    sl_text key;
    if (m->has_map)
        return sl_json_reject(m->r, SL_EFORMAT, "weight_map is there twice");
    m->has_map = true;
    sl_json_about(m->r, "weight_map");
    for (bool any = sl_json_enter_object(m->r); any && sl_json_next_key(m->r, &key);)
        if (!map_tensor(m, key))
            return false;
    sl_json_about(m->r, NULL);
    return !sl_json_failed(m->r);
}

/* {"total_size": N}; some writers put a float there, and other keys beside it. */
static bool read_index_metadata(weight_map *m)
{
    sl_text key;
    if (sl_json_peek(m->r) != SL_JSON_OBJECT)
        return sl_json_skip(m->r);
    for (bool any = sl_json_enter_object(m->r); any && sl_json_next_key(m->r, &key);)
        if (sl_text_is(key, "total_size") && sl_json_peek(m->r) == SL_JSON_NUMBER)
            sl_json_read_double(m->r, &m->total_size);
        else
            sl_json_skip(m->r);
    return !sl_json_failed(m->r);
}

static sl_status read_index(weight_map *m, const sl_file *f)
{
    sl_text key;
    if (f->size > max_index)
        return sl_fail(m->err, SL_EFORMAT, "%s has %llu bytes, at most %llu are read", f->path,
                       ull(f->size), ull(max_index));
    sl_status status = sl_json_reader_of_file(f, 0, f->size, f->path, &m->r, m->err);
    if (status != SL_OK)
        return status;
    for (bool any = sl_json_enter_object(m->r); any && sl_json_next_key(m->r, &key);)
        if (sl_text_is(key, "weight_map"))
            read_map(m);
        else if (sl_text_is(key, "metadata"))
            read_index_metadata(m);
        else
            sl_json_skip(m->r);
    status = sl_json_read_end(m->r);
    sl_json_reader_close(&m->r);
    if (status == SL_OK && (!m->has_map || m->n_shards == 0))
        status = sl_fail(m->err, SL_EFORMAT, "%s has no weight_map, or an empty one", f->path);
    return status;
}

static sl_status open_shards(sl_checkpoint *c, weight_map *m)
{
    sl_status status = SL_OK;
    for (uint32_t i = 0; i < m->n_shards && status == SL_OK; i++) {
        char path[4600];
        snprintf(path, sizeof path, "%s%s", m->folder, m->shard[i]);
        if (access(path, F_OK) != 0)
            return sl_fail(m->err, SL_EFORMAT, "%s, shard %u of %u in %s, is missing", path, i + 1,
                           m->n_shards, m->path);
        status = read_file(c, path, m->err);
    }
    return status;
}

/* Every tensor of the index is where it says. */
static sl_status check_listed(const sl_checkpoint *c, const weight_map *m)
{
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const sl_tensor *t = sl_checkpoint_find(c, m->tensor[i].name);
        if (!t)
            return sl_fail(m->err, SL_EFORMAT,
                           "%s: tensor '%.100s' should be in %s, but no shard holds it", m->path,
                           m->tensor[i].name, m->shard[m->tensor[i].shard]);
        if (t->extent.file != m->tensor[i].shard)
            return sl_fail(m->err, SL_EFORMAT, "%s: tensor '%.100s' should be in %s, but is in %s",
                           m->path, t->name, m->shard[m->tensor[i].shard],
                           m->shard[t->extent.file]);
    }
    return SL_OK;
}

/* What is odd about the index, but harmless. */
static void warn_unlisted(const sl_checkpoint *c, const weight_map *m)
{
    uint64_t bytes = 0, n = 0;
    const char *first = NULL;
    for (uint32_t i = 0; i < c->n_tensors; i++) {
        bytes += c->tensor[i].extent.len;
        if (sl_names_find(&m->tensors, c->tensor[i].name) == SL_NAMES_ABSENT && n++ == 0)
            first = c->tensor[i].name;
    }
    if (n)
        sl_log(SL_LOG_WARN,
               "%s does not list %llu tensors that the shards hold, the first is '%.100s'", m->path,
               ull(n), first);
    if (m->total_size >= 0 && m->total_size != (double)bytes)
        sl_log(SL_LOG_WARN, "%s: total_size is %.0f, the tensors take %llu bytes", m->path,
               m->total_size, ull(bytes));
}

static void warn_both(const weight_map *m)
{
    char path[4600];
    snprintf(path, sizeof path, "%smodel.safetensors", m->folder);
    if (sl_names_find(&m->shards, "model.safetensors") == SL_NAMES_ABSENT &&
        access(path, F_OK) == 0)
        sl_log(SL_LOG_WARN, "%s is ignored: the index beside it names other files", path);
}

static sl_status open_map(sl_checkpoint *c, weight_map *m)
{
    sl_file *f;
    sl_status status = sl_file_open(m->path, &f, m->err);
    if (status == SL_OK)
        status = read_index(m, f);
    sl_file_close(&f);
    if (status == SL_OK)
        status = open_shards(c, m);
    if (status == SL_OK)
        status = check_listed(c, m);
    if (status == SL_OK) {
        warn_unlisted(c, m);
        warn_both(m);
    }
    return status;
}

sl_status sl_safetensors_open_index(sl_checkpoint *c, const char *path, sl_err *err)
{
    sl_err own = {0};
    const char *slash = strrchr(path, '/');
    weight_map m = {.path = path, .total_size = -1, .err = err ? err : &own};
    m.arena = sl_arena_new();
    m.folder =
        m.arena ? sl_arena_strndup(m.arena, path, slash ? (uint64_t)(slash - path) + 1 : 0) : NULL;
    sl_status status =
        m.folder ? open_map(c, &m) : sl_fail(err, SL_ENOMEM, "%s: out of memory", path);
    free((void *)m.shard);
    free(m.tensor);
    sl_names_free(&m.shards);
    sl_names_free(&m.tensors);
    sl_arena_free(&m.arena);
    return status;
}
