/* Tensor names of both formats, by role. */
#include <stdio.h>

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

void sl_role_name(sl_format format, sl_role role, uint32_t layer, char out[SL_NAME_BYTES])
{
    const char *name = format == SL_FORMAT_GGUF ? names[role].gguf : names[role].hf;
    const char *hole = name;
    while (*hole && *hole != '%')
        hole++;
    if (*hole)
        snprintf(out, SL_NAME_BYTES, "%.*s%u%s", (int)(hole - name), name, layer, hole + 2);
    else
        snprintf(out, SL_NAME_BYTES, "%s", name);
}
