/* Proves: out of memory is an error like any other. For every N the Nth allocation fails while a
 * checkpoint is opened, a JSON document is read or written: the result is SL_ENOMEM with a text,
 * nothing is left open or allocated, and the next try works. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../stream/checkpoint.h"
#include "../stream/json.h"
#include "lib_test.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

#if defined(SANITIZED) || !defined(__GLIBC__)
int main(void)
{
    test_skip("the allocator cannot be replaced here");
}
#else

/* ---- the allocator of this program ---- */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void __libc_free(void *p);
void *malloc(size_t size);
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t size);
void free(void *p);

static long n_live;  /* blocks handed out and not freed */
static long fail_in; /* 1: the next allocation fails; 0: none */

static bool refuse(void)
{
    if (fail_in == 0 || --fail_in)
        return false;
    errno = ENOMEM;
    return true;
}

static void *count(void *p)
{
    n_live += p != NULL;
    return p;
}

void *malloc(size_t size)
{
    return count(refuse() ? NULL : __libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return count(refuse() ? NULL : __libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
    void *q = refuse() ? NULL : __libc_realloc(p, size);
    return p ? q : count(q);
}

void free(void *p)
{
    n_live -= p != NULL;
    __libc_free(p);
}

/* ---- what is tried ---- */

static sl_status open_checkpoint(const char *path, sl_err *err)
{
    sl_checkpoint *c;
    sl_status status = sl_checkpoint_open(path, &c, err);
    CHECK((c != NULL) == (status == SL_OK));
    sl_checkpoint_close(&c);
    return status;
}

static sl_status parse_json(const char *text, sl_err *err)
{
    sl_json *j;
    sl_status status = sl_json_parse(text, strlen(text), "text", &j, err);
    CHECK((j != NULL) == (status == SL_OK));
    sl_json_free(&j);
    return status;
}

static sl_status write_json(const char *key, sl_err *err)
{
    char *text = NULL;
    sl_json_writer *w = sl_json_writer_new();
    if (!w)
        return sl_fail(err, SL_ENOMEM, "no writer");
    sl_json_write_object(w, NULL);
    sl_json_write_array(w, key);
    for (int i = 0; i < 20; i++)
        sl_json_write_int(w, NULL, i);
    sl_json_write_close(w);
    sl_json_write_string(w, "text", "some text");
    sl_json_write_bool(w, "yes", true);
    sl_status status = sl_json_write_end(w, true, &text, err);
    CHECK((text != NULL) == (status == SL_OK));
    free(text);
    sl_json_writer_free(&w);
    return status;
}

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* Fails allocation 1, 2, ... until one try needs fewer. A few may be made good without (a realloc
 * that only shrinks), so some tries succeed all the same. */
static void try_all(sl_status (*what)(const char *, sl_err *), const char *arg)
{
    int files = open_files();
    long live = n_live;
    long n = 1, failed = 0;
    test_case("%s", arg);
    for (bool done = false; !done; n++) {
        sl_err err = {0};
        fail_in = n;
        sl_status status = what(arg, &err);
        done = fail_in > 0; /* never reached */
        fail_in = 0;
        CHECK(done ? status == SL_OK : status == SL_OK || status == SL_ENOMEM,
              "allocation %ld: status %d: %s", n, status, err.text);
        CHECK(status == err.code && (status == SL_OK || err.text[0]));
        CHECK(n_live == live, "allocation %ld: %ld blocks leaked", n, n_live - live);
        live = n_live;
        failed += status != SL_OK;
    }
    CHECK(failed >= (n - 2) / 2 && failed > 0, "%ld of %ld", failed, n - 2);
    CHECK(open_files() == files);
}

int main(void)
{
    static const char *const paths[] = {"gguf/container/arrays.gguf",
                                        "gguf/container/nested_arrays.gguf",
                                        "gguf/container/kv_many.gguf",
                                        "gguf/container/vocab_like.gguf",
                                        "gguf/shards/llama-Q4_K_M-00002-of-00003.gguf",
                                        "corrupt/folder/ok",
                                        "corrupt/folder/index_ok",
                                        "corrupt/safetensors/ok_metadata.safetensors",
                                        "corrupt/safetensors/many_names.safetensors"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        try_all(open_checkpoint, test_data(paths[i]));
    try_all(parse_json, "{\"a\": [1, true, null, \"text\", {\"b\": 0.5}], \"c\": {\"d\": []}}");
    try_all(write_json, "key");
    return test_end();
}
#endif
