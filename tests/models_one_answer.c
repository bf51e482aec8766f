/* Proves: the logits are the same bytes whatever the settings: budget floor, half, everything;
 * engines; threads; prefill chunk; part size; CPU level; experts guessed, not guessed or guessed
 * wrong. Each setting is varied alone and all
 * together at random, against one baseline (scalar, one thread, everything in memory). */
#include "lib_model.h"

enum { T = 70, V = 512, RANDOM_CASES = 24 };

static int32_t ids[T];
static float baseline[T * V], logits[T * V];

static void name_of(const setting *s, char *out, size_t cap)
{
    snprintf(
        out, cap, "kv %s, memory %lld, %s, %u threads, chunk %u/%u, %s, parts %llu, predict %d",
        sl_kv_name(s->kv), (long long)s->memory, sl_io_name(s->io), s->threads, s->chunk,
        s->logits_rows, sl_cpu_level_name(s->level), (unsigned long long)s->part_bytes, s->predict);
}

static bool answer(const char *path, const setting *s, float *out, sl_split *split)
{
    loaded l;
    sl_err err = {0};
    if (!CHECK(load(path, s, &l, &err) == SL_OK, "%s", err.text))
        return false;
    /* a prefill in chunks, then single tokens: both kinds of pass */
    bool ok = CHECK(eval(&l, ids, T - 6, true, out, &err) == SL_OK, "%s", err.text);
    for (uint32_t t = T - 6; ok && t < T; t++)
        ok = CHECK(eval(&l, ids + t, 1, false, out + (size_t)t * V, &err) == SL_OK, "%s", err.text);
    *split = l.split;
    unload(&l);
    return ok;
}

static void same(const char *path, const setting *s, bool streams)
{
    char name[256];
    sl_split split;
    name_of(s, name, sizeof name);
    test_case("%s: %s", path, name);
    memset(logits, 0, sizeof logits);
    if (!answer(path, s, logits, &split))
        return;
    CHECK(!memcmp(logits, baseline, sizeof logits), "max difference %g",
          max_difference(logits, baseline, T * V, NULL));
    CHECK(!streams || split.streamed_bytes > 0, "nothing was streamed");
    CHECK(!streams || !split.on_demand_parts || split.pool_slots < split.on_demand_parts,
          "all experts stayed");
}

static uint64_t half_memory(const char *path, uint64_t part_bytes)
{
    sl_model *m = NULL;
    sl_err err = {0};
    sl_split split = {0};
    const sl_model_options mo = {part_bytes};
    if (!CHECK(sl_model_open(path, &mo, &m, &err) == SL_OK, "%s", err.text))
        return 0;
    setting s = setting_default();
    uint64_t all = stream_memory(sl_model_plan(m), &s, &split);
    sl_model_close(&m);
    return (split.floor_bytes + all) / 2;
}

static void check_model(const char *path, sl_kv_type kv)
{
    static const sl_io engines[] = {SL_IO_DIRECT, SL_IO_MAPPED, SL_IO_PREAD};
    static const uint32_t chunks[] = {1, 7, 512};
    const uint64_t small_parts = 64 << 10;
    const uint64_t memories[] = {0, half_memory(path, small_parts), UINT64_MAX};
    setting s = setting_default();
    sl_split split;
    s.threads = 1;
    s.level = SL_CPU_SCALAR;
    s.kv = kv;
    if (!answer(path, &s, baseline, &split))
        return;
    setting base = setting_default();
    base.part_bytes = small_parts;
    base.kv = kv;
    for (int e = 0; e < 3; e++)
        for (int m = 0; m < 3; m++) {
            s = base;
            s.io = engines[e];
            s.memory = memories[m];
            same(path, &s, m == 0);
        }
    for (unsigned t = 1; t <= 3; t++) {
        s = base;
        s.threads = t;
        same(path, &s, false);
    }
    for (int c = 0; c < 3; c++) {
        s = base;
        s.chunk = s.logits_rows = chunks[c];
        same(path, &s, false);
    }
    for (int level = 0; level <= (int)sl_cpu_best(); level++) {
        s = base;
        s.level = (sl_cpu_level)level;
        same(path, &s, false);
    }
    static const int32_t predict[] = {0, SL_PREDICT_AUTO, 2, 8, SL_PREDICT_WRONG};
    for (int i = 0; i < 15; i++) {
        s = base;
        s.predict = predict[i / 3];
        s.memory = memories[i % 3];
        same(path, &s, i % 3 == 0);
    }
    uint64_t seed = 42;
    int cases = getenv("SL_TEST_QUICK") ? RANDOM_CASES / 6 : RANDOM_CASES;
    for (int i = 0; i < cases; i++) {
        s = base;
        s.io = engines[test_random(&seed) % 3];
        s.memory = memories[test_random(&seed) % 3];
        s.threads = 1 + (unsigned)(test_random(&seed) % 3);
        s.chunk = s.logits_rows = chunks[test_random(&seed) % 3];
        s.level = (sl_cpu_level)(test_random(&seed) % ((uint64_t)sl_cpu_best() + 1));
        s.predict = predict[test_random(&seed) % 5];
        same(path, &s, false);
    }
}

int main(void)
{
    uint64_t seed = 7;
    for (int i = 0; i < T; i++)
        ids[i] = (int32_t)(test_random(&seed) % V);
    check_model(test_data("models/qwen3_moe-Q4_K_M.gguf"), SL_KV_F32);
    check_model(test_data("models/qwen3_moe"), SL_KV_F32);
    check_model(test_data("models/llama-Q4_K_M.gguf"), SL_KV_F32);
    check_model(test_data("models/qwen3"), SL_KV_F32);
    check_model(test_data("models/qwen3"), SL_KV_Q8);
    check_model(test_data("models/qwen3_5_vl"), SL_KV_F16);
    check_model(test_data("models/qwen3_next"), SL_KV_F32);
    check_model(test_data("models/qwen3_5-Q4_K_M.gguf"), SL_KV_F32);
    check_model(test_data("models/qwen3_5_moe-Q4_K_M.gguf"), SL_KV_F32);
    return test_end();
}
