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
        {SL_F32, SL_W_F32},         {SL_F16, SL_W_F16},       {SL_BF16, SL_W_BF16},
        {SL_Q8_0, SL_W_Q8_0},       {SL_Q4_0, SL_W_Q4_0},     {SL_Q4_1, SL_W_Q4_1},
        {SL_Q5_0, SL_W_Q5_0},       {SL_Q5_1, SL_W_Q5_1},     {SL_Q4_K, SL_W_Q4_K},
        {SL_Q5_K, SL_W_Q5_K},       {SL_Q6_K, SL_W_Q6_K},     {SL_Q2_K, SL_W_Q2_K},
        {SL_Q3_K, SL_W_Q3_K},       {SL_IQ4_NL, SL_W_IQ4_NL}, {SL_IQ4_XS, SL_W_IQ4_XS},
        {SL_MXFP4, SL_W_MXFP4},     {SL_TQ1_0, SL_W_TQ1_0},   {SL_TQ2_0, SL_W_TQ2_0},
        {SL_Q1_0, SL_W_Q1_0},       {SL_Q2_0, SL_W_Q2_0},     {SL_F64, SL_W_F64},
        {SL_IQ2_XXS, SL_W_IQ2_XXS}, {SL_IQ2_XS, SL_W_IQ2_XS}, {SL_IQ2_S, SL_W_IQ2_S},
        {SL_IQ3_XXS, SL_W_IQ3_XXS}, {SL_IQ3_S, SL_W_IQ3_S},   {SL_IQ1_S, SL_W_IQ1_S},
        {SL_IQ1_M, SL_W_IQ1_M},
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

static sl_status add_product(sl_layout *l, sl_step *step, sl_group *g, const sl_tensor *t,
                             uint32_t output, uint32_t row0, uint32_t row1, sl_err *err)
{
    if (row0 == row1)
        return SL_OK;
    sl_product *p = &step->product[step->n_products];
    sl_status st = sl_weight_of(t, &p->type, err);
    if (st != SL_OK)
        return st;
    p->output = output;
    p->row0 = row0;
    p->n_rows = row1 - row0;
    p->n_cols = (uint32_t)t->dims[1];
    p->row_bytes = (size_t)(t->extent.len / t->dims[0]);
    sl_extent e = {t->extent.file, t->extent.offset + (uint64_t)row0 * p->row_bytes,
                   (uint64_t)p->n_rows * p->row_bytes};
    p->extent = sl_plan_extent(l->plan, step->part, e);
    step->n_products++;
    g->act_mask |= 1u << sl_weight_about(p->type)->act;
    size_t scratch = sl_mul_scratch_bytes(p->type, p->n_cols);
    if (scratch > l->mul_scratch_bytes)
        l->mul_scratch_bytes = scratch;
    return SL_OK;
}

static sl_status add_group(sl_layout *l, sl_group *g, const char *name, const sl_tensor *const *t,
                           uint32_t n, uint64_t part_bytes, sl_err *err)
{
    uint64_t bytes = 0, rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += t[i]->extent.len;
        rows = t[i]->dims[0] > rows ? t[i]->dims[0] : rows;
    }
    uint64_t most = rows / SL_ROW_GROUP ? rows / SL_ROW_GROUP : 1; /* no cut is empty */
    uint64_t wanted = (bytes + part_bytes - 1) / part_bytes;
    uint32_t cuts = (uint32_t)(wanted < most ? wanted : most);
    *g = (sl_group){l->n_steps, 0, 0};
    for (uint32_t c = 0; c < cuts; c++) {
        sl_step *step = add_step(l);
        if (!step)
            return sl_fail(err, SL_ENOMEM, "out of memory while laying out the model");
        step->unit = sl_plan_unit(l->plan, name);
        step->part = sl_plan_part(l->plan, step->unit, SL_PART_ALWAYS);
        for (uint32_t i = 0; i < n; i++) {
            sl_status st = add_product(l, step, g, t[i], i, cut_at(t[i]->dims[0], c, cuts),
                                       cut_at(t[i]->dims[0], c + 1, cuts), err);
            if (st != SL_OK)
                return st;
        }
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

static const layer_part layer_parts[] = {
    {"attn.qkv", offsetof(sl_layer_groups, qkv), 3, {SL_ROLE_Q, SL_ROLE_K, SL_ROLE_V}},
    {"attn.out", offsetof(sl_layer_groups, o), 1, {SL_ROLE_O}},
    {"ffn.gate_up", offsetof(sl_layer_groups, gate_up), 2, {SL_ROLE_GATE, SL_ROLE_UP}},
    {"ffn.down", offsetof(sl_layer_groups, down), 1, {SL_ROLE_DOWN}},
};

static sl_status add_layer(sl_layout *l, const sl_checkpoint *c, uint32_t layer,
                           uint64_t part_bytes, sl_err *err)
{
    for (size_t i = 0; i < sizeof layer_parts / sizeof *layer_parts; i++) {
        const layer_part *p = &layer_parts[i];
        const sl_tensor *t[SL_MAX_PRODUCTS];
        char name[SL_NAME_BYTES];
        for (uint32_t k = 0; k < p->n; k++) {
            sl_role_name(sl_checkpoint_format(c), p->role[k], layer, name);
            t[k] = sl_checkpoint_find(c, name);
        }
        snprintf(name, sizeof name, "blk.%u.%s", layer, p->name);
        sl_group *g = (sl_group *)(void *)((char *)&l->layer[layer] + p->group);
        sl_status st = add_group(l, g, name, t, p->n, part_bytes, err);
        if (st != SL_OK)
            return st;
    }
    return SL_OK;
}

static sl_status add_ends(sl_layout *l, const sl_checkpoint *c, const sl_arch *arch,
                          uint64_t part_bytes, sl_err *err)
{
    char name[SL_NAME_BYTES];
    sl_role_name(sl_checkpoint_format(c), SL_ROLE_EMBED, 0, name);
    const sl_tensor *embed = sl_checkpoint_find(c, name);
    sl_status st = sl_weight_of(embed, &l->embed_type, err);
    if (st != SL_OK)
        return st;
    l->embed_row_bytes = (size_t)(embed->extent.len / embed->dims[0]);
    l->embed_table = sl_plan_row_table(l->plan, "embed", embed->extent, l->embed_row_bytes);
    sl_role_name(sl_checkpoint_format(c), SL_ROLE_HEAD, 0, name);
    const sl_tensor *head = arch->tied ? embed : sl_checkpoint_find(c, name);
    l->units_without_head = sl_plan_unit_count(l->plan);
    return add_group(l, &l->head, "head", &head, 1, part_bytes, err);
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
    for (uint32_t i = 0; i < arch->n_layers; i++)
        if ((st = add_layer(l, c, i, part_bytes, err)) != SL_OK)
            goto fail;
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
