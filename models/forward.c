/* The forward pass, for all families: the one function that says in which order everything happens
 * is sl_forward().
 *
 * Dimension letters: T rows of this pass, D n_embd, H query heads, G key/value heads, d head_dim, F
 * n_ff, V n_vocab. Every row's result depends on that row and the cache alone, so the bits are the
 * same for any T and any number of threads. */
#include <math.h>

#include "forward.h"

const char *const sl_work_names[SL_WORKS] = {"other",   "attention", "delta_net", "mlp",
                                             "experts", "head",      "sampling"};

static void begin_work(const sl_pass *p, sl_work work)
{
    sl_stream_mark(p->m->stream, work);
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
    if (p->e->hidden && p->rows > p->again)
        p->e->hidden(p->e->ctx, index, p->start + p->again, p->rows - p->again,
                     p->s->x + (size_t)p->again * p->m->arch.n_embd);
}

static sl_status walk(sl_pass *p, const int32_t *ids, uint32_t n_logits)
{
    sl_status st = embed(p, ids);
    make_rotations(p);
    for (uint32_t i = 0; st == SL_OK && i < p->m->arch.n_layers; i++) {
        const sl_layer *l = &p->m->arch.layer[i];
        const bool delta = l->mixer == SL_MIXER_DELTA_NET;
        show_hidden(p, i);
        begin_work(p, delta ? SL_WORK_DELTA_NET : SL_WORK_ATTENTION);
        st = delta ? sl_delta_net_mix(p, i) : sl_attention(p, i);
        begin_work(p, l->moe.n_experts ? SL_WORK_EXPERTS : SL_WORK_MLP);
        if (st == SL_OK)
            st = sl_feed_forward(p, i);
    }
    if (st != SL_OK)
        return st;
    show_hidden(p, p->m->arch.n_layers);
    begin_work(p, SL_WORK_HEAD);
    return n_logits ? head(p, n_logits) : SL_OK;
}

sl_status sl_forward(sl_session *s, uint32_t start, const int32_t *ids, uint32_t n, uint32_t again,
                     uint32_t n_logits, const sl_eval *e, sl_err *err)
{
    const sl_model *m = s->model;
    sl_pass p = {.s = s,
                 .m = m,
                 .k = &m->kernels,
                 .w = m->workers,
                 .e = e,
                 .rows = n,
                 .start = start,
                 .again = again,
                 .err = err};
    const sl_layout *l = &m->layout;
    sl_status st =
        sl_pass_begin(m->stream, n > 1 ? SL_PASS_PREFILL : SL_PASS_DECODE, n,
                      n_logits ? sl_plan_unit_count(l->plan) : l->units_without_head, err);
    if (st != SL_OK)
        return st;
    sl_state_pass_begin(&s->state, n, again);
    st = walk(&p, ids, n_logits);
    sl_pass_end(m->stream);
    begin_work(&p, SL_WORK_OTHER);
    sl_state_pass_end(&s->state, st == SL_OK ? start + n : SL_STATE_NONE);
    return st;
}
