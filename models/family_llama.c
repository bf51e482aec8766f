/* Llama 2 and 3 and what is built like them (SmolLM2, Mistral 7B). transformers/models/llama. */
#include "families.h"

static sl_status read_llama(const sl_config *c, sl_arena *arena, sl_arch *arch, sl_err *err)
{
    sl_status st = sl_refuse_experts(c, err);
    if (st == SL_OK)
        st = sl_read_dense(c, arena, arch, err);
    /* llama.cpp's converter permutes the rows of q and k so that neighbours rotate together. */
    arch->rope.pairs = sl_config_format(c) == SL_FORMAT_GGUF;
    return st;
}

const sl_family sl_family_llama = {
    .name = "llama", .gguf_arch = "llama", .model_type = "llama", .read = read_llama};
