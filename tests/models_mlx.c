/* Proves: what MLX's converter makes of a Qwen3.5 folder is the same model: other names, experts
 * stacked one matrix each, convolutions turned, 1 added to the norms. Not quantised, its logits are
 * the same bytes; quantised to 4 bits, router and the shared expert's score to 8, they are near
 * those of the same values in F32. The folders are made here, out of tests/data/models/qwen3_5_moe.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "lib_folder.h"
#include "lib_model.h"

enum { T = 40, V = 512, GROUP = 64 };

/* A folder in MLX's form, and one in the form of the source that has the same values in F32. */
typedef struct pair {
    writer mlx, plain;
    bool quantised;
} pair;

static const char source_prefix[] = "model.language_model.";

static bool ends_in(const char *name, const char *ending)
{
    const size_t n = strlen(name), end = strlen(ending);
    return n >= end && !strcmp(name + n - end, ending);
}

/* As mlx_lm names it, with `to` where the name ends in `from`. */
static const char *mlx_name(const char *name, const char *from, const char *to)
{
    static char out[256];
    const size_t prefix = strlen(source_prefix);
    const bool inner = !strncmp(name, source_prefix, prefix);
    const char *rest = inner ? name + prefix : name;
    snprintf(out, sizeof out, "language_model.%s%.*s%s", inner ? "model." : "",
             (int)(strlen(rest) - strlen(from)), rest, to);
    return out;
}

static bool is_norm(const char *name)
{
    static const char *const ends[] = {
        ".input_layernorm.weight", ".post_attention_layernorm.weight", "language_model.norm.weight",
        ".q_norm.weight", ".k_norm.weight"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_in(name, ends[i]))
            return true;
    return false;
}

/* stack: 0, or so many matrices. */
static void put_matrix(pair *p, const char *name, float *v, uint64_t stack, uint64_t rows,
                       uint64_t cols)
{
    const bool eight = ends_in(name, ".mlp.gate.weight") || strstr(name, "shared_expert_gate");
    const size_t n = (stack ? stack : 1) * rows * cols;
    uint16_t *bf16 = must(malloc(n * sizeof *bf16));
    for (size_t i = 0; i < n; i++)
        bf16[i] = to_bf16(v[i]);
    if (p->quantised)
        put_mlx(&p->mlx, name, v, stack, rows, cols, eight ? 8 : 4, GROUP);
    else
        put_rows(&p->mlx, name, "BF16", stack, rows, cols, bf16, 2 * n);
    free(bf16);
}

/* [E][2 F][D] -> gate and up, each [E][F][D]; and back. */
static void put_gate_up(pair *p, const char *name, float *v, uint64_t E, uint64_t F, uint64_t D)
{
    static const char *const names[2] = {".switch_mlp.gate_proj.weight",
                                         ".switch_mlp.up_proj.weight"};
    float *one = must(malloc(E * F * D * sizeof *one));
    for (uint64_t k = 0; k < 2; k++) {
        for (uint64_t e = 0; e < E; e++)
            memcpy(one + e * F * D, v + (2 * e + k) * F * D, F * D * sizeof *one);
        put_matrix(p, mlx_name(name, ".experts.gate_up_proj", names[k]), one, E, F, D);
        for (uint64_t e = 0; e < E; e++)
            memcpy(v + (2 * e + k) * F * D, one + e * F * D, F * D * sizeof *one);
    }
    free(one);
}

static void put_vector(writer *w, const char *name, uint64_t n, const float *v)
{
    char shape[32];
    snprintf(shape, sizeof shape, "%llu", (unsigned long long)n);
    put_tensor(w, name, "F32", shape, v, n * sizeof *v);
}

static void put(pair *p, const sl_tensor *t, float *v)
{
    const uint64_t *d = t->dims;
    const char *name = mlx_name(t->name, "", "");
    if (ends_in(t->name, ".experts.gate_up_proj")) {
        put_gate_up(p, t->name, v, d[0], d[1] / 2, d[2]);
    } else if (ends_in(t->name, ".experts.down_proj")) {
        put_matrix(p, mlx_name(t->name, ".experts.down_proj", ".switch_mlp.down_proj.weight"), v,
                   d[0], d[1], d[2]);
    } else if (ends_in(t->name, "conv1d.weight")) {
        put_rows(&p->mlx, name, "F32", d[0], d[2], 1, v, t->n_values * sizeof *v);
    } else if (t->n_dims == 2) {
        put_matrix(p, name, v, 0, d[0], d[1]);
    } else {
        float *plus = must(malloc(t->n_values * sizeof *plus));
        for (uint64_t i = 0; i < t->n_values; i++)
            plus[i] = is_norm(t->name) ? v[i] + 1 : v[i];
        put_vector(&p->mlx, name, t->n_values, plus);
        free(plus);
    }
    if (t->n_dims == 1)
        put_vector(&p->plain, t->name, t->n_values, v);
    else
        put_rows(&p->plain, t->name, "F32", t->n_dims == 3 ? d[0] : 0, d[t->n_dims - 2],
                 d[t->n_dims - 1], v, t->n_values * sizeof *v);
}

static float *floats_of(const sl_checkpoint *c, const sl_tensor *t)
{
    uint64_t n = 0;
    uint8_t *stored = must(golden(c, t->name, &n));
    float *v = must(malloc(n * sizeof *v));
    for (uint64_t i = 0; i < n; i++)
        if (t->type == SL_F32)
            memcpy(v + i, stored + 4 * i, 4);
        else
            v[i] = sl_bfloat_to_float(sl_load_u16(stored + 2 * i));
    free(stored);
    return v;
}

static void make(const char *mlx, const char *plain, bool quantised)
{
    static const char bits[] =
        ",\"quantization\":{\"group_size\":64,\"bits\":4,\"language_model.model."
        "layers.0.mlp.gate\":{\"group_size\":64,\"bits\":8}}}";
    sl_checkpoint *c = NULL;
    pair p = {.quantised = quantised};
    mkdir(mlx, 0777);
    mkdir(plain, 0777);
    if (!CHECK(sl_checkpoint_open(test_data("models/qwen3_5_moe"), &c, NULL) == SL_OK))
        exit(1);
    for (uint32_t i = 0; i < sl_checkpoint_tensor_count(c); i++) {
        const sl_tensor *t = sl_checkpoint_tensor(c, i);
        if (!strncmp(t->name, "mtp.", 4) || !strncmp(t->name, "model.visual.", 13))
            continue;
        float *v = floats_of(c, t);
        put(&p, t, v);
        free(v);
    }
    finish(&p.mlx, mlx);
    finish(&p.plain, plain);
    write_config(mlx, "models/qwen3_5_moe", quantised ? bits : "}");
    write_config(plain, "models/qwen3_5_moe", "}");
    sl_checkpoint_close(&c);
}

static int32_t ids[T];
static float want[T * V], got[T * V];

static bool answer(const char *path, const setting *s, float out[T * V])
{
    loaded l;
    sl_err err = {0};
    if (!CHECK(load(path, s, &l, &err) == SL_OK, "%s", err.text))
        return false;
    const bool ok = CHECK(eval(&l, ids, T, true, out, &err) == SL_OK, "%s", err.text);
    unload(&l);
    return ok;
}

static void same(const char *path, const setting *s)
{
    if (answer(path, s, got))
        CHECK(!memcmp(got, want, sizeof got), "max difference %g",
              max_difference(got, want, T * V, NULL));
}

int main(void)
{
    char dir[] = "/tmp/sluice-mlx-XXXXXX", path[4][64], command[64];
    static const char *const names[4] = {"bf16", "bf16-plain", "4bit", "4bit-plain"};
    uint64_t seed = 3;
    double rms = 0;
    setting s = setting_default();
    for (int i = 0; i < T; i++)
        ids[i] = (int32_t)(test_random(&seed) % V);
    if (!CHECK(mkdtemp(dir) != NULL))
        return test_end();
    for (int i = 0; i < 4; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", dir, names[i]);
    make(path[0], path[1], false);
    make(path[2], path[3], true);

    test_case("not quantised");
    if (answer(test_data("models/qwen3_5_moe"), &s, want))
        same(path[0], &s);
    test_case("quantised");
    if (answer(path[3], &s, want) && answer(path[2], &s, got)) {
        const double most = max_difference(want, got, T * V, &rms);
        printf("against the same values in F32: max %.3g, rms %.3g\n", most, rms);
        /* Logits spread by about 3. Twice the noise of the Q4_K_M file of this model
         * (models_golden.c): here the router, too, reads int8 activations, and chooses another
         * expert now and then. */
        CHECK(rms > 0 && rms < 4 * 0.1189, "rms %g", rms);
        memcpy(want, got, sizeof want);
        s.memory = 0;
        s.threads = 1;
        s.chunk = s.logits_rows = 7;
        s.level = SL_CPU_SCALAR;
        same(path[2], &s);
    }
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK(system(command) == 0);
    return test_end();
}
