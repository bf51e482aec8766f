/* What Llama-shaped dense families share: attention with grouped heads and rotary positions, a
 * gated feed-forward block, RMS norms. Sources: transformers' configuration_llama.py and
 * configuration_qwen3.py; ggml's gguf.md for the GGUF keys. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arch.h"

/* Largest values taken from a config: generous, and small enough that no product of them overflows.
 */
enum {
    MAX_LAYERS = 4096,
    MAX_WIDTH = 1 << 20,
    MAX_HEADS = 4096,
    MAX_VOCAB = 1 << 24,
    MAX_CONTEXT = 1 << 27
};

typedef struct shape {
    int64_t layers, embd, heads, kv_heads, head_dim, ff, vocab, context, bos;
    double eps, rope_base;
} shape;

static sl_status read_heads(const sl_config *c, shape *s, sl_err *err)
{
    static const sl_key heads = {"attention.head_count", "num_attention_heads"},
                        kv = {"attention.head_count_kv", "num_key_value_heads"},
                        dim = {"attention.key_length", "head_dim"};
    char name[160];
    sl_status st = sl_config_int(c, heads, false, 1, MAX_HEADS, &s->heads, err);
    s->kv_heads = s->heads;
    if (st == SL_OK)
        st = sl_config_int(c, kv, true, 1, MAX_HEADS, &s->kv_heads, err);
    if (st == SL_OK)
        st = sl_config_int(c, dim, true, 2, SL_ATTN_MAX_DIM, &s->head_dim, err);
    if (st != SL_OK)
        return st;
    sl_config_key_name(c, heads, name, sizeof name);
    if (!s->head_dim && s->embd % s->heads)
        return sl_fail(err, SL_EFORMAT, "%s: %lld heads do not divide the width of %lld", name,
                       (long long)s->heads, (long long)s->embd);
    if (!s->head_dim)
        s->head_dim = s->embd / s->heads;
    if (s->head_dim % 2 || s->head_dim > SL_ATTN_MAX_DIM)
        return sl_fail(err, SL_EUNSUPPORTED,
                       "%s: heads of %lld dimensions: even and at most %d are supported", name,
                       (long long)s->head_dim, SL_ATTN_MAX_DIM);
    if (s->heads % s->kv_heads) {
        sl_config_key_name(c, kv, name, sizeof name);
        return sl_fail(err, SL_EFORMAT, "%s: %lld heads are not a multiple of %lld key/value heads",
                       name, (long long)s->heads, (long long)s->kv_heads);
    }
    return SL_OK;
}

static sl_status read_shape(const sl_config *c, shape *s, sl_err *err)
{
    const struct {
        sl_key key;
        bool optional;
        int64_t max, *out;
    } ints[] = {
        {{"block_count", "num_hidden_layers"}, false, MAX_LAYERS, &s->layers},
        {{"embedding_length", "hidden_size"}, false, MAX_WIDTH, &s->embd},
        {{"feed_forward_length", "intermediate_size"},
         sl_config_has(c, (sl_key){"expert_count", "num_experts"}),
         MAX_WIDTH,
         &s->ff},
        {{"context_length", "max_position_embeddings"}, false, MAX_CONTEXT, &s->context},
        {{"vocab_size", "vocab_size"}, sl_config_format(c) == SL_FORMAT_GGUF, MAX_VOCAB, &s->vocab},
    };
    sl_status st = SL_OK;
    for (size_t i = 0; st == SL_OK && i < sizeof ints / sizeof *ints; i++)
        st = sl_config_int(c, ints[i].key, ints[i].optional, 1, ints[i].max, ints[i].out, err);
    if (st == SL_OK)
        st = sl_config_number(c, (sl_key){"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                              false, 0, 1, &s->eps, err);
    return st == SL_OK ? read_heads(c, s, err) : st;
}

/* ---- rotary positions ---- */

/* Llama 3's scaling: long wavelengths divided by factor, short ones kept, between them a smooth
 * step (transformers/modeling_rope_utils.py, _compute_llama3_parameters). */
static sl_status scale_llama3(const sl_config *c, const char *object, sl_rope *r, sl_err *err)
{
    double v[4] = {0};
    static const char *const names[4] = {"factor", "low_freq_factor", "high_freq_factor",
                                         "original_max_position_embeddings"};
    for (int i = 0; i < 4; i++) {
        char key[96];
        snprintf(key, sizeof key, "%s.%s", object, names[i]);
        sl_status st = sl_config_number(c, (sl_key){NULL, key}, false, 0, 1e9, &v[i], err);
        if (st != SL_OK)
            return st;
    }
    const double factor = v[0], low = v[1], high = v[2], context = v[3];
    if (high <= low)
        return sl_fail(err, SL_EFORMAT,
                       "config.json: %s: high_freq_factor %g is not above low_freq_factor %g",
                       object, high, low);
    for (uint32_t i = 0; i < r->n_rot / 2; i++) {
        double f = r->inv_freq[i], wavelength = 6.283185307179586 / f;
        double smooth = (context / wavelength - low) / (high - low);
        if (wavelength > context / low)
            r->inv_freq[i] = f / factor;
        else if (wavelength >= context / high)
            r->inv_freq[i] = (1 - smooth) * f / factor + smooth * f;
    }
    return SL_OK;
}

static sl_status scale_linear(const sl_config *c, sl_key key, sl_rope *r, sl_err *err)
{
    double factor = 1;
    sl_status st = sl_config_number(c, key, false, 0, 1e9, &factor, err);
    for (uint32_t i = 0; st == SL_OK && i < r->n_rot / 2; i++)
        r->inv_freq[i] /= factor;
    return st;
}

/* config.json: rope_scaling {rope_type or type, ...}, or rope_parameters (newer files, the base
 * inside). */
static sl_status scale_json(const sl_config *c, sl_rope *r, sl_err *err)
{
    const char *object =
        sl_config_has(c, (sl_key){NULL, "rope_scaling"}) ? "rope_scaling" : "rope_parameters";
    char key[64];
    const char *type = NULL;
    if (!sl_config_has(c, (sl_key){NULL, object}))
        return SL_OK;
    if (!sl_config_is_object(c, (sl_key){NULL, object}))
        return sl_fail(err, SL_EFORMAT, "config.json: %s is not an object", object);
    snprintf(key, sizeof key, "%s.rope_type", object);
    sl_status st = sl_config_string(c, (sl_key){NULL, key}, &type, err);
    if (st == SL_OK && !type) {
        snprintf(key, sizeof key, "%s.type", object);
        st = sl_config_string(c, (sl_key){NULL, key}, &type, err);
    }
    if (st != SL_OK || !type || !strcmp(type, "default"))
        return st;
    if (!strcmp(type, "llama3"))
        return scale_llama3(c, object, r, err);
    snprintf(key, sizeof key, "%s.factor", object);
    if (!strcmp(type, "linear"))
        return scale_linear(c, (sl_key){NULL, key}, r, err);
    return sl_fail(
        err, SL_EUNSUPPORTED,
        "config.json: %s: rope type %s is not supported (default, linear and llama3 are)", object,
        type);
}

/* GGUF: rope.scaling.type, or a tensor of divisors that the converter made from Llama 3's scaling.
 */
static sl_status scale_gguf(const sl_config *c, sl_arch *arch, sl_err *err)
{
    sl_rope *r = &arch->rope;
    const char *type = NULL;
    sl_status st = sl_config_string(c, (sl_key){"rope.scaling.type", NULL}, &type, err);
    if (st == SL_OK && type && !strcmp(type, "linear"))
        st = scale_linear(c, (sl_key){"rope.scaling.factor", NULL}, r, err);
    else if (st == SL_OK && type && strcmp(type, "none"))
        st = sl_fail(err, SL_EUNSUPPORTED,
                     "rope.scaling.type %s is not supported (none and linear are)", type);
    char name[SL_NAME_BYTES];
    sl_role_name(arch, SL_ROLE_ROPE_FACTORS, 0, name);
    const sl_tensor *t = sl_checkpoint_find(sl_config_checkpoint(c), name);
    if (st != SL_OK || !t)
        return st;
    float divisor[SL_ATTN_MAX_DIM / 2];
    if (t->type != SL_F32 || t->n_values != r->n_rot / 2)
        return sl_fail(err, SL_EFORMAT, "tensor %s: %s with %llu values, expected F32 with %u",
                       name, sl_dtype_about(t->type)->name, (unsigned long long)t->n_values,
                       r->n_rot / 2);
    st = sl_checkpoint_read(sl_config_checkpoint(c), t, divisor, err);
    for (uint32_t i = 0; st == SL_OK && i < r->n_rot / 2; i++) {
        if (!(divisor[i] > 0) || !isfinite(divisor[i]))
            return sl_fail(err, SL_EFORMAT, "tensor %s: value %u is %g, expected above 0", name, i,
                           (double)divisor[i]);
        r->inv_freq[i] /= (double)divisor[i];
    }
    return st;
}

static sl_status read_rope(const sl_config *c, sl_arena *arena, const shape *s, sl_arch *arch,
                           sl_err *err)
{
    sl_rope *r = &arch->rope;
    static const sl_key dims = {"rope.dimension_count", NULL};
    int64_t n_rot = s->head_dim;
    double share = 1;
    r->base = 10000;
    sl_status st =
        sl_config_number(c, (sl_key){"rope.freq_base", "rope_theta"}, true, 0, 1e12, &r->base, err);
    if (st == SL_OK && sl_config_format(c) != SL_FORMAT_GGUF &&
        sl_config_is_object(c, (sl_key){NULL, "rope_parameters"}))
        st = sl_config_number(c, (sl_key){NULL, "rope_parameters.rope_theta"}, true, 0, 1e12,
                              &r->base, err);
    static const char *const shares[] = {"partial_rotary_factor",
                                         "rope_parameters.partial_rotary_factor"};
    for (int i = 0; st == SL_OK && i < 2; i++)
        st = sl_config_number(c, (sl_key){NULL, shares[i]}, true, 0, 1, &share, err);
    n_rot = (int64_t)((double)s->head_dim * share);
    if (st == SL_OK)
        st = sl_config_int(c, dims, true, 2, s->head_dim, &n_rot, err);
    if (st != SL_OK)
        return st;
    if (n_rot % 2 || n_rot < 2) {
        char name[160] = "config.json: partial_rotary_factor: rotary dimensions";
        if (sl_config_format(c) == SL_FORMAT_GGUF)
            sl_config_key_name(c, dims, name, sizeof name);
        return sl_fail(err, SL_EFORMAT, "%s is %lld, expected an even number", name,
                       (long long)n_rot);
    }
    r->n_rot = (uint32_t)n_rot;
    r->inv_freq = sl_arena_alloc(arena, (uint64_t)n_rot / 2, sizeof *r->inv_freq);
    if (!r->inv_freq)
        return sl_fail(err, SL_ENOMEM, "out of memory for the rotary frequencies");
    for (uint32_t i = 0; i < r->n_rot / 2; i++)
        r->inv_freq[i] = pow(r->base, -2.0 * i / (double)n_rot);
    return sl_config_format(c) == SL_FORMAT_GGUF ? scale_gguf(c, arch, err) : scale_json(c, r, err);
}

/* ---- what a config may ask for that we do not do ---- */

sl_status sl_refuse_experts(const sl_config *c, sl_err *err)
{
    int64_t count = 0, used = 0;
    sl_status st = sl_config_int(c, (sl_key){"expert_count", "num_local_experts"}, true, 0, 1 << 16,
                                 &count, err);
    if (st != SL_OK || !count)
        return st;
    st = sl_config_int(c, (sl_key){"expert_used_count", "num_experts_per_tok"}, true, 0, count,
                       &used, err);
    if (st != SL_OK)
        return st;
    if (sl_config_format(c) == SL_FORMAT_GGUF &&
        !sl_checkpoint_find(sl_config_checkpoint(c), "blk.0.ffn_gate_exps.weight"))
        return sl_fail(
            err, SL_EFORMAT,
            "tensor blk.0.ffn_gate_exps.weight is missing, though the metadata says %lld experts",
            (long long)count);
    return sl_fail(err, SL_EUNSUPPORTED, "mixture of %lld experts: not supported yet",
                   (long long)count);
}

static sl_status refuse_unknown(const sl_config *c, const shape *s, sl_err *err)
{
    const char *text = NULL;
    uint64_t n = 0;
    bool on = false;
    sl_status st = sl_config_string(c, (sl_key){NULL, "hidden_act"}, &text, err);
    if (st == SL_OK && text && strcmp(text, "silu"))
        st = sl_fail(err, SL_EUNSUPPORTED, "config.json: hidden_act %s is not supported (silu is)",
                     text);
    if (st == SL_OK && sl_config_has(c, (sl_key){NULL, "quantization_config"}) &&
        !sl_config_has(c, (sl_key){NULL, "quantization"})) { /* MLX writes both, alike */
        st = sl_config_string(c, (sl_key){NULL, "quantization_config.quant_method"}, &text, err);
        if (st == SL_OK && (!text || (strcmp(text, "fp8") && strcmp(text, "mxfp4"))))
            st = sl_fail(err, SL_EUNSUPPORTED,
                         "config.json: quantization_config.quant_method %s is not supported",
                         text ? text : "(none)");
    }
    if (st == SL_OK)
        st = sl_config_array_len(c, (sl_key){NULL, "layer_types"}, &n, err);
    if (st == SL_OK && sl_config_has(c, (sl_key){NULL, "layer_types"}) && n != (uint64_t)s->layers)
        st = sl_fail(err, SL_EFORMAT, "config.json: layer_types has %llu entries for %lld layers",
                     (unsigned long long)n, (long long)s->layers);
    static const char *const flags[] = {"attention_bias", "mlp_bias", "use_sliding_window"};
    for (size_t i = 0; st == SL_OK && i < sizeof flags / sizeof *flags; i++) {
        st = sl_config_bool(c, (sl_key){NULL, flags[i]}, &on, err);
        if (st == SL_OK && on)
            st = sl_fail(err, SL_EUNSUPPORTED, "config.json: %s is not supported", flags[i]);
    }
    return st;
}

/* MLX: quantization {group_size, bits, mode}. The bits follow from the tensors' shapes. */
static sl_status read_mlx(const sl_config *c, sl_arch *arch, sl_err *err)
{
    const char *mode = NULL;
    int64_t group = 0;
    if (!sl_config_is_object(c, (sl_key){NULL, "quantization"}))
        return SL_OK;
    sl_status st = sl_config_string(c, (sl_key){NULL, "quantization.mode"}, &mode, err);
    if (st == SL_OK)
        st = sl_config_int(c, (sl_key){NULL, "quantization.group_size"}, false, 1, 1024, &group,
                           err);
    if (st != SL_OK)
        return st;
    if (mode && strcmp(mode, "affine"))
        return sl_fail(err, SL_EUNSUPPORTED,
                       "config.json: quantization.mode %s is not supported (affine is)", mode);
    if (group != 32 && group != 64 && group != 128)
        return sl_fail(err, SL_EUNSUPPORTED,
                       "config.json: quantization.group_size %lld is not supported (32, 64 and 128 "
                       "are)",
                       (long long)group);
    arch->mlx_group = (uint32_t)group;
    return SL_OK;
}

static sl_status fill_layers(sl_arena *arena, const shape *s, sl_arch *arch, sl_err *err)
{
    arch->layer = sl_arena_alloc(arena, (uint64_t)s->layers, sizeof *arch->layer);
    if (!arch->layer)
        return sl_fail(err, SL_ENOMEM, "out of memory for %lld layers", (long long)s->layers);
    for (uint32_t i = 0; i < arch->n_layers; i++) {
        arch->layer[i].n_heads = (uint32_t)s->heads;
        arch->layer[i].n_kv_heads = (uint32_t)s->kv_heads;
        arch->layer[i].head_dim = (uint32_t)s->head_dim;
        arch->layer[i].attn_scale = (float)(1.0 / sqrt((double)s->head_dim));
        arch->layer[i].n_ff = (uint32_t)s->ff;
    }
    return SL_OK;
}

sl_status sl_read_dense(const sl_config *c, sl_arena *arena, sl_arch *arch, sl_err *err)
{
    shape s = {.bos = -1};
    sl_status st = read_shape(c, &s, err);
    if (st == SL_OK)
        st = refuse_unknown(c, &s, err);
    if (st == SL_OK)
        st = read_mlx(c, arch, err);
    if (st == SL_OK)
        st = read_rope(c, arena, &s, arch, err);
    if (st == SL_OK)
        st = sl_config_bool(c, (sl_key){NULL, "tie_word_embeddings"}, &arch->tied, err);
    if (st != SL_OK)
        return st;
    arch->n_layers = (uint32_t)s.layers;
    arch->n_embd = (uint32_t)s.embd;
    arch->n_vocab =
        (uint32_t)s.vocab; /* 0 for a GGUF that does not say: the embedding's rows count then */
    arch->n_ctx_max = (uint32_t)s.context;
    arch->norm_eps = (float)s.eps;
    return fill_layers(arena, &s, arch, err);
}
