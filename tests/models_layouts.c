/* Proves, for models whose scales are tensors of their own (MLX 4-bit and 8-bit, FP8 in tiles of
 * 128 x 128; NVFP4 in a GGUF file with a factor per matrix): a folder in that layout gives the
 * logits of a folder with the same values written out in F32, up to the noise of int8 activations
 * (FP8: of float sums); and the same bits for any memory, part size, thread count and CPU level.
 * Folders that do not fit together are refused with one line. The folders are made here, out of
 * tests/data/models/llama, the GGUF files out of llama-Q4_K_M.gguf with other weights. */
#include <sys/stat.h>
#include <unistd.h>

#include "lib_folder.h"
#include "lib_model.h"

enum { T = 40, V = 512, FP8_TILE = 128 };

typedef enum layout { PLAIN, MLX4, MLX8, FP8, NVFP4, LAYOUT_COUNT } layout;
static const char *const layout_name[] = {"plain", "mlx4", "mlx8", "fp8", "nvfp4.gguf"};

static void put(writer *w, const char *name, const char *type, uint64_t rows, uint64_t cols,
                const void *bytes, size_t n)
{
    char shape[64];
    int len = snprintf(shape, sizeof shape, "%llu", (unsigned long long)rows);
    if (cols)
        snprintf(shape + len, sizeof shape - (size_t)len, ",%llu", (unsigned long long)cols);
    put_tensor(w, name, type, shape, bytes, n);
}

static float e4m3(uint8_t b)
{
    const int e = b >> 3 & 15, m = b & 7;
    const float size = e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9);
    return b & 128 ? -size : size;
}

/* The code nearest to v, |v| <= 448: codes ascend. */
static uint8_t to_e4m3(float v)
{
    uint8_t best = 0;
    for (uint8_t b = 1; b < 0x7f; b++)
        if (fabsf(e4m3(b) - fabsf(v)) < fabsf(e4m3(best) - fabsf(v)))
            best = b;
    return best | (v < 0 ? 128 : 0);
}

/* Writes the matrix in the layout; v becomes the values that it then has. */
static void put_fp8(writer *w, const char *name, float *v, uint64_t rows, uint64_t cols)
{
    const uint64_t across = (cols + FP8_TILE - 1) / FP8_TILE,
                   down = (rows + FP8_TILE - 1) / FP8_TILE;
    uint8_t *q = must(malloc(rows * cols));
    float *scale = must(calloc(across * down, sizeof *scale));
    for (uint64_t i = 0; i < rows * cols; i++) {
        float *s = &scale[i / cols / FP8_TILE * across + i % cols / FP8_TILE];
        *s = fmaxf(*s, fabsf(v[i]) / 448.0f);
    }
    for (uint64_t i = 0; i < rows * cols; i++) {
        const float s = scale[i / cols / FP8_TILE * across + i % cols / FP8_TILE];
        q[i] = to_e4m3(v[i] / s);
        v[i] = e4m3(q[i]) * s;
    }
    put(w, name, "F8_E4M3", rows, cols, q, rows * cols);
    put(w, sibling(name, "weight_scale_inv"), "F32", down, across, scale,
        across * down * sizeof *scale);
    free(q);
    free(scale);
}

static bool is_embedding(const char *name)
{
    return strstr(name, "embed_tokens") || strstr(name, "lm_head");
}

/* Folders dir/layout and, with the same values in F32, dir/layout-plain. group: of MLX. */
static void make(const sl_checkpoint *source, const char *dir, layout l, uint64_t group)
{
    char path[2][300], extra[128] = "}";
    writer out[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s%s", dir, layout_name[l], i ? "-plain" : "");
        mkdir(path[i], 0777);
    }
    for (uint32_t i = 0; i < sl_checkpoint_tensor_count(source); i++) {
        const sl_tensor *t = sl_checkpoint_tensor(source, i);
        uint64_t n = 0;
        uint16_t *stored = must(golden(source, t->name, &n));
        float *v = must(malloc(n * sizeof *v));
        for (uint64_t k = 0; k < n; k++)
            v[k] = sl_bfloat_to_float(stored[k]);
        const uint64_t rows = t->dims[0], cols = t->n_dims == 2 ? t->dims[1] : 0;
        if (cols && (l == MLX4 || l == MLX8))
            put_mlx(&out[0], t->name, v, 0, rows, cols, l == MLX4 ? 4 : 8, group);
        else if (cols && l == FP8 && !is_embedding(t->name))
            put_fp8(&out[0], t->name, v, rows, cols);
        else
            put(&out[0], t->name, "F32", rows, cols, v, n * sizeof *v);
        put(&out[1], t->name, "F32", rows, cols, v, n * sizeof *v);
        free(stored);
        free(v);
    }
    if (l == MLX4 || l == MLX8)
        snprintf(extra, sizeof extra, ",\"quantization\":{\"group_size\":%llu,\"bits\":%d}}",
                 (unsigned long long)group, l == MLX4 ? 4 : 8);
    if (l == FP8)
        snprintf(
            extra, sizeof extra,
            ",\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}"
            "}");
    for (int i = 0; i < 2; i++) {
        finish(&out[i], path[i]);
        write_config(path[i], "models/llama", i ? "}" : extra);
    }
}

/* ---- a GGUF file ---- */

/* The bytes of a file in the making. */
typedef struct bytes {
    uint8_t *p;
    size_t len, cap;
} bytes;

static void append(bytes *b, const void *p, size_t n)
{
    if (b->len + n > b->cap)
        b->p = must(realloc(b->p, b->cap = 2 * (b->len + n)));
    memcpy(b->p + b->len, p, n);
    b->len += n;
}

static void append_u32(bytes *b, uint32_t v)
{
    append(b, &v, sizeof v);
}

static void append_u64(bytes *b, uint64_t v)
{
    append(b, &v, sizeof v);
}

static void pad(bytes *b)
{
    while (b->len % 32)
        append(b, "", 1);
}

/* A tensor's entry and its data. */
static void add_tensor(bytes *info, bytes *data, const char *name, uint32_t type, uint64_t rows,
                       uint64_t cols, const void *p, size_t n)
{
    append_u64(info, strlen(name));
    append(info, name, strlen(name));
    append_u32(info, rows ? 2 : 1);
    append_u64(info, cols);
    if (rows)
        append_u64(info, rows);
    append_u32(info, type);
    append_u64(info, data->len);
    append(data, p, n);
    pad(data);
}

/* Random weights; v becomes their values: scales of 1/4 to 7/2, E2M1 numbers, times the factor. */
static void put_nvfp4(bytes *info, bytes *data, const char *name, float *v, uint64_t rows,
                      uint64_t cols, float factor, uint64_t *seed)
{
    enum { TYPE = 40, BLOCK = 64, BLOCK_BYTES = 36 };
    static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const size_t n = rows * cols / BLOCK * BLOCK_BYTES;
    uint8_t *w = must(malloc(n));
    for (size_t i = 0; i < n; i++)
        w[i] = i % BLOCK_BYTES < 4 ? (uint8_t)(40 + test_random(seed) % 30)
                                   : (uint8_t)test_random(seed);
    for (size_t i = 0; i < rows * cols; i++) {
        const uint8_t *b = w + i / BLOCK * BLOCK_BYTES, s = b[i % BLOCK / 16];
        const uint8_t byte = b[4 + i % BLOCK / 16 * 8 + i % 8];
        const uint8_t q = i % 16 < 8 ? byte & 15 : byte >> 4;
        v[i] = e2m1[q & 7] * ldexpf((float)(8 + (s & 7)), (s >> 3) - 10) * factor;
        v[i] = q & 8 ? -v[i] : v[i];
    }
    add_tensor(info, data, name, TYPE, rows, cols, w, n);
    add_tensor(info, data, sibling(name, "scale"), 0, 0, 1, &factor, sizeof factor);
    free(w);
}

/* dir/nvfp4.gguf, and with the same values in F32 dir/nvfp4.gguf-plain: metadata, embedding and
 * norms of the source, random weights. */
static void make_gguf(const char *dir)
{
    sl_checkpoint *source = NULL;
    sl_err err = {0};
    uint64_t seed = 99, n_tensors[2] = {0};
    size_t len = 0;
    bytes info[2] = {{0}}, data[2] = {{0}};
    uint8_t *file = must(test_read(test_data("models/llama-Q4_K_M.gguf"), &len));
    if (!CHECK(sl_checkpoint_open(test_data("models/llama-Q4_K_M.gguf"), &source, &err) == SL_OK,
               "%s", err.text))
        return;
    /* Metadata end where the first entry of a tensor begins. */
    size_t end = len;
    for (uint32_t i = 0; i < sl_checkpoint_tensor_count(source); i++) {
        const sl_tensor *t = sl_checkpoint_tensor(source, i);
        bytes name = {0};
        append_u64(&name, strlen(t->name));
        append(&name, t->name, strlen(t->name));
        const uint8_t *at = memmem(file, len, name.p, name.len);
        end = at && (size_t)(at - file) < end ? (size_t)(at - file) : end;
        free(name.p);
        const bool matrix = t->n_dims == 2 && !strstr(t->name, "token_embd");
        const uint64_t rows = t->n_dims == 2 ? t->dims[0] : 0, cols = t->dims[t->n_dims - 1];
        const uint64_t n = rows ? rows * cols : cols;
        float *v = must(calloc(n, sizeof *v));
        for (uint64_t k = 0; rows && k < n; k++)
            v[k] = (float)(test_random(&seed) % 2001) / 1000.0f - 1.0f;
        if (!rows)
            CHECK(t->type == SL_F32 && sl_checkpoint_read(source, t, v, &err) == SL_OK, "%s",
                  t->name);
        if (matrix) {
            put_nvfp4(&info[0], &data[0], t->name, v, rows, cols, 0.01f + 0.001f * (float)(i % 7),
                      &seed);
            n_tensors[0]++;
        } else {
            add_tensor(&info[0], &data[0], t->name, 0, rows, cols, v, n * sizeof *v);
        }
        add_tensor(&info[1], &data[1], t->name, 0, rows, cols, v, n * sizeof *v);
        n_tensors[0]++;
        n_tensors[1]++;
        free(v);
    }
    for (int i = 0; i < 2; i++) {
        bytes head = {0};
        append(&head, file, end);
        memcpy(head.p + 8, &n_tensors[i], sizeof n_tensors[i]);
        append(&head, info[i].p, info[i].len);
        pad(&head);
        write_file(dir, i ? "nvfp4.gguf-plain" : "nvfp4.gguf", head.p, head.len, data[i].p,
                   data[i].len);
        free(head.p);
        free(info[i].p);
        free(data[i].p);
    }
    free(file);
    sl_checkpoint_close(&source);
}

static bool answer(const char *path, const setting *s, const int32_t *ids, float *out)
{
    loaded l;
    sl_err err = {0};
    if (!CHECK(load(path, s, &l, &err) == SL_OK, "%s", err.text))
        return false;
    bool ok = CHECK(eval(&l, ids, T - 2, true, out, &err) == SL_OK, "%s", err.text);
    for (uint32_t t = T - 2; ok && t < T; t++)
        ok = CHECK(eval(&l, ids + t, 1, false, out + (size_t)t * V, &err) == SL_OK, "%s", err.text);
    unload(&l);
    return ok;
}

/* Largest and rms distance to the folder in F32. MLX: int8 activations, as in models_golden.c;
 * FP8: the order of float sums alone. */
static void check_layout(const char *dir, layout l, const int32_t *ids)
{
    static float plain[T * V], first[T * V], other[T * V];
    char path[300], plain_path[320];
    double rms = 0;
    setting s = setting_default();
    test_case("%s", layout_name[l]);
    snprintf(path, sizeof path, "%s/%s", dir, layout_name[l]);
    snprintf(plain_path, sizeof plain_path, "%s-plain", path);
    if (!answer(plain_path, &s, ids, plain) || !answer(path, &s, ids, first))
        return;
    const double most = max_difference(plain, first, T * V, &rms);
    printf("%s against the same values in F32: max %.3g, rms %.3g\n", layout_name[l], most, rms);
    const double noise = l == FP8 ? 1e-4 : l == NVFP4 ? 0.03 : 0.17;
    CHECK(rms < noise, "rms %g", rms);
    CHECK(most < 6 * noise, "max %g", most);
    for (int i = 0; i <= (int)sl_cpu_best() + 2; i++) {
        s = setting_default();
        s.part_bytes = i % 2 ? 24 << 10 : 64 << 10; /* cuts inside tiles of rows */
        s.memory = i % 3 ? 0 : UINT64_MAX;
        s.threads = 1 + (unsigned)i % 3;
        s.chunk = s.logits_rows = i % 2 ? 7 : 64;
        s.level = i <= (int)sl_cpu_best() ? (sl_cpu_level)i : sl_cpu_best();
        if (answer(path, &s, ids, other))
            CHECK(!memcmp(first, other, sizeof first), "setting %d: other bits, max %g", i,
                  max_difference(first, other, T * V, NULL));
    }
}

static void refused(const char *path, const char *extra, const char *want)
{
    sl_model *m = NULL;
    sl_err err = {0};
    const sl_model_options o = sl_model_defaults();
    write_config(path, "models/llama", extra);
    const sl_status st = sl_model_open(path, &o, &m, &err);
    CHECK(st != SL_OK && strstr(err.text, want), "%s", st == SL_OK ? "opened" : err.text);
    sl_model_close(&m);
}

static void check_refusals(const char *dir)
{
    char path[300];
    test_case("refusals");
    snprintf(path, sizeof path, "%s/mlx4", dir);
    refused(path, "}", "type U32");
    refused(path, ",\"quantization\":{\"bits\":4}}", "group_size");
    refused(path, ",\"quantization\":{\"bits\":4,\"group_size\":48}}", "group_size 48");
    refused(path, ",\"quantization\":{\"bits\":4,\"group_size\":32}}", "shape");
    refused(path, ",\"quantization\":{\"group_size\":64,\"bits\":4,\"mode\":\"mxfp4\"}}",
            "mode mxfp4");
    snprintf(path, sizeof path, "%s/fp8", dir);
    refused(path, ",\"quantization_config\":{\"quant_method\":\"awq\"}}", "quant_method awq");
}

/* The files of a layout, and the folder last. */
static void remove_all(const char *dir)
{
    static const char *const files[] = {"/config.json", "/model.safetensors", ""};
    char path[400];
    for (int l = MLX4; l < LAYOUT_COUNT; l++)
        for (int plain = 0; plain < 2; plain++)
            for (int i = 0; i < 3; i++) {
                snprintf(path, sizeof path, "%s/%s%s%s", dir, layout_name[l], plain ? "-plain" : "",
                         files[i]);
                remove(path);
            }
    rmdir(dir);
}

int main(void)
{
    char dir[] = "/tmp/sluice-layouts-XXXXXX";
    int32_t ids[T];
    uint64_t seed = 7;
    sl_checkpoint *source = NULL;
    sl_err err = {0};
    for (int i = 0; i < T; i++)
        ids[i] = (int32_t)(test_random(&seed) % V);
    if (!CHECK(mkdtemp(dir) != NULL))
        return test_end();
    if (CHECK(sl_checkpoint_open(test_data("models/llama"), &source, &err) == SL_OK, "%s",
              err.text)) {
        for (int l = MLX4; l < NVFP4; l++) {
            make(source, dir, (layout)l, l == MLX8 ? 128 : 64);
            check_layout(dir, (layout)l, ids);
        }
        check_refusals(dir);
        make_gguf(dir);
        check_layout(dir, NVFP4, ids);
    }
    sl_checkpoint_close(&source);
    remove_all(dir);
    return test_end();
}
