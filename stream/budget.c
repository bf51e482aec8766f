/* The budget's arithmetic and words. */
#include <stdio.h>
#include <string.h>

#include "budget.h"
#include "cgroup.h"

void sl_budget_charge(sl_budget *b, const char *name, uint64_t bytes)
{
    uint32_t i = 0;
    while (i < b->n_terms && strcmp(b->term[i].name, name) != 0)
        i++;
    if (i == SL_BUDGET_TERMS)
        i--; /* no room for another name: nothing may go uncounted */
    else if (i == b->n_terms)
        b->term[b->n_terms++] = (sl_budget_term){.name = name};
    if (!sl_add_size(b->term[i].bytes, bytes, &b->term[i].bytes))
        b->term[i].bytes = UINT64_MAX;
}

uint64_t sl_budget_charged(const sl_budget *b)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < b->n_terms; i++)
        if (!sl_add_size(sum, b->term[i].bytes, &sum))
            return UINT64_MAX;
    return sum;
}

uint64_t sl_budget_left(const sl_budget *b)
{
    uint64_t charged = sl_budget_charged(b);
    return charged < b->limit_bytes ? b->limit_bytes - charged : 0;
}

void sl_budget_describe(const sl_budget *b, char *text, size_t cap)
{
    size_t n = 0;
    if (cap)
        text[0] = 0;
    for (uint32_t i = 0; i < b->n_terms && n < cap; i++) {
        double mib = (double)b->term[i].bytes / (1 << 20);
        bool large = mib >= 1024;
        int k = snprintf(text + n, cap - n, "%s%s %.*f %s", i ? " + " : "", b->term[i].name,
                         large ? 2 : 1, large ? mib / 1024 : mib, large ? "GiB" : "MiB");
        n += k > 0 ? (size_t)k : 0;
    }
}

/* A tenth of what is free, at least 256 MiB but never more than half: other programs go on
 * allocating while we run, and MemAvailable is the kernel's estimate. */
static uint64_t less_reserve(uint64_t bytes)
{
    uint64_t reserve = bytes / 10, least = (uint64_t)256 << 20;
    if (reserve < least)
        reserve = least < bytes / 2 ? least : bytes / 2;
    return bytes - reserve;
}

int64_t sl_memory_left(const sl_memory_view *v)
{
    const int64_t available = (int64_t)v->available_bytes;
    if (v->cgroup_limit == UINT64_MAX)
        return available;
    const int64_t left = (int64_t)v->cgroup_limit - (int64_t)v->cgroup_used;
    return left < available ? left : available;
}

uint64_t sl_memory_auto(const sl_memory_view *v)
{
    const int64_t left = sl_memory_left(v);
    return less_reserve(left > 0 ? (uint64_t)left : 0);
}

static bool unit_parse(const char *text, uint32_t *shift)
{
    static const char letters[] = "KMGT";
    char c = text[0] >= 'a' && text[0] <= 'z' ? (char)(text[0] - 'a' + 'A') : text[0];
    const char *at = c ? strchr(letters, c) : NULL;
    *shift = at ? 10 * (uint32_t)(at - letters + 1) : 0;
    text += at ? 1 : 0;
    return text[0] == 0 || strcmp(text, "B") == 0 || (at && strcmp(text, "iB") == 0);
}

bool sl_size_parse(const char *text, uint64_t *out)
{
    uint64_t whole = 0, part = 0, scale = 1;
    uint32_t shift, digits = 0;
    for (; *text >= '0' && *text <= '9'; text++, digits++)
        if (!sl_mul_size(whole, 10, &whole) || !sl_add_size(whole, (uint64_t)(*text - '0'), &whole))
            return false;
    bool fraction = digits && *text == '.';
    if (fraction)
        for (text++; *text >= '0' && *text <= '9'; text++)
            if (scale < 1000000) { /* further digits are below a byte, or near enough */
                part = part * 10 + (uint64_t)(*text - '0');
                scale *= 10;
            }
    if (!digits || !unit_parse(text, &shift) || (fraction && (scale == 1 || !shift)))
        return false;
    uint64_t bytes;
    if (!sl_mul_size(whole, (uint64_t)1 << shift, &bytes))
        return false;
    return sl_add_size(bytes, (part << shift) / scale, out);
}
