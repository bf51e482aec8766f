/* Proves, on the model that ships with the program (a trained mixture of experts with gated delta
 * nets, Q4_K_M): it chooses the experts, gives the logits and writes the text of the reference, as
 * far as four bits allow; and the same bits with the least memory, guesses on and off. The
 * reference is the model in bf16 with float32 arithmetic (the folder itself agrees with it
 * to 1.1e-5, every expert and token included), so the bounds below are on what quantising does to a
 * trained model. */
#include "lib_model.h"

enum { T = 64, V = 4096, K = 4, LAYERS = 8 };

static sl_err err;
static sl_checkpoint *gold;

typedef struct router_ctx {
    uint32_t seen, experts, same, first_same;
} router_ctx;

static void compare_router(void *ctx, uint32_t layer, uint32_t first, uint32_t n, uint32_t k,
                           const uint32_t *ids, const float *weights)
{
    router_ctx *r = ctx;
    int32_t want[T * K];
    char name[32];
    (void)weights;
    snprintf(name, sizeof name, "router.%u.ids", layer);
    if (!CHECK(k == K && golden_ids(gold, name, want, T * K) == T * K, "%s", name))
        return;
    for (uint32_t t = 0; t < n; t++) {
        const uint32_t *got = ids + t * K;
        const int32_t *row = want + (first + t) * K;
        r->first_same += (int32_t)got[0] == row[0];
        for (uint32_t i = 0; i < K; i++)
            for (uint32_t j = 0; j < K; j++)
                r->same += (int32_t)got[i] == row[j];
    }
    r->experts += n * k;
    r->seen++;
}

static double perplexity(const float *logits, const int32_t *ids)
{
    double sum = 0;
    for (uint32_t t = 0; t + 1 < T; t++) {
        const float *x = logits + (size_t)t * V;
        const double most = (double)x[argmax(x, V)];
        double total = 0;
        for (uint32_t i = 0; i < V; i++)
            total += exp((double)x[i] - most);
        sum += log(total) + most - (double)x[ids[t + 1]];
    }
    return exp(sum / (T - 1));
}

/* The recorded text goes on, up to a step whose best logits are closer than quantising moves them.
 */
static void check_text(loaded *l, const float *last, double noise)
{
    static float logits[V];
    int32_t want[T];
    uint64_t n = 0;
    float *margin = golden(gold, "greedy.margins", &n);
    CHECK(n == T && golden_ids(gold, "greedy.tokens", want, T) == T);
    memcpy(logits, last, sizeof logits);
    for (uint32_t i = 0; margin && i < T; i++) {
        const int32_t id = argmax(logits, V);
        CHECK(id == want[i] || (double)margin[i] < noise, "step %u: %d, expected %d, %g apart", i,
              id, want[i], (double)margin[i]);
        if (id != want[i] || !CHECK(eval(l, &id, 1, false, logits, &err) == SL_OK, "%s", err.text))
            break;
    }
    free(margin);
}

static void check_reference(const char *path, const int32_t *ids, float *logits)
{
    loaded l;
    uint64_t n = 0;
    double rms;
    setting s = setting_default();
    test_case("%s against the reference", path);
    if (!CHECK(load(path, &s, &l, &err) == SL_OK, "%s", err.text))
        return;
    float *want = golden(gold, "logits", &n);
    router_ctx r = {0};
    sl_eval e = {.ids = ids, .n = T, .router = compare_router, .ctx = &r};
    CHECK(n == (uint64_t)T * V && sl_session_eval(l.session, &e, &err) == SL_OK, "%s", err.text);
    CHECK(sl_session_rewind(l.session, 0, &err) == SL_OK, "%s", err.text);
    CHECK(eval(&l, ids, T, true, logits, &err) == SL_OK, "%s", err.text);
    const double most = max_difference(logits, want, (size_t)T * V, &rms);
    const double ours = perplexity(logits, ids), its = perplexity(want, ids);
    printf(
        "logits: max %.3f, rms %.3f; experts: %u of %u, first choices: %u of %u; perplexity %.4f, "
        "bf16 %.4f\n",
        most, rms, r.same, r.experts, r.first_same, r.experts / K, ours, its);
    CHECK(rms <= 0.15, "logits: %g", rms);
    CHECK(r.seen == LAYERS && r.same >= 0.93 * r.experts && r.first_same * K >= 0.93 * r.experts,
          "experts: %u, first choices: %u, of %u in %u layers", r.same, r.first_same, r.experts,
          r.seen);
    CHECK(fabs(ours - its) <= 0.01 * its, "perplexity %g, expected %g", ours, its);
    check_text(&l, logits + (size_t)(T - 1) * V, 0.5);
    free(want);
    unload(&l);
}

/* A prefill, then tokens one by one, which are what guesses are made for. */
static void check_memory(const char *path, const int32_t *ids, const float *want, uint64_t memory,
                         int32_t predict)
{
    static float logits[(size_t)T * V];
    loaded l;
    setting s = setting_default();
    s.memory = memory;
    s.predict = predict;
    s.part_bytes = 256 << 10;
    test_case("memory %lld, predict %d", (long long)memory, (int)predict);
    if (!CHECK(load(path, &s, &l, &err) == SL_OK, "%s", err.text))
        return;
    CHECK(eval(&l, ids, 20, true, logits, &err) == SL_OK, "%s", err.text);
    for (uint32_t t = 20; t < T; t++)
        CHECK(eval(&l, ids + t, 1, false, logits + (size_t)t * V, &err) == SL_OK, "%s", err.text);
    CHECK(!memcmp(logits, want, sizeof logits), "max difference %g",
          max_difference(logits, want, (size_t)T * V, NULL));
    unload(&l);
}

int main(int argc, char **argv)
{
    static float logits[(size_t)T * V];
    int32_t ids[T];
    const char *path = argc > 1 ? argv[1] : "demo/demo-Q4_K_M.gguf";
    if (!CHECK(sl_checkpoint_open(test_data("models/demo.golden.safetensors"), &gold, &err) ==
                   SL_OK,
               "%s", err.text))
        return test_end();
    CHECK(golden_ids(gold, "tokens", ids, T) == T);
    check_reference(path, ids, logits);
    check_memory(path, ids, logits, 0, 0);
    check_memory(path, ids, logits, 0, SL_PREDICT_AUTO);
    check_memory(path, ids, logits, 6 << 20, 0);
    check_memory(path, ids, logits, 6 << 20, SL_PREDICT_AUTO);
    check_memory(path, ids, logits, UINT64_MAX, SL_PREDICT_AUTO);
    sl_checkpoint_close(&gold);
    return test_end();
}
