/* Lays a model's matrices out over the units of a plan: one step per unit, in the order of the
 * forward pass, each at most about part_bytes. A group that is larger is cut by rows, all its
 * matrices in proportion, so that a unit always holds matching rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_impl.h"

sl_status sl_weight_of(const sl_tensor *t, sl_weight *out, sl_err *err)
{
    static const struct {
        sl_dtype stored;
        sl_weight kernel;
    } known[] = {
        {SL_F32, SL_W_F32},     {SL_F16, SL_W_F16},         {SL_BF16, SL_W_BF16},
        {SL_Q8_0, SL_W_Q8_0},   {SL_Q4_0, SL_W_Q4_0},       {SL_Q4_1, SL_W_Q4_1},
        {SL_Q5_0, SL_W_Q5_0},   {SL_Q5_1, SL_W_Q5_1},       {SL_Q4_K, SL_W_Q4_K},
        {SL_Q5_K, SL_W_Q5_K},   {SL_Q6_K, SL_W_Q6_K},       {SL_Q2_K, SL_W_Q2_K},
        {SL_Q3_K, SL_W_Q3_K},   {SL_IQ4_NL, SL_W_IQ4_NL},   {SL_IQ4_XS, SL_W_IQ4_XS},
        {SL_MXFP4, SL_W_MXFP4}, {SL_NVFP4, SL_W_NVFP4},     {SL_TQ1_0, SL_W_TQ1_0},
        {SL_TQ2_0, SL_W_TQ2_0}, {SL_Q1_0, SL_W_Q1_0},       {SL_Q2_0, SL_W_Q2_0},
        {SL_F64, SL_W_F64},     {SL_IQ2_XXS, SL_W_IQ2_XXS}, {SL_IQ2_XS, SL_W_IQ2_XS},
        {SL_IQ2_S, SL_W_IQ2_S}, {SL_IQ3_XXS, SL_W_IQ3_XXS}, {SL_IQ3_S, SL_W_IQ3_S},
        {SL_IQ1_S, SL_W_IQ1_S}, {SL_IQ1_M, SL_W_IQ1_M},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].stored == t->type) {
            *out = known[i].kernel;
            return SL_OK;
        }
    }
    return sl_fail(err, SL_EUNSUPPORTED, "tensor %s: weights of type %s are not supported yet",
                   t->name, sl_dtype_about(t->type)->name);
}

static sl_step *add_step(sl_layout *l)
{
    if (l->n_steps == l->cap_steps) {
        uint32_t cap = l->cap_steps ? 2 * l->cap_steps : 64;
        sl_step *grown = realloc(l->step, cap * sizeof *grown);
        if (!grown)
            return NULL;
        l->step = grown;
        l->cap_steps = cap;
    }
    sl_step *s = &l->step[l->n_steps++];
    memset(s, 0, sizeof *s);
    return s;
}

/* Row range of cut i of n, at row groups' borders. */
static uint32_t cut_at(uint64_t rows, uint32_t i, uint32_t n)
{
    return i == n ? (uint32_t)rows : (uint32_t)(rows * i / n / SL_ROW_GROUP * SL_ROW_GROUP);
}

/* Scales of the product's rows: whole tiles, so that parts may share one. */
static uint32_t add_scales(sl_layout *l, uint32_t part, const sl_tensor *t, const sl_product *p)
{
    const uint64_t first = p->row0 / p->s.block_rows,
                   end = (p->row0 + p->n_rows - 1) / p->s.block_rows + 1;
    const sl_extent e = {t->extent.file, t->extent.offset + first * p->s.scale_bytes,
                         (end - first) * p->s.scale_bytes};
    return sl_plan_extent(l->plan, part, e);
}

static uint32_t add_addend(sl_layout *l, uint32_t part, const sl_matrix *m, uint64_t row0,
                           uint64_t n_rows)
{
    const sl_tensor *t = m->addend;
    const uint64_t size = sl_weight_row_bytes(m->addend_type, 1);
    const sl_extent e = {t->extent.file, t->extent.offset + row0 * size, n_rows * size};
    return sl_plan_extent(l->plan, part, e);
}

static void scratch_for(sl_layout *l, sl_weight type, size_t n_cols)
{
    const size_t bytes = sl_mul_scratch_bytes(type, n_cols);
    if (bytes > l->mul_scratch_bytes)
        l->mul_scratch_bytes = bytes;
}

/* Rows row0 .. row0 + n_rows of m as a product, their extents added to the part. Returns its
 * act_mask. */
static uint32_t make_product(sl_layout *l, uint32_t part, const sl_matrix *m, uint64_t row0,
                             uint64_t n_rows, sl_product *p)
{
    const sl_tensor *t = m->t;
    memset(p, 0, sizeof *p);
    p->type = m->type;
    p->row0 = (uint32_t)row0;
    p->n_rows = (uint32_t)n_rows;
    p->n_cols = (uint32_t)m->n_cols;
    p->row_bytes = m->row_bytes;
    p->factor = m->factor;
    const sl_extent e = {t->extent.file, t->extent.offset + row0 * m->row_bytes,
                         n_rows * m->row_bytes};
    p->extent = sl_plan_extent(l->plan, part, e);
    p->transposed = m->transposed;
    if (m->transposed)
        p->row_bytes = sl_weight_row_bytes(p->type, p->n_rows);
    p->has_addend = m->addend != NULL;
    p->addend_type = m->addend_type;
    if (p->has_addend)
        p->addend_extent = add_addend(l, part, m, row0, n_rows);
    p->s = m->s;
    p->beside = m->scale != NULL;
    p->has_bias = m->bias != NULL;
    if (p->beside) {
        p->s.first_row = p->row0 % p->s.block_rows;
        p->scale_extent = add_scales(l, part, m->scale, p);
    }
    if (p->has_bias)
        p->bias_extent = add_scales(l, part, m->bias, p);
    scratch_for(l, p->type, p->n_cols);
    return 1u << sl_weight_about(p->type)->act;
}

static void add_product(sl_layout *l, sl_step *step, sl_group *g, const sl_matrix *m,
                        uint32_t output, uint32_t row0, uint32_t row1)
{
    if (row0 == row1)
        return;
    sl_product *p = &step->product[step->n_products++];
    g->act_mask |= make_product(l, step->part, m, row0, row1 - row0, p);
    p->output = output;
}

static uint64_t bytes_of(const sl_matrix *m)
{
    return m->t->extent.len + (m->scale ? m->scale->extent.len : 0) +
           (m->bias ? m->bias->extent.len : 0);
}

enum { OWN_UNITS = UINT32_MAX };

/* unit: the one that holds all parts of the group; OWN_UNITS: each gets one, called name. */
static sl_status add_group(sl_layout *l, sl_group *g, const char *name, uint32_t unit,
                           const sl_matrix *m, uint32_t n, uint64_t part_bytes, sl_err *err)
{
    uint64_t bytes = 0, rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += bytes_of(&m[i]);
        rows = m[i].n_rows > rows ? m[i].n_rows : rows;
    }
    uint64_t most = rows / SL_ROW_GROUP ? rows / SL_ROW_GROUP : 1; /* no cut is empty */
    uint64_t wanted = (bytes + part_bytes - 1) / part_bytes;
    uint32_t cuts = (uint32_t)(wanted < most ? wanted : most);
    *g = (sl_group){.first_step = l->n_steps, .held = unit != OWN_UNITS};
    for (uint32_t c = 0; c < cuts; c++) {
        sl_step *step = add_step(l);
        if (!step)
            return sl_fail(err, SL_ENOMEM, "out of memory while laying out the model");
        step->unit = unit == OWN_UNITS ? sl_plan_unit(l->plan, name) : unit;
        step->part = sl_plan_part(l->plan, step->unit, SL_PART_ALWAYS);
        for (uint32_t i = 0; i < n; i++)
            add_product(l, step, g, &m[i], i, cut_at(m[i].n_rows, c, cuts),
                        cut_at(m[i].n_rows, c + 1, cuts));
        g->n_steps++;
    }
    return SL_OK;
}

typedef struct layer_part {
    const char *name;
    size_t group; /* offset in sl_layer_groups */
    uint32_t n;
    sl_role role[SL_MAX_PRODUCTS];
} layer_part;

static const layer_part attention_parts[] = {
    {"attn.qkv", offsetof(sl_layer_groups, mixer_in), 3, {SL_ROLE_Q, SL_ROLE_K, SL_ROLE_V}},
    {"attn.out", offsetof(sl_layer_groups, mixer_out), 1, {SL_ROLE_O}},
};
static const layer_part delta_parts[] = {
    {"delta.in",
     offsetof(sl_layer_groups, mixer_in),
     4,
     {SL_ROLE_DELTA_QKV, SL_ROLE_DELTA_Z, SL_ROLE_DELTA_A, SL_ROLE_DELTA_B}},
    {"delta.out", offsetof(sl_layer_groups, mixer_out), 1, {SL_ROLE_DELTA_OUT}},
};
static const layer_part grouped_parts[] = {
    {"delta.in", offsetof(sl_layer_groups, mixer_in), 2, {SL_ROLE_DELTA_QKVZ, SL_ROLE_DELTA_BA}},
    {"delta.out", offsetof(sl_layer_groups, mixer_out), 1, {SL_ROLE_DELTA_OUT}},
};
static const layer_part dense_parts[] = {
    {"ffn.gate_up", offsetof(sl_layer_groups, gate_up), 2, {SL_ROLE_GATE, SL_ROLE_UP}},
    {"ffn.down", offsetof(sl_layer_groups, down), 1, {SL_ROLE_DOWN}},
};
static const layer_part router_part = {
    "ffn.router", offsetof(sl_layer_groups, router), 1, {SL_ROLE_ROUTER}};
static const layer_part shared_parts[] = {
    {"", offsetof(sl_layer_groups, shared_gate_up), 2, {SL_ROLE_SHARED_GATE, SL_ROLE_SHARED_UP}},
    {"", offsetof(sl_layer_groups, shared_down), 1, {SL_ROLE_SHARED_DOWN}},
};

/* A layer while it is laid out. */
typedef struct layer_ctx {
    sl_layout *l;
    const sl_checkpoint *c;
    const sl_arch *arch;
    uint32_t layer;
    uint64_t part_bytes;
    sl_err *err;
} layer_ctx;

/* unit: as add_group(). */
static sl_status add_parts(const layer_ctx *x, const layer_part *part, size_t n, uint32_t unit)
{
    for (const layer_part *p = part; p < part + n; p++) {
        sl_matrix m[SL_MAX_PRODUCTS];
        char name[SL_NAME_BYTES];
        sl_status st = SL_OK;
        for (uint32_t k = 0; st == SL_OK && k < p->n; k++) {
            sl_role_name(x->arch, p->role[k], x->layer, name);
            st = sl_matrix_of(x->c, x->arch, sl_checkpoint_find(x->c, name), &m[k], x->err);
        }
        snprintf(name, sizeof name, "blk.%u.%s", x->layer, p->name);
        sl_group *g = (sl_group *)(void *)((char *)&x->l->layer[x->layer] + p->group);
        if (st == SL_OK)
            st = add_group(x->l, g, name, unit, m, p->n, x->part_bytes, x->err);
        if (st != SL_OK)
            return st;
    }
    return SL_OK;
}

/* Equal but for where they lie. */
static bool alike(const sl_product *a, const sl_product *b)
{
    return a->type == b->type && a->n_rows == b->n_rows && a->n_cols == b->n_cols &&
           a->row_bytes == b->row_bytes && a->beside == b->beside && a->has_bias == b->has_bias &&
           a->factor == b->factor && a->transposed == b->transposed &&
           a->has_addend == b->has_addend && a->addend_type == b->addend_type &&
           a->s.type == b->s.type && a->s.group == b->s.group &&
           a->s.block_rows == b->s.block_rows && a->s.scale_bytes == b->s.scale_bytes;
}

/* The part of expert e; the first one says what all have to be like. */
static sl_status add_expert(const layer_ctx *x, sl_experts *all, uint32_t e)
{
    sl_expert own;
    sl_product p;
    sl_status st = sl_expert_of(x->c, x->arch, x->layer, e, &own, x->err);
    if (st != SL_OK)
        return st;
    const uint32_t part = sl_plan_part(x->l->plan, all->unit, SL_PART_ON_DEMAND), n_in = own.n - 1;
    if (e == 0) {
        all->first_part = part;
        all->n_in = n_in;
        all->alternating = own.alternating;
    }
    for (uint32_t i = 0; i < own.n; i++) {
        const bool down = i == n_in;
        const sl_matrix_rows *rows = &own.m[i];
        sl_product *of_all = down ? &all->down : &all->in[i];
        if (down)
            sl_plan_part_stage(x->l->plan, part);
        *(down ? &all->mid_mask : &all->in_mask) |=
            make_product(x->l, part, &rows->m, rows->row0, rows->n_rows, &p);
        if (e == 0)
            *of_all = p;
        else if (n_in != all->n_in || !alike(of_all, &p))
            return sl_fail(x->err, SL_EUNSUPPORTED,
                           "tensor %s: stored otherwise than that of expert 0", rows->m.t->name);
    }
    return SL_OK;
}

bool sl_router_is_copied(const sl_group *g, const sl_layout *l)
{
    for (uint32_t i = 0; i < g->n_steps; i++) {
        const sl_product *p = &l->step[g->first_step + i].product[0];
        if ((p->type != SL_W_F32 && p->type != SL_W_F16 && p->type != SL_W_BF16) || p->transposed ||
            p->has_addend || p->n_cols % sl_weight_about(SL_W_Q8_0)->block_values)
            return false;
    }
    return true;
}

/* The router's unit; then one with the shared expert, which is computed while experts arrive, and
 * the experts. */
static sl_status add_mixture(const layer_ctx *x)
{
    const sl_moe *moe = &x->arch->layer[x->layer].moe;
    sl_experts *all = &x->l->layer[x->layer].experts;
    char name[SL_NAME_BYTES];
    sl_status st = add_parts(x, &router_part, 1, OWN_UNITS);
    snprintf(name, sizeof name, "blk.%u.ffn.experts", x->layer);
    all->unit = sl_plan_unit(x->l->plan, name);
    if (st == SL_OK && moe->n_ff_shared)
        st = add_parts(x, shared_parts, sizeof shared_parts / sizeof *shared_parts, all->unit);
    for (uint32_t e = 0; st == SL_OK && e < moe->n_experts; e++)
        st = add_expert(x, all, e);
    x->l->expert_in_mask |= all->in_mask;
    x->l->expert_mid_mask |= all->mid_mask | x->l->layer[x->layer].shared_down.act_mask;
    x->l->router_mask |= x->l->layer[x->layer].router.act_mask;
    if (sl_router_is_copied(&x->l->layer[x->layer].router, x->l)) {
        x->l->copies_routers = true;
        x->l->router_mask |= SL_ROUTER_COPY_ACT;
        scratch_for(x->l, SL_W_Q8_0, x->arch->n_embd);
    }
    return st;
}

static sl_status add_layer(const layer_ctx *x)
{
    const sl_layer *l = &x->arch->layer[x->layer];
    const layer_part *mixer = l->mixer == SL_MIXER_ATTENTION ? attention_parts
                              : l->delta.grouped             ? grouped_parts
                                                             : delta_parts;
    sl_status st = add_parts(x, mixer, 2, OWN_UNITS);
    if (st != SL_OK)
        return st;
    return x->arch->layer[x->layer].moe.n_experts
               ? add_mixture(x)
               : add_parts(x, dense_parts, sizeof dense_parts / sizeof *dense_parts, OWN_UNITS);
}

static sl_status add_ends(sl_layout *l, const sl_checkpoint *c, const sl_arch *arch,
                          uint64_t part_bytes, sl_err *err)
{
    char name[SL_NAME_BYTES];
    sl_role_name(arch, SL_ROLE_EMBED, 0, name);
    sl_matrix m;
    sl_status st = sl_matrix_of(c, arch, sl_checkpoint_find(c, name), &m, err);
    if (st == SL_OK && m.scale && !m.bias) /* MLX has both; FP8 leaves the embedding alone */
        st = sl_fail(err, SL_EUNSUPPORTED, "tensor %s: embeddings with scales of %s alone", name,
                     m.scale->name);
    if (st == SL_OK && m.factor != 1.0f)
        st = sl_fail(err, SL_EUNSUPPORTED, "tensor %s: embeddings with a factor", name);
    if (st != SL_OK)
        return st;
    l->embed_type = m.type;
    l->embed_row_bytes = m.row_bytes;
    l->embed_table = sl_plan_row_table(l->plan, "embed", m.t->extent, l->embed_row_bytes);
    l->embed_scales = m.s;
    l->embed_beside = m.scale != NULL;
    if (l->embed_beside) {
        const uint64_t row = m.s.scale_bytes;
        l->embed_scale_table = sl_plan_row_table(l->plan, "embed.scales", m.scale->extent, row);
        l->embed_bias_table = sl_plan_row_table(l->plan, "embed.biases", m.bias->extent, row);
    }
    sl_role_name(arch, SL_ROLE_HEAD, 0, name);
    if (!arch->tied)
        st = sl_matrix_of(c, arch, sl_checkpoint_find(c, name), &m, err);
    l->units_without_head = sl_plan_unit_count(l->plan);
    return st == SL_OK ? add_group(l, &l->head, "head", OWN_UNITS, &m, 1, part_bytes, err) : st;
}

sl_status sl_layout_make(sl_layout *l, const sl_checkpoint *c, const sl_arch *arch,
                         uint64_t part_bytes, sl_err *err)
{
    sl_status st = SL_OK;
    memset(l, 0, sizeof *l);
    l->plan = sl_plan_new(c);
    l->layer = calloc(arch->n_layers, sizeof *l->layer);
    if (!l->plan || !l->layer) {
        st = sl_fail(err, SL_ENOMEM, "out of memory while laying out the model");
        goto fail;
    }
    for (uint32_t i = 0; i < arch->n_layers; i++) {
        const layer_ctx x = {l, c, arch, i, part_bytes, err};
        if ((st = add_layer(&x)) != SL_OK)
            goto fail;
    }
    if ((st = add_ends(l, c, arch, part_bytes, err)) != SL_OK)
        goto fail;
    return SL_OK;
fail:
    sl_layout_free(l);
    return st;
}

void sl_layout_free(sl_layout *l)
{
    sl_plan_free(&l->plan);
    free(l->step);
    free(l->layer);
    memset(l, 0, sizeof *l);
}

uint64_t sl_layout_bytes(const sl_model *m)
{
    return m->layout.cap_steps * sizeof *m->layout.step +
           m->arch.n_layers * sizeof *m->layout.layer;
}
