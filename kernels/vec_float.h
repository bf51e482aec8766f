/* Norms, rotary positions, gated units and conversions of every vector level, as scalar_float.c
 * defines them. */
#ifndef SL_VEC_FLOAT_H
#define SL_VEC_FLOAT_H

#include "vec_math.h"

static void rms_norm(SL_RMS_NORM_ARGS)
{
    const float mean = vec_dot(x, x, n) / (float)n;
    const vec scale = vec_all(1.0f / sqrtf(mean + eps));
    VEC_EACH(n, {
        const vec v = vec_mul(vec_load_some(x + at, some), scale);
        vec_store_some(y + at, w ? vec_mul(v, vec_load_some(w + at, some)) : v, some);
    });
}

static void rope_halves(SL_ROPE_ARGS)
{
    const size_t half = n_rot / 2;
    for (size_t h = 0; h < n_heads; h++, x += head_stride) {
        VEC_EACH(half, {
            const vec c = vec_load_some(cosine + at, some), s = vec_load_some(sine + at, some);
            const vec a = vec_load_some(x + at, some), b = vec_load_some(x + half + at, some);
            vec_store_some(x + at, vec_fnma(b, s, vec_mul(a, c)), some);
            vec_store_some(x + half + at, vec_fma(a, s, vec_mul(b, c)), some);
        });
    }
}

/* Each value twice: that of its pair's place. */
static void rope_pairs(SL_ROPE_ARGS)
{
    for (size_t h = 0; h < n_heads; h++, x += head_stride) {
        VEC_EACH(n_rot / 2 * 2, {
            const vec c = vec_load_twice(cosine + at / 2, some / 2);
            const vec s = vec_neg_even(vec_load_twice(sine + at / 2, some / 2));
            const vec ab = vec_load_some(x + at, some), ba = vec_swap_pairs(ab);
            vec_store_some(x + at, vec_fma(ba, s, vec_mul(ab, c)), some);
        });
    }
}

static void silu_mul(SL_GLU_ARGS)
{
    VEC_EACH(n, {
        const vec g = vec_silu(vec_load_some(gate + at, some));
        vec_store_some(y + at, vec_mul(g, vec_load_some(up + at, some)), some);
    });
}

static void gelu_mul(SL_GLU_ARGS)
{
    VEC_EACH(n, {
        const vec g = vec_gelu(vec_load_some(gate + at, some));
        vec_store_some(y + at, vec_mul(g, vec_load_some(up + at, some)), some);
    });
}

static void add(SL_ADD_ARGS)
{
    VEC_EACH(n, {
        vec_store_some(y + at, vec_add(vec_load_some(y + at, some), vec_load_some(x + at, some)),
                       some);
    });
}

static void to_f16(SL_TO_F16_ARGS)
{
    VEC_EACH(n, {
        uint16_t half[VEC];
        const bool whole = some == VEC;
        vec_store_half(whole ? y + at : half, vec_load_some(x + at, some));
        if (!whole)
            memcpy(y + at, half, some * sizeof *y);
    });
}

static inline void vec_fill_rows(sl_kernels *k)
{
    k->rms_norm = rms_norm;
    k->rope_halves = rope_halves;
    k->rope_pairs = rope_pairs;
    k->silu_mul = silu_mul;
    k->gelu_mul = gelu_mul;
    k->add = add;
    k->to_f16 = to_f16;
}

#endif
