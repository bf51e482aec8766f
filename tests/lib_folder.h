/* Makes model folders: a safetensors file, tensor by tensor, and a config.json out of another's.
 * All static, as in lib_stream.h. */
#ifndef SL_LIB_FOLDER_H
#define SL_LIB_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib_test.h"

/* A safetensors file in the making. */
typedef struct writer {
    char *header;
    size_t header_len, header_cap;
    uint8_t *data;
    size_t len, cap;
} writer;

static inline void *must(void *p)
{
    if (!p) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return p;
}

/* shape: "8,256,64" */
static inline void put_tensor(writer *w, const char *name, const char *type, const char *shape,
                              const void *bytes, size_t n)
{
    if (w->len + n > w->cap)
        w->data = must(realloc(w->data, w->cap = 2 * (w->len + n)));
    if (w->header_len + 512 > w->header_cap)
        w->header = must(realloc(w->header, w->header_cap = 2 * (w->header_len + 512)));
    w->header_len +=
        (size_t)snprintf(w->header + w->header_len, 512,
                         "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                         w->header_len ? ',' : '{', name, type, shape, w->len, w->len + n);
    memcpy(w->data + w->len, bytes, n);
    w->len += n;
}

static inline void write_file(const char *folder, const char *name, const void *a, size_t a_len,
                              const void *b, size_t b_len)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = must(fopen(path, "wb"));
    bool ok = fwrite(a, 1, a_len, f) == a_len && (!b_len || fwrite(b, 1, b_len, f) == b_len);
    CHECK(fclose(f) == 0 && ok, "%s", path);
}

static inline void finish(writer *w, const char *folder)
{
    w->header[w->header_len++] = '}';
    while (w->header_len % 8)
        w->header[w->header_len++] = ' ';
    const uint64_t n = w->header_len;
    uint8_t *head = must(malloc(n + 8));
    memcpy(head, &n, 8);
    memcpy(head + 8, w->header, n);
    write_file(folder, "model.safetensors", head, n + 8, w->data, w->len);
    free(head);
    free(w->header);
    free(w->data);
}

/* The config.json of a folder in the test data, with extra before its last brace. */
static inline void write_config(const char *folder, const char *source, const char *extra)
{
    char path[256];
    size_t len = 0;
    snprintf(path, sizeof path, "%s/config.json", source);
    char *text = must(test_read(test_data(path), &len));
    while (len && text[len - 1] != '}')
        len--;
    write_file(folder, "config.json", text, len - 1, extra, strlen(extra));
    free(text);
}

#endif
