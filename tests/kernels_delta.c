/* Proves: the convolution, norms, gates and the gated delta rule give at every CPU level the scalar
 * result, bit for bit, however rows, channels and columns are cut into calls; they write nothing
 * outside their outputs; and they are what the formulas say, against double. --bench prints speeds.
 */
#include "lib_kernels.h"

#include <string.h>

static const size_t cuts[] = {1, 2, 3, 7, 1000};
enum { N_CUTS = sizeof cuts / sizeof cuts[0] };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static float *copy(const float *x, size_t n)
{
    float *y = malloc(n ? n * sizeof *y : 1);
    if (!y)
        abort();
    return memcpy(y, x, n * sizeof *y);
}

/* ---- convolution ---- */

typedef struct conv_problem {
    size_t n_rows, n_channels, n_taps, gap;
    bool silu;
    float *x, *w, *state;
} conv_problem;

/* y [n_rows][n_channels + gap], state as it is afterwards; at most rows rows and channels channels
 * in a call. */
static void convolve(const conv_problem *p, const sl_kernels *k, size_t rows, size_t channels,
                     float *y, float *state)
{
    const size_t stride = p->n_channels + p->gap;
    memcpy(state, p->state, (p->n_taps - 1) * stride * sizeof *state);
    for (size_t t = 0; t < p->n_rows; t += rows) {
        for (size_t c = 0; c < p->n_channels; c += channels) {
            const sl_conv a = {.x = p->x + t * stride + c,
                               .w = p->w + c,
                               .state = state + c,
                               .y = y + t * stride + c,
                               .x_stride = stride,
                               .w_stride = stride,
                               .state_stride = stride,
                               .y_stride = stride,
                               .n_rows = smaller(rows, p->n_rows - t),
                               .n_channels = smaller(channels, p->n_channels - c),
                               .n_taps = p->n_taps,
                               .silu = p->silu};
            k->conv(&a);
        }
    }
}

/* Outputs and state against double. */
static void check_conv_value(const conv_problem *p, const float *y, const float *state)
{
    const size_t stride = p->n_channels + p->gap, past = p->n_taps - 1;
    double worst = 0;
    for (size_t c = 0; c < p->n_channels; c++) {
        for (size_t t = 0; t < p->n_rows + past; t++) {
            double sum = 0;
            for (size_t j = 0; t < p->n_rows && j < p->n_taps; j++) {
                const size_t at = t + j;
                sum += (double)p->w[j * stride + c] *
                       (double)(at < past ? p->state : p->x - past * stride)[at * stride + c];
            }
            if (t < p->n_rows)
                worst =
                    fmax(worst, fabs(y[t * stride + c] - (p->silu ? sum / (1 + exp(-sum)) : sum)));
        }
        for (size_t j = 0; j < past; j++) {
            const size_t at = p->n_rows + j;
            const float want =
                at < past ? p->state[at * stride + c] : p->x[(at - past) * stride + c];
            CHECK(state[j * stride + c] == want);
        }
    }
    CHECK(worst < 1e-5, "%g", worst);
}

static void conv_case(const sl_kernels *scalar, const sl_kernels *k, conv_problem p,
                      enum pattern pattern)
{
    const size_t stride = p.n_channels + p.gap, n = p.n_rows * stride,
                 kept = (p.n_taps - 1) * stride;
    p.x = filled(pattern, n);
    p.w = filled(pattern == NOT_FINITE ? RANDOM : pattern, p.n_taps * stride);
    p.state = filled(pattern, kept);
    float *a = room(n), *state_a = room(kept), *b = room(n), *state_b = room(kept);
    convolve(&p, scalar, 1000, 100000, a + PAD, state_a + PAD);
    if (pattern == RANDOM)
        check_conv_value(&p, a + PAD, state_a + PAD);
    for (size_t c = 0; c < N_CUTS; c++) {
        convolve(&p, k, cuts[c], c & 1 ? 24 : 100000, b + PAD, state_b + PAD);
        CHECK_SAME(b + PAD, a + PAD, n);
        CHECK_SAME(state_b + PAD, state_a + PAD, kept);
        CHECK(canaries(b, n) && canaries(state_b, kept));
    }
    free(p.x);
    free(p.w);
    free(p.state);
    free(a);
    free(b);
    free(state_a);
    free(state_b);
}

static void test_conv(const sl_kernels *scalar, const sl_kernels *k)
{
    static const size_t channels[] = {1, 7, 8, 15, 16, 17, 31, 48, 65, 513, 1031};
    for (size_t c = 0; c < sizeof channels / sizeof channels[0]; c++) {
        for (size_t taps = 1; taps <= 5; taps++) {
            for (size_t rows = 1; rows <= 9; rows += rows < 4 ? 1 : 5) {
                for (int p = 0; p < N_PATTERNS; p++) {
                    test_case("%s: conv, %zu rows, %zu channels, %zu taps, %s", k->level, rows,
                              channels[c], taps, pattern_names[p]);
                    conv_case(scalar, k,
                              (conv_problem){.n_rows = rows,
                                             .n_channels = channels[c],
                                             .n_taps = taps,
                                             .gap = rows == 2 ? 5 : 0,
                                             .silu = rows != 3},
                              (enum pattern)p);
                }
            }
        }
    }
}

/* ---- norms and gates ---- */

static void l2_case(const sl_kernels *scalar, const sl_kernels *k, enum pattern p, size_t n)
{
    enum { HEADS = 3 };
    const size_t stride = n + 5, all = HEADS * stride;
    float *x = filled(p, all), *a = room(all), *b = room(all);
    memcpy(a + PAD, x, all * sizeof *x);
    memcpy(b + PAD, x, all * sizeof *x);
    scalar->l2_norm(a + PAD, HEADS, stride, n, 1e-6f, 0.125f);
    k->l2_norm(b + PAD, HEADS, stride, n, 1e-6f, 0.125f);
    CHECK_SAME(b + PAD, a + PAD, all);
    CHECK(canaries(b, all));
    for (size_t h = 0; p == RANDOM && h < HEADS; h++) {
        double square = 0;
        for (size_t i = 0; i < n; i++)
            square += pow(x[h * stride + i], 2);
        for (size_t i = 0; i < stride; i++) {
            const double want = x[h * stride + i] * (i < n ? 0.125 / sqrt(square + 1e-6) : 1);
            CHECK(fabs(b[PAD + h * stride + i] - want) <= 1e-6 * fabs(want));
        }
    }
    free(x);
    free(a);
    free(b);
}

static void norm_case(const sl_kernels *scalar, const sl_kernels *k, enum pattern p, size_t n)
{
    float *x = filled(p, n), *z = filled(p, n), *w = filled(RANDOM, n), *a = room(n), *b = room(n);
    scalar->gated_norm(x, z, w, 1e-6f, a + PAD, n);
    k->gated_norm(x, z, w, 1e-6f, b + PAD, n);
    CHECK_SAME(b + PAD, a + PAD, n);
    CHECK(canaries(b, n));
    double square = 0;
    for (size_t i = 0; i < n; i++)
        square += (double)x[i] * (double)x[i];
    for (size_t i = 0; p == RANDOM && i < n; i++) {
        const double want =
            x[i] / sqrt(square / (double)n + 1e-6) * w[i] * (z[i] / (1 + exp(-(double)z[i])));
        CHECK(fabs(b[PAD + i] - want) <= 3e-6 * fabs(want), "%g, not %g", (double)b[PAD + i], want);
    }
    k->gated_norm(x, z, w, 1e-6f, z, n);
    CHECK_SAME(z, a + PAD, n);
    free(x);
    free(z);
    free(w);
    free(a);
    free(b);
}

static void gates_case(const sl_kernels *scalar, const sl_kernels *k, enum pattern p, size_t n)
{
    float *in = filled(p, n), *b = filled(p, n), *rate = filled(RANDOM, n);
    float *bias = filled(RANDOM, n), *want = room(2 * n), *got = room(2 * n);
    for (size_t i = 0; i < n; i++)
        rate[i] = fabsf(rate[i]);
    scalar->delta_gates(in, b, rate, bias, want + PAD, want + PAD + n, n);
    k->delta_gates(in, b, rate, bias, got + PAD, got + PAD + n, n);
    CHECK_SAME(got + PAD, want + PAD, 2 * n);
    CHECK(canaries(got, 2 * n));
    for (size_t i = 0; p == RANDOM && i < n; i++) {
        const double plus = log1p(exp((double)(in[i] + bias[i])));
        CHECK(fabs(got[PAD + i] - exp(-(double)rate[i] * plus)) < 1e-6);
        CHECK(fabs(got[PAD + n + i] - 1 / (1 + exp(-(double)b[i]))) < 1e-6);
    }
    k->delta_gates(in, b, rate, bias, in, b, n);
    CHECK_SAME(in, want + PAD, n);
    CHECK_SAME(b, want + PAD + n, n);
    free(in);
    free(b);
    free(rate);
    free(bias);
    free(want);
    free(got);
}

static void test_rows(const sl_kernels *scalar, const sl_kernels *k)
{
    static const size_t lengths[] = {1,  2,  7,  8,  9,  15, 16,  17,  24,  31,
                                     32, 33, 47, 48, 63, 64, 100, 128, 256, 1023};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int p = 0; p < N_PATTERNS; p++) {
            test_case("%s: norms and gates, %s, %zu values", k->level, pattern_names[p],
                      lengths[i]);
            l2_case(scalar, k, (enum pattern)p, lengths[i]);
            norm_case(scalar, k, (enum pattern)p, lengths[i]);
            gates_case(scalar, k, (enum pattern)p, lengths[i]);
        }
    }
}

/* ---- the delta rule ---- */

typedef struct delta_problem {
    size_t n_rows, dim_k, dim_v;
    float *q, *k, *v, *decay, *beta, *state; /* without gaps */
} delta_problem;

/* q and k of length 1 as after l2_norm, decay and beta as gates are, unless values are odd. */
static delta_problem delta_make(size_t n_rows, size_t dim_k, size_t dim_v, enum pattern p)
{
    delta_problem d = {n_rows,
                       dim_k,
                       dim_v,
                       filled(p, n_rows * dim_k),
                       filled(p, n_rows * dim_k),
                       filled(p, n_rows * dim_v),
                       filled(RANDOM, n_rows),
                       filled(RANDOM, n_rows),
                       filled(p == NOT_FINITE ? RANDOM : p, dim_k * dim_v)};
    sl_kernels scalar;
    sl_kernels_init(&scalar, SL_CPU_SCALAR);
    scalar.sigmoid(d.beta, d.beta, n_rows);
    for (size_t t = 0; t < n_rows; t++)
        d.decay[t] = expf(-fabsf(d.decay[t]));
    if (p == RANDOM) {
        scalar.l2_norm(d.q, n_rows, dim_k, dim_k, 1e-6f, 1);
        scalar.l2_norm(d.k, n_rows, dim_k, dim_k, 1e-6f, 1);
    }
    return d;
}

static void delta_free(delta_problem *d)
{
    free(d->q);
    free(d->k);
    free(d->v);
    free(d->decay);
    free(d->beta);
    free(d->state);
}

static void delta_run(const delta_problem *d, const sl_kernels *k, size_t rows, size_t columns,
                      float *out, float *state)
{
    memcpy(state, d->state, d->dim_k * d->dim_v * sizeof *state);
    for (size_t t = 0; t < d->n_rows; t += rows) {
        for (size_t c = 0; c < d->dim_v; c += columns) {
            const sl_delta a = {.q = d->q + t * d->dim_k,
                                .k = d->k + t * d->dim_k,
                                .v = d->v + t * d->dim_v + c,
                                .decay = d->decay + t,
                                .beta = d->beta + t,
                                .state = state + c,
                                .out = out + t * d->dim_v + c,
                                .q_stride = d->dim_k,
                                .k_stride = d->dim_k,
                                .v_stride = d->dim_v,
                                .gate_stride = 1,
                                .state_stride = d->dim_v,
                                .out_stride = d->dim_v,
                                .n_rows = smaller(rows, d->n_rows - t),
                                .dim_k = d->dim_k,
                                .dim_v = smaller(columns, d->dim_v - c)};
            k->gated_delta(&a);
        }
    }
}

/* The rule as it is written down, in double; returns the largest error. */
static double delta_error(const delta_problem *d, const float *out, const float *state)
{
    const size_t n = d->dim_k * d->dim_v;
    double *s = malloc(n * sizeof *s), worst = 0;
    if (!s)
        abort();
    for (size_t i = 0; i < n; i++)
        s[i] = (double)d->state[i];
    for (size_t t = 0; t < d->n_rows; t++) {
        const float *q = d->q + t * d->dim_k, *k = d->k + t * d->dim_k;
        for (size_t c = 0; c < d->dim_v; c++) {
            double memory = 0, y = 0;
            for (size_t i = 0; i < d->dim_k; i++) {
                s[i * d->dim_v + c] *= (double)d->decay[t];
                memory += (double)k[i] * s[i * d->dim_v + c];
            }
            const double delta = ((double)d->v[t * d->dim_v + c] - memory) * (double)d->beta[t];
            for (size_t i = 0; i < d->dim_k; i++) {
                s[i * d->dim_v + c] += (double)k[i] * delta;
                y += (double)q[i] * s[i * d->dim_v + c];
            }
            worst = fmax(worst, fabs(y - (double)out[t * d->dim_v + c]));
        }
    }
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs(s[i] - (double)state[i]));
    free(s);
    return worst;
}

static void delta_case(const sl_kernels *scalar, const sl_kernels *k, size_t n_rows, size_t dim_k,
                       size_t dim_v, enum pattern p)
{
    test_case("%s: gated_delta, %zu rows, %zu x %zu, %s", k->level, n_rows, dim_k, dim_v,
              pattern_names[p]);
    delta_problem d = delta_make(n_rows, dim_k, dim_v, p);
    const size_t n_out = n_rows * dim_v, n_state = dim_k * dim_v;
    float *a = room(n_out), *state_a = room(n_state), *b = room(n_out), *state_b = room(n_state);
    delta_run(&d, scalar, 1000, 1000, a + PAD, state_a + PAD);
    if (p == RANDOM) {
        const double error = delta_error(&d, a + PAD, state_a + PAD);
        CHECK(error < 2e-5, "%g", error);
    }
    for (size_t c = 0; c < N_CUTS; c++) {
        delta_run(&d, k, cuts[c], c & 1 ? 24 : 1000, b + PAD, state_b + PAD);
        CHECK_SAME(b + PAD, a + PAD, n_out);
        CHECK_SAME(state_b + PAD, state_a + PAD, n_state);
        CHECK(canaries(b, n_out) && canaries(state_b, n_state));
    }
    delta_free(&d);
    free(a);
    free(b);
    free(state_a);
    free(state_b);
}

static void test_delta(const sl_kernels *scalar, const sl_kernels *k)
{
    static const size_t dims[] = {1, 7, 8, 9, 16, 17, 31, 32, 40, 64, 96, 100, 128, 144, 200, 256};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        for (int p = 0; p < N_PATTERNS; p++) {
            delta_case(scalar, k, 1 + i % 9, dims[i], dims[i], (enum pattern)p);
            delta_case(scalar, k, 3, 64, dims[i], (enum pattern)p);
        }
    }
    delta_case(scalar, k, 100, 128, 128, RANDOM);
}

/* Values out of strided rows, results over the values. */
static void test_delta_strides(const sl_kernels *scalar, const sl_kernels *k)
{
    enum { ROWS = 5, DIM = 48, ROW = 400, HEADS = 2 };
    test_case("%s: gated_delta, strides, in place", k->level);
    float *x = filled(RANDOM, ROWS * ROW), *gates = filled(RANDOM, ROWS * 7);
    float *y[2] = {copy(x, ROWS * ROW), copy(x, ROWS * ROW)};
    float *state[2] = {room(DIM * 64), room(DIM * 64)};
    for (int l = 0; l < 2; l++) {
        for (size_t h = 0; h < HEADS; h++) {
            const sl_delta a = {.q = x,
                                .k = x + DIM + 1,
                                .v = y[l] + 150 + h * DIM,
                                .decay = gates + h,
                                .beta = gates + 3 + h,
                                .state = state[l] + PAD + 16 * h,
                                .out = y[l] + 150 + h * DIM,
                                .q_stride = ROW,
                                .k_stride = ROW,
                                .v_stride = ROW,
                                .gate_stride = 7,
                                .state_stride = 64,
                                .out_stride = ROW,
                                .n_rows = ROWS,
                                .dim_k = DIM,
                                .dim_v = h ? 7 : 16};
            (l ? k : scalar)->gated_delta(&a);
        }
    }
    CHECK_SAME(y[1], y[0], ROWS * ROW);
    CHECK_SAME(state[1], state[0], DIM * 64 + 2 * PAD);
    for (int l = 0; l < 2; l++) {
        free(y[l]);
        free(state[l]);
    }
    free(x);
    free(gates);
}

/* ---- speed ---- */

enum { DIM = 128, HEADS = 32, CHANNELS = 8192, TAPS = 4 };

/* All heads of n_layers layers, one after the other. */
static void run_layers(const sl_kernels *k, const delta_problem *d, size_t n_layers, float *states,
                       float *out)
{
    for (size_t i = 0; i < n_layers * HEADS; i++) {
        const sl_delta a = {.q = d->q,
                            .k = d->k,
                            .v = d->v,
                            .decay = d->decay,
                            .beta = d->beta,
                            .state = states + i * DIM * DIM,
                            .out = out,
                            .q_stride = DIM,
                            .k_stride = DIM,
                            .v_stride = DIM,
                            .gate_stride = 1,
                            .state_stride = DIM,
                            .out_stride = DIM,
                            .n_rows = d->n_rows,
                            .dim_k = DIM,
                            .dim_v = DIM};
        k->gated_delta(&a);
    }
}

/* Seconds per layer and row. With many layers a state comes from memory, as in decoding. */
static double time_delta(const sl_kernels *k, const delta_problem *d, size_t n_layers)
{
    float *states = filled(ZEROS, n_layers * HEADS * DIM * DIM);
    float *out = filled(ZEROS, d->n_rows * DIM);
    double best;
    BEST_TIME(best, run_layers(k, d, n_layers, states, out));
    free(states);
    free(out);
    return best / (double)(n_layers * d->n_rows);
}

static double time_conv(const sl_kernels *k, size_t n_rows)
{
    float *x = filled(RANDOM, n_rows * CHANNELS), *y = filled(ZEROS, n_rows * CHANNELS);
    float *w = filled(RANDOM, TAPS * CHANNELS), *state = filled(RANDOM, TAPS * CHANNELS);
    const sl_conv a = {x,        w,        state,  y,        CHANNELS, CHANNELS,
                       CHANNELS, CHANNELS, n_rows, CHANNELS, TAPS,     true};
    double best;
    BEST_TIME(best, k->conv(&a));
    free(x);
    free(y);
    free(w);
    free(state);
    return best / (double)n_rows;
}

static void bench(sl_cpu_level best)
{
    float *x = filled(RANDOM, HEADS * DIM), *z = filled(RANDOM, HEADS * DIM);
    double t;
    for (unsigned l = 0; l <= best; l++) {
        sl_kernels k;
        sl_kernels_init(&k, (sl_cpu_level)l);
        delta_problem one = delta_make(1, DIM, DIM, RANDOM),
                      many = delta_make(64, DIM, DIM, RANDOM);
        const double bytes = 2.0 * HEADS * DIM * DIM * 4;
        const double memory = time_delta(&k, &one, 24), rows = time_delta(&k, &many, 1);
        printf("%-8s gated_delta, %d heads %d x %d: 1 row, from memory %.1f us per token, %.1f "
               "GB/s; 64 rows %.1f us per token, %.1f GFLOP/s\n",
               k.level, HEADS, DIM, DIM, memory * 1e6, bytes / memory * 1e-9, rows * 1e6,
               HEADS * DIM * DIM * 7.0 / rows * 1e-9);
        const double conv1 = time_conv(&k, 1), conv64 = time_conv(&k, 64);
        printf("%-8s conv, %d channels: 1 row %.2f us, 64 rows %.2f us per row\n", "", CHANNELS,
               conv1 * 1e6, conv64 * 1e6);
        BEST_TIME(t, k.l2_norm(x, HEADS, DIM, DIM, 1e-6f, 1));
        printf("%-8s l2_norm of %d heads of %d: %.2f us", "", HEADS, DIM, t * 1e6);
        BEST_TIME(t, for (size_t h = 0; h < HEADS; h++)
                         k.gated_norm(x + h * DIM, z + h * DIM, x, 1e-6f, z + h * DIM, DIM));
        printf("; gated_norm: %.2f us", t * 1e6);
        BEST_TIME(t, k.delta_gates(x, z, x, z, x + 64, x + 128, HEADS));
        printf("; delta_gates of %d: %.3f us\n", HEADS, t * 1e6);
        delta_free(&one);
        delta_free(&many);
    }
    free(x);
    free(z);
}

int main(int argc, char **argv)
{
    const sl_cpu_level best = sl_cpu_best();
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        bench(best);
        return 0;
    }
    sl_kernels scalar;
    sl_kernels_init(&scalar, SL_CPU_SCALAR);
    for (unsigned l = 0; l <= best; l++) {
        sl_kernels k;
        sl_kernels_init(&k, (sl_cpu_level)l);
        test_conv(&scalar, &k);
        test_rows(&scalar, &k);
        test_delta(&scalar, &k);
        test_delta_strides(&scalar, &k);
    }
    return test_end();
}
