/* A layer's mixture of experts in a pass: for moe.c and guess.c. */
#ifndef SL_MOE_IMPL_H
#define SL_MOE_IMPL_H

#include "forward.h"

typedef struct mixture {
    sl_pass *p;
    const sl_layer *l;
    const sl_moe *moe;
    const sl_layer_groups *g;
    sl_moe_scratch *x;
    uint32_t layer;
} mixture;

static inline mixture mixture_of(sl_pass *p, uint32_t layer)
{
    const sl_layer *l = &p->m->arch.layer[layer];
    return (mixture){p, l, &l->moe, &p->m->layout.layer[layer], &p->s->moe, layer};
}

#endif
