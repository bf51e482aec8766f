/* scalar_delta.c, eight columns or channels at a time. */
#include "avx2_dot.h"
#include "avx2_math.h"
#include "delta.h"
#include "levels.h"

/* ---- convolution ---- */

enum { CHANNEL_BLOCK = 512 }; /* their taps stay in the first-level cache while rows pass */

/* Channels begin .. end of one row; in: the rows that its taps meet. N taps. */
SL_INLINE void conv_row(const size_t N, const bool silu, const sl_conv *a, const float *const *in,
                        float *y, size_t begin, size_t end)
{
    size_t c = begin;
    for (; c + 8 <= end; c += 8) {
        __m256 sum = _mm256_setzero_ps();
        for (size_t j = 0; j < N; j++)
            sum = _mm256_fmadd_ps(_mm256_loadu_ps(a->w + j * a->w_stride + c),
                                  _mm256_loadu_ps(in[j] + c), sum);
        _mm256_storeu_ps(y + c, silu ? avx2_silu(sum) : sum);
    }
    for (; c < end; c++) {
        float sum = 0.0f;
        for (size_t j = 0; j < N; j++)
            sum = fmaf(a->w[j * a->w_stride + c], in[j][c], sum);
        y[c] = silu ? sl_silu(sum) : sum;
    }
}

SL_INLINE void conv_rows(const size_t N, const bool silu, const sl_conv *a, size_t begin,
                         size_t end)
{
    const float *in[SL_CONV_MAX_TAPS];
    for (size_t t = 0; t < a->n_rows; t++) {
        for (size_t j = 0; j < N; j++)
            in[j] = sl_conv_input(a, t + j);
        conv_row(N, silu, a, in, a->y + t * a->y_stride, begin, end);
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
    __m256 lanes[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    size_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES) {
        lanes[0] = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i), lanes[0]);
        lanes[1] =
            _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 8), _mm256_loadu_ps(y + i + 8), lanes[1]);
    }
    if (i < n)
        avx2_dot_tail(SL_W_F32, (const uint8_t *)(x + i), y + i, n - i, lanes);
    return avx2_sum(lanes[0], lanes[1]);
}

static void l2_norm(SL_L2_NORM_ARGS)
{
    for (size_t h = 0; h < n_heads; h++, x += stride) {
        const float by = scale / sqrtf(dot(x, x, n) + eps);
        const __m256 b = _mm256_set1_ps(by);
        size_t i = 0;
        for (; i + 8 <= n; i += 8)
            _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), b));
        for (; i < n; i++)
            x[i] *= by;
    }
}

static void gated_norm(SL_GATED_NORM_ARGS)
{
    const float mean = dot(x, x, n) / (float)n;
    const float scale = 1.0f / sqrtf(mean + eps);
    const __m256 s = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 v =
            _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), s), _mm256_loadu_ps(w + i));
        _mm256_storeu_ps(y + i, _mm256_mul_ps(v, avx2_silu(_mm256_loadu_ps(z + i))));
    }
    for (; i < n; i++)
        y[i] = x[i] * scale * w[i] * sl_silu(z[i]);
}

static void delta_gates(SL_DELTA_GATES_ARGS)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 in = _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(a_bias + i));
        const __m256 d = _mm256_mul_ps(_mm256_loadu_ps(rate + i), avx2_softplus(in));
        const __m256 gate = avx2_sigmoid(_mm256_loadu_ps(b + i));
        _mm256_storeu_ps(decay + i, avx2_exp(_mm256_xor_ps(d, _mm256_set1_ps(-0.0f))));
        _mm256_storeu_ps(beta + i, gate);
    }
    for (; i < n; i++) {
        decay[i] = sl_exp(-(rate[i] * sl_softplus(a[i] + a_bias[i])));
        beta[i] = sl_sigmoid(b[i]);
    }
}

/* ---- the delta rule ---- */

/* One row's vectors: of m, p and delta. */
typedef struct sums {
    __m256 m[4], p[4];
} sums;

SL_INLINE sums no_sums(const int V)
{
    sums s;
    SL_UNROLL
    for (int v = 0; v < V; v++)
        s.m[v] = s.p[v] = _mm256_setzero_ps();
    return s;
}

/* Sums of row t over the state as it is. The first strip brings in the others' columns as well: the
 * hardware does not follow strips. (From memory, 32 heads of 128 x 128: 154 us without, 112 with.)
 */
SL_INLINE sums look(const int V, const sl_delta *a, size_t t, size_t c)
{
    enum { ROWS_AHEAD = 8 };
    const float *q = a->q + t * a->q_stride, *k = a->k + t * a->k_stride, *s = a->state + c;
    sums out = no_sums(V);
    for (size_t i = 0; i < a->dim_k; i++, s += a->state_stride) {
        for (size_t ahead = 0; c == 0 && i + ROWS_AHEAD < a->dim_k && ahead < a->dim_v; ahead += 16)
            _mm_prefetch((const char *)(s + ROWS_AHEAD * a->state_stride + ahead), _MM_HINT_T0);
        const __m256 ki = _mm256_broadcast_ss(k + i), qi = _mm256_broadcast_ss(q + i);
        SL_UNROLL
        for (int v = 0; v < V; v++) {
            const __m256 x = _mm256_loadu_ps(s + 8 * (size_t)v);
            out.m[v] = _mm256_fmadd_ps(ki, x, out.m[v]);
            out.p[v] = _mm256_fmadd_ps(qi, x, out.p[v]);
        }
    }
    return out;
}

/* Row t changes the state; while it passes, the next row's sums are made of what it becomes. */
SL_INLINE sums change(const int V, const bool last, const sl_delta *a, size_t t,
                      const __m256 *delta, size_t c)
{
    const float *k = a->k + t * a->k_stride;
    const float *next_q = last ? NULL : a->q + (t + 1) * a->q_stride;
    const float *next_k = last ? NULL : k + a->k_stride;
    const __m256 decay = _mm256_broadcast_ss(a->decay + t * a->gate_stride);
    float *s = a->state + c;
    sums out = no_sums(V);
    for (size_t i = 0; i < a->dim_k; i++, s += a->state_stride) {
        const __m256 ki = _mm256_broadcast_ss(k + i);
        SL_UNROLL
        for (int v = 0; v < V; v++) {
            __m256 x = _mm256_mul_ps(decay, _mm256_loadu_ps(s + 8 * (size_t)v));
            x = _mm256_fmadd_ps(ki, delta[v], x);
            _mm256_storeu_ps(s + 8 * (size_t)v, x);
            if (!last) {
                out.m[v] = _mm256_fmadd_ps(_mm256_broadcast_ss(next_k + i), x, out.m[v]);
                out.p[v] = _mm256_fmadd_ps(_mm256_broadcast_ss(next_q + i), x, out.p[v]);
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
        const float qk = dot(a->q + t * a->q_stride, a->k + t * a->k_stride, a->dim_k);
        const __m256 decay = _mm256_broadcast_ss(a->decay + t * a->gate_stride);
        const __m256 beta = _mm256_broadcast_ss(a->beta + t * a->gate_stride);
        const float *value = a->v + t * a->v_stride + c;
        float *out = a->out + t * a->out_stride + c;
        __m256 delta[4];
        SL_UNROLL
        for (int v = 0; v < V; v++) {
            const __m256 x = _mm256_loadu_ps(value + 8 * (size_t)v);
            delta[v] = _mm256_mul_ps(_mm256_fnmadd_ps(decay, s.m[v], x), beta);
            const __m256 direct = _mm256_mul_ps(_mm256_set1_ps(qk), delta[v]);
            _mm256_storeu_ps(out + 8 * (size_t)v, _mm256_fmadd_ps(decay, s.p[v], direct));
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
    for (; c + 32 <= a->dim_v; c += 32)
        delta_strip(4, a, c);
    for (; c + 8 <= a->dim_v; c += 8)
        delta_strip(1, a, c);
    for (size_t t = 0; c < a->dim_v && t < a->n_rows; t++) {
        const float qk = dot(a->q + t * a->q_stride, a->k + t * a->k_stride, a->dim_k);
        for (size_t rest = c; rest < a->dim_v; rest++)
            sl_delta_column(a, t, qk, rest);
    }
}

void sl_kernels_fill_avx2_delta(sl_kernels *k)
{
    k->conv = conv;
    k->l2_norm = l2_norm;
    k->gated_norm = gated_norm;
    k->delta_gates = delta_gates;
    k->gated_delta = gated_delta;
}
