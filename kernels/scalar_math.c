/* What is computed of one row of floats alone: functions of each value, softmax, the choice of the
 * best scores, and weighted sums of rows. The other levels equal this file bit for bit. */
#include "levels.h"
#include "route.h"
#include "vmath.h"

static void map_exp(SL_MAP_ARGS)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sl_exp(x[i]);
}

static void map_sigmoid(SL_MAP_ARGS)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sl_sigmoid(x[i]);
}

static void map_softplus(SL_MAP_ARGS)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sl_softplus(x[i]);
}

static void map_silu(SL_MAP_ARGS)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sl_silu(x[i]);
}

static void map_tanh(SL_MAP_ARGS)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sl_tanh(x[i]);
}

static void sigmoid_mul(SL_GLU_ARGS)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sl_sigmoid(gate[i]) * up[i];
}

static void clamped_mul(SL_GLU_ARGS)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sl_clamped_mul(gate[i], up[i]);
}

/* Adding 0 makes a maximum of -0 one of +0: which of the two came first does not matter. */
static void softmax(SL_MAP_ARGS)
{
    float max = -INFINITY, lane[SL_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    max += 0.0f;
    for (size_t i = 0; i < n; i++) {
        y[i] = sl_exp(x[i] - max);
        lane[i % SL_LANES] += y[i];
    }
    const float sum = sl_lanes_sum(lane);
    for (size_t i = 0; i < n; i++)
        y[i] /= sum;
}

static void scan(sl_top *t, const float *score, size_t n, uint32_t first)
{
    for (size_t i = 0; i < n; i++)
        sl_top_offer(t, score[i], first + (uint32_t)i);
}

static void route(SL_ROUTE_ARGS)
{
    sl_route_run(r, x, ids, weights, softmax, map_sigmoid, scan);
}

static void weighted_sum(SL_WEIGHTED_SUM_ARGS)
{
    for (size_t e = 0; e < n_x; e++)
        for (size_t i = 0; i < n; i++)
            y[i] = fmaf(w[e], x[e][i], y[i]);
}

void sl_kernels_fill_scalar_math(sl_kernels *k)
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
