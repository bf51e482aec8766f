/* Proves: the pass computes what the reference implementation computes. bf16 folders against
 * transformers' float32 logits (whole, in two chunks, hidden states, greedy text); Q4_K_M files
 * against the same weights dequantised and run in float32.
 *
 * Tolerances. bf16 weights, float activations: 1e-3 (the reference differs from itself by up to
 * 7e-5 between one call and token by token). Q4_K_M: activations are rounded to int8 inside the
 * products, as in llama.cpp, whose own distance on these files is max 0.46, rms 0.085 (llama) and
 * max 0.37, rms 0.077 (qwen3), max 1.52, rms 0.237 (qwen3_5, and max 1.43, rms 0.119 qwen3_5_moe,
 * whose states carry noise on); the bound is twice its rms. */
#include "lib_model.h"

enum { T = 48, V = 512, GREEDY = 32 };

/* The text goes on as recorded; where noise is allowed, up to a step whose two candidates are
 * closer than it. */
static void greedy_from(loaded *l, const float *last, const int32_t *want, uint32_t n, double noise)
{
    float logits[V];
    sl_err err = {0};
    memcpy(logits, last, sizeof logits);
    for (uint32_t i = 0; i < n; i++) {
        int32_t id = argmax(logits, V);
        double margin = (double)logits[id] - (double)logits[want[i]];
        CHECK(id == want[i] || margin <= noise, "step %u: %d, expected %d, %g apart", i, id,
              want[i], margin);
        if (id != want[i])
            return;
        if (!CHECK(eval(l, &id, 1, false, logits, &err) == SL_OK, "%s", err.text))
            return;
    }
}

typedef struct hidden_ctx {
    const sl_checkpoint *gold;
    double worst; /* relative to the largest value of its tensor */
    uint32_t seen;
} hidden_ctx;

static void compare_hidden(void *ctx, uint32_t index, uint32_t first, uint32_t n, const float *rows)
{
    hidden_ctx *h = ctx;
    char name[32];
    uint64_t count = 0;
    snprintf(name, sizeof name, "hidden.%u", index);
    float *want = golden(h->gold, name, &count);
    if (!CHECK(want != NULL, "%s", name))
        return;
    const size_t width = (size_t)count / T;
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)want[i]));
    h->worst =
        fmax(h->worst, max_difference(rows, want + first * width, n * width, NULL) / largest);
    h->seen++;
    free(want);
}

static void check_folder(const char *model)
{
    char path[256];
    sl_checkpoint *gold = NULL;
    sl_err err = {0};
    loaded l;
    test_case("%s", model);
    snprintf(path, sizeof path, "models/%s/golden.safetensors", model);
    if (!CHECK(sl_checkpoint_open(test_data(path), &gold, &err) == SL_OK, "%s", err.text))
        return;
    snprintf(path, sizeof path, "models/%s", model);
    setting s = setting_default();
    if (!CHECK(load(test_data(path), &s, &l, &err) == SL_OK, "%s", err.text)) {
        sl_checkpoint_close(&gold);
        return;
    }
    int32_t ids[T], want_greedy[GREEDY];
    static float logits[T * V];
    uint64_t n;
    CHECK(golden_ids(gold, "tokens", ids, T) == T);
    CHECK(golden_ids(gold, "greedy", want_greedy, GREEDY) == GREEDY);
    float *want = golden(gold, "logits", &n), *want2 = golden(gold, "logits_2chunks", &n);

    hidden_ctx h = {gold, 0, 0};
    sl_eval e = {.ids = ids, .n = T, .hidden = compare_hidden, .ctx = &h};
    CHECK(sl_session_eval(l.session, &e, &err) == SL_OK, "%s", err.text);
    CHECK(h.seen == sl_model_about(l.model).n_layers + 1 && h.worst <= 1e-3, "hidden: %g", h.worst);

    CHECK(sl_session_rewind(l.session, 0, &err) == SL_OK);
    CHECK(eval(&l, ids, T, true, logits, &err) == SL_OK, "%s", err.text);
    double d = max_difference(logits, want, T * V, NULL);
    CHECK(d <= 1e-3, "logits: %g", d);
    printf("%-10s logits %.2g, hidden %.2g (relative)\n", model, d, h.worst);
    greedy_from(&l, logits + (T - 1) * V, want_greedy, GREEDY, 0);

    CHECK(sl_session_rewind(l.session, 29, &err) == SL_OK);
    CHECK(eval(&l, ids + 29, 19, true, logits, &err) == SL_OK, "%s", err.text);
    d = max_difference(logits, want2, 19 * V, NULL);
    CHECK(d <= 1e-3, "after a rewind: %g", d);
    free(want);
    free(want2);
    unload(&l);
    sl_checkpoint_close(&gold);
}

/* Experts and weights of every layer, best first, as recorded. */
typedef struct router_ctx {
    const sl_checkpoint *gold;
    uint32_t seen;
} router_ctx;

static void compare_router(void *ctx, uint32_t layer, uint32_t first, uint32_t n, uint32_t k,
                           const uint32_t *ids, const float *weights)
{
    router_ctx *r = ctx;
    char name[32];
    int32_t want[T * 16];
    uint64_t count = 0;
    snprintf(name, sizeof name, "router.%u.ids", layer);
    CHECK(golden_ids(r->gold, name, want, T * 16) == T * k);
    snprintf(name, sizeof name, "router.%u.weights", layer);
    float *want_weights = golden(r->gold, name, &count);
    if (!CHECK(want_weights && count == T * k, "%s", name))
        return;
    uint32_t same = 0;
    for (uint32_t i = 0; i < n * k; i++)
        same += (int32_t)ids[i] == want[first * k + i];
    CHECK(same == n * k, "layer %u: %u of %u experts", layer, same, n * k);
    const double d = max_difference(weights, want_weights + first * k, n * k, NULL);
    CHECK(d <= 1e-4, "layer %u: weights %g", layer, d);
    free(want_weights);
    r->seen++;
}

static void check_router(const char *model)
{
    char path[256];
    sl_err err = {0};
    loaded l;
    test_case("%s: router", model);
    router_ctx r = {NULL, 0};
    sl_checkpoint *gold = NULL;
    snprintf(path, sizeof path, "models/%s/golden.safetensors", model);
    if (!CHECK(sl_checkpoint_open(test_data(path), &gold, &err) == SL_OK, "%s", err.text))
        return;
    r.gold = gold;
    snprintf(path, sizeof path, "models/%s", model);
    setting s = setting_default();
    if (CHECK(load(test_data(path), &s, &l, &err) == SL_OK, "%s", err.text)) {
        int32_t ids[T];
        CHECK(golden_ids(gold, "tokens", ids, T) == T);
        sl_eval e = {.ids = ids, .n = T, .router = compare_router, .ctx = &r};
        CHECK(sl_session_eval(l.session, &e, &err) == SL_OK, "%s", err.text);
        CHECK(r.seen == sl_model_about(l.model).n_layers, "%u layers", r.seen);
        unload(&l);
    }
    sl_checkpoint_close(&gold);
}

/* llama.cpp's own distance. */
typedef struct llama_cpp {
    double max, rms;
} llama_cpp;

/* kv Q8: rounded keys and values may cost as much again as the weights and activations. */
static void check_gguf(const char *model, const int32_t *greedy, llama_cpp noise, sl_kv_type kv)
{
    char path[256];
    sl_checkpoint *gold = NULL, *prompt = NULL;
    sl_err err = {0};
    loaded l;
    test_case("%s-Q4_K_M.gguf, kv %s", model, sl_kv_name(kv));
    snprintf(path, sizeof path, "models/%s.logits.safetensors", model);
    CHECK(sl_checkpoint_open(test_data(path), &gold, &err) == SL_OK, "%s", err.text);
    snprintf(path, sizeof path, "models/%s/golden.safetensors", model);
    CHECK(sl_checkpoint_open(test_data(path), &prompt, &err) == SL_OK, "%s", err.text);
    snprintf(path, sizeof path, "models/%s-Q4_K_M.gguf", model);
    setting s = setting_default();
    s.kv = kv;
    if (!gold || !prompt || !CHECK(load(test_data(path), &s, &l, &err) == SL_OK, "%s", err.text))
        return;
    int32_t ids[T];
    static float logits[T * V];
    uint64_t n;
    double rms;
    CHECK(golden_ids(prompt, "tokens", ids, T) == T);
    float *want = golden(gold, "Q4_K_M.logits_exact", &n);
    CHECK(eval(&l, ids, T, true, logits, &err) == SL_OK, "%s", err.text);
    double d = max_difference(logits, want, T * V, &rms);
    CHECK(rms <= 2 * noise.rms, "rms %g", rms);
    printf("%s-Q4_K_M.gguf, kv %s, against exact: max %.3f, rms %.4f (llama.cpp: rms %.4f)\n",
           model, sl_kv_name(kv), d, rms, noise.rms);
    greedy_from(&l, logits + (T - 1) * V, greedy, 24, noise.max);
    free(want);
    unload(&l);
    sl_checkpoint_close(&gold);
    sl_checkpoint_close(&prompt);
}

int main(void)
{
    /* exact_greedy of the files, which llama.cpp follows too */
    static const int32_t llama[24] = {204, 176, 40,  454, 35, 128, 356, 128, 400, 321, 51, 204,
                                      176, 194, 506, 34,  84, 128, 451, 483, 167, 255, 96, 40};
    static const int32_t qwen3[24] = {388, 486, 333, 507, 316, 220, 468, 293, 323, 70,  293, 323,
                                      70,  29,  372, 244, 447, 207, 85,  239, 287, 139, 389, 205};
    static const int32_t qwen3_5_moe[24] = {164, 0,   99,  55,  183, 368, 261, 261,
                                            456, 330, 418, 421, 167, 438, 445, 505,
                                            383, 322, 511, 27,  508, 335, 420, 200};
    static const int32_t qwen3_5[24] = {170, 461, 85,  183, 2,   183, 467, 50,  131, 41,  128, 411,
                                        312, 414, 130, 203, 328, 371, 314, 474, 467, 438, 248, 511};
    static const int32_t qwen3_moe[24] = {489, 96,  170, 384, 110, 111, 500, 100,
                                          500, 100, 500, 100, 500, 100, 500, 100,
                                          500, 100, 500, 92,  254, 96,  506, 469};
    check_folder("llama");
    check_folder("llama_tied");
    check_folder("qwen3");
    check_folder("qwen3_5");
    check_folder("qwen3_5_vl");
    check_folder("qwen3_next");
    check_router("qwen3_next");
    check_gguf("llama", llama, (llama_cpp){0.46, 0.08496}, SL_KV_F32);
    check_gguf("llama", llama, (llama_cpp){0.46, 0.08496}, SL_KV_Q8);
    check_gguf("qwen3", qwen3, (llama_cpp){0.46, 0.07689}, SL_KV_F32);
    check_gguf("qwen3", qwen3, (llama_cpp){0.46, 0.07689}, SL_KV_Q8);
    check_folder("qwen3_moe");
    check_router("qwen3_moe");
    check_folder("qwen3_5_moe");
    check_router("qwen3_5_moe");
    check_gguf("qwen3_moe", qwen3_moe, (llama_cpp){0.46, 0.05258}, SL_KV_F32);
    check_gguf("qwen3_5_moe", qwen3_5_moe, (llama_cpp){1.43, 0.1189}, SL_KV_F32);
    check_gguf("qwen3_5", qwen3_5, (llama_cpp){1.52, 0.2372}, SL_KV_F32);
    check_gguf("qwen3_5", qwen3_5, (llama_cpp){1.52, 0.2372}, SL_KV_Q8);
    return test_end();
}
