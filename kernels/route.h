/* The choice behind the slot route, the same at every level: how scores become ids and weights.
 * Levels bring how softmax and sigmoid are computed and how scores are scanned. Private to the
 * folder. */
#ifndef SL_ROUTE_H
#define SL_ROUTE_H

#include "kernels.h"
#include "lanes.h"

/* The best k so far, best first. Offered in ascending order of index, an equal one never passes one
 * that is in. */
typedef struct sl_top {
    size_t k, n; /* n of them are filled */
    float score[SL_ROUTE_MAX_K];
    uint32_t id[SL_ROUTE_MAX_K];
} sl_top;

/* What a score has to exceed once k are in. */
static inline float sl_top_least(const sl_top *t)
{
    return t->score[t->k - 1];
}

static inline void sl_top_offer(sl_top *t, float score, uint32_t id)
{
    score = isnan(score) ? -INFINITY : score;
    if (t->n == t->k && !(score > sl_top_least(t)))
        return;
    size_t at = t->n < t->k ? t->n++ : t->k - 1;
    for (; at > 0 && score > t->score[at - 1]; at--) {
        t->score[at] = t->score[at - 1];
        t->id[at] = t->id[at - 1];
    }
    t->score[at] = score;
    t->id[at] = id;
}

/* Offers score [n] as ids from first up. */
typedef void sl_top_scan_fn(sl_top *t, const float *score, size_t n, uint32_t first);

/* The sum of the two best of a group; of the only one. */
static inline float sl_route_group_score(sl_top_scan_fn *scan, const float *score, size_t n)
{
    sl_top best = {.k = n < 2 ? 1 : 2};
    scan(&best, score, n, 0);
    return n < 2 ? best.score[0] : best.score[0] + best.score[1];
}

static inline void sl_route_groups(const sl_route *r, sl_top_scan_fn *scan, const float *score,
                                   sl_top *top)
{
    const size_t each = r->n / r->n_groups;
    sl_top groups = {.k = r->top_groups};
    bool in[SL_ROUTE_MAX_N] = {false};
    for (size_t g = 0; g < r->n_groups; g++)
        sl_top_offer(&groups, sl_route_group_score(scan, score + g * each, each), (uint32_t)g);
    for (size_t g = 0; g < groups.n; g++)
        in[groups.id[g]] = true;
    for (size_t g = 0; g < r->n_groups; g++)
        if (in[g])
            scan(top, score + g * each, each, (uint32_t)(g * each));
}

static inline void sl_route_weights(const sl_route *r, float *weights)
{
    float lane[SL_LANES] = {0};
    for (size_t i = 0; r->renormalise && i < r->k; i++)
        lane[i % SL_LANES] += weights[i];
    const float sum = sl_lanes_sum(lane) + r->renormalise_eps;
    for (size_t i = 0; i < r->k; i++)
        weights[i] = (r->renormalise ? weights[i] / sum : weights[i]) * r->factor;
}

static inline void sl_route_run(SL_ROUTE_ARGS, sl_map_fn *softmax, sl_map_fn *sigmoid,
                                sl_top_scan_fn *scan)
{
    float p[SL_ROUTE_MAX_N], biased[SL_ROUTE_MAX_N];
    const float *value = x, *score = x;
    if (r->k == 0)
        return;
    if (r->kind != SL_ROUTE_TOP_SOFTMAX) {
        (r->kind == SL_ROUTE_SOFTMAX ? softmax : sigmoid)(x, p, r->n);
        score = value = p;
    }
    if (r->bias) {
        for (size_t i = 0; i < r->n; i++)
            biased[i] = value[i] + r->bias[i];
        score = biased;
    }
    sl_top top = {.k = r->k};
    if (r->n_groups > 1)
        sl_route_groups(r, scan, score, &top);
    else
        scan(&top, score, r->n, 0);
    for (size_t i = 0; i < r->k; i++) {
        ids[i] = top.id[i];
        weights[i] = value[top.id[i]];
    }
    if (r->kind == SL_ROUTE_TOP_SOFTMAX)
        softmax(weights, weights, r->k);
    sl_route_weights(r, weights);
}

#endif
