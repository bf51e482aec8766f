/* scalar_math.c, sixteen values at a time; the last ones under a mask. */
#include "avx512_dot.h"
#include "avx512_math.h"
#include "levels.h"
#include "route.h"

typedef __m512 vector_fn(__m512 x);

SL_INLINE void map(vector_fn *f, SL_MAP_ARGS)
{
    size_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES)
        _mm512_storeu_ps(y + i, f(_mm512_loadu_ps(x + i)));
    if (i < n) {
        const __mmask16 m = avx512_first(n - i);
        _mm512_mask_storeu_ps(y + i, m, f(_mm512_maskz_loadu_ps(m, x + i)));
    }
}

static void map_exp(SL_MAP_ARGS)
{
    map(avx512_exp, x, y, n);
}

static void map_sigmoid(SL_MAP_ARGS)
{
    map(avx512_sigmoid, x, y, n);
}

static void map_softplus(SL_MAP_ARGS)
{
    map(avx512_softplus, x, y, n);
}

static void map_silu(SL_MAP_ARGS)
{
    map(avx512_silu, x, y, n);
}

static void map_tanh(SL_MAP_ARGS)
{
    map(avx512_tanh, x, y, n);
}

static void sigmoid_mul(SL_GLU_ARGS)
{
    for (size_t i = 0; i < n; i += SL_LANES) {
        const __mmask16 m = avx512_first(n - i < SL_LANES ? n - i : SL_LANES);
        const __m512 s = avx512_sigmoid(_mm512_maskz_loadu_ps(m, gate + i));
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(s, _mm512_maskz_loadu_ps(m, up + i)));
    }
}

/* min and max give their second operand when one is NaN. */
static void clamped_mul(SL_GLU_ARGS)
{
    const __m512 most = _mm512_set1_ps(SL_CLAMP), least = _mm512_set1_ps(-SL_CLAMP);
    const __m512 slope = _mm512_set1_ps(-SL_CLAMP_SLOPE), one = _mm512_set1_ps(1.0f);
    for (size_t i = 0; i < n; i += SL_LANES) {
        const __mmask16 m = avx512_first(n - i < SL_LANES ? n - i : SL_LANES);
        const __m512 g = _mm512_min_ps(most, _mm512_maskz_loadu_ps(m, gate + i));
        const __m512 cut = _mm512_min_ps(most, _mm512_maskz_loadu_ps(m, up + i));
        const __m512 u = _mm512_max_ps(least, cut);
        const __m512 e = avx512_exp(_mm512_mul_ps(slope, g));
        const __m512 v = _mm512_div_ps(g, _mm512_add_ps(one, e));
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(v, _mm512_add_ps(u, one)));
    }
}

static float max_of(const float *x, size_t n)
{
    __m512 v = _mm512_set1_ps(-INFINITY);
    size_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES)
        v = _mm512_max_ps(_mm512_loadu_ps(x + i), v); /* the second operand when one is NaN */
    if (i < n) {
        const __mmask16 m = avx512_first(n - i);
        v = _mm512_mask_max_ps(v, m, _mm512_maskz_loadu_ps(m, x + i), v);
    }
    return _mm512_reduce_max_ps(v) + 0.0f;
}

static void softmax(SL_MAP_ARGS)
{
    const __m512 max = _mm512_set1_ps(max_of(x, n));
    const __mmask16 rest = avx512_first(n % SL_LANES);
    __m512 sum = _mm512_setzero_ps();
    size_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES) {
        const __m512 e = avx512_exp(_mm512_sub_ps(_mm512_loadu_ps(x + i), max));
        _mm512_storeu_ps(y + i, e);
        sum = _mm512_add_ps(sum, e);
    }
    const __m512 e = avx512_exp(_mm512_sub_ps(_mm512_maskz_loadu_ps(rest, x + i), max));
    sum = _mm512_mask_add_ps(sum, rest, sum, e);
    const __m512 s = _mm512_set1_ps(avx512_sum(sum));
    _mm512_mask_storeu_ps(y + i, rest, _mm512_div_ps(e, s));
    for (i = 0; i + SL_LANES <= n; i += SL_LANES)
        _mm512_storeu_ps(y + i, _mm512_div_ps(_mm512_loadu_ps(y + i), s));
}

/* Sixteen scores are looked at together once the list is full: most stay out. */
static void scan(sl_top *t, const float *score, size_t n, uint32_t first)
{
    size_t i = 0;
    for (; i < n && t->n < t->k; i++)
        sl_top_offer(t, score[i], first + (uint32_t)i);
    for (; i < n; i += SL_LANES) {
        const __mmask16 in = avx512_first(n - i < SL_LANES ? n - i : SL_LANES);
        const __m512 least = _mm512_set1_ps(sl_top_least(t));
        const __m512 s = _mm512_maskz_loadu_ps(in, score + i);
        for (unsigned m = _mm512_mask_cmp_ps_mask(in, s, least, _CMP_GT_OQ); m; m &= m - 1) {
            const size_t at = i + (size_t)__builtin_ctz(m);
            sl_top_offer(t, score[at], first + (uint32_t)at);
        }
    }
}

static void route(SL_ROUTE_ARGS)
{
    sl_route_run(r, x, ids, weights, softmax, map_sigmoid, scan);
}

/* V vectors of y take all rows before they are stored; m: the lanes of the last one. */
SL_INLINE void weighted_strip(const int V, const float *const *x, const float *w, size_t n_x,
                              float *y, size_t i, __mmask16 m)
{
    __m512 sum[4];
    SL_UNROLL
    for (int v = 0; v < V; v++)
        sum[v] = _mm512_maskz_loadu_ps(m, y + i + SL_LANES * (size_t)v);
    for (size_t e = 0; e < n_x; e++) {
        const __m512 by = _mm512_set1_ps(w[e]);
        SL_UNROLL
        for (int v = 0; v < V; v++)
            sum[v] = _mm512_fmadd_ps(by, _mm512_maskz_loadu_ps(m, x[e] + i + SL_LANES * (size_t)v),
                                     sum[v]);
    }
    SL_UNROLL
    for (int v = 0; v < V; v++)
        _mm512_mask_storeu_ps(y + i + SL_LANES * (size_t)v, m, sum[v]);
}

static void weighted_sum(SL_WEIGHTED_SUM_ARGS)
{
    size_t i = 0;
    for (; i + 64 <= n; i += 64)
        weighted_strip(4, x, w, n_x, y, i, 0xffff);
    for (; i + SL_LANES <= n; i += SL_LANES)
        weighted_strip(1, x, w, n_x, y, i, 0xffff);
    if (i < n)
        weighted_strip(1, x, w, n_x, y, i, avx512_first(n - i));
}

void sl_kernels_fill_avx512_math(sl_kernels *k)
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
