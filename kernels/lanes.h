/* The 16 virtual lanes in which float sums are defined: lane i takes elements i, i + 16, ... with
 * fused multiply-add, then a fixed tree adds the lanes. Lanes past the end add nothing. */
#ifndef SL_LANES_H
#define SL_LANES_H

#include "half.h"

#include <math.h>
#include <stddef.h>

enum { SL_LANES = 16 };

/* Destroys the lanes. */
static inline float sl_lanes_sum(float lane[SL_LANES])
{
    for (int half = SL_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

/* Loads one element of a row of floats of some type. */
typedef float sl_load_fn(const void *p);

static inline float sl_load_f32(const void *p)
{
    float f;
    memcpy(&f, p, sizeof f);
    return f;
}

static inline float sl_load_f16(const void *p)
{
    return sl_half_to_float(sl_load_u16(p));
}

static inline float sl_load_bf16(const void *p)
{
    return sl_bfloat_to_float(sl_load_u16(p));
}

static inline float sl_load_f64(const void *p)
{
    double d;
    memcpy(&d, p, sizeof d);
    return (float)d;
}

/* w: n elements of size bytes each. */
static inline float sl_dot(sl_load_fn *load, size_t size, const void *w, const float *x, size_t n)
{
    const unsigned char *p = w;
    float lane[SL_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % SL_LANES] = fmaf(load(p + i * size), x[i], lane[i % SL_LANES]);
    return sl_lanes_sum(lane);
}

#endif
