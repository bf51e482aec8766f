/* The forward pass, for all families: the one function that says in which order everything happens
 * is sl_forward().
 *
 * Dimension letters: T rows of this pass, D n_embd, H query heads, G key/value heads, d head_dim, F
 * n_ff, V n_vocab. Every row's result depends on that row and the cache alone, so the bits are the
 * same for any T and any number of threads. */
#include <math.h>
#include <string.h>

#include "forward.h"

/* ---- products: a group's steps, unit by unit ---- */

typedef struct run {
    const uint8_t *w;
    const sl_product *p;
    const void *act;
    size_t act_bytes;
    float *y;
    size_t y_stride, first_task;
    sl_scales s; /* of the product's first row, if it has any beside */
} run;

typedef struct region {
    const sl_pass *p;
    uint32_t n_runs;
    size_t rows_per_task, batch;
    run run[SL_MAX_PRODUCTS];
} region;

static void multiply_rows(void *ctx, size_t task, unsigned worker)
{
    const region *r = ctx;
    uint32_t i = r->n_runs - 1;
    while (r->run[i].first_task > task)
        i--;
    const run *u = &r->run[i];
    size_t row = (task - u->first_task) * r->rows_per_task, left = u->p->n_rows - row;
    const sl_session *s = r->p->s;
    const size_t scratch_bytes = (size_t)sl_round_up(s->model->layout.mul_scratch_bytes, 64);
    const sl_scales scales = u->p->beside ? sl_scales_from(&u->s, row) : u->s;
    r->p->k->mul[u->p->type](u->w + row * u->p->row_bytes, u->p->row_bytes,
                             left < r->rows_per_task ? left : r->rows_per_task, u->p->n_cols,
                             u->act, u->act_bytes, r->batch, u->y + row, u->y_stride,
                             s->mul_scratch + worker * scratch_bytes,
                             u->p->beside ? &scales : NULL);
}

/* Rows of a task: about eight tasks per thread, so that the slowest thread's tail is short; whole
 * row groups. */
static size_t rows_per_task(const sl_step *st, unsigned n_threads)
{
    size_t rows = 0;
    for (uint32_t i = 0; i < st->n_products; i++)
        rows += st->product[i].n_rows;
    return (size_t)sl_round_up(rows / (8 * n_threads) + 1, SL_ROW_GROUP);
}

static sl_status run_step(sl_pass *p, const sl_step *step, const sl_operand *o)
{
    sl_stream *stream = p->m->stream;
    if (p->e->cancel && p->e->cancel(p->e->ctx))
        return sl_fail(p->err, SL_ECANCELLED, "stopped on request");
    sl_status st = sl_unit_enter(stream, step->unit, p->err);
    if (st != SL_OK)
        return st;
    region r = {.p = p,
                .n_runs = step->n_products,
                .rows_per_task = rows_per_task(step, sl_workers_count(p->w)),
                .batch = o->rows};
    size_t tasks = 0;
    for (uint32_t i = 0; i < step->n_products; i++) {
        const sl_product *pr = &step->product[i];
        const sl_act act = sl_weight_about(pr->type)->act;
        run *u = &r.run[i];
        u->w = sl_part_data(stream, step->part, pr->extent);
        u->p = pr;
        u->s = pr->s;
        if (pr->beside)
            u->s.scale = sl_part_data(stream, step->part, pr->scale_extent);
        if (pr->has_bias)
            u->s.bias = sl_part_data(stream, step->part, pr->bias_extent);
        u->act = act == SL_ACT_F32 ? (const void *)o->in : p->s->act[act];
        u->act_bytes =
            act == SL_ACT_F32 ? o->in_width * sizeof(float) : sl_act_bytes(act, pr->n_cols);
        u->y = o->out[pr->output] + pr->row0;
        u->y_stride = o->out_width[pr->output];
        u->first_task = tasks;
        tasks += (pr->n_rows + r.rows_per_task - 1) / r.rows_per_task;
    }
    sl_workers_run(p->w, multiply_rows, &r, tasks);
    sl_unit_leave(stream, step->unit);
    return SL_OK;
}

typedef struct quantize_ctx {
    const sl_pass *p;
    const sl_operand *o;
    sl_act act;
} quantize_ctx;

static void quantize_row(void *ctx, size_t row, unsigned worker)
{
    (void)worker;
    const quantize_ctx *q = ctx;
    const size_t bytes = sl_act_bytes(q->act, q->o->in_width);
    q->p->k->quantize[q->act](q->o->in + row * q->o->in_width,
                              (uint8_t *)q->p->s->act[q->act] + row * bytes, q->o->in_width);
}

sl_status sl_project(sl_pass *p, const sl_group *g, const sl_operand *o)
{
    for (int act = SL_ACT_F32 + 1; act < SL_ACT_COUNT; act++) {
        if (g->act_mask & 1u << act) {
            quantize_ctx q = {p, o, (sl_act)act};
            sl_workers_run(p->w, quantize_row, &q, o->rows);
        }
    }
    for (uint32_t i = 0; i < g->n_steps; i++) {
        sl_status st = run_step(p, &p->m->layout.step[g->first_step + i], o);
        if (st != SL_OK)
            return st;
    }
    return SL_OK;
}

/* ---- row-wise operations ---- */

typedef struct rows_ctx {
    const sl_pass *p;
    const sl_layer *l;
    uint32_t layer;
    const float *weight; /* of a norm */
    const float *in;
    float *out;
} rows_ctx;

static void norm_row(void *ctx, size_t row, unsigned worker)
{
    (void)worker;
    const rows_ctx *c = ctx;
    const size_t D = c->p->m->arch.n_embd;
    c->p->k->rms_norm(c->in + row * D, c->weight, c->p->m->arch.norm_eps, c->out + row * D, D);
}

void sl_norm_rows(sl_pass *p, const float *in, const float *weight, float *out, uint32_t rows)
{
    rows_ctx c = {.p = p, .weight = weight, .in = in, .out = out};
    sl_workers_run(p->w, norm_row, &c, rows);
}

static void add_row(void *ctx, size_t row, unsigned worker)
{
    (void)worker;
    const rows_ctx *c = ctx;
    const size_t D = c->p->m->arch.n_embd;
    c->p->k->add(c->out + row * D, c->in + row * D, D);
}

void sl_add_to_residual(sl_pass *p)
{
    rows_ctx c = {.p = p, .in = p->s->y, .out = p->s->x};
    sl_workers_run(p->w, add_row, &c, p->rows);
}

enum { GLU_COLUMNS = 2048 }; /* of a task: a decode row is shared by the threads */

static void glu_piece(void *ctx, size_t task, unsigned worker)
{
    (void)worker;
    const rows_ctx *c = ctx;
    const size_t F = c->l->n_ff, pieces = (F + GLU_COLUMNS - 1) / GLU_COLUMNS;
    const size_t row = task / pieces, col = task % pieces * GLU_COLUMNS, left = F - col;
    float *gate = c->p->s->gate + row * F + col;
    c->p->k->silu_mul(gate, c->p->s->up + row * F + col, gate,
                      left < GLU_COLUMNS ? left : GLU_COLUMNS);
}

/* ---- embedding ---- */

static void embed_row(void *ctx, size_t row, unsigned worker)
{
    (void)worker;
    const sl_pass *p = ctx;
    const sl_layout *l = &p->m->layout;
    const size_t D = p->m->arch.n_embd;
    sl_scales scales = l->embed_scales;
    scales.scale = p->s->embed_scale_rows + row * scales.scale_bytes;
    scales.bias = p->s->embed_bias_rows + row * scales.scale_bytes;
    p->k->dequantize[l->embed_type](p->s->embed_rows + row * l->embed_row_bytes, p->s->x + row * D,
                                    D, l->embed_beside ? &scales : NULL);
}

static sl_status embed(sl_pass *p, const int32_t *ids)
{
    for (uint32_t t = 0; t < p->rows; t++)
        p->s->row_id[t] = (uint32_t)ids[t];
    sl_status st = SL_OK;
    for (uint32_t t = 0; st == SL_OK && t < p->rows; t += p->m->row_batch) {
        uint32_t n = p->rows - t < p->m->row_batch ? p->rows - t : p->m->row_batch;
        const sl_layout *l = &p->m->layout;
        const size_t at = t * l->embed_scales.scale_bytes;
        st = sl_rows_read(p->m->stream, l->embed_table, p->s->row_id + t, n,
                          p->s->embed_rows + t * l->embed_row_bytes, p->err);
        if (st == SL_OK && l->embed_beside)
            st = sl_rows_read(p->m->stream, l->embed_scale_table, p->s->row_id + t, n,
                              p->s->embed_scale_rows + at, p->err);
        if (st == SL_OK && l->embed_beside)
            st = sl_rows_read(p->m->stream, l->embed_bias_table, p->s->row_id + t, n,
                              p->s->embed_bias_rows + at, p->err);
    }
    if (st == SL_OK)
        sl_workers_run(p->w, embed_row, p, p->rows);
    return st;
}

/* cos and sin of position * frequency for the rows of this pass: in double, rounded once. */
static void make_rotations(sl_pass *p)
{
    const sl_rope *r = &p->m->arch.rope;
    const uint32_t half = r->n_rot / 2;
    for (uint32_t t = 0; t < p->rows; t++) {
        for (uint32_t i = 0; i < half; i++) {
            double angle = (double)(p->start + t) * r->inv_freq[i];
            p->s->cosine[(size_t)t * half + i] = (float)cos(angle);
            p->s->sine[(size_t)t * half + i] = (float)sin(angle);
        }
    }
}

static sl_status feed_forward(sl_pass *p, const sl_layer *l, uint32_t layer)
{
    sl_session *s = p->s;
    const sl_layer_groups *g = &p->m->layout.layer[layer];
    const size_t D = p->m->arch.n_embd, F = l->n_ff;
    sl_norm_rows(p, s->x, l->ffn_norm, s->norm, p->rows);
    const sl_operand in = {s->norm, D, p->rows, {s->gate, s->up}, {F, F}};
    sl_status st = sl_project(p, &g->gate_up, &in);
    if (st != SL_OK)
        return st;
    rows_ctx c = {.p = p, .l = l, .layer = layer};
    sl_workers_run(p->w, glu_piece, &c, p->rows * ((F + GLU_COLUMNS - 1) / GLU_COLUMNS));
    const sl_operand out = {s->gate, F, p->rows, {s->y}, {D}};
    st = sl_project(p, &g->down, &out);
    if (st == SL_OK)
        sl_add_to_residual(p);
    return st;
}

/* Logits of the last n rows. */
static sl_status head(sl_pass *p, uint32_t n)
{
    sl_session *s = p->s;
    const size_t D = p->m->arch.n_embd;
    sl_norm_rows(p, s->x + (size_t)(p->rows - n) * D, p->m->arch.final_norm, s->norm, n);
    const sl_operand o = {s->norm, D, n, {s->logits}, {p->m->arch.n_vocab}};
    return sl_project(p, &p->m->layout.head, &o);
}

static void show_hidden(const sl_pass *p, uint32_t index)
{
    if (p->e->hidden)
        p->e->hidden(p->e->ctx, index, p->start, p->rows, p->s->x);
}

static sl_status walk(sl_pass *p, const int32_t *ids, uint32_t n_logits)
{
    sl_status st = embed(p, ids);
    make_rotations(p);
    for (uint32_t i = 0; st == SL_OK && i < p->m->arch.n_layers; i++) {
        const sl_layer *l = &p->m->arch.layer[i];
        show_hidden(p, i);
        st = sl_attention(p, i);
        if (st == SL_OK)
            st = feed_forward(p, l, i);
    }
    if (st != SL_OK)
        return st;
    show_hidden(p, p->m->arch.n_layers);
    return n_logits ? head(p, n_logits) : SL_OK;
}

sl_status sl_forward(sl_session *s, const int32_t *ids, uint32_t n, uint32_t n_logits,
                     const sl_eval *e, sl_err *err)
{
    const sl_model *m = s->model;
    sl_pass p = {.s = s,
                 .m = m,
                 .k = &m->kernels,
                 .w = m->workers,
                 .e = e,
                 .rows = n,
                 .start = s->length,
                 .err = err};
    const sl_layout *l = &m->layout;
    sl_status st =
        sl_pass_begin(m->stream, n > 1 ? SL_PASS_PREFILL : SL_PASS_DECODE, n,
                      n_logits ? sl_plan_unit_count(l->plan) : l->units_without_head, err);
    if (st != SL_OK)
        return st;
    st = walk(&p, ids, n_logits);
    sl_pass_end(m->stream);
    return st;
}
