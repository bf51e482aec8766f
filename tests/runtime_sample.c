/* What this proves: greedy picks the lowest of equal maxima; each filter keeps exactly the tokens
 * of its definition; draws follow the distribution; the same seed gives the same tokens; stop texts
 * are found across token borders and nothing else is held back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../runtime/sample.h"
#include "../runtime/stop.h"
#include "lib_test.h"

enum { N = 8 };

static const sl_sample_options PLAIN = {
    .temp = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repeat_penalty = 1, .seed = 42};

static int32_t pick_once(const float *logits, uint32_t n, sl_sample_options o)
{
    sl_sampler *s = sl_sampler_new(n, &o);
    if (!s)
        return -2;
    int32_t id = sl_sampler_pick(s, logits);
    sl_sampler_free(&s);
    return id;
}

static void greedy(void)
{
    float x[N] = {1, 5, 2, 5, -3, 5, 0, 4};
    sl_sample_options o = PLAIN;
    test_case("greedy");
    o.temp = 0;
    CHECK(pick_once(x, N, o) == 1);
    for (int i = 0; i < N; i++)
        x[i] = -INFINITY;
    x[6] = -1e30f;
    CHECK(pick_once(x, N, o) == 6);
    CHECK(pick_once(x, 1, o) == 0);
    o.temp = 1;
    o.top_k = 1;
    CHECK(pick_once(x, N, o) == 6);
}

/* 40000 draws against the expected probabilities: 5 standard deviations. */
static void follows(const float *logits, sl_sample_options o, const double *p)
{
    enum { DRAWS = 40000 };
    unsigned count[N] = {0};
    sl_sampler *s = sl_sampler_new(N, &o);
    for (int i = 0; i < DRAWS; i++) {
        int32_t id = sl_sampler_pick(s, logits);
        if (CHECK(id >= 0 && id < N))
            count[id]++;
    }
    sl_sampler_free(&s);
    for (int i = 0; i < N; i++) {
        double expected = p[i] * DRAWS, deviation = sqrt(p[i] * (1 - p[i]) * DRAWS);
        CHECK(fabs(count[i] - expected) <= 5 * deviation, "id %d: %u draws, expected %.0f", i,
              count[i], expected);
    }
}

static void distributions(void)
{
    /* Probabilities .4 .2 .1 .1 .1 .05 .03 .02, out of order. */
    static const double p[N] = {.1, .4, .05, .2, .1, .02, .1, .03};
    float x[N], equal[N] = {0};
    double q[N] = {0}, uniform[N];
    sl_sample_options o = PLAIN;
    for (int i = 0; i < N; i++) {
        x[i] = (float)log(p[i]) + 3;
        uniform[i] = 1.0 / N;
    }
    test_case("plain");
    follows(x, o, p);
    test_case("all equal");
    follows(equal, o, uniform);
    test_case("all equal, sorted");
    o.top_p = 0.999999;
    follows(equal, o, uniform);
    test_case("top-k beyond the vocabulary");
    o = PLAIN;
    o.top_k = 4000000000u;
    follows(x, o, p);
    test_case("top-k 2");
    o.top_k = 2;
    q[1] = 2.0 / 3, q[3] = 1.0 / 3;
    follows(x, o, q);
    test_case("top-k 3: the lowest id of equals");
    o.top_k = 3;
    q[1] = 4.0 / 7, q[3] = 2.0 / 7, q[0] = 1.0 / 7;
    follows(x, o, q);
    test_case("top-p .65");
    o = PLAIN;
    o.top_p = 0.65;
    follows(x, o, q);
    test_case("top-p .857 inside top-k 3");
    o.top_k = 3;
    o.top_p = 0.857; /* 6/7 is 0.85714 */
    q[1] = 2.0 / 3, q[3] = 1.0 / 3, q[0] = 0;
    follows(x, o, q);
    test_case("min-p .3");
    o = PLAIN;
    o.min_p = 0.3;
    follows(x, o, q);
    test_case("temperature .5 squares");
    o = PLAIN;
    o.top_k = 2;
    o.temp = 0.5;
    q[1] = 0.8, q[3] = 0.2;
    follows(x, o, q);
}

static void extremes(void)
{
    float x[N] = {0, 1, 2, 3, 3, 2, 1, 0};
    sl_sample_options o = PLAIN;
    test_case("extremes");
    o.top_p = 0;
    CHECK(pick_once(x, N, o) == 3);
    o = PLAIN;
    o.min_p = 1;
    int32_t id = pick_once(x, N, o);
    CHECK(id == 3 || id == 4);
    o = PLAIN;
    o.temp = 1e-9;
    id = pick_once(x, N, o);
    CHECK(id == 3 || id == 4);
    x[3] = 3.0001f;
    CHECK(pick_once(x, N, o) == 3);
    for (int i = 0; i < N; i++)
        x[i] = i == 5 ? 3e38f : -3e38f;
    o.temp = 100;
    CHECK(pick_once(x, N, o) == 5);
    for (int i = 0; i < N; i++)
        x[i] = i == 2 ? 0 : -INFINITY;
    CHECK(pick_once(x, N, o) == 2);
}

static void penalty(void)
{
    float x[N] = {4, 3.9f, -1, -1.5f, -9, -9, -9, -9};
    sl_sample_options o = PLAIN;
    test_case("penalty");
    o.temp = 0;
    o.repeat_penalty = 1.5;
    sl_sampler *s = sl_sampler_new(N, &o);
    CHECK(sl_sampler_pick(s, x) == 0);
    sl_sampler_accept(s, 0);
    CHECK(sl_sampler_pick(s, x) == 1);
    sl_sampler_accept(s, 1);
    CHECK(sl_sampler_pick(s, x) == 0);
    for (int i = 0; i < 10; i++)
        sl_sampler_accept(s, 0); /* counts once: 4 / 1.5, not 4 / 1.5^11 */
    CHECK(sl_sampler_pick(s, x) == 0);
    x[0] = x[1] = -2;
    sl_sampler_accept(s, 2); /* -1 becomes -1.5: the lower id of two equals */
    CHECK(sl_sampler_pick(s, x) == 2);
    sl_sampler_accept(s, 99);
    sl_sampler_accept(s, -5); /* ids outside are ignored */
    CHECK(sl_sampler_pick(s, x) == 2);
    for (int i = 0; i < SL_REPEAT_WINDOW; i++)
        sl_sampler_accept(s, 7); /* the window has moved on */
    x[0] = 4;
    x[1] = 3.9f;
    CHECK(sl_sampler_pick(s, x) == 0);
    sl_sampler_free(&s);
}

static void seeds(void)
{
    enum { BIG = 1000 };
    static float x[BIG];
    uint64_t state = 7;
    int same = 0, other = 0;
    test_case("seeds");
    for (int i = 0; i < BIG; i++)
        x[i] = test_random_float(&state);
    sl_sample_options o = PLAIN, p = PLAIN;
    o.top_p = p.top_p = 0.9;
    p.seed = 43;
    sl_sampler *a = sl_sampler_new(BIG, &o), *b = sl_sampler_new(BIG, &o),
               *c = sl_sampler_new(BIG, &p);
    for (int i = 0; i < 200; i++) {
        int32_t id = sl_sampler_pick(a, x);
        same += id == sl_sampler_pick(b, x);
        other += id == sl_sampler_pick(c, x);
    }
    CHECK(same == 200 && other < 20, "%d %d", same, other);
    sl_sampler_free(&a);
    sl_sampler_free(&b);
    sl_sampler_free(&c);
}

/* Top-k and top-p of random logits against a plain sort. */
static const float *sort_by;
static int by_logit(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sort_by[i] != sort_by[j])
        return sort_by[i] > sort_by[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

static void against_sort(void)
{
    enum { BIG = 300 };
    float x[BIG];
    int32_t order[BIG];
    uint64_t state = 11;
    test_case("against a sort");
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < BIG; i++) {
            x[i] = roundf(test_random_float(&state) * 4) / 4; /* many ties */
            order[i] = i;
        }
        sort_by = x;
        qsort(order, BIG, sizeof order[0], by_logit);
        sl_sample_options o = PLAIN;
        o.temp = 100; /* nearly uniform over what is kept */
        o.top_k = 1 + (uint64_t)(test_random(&state) % BIG);
        o.seed = (uint64_t)round;
        sl_sampler *s = sl_sampler_new(BIG, &o);
        for (int i = 0; i < 20; i++) {
            int32_t id = sl_sampler_pick(s, x);
            uint64_t rank = 0;
            while (order[rank] != id)
                rank++;
            CHECK(rank < o.top_k, "rank %d of top %d", (int)rank, (int)o.top_k);
        }
        sl_sampler_free(&s);
    }
}

/* Feeds pieces (separated by |) and joins what comes out. */
static bool stops(const char *const *text, uint32_t n, const char *pieces, char *joined, size_t cap)
{
    sl_stop s;
    const char *out;
    uint64_t len, used = 0;
    bool found = false;
    if (!CHECK(!sl_stop_open(&s, text, n, 16, NULL)))
        return false;
    while (!found) {
        size_t piece = strcspn(pieces, "|");
        found = sl_stop_push(&s, pieces, piece, &out, &len);
        memcpy(joined + used, out, len);
        used += len;
        if (!pieces[piece])
            break;
        pieces += piece + 1;
    }
    if (!found) {
        sl_stop_end(&s, &out, &len);
        memcpy(joined + used, out, len);
        used += len;
    }
    joined[used < cap ? used : cap - 1] = 0;
    sl_stop_close(&s);
    return found;
}

static void stop_texts(void)
{
    static const char *const ab[] = {"aab", "END"};
    char out[64];
    sl_stop s;
    const char *text;
    uint64_t len;
    test_case("stop texts");
    CHECK(stops(ab, 2, "x|a|a|a|b|y", out, sizeof out) && !strcmp(out, "xa"), "%s", out);
    CHECK(stops(ab, 2, "one E|ND two", out, sizeof out) && !strcmp(out, "one "), "%s", out);
    CHECK(!stops(ab, 2, "E|N|e|aa|c|a", out, sizeof out) && !strcmp(out, "ENeaaca"), "%s", out);
    CHECK(stops(ab, 2, "ENDaab", out, sizeof out) && !strcmp(out, ""), "%s", out);
    CHECK(!stops(NULL, 0, "a|b|c", out, sizeof out) && !strcmp(out, "abc"), "%s", out);
    /* Only what may begin a stop text is held back. */
    CHECK(!sl_stop_open(&s, ab, 2, 16, NULL));
    CHECK(!sl_stop_push(&s, "hello aa", 8, &text, &len) && len == 6 && !memcmp(text, "hello ", 6));
    CHECK(!sl_stop_push(&s, "x", 1, &text, &len) && len == 3 && !memcmp(text, "aax", 3));
    sl_stop_close(&s);
}

int main(void)
{
    greedy();
    distributions();
    extremes();
    penalty();
    seeds();
    against_sort();
    stop_texts();
    return test_end();
}
