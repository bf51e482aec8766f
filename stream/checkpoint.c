/* The tables that both formats fill, and what can be asked of them. */
#include "checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint_build.h"

/* ---- names ---- */

static uint64_t name_hash(uint64_t seed, const char *name)
{
    uint64_t h = seed ^ 0xcbf29ce484222325u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001b3u;
    h ^= h >> 32;
    return (h * 0x9e3779b97f4a7c15u) >> 20;
}

/* The entry that holds the name, or the free one where it belongs. */
static struct sl_names_entry *names_slot(const sl_names *t, const char *name)
{
    uint32_t i = (uint32_t)name_hash(t->seed, name) & (t->cap - 1);
    while (t->entry[i].name && strcmp(t->entry[i].name, name) != 0)
        i = (i + 1) & (t->cap - 1);
    return &t->entry[i];
}

uint32_t sl_names_find(const sl_names *t, const char *name)
{
    if (!t->cap)
        return SL_NAMES_ABSENT;
    struct sl_names_entry *e = names_slot(t, name);
    return e->name ? e->value : SL_NAMES_ABSENT;
}

static bool names_grow(sl_names *t)
{
    sl_names bigger = {.cap = t->cap ? t->cap * 2 : 64, .n = t->n};
    bigger.seed = t->cap ? t->seed : sl_now_ns() * 0x9e3779b97f4a7c15u;
    bigger.entry = t->cap > UINT32_MAX / 4 ? NULL : calloc(bigger.cap, sizeof *bigger.entry);
    if (!bigger.entry)
        return false;
    for (uint32_t i = 0; i < t->cap; i++)
        if (t->entry[i].name)
            *names_slot(&bigger, t->entry[i].name) = t->entry[i];
    free(t->entry);
    *t = bigger;
    return true;
}

bool sl_names_add(sl_names *t, const char *name, uint32_t value)
{
    if (t->n >= t->cap / 2 && !names_grow(t))
        return false;
    *names_slot(t, name) = (struct sl_names_entry){name, value};
    t->n++;
    return true;
}

void sl_names_free(sl_names *t)
{
    free(t->entry);
    *t = (sl_names){0};
}

/* ---- building ---- */

bool sl_grow(void **items, uint32_t n, uint32_t *cap, size_t item_size)
{
    if (n < *cap)
        return true;
    uint32_t want = *cap ? *cap * 2 : 16;
    void *p = want <= n ? NULL : realloc(*items, want * item_size);
    if (!p)
        return false;
    *items = p;
    *cap = want;
    return true;
}

static sl_status no_memory(const sl_checkpoint *c, sl_err *err)
{
    return sl_fail(err, SL_ENOMEM, "%s: out of memory for the tables of the checkpoint",
                   c->n_files ? c->file[c->n_files - 1]->path : "checkpoint");
}

sl_status sl_checkpoint_add_file(sl_checkpoint *c, sl_file *f, sl_err *err)
{
    void *items = c->file;
    if (!sl_grow(&items, c->n_files, &c->cap_files, sizeof(sl_file *))) {
        sl_file_close(&f);
        return no_memory(c, err);
    }
    c->file = items;
    c->file[c->n_files++] = f;
    return SL_OK;
}

sl_status sl_checkpoint_add_tensor(sl_checkpoint *c, const sl_tensor *t, sl_err *err)
{
    uint32_t old = sl_names_find(&c->tensor_names, t->name);
    if (old != SL_NAMES_ABSENT)
        return sl_fail(err, SL_EFORMAT, "%s: tensor '%.100s' is there twice%s%s",
                       c->file[t->extent.file]->path, t->name,
                       t->extent.file == c->tensor[old].extent.file ? "" : ", first in ",
                       t->extent.file == c->tensor[old].extent.file
                           ? ""
                           : c->file[c->tensor[old].extent.file]->path);
    void *items = c->tensor;
    if (!sl_grow(&items, c->n_tensors, &c->cap_tensors, sizeof *t))
        return no_memory(c, err);
    c->tensor = items;
    if (!sl_names_add(&c->tensor_names, t->name, c->n_tensors))
        return no_memory(c, err);
    c->tensor[c->n_tensors++] = *t;
    return SL_OK;
}

sl_status sl_checkpoint_add_meta(sl_checkpoint *c, const sl_meta *m, sl_err *err)
{
    if (sl_names_find(&c->meta_names, m->key) != SL_NAMES_ABSENT)
        return sl_fail(err, SL_EFORMAT, "%s: metadata key '%.100s' is there twice",
                       c->file[c->n_files - 1]->path, m->key);
    void *items = c->meta;
    if (!sl_grow(&items, c->n_meta, &c->cap_meta, sizeof *m))
        return no_memory(c, err);
    c->meta = items;
    if (!sl_names_add(&c->meta_names, m->key, c->n_meta))
        return no_memory(c, err);
    c->meta[c->n_meta++] = *m;
    return SL_OK;
}

sl_status sl_checkpoint_add_block(sl_checkpoint *c, void *data, uint64_t len, sl_err *err)
{
    void *items = c->block;
    if (!sl_grow(&items, c->n_blocks, &c->cap_blocks, sizeof *c->block)) {
        free(data);
        return no_memory(c, err);
    }
    c->block = items;
    c->block[c->n_blocks++] = (sl_meta_block){data, len};
    return SL_OK;
}

bool sl_tensor_measure(sl_tensor *t)
{
    const sl_dtype_info *type = sl_dtype_about(t->type);
    uint64_t n = 1, bytes;
    for (uint32_t i = 0; i < t->n_dims; i++)
        if (!sl_mul_size(n, t->dims[i], &n))
            return false;
    uint64_t row = t->n_dims ? t->dims[t->n_dims - 1] : 1;
    if (row % type->block_values != 0 || n > INT64_MAX)
        return false;
    if (!sl_mul_size(n / type->block_values, type->block_bytes, &bytes) || bytes > INT64_MAX)
        return false;
    t->n_values = n;
    t->extent.len = bytes;
    return true;
}

const char *sl_tensor_shape(const sl_tensor *t, char *text, size_t cap)
{
    size_t at = 0;
    for (uint32_t i = 0; i < t->n_dims && at < cap; i++)
        at += (size_t)snprintf(text + at, cap - at, "%s%llu", i ? ", " : "[",
                               (unsigned long long)t->dims[i]);
    if (at < cap)
        snprintf(text + at, cap - at, "%s", t->n_dims ? "]" : "[]");
    return text;
}

static int by_place(const void *a, const void *b)
{
    const sl_tensor *x = a, *y = b;
    if (x->extent.file != y->extent.file)
        return x->extent.file < y->extent.file ? -1 : 1;
    if (x->extent.offset != y->extent.offset)
        return x->extent.offset < y->extent.offset ? -1 : 1;
    if (x->extent.len != y->extent.len) /* empty ones first: they share an offset with the next */
        return x->extent.len < y->extent.len ? -1 : 1;
    return strcmp(x->name, y->name);
}

static sl_status refuse_overlap(const sl_checkpoint *c, sl_err *err)
{
    for (uint32_t i = 1; i < c->n_tensors; i++) {
        const sl_tensor *a = &c->tensor[i - 1], *b = &c->tensor[i];
        if (a->extent.file == b->extent.file && a->extent.offset + a->extent.len > b->extent.offset)
            return sl_fail(err, SL_EFORMAT,
                           "%s: tensor '%.100s' at offset %llu overlaps tensor '%.100s', which "
                           "takes %llu bytes from offset %llu",
                           c->file[b->extent.file]->path, b->name,
                           (unsigned long long)b->extent.offset, a->name,
                           (unsigned long long)a->extent.len, (unsigned long long)a->extent.offset);
    }
    return SL_OK;
}

sl_status sl_checkpoint_seal(sl_checkpoint *c, sl_err *err)
{
    if (c->n_tensors)
        qsort(c->tensor, c->n_tensors, sizeof *c->tensor, by_place);
    for (uint32_t i = 0; i < c->n_tensors; i++)
        names_slot(&c->tensor_names, c->tensor[i].name)->value = i;
    return refuse_overlap(c, err);
}

bool sl_shard_parse(const char *path, const char *ext, uint64_t *stem, uint32_t *no,
                    uint32_t *count)
{
    enum { TAIL = sizeof "-00001-of-00003" - 1 };
    size_t len = strlen(path), ext_len = strlen(ext);
    if (len < TAIL + ext_len || strcmp(path + len - ext_len, ext) != 0)
        return false;
    const char *tail = path + len - ext_len - TAIL;
    uint32_t value[2] = {0, 0};
    for (int i = 0; i < TAIL; i++) {
        char form = "-#####-of-#####"[i];
        if (form == '#' && tail[i] >= '0' && tail[i] <= '9')
            value[i > 6] = value[i > 6] * 10 + (uint32_t)(tail[i] - '0');
        else if (form == '#' || tail[i] != form)
            return false;
    }
    *stem = (uint64_t)(tail - path);
    *no = value[0];
    *count = value[1];
    return true;
}

const char *sl_impostor(const uint8_t *head, uint64_t len)
{
    static const char lfs[] = "version https://git-lfs";
    if (len >= sizeof lfs - 1 && memcmp(head, lfs, sizeof lfs - 1) == 0)
        return "a git-lfs pointer: fetch the real file with 'git lfs pull'";
    uint64_t i = 0;
    while (i < len && (head[i] == ' ' || head[i] == '\n' || head[i] == '\r' || head[i] == '\t'))
        i++;
    if (i < len && head[i] == '<')
        return "a web page (the download went wrong)";
    for (i = 0; i < len && head[i] == 0;)
        i++;
    return len && i == len ? "zeros (an unfinished download)" : NULL;
}

/* ---- opening ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* A name in the folder dir that ends in ext, for a hint; "" when there is none. */
static void find_by_ending(const char *dir, const char *ext, char *name, size_t cap)
{
    name[0] = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (ends_with(e->d_name, ext) && (!name[0] || strcmp(e->d_name, name) < 0))
            snprintf(name, cap, "%s", e->d_name);
    if (d)
        closedir(d);
}

static sl_status open_folder(sl_checkpoint *c, const char *dir, sl_err *err)
{
    c->format = SL_FORMAT_SAFETENSORS;
    const char *slash = ends_with(dir, "/") ? "" : "/";
    char path[4096], other[256];
    snprintf(path, sizeof path, "%s%smodel.safetensors.index.json", dir, slash);
    if (is_file(path))
        return sl_safetensors_open_index(c, path, err);
    snprintf(path, sizeof path, "%s%smodel.safetensors", dir, slash);
    if (is_file(path))
        return sl_safetensors_open_file(c, path, err);
    find_by_ending(dir, ".gguf", other, sizeof other);
    if (other[0])
        return sl_fail(err, SL_EINVAL,
                       "%s has no model.safetensors and no index, but %s: name that file", dir,
                       other);
    find_by_ending(dir, ".safetensors", other, sizeof other);
    return sl_fail(err, SL_EFORMAT,
                   "%s has neither model.safetensors nor model.safetensors.index.json%s%s%s", dir,
                   other[0] ? "; there is " : "", other, other[0] ? ": name that file" : "");
}

/* A shard "model-00001-of-00002.safetensors" stands for the index beside it, when there is one. */
static sl_status open_safetensors(sl_checkpoint *c, const char *path, sl_err *err)
{
    uint64_t stem;
    uint32_t no, count;
    char index[4096];
    c->format = SL_FORMAT_SAFETENSORS;
    if (sl_shard_parse(path, ".safetensors", &stem, &no, &count)) {
        snprintf(index, sizeof index, "%.*s.safetensors.index.json", (int)stem, path);
        if (is_file(index))
            return sl_safetensors_open_index(c, index, err);
    }
    return sl_safetensors_open_file(c, path, err);
}

/* Files without an ending we know (blobs of a download cache) tell by their content. */
static sl_status open_unnamed(sl_checkpoint *c, const char *path, sl_err *err)
{
    sl_file *f;
    uint8_t head[512] = {0};
    sl_status status = sl_file_open(path, &f, err);
    if (status != SL_OK)
        return status;
    uint64_t len = f->size < sizeof head ? f->size : sizeof head;
    status = sl_file_read(f, 0, head, len, err);
    sl_file_close(&f);
    if (status != SL_OK)
        return status;
    if (len >= 4 && memcmp(head, "GGUF", 4) == 0)
        return sl_gguf_open(c, path, err);
    if (len > 8 && head[8] == '{')
        return open_safetensors(c, path, err);
    const char *what = sl_impostor(head, len);
    return sl_fail(err, SL_EFORMAT,
                   "%s is neither GGUF (no magic 'GGUF') nor safetensors (no header)%s%s", path,
                   what ? "; it looks like " : "", what ? what : "");
}

static sl_status open_any(sl_checkpoint *c, const char *path, sl_err *err)
{
    struct stat st;
    if (strlen(path) > 3800)
        return sl_fail(err, SL_EINVAL, "the path of the model is longer than 3800 bytes");
    if (stat(path, &st) != 0)
        return sl_fail_errno(err, errno, "cannot open %s", path);
    if (S_ISDIR(st.st_mode))
        return open_folder(c, path, err);
    if (ends_with(path, ".gguf"))
        return sl_gguf_open(c, path, err);
    if (ends_with(path, ".safetensors"))
        return open_safetensors(c, path, err);
    c->format = SL_FORMAT_SAFETENSORS;
    if (ends_with(path, ".index.json"))
        return sl_safetensors_open_index(c, path, err);
    return open_unnamed(c, path, err);
}

/* The folder of the first file, with its slash. */
static sl_status keep_folder(sl_checkpoint *c, sl_err *err)
{
    const char *first = c->file[0]->path, *slash = strrchr(first, '/');
    c->folder = slash ? sl_arena_strndup(c->arena, first, (uint64_t)(slash - first) + 1)
                      : sl_arena_strndup(c->arena, "./", 2);
    return c->folder ? SL_OK : no_memory(c, err);
}

sl_status sl_checkpoint_open(const char *path, sl_checkpoint **out, sl_err *err)
{
    *out = NULL;
    sl_checkpoint *c = calloc(1, sizeof *c);
    if (c)
        c->arena = sl_arena_new();
    if (!c || !c->arena) {
        sl_checkpoint_close(&c);
        return sl_fail(err, SL_ENOMEM, "out of memory while opening %s", path);
    }
    sl_status status = open_any(c, path, err);
    if (status == SL_OK)
        status = sl_checkpoint_seal(c, err);
    if (status == SL_OK)
        status = keep_folder(c, err);
    if (status == SL_OK && !c->path && !(c->path = sl_arena_strndup(c->arena, path, strlen(path))))
        status = no_memory(c, err);
    if (status != SL_OK)
        sl_checkpoint_close(&c);
    *out = c;
    return status;
}

void sl_checkpoint_close(sl_checkpoint **cp)
{
    if (!cp || !*cp)
        return;
    sl_checkpoint *c = *cp;
    for (uint32_t i = 0; i < c->n_files; i++)
        sl_file_close(&c->file[i]);
    for (uint32_t i = 0; i < c->n_blocks; i++)
        free(c->block[i].data);
    free(c->block);
    free(c->file);
    free(c->tensor);
    free(c->meta);
    sl_names_free(&c->tensor_names);
    sl_names_free(&c->meta_names);
    sl_arena_free(&c->arena);
    free(c);
    *cp = NULL;
}

/* ---- asking ---- */

sl_format sl_checkpoint_format(const sl_checkpoint *c)
{
    return c->format;
}

const char *sl_checkpoint_path(const sl_checkpoint *c)
{
    return c->path;
}

uint32_t sl_checkpoint_file_count(const sl_checkpoint *c)
{
    return c->n_files;
}

sl_file *sl_checkpoint_file(const sl_checkpoint *c, uint32_t i)
{
    return c->file[i];
}

uint32_t sl_checkpoint_tensor_count(const sl_checkpoint *c)
{
    return c->n_tensors;
}

const sl_tensor *sl_checkpoint_tensor(const sl_checkpoint *c, uint32_t i)
{
    return &c->tensor[i];
}

const sl_tensor *sl_checkpoint_find(const sl_checkpoint *c, const char *name)
{
    uint32_t i = sl_names_find(&c->tensor_names, name);
    return i == SL_NAMES_ABSENT ? NULL : &c->tensor[i];
}

uint64_t sl_checkpoint_memory_bytes(const sl_checkpoint *c)
{
    uint64_t n = sizeof *c + sl_arena_bytes(c->arena);
    n += c->cap_files * sizeof *c->file + c->n_files * sizeof(sl_file);
    n += c->cap_tensors * sizeof *c->tensor + c->cap_meta * sizeof *c->meta;
    n += c->cap_blocks * sizeof *c->block;
    n += (uint64_t)(c->tensor_names.cap + c->meta_names.cap) * sizeof *c->tensor_names.entry;
    for (uint32_t i = 0; i < c->n_blocks; i++)
        n += c->block[i].len;
    return n;
}

/* ---- metadata ---- */

uint32_t sl_checkpoint_meta_count(const sl_checkpoint *c)
{
    return c->n_meta;
}

const sl_meta *sl_checkpoint_meta(const sl_checkpoint *c, uint32_t i)
{
    return &c->meta[i];
}

const sl_meta *sl_checkpoint_meta_find(const sl_checkpoint *c, const char *key)
{
    uint32_t i = sl_names_find(&c->meta_names, key);
    return i == SL_NAMES_ABSENT ? NULL : &c->meta[i];
}

const char *sl_meta_type_name(sl_meta_type t)
{
    static const char *const name[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                       "bool", "string", "array", "u64", "i64", "f64"};
    return (unsigned)t < sizeof name / sizeof *name ? name[t] : "unknown";
}

bool sl_meta_int(const sl_meta *m, int64_t *out)
{
    if (!m)
        return false;
    switch (m->type) {
    case SL_META_U8:
    case SL_META_U16:
    case SL_META_U32:
    case SL_META_U64:
    case SL_META_BOOL:
        if (m->v.u > INT64_MAX)
            return false;
        *out = (int64_t)m->v.u;
        return true;
    case SL_META_I8:
    case SL_META_I16:
    case SL_META_I32:
    case SL_META_I64:
        *out = m->v.i;
        return true;
    default:
        return false;
    }
}

bool sl_meta_number(const sl_meta *m, double *out)
{
    int64_t i;
    if (m && (m->type == SL_META_F32 || m->type == SL_META_F64)) {
        *out = m->v.f;
        return true;
    }
    if (m && m->type == SL_META_U64) {
        *out = (double)m->v.u;
        return true;
    }
    if (!sl_meta_int(m, &i))
        return false;
    *out = (double)i;
    return true;
}

/* Element i of an array of numbers, as a value of its own. */
static bool array_element(const sl_meta *m, uint64_t i, sl_meta *out)
{
    if (!m || m->type != SL_META_ARRAY || i >= m->v.a.n || !m->v.a.data)
        return false;
    uint32_t size = sl_meta_size(m->v.a.type);
    if (!size)
        return false;
    sl_bytes b = sl_bytes_over((const uint8_t *)m->v.a.data + i * size, size);
    *out = (sl_meta){.type = m->v.a.type};
    return sl_meta_scalar(&b, out);
}

bool sl_meta_array_int(const sl_meta *m, uint64_t i, int64_t *out)
{
    sl_meta e;
    return array_element(m, i, &e) && sl_meta_int(&e, out);
}

bool sl_meta_array_number(const sl_meta *m, uint64_t i, double *out)
{
    sl_meta e;
    return array_element(m, i, &e) && sl_meta_number(&e, out);
}

static void free_block(sl_checkpoint *c, const void *data)
{
    for (uint32_t i = 0; data && i < c->n_blocks; i++)
        if (c->block[i].data == data) {
            free(c->block[i].data);
            c->block[i] = c->block[--c->n_blocks];
            return;
        }
}

void sl_checkpoint_trim(sl_checkpoint *c, uint64_t keep)
{
    for (uint32_t i = 0; i < c->n_meta; i++) {
        sl_meta *m = &c->meta[i];
        if (m->type != SL_META_ARRAY || m->v.a.n <= keep)
            continue;
        free_block(c, m->v.a.data);
        free_block(c, m->v.a.text);
        m->v.a.data = NULL;
        m->v.a.text = NULL;
        m->v.a.items = NULL;
        m->v.a.len = 0;
    }
}

/* ---- reading ---- */

static sl_status read_whole(const sl_file *f, uint64_t max_bytes, char **out, uint64_t *len,
                            sl_err *err)
{
    if (f->size > max_bytes)
        return sl_fail(err, SL_EFORMAT, "%s has %llu bytes, at most %llu are read", f->path,
                       (unsigned long long)f->size, (unsigned long long)max_bytes);
    char *text = malloc(f->size + 1);
    if (!text)
        return sl_fail(err, SL_ENOMEM, "%s: out of memory for its %llu bytes", f->path,
                       (unsigned long long)f->size);
    sl_status status = sl_file_read(f, 0, text, f->size, err);
    sl_file_forget(f, 0, f->size);
    if (status != SL_OK) {
        free(text);
        return status;
    }
    text[f->size] = 0;
    *out = text;
    *len = f->size;
    return SL_OK;
}

sl_status sl_checkpoint_read_text(const sl_checkpoint *c, const char *name, uint64_t max_bytes,
                                  char **out, uint64_t *len, sl_err *err)
{
    *out = NULL;
    *len = 0;
    if (c->format == SL_FORMAT_GGUF)
        return sl_fail(err, SL_EINVAL, "%s is a GGUF file: it has no %s beside it", c->path, name);
    char path[4096];
    sl_file *f;
    snprintf(path, sizeof path, "%s%s", c->folder, name);
    sl_status status = sl_file_open(path, &f, err);
    if (status == SL_OK)
        status = read_whole(f, max_bytes, out, len, err);
    sl_file_close(&f);
    return status;
}

sl_status sl_checkpoint_read(const sl_checkpoint *c, const sl_tensor *t, void *buf, sl_err *err)
{
    const sl_file *f = c->file[t->extent.file];
    sl_status status = sl_file_read(f, t->extent.offset, buf, t->extent.len, err);
    sl_file_forget(f, t->extent.offset, t->extent.len);
    return status;
}
