/* Inside an open model: the layout of its weights over units, shared by model.c, layout.c,
 * session.c and forward.c. */
#ifndef SL_MODEL_IMPL_H
#define SL_MODEL_IMPL_H

#include "arch.h"
#include "state.h"

/* Weight products that one unit makes possible: row ranges of up to four matrices that read the
 * same activations. */
enum { SL_MAX_PRODUCTS = 4 };

/* A weight matrix and the tensors it is stored in. Matrices stacked in a tensor of three dimensions
 * are one tall matrix. */
typedef struct sl_matrix {
    const sl_tensor *t, *scale, *bias; /* scale, bias: NULL when the blocks hold them */
    const sl_tensor *factor_of;        /* NULL: factor is 1 */
    float factor;                      /* what every output is multiplied with */
    const sl_tensor *addend;           /* [n_rows], added to the outputs last; NULL: none */
    sl_weight type, addend_type;
    uint64_t n_rows, n_cols;
    size_t row_bytes; /* of a row's weights */
    bool transposed;  /* within a range of rows that is read, its columns follow each other */
    sl_scales s;      /* all but the addresses */
} sl_matrix;

typedef struct sl_product {
    sl_weight type;
    uint32_t output; /* which of the group's outputs: 0 q, 1 k, 2 v; 0 gate, 1 up; ... */
    uint32_t extent; /* within the step's part */
    uint32_t row0, n_rows, n_cols;
    size_t row_bytes; /* from one row to the next; of a transposed matrix: from one column */
    bool transposed;
    float factor; /* times every output, rounded once; 1: none */
    bool has_addend;
    sl_weight addend_type;
    uint32_t addend_extent;
    bool beside; /* scales are tensors of their own: s and their extents within the part */
    bool has_bias;
    sl_scales s; /* all but the addresses */
    uint32_t scale_extent, bias_extent;
} sl_product;

/* One unit of the plan with its one ALWAYS part. */
typedef struct sl_step {
    uint32_t unit, part;
    uint32_t n_products;
    sl_product product[SL_MAX_PRODUCTS];
} sl_step;

/* The steps that together are one matrix, or a few with the same input (q, k, v; gate, up). */
typedef struct sl_group {
    uint32_t first_step, n_steps;
    uint32_t act_mask; /* 1 << sl_act of every type in it: the forms in which it wants its input */
    bool held;         /* its parts belong to a unit that is entered when it is used */
} sl_group;

/* A layer's experts: one unit, with an ON_DEMAND part for each. They are alike but for where they
 * lie. */
typedef struct sl_experts {
    uint32_t unit, first_part;  /* expert e is part first_part + e */
    uint32_t n_in;              /* 2: gate and up; 1: both in one */
    sl_product in[2], down;     /* of every expert; down is the part's second stage */
    bool alternating;           /* both in one: gate and up row by row; else all of gate first */
    uint32_t in_mask, mid_mask; /* act_mask of gate and up, of down */
} sl_experts;

/* Rows row0 .. row0 + n_rows of a matrix. */
typedef struct sl_matrix_rows {
    sl_matrix m;
    uint64_t row0, n_rows;
} sl_matrix_rows;

/* An expert's matrices: gate and up, or both in one; then down. */
typedef struct sl_expert {
    uint32_t n; /* 3 or 2 */
    sl_matrix_rows m[3];
    bool alternating; /* as sl_experts */
} sl_expert;

typedef struct sl_layer_groups {
    sl_group mixer_in, mixer_out; /* q, k, v, or qkv, z, a, b of a delta net; the output */
    sl_group gate_up, down;
    /* of a mixture of experts */
    sl_group router, shared_gate_up, shared_down; /* the shared expert: in the experts' unit */
    sl_experts experts;
} sl_layer_groups;

typedef struct sl_layout {
    sl_plan *plan;
    sl_step *step;
    uint32_t n_steps, cap_steps;
    sl_layer_groups *layer; /* [n_layers] */
    sl_group head;
    uint32_t units_without_head; /* units of a pass whose logits nobody wants */
    uint32_t embed_table;
    sl_weight embed_type;
    size_t embed_row_bytes;
    bool embed_beside; /* rows of scales and biases come from tables of their own */
    sl_scales embed_scales;
    uint32_t embed_scale_table, embed_bias_table;
    size_t mul_scratch_bytes; /* most that a product needs, per worker */
    uint32_t expert_in_mask, expert_mid_mask, router_mask; /* act_masks of all layers together */
    bool copies_routers;                                   /* some layer's (guess.c) */
} sl_layout;

struct sl_model {
    sl_checkpoint *ckpt;
    sl_config *config;
    sl_arena *arena;
    sl_arch arch;
    char *name;
    uint64_t n_params;
    sl_layout layout;
    sl_tokenizer *tokenizer;
    /* after load */
    sl_stream *stream;
    sl_workers *workers; /* borrowed */
    uint32_t row_batch;  /* most rows of one sl_rows_read() */
    sl_kernels kernels;
};

/* Which kernel type a stored type is; SL_EUNSUPPORTED names tensor and type. */
sl_status sl_weight_of(const sl_tensor *t, sl_weight *out, sl_err *err);

/* The matrix that t, a tensor with a role, belongs to. SL_EUNSUPPORTED or SL_EFORMAT names the
 * tensor that does not fit. */
sl_status sl_matrix_of(const sl_checkpoint *c, const sl_arch *arch, const sl_tensor *t,
                       sl_matrix *m, sl_err *err);
/* Gives m the values that are added to its outputs, rows of them for each matrix of a stack, if
 * there is a tensor of them beside it: X.bias of X.weight, X_bias of X_blocks and of X. */
sl_status sl_matrix_read_addend(const sl_checkpoint *c, uint64_t rows, sl_matrix *m, sl_err *err);
/* Where an expert's matrices are, in whichever layout the checkpoint has, held against the config:
 * SL_EFORMAT or SL_EUNSUPPORTED names the tensor that is missing or does not fit. */
sl_status sl_expert_of(const sl_checkpoint *c, const sl_arch *arch, uint32_t layer, uint32_t expert,
                       sl_expert *out, sl_err *err);
/* What a product that begins row rows further down gets. */
sl_scales sl_scales_from(const sl_scales *s, size_t row);

/* Units, parts and steps for parts of at most part_bytes. Tensors were checked before. */
sl_status sl_layout_make(sl_layout *l, const sl_checkpoint *c, const sl_arch *arch,
                         uint64_t part_bytes, sl_err *err);
void sl_layout_free(sl_layout *l);
/* Whether guesses use a copy of this router of a quarter of its size (guess.c), in activations of
 * this form. */
bool sl_router_is_copied(const sl_group *g, const sl_layout *l);
enum { SL_ROUTER_COPY_ACT = 1u << SL_ACT_Q8_32 };
uint64_t sl_layout_bytes(
    const sl_model *m); /* heap of steps and groups (the plan counts for itself) */

/* When guessing a layer's experts last had something to bring. */
typedef struct sl_guess_watch {
    uint64_t missing; /* parts that were not there, so far */
    uint32_t quiet;   /* guesses since then */
} sl_guess_watch;

/* Scratch of mixtures of experts, for the largest of a model's layers: E experts of which k are
 * used, F wide. A slot is one row's use of one expert; slots lie expert after expert in ascending
 * order, rows ascending in each: S = T * k of them. R rows go through experts at once. */
typedef struct sl_moe_scratch {
    uint32_t round_rows;           /* R, at least T and k */
    float *score;                  /* [T][E] of the router */
    uint32_t *id;                  /* [T][k] experts of a row */
    float *weight;                 /* [T][k] theirs */
    uint32_t *slot;                /* [T][k] where their outputs lie */
    float *shared_weight;          /* [T] */
    uint32_t *slot_row;            /* [S] */
    uint32_t *first;               /* [E + 1] an expert's first slot */
    uint32_t *part, *part_rows;    /* [E] of sl_parts_need() */
    uint32_t *ready;               /* [E] of sl_parts_next() */
    uint32_t *round_slot;          /* [R] */
    struct sl_run *run;            /* [2 * E] */
    float *pair;                   /* [R][2 F] gate and up; then [R][F] their unit, as far apart */
    float *out;                    /* [S][D] outputs of experts */
    void *in[SL_ACT_COUNT];        /* [R][act_bytes of D]: rows of s->act, or of s->norm, by slot */
    void *mid[SL_ACT_COUNT];       /* [R][act_bytes of F, of the shared expert's width] */
    sl_guess_watch *watch;         /* [n_layers][2]: guessed from the layer before; from others */
    uint32_t guess_rows;           /* passes of so many rows have their experts guessed */
    float *guess_norm;             /* [guess_rows][D] as the next layer would see them */
    void *guess_act[SL_ACT_COUNT]; /* [guess_rows][act_bytes of D] */
    uint8_t *router;               /* [n_layers][router_rows = E][blocks of D] Q8_0, for guesses */
    uint32_t router_rows;
    bool *copied; /* [n_layers] router has the layer's */
} sl_moe_scratch;

/* A sequence. KV cache of layer l: k and v at kv + offset, [n_kv_heads][n_ctx][row]
 * each, a row being sl_kv_row_bytes(). */
struct sl_session {
    sl_model *model;
    sl_session_options opt;
    uint32_t length;
    uint32_t max_rows;  /* rows of the largest pass: chunk */
    uint32_t attn_rows; /* rows whose attention is computed in one region */
    size_t kv_bytes;
    uint8_t *kv;
    size_t *layer_kv; /* [n_layers] offset of the layer's K in kv; V follows */
    sl_state state;
    /* scratch of a pass of max_rows rows, one allocation; row-major */
    uint8_t *scratch;
    size_t scratch_bytes;
    float *x;    /* [rows][n_embd] residual */
    float *norm; /* [rows][max of n_embd, q width]: normed input, then the queries */
    /* of the mixer, sharing memory: */
    float *q, *k, *v; /* [rows][heads * head_dim]; q has gates in it, if there are any, and
                         takes the attention's output */
    float *delta_in, *delta_mix; /* [rows][channels] of the convolution: in, out; before, grouped
                                    inputs lie in the second, which is as much larger */
    float *delta_z;              /* [rows][value heads * dim_v] */
    float *delta_a, *delta_b;    /* [rows][value heads] */
    float *gate, *up;            /* [rows][n_ff] */
    float *y;                    /* [rows][n_embd] what a block adds to the residual */
    float *logits;               /* [logits_rows][n_vocab] */
    float *cosine, *sine;        /* [rows][n_rot / 2] */
    float *parts;                /* [attn_rows][heads][splits][part_stride] */
    void *act[SL_ACT_COUNT];     /* [rows][act_bytes of the widest input]; F32 has none: the floats
                                    themselves */
    uint8_t *embed_rows;         /* [rows][embed_row_bytes] */
    uint8_t *embed_scale_rows,
        *embed_bias_rows;                     /* [rows][scale_bytes], if the embedding has them */
    uint32_t *row_id, *attn_begin, *attn_end; /* [rows], [rows * group] each */
    uint8_t *mul_scratch;                     /* [workers][mul_scratch_bytes] */
    sl_moe_scratch moe;
    size_t attn_part_stride, n_splits;
};

/* A cached key or value of one head. */
size_t sl_kv_row_bytes(sl_kv_type kv, size_t head_dim);

/* Zeroed pages, charged when touched; NULL: out of memory. To be given to munmap(). */
void *sl_pages_map(uint64_t bytes);

/* One pass over n rows that start at position start, of which the first again were evaluated before
 * (state.h); logits of the last n_logits rows go to session->logits (0: no head). */
sl_status sl_forward(sl_session *s, uint32_t start, const int32_t *ids, uint32_t n, uint32_t again,
                     uint32_t n_logits, const sl_eval *e, sl_err *err);

#endif
