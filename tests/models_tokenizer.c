/* Proves that text becomes the ids that Hugging Face's tokenizers give, and ids the text:
 *  - 649 inputs per vocabulary in all three modes, decoded with and without specials, whole and
 *    token by token, from tokenizer.json and from the same vocabulary as GGUF metadata;
 *  - byte strings that are not UTF-8 come back as they went in; long pieces take no quadratic time;
 *  - a broken or unknown tokenizer.json is refused with the word that says what is wrong.
 * Vocabularies whose licence keeps them out of the tree are read from $SL_TOKENIZERS/NAME.json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "../models/tokenizer_impl.h"
#include "../stream/json.h"
#include "lib_test.h"

enum { N_INPUTS = 649 };
static sl_text inputs[N_INPUTS];

static char *copy(sl_text t)
{
    char *p = malloc(t.len + 1);
    memcpy(p, t.data, t.len);
    p[t.len] = '\0';
    return p;
}

/* Calls fn with a reader for each line of a file. */
typedef void line_fn(sl_json_reader *r, void *ctx);
static bool each_line(const char *path, line_fn *fn, void *ctx)
{
    size_t len;
    char *text = test_read(path, &len);
    if (!CHECK(text, "%s", path))
        return false;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        sl_json_reader *r;
        sl_err err = {0};
        if (!CHECK(!sl_json_reader_of_text(line, (uint64_t)(end - line), path, &r, &err)))
            break;
        fn(r, ctx);
        CHECK(!sl_json_read_end(r), "%s", err.text);
        sl_json_reader_close(&r);
    }
    free(text);
    return true;
}

static void read_input(sl_json_reader *r, void *ctx)
{
    (void)ctx;
    sl_text key, text = {0};
    uint64_t id = N_INPUTS;
    char *kept = NULL;
    for (bool any = sl_json_enter_object(r); any && sl_json_next_key(r, &key);)
        if (sl_text_is(key, "id"))
            sl_json_read_uint(r, &id);
        else if (sl_text_is(key, "text")) {
            sl_json_read_string(r, &text);
            kept = copy(text);
        } else
            sl_json_skip(r);
    if (CHECK(id < N_INPUTS && kept))
        inputs[id] = (sl_text){kept, text.len};
}

/* ---- one vocabulary against its expected ids ---- */
static void read_ids(sl_json_reader *r, sl_ids *ids)
{
    int64_t v;
    ids->n = 0;
    for (bool any = sl_json_enter_array(r); any && sl_json_next_item(r);)
        if (sl_json_read_int(r, &v))
            sl_ids_push(ids, (int32_t)v, NULL);
}

static bool same_ids(const sl_ids *a, const sl_ids *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->id, b->id, a->n * sizeof *a->id) == 0);
}

static void check_encode(const sl_tokenizer *t, sl_text text, sl_special special, bool wrap,
                         const sl_ids *want)
{
    sl_ids got = {0};
    sl_err err = {0};
    CHECK(!sl_tokenizer_encode(t, text.data, text.len, special, &got, &err), "%s", err.text);
    if (wrap)
        CHECK(!sl_tokenizer_wrap(t, &got, &err), "%s", err.text);
    CHECK(same_ids(&got, want), "%llu ids, expected %llu; special %d, wrap %d",
          (unsigned long long)got.n, (unsigned long long)want->n, special, wrap);
    sl_ids_free(&got);
}

/* Token by token: never a broken sequence, together the whole. */
static void check_stream(const sl_tokenizer *t, const sl_ids *ids, bool skip, const char *whole,
                         uint64_t len)
{
    char *out = malloc(sl_detok_room(t));
    sl_detok d = {0};
    uint64_t n = 0, at = 0;
    for (uint64_t i = 0; i <= ids->n; i++) {
        if (i < ids->n)
            CHECK(!sl_detok_push(&d, t, ids->id[i], skip, out, &n, NULL));
        else
            sl_detok_end(&d, out, &n);
        CHECK(n <= sl_detok_room(t) && sl_utf8_valid(out, n));
        if (!CHECK(at + n <= len && memcmp(whole + at, out, n) == 0))
            break;
        at += n;
    }
    CHECK(at == len);
    free(out);
}

static void check_decode(const sl_tokenizer *t, const sl_ids *ids, bool skip, sl_text want)
{
    char *text = NULL;
    uint64_t len = 0;
    sl_err err = {0};
    if (!CHECK(!sl_tokenizer_decode(t, ids->id, ids->n, skip, &text, &len, &err), "%s", err.text))
        return;
    CHECK(len == want.len && memcmp(text, want.data, len) == 0, "'%s' expected '%.*s'", text,
          (int)want.len, want.data);
    CHECK(text[len] == '\0');
    check_stream(t, ids, skip, text, len);
    free(text);
}

typedef struct expected {
    const sl_tokenizer *t;
    const char *name;
    bool wraps; /* ids_add_special counts */
    unsigned n;
} expected;

typedef struct line {
    uint64_t id;
    sl_ids ids, add_special, as_text;
    bool has_add_special, has_as_text;
    char *decoded, *skipped;
    uint64_t decoded_len, skipped_len;
} line;

static void read_line(sl_json_reader *r, line *l)
{
    sl_text key, text;
    for (bool any = sl_json_enter_object(r); any && sl_json_next_key(r, &key);) {
        if (sl_text_is(key, "id"))
            sl_json_read_uint(r, &l->id);
        else if (sl_text_is(key, "ids"))
            read_ids(r, &l->ids);
        else if (sl_text_is(key, "ids_add_special")) {
            l->has_add_special = true;
            read_ids(r, &l->add_special);
        } else if (sl_text_is(key, "ids_specials_as_text")) {
            l->has_as_text = true;
            read_ids(r, &l->as_text);
        } else if (sl_text_is(key, "decoded")) {
            if (sl_json_read_string(r, &text))
                l->decoded = copy(text), l->decoded_len = text.len;
        } else if (sl_text_is(key, "decoded_skip_special")) {
            if (sl_json_read_string(r, &text))
                l->skipped = copy(text), l->skipped_len = text.len;
        } else
            sl_json_skip(r);
    }
}

static void check_line(sl_json_reader *r, void *ctx)
{
    expected *e = ctx;
    line l = {.id = N_INPUTS};
    read_line(r, &l);
    if (!CHECK(l.id < N_INPUTS))
        return;
    test_case("%s, input %llu", e->name, (unsigned long long)l.id);
    sl_text in = inputs[l.id];
    check_encode(e->t, in, SL_SPECIAL_PARSE, false, &l.ids);
    check_encode(e->t, in, SL_SPECIAL_TEXT, false, l.has_as_text ? &l.as_text : &l.ids);
    if (e->wraps)
        check_encode(e->t, in, SL_SPECIAL_PARSE, true, l.has_add_special ? &l.add_special : &l.ids);
    sl_text decoded = l.decoded ? (sl_text){l.decoded, l.decoded_len} : in;
    check_decode(e->t, &l.ids, false, decoded);
    check_decode(e->t, &l.ids, true, l.skipped ? (sl_text){l.skipped, l.skipped_len} : decoded);
    e->n++;
    sl_ids_free(&l.ids);
    sl_ids_free(&l.add_special);
    sl_ids_free(&l.as_text);
    free(l.decoded);
    free(l.skipped);
}

static void check_expected(const sl_tokenizer *t, const char *name, bool wraps)
{
    char path[128];
    expected e = {.t = t, .name = name, .wraps = wraps};
    snprintf(path, sizeof path, "tokenizers/expected/%s.jsonl", name);
    each_line(test_data(path), check_line, &e);
    CHECK(e.n == N_INPUTS, "%u lines", e.n);
    test_case("%s", name);
}

/* ---- bytes that are not text ---- */
static void check_round_trip(const sl_tokenizer *t, const void *bytes, uint64_t len)
{
    sl_ids ids = {0};
    sl_err err = {0};
    uint8_t *back = malloc(len + sl_detok_room(t));
    uint64_t n = 0;
    CHECK(!sl_tokenizer_encode(t, bytes, len, SL_SPECIAL_TEXT, &ids, &err), "%s", err.text);
    for (uint64_t i = 0; i < ids.n && n <= len; i++)
        n += sl_tokenizer_bytes(t, ids.id[i], back + n);
    CHECK(n == len && memcmp(back, bytes, len) == 0, "%llu bytes, expected %llu",
          (unsigned long long)n, (unsigned long long)len);
    char *text = NULL;
    uint64_t text_len;
    if (CHECK(!sl_tokenizer_decode(t, ids.id, ids.n, false, &text, &text_len, &err))) {
        CHECK(sl_utf8_valid(text, text_len));
        check_stream(t, &ids, false, text, text_len);
    }
    free(text);
    free(back);
    sl_ids_free(&ids);
}

static const char *const not_utf8[] = {
    "\xff",     "\xc3",         "\xc3\x28",     "\xe2\x82\x28", "\xf0\x9f\x98",
    "\xf0\x9f", "\x80",         "a\xff\x62",    "\xed\xa0\x80", "\xed\xb0\x80",
    "\xc0\x80", "\xe0\x80\xaf", "\xf8\x88\x80", "\xf4\x90\x80", "caf\xc3\xa9\xc3",
    "a\xc3",    "\xff\xfe\xfd", " \xff ",       "\n\xff\n",     "\xe4\xbd\xa0\xe5\xa5",
};

/* Bytes that the vocabulary has no token for are dropped, as Hugging Face does; the round trips use
 * the others. */
static void check_bytes(const sl_tokenizer *t, bool nfc)
{
    uint64_t seed = 7;
    uint8_t known[256];
    unsigned n_known = 0;
    for (unsigned i = 0; i < 256; i++) {
        sl_ids ids = {0};
        known[n_known] = (uint8_t)i;
        CHECK(
            !sl_tokenizer_encode(t, (const char *)&known[n_known], 1, SL_SPECIAL_TEXT, &ids, NULL));
        if (ids.n)
            check_round_trip(t, &known[n_known++], 1);
        sl_ids_free(&ids);
    }
    CHECK(n_known > 200, "%u", n_known);
    for (size_t i = 0; i < sizeof not_utf8 / sizeof *not_utf8; i++) {
        bool whole = true;
        for (const char *p = not_utf8[i]; *p; p++)
            whole &= memchr(known, *p, n_known) != NULL;
        if (whole)
            check_round_trip(t, not_utf8[i], strlen(not_utf8[i]));
    }
    for (unsigned round = 0; round < 200 && !nfc; round++) {
        uint8_t bytes[96];
        uint64_t len = test_random(&seed) % sizeof bytes;
        for (uint64_t i = 0; i < len; i++)
            bytes[i] = known[test_random(&seed) % n_known];
        check_round_trip(t, bytes, len);
    }
    check_round_trip(t, "", 0);
}

static double cpu_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Lengths at which anything quadratic would take minutes. */
static void check_long(const sl_tokenizer *t)
{
    static const char *const units[] = {
        "a", " ", "ab", "\n", "1", "!", " \n", "e\xcc\x81\xcc\xa3", "\xe4\xbd\xa0"};
    enum { LONG = 200000 };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t unit = strlen(units[i]);
        char *text = malloc(LONG + unit);
        sl_ids ids = {0};
        sl_err err = {0};
        uint64_t len = 0;
        for (; len < LONG; len += unit)
            memcpy(text + len, units[i], unit);
        double start = cpu_seconds();
        CHECK(!sl_tokenizer_encode(t, text, len, SL_SPECIAL_PARSE, &ids, &err), "%s", err.text);
        CHECK(cpu_seconds() - start < 5, "%zu: %.1f s", i, cpu_seconds() - start);
        CHECK(ids.n > 0);
        sl_ids_free(&ids);
        free(text);
    }
}

/* ---- files ---- */
static char *unzip(const char *path, size_t *len)
{
    size_t packed_len;
    char *packed = test_read(path, &packed_len);
    if (!packed)
        return NULL;
    unsigned long long size = ZSTD_getFrameContentSize(packed, packed_len);
    char *text = size < 1u << 30 ? malloc((size_t)size + 1) : NULL;
    *len = text ? ZSTD_decompress(text, (size_t)size, packed, packed_len) : 0;
    free(packed);
    if (text && ZSTD_isError(*len)) {
        free(text);
        return NULL;
    }
    return text;
}

static char *read_tokenizer(const char *name, size_t *len)
{
    char path[1024];
    snprintf(path, sizeof path, "tokenizers/%s.json.zst", name);
    char *text = unzip(test_data(path), len);
    const char *folder = getenv("SL_TOKENIZERS");
    if (text || !folder)
        return text;
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    return test_read(path, len);
}

/* ---- the same vocabulary as GGUF metadata ---- */
typedef struct gguf {
    FILE *f;
    char path[64];
    uint64_t n_keys;
} gguf;

static void put(gguf *g, uint64_t v, size_t bytes)
{
    fwrite(&v, 1, bytes, g->f); /* little-endian, as the machines the tests run on */
}

static void put_string(gguf *g, const char *s, uint64_t len)
{
    put(g, len, 8);
    fwrite(s, 1, len, g->f);
}

static void put_key(gguf *g, const char *key, uint32_t type)
{
    put_string(g, key, strlen(key));
    put(g, type, 4);
    g->n_keys++;
}

static void put_text(gguf *g, const char *key, const char *value)
{
    put_key(g, key, SL_META_STRING);
    put_string(g, value, strlen(value));
}

static void put_list(gguf *g, const char *key, uint32_t type, uint64_t n)
{
    put_key(g, key, SL_META_ARRAY);
    put(g, type, 4);
    put(g, n, 8);
}

static void gguf_begin(gguf *g)
{
    *g = (gguf){.path = "/tmp/sluice-tokenizer-XXXXXX"};
    int fd = mkstemp(g->path);
    g->f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (!g->f) {
        perror(g->path);
        exit(1);
    }
    fwrite("GGUF", 1, 4, g->f);
    put(g, 3, 4);
    put(g, 0, 8);
    put(g, 0, 8); /* the number of keys, known at the end */
    put_text(g, "general.architecture", "llama");
}

static sl_checkpoint *gguf_end(gguf *g)
{
    sl_checkpoint *c = NULL;
    sl_err err = {0};
    fseek(g->f, 16, SEEK_SET);
    put(g, g->n_keys, 8);
    fclose(g->f);
    CHECK(!sl_checkpoint_open(g->path, &c, &err), "%s", err.text);
    unlink(g->path);
    return c;
}

/* Merges stand in the JSON text alone; the reader finds them again. */
static void put_merges(gguf *g, const char *json, size_t len)
{
    sl_json_reader *r;
    sl_text key, text;
    uint64_t n = 0;
    put_list(g, "tokenizer.ggml.merges", SL_META_STRING, 0);
    long count_at = ftell(g->f) - 8;
    CHECK(!sl_json_reader_of_text(json, len, "json", &r, NULL));
    for (bool any = sl_json_enter_object(r); any && sl_json_next_key(r, &key);) {
        if (!sl_text_is(key, "model")) {
            sl_json_skip(r);
            continue;
        }
        for (any = sl_json_enter_object(r); any && sl_json_next_key(r, &key);) {
            if (!sl_text_is(key, "merges")) {
                sl_json_skip(r);
                continue;
            }
            for (any = sl_json_enter_array(r); any && sl_json_next_item(r); n++) {
                if (sl_json_peek(r) == SL_JSON_STRING) {
                    sl_json_read_string(r, &text);
                    put_string(g, text.data, text.len);
                    continue;
                }
                char both[4096];
                uint64_t at = 0;
                for (any = sl_json_enter_array(r); any && sl_json_next_item(r);) {
                    sl_json_read_string(r, &text);
                    if (!CHECK(at + text.len + 1 < sizeof both))
                        break;
                    memcpy(both + at, text.data, text.len);
                    at += text.len;
                    both[at++] = ' ';
                }
                any = true;
                put_string(g, both, at - 1);
            }
        }
    }
    CHECK(!sl_json_read_end(r));
    sl_json_reader_close(&r);
    long end = ftell(g->f);
    fseek(g->f, count_at, SEEK_SET);
    put(g, n, 8);
    fseek(g->f, end, SEEK_SET);
}

/* added: the ids of added tokens; they are cut out of "a<token>b". */
static bool is_added(const sl_tokenizer *t, int32_t id, const char *token, uint64_t len)
{
    sl_ids ids = {0};
    sl_tokenizer_encode(t, token, len, SL_SPECIAL_PARSE, &ids, NULL);
    bool whole =
        ids.n == 1 && ids.id[0] == id && len > 3 && token[0] == '<' && token[len - 1] == '>';
    sl_ids_free(&ids);
    return whole;
}

static sl_tokenizer *as_gguf(const sl_tokenizer *t, const char *json, size_t len, const char *pre)
{
    gguf g;
    uint64_t token_len;
    uint32_t n = sl_tokenizer_size(t);
    gguf_begin(&g);
    put_text(&g, "tokenizer.ggml.model", "gpt2");
    put_text(&g, "tokenizer.ggml.pre", pre);
    put_list(&g, "tokenizer.ggml.tokens", SL_META_STRING, n);
    for (uint32_t id = 0; id < n; id++) {
        const char *token = sl_tokenizer_token(t, (int32_t)id, &token_len);
        put_string(&g, token ? token : "[hole]", token ? token_len : 6);
    }
    put_list(&g, "tokenizer.ggml.token_type", SL_META_I32, n);
    for (uint32_t id = 0; id < n; id++) {
        const char *token = sl_tokenizer_token(t, (int32_t)id, &token_len);
        bool special = sl_tokenizer_is_special(t, (int32_t)id);
        bool added = token && !special && is_added(t, (int32_t)id, token, token_len);
        put(&g, special ? 3 : added ? 4 : token ? 1 : 5, 4);
    }
    put_merges(&g, json, len);
    sl_checkpoint *c = gguf_end(&g);
    sl_tokenizer *out = NULL;
    sl_err err = {0};
    if (c)
        CHECK(!sl_tokenizer_from_gguf(c, NULL, &out, &err), "%s", err.text);
    sl_checkpoint_close(&c);
    return out;
}

typedef struct vocabulary {
    const char *name, *pre;
    bool nfc;
    unsigned most_kib; /* memory of the open tokenizer */
    const char *end;   /* a token that ends generation */
} vocabulary;

static void check_vocabulary(const vocabulary *v)
{
    size_t len;
    char *json = read_tokenizer(v->name, &len);
    if (!json) {
        printf("%s: not here, skipped\n", v->name);
        return;
    }
    sl_tokenizer *t = NULL, *g;
    sl_err err = {0};
    test_case("%s", v->name);
    double start = cpu_seconds();
    CHECK(!sl_tokenizer_from_json(json, len, v->name, NULL, &t, &err), "%s", err.text);
    if (t) {
        uint64_t kib = sl_tokenizer_memory_bytes(t) >> 10;
        printf("%s: %u tokens, %llu KiB, opened in %.0f ms\n", v->name, sl_tokenizer_size(t),
               (unsigned long long)kib, 1e3 * (cpu_seconds() - start));
        CHECK(kib <= v->most_kib, "%llu KiB", (unsigned long long)kib);
        CHECK(sl_tokenizer_is_end(t, sl_tokenizer_find(t, v->end, strlen(v->end))));
        check_expected(t, v->name, true);
        check_bytes(t, v->nfc);
        check_long(t);
        g = as_gguf(t, json, len, v->pre);
        if (g) {
            CHECK(sl_tokenizer_size(g) == sl_tokenizer_size(t));
            check_expected(g, v->name, false);
        }
        sl_tokenizer_close(&g);
    }
    sl_tokenizer_close(&t);
    free(json);
}

/* ---- the small ones ---- */
static sl_tokenizer *open_small(const char *name)
{
    char path[128];
    sl_file *f = NULL;
    sl_tokenizer *t = NULL;
    sl_err err = {0};
    test_case("%s", name);
    snprintf(path, sizeof path, "tokenizers/%s", name);
    CHECK(!sl_file_open(test_data(path), &f, &err) && !sl_tokenizer_from_file(f, NULL, &t, &err),
          "%s", err.text);
    sl_file_close(&f);
    return t;
}

static void check_tiny(void)
{
    sl_tokenizer *t = open_small("tiny.json");
    sl_json_reader *r = NULL;
    size_t len;
    char *text = test_read(test_data("tokenizers/tiny_cases.json"), &len);
    if (!t || !CHECK(text))
        return;
    CHECK(!sl_json_reader_of_text(text, len, "tiny_cases.json", &r, NULL));
    unsigned n = 0;
    for (bool any = sl_json_enter_array(r); any && sl_json_next_item(r); n++) {
        sl_text key, value;
        char *in = NULL;
        uint64_t in_len = 0;
        sl_ids ids = {0};
        for (any = sl_json_enter_object(r); any && sl_json_next_key(r, &key);)
            if (!sl_text_is(key, "text"))
                read_ids(r, &ids);
            else if (sl_json_read_string(r, &value))
                in = copy(value), in_len = value.len;
        any = true;
        check_encode(t, (sl_text){in, in_len}, SL_SPECIAL_PARSE, false, &ids);
        check_decode(t, &ids, false, (sl_text){in, in_len});
        sl_ids_free(&ids);
        free(in);
    }
    CHECK(n == 10 && !sl_json_read_end(r), "%u", n);
    sl_json_reader_close(&r);
    free(text);
    check_bytes(t, false);

    int32_t bad[] = {512, -1};
    char *out = NULL;
    uint64_t out_len;
    for (size_t i = 0; i < 2; i++) {
        sl_err err = {0};
        CHECK(sl_tokenizer_decode(t, bad + i, 1, false, &out, &out_len, &err) == SL_EINVAL);
        CHECK(strstr(err.text, "512"), "%s", err.text);
    }
    sl_err err = {0};
    CHECK(!sl_tokenizer_check_rows(t, &(sl_token_table){"embed", 512}, NULL));
    CHECK(sl_tokenizer_check_rows(t, &(sl_token_table){"embed", 511}, &err) == SL_EFORMAT &&
              strstr(err.text, "511") && strstr(err.text, "embed"),
          "%s", err.text);
    CHECK(!sl_tokenizer_adds_bos(t) && sl_tokenizer_bos(t) == -1);
    CHECK(sl_tokenizer_find(t, "<bos>", 5) == 2 && sl_tokenizer_find(t, "<bos", 4) == -1);
    CHECK(sl_tokenizer_is_special(t, 2) && !sl_tokenizer_is_special(t, 300));
    sl_tokenizer_close(&t);
}

static void check_demo(void)
{
    sl_tokenizer *t = open_small("demo.json");
    if (!t)
        return;
    CHECK(sl_tokenizer_size(t) == 4096);
    CHECK(sl_tokenizer_is_end(t, 4095));
    static const int32_t turn[] = {4094, 4095};
    const char *chat = "<|im_start|><|im_end|>";
    sl_ids want = {(int32_t *)(uintptr_t)turn, 2, 2};
    check_encode(t, (sl_text){chat, strlen(chat)}, SL_SPECIAL_PARSE, false, &want);
    for (size_t i = 0; i < N_INPUTS; i++) { /* no reference: what goes in comes out */
        sl_ids ids = {0};
        CHECK(!sl_tokenizer_encode(t, inputs[i].data, inputs[i].len, SL_SPECIAL_TEXT, &ids, NULL));
        sl_ids_free(&ids);
    }
    check_bytes(t, true);
    sl_tokenizer_close(&t);
}

/* ---- broken and unusual documents ---- */
typedef struct document {
    const char *added, *normalizer, *pre, *post, *decoder, *model;
} document;

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"
#define VOCAB                                                                                      \
    "{\"a\":0,\"b\":1,\"ab\":2,\"c\":3,\"\xc4\xa0\":4,\"<s>\":5,\"<\":6,\"s\":7,\">\":8,\"x\":9}"
#define MODEL(vocab, merges, more)                                                                 \
    "{\"type\":\"BPE\",\"vocab\":" vocab ",\"merges\":" merges more "}"
#define ADDED(id, text, flags) "{\"id\":" id ",\"content\":\"" text "\"" flags "}"
#define SPECIAL                ",\"special\":true"

static const document sound = {
    .added = "[" ADDED("5", "<s>", SPECIAL) "]",
    .normalizer = "null",
    .pre = BYTE_LEVEL,
    .post = "null",
    .decoder = BYTE_LEVEL,
    .model = MODEL(VOCAB, "[[\"a\",\"b\"]]", ""),
};

static char warning[1024];
static void keep_warning(void *ctx, sl_log_level level, const char *text)
{
    (void)ctx;
    if (level == SL_LOG_WARN)
        snprintf(warning, sizeof warning, "%s", text);
}

static char *spell(const document *d)
{
    const char *parts[] = {"{\"version\":\"1.0\",\"added_tokens\":",
                           d->added ? d->added : sound.added,
                           ",\"normalizer\":",
                           d->normalizer ? d->normalizer : sound.normalizer,
                           ",\"pre_tokenizer\":",
                           d->pre ? d->pre : sound.pre,
                           ",\"post_processor\":",
                           d->post ? d->post : sound.post,
                           ",\"decoder\":",
                           d->decoder ? d->decoder : sound.decoder,
                           ",\"model\":",
                           d->model ? d->model : sound.model,
                           "}"};
    size_t len = 1;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        len += strlen(parts[i]);
    char *text = malloc(len), *at = text;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        at += snprintf(at, (size_t)(text + len - at), "%s", parts[i]);
    return text;
}

static sl_status open_document(const document *d, sl_tokenizer **t, sl_err *err)
{
    char *text = spell(d);
    warning[0] = '\0';
    sl_status st = sl_tokenizer_from_json(text, strlen(text), "DIR/tokenizer.json", NULL, t, err);
    free(text);
    return st;
}

typedef struct verdict {
    document d;
    sl_status status;
    const char *word; /* in the error, or in the warning when status is SL_OK; NULL: no warning */
} verdict;

#define TEMPLATE(name, ids)                                                                        \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"" name               \
    "\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"                 \
    "\"special_tokens\":{\"" name "\":{\"id\":\"" name "\",\"ids\":" ids ",\"tokens\":[]}}}"
#define SPLIT(regex, behavior, invert)                                                             \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"" behavior           \
    "\",\"invert\":" invert "}"

static const verdict verdicts[] = {
    {{0}, SL_OK, NULL},
    {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[]}"}, SL_OK, NULL},
    {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}"}, SL_OK, NULL},
    {{.normalizer = "{\"type\":\"Shout\"}"}, SL_EFORMAT, "Shout"},
    {{.normalizer = "7"}, SL_EFORMAT, "tokenizer.json"},
    {{.normalizer = "{\"type\":\"Prepend\",\"prepend\":\"_\"}"}, SL_EUNSUPPORTED, "Prepend"},
    {{.pre = "{\"type\":\"Chop\"}"}, SL_EFORMAT, "Chop"},
    {{.pre = "null"}, SL_EUNSUPPORTED, "pre_tokenizer"},
    {{.pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"},
     SL_EUNSUPPORTED,
     "add_prefix_space"},
    {{.pre = SPLIT("(unclosed", "Isolated", "false")}, SL_EFORMAT, "(unclosed"},
    {{.pre = SPLIT("(?<=q)[aeiou]+(?!z)", "Isolated", "false")}, SL_EFORMAT, "pre_tokenizer"},
    {{.pre = SPLIT("\\\\p{N}", "MergedWithNext", "false")}, SL_EUNSUPPORTED, "MergedWithNext"},
    {{.pre = SPLIT("\\\\p{N}", "Removed", "false")}, SL_EUNSUPPORTED, "Removed"},
    {{.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("\\\\p{N}", "Removed",
                                                                "true") "," BYTE_LEVEL "]}"},
     SL_OK,
     NULL},
    {{.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL
             ",{\"type\":\"Digits\",\"individual_digits\":true}]}"},
     SL_EUNSUPPORTED,
     "behind ByteLevel"},
    {{.post = "{\"type\":\"Frame\"}"}, SL_EFORMAT, "Frame"},
    {{.post = TEMPLATE("<s>", "[5]")}, SL_OK, NULL},
    {{.post = TEMPLATE("<ghost>", "[777]")}, SL_EFORMAT, "<ghost>"},
    {{.decoder = "{\"type\":\"Mumble\"}"}, SL_EFORMAT, "Mumble"},
    {{.decoder = "null"}, SL_EUNSUPPORTED, "decoder"},
    {{.added = "[" ADDED("3", "<clash>", "") "]"}, SL_OK, "<clash>"},
    {{.added = "[" ADDED("4", "<s>", "") "]"}, SL_OK, "<s>"},
    {{.added = "[" ADDED("20", "", "") "]"}, SL_EFORMAT, "added_tokens"},
    {{.added = "[{\"content\":\"<noid>\"}]"}, SL_EFORMAT, "added_tokens"},
    {{.added = "[" ADDED("-4", "<neg>", "") "]"}, SL_EFORMAT, "<neg>"},
    {{.added = "[" ADDED("4000000", "<far>", "") "]"}, SL_EFORMAT, "<far>"},
    {{.model = "null"}, SL_EFORMAT, "tokenizer.json"},
    {{.model = "{\"type\":\"Magic\"}"}, SL_EFORMAT, "Magic"},
    {{.model = "{\"type\":\"BPE\",\"vocab\":" VOCAB "}"}, SL_EFORMAT, "merges"},
    {{.model = "{\"type\":\"BPE\",\"merges\":[]}"}, SL_EFORMAT, "vocab"},
    {{.model = "{\"type\":\"BPE\",\"merges\":[[\"a\",\"b\"]],\"vocab\":" VOCAB "}"}, SL_OK, NULL},
    {{.model = MODEL("[[\"a\",0.0]]", "[]", "")}, SL_EFORMAT, "vocab"},
    {{.model = MODEL("{\"a\":-1}", "[]", "")}, SL_EFORMAT, "\"a\""},
    {{.model = MODEL("{\"ab\":2147483648}", "[]", "")}, SL_EFORMAT, "\"ab\""},
    {{.model = MODEL("{\"ab\":\"5\"}", "[]", "")}, SL_EFORMAT, "\"ab\""},
    {{.model = MODEL("{\"ab\":5.5}", "[]", "")}, SL_EFORMAT, "tokenizer.json"},
    {{.model = MODEL("{\"a\":0,\"ab\":0}", "[]", "")}, SL_EFORMAT, "\"ab\""},
    {{.model = MODEL("{\"a\":0,\"b\":7,\"<s>\":9}", "[]", "")}, SL_OK, "<s>"},
    {{.model = MODEL("{\"a\":0,\"a\":1}", "[]", "")}, SL_OK, "\"a\""},
    {{.model = MODEL(VOCAB, "[\"a b\"]", "")}, SL_OK, NULL},
    {{.model = MODEL(VOCAB, "[\"ab\"]", "")}, SL_EFORMAT, "merges"},
    {{.model = MODEL(VOCAB, "[\"a b c\"]", "")}, SL_EFORMAT, "merges"},
    {{.model = MODEL(VOCAB, "[[\"a\"]]", "")}, SL_EFORMAT, "merges"},
    {{.model = MODEL(VOCAB, "[[\"a\",\"b\",\"c\"]]", "")}, SL_EFORMAT, "merges"},
    {{.model = MODEL(VOCAB, "[[1,2]]", "")}, SL_EFORMAT, "merges"},
    {{.model = MODEL(VOCAB, "[[\"zz\",\"a\"]]", "")}, SL_EFORMAT, "\"zz\""},
    {{.model = MODEL(VOCAB, "[[\"b\",\"c\"]]", "")}, SL_EFORMAT, "\"bc\""},
    {{.model = MODEL(VOCAB, "{}", "")}, SL_EFORMAT, "merges"},
    {{.model = MODEL(VOCAB, "[]", ",\"unk_token\":\"<nope>\"")}, SL_EFORMAT, "unk_token"},
    {{.model = MODEL(VOCAB, "[]", ",\"byte_fallback\":true")}, SL_OK, "<0x00>"},
    {{.model = MODEL(VOCAB, "[]", ",\"dropout\":0.1")}, SL_EUNSUPPORTED, "dropout"},
    {{.model = MODEL(VOCAB, "[]", ",\"end_of_word_suffix\":\"</w>\"")}, SL_EUNSUPPORTED, "suffix"},
};

static void check_verdict(const verdict *v)
{
    sl_tokenizer *t = NULL;
    sl_err err = {0};
    sl_status st = open_document(&v->d, &t, &err);
    CHECK(st == v->status, "%s: %s", sl_status_name(st), err.text);
    CHECK((st == SL_OK) == (t != NULL) && st == err.code);
    if (st)
        CHECK(strstr(err.text, v->word) && strstr(err.text, "tokenizer.json"), "%s", err.text);
    else if (v->word)
        CHECK(strstr(warning, v->word), "%s", warning);
    else
        CHECK(!warning[0], "%s", warning);
    sl_tokenizer_close(&t);
    CHECK(!t);
}

/* Every prefix of a document is refused, and leaks nothing. */
static void check_cuts(void)
{
    char *text = spell(&(document){.post = TEMPLATE("<s>", "[5]")});
    size_t len = strlen(text);
    for (size_t n = 0; n < len; n++) {
        sl_tokenizer *t = NULL;
        char *part = malloc(n ? n : 1);
        memcpy(part, text, n);
        CHECK(sl_tokenizer_from_json(part, n, "tokenizer.json", NULL, &t, NULL) == SL_EFORMAT && !t,
              "%zu bytes", n);
        free(part);
    }
    free(text);
}

static void check_deep(void)
{
    enum { DEEP = 500 };
    char *pre = malloc(DEEP * 64), *at = pre;
    for (int i = 0; i < DEEP; i++)
        at += snprintf(at, 64, "{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (int i = 0; i < DEEP; i++)
        at += snprintf(at, 64, "]}");
    check_verdict(&(verdict){{.pre = pre}, SL_EFORMAT, "pre_tokenizer"});
    free(pre);
}

/* ids: -1 ends the list. */
typedef struct cut {
    const char *added, *text;
    int32_t ids[12], as_text[12];
} cut;

#define LETTERS                                                                                    \
    MODEL("{\"a\":0,\"b\":1,\"c\":2,\"\xc4\xa0\":3,\"<\":4,\">\":5,\"\xc3\x83\":6}", "[]", "")

static const cut cuts[] = {
    /* longest at a place, not first in the list */
    {"[" ADDED("20", "ab", "") "," ADDED("21", "abc", "") "]",
     "cabcab",
     {2, 21, 20, -1},
     {2, 21, 20, -1}},
    /* special tokens are text when asked; the rest is cut all the same */
    {"[" ADDED("20", "<a>", SPECIAL) "," ADDED("21", "bb", "") "]",
     "<a>bb",
     {20, 21, -1},
     {4, 0, 5, 21, -1}},
    /* a special one left as text uses up its text */
    {"[" ADDED("20", "<ab>", SPECIAL) "," ADDED("21", "ab", "") "]",
     "<ab>ab",
     {20, 21, -1},
     {4, 0, 1, 5, 21, -1}},
    {"[" ADDED("20", "ab", ",\"single_word\":true") "]",
     "ab abc cab",
     {20, 3, 0, 1, 2, 3, 2, 0, 1, -1},
     {20, 3, 0, 1, 2, 3, 2, 0, 1, -1}},
    {"[" ADDED("20", "cc", ",\"lstrip\":true") "]",
     "a  cc  b",
     {0, 20, 3, 3, 1, -1},
     {0, 20, 3, 3, 1, -1}},
    {"[" ADDED("20", "cc", ",\"rstrip\":true") "]",
     "a  cc  b",
     {0, 3, 3, 20, 1, -1},
     {0, 3, 3, 20, 1, -1}},
    {"[" ADDED("20", "cc", ",\"lstrip\":true,\"rstrip\":true") "]",
     " cc\xe3\x80\x80"
     "cc ",
     {20, 20, -1},
     {20, 20, -1}},
};

static void check_ids(const sl_tokenizer *t, const char *text, sl_special special,
                      const int32_t *ids)
{
    sl_ids want = {0};
    for (; *ids >= 0; ids++)
        sl_ids_push(&want, *ids, NULL);
    check_encode(t, (sl_text){text, strlen(text)}, special, false, &want);
    sl_ids_free(&want);
}

static void check_added(void)
{
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        sl_tokenizer *t = NULL;
        sl_err err = {0};
        test_case("added tokens, case %zu", i);
        CHECK(!open_document(&(document){.added = cuts[i].added, .model = LETTERS}, &t, &err), "%s",
              err.text);
        if (!t)
            continue;
        check_ids(t, cuts[i].text, SL_SPECIAL_PARSE, cuts[i].ids);
        check_ids(t, cuts[i].text, SL_SPECIAL_TEXT, cuts[i].as_text);
        sl_tokenizer_close(&t);
    }
    /* Under NFC, a token that is "normalized" is found in what the text becomes. */
    sl_tokenizer *t = NULL;
    static const int32_t both[] = {20, -1}, none[] = {-1};
    const document d = {.normalizer = "{\"type\":\"NFC\"}",
                        .added = "[" ADDED("20", "e\xcc\x81", ",\"normalized\":true") "]",
                        .model = LETTERS};
    test_case("added tokens, normalized");
    if (CHECK(!open_document(&d, &t, NULL))) {
        check_ids(t, "\xc3\xa9", SL_SPECIAL_PARSE, both);
        check_ids(t, "e\xcc\x81", SL_SPECIAL_PARSE, both);
        check_ids(t, "e", SL_SPECIAL_PARSE, none);
        CHECK(sl_tokenizer_find(t, "e\xcc\x81", 3) == 20);
    }
    sl_tokenizer_close(&t);
}

static void check_wrap(void)
{
    sl_tokenizer *t = NULL;
    sl_ids ids = {0};
    test_case("wrap");
    if (!CHECK(!open_document(&(document){.post = TEMPLATE("<s>", "[5]")}, &t, NULL)))
        return;
    sl_ids_push(&ids, 0, NULL);
    CHECK(!sl_tokenizer_wrap(t, &ids, NULL) && ids.n == 2 && ids.id[0] == 5 && ids.id[1] == 0);
    CHECK(sl_tokenizer_adds_bos(t) && sl_tokenizer_bos(t) == 5);
    sl_ids_free(&ids);
    sl_tokenizer_close(&t);
}

static void check_documents(void)
{
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++) {
        test_case("document %zu", i);
        check_verdict(&verdicts[i]);
    }
    test_case("deep");
    check_deep();
    test_case("cut");
    check_cuts();
    check_added();
    check_wrap();
}

/* ---- GGUF metadata with faults ---- */
typedef enum fault {
    SOUND,
    NO_PRE,
    DEFAULT_PRE,
    UNKNOWN_PRE,
    UNKNOWN_MODEL,
    SPM_MODEL,
    NO_TOKENS,
    TEXT_TOKENS,
    SHORT_TYPES,
    U8_TYPES,
    SHORT_SCORES,
    U8_SCORES,
    NAN_SCORES,
    TWICE,
    BAD_BYTE,
    BOS_FAR,
    EOS_NEGATIVE,
    NO_MERGES,
    MERGE_ABSENT,
    MERGE_NO_SPACE,
    N_FAULTS
} fault;

static const verdict gguf_verdicts[N_FAULTS] = {
    [SOUND] = {{0}, SL_OK, NULL},
    [NO_PRE] = {{0}, SL_OK, "tokenizer.ggml.pre"},
    [DEFAULT_PRE] = {{0}, SL_OK, "tokenizer.ggml.pre"},
    [UNKNOWN_PRE] = {{0}, SL_EFORMAT, "tokenizer.ggml.pre"},
    [UNKNOWN_MODEL] = {{0}, SL_EFORMAT, "tokenizer.ggml.model"},
    [SPM_MODEL] = {{0}, SL_EUNSUPPORTED, "not supported yet"},
    [NO_TOKENS] = {{0}, SL_EFORMAT, "tokenizer.ggml.tokens"},
    [TEXT_TOKENS] = {{0}, SL_EFORMAT, "tokenizer.ggml.tokens"},
    [SHORT_TYPES] = {{0}, SL_EFORMAT, "tokenizer.ggml.token_type"},
    [U8_TYPES] = {{0}, SL_EFORMAT, "tokenizer.ggml.token_type"},
    [SHORT_SCORES] = {{0}, SL_EFORMAT, "tokenizer.ggml.scores"},
    [U8_SCORES] = {{0}, SL_EFORMAT, "tokenizer.ggml.scores"},
    [NAN_SCORES] = {{0}, SL_EFORMAT, "tokenizer.ggml.scores"},
    [TWICE] = {{0}, SL_OK, "token"},
    [BAD_BYTE] = {{0}, SL_EFORMAT, "<0x-1>"},
    [BOS_FAR] = {{0}, SL_EFORMAT, "tokenizer.ggml.bos_token_id"},
    [EOS_NEGATIVE] = {{0}, SL_EFORMAT, "tokenizer.ggml.eos_token_id"},
    [NO_MERGES] = {{0}, SL_EFORMAT, "tokenizer.ggml.merges"},
    [MERGE_ABSENT] = {{0}, SL_EFORMAT, "tokenizer.ggml.merges"},
    [MERGE_NO_SPACE] = {{0}, SL_EFORMAT, "tokenizer.ggml.merges"},
};

enum { N_TOKENS = 5 };

static void put_tokens(gguf *g, fault f)
{
    const char *tokens[N_TOKENS] = {"<s>", "a", "b", "ab", f == BAD_BYTE ? "<0x-1>" : "<0x00>"};
    if (f == TWICE)
        tokens[4] = "a";
    if (f == TEXT_TOKENS)
        put_text(g, "tokenizer.ggml.tokens", "a b ab");
    else if (f != NO_TOKENS) {
        put_list(g, "tokenizer.ggml.tokens", SL_META_STRING, N_TOKENS);
        for (int i = 0; i < N_TOKENS; i++)
            put_string(g, tokens[i], strlen(tokens[i]));
    }
    unsigned n = f == SHORT_TYPES ? 2 : N_TOKENS;
    put_list(g, "tokenizer.ggml.token_type", f == U8_TYPES ? SL_META_U8 : SL_META_I32, n);
    for (unsigned i = 0; i < n; i++)
        put(g, i == 0 ? 3 : i == 4 && f != TWICE ? 6 : 1, f == U8_TYPES ? 1 : 4);
    n = f == SHORT_SCORES ? 2 : N_TOKENS;
    put_list(g, "tokenizer.ggml.scores", f == U8_SCORES ? SL_META_U8 : SL_META_F32, n);
    for (unsigned i = 0; i < n; i++)
        put(g, f == NAN_SCORES ? 0x7fc00000 : 0, f == U8_SCORES ? 1 : 4);
}

static sl_checkpoint *broken_gguf(fault f)
{
    gguf g;
    gguf_begin(&g);
    put_text(&g, "tokenizer.ggml.model",
             f == UNKNOWN_MODEL ? "xyz"
             : f == SPM_MODEL   ? "llama"
                                : "gpt2");
    if (f != NO_PRE)
        put_text(&g, "tokenizer.ggml.pre",
                 f == UNKNOWN_PRE   ? "chop"
                 : f == DEFAULT_PRE ? "default"
                                    : "gpt-2");
    put_tokens(&g, f);
    put_key(&g, "tokenizer.ggml.bos_token_id", SL_META_U32);
    put(&g, f == BOS_FAR ? 5000 : 0, 4);
    put_key(&g, "tokenizer.ggml.eos_token_id", SL_META_I32);
    put(&g, f == EOS_NEGATIVE ? UINT32_MAX : 3, 4);
    put_key(&g, "tokenizer.ggml.add_bos_token", SL_META_BOOL);
    put(&g, 1, 1);
    if (f != NO_MERGES) {
        put_list(&g, "tokenizer.ggml.merges", SL_META_STRING, 1);
        const char *merge = f == MERGE_ABSENT ? "zz yy" : f == MERGE_NO_SPACE ? "ab" : "a b";
        put_string(&g, merge, strlen(merge));
    }
    return gguf_end(&g);
}

static void check_gguf_faults(void)
{
    for (int f = 0; f < N_FAULTS; f++) {
        test_case("GGUF fault %d", f);
        sl_checkpoint *c = broken_gguf((fault)f);
        sl_tokenizer *t = NULL;
        sl_err err = {0};
        warning[0] = '\0';
        if (!c)
            continue;
        sl_status st = sl_tokenizer_from_gguf(c, NULL, &t, &err);
        const verdict *v = &gguf_verdicts[f];
        CHECK(st == v->status, "%s: %s", sl_status_name(st), err.text);
        if (st)
            CHECK(strstr(err.text, v->word), "%s", err.text);
        else
            CHECK(v->word ? strstr(warning, v->word) != NULL : !warning[0], "%s", warning);
        if (f == SOUND && t) {
            static const int32_t ab[] = {3, -1};
            check_ids(t, "ab", SL_SPECIAL_PARSE, ab);
            CHECK(sl_tokenizer_adds_bos(t) && sl_tokenizer_bos(t) == 0);
            CHECK(sl_tokenizer_eos(t) == 3 && sl_tokenizer_is_end(t, 3));
            warning[0] = '\0';
            CHECK(!sl_tokenizer_check_rows(t, &(sl_token_table){"token_embd.weight", 7}, NULL));
            CHECK(strstr(warning, "vocabulary") && strstr(warning, "token_embd.weight"));
        }
        sl_tokenizer_close(&t);
        sl_checkpoint_close(&c);
    }
}

int main(void)
{
    static const vocabulary vocabularies[] = {
        {"smollm2", "smollm", false, 2560, "<|im_end|>"},
        {"qwen3", "qwen2", true, 7168, "<|im_end|>"},
        {"deepseek_v3", "deepseek-v3", false, 7168,
         "<\xef\xbd\x9c"
         "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"},
        {"llama3_1", "llama-bpe", false, 10240, "<|eot_id|>"},
        {"qwen3_5", "qwen35", true, 10240, "<|im_end|>"},
        {"gpt_oss", "gpt-4o", false, 14336, "<|endoftext|>"},
    };
    sl_log_set(keep_warning, NULL);
    each_line(test_data("tokenizers/inputs.jsonl"), read_input, NULL);
    for (size_t i = 0; i < N_INPUTS; i++)
        if (!CHECK(inputs[i].data, "input %zu", i))
            return test_end();
    check_documents();
    check_gguf_faults();
    check_tiny();
    check_demo();
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++)
        check_vocabulary(&vocabularies[i]);
    for (size_t i = 0; i < N_INPUTS; i++)
        free((void *)(uintptr_t)inputs[i].data);
    return test_end();
}
