/* The table of kernels: one slot per operation and weight type. The scalar_*.c files define every
 * result; the files of the CPU levels equal them bit for bit (docs/adding-a-kernel.md). Kernels
 * know rows, columns, blocks and lanes, not what they are for. They allocate nothing, take pointers
 * of any alignment unless a parameter says otherwise, and read or write nothing outside the stated
 * shapes. Any thread, as long as outputs and scratch are its own. */
#ifndef SL_KERNELS_H
#define SL_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Weight types that have kernels. Layouts: quant.h. */
typedef enum sl_weight {
    SL_W_F32,
    SL_W_F16,
    SL_W_BF16,
    SL_W_Q8_0,
    SL_W_Q4_0,
    SL_W_Q4_1,
    SL_W_Q5_0,
    SL_W_Q5_1,
    SL_W_Q4_K,
    SL_W_Q5_K,
    SL_W_Q6_K,
    SL_W_Q2_K,
    SL_W_Q3_K,
    SL_W_IQ4_NL,
    SL_W_IQ4_XS,
    SL_W_MXFP4,
    SL_W_NVFP4, /* without the factor of the whole tensor, which the caller applies */
    SL_W_TQ1_0,
    SL_W_TQ2_0,
    SL_W_Q1_0,
    SL_W_Q2_0,
    SL_W_F64, /* rounded to float, one by one */
    SL_W_IQ2_XXS,
    SL_W_IQ2_XS,
    SL_W_IQ2_S,
    SL_W_IQ3_XXS,
    SL_W_IQ3_S,
    SL_W_IQ1_S,
    SL_W_IQ1_M,
    /* scales beside the blocks (sl_scales); types with all in the blocks stand above. Layouts:
       scales.h */
    SL_W_MLX4,        /* group: 32, 64 or 128; F16 or BF16; scale and bias */
    SL_W_MLX8,        /* the same */
    SL_W_MXFP4_SPLIT, /* group 32, E8M0 (255 counts as 2^128) */
    SL_W_FP8,         /* group: a multiple of 16, or all columns and more */
    SL_W_COUNT,
    SL_W_FIRST_BESIDE = SL_W_MLX4
} sl_weight;

/* What a product reads beside the weights. One activation row is sl_act_bytes(act, n_cols) bytes,
 * 64-byte aligned rows. */
typedef enum sl_act {
    SL_ACT_F32,    /* the floats themselves */
    SL_ACT_Q8_32,  /* int8, one float scale and one sum per 32 columns */
    SL_ACT_Q8_256, /* int8, one float scale per 256 columns, sums per 16 and per 32 */
    SL_ACT_COUNT
} sl_act;

typedef struct sl_weight_info {
    const char *name;
    uint32_t block_values, block_bytes; /* a row is a whole number of blocks */
    sl_act act;
} sl_weight_info;

const sl_weight_info *sl_weight_about(sl_weight w);
size_t sl_weight_row_bytes(sl_weight w, size_t n_cols);
size_t sl_act_bytes(
    sl_act act, size_t n_cols); /* bytes from one activation row to the next: a multiple of 64 */

/* How numbers that stand beside the blocks are stored. */
typedef enum sl_scale {
    SL_SCALE_F32,
    SL_SCALE_F16,
    SL_SCALE_BF16,
    SL_SCALE_E8M0, /* a byte e: 2^(e - 127), 255: NaN */
    SL_SCALE_COUNT
} sl_scale;

/* Scales of a type whose blocks do not hold them: one per tile of block_rows rows by group columns.
 * Tiles at the right and lower edge may be partial. */
typedef struct sl_scales {
    const void *scale, *bias; /* of the tile that the first row of w lies in; bias: types that have
                                 one, stored as the scales are */
    size_t scale_bytes; /* from the scales of a row of tiles to those of the next; biases too */
    sl_scale type;
    uint32_t group, block_rows; /* block_rows is 1 in all types but FP8 */
    uint32_t first_row;         /* the first row's place in its tile: 0 .. block_rows - 1 */
} sl_scales;

/* One row: n_cols values (a whole number of blocks) from w to y. Exactly the format's definition,
 * each product and sum rounded to float (no fused multiply-add): bit-equal to ggml's to_float.
 * beside: the scales of this row; NULL for types whose blocks hold everything. */
#define SL_DEQUANTIZE_ARGS const void *w, float *y, size_t n_cols, const sl_scales *beside
typedef void sl_dequantize_fn(SL_DEQUANTIZE_ARGS);

/* Float results are bits, but for NaN: a NaN stays a NaN, which one is left open. */

/* One activation row: x [n_cols] -> out (sl_act_bytes). */
#define SL_QUANTIZE_ARGS const float *x, void *out, size_t n_cols
typedef void sl_quantize_fn(SL_QUANTIZE_ARGS);

/* y[b * y_stride + r] = row r of w times activation row b, for r < n_rows, b < n_batch.
 * w: rows of row_bytes each, one after the other. act: n_batch rows, act_bytes apart, in the type's
 * sl_act form. scratch: sl_mul_scratch_bytes(w, n_cols) bytes of the calling thread, 64-aligned.
 * beside: NULL for types whose blocks hold everything.
 * The result of an output depends on its weight row and activation row alone: not on n_rows,
 * n_batch or the path taken. */
#define SL_MUL_ARGS                                                                                \
    const void *w, size_t row_bytes, size_t n_rows, size_t n_cols, const void *act,                \
        size_t act_bytes, size_t n_batch, float *y, size_t y_stride, void *scratch,                \
        const sl_scales *beside
typedef void sl_mul_fn(SL_MUL_ARGS);
size_t sl_mul_scratch_bytes(sl_weight w, size_t n_cols);
/* The same product with a matrix of floats that is stored transposed: column c of all rows lies at
 * w + c * row_bytes, its elements one after the other. Takes SL_W_F32, SL_W_F16 and SL_W_BF16, and
 * gives the bits of mul; no scratch. */
enum { SL_W_TRANSPOSED_COUNT = SL_W_BF16 + 1 };
/* Row groups in which threads should split a matrix: a multiple of this many rows keeps every lane
 * busy. */
enum { SL_ROW_GROUP = 32 };

/* y[i] = x[i] / sqrt(mean(x^2) + eps) * w[i]; w NULL: no weight. The mean is in 16 virtual lanes. y
 * may be x. */
#define SL_RMS_NORM_ARGS const float *x, const float *w, float eps, float *y, size_t n
typedef void sl_rms_norm_fn(SL_RMS_NORM_ARGS);

/* Rotates n_heads heads of head_dim floats, head_stride floats apart, in place. cos, sin: n_rot / 2
 * values each, of this position. halves: pairs (i, i + n_rot/2); pairs: (2i, 2i+1). Dimensions from
 * n_rot up stay as they are. */
#define SL_ROPE_ARGS                                                                               \
    float *x, size_t n_heads, size_t head_stride, const float *cosine, const float *sine,          \
        size_t n_rot
typedef void sl_rope_fn(SL_ROPE_ARGS);

/* y[i] = act(gate[i]) * up[i]; y may be gate or up. */
#define SL_GLU_ARGS const float *gate, const float *up, float *y, size_t n
typedef void sl_glu_fn(SL_GLU_ARGS);

/* As such a unit: sigmoid_mul is sigmoid(gate[i]) * up[i]. clamped_mul cuts gate above at 7 and up
 * to -7 .. 7 first: gate * sigmoid(1.702 gate) * (up + 1). */

/* y[i] += x[i] */
#define SL_ADD_ARGS float *y, const float *x, size_t n
typedef void sl_add_fn(SL_ADD_ARGS);

/* f32 -> f16, round to nearest even (KV cache). */
#define SL_TO_F16_ARGS const float *x, uint16_t *y, size_t n
typedef void sl_to_f16_fn(SL_TO_F16_ARGS);

/* A row of n values in a little more than a byte each, lossy (KV cache): int8, one f16 scale per 32
 * values; sl_q8_row_bytes(n) bytes. Steps: scale = half(largest magnitude / 127), q = rint(x * (1 /
 * scale)), at most 127; each rounded to nearest even. Layout: q8_row.h. */
#define SL_TO_Q8_ARGS const float *x, void *row, size_t n
typedef void sl_to_q8_fn(SL_TO_Q8_ARGS);
size_t sl_q8_row_bytes(size_t n);

/* Attention over one split of the keys. Splits are SL_ATTN_SPLIT positions wide and start at
 * multiples of it; inside, keys go in tiles of SL_ATTN_TILE at absolute positions, online softmax
 * in tile order. Splits are merged in ascending order by merge. So the result depends only on the
 * query, its keys and its range: never on who computes what. */
enum { SL_ATTN_TILE = 32, SL_ATTN_SPLIT = 1024, SL_ATTN_MAX_DIM = 512 };

typedef struct sl_attn {
    const float
        *q; /* n_q query vectors of dim_k floats, q_stride floats apart; they share this KV head */
    size_t n_q, q_stride;
    const void *k, *v; /* position j: k + j * k_stride bytes [dim_k], v + j * v_stride bytes
                          [dim_v]; f16, f32 or rows of to_q8 by slot. Fastest when one head's
                          positions follow each other at multiples of 64 bytes. */
    size_t k_stride, v_stride;
    size_t dim_k, dim_v; /* multiples of 2, at most SL_ATTN_MAX_DIM */
    const uint32_t *begin,
        *end;       /* query i sees positions begin[i] <= j < end[i], cut to the split */
    uint32_t split; /* which: positions split * SL_ATTN_SPLIT up */
    float scale;    /* scores are q.k * scale */
    float softcap;  /* 0: none; else softcap * tanh(score / softcap) */
    float *part;    /* out: n_q partial results, part_stride floats apart: [0] max, [1] sum, [2 ..]
                       unnormalised out [dim_v] */
    size_t part_stride; /* >= dim_v + 2 */
} sl_attn;
/* An empty range gives max -INFINITY, sum 0, out 0. Positions outside all ranges are not read.
 * Queries that follow each other and see the same keys share the loads: put the heads of a group
 * together, row after row. */
typedef void sl_attn_fn(const sl_attn *a);

/* n_parts partial results, part_stride floats apart -> out [dim_v], normalised. sink NULL, or one
 * more logit in the softmax. */
#define SL_ATTN_MERGE_ARGS                                                                         \
    const float *part, size_t part_stride, size_t n_parts, size_t dim_v, const float *sink,        \
        float *out
typedef void sl_attn_merge_fn(SL_ATTN_MERGE_ARGS);

/* y[i] = f(x[i]), in the steps of vmath.h; y may be x. */
#define SL_MAP_ARGS const float *x, float *y, size_t n
typedef void sl_map_fn(SL_MAP_ARGS);

/* softmax, as a map: y[i] = e[i] / sum, e[i] = exp(x[i] - max). NaN is never the maximum, the sum
 * is in 16 virtual lanes. */

/* Chooses the k best of n scores and gives each a weight: best first, of equal ones the lowest
 * index first. NaN counts as -INFINITY when choosing. */
enum { SL_ROUTE_MAX_N = 1024, SL_ROUTE_MAX_K = 64 };
typedef enum sl_route_kind {
    SL_ROUTE_SOFTMAX,     /* p = softmax(x); chosen by p + bias; weight p */
    SL_ROUTE_TOP_SOFTMAX, /* chosen by x + bias; weights: softmax of the chosen x, in their order */
    SL_ROUTE_SIGMOID      /* p = sigmoid(x); chosen by p + bias; weight p */
} sl_route_kind;

typedef struct sl_route {
    sl_route_kind kind;
    size_t n, k;       /* k <= n, at most SL_ROUTE_MAX_K and SL_ROUTE_MAX_N */
    const float *bias; /* [n], for the choice alone, or NULL */
    size_t n_groups;   /* above 1: n is cut into so many equal groups. A group's score is the */
    size_t top_groups; /* sum of its two best; only the best top_groups groups take part (they
                          have k scores at least) */
    bool renormalise;  /* weight / (sum + renormalise_eps); sum in 16 virtual lanes by rank */
    float renormalise_eps;
    float factor; /* times this, last */
} sl_route;
/* x [n] -> ids [k], weights [k]. */
#define SL_ROUTE_ARGS const sl_route *r, const float *x, uint32_t *ids, float *weights
typedef void sl_route_fn(SL_ROUTE_ARGS);

/* y[i] = y[i] + w[0] * x[0][i] + w[1] * x[1][i] ...: n_x rows of n floats in this order, each step
 * a fused multiply-add. */
#define SL_WEIGHTED_SUM_ARGS const float *const *x, const float *w, size_t n_x, float *y, size_t n
typedef void sl_weighted_sum_fn(SL_WEIGHTED_SUM_ARGS);

/* Causal convolution of each channel with its own taps: y[t] = f(sum over j of w[j] * in[t + j]),
 * in = the n_taps - 1 rows of state followed by those of x; f is silu or nothing. The sum starts at
 * +0 and goes from the oldest input to the newest with fused multiply-add. Afterwards state holds
 * the last n_taps - 1 inputs: rows may be cut into calls anywhere. C = n_channels. */
enum { SL_CONV_MAX_TAPS = 16 };
typedef struct sl_conv {
    const float *x; /* [n_rows][C], rows x_stride floats apart */
    const float *w; /* [n_taps][C], w_stride apart, the tap of the newest input last */
    float *state;   /* [n_taps - 1][C], state_stride apart, oldest first */
    float *y;       /* [n_rows][C], y_stride apart; overlaps none of the others */
    size_t x_stride, w_stride, state_stride, y_stride;
    size_t n_rows, n_channels, n_taps; /* n_taps from 1 to SL_CONV_MAX_TAPS */
    bool silu;
} sl_conv;
typedef void sl_conv_fn(const sl_conv *a);

/* n_heads heads of n floats, stride floats apart, in place: x[i] * (scale / sqrt(sum(x^2) + eps)).
 * The sum is in 16 virtual lanes. */
#define SL_L2_NORM_ARGS float *x, size_t n_heads, size_t stride, size_t n, float eps, float scale
typedef void sl_l2_norm_fn(SL_L2_NORM_ARGS);

/* y[i] = rms_norm(x, w)[i] * silu(z[i]); y may be x or z. */
#define SL_GATED_NORM_ARGS                                                                         \
    const float *x, const float *z, const float *w, float eps, float *y, size_t n
typedef void sl_gated_norm_fn(SL_GATED_NORM_ARGS);

/* The gates of n heads: decay[i] = exp(-(rate[i] * softplus(a[i] + a_bias[i]))), beta[i] =
 * sigmoid(b[i]). decay may be a, beta may be b. */
#define SL_DELTA_GATES_ARGS                                                                        \
    const float *a, const float *b, const float *rate, const float *a_bias, float *decay,          \
        float *beta, size_t n
typedef void sl_delta_gates_fn(SL_DELTA_GATES_ARGS);

/* The gated delta rule of one head, row after row: state *= decay; delta = (v - k.state) * beta;
 * state += k x delta; out = q.state. In these steps, for column c of dim_v, with d = decay:
 *   m = sum of k[i] * state[i][c], p = sum of q[i] * state[i][c]   from +0, i ascending, fused
 *   delta = fma(-d, m, v[c]) * beta
 *   out[c] = fma(d, p, (q.k) * delta)                              q.k in 16 virtual lanes
 *   state[i][c] = fma(k[i], delta, d * state[i][c])
 * Rows may be cut into calls anywhere, columns too. The state of a head stays in cache while the
 * rows of a call pass: give one call many rows. */
typedef struct sl_delta {
    const float *q, *k;        /* [n_rows][dim_k], q_stride and k_stride floats apart */
    const float *v;            /* [n_rows][dim_v], v_stride apart */
    const float *decay, *beta; /* one per row, gate_stride apart */
    float *state;              /* [dim_k][dim_v], state_stride apart */
    float *out;                /* [n_rows][dim_v], out_stride apart; may be v */
    size_t q_stride, k_stride, v_stride, gate_stride, state_stride, out_stride;
    size_t n_rows, dim_k, dim_v;
} sl_delta;
typedef void sl_delta_fn(const sl_delta *a);

typedef struct sl_kernels {
    const char *level; /* "scalar", "avx2" */
    sl_dequantize_fn *dequantize[SL_W_COUNT];
    sl_quantize_fn *quantize[SL_ACT_COUNT]; /* SL_ACT_F32: a copy */
    sl_mul_fn *mul[SL_W_COUNT];             /* picks its own path by n_batch */
    sl_mul_fn *mul_transposed[SL_W_TRANSPOSED_COUNT];
    sl_rms_norm_fn *rms_norm;
    sl_rope_fn *rope_halves, *rope_pairs;
    sl_glu_fn *silu_mul, *gelu_mul; /* gelu: tanh form */
    sl_add_fn *add;
    sl_to_f16_fn *to_f16;
    sl_to_q8_fn *to_q8;
    sl_attn_fn *attn_f16, *attn_f32, *attn_q8;
    sl_attn_merge_fn *attn_merge;
    sl_map_fn *exp, *sigmoid, *softplus, *silu, *tanh, *softmax;
    sl_route_fn *route;
    sl_weighted_sum_fn *weighted_sum;
    sl_glu_fn *sigmoid_mul, *clamped_mul;
    sl_conv_fn *conv;
    sl_l2_norm_fn *l2_norm;
    sl_gated_norm_fn *gated_norm;
    sl_delta_gates_fn *delta_gates;
    sl_delta_fn *gated_delta;
} sl_kernels;

/* CPU levels, in ascending order; a level includes those before it on the same architecture. */
typedef enum sl_cpu_level {
    SL_CPU_SCALAR,
#if defined(__x86_64__)
    SL_CPU_AVX2,     /* with FMA and F16C */
    SL_CPU_AVX2VNNI, /* AVX-VNNI: 256-bit dot products of bytes */
    SL_CPU_AVX512,   /* F, BW, DQ, VL and VNNI */
#elif defined(__aarch64__)
    SL_CPU_NEON,      /* with dot products of bytes (SDOT, UDOT) */
    SL_CPU_NEON_I8MM, /* and int8 matrix products */
#endif
    SL_CPU_LEVEL_COUNT
} sl_cpu_level;
sl_cpu_level sl_cpu_best(void); /* what this CPU and OS can run */
bool sl_cpu_has(
    sl_cpu_level l); /* also a level below the best: a CPU may have AVX-512 without AVX-VNNI */
const char *sl_cpu_level_name(sl_cpu_level l);
bool sl_cpu_level_parse(const char *text, sl_cpu_level *out);

/* Fills the table for a level (at most sl_cpu_best()): scalar first, then each level overwrites
 * what it has. */
void sl_kernels_init(sl_kernels *k, sl_cpu_level level);

#endif
