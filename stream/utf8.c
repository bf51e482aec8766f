#include "bytes.h"

/* The table of well-formed sequences of the Unicode standard (table 3-7). */
uint32_t sl_utf8_len(const void *text, uint64_t left)
{
    const uint8_t *s = text;
    if (left == 0)
        return 0;
    uint8_t c = s[0], low = 0x80, high = 0xBF;
    if (c < 0x80)
        return 1;
    uint32_t n = c >= 0xC2 && c <= 0xDF   ? 2
                 : c >= 0xE0 && c <= 0xEF ? 3
                 : c >= 0xF0 && c <= 0xF4 ? 4
                                          : 0;
    if (n == 0 || n > left)
        return 0;
    if (c == 0xE0)
        low = 0xA0;
    else if (c == 0xED)
        high = 0x9F;
    else if (c == 0xF0)
        low = 0x90;
    else if (c == 0xF4)
        high = 0x8F;
    if (s[1] < low || s[1] > high)
        return 0;
    for (uint32_t i = 2; i < n; i++)
        if (s[i] < 0x80 || s[i] > 0xBF)
            return 0;
    return n;
}

bool sl_utf8_valid(const void *text, uint64_t len)
{
    const char *s = text;
    while (len) {
        uint32_t n = sl_utf8_len(s, len);
        if (n == 0)
            return false;
        s += n;
        len -= n;
    }
    return true;
}

uint32_t sl_utf8_put(uint32_t c, char out[4])
{
    uint32_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (uint32_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    out[0] = (char)(lead[n] | c);
    return n;
}
