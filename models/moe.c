/* The mixture-of-experts feed-forward block: each row goes through the experts that the router
 * chooses for it. Its result is defined as a sum in one order, whatever order experts arrive in:
 *
 *   y = +0, then y = fma(weight, output, y): the shared expert first, then the row's experts in
 *   ascending order; x += y
 *
 * so every expert's output waits in a buffer of its own until all are there. An expert sees just
 * the rows that chose it, gathered side by side: a row's output does not depend on its neighbours.
 *
 * E experts, k of them per row, F their width; slots and rounds: sl_moe_scratch. */
#include <string.h>

#include "moe_impl.h"

enum { SUM_COLUMNS = 1024 /* of a task */ };

/* ---- routing ---- */

static void route_row(void *ctx, size_t row, unsigned worker)
{
    (void)worker;
    mixture *m = ctx;
    const size_t k = m->moe->n_used;
    m->p->k->route(&m->moe->route, m->x->score + row * m->moe->n_experts, m->x->id + row * k,
                   m->x->weight + row * k);
}

/* A row's experts in ascending order, weights with them. */
static void sort_row(uint32_t *id, float *weight, uint32_t k)
{
    for (uint32_t i = 1; i < k; i++) {
        const uint32_t e = id[i];
        const float w = weight[i];
        uint32_t at = i;
        for (; at > 0 && id[at - 1] > e; at--) {
            id[at] = id[at - 1];
            weight[at] = weight[at - 1];
        }
        id[at] = e;
        weight[at] = w;
    }
}

/* Gives each use of an expert its slot. */
static void assign_slots(mixture *m)
{
    const uint32_t E = m->moe->n_experts, k = m->moe->n_used, S = m->p->rows * k;
    sl_moe_scratch *x = m->x;
    memset(x->first, 0, (E + 1) * sizeof *x->first);
    for (uint32_t i = 0; i < S; i++)
        x->first[x->id[i] + 1]++;
    for (uint32_t e = 0; e < E; e++)
        x->first[e + 1] += x->first[e];
    /* Each expert's start serves as its write position, which leaves it at the next one's. */
    for (uint32_t i = 0; i < S; i++) {
        x->slot[i] = x->first[x->id[i]]++;
        x->slot_row[x->slot[i]] = i / k;
    }
    memmove(x->first + 1, x->first, E * sizeof *x->first);
    x->first[0] = 0;
}

/* Norm, scores, choice: enters and leaves the router's unit. Rows are then in s->norm, and in
 * s->act in every form that a part of the block wants. */
static sl_status route(mixture *m)
{
    sl_pass *p = m->p;
    sl_session *s = p->s;
    const uint32_t D = p->m->arch.n_embd, E = m->moe->n_experts, k = m->moe->n_used;
    sl_norm_rows(p, s->x, m->l->ffn_norm, s->norm, p->rows);
    sl_quantize_rows(p,
                     m->g->router.act_mask | m->g->shared_gate_up.act_mask | m->g->experts.in_mask,
                     s->norm, D, p->rows, s->act);
    const sl_operand o = {s->norm, D, p->rows, {m->x->score}, {E}};
    sl_status st = sl_project_acts(p, &m->g->router, &o, s->act);
    if (st != SL_OK)
        return st;
    sl_workers_run(p->w, route_row, m, p->rows);
    const uint32_t again = p->again;
    if (p->e->router && p->rows > again)
        p->e->router(p->e->ctx, m->layer, p->start + again, p->rows - again, k,
                     m->x->id + again * k, m->x->weight + again * k);
    for (uint32_t t = 0; t < p->rows; t++)
        sort_row(m->x->id + t * k, m->x->weight + t * k, k);
    assign_slots(m);
    return SL_OK;
}

static sl_status need_experts(mixture *m)
{
    sl_moe_scratch *x = m->x;
    uint32_t n = 0;
    for (uint32_t e = 0; e < m->moe->n_experts; e++) {
        if (x->first[e + 1] == x->first[e])
            continue;
        x->part[n] = m->g->experts.first_part + e;
        x->part_rows[n++] = x->first[e + 1] - x->first[e];
    }
    return sl_parts_need(m->p->m->stream, x->part, x->part_rows, n, m->p->err);
}

/* ---- the shared expert ---- */

static void score_row(void *ctx, size_t row, unsigned worker)
{
    (void)worker;
    mixture *m = ctx;
    const size_t D = m->p->m->arch.n_embd;
    float *out = m->x->shared_weight + row;
    m->p->k->mul[SL_W_F32](m->moe->shared_score, D * sizeof(float), 1, D, m->p->s->norm + row * D,
                           D * sizeof(float), 1, out, 1, m->p->s->mul_scratch, NULL);
    m->p->k->sigmoid(out, out, 1);
}

/* s->y = its output, unweighted */
static sl_status shared_expert(mixture *m)
{
    sl_pass *p = m->p;
    sl_session *s = p->s;
    const size_t D = p->m->arch.n_embd, F = m->moe->n_ff_shared;
    const sl_operand in = {s->norm, D, p->rows, {s->gate, s->up}, {F, F}};
    sl_status st = sl_project_acts(p, &m->g->shared_gate_up, &in, s->act);
    if (st != SL_OK)
        return st;
    sl_glu_rows(p, s->gate, s->up, F, p->rows);
    sl_quantize_rows(p, m->g->shared_down.act_mask, s->gate, F, p->rows, m->x->mid);
    const sl_operand out = {s->gate, F, p->rows, {s->y}, {D}};
    st = sl_project_acts(p, &m->g->shared_down, &out, m->x->mid);
    for (uint32_t t = 0; t < p->rows; t++)
        m->x->shared_weight[t] = 1;
    if (m->moe->shared_gated)
        sl_workers_run(p->w, score_row, m, p->rows);
    return st;
}

/* ---- a round: a few experts with their rows ---- */

typedef struct span {
    mixture *m;
    const uint32_t *part;
    uint32_t n_parts, n_rows;
} span;

static uint32_t expert_of(mixture *m, uint32_t part)
{
    return part - m->g->experts.first_part;
}

static uint32_t rows_of(mixture *m, uint32_t part)
{
    const uint32_t *first = m->x->first + expert_of(m, part);
    return first[1] - first[0];
}

static void gather_row(void *ctx, size_t i, unsigned worker)
{
    (void)worker;
    mixture *m = ((span *)ctx)->m;
    const size_t row = m->x->slot_row[m->x->round_slot[i]], D = m->p->m->arch.n_embd;
    for (int form = 0; form < SL_ACT_COUNT; form++) {
        if (!(m->g->experts.in_mask & 1u << form))
            continue;
        const size_t bytes = form == SL_ACT_F32 ? D * sizeof(float) : sl_act_bytes((sl_act)form, D);
        const uint8_t *from = form == SL_ACT_F32 ? (const void *)m->p->s->norm : m->p->s->act[form];
        memcpy((uint8_t *)m->x->in[form] + i * bytes, from + row * bytes, bytes);
    }
}

/* pair [2 F] -> its first F floats: silu(gate) * up */
static void unite(mixture *m, float *pair)
{
    enum { MOST = 256 };
    const size_t F = m->moe->n_ff;
    float gate[MOST], up[MOST];
    if (!m->g->experts.alternating) {
        m->p->k->silu_mul(pair, pair + F, pair, F);
        return;
    }
    for (size_t at = 0; at < F; at += MOST) { /* what is written has been read */
        const size_t n = F - at < MOST ? F - at : MOST;
        for (size_t i = 0; i < n; i++) {
            gate[i] = pair[2 * (at + i)];
            up[i] = pair[2 * (at + i) + 1];
        }
        m->p->k->silu_mul(gate, up, pair + at, n);
    }
}

/* silu(gate) * up, in the forms that down wants. */
static void finish_row(void *ctx, size_t i, unsigned worker)
{
    (void)worker;
    mixture *m = ((span *)ctx)->m;
    const size_t F = m->moe->n_ff;
    float *pair = m->x->pair + i * 2 * F;
    unite(m, pair);
    for (int form = SL_ACT_F32 + 1; form < SL_ACT_COUNT; form++)
        if (m->g->experts.mid_mask & 1u << form)
            m->p->k->quantize[form](
                pair, (uint8_t *)m->x->mid[form] + i * sl_act_bytes((sl_act)form, F), F);
}

/* Rows in the forms that products want: floats of [width], the others in act. */
typedef struct inputs {
    const float *in;
    size_t width;
    void *const *act;
} inputs;

/* The run's rows begin at row of these. */
static void bind(mixture *m, sl_run *u, const sl_product *product, uint32_t part, const inputs *x,
                 size_t row)
{
    sl_run_bind(m->p, u, product, part);
    sl_run_operand(u, x->in, x->width, x->act);
    u->act = (const uint8_t *)u->act + row * u->act_bytes;
    u->batch = rows_of(m, part);
}

static void gate_and_up(span *r)
{
    mixture *m = r->m;
    const sl_experts *all = &m->g->experts;
    const size_t F = m->moe->n_ff, D = m->p->m->arch.n_embd;
    /* One row is where it is; more have to lie side by side. */
    const bool gathered = m->p->rows > 1;
    const inputs in = gathered ? (inputs){m->x->in[SL_ACT_F32], D, m->x->in}
                               : (inputs){m->p->s->norm, D, m->p->s->act};
    if (gathered)
        sl_workers_run(m->p->w, gather_row, r, r->n_rows);
    size_t row = 0;
    sl_run *u = m->x->run;
    for (uint32_t i = 0; i < r->n_parts; i++) {
        for (uint32_t k = 0; k < all->n_in; k++, u++) {
            bind(m, u, &all->in[k], r->part[i], &in, gathered ? row : 0);
            u->y = m->x->pair + row * 2 * F + k * F;
            u->y_stride = 2 * F;
        }
        row += rows_of(m, r->part[i]);
    }
    sl_runs_multiply(m->p, m->x->run, all->n_in * r->n_parts);
    sl_workers_run(m->p->w, finish_row, r, r->n_rows);
}

static sl_status down(span *r)
{
    mixture *m = r->m;
    const size_t D = m->p->m->arch.n_embd;
    const inputs in = {m->x->pair, 2 * (size_t)m->moe->n_ff, m->x->mid};
    size_t row = 0;
    for (uint32_t i = 0; i < r->n_parts; i++) {
        sl_status st = sl_part_rest(m->p->m->stream, r->part[i], m->p->err);
        if (st != SL_OK)
            return st;
        sl_run *u = &m->x->run[i];
        bind(m, u, &m->g->experts.down, r->part[i], &in, row);
        u->y = m->x->out + m->x->first[expert_of(m, r->part[i])] * D;
        u->y_stride = D;
        row += u->batch;
    }
    sl_runs_multiply(m->p, m->x->run, r->n_parts);
    return SL_OK;
}

/* The first of n parts whose rows fit into a round together. */
static span take_round(mixture *m, const uint32_t *part, uint32_t n)
{
    span r = {m, part, 0, 0};
    for (; r.n_parts < n; r.n_parts++) {
        const uint32_t rows = rows_of(m, part[r.n_parts]);
        if (r.n_rows + rows > m->x->round_rows)
            break;
        for (uint32_t i = 0; i < rows; i++)
            m->x->round_slot[r.n_rows++] = m->x->first[expert_of(m, part[r.n_parts])] + i;
    }
    return r;
}

static sl_status run_experts(mixture *m)
{
    sl_pass *p = m->p;
    for (;;) {
        uint32_t n = 0;
        sl_status st = sl_parts_next(p->m->stream, m->x->ready, m->moe->n_experts, &n, p->err);
        if (st != SL_OK || !n)
            return st;
        for (uint32_t done = 0; done < n;) {
            span r = take_round(m, m->x->ready + done, n - done);
            gate_and_up(&r);
            st = down(&r);
            if (st != SL_OK)
                return st;
            done += r.n_parts;
        }
    }
}

/* ---- the sum ---- */

static void sum_piece(void *ctx, size_t task, unsigned worker)
{
    (void)worker;
    mixture *m = ctx;
    const sl_session *s = m->p->s;
    const size_t D = m->p->m->arch.n_embd, pieces = (D + SUM_COLUMNS - 1) / SUM_COLUMNS;
    const size_t row = task / pieces, col = task % pieces * SUM_COLUMNS, left = D - col;
    const size_t n = left < SUM_COLUMNS ? left : SUM_COLUMNS, k = m->moe->n_used;
    const float *x[SL_ROUTE_MAX_K + 1];
    float weight[SL_ROUTE_MAX_K + 1], *y = s->norm + row * D + col;
    uint32_t n_x = 0;
    if (m->moe->n_ff_shared) {
        x[0] = s->y + row * D + col;
        weight[n_x++] = m->x->shared_weight[row];
    }
    for (size_t i = 0; i < k; i++) {
        x[n_x] = m->x->out + m->x->slot[row * k + i] * D + col;
        weight[n_x++] = m->x->weight[row * k + i];
    }
    memset(y, 0, n * sizeof *y);
    m->p->k->weighted_sum(x, weight, n_x, y, n);
    m->p->k->add(s->x + row * D + col, y, n);
}

/* The normed rows are no longer needed: their buffer takes the sums. */
static void sum_up(mixture *m)
{
    const size_t D = m->p->m->arch.n_embd;
    sl_workers_run(m->p->w, sum_piece, m, m->p->rows * ((D + SUM_COLUMNS - 1) / SUM_COLUMNS));
}

sl_status sl_mixture(sl_pass *p, uint32_t layer)
{
    mixture m = mixture_of(p, layer);
    const uint32_t unit = m.g->experts.unit;
    sl_status st = route(&m);
    if (st == SL_OK)
        st = sl_unit_enter(p->m->stream, unit, p->err);
    if (st == SL_OK)
        st = need_experts(&m);
    if (st != SL_OK)
        return st;
    if (m.moe->n_ff_shared)
        st = shared_expert(&m);
    if (st == SL_OK) {
        sl_guess_experts(p, layer, m.moe->n_ff_shared > 0);
        st = run_experts(&m);
    }
    if (st != SL_OK)
        return st;
    sum_up(&m);
    sl_unit_leave(p->m->stream, unit);
    return SL_OK;
}
