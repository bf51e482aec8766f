/* 16-bit floats to float, exactly: subnormals, infinities and NaN included. (A quiet NaN may carry
 * another payload than the CPU's own conversion gives.) Bytes are little-endian, any alignment. */
#ifndef SL_HALF_H
#define SL_HALF_H

#include <stdint.h>
#include <string.h>

static inline float sl_float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t sl_bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float sl_half_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
    if (magnitude >= 0x7c00u) /* infinity, NaN */
        return sl_float_of_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x0400u)
        return sl_float_of_bits(sign | ((magnitude << 13) + 0x38000000u));
    return sl_float_of_bits(sign | sl_bits_of_float((float)magnitude * 0x1p-24f));
}

static inline float sl_bfloat_to_float(uint16_t b)
{
    return sl_float_of_bits((uint32_t)b << 16);
}

static inline uint16_t sl_load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline float sl_half_load(const void *p)
{
    return sl_half_to_float(sl_load_u16(p));
}

#endif
