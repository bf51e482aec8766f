/* What all levels of the gated delta net share: where the convolution's inputs lie, and the rule
 * for one column. Private to the folder. */
#ifndef SL_DELTA_H
#define SL_DELTA_H

#include "kernels.h"

#include <math.h>
#include <string.h>

/* Input i: the rows of the state are the first ones, those of x follow. */
static inline const float *sl_conv_input(const sl_conv *a, size_t i)
{
    const size_t past = a->n_taps - 1;
    return i < past ? a->state + i * a->state_stride : a->x + (i - past) * a->x_stride;
}

/* The last inputs become the state. A row moves to an earlier place: in ascending order none is
 * lost. */
static inline void sl_conv_keep(const sl_conv *a)
{
    for (size_t j = 0; j + 1 < a->n_taps && a->n_rows; j++)
        memcpy(a->state + j * a->state_stride, sl_conv_input(a, a->n_rows + j),
               a->n_channels * sizeof *a->state);
}

/* Row t of column c; qk: the product of its q and k. */
static inline void sl_delta_column(const sl_delta *a, size_t t, float qk, size_t c)
{
    const float *q = a->q + t * a->q_stride, *k = a->k + t * a->k_stride;
    const float decay = a->decay[t * a->gate_stride], beta = a->beta[t * a->gate_stride];
    float *s = a->state + c, m = 0.0f, p = 0.0f;
    for (size_t i = 0; i < a->dim_k; i++) {
        m = fmaf(k[i], s[i * a->state_stride], m);
        p = fmaf(q[i], s[i * a->state_stride], p);
    }
    const float delta = fmaf(-decay, m, a->v[t * a->v_stride + c]) * beta;
    a->out[t * a->out_stride + c] = fmaf(decay, p, qk * delta);
    for (size_t i = 0; i < a->dim_k; i++)
        s[i * a->state_stride] = fmaf(k[i], delta, decay * s[i * a->state_stride]);
}

#endif
