/* The gated delta net, a mixer without a cache: each value head has a state [dk][dv] that every row
 * decays, corrects towards its value and reads. A short convolution over the last rows comes first.
 *
 * Dimension letters: T rows of this pass, D n_embd, K key heads of dk, H value heads of dv, C = 2 K
 * dk + H dv channels. */
#include <math.h>
#include <string.h>

#include "forward.h"

static const float L2_EPS = 1e-6f; /* of q's and k's length; not a setting of the config */

typedef struct delta_ctx {
    const sl_pass *p;
    const sl_delta_net *d;
    float *conv, *state; /* the layer's, [n_taps - 1][C] and [H][dk][dv] */
    size_t first, n;     /* rows */
    size_t pieces;       /* of a head's columns */
} delta_ctx;

/* ---- convolution, lengths and gates ---- */

enum { CONV_CHANNELS = 256 }; /* of a task */

static void convolve(void *ctx, size_t task, unsigned worker)
{
    (void)worker;
    const delta_ctx *c = ctx;
    const sl_session *s = c->p->s;
    const size_t C = sl_delta_channels(c->d), at = task * CONV_CHANNELS, left = C - at;
    const sl_conv a = {.x = s->delta_in + c->first * C + at,
                       .w = c->d->taps + at,
                       .state = c->conv + at,
                       .y = s->delta_mix + c->first * C + at,
                       .x_stride = C,
                       .w_stride = C,
                       .state_stride = C,
                       .y_stride = C,
                       .n_rows = c->n,
                       .n_channels = left < CONV_CHANNELS ? left : CONV_CHANNELS,
                       .n_taps = c->d->n_taps,
                       .silu = true};
    c->p->k->conv(&a);
}

static void prepare_row(void *ctx, size_t row, unsigned worker)
{
    (void)worker;
    const delta_ctx *c = ctx;
    const sl_delta_net *d = c->d;
    const sl_kernels *k = c->p->k;
    const size_t t = c->first + row, dk = d->dim_k, H = d->n_v_heads;
    float *q = c->p->s->delta_mix + t * sl_delta_channels(d);
    float *a = c->p->s->delta_a + t * H, *b = c->p->s->delta_b + t * H;
    k->l2_norm(q, d->n_k_heads, dk, dk, L2_EPS, 1.0f / sqrtf((float)dk));
    k->l2_norm(q + d->n_k_heads * dk, d->n_k_heads, dk, dk, L2_EPS, 1.0f);
    k->delta_gates(a, b, d->rate, d->a_bias, a, b, H);
}

/* ---- the rule ---- */

/* A task is a value head, or a piece of its columns; its outputs take the place of v. */
static void turn_head(void *ctx, size_t task, unsigned worker)
{
    (void)worker;
    const delta_ctx *c = ctx;
    const sl_delta_net *d = c->d;
    const sl_session *s = c->p->s;
    const size_t head = task / c->pieces, C = sl_delta_channels(d), H = d->n_v_heads, dk = d->dim_k,
                 columns = d->dim_v / c->pieces, column = task % c->pieces * columns;
    const size_t key = d->tiled ? head % d->n_k_heads : head / (H / d->n_k_heads);
    float *row = s->delta_mix + c->first * C;
    float *v = row + 2 * d->n_k_heads * dk + head * d->dim_v + column;
    const sl_delta a = {.q = row + key * dk,
                        .k = row + (d->n_k_heads + key) * dk,
                        .v = v,
                        .decay = s->delta_a + c->first * H + head,
                        .beta = s->delta_b + c->first * H + head,
                        .state = c->state + head * dk * d->dim_v + column,
                        .out = v,
                        .q_stride = C,
                        .k_stride = C,
                        .v_stride = C,
                        .gate_stride = H,
                        .state_stride = d->dim_v,
                        .out_stride = C,
                        .n_rows = c->n,
                        .dim_k = dk,
                        .dim_v = columns};
    c->p->k->gated_delta(&a);
}

/* Heads are cut only where there would not be two for each thread: every piece reads q and k. */
static size_t pieces_of(const sl_delta_net *d, unsigned n_threads)
{
    size_t pieces = 1;
    while (d->n_v_heads * pieces < 2 * (size_t)n_threads && d->dim_v / pieces % 64 == 0)
        pieces *= 2;
    return pieces;
}

/* delta_in, delta_a, delta_b -> delta_mix, its v columns the outputs, for n rows from first on. */
static void mix_rows(const sl_pass *p, uint32_t layer, size_t first, size_t n)
{
    const sl_delta_net *d = &p->m->arch.layer[layer].delta;
    const size_t C = sl_delta_channels(d);
    float *conv = sl_state_of(&p->s->state, layer);
    delta_ctx c = {
        p, d, conv, conv + (d->n_taps - 1) * C, first, n, pieces_of(d, sl_workers_count(p->w))};
    sl_workers_run(p->w, convolve, &c, (C + CONV_CHANNELS - 1) / CONV_CHANNELS);
    sl_workers_run(p->w, prepare_row, &c, n);
    sl_workers_run(p->w, turn_head, &c, d->n_v_heads * c.pieces);
}

/* ---- the output's norm ---- */

enum { NORM_HEADS = 8 }; /* of a task: a decode row is shared by the threads */

static size_t norm_tasks(const sl_delta_net *d)
{
    return (d->n_v_heads + NORM_HEADS - 1) / NORM_HEADS;
}

/* Takes the place of z. */
static void norm_heads(void *ctx, size_t task, unsigned worker)
{
    (void)worker;
    const delta_ctx *c = ctx;
    const sl_delta_net *d = c->d;
    const size_t t = task / norm_tasks(d), dv = d->dim_v, H = d->n_v_heads;
    const size_t head = task % norm_tasks(d) * NORM_HEADS,
                 end = head + NORM_HEADS < H ? head + NORM_HEADS : H;
    const float *out =
        c->p->s->delta_mix + t * sl_delta_channels(d) + 2 * (size_t)d->n_k_heads * d->dim_k;
    float *z = c->p->s->delta_z + t * H * dv;
    for (size_t h = head; h < end; h++)
        c->p->k->gated_norm(out + h * dv, z + h * dv, d->norm, c->p->m->arch.norm_eps, z + h * dv,
                            dv);
}

/* ---- inputs ---- */

/* Inputs that come key head by key head, [T][C + H dv] and behind them [T][2 H], go where the
 * others are. */
static void scatter_row(void *ctx, size_t t, unsigned worker)
{
    (void)worker;
    const delta_ctx *c = ctx;
    const sl_delta_net *d = c->d;
    const sl_session *s = c->p->s;
    const size_t K = d->n_k_heads, H = d->n_v_heads, dk = d->dim_k, each = H / K,
                 v = each * d->dim_v, C = sl_delta_channels(d), V = H * d->dim_v;
    const float *qkvz = s->delta_mix + t * (C + V),
                *ba = s->delta_mix + c->p->rows * (C + V) + t * 2 * H;
    float *in = s->delta_in + t * C, *z = s->delta_z + t * V;
    for (size_t k = 0; k < K; k++, qkvz += 2 * dk + 2 * v, ba += 2 * each) {
        memcpy(in + k * dk, qkvz, dk * sizeof *in);
        memcpy(in + (K + k) * dk, qkvz + dk, dk * sizeof *in);
        memcpy(in + 2 * K * dk + k * v, qkvz + 2 * dk, v * sizeof *in);
        memcpy(z + k * v, qkvz + 2 * dk + v, v * sizeof *z);
        memcpy(s->delta_b + t * H + k * each, ba, each * sizeof *ba);
        memcpy(s->delta_a + t * H + k * each, ba + each, each * sizeof *ba);
    }
}

/* norm -> delta_in, delta_z, delta_a, delta_b */
static sl_status project(sl_pass *p, const sl_group *g, const sl_delta_net *d)
{
    sl_session *s = p->s;
    const size_t D = p->m->arch.n_embd, H = d->n_v_heads, V = H * d->dim_v,
                 C = sl_delta_channels(d);
    sl_operand in = {
        s->norm, D, p->rows, {s->delta_in, s->delta_z, s->delta_a, s->delta_b}, {C, V, H, H}};
    if (!d->grouped)
        return sl_project(p, g, &in);
    in = (sl_operand){
        s->norm, D, p->rows, {s->delta_mix, s->delta_mix + p->rows * (C + V)}, {C + V, 2 * H}};
    sl_status st = sl_project(p, g, &in);
    delta_ctx c = {.p = p, .d = d};
    if (st == SL_OK)
        sl_workers_run(p->w, scatter_row, &c, p->rows);
    return st;
}

sl_status sl_delta_net_mix(sl_pass *p, uint32_t layer)
{
    sl_session *s = p->s;
    const sl_layer *l = &p->m->arch.layer[layer];
    const sl_delta_net *d = &l->delta;
    const sl_layer_groups *g = &p->m->layout.layer[layer];
    const size_t D = p->m->arch.n_embd, H = d->n_v_heads, V = H * d->dim_v;
    sl_norm_rows(p, s->x, l->attn_norm, s->norm, p->rows);
    sl_status st = project(p, &g->mixer_in, d);
    if (st != SL_OK)
        return st;
    const uint32_t first = s->state.keep_row == SL_STATE_NONE ? 0 : s->state.keep_row;
    if (first) { /* the state between two of the rows is kept */
        mix_rows(p, layer, 0, first);
        sl_state_keep(&s->state, layer, d);
    }
    mix_rows(p, layer, first, p->rows - first);
    delta_ctx c = {.p = p, .d = d};
    sl_workers_run(p->w, norm_heads, &c, p->rows * norm_tasks(d));
    const sl_operand out = {s->delta_z, V, p->rows, {s->y}, {D}};
    st = sl_project(p, &g->mixer_out, &out);
    if (st == SL_OK)
        sl_add_to_residual(p);
    return st;
}
