/* Numbers that stand beside the blocks (sl_scales), and the bytes of 4-bit and 8-bit floats.
 * Layouts, as safetensors checkpoints hold them; all bytes of a row follow each other:
 *
 *   MLX4   value 2k is the low nibble of byte k, value 2k+1 the high one; 0 .. 15
 *   MLX8   a byte per value; 0 .. 255
 *   MXFP4  nibbles as MLX4; each a sign, two bits of exponent, one of mantissa (E2M1)
 *   FP8    a byte per value: a sign, four bits of exponent, three of mantissa (E4M3); no
 * infinities, 0x7f and 0xff are NaN */
#ifndef SL_SCALES_H
#define SL_SCALES_H

#include "half.h"
#include "kernels.h"

/* 2^(e - 127) */
static inline float sl_e8m0_to_float(uint8_t e)
{
    return sl_float_of_bits(e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : (uint32_t)e << 23);
}

/* 2^(e - 128), 255 included: what twice an E2M1 number is multiplied with. */
static inline float sl_e8m0_half(uint8_t e)
{
    return sl_float_of_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* Twice the number, which is an integer. */
static const int8_t sl_e2m1_codes[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline int sl_e2m1_twice(uint32_t nibble)
{
    return sl_e2m1_codes[nibble & 15];
}

/* Exponent and mantissa are those of a half whose exponent counts from 8 lower; subnormals too. */
static inline float sl_e4m3_to_float(uint8_t b)
{
    if ((b & 0x7f) == 0x7f)
        return sl_float_of_bits(0x7fc00000u);
    return sl_half_to_float((uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7)) * 256.0f;
}

static inline size_t sl_scale_size(sl_scale type)
{
    return type == SL_SCALE_F32 ? 4 : type == SL_SCALE_E8M0 ? 1 : 2;
}

static inline float sl_scale_load(sl_scale type, const void *scales, size_t i)
{
    const uint8_t *p = (const uint8_t *)scales + i * sl_scale_size(type);
    switch (type) {
    case SL_SCALE_F16:
        return sl_half_load(p);
    case SL_SCALE_BF16:
        return sl_bfloat_to_float(sl_load_u16(p));
    case SL_SCALE_E8M0:
        return sl_e8m0_to_float(*p);
    case SL_SCALE_F32:
    case SL_SCALE_COUNT:
        break;
    }
    float f;
    memcpy(&f, p, sizeof f);
    return f;
}

/* Bytes from the scales (or biases) of the first row to those of row r. */
static inline size_t sl_scales_at(const sl_scales *s, size_t r)
{
    return (s->first_row + r) / s->block_rows * s->scale_bytes;
}

#endif
