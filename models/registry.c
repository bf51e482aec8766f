/* Which families exist: a new one is a file, a line in families.h and a line here. */
#include <stdio.h>
#include <string.h>

#include "families.h"

static const sl_family *const families[] = {&sl_family_llama,     &sl_family_qwen3,
                                            &sl_family_qwen3_moe, &sl_family_qwen3_next,
                                            &sl_family_qwen3_5,   &sl_family_qwen3_5_moe};
enum { N_FAMILIES = sizeof families / sizeof *families };

const sl_family *sl_family_find(sl_format format, const char *name)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const sl_family *f = families[i];
        if (format == SL_FORMAT_GGUF
                ? f->gguf_arch && !strcmp(name, f->gguf_arch)
                : !strcmp(name, f->model_type) || (f->text_type && !strcmp(name, f->text_type)))
            return f;
    }
    return NULL;
}

void sl_family_list(char *text, size_t cap)
{
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < N_FAMILIES && at < cap; i++)
        at += (size_t)snprintf(text + at, cap - at, "%s%s", i ? ", " : "", families[i]->name);
}
