/* A sequence: KV cache and scratch, priced and allocated in one place; evaluation in chunks;
 * rewind. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "forward.h"

sl_session_options sl_session_defaults(const sl_model *m)
{
    return (sl_session_options){.n_ctx = m->arch.n_ctx_max,
                                .chunk = 512,
                                .logits_rows = 1,
                                .kv = SL_KV_F16,
                                .predict = SL_PREDICT_AUTO,
                                .predict_layers = 2,
                                .saved_states = 1};
}

/* The scratch of a session as one run of aligned pieces. With base NULL it only counts, so price
 * and allocation cannot drift. */
typedef struct carver {
    uint8_t *base;
    uint64_t used;
} carver;

static void *carve(carver *c, uint64_t n, uint64_t size)
{
    void *p = c->base ? c->base + c->used : NULL;
    c->used += sl_round_up(n * size, 64);
    return p;
}

typedef struct widths {
    uint64_t q, kv, ff,
        in; /* floats: all heads of q; of k or v; feed-forward; the widest input of a product */
    uint64_t q_rows; /* q with its gates */
    uint64_t heads, group, part_stride, head_dim;
    uint64_t channels, delta_out, delta_heads; /* of delta nets */
    uint64_t grouped; /* what inputs of theirs have that come key head by key head */
} widths;

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static widths widest(const sl_arch *a)
{
    widths w = {0};
    for (uint32_t i = 0; i < a->n_layers; i++) {
        const sl_layer *l = &a->layer[i];
        const sl_delta_net *d = &l->delta;
        w.channels = larger(w.channels, sl_delta_channels(d));
        w.delta_out = larger(w.delta_out, (uint64_t)d->n_v_heads * d->dim_v);
        w.delta_heads = larger(w.delta_heads, d->n_v_heads);
        if (d->grouped)
            w.grouped = larger(w.grouped, (uint64_t)d->n_v_heads * (d->dim_v + 2));
        const uint64_t q = (uint64_t)l->n_heads * l->head_dim;
        w.q = larger(w.q, q);
        w.q_rows = larger(w.q_rows, l->attn_gate ? 2 * q : q);
        w.kv = larger(w.kv, (uint64_t)l->n_kv_heads * l->head_dim);
        w.ff = larger(w.ff, l->moe.n_experts ? l->moe.n_ff_shared : l->n_ff);
        w.heads = larger(w.heads, l->n_heads);
        w.group = larger(w.group, l->n_heads / l->n_kv_heads);
        w.head_dim = larger(w.head_dim, l->head_dim);
    }
    w.in = larger(larger(larger(w.q, w.ff), w.delta_out), a->n_embd);
    w.part_stride = w.head_dim + 2;
    return w;
}

const char *sl_kv_name(sl_kv_type kv)
{
    return kv == SL_KV_F32 ? "f32" : kv == SL_KV_Q8 ? "q8_0" : "f16";
}

size_t sl_kv_row_bytes(sl_kv_type kv, size_t head_dim)
{
    return kv == SL_KV_F32  ? head_dim * sizeof(float)
           : kv == SL_KV_Q8 ? sl_q8_row_bytes(head_dim)
                            : head_dim * sizeof(uint16_t);
}

static uint64_t layer_kv_bytes(const sl_layer *l, const sl_session_options *o)
{
    return l->mixer == SL_MIXER_ATTENTION
               ? 2 * (uint64_t)l->n_kv_heads * o->n_ctx * sl_kv_row_bytes(o->kv, l->head_dim)
               : 0;
}

static uint64_t kv_bytes_of(const sl_arch *a, const sl_session_options *o)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < a->n_layers; i++)
        bytes += layer_kv_bytes(&a->layer[i], o);
    return bytes;
}

/* Rows whose attention partials are held at once: about 2 MiB of them, so that long contexts stay
 * small. */
static uint32_t attn_rows_of(const widths *w, uint64_t n_splits, uint32_t max_rows)
{
    uint64_t per_row = w->heads * n_splits * w->part_stride * sizeof(float);
    uint64_t rows = (2u << 20) / per_row;
    return rows < 1 ? 1 : rows < max_rows ? (uint32_t)rows : max_rows;
}

static void carve_acts(carver *c, uint32_t mask, uint64_t rows, uint64_t width, void **act)
{
    for (int i = 0; i < SL_ACT_COUNT; i++)
        if (mask & 1u << i)
            act[i] = carve(
                c, rows, i == SL_ACT_F32 ? width * sizeof(float) : sl_act_bytes((sl_act)i, width));
}

/* A pass in which each expert has so many uses on average will need nearly all of them. */
enum { ALL_FROM = 4 };

static void lay_moe(carver *c, sl_session *s, const sl_model *m)
{
    const sl_layout *l = &m->layout;
    sl_moe_scratch *x = &s->moe;
    uint64_t E = 0, k = 0, F = 0, shared = 0;
    const uint64_t T = s->max_rows, D = m->arch.n_embd;
    for (uint32_t i = 0; i < m->arch.n_layers; i++) {
        const sl_moe *moe = &m->arch.layer[i].moe;
        E = larger(E, moe->n_experts);
        k = larger(k, moe->n_used);
        F = larger(F, moe->n_ff);
        shared = larger(shared, moe->n_ff_shared);
    }
    if (!E)
        return;
    const uint32_t floats = 1u << SL_ACT_F32; /* are where they are */
    const uint64_t R = larger(T, k), S = T * k;
    x->round_rows = (uint32_t)R;
    x->score = carve(c, T * E, sizeof(float));
    x->id = carve(c, S, sizeof(uint32_t));
    x->weight = carve(c, S, sizeof(float));
    x->slot = carve(c, S, sizeof(uint32_t));
    x->shared_weight = carve(c, T, sizeof(float));
    x->slot_row = carve(c, S, sizeof(uint32_t));
    x->first = carve(c, E + 1, sizeof(uint32_t));
    x->part = carve(c, E, sizeof(uint32_t));
    x->part_rows = carve(c, E, sizeof(uint32_t));
    x->ready = carve(c, E, sizeof(uint32_t));
    x->round_slot = carve(c, R, sizeof(uint32_t));
    x->run = carve(c, 2 * E, sizeof(sl_run));
    x->pair = carve(c, R * 2 * F, sizeof(float));
    x->out = carve(c, S * D, sizeof(float));
    carve_acts(c, l->expert_in_mask, R, D, x->in);
    carve_acts(c, l->expert_mid_mask & ~floats, R, larger(F, shared), x->mid);
    x->watch = carve(c, 2 * (uint64_t)m->arch.n_layers, sizeof(sl_guess_watch));
    const uint64_t guess_rows = larger(ALL_FROM * E / k, 1) < T ? larger(ALL_FROM * E / k, 1) : T;
    x->guess_rows = (uint32_t)guess_rows;
    x->guess_norm = carve(c, guess_rows * D, sizeof(float));
    carve_acts(c, l->router_mask & ~floats, guess_rows, D, x->guess_act);
    if (s->opt.predict && l->copies_routers) {
        x->router_rows = (uint32_t)E;
        x->router = carve(c, m->arch.n_layers * E, sl_weight_row_bytes(SL_W_Q8_0, D));
        x->copied = carve(c, m->arch.n_layers, sizeof *x->copied);
    }
}

/* A layer has one mixer: the kinds share memory. */
static void lay_mixers(carver *c, sl_session *s, const widths *w)
{
    const uint64_t rows = s->max_rows;
    carver attention = *c, delta = *c;
    s->q = carve(&attention, rows * w->q_rows, sizeof(float));
    s->k = carve(&attention, rows * w->kv, sizeof(float));
    s->v = carve(&attention, rows * w->kv, sizeof(float));
    s->delta_in = carve(&delta, rows * w->channels, sizeof(float));
    s->delta_mix = carve(&delta, rows * (w->channels + w->grouped), sizeof(float));
    s->delta_z = carve(&delta, rows * w->delta_out, sizeof(float));
    s->delta_a = carve(&delta, rows * w->delta_heads, sizeof(float));
    s->delta_b = carve(&delta, rows * w->delta_heads, sizeof(float));
    c->used = larger(attention.used, delta.used);
}

static uint64_t lay_scratch(sl_session *s, const sl_model *m, unsigned n_threads)
{
    const sl_arch *a = &m->arch;
    const widths w = widest(a);
    const uint64_t rows = s->max_rows;
    carver c = {s->scratch, 0};
    s->n_splits = (s->opt.n_ctx + SL_ATTN_SPLIT - 1) / SL_ATTN_SPLIT;
    s->attn_part_stride = w.part_stride;
    s->attn_rows = attn_rows_of(&w, s->n_splits, s->max_rows);
    s->x = carve(&c, rows * a->n_embd, sizeof(float));
    s->norm = carve(&c, rows * larger(a->n_embd, w.q), sizeof(float));
    lay_mixers(&c, s, &w);
    s->gate = carve(&c, rows * w.ff, sizeof(float));
    s->up = carve(&c, rows * w.ff, sizeof(float));
    s->y = carve(&c, rows * a->n_embd, sizeof(float));
    s->logits = carve(&c, (uint64_t)s->opt.logits_rows * a->n_vocab, sizeof(float));
    s->cosine = carve(&c, rows * a->rope.n_rot / 2, sizeof(float));
    s->sine = carve(&c, rows * a->rope.n_rot / 2, sizeof(float));
    s->parts =
        carve(&c, (uint64_t)s->attn_rows * w.heads * s->n_splits * w.part_stride, sizeof(float));
    for (int i = SL_ACT_F32 + 1; i < SL_ACT_COUNT; i++)
        s->act[i] = carve(&c, rows, sl_act_bytes((sl_act)i, w.in));
    s->embed_rows = carve(&c, rows, m->layout.embed_row_bytes);
    const size_t scale_bytes = m->layout.embed_beside ? m->layout.embed_scales.scale_bytes : 0;
    s->embed_scale_rows = carve(&c, rows, scale_bytes);
    s->embed_bias_rows = carve(&c, rows, scale_bytes);
    s->row_id = carve(&c, rows, sizeof(uint32_t));
    s->attn_begin = carve(&c, rows * w.group, sizeof(uint32_t));
    s->attn_end = carve(&c, rows * w.group, sizeof(uint32_t));
    s->mul_scratch = carve(&c, n_threads, sl_round_up(m->layout.mul_scratch_bytes, 64));
    lay_moe(&c, s, m);
    return c.used;
}

static uint32_t rows_of(const sl_session_options *o)
{
    uint32_t rows = o->chunk < o->n_ctx ? o->chunk : o->n_ctx;
    return rows > o->logits_rows ? rows : o->logits_rows;
}

sl_session_price sl_session_cost(const sl_model *m, const sl_session_options *o, unsigned n_threads)
{
    sl_session s = {.opt = *o, .max_rows = rows_of(o)};
    sl_session_price p = {sl_round_up(kv_bytes_of(&m->arch, o), 4096),
                          sl_state_bytes(&m->arch, o->n_ctx, o->saved_states), 0};
    p.scratch_bytes = sl_round_up(lay_scratch(&s, m, n_threads), 4096) +
                      (uint64_t)m->arch.n_layers * sizeof(size_t) + sizeof s;
    return p;
}

/* A long context costs what is used of it. */
void *sl_pages_map(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static sl_status check_options(const sl_model *m, const sl_session_options *o, sl_err *err)
{
    if (!m->stream)
        return sl_fail(err, SL_EINVAL, "session before the model was loaded");
    if (o->n_ctx < 1 || o->n_ctx > m->arch.n_ctx_max)
        return sl_fail(err, SL_EINVAL, "context of %u tokens: the model takes 1 to %u", o->n_ctx,
                       m->arch.n_ctx_max);
    if (o->chunk < 1 || o->logits_rows < 1)
        return sl_fail(err, SL_EINVAL, "chunk of %u rows, logits of %u rows: at least 1 each",
                       o->chunk, o->logits_rows);
    if (o->saved_states > SL_MAX_SAVED)
        return sl_fail(err, SL_EINVAL, "%u saved states: at most %d", o->saved_states,
                       SL_MAX_SAVED);
    return SL_OK;
}

sl_status sl_session_open(sl_model *m, const sl_session_options *o, sl_session **out, sl_err *err)
{
    *out = NULL;
    sl_status st = check_options(m, o, err);
    if (st != SL_OK)
        return st;
    sl_session *s = calloc(1, sizeof *s);
    if (!s)
        return sl_fail(err, SL_ENOMEM, "out of memory for a session");
    s->model = m;
    s->opt = *o;
    s->max_rows = rows_of(o);
    s->kv_bytes = (size_t)sl_round_up(kv_bytes_of(&m->arch, o), 4096);
    s->scratch_bytes = (size_t)sl_round_up(lay_scratch(s, m, sl_workers_count(m->workers)), 4096);
    s->kv = sl_pages_map(s->kv_bytes);
    s->scratch = sl_pages_map(s->scratch_bytes);
    s->layer_kv = calloc(m->arch.n_layers, sizeof *s->layer_kv);
    if (!s->kv || !s->scratch || !s->layer_kv) {
        sl_session_close(&s);
        return sl_fail(err, SL_ENOMEM, "out of memory for a context of %u tokens", o->n_ctx);
    }
    st = sl_state_open(&s->state, &m->arch, o->n_ctx, o->saved_states, err);
    if (st != SL_OK) {
        sl_session_close(&s);
        return st;
    }
    lay_scratch(s, m, sl_workers_count(m->workers));
    size_t at = 0;
    for (uint32_t i = 0; i < m->arch.n_layers; i++) {
        s->layer_kv[i] = at;
        at += (size_t)layer_kv_bytes(&m->arch.layer[i], o);
    }
    *out = s;
    return SL_OK;
}

void sl_session_close(sl_session **sp)
{
    sl_session *s = sp ? *sp : NULL;
    if (!s)
        return;
    if (s->kv)
        munmap(s->kv, s->kv_bytes);
    if (s->scratch)
        munmap(s->scratch, s->scratch_bytes);
    sl_state_close(&s->state);
    free(s->layer_kv);
    free(s);
    *sp = NULL;
}

uint32_t sl_session_length(const sl_session *s)
{
    return s->length;
}

uint32_t sl_session_capacity(const sl_session *s)
{
    return s->opt.n_ctx;
}

sl_status sl_session_rewind(sl_session *s, uint32_t length, sl_err *err)
{
    if (length > s->length)
        return sl_fail(err, SL_EINVAL, "rewind to %u tokens: the session holds %u", length,
                       s->length);
    s->length = length;
    sl_state_forget(&s->state, length);
    return SL_OK;
}

static sl_status check_ids(const sl_session *s, const sl_eval *e, sl_err *err)
{
    if (e->n > s->opt.n_ctx - s->length)
        return sl_fail(err, SL_EINVAL, "%u tokens do not fit: the context holds %u of %u", e->n,
                       s->length, s->opt.n_ctx);
    for (uint32_t i = 0; i < e->n; i++)
        if (e->ids[i] < 0 || (uint32_t)e->ids[i] >= s->model->arch.n_vocab)
            return sl_fail(err, SL_EINVAL, "token id %d at position %u: the vocabulary has 0 to %u",
                           e->ids[i], s->length + i, s->model->arch.n_vocab - 1);
    return SL_OK;
}

static sl_status check_logits(const sl_session *s, uint32_t n, sl_err *err)
{
    const size_t count = (size_t)n * s->model->arch.n_vocab;
    float sum = 0.0f; /* 0 * x is 0 for every finite x, else NaN */
    for (size_t i = 0; i < count; i++)
        sum += 0.0f * s->logits[i];
    if (sum == 0.0f)
        return SL_OK;
    return sl_fail(err, SL_EFORMAT,
                   "%s: logits at position %u are not finite: the weights hold NaN or infinity, or "
                   "were damaged (sluice verify finds where)",
                   sl_checkpoint_path(s->model->ckpt), s->length);
}

/* The rows of the next pass: again of them to catch up, then new ones. */
typedef struct cut {
    uint32_t again, n_new, n_logits;
} cut;

static cut next_cut(const sl_session *s, const sl_eval *e, uint32_t left, uint32_t behind)
{
    if (behind >= s->max_rows)
        return (cut){s->max_rows, 0, 0};
    const uint32_t room = s->max_rows - behind;
    cut c = {behind, left < room ? left : room, 0};
    if (e->all_logits && e->logits) {
        c.n_new = c.n_new < s->opt.logits_rows ? c.n_new : s->opt.logits_rows;
        c.n_logits = c.n_new;
    } else {
        c.n_logits = e->logits && c.n_new == left;
    }
    return c;
}

static sl_status run_cut(sl_session *s, const sl_eval *e, const int32_t *ids, uint32_t behind,
                         const cut *c, sl_err *err)
{
    const uint32_t start = s->length - behind;
    if (s->state.n_floats) {
        memcpy(s->state.tokens + s->length, ids, c->n_new * sizeof *ids);
        ids = s->state.tokens + start;
    }
    sl_status st = sl_forward(s, start, ids, c->again + c->n_new, c->again, c->n_logits, e, err);
    if (st == SL_OK && c->n_logits)
        st = check_logits(s, c->n_logits, err);
    return st;
}

sl_status sl_session_eval(sl_session *s, const sl_eval *e, sl_err *err)
{
    sl_status st = check_ids(s, e, err);
    for (uint32_t done = 0; st == SL_OK && done < e->n;) {
        const uint32_t behind = sl_state_catch_up(&s->state, s->length);
        const cut c = next_cut(s, e, e->n - done, behind);
        st = run_cut(s, e, e->ids + done, behind, &c, err);
        if (st != SL_OK)
            break;
        s->length += c.n_new;
        done += c.n_new;
        if (!c.n_logits)
            continue;
        sl_stream_mark(s->model->stream, SL_WORK_SAMPLING);
        st = e->logits(e->ctx, s->length - c.n_logits, c.n_logits, s->logits);
        sl_stream_mark(s->model->stream, SL_WORK_OTHER);
    }
    return st;
}
