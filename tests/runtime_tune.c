/* What this proves: the parts of sluice tune that need no clock. Settings are read and shown as
 * options are; a space has each option's values, and says nothing where nothing matters; the search
 * on a real trace is no worse than every single option tried by hand, from bad starts as well; and
 * what counts as certain is what the sign test says. */
#include <string.h>

#include "../runtime/command.h"
#include "../runtime/kept.h"
#include "../runtime/tune_race.h"
#include "../runtime/tune_simulate.h"
#include "lib_test.h"

/* The table lives in main.c, which tests do not link. */
const sl_command *sl_commands(void)
{
    static const sl_command none = {0};
    return &none;
}

static void settings(void)
{
    char text[SL_SETTING_TEXT];
    sl_setting s = {0};
    sl_options o = sl_options_default();
    sl_err err = {0};
    test_case("settings");
    CHECK(!strcmp(sl_setting_show(text, &s), "the defaults"));
    CHECK(!sl_setting_add(&s, "ring", "98304K", &err) &&
          !sl_setting_add(&s, "predict", "off", &err) &&
          !sl_setting_add(&s, "policy", "lfu", &err) &&
          !sl_setting_add(&s, "half-life", "2.5", &err) &&
          !sl_setting_add(&s, "threads", "3", &err) && !sl_setting_add(&s, "ring", "96M", &err));
    CHECK(!strcmp(sl_setting_show(text, &s),
                  "--ring 96M --predict off --policy lfu --half-life 2.5 --threads 3"),
          "%s", text);
    CHECK(sl_setting_add(&s, "temp", "1", &err) == SL_EINVAL &&
              !strcmp(err.text, "unknown option 'temp'"),
          "%s", err.text);
    err = (sl_err){0};
    CHECK(sl_setting_add(&s, "io", "fast", &err) == SL_EINVAL && strstr(err.text, "--io: 'fast'"));
    CHECK(!sl_args_set(&o, "ring", "1M", NULL) && sl_args_given(&o, "ring") &&
          !sl_args_given(&o, "policy"));
    const sl_setting used = sl_setting_apply(&s, true, &o);
    CHECK(used.n == 4 && o.ring_bytes == 1 << 20 && o.predict == 0 && o.policy == SL_POLICY_LFU &&
          o.half_life == 2.5 && o.threads == 3);
    const sl_setting given = sl_setting_given(&o);
    CHECK(given.n == 5 && strstr(sl_setting_show(text, &given), "--ring 1M "), "%s", text);
    sl_args_open(&o);
    CHECK(!sl_args_given(&o, "ring") && !o.ring_bytes && o.predict == SL_PREDICT_AUTO &&
          o.policy == -1 && !o.threads);
    sl_setting every = {0};
    for (uint32_t i = 0; sl_args_kept(i); i++) /* as the parser gives it back */
        CHECK(!sl_setting_add(&every, sl_args_kept(i),
                              !strcmp(sl_args_kept(i), "policy") ? "lru"
                              : !strcmp(sl_args_kept(i), "io")   ? "pread"
                              : !strcmp(sl_args_kept(i), "part") ? "64K"
                                                                 : "7",
                              NULL),
              "%s", sl_args_kept(i));
    CHECK(every.n == 12, "%u", every.n);
}

static const sl_dim *dim_of(const sl_space *s, const char *name)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (!strcmp(s->dim[i].name, name))
            return &s->dim[i];
    return NULL;
}

/* What a run of a mixture with streamed parts was like. */
static sl_trial streaming(void)
{
    return (sl_trial){.budget_bytes = 1ull << 30,
                      .part_bytes = 16 << 20,
                      .chunk = 512,
                      .n_threads = 2,
                      .split = {.io = SL_IO_DIRECT,
                                .ring_bytes = 64 << 20,
                                .streamed_bytes = 200 << 20,
                                .pool_bytes = 50 << 20,
                                .pool_slots = 10,
                                .on_demand_parts = 100}};
}

static void spaces(void)
{
    const sl_survey moe = {.n_used = 8}, dense = {0};
    sl_trial t = streaming();
    sl_space s;
    test_case("spaces");
    sl_space_make(&s, &moe, &t, 512);
    for (uint32_t i = 0; sl_args_kept(i); i++)
        CHECK(dim_of(&s, sl_args_kept(i)), "--%s is not searched", sl_args_kept(i));
    const sl_dim *ring = dim_of(&s, "ring"), *io = dim_of(&s, "io"), *piece = dim_of(&s, "piece");
    CHECK(!strcmp(ring->value[1], "8M") && !strcmp(ring->value[ring->n - 1], "512M") &&
          !strcmp(ring->value[ring->usual], "64M") && ring->exact && ring->simulated);
    CHECK(sl_dim_place(ring, ring->usual) == 0 && sl_dim_place(ring, 1) == 1);
    CHECK(io->n == 2 && !strcmp(io->value[1], "pread") && !io->simulated && !io->usual);
    CHECK(!strcmp(piece->value[piece->usual], "1M"));
    sl_setting two = {0};
    sl_setting_add(&two, "ring", "77M", NULL);
    sl_setting_add(&two, "piece", "2M", NULL);
    const sl_point p = sl_space_point(&s, &two);
    const sl_setting back = sl_space_setting(&s, &p);
    char a[SL_SETTING_TEXT];
    CHECK(!strcmp(sl_setting_show(a, &back), "--ring 77M --piece 2M"), "%s", a);
    sl_space_make(&s, &dense, &t, 512);
    CHECK(dim_of(&s, "ring") && !dim_of(&s, "predict") && !dim_of(&s, "pool"));
    t.split = (sl_split){.io = SL_IO_MAPPED};
    sl_space_make(&s, &dense, &t, 512);
    CHECK(s.n == 3 && dim_of(&s, "io") && dim_of(&s, "threads") && dim_of(&s, "chunk"));
    sl_space_make(&s, &dense, &t, 16);
    CHECK(!dim_of(&s, "chunk"), "no prompt is longer than the smallest chunk");
}

static sl_tune_search search_of(sl_space *space, const sl_options *base, sl_trace *t)
{
    const sl_trace_about *a = sl_trace_about_of(t);
    return (sl_tune_search){.space = space,
                            .base = base,
                            .n_used = 2,
                            .budget_bytes =
                                a->options.memory_bytes + a->other_bytes - SL_TRACE_MEMORY,
                            .disk = {.bytes_per_s = 1e8, .latency_ns = 80000, .depth = 32},
                            .until_ns = UINT64_MAX};
}

static void simulations(const char *path)
{
    const sl_survey moe = {.n_used = 2};
    const sl_options base = sl_options_default();
    sl_trace *t = NULL;
    sl_err err = {0};
    test_case("%s", path);
    if (!CHECK(!sl_trace_open(path, &t, &err), "%s", err.text))
        return;
    sl_trial usual = streaming();
    usual.split.ring_bytes = 512 << 10;
    sl_space space;
    sl_space_make(&space, &moe, &usual, 16);
    sl_tune_search s = search_of(&space, &base, t);
    CHECK(!sl_tune_simulate(t, &s, &err) && s.n_runs > 10, "%s", err.text);
    const double best = s.n_found ? s.found[0].seconds : s.usual_s;
    CHECK(best <= s.usual_s && best > 0);
    for (uint32_t i = 1; i < s.n_found; i++)
        CHECK(s.found[i].seconds >= s.found[i - 1].seconds);
    sl_tune_search bad = search_of(&space, &base, t);
    for (uint32_t i = 0; i < space.n; i++) /* every option at its first value */
        bad.start.at[i] = space.dim[i].simulated;
    CHECK(!sl_tune_simulate(t, &bad, &err), "%s", err.text);
    const double from_bad = bad.n_found ? bad.found[0].seconds : bad.usual_s;
    CHECK(bad.usual_s == s.usual_s && from_bad <= best * 1.005, "%g from a bad start, %g", from_bad,
          best);
    /* No single option beats what was found. */
    for (uint32_t i = 0; i < space.n; i++)
        for (uint32_t v = 1; v < space.dim[i].n && space.dim[i].simulated; v++) {
            sl_space one = {.n = 1, .dim = {space.dim[i]}};
            one.dim[0].n = 1; /* only the start is looked at */
            sl_tune_search x = search_of(&one, &base, t);
            sl_options with = base;
            sl_args_set(&with, space.dim[i].name, space.dim[i].value[v], NULL);
            x.base = &with;
            CHECK(!sl_tune_simulate(t, &x, &err) && x.usual_s >= best * 0.996,
                  "--%s %s: %g, best %g", space.dim[i].name, space.dim[i].value[v], x.usual_s,
                  best);
        }
    sl_tune_search late = search_of(&space, &base, t);
    late.until_ns = 0;
    CHECK(!sl_tune_simulate(t, &late, &err) && !late.n_runs && !late.n_found, "no time");
    sl_trace_close(&t);
}

static sl_duel duel(uint32_t n, uint32_t faster, double gain)
{
    sl_duel d = {.n = n};
    for (uint32_t i = 0; i < n; i++) {
        d.other[i] = 1;
        d.usual[i] = i < faster ? 1 + gain : 0.99;
    }
    sl_duel_judge(&d);
    return d;
}

static void duels(void)
{
    test_case("duels");
    sl_duel d = duel(6, 6, 0.05);
    CHECK(d.faster == 6 && d.gain > 0.0499 && d.gain < 0.0501 && d.chance == 1.0 / 64);
    CHECK(sl_duel_won(&d) && !sl_duel_lost(&d));
    d = duel(5, 5, 0.5);
    CHECK(!sl_duel_won(&d), "five pairs are one in 32");
    d = duel(6, 6, 0.029);
    CHECK(!sl_duel_won(&d) && !sl_duel_lost(&d), "less than 3 %%");
    d = duel(6, 5, 0.1);
    CHECK(!sl_duel_won(&d) && d.chance > 0.1);
    d = duel(10, 9, 0.1);
    CHECK(sl_duel_won(&d) && d.chance == 11.0 / 1024);
    d = duel(6, 6, 0.01);
    CHECK(!sl_duel_won(&d) && sl_duel_lost(&d));
    d = duel(0, 0, 0);
    CHECK(!sl_duel_won(&d) && !sl_duel_lost(&d) && d.gain == 0);
    d = duel(SL_DUEL_PAIRS, SL_DUEL_PAIRS, 0.04);
    CHECK(sl_duel_won(&d) && d.chance > 0);
}

int main(void)
{
    settings();
    spaces();
    simulations("tests/data/fuzz/trace/dense");
    simulations("tests/data/fuzz/trace/moe");
    duels();
    return test_end();
}
