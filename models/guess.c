/* Which experts later layers will choose: their routers' word on the residual as it is now, so that
 * their parts can be read ahead. Only reads depend on it, never a result. */
#include <string.h>

#include "../kernels/q8_row.h"
#include "../kernels/quant.h"
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

/* ---- a router's small copy ----
 *
 * Routers are floats, and guesses two layers ahead read each two times more per token: 5 % of a
 * 30B-A3B token's bytes, 8 % of a 35B-A3B's. A guess can do with a quarter of them. */

typedef struct copying {
    mixture *m;
    const sl_run *from;
} copying;

static sl_q8_0 *copy_of(const mixture *m)
{
    const size_t blocks = m->p->m->arch.n_embd / SL_Q8_BLOCK;
    return (sl_q8_0 *)m->x->router + m->layer * m->x->router_rows * blocks;
}

static void copy_row(void *ctx, size_t row, unsigned worker)
{
    enum { MOST = 32 * SL_Q8_BLOCK };
    (void)worker;
    const copying *c = ctx;
    const sl_product *p = c->from->p;
    const sl_kernels *k = c->m->p->k;
    const uint8_t *w = c->from->w + row * p->row_bytes;
    float v[MOST];
    int8_t q[MOST + MOST / SL_Q8_BLOCK * 2];
    sl_q8_0 *out = copy_of(c->m) + (p->row0 + row) * (p->n_cols / SL_Q8_BLOCK);
    for (size_t at = 0; at < p->n_cols; at += MOST) {
        const size_t n = p->n_cols - at < MOST ? p->n_cols - at : MOST;
        k->dequantize[p->type](w + sl_weight_row_bytes(p->type, at), v, n, NULL);
        k->to_q8(v, q, n);
        for (size_t i = 0; i < n / SL_Q8_BLOCK; i++, out++) {
            memcpy(out->d, sl_q8_scale_at(q, n, i), sizeof out->d);
            memcpy(out->q, q + i * SL_Q8_BLOCK, sizeof out->q);
        }
    }
}

/* Makes the copy when the router is first there. False: it is not, and has not been. */
static bool copy_router(mixture *m)
{
    const sl_group *g = &m->g->router;
    if (m->x->copied[m->layer])
        return true;
    for (uint32_t i = 0; i < g->n_steps; i++) {
        const sl_step *step = &m->p->m->layout.step[g->first_step + i];
        sl_run u;
        if (!sl_run_peek(m->p, &u, &step->product[0], step->part))
            return false;
        copying c = {m, &u};
        sl_workers_run(m->p->w, copy_row, &c, step->product[0].n_rows);
    }
    return m->x->copied[m->layer] = true;
}

/* The scores of m->x->guess_norm: by the copy, or by the router. */
static void scores_by_copy(mixture *m)
{
    const uint32_t D = m->p->m->arch.n_embd;
    const float factor = m->p->m->layout.step[m->g->router.first_step].product[0].factor;
    const sl_product product = {.type = SL_W_Q8_0,
                                .n_rows = m->moe->n_experts,
                                .n_cols = D,
                                .row_bytes = sl_weight_row_bytes(SL_W_Q8_0, D),
                                .factor = factor};
    sl_run u = {.p = &product,
                .w = (const uint8_t *)copy_of(m),
                .batch = m->p->rows,
                .y = m->x->score,
                .y_stride = m->moe->n_experts};
    sl_quantize_rows(m->p, SL_ROUTER_COPY_ACT, m->x->guess_norm, D, m->p->rows, m->x->guess_act);
    sl_run_operand(&u, m->x->guess_norm, D, m->x->guess_act);
    sl_runs_multiply(m->p, &u, 1);
}

static bool scores_by_router(mixture *m)
{
    sl_pass *p = m->p;
    sl_moe_scratch *x = m->x;
    const sl_group *g = &m->g->router;
    const uint32_t D = p->m->arch.n_embd;
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

/* The router's scores of rows that the layer may see later; false: the router is not there. */
static bool guess_scores(mixture *m, bool shared)
{
    const bool small = sl_router_is_copied(&m->g->router, &m->p->m->layout);
    if (small && !copy_router(m))
        return false;
    sl_norm_rows(m->p, input_so_far(m, shared), m->l->ffn_norm, m->x->guess_norm, m->p->rows);
    if (!small)
        return scores_by_router(m);
    scores_by_copy(m);
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
