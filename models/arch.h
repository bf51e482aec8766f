/* The description of a model that the forward pass interprets: what a family file makes out of a
 * config, plus where every tensor is. Private to models/. Not here: how bytes arrive (stream.h),
 * arithmetic (kernels.h). */
#ifndef SL_ARCH_H
#define SL_ARCH_H

#include "config.h"
#include "model.h"

/* What a tensor is for. The names in both formats stand in names.c. */
typedef enum sl_role {
    /* once per model */
    SL_ROLE_EMBED,
    SL_ROLE_FINAL_NORM,
    SL_ROLE_HEAD,
    SL_ROLE_ROPE_FACTORS, /* GGUF only: divisors of the rotary frequencies */
    /* once per layer */
    SL_ROLE_ATTN_NORM,
    SL_ROLE_Q,
    SL_ROLE_K,
    SL_ROLE_V,
    SL_ROLE_O,
    SL_ROLE_Q_NORM,
    SL_ROLE_K_NORM,
    SL_ROLE_DELTA_QKV,
    SL_ROLE_DELTA_Z,
    SL_ROLE_DELTA_A,
    SL_ROLE_DELTA_B,
    SL_ROLE_DELTA_QKVZ, /* or two for the four, key head by key head: safetensors only */
    SL_ROLE_DELTA_BA,
    SL_ROLE_DELTA_OUT,
    SL_ROLE_DELTA_CONV,
    SL_ROLE_DELTA_RATE,
    SL_ROLE_DELTA_A_BIAS,
    SL_ROLE_DELTA_NORM,
    SL_ROLE_FFN_NORM,
    SL_ROLE_GATE,
    SL_ROLE_UP,
    SL_ROLE_DOWN,
    SL_ROLE_ROUTER,
    SL_ROLE_SHARED_GATE,
    SL_ROLE_SHARED_UP,
    SL_ROLE_SHARED_DOWN,
    SL_ROLE_SHARED_SCORE,
    /* once per layer and expert */
    SL_ROLE_EXPERT_GATE,
    SL_ROLE_EXPERT_UP,
    SL_ROLE_EXPERT_DOWN,
    /* once per layer, all its experts in one tensor; gate and up in one: fused */
    SL_ROLE_STACKED_GATE,
    SL_ROLE_STACKED_UP,
    SL_ROLE_STACKED_DOWN,
    SL_ROLE_FUSED_GATE_UP,
    SL_ROLE_FUSED_DOWN,
    SL_ROLE_BLOCKS_GATE_UP, /* safetensors only: MXFP4, scales beside them */
    SL_ROLE_BLOCKS_DOWN,
    SL_ROLE_COUNT
} sl_role;

enum { SL_ROLE_FIRST_OF_LAYER = SL_ROLE_ATTN_NORM, SL_NAME_BYTES = 128, SL_MAX_ENDS = 16 };

/* A mixture of experts: a router chooses n_used of n_experts for each row; each is
 * down(silu(gate x) * up x), n_ff wide. */
typedef struct sl_moe {
    uint32_t n_experts; /* 0: the layer has no mixture */
    uint32_t n_used, n_ff;
    bool alternating;          /* stacks that hold gate and up in one: row by row */
    sl_route route;            /* from the router's scores to experts and their weights */
    uint32_t n_ff_shared;      /* one more expert, which every row uses; 0: none */
    bool shared_gated;         /* its output counts sigmoid(shared_score . x) times; else once */
    const float *shared_score; /* [n_embd], owned by the model's arena */
} sl_moe;
/* What makes rows see earlier rows. */
typedef enum sl_mixer { SL_MIXER_ATTENTION, SL_MIXER_DELTA_NET } sl_mixer;

/* A gated delta net. q and k [n_k_heads * dim_k] and v [n_v_heads * dim_v], one after the other,
 * are the channels of a short convolution; then each value head has a state [dim_k][dim_v]. */
typedef struct sl_delta_net {
    uint32_t n_k_heads, n_v_heads, dim_k, dim_v, n_taps;
    bool grouped; /* q, k, v and z are outputs of one matrix, b and a of another: for each key head
                     its q, its k, v of its value heads, z of these; and b of these, a of these */
    bool tiled; /* value head j goes with key head j % n_k_heads; else with j / (value heads per key
                   head) */
    /* floats, owned by the model's arena */
    const float *taps;          /* [n_taps][channels], the newest input's last */
    const float *rate, *a_bias; /* [n_v_heads] */
    const float *norm;          /* [dim_v] */
} sl_delta_net;

static inline size_t sl_delta_channels(const sl_delta_net *d)
{
    return 2 * (size_t)d->n_k_heads * d->dim_k + (size_t)d->n_v_heads * d->dim_v;
}

typedef struct sl_layer {
    sl_mixer mixer;
    sl_delta_net delta;
    /* attention: q [n_heads * head_dim], k and v [n_kv_heads * head_dim] */
    uint32_t n_heads, n_kv_heads, head_dim;
    float attn_scale; /* scores are q.k * attn_scale */
    bool qk_norm;     /* RMS norm of each head of q and k before the rotation */
    bool attn_gate; /* q's rows go [q | gate] head by head; the output counts sigmoid(gate) times */
    /* feed-forward: down(silu(gate x) * up x), or a mixture of experts */
    uint32_t n_ff;
    sl_moe moe;
    /* norm weights as float, owned by the model's arena; [n_embd], [head_dim] */
    const float *attn_norm, *ffn_norm, *q_norm, *k_norm;
} sl_layer;

typedef struct sl_rope {
    uint32_t n_rot; /* dimensions of a head that turn; the rest stay */
    bool pairs;     /* neighbours (2i, 2i+1) turn together, as llama.cpp's converter lays Llama out;
                       else (i, i + n_rot/2) */
    double base;
    double *inv_freq; /* [n_rot / 2], scaling included */
} sl_rope;

/* What a family calls a tensor differently from names.c; NULL: not there in that format. */
typedef struct sl_name {
    sl_role role;
    const char *gguf, *hf;
} sl_name;

/* A part of the model that is not run: tensors whose names begin with prefix. */
typedef struct sl_skip {
    char prefix[24];
    const char *what;
} sl_skip;
enum { SL_MAX_SKIPS = 4 };

typedef struct sl_arch {
    const char *family;
    sl_format format;
    const char *hf_prefix; /* what "model." is in this folder's names; NULL: "model." */
    const char *hf_before; /* what other names begin with; NULL: nothing */
    const sl_name *names;  /* [n_names] */
    uint32_t n_names;
    uint32_t n_layers, n_embd, n_vocab, n_ctx_max;
    float norm_eps;
    float norm_plus; /* added to the stored weights of all norms but those of delta nets */
    sl_skip skip[SL_MAX_SKIPS];
    uint32_t n_skips;
    bool tied;          /* the head is the embedding */
    uint32_t mlx_group; /* columns of a scale in MLX's layout; 0: the config asks for none */
    sl_rope rope;
    sl_layer *layer; /* [n_layers] */
    const float *final_norm;
    int32_t bos; /* -1: none */
    uint32_t n_ends;
    int32_t end[SL_MAX_ENDS]; /* ids that end a text, from the config; the first is EOS */
} sl_arch;

/* The tensor's name in this checkpoint; layer is ignored for roles of the whole model. Empty: the
 * format has none. */
void sl_role_name(const sl_arch *arch, sl_role role, uint32_t layer, char out[SL_NAME_BYTES]);
/* The same for a role that each expert has. */
void sl_expert_role_name(const sl_arch *arch, sl_role role, uint32_t layer, uint32_t expert,
                         char out[SL_NAME_BYTES]);

/* A family: reads the config, in either format, into arch (memory from arena). Names are matched
 * exactly. */
typedef struct sl_family {
    const char *name;
    const char *gguf_arch;  /* general.architecture; NULL: no GGUF files */
    const char *model_type; /* config.json: model_type */
    sl_status (*read)(const sl_config *c, sl_arena *arena, sl_arch *arch, sl_err *err);
    const char *text_type; /* model_type of its text_config, where that stands alone; or NULL */
} sl_family;

const sl_family *sl_family_find(sl_format format, const char *name); /* NULL: not one we run */
void sl_family_list(char *text, size_t cap);                         /* "llama, qwen3" */

/* Shared by the families that are Llama's shape with small differences: everything but what sets
 * them apart. */
sl_status sl_read_dense(const sl_config *c, sl_arena *arena, sl_arch *arch, sl_err *err);
/* A family without experts: SL_EUNSUPPORTED when the config has some all the same. */
sl_status sl_refuse_experts(const sl_config *c, sl_err *err);
/* Which layers are mixtures of experts, and how large: softmax over all scores, then the best.
 * After sl_read_dense(). */
sl_status sl_read_moe(const sl_config *c, sl_arch *arch, sl_err *err);

#endif
