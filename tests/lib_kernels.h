/* What tests of kernels share: rows of values of some pattern, room with canaries round it,
 * comparison by bits, and timing. Header only: just the kernels* tests use it. */
#ifndef SL_LIB_KERNELS_H
#define SL_LIB_KERNELS_H

#include "lib_test.h"

#include "../kernels/half.h"
#include "../kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PAD = 64 };
static const float canary = -1234.5678f;
static uint64_t seed = 88172645463325252u;

enum pattern { RANDOM, ZEROS, EXTREMES, DENORMALS, OUTLIER, TIES, NOT_FINITE, N_PATTERNS };
static const char *const pattern_names[] = {"random",  "zeros", "extremes",   "denormals",
                                            "outlier", "ties",  "inf and nan"};

static inline float value(enum pattern p, size_t i)
{
    static const float extremes[] = {3.4e38f, -3.4e38f, 1e30f, -1e-30f, 95.0f, -95.0f, 1.0f};
    const float r = test_random_float(&seed);
    switch (p) {
    case ZEROS:
        return test_random(&seed) & 1u << 20 ? 0.0f : -0.0f;
    case EXTREMES:
        return extremes[test_random(&seed) % 7];
    case DENORMALS:
        return r * (test_random(&seed) & 1u << 20 ? 1e-41f : 1e-7f);
    case OUTLIER:
        return i == 5 ? 30000.0f : r * 0.01f;
    case TIES:
        return rintf(r * 2.0f) * 0.5f;
    case NOT_FINITE:
        return i % 37 == 11 ? INFINITY : i % 53 == 29 ? NAN : i % 71 == 8 ? -INFINITY : r;
    default:
        return r;
    }
}

/* n values in memory that ends with the last one. */
static inline float *filled(enum pattern p, size_t n)
{
    float *x = malloc(n ? n * sizeof *x : 1);
    if (!x)
        abort();
    for (size_t i = 0; i < n; i++)
        x[i] = value(p, i);
    return x;
}

/* n floats from [PAD] on. */
static inline float *room(size_t n)
{
    float *p = malloc((n + 2 * PAD) * sizeof *p);
    if (!p)
        abort();
    for (size_t i = 0; i < n + 2 * PAD; i++)
        p[i] = canary;
    return p;
}

static inline bool canaries(const float *p, size_t n)
{
    for (size_t i = 0; i < PAD; i++)
        if (p[i] != canary || p[PAD + n + i] != canary)
            return false;
    return true;
}

/* Which NaN a NaN is stays open; all else is bits. */
static inline bool same_bits(const float *a, const float *b, size_t n, size_t *where)
{
    for (*where = 0; *where < n; ++*where) {
        const float x = a[*where], y = b[*where];
        if (sl_bits_of_float(x) != sl_bits_of_float(y) && !(isnan(x) && isnan(y)))
            return false;
    }
    return true;
}

#define CHECK_SAME(a, b, n)                                                                        \
    do {                                                                                           \
        size_t at_ = 0;                                                                            \
        const bool same_ = same_bits(a, b, n, &at_);                                               \
        CHECK(same_, "at %zu: %a, not %a", at_, same_ ? 0 : (double)(a)[at_],                      \
              same_ ? 0 : (double)(b)[at_]);                                                       \
    } while (0)

static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Best time of one call among calls that take a tenth of a second together. */
#define BEST_TIME(best, call)                                                                      \
    do {                                                                                           \
        double total_ = 0;                                                                         \
        (best) = 1e9;                                                                              \
        while (total_ < 0.1) {                                                                     \
            const double start_ = seconds();                                                       \
            call;                                                                                  \
            const double took_ = seconds() - start_;                                               \
            (best) = took_ < (best) ? took_ : (best);                                              \
            total_ += took_;                                                                       \
        }                                                                                          \
    } while (0)

#endif
