/* Proves: experts are the same however a folder holds them. One tensor per expert and matrix,
 * stacks of three dimensions, gate and up fused, one after the other or alternating, rows or
 * columns first: the logits are the same bytes, for bf16 weights and for MLX's, whose scales lie
 * beside them. MXFP4 blocks give what their values give as floats; vectors that lie beside the
 * matrices are added. Layers without experts may stand among those with them. A folder whose
 * experts do not fit the config, or are stored in a way that cannot be multiplied, is refused with
 * one line. The folders are made here, out of tests/data/models/qwen3_moe and qwen3_5_moe. */
#include <sys/stat.h>
#include <unistd.h>

#include "lib_folder.h"
#include "lib_model.h"

enum { T = 40, V = 512, E = 8, D = 256, F = 64, GROUP = 64, WIDE = 256 };

typedef enum way {
    APART,
    STACKED,
    FUSED,
    ALTERNATING,
    TRANSPOSED,
    TRANSPOSED_ALTERNATING,
    HALF_TRANSPOSED, /* gate and up, but not down */
    MISSING,
    WIDE_STACK,
    MIXED
} way;

/* As configs of gpt-oss say it. */
static const char mxfp4_config[] = ",\"quantization_config\":{\"quant_method\":\"mxfp4\"}}";

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

/* E matrices of 16-bit values, turned. */
static void turn(uint16_t *v, uint32_t rows, uint32_t cols)
{
    const size_t n = (size_t)rows * cols;
    uint16_t *one = must(malloc(n * sizeof *one));
    for (uint32_t e = 0; e < E; e++, v += n) {
        memcpy(one, v, n * sizeof *one);
        for (size_t i = 0; i < n; i++)
            v[i % cols * rows + i / cols] = one[i];
    }
    free(one);
}

/* Rows of gate and of up in one, expert after expert. */
static uint8_t *pair_of(const stack *gate, const stack *up, bool alternating)
{
    const size_t one = matrix_bytes(gate), row = gate->row_bytes;
    uint8_t *both = must(malloc(2 * E * one));
    for (size_t e = 0; e < E; e++)
        for (size_t r = 0; r < gate->rows; r++) {
            uint8_t *at = both + 2 * e * one + (alternating ? 2 * r * row : r * row);
            memcpy(at, gate->bytes + e * one + r * row, row);
            memcpy(at + (alternating ? row : one), up->bytes + e * one + r * row, row);
        }
    return both;
}

static void put_fused(writer *w, uint32_t layer, const stack m[3], way how)
{
    const bool columns = how != FUSED && how != ALTERNATING;
    uint8_t *both = pair_of(&m[0], &m[1], how == ALTERNATING || how == TRANSPOSED_ALTERNATING);
    if (columns)
        turn((void *)both, 2 * F, D);
    put_whole(w, layer, "gate_up_proj", columns ? D : 2 * F, columns ? 2 * F : D, both);
    if (columns && how != HALF_TRANSPOSED) {
        turn((void *)m[2].bytes, D, F);
        put_whole(w, layer, "down_proj", F, D, m[2].bytes);
    } else {
        put_whole(w, layer, "down_proj", D, F, m[2].bytes);
    }
    free(both);
}

static void put_experts(writer *w, uint32_t layer, const stack m[3], way how)
{
    if (how >= FUSED && how <= HALF_TRANSPOSED) {
        put_fused(w, layer, m, how);
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

/* ---- MXFP4 ---- */

/* A stack in F32, from one in bf16. */
static stack floats_of(const stack *s)
{
    const size_t n = (size_t)E * s->rows * s->cols;
    stack out = {s->name, "F32", s->rows, s->cols, s->cols * sizeof(float), NULL};
    float *v = must(malloc(n * sizeof *v));
    for (size_t i = 0; i < n; i++)
        v[i] = sl_bfloat_to_float(sl_load_u16(s->bytes + 2 * i));
    out.bytes = (void *)v;
    return out;
}

/* The codes of a stack of floats, two a byte, and a scale per 32; the floats become what they stand
 * for. */
static void round_to_mxfp4(const stack *s, stack *blocks, stack *scales)
{
    static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const size_t n = (size_t)E * s->rows * s->cols;
    float *v = (void *)s->bytes;
    *blocks = (stack){s->name, "U8", s->rows, s->cols, s->cols / 2, must(calloc(n / 2, 1))};
    *scales = (stack){s->name, "U8", s->rows, s->cols, s->cols / 32, must(malloc(n / 32))};
    for (size_t i = 0; i < n; i += 32) {
        float most = 0x1p-30f;
        for (size_t k = i; k < i + 32; k++)
            most = fmaxf(most, fabsf(v[k]));
        const int e = ilogbf(most) - 2; /* 4 or 6 is the largest code */
        scales->bytes[i / 32] = (uint8_t)(e + 127);
        for (size_t k = i; k < i + 32; k++) {
            unsigned best = 0;
            for (unsigned c = 1; c < 8; c++)
                if (fabsf(ldexpf(e2m1[c], e) - fabsf(v[k])) <
                    fabsf(ldexpf(e2m1[best], e) - fabsf(v[k])))
                    best = c;
            blocks->bytes[k / 2] |= (uint8_t)((best | (v[k] < 0 ? 8 : 0)) << (k % 2 * 4));
            v[k] = copysignf(ldexpf(e2m1[best], e), v[k]);
        }
    }
}

static void put_mxfp4(writer *w, uint32_t layer, const char *what, uint32_t rows, uint32_t cols,
                      const void *blocks, const void *scales, bool has_scales)
{
    char name[128], shape[64];
    const size_t n = (size_t)E * rows * cols;
    snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%s_blocks", layer, what);
    snprintf(shape, sizeof shape, "%d,%u,%u,16", E, rows, cols / 32);
    put_tensor(w, name, "U8", shape, blocks, n / 2);
    snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%s_scales", layer, what);
    snprintf(shape, sizeof shape, "%d,%u,%u", E, rows, cols / 32);
    if (has_scales)
        put_tensor(w, name, "U8", shape, scales, n / 32);
}

/* Folders dir/name and dir/name-plain: MXFP4, and what it stands for as floats, apart. */
static const char *make_mxfp4(const char *dir, const char *name, bool has_scales, char plain[300])
{
    static char path[300];
    static const char *const names[3] = {"gate_proj", "up_proj", "down_proj"};
    sl_checkpoint *c = NULL;
    writer out[2] = {{0}};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(plain, 300, "%s/%s-plain", dir, name);
    mkdir(path, 0777);
    mkdir(plain, 0777);
    if (!CHECK(sl_checkpoint_open(test_data("models/qwen3_moe"), &c, NULL) == SL_OK))
        exit(1);
    put_rest(&out[0], c, 0);
    put_rest(&out[1], c, 0);
    for (uint32_t layer = 0; layer < 2; layer++) {
        stack blocks[3], scales[3];
        for (int i = 0; i < 3; i++) {
            stack s = read_stack(c, layer, names[i], i == 2 ? D : F, i == 2 ? F : D);
            stack v = floats_of(&s);
            round_to_mxfp4(&v, &blocks[i], &scales[i]);
            put_apart(&out[1], layer, &v, "weight", E);
            free(v.bytes);
            free(s.bytes);
        }
        uint8_t *both = pair_of(&blocks[0], &blocks[1], true),
                *both_scales = pair_of(&scales[0], &scales[1], true);
        put_mxfp4(&out[0], layer, "gate_up_proj", 2 * F, D, both, both_scales, true);
        put_mxfp4(&out[0], layer, "down_proj", D, F, blocks[2].bytes, scales[2].bytes, has_scales);
        free(both);
        free(both_scales);
        for (int i = 0; i < 3; i++) {
            free(blocks[i].bytes);
            free(scales[i].bytes);
        }
    }
    finish(&out[0], path);
    finish(&out[1], plain);
    write_config(path, "models/qwen3_moe", mxfp4_config);
    write_config(plain, "models/qwen3_moe", "}");
    sl_checkpoint_close(&c);
    return path;
}

/* ---- MLX ---- */

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

/* ---- vectors that are added ---- */

static void put_vectors(writer *w, uint32_t layer, const char *what, uint32_t n, const uint16_t *v)
{
    char name[128], shape[64];
    snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%s_bias", layer, what);
    snprintf(shape, sizeof shape, "%d,%u", E, n);
    put_tensor(w, name, "BF16", shape, v, (size_t)E * n * 2);
}

/* A folder whose last layer drowns all else: gate and up are their vectors alone, down is the same
 * for all experts, and its outputs are large. layer_out [D]: these. */
static const char *make_constant(const char *dir, const char *name, way how, uint32_t n_down,
                                 double layer_out[D])
{
    static char path[300];
    static uint16_t pair[E * 2 * F], down[E * D];
    sl_checkpoint *c = NULL;
    uint64_t seed = 21;
    const bool alternating = how == ALTERNATING || how == TRANSPOSED_ALTERNATING;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    mkdir(path, 0777);
    if (!CHECK(sl_checkpoint_open(test_data("models/qwen3_moe"), &c, NULL) == SL_OK))
        exit(1);
    writer out = {0}, *w = &out;
    put_rest(w, c, 0);
    for (uint32_t layer = 0; layer < 2; layer++) {
        stack m[3] = {read_stack(c, layer, "gate_proj", F, D),
                      read_stack(c, layer, "up_proj", F, D),
                      read_stack(c, layer, "down_proj", D, F)};
        const size_t one = matrix_bytes(&m[2]);
        for (size_t e = 1; layer && e < E; e++)
            memcpy(m[2].bytes + e * one, m[2].bytes, one);
        if (layer) {
            memset(m[0].bytes, 0, E * matrix_bytes(&m[0]));
            memset(m[1].bytes, 0, E * matrix_bytes(&m[1]));
            for (size_t r = 0; r < D; r++)
                down[r] = to_bf16(3e6f * test_random_float(&seed));
            for (size_t i = 0; i < F; i++) {
                const float gate = 3 * test_random_float(&seed),
                            up = 1e7f * test_random_float(&seed);
                pair[alternating ? 2 * i : i] = to_bf16(gate);
                pair[alternating ? 2 * i + 1 : F + i] = to_bf16(up);
            }
            for (size_t r = 0; r < D; r++) {
                layer_out[r] = (double)sl_bfloat_to_float(down[r]);
                for (size_t i = 0; i < F; i++) {
                    const double g = (double)sl_bfloat_to_float(pair[alternating ? 2 * i : i]),
                                 u = (double)sl_bfloat_to_float(
                                     pair[alternating ? 2 * i + 1 : F + i]),
                                 weight = (double)sl_bfloat_to_float(
                                     sl_load_u16(m[2].bytes + 2 * (r * F + i)));
                    layer_out[r] += weight * g / (1 + exp(-g)) * u;
                }
            }
            for (size_t e = 1; e < E; e++) {
                memcpy(pair + e * 2 * F, pair, 2 * F * sizeof *pair);
                memcpy(down + e * D, down, D * sizeof *down);
            }
            put_vectors(w, layer, "gate_up_proj", 2 * F, pair);
            put_vectors(w, layer, "down_proj", n_down, down);
        }
        put_experts(w, layer, m, how);
        for (int i = 0; i < 3; i++)
            free(m[i].bytes);
    }
    finish(w, path);
    write_config(path, "models/qwen3_moe", alternating ? mxfp4_config : "}");
    sl_checkpoint_close(&c);
    return path;
}

/* ---- columns first where gate and up are square ---- */

static bool is_fused(const sl_tensor *t)
{
    return t->n_dims == 3 && strstr(t->name, ".mlp.experts.");
}

/* tests/data/models/qwen3_5_moe with its experts turned. */
static const char *make_square(const char *dir)
{
    static char path[300];
    sl_checkpoint *c = NULL;
    snprintf(path, sizeof path, "%s/square", dir);
    mkdir(path, 0777);
    if (!CHECK(sl_checkpoint_open(test_data("models/qwen3_5_moe"), &c, NULL) == SL_OK))
        exit(1);
    writer out = {0};
    for (uint32_t i = 0; i < sl_checkpoint_tensor_count(c); i++) {
        const sl_tensor *t = sl_checkpoint_tensor(c, i);
        uint64_t n = 0, dims[sizeof t->dims / sizeof *t->dims];
        memcpy(dims, t->dims, sizeof dims);
        void *bytes = must(golden(c, t->name, &n));
        char shape[64];
        if (is_fused(t)) {
            CHECK(dims[0] == E);
            turn(bytes, (uint32_t)dims[1], (uint32_t)dims[2]);
            dims[1] = t->dims[2];
            dims[2] = t->dims[1];
        }
        size_t at = 0;
        for (uint32_t k = 0; k < t->n_dims; k++)
            at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%llu", k ? "," : "",
                                   (unsigned long long)dims[k]);
        put_tensor(&out, t->name, sl_dtype_about(t->type)->name, shape, bytes,
                   (size_t)t->extent.len);
        free(bytes);
    }
    finish(&out, path);
    write_config(path, "models/qwen3_5_moe", "}");
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

/* Near the folder of floats: int8 activations, as in models_layouts.c. */
static void near(const char *what, const char *path, const char *plain)
{
    const setting s = setting_default();
    double rms = 0;
    test_case("%s", what);
    if (!answer(plain, &s, want) || !answer(path, &s, got))
        return;
    const double most = max_difference(want, got, T * V, &rms);
    printf("%s against the same values in F32: max %.3g, rms %.3g\n", what, most, rms);
    CHECK(rms > 0 && rms < 0.17 && most < 6 * 0.17, "rms %g, max %g", rms, most);
}

/* Logits of a folder of make_constant(): those of one vector, whatever the token. */
static void constant(const char *what, const char *path, const double x[D])
{
    const setting s = setting_default();
    sl_checkpoint *c = NULL;
    uint64_t n = 0;
    test_case("%s", what);
    if (!answer(path, &s, got) ||
        !CHECK(sl_checkpoint_open(test_data("models/qwen3_moe"), &c, NULL) == SL_OK))
        return;
    uint8_t *norm = must(golden(c, "model.norm.weight", &n)),
            *head = must(golden(c, "lm_head.weight", &n));
    double square = 0, worst = 0;
    for (int i = 0; i < D; i++)
        square += x[i] * x[i] / D;
    for (int v = 0; v < V; v++) {
        double logit = 0;
        for (int i = 0; i < D; i++)
            logit += x[i] / sqrt(square) * (double)sl_bfloat_to_float(sl_load_u16(norm + 2 * i)) *
                     (double)sl_bfloat_to_float(sl_load_u16(head + 2 * (v * D + i)));
        for (int t = 0; t < T; t++)
            worst = fmax(worst, fabs((double)got[t * V + v] - logit));
    }
    CHECK(worst < 1e-3, "%g", worst);
    free(norm);
    free(head);
    sl_checkpoint_close(&c);
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

    CHECK(answer(test_data("models/qwen3_moe"), &s, want));
    same("alternating", make(dir, "alternating", ALTERNATING, mxfp4_config), &s);
    same("columns first", make(dir, "columns", TRANSPOSED, "}"), &s);
    same("columns first, alternating", make(dir, "columns2", TRANSPOSED_ALTERNATING, mxfp4_config),
         &s);
    one_answer("columns first, at the floor", make(dir, "columns3", TRANSPOSED, "}"));
    CHECK(answer(test_data("models/qwen3_5_moe"), &s, want));
    same("columns first, square", make_square(dir), &s);

    char plain[300];
    double x[D];
    const char *mxfp4 = make_mxfp4(dir, "mxfp4", true, plain);
    near("MXFP4", mxfp4, plain);
    one_answer("MXFP4, at the floor", mxfp4);
    constant("vectors", make_constant(dir, "vectors", FUSED, D, x), x);
    constant("vectors, alternating", make_constant(dir, "vectors2", ALTERNATING, D, x), x);
    constant("vectors, columns first", make_constant(dir, "vectors3", TRANSPOSED_ALTERNATING, D, x),
             x);

    refused("gate and up alone turned", make(dir, "half", HALF_TRANSPOSED, "}"),
            "down_proj: the config asks for a stack of 8 matrices with 256 rows of 64, stored "
            "columns first");
    refused("no scales", make_mxfp4(dir, "no-scales", false, plain),
            "tensor model.layers.0.mlp.experts.down_proj_blocks has no scales beside it");
    refused("short vectors", make_constant(dir, "short", FUSED, D / 2, x),
            "down_proj_bias does not fit model.layers.1.mlp.experts.down_proj");
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
