/* What this proves: what is expected of a split follows from its parts. The slower of disk and CPU
 * decides for a dense model; experts wait only for what is missing, less when it was guessed; more
 * memory, a faster disk or better guesses never make it slower, nothing beats the bound; hit rates
 * from kept uses are those of the uses, without what chance alone would spread; the terms of a
 * price add up. */
#include <math.h>
#include <string.h>

#include "../runtime/expect.h"
#include "../runtime/plan_report.h"
#include "lib_test.h"

#define MIB ((uint64_t)1 << 20)

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b) + 1e-15;
}

static sl_expect dense(void)
{
    return (sl_expect){.disk = sl_disk_speed_like(2e9, 100e-6),
                       .token_s = 0.1,
                       .row_s = 0.005,
                       .memory_bytes_per_s = 50e9,
                       .chunk = 512,
                       .prompt = 1024};
}

static void test_dense(void)
{
    sl_expect x = dense();
    sl_split s = {.weights_bytes = 4000000000, .streamed_bytes = 1000000000};
    sl_expectation e = sl_expect_of(&x, &s);
    test_case("dense");
    CHECK(near(e.token_s, 0.5) && near(e.read_s, 0.5) && near(e.compute_s, 0.1), "%g", e.token_s);
    CHECK(near(e.wait_s, 0.4) && near(e.bound_s, 0.5) && e.read_bytes == s.streamed_bytes, "disk");
    /* Two passes, each of 512 rows: 0.5 s of disk, 2.56 s of CPU. */
    CHECK(near(e.prompt_row_s, 0.005), "prompt %g", e.prompt_row_s);
    s.streamed_bytes = 100000000;
    e = sl_expect_of(&x, &s);
    CHECK(near(e.token_s, 0.1) && e.wait_s == 0 && near(e.bound_s, 0.08), "CPU %g", e.token_s);
    x.cores_shared = true;
    x.disk.cpu_s_per_byte = 1e-10;
    e = sl_expect_of(&x, &s);
    CHECK(near(e.token_s, 0.11), "the I/O thread holds them up: %g", e.token_s);
    x.row_s = 0.0001;
    s.streamed_bytes = 1000000000;
    e = sl_expect_of(&x, &s);
    CHECK(near(e.prompt_row_s, 1.0 / 1024), "the disk decides for prompts, too: %g",
          e.prompt_row_s);
    CHECK(near(e.first_prompt_s, 2.0 + 0.5), "the first one reads everything: %g",
          e.first_prompt_s);
    x.token_s = 0;
    CHECK(sl_expect_of(&x, &s).token_s == 0, "unknown kernels: nothing is expected");
}

static sl_expect experts(double hits, double recall)
{
    sl_expect x = dense();
    x.experts = (sl_expect_experts){.n_layers = 48,
                                    .n_experts = 128,
                                    .n_used = 8,
                                    .hit_rate = hits,
                                    .recall = recall,
                                    .wasted = 0.05};
    return x;
}

static void test_experts(void)
{
    const sl_split s = {.weights_bytes = 800 * MIB,
                        .on_demand_bytes = 6144 * 5 * MIB / 2,
                        .on_demand_parts = 6144,
                        .pool_slots = 1500,
                        .pool_bytes = 1500 * 5 * MIB / 2};
    sl_expect x = experts(1, 0.8);
    sl_expectation e = sl_expect_of(&x, &s);
    double before = 0;
    test_case("experts");
    CHECK(near(e.token_s, 0.1) && e.wait_s == 0 && e.read_bytes == 0, "all hit: %g", e.token_s);
    CHECK(e.used_bytes == (800 + 960) * MIB, "%llu used", (unsigned long long)e.used_bytes);
    for (int i = 10; i >= 0; i--) {
        x = experts(i / 10.0, 0.8);
        e = sl_expect_of(&x, &s);
        CHECK(e.token_s >= before && e.token_s >= e.bound_s && e.token_s >= e.compute_s,
              "hits %d of 10: %g after %g", i, e.token_s, before);
        CHECK(e.token_s <= e.compute_s + e.read_s + 48 * 0.001,
              "no slower than one after the other");
        before = e.token_s;
    }
    /* All missing, none guessed: 960 MiB at 2 GB/s, and the first of each layer takes longer. */
    x = experts(0, 0);
    e = sl_expect_of(&x, &s);
    CHECK(e.wait_s > 0.5 * e.read_s && e.wait_s <= e.read_s + 48 * 200e-6, "wait %g of %g",
          e.wait_s, e.read_s);
    const sl_expect guessed = experts(0.9, 0.9), demanded = experts(0.9, 0);
    CHECK(sl_expect_of(&guessed, &s).token_s < sl_expect_of(&demanded, &s).token_s, "guesses help");
    sl_expect fast = experts(0.5, 0.8);
    fast.disk = sl_disk_speed_like(4e9, 50e-6);
    x = experts(0.5, 0.8);
    CHECK(sl_expect_of(&fast, &s).token_s < sl_expect_of(&x, &s).token_s, "so does a faster disk");
    CHECK(sl_expect_of(&x, &s).prompt_row_s > x.row_s,
          "a prompt reads the experts without a place");
}

static void test_disk(void)
{
    sl_disk_speed d = sl_disk_speed_like(1e9, 1e-4);
    test_case("disk");
    CHECK(near(sl_disk_alone(&d, 65536), 1e-4 + 65536e-9), "a measured size");
    CHECK(near(sl_disk_alone(&d, 500000), 1e-4 + 5e-4), "between two: %g", sl_disk_alone(&d, 5e5));
    CHECK(near(sl_disk_alone(&d, 3e6), 1e-4 + 3e-3), "beyond: %g", sl_disk_alone(&d, 3e6));
    CHECK(near(sl_disk_alone(&d, 10), 1e-4 + 4096e-9), "never less than the smallest");
    sl_disk_speed_limit(&d, 1e8);
    CHECK(d.bytes_per_s == 1e8 && d.scattered_bytes_per_s == 1e8, "limited");
    CHECK(near(sl_disk_alone(&d, 1 << 20), (1 << 20) / 1e8), "single reads, too");
}

static void test_reuse(void)
{
    enum { LAYERS = 4, EXPERTS = 64, N = LAYERS * EXPERTS };
    float use[N];
    uint32_t unit[N];
    double hits[N + 1];
    uint64_t random = 1;
    test_case("reuse");
    CHECK(sl_reuse_usual(0) == 0 && sl_reuse_usual(1) == 1, "ends");
    for (int i = 1; i <= 20; i++)
        CHECK(sl_reuse_usual(i / 20.0) > sl_reuse_usual((i - 1) / 20.0) &&
                  sl_reuse_usual(i / 20.0) >= i / 20.0,
              "rises, and never under the share");
    for (uint32_t i = 0; i < N; i++) {
        use[i] = -INFINITY;
        unit[i] = i / EXPERTS;
    }
    CHECK(!sl_reuse_of_uses(use, unit, N, hits), "no uses, no hits");
    for (uint32_t i = 0; i < N; i++)
        use[i] = 1;
    CHECK(sl_reuse_of_uses(use, unit, N, hits) && hits[0] == 0 && hits[N] == 1, "ends");
    CHECK(fabs(hits[N / 2] - 0.5) < 1e-6, "used alike: the share, %g", hits[N / 2]);
    /* One expert in eight has nearly all uses. */
    for (uint32_t i = 0; i < N; i++)
        use[i] = i % 8 ? -3 : 7;
    CHECK(sl_reuse_of_uses(use, unit, N, hits) && hits[N / 8] > 0.95, "hot ones: %g", hits[N / 8]);
    /* Uses that differ by chance alone: sums over 2000 tokens, each expert used in 3 % of them. */
    for (uint32_t i = 0; i < N; i++) {
        double sum = 0;
        for (int t = 0; t < 2000; t++)
            sum = sum * exp2(-1.0 / 16) + (test_random(&random) % 1000 < 30);
        use[i] = (float)log2(sum);
    }
    CHECK(sl_reuse_of_uses(use, unit, N, hits) && hits[N / 4] < 0.35 && hits[N / 4] >= 0.25,
          "chance is not taken for a habit: %g", hits[N / 4]);
}

static void test_terms(void)
{
    sl_price p = {.split = {.pinned_bytes = 100, .ring_bytes = 20, .rows_bytes = 3, .io_bytes = 7}};
    sl_budget terms;
    test_case("terms");
    p.budget.limit_bytes = 1000;
    sl_budget_charge(&p.budget, "program", 300);
    sl_budget_charge(&p.budget, "weights and I/O", 150);
    sl_plan_terms(&p, &terms);
    CHECK(sl_budget_charged(&terms) == 1000, "%llu", (unsigned long long)sl_budget_charged(&terms));
    for (uint32_t i = 0; i < terms.n_terms; i++)
        if (!strcmp(terms.term[i].name, "left over"))
            CHECK(terms.term[i].bytes == 570, "%llu", (unsigned long long)terms.term[i].bytes);
}

int main(void)
{
    test_dense();
    test_experts();
    test_disk();
    test_reuse();
    test_terms();
    return test_end();
}
