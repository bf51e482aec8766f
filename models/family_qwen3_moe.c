/* Qwen3 with mixtures of experts (30B-A3B, 235B-A22B). transformers/models/qwen3_moe. */
#include "families.h"

static sl_status read_qwen3_moe(const sl_config *c, sl_arena *arena, sl_arch *arch, sl_err *err)
{
    sl_status st = sl_read_dense(c, arena, arch, err);
    for (uint32_t i = 0; st == SL_OK && i < arch->n_layers; i++)
        arch->layer[i].qk_norm = true;
    return st == SL_OK ? sl_read_moe(c, arch, err) : st;
}

const sl_family sl_family_qwen3_moe = {.name = "qwen3_moe",
                                       .gguf_arch = "qwen3moe",
                                       .model_type = "qwen3_moe",
                                       .read = read_qwen3_moe};
