/* Products of weight matrices with rows of activations: rows are quantised once per form, then a
 * group's units are entered one after the other, each a parallel region over blocks of its rows. */
#include "forward.h"

typedef struct region {
    const sl_pass *p;
    uint32_t n_runs;
    size_t rows_per_task;
    const sl_run *run;
} region;

/* The last run that begins at or before the task. */
static const sl_run *run_of(const region *r, size_t task)
{
    uint32_t low = 0, high = r->n_runs;
    while (high - low > 1) {
        const uint32_t mid = low + (high - low) / 2;
        if (r->run[mid].first_task <= task)
            low = mid;
        else
            high = mid;
    }
    return &r->run[low];
}

/* Outputs row .. row + n of the run's. */
static void add_to_outputs(const sl_kernels *k, const sl_run *u, size_t row, size_t n)
{
    float v[256];
    enum { MOST = sizeof v / sizeof *v };
    const sl_weight type = u->p->addend_type;
    for (size_t at = row; at < row + n; at += MOST) {
        const size_t left = row + n - at, some = left < MOST ? left : MOST;
        k->dequantize[type](u->addend + sl_weight_row_bytes(type, at), v, some, NULL);
        for (size_t b = 0; b < u->batch; b++)
            k->add(u->y + b * u->y_stride + at, v, some);
    }
}

static void multiply_rows(void *ctx, size_t task, unsigned worker)
{
    const region *r = ctx;
    const sl_run *u = run_of(r, task);
    const sl_product *p = u->p;
    size_t row = (task - u->first_task) * r->rows_per_task, left = p->n_rows - row;
    const sl_session *s = r->p->s;
    const sl_kernels *k = r->p->k;
    const size_t scratch_bytes = (size_t)sl_round_up(s->model->layout.mul_scratch_bytes, 64);
    const sl_scales scales = p->beside ? sl_scales_from(&u->s, row) : u->s;
    const size_t n_rows = left < r->rows_per_task ? left : r->rows_per_task;
    const size_t at = p->transposed ? sl_weight_row_bytes(p->type, row) : row * p->row_bytes;
    sl_mul_fn *mul = p->transposed ? k->mul_transposed[p->type] : k->mul[p->type];
    mul(u->w + at, p->row_bytes, n_rows, p->n_cols, u->act, u->act_bytes, u->batch, u->y + row,
        u->y_stride, s->mul_scratch + worker * scratch_bytes, p->beside ? &scales : NULL);
    for (size_t b = 0; p->factor != 1.0f && b < u->batch; b++)
        for (size_t i = 0; i < n_rows; i++)
            u->y[b * u->y_stride + row + i] *= p->factor;
    if (p->has_addend)
        add_to_outputs(k, u, row, n_rows);
}

/* Rows of a task: about eight tasks per thread, so that the slowest thread's tail is short; whole
 * row groups. */
static size_t rows_per_task(const sl_run *run, uint32_t n, unsigned n_threads)
{
    size_t rows = 0;
    for (uint32_t i = 0; i < n; i++)
        rows += run[i].p->n_rows;
    const size_t tasks = 8 * (size_t)n_threads;
    return (size_t)sl_round_up((rows + tasks - 1) / tasks, SL_ROW_GROUP);
}

void sl_run_bind(const sl_pass *p, sl_run *u, const sl_product *pr, uint32_t part)
{
    const sl_stream *stream = p->m->stream;
    u->p = pr;
    u->w = sl_part_data(stream, part, pr->extent);
    u->s = pr->s;
    if (pr->beside)
        u->s.scale = sl_part_data(stream, part, pr->scale_extent);
    if (pr->has_bias)
        u->s.bias = sl_part_data(stream, part, pr->bias_extent);
    if (pr->has_addend)
        u->addend = sl_part_data(stream, part, pr->addend_extent);
}

bool sl_run_peek(const sl_pass *p, sl_run *u, const sl_product *pr, uint32_t part)
{
    sl_stream *stream = p->m->stream;
    u->p = pr;
    u->w = sl_part_peek(stream, part, pr->extent);
    u->s = pr->s;
    if (u->w && pr->beside)
        u->s.scale = sl_part_peek(stream, part, pr->scale_extent);
    if (u->w && pr->has_bias)
        u->s.bias = sl_part_peek(stream, part, pr->bias_extent);
    if (u->w && pr->has_addend)
        u->addend = sl_part_peek(stream, part, pr->addend_extent);
    return u->w && (!pr->beside || u->s.scale) && (!pr->has_bias || u->s.bias) &&
           (!pr->has_addend || u->addend);
}

void sl_run_operand(sl_run *u, const float *in, size_t in_width, void *const *act)
{
    const sl_act form = sl_weight_about(u->p->type)->act;
    u->act = form == SL_ACT_F32 ? (const void *)in : act[form];
    u->act_bytes = form == SL_ACT_F32 ? in_width * sizeof(float) : sl_act_bytes(form, u->p->n_cols);
}

void sl_runs_multiply(sl_pass *p, sl_run *run, uint32_t n)
{
    region r = {.p = p,
                .n_runs = n,
                .rows_per_task = rows_per_task(run, n, sl_workers_count(p->w)),
                .run = run};
    size_t tasks = 0;
    for (uint32_t i = 0; i < n; i++) {
        run[i].first_task = tasks;
        tasks += (run[i].p->n_rows + r.rows_per_task - 1) / r.rows_per_task;
    }
    sl_workers_run(p->w, multiply_rows, &r, tasks);
}

typedef struct step_ctx {
    const sl_group *g;
    const sl_operand *o;
    void *const *act;
} step_ctx;

static sl_status run_step(sl_pass *p, const sl_step *step, const step_ctx *c)
{
    const sl_operand *o = c->o;
    sl_run run[SL_MAX_PRODUCTS];
    if (p->e->cancel && p->e->cancel(p->e->ctx))
        return sl_fail(p->err, SL_ECANCELLED, "stopped on request");
    sl_status st = c->g->held ? SL_OK : sl_unit_enter(p->m->stream, step->unit, p->err);
    if (st != SL_OK)
        return st;
    for (uint32_t i = 0; i < step->n_products; i++) {
        const sl_product *pr = &step->product[i];
        sl_run *u = &run[i];
        sl_run_bind(p, u, pr, step->part);
        sl_run_operand(u, o->in, o->in_width, c->act);
        u->batch = o->rows;
        u->y = o->out[pr->output] + pr->row0;
        u->y_stride = o->out_width[pr->output];
    }
    sl_runs_multiply(p, run, step->n_products);
    if (!c->g->held)
        sl_unit_leave(p->m->stream, step->unit);
    return SL_OK;
}

typedef struct quantize_ctx {
    const sl_pass *p;
    const float *in;
    size_t in_width;
    sl_act form;
    uint8_t *out;
} quantize_ctx;

static void quantize_row(void *ctx, size_t row, unsigned worker)
{
    (void)worker;
    const quantize_ctx *q = ctx;
    q->p->k->quantize[q->form](q->in + row * q->in_width,
                               q->out + row * sl_act_bytes(q->form, q->in_width), q->in_width);
}

void sl_quantize_rows(sl_pass *p, uint32_t act_mask, const float *in, size_t in_width,
                      uint32_t rows, void *const *act)
{
    for (int form = SL_ACT_F32 + 1; form < SL_ACT_COUNT; form++) {
        if (act_mask & 1u << form) {
            quantize_ctx q = {p, in, in_width, (sl_act)form, act[form]};
            sl_workers_run(p->w, quantize_row, &q, rows);
        }
    }
}

sl_status sl_project_acts(sl_pass *p, const sl_group *g, const sl_operand *o, void *const *act)
{
    const step_ctx c = {g, o, act};
    for (uint32_t i = 0; i < g->n_steps; i++) {
        sl_status st = run_step(p, &p->m->layout.step[g->first_step + i], &c);
        if (st != SL_OK)
            return st;
    }
    return SL_OK;
}

sl_status sl_project(sl_pass *p, const sl_group *g, const sl_operand *o)
{
    sl_quantize_rows(p, g->act_mask, o->in, o->in_width, o->rows, p->s->act);
    return sl_project_acts(p, g, o, p->s->act);
}

/* ---- row-wise operations ---- */

typedef struct rows_ctx {
    const sl_pass *p;
    const float *weight; /* of a norm */
    const float *in;
    float *out;
} rows_ctx;

static void norm_row(void *ctx, size_t row, unsigned worker)
{
    (void)worker;
    const rows_ctx *c = ctx;
    const size_t D = c->p->m->arch.n_embd;
    c->p->k->rms_norm(c->in + row * D, c->weight, c->p->m->arch.norm_eps, c->out + row * D, D);
}

void sl_norm_rows(sl_pass *p, const float *in, const float *weight, float *out, uint32_t rows)
{
    rows_ctx c = {.p = p, .weight = weight, .in = in, .out = out};
    sl_workers_run(p->w, norm_row, &c, rows);
}

static void add_row(void *ctx, size_t row, unsigned worker)
{
    (void)worker;
    const rows_ctx *c = ctx;
    const size_t D = c->p->m->arch.n_embd;
    c->p->k->add(c->out + row * D, c->in + row * D, D);
}

void sl_add_to_residual(sl_pass *p)
{
    rows_ctx c = {.p = p, .in = p->s->y, .out = p->s->x};
    sl_workers_run(p->w, add_row, &c, p->rows);
}
