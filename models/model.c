/* Opening a model: checkpoint, config, family, then every tensor held against what the config
 * promises. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_impl.h"

/* Small enough that a ring of 64 MiB holds a few parts, so that one can be read while another is
 * used; large enough for reads of full length (docs/experiments.md). */
enum { DEFAULT_PART_BYTES = 16 << 20, META_KEEP = 64 };

sl_model_options sl_model_defaults(void)
{
    return (sl_model_options){.part_bytes = DEFAULT_PART_BYTES};
}

/* ---- tensors against the config ---- */

typedef struct checker {
    sl_model *m;
    const sl_tensor **used; /* tensors that have a role, and those beside them, [n_used]; each
                               once, so that there is room for all */
    uint32_t n_used;
    sl_err *err;
} checker;

static const sl_tensor *find_role(const checker *c, sl_role role, uint32_t layer,
                                  char name[SL_NAME_BYTES])
{
    sl_role_name(&c->m->arch, role, layer, name);
    return name[0] ? sl_checkpoint_find(c->m->ckpt, name) : NULL;
}

static void shape_text(const sl_tensor *t, char *out, size_t cap)
{
    size_t at = (size_t)snprintf(out, cap, "[");
    for (uint32_t i = 0; i < t->n_dims && at < cap; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%llu", i ? ", " : "",
                               (unsigned long long)t->dims[i]);
    if (at < cap)
        snprintf(out + at, cap - at, "]");
}

static const sl_tensor *find_needed(checker *c, sl_role role, uint32_t layer)
{
    char name[SL_NAME_BYTES];
    const sl_tensor *t = find_role(c, role, layer, name);
    if (!t)
        sl_fail(c->err, SL_EFORMAT, "%s: tensor %s is missing", sl_checkpoint_path(c->m->ckpt),
                name);
    return t;
}

static void use_matrix(checker *c, const sl_matrix *m)
{
    c->used[c->n_used++] = m->t;
    if (m->scale)
        c->used[c->n_used++] = m->scale;
    if (m->bias)
        c->used[c->n_used++] = m->bias;
    if (m->factor_of)
        c->used[c->n_used++] = m->factor_of;
    if (m->addend)
        c->used[c->n_used++] = m->addend;
}

/* The matrix of a role with this shape, and the tensors beside it. */
static bool need_matrix(checker *c, sl_role role, uint32_t layer, uint64_t rows, uint64_t cols)
{
    const sl_tensor *t = find_needed(c, role, layer);
    char found[128];
    sl_matrix m = {.n_rows = 0};
    if (!t)
        return false;
    sl_err own = {0};
    const sl_status st = sl_matrix_of(c->m->ckpt, &c->m->arch, t, &m, &own);
    if (t->n_dims == 2 && st != SL_OK) {
        sl_fail(c->err, st, "%s", own.text);
        return false;
    }
    if (t->n_dims != 2 || m.n_rows != rows || m.n_cols != cols) {
        shape_text(t, found, sizeof found);
        sl_fail(c->err, SL_EFORMAT,
                "tensor %s has shape %s, the config asks for [%llu, %llu] (rows, columns)", t->name,
                found, (unsigned long long)rows, (unsigned long long)cols);
        return false;
    }
    use_matrix(c, &m);
    c->m->n_params += rows * cols;
    return true;
}

static const sl_tensor *need_of_vector(checker *c, sl_role role, uint32_t layer, uint64_t n)
{
    char found[128];
    const sl_tensor *t = find_needed(c, role, layer);
    /* [1, n] is a vector, too */
    if (t && (t->n_values != n || t->n_dims < 1 || t->dims[t->n_dims - 1] != n)) {
        shape_text(t, found, sizeof found);
        sl_fail(c->err, SL_EFORMAT, "tensor %s has shape %s, the config asks for [%llu]", t->name,
                found, (unsigned long long)n);
        return NULL;
    }
    if (!t)
        return NULL;
    c->used[c->n_used++] = t;
    c->m->n_params += t->n_values;
    return t;
}

static bool all_finite(checker *c, const sl_tensor *t, const float *v, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) {
            sl_fail(c->err, SL_EFORMAT, "tensor %s: value %llu is %g", t->name,
                    (unsigned long long)i, (double)v[i]);
            return false;
        }
    }
    return true;
}

/* A small tensor's values as floats. */
static bool read_floats(checker *c, const sl_tensor *t, float **out)
{
    const uint64_t n = t->n_values;
    sl_weight type = SL_W_COUNT;
    if (t->type != SL_F32 && t->type != SL_F16 && t->type != SL_BF16) {
        sl_fail(c->err, SL_EUNSUPPORTED,
                "tensor %s has type %s: F32, F16 or BF16 is expected of a norm", t->name,
                sl_dtype_about(t->type)->name);
        return false;
    }
    sl_weight_of(t, &type, NULL);
    float *v = sl_arena_alloc(c->m->arena, n, sizeof *v);
    void *raw = malloc((size_t)t->extent.len);
    bool ok = v && raw;
    if (!ok)
        sl_fail(c->err, SL_ENOMEM, "out of memory for tensor %s", t->name);
    ok = ok && sl_checkpoint_read(c->m->ckpt, t, raw, c->err) == SL_OK;
    if (ok)
        c->m->kernels.dequantize[type](raw, v, (size_t)n, NULL);
    free(raw);
    *out = v;
    return ok && all_finite(c, t, v, n);
}

static bool need_floats(checker *c, sl_role role, uint32_t layer, uint64_t n, float **out)
{
    const sl_tensor *t = need_of_vector(c, role, layer, n);
    return t && read_floats(c, t, out);
}

static bool need_vector(checker *c, sl_role role, uint32_t layer, uint64_t n, const float **out)
{
    float *v = NULL;
    const bool ok = need_floats(c, role, layer, n, &v);
    *out = v;
    return ok;
}

/* A norm's weights, in the families whose weights are offsets from 1 with that added. */
static bool need_norm(checker *c, sl_role role, uint32_t layer, uint64_t n, const float **out)
{
    const float plus = c->m->arch.norm_plus;
    float *v = NULL;
    const bool ok = need_floats(c, role, layer, n, &v);
    for (uint64_t i = 0; ok && plus != 0 && i < n; i++)
        v[i] += plus;
    *out = v;
    return ok;
}

/* Decay rates: GGUF has them negated, folders their logarithms. */
static bool need_rates(checker *c, uint32_t layer, uint64_t n, const float **out)
{
    char name[SL_NAME_BYTES];
    float *v = NULL;
    bool ok = need_floats(c, SL_ROLE_DELTA_RATE, layer, n, &v);
    for (uint64_t i = 0; ok && i < n; i++) {
        const float stored = v[i];
        v[i] = c->m->arch.format == SL_FORMAT_GGUF ? -stored : (float)exp((double)stored);
        ok = v[i] >= 0 && isfinite(v[i]);
        if (!ok && find_role(c, SL_ROLE_DELTA_RATE, layer, name))
            sl_fail(c->err, SL_EFORMAT, "tensor %s: value %llu is %g, no rate of decay", name,
                    (unsigned long long)i, (double)stored);
    }
    *out = v;
    return ok;
}

/* A convolution's taps, [channels][taps] with a 1 anywhere behind the channels, turned over. */
static bool need_taps(checker *c, uint32_t layer, uint64_t channels, uint64_t taps,
                      const float **out)
{
    char found[128];
    float *v = NULL;
    const sl_tensor *t = find_needed(c, SL_ROLE_DELTA_CONV, layer);
    if (!t)
        return false;
    if ((t->n_dims != 2 && t->n_dims != 3) || t->dims[0] != channels ||
        t->n_values != channels * taps || t->n_values / t->dims[0] != taps ||
        (t->n_dims == 3 && t->dims[1] != 1 && t->dims[2] != 1)) {
        shape_text(t, found, sizeof found);
        sl_fail(c->err, SL_EFORMAT, "tensor %s has shape %s, the config asks for [%llu, %llu]",
                t->name, found, (unsigned long long)channels, (unsigned long long)taps);
        return false;
    }
    float *turned = sl_arena_alloc(c->m->arena, t->n_values, sizeof *turned);
    if (!turned) {
        sl_fail(c->err, SL_ENOMEM, "out of memory for tensor %s", t->name);
        return false;
    }
    c->used[c->n_used++] = t;
    c->m->n_params += t->n_values;
    const bool ok = read_floats(c, t, &v);
    for (uint64_t i = 0; ok && i < t->n_values; i++)
        turned[i % taps * channels + i / taps] = v[i];
    *out = turned;
    return ok;
}

/* A matrix of one row, as floats: MLX's converter quantises it as it does large ones. */
static bool need_row(checker *c, sl_role role, uint32_t layer, uint64_t n, const float **out)
{
    const sl_tensor *t = find_needed(c, role, layer);
    sl_matrix m;
    if (!t)
        return false;
    if (t->type != SL_U32)
        return need_vector(c, role, layer, n, out);
    if (!need_matrix(c, role, layer, 1, n) ||
        sl_matrix_of(c->m->ckpt, &c->m->arch, t, &m, c->err) != SL_OK)
        return false;
    float *v = sl_arena_alloc(c->m->arena, n, sizeof *v);
    uint8_t *raw = malloc((size_t)(t->extent.len + 2 * m.scale->extent.len));
    bool ok = v && raw;
    if (!ok)
        sl_fail(c->err, SL_ENOMEM, "out of memory for tensor %s", t->name);
    if (ok) {
        uint8_t *scale = raw + t->extent.len, *bias = scale + m.scale->extent.len;
        m.s.scale = scale;
        m.s.bias = bias;
        ok = sl_checkpoint_read(c->m->ckpt, t, raw, c->err) == SL_OK &&
             sl_checkpoint_read(c->m->ckpt, m.scale, scale, c->err) == SL_OK &&
             sl_checkpoint_read(c->m->ckpt, m.bias, bias, c->err) == SL_OK;
    }
    if (ok)
        c->m->kernels.dequantize[m.type](raw, v, (size_t)n, &m.s);
    free(raw);
    *out = v;
    return ok && all_finite(c, t, v, n);
}

/* The tensors of expert e. Stacked ones are marked as used once. */
static bool check_expert(checker *c, uint32_t layer, uint32_t e)
{
    sl_expert own;
    if (sl_expert_of(c->m->ckpt, &c->m->arch, layer, e, &own, c->err) != SL_OK)
        return false;
    for (uint32_t i = 0; i < own.n; i++) {
        const sl_matrix_rows *r = &own.m[i];
        c->m->n_params += r->n_rows * r->m.n_cols;
        if (!e || r->m.t->n_dims == 2)
            use_matrix(c, &r->m);
    }
    return true;
}

static bool check_shared(checker *c, uint32_t i)
{
    sl_moe *moe = &c->m->arch.layer[i].moe;
    const uint64_t D = c->m->arch.n_embd, F = moe->n_ff_shared;
    return need_matrix(c, SL_ROLE_SHARED_GATE, i, F, D) &&
           need_matrix(c, SL_ROLE_SHARED_UP, i, F, D) &&
           need_matrix(c, SL_ROLE_SHARED_DOWN, i, D, F) &&
           (!moe->shared_gated || need_row(c, SL_ROLE_SHARED_SCORE, i, D, &moe->shared_score));
}

static bool check_feed_forward(checker *c, uint32_t i)
{
    sl_layer *l = &c->m->arch.layer[i];
    const uint64_t D = c->m->arch.n_embd;
    if (!l->moe.n_experts)
        return need_matrix(c, SL_ROLE_GATE, i, l->n_ff, D) &&
               need_matrix(c, SL_ROLE_UP, i, l->n_ff, D) &&
               need_matrix(c, SL_ROLE_DOWN, i, D, l->n_ff);
    if (!need_matrix(c, SL_ROLE_ROUTER, i, l->moe.n_experts, D) ||
        (l->moe.n_ff_shared && !check_shared(c, i)))
        return false;
    for (uint32_t e = 0; e < l->moe.n_experts; e++)
        if (!check_expert(c, i, e))
            return false;
    return true;
}

static bool check_attention(checker *c, uint32_t i)
{
    sl_layer *l = &c->m->arch.layer[i];
    const uint64_t D = c->m->arch.n_embd, d = l->head_dim, q = l->n_heads * d,
                   kv = l->n_kv_heads * d;
    return need_matrix(c, SL_ROLE_Q, i, l->attn_gate ? 2 * q : q, D) &&
           need_matrix(c, SL_ROLE_K, i, kv, D) && need_matrix(c, SL_ROLE_V, i, kv, D) &&
           need_matrix(c, SL_ROLE_O, i, D, q) &&
           (!l->qk_norm || (need_norm(c, SL_ROLE_Q_NORM, i, d, &l->q_norm) &&
                            need_norm(c, SL_ROLE_K_NORM, i, d, &l->k_norm)));
}

static bool check_delta_inputs(checker *c, uint32_t i)
{
    const sl_delta_net *n = &c->m->arch.layer[i].delta;
    const uint64_t D = c->m->arch.n_embd, C = sl_delta_channels(n), H = n->n_v_heads,
                   V = H * n->dim_v;
    if (n->grouped)
        return need_matrix(c, SL_ROLE_DELTA_QKVZ, i, C + V, D) &&
               need_matrix(c, SL_ROLE_DELTA_BA, i, 2 * H, D);
    return need_matrix(c, SL_ROLE_DELTA_QKV, i, C, D) && need_matrix(c, SL_ROLE_DELTA_Z, i, V, D) &&
           need_matrix(c, SL_ROLE_DELTA_A, i, H, D) && need_matrix(c, SL_ROLE_DELTA_B, i, H, D);
}

static bool check_delta_net(checker *c, uint32_t i)
{
    sl_delta_net *n = &c->m->arch.layer[i].delta;
    const uint64_t D = c->m->arch.n_embd, C = sl_delta_channels(n), H = n->n_v_heads,
                   V = H * n->dim_v;
    return check_delta_inputs(c, i) && need_matrix(c, SL_ROLE_DELTA_OUT, i, D, V) &&
           need_taps(c, i, C, n->n_taps, &n->taps) && need_rates(c, i, H, &n->rate) &&
           need_vector(c, SL_ROLE_DELTA_A_BIAS, i, H, &n->a_bias) &&
           need_vector(c, SL_ROLE_DELTA_NORM, i, n->dim_v, &n->norm);
}

static bool check_layer(checker *c, uint32_t i)
{
    sl_layer *l = &c->m->arch.layer[i];
    const uint64_t D = c->m->arch.n_embd;
    return need_norm(c, SL_ROLE_ATTN_NORM, i, D, &l->attn_norm) &&
           (l->mixer == SL_MIXER_DELTA_NET ? check_delta_net(c, i) : check_attention(c, i)) &&
           need_norm(c, SL_ROLE_FFN_NORM, i, D, &l->ffn_norm) && check_feed_forward(c, i);
}

/* The vocabulary is the embedding's rows; a config that says otherwise is wrong. */
static bool check_vocabulary(checker *c)
{
    char name[SL_NAME_BYTES];
    sl_arch *a = &c->m->arch;
    const sl_tensor *t = find_role(c, SL_ROLE_EMBED, 0, name);
    if (t && t->n_dims == 2 && t->dims[1] == a->n_embd && t->dims[0] <= INT32_MAX) {
        if (!a->n_vocab)
            a->n_vocab = (uint32_t)t->dims[0];
        if (a->n_vocab != t->dims[0]) {
            sl_fail(c->err, SL_EFORMAT, "vocab_size is %u, but tensor %s has %llu rows", a->n_vocab,
                    name, (unsigned long long)t->dims[0]);
            return false;
        }
    }
    return need_matrix(c, SL_ROLE_EMBED, 0, a->n_vocab, a->n_embd);
}

static bool check_head(checker *c)
{
    char name[SL_NAME_BYTES];
    sl_arch *a = &c->m->arch;
    const sl_tensor *t = find_role(c, SL_ROLE_HEAD, 0, name);
    if (sl_checkpoint_format(c->m->ckpt) == SL_FORMAT_GGUF)
        a->tied = !t;
    if (!a->tied)
        return need_matrix(c, SL_ROLE_HEAD, 0, a->n_vocab, a->n_embd);
    if (t) {
        sl_log(SL_LOG_WARN,
               "tie_word_embeddings is true, but tensor %s is present: it is not used, the head is "
               "the embedding",
               name);
        c->used[c->n_used++] = t;
    }
    return true;
}

static int by_address(const void *a, const void *b)
{
    const sl_tensor *const *x = a, *const *y = b;
    return (*x > *y) - (*x < *y);
}

static const sl_skip *skip_of(const sl_arch *a, const sl_tensor *t)
{
    for (uint32_t i = 0; i < a->n_skips; i++)
        if (!strncmp(t->name, a->skip[i].prefix, strlen(a->skip[i].prefix)))
            return &a->skip[i];
    return NULL;
}

static void name_skipped(const checker *c)
{
    const sl_arch *a = &c->m->arch;
    uint32_t n[SL_MAX_SKIPS] = {0};
    char text[256];
    size_t at = 0;
    for (uint32_t i = 0; i < sl_checkpoint_tensor_count(c->m->ckpt); i++) {
        const sl_skip *s = skip_of(a, sl_checkpoint_tensor(c->m->ckpt, i));
        if (s)
            n[s - a->skip]++;
    }
    for (uint32_t i = 0; i < a->n_skips && at < sizeof text; i++)
        if (n[i])
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s (%u tensors)", at ? ", " : "",
                                   a->skip[i].what, n[i]);
    if (at)
        sl_log(SL_LOG_NOTE, "not run: %s", text);
}

/* Tensors without a role: said once, since a missing feature often looks like this. */
static void name_unused(checker *c)
{
    name_skipped(c);
    char name[SL_NAME_BYTES];
    const sl_tensor *factors = find_role(c, SL_ROLE_ROPE_FACTORS, 0, name);
    if (factors)
        c->used[c->n_used++] = factors;
    qsort(c->used, c->n_used, sizeof(const sl_tensor *), by_address);
    uint32_t n = 0;
    const char *first = NULL;
    for (uint32_t i = 0; i < sl_checkpoint_tensor_count(c->m->ckpt); i++) {
        const sl_tensor *t = sl_checkpoint_tensor(c->m->ckpt, i);
        if (bsearch(&t, c->used, c->n_used, sizeof(const sl_tensor *), by_address) ||
            strstr(t->name, "rotary_emb.inv_freq") || skip_of(&c->m->arch, t))
            continue;
        first = n++ ? first : t->name;
    }
    if (n > 1)
        sl_log(SL_LOG_WARN, "%u tensors are not used by a %s model, the first is %s", n,
               c->m->arch.family, first);
    else if (n)
        sl_log(SL_LOG_WARN, "tensor %s is not used by a %s model", first, c->m->arch.family);
}

static sl_status check_tensors(sl_model *m, sl_err *err)
{
    sl_err own = {0};
    checker c = {.m = m, .err = err ? err : &own};
    c.used = calloc(sl_checkpoint_tensor_count(m->ckpt) + 1, sizeof(const sl_tensor *));
    if (!c.used)
        return sl_fail(err, SL_ENOMEM, "out of memory while checking the model");
    bool ok = check_vocabulary(&c) &&
              need_norm(&c, SL_ROLE_FINAL_NORM, 0, m->arch.n_embd, &m->arch.final_norm) &&
              check_head(&c);
    for (uint32_t i = 0; ok && i < m->arch.n_layers; i++)
        ok = check_layer(&c, i);
    if (ok)
        name_unused(&c);
    free(c.used);
    return ok ? SL_OK : c.err->code;
}

/* ---- open ---- */

static sl_status read_ids(sl_model *m, sl_err *err)
{
    sl_arch *a = &m->arch;
    int64_t bos = -1;
    sl_status st = sl_config_int(m->config, (sl_key){"tokenizer:ggml.bos_token_id", "bos_token_id"},
                                 true, 0, a->n_vocab - 1, &bos, err);
    a->bos = (int32_t)bos;
    return st == SL_OK ? sl_config_ends(m->config, a->n_vocab, a->end, SL_MAX_ENDS, &a->n_ends, err)
                       : st;
}

static sl_status read_name(sl_model *m, sl_err *err)
{
    const char *name = NULL;
    sl_status st = sl_config_string(m->config, (sl_key){"general:name", NULL}, &name, NULL);
    m->name = sl_arena_strndup(m->arena, st == SL_OK && name ? name : "",
                               st == SL_OK && name ? strlen(name) : 0);
    return m->name ? SL_OK : sl_fail(err, SL_ENOMEM, "out of memory");
}

static sl_status read_arch(sl_model *m, sl_err *err)
{
    const char *name = NULL;
    char known[256];
    sl_status st = sl_config_family(m->config, &name, err);
    if (st != SL_OK)
        return st;
    const sl_family *f = sl_family_find(sl_checkpoint_format(m->ckpt), name);
    if (!f) {
        sl_family_list(known, sizeof known);
        return sl_fail(err, SL_EUNSUPPORTED, "%s: architecture %s is not supported (%s are)",
                       sl_checkpoint_path(m->ckpt), name, known);
    }
    m->arch.family = f->name;
    m->arch.format = sl_checkpoint_format(m->ckpt);
    return f->read(m->config, m->arena, &m->arch, err);
}

sl_status sl_model_open(const char *path, const sl_model_options *o, sl_model **out, sl_err *err)
{
    *out = NULL;
    sl_model *m = calloc(1, sizeof *m);
    if (!m || !(m->arena = sl_arena_new())) {
        free(m);
        return sl_fail(err, SL_ENOMEM, "out of memory for a model");
    }
    sl_kernels_init(&m->kernels,
                    SL_CPU_SCALAR); /* for the norms; the level proper comes with sl_model_load() */
    sl_status st = sl_checkpoint_open(path, &m->ckpt, err);
    if (st == SL_OK)
        st = sl_config_open(m->ckpt, &m->config, err);
    if (st == SL_OK)
        st = read_arch(m, err);
    if (st == SL_OK)
        st = check_tensors(m, err);
    if (st == SL_OK)
        st = read_ids(m, err);
    if (st == SL_OK)
        st = read_name(m, err);
    if (st == SL_OK)
        st = sl_layout_make(&m->layout, m->ckpt, &m->arch, o->part_bytes, err);
    if (st != SL_OK) {
        sl_model_close(&m);
        return st;
    }
    *out = m;
    return SL_OK;
}

void sl_model_close(sl_model **mp)
{
    sl_model *m = mp ? *mp : NULL;
    if (!m)
        return;
    sl_stream_close(&m->stream);
    sl_layout_free(&m->layout);
    sl_tokenizer_close(&m->tokenizer);
    sl_config_close(&m->config);
    sl_checkpoint_close(&m->ckpt);
    sl_arena_free(&m->arena);
    free(m);
    *mp = NULL;
}

sl_status sl_model_replan(sl_model *m, uint64_t part_bytes, sl_err *err)
{
    if (m->stream)
        return sl_fail(err, SL_EINVAL, "the model is loaded already");
    sl_layout_free(&m->layout);
    return sl_layout_make(&m->layout, m->ckpt, &m->arch, part_bytes, err);
}

sl_status sl_model_load(sl_model *m, const sl_stream_options *stream, sl_workers *workers,
                        sl_cpu_level level, sl_err *err)
{
    if (m->stream)
        return sl_fail(err, SL_EINVAL, "the model is loaded already");
    sl_status st = sl_stream_open(m->layout.plan, stream, &m->stream, err);
    if (st != SL_OK)
        return st;
    m->row_batch = stream->max_row_batch;
    m->workers = workers;
    sl_kernels_init(&m->kernels, level);
    return SL_OK;
}

/* ---- tokenizer ---- */

static sl_status open_tokenizer(sl_model *m, sl_err *err)
{
    char name[SL_NAME_BYTES], path[4096];
    const sl_token_table table = {name, m->arch.n_vocab};
    sl_file *f = NULL;
    sl_role_name(&m->arch, SL_ROLE_EMBED, 0, name);
    if (sl_checkpoint_format(m->ckpt) == SL_FORMAT_GGUF) {
        sl_status st = sl_tokenizer_from_gguf(m->ckpt, &table, &m->tokenizer, err);
        sl_checkpoint_trim(m->ckpt, META_KEEP);
        return st;
    }
    snprintf(path, sizeof path, "%s/tokenizer.json", sl_checkpoint_path(m->ckpt));
    sl_status st = sl_file_open(path, &f, err);
    if (st == SL_OK)
        st = sl_tokenizer_from_file(f, &table, &m->tokenizer, err);
    sl_file_close(&f);
    return st;
}

sl_status sl_model_tokenizer(sl_model *m, const sl_tokenizer **out, sl_err *err)
{
    *out = NULL;
    if (!m->tokenizer) {
        sl_status st = open_tokenizer(m, err);
        if (st != SL_OK)
            return st;
    }
    *out = m->tokenizer;
    return SL_OK;
}

/* ---- about ---- */

sl_model_info sl_model_about(const sl_model *m)
{
    const sl_arch *a = &m->arch;
    const sl_layer *l = &a->layer[0];
    const sl_moe *moe = &a->layer[a->n_layers - 1].moe; /* dense layers, if any, come first */
    uint32_t n_delta = 0;
    for (uint32_t i = 0; i < a->n_layers; i++)
        n_delta += a->layer[i].mixer == SL_MIXER_DELTA_NET;
    return (sl_model_info){.family = a->family,
                           .name = m->name,
                           .n_layers = a->n_layers,
                           .n_delta_layers = n_delta,
                           .n_embd = a->n_embd,
                           .n_heads = l->n_heads,
                           .n_kv_heads = l->n_kv_heads,
                           .head_dim = l->head_dim,
                           .n_ff = l->n_ff,
                           .n_experts = moe->n_experts,
                           .n_used = moe->n_used,
                           .n_ff_expert = moe->n_ff,
                           .n_ff_shared = moe->n_ff_shared,
                           .n_vocab = a->n_vocab,
                           .n_ctx_max = a->n_ctx_max,
                           .tied = a->tied,
                           .n_params = m->n_params,
                           .rope_base = a->rope.base,
                           .bos = a->bos,
                           .eos = a->n_ends ? a->end[0] : -1};
}

bool sl_model_is_end(const sl_model *m, int32_t id)
{
    for (uint32_t i = 0; i < m->arch.n_ends; i++)
        if (m->arch.end[i] == id)
            return true;
    return m->tokenizer && sl_tokenizer_is_end(m->tokenizer, id);
}

const sl_checkpoint *sl_model_checkpoint(const sl_model *m)
{
    return m->ckpt;
}

const sl_plan *sl_model_plan(const sl_model *m)
{
    return m->layout.plan;
}

sl_stream *sl_model_stream(const sl_model *m)
{
    return m->stream;
}

uint64_t sl_model_memory_bytes(const sl_model *m)
{
    return sizeof *m + sl_arena_bytes(m->arena) + sl_checkpoint_memory_bytes(m->ckpt) +
           sl_layout_bytes(m);
}
