/* Proves: a whole gated delta net layer, made of the kernels as a model makes it, gives what the
 * reference implementation gives for the first layer of a small Qwen3.5 model (hidden states after
 * it, recurrent and convolution state), in one call and cut into calls, with the same bits at every
 * CPU level. Tolerance 1e-4: the reference differs from itself by up to 7e-5 at the logits. */
#include "lib_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/half.h"
#include "../kernels/kernels.h"
#include "lib_safetensors.h"

/* T rows, H hidden size, heads of D, convolution over C channels: q, k of KH heads, v of VH. */
enum { T = 48, H = 256, KH = 2, VH = 4, D = 64, C = (2 * KH + VH) * D, V = VH * D, TAPS = 4 };
enum { FF = 256 };
static const float eps = 1e-6f;

typedef struct layer {
    char *text;
    size_t len;
    float *in_norm, *post_norm, *gate_norm; /* [H], [H], [D]; the first two with 1 added */
    float *taps;                            /* [TAPS][C] */
    float *rate, *a_bias;                   /* [VH] */
} layer;

typedef struct result {
    float out[T * H], recurrent[VH * D * D], conv[(TAPS - 1) * C];
} result;

static const void *tensor(const layer *l, const char *name, size_t n, size_t size)
{
    size_t bytes = 0;
    const void *data = test_tensor(l->text, l->len, name, &bytes);
    if (!CHECK(data && bytes == n * size, "%s: %zu bytes", name, bytes))
        exit(test_end());
    return data;
}

/* bf16 -> float, plus something. */
static float *floats(const layer *l, const char *name, size_t n, float plus)
{
    const uint8_t *data = tensor(l, name, n, 2);
    float *f = malloc(n * sizeof *f);
    if (!f)
        abort();
    for (size_t i = 0; i < n; i++)
        f[i] = sl_bfloat_to_float(sl_load_u16(data + 2 * i)) + plus;
    return f;
}

static void layer_open(layer *l)
{
    l->text = test_read(test_data("delta/qwen3_5_layer0.safetensors"), &l->len);
    if (!CHECK(l->text, "no test data"))
        exit(test_end());
    l->in_norm = floats(l, "input_layernorm.weight", H, 1);
    l->post_norm = floats(l, "post_attention_layernorm.weight", H, 1);
    l->gate_norm = floats(l, "linear_attn.norm.weight", D, 0);
    l->a_bias = floats(l, "linear_attn.dt_bias", VH, 0);
    l->rate = floats(l, "linear_attn.A_log", VH, 0);
    for (size_t i = 0; i < VH; i++)
        l->rate[i] = expf(l->rate[i]);
    float *w = floats(l, "linear_attn.conv1d.weight", C * TAPS, 0); /* [C][TAPS] */
    l->taps = malloc(TAPS * C * sizeof *l->taps);
    if (!l->taps)
        abort();
    for (size_t c = 0; c < C; c++)
        for (size_t j = 0; j < TAPS; j++)
            l->taps[j * C + c] = w[c * TAPS + j];
    free(w);
}

static void layer_close(layer *l)
{
    free(l->text);
    free(l->in_norm);
    free(l->post_norm);
    free(l->gate_norm);
    free(l->a_bias);
    free(l->rate);
    free(l->taps);
}

/* y [n][n_rows] = x [n][n_cols] times the transposed bf16 matrix. */
static void multiply(const sl_kernels *k, const layer *l, const char *name, size_t n_rows,
                     size_t n_cols, const float *x, size_t n, float *y)
{
    const void *w = tensor(l, name, n_rows * n_cols, 2);
    k->mul[SL_W_BF16](w, n_cols * 2, n_rows, n_cols, x, n_cols * sizeof *x, n, y, n_rows, NULL,
                      NULL);
}

/* The heads' outputs, normed and gated, for n rows whose q, k, v come from the convolution. */
static void heads(const sl_kernels *k, const layer *l, float *qkv, const float *z, const float *a,
                  const float *b, size_t n, result *r, float *out)
{
    float decay[T * VH], beta[T * VH];
    for (size_t t = 0; t < n; t++) {
        float *row = qkv + t * C;
        k->l2_norm(row, KH, D, D, eps, 1.0f / sqrtf(D));
        k->l2_norm(row + KH * D, KH, D, D, eps, 1);
        k->delta_gates(a + t * VH, b + t * VH, l->rate, l->a_bias, decay + t * VH, beta + t * VH,
                       VH);
    }
    for (size_t h = 0; h < VH; h++) {
        const float *q = qkv + h / (VH / KH) * D;
        const sl_delta one = {.q = q,
                              .k = q + KH * D,
                              .v = qkv + 2 * KH * D + h * D,
                              .decay = decay + h,
                              .beta = beta + h,
                              .state = r->recurrent + h * D * D,
                              .out = out + h * D,
                              .q_stride = C,
                              .k_stride = C,
                              .v_stride = C,
                              .gate_stride = VH,
                              .state_stride = D,
                              .out_stride = V,
                              .n_rows = n,
                              .dim_k = D,
                              .dim_v = D};
        k->gated_delta(&one);
    }
    for (size_t i = 0; i < n * VH; i++)
        k->gated_norm(out + i * D, z + i * D, l->gate_norm, eps, out + i * D, D);
}

/* Rows of x become rows of the next layer's input, in place. */
static void mixer(const sl_kernels *k, const layer *l, float *x, size_t n, result *r)
{
    static float u[T * H], in[T * C], qkv[T * C], z[T * V], a[T * VH], b[T * VH], o[T * V];
    for (size_t t = 0; t < n; t++)
        k->rms_norm(x + t * H, l->in_norm, eps, u + t * H, H);
    multiply(k, l, "linear_attn.in_proj_qkv.weight", C, H, u, n, in);
    multiply(k, l, "linear_attn.in_proj_z.weight", V, H, u, n, z);
    multiply(k, l, "linear_attn.in_proj_a.weight", VH, H, u, n, a);
    multiply(k, l, "linear_attn.in_proj_b.weight", VH, H, u, n, b);
    const sl_conv conv = {.x = in,
                          .w = l->taps,
                          .state = r->conv,
                          .y = qkv,
                          .x_stride = C,
                          .w_stride = C,
                          .state_stride = C,
                          .y_stride = C,
                          .n_rows = n,
                          .n_channels = C,
                          .n_taps = TAPS,
                          .silu = true};
    k->conv(&conv);
    heads(k, l, qkv, z, a, b, n, r, o);
    multiply(k, l, "linear_attn.out_proj.weight", H, V, o, n, u);
    k->add(x, u, n * H);
}

static void mlp(const sl_kernels *k, const layer *l, float *x, size_t n)
{
    static float u[T * H], gate[T * FF], up[T * FF];
    for (size_t t = 0; t < n; t++)
        k->rms_norm(x + t * H, l->post_norm, eps, u + t * H, H);
    multiply(k, l, "mlp.gate_proj.weight", FF, H, u, n, gate);
    multiply(k, l, "mlp.up_proj.weight", FF, H, u, n, up);
    k->silu_mul(gate, up, gate, n * FF);
    multiply(k, l, "mlp.down_proj.weight", H, FF, gate, n, u);
    k->add(x, u, n * H);
}

/* The whole prompt, at most `rows` rows in a call. */
static void run(const sl_kernels *k, const layer *l, size_t rows, result *r)
{
    memset(r, 0, sizeof *r);
    memcpy(r->out, tensor(l, "hidden.0", T * H, 4), T * H * sizeof *r->out);
    for (size_t t = 0; t < T; t += rows) {
        const size_t n = t + rows < T ? rows : T - t;
        mixer(k, l, r->out + t * H, n, r);
        mlp(k, l, r->out + t * H, n);
    }
}

static double worst(const float *got, const float *want, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        const double error = fabs((double)got[i] - (double)want[i]);
        most = error > most || isnan(error) ? error : most;
    }
    return most;
}

static void check_golden(const layer *l, const result *r)
{
    const double out = worst(r->out, tensor(l, "hidden.1", T * H, 4), T * H);
    const double state =
        worst(r->recurrent, tensor(l, "state.0.recurrent", VH * D * D, 4), VH * D * D);
    const float *gold = tensor(l, "state.0.conv", C * TAPS, 4); /* [C][TAPS] */
    double conv = 0;
    for (size_t c = 0; c < C; c++)
        for (size_t j = 0; j + 1 < TAPS; j++)
            conv = fmax(conv, worst(r->conv + j * C + c, gold + c * TAPS + j + 1, 1));
    printf("distance from the reference: %.1e out, %.1e recurrent state, %.1e convolution state\n",
           out, state, conv);
    CHECK(out < 1e-4 && state < 1e-4 && conv < 1e-4);
}

int main(void)
{
    static const size_t cuts[] = {T, 1, 2, 29};
    static layer l;
    static result first, r;
    layer_open(&l);
    for (unsigned level = 0; level <= sl_cpu_best(); level++) {
        sl_kernels k;
        sl_kernels_init(&k, (sl_cpu_level)level);
        for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
            test_case("%s, %zu rows in a call", k.level, cuts[c]);
            run(&k, &l, cuts[c], &r);
            if (level == 0 && c == 0) {
                first = r;
                check_golden(&l, &r);
            }
            CHECK(memcmp(&r, &first, sizeof r) == 0);
        }
    }
    layer_close(&l);
    return test_end();
}
