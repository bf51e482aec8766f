/* Where an expert's three matrices are. Checkpoints hold a layer's experts in one of these ways:
 *
 *   apart     one tensor per expert and matrix
 *   stacked   a tensor [experts, rows, columns] for gate, one for up, one for down
 *   fused     gate and up in one tensor [experts, 2 * rows, columns], an expert's gate rows first
 *
 * A tensor of three dimensions is read as one tall matrix, of which an expert is a range of rows.
 * Some checkpoints hold them transposed ([experts, inputs, outputs]): a product cannot read an
 * output's weights in one run there, so these are refused. */
#include "model_impl.h"

/* The same matrix in the three ways. */
typedef struct ways {
    sl_role apart, stacked, fused;
} ways;

static ways ways_of(sl_role role)
{
    return role == SL_ROLE_EXPERT_GATE ? (ways){role, SL_ROLE_STACKED_GATE, SL_ROLE_FUSED_GATE_UP}
           : role == SL_ROLE_EXPERT_UP ? (ways){role, SL_ROLE_STACKED_UP, SL_ROLE_FUSED_GATE_UP}
                                       : (ways){role, SL_ROLE_STACKED_DOWN, SL_ROLE_FUSED_DOWN};
}

/* Rows and columns that the config asks for. */
typedef struct shape {
    uint64_t rows, cols;
} shape;

static const sl_tensor *find(const sl_checkpoint *c, const sl_arch *arch, sl_role role,
                             uint32_t layer, uint32_t expert)
{
    char name[SL_NAME_BYTES];
    sl_expert_role_name(arch, role, layer, expert, name);
    return name[0] ? sl_checkpoint_find(c, name) : NULL;
}

static sl_status missing(const sl_checkpoint *c, const sl_arch *arch, const ways *w, uint32_t layer,
                         uint32_t expert, sl_err *err)
{
    char name[SL_NAME_BYTES];
    const sl_role role = sl_checkpoint_format(c) == SL_FORMAT_GGUF ? w->stacked : w->apart;
    sl_expert_role_name(arch, role, layer, expert, name);
    return sl_fail(err, SL_EFORMAT, "%s: tensor %s is missing", sl_checkpoint_path(c), name);
}

static sl_status take_apart(const sl_tensor *t, const shape *want, sl_matrix_rows *out, sl_err *err)
{
    if (t->n_dims != 2 || out->m.n_rows != want->rows || out->m.n_cols != want->cols)
        return sl_fail(err, SL_EFORMAT,
                       "tensor %s has %llu rows of %llu, the config asks for %llu of %llu", t->name,
                       (unsigned long long)out->m.n_rows, (unsigned long long)out->m.n_cols,
                       (unsigned long long)want->rows, (unsigned long long)want->cols);
    out->row0 = 0;
    return SL_OK;
}

/* rows: of one expert in the tensor. */
static sl_status check_stack(const sl_tensor *t, const sl_matrix *m, uint64_t experts,
                             uint64_t rows, uint64_t cols, sl_err *err)
{
    if (t->n_dims == 3 && t->dims[0] == experts && t->dims[1] == rows && m->n_cols == cols) {
        if (rows % (m->s.block_rows ? m->s.block_rows : 1) == 0)
            return SL_OK;
        return sl_fail(err, SL_EUNSUPPORTED,
                       "tensor %s: tiles of scales reach from one expert into the next", t->name);
    }
    if (t->n_dims == 3 && t->dims[0] == experts && t->dims[1] == cols && t->dims[2] == rows)
        return sl_fail(err, SL_EUNSUPPORTED,
                       "tensor %s is stored transposed, [experts, inputs, outputs]: this is not "
                       "supported",
                       t->name);
    return sl_fail(err, SL_EFORMAT,
                   "tensor %s: the config asks for a stack of %llu matrices with %llu rows of %llu",
                   t->name, (unsigned long long)experts, (unsigned long long)rows,
                   (unsigned long long)cols);
}

sl_status sl_expert_of(const sl_checkpoint *c, const sl_arch *arch, uint32_t layer, sl_role role,
                       uint32_t expert, sl_matrix_rows *out, sl_err *err)
{
    const sl_moe *moe = &arch->layer[layer].moe;
    const ways w = ways_of(role);
    const shape want = role == SL_ROLE_EXPERT_DOWN ? (shape){arch->n_embd, moe->n_ff}
                                                   : (shape){moe->n_ff, arch->n_embd};
    const sl_tensor *apart = find(c, arch, w.apart, layer, expert),
                    *stacked = apart ? NULL : find(c, arch, w.stacked, layer, expert),
                    *t = apart     ? apart
                         : stacked ? stacked
                                   : find(c, arch, w.fused, layer, expert);
    if (!t)
        return missing(c, arch, &w, layer, expert, err);
    sl_status st = sl_matrix_of(c, arch, t, &out->m, err);
    if (st != SL_OK)
        return st;
    out->n_rows = want.rows;
    if (apart)
        return take_apart(t, &want, out, err);
    const bool pair = !stacked && role != SL_ROLE_EXPERT_DOWN;
    const uint64_t rows = pair ? 2 * want.rows : want.rows;
    out->row0 = expert * rows + (pair && role == SL_ROLE_EXPERT_UP ? want.rows : 0);
    return check_stack(t, &out->m, moe->n_experts, rows, want.cols, err);
}
