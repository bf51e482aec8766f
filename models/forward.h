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
    uint32_t again; /* rows at the front that were evaluated before */
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

/* out[i] = matrices of the group times each row of in: enters and leaves the group's units, but for
 * a held group, whose unit is entered. */
sl_status sl_project(sl_pass *p, const sl_group *g, const sl_operand *o);
/* The same for rows that are there in all forms of the group's act_mask already. */
sl_status sl_project_acts(sl_pass *p, const sl_group *g, const sl_operand *o, void *const *act);
/* Fills act in the forms of act_mask, but for floats, with the rows of in. */
void sl_quantize_rows(sl_pass *p, uint32_t act_mask, const float *in, size_t in_width,
                      uint32_t rows, void *const *act);

/* One product with its bytes and its rows of activations, bound by sl_run_bind(). */
typedef struct sl_run {
    const sl_product *p;
    const uint8_t *w;
    sl_scales s;           /* of the product's first row, if it has any beside */
    const uint8_t *addend; /* of its first row, if it has one */
    const void *act;
    size_t act_bytes, batch; /* from one row to the next; rows */
    float *y;                /* output r of row b: y[b * y_stride + r] */
    size_t y_stride, first_task;
} sl_run;

/* Weights, scales and addends of a product whose part is held, nothing else. */
void sl_run_bind(const sl_pass *p, sl_run *u, const sl_product *pr, uint32_t part);
/* The same in the middle of a pass for any part that stays; false: it is not there now. */
bool sl_run_peek(const sl_pass *p, sl_run *u, const sl_product *pr, uint32_t part);
/* Its rows of activations: floats, in_width apart, or in quantised forms, which follow each other
 * without gaps. */
void sl_run_operand(sl_run *u, const float *in, size_t in_width, void *const *act);
/* All runs in one parallel region; sets their first_task. */
void sl_runs_multiply(sl_pass *p, sl_run *run, uint32_t n);

/* out [rows][D] = RMS norm of in [rows][D]; out may be in. */
void sl_norm_rows(sl_pass *p, const float *in, const float *weight, float *out, uint32_t rows);
/* x += y, for all rows of the pass. */
void sl_add_to_residual(sl_pass *p);

/* The blocks of a layer: read the residual, add to it. */
sl_status sl_attention(sl_pass *p, uint32_t layer);
sl_status sl_delta_net_mix(sl_pass *p, uint32_t layer);
sl_status sl_feed_forward(sl_pass *p, uint32_t layer); /* dense, or a mixture */
sl_status sl_mixture(sl_pass *p, uint32_t layer);

/* gate [rows][width] = silu(gate) * up */
void sl_glu_rows(sl_pass *p, float *gate, const float *up, size_t width, uint32_t rows);
/* Tells the stream which experts the layers behind this one will probably use, as far as can be
 * guessed from the residual of now (shared: and from what this layer's shared expert, in s->y, will
 * add to it). */
void sl_guess_experts(sl_pass *p, uint32_t layer, bool shared);

#endif
