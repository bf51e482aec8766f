/* What a gated delta net computes beside products: the short convolution, the norms and gates, and
 * the rule itself. The other levels equal this file bit for bit. */
#include "lanes.h"
#include "levels.h"
#include "vmath.h"

/* Row t of the inputs, the state's rows being those before 0. */
static const float *input_row(const sl_conv *a, size_t t_plus_past)
{
    const size_t past = a->n_taps - 1;
    return t_plus_past < past ? a->state + t_plus_past * a->state_stride
                              : a->x + (t_plus_past - past) * a->x_stride;
}

static void conv(const sl_conv *a)
{
    for (size_t t = 0; t < a->n_rows; t++) {
        for (size_t c = 0; c < a->n_channels; c++) {
            float sum = 0.0f;
            for (size_t j = 0; j < a->n_taps; j++)
                sum = fmaf(a->w[j * a->w_stride + c], input_row(a, t + j)[c], sum);
            a->y[t * a->y_stride + c] = a->silu ? sl_silu(sum) : sum;
        }
    }
    for (size_t j = 0; j + 1 < a->n_taps && a->n_rows; j++)
        memcpy(a->state + j * a->state_stride, input_row(a, a->n_rows + j),
               a->n_channels * sizeof *a->state);
}

static void l2_norm(SL_L2_NORM_ARGS)
{
    for (size_t h = 0; h < n_heads; h++, x += stride) {
        const float by = scale / sqrtf(sl_dot(sl_load_f32, sizeof *x, x, x, n) + eps);
        for (size_t i = 0; i < n; i++)
            x[i] *= by;
    }
}

static void gated_norm(SL_GATED_NORM_ARGS)
{
    const float mean = sl_dot(sl_load_f32, sizeof *x, x, x, n) / (float)n;
    const float scale = 1.0f / sqrtf(mean + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * scale * w[i] * sl_silu(z[i]);
}

static void delta_gates(SL_DELTA_GATES_ARGS)
{
    for (size_t i = 0; i < n; i++) {
        decay[i] = sl_exp(-(rate[i] * sl_softplus(a[i] + a_bias[i])));
        beta[i] = sl_sigmoid(b[i]);
    }
}

static void delta_column(const sl_delta *a, size_t t, float qk, size_t c)
{
    const float *q = a->q + t * a->q_stride, *k = a->k + t * a->k_stride;
    const float decay = a->decay[t * a->gate_stride], beta = a->beta[t * a->gate_stride];
    float *s = a->state + c, m = 0.0f, p = 0.0f;
    for (size_t i = 0; i < a->dim_k; i++) {
        m = fmaf(k[i], s[i * a->state_stride], m);
        p = fmaf(q[i], s[i * a->state_stride], p);
    }
    const float delta = fmaf(-decay, m, a->v[t * a->v_stride + c]) * beta;
    a->out[t * a->out_stride + c] = fmaf(decay, p, qk * delta);
    for (size_t i = 0; i < a->dim_k; i++)
        s[i * a->state_stride] = fmaf(k[i], delta, decay * s[i * a->state_stride]);
}

static void gated_delta(const sl_delta *a)
{
    for (size_t t = 0; t < a->n_rows; t++) {
        const float qk = sl_dot(sl_load_f32, sizeof *a->q, a->q + t * a->q_stride,
                                a->k + t * a->k_stride, a->dim_k);
        for (size_t c = 0; c < a->dim_v; c++)
            delta_column(a, t, qk, c);
    }
}

void sl_kernels_fill_scalar_delta(sl_kernels *k)
{
    k->conv = conv;
    k->l2_norm = l2_norm;
    k->gated_norm = gated_norm;
    k->delta_gates = delta_gates;
    k->gated_delta = gated_delta;
}
