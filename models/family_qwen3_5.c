/* Qwen3.5 (3.6 and 3.8 are the same architecture), dense and with mixtures of experts, and
 * Qwen3-Next: gated delta nets, every fourth layer gated attention; norms whose stored weights are
 * offsets from 1; rotary positions on a part of a head. The text model alone: of images and drafts
 * nothing is run. Sources: transformers/models/qwen3_5, qwen3_5_moe and qwen3_next; the keys of
 * llama.cpp's converter; mlx_lm/models/qwen3_5.py for what MLX's converter changes. */
#include <stdio.h>
#include <string.h>

#include "families.h"

enum { MAX_HEADS = 4096, MAX_HEAD_DIM = 1024 };

static const sl_name own_names[] = {
    {SL_ROLE_FFN_NORM, "blk.%u.post_attention_norm.weight",
     "model.layers.%u.post_attention_layernorm.weight"},
};

static void add_skip(sl_arch *arch, const char *prefix, const char *what)
{
    sl_skip *s = &arch->skip[arch->n_skips++];
    snprintf(s->prefix, sizeof s->prefix, "%s", prefix);
    s->what = what;
}

/* GGUF counts the layers that draft further tokens among the others, at the end. */
static sl_status leave_drafts(const sl_config *c, sl_arch *arch, sl_err *err)
{
    static const char drafts[] = "multi-token prediction";
    int64_t n = 0;
    sl_status st = sl_config_int(c, (sl_key){"nextn_predict_layers", NULL}, true, 0,
                                 (int64_t)arch->n_layers - 1, &n, err);
    if (st != SL_OK)
        return st;
    if (n > 1)
        return sl_fail(err, SL_EUNSUPPORTED, "nextn_predict_layers is %lld: at most 1 is supported",
                       (long long)n);
    if (arch->format != SL_FORMAT_GGUF) {
        add_skip(arch, "mtp.", drafts);
        add_skip(arch, "language_model.mtp.", drafts);
        add_skip(arch, "model.visual.", "vision");
        add_skip(arch, "vision_tower.", "vision");
    } else if (n) {
        char prefix[24];
        snprintf(prefix, sizeof prefix, "blk.%u.", --arch->n_layers);
        add_skip(arch, prefix, drafts);
    }
    return SL_OK;
}

static sl_status read_delta_net(const sl_config *c, sl_delta_net *out, sl_err *err)
{
    int64_t k_heads = 0, v_heads = 0, dim_k = 0, dim_v = 0, taps = 0, inner = 0;
    const bool gguf = sl_config_format(c) == SL_FORMAT_GGUF;
    const struct {
        sl_key key;
        int64_t max, *out;
    } ints[] = {
        {{"ssm.group_count", "linear_num_key_heads"}, MAX_HEADS, &k_heads},
        {{"ssm.time_step_rank", "linear_num_value_heads"}, MAX_HEADS, &v_heads},
        {{"ssm.state_size", "linear_key_head_dim"}, MAX_HEAD_DIM, &dim_k},
        {{"ssm.conv_kernel", "linear_conv_kernel_dim"}, SL_CONV_MAX_TAPS, &taps},
        {{"ssm.inner_size", "linear_value_head_dim"},
         gguf ? (int64_t)MAX_HEADS * MAX_HEAD_DIM : MAX_HEAD_DIM,
         gguf ? &inner : &dim_v},
    };
    sl_status st = SL_OK;
    for (size_t i = 0; st == SL_OK && i < sizeof ints / sizeof *ints; i++)
        st = sl_config_int(c, ints[i].key, false, 1, ints[i].max, ints[i].out, err);
    if (st != SL_OK)
        return st;
    if (gguf && inner % v_heads)
        return sl_fail(err, SL_EFORMAT, "ssm.inner_size %lld is not a multiple of %lld heads",
                       (long long)inner, (long long)v_heads);
    if (gguf)
        dim_v = inner / v_heads;
    if (v_heads % k_heads)
        return sl_fail(err, SL_EFORMAT, "%lld value heads are not a multiple of %lld key heads",
                       (long long)v_heads, (long long)k_heads);
    *out = (sl_delta_net){.n_k_heads = (uint32_t)k_heads,
                          .n_v_heads = (uint32_t)v_heads,
                          .dim_k = (uint32_t)dim_k,
                          .dim_v = (uint32_t)dim_v,
                          .n_taps = (uint32_t)taps,
                          .tiled = gguf};
    return SL_OK;
}

/* Full attention in layers named so, or in every n-th one. */
static sl_status read_kinds(const sl_config *c, sl_arch *arch, sl_err *err)
{
    static const sl_key bits = {"attention.recurrent_layers", NULL}, texts = {NULL, "layer_types"};
    int64_t interval = 4;
    sl_status st = sl_config_int(c, (sl_key){"full_attention_interval", "full_attention_interval"},
                                 true, 1, 4096, &interval, err);
    for (uint32_t i = 0; st == SL_OK && i < arch->n_layers; i++) {
        int64_t recurrent = (i + 1) % (uint64_t)interval != 0;
        const char *text = NULL;
        if (sl_config_has(c, bits))
            st = sl_config_int_at(c, bits, i, &recurrent, err);
        else if (sl_config_has(c, texts))
            st = sl_config_string_at(c, texts, i, &text, err);
        if (st == SL_OK && text && strcmp(text, "linear_attention") &&
            strcmp(text, "full_attention"))
            st = sl_fail(err, SL_EUNSUPPORTED, "config.json: layer_types: %s is not supported",
                         text);
        if (st == SL_OK && text)
            recurrent = !strcmp(text, "linear_attention");
        arch->layer[i].mixer = recurrent ? SL_MIXER_DELTA_NET : SL_MIXER_ATTENTION;
    }
    return st;
}

static const sl_tensor *find(const sl_config *c, const sl_arch *arch, sl_role role, uint32_t layer)
{
    char name[SL_NAME_BYTES];
    sl_role_name(arch, role, layer, name);
    return sl_checkpoint_find(sl_config_checkpoint(c), name);
}

/* What names begin with: as the text model alone has them, as part of a larger model, as MLX's
 * converter writes both. */
static void find_names(const sl_config *c, sl_arch *arch)
{
    static const struct {
        const char *prefix, *before;
    } kinds[] = {{"model.language_model.", NULL}, {"language_model.model.", "language_model."}};
    for (size_t i = 0; !find(c, arch, SL_ROLE_EMBED, 0) && i < sizeof kinds / sizeof *kinds; i++) {
        arch->hf_prefix = kinds[i].prefix;
        arch->hf_before = kinds[i].before;
    }
    if (!find(c, arch, SL_ROLE_EMBED, 0)) /* an error will name the tensor */
        arch->hf_prefix = arch->hf_before = NULL;
}

/* Converters to GGUF and MLX have added 1 to the norms. MLX's also turns the convolution, to
 * [channels, taps, 1], and is known by that. */
static bool has_added_one(const sl_config *c, const sl_arch *arch)
{
    const sl_tensor *t = NULL;
    for (uint32_t i = 0; !t && i < arch->n_layers; i++)
        t = find(c, arch, SL_ROLE_DELTA_CONV, i);
    return arch->format == SL_FORMAT_GGUF || (t && t->n_dims == 3 && t->dims[2] == 1);
}

static sl_status fill_layers(const sl_config *c, sl_arch *arch, sl_err *err)
{
    sl_delta_net delta;
    bool gate = true;
    sl_status st = read_delta_net(c, &delta, err);
    if (st == SL_OK)
        st = sl_config_bool(c, (sl_key){NULL, "attn_output_gate"}, &gate, err);
    if (st == SL_OK)
        st = read_kinds(c, arch, err);
    for (uint32_t i = 0; st == SL_OK && i < arch->n_layers; i++) {
        sl_layer *l = &arch->layer[i];
        l->qk_norm = true;
        l->attn_gate = gate;
        if (l->mixer != SL_MIXER_DELTA_NET)
            continue;
        l->delta = delta;
        l->delta.grouped = arch->format != SL_FORMAT_GGUF && find(c, arch, SL_ROLE_DELTA_QKVZ, i);
    }
    return st;
}

static sl_status read_hybrid(const sl_config *c, sl_arena *arena, sl_arch *arch, sl_err *err)
{
    arch->names = own_names;
    arch->n_names = sizeof own_names / sizeof *own_names;
    sl_status st = sl_read_dense(c, arena, arch, err);
    if (st == SL_OK && arch->format != SL_FORMAT_GGUF)
        find_names(c, arch);
    if (st == SL_OK)
        st = leave_drafts(c, arch, err);
    if (st == SL_OK)
        st = fill_layers(c, arch, err);
    if (st == SL_OK && !has_added_one(c, arch))
        arch->norm_plus = 1;
    return st;
}

static sl_status read_qwen3_5(const sl_config *c, sl_arena *arena, sl_arch *arch, sl_err *err)
{
    sl_status st = sl_refuse_experts(c, err);
    return st == SL_OK ? read_hybrid(c, arena, arch, err) : st;
}

static sl_status read_qwen3_5_moe(const sl_config *c, sl_arena *arena, sl_arch *arch, sl_err *err)
{
    sl_status st = read_hybrid(c, arena, arch, err);
    if (st == SL_OK)
        st = sl_read_moe(c, arch, err);
    for (uint32_t i = 0; st == SL_OK && i < arch->n_layers; i++)
        arch->layer[i].moe.route.renormalise = true; /* no config asks; they always are */
    return st;
}

static sl_status read_qwen3_next(const sl_config *c, sl_arena *arena, sl_arch *arch, sl_err *err)
{
    sl_status st = read_hybrid(c, arena, arch, err);
    return st == SL_OK ? sl_read_moe(c, arch, err) : st;
}

const sl_family sl_family_qwen3_next = {
    .name = "qwen3_next", .model_type = "qwen3_next", .read = read_qwen3_next};

const sl_family sl_family_qwen3_5 = {.name = "qwen3.5",
                                     .gguf_arch = "qwen35",
                                     .model_type = "qwen3_5",
                                     .text_type = "qwen3_5_text",
                                     .read = read_qwen3_5};

const sl_family sl_family_qwen3_5_moe = {.name = "qwen3.5_moe",
                                         .gguf_arch = "qwen35moe",
                                         .model_type = "qwen3_5_moe",
                                         .text_type = "qwen3_5_moe_text",
                                         .read = read_qwen3_5_moe};
