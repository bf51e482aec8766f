#include "scan.h"

#include <string.h>

/* How a number says that it is not finite. */
typedef enum number {
    NUMBER_NONE,
    NUMBER_F16,  /* exponent all ones */
    NUMBER_BF16, /* the same, 8 bits of exponent */
    NUMBER_F32,
    NUMBER_F64,
    NUMBER_E4M3,  /* all ones but the sign */
    NUMBER_UE4M3, /* the same without a sign: 0x7f and up */
    NUMBER_E5M2,
    NUMBER_E8M0, /* all ones */
    NUMBER_IQ1_M /* an f16 in the top nibbles of four words */
} number;

/* The numbers of a block: n of them, one after the other from byte at. */
typedef struct layout {
    number kind;
    unsigned at, n;
} layout;

static const layout layouts[SL_DTYPE_COUNT] = {
    [SL_F64] = {NUMBER_F64, 0, 1},      [SL_F32] = {NUMBER_F32, 0, 1},
    [SL_F16] = {NUMBER_F16, 0, 1},      [SL_BF16] = {NUMBER_BF16, 0, 1},
    [SL_Q4_0] = {NUMBER_F16, 0, 1},     [SL_Q4_1] = {NUMBER_F16, 0, 2},
    [SL_Q5_0] = {NUMBER_F16, 0, 1},     [SL_Q5_1] = {NUMBER_F16, 0, 2},
    [SL_Q8_0] = {NUMBER_F16, 0, 1},     [SL_Q8_1] = {NUMBER_F16, 0, 2},
    [SL_Q2_K] = {NUMBER_F16, 80, 2},    [SL_Q3_K] = {NUMBER_F16, 108, 1},
    [SL_Q4_K] = {NUMBER_F16, 0, 2},     [SL_Q5_K] = {NUMBER_F16, 0, 2},
    [SL_Q6_K] = {NUMBER_F16, 208, 1},   [SL_Q8_K] = {NUMBER_F32, 0, 1},
    [SL_IQ1_S] = {NUMBER_F16, 0, 1},    [SL_IQ1_M] = {NUMBER_IQ1_M, 48, 1},
    [SL_IQ2_XXS] = {NUMBER_F16, 0, 1},  [SL_IQ2_XS] = {NUMBER_F16, 0, 1},
    [SL_IQ2_S] = {NUMBER_F16, 0, 1},    [SL_IQ3_XXS] = {NUMBER_F16, 0, 1},
    [SL_IQ3_S] = {NUMBER_F16, 0, 1},    [SL_IQ4_NL] = {NUMBER_F16, 0, 1},
    [SL_IQ4_XS] = {NUMBER_F16, 0, 1},   [SL_TQ1_0] = {NUMBER_F16, 52, 1},
    [SL_TQ2_0] = {NUMBER_F16, 64, 1},   [SL_MXFP4] = {NUMBER_E8M0, 0, 1},
    [SL_NVFP4] = {NUMBER_UE4M3, 0, 4},  [SL_Q1_0] = {NUMBER_F16, 0, 1},
    [SL_Q2_0] = {NUMBER_F16, 0, 1},     [SL_F8_E4M3] = {NUMBER_E4M3, 0, 1},
    [SL_F8_E5M2] = {NUMBER_E5M2, 0, 1}, [SL_F8_E8M0] = {NUMBER_E8M0, 0, 1},
    [SL_C64] = {NUMBER_F32, 0, 2},
};

static unsigned read16(const unsigned char *p)
{
    return p[0] | (unsigned)p[1] << 8;
}

static unsigned width(number kind)
{
    switch (kind) {
    case NUMBER_F16:
    case NUMBER_BF16:
        return 2;
    case NUMBER_F32:
        return 4;
    case NUMBER_F64:
    case NUMBER_IQ1_M:
        return 8;
    default:
        return 1;
    }
}

static bool is_bad(number kind, const unsigned char *p)
{
    switch (kind) {
    case NUMBER_NONE:
        return false;
    case NUMBER_F16:
        return (read16(p) & 0x7c00) == 0x7c00;
    case NUMBER_BF16:
        return (read16(p) & 0x7f80) == 0x7f80;
    case NUMBER_F32:
        return (read16(p + 2) & 0x7f80) == 0x7f80;
    case NUMBER_F64:
        return (read16(p + 6) & 0x7ff0) == 0x7ff0;
    case NUMBER_E4M3:
        return (p[0] & 0x7f) == 0x7f;
    case NUMBER_UE4M3:
        return p[0] >= 0x7f;
    case NUMBER_E5M2:
        return (p[0] & 0x7c) == 0x7c;
    case NUMBER_E8M0:
        return p[0] == 0xff;
    case NUMBER_IQ1_M: {
        unsigned high = read16(p + 6) & 0xf000, next = read16(p + 4) >> 4 & 0x0f00;
        return ((high | next) & 0x7c00) == 0x7c00;
    }
    }
    return false;
}

/* The plain float types are most of what large float models hold: many at a time, no branches. */
static bool any_bad16(const unsigned char *data, uint64_t n, unsigned mask)
{
    unsigned found = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint16_t v;
        memcpy(&v, data + 2 * i, 2);
        found |= (v & mask) == mask;
    }
    return found;
}

static bool any_bad32(const unsigned char *data, uint64_t n)
{
    unsigned found = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t v;
        memcpy(&v, data + 4 * i, 4);
        found |= (v & 0x7f800000u) == 0x7f800000u;
    }
    return found;
}

static bool all_good(sl_dtype type, const unsigned char *data, uint64_t n_blocks)
{
    switch (type) {
    case SL_F16:
        return !any_bad16(data, n_blocks, 0x7c00);
    case SL_BF16:
        return !any_bad16(data, n_blocks, 0x7f80);
    case SL_F32:
        return !any_bad32(data, n_blocks);
    default:
        return false; /* not known yet */
    }
}

uint64_t sl_scan_blocks(sl_dtype type, const unsigned char *data, uint64_t n_blocks)
{
    layout l = layouts[type];
    uint32_t block = sl_dtype_about(type)->block_bytes;
    if (l.kind == NUMBER_NONE || all_good(type, data, n_blocks))
        return n_blocks;
    for (uint64_t i = 0; i < n_blocks; i++)
        for (unsigned j = 0; j < l.n; j++)
            if (is_bad(l.kind, data + i * block + l.at + j * width(l.kind)))
                return i;
    return n_blocks;
}
