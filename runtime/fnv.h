/* FNV-1a, 64 bits: tells apart what differs by accident, not what somebody made alike. */
#ifndef SL_FNV_H
#define SL_FNV_H

#include <stddef.h>
#include <stdint.h>

static const uint64_t SL_FNV_START = 0xcbf29ce484222325u;

static inline uint64_t sl_fnv(uint64_t h, const void *data, size_t len)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

#endif
