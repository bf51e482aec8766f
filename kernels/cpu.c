/* What this CPU and its operating system can do, and how many cores are ours. */
#include "kernels.h"
#include "workers.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const level_names[SL_CPU_LEVEL_COUNT] = {"scalar", "avx2"};

#if defined(__x86_64__)
#include <cpuid.h>

/* The CPU has AVX2, FMA and F16C, and the system saves the upper halves of the registers. */
static bool has_avx2(void)
{
    unsigned a, b, c, d;
    const unsigned need = bit_FMA | bit_F16C | bit_AVX | bit_OSXSAVE;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need) != need)
        return false;
    unsigned enabled, high;
    __asm__ volatile("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
    if ((enabled & 6) != 6)
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}
#else
static bool has_avx2(void)
{
    return false;
}
#endif

/* SL_CPU in the environment can only lower the level: for tests, and to compare. */
sl_cpu_level sl_cpu_best(void)
{
    const sl_cpu_level best = has_avx2() ? SL_CPU_AVX2 : SL_CPU_SCALAR;
    const char *text = getenv("SL_CPU");
    sl_cpu_level wanted;
    return text && sl_cpu_level_parse(text, &wanted) && wanted < best ? wanted : best;
}

const char *sl_cpu_level_name(sl_cpu_level l)
{
    return (unsigned)l < SL_CPU_LEVEL_COUNT ? level_names[l] : "unknown";
}

bool sl_cpu_level_parse(const char *text, sl_cpu_level *out)
{
    for (unsigned l = 0; l < SL_CPU_LEVEL_COUNT; l++) {
        if (strcmp(text, level_names[l]) == 0) {
            *out = (sl_cpu_level)l;
            return true;
        }
    }
    return false;
}

/* Whether the core of this CPU has a CPU of a lower number in the mask, from a list such as "0,64"
 * or "2-3". An unreadable list means a core of its own. */
static bool has_lower_sibling(int cpu, const cpu_set_t *mask, size_t mask_bytes)
{
    char path[96], text[256] = "";
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    const bool got = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    for (char *p = text; got && *p >= '0' && *p <= '9';) {
        long first = strtol(p, &p, 10), last = first;
        if (*p == '-')
            last = strtol(p + 1, &p, 10);
        for (long i = first; i <= last && i < cpu; i++)
            if (CPU_ISSET_S((size_t)i, mask_bytes, mask))
                return true;
        p += *p == ',';
    }
    return false;
}

unsigned sl_cpu_physical_cores(void)
{
    enum { MOST_CPUS = 8192 };
    const size_t mask_bytes = CPU_ALLOC_SIZE(MOST_CPUS);
    cpu_set_t *mask = CPU_ALLOC(MOST_CPUS);
    unsigned n_cores = 0;
    if (mask && sched_getaffinity(0, mask_bytes, mask) == 0)
        for (int cpu = 0; cpu < MOST_CPUS; cpu++)
            if (CPU_ISSET_S((size_t)cpu, mask_bytes, mask) &&
                !has_lower_sibling(cpu, mask, mask_bytes))
                n_cores++;
    if (mask)
        CPU_FREE(mask);
    return n_cores ? n_cores : 1;
}
