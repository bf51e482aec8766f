/* Proves: attention at every CPU level gives the scalar result, bit for bit, for every dimension,
 * range, window, softcap and sink; a query's result does not depend on the others in the call; keys
 * outside all ranges are not read; the result is that of the formula in double within a stated
 * error. --bench prints speeds. */
#include "lib_test.h"

#include "../kernels/kernels.h"
#include "../kernels/q8_row.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed = 88172645463325252u;
static const float canary = -1234.5678f;
static bool quick; /* SL_TEST_QUICK */

/* ---- a case: queries, keys, values, ranges ---- */

typedef enum form { F32, F16, Q8, N_FORMS } form;
static const char *const form_names[] = {"f32", "f16", "q8"};

static size_t row_bytes(form f, size_t n)
{
    return f == F32 ? 4 * n : f == F16 ? 2 * n : sl_q8_row_bytes(n);
}

static sl_attn_fn *attn_of(const sl_kernels *k, form f)
{
    return f == F32 ? k->attn_f32 : f == F16 ? k->attn_f16 : k->attn_q8;
}

typedef struct shape {
    form form;
    size_t n_q, n_keys, dim_k, dim_v;
    float softcap;
    float spread; /* of the queries: how far scores reach */
} shape;

typedef struct problem {
    shape s;
    size_t q_stride, k_stride, v_stride; /* floats, bytes, bytes */
    size_t part_stride, n_splits;
    float *q;
    uint8_t *k, *v;
    uint32_t *begin, *end;
} problem;

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

/* Value i of a row of n. Q8: its block's scale. */
static void store(const problem *p, uint8_t *row, size_t n, size_t i, float f)
{
    const uint16_t half = sl_half_of_float(f);
    if (p->s.form == F32)
        memcpy(row + 4 * i, &f, 4);
    else
        memcpy(p->s.form == F16 ? row + 2 * i : sl_q8_scale_at(row, n, i / SL_Q8_BLOCK), &half, 2);
}

static float load(const problem *p, const uint8_t *row, size_t n, size_t i)
{
    float f;
    if (p->s.form == Q8)
        return sl_q8_value(row, n, i);
    if (p->s.form == F16)
        return sl_half_load(row + 2 * i);
    memcpy(&f, row + 4 * i, 4);
    return f;
}

static void store_random(const problem *p, uint8_t *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        store(p, row, n, i, test_random_float(&seed) / (p->s.form == Q8 ? 127.0f : 1.0f));
        if (p->s.form == Q8)
            row[i] = (uint8_t)(int8_t)rintf(127.0f * test_random_float(&seed));
    }
}

/* gap: elements between rows, in part odd ones. */
static void problem_make_gaps(problem *p, shape s, size_t gap)
{
    *p = (problem){.s = s,
                   .q_stride = s.dim_k + 3 * gap,
                   .k_stride = row_bytes(s.form, s.dim_k + 5 * gap),
                   .v_stride = row_bytes(s.form, s.dim_v + gap),
                   .part_stride = s.dim_v + 4,
                   .n_splits = (s.n_keys + SL_ATTN_SPLIT - 1) / SL_ATTN_SPLIT};
    p->q = must(aligned_alloc(64, (s.n_q * p->q_stride * sizeof(float) + 63) / 64 * 64));
    p->k = must(aligned_alloc(64, (s.n_keys * p->k_stride + 63) / 64 * 64));
    p->v = must(aligned_alloc(64, (s.n_keys * p->v_stride + 63) / 64 * 64));
    p->begin = must(calloc(s.n_q, sizeof *p->begin));
    p->end = must(calloc(s.n_q, sizeof *p->end));
    for (size_t i = 0; i < s.n_q * p->q_stride; i++)
        p->q[i] = s.spread * test_random_float(&seed);
    for (size_t j = 0; j < s.n_keys; j++) {
        store_random(p, p->k + j * p->k_stride, s.dim_k);
        store_random(p, p->v + j * p->v_stride, s.dim_v);
    }
    for (size_t i = 0; i < s.n_q; i++)
        p->end[i] = (uint32_t)s.n_keys;
}

static void problem_make(problem *p, shape s)
{
    problem_make_gaps(p, s, 1);
}

static void problem_free(problem *p)
{
    free(p->q);
    free(p->k);
    free(p->v);
    free(p->begin);
    free(p->end);
}

static sl_attn request(const problem *p, size_t first, size_t n, size_t split, float *part)
{
    return (sl_attn){.q = p->q + first * p->q_stride,
                     .n_q = n,
                     .q_stride = p->q_stride,
                     .k = p->k,
                     .v = p->v,
                     .k_stride = p->k_stride,
                     .v_stride = p->v_stride,
                     .dim_k = p->s.dim_k,
                     .dim_v = p->s.dim_v,
                     .begin = p->begin + first,
                     .end = p->end + first,
                     .split = (uint32_t)split,
                     .scale = 1.0f / sqrtf((float)p->s.dim_k),
                     .softcap = p->s.softcap,
                     .part = part,
                     .part_stride = p->part_stride};
}

static float *room(size_t n)
{
    float *p = must(malloc((n + 1) * sizeof *p));
    for (size_t i = 0; i <= n; i++)
        p[i] = canary;
    return p;
}

/* All partial results, [query][split][part_stride], with at most n_call queries in one call. */
static float *parts_of(const problem *p, const sl_kernels *k, size_t n_call)
{
    problem wide = *p; /* one query's splits lie together, for merge */
    wide.part_stride = p->n_splits * p->part_stride;
    float *part = room(p->s.n_q * wide.part_stride);
    for (size_t split = 0; split < p->n_splits; split++) {
        for (size_t i = 0; i < p->s.n_q; i += n_call) {
            const size_t n = i + n_call < p->s.n_q ? n_call : p->s.n_q - i;
            const sl_attn a =
                request(&wide, i, n, split, part + i * wide.part_stride + split * p->part_stride);
            attn_of(k, p->s.form)(&a);
        }
    }
    CHECK(part[p->s.n_q * wide.part_stride] == canary);
    return part;
}

static bool same(const float *a, const float *b, size_t n, size_t *where)
{
    for (*where = 0; *where < n; ++*where) {
        const float x = a[*where], y = b[*where];
        if (sl_bits_of_float(x) != sl_bits_of_float(y) && !(isnan(x) && isnan(y)))
            return false;
    }
    return true;
}

static void merge(const problem *p, const sl_kernels *k, const float *part, size_t i,
                  const float *sink, float *out)
{
    k->attn_merge(part + i * p->n_splits * p->part_stride, p->part_stride, p->n_splits, p->s.dim_v,
                  sink, out);
}

/* ---- checks ---- */

/* The calls at this level, cut in several ways, against scalar calls of one query each. */
static void check_bits(const problem *p, const sl_kernels *scalar, const sl_kernels *k)
{
    static const size_t cuts[] = {1, 2, 3, 5, 8, 33, 1000};
    const size_t n = p->s.n_q * p->n_splits * p->part_stride;
    float *expected = parts_of(p, scalar, 1), *a = room(p->s.dim_v), *b = room(p->s.dim_v);
    for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
        size_t at;
        float *part = parts_of(p, k, cuts[c]);
        const bool ok = same(part, expected, n, &at);
        CHECK(ok, "calls of %zu: at %zu of %zu: %a, not %a", cuts[c], at, n, (double)part[at],
              (double)expected[at]);
        free(part);
        if (cuts[c] > p->s.n_q)
            break;
    }
    const float sink = 0.3f;
    for (int with = 0; with < 2; with++) {
        size_t at;
        merge(p, scalar, expected, 0, with ? &sink : NULL, a);
        merge(p, k, expected, 0, with ? &sink : NULL, b);
        const bool ok = same(b, a, p->s.dim_v, &at);
        CHECK(ok, "merge: at %zu", at);
        CHECK(b[p->s.dim_v] == canary);
    }
    free(expected);
    free(a);
    free(b);
}

static double score_of(const problem *p, size_t i, size_t j)
{
    double dot = 0;
    for (size_t d = 0; d < p->s.dim_k; d++)
        dot += (double)p->q[i * p->q_stride + d] *
               (double)load(p, p->k + j * p->k_stride, p->s.dim_k, d);
    dot *= (double)(1.0f / sqrtf((float)p->s.dim_k));
    const double cap = (double)p->s.softcap;
    return cap != 0 ? cap * tanh(dot / cap) : dot;
}

/* Largest error of query i's merged result against double. */
static double error_of(const problem *p, const float *got, size_t i, const float *sink)
{
    double max = sink ? (double)*sink : -INFINITY, sum = 0, worst = 0;
    double *out = must(calloc(p->s.dim_v, sizeof *out));
    for (size_t j = p->begin[i]; j < p->end[i]; j++)
        max = fmax(max, score_of(p, i, j));
    for (size_t j = p->begin[i]; j < p->end[i]; j++) {
        const double w = exp(score_of(p, i, j) - max);
        sum += w;
        for (size_t d = 0; d < p->s.dim_v; d++)
            out[d] += w * (double)load(p, p->v + j * p->v_stride, p->s.dim_v, d);
    }
    if (sink)
        sum += exp((double)*sink - max);
    for (size_t d = 0; d < p->s.dim_v; d++)
        worst = fmax(worst, fabs(got[d] - (sum > 0 ? out[d] / sum : 0)));
    free(out);
    return worst;
}

/* Values are about 1, weights sum to 1: 1e-5 is some dozens of float steps. */
static void check_value(const problem *p, const sl_kernels *k)
{
    const float sink = 1.5f;
    float *part = parts_of(p, k, 16), *out = room(p->s.dim_v);
    for (size_t i = 0; i < p->s.n_q; i++) {
        for (int with = 0; with < 2; with++) {
            merge(p, k, part, i, with ? &sink : NULL, out);
            const double error = error_of(p, out, i, with ? &sink : NULL);
            CHECK(error < 1e-5, "query %zu: error %g", i, error);
        }
    }
    free(part);
    free(out);
}

static void check(problem *p, const sl_kernels *scalar, const sl_kernels *k, const char *what)
{
    test_case("%s: %s: %s, %zu queries, %zu keys, dim %zu and %zu, softcap %g", k->level, what,
              form_names[p->s.form], p->s.n_q, p->s.n_keys, p->s.dim_k, p->s.dim_v,
              (double)p->s.softcap);
    check_bits(p, scalar, k);
    check_value(p, k);
}

static void test_dims(const sl_kernels *scalar, const sl_kernels *k)
{
    static const size_t dims[] = {2, 6, 8, 16, 18, 40, 64, 80, 96, 128, 192, 256, 512};
    for (form f = F32; f < N_FORMS; f++) {
        for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
            problem p;
            problem_make(&p, (shape){f, 9, 70, dims[i], dims[i], 0, 1});
            check(&p, scalar, k, "dimensions");
            problem_free(&p);
            problem_make(&p, (shape){f, 3, 33, 192, dims[i], 30, 4});
            check(&p, scalar, k, "values of another dimension");
            problem_free(&p);
        }
    }
}

static void test_lengths(const sl_kernels *scalar, const sl_kernels *k)
{
    static const size_t lengths[] = {1,  2,   8,    31,   32,   33,   63,  64,
                                     65, 200, 1023, 1024, 1025, 2049, 5000};
    for (form f = F32; f < N_FORMS; f++) {
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0] - 2 * quick; i++) {
            problem p;
            problem_make(&p, (shape){f, lengths[i] > 500 ? 2 : 5, lengths[i], 64, 32, 0, 3});
            check(&p, scalar, k, "keys");
            problem_free(&p);
        }
    }
}

/* Rows of a prefill, group heads each, and a sliding window or none. */
static void test_causal(const sl_kernels *scalar, const sl_kernels *k)
{
    for (uint32_t group = 1; group <= (quick ? 2 : 8); group = group * 2 + (group == 2)) {
        for (uint32_t window = 0; window <= 40; window += 20) {
            problem p;
            problem_make(&p, (shape){window / 20, 70 * group, 1100, 32, 32, 0, 2});
            for (uint32_t i = 0; i < p.s.n_q; i++) {
                p.end[i] = 1000 + i / group + 1; /* across a border of splits */
                p.begin[i] = window ? p.end[i] - window : 0;
            }
            check(&p, scalar, k, window ? "sliding window" : "causal");
            problem_free(&p);
        }
    }
}

static void test_random_ranges(const sl_kernels *scalar, const sl_kernels *k)
{
    for (int round = 0; round < (quick ? 9 : 42); round++) {
        problem p;
        problem_make(&p, (shape){(form)round % N_FORMS, 1 + test_random(&seed) % 40,
                                 1 + test_random(&seed) % 1500, 16, 24, round % 3 ? 0 : 5, 2});
        for (size_t i = 0; i < p.s.n_q; i++) {
            p.begin[i] = (uint32_t)(test_random(&seed) % p.s.n_keys);
            p.end[i] = (uint32_t)(test_random(&seed) % (p.s.n_keys + 1)); /* some are empty */
            if (i && test_random(&seed) % 3 == 0) {
                p.begin[i] = p.begin[i - 1];
                p.end[i] = p.end[i - 1];
            }
        }
        check(&p, scalar, k, "random ranges");
        problem_free(&p);
    }
}

/* Bits only: in double these are other values. */
static void test_extremes(const sl_kernels *scalar, const sl_kernels *k)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN, 60000.0f, -60000.0f, 1e-8f, 0.0f, -0.0f};
    for (int round = 0; round < 8 * 2 * N_FORMS; round++) {
        problem p;
        problem_make(&p, (shape){(form)round % N_FORMS, 9, 150, 64, 40, round / 3 & 1 ? 20 : 0, 1});
        const float f = odd[round / (2 * N_FORMS)];
        test_case("%s: keys and values with %g, %s", k->level, (double)f, form_names[p.s.form]);
        for (size_t j = 3; j < 150; j += 29) {
            store(&p, p.k + j * p.k_stride, 64, j % 64, f);
            store(&p, p.v + j * p.v_stride, 40, j % 40, f);
        }
        p.begin[4] = 4;
        p.end[5] = 32;
        check_bits(&p, scalar, k);
        memset(p.k, 0, p.s.n_keys * p.k_stride);
        memset(p.v, 0x80, p.s.n_keys * p.v_stride);
        check_bits(&p, scalar, k);
        problem_free(&p);
    }
}

/* Scores that vanish to zeros of both signs: the maximum's sign is defined, too. */
static void test_tiny(const sl_kernels *scalar, const sl_kernels *k)
{
    for (int round = 0; round < 20; round++) {
        problem p;
        problem_make(&p, (shape){F32, 5, 70, 16, 8, 0, 1});
        test_case("%s: vanishing scores", k->level);
        for (size_t i = 0; i < p.s.n_q * p.q_stride; i++)
            p.q[i] = 1e-30f;
        for (size_t j = 0; j < p.s.n_keys; j++) {
            const float f = test_random(&seed) & 1u << 20 ? 1e-30f : -1e-30f;
            for (size_t d = 0; d < p.s.dim_k; d++)
                store(&p, p.k + j * p.k_stride, p.s.dim_k, d, f);
        }
        check_bits(&p, scalar, k);
        problem_free(&p);
    }
}

static void test_empty(const sl_kernels *k)
{
    test_case("%s: no keys", k->level);
    problem p;
    problem_make(&p, (shape){F16, 2, 10, 16, 16, 0, 1});
    p.end[0] = 0;
    p.begin[1] = 10;
    float *part = parts_of(&p, k, 2), out[16];
    const float sink = 2;
    for (size_t i = 0; i < 2; i++) {
        CHECK(part[i * p.part_stride] == -INFINITY);
        for (size_t d = 0; d < 17; d++)
            CHECK(part[i * p.part_stride + 1 + d] == 0);
        merge(&p, k, part, i, NULL, out);
        CHECK(out[0] == 0 && out[15] == 0);
        merge(&p, k, part, i, &sink, out);
        CHECK(out[0] == 0 && out[15] == 0);
    }
    free(part);
    problem_free(&p);
}

/* Keys and values end, and begin, at pages that may not be touched. */
static void test_memory(const sl_kernels *k)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t n_keys = 1; n_keys < 70; n_keys += 17) {
        for (form f = F32; f < N_FORMS; f++) {
            test_case("%s: guarded, %zu keys", k->level, n_keys);
            const size_t dim = 34, row = row_bytes(f, dim), bytes = n_keys * row;
            const size_t inner = (bytes + page - 1) / page * page;
            uint8_t *map =
                mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (map == MAP_FAILED || mprotect(map + page, inner, PROT_READ | PROT_WRITE) != 0)
                abort();
            for (int at_end = 0; at_end < 2; at_end++) {
                /* Positions before 40 are in no range; the pointer may lie outside the map. */
                uint8_t *first = map + page + (at_end ? inner - bytes : 0);
                const uintptr_t zero = (uintptr_t)first - 40 * row;
                uint32_t begin[9], end[9];
                float q[9 * 34], part[9 * 36];
                for (size_t i = 0; i < 9; i++) {
                    begin[i] = 40;
                    end[i] = 40 + (uint32_t)n_keys;
                }
                for (size_t i = 0; i < 9 * dim; i++)
                    q[i] = 1;
                const sl_attn a = {.q = q,
                                   .n_q = 9,
                                   .q_stride = dim,
                                   .k = (const void *)zero,
                                   .v = (const void *)zero,
                                   .k_stride = row,
                                   .v_stride = row,
                                   .dim_k = dim,
                                   .dim_v = dim,
                                   .begin = begin,
                                   .end = end,
                                   .scale = 1,
                                   .part = part,
                                   .part_stride = 36};
                attn_of(k, f)(&a);
                CHECK(part[1] == (float)n_keys, "%g", (double)part[1]);
            }
            munmap(map, inner + 2 * page);
        }
    }
}

/* ---- rows of a byte per value ---- */

static void to_q8_case(const sl_kernels *scalar, const sl_kernels *k, const float *x, size_t n)
{
    const size_t bytes = sl_q8_row_bytes(n);
    uint8_t *a = must(malloc(bytes + 1)), *b = must(malloc(bytes + 1));
    a[bytes] = b[bytes] = 0x5a;
    scalar->to_q8(x, a, n);
    k->to_q8(x, b, n);
    CHECK(memcmp(a, b, bytes + 1) == 0, "%zu values", n);
    free(a);
    free(b);
}

/* Half a step from the value, and a little for the scale's own rounding. */
static void to_q8_value(const sl_kernels *k, const float *x, size_t n)
{
    uint8_t *row = must(malloc(sl_q8_row_bytes(n)));
    k->to_q8(x, row, n);
    for (size_t i = 0; i < n; i++) {
        const float d = sl_q8_scale(row, n, i / SL_Q8_BLOCK), got = sl_q8_value(row, n, i);
        CHECK(fabsf(got - x[i]) <= 0.501f * d + 127 * d * 0x1p-11f, "value %zu of %zu: %g, not %g",
              i, n, (double)got, (double)x[i]);
    }
    free(row);
}

static void test_to_q8(const sl_kernels *scalar, const sl_kernels *k)
{
    static const float odd[] = {INFINITY, NAN,    -3e38f, 8.4e6f,   8e6f,   65504.0f, -1e-5f,
                                4e-6f,    3.9e-6, 1e-6f,  0x1p-30f, 1e-40f, 0.0f,     -0.0f};
    float x[300];
    for (size_t n = 0; n < 300; n = n < 100 ? n + 1 : n + 37) {
        test_case("%s: to_q8 of %zu values", k->level, n);
        for (size_t i = 0; i < n; i++)
            x[i] = test_random_float(&seed);
        to_q8_case(scalar, k, x, n);
        to_q8_value(k, x, n);
    }
    for (size_t o = 0; o < sizeof odd / sizeof odd[0]; o++) {
        test_case("%s: to_q8 with %g", k->level, (double)odd[o]);
        for (size_t i = 0; i < 70; i++) /* odd[o] is the largest in its block */
            x[i] = isfinite(odd[o]) ? 0.25f * odd[o] * test_random_float(&seed) : 1.0f;
        x[5] = x[69] = odd[o];
        to_q8_case(scalar, k, x, 70);
        uint8_t row[80];
        k->to_q8(x, row, 70);
        const bool lost = !isfinite(odd[o]) || fabsf(odd[o]) > 8.35e6f;
        CHECK(lost == isnan(sl_q8_value(row, 70, 5)) && lost == isnan(sl_q8_value(row, 70, 68)));
    }
}

/* ---- speed ---- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Best time of one pass over all heads. rows 1: decode; else all rows see keys up to themselves. */
static double time_pass(const sl_kernels *k, form f, size_t n_heads, size_t group, size_t rows,
                        size_t n_keys, size_t dim)
{
    problem *heads = must(calloc(n_heads, sizeof *heads));
    double best = 1e9, total = 0;
    for (size_t h = 0; h < n_heads; h++) {
        problem_make_gaps(&heads[h], (shape){f, group * rows, n_keys, dim, dim, 0, 1}, 0);
        for (size_t i = 0; i < group * rows; i++)
            heads[h].end[i] = (uint32_t)(n_keys - rows + i / group + 1);
    }
    float *part = room(group * rows * (dim + 4));
    while (total < 0.3) {
        const double start = seconds();
        for (size_t h = 0; h < n_heads; h++) {
            for (size_t s = 0; s < heads[h].n_splits; s++) {
                const sl_attn a = request(&heads[h], 0, group * rows, s, part);
                attn_of(k, f)(&a);
            }
        }
        const double took = seconds() - start;
        best = took < best ? took : best;
        total += took;
    }
    for (size_t h = 0; h < n_heads; h++)
        problem_free(&heads[h]);
    free(heads);
    free(part);
    return best;
}

static void bench(sl_cpu_level best)
{
    enum { KEYS = 4096, HEADS = 8, GROUP = 4, DIM = 128, ROWS = 512 };
    for (unsigned l = 0; l <= best; l++) {
        sl_kernels k;
        sl_kernels_init(&k, (sl_cpu_level)l);
        for (form f = F32; f < N_FORMS; f++) {
            for (size_t group = 1; group <= 8; group *= 2) {
                const double t = time_pass(&k, f, l ? HEADS : 1, group, 1, KEYS, DIM);
                const double scaled = l ? t : t * HEADS;
                printf("%-6s %s decode, %d keys, %d kv heads, group %zu, dim %d: %8.1f us, %6.2f "
                       "GB/s, %6.1f GFLOP/s\n",
                       k.level, form_names[f], KEYS, HEADS, group, DIM, scaled * 1e6,
                       2.0 * KEYS * HEADS * (double)row_bytes(f, DIM) / scaled * 1e-9,
                       4.0 * KEYS * HEADS * DIM * (double)group / scaled * 1e-9);
            }
            const size_t rows = l ? ROWS : 32;
            const double t = time_pass(&k, f, 1, GROUP, rows, rows, DIM);
            printf("%-6s %s prefill, %zu x %zu causal, group %d, dim %d: %8.1f us, %6.1f GFLOP/s\n",
                   k.level, form_names[f], rows, rows, GROUP, DIM, t * 1e6,
                   2.0 * (double)(rows * (rows + 1)) * GROUP * DIM / t * 1e-9);
        }
    }
}

int main(int argc, char **argv)
{
    const sl_cpu_level best = sl_cpu_best();
    quick = getenv("SL_TEST_QUICK") != NULL;
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        bench(best);
        return 0;
    }
    sl_kernels scalar;
    sl_kernels_init(&scalar, SL_CPU_SCALAR);
    for (unsigned l = 0; l <= best; l++) {
        sl_kernels k;
        sl_kernels_init(&k, (sl_cpu_level)l);
        test_dims(&scalar, &k);
        test_lengths(&scalar, &k);
        test_causal(&scalar, &k);
        test_random_ranges(&scalar, &k);
        test_extremes(&scalar, &k);
        test_tiny(&scalar, &k);
        test_empty(&k);
        test_memory(&k);
        test_to_q8(&scalar, &k);
    }
    return test_end();
}
