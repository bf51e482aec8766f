/* What a gated delta net computes beside products: the short convolution, the norms and gates, and
 * the rule itself. The other levels equal this file bit for bit. */
#include "lanes.h"
#include "delta.h"
#include "levels.h"
#include "vmath.h"

static void conv(const sl_conv *a)
{
    for (size_t t = 0; t < a->n_rows; t++) {
        for (size_t c = 0; c < a->n_channels; c++) {
            float sum = 0.0f;
            for (size_t j = 0; j < a->n_taps; j++)
                sum = fmaf(a->w[j * a->w_stride + c], sl_conv_input(a, t + j)[c], sum);
            a->y[t * a->y_stride + c] = a->silu ? sl_silu(sum) : sum;
        }
    }
    sl_conv_keep(a);
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

static void gated_delta(const sl_delta *a)
{
    for (size_t t = 0; t < a->n_rows; t++) {
        const float qk = sl_dot(sl_load_f32, sizeof *a->q, a->q + t * a->q_stride,
                                a->k + t * a->k_stride, a->dim_k);
        for (size_t c = 0; c < a->dim_v; c++)
            sl_delta_column(a, t, qk, c);
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
