/* Tensor names of both formats, by role. A family's own names come first; in folders that hold more
 * than a language model, its names begin with another prefix. */
#include <stdio.h>
#include <string.h>

#include "arch.h"

static const struct {
    const char *gguf, *hf; /* %u: the layer */
} names[SL_ROLE_COUNT] = {
    [SL_ROLE_EMBED] = {"token_embd.weight", "model.embed_tokens.weight"},
    [SL_ROLE_FINAL_NORM] = {"output_norm.weight", "model.norm.weight"},
    [SL_ROLE_HEAD] = {"output.weight", "lm_head.weight"},
    [SL_ROLE_ROPE_FACTORS] = {"rope_freqs.weight", ""},
    [SL_ROLE_ATTN_NORM] = {"blk.%u.attn_norm.weight", "model.layers.%u.input_layernorm.weight"},
    [SL_ROLE_Q] = {"blk.%u.attn_q.weight", "model.layers.%u.self_attn.q_proj.weight"},
    [SL_ROLE_K] = {"blk.%u.attn_k.weight", "model.layers.%u.self_attn.k_proj.weight"},
    [SL_ROLE_V] = {"blk.%u.attn_v.weight", "model.layers.%u.self_attn.v_proj.weight"},
    [SL_ROLE_O] = {"blk.%u.attn_output.weight", "model.layers.%u.self_attn.o_proj.weight"},
    [SL_ROLE_Q_NORM] = {"blk.%u.attn_q_norm.weight", "model.layers.%u.self_attn.q_norm.weight"},
    [SL_ROLE_K_NORM] = {"blk.%u.attn_k_norm.weight", "model.layers.%u.self_attn.k_norm.weight"},
    [SL_ROLE_FFN_NORM] = {"blk.%u.ffn_norm.weight",
                          "model.layers.%u.post_attention_layernorm.weight"},
    [SL_ROLE_GATE] = {"blk.%u.ffn_gate.weight", "model.layers.%u.mlp.gate_proj.weight"},
    [SL_ROLE_UP] = {"blk.%u.ffn_up.weight", "model.layers.%u.mlp.up_proj.weight"},
    [SL_ROLE_DOWN] = {"blk.%u.ffn_down.weight", "model.layers.%u.mlp.down_proj.weight"},
};

static const char *name_of(const sl_arch *arch, sl_role role)
{
    const bool gguf = arch->format == SL_FORMAT_GGUF;
    for (uint32_t i = 0; i < arch->n_names; i++)
        if (arch->names[i].role == role)
            return gguf ? arch->names[i].gguf : arch->names[i].hf;
    return gguf ? names[role].gguf : names[role].hf;
}

void sl_role_name(const sl_arch *arch, sl_role role, uint32_t layer, char out[SL_NAME_BYTES])
{
    static const char usual[] = "model.";
    const char *name = name_of(arch, role), *prefix = "";
    if (!name)
        name = "";
    if (arch->hf_prefix && !strncmp(name, usual, strlen(usual))) {
        prefix = arch->hf_prefix;
        name += strlen(usual);
    }
    const char *hole = strchr(name, '%');
    if (hole)
        snprintf(out, SL_NAME_BYTES, "%s%.*s%u%s", prefix, (int)(hole - name), name, layer,
                 hole + 2);
    else
        snprintf(out, SL_NAME_BYTES, "%s%s", prefix, name);
}
