/* scalar_math.c, eight values at a time. */
#include "avx2_math.h"
#include "avx2_dot.h"
#include "levels.h"
#include "route.h"

typedef __m256 vector_fn(__m256 x);

SL_INLINE void map(vector_fn *f, float (*one)(float), SL_MAP_ARGS)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, f(_mm256_loadu_ps(x + i)));
    for (; i < n; i++)
        y[i] = one(x[i]);
}

static void map_exp(SL_MAP_ARGS)
{
    map(avx2_exp, sl_exp, x, y, n);
}

static void map_sigmoid(SL_MAP_ARGS)
{
    map(avx2_sigmoid, sl_sigmoid, x, y, n);
}

static void map_softplus(SL_MAP_ARGS)
{
    map(avx2_softplus, sl_softplus, x, y, n);
}

static void map_silu(SL_MAP_ARGS)
{
    map(avx2_silu, sl_silu, x, y, n);
}

static void map_tanh(SL_MAP_ARGS)
{
    map(avx2_tanh, sl_tanh, x, y, n);
}

static void sigmoid_mul(SL_GLU_ARGS)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(
            y + i, _mm256_mul_ps(avx2_sigmoid(_mm256_loadu_ps(gate + i)), _mm256_loadu_ps(up + i)));
    for (; i < n; i++)
        y[i] = sl_sigmoid(gate[i]) * up[i];
}

/* min and max give their second operand when one is NaN. */
static void clamped_mul(SL_GLU_ARGS)
{
    const __m256 most = _mm256_set1_ps(SL_CLAMP), least = _mm256_set1_ps(-SL_CLAMP);
    const __m256 slope = _mm256_set1_ps(-SL_CLAMP_SLOPE), one = _mm256_set1_ps(1.0f);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 g = _mm256_min_ps(most, _mm256_loadu_ps(gate + i));
        const __m256 u = _mm256_max_ps(least, _mm256_min_ps(most, _mm256_loadu_ps(up + i)));
        const __m256 e = avx2_exp(_mm256_mul_ps(slope, g));
        const __m256 v = _mm256_div_ps(g, _mm256_add_ps(one, e));
        _mm256_storeu_ps(y + i, _mm256_mul_ps(v, _mm256_add_ps(u, one)));
    }
    for (; i < n; i++)
        y[i] = sl_clamped_mul(gate[i], up[i]);
}

static float max_of(const float *x, size_t n)
{
    __m256 v = _mm256_set1_ps(-INFINITY);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        v = _mm256_max_ps(_mm256_loadu_ps(x + i), v); /* the second operand when one is NaN */
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    float max = _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max + 0.0f;
}

/* y = exp(x - max); returns the sum in lanes. */
static float exps(const float *x, float max, float *y, size_t n)
{
    const __m256 m = _mm256_set1_ps(max);
    __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    size_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES) {
        const __m256 a = avx2_exp(_mm256_sub_ps(_mm256_loadu_ps(x + i), m));
        const __m256 b = avx2_exp(_mm256_sub_ps(_mm256_loadu_ps(x + i + 8), m));
        _mm256_storeu_ps(y + i, a);
        _mm256_storeu_ps(y + i + 8, b);
        sum[0] = _mm256_add_ps(sum[0], a);
        sum[1] = _mm256_add_ps(sum[1], b);
    }
    float lane[SL_LANES];
    memcpy(lane, sum, sizeof lane);
    for (size_t l = 0; i < n; i++, l++) {
        y[i] = sl_exp(x[i] - max);
        lane[l] += y[i];
    }
    return sl_lanes_sum(lane);
}

static void softmax(SL_MAP_ARGS)
{
    const float sum = exps(x, max_of(x, n), y, n);
    const __m256 s = _mm256_set1_ps(sum);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_div_ps(_mm256_loadu_ps(y + i), s));
    for (; i < n; i++)
        y[i] /= sum;
}

/* Eight scores are looked at together once the list is full: most stay out. */
static void scan(sl_top *t, const float *score, size_t n, uint32_t first)
{
    size_t i = 0;
    for (; i < n && t->n < t->k; i++)
        sl_top_offer(t, score[i], first + (uint32_t)i);
    for (; i + 8 <= n; i += 8) {
        const __m256 least = _mm256_set1_ps(sl_top_least(t));
        const __m256 above = _mm256_cmp_ps(_mm256_loadu_ps(score + i), least, _CMP_GT_OQ);
        for (unsigned m = (unsigned)_mm256_movemask_ps(above); m; m &= m - 1) {
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

/* V vectors of y take all rows before they are stored. */
SL_INLINE void weighted_strip(const int V, const float *const *x, const float *w, size_t n_x,
                              float *y, size_t i)
{
    __m256 sum[4];
    SL_UNROLL
    for (int v = 0; v < V; v++)
        sum[v] = _mm256_loadu_ps(y + i + 8 * (size_t)v);
    for (size_t e = 0; e < n_x; e++) {
        const __m256 by = _mm256_broadcast_ss(w + e);
        SL_UNROLL
        for (int v = 0; v < V; v++)
            sum[v] = _mm256_fmadd_ps(by, _mm256_loadu_ps(x[e] + i + 8 * (size_t)v), sum[v]);
    }
    SL_UNROLL
    for (int v = 0; v < V; v++)
        _mm256_storeu_ps(y + i + 8 * (size_t)v, sum[v]);
}

static void weighted_sum(SL_WEIGHTED_SUM_ARGS)
{
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        weighted_strip(4, x, w, n_x, y, i);
    for (; i + 8 <= n; i += 8)
        weighted_strip(1, x, w, n_x, y, i);
    for (; i < n; i++)
        for (size_t e = 0; e < n_x; e++)
            y[i] = fmaf(w[e], x[e][i], y[i]);
}

void sl_kernels_fill_avx2_math(sl_kernels *k)
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
