/* A forward pass while it runs, and what its blocks share: products with a group's matrices, norms,
 * the residual. Shared by forward.c, product.c and the blocks (attention.c, mlp.c); private to
 * models/. */
#ifndef SL_FORWARD_H
#define SL_FORWARD_H

#include "model_impl.h"

typedef struct sl_pass {
    sl_session *s;
    const sl_model *m;
    const sl_kernels *k;
    sl_workers *w;
    const sl_eval *e;
    uint32_t rows;  /* T */
    uint32_t start; /* position of row 0 */
    sl_err *err;
} sl_pass;

/* Floats in [T][in_width], results out[i] in [T][out_width[i]]. */
typedef struct sl_operand {
    const float *in;
    size_t in_width;
    uint32_t rows; /* of in, from its first */
    float *out[SL_MAX_PRODUCTS];
    size_t out_width[SL_MAX_PRODUCTS];
} sl_operand;

/* out[i] = matrices of the group times each row of in: enters and leaves the group's units. */
sl_status sl_project(sl_pass *p, const sl_group *g, const sl_operand *o);
/* Fills s->act in the forms of act_mask with the rows of in. */
void sl_quantize_rows(sl_pass *p, uint32_t act_mask, const float *in, size_t in_width,
                      uint32_t rows);

/* One product with its bytes and its rows of activations, bound by sl_run_bind(). */
typedef struct sl_run {
    const sl_product *p;
    const uint8_t *w;
    sl_scales s; /* of the product's first row, if it has any beside */
    const void *act;
    size_t act_bytes, batch; /* from one row to the next; rows */
    float *y;                /* output r of row b: y[b * y_stride + r] */
    size_t y_stride, first_task;
} sl_run;

/* Weights and scales of a product whose part is held, nothing else. */
void sl_run_bind(const sl_pass *p, sl_run *u, const sl_product *pr, uint32_t part);
/* All runs in one parallel region; sets their first_task. */
void sl_runs_multiply(sl_pass *p, sl_run *run, uint32_t n);

/* out [rows][D] = RMS norm of in [rows][D]; out may be in. */
void sl_norm_rows(sl_pass *p, const float *in, const float *weight, float *out, uint32_t rows);
/* x += y, for all rows of the pass. */
void sl_add_to_residual(sl_pass *p);

/* The blocks of a layer: read the residual, add to it. */
sl_status sl_attention(sl_pass *p, uint32_t layer);
sl_status sl_feed_forward(sl_pass *p, uint32_t layer);

#endif
