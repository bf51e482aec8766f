/* The dense feed-forward block: down(silu(gate x) * up x). Dimension letters: D n_embd, F n_ff. */
#include "forward.h"

enum { GLU_COLUMNS = 2048 }; /* of a task: a decode row is shared by the threads */

typedef struct glu_ctx {
    const sl_pass *p;
    float *gate;
    const float *up;
    size_t width;
} glu_ctx;

static void glu_piece(void *ctx, size_t task, unsigned worker)
{
    (void)worker;
    const glu_ctx *c = ctx;
    const size_t F = c->width, pieces = (F + GLU_COLUMNS - 1) / GLU_COLUMNS;
    const size_t row = task / pieces, col = task % pieces * GLU_COLUMNS, left = F - col;
    float *gate = c->gate + row * F + col;
    c->p->k->silu_mul(gate, c->up + row * F + col, gate, left < GLU_COLUMNS ? left : GLU_COLUMNS);
}

void sl_glu_rows(sl_pass *p, float *gate, const float *up, size_t width, uint32_t rows)
{
    glu_ctx c = {p, gate, up, width};
    sl_workers_run(p->w, glu_piece, &c, rows * ((width + GLU_COLUMNS - 1) / GLU_COLUMNS));
}

static sl_status dense(sl_pass *p, uint32_t layer)
{
    const sl_layer *l = &p->m->arch.layer[layer];
    sl_session *s = p->s;
    const sl_layer_groups *g = &p->m->layout.layer[layer];
    const size_t D = p->m->arch.n_embd, F = l->n_ff;
    sl_norm_rows(p, s->x, l->ffn_norm, s->norm, p->rows);
    const sl_operand in = {s->norm, D, p->rows, {s->gate, s->up}, {F, F}};
    sl_status st = sl_project(p, &g->gate_up, &in);
    if (st != SL_OK)
        return st;
    sl_glu_rows(p, s->gate, s->up, F, p->rows);
    const sl_operand out = {s->gate, F, p->rows, {s->y}, {D}};
    st = sl_project(p, &g->down, &out);
    if (st == SL_OK)
        sl_add_to_residual(p);
    return st;
}

sl_status sl_feed_forward(sl_pass *p, uint32_t layer)
{
    if (p->m->arch.layer[layer].moe.n_experts)
        return sl_mixture(p, layer);
    sl_guess_experts(p, layer, false);
    return dense(p, layer);
}
