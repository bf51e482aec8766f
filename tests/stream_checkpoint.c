/* Proves: what a checkpoint says is what its file holds. Metadata of every type bit by bit, tensor
 * tables with absolute offsets and the crc32 of the bytes against recorded values; splits found
 * from any shard and through links; the safetensors side (folder, index, single file, metadata);
 * the cursor across block borders; files that are no files; every truncation of a small GGUF. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../stream/checkpoint.h"
#include "../stream/json.h"
#include "lib_test.h"

static char scratch[] = "/tmp/sl_checkpoint_XXXXXX";
static unsigned n_warnings;

static void count_warnings(void *ctx, sl_log_level level, const char *text)
{
    n_warnings += level == SL_LOG_WARN;
}

static uint32_t crc32_of(const uint8_t *p, uint64_t n)
{
    uint32_t c = ~0u;
    for (uint64_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = (c >> 1) ^ (0xEDB88320u & (0u - (c & 1)));
    }
    return ~c;
}

static sl_checkpoint *open_ok(const char *path)
{
    sl_checkpoint *c;
    sl_err err = {0};
    sl_status status = sl_checkpoint_open(path, &c, &err);
    CHECK(status == SL_OK && c, "%s", err.text);
    return c;
}

static void must_fail(const char *path, sl_status code, const char *word)
{
    sl_checkpoint *c;
    sl_err err = {0};
    sl_status status = sl_checkpoint_open(path, &c, &err);
    CHECK(!c && status == code && err.code == code && strstr(err.text, word), "%s: %d '%s'", path,
          status, err.text);
    CHECK(sl_checkpoint_open(path, &c, NULL) == code && !c);
    sl_checkpoint_close(&c);
}

/* ---- recorded values: the reader walks the record, the checkpoint must agree ---- */

static bool next_key_is(sl_json_reader *r, const char *wanted)
{
    sl_text key;
    return sl_json_next_key(r, &key) && CHECK(sl_text_is(key, wanted), "%s", key.data);
}

static void same_float(sl_json_reader *r, const sl_meta *m)
{
    sl_text text = {0};
    char bits[24] = "";
    float f = (float)m->v.f;
    uint32_t low;
    uint64_t wide;
    memcpy(&low, &f, sizeof low);
    memcpy(&wide, &m->v.f, sizeof wide);
    if (m->type == SL_META_F32)
        snprintf(bits, sizeof bits, "%08x", low);
    else
        snprintf(bits, sizeof bits, "%016llx", (unsigned long long)wide);
    sl_json_enter_array(r);
    CHECK(sl_json_next_item(r) && sl_json_skip(r));
    CHECK(sl_json_next_item(r) && sl_json_read_string(r, &text) && sl_text_is(text, bits),
          "%s, found %s", text.data, bits);
    CHECK(!sl_json_next_item(r));
}

static void same_scalar(sl_json_reader *r, const sl_meta *m)
{
    int64_t i = 0;
    uint64_t u = 0;
    bool b = false;
    sl_text s = {0};
    switch (m->type) {
    case SL_META_F32:
    case SL_META_F64:
        same_float(r, m);
        break;
    case SL_META_BOOL:
        CHECK(sl_json_read_bool(r, &b) && m->v.u == b);
        break;
    case SL_META_STRING:
        CHECK(sl_json_read_string(r, &s) && s.len == m->v.s.len &&
              memcmp(s.data, m->v.s.data, s.len) == 0);
        break;
    case SL_META_U8:
    case SL_META_U16:
    case SL_META_U32:
    case SL_META_U64:
        CHECK(sl_json_read_uint(r, &u) && u == m->v.u);
        break;
    default:
        CHECK(sl_json_read_int(r, &i) && i == m->v.i);
    }
}

/* The names in the records are ours but for two. */
static sl_meta_type type_of(sl_text name)
{
    for (sl_meta_type t = SL_META_U8; t <= SL_META_F64; t++)
        if (sl_text_is(name, t == SL_META_STRING  ? "str"
                             : t == SL_META_ARRAY ? "arr"
                                                  : sl_meta_type_name(t)))
            return t;
    return (sl_meta_type)99;
}

static void same_array(sl_json_reader *r, const sl_meta *m);

/* Element i as a value of its own, made from the packed bytes the way a user would. */
static void same_element(sl_json_reader *r, const sl_meta *m, uint64_t i)
{
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (m->v.a.type == SL_META_ARRAY) {
        same_array(r, &m->v.a.items[i]);
        return;
    }
    sl_meta e = {.type = m->v.a.type};
    uint32_t size = sizes[e.type];
    const uint8_t *p = (const uint8_t *)m->v.a.data + i * size;
    int64_t n = 0;
    float f;
    double d;
    if (e.type == SL_META_STRING) {
        e.v.s = m->v.a.text[i];
    } else if (e.type == SL_META_F32) {
        memcpy(&f, p, 4);
        e.v.f = f;
        CHECK(sl_meta_array_number(m, i, &d) && (d == e.v.f));
    } else if (e.type == SL_META_F64) {
        memcpy(&e.v.f, p, 8);
        CHECK(sl_meta_array_number(m, i, &d) && (d == e.v.f));
    } else if (sl_meta_array_int(m, i, &n)) {
        e.v.i = n; /* the same bits as v.u when not negative */
    } else {
        CHECK(e.type == SL_META_U64);
        memcpy(&e.v.u, p, 8);
    }
    same_scalar(r, &e);
}

static void same_array(sl_json_reader *r, const sl_meta *m)
{
    sl_text of = {0};
    uint64_t n = 0, i = 0;
    sl_json_enter_object(r);
    CHECK(next_key_is(r, "of") && sl_json_read_string(r, &of) && type_of(of) == m->v.a.type);
    CHECK(next_key_is(r, "n") && sl_json_read_uint(r, &n) && n == m->v.a.n);
    CHECK(next_key_is(r, "items") && sl_json_enter_array(r));
    for (; sl_json_next_item(r); i++)
        same_element(r, m, i);
    CHECK(i == m->v.a.n);
    sl_json_next_key(r, &of);
}

static void same_metadata(sl_json_reader *r, const sl_checkpoint *c)
{
    uint32_t i = 0;
    sl_text s = {0};
    sl_json_enter_array(r);
    for (; sl_json_next_item(r); i++) {
        const sl_meta *m = sl_checkpoint_meta(c, i < sl_checkpoint_meta_count(c) ? i : 0);
        sl_json_enter_object(r);
        CHECK(next_key_is(r, "key") && sl_json_read_string(r, &s) && sl_text_is(s, m->key));
        CHECK(sl_checkpoint_meta_find(c, m->key) == m);
        CHECK(next_key_is(r, "type") && sl_json_read_string(r, &s) && type_of(s) == m->type);
        CHECK(next_key_is(r, "value"));
        if (m->type == SL_META_ARRAY)
            same_array(r, m);
        else
            same_scalar(r, m);
        sl_json_next_key(r, &s);
    }
    CHECK(i == sl_checkpoint_meta_count(c), "%u recorded, %u found", i,
          sl_checkpoint_meta_count(c));
}

static void same_bytes(const sl_checkpoint *c, const sl_tensor *t, uint64_t crc)
{
    sl_err err = {0};
    uint8_t *data = malloc(t->extent.len + 1);
    CHECK(data && sl_checkpoint_read(c, t, data, &err) == SL_OK, "%s", err.text);
    if (data)
        CHECK(crc32_of(data, t->extent.len) == crc, "%s", t->name);
    free(data);
}

static void same_shape(sl_json_reader *r, const sl_tensor *t)
{
    uint64_t dim[8] = {0}, n = 1;
    uint32_t n_dims = 0;
    sl_json_enter_array(r);
    while (sl_json_next_item(r) && n_dims < 8)
        sl_json_read_uint(r, &dim[n_dims++]);
    CHECK(n_dims == t->n_dims);
    for (uint32_t i = 0; i < n_dims && i < t->n_dims; i++) {
        CHECK(dim[i] == t->dims[n_dims - 1 - i]); /* recorded in GGUF's order */
        n *= dim[i];
    }
    CHECK(n == t->n_values);
}

/* at_offset: the recorded offset counts too (a split made in another way keeps all the rest). */
static uint32_t same_tensors(sl_json_reader *r, const sl_checkpoint *c, bool at_offset)
{
    uint32_t n = 0;
    sl_json_enter_array(r);
    for (; sl_json_next_item(r); n++) {
        sl_text s = {0};
        char name[256];
        uint64_t offset = 0, bytes = 0, crc = 0;
        sl_json_enter_object(r);
        CHECK(next_key_is(r, "name") && sl_json_read_string(r, &s));
        snprintf(name, sizeof name, "%s", s.data);
        const sl_tensor *t = sl_checkpoint_find(c, name);
        if (!CHECK(t != NULL, "%s", name))
            return n;
        CHECK(next_key_is(r, "type") && sl_json_read_string(r, &s) &&
                  sl_text_is(s, sl_dtype_about(t->type)->name),
              "%s: %s", name, s.data);
        CHECK(next_key_is(r, "shape"));
        same_shape(r, t);
        CHECK(next_key_is(r, "offset") && sl_json_read_uint(r, &offset));
        CHECK(!at_offset || offset == t->extent.offset);
        CHECK(next_key_is(r, "bytes") && sl_json_read_uint(r, &bytes) && bytes == t->extent.len);
        CHECK(next_key_is(r, "crc32") && sl_json_read_uint(r, &crc));
        same_bytes(c, t, crc);
        sl_json_next_key(r, &s);
    }
    return n;
}

static void in_order(const sl_checkpoint *c)
{
    for (uint32_t i = 1; i < sl_checkpoint_tensor_count(c); i++) {
        sl_extent a = sl_checkpoint_tensor(c, i - 1)->extent,
                  b = sl_checkpoint_tensor(c, i)->extent;
        CHECK(a.file < b.file || (a.file == b.file && a.offset + a.len <= b.offset));
    }
    for (uint32_t i = 0; i < sl_checkpoint_tensor_count(c); i++) {
        const sl_tensor *t = sl_checkpoint_tensor(c, i);
        CHECK(sl_checkpoint_find(c, t->name) == t);
    }
}

static void check_record(sl_json_reader *r, const sl_checkpoint *c)
{
    sl_text key;
    for (bool any = sl_json_enter_object(r); any && sl_json_next_key(r, &key);)
        if (sl_text_is(key, "metadata"))
            same_metadata(r, c);
        else if (sl_text_is(key, "tensors"))
            CHECK(same_tensors(r, c, true) == sl_checkpoint_tensor_count(c));
        else
            sl_json_skip(r);
}

static void check_container(const char *name, unsigned warnings)
{
    char path[256];
    sl_file *f = NULL;
    sl_err err = {0};
    sl_json_reader *r = NULL;
    test_case("container %s", name);
    n_warnings = 0;
    snprintf(path, sizeof path, "gguf/container/%s.gguf", name);
    sl_checkpoint *c = open_ok(test_data(path));
    snprintf(path, sizeof path, "gguf/container/%s.json", name);
    if (c && CHECK(sl_file_open(test_data(path), &f, &err) == SL_OK &&
                   sl_json_reader_of_file(f, 0, f->size, name, &r, &err) == SL_OK)) {
        CHECK(sl_checkpoint_format(c) == SL_FORMAT_GGUF && sl_checkpoint_file_count(c) == 1);
        check_record(r, c);
        CHECK(sl_json_read_end(r) == SL_OK, "%s", err.text);
        in_order(c);
        CHECK(n_warnings == warnings, "%u", n_warnings);
    }
    sl_json_reader_close(&r);
    sl_file_close(&f);
    sl_checkpoint_close(&c);
    CHECK(!c);
}

static void check_containers(void)
{
    static const char *const names[] = {
        "arrays",          "every_type",    "kv_many",      "mixed_align128", "mixed_align32",
        "mixed_align4096", "mixed_align64", "mixed_align8", "mixed_v2",       "names",
        "nested_arrays",   "no_metadata",   "no_tensors",   "scalars",        "table_order",
        "unpadded_end",    "vocab_like"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_container(names[i], 0);
    check_container("gaps", 1); /* the last gap lies behind the last tensor */
    check_container("trailing", 1);
    must_fail(test_data("gguf/container/big_endian_v3.gguf"), SL_EUNSUPPORTED, "big-endian");
}

/* ---- metadata getters, trim ---- */

static void check_getters(void)
{
    int64_t i;
    double d;
    test_case("getters");
    sl_checkpoint *c = open_ok(test_data("gguf/container/scalars.gguf"));
    if (!c)
        return;
    CHECK(sl_meta_int(sl_checkpoint_meta_find(c, "k.i64.min"), &i) && i == INT64_MIN);
    CHECK(sl_meta_int(sl_checkpoint_meta_find(c, "k.i8.min"), &i) && i == -128);
    CHECK(sl_meta_int(sl_checkpoint_meta_find(c, "k.bool.true"), &i) && i == 1);
    CHECK(!sl_meta_int(sl_checkpoint_meta_find(c, "k.u64.max"), &i));
    CHECK(sl_meta_number(sl_checkpoint_meta_find(c, "k.u64.max"), &d) && d == 0x1p64);
    CHECK(!sl_meta_int(sl_checkpoint_meta_find(c, "k.f32.one"), &i));
    CHECK(sl_meta_number(sl_checkpoint_meta_find(c, "k.f32.one"), &d) && d == 1);
    CHECK(!sl_meta_number(sl_checkpoint_meta_find(c, "k.str.empty"), &d));
    CHECK(!sl_meta_int(NULL, &i) && !sl_meta_number(NULL, &d) && !sl_meta_array_int(NULL, 0, &i));
    CHECK(!sl_checkpoint_meta_find(c, "absent") && !sl_checkpoint_find(c, "absent"));
    sl_checkpoint_close(&c);
}

static void check_trim(void)
{
    int64_t i;
    test_case("trim");
    sl_checkpoint *c = open_ok(test_data("gguf/container/vocab_like.gguf"));
    if (!c)
        return;
    const sl_meta *tokens = sl_checkpoint_meta_find(c, "tokenizer.ggml.tokens");
    const sl_meta *types = sl_checkpoint_meta_find(c, "tokenizer.ggml.token_type");
    uint64_t before = sl_checkpoint_memory_bytes(c);
    CHECK(sl_meta_array_int(types, 4999, &i) && i == 1);
    CHECK(!sl_meta_array_int(types, 5000, &i));
    CHECK(!sl_meta_array_int(tokens, 0, &i));
    sl_checkpoint_trim(c, 5000);
    CHECK(tokens->v.a.text && sl_checkpoint_memory_bytes(c) == before);
    sl_checkpoint_trim(c, 64);
    CHECK(!tokens->v.a.text && !tokens->v.a.data && tokens->v.a.n == 5000);
    CHECK(!sl_meta_array_int(types, 0, &i));
    CHECK(sl_checkpoint_memory_bytes(c) + 5000 * 16 < before);
    sl_checkpoint_close(&c);
}

/* ---- splits ---- */

static void check_split(const char *path)
{
    sl_file *f = NULL;
    sl_err err = {0};
    sl_json_reader *r = NULL;
    sl_text key;
    uint32_t n = 0;
    int64_t v;
    sl_checkpoint *c = open_ok(path);
    if (c && CHECK(sl_file_open(test_data("gguf/shards/expected.json"), &f, &err) == SL_OK &&
                   sl_json_reader_of_file(f, 0, f->size, "expected", &r, &err) == SL_OK)) {
        CHECK(sl_checkpoint_file_count(c) == 3 && sl_checkpoint_meta_count(c) == 29);
        CHECK(strstr(sl_checkpoint_path(c), "00001-of-00003"), "%s", sl_checkpoint_path(c));
        CHECK(sl_meta_int(sl_checkpoint_meta_find(c, "llama.block_count"), &v) && v == 4);
        CHECK(sl_meta_int(sl_checkpoint_meta_find(c, "split.no"), &v) && v == 0);
        sl_json_enter_object(r);
        while (sl_json_next_key(r, &key))
            if (!sl_text_is(key, "shards") || !sl_json_enter_array(r))
                sl_json_skip(r);
            else
                while (sl_json_next_item(r))
                    for (bool any = sl_json_enter_object(r); any && sl_json_next_key(r, &key);)
                        if (sl_text_is(key, "tensors"))
                            n += same_tensors(r, c, false);
                        else
                            sl_json_skip(r);
        CHECK(sl_json_read_end(r) == SL_OK && n == 40 && sl_checkpoint_tensor_count(c) == 40, "%s",
              err.text);
        in_order(c);
    }
    sl_json_reader_close(&r);
    sl_file_close(&f);
    sl_checkpoint_close(&c);
}

/* A link called name in the scratch folder to target. */
static const char *link_to(const char *target, const char *name)
{
    static char path[4][512];
    static unsigned at;
    char *p = path[at++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", scratch, name);
    char *real = realpath(target, NULL);
    CHECK(real && (symlink(real, p) == 0 || errno == EEXIST), "%s -> %s", p, target);
    free(real);
    return p;
}

static void check_splits(void)
{
    char shard[3][256], name[64], path[600];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "gguf/shards/llama-Q4_K_M-0000%d-of-00003.gguf", i + 1);
        snprintf(shard[i], sizeof shard[i], "%s", test_data(path));
        test_case("split, named by shard %d", i + 1);
        check_split(shard[i]);
    }
    test_case("split, through a link with another name");
    check_split(link_to(shard[1], "some.gguf"));
    test_case("split, through a link to one shard: the others beside its target");
    check_split(link_to(shard[1], "llama-Q4_K_M-00002-of-00003.gguf"));
    test_case("split, links to blobs without names, as in a download cache");
    snprintf(path, sizeof path, "%s/snapshot", scratch);
    CHECK(mkdir(path, 0700) == 0);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "blob%d", i);
        const char *blob = link_to(shard[i], name);
        snprintf(path, sizeof path, "%s/snapshot/x-0000%d-of-00003.gguf", scratch, i + 1);
        CHECK(symlink(blob, path) == 0);
    }
    check_split(path);
    test_case("a shard's content without its name");
    snprintf(path, sizeof path, "%s/blob0", scratch);
    check_split(path); /* the link leads to a name that tells */
}

/* ---- safetensors ---- */

static void check_folder(const char *path, uint32_t n_files)
{
    char *text = NULL;
    uint64_t len = 0;
    sl_err err = {0};
    float norm[32] = {0};
    sl_checkpoint *c = open_ok(path);
    if (!c)
        return;
    CHECK(sl_checkpoint_format(c) == SL_FORMAT_SAFETENSORS);
    CHECK(sl_checkpoint_file_count(c) == n_files && sl_checkpoint_tensor_count(c) == 12);
    const sl_tensor *t = sl_checkpoint_find(c, "model.embed_tokens.weight");
    CHECK(t && t->n_dims == 2 && t->dims[0] == 300 && t->dims[1] == 32);
    t = sl_checkpoint_find(c, "model.norm.weight");
    if (CHECK(t && t->extent.len <= sizeof norm))
        CHECK(sl_checkpoint_read(c, t, norm, &err) == SL_OK, "%s", err.text);
    in_order(c);
    CHECK(sl_checkpoint_read_text(c, "config.json", 1 << 20, &text, &len, &err) == SL_OK &&
              text[0] == '{' && strlen(text) == len,
          "%s", err.text);
    free(text);
    CHECK(sl_checkpoint_read_text(c, "absent.json", 1 << 20, &text, &len, &err) == SL_EIO && !text);
    CHECK(err.errno_value == ENOENT && strstr(err.text, "absent.json"), "%s", err.text);
    err = (sl_err){0};
    CHECK(sl_checkpoint_read_text(c, "config.json", 10, &text, &len, &err) == SL_EFORMAT && !text);
    sl_checkpoint_close(&c);
}

static void check_safetensors(void)
{
    test_case("safetensors");
    check_folder(test_data("corrupt/folder/ok"), 1);
    check_folder(test_data("corrupt/folder/ok/"), 1);
    check_folder(test_data("corrupt/folder/ok/model.safetensors"), 1);
    check_folder(link_to(test_data("corrupt/folder/ok"), "folder"), 1);
    check_folder(test_data("corrupt/folder/index_ok"), 2);
    check_folder(test_data("corrupt/folder/index_ok/model-00002-of-00002.safetensors"), 2);
    check_folder(test_data("corrupt/folder/index_ok/model.safetensors.index.json"), 2);
    test_case("safetensors, every type");
    sl_checkpoint *c = open_ok(test_data("corrupt/safetensors/ok_all_dtypes.safetensors"));
    CHECK(c && sl_checkpoint_tensor_count(c) == 15);
    sl_checkpoint_close(&c);
    test_case("safetensors, metadata");
    c = open_ok(test_data("corrupt/safetensors/ok_metadata.safetensors"));
    const sl_meta *m = c && sl_checkpoint_meta_count(c) ? sl_checkpoint_meta(c, 0) : NULL;
    CHECK(m && m->type == SL_META_STRING && m->v.s.len);
    sl_checkpoint_close(&c);
    test_case("safetensors, a scalar and nothing");
    c = open_ok(test_data("corrupt/safetensors/ok_scalar.safetensors"));
    const sl_tensor *t = c ? sl_checkpoint_tensor(c, 0) : NULL;
    CHECK(t && t->n_dims == 0 && t->n_values == 1);
    sl_checkpoint_close(&c);
    c = open_ok(test_data("corrupt/safetensors/ok_zero_elements.safetensors"));
    CHECK(c && sl_checkpoint_tensor(c, 0)->extent.len == 0);
    sl_checkpoint_close(&c);
}

/* ---- files and the cursor ---- */

static void check_files(void)
{
    char path[600], text[64] = "";
    uint64_t len;
    char *none;
    sl_file *f;
    sl_err err = {0};
    test_case("files");
    must_fail("/nonexistent/x.gguf", SL_EIO, "/nonexistent/x.gguf");
    must_fail(scratch, SL_EINVAL, "name that file"); /* the links to GGUF files are in it */
    snprintf(path, sizeof path, "%s/empty", scratch);
    CHECK(mkdir(path, 0700) == 0);
    must_fail(path, SL_EFORMAT, "model.safetensors");
    snprintf(path, sizeof path, "%s/pipe.gguf", scratch);
    CHECK(mkfifo(path, 0600) == 0);
    must_fail(path, SL_EINVAL, "a pipe");
    must_fail("/dev/null", SL_EINVAL, "a device");
    CHECK(sl_file_open(scratch, &f, &err) == SL_EINVAL && !f && strstr(err.text, "a folder"));
    err = (sl_err){0};
    CHECK(sl_file_open(test_data("gguf/container/no_tensors.gguf"), &f, &err) == SL_OK);
    CHECK(sl_file_read(f, f->size - 4, text, 8, &err) == SL_EFORMAT &&
              strstr(err.text, "truncated") && strstr(err.text, f->path),
          "%s", err.text);
    sl_file_close(&f);
    sl_file_close(&f);
    sl_checkpoint *c = open_ok(test_data("gguf/container/no_tensors.gguf"));
    err = (sl_err){0};
    CHECK(sl_checkpoint_read_text(c, "config.json", 10, &none, &len, &err) == SL_EINVAL && !none);
    sl_checkpoint_close(&c);
}

/* A file in memory under a name that ends as we like. */
static int make_file(const char *name, const void *data, size_t len, char *path, size_t cap)
{
    char target[64];
    int fd = memfd_create("test", 0);
    CHECK(fd >= 0 && write(fd, data, len) == (ssize_t)len);
    snprintf(target, sizeof target, "/proc/self/fd/%d", fd);
    snprintf(path, cap, "%s/%s", scratch, name);
    unlink(path);
    CHECK(symlink(target, path) == 0);
    return fd;
}

static void check_cursor(void)
{
    enum { N = 300000 };
    static uint8_t data[N];
    uint64_t state = 7, at = 0;
    char path[600];
    sl_file *f;
    sl_err err = {0};
    test_case("cursor");
    for (int i = 0; i < N; i++)
        data[i] = (uint8_t)test_random(&state);
    int fd = make_file("cursor", data, N, path, sizeof path);
    CHECK(sl_file_open(path, &f, &err) == SL_OK, "%s", err.text);
    sl_bytes b = sl_bytes_of_file(f, 5, N - 10, &err), m = sl_bytes_over(data + 5, N - 10);
    bool same = true;
    while (sl_bytes_left(&b) >= 8 && same) {
        uint32_t size = 1 + (uint32_t)(test_random(&state) % 8);
        same = sl_bytes_uint(&b, size) == sl_bytes_uint(&m, size);
        uint64_t n = test_random(&state) % 3000;
        if (test_random(&state) % 50 == 0)
            n = 70000; /* larger than a block */
        if (n > sl_bytes_left(&b))
            n = sl_bytes_left(&b);
        const uint8_t *p = sl_bytes_take(&b, n), *q = sl_bytes_take(&m, n);
        same = same && (n == 0 || (p && q && memcmp(p, q, n) == 0));
        at = sl_bytes_position(&b);
        same = same && at == sl_bytes_position(&m) && b.cap <= 70000;
    }
    CHECK(same, "at %llu", (unsigned long long)at);
    CHECK(!sl_bytes_take(&b, UINT64_MAX) && b.failed && !sl_bytes_take(&b, 0));
    CHECK(sl_bytes_u64(&b) == 0);
    CHECK(!sl_bytes_take(&m, 9) && m.failed);
    sl_bytes_close(&b);
    sl_bytes_close(&m);
    sl_file_close(&f);
    close(fd);
}

/* Cuts of a file that holds every kind of array: all must be refused, none may do harm. */
static void check_cuts(const char *name, size_t step)
{
    char path[600];
    size_t len = 0;
    snprintf(path, sizeof path, "gguf/container/%s.gguf", name);
    char *data = test_read(test_data(path), &len);
    test_case("cuts of %s", name);
    if (!CHECK(data != NULL))
        return;
    int fd = make_file("cut.gguf", data, len, path, sizeof path);
    sl_checkpoint *c = open_ok(path);
    const sl_tensor *last =
        c ? sl_checkpoint_tensor(c, sl_checkpoint_tensor_count(c) - 1) : &(sl_tensor){0};
    size_t n =
        (size_t)(last->extent.offset + last->extent.len) - 1; /* its padding may be missing */
    sl_checkpoint_close(&c);
    for (; n < len; n -= n < step ? len : step) {
        sl_err err = {0};
        CHECK(ftruncate(fd, (off_t)n) == 0);
        CHECK(sl_checkpoint_open(path, &c, &err) == SL_EFORMAT && !c, "%zu: %s", n, err.text);
        CHECK(strstr(err.text, "cut.gguf"), "%zu: %s", n, err.text);
        sl_checkpoint_close(&c);
    }
    close(fd);
    free(data);
}

int main(void)
{
    char command[64];
    sl_log_set(count_warnings, NULL);
    if (!mkdtemp(scratch))
        test_skip("no folder in /tmp");
    check_containers();
    check_getters();
    check_trim();
    check_splits();
    check_safetensors();
    check_files();
    check_cursor();
    check_cuts("arrays", 1);
    check_cuts("nested_arrays", 1);
    check_cuts("mixed_align32", 7);
    snprintf(command, sizeof command, "rm -rf %s", scratch);
    CHECK(system(command) == 0);
    return test_end();
}
