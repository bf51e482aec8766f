/* The gated delta net of every vector level, as scalar_delta.c defines it: a vector of columns or
 * channels at a time. */
#ifndef SL_VEC_DELTA_H
#define SL_VEC_DELTA_H

#include "delta.h"
#include "vec_math.h"

/* ---- convolution ---- */

enum { CHANNEL_BLOCK = 512 }; /* their taps stay in the first-level cache while rows pass */

/* N taps of a vector of channels from c up; in: the rows that the taps meet. */
SL_INLINE void conv_some(const size_t N, const bool silu, const sl_conv *a, const float *const *in,
                         float *y, size_t c, size_t some)
{
    vec sum = vec_all(0.0f);
    for (size_t j = 0; j < N; j++)
        sum = vec_fma(vec_load_some(a->w + j * a->w_stride + c, some),
                      vec_load_some(in[j] + c, some), sum);
    vec_store_some(y + c, silu ? vec_silu(sum) : sum, some);
}

/* Channels begin .. end of all rows. */
SL_INLINE void conv_rows(const size_t N, const bool silu, const sl_conv *a, size_t begin,
                         size_t end)
{
    const float *in[SL_CONV_MAX_TAPS];
    for (size_t t = 0; t < a->n_rows; t++) {
        float *y = a->y + t * a->y_stride;
        for (size_t j = 0; j < N; j++)
            in[j] = sl_conv_input(a, t + j);
        size_t c = begin;
        for (; c + VEC <= end; c += VEC)
            conv_some(N, silu, a, in, y, c, VEC);
        if (c < end)
            conv_some(N, silu, a, in, y, c, end - c);
    }
}

static void conv(const sl_conv *a)
{
    for (size_t c = 0; c < a->n_channels; c += CHANNEL_BLOCK) {
        const size_t end = c + CHANNEL_BLOCK < a->n_channels ? c + CHANNEL_BLOCK : a->n_channels;
        if (a->n_taps == 4 && a->silu)
            conv_rows(4, true, a, c, end);
        else
            conv_rows(a->n_taps, a->silu, a, c, end);
    }
    sl_conv_keep(a);
}

/* ---- norms and gates ---- */

static void l2_norm(SL_L2_NORM_ARGS)
{
    for (size_t h = 0; h < n_heads; h++, x += stride) {
        const vec by = vec_all(scale / sqrtf(vec_dot(x, x, n) + eps));
        VEC_EACH(n, { vec_store_some(x + at, vec_mul(vec_load_some(x + at, some), by), some); });
    }
}

static void gated_norm(SL_GATED_NORM_ARGS)
{
    const float mean = vec_dot(x, x, n) / (float)n;
    const vec scale = vec_all(1.0f / sqrtf(mean + eps));
    VEC_EACH(n, {
        const vec v = vec_mul(vec_load_some(x + at, some), scale);
        const vec gate = vec_silu(vec_load_some(z + at, some));
        vec_store_some(y + at, vec_mul(vec_mul(v, vec_load_some(w + at, some)), gate), some);
    });
}

static void delta_gates(SL_DELTA_GATES_ARGS)
{
    VEC_EACH(n, {
        const vec in = vec_add(vec_load_some(a + at, some), vec_load_some(a_bias + at, some));
        const vec d = vec_mul(vec_load_some(rate + at, some), vec_softplus(in));
        const vec gate = vec_sigmoid(vec_load_some(b + at, some));
        vec_store_some(decay + at, vec_exp(vec_neg(d)), some);
        vec_store_some(beta + at, gate, some);
    });
}

/* ---- the delta rule ---- */

/* Vectors of columns that go through all rows together: their state stays in the first-level cache.
 * One row alone reads the state once: there wide strips, of whole rows of it, are best. */
#if defined(__AVX512F__)
enum { STRIP = 4, WIDE_STRIP = 8 };
#elif defined(__AVX2__)
enum { STRIP = 4, WIDE_STRIP = 4 };
#else
enum { STRIP = 8, WIDE_STRIP = 8 };
#endif

/* Sums m and p of one row. */
typedef struct sums {
    vec m[8], p[8];
} sums;

SL_INLINE sums no_sums(const int V)
{
    sums s;
    SL_UNROLL
    for (int v = 0; v < V; v++)
        s.m[v] = s.p[v] = vec_all(0.0f);
    return s;
}

/* Sums of row t over the state as it is. The first strip brings in the others' columns as well: the
 * hardware does not follow strips. (AVX2, from memory, 32 heads of 128 x 128: 154 us without, 112
 * with.) */
SL_INLINE sums look(const int V, const sl_delta *a, size_t t, size_t c)
{
    enum { ROWS_AHEAD = 8 };
    const float *q = a->q + t * a->q_stride, *k = a->k + t * a->k_stride, *s = a->state + c;
    const bool first = c == 0 && VEC * (size_t)V < a->dim_v;
    sums out = no_sums(V);
    for (size_t i = 0; i < a->dim_k; i++, s += a->state_stride) {
        for (size_t ahead = 0; first && i + ROWS_AHEAD < a->dim_k && ahead < a->dim_v; ahead += 16)
            __builtin_prefetch(s + ROWS_AHEAD * a->state_stride + ahead);
        const vec ki = vec_all(k[i]), qi = vec_all(q[i]);
        SL_UNROLL
        for (int v = 0; v < V; v++) {
            const vec x = vec_load(s + VEC * (size_t)v);
            out.m[v] = vec_fma(ki, x, out.m[v]);
            out.p[v] = vec_fma(qi, x, out.p[v]);
        }
    }
    return out;
}

/* Row t changes the state; while it passes, the next row's sums are made of what it becomes. */
SL_INLINE sums change(const int V, const bool last, const sl_delta *a, size_t t, const vec *delta,
                      size_t c)
{
    const float *k = a->k + t * a->k_stride;
    const float *next_q = last ? k : a->q + (t + 1) * a->q_stride;
    const float *next_k = last ? k : k + a->k_stride;
    const vec decay = vec_all(a->decay[t * a->gate_stride]);
    float *s = a->state + c;
    sums out = no_sums(V);
    for (size_t i = 0; i < a->dim_k; i++, s += a->state_stride) {
        const vec ki = vec_all(k[i]), nk = vec_all(next_k[i]), nq = vec_all(next_q[i]);
        SL_UNROLL
        for (int v = 0; v < V; v++) {
            float *at = s + VEC * (size_t)v;
            const vec x = vec_fma(ki, delta[v], vec_mul(decay, vec_load(at)));
            vec_store(at, x);
            if (!last) {
                out.m[v] = vec_fma(nk, x, out.m[v]);
                out.p[v] = vec_fma(nq, x, out.p[v]);
            }
        }
    }
    return out;
}

/* Columns c up, V vectors of them, through all rows. */
SL_INLINE void delta_strip(const int V, const sl_delta *a, size_t c)
{
    sums s = look(V, a, 0, c);
    for (size_t t = 0; t < a->n_rows; t++) {
        const float qk = vec_dot(a->q + t * a->q_stride, a->k + t * a->k_stride, a->dim_k);
        const vec decay = vec_all(a->decay[t * a->gate_stride]);
        const vec beta = vec_all(a->beta[t * a->gate_stride]);
        const float *value = a->v + t * a->v_stride + c;
        float *out = a->out + t * a->out_stride + c;
        vec delta[8];
        SL_UNROLL
        for (int v = 0; v < V; v++) {
            const vec x = vec_load(value + VEC * (size_t)v);
            delta[v] = vec_mul(vec_fnma(decay, s.m[v], x), beta);
            vec_store(out + VEC * (size_t)v,
                      vec_fma(decay, s.p[v], vec_mul(vec_all(qk), delta[v])));
        }
        if (t + 1 < a->n_rows)
            s = change(V, false, a, t, delta, c);
        else
            change(V, true, a, t, delta, c);
    }
}

static void gated_delta(const sl_delta *a)
{
    size_t c = 0;
    if (a->n_rows == 0)
        return;
    for (; a->n_rows == 1 && c + WIDE_STRIP * VEC <= a->dim_v; c += WIDE_STRIP * VEC)
        delta_strip(WIDE_STRIP, a, c);
    for (; c + STRIP * VEC <= a->dim_v; c += STRIP * VEC)
        delta_strip(STRIP, a, c);
    for (; c + VEC <= a->dim_v; c += VEC)
        delta_strip(1, a, c);
    for (size_t t = 0; c < a->dim_v && t < a->n_rows; t++) {
        const float qk = vec_dot(a->q + t * a->q_stride, a->k + t * a->k_stride, a->dim_k);
        for (size_t rest = c; rest < a->dim_v; rest++)
            sl_delta_column(a, t, qk, rest);
    }
}

static inline void vec_fill_delta(sl_kernels *k)
{
    k->conv = conv;
    k->l2_norm = l2_norm;
    k->gated_norm = gated_norm;
    k->delta_gates = delta_gates;
    k->gated_delta = gated_delta;
}

#endif
