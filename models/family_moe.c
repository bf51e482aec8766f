/* What families with mixtures of experts share. Sources: transformers' configuration_qwen3_moe.py
 * and configuration_qwen3_5_moe.py; llama.cpp's gguf-py/gguf/constants.py for the GGUF keys. */
#include <stdio.h>
#include <string.h>

#include "arch.h"

typedef struct sizes {
    int64_t experts, used, ff, ff_shared;
} sizes;

static sl_status read_sizes(const sl_config *c, sizes *s, sl_err *err)
{
    enum { MAX_WIDTH = 1 << 20 };
    const struct {
        sl_key key;
        bool optional;
        int64_t max, *out;
    } ints[] = {
        {{"expert_count", "num_experts"}, false, SL_ROUTE_MAX_N, &s->experts},
        {{"expert_used_count", "num_experts_per_tok"}, false, SL_ROUTE_MAX_K, &s->used},
        {{"expert_feed_forward_length", "moe_intermediate_size"}, false, MAX_WIDTH, &s->ff},
        {{"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
         true,
         MAX_WIDTH,
         &s->ff_shared},
    };
    char name[160];
    sl_status st = SL_OK;
    for (size_t i = 0; st == SL_OK && i < sizeof ints / sizeof *ints; i++)
        st = sl_config_int(c, ints[i].key, ints[i].optional, !ints[i].optional, ints[i].max,
                           ints[i].out, err);
    if (st != SL_OK || s->used <= s->experts)
        return st;
    sl_config_key_name(c, ints[1].key, name, sizeof name);
    return sl_fail(err, SL_EFORMAT, "%s is %lld, but there are %lld experts", name,
                   (long long)s->used, (long long)s->experts);
}

/* config.json: layer i is a mixture when i + 1 is a multiple of decoder_sparse_step and
 * mlp_only_layers does not name it. GGUF files of these families have mixtures only. */
static sl_status place(const sl_config *c, const sl_moe *moe, sl_arch *arch, sl_err *err)
{
    static const sl_key every = {NULL, "decoder_sparse_step"}, dense = {NULL, "mlp_only_layers"};
    int64_t step = 1, layer = 0;
    uint64_t n = 0;
    sl_status st = sl_config_int(c, every, true, 1, 1 << 16, &step, err);
    if (st == SL_OK)
        st = sl_config_array_len(c, dense, &n, err);
    for (uint32_t i = 0; st == SL_OK && i < arch->n_layers; i++)
        if ((i + 1) % step == 0)
            arch->layer[i].moe = *moe;
    for (uint64_t i = 0; st == SL_OK && i < n; i++) {
        st = sl_config_int_at(c, dense, i, &layer, err);
        if (st == SL_OK && (layer < 0 || layer >= arch->n_layers))
            st = sl_fail(err, SL_EFORMAT, "config.json: mlp_only_layers names layer %lld of %u",
                         (long long)layer, arch->n_layers);
        if (st == SL_OK)
            arch->layer[layer].moe = (sl_moe){.n_experts = 0};
    }
    for (uint32_t i = 0; st == SL_OK && i < arch->n_layers; i++)
        if (!arch->layer[i].moe.n_experts && !arch->layer[i].n_ff)
            st = sl_fail(err, SL_EFORMAT,
                         "config.json: layer %u has no experts, and intermediate_size is missing",
                         i);
    return st;
}

sl_status sl_read_moe(const sl_config *c, sl_arch *arch, sl_err *err)
{
    sizes s = {0};
    const char *method = NULL;
    bool renormalise = sl_config_format(c) == SL_FORMAT_GGUF;
    sl_status st = read_sizes(c, &s, err);
    if (st == SL_OK)
        st =
            sl_config_bool(c, (sl_key){"expert_weights_norm", "norm_topk_prob"}, &renormalise, err);
    if (st == SL_OK)
        st = sl_config_string(c, (sl_key){NULL, "quantization_config.quant_method"}, &method, err);
    if (st != SL_OK)
        return st;
    const sl_moe moe = {.n_experts = (uint32_t)s.experts,
                        .n_used = (uint32_t)s.used,
                        .n_ff = (uint32_t)s.ff,
                        /* the method's only layout is gpt-oss's */
                        .alternating = method && !strcmp(method, "mxfp4"),
                        .n_ff_shared = (uint32_t)s.ff_shared,
                        .shared_gated = s.ff_shared > 0,
                        .route = {.kind = SL_ROUTE_SOFTMAX,
                                  .n = (size_t)s.experts,
                                  .k = (size_t)s.used,
                                  .renormalise = renormalise,
                                  .factor = 1}};
    return place(c, &moe, arch, err);
}
