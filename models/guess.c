/* Which experts later layers will choose: their routers' word on the residual as it is now, so that
 * their parts can be read ahead. Only reads depend on it, never a result. */
#include <string.h>

#include "moe_impl.h"

/* While all that a layer needs is in memory, its guess would be what bookkeeping costs most: a
 * router is two or three percent of a token's bytes. So auto stops when nothing was missing for a
 * while, and goes on as soon as something is. A guess from farther away pays where that of the
 * layer before was not enough: what it reads comes late. */
static bool worth_guessing(mixture *m, bool far)
{
    enum { QUIET = 8 };
    sl_guess_watch *w = &m->x->watch[2 * m->layer + far];
    sl_need_stats st;
    if (m->p->s->opt.predict != SL_PREDICT_AUTO)
        return true;
    sl_stream_need_stats(m->p->m->stream, m->g->experts.unit, &st);
    const uint64_t missing = st.needs - st.hits + (far ? 0 : st.hints);
    w->quiet = missing == w->missing ? w->quiet + 1 : 0;
    w->missing = missing;
    return w->quiet < QUIET;
}

/* The layer's input as far as it is known: the residual, and the output of the shared expert of the
 * layer before, where that has one. */
static const float *input_so_far(mixture *m, bool shared)
{
    const sl_session *s = m->p->s;
    const size_t D = m->p->m->arch.n_embd;
    float *sum = m->x->guess_norm;
    if (!shared)
        return s->x;
    memcpy(sum, s->x, m->p->rows * D * sizeof *sum);
    for (size_t t = 0; t < m->p->rows; t++) {
        const float *y = s->y + t * D;
        m->p->k->weighted_sum(&y, m->x->shared_weight + t, 1, sum + t * D, D);
    }
    return sum;
}

/* The router's scores of rows that the layer may see later; false: the router is not there. */
static bool guess_scores(mixture *m, bool shared)
{
    sl_pass *p = m->p;
    sl_moe_scratch *x = m->x;
    const sl_group *g = &m->g->router;
    const uint32_t D = p->m->arch.n_embd;
    sl_norm_rows(p, input_so_far(m, shared), m->l->ffn_norm, x->guess_norm, p->rows);
    sl_quantize_rows(p, g->act_mask, x->guess_norm, D, p->rows, x->guess_act);
    for (uint32_t i = 0; i < g->n_steps; i++) {
        const sl_step *step = &p->m->layout.step[g->first_step + i];
        sl_run u;
        if (!sl_run_peek(p, &u, &step->product[0], step->part))
            return false;
        sl_run_operand(&u, x->guess_norm, D, x->guess_act);
        u.batch = p->rows;
        u.y = x->score + step->product[0].row0;
        u.y_stride = m->moe->n_experts;
        sl_runs_multiply(p, &u, 1);
    }
    return true;
}

/* How many experts each row is guessed to use. */
static uint32_t guesses_per_row(const mixture *m)
{
    const int32_t predict = m->p->s->opt.predict;
    uint32_t n = predict < 0 ? m->moe->n_used : (uint32_t)predict;
    n = n < m->moe->n_experts ? n : m->moe->n_experts;
    return n < SL_ROUTE_MAX_K ? n : SL_ROUTE_MAX_K;
}

/* Guessed experts into id [E]: of one row the likeliest first, of several in ascending order. */
static uint32_t guess(mixture *m, bool far, bool shared, uint32_t *id)
{
    const uint32_t E = m->moe->n_experts;
    float weight[SL_ROUTE_MAX_K];
    uint32_t chosen[SL_ROUTE_MAX_K], n = 0;
    bool in[SL_ROUTE_MAX_N] = {false};
    sl_route r = m->moe->route;
    r.k = guesses_per_row(m);
    if (!worth_guessing(m, far) || !guess_scores(m, shared))
        return 0;
    for (uint32_t t = 0; t < m->p->rows; t++) {
        float *score = m->x->score + (size_t)t * E;
        for (uint32_t e = 0; m->p->s->opt.predict == SL_PREDICT_WRONG && e < E; e++)
            score[e] = -score[e];
        m->p->k->route(&r, score, chosen, weight);
        for (size_t i = 0; i < r.k; i++) {
            id[n] = chosen[i];
            n += !in[chosen[i]];
            in[chosen[i]] = true;
        }
    }
    for (uint32_t e = 0, at = 0; m->p->rows > 1 && e < E; e++)
        if (in[e])
            id[at++] = e;
    return n;
}

/* Many rows use nearly all experts: those are read ahead in the order in which they will be asked
 * for. */
static void guess_layer(sl_pass *p, uint32_t layer, bool far, bool shared)
{
    mixture m = mixture_of(p, layer);
    uint32_t part[SL_ROUTE_MAX_N + 1], n = 0;
    if (p->rows > p->s->moe.guess_rows)
        for (n = 0; n < m.moe->n_experts; n++)
            part[n] = n;
    else
        n = guess(&m, far, shared, part);
    for (uint32_t i = 0; i < n; i++)
        part[i] += m.g->experts.first_part;
    if (n)
        sl_parts_hint(p->m->stream, part, n);
}

void sl_guess_experts(sl_pass *p, uint32_t layer, bool shared)
{
    const sl_arch *arch = &p->m->arch;
    const uint32_t ahead = p->rows > p->s->moe.guess_rows ? 1 : p->s->opt.predict_layers;
    for (uint32_t i = 1; i <= ahead && layer + i < arch->n_layers && p->s->opt.predict; i++)
        if (arch->layer[layer + i].moe.n_experts)
            guess_layer(p, layer + i, i > 1, shared);
}
