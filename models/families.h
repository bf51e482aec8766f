/* One line per family; registry.c lists them. */
#ifndef SL_FAMILIES_H
#define SL_FAMILIES_H

#include "arch.h"

extern const sl_family sl_family_llama;
extern const sl_family sl_family_qwen3;
extern const sl_family sl_family_qwen3_moe;
extern const sl_family sl_family_qwen3_next;
extern const sl_family sl_family_qwen3_5;
extern const sl_family sl_family_qwen3_5_moe;

#endif
