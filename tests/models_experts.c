/* Proves: experts are the same however a folder holds them. One tensor per expert and matrix,
 * stacks of three dimensions, gate and up fused: the logits are the same bytes, for bf16 weights
 * and for MLX's, whose scales lie beside them. Layers without experts may stand among those with
 * them. A folder whose experts do not fit the config, or are stored in a way that cannot be
 * multiplied, is refused with one line. The folders are made here, out of
 * tests/data/models/qwen3_moe. */
#include <sys/stat.h>
#include <unistd.h>

#include "lib_folder.h"
#include "lib_model.h"

enum { T = 40, V = 512, E = 8, D = 256, F = 64, GROUP = 64, WIDE = 256 };

typedef enum way { APART, STACKED, FUSED, TRANSPOSED, MISSING, WIDE_STACK, MIXED } way;

/* ---- experts ---- */

/* One of the three matrices, for all experts of a layer: rows of row_bytes, expert after expert. */
typedef struct stack {
    const char *name, *type;
    uint32_t rows, cols; /* cols: as stored */
    size_t row_bytes;
    uint8_t *bytes;
} stack;

static size_t matrix_bytes(const stack *s)
{
    return s->rows * s->row_bytes;
}

static void put_apart(writer *w, uint32_t layer, const stack *s, const char *suffix, uint32_t n)
{
    char name[128], shape[64];
    snprintf(shape, sizeof shape, "%u,%u", s->rows, s->cols);
    for (uint32_t e = 0; e < n; e++) {
        snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.%s.%s", layer, e, s->name,
                 suffix);
        put_tensor(w, name, s->type, shape, s->bytes + e * matrix_bytes(s), matrix_bytes(s));
    }
}

static void put_stack(writer *w, uint32_t layer, const stack *s, const char *suffix)
{
    char name[128], shape[64];
    snprintf(name, sizeof name, "model.layers.%u.mlp.switch_mlp.%s.%s", layer, s->name, suffix);
    snprintf(shape, sizeof shape, "%d,%u,%u", E, s->rows, s->cols);
    put_tensor(w, name, s->type, shape, s->bytes, E * matrix_bytes(s));
}

/* A tensor that has no suffix, of matrices of rows x cols. */
static void put_whole(writer *w, uint32_t layer, const char *what, uint32_t rows, uint32_t cols,
                      const void *bytes)
{
    char name[128], shape[64];
    snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%s", layer, what);
    snprintf(shape, sizeof shape, "%d,%u,%u", E, rows, cols);
    put_tensor(w, name, "BF16", shape, bytes, (size_t)E * rows * cols * 2);
}

static void put_fused(writer *w, uint32_t layer, const stack m[3], bool transposed)
{
    const size_t one = matrix_bytes(&m[0]);
    uint8_t *both = must(malloc(2 * E * one));
    for (uint32_t e = 0; e < E; e++) {
        memcpy(both + 2 * e * one, m[0].bytes + e * one, one);
        memcpy(both + (2 * e + 1) * one, m[1].bytes + e * one, one);
    }
    if (transposed)
        put_whole(w, layer, "gate_up_proj", D, 2 * F, both);
    else
        put_whole(w, layer, "gate_up_proj", 2 * F, D, both);
    put_whole(w, layer, "down_proj", D, F, m[2].bytes);
    free(both);
}

static void put_experts(writer *w, uint32_t layer, const stack m[3], way how)
{
    if (how == FUSED || how == TRANSPOSED) {
        put_fused(w, layer, m, how == TRANSPOSED);
        return;
    }
    for (int i = 0; i < 3; i++) {
        stack s = m[i];
        if (how == WIDE_STACK && i == 2) {
            s.rows /= 2;
            s.cols *= 2;
            s.row_bytes *= 2;
        }
        if (how == STACKED || how == WIDE_STACK)
            put_stack(w, layer, &s, "weight");
        else
            put_apart(w, layer, &s, "weight", how == MISSING && i == 1 ? E - 1 : E);
    }
}

static stack read_stack(const sl_checkpoint *c, uint32_t layer, const char *name, uint32_t rows,
                        uint32_t cols)
{
    char full[128];
    uint64_t n = 0;
    stack s = {name, "BF16", rows, cols, cols * 2, NULL};
    s.bytes = must(malloc(E * matrix_bytes(&s)));
    for (uint32_t e = 0; e < E; e++) {
        snprintf(full, sizeof full, "model.layers.%u.mlp.experts.%u.%s.weight", layer, e, name);
        void *one = must(golden(c, full, &n));
        memcpy(s.bytes + e * matrix_bytes(&s), one, matrix_bytes(&s));
        free(one);
    }
    return s;
}

static bool is_expert(const char *name)
{
    return strstr(name, ".mlp.experts.");
}

/* All but the experts, as they are; of a layer below first also no router. */
static void put_rest(writer *w, const sl_checkpoint *c, uint32_t first)
{
    for (uint32_t i = 0; i < sl_checkpoint_tensor_count(c); i++) {
        const sl_tensor *t = sl_checkpoint_tensor(c, i);
        char shape[64];
        uint64_t n = 0;
        if (is_expert(t->name) || (first && strstr(t->name, "layers.0.mlp.")))
            continue;
        void *bytes = must(golden(c, t->name, &n));
        if (t->n_dims == 2)
            snprintf(shape, sizeof shape, "%llu,%llu", (unsigned long long)t->dims[0],
                     (unsigned long long)t->dims[1]);
        else
            snprintf(shape, sizeof shape, "%llu", (unsigned long long)t->dims[0]);
        put_tensor(w, t->name, "BF16", shape, bytes, (size_t)t->extent.len);
        free(bytes);
    }
}

/* A dense feed-forward block of random numbers below 1/16. */
static void put_dense(writer *w, uint32_t layer)
{
    static const char *const names[3] = {"gate_proj", "up_proj", "down_proj"};
    static uint16_t v[WIDE * D];
    uint64_t seed = 5;
    for (int i = 0; i < 3; i++) {
        char name[128];
        for (size_t k = 0; k < WIDE * D; k++)
            v[k] = (uint16_t)((test_random(&seed) & 0x80ff) | 0x3c00);
        snprintf(name, sizeof name, "model.layers.%u.mlp.%s.weight", layer, names[i]);
        put_tensor(w, name, "BF16", "256,256", v, sizeof v);
    }
}

static const char *make(const char *dir, const char *name, way how, const char *config)
{
    static char path[300];
    sl_checkpoint *c = NULL;
    sl_err err = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    mkdir(path, 0777);
    if (!CHECK(sl_checkpoint_open(test_data("models/qwen3_moe"), &c, &err) == SL_OK, "%s",
               err.text))
        exit(1);
    writer out = {0}, *w = &out;
    put_rest(w, c, how == MIXED);
    for (uint32_t layer = 0; layer < 2; layer++) {
        if (how == MIXED && layer == 0) {
            put_dense(w, layer);
            continue;
        }
        stack m[3] = {read_stack(c, layer, "gate_proj", F, D),
                      read_stack(c, layer, "up_proj", F, D),
                      read_stack(c, layer, "down_proj", D, F)};
        put_experts(w, layer, m, how);
        for (int i = 0; i < 3; i++)
            free(m[i].bytes);
    }
    finish(w, path);
    write_config(path, "models/qwen3_moe", config);
    sl_checkpoint_close(&c);
    return path;
}

/* MLX's layout with random codes: what they stand for does not matter here. */
static const char *make_mlx(const char *dir, const char *name, bool stacked)
{
    static char path[300];
    sl_checkpoint *c = NULL;
    uint64_t seed = 11;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    mkdir(path, 0777);
    if (!CHECK(sl_checkpoint_open(test_data("models/qwen3_moe"), &c, NULL) == SL_OK))
        exit(1);
    writer out = {0}, *w = &out;
    put_rest(w, c, 0);
    for (uint32_t i = 0; i < 6; i++) {
        static const char *const names[3] = {"gate_proj", "up_proj", "down_proj"};
        const uint32_t rows = i % 3 == 2 ? D : F, cols = i % 3 == 2 ? F : D;
        stack s[3] = {{names[i % 3], "U32", rows, cols / 8, cols / 2, NULL},
                      {names[i % 3], "BF16", rows, cols / GROUP, cols / GROUP * 2, NULL},
                      {names[i % 3], "BF16", rows, cols / GROUP, cols / GROUP * 2, NULL}};
        static const char *const suffix[3] = {"weight", "scales", "biases"};
        for (int k = 0; k < 3; k++) {
            const size_t n = E * matrix_bytes(&s[k]);
            s[k].bytes = must(malloc(n));
            /* scales and biases: bf16 with exponents of about 2^-7 */
            for (size_t b = 0; b < n; b++)
                s[k].bytes[b] = (uint8_t)(!k      ? test_random(&seed)
                                          : b % 2 ? 0x3c
                                                  : test_random(&seed) & 0x7f);
            if (stacked)
                put_stack(w, i / 3, &s[k], suffix[k]);
            else
                put_apart(w, i / 3, &s[k], suffix[k], E);
            free(s[k].bytes);
        }
    }
    finish(w, path);
    write_config(path, "models/qwen3_moe", ",\"quantization\":{\"group_size\":64,\"bits\":4}}");
    sl_checkpoint_close(&c);
    return path;
}

/* ---- answers ---- */

static int32_t ids[T];

static bool answer(const char *path, const setting *s, float out[T * V])
{
    loaded l;
    sl_err err = {0};
    memset(out, 0, T * V * sizeof *out);
    if (!CHECK(load(path, s, &l, &err) == SL_OK, "%s", err.text))
        return false;
    bool ok = CHECK(eval(&l, ids, T - 3, true, out, &err) == SL_OK, "%s", err.text);
    for (uint32_t t = T - 3; ok && t < T; t++)
        ok = CHECK(eval(&l, ids + t, 1, false, out + (size_t)t * V, &err) == SL_OK, "%s", err.text);
    unload(&l);
    return ok;
}

static float want[T * V], got[T * V];

static void same(const char *what, const char *path, const setting *s)
{
    test_case("%s", what);
    if (answer(path, s, got))
        CHECK(!memcmp(got, want, sizeof got), "max difference %g",
              max_difference(got, want, T * V, NULL));
}

static void refused(const char *what, const char *path, const char *text)
{
    loaded l;
    sl_err err = {0};
    const setting s = setting_default();
    test_case("%s", what);
    if (!CHECK(load(path, &s, &l, &err) != SL_OK))
        unload(&l);
    CHECK(strstr(err.text, text), "%s", err.text);
}

/* The folder at the floor, on one thread, in chunks and on scalar kernels. */
static void one_answer(const char *what, const char *path)
{
    setting s = setting_default();
    test_case("%s", what);
    if (!answer(path, &s, want))
        return;
    s.memory = 0;
    s.threads = 1;
    s.chunk = s.logits_rows = 7;
    s.level = SL_CPU_SCALAR;
    same(what, path, &s);
}

int main(void)
{
    char dir[] = "/tmp/sluice-experts-XXXXXX", command[64];
    uint64_t seed = 3;
    const setting s = setting_default();
    for (int i = 0; i < T; i++)
        ids[i] = (int32_t)(test_random(&seed) % V);
    if (!CHECK(mkdtemp(dir) != NULL))
        return test_end();
    CHECK(answer(test_data("models/qwen3_moe"), &s, want));
    same("apart", make(dir, "apart", APART, "}"), &s);
    same("stacked", make(dir, "stacked", STACKED, "}"), &s);
    same("fused", make(dir, "fused", FUSED, "}"), &s);
    one_answer("fused, at the floor", make(dir, "fused2", FUSED, "}"));
    one_answer("a dense layer first", make(dir, "mixed", MIXED, ",\"mlp_only_layers\":[0]}"));
    same("a mixture in every second layer", make(dir, "step", MIXED, ",\"decoder_sparse_step\":2}"),
         &s);
    one_answer("MLX, apart", make_mlx(dir, "mlx", false));
    same("MLX, stacked", make_mlx(dir, "mlx-stacked", true), &s);

    refused("transposed", make(dir, "transposed", TRANSPOSED, "}"),
            "gate_up_proj is stored transposed, [experts, inputs, outputs]: this is not supported");
    refused("one missing", make(dir, "missing", MISSING, "}"),
            "tensor model.layers.0.mlp.experts.7.up_proj.weight is missing");
    refused("another shape", make(dir, "wide", WIDE_STACK, "}"),
            "down_proj.weight: the config asks for a stack of 8 matrices with 256 rows of 64");
    refused("another number", make(dir, "number", STACKED, ",\"num_experts\":7}"),
            "the config asks for [7, 256]");
    refused("more used than there are", make(dir, "used", APART, ",\"num_experts_per_tok\":9}"),
            "num_experts_per_tok");
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK(system(command) == 0);
    return test_end();
}
