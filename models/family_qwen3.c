/* Qwen3 dense: Llama's shape with an RMS norm on each head of q and k. transformers/models/qwen3.
 */
#include "families.h"

static sl_status read_qwen3(const sl_config *c, sl_arena *arena, sl_arch *arch, sl_err *err)
{
    sl_status st = sl_refuse_experts(c, err);
    if (st == SL_OK)
        st = sl_read_dense(c, arena, arch, err);
    for (uint32_t i = 0; st == SL_OK && i < arch->n_layers; i++)
        arch->layer[i].qk_norm = true;
    return st;
}

const sl_family sl_family_qwen3 = {
    .name = "qwen3", .gguf_arch = "qwen3", .model_type = "qwen3", .read = read_qwen3};
