/* Attention over the cached keys and values of the sequence: projections, head norms, rotation, the
 * cache, scores in splits, their merge.
 *
 * Dimension letters: T rows of this pass, D n_embd, H query heads, G key/value heads, d head_dim.
 */
#include <string.h>

#include "forward.h"

typedef struct rows_ctx {
    const sl_pass *p;
    const sl_layer *l;
    uint32_t layer;
} rows_ctx;

/* Floats from one head of q to the next: its gate may lie between. */
static size_t head_step(const sl_layer *l)
{
    return l->attn_gate ? 2 * (size_t)l->head_dim : l->head_dim;
}

static void norm_heads(const sl_pass *p, float *x, uint32_t n_heads, size_t step, size_t head_dim,
                       const float *weight)
{
    for (uint32_t h = 0; h < n_heads; h++, x += step)
        p->k->rms_norm(x, weight, p->m->arch.norm_eps, x, head_dim);
}

/* Writes a row of k or v [G * d] to the cache, [G][n_ctx][row]. */
static void store_kv(const sl_pass *p, const sl_layer *l, const float *x, uint8_t *cache,
                     uint32_t position)
{
    const sl_session *s = p->s;
    const size_t d = l->head_dim, row_bytes = sl_kv_row_bytes(s->opt.kv, d);
    for (uint32_t g = 0; g < l->n_kv_heads; g++, x += d) {
        uint8_t *to = cache + ((size_t)g * s->opt.n_ctx + position) * row_bytes;
        if (s->opt.kv == SL_KV_F16)
            p->k->to_f16(x, (uint16_t *)(void *)to, d);
        else if (s->opt.kv == SL_KV_Q8)
            p->k->to_q8(x, to, d);
        else
            memcpy(to, x, d * sizeof(float));
    }
}

static uint8_t *cache_of(const sl_session *s, const sl_layer *l, uint32_t layer, int is_v)
{
    return s->kv + s->layer_kv[layer] +
           (is_v ? (size_t)l->n_kv_heads * s->opt.n_ctx * sl_kv_row_bytes(s->opt.kv, l->head_dim)
                 : 0);
}

/* Queries of the same key/value head side by side, [G][T][H/G][d], in the buffer of the normed
 * input (no longer needed). */
static float *queries_of(const sl_pass *p, const sl_layer *l, uint32_t kv_head, uint32_t t)
{
    const size_t group = l->n_heads / l->n_kv_heads;
    return p->s->norm + ((size_t)kv_head * p->rows + t) * group * l->head_dim;
}

/* Head norms, rotation, cache: row t of q, k, v. */
static void place_row(void *ctx, size_t t, unsigned worker)
{
    (void)worker;
    const rows_ctx *c = ctx;
    const sl_pass *p = c->p;
    const sl_layer *l = c->l;
    const sl_rope *r = &p->m->arch.rope;
    const size_t d = l->head_dim;
    const size_t q_step = head_step(l);
    float *q = p->s->q + t * l->n_heads * q_step, *k = p->s->k + t * l->n_kv_heads * d;
    if (l->qk_norm) {
        norm_heads(p, q, l->n_heads, q_step, d, l->q_norm);
        norm_heads(p, k, l->n_kv_heads, d, d, l->k_norm);
    }
    const float *cosine = p->s->cosine + t * r->n_rot / 2, *sine = p->s->sine + t * r->n_rot / 2;
    sl_rope_fn *rotate = r->pairs ? p->k->rope_pairs : p->k->rope_halves;
    rotate(q, l->n_heads, q_step, cosine, sine, r->n_rot);
    rotate(k, l->n_kv_heads, d, cosine, sine, r->n_rot);
    const uint32_t group = l->n_heads / l->n_kv_heads;
    for (uint32_t h = 0; h < l->n_heads; h++)
        memcpy(queries_of(p, l, h / group, (uint32_t)t) + h % group * d, q + h * q_step,
               d * sizeof(float));
    const uint32_t position = p->start + (uint32_t)t;
    store_kv(p, l, k, cache_of(p->s, l, c->layer, 0), position);
    store_kv(p, l, p->s->v + t * l->n_kv_heads * d, cache_of(p->s, l, c->layer, 1), position);
}

/* Attention of rows [first_row, first_row + n_rows): a task is one key/value head, one block of
 * rows and one split of the keys. Partial results lie [G][n_rows][H/G][n_splits][part_stride]. */
enum { ATTN_BLOCK = 16 };

typedef struct attn_ctx {
    const sl_pass *p;
    const sl_layer *l;
    uint32_t layer, first_row, n_rows, n_splits, n_blocks;
} attn_ctx;

static float *parts_of(const attn_ctx *c, size_t kv_head, size_t t)
{
    const size_t group = c->l->n_heads / c->l->n_kv_heads;
    return c->p->s->parts +
           (kv_head * c->n_rows + t) * group * c->n_splits * c->p->s->attn_part_stride;
}

static void attend_block(void *ctx, size_t task, unsigned worker)
{
    (void)worker;
    const attn_ctx *c = ctx;
    const sl_pass *p = c->p;
    const sl_session *s = p->s;
    const sl_layer *l = c->l;
    const uint32_t split = (uint32_t)(task % c->n_splits),
                   block = (uint32_t)(task / c->n_splits) % c->n_blocks;
    const uint32_t kv_head = (uint32_t)(task / c->n_splits / c->n_blocks);
    const uint32_t t = block * ATTN_BLOCK,
                   rows = c->n_rows - t < ATTN_BLOCK ? c->n_rows - t : ATTN_BLOCK;
    const size_t d = l->head_dim, group = l->n_heads / l->n_kv_heads;
    const size_t row_bytes = sl_kv_row_bytes(s->opt.kv, d);
    const size_t kv_offset = (size_t)kv_head * s->opt.n_ctx * row_bytes;
    sl_attn_fn *attn = s->opt.kv == SL_KV_F16  ? p->k->attn_f16
                       : s->opt.kv == SL_KV_Q8 ? p->k->attn_q8
                                               : p->k->attn_f32;
    sl_attn a = {
        .q = queries_of(p, l, kv_head, c->first_row + t),
        .n_q = rows * group,
        .q_stride = d,
        .k = cache_of(s, l, c->layer, 0) + kv_offset,
        .v = cache_of(s, l, c->layer, 1) + kv_offset,
        .k_stride = row_bytes,
        .v_stride = row_bytes,
        .dim_k = d,
        .dim_v = d,
        .begin = s->attn_begin + (c->first_row + t) * group,
        .end = s->attn_end + (c->first_row + t) * group,
        .split = split,
        .scale = l->attn_scale,
        .part = parts_of(c, kv_head, t) + split * s->attn_part_stride,
        .part_stride = c->n_splits * s->attn_part_stride,
    };
    attn(&a);
}

/* Merges the splits of row t; the result takes the place of q. */
static void merge_row(void *ctx, size_t t, unsigned worker)
{
    (void)worker;
    const attn_ctx *c = ctx;
    const sl_session *s = c->p->s;
    const size_t d = c->l->head_dim, group = c->l->n_heads / c->l->n_kv_heads,
                 step = head_step(c->l);
    float *out = s->q + (c->first_row + t) * c->l->n_heads * step;
    for (uint32_t g = 0; g < c->l->n_kv_heads; g++)
        for (size_t i = 0; i < group; i++, out += step)
            c->p->k->attn_merge(parts_of(c, g, t) + i * c->n_splits * s->attn_part_stride,
                                s->attn_part_stride, c->n_splits, d, NULL, out);
}

/* s->norm (queries), cache -> s->q */
static void attend(sl_pass *p, const sl_layer *l, uint32_t layer)
{
    const size_t group = l->n_heads / l->n_kv_heads;
    for (size_t i = 0; i < p->rows * group; i++) {
        p->s->attn_begin[i] = 0;
        p->s->attn_end[i] = p->start + (uint32_t)(i / group) + 1;
    }
    for (uint32_t first = 0; first < p->rows; first += p->s->attn_rows) {
        attn_ctx c = {.p = p, .l = l, .layer = layer, .first_row = first};
        c.n_rows = p->rows - first < p->s->attn_rows ? p->rows - first : p->s->attn_rows;
        c.n_splits = (p->start + first + c.n_rows - 1) / SL_ATTN_SPLIT + 1;
        c.n_blocks = (c.n_rows + ATTN_BLOCK - 1) / ATTN_BLOCK;
        sl_workers_run(p->w, attend_block, &c, (size_t)l->n_kv_heads * c.n_blocks * c.n_splits);
        sl_workers_run(p->w, merge_row, &c, c.n_rows);
    }
}

/* Row t times sigmoid of its gates, into the buffer of the queries (no longer needed), [T][H * d].
 */
static void gate_row(void *ctx, size_t t, unsigned worker)
{
    (void)worker;
    const rows_ctx *c = ctx;
    const size_t d = c->l->head_dim, H = c->l->n_heads;
    const float *q = c->p->s->q + t * H * 2 * d;
    float *out = c->p->s->norm + t * H * d;
    for (size_t h = 0; h < H; h++, q += 2 * d, out += d)
        c->p->k->sigmoid_mul(q + d, q, out, d);
}

sl_status sl_attention(sl_pass *p, uint32_t layer)
{
    sl_session *s = p->s;
    const sl_layer *l = &p->m->arch.layer[layer];
    const sl_layer_groups *g = &p->m->layout.layer[layer];
    const size_t D = p->m->arch.n_embd, q_width = (size_t)l->n_heads * l->head_dim,
                 kv_width = (size_t)l->n_kv_heads * l->head_dim;
    sl_norm_rows(p, s->x, l->attn_norm, s->norm, p->rows);
    const sl_operand in = {
        s->norm, D, p->rows, {s->q, s->k, s->v}, {l->n_heads * head_step(l), kv_width, kv_width}};
    sl_status st = sl_project(p, &g->mixer_in, &in);
    if (st != SL_OK)
        return st;
    rows_ctx c = {.p = p, .l = l, .layer = layer};
    sl_workers_run(p->w, place_row, &c, p->rows);
    attend(p, l, layer);
    if (l->attn_gate)
        sl_workers_run(p->w, gate_row, &c, p->rows);
    const sl_operand out = {l->attn_gate ? s->norm : s->q, q_width, p->rows, {s->y}, {D}};
    st = sl_project(p, &g->mixer_out, &out);
    if (st == SL_OK)
        sl_add_to_residual(p);
    return st;
}
