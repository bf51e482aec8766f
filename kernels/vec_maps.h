/* Functions of each value, softmax, the choice of the best scores and weighted sums of rows, of
 * every vector level, as scalar_math.c defines them. */
#ifndef SL_VEC_MAPS_H
#define SL_VEC_MAPS_H

#include "route.h"
#include "vec_math.h"

typedef vec vec_fn(vec x);

SL_INLINE void map(vec_fn *f, SL_MAP_ARGS)
{
    size_t i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(y + i, f(vec_load(x + i)));
    if (i < n)
        vec_store_some(y + i, f(vec_load_some(x + i, n - i)), n - i);
}

static void map_exp(SL_MAP_ARGS)
{
    map(vec_exp, x, y, n);
}

static void map_sigmoid(SL_MAP_ARGS)
{
    map(vec_sigmoid, x, y, n);
}

static void map_softplus(SL_MAP_ARGS)
{
    map(vec_softplus, x, y, n);
}

static void map_silu(SL_MAP_ARGS)
{
    map(vec_silu, x, y, n);
}

static void map_tanh(SL_MAP_ARGS)
{
    map(vec_tanh, x, y, n);
}

static void sigmoid_mul(SL_GLU_ARGS)
{
    VEC_EACH(n, {
        const vec s = vec_sigmoid(vec_load_some(gate + at, some));
        vec_store_some(y + at, vec_mul(s, vec_load_some(up + at, some)), some);
    });
}

/* min and max give their second operand when one is NaN. */
static void clamped_mul(SL_GLU_ARGS)
{
    const vec most = vec_all(SL_CLAMP), least = vec_all(-SL_CLAMP), one = vec_all(1.0f);
    VEC_EACH(n, {
        const vec g = vec_min(most, vec_load_some(gate + at, some));
        const vec u = vec_max(least, vec_min(most, vec_load_some(up + at, some)));
        const vec e = vec_exp(vec_mul(vec_all(-SL_CLAMP_SLOPE), g));
        const vec v = vec_div(g, vec_add(one, e));
        vec_store_some(y + at, vec_mul(v, vec_add(u, one)), some);
    });
}

static inline float max_of(const float *x, size_t n)
{
    vec max = vec_all(-INFINITY);
    size_t i = 0;
    for (; i + VEC <= n; i += VEC)
        max = vec_max(vec_load(x + i), max); /* the second when one is NaN */
    if (i < n) {
        const vec last = vec_max(vec_load_some(x + i, n - i), max);
        max = vec_choose(vec_lanes(0, (int)(n - i)), last, max);
    }
    return vec_largest(max) + 0.0f;
}

/* exp(x - max) of a place's vector, stored, and added to its lanes. */
SL_INLINE vec add_exp(vec sum, const float *x, vec max, float *y, size_t some)
{
    const vec e = vec_exp(vec_sub(vec_load_some(x, some), max));
    vec_store_some(y, e, some);
    return some == VEC ? vec_add(sum, e)
                       : vec_choose(vec_lanes(0, (int)some), vec_add(sum, e), sum);
}

static void softmax(SL_MAP_ARGS)
{
    const vec max = vec_all(max_of(x, n));
    vec sum[VEC_LANES];
    SL_UNROLL
    for (int v = 0; v < VEC_LANES; v++)
        sum[v] = vec_all(0.0f);
    size_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES) {
        SL_UNROLL
        for (size_t v = 0; v < VEC_LANES; v++)
            sum[v] = add_exp(sum[v], x + i + VEC * v, max, y + i + VEC * v, VEC);
    }
    SL_UNROLL
    for (size_t v = 0; v < VEC_LANES; v++, i += VEC)
        if (i < n)
            sum[v] = add_exp(sum[v], x + i, max, y + i, vec_left(n, i));
    const vec all = vec_all(vec_sum(sum));
    VEC_EACH(n, { vec_store_some(y + at, vec_div(vec_load_some(y + at, some), all), some); });
}

/* A vector of scores is looked at together once the list is full: most stay out. */
static void scan(sl_top *t, const float *score, size_t n, uint32_t first)
{
    size_t i = 0;
    for (; i < n && t->n < t->k; i++)
        sl_top_offer(t, score[i], first + (uint32_t)i);
    for (; i + VEC <= n; i += VEC) {
        const vec least = vec_all(sl_top_least(t));
        for (unsigned m = vec_bits(vec_less(least, vec_load(score + i))); m; m &= m - 1) {
            const size_t at = i + (size_t)__builtin_ctz(m);
            sl_top_offer(t, score[at], first + (uint32_t)at);
        }
    }
    for (; i < n; i++)
        sl_top_offer(t, score[i], first + (uint32_t)i);
}

static void route(SL_ROUTE_ARGS)
{
    sl_route_run(r, x, ids, weights, softmax, map_sigmoid, scan);
}

/* V vectors of y take all rows before they are stored; some: of the last one. */
SL_INLINE void weighted_strip(const int V, const float *const *x, const float *w, size_t n_x,
                              float *y, size_t i, size_t some)
{
    vec sum[4];
    SL_UNROLL
    for (int v = 0; v < V; v++)
        sum[v] = vec_load_some(y + i + VEC * (size_t)v, some);
    for (size_t e = 0; e < n_x; e++) {
        const vec by = vec_all(w[e]);
        SL_UNROLL
        for (int v = 0; v < V; v++)
            sum[v] = vec_fma(by, vec_load_some(x[e] + i + VEC * (size_t)v, some), sum[v]);
    }
    SL_UNROLL
    for (int v = 0; v < V; v++)
        vec_store_some(y + i + VEC * (size_t)v, sum[v], some);
}

static void weighted_sum(SL_WEIGHTED_SUM_ARGS)
{
    size_t i = 0;
    for (; i + 4 * VEC <= n; i += 4 * VEC)
        weighted_strip(4, x, w, n_x, y, i, VEC);
    for (; i + VEC <= n; i += VEC)
        weighted_strip(1, x, w, n_x, y, i, VEC);
    if (i < n)
        weighted_strip(1, x, w, n_x, y, i, n - i);
}

static inline void vec_fill_math(sl_kernels *k)
{
    k->exp = map_exp;
    k->sigmoid = map_sigmoid;
    k->softplus = map_softplus;
    k->silu = map_silu;
    k->tanh = map_tanh;
    k->softmax = softmax;
    k->route = route;
    k->weighted_sum = weighted_sum;
    k->sigmoid_mul = sigmoid_mul;
    k->clamped_mul = clamped_mul;
}

#endif
