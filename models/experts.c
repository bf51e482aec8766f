/* Where an expert's matrices are. Checkpoints hold a layer's experts in one of these ways:
 *
 *   apart     one tensor per expert and matrix
 *   stacked   a tensor [experts, rows, columns] for gate, one for up, one for down
 *   fused     gate and up in one tensor [experts, 2 * rows, columns], down in another
 *   blocks    as fused, MXFP4 with scales beside them
 *
 * A stack is read as one tall matrix, of which an expert is a range of rows. Fused stacks of floats
 * may be transposed ([experts, columns, rows]): then the range of rows that an expert is holds its
 * columns one after the other. In a tensor of gate and up an expert's gate rows come first, or they
 * alternate, gate first: the config says which, and blocks always alternate. */
#include "model_impl.h"

/* The roles of the matrices; the last is down, two: gate and up are one. */
typedef struct way {
    uint32_t n;
    sl_role role[3];
} way;

static const way ways[] = {
    {3, {SL_ROLE_EXPERT_GATE, SL_ROLE_EXPERT_UP, SL_ROLE_EXPERT_DOWN}},
    {3, {SL_ROLE_STACKED_GATE, SL_ROLE_STACKED_UP, SL_ROLE_STACKED_DOWN}},
    {2, {SL_ROLE_FUSED_GATE_UP, SL_ROLE_FUSED_DOWN}},
    {2, {SL_ROLE_BLOCKS_GATE_UP, SL_ROLE_BLOCKS_DOWN}},
};
enum { APART, STACKED, FUSED, BLOCKS, WAY_COUNT };

/* Rows and columns of a matrix that the config asks for. */
typedef struct shape {
    uint64_t rows, cols;
} shape;

/* An expert while it is looked for. */
typedef struct search {
    const sl_checkpoint *c;
    const sl_arch *arch;
    uint32_t layer, expert;
    sl_err *err;
} search;

static const sl_tensor *find(const search *s, sl_role role)
{
    char name[SL_NAME_BYTES];
    sl_expert_role_name(s->arch, role, s->layer, s->expert, name);
    return name[0] ? sl_checkpoint_find(s->c, name) : NULL;
}

static sl_status missing(const search *s, sl_role role)
{
    char name[SL_NAME_BYTES];
    sl_expert_role_name(s->arch, role, s->layer, s->expert, name);
    return sl_fail(s->err, SL_EFORMAT, "%s: tensor %s is missing", sl_checkpoint_path(s->c), name);
}

static shape shape_of(const search *s, const way *w, uint32_t i)
{
    const uint64_t D = s->arch->n_embd, F = s->arch->layer[s->layer].moe.n_ff;
    return i + 1 == w->n ? (shape){D, F} : (shape){w->n == 2 ? 2 * F : F, D};
}

static bool is_stack(const sl_tensor *t, uint64_t experts, uint64_t rows, uint64_t cols)
{
    return t->n_dims == 3 && t->dims[0] == experts && t->dims[1] == rows && t->dims[2] == cols;
}

static sl_status misfit(const search *s, const sl_tensor *t, const shape *want, bool transposed)
{
    return sl_fail(s->err, SL_EFORMAT,
                   "tensor %s: the config asks for a stack of %u matrices with %llu rows of %llu%s",
                   t->name, s->arch->layer[s->layer].moe.n_experts, (unsigned long long)want->rows,
                   (unsigned long long)want->cols,
                   transposed ? ", stored columns first as the other tensor of this layer" : "");
}

static sl_status take_apart(const search *s, const shape *want, sl_matrix_rows *out)
{
    const sl_tensor *t = out->m.t;
    if (t->n_dims == 2 && out->m.n_rows == want->rows && out->m.n_cols == want->cols)
        return SL_OK;
    return sl_fail(s->err, SL_EFORMAT,
                   "tensor %s has %llu rows of %llu, the config asks for %llu of %llu", t->name,
                   (unsigned long long)out->m.n_rows, (unsigned long long)out->m.n_cols,
                   (unsigned long long)want->rows, (unsigned long long)want->cols);
}

static sl_status take_stacked(const search *s, const shape *want, sl_matrix_rows *out)
{
    const sl_tensor *t = out->m.t;
    const sl_matrix *m = &out->m;
    if (t->n_dims < 3 || t->dims[0] != s->arch->layer[s->layer].moe.n_experts ||
        t->dims[1] != want->rows || m->n_cols != want->cols)
        return misfit(s, t, want, false);
    if (want->rows % (m->s.block_rows ? m->s.block_rows : 1))
        return sl_fail(s->err, SL_EUNSUPPORTED,
                       "tensor %s: tiles of scales reach from one expert into the next", t->name);
    out->row0 = s->expert * want->rows;
    return SL_OK;
}

/* The stack's matrices are turned: rows and columns change places. */
static sl_status take_transposed(const search *s, const shape *want, sl_matrix_rows *out)
{
    sl_matrix *m = &out->m;
    const uint64_t experts = s->arch->layer[s->layer].moe.n_experts;
    if ((int)m->type >= SL_W_TRANSPOSED_COUNT)
        return sl_fail(
            s->err, SL_EUNSUPPORTED,
            "tensor %s is stored columns first, in %s: F32, F16 and BF16 are supported so",
            m->t->name, sl_weight_about(m->type)->name);
    if (!is_stack(m->t, experts, want->cols, want->rows))
        return misfit(s, m->t, want, true);
    m->transposed = true;
    m->n_rows = experts * want->rows;
    m->n_cols = want->cols;
    m->row_bytes = sl_weight_row_bytes(m->type, m->n_cols);
    out->row0 = s->expert * want->rows;
    return SL_OK;
}

/* Both tensors of a layer lie the same way round, so one that is not square tells for both: gate
 * and up of [2 F, D] and down of [D, F] are never both square. */
static bool are_transposed(const search *s, const way *w)
{
    const uint64_t experts = s->arch->layer[s->layer].moe.n_experts;
    for (uint32_t i = 0; i < w->n; i++) {
        const shape want = shape_of(s, w, i);
        const sl_tensor *t = find(s, w->role[i]);
        if (t && want.rows != want.cols && is_stack(t, experts, want.cols, want.rows))
            return true;
    }
    return false;
}

sl_status sl_expert_of(const sl_checkpoint *c, const sl_arch *arch, uint32_t layer, uint32_t expert,
                       sl_expert *out, sl_err *err)
{
    const search s = {c, arch, layer, expert, err};
    const bool gguf = sl_checkpoint_format(c) == SL_FORMAT_GGUF;
    uint32_t which = APART;
    while (which < WAY_COUNT && !find(&s, ways[which].role[0]))
        which++;
    if (which == WAY_COUNT)
        return missing(&s, ways[gguf ? STACKED : APART].role[0]);
    const way *w = &ways[which];
    const bool transposed = which == FUSED && !gguf && are_transposed(&s, w);
    out->n = w->n;
    out->alternating = which == BLOCKS || (which == FUSED && arch->layer[layer].moe.alternating);
    for (uint32_t i = 0; i < w->n; i++) {
        sl_matrix_rows *r = &out->m[i];
        const sl_tensor *t = find(&s, w->role[i]);
        const shape want = shape_of(&s, w, i);
        if (!t)
            return missing(&s, w->role[i]);
        sl_status st = sl_matrix_of(c, arch, t, &r->m, err);
        r->row0 = 0;
        r->n_rows = want.rows;
        if (st == SL_OK)
            st = which == APART ? take_apart(&s, &want, r)
                 : transposed   ? take_transposed(&s, &want, r)
                                : take_stacked(&s, &want, r);
        if (st == SL_OK)
            st = sl_matrix_read_addend(c, want.rows, &r->m, err);
        if (st != SL_OK)
            return st;
    }
    return SL_OK;
}
