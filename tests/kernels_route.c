/* Proves: functions of values, softmax, the choice of the best scores and weighted sums give at
 * every CPU level the scalar result, bit for bit, and write nothing outside their outputs; they are
 * what the formulas say, against double and against plain sorting. Prints the worst errors of
 * sigmoid and softplus; --bench prints speeds. */
#include "lib_kernels.h"

#include <string.h>

#include "../kernels/vmath.h"

static const size_t lengths[] = {0,  1,  2,  7,  8,  9,   15,  16,   17,  31,
                                 32, 33, 47, 63, 64, 100, 128, 1000, 1024};
enum { N_LENGTHS = sizeof lengths / sizeof lengths[0], N_MAPS = 6 };

/* ---- maps ---- */

static sl_map_fn *map_of(const sl_kernels *k, int m)
{
    sl_map_fn *const all[N_MAPS] = {k->exp, k->sigmoid, k->softplus, k->silu, k->tanh, k->softmax};
    return all[m];
}

static const char *const map_names[N_MAPS] = {"exp",  "sigmoid", "softplus",
                                              "silu", "tanh",    "softmax"};

static void map_case(const sl_kernels *scalar, const sl_kernels *k, int m, enum pattern p, size_t n,
                     size_t shift)
{
    float *x = filled(p, n + shift), *expected = room(n), *y = room(n + shift);
    map_of(scalar, m)(x + shift, expected + PAD, n);
    map_of(k, m)(x + shift, y + PAD + shift, n);
    CHECK_SAME(y + PAD + shift, expected + PAD, n);
    CHECK(canaries(expected, n) && canaries(y + shift, n));
    map_of(k, m)(x + shift, x + shift, n);
    CHECK_SAME(x + shift, expected + PAD, n);
    free(x);
    free(expected);
    free(y);
}

static void test_maps(const sl_kernels *scalar, const sl_kernels *k)
{
    for (int m = 0; m < N_MAPS; m++) {
        for (int p = 0; p < N_PATTERNS; p++) {
            for (size_t i = 0; i < N_LENGTHS; i++) {
                test_case("%s: %s, %s, %zu values", k->level, map_names[m], pattern_names[p],
                          lengths[i]);
                map_case(scalar, k, m, (enum pattern)p, lengths[i], i % 3);
            }
        }
    }
}

/* ---- gated units ---- */

static double exact_unit(bool clamped, double gate, double up)
{
    if (!clamped)
        return up / (1 + exp(-gate));
    gate = fmin(gate, 7);
    return gate / (1 + exp(-1.702 * gate)) * (fmax(fmin(up, 7), -7) + 1);
}

static void unit_case(const sl_kernels *scalar, const sl_kernels *k, bool clamped, enum pattern p,
                      size_t n)
{
    float *gate = filled(p, n), *up = filled(p, n), *a = room(n), *b = room(n);
    for (size_t i = 0; p == RANDOM && i < n; i++) {
        gate[i] *= 5;
        up[i] *= 5;
    }
    (clamped ? scalar->clamped_mul : scalar->sigmoid_mul)(gate, up, a + PAD, n);
    (clamped ? k->clamped_mul : k->sigmoid_mul)(gate, up, b + PAD, n);
    CHECK_SAME(b + PAD, a + PAD, n);
    CHECK(canaries(b, n));
    for (size_t i = 0; p == RANDOM && i < n; i++) {
        const double want = exact_unit(clamped, (double)gate[i], (double)up[i]);
        CHECK(fabs(b[PAD + i] - want) <= 2e-6 * (1 + fabs(want)), "%g, not %g", (double)b[PAD + i],
              want);
    }
    (clamped ? k->clamped_mul : k->sigmoid_mul)(gate, up, up, n);
    CHECK_SAME(up, a + PAD, n);
    free(gate);
    free(up);
    free(a);
    free(b);
}

static void test_units(const sl_kernels *scalar, const sl_kernels *k)
{
    for (int clamped = 0; clamped < 2; clamped++) {
        for (int p = 0; p < N_PATTERNS; p++) {
            for (size_t i = 0; i < N_LENGTHS; i++) {
                test_case("%s: %s, %s, %zu values", k->level,
                          clamped ? "clamped_mul" : "sigmoid_mul", pattern_names[p], lengths[i]);
                unit_case(scalar, k, clamped, (enum pattern)p, lengths[i]);
            }
        }
    }
}

/* All magnitudes, both signs. */
static void test_map_range(const sl_kernels *scalar, const sl_kernels *k)
{
    enum { N = 70000 };
    float *x = filled(ZEROS, N), *a = room(N), *b = room(N);
    for (size_t i = 0; i < N; i++)
        x[i] = sl_float_of_bits((uint32_t)i * 61356u);
    for (int m = 0; m < N_MAPS; m++) {
        test_case("%s: %s over all magnitudes", k->level, map_names[m]);
        map_of(scalar, m)(x, a + PAD, N);
        map_of(k, m)(x, b + PAD, N);
        CHECK_SAME(b + PAD, a + PAD, N);
    }
    free(x);
    free(a);
    free(b);
}

static double exact_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double exact_softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double worst_ulps(float (*f)(float), double (*exact)(double), double from, double to)
{
    double worst = 0;
    for (int i = 0; i <= 1000000; i++) {
        const float x = (float)(from + (to - from) * i / 1000000);
        const double want = exact((double)x);
        int e;
        frexp(want, &e);
        worst = fmax(worst, fabs((double)f(x) - want) / ldexp(1.0, e - 24));
    }
    return worst;
}

static void test_values(void)
{
    test_case("sigmoid");
    const double s = worst_ulps(sl_sigmoid, exact_sigmoid, -87, 87);
    const double s1 = worst_ulps(sl_sigmoid, exact_sigmoid, -4, 4);
    printf("sigmoid: worst error %.3f ulp from -87 to 87, %.3f from -4 to 4\n", s, s1);
    CHECK(s < 3 && s1 < 3);
    CHECK(sl_sigmoid(0.0f) == 0.5f && sl_sigmoid(INFINITY) == 1.0f &&
          sl_sigmoid(-INFINITY) == 0.0f);
    CHECK(isnan(sl_sigmoid(NAN)));
    test_case("softplus");
    const double p = worst_ulps(sl_softplus, exact_softplus, -87, 87);
    const double p1 = worst_ulps(sl_softplus, exact_softplus, -4, 4);
    printf("softplus: worst error %.3f ulp from -87 to 87, %.3f from -4 to 4\n", p, p1);
    CHECK(p < 4 && p1 < 4);
    CHECK(sl_softplus(INFINITY) == INFINITY && sl_softplus(-INFINITY) == 0.0f);
    CHECK(sl_softplus(1e30f) == 1e30f && isnan(sl_softplus(NAN)));
}

static void test_softmax_value(const sl_kernels *k)
{
    enum { N = 300 };
    test_case("%s: softmax against double", k->level);
    float *x = filled(RANDOM, N), y[N];
    double sum = 0, worst = 0;
    for (int i = 0; i < N; i++)
        sum += exp((double)x[i]);
    k->softmax(x, y, N);
    for (int i = 0; i < N; i++)
        worst = fmax(worst, fabs(y[i] * sum / exp((double)x[i]) - 1));
    CHECK(worst < 1e-6, "%g", worst);
    free(x);
}

/* ---- routes ---- */

static const char *const kind_names[] = {"softmax", "top softmax", "sigmoid"};

/* What the choice goes by: p of the scalar maps, the biased scores, and what is out. */
typedef struct plain {
    float p[SL_ROUTE_MAX_N], score[SL_ROUTE_MAX_N];
    bool out[SL_ROUTE_MAX_N];
} plain;

static void plain_scores(const sl_kernels *scalar, const sl_route *r, const float *x, plain *a)
{
    memcpy(a->p, x, r->n * sizeof *x);
    if (r->kind != SL_ROUTE_TOP_SOFTMAX)
        (r->kind == SL_ROUTE_SOFTMAX ? scalar->softmax : scalar->sigmoid)(x, a->p, r->n);
    for (size_t i = 0; i < r->n; i++) {
        const float s = r->bias ? a->p[i] + r->bias[i] : a->p[i];
        a->score[i] = isnan(s) ? -INFINITY : s;
        a->out[i] = false;
    }
}

static float plain_group(const float *score, size_t n)
{
    float best[2] = {-INFINITY, -INFINITY};
    for (size_t i = 0; i < n; i++) {
        if (score[i] > best[0]) {
            best[1] = best[0];
            best[0] = score[i];
        } else if (score[i] > best[1]) {
            best[1] = score[i];
        }
    }
    const float sum = n > 1 ? best[0] + best[1] : best[0];
    return isnan(sum) ? -INFINITY : sum;
}

/* The worst groups go out one by one, of equal ones the last. */
static void plain_groups(const sl_route *r, plain *a)
{
    const size_t each = r->n / r->n_groups;
    for (size_t left = r->n_groups; left > r->top_groups; left--) {
        size_t worst = SIZE_MAX;
        float least = 0;
        for (size_t g = 0; g < r->n_groups; g++) {
            const float score = plain_group(a->score + g * each, each);
            if (!a->out[g * each] && (worst == SIZE_MAX || score <= least)) {
                worst = g;
                least = score;
            }
        }
        for (size_t i = 0; i < each; i++)
            a->out[worst * each + i] = true;
    }
}

static size_t plain_best(const sl_route *r, const plain *a)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < r->n; i++)
        if (!a->out[i] && (best == SIZE_MAX || a->score[i] > a->score[best]))
            best = i;
    return best;
}

/* The same by taking the largest of what is left, weights in double. */
static void plain_route(const sl_kernels *scalar, const sl_route *r, const float *x, uint32_t *ids,
                        double *weights)
{
    plain a;
    double sum = 0, max = -INFINITY;
    plain_scores(scalar, r, x, &a);
    if (r->n_groups > 1)
        plain_groups(r, &a);
    for (size_t j = 0; j < r->k; j++) {
        const size_t best = plain_best(r, &a);
        a.out[best] = true;
        ids[j] = (uint32_t)best;
        weights[j] = (double)a.p[best];
        max = fmax(max, weights[j]);
    }
    for (size_t j = 0; j < r->k && r->kind == SL_ROUTE_TOP_SOFTMAX; j++)
        sum += weights[j] = exp(weights[j] - max);
    for (size_t j = 0; j < r->k && r->kind == SL_ROUTE_TOP_SOFTMAX; j++)
        weights[j] /= sum;
    sum = (double)r->renormalise_eps;
    for (size_t j = 0; j < r->k; j++)
        sum += weights[j];
    for (size_t j = 0; j < r->k; j++)
        weights[j] *= (r->renormalise ? 1 / sum : 1) * (double)r->factor;
}

static void route_case(const sl_kernels *scalar, const sl_kernels *k, const sl_route *r,
                       enum pattern p)
{
    float *x = filled(p, r->n), *a = room(r->k), *b = room(r->k);
    uint32_t id_a[SL_ROUTE_MAX_K + 1], id_b[SL_ROUTE_MAX_K + 1], ids[SL_ROUTE_MAX_K] = {0};
    double weights[SL_ROUTE_MAX_K] = {0};
    memset(id_a, 0x55, sizeof id_a);
    memset(id_b, 0x55, sizeof id_b);
    scalar->route(r, x, id_a, a + PAD);
    k->route(r, x, id_b, b + PAD);
    CHECK_SAME(b + PAD, a + PAD, r->k);
    CHECK(memcmp(id_a, id_b, sizeof id_a) == 0 && id_b[r->k] == 0x55555555u);
    CHECK(canaries(b, r->k));
    plain_route(scalar, r, x, ids, weights);
    CHECK(memcmp(id_b, ids, r->k * sizeof *ids) == 0, "first %u, not %u", id_b[0], ids[0]);
    for (size_t i = 0; p == RANDOM && i < r->k; i++)
        CHECK(fabs(b[PAD + i] - weights[i]) < 1e-6 * (1 + fabs(weights[i])), "%g, not %g",
              (double)b[PAD + i], weights[i]);
    free(x);
    free(a);
    free(b);
}

static void test_routes(const sl_kernels *scalar, const sl_kernels *k)
{
    static const size_t shapes[][4] = {
        /* n, k, groups, top groups */
        {1, 1, 0, 0},     {2, 1, 0, 0},    {8, 3, 0, 0},    {8, 8, 1, 1},    {9, 2, 0, 0},
        {32, 4, 4, 2},    {33, 33, 0, 0},  {60, 6, 10, 3},  {64, 8, 64, 9},  {128, 8, 0, 0},
        {160, 6, 8, 3},   {256, 8, 8, 4},  {257, 64, 0, 0}, {512, 10, 0, 0}, {1023, 7, 0, 0},
        {1024, 64, 0, 0}, {1024, 0, 0, 0}, {70, 20, 2, 1}};
    float *bias = filled(RANDOM, SL_ROUTE_MAX_N);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int kind = 0; kind < 3; kind++) {
            for (int p = 0; p < N_PATTERNS; p++) {
                for (int option = 0; option < 4; option++) {
                    const sl_route r = {.kind = (sl_route_kind)kind,
                                        .n = shapes[s][0],
                                        .k = shapes[s][1],
                                        .bias = option & 1 ? bias : NULL,
                                        .n_groups = shapes[s][2],
                                        .top_groups = shapes[s][3],
                                        .renormalise = option & 2,
                                        .renormalise_eps = option == 2 ? 1e-6f : 1e-20f,
                                        .factor = option ? 2.5f : 1.0f};
                    test_case("%s: route, %s, %s, %zu of %zu, %zu groups, options %d", k->level,
                              kind_names[kind], pattern_names[p], r.k, r.n, r.n_groups, option);
                    route_case(scalar, k, &r, (enum pattern)p);
                }
            }
        }
    }
    free(bias);
}

/* Scores that are equal come in the order of their indices, zeros of both signs too. */
static void test_ties(const sl_kernels *k)
{
    test_case("%s: ties", k->level);
    const float x[20] = {1, 0.0f, 2, -0.0f, 2, 1, 0.0f, 2};
    uint32_t ids[8];
    float w[8];
    k->route(&(sl_route){.kind = SL_ROUTE_TOP_SOFTMAX, .n = 20, .k = 8, .factor = 1}, x, ids, w);
    const uint32_t want[8] = {2, 4, 7, 0, 5, 1, 3, 6};
    CHECK(memcmp(ids, want, sizeof want) == 0);
    CHECK(w[0] == w[2] && w[3] == w[4] && w[5] == w[7]);
}

/* ---- weighted sums ---- */

static void test_sums(const sl_kernels *scalar, const sl_kernels *k)
{
    for (size_t i = 0; i < N_LENGTHS; i++) {
        for (size_t n_x = 0; n_x <= 9; n_x += n_x < 2 ? 1 : 7) {
            const size_t n = lengths[i];
            const float *x[9];
            float *w = filled(RANDOM, n_x), *a = room(n), *b = room(n);
            for (size_t e = 0; e < n_x; e++)
                x[e] = filled(e & 1 ? OUTLIER : RANDOM, n);
            for (size_t j = 0; j < n; j++)
                a[PAD + j] = b[PAD + j] = value(RANDOM, j);
            test_case("%s: weighted_sum of %zu rows of %zu", k->level, n_x, n);
            scalar->weighted_sum(x, w, n_x, a + PAD, n);
            for (size_t j = 0; j < n; j++) { /* in order, fused */
                float y = b[PAD + j];
                for (size_t e = 0; e < n_x; e++)
                    y = fmaf(w[e], x[e][j], y);
                CHECK(y == a[PAD + j]);
            }
            k->weighted_sum(x, w, n_x, b + PAD, n);
            CHECK_SAME(b + PAD, a + PAD, n);
            CHECK(canaries(b, n));
            for (size_t e = 0; e < n_x; e++)
                free((void *)(uintptr_t)x[e]);
            free(w);
            free(a);
            free(b);
        }
    }
}

/* ---- speed ---- */

static void bench(sl_cpu_level best)
{
    enum { N = 8192, EXPERTS = 512, K = 10, WIDTH = 2048 };
    float *x = filled(RANDOM, N), *y = filled(ZEROS, N), w[K];
    const float *rows[K];
    uint32_t ids[K];
    double t;
    for (size_t e = 0; e < K; e++)
        rows[e] = filled(RANDOM, WIDTH);
    for (unsigned l = 0; l <= best; l++) {
        sl_kernels k;
        sl_kernels_init(&k, (sl_cpu_level)l);
        printf("%-8s", k.level);
        for (int m = 0; m < N_MAPS; m++) {
            BEST_TIME(t, map_of(&k, m)(x, y, N));
            printf("  %s %.2f", map_names[m], t / N * 1e9);
        }
        printf(" ns per value\n%-8s", "");
        for (int kind = 0; kind < 3; kind++) {
            const sl_route r = {.kind = (sl_route_kind)kind,
                                .n = EXPERTS,
                                .k = K,
                                .renormalise = true,
                                .factor = 1};
            BEST_TIME(t, k.route(&r, x, ids, w));
            printf("  route by %s, %d of %d: %.0f ns", kind_names[kind], K, EXPERTS, t * 1e9);
        }
        BEST_TIME(t, k.weighted_sum(rows, w, K, y, WIDTH));
        printf("\n%-8s  weighted_sum of %d rows of %d: %.0f ns, %.1f GB/s\n", "", K, WIDTH, t * 1e9,
               (double)(K + 2) * WIDTH * 4 / t * 1e-9);
    }
    for (size_t e = 0; e < K; e++)
        free((void *)(uintptr_t)rows[e]);
    free(x);
    free(y);
}

int main(int argc, char **argv)
{
    const sl_cpu_level best = sl_cpu_best();
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        bench(best);
        return 0;
    }
    sl_kernels scalar;
    sl_kernels_init(&scalar, SL_CPU_SCALAR);
    test_values();
    for (unsigned l = 0; l <= best; l++) {
        sl_kernels k;
        sl_kernels_init(&k, (sl_cpu_level)l);
        test_maps(&scalar, &k);
        test_map_range(&scalar, &k);
        test_softmax_value(&k);
        test_units(&scalar, &k);
        test_routes(&scalar, &k);
        test_ties(&k);
        test_sums(&scalar, &k);
    }
    return test_end();
}
