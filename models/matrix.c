/* A weight matrix out of the tensors that hold it. Most are one tensor; layouts of safetensors
 * folders keep scales in tensors beside it:
 *
 *   MLX  X.weight U32 [rows, cols * bits / 32], X.scales and X.biases [rows, cols / group_size]
 *   FP8  X.weight F8_E4M3 [rows, cols], X.weight_scale_inv for tiles of 128 x 128
 *   MXFP4  X_blocks U8 [experts, rows, cols / 32, 16], X_scales U8 [experts, rows, cols / 32]
 *
 * A block format may leave out a factor of the whole matrix (NVFP4 in GGUF files does):
 *
 *   X.weight as ever, X.scale F32 [1]: times every output
 *
 * Sources: tools that write NVFP4 GGUF files; mlx.core.quantize; config.json of DeepSeek V3 and
 * Qwen3 FP8 checkpoints; transformers/integrations/mxfp4.py and gpt-oss's checkpoints. */
#include <string.h>

#include "model_impl.h"

enum { FP8_TILE = 128, MXFP4_GROUP = 32 };

static bool ends_in(const char *name, const char *ending)
{
    const size_t len = strlen(name), end = strlen(ending);
    return len >= end && !strcmp(name + len - end, ending);
}

/* The tensor whose name has suffix where that of t has ending; NULL: none. */
static const sl_tensor *instead(const sl_checkpoint *c, const sl_tensor *t, const char *ending,
                                const char *suffix)
{
    char name[SL_NAME_BYTES];
    const size_t tail = strlen(suffix) + 1;
    if (!ends_in(t->name, ending) || strlen(t->name) - strlen(ending) + tail > sizeof name)
        return NULL;
    const size_t len = strlen(t->name) - strlen(ending);
    memcpy(name, t->name, len);
    memcpy(name + len, suffix, tail);
    return sl_checkpoint_find(c, name);
}

/* Tensor X.<suffix> beside X.weight; NULL: none. */
static const sl_tensor *beside(const sl_checkpoint *c, const sl_tensor *t, const char *suffix)
{
    return instead(c, t, "weight", suffix);
}

/* Matrices stacked in a tensor of three dimensions are one tall matrix: its rows and columns. */
static bool flatten(const sl_tensor *t, uint64_t *rows, uint64_t *cols)
{
    if (t->n_dims != 2 && t->n_dims != 3)
        return false;
    *rows = t->n_dims == 3 ? t->dims[0] * t->dims[1] : t->dims[0];
    *cols = t->dims[t->n_dims - 1];
    return *rows > 0;
}

static bool has_shape(const sl_tensor *t, uint64_t rows, uint64_t cols)
{
    uint64_t r, c;
    return flatten(t, &r, &c) && r == rows && c == cols;
}

static sl_status scale_type(const sl_tensor *t, bool e8m0, sl_scale *out, sl_err *err)
{
    *out = t->type == SL_F32               ? SL_SCALE_F32
           : t->type == SL_BF16            ? SL_SCALE_BF16
           : t->type == SL_F16             ? SL_SCALE_F16
           : t->type == SL_F8_E8M0 && e8m0 ? SL_SCALE_E8M0
                                           : SL_SCALE_COUNT;
    return *out != SL_SCALE_COUNT
               ? SL_OK
               : sl_fail(err, SL_EUNSUPPORTED, "tensor %s: scales of type %s are not supported",
                         t->name, sl_dtype_about(t->type)->name);
}

static sl_status read_mlx(const sl_checkpoint *c, uint32_t group, sl_matrix *m, sl_err *err)
{
    const sl_tensor *t = m->t;
    m->bias = beside(c, t, "biases");
    if (!m->bias)
        return sl_fail(err, SL_EFORMAT, "tensor %s has scales, but no biases beside it", t->name);
    const uint64_t words = m->n_cols;
    uint64_t rows, groups;
    if (!flatten(m->scale, &rows, &groups) || rows != m->n_rows || groups > UINT32_MAX / group ||
        !groups || !has_shape(m->bias, rows, groups) || m->bias->type != m->scale->type)
        return sl_fail(err, SL_EFORMAT, "tensors %s and %s do not fit %s", m->scale->name,
                       m->bias->name, t->name);
    m->n_cols = groups * group;
    const bool four = words * 8 == m->n_cols, eight = words * 4 == m->n_cols;
    if (!four && !eight)
        return sl_fail(err, SL_EUNSUPPORTED,
                       "tensor %s: %llu words for %llu columns: 4 and 8 bits are supported",
                       t->name, (unsigned long long)words, (unsigned long long)m->n_cols);
    m->type = four ? SL_W_MLX4 : SL_W_MLX8;
    m->s.group = group;
    m->s.block_rows = 1;
    return scale_type(m->scale, false, &m->s.type, err);
}

static sl_status read_fp8(sl_matrix *m, sl_err *err)
{
    const uint64_t rows = (m->n_rows + FP8_TILE - 1) / FP8_TILE,
                   cols = (m->n_cols + FP8_TILE - 1) / FP8_TILE;
    if (!has_shape(m->scale, rows, cols))
        return sl_fail(err, SL_EUNSUPPORTED,
                       "tensor %s: expected [%llu, %llu] scales, for tiles of 128 x 128",
                       m->scale->name, (unsigned long long)rows, (unsigned long long)cols);
    m->type = SL_W_FP8;
    m->s.group = m->s.block_rows = FP8_TILE;
    return scale_type(m->scale, true, &m->s.type, err);
}

/* m->n_rows and m->row_bytes are not set yet: blocks have a dimension of their own. */
static sl_status read_mxfp4(const sl_checkpoint *c, sl_matrix *m, sl_err *err)
{
    const sl_tensor *t = m->t, *scale = m->scale = instead(c, t, "_blocks", "_scales");
    if (t->n_dims != 4 || t->dims[3] != MXFP4_GROUP / 2 || !t->n_values)
        return sl_fail(err, SL_EUNSUPPORTED,
                       "tensor %s: expected MXFP4 blocks, [experts, rows, blocks, 16]", t->name);
    if (!scale)
        return sl_fail(err, SL_EFORMAT, "tensor %s has no scales beside it", t->name);
    if (scale->type != SL_U8 || scale->n_dims != 3 ||
        memcmp(scale->dims, t->dims, 3 * sizeof *t->dims))
        return sl_fail(err, SL_EFORMAT, "tensor %s does not fit %s", scale->name, t->name);
    m->type = SL_W_MXFP4_SPLIT;
    m->n_rows = t->dims[0] * t->dims[1];
    m->n_cols = t->dims[2] * MXFP4_GROUP;
    m->row_bytes = (size_t)(t->dims[2] * t->dims[3]);
    m->s.group = MXFP4_GROUP;
    m->s.block_rows = 1;
    m->s.type = SL_SCALE_E8M0;
    m->s.scale_bytes = (size_t)t->dims[2];
    return SL_OK;
}

/* X.scale, when it is there. */
static sl_status read_factor(const sl_checkpoint *c, sl_matrix *m, sl_err *err)
{
    const sl_tensor *t = m->factor_of = beside(c, m->t, "scale");
    if (!t)
        return SL_OK;
    if (t->type != SL_F32 || t->extent.len != sizeof m->factor)
        return sl_fail(err, SL_EUNSUPPORTED, "tensor %s: expected one number in F32", t->name);
    return sl_checkpoint_read(c, t, &m->factor, err);
}

sl_status sl_matrix_of(const sl_checkpoint *c, const sl_arch *arch, const sl_tensor *t,
                       sl_matrix *m, sl_err *err)
{
    memset(m, 0, sizeof *m);
    m->t = t;
    m->factor = 1.0f;
    if (t->type == SL_U8 && ends_in(t->name, "_blocks"))
        return read_mxfp4(c, m, err);
    if (!flatten(t, &m->n_rows, &m->n_cols))
        return sl_fail(err, SL_EFORMAT, "tensor %s is not a matrix", t->name);
    m->row_bytes = (size_t)(t->extent.len / m->n_rows);
    sl_status st;
    if (t->type == SL_U32 && arch->mlx_group && (m->scale = beside(c, t, "scales")))
        st = read_mlx(c, arch->mlx_group, m, err);
    else if (t->type == SL_F8_E4M3 && (m->scale = beside(c, t, "weight_scale_inv")))
        st = read_fp8(m, err);
    else if ((st = sl_weight_of(t, &m->type, err)) == SL_OK)
        st = read_factor(c, m, err);
    uint64_t rows, cols;
    if (st == SL_OK && m->scale && flatten(m->scale, &rows, &cols))
        m->s.scale_bytes = (size_t)(m->scale->extent.len / rows);
    return st;
}

sl_status sl_matrix_read_addend(const sl_checkpoint *c, uint64_t rows, sl_matrix *m, sl_err *err)
{
    static const char *const names[][2] = {{"weight", "bias"}, {"_blocks", "_bias"}, {"", "_bias"}};
    const sl_tensor *a = NULL;
    for (size_t i = 0; !a && i < sizeof names / sizeof *names; i++)
        a = instead(c, m->t, names[i][0], names[i][1]);
    if (!a)
        return SL_OK;
    if (!a->n_dims || a->n_values != m->n_rows || a->dims[a->n_dims - 1] != rows)
        return sl_fail(err, SL_EFORMAT,
                       "tensor %s does not fit %s: expected %llu values per expert", a->name,
                       m->t->name, (unsigned long long)rows);
    if (a->type != SL_F32 && a->type != SL_F16 && a->type != SL_BF16)
        return sl_fail(err, SL_EUNSUPPORTED, "tensor %s has type %s: F32, F16 or BF16 is expected",
                       a->name, sl_dtype_about(a->type)->name);
    m->addend = a;
    return sl_weight_of(a, &m->addend_type, err);
}

sl_scales sl_scales_from(const sl_scales *s, size_t row)
{
    sl_scales out = *s;
    const size_t at = (s->first_row + row) / s->block_rows * s->scale_bytes;
    out.scale = (const char *)s->scale + at;
    out.bias = s->bias ? (const char *)s->bias + at : NULL;
    out.first_row = (uint32_t)((s->first_row + row) % s->block_rows);
    return out;
}
