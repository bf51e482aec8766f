/* What attention computes. Per tile of keys: scores, their maximum, what came before rescaled to
 * it, then sum and values added. Keys outside a query's range take no part, and their memory is not
 * read. Dimensions: D = dim_k, E = dim_v, J = keys of a tile. */
#include "lanes.h"
#include "levels.h"
#include "q8_row.h"
#include "vmath.h"

typedef struct tile {
    uint32_t at, begin, end; /* at: first position of the tile; begin .. end: the keys that count */
} tile;

/* How a form of the cache is read: a row times a query, a value of a row of n. */
typedef struct form {
    float (*dot)(const uint8_t *row, const float *q, size_t n);
    float (*value)(const uint8_t *row, size_t i, size_t n);
} form;

static float dot_f16(const uint8_t *row, const float *q, size_t n)
{
    return sl_dot(sl_load_f16, 2, row, q, n);
}

static float value_f16(const uint8_t *row, size_t i, size_t n)
{
    return sl_load_f16(row + 2 * i);
}

static float dot_f32(const uint8_t *row, const float *q, size_t n)
{
    return sl_dot(sl_load_f32, 4, row, q, n);
}

static float value_f32(const uint8_t *row, size_t i, size_t n)
{
    return sl_load_f32(row + 4 * i);
}

static float value_q8(const uint8_t *row, size_t i, size_t n)
{
    return sl_q8_value(row, n, i);
}

static float dot_q8(const uint8_t *row, const float *q, size_t n)
{
    float lane[SL_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % SL_LANES] = fmaf(value_q8(row, i, n), q[i], lane[i % SL_LANES]);
    return sl_lanes_sum(lane);
}

static const form f16 = {dot_f16, value_f16}, f32 = {dot_f32, value_f32}, q8 = {dot_q8, value_q8};

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* score [J] of the tile's keys, and their maximum or the old one: NaN is never the maximum, -0
 * becomes +0. */
static inline float tile_scores(const sl_attn *a, const form *f, const float *q, tile t,
                                float old_max, float *score)
{
    const uint8_t *k = a->k;
    float max = old_max;
    for (uint32_t j = t.begin; j < t.end; j++) {
        float s = f->dot(k + j * a->k_stride, q, a->dim_k) * a->scale;
        if (a->softcap != 0.0f)
            s = a->softcap * sl_tanh(s / a->softcap);
        score[j - t.at] = s;
        max = s > max ? s : max;
    }
    return max + 0.0f;
}

/* score becomes exp(score - max); returns the sum of the tile, in lanes by position. */
static float tile_weights(tile t, float max, float *score)
{
    float lane[SL_LANES] = {0};
    for (uint32_t j = t.begin - t.at; j < t.end - t.at; j++) {
        score[j] = sl_exp(score[j] - max);
        lane[j % SL_LANES] += score[j];
    }
    return sl_lanes_sum(lane);
}

static inline void tile_values(const sl_attn *a, const form *f, tile t, const float *weight,
                               float rescale, float *out)
{
    const uint8_t *v = a->v;
    for (size_t d = 0; d < a->dim_v; d++) {
        float sum = out[d] * rescale;
        for (uint32_t j = t.begin; j < t.end; j++)
            sum = fmaf(weight[j - t.at], f->value(v + j * a->v_stride, d, a->dim_v), sum);
        out[d] = sum;
    }
}

static inline void attend(const sl_attn *a, const form *f, size_t i)
{
    const float *q = a->q + i * a->q_stride; /* [D] */
    float *part = a->part + i * a->part_stride, *out = part + 2;
    float max = -INFINITY, sum = 0.0f, score[SL_ATTN_TILE];
    memset(out, 0, a->dim_v * sizeof *out);
    const uint32_t split = a->split * SL_ATTN_SPLIT;
    for (uint32_t at = split; at < split + SL_ATTN_SPLIT; at += SL_ATTN_TILE) {
        const tile t = {at, max_u32(a->begin[i], at), min_u32(a->end[i], at + SL_ATTN_TILE)};
        if (t.begin >= t.end)
            continue;
        const float old_max = max;
        max = tile_scores(a, f, q, t, old_max, score);
        const float rescale = sl_exp(old_max - max);
        sum = fmaf(sum, rescale, tile_weights(t, max, score));
        tile_values(a, f, t, score, rescale, out);
    }
    part[0] = max;
    part[1] = sum;
}

static void attn_f16(const sl_attn *a)
{
    for (size_t i = 0; i < a->n_q; i++)
        attend(a, &f16, i);
}

static void attn_f32(const sl_attn *a)
{
    for (size_t i = 0; i < a->n_q; i++)
        attend(a, &f32, i);
}

static void attn_q8(const sl_attn *a)
{
    for (size_t i = 0; i < a->n_q; i++)
        attend(a, &q8, i);
}

static void to_q8(SL_TO_Q8_ARGS)
{
    int8_t *q = row;
    for (size_t at = 0; at < n; at += SL_Q8_BLOCK) {
        const size_t end = n - at < SL_Q8_BLOCK ? n : at + SL_Q8_BLOCK;
        uint32_t largest = 0;
        for (size_t i = at; i < end; i++)
            largest = max_u32(largest, sl_bits_of_float(x[i]) & 0x7fffffffu);
        float inverse;
        const uint16_t d = sl_q8_scale_of(largest, &inverse);
        memcpy(sl_q8_scale_at(row, n, at / SL_Q8_BLOCK), &d, sizeof d);
        for (size_t i = at; i < end; i++) {
            /* A tiny scale may be rounded down by a third. */
            const float t = inverse == 0.0f ? 0.0f : fminf(fmaxf(x[i] * inverse, -127.0f), 127.0f);
            q[i] = (int8_t)rintf(t);
        }
    }
}

/* The maximum of all, then each part rescaled to it and added in order; the sink last. */
static void attn_merge(SL_ATTN_MERGE_ARGS)
{
    float max = sink ? *sink : -INFINITY, sum = 0.0f;
    for (size_t i = 0; i < n_parts; i++)
        max = part[i * part_stride] > max ? part[i * part_stride] : max;
    memset(out, 0, dim_v * sizeof *out);
    for (size_t i = 0; i < n_parts; i++, part += part_stride) {
        if (part[1] == 0.0f) /* no keys */
            continue;
        const float rescale = sl_exp(part[0] - max);
        sum = fmaf(part[1], rescale, sum);
        for (size_t d = 0; d < dim_v; d++)
            out[d] = fmaf(part[2 + d], rescale, out[d]);
    }
    if (sink)
        sum += sl_exp(*sink - max);
    const float scale = sum == 0.0f ? 0.0f : 1.0f / sum; /* no keys at all: zeros */
    for (size_t d = 0; d < dim_v; d++)
        out[d] *= scale;
}

void sl_kernels_fill_scalar_attention(sl_kernels *k)
{
    k->attn_f16 = attn_f16;
    k->attn_f32 = attn_f32;
    k->attn_q8 = attn_q8;
    k->to_q8 = to_q8;
    k->attn_merge = attn_merge;
}
