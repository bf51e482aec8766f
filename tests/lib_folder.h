/* Makes model folders: a safetensors file, tensor by tensor, and a config.json out of another's.
 * All static, as in lib_stream.h. */
#ifndef SL_LIB_FOLDER_H
#define SL_LIB_FOLDER_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/half.h"
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

static inline uint16_t to_bf16(float f)
{
    return (uint16_t)(sl_bits_of_float(f) >> 16);
}

/* "x.weight" -> "x.suffix" */
static inline const char *sibling(const char *name, const char *suffix)
{
    static char out[256];
    snprintf(out, sizeof out, "%.*s%s", (int)(strlen(name) - strlen("weight")), name, suffix);
    return out;
}

static inline void put_rows(writer *w, const char *name, const char *type, uint64_t stack,
                            uint64_t rows, uint64_t cols, const void *bytes, size_t n)
{
    char shape[96];
    const int at = stack ? snprintf(shape, sizeof shape, "%llu,", (unsigned long long)stack) : 0;
    snprintf(shape + at, sizeof shape - (size_t)at, "%llu,%llu", (unsigned long long)rows,
             (unsigned long long)cols);
    put_tensor(w, name, type, shape, bytes, n);
}

/* Writes the matrix, or a stack of them (0: none), in MLX's layout; v becomes the values that it
 * then has. */
static inline void put_mlx(writer *w, const char *name, float *v, uint64_t stack, uint64_t rows,
                           uint64_t cols, unsigned bits, uint64_t group)
{
    const uint64_t n = (stack ? stack : 1) * rows * cols, groups = n / group;
    const unsigned top = (1u << bits) - 1;
    uint8_t *q = must(calloc(n, 1));
    uint16_t *scale = must(malloc(groups * 2)), *bias = must(malloc(groups * 2));
    for (uint64_t g = 0; g < groups; g++) {
        float low = INFINITY, high = -INFINITY;
        for (uint64_t i = g * group; i < (g + 1) * group; i++) {
            low = fminf(low, v[i]);
            high = fmaxf(high, v[i]);
        }
        scale[g] = to_bf16((high - low) / (float)top + 1e-6f);
        bias[g] = to_bf16(low);
        const float d = sl_bfloat_to_float(scale[g]), m = sl_bfloat_to_float(bias[g]);
        for (uint64_t i = g * group; i < (g + 1) * group; i++) {
            const float t = rintf((v[i] - m) / d);
            const unsigned code = t < 0 ? 0 : t > (float)top ? top : (unsigned)t;
            q[i * bits / 8] |= (uint8_t)(code << (i * bits % 8));
            v[i] = (float)code * d + m;
        }
    }
    put_rows(w, name, "U32", stack, rows, cols * bits / 32, q, n * bits / 8);
    put_rows(w, sibling(name, "scales"), "BF16", stack, rows, cols / group, scale, groups * 2);
    put_rows(w, sibling(name, "biases"), "BF16", stack, rows, cols / group, bias, groups * 2);
    free(q);
    free(scale);
    free(bias);
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
