/* scalar_delta.c, sixteen columns or channels at a time; the last ones under a mask. */
#include "avx512_dot.h"
#include "avx512_math.h"
#include "delta.h"
#include "levels.h"

/* ---- convolution ---- */

enum { CHANNEL_BLOCK = 512 }; /* their taps stay in the first-level cache while rows pass */

SL_INLINE void conv_some(const size_t N, const bool silu, const sl_conv *a, const float *const *in,
                         float *y, size_t c, __mmask16 some)
{
    __m512 sum = _mm512_setzero_ps();
    for (size_t j = 0; j < N; j++)
        sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(some, a->w + j * a->w_stride + c),
                              _mm512_maskz_loadu_ps(some, in[j] + c), sum);
    _mm512_mask_storeu_ps(y + c, some, silu ? avx512_silu(sum) : sum);
}

/* Channels begin .. end of all rows, N taps. */
SL_INLINE void conv_rows(const size_t N, const bool silu, const sl_conv *a, size_t begin,
                         size_t end)
{
    const float *in[SL_CONV_MAX_TAPS]; /* the rows that the taps meet */
    for (size_t t = 0; t < a->n_rows; t++) {
        float *y = a->y + t * a->y_stride;
        for (size_t j = 0; j < N; j++)
            in[j] = sl_conv_input(a, t + j);
        size_t c = begin;
        for (; c + SL_LANES <= end; c += SL_LANES)
            conv_some(N, silu, a, in, y, c, 0xffff);
        if (c < end)
            conv_some(N, silu, a, in, y, c, avx512_first(end - c));
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

static float dot(const float *x, const float *y, size_t n)
{
    __m512 lanes = _mm512_setzero_ps();
    size_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES)
        lanes = _mm512_fmadd_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i), lanes);
    if (i < n) {
        const __mmask16 m = avx512_first(n - i);
        lanes = _mm512_mask3_fmadd_ps(_mm512_maskz_loadu_ps(m, x + i),
                                      _mm512_maskz_loadu_ps(m, y + i), lanes, m);
    }
    return avx512_sum(lanes);
}

static void l2_norm(SL_L2_NORM_ARGS)
{
    for (size_t h = 0; h < n_heads; h++, x += stride) {
        const __m512 by = _mm512_set1_ps(scale / sqrtf(dot(x, x, n) + eps));
        for (size_t i = 0; i < n; i += SL_LANES) {
            const __mmask16 m = avx512_first(n - i < SL_LANES ? n - i : SL_LANES);
            _mm512_mask_storeu_ps(x + i, m, _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), by));
        }
    }
}

static void gated_norm(SL_GATED_NORM_ARGS)
{
    const float mean = dot(x, x, n) / (float)n;
    const __m512 scale = _mm512_set1_ps(1.0f / sqrtf(mean + eps));
    for (size_t i = 0; i < n; i += SL_LANES) {
        const __mmask16 m = avx512_first(n - i < SL_LANES ? n - i : SL_LANES);
        const __m512 v = _mm512_mul_ps(_mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), scale),
                                       _mm512_maskz_loadu_ps(m, w + i));
        const __m512 gate = avx512_silu(_mm512_maskz_loadu_ps(m, z + i));
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(v, gate));
    }
}

static void delta_gates(SL_DELTA_GATES_ARGS)
{
    for (size_t i = 0; i < n; i += SL_LANES) {
        const __mmask16 m = avx512_first(n - i < SL_LANES ? n - i : SL_LANES);
        const __m512 in =
            _mm512_add_ps(_mm512_maskz_loadu_ps(m, a + i), _mm512_maskz_loadu_ps(m, a_bias + i));
        const __m512 d = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, rate + i), avx512_softplus(in));
        const __m512 gate = avx512_sigmoid(_mm512_maskz_loadu_ps(m, b + i));
        _mm512_mask_storeu_ps(decay + i, m, avx512_exp(_mm512_xor_ps(d, _mm512_set1_ps(-0.0f))));
        _mm512_mask_storeu_ps(beta + i, m, gate);
    }
}

/* ---- the delta rule ---- */

/* Sums m and p of one row, for V vectors of columns. */
typedef struct sums {
    __m512 m[8], p[8];
} sums;

SL_INLINE sums no_sums(const int V)
{
    sums s;
    SL_UNROLL
    for (int v = 0; v < V; v++)
        s.m[v] = s.p[v] = _mm512_setzero_ps();
    return s;
}

/* Sums of row t over the state as it is. */
SL_INLINE sums look(const int V, const sl_delta *a, size_t t, size_t c, __mmask16 some)
{
    const float *q = a->q + t * a->q_stride, *k = a->k + t * a->k_stride, *s = a->state + c;
    sums out = no_sums(V);
    for (size_t i = 0; i < a->dim_k; i++, s += a->state_stride) {
        const __m512 ki = _mm512_set1_ps(k[i]), qi = _mm512_set1_ps(q[i]);
        SL_UNROLL
        for (int v = 0; v < V; v++) {
            const __m512 x = _mm512_maskz_loadu_ps(some, s + SL_LANES * (size_t)v);
            out.m[v] = _mm512_fmadd_ps(ki, x, out.m[v]);
            out.p[v] = _mm512_fmadd_ps(qi, x, out.p[v]);
        }
    }
    return out;
}

/* Row t changes the state; while it passes, the next row's sums are made of what it becomes. */
SL_INLINE sums change(const int V, const bool last, const sl_delta *a, size_t t,
                      const __m512 *delta, size_t c, __mmask16 some)
{
    const float *k = a->k + t * a->k_stride;
    const float *next_q = last ? k : a->q + (t + 1) * a->q_stride;
    const float *next_k = last ? k : k + a->k_stride;
    const __m512 decay = _mm512_set1_ps(a->decay[t * a->gate_stride]);
    float *s = a->state + c;
    sums out = no_sums(V);
    for (size_t i = 0; i < a->dim_k; i++, s += a->state_stride) {
        const __m512 ki = _mm512_set1_ps(k[i]);
        const __m512 nk = _mm512_set1_ps(next_k[i]), nq = _mm512_set1_ps(next_q[i]);
        SL_UNROLL
        for (int v = 0; v < V; v++) {
            float *at = s + SL_LANES * (size_t)v;
            __m512 x = _mm512_mul_ps(decay, _mm512_maskz_loadu_ps(some, at));
            x = _mm512_fmadd_ps(ki, delta[v], x);
            _mm512_mask_storeu_ps(at, some, x);
            if (!last) {
                out.m[v] = _mm512_fmadd_ps(nk, x, out.m[v]);
                out.p[v] = _mm512_fmadd_ps(nq, x, out.p[v]);
            }
        }
    }
    return out;
}

/* Columns c up, V vectors of them, through all rows. */
SL_INLINE void delta_strip(const int V, const sl_delta *a, size_t c, __mmask16 some)
{
    sums s = look(V, a, 0, c, some);
    for (size_t t = 0; t < a->n_rows; t++) {
        const float qk = dot(a->q + t * a->q_stride, a->k + t * a->k_stride, a->dim_k);
        const __m512 decay = _mm512_set1_ps(a->decay[t * a->gate_stride]);
        const __m512 beta = _mm512_set1_ps(a->beta[t * a->gate_stride]);
        const float *value = a->v + t * a->v_stride + c;
        float *out = a->out + t * a->out_stride + c;
        __m512 delta[8];
        SL_UNROLL
        for (int v = 0; v < V; v++) {
            const __m512 x = _mm512_maskz_loadu_ps(some, value + SL_LANES * (size_t)v);
            delta[v] = _mm512_mul_ps(_mm512_fnmadd_ps(decay, s.m[v], x), beta);
            const __m512 direct = _mm512_mul_ps(_mm512_set1_ps(qk), delta[v]);
            _mm512_mask_storeu_ps(out + SL_LANES * (size_t)v, some,
                                  _mm512_fmadd_ps(decay, s.p[v], direct));
        }
        if (t + 1 < a->n_rows)
            s = change(V, false, a, t, delta, c, some);
        else
            change(V, true, a, t, delta, c, some);
    }
}

/* Eight vectors are whole rows of a head of 128: one row of a call reads the state as it lies. With
 * more rows, strips of four stay in the first-level cache. */
static void gated_delta(const sl_delta *a)
{
    size_t c = 0;
    if (a->n_rows == 0)
        return;
    for (; a->n_rows == 1 && c + 128 <= a->dim_v; c += 128)
        delta_strip(8, a, c, 0xffff);
    for (; c + 64 <= a->dim_v; c += 64)
        delta_strip(4, a, c, 0xffff);
    for (; c + SL_LANES <= a->dim_v; c += SL_LANES)
        delta_strip(1, a, c, 0xffff);
    if (c < a->dim_v)
        delta_strip(1, a, c, avx512_first(a->dim_v - c));
}

void sl_kernels_fill_avx512_delta(sl_kernels *k)
{
    k->conv = conv;
    k->l2_norm = l2_norm;
    k->gated_norm = gated_norm;
    k->delta_gates = delta_gates;
    k->gated_delta = gated_delta;
}
