/* A row of n values as sl_kernels.to_q8 writes it: int8 q[n], then one f16 scale per 32 values, the
 * last for what is left. Value i is q[i] times its scale: exact in float. */
#ifndef SL_Q8_ROW_H
#define SL_Q8_ROW_H

#include "vmath.h"

#include <stddef.h>

enum { SL_Q8_BLOCK = 32, SL_Q8_NAN = 0x7e00 };

/* Of block i. */
static inline uint8_t *sl_q8_scale_at(void *row, size_t n, size_t i)
{
    return (uint8_t *)row + n + 2 * i;
}

static inline float sl_q8_scale(const void *row, size_t n, size_t i)
{
    return sl_half_load((const uint8_t *)row + n + 2 * i);
}

static inline float sl_q8_value(const void *row, size_t n, size_t i)
{
    return (float)((const int8_t *)row)[i] * sl_q8_scale(row, n, i / SL_Q8_BLOCK);
}

/* The scale of a block whose largest magnitude has these bits, and what values are multiplied with
 * before rounding; 0: all q are 0. A block with infinity, NaN or values past the halves' reach gets
 * NaN for a scale, so that nothing is hidden. */
static inline uint16_t sl_q8_scale_of(uint32_t largest_bits, float *inverse)
{
    const uint16_t d = sl_half_of_float(sl_float_of_bits(largest_bits) / 127.0f);
    const float scale = sl_half_to_float(d);
    *inverse = 0.0f;
    if ((d & 0x7c00u) == 0x7c00u)
        return SL_Q8_NAN;
    if (scale != 0.0f)
        *inverse = 1.0f / scale;
    return d;
}

#endif
