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
    [SL_ROLE_DELTA_QKV] = {"blk.%u.attn_qkv.weight",
                           "model.layers.%u.linear_attn.in_proj_qkv.weight"},
    [SL_ROLE_DELTA_Z] = {"blk.%u.attn_gate.weight", "model.layers.%u.linear_attn.in_proj_z.weight"},
    [SL_ROLE_DELTA_A] = {"blk.%u.ssm_alpha.weight", "model.layers.%u.linear_attn.in_proj_a.weight"},
    [SL_ROLE_DELTA_B] = {"blk.%u.ssm_beta.weight", "model.layers.%u.linear_attn.in_proj_b.weight"},
    [SL_ROLE_DELTA_QKVZ] = {"", "model.layers.%u.linear_attn.in_proj_qkvz.weight"},
    [SL_ROLE_DELTA_BA] = {"", "model.layers.%u.linear_attn.in_proj_ba.weight"},
    [SL_ROLE_DELTA_OUT] = {"blk.%u.ssm_out.weight", "model.layers.%u.linear_attn.out_proj.weight"},
    [SL_ROLE_DELTA_CONV] = {"blk.%u.ssm_conv1d.weight",
                            "model.layers.%u.linear_attn.conv1d.weight"},
    [SL_ROLE_DELTA_RATE] = {"blk.%u.ssm_a", "model.layers.%u.linear_attn.A_log"},
    [SL_ROLE_DELTA_A_BIAS] = {"blk.%u.ssm_dt.bias", "model.layers.%u.linear_attn.dt_bias"},
    [SL_ROLE_DELTA_NORM] = {"blk.%u.ssm_norm.weight", "model.layers.%u.linear_attn.norm.weight"},
    [SL_ROLE_FFN_NORM] = {"blk.%u.ffn_norm.weight",
                          "model.layers.%u.post_attention_layernorm.weight"},
    [SL_ROLE_GATE] = {"blk.%u.ffn_gate.weight", "model.layers.%u.mlp.gate_proj.weight"},
    [SL_ROLE_UP] = {"blk.%u.ffn_up.weight", "model.layers.%u.mlp.up_proj.weight"},
    [SL_ROLE_DOWN] = {"blk.%u.ffn_down.weight", "model.layers.%u.mlp.down_proj.weight"},
    [SL_ROLE_ROUTER] = {"blk.%u.ffn_gate_inp.weight", "model.layers.%u.mlp.gate.weight"},
    [SL_ROLE_SHARED_GATE] = {"blk.%u.ffn_gate_shexp.weight",
                             "model.layers.%u.mlp.shared_expert.gate_proj.weight"},
    [SL_ROLE_SHARED_UP] = {"blk.%u.ffn_up_shexp.weight",
                           "model.layers.%u.mlp.shared_expert.up_proj.weight"},
    [SL_ROLE_SHARED_DOWN] = {"blk.%u.ffn_down_shexp.weight",
                             "model.layers.%u.mlp.shared_expert.down_proj.weight"},
    [SL_ROLE_SHARED_SCORE] = {"blk.%u.ffn_gate_inp_shexp.weight",
                              "model.layers.%u.mlp.shared_expert_gate.weight"},
    [SL_ROLE_EXPERT_GATE] = {"", "model.layers.%u.mlp.experts.%u.gate_proj.weight"},
    [SL_ROLE_EXPERT_UP] = {"", "model.layers.%u.mlp.experts.%u.up_proj.weight"},
    [SL_ROLE_EXPERT_DOWN] = {"", "model.layers.%u.mlp.experts.%u.down_proj.weight"},
    /* stacked in safetensors folders: as MLX's converter writes them */
    [SL_ROLE_STACKED_GATE] = {"blk.%u.ffn_gate_exps.weight",
                              "model.layers.%u.mlp.switch_mlp.gate_proj.weight"},
    [SL_ROLE_STACKED_UP] = {"blk.%u.ffn_up_exps.weight",
                            "model.layers.%u.mlp.switch_mlp.up_proj.weight"},
    [SL_ROLE_STACKED_DOWN] = {"blk.%u.ffn_down_exps.weight",
                              "model.layers.%u.mlp.switch_mlp.down_proj.weight"},
    [SL_ROLE_FUSED_GATE_UP] = {"blk.%u.ffn_gate_up_exps.weight",
                               "model.layers.%u.mlp.experts.gate_up_proj"},
    [SL_ROLE_FUSED_DOWN] = {"blk.%u.ffn_down_exps.weight", "model.layers.%u.mlp.experts.down_proj"},
    [SL_ROLE_BLOCKS_GATE_UP] = {"", "model.layers.%u.mlp.experts.gate_up_proj_blocks"},
    [SL_ROLE_BLOCKS_DOWN] = {"", "model.layers.%u.mlp.experts.down_proj_blocks"},
};

static const char *name_of(const sl_arch *arch, sl_role role)
{
    const bool gguf = arch->format == SL_FORMAT_GGUF;
    for (uint32_t i = 0; i < arch->n_names; i++)
        if (arch->names[i].role == role)
            return gguf ? arch->names[i].gguf : arch->names[i].hf;
    return gguf ? names[role].gguf : names[role].hf;
}

/* Puts layer and expert into the name's holes, in this order. */
static void fill(const char *prefix, const char *name, const uint32_t value[2],
                 char out[SL_NAME_BYTES])
{
    size_t at = (size_t)snprintf(out, SL_NAME_BYTES, "%s", prefix), n = 0;
    while (*name && at < SL_NAME_BYTES) {
        const size_t text = strcspn(name, "%");
        at += (size_t)snprintf(out + at, SL_NAME_BYTES - at, "%.*s", (int)text, name);
        name += text;
        if (*name && n < 2 && at < SL_NAME_BYTES) {
            at += (size_t)snprintf(out + at, SL_NAME_BYTES - at, "%u", value[n++]);
            name += 2;
        }
    }
}

void sl_expert_role_name(const sl_arch *arch, sl_role role, uint32_t layer, uint32_t expert,
                         char out[SL_NAME_BYTES])
{
    static const char usual[] = "model.";
    const uint32_t value[2] = {layer, expert};
    const char *name = name_of(arch, role), *prefix = "";
    if (!name)
        name = "";
    if (arch->hf_prefix && !strncmp(name, usual, strlen(usual))) {
        prefix = arch->hf_prefix;
        name += strlen(usual);
    } else if (arch->hf_before && *name) {
        prefix = arch->hf_before;
    }
    fill(prefix, name, value, out);
}

void sl_role_name(const sl_arch *arch, sl_role role, uint32_t layer, char out[SL_NAME_BYTES])
{
    sl_expert_role_name(arch, role, layer, 0, out);
}
