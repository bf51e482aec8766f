/* What this CPU and its operating system can do, and how many cores are ours. */
#include "kernels.h"
#include "workers.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const level_names[SL_CPU_LEVEL_COUNT] = {
    "scalar",
#if defined(__x86_64__)
    "avx2",
    "avx2vnni",
    "avx512",
#elif defined(__aarch64__)
    "neon",
    "neon-i8mm",
#endif
};

#if defined(__x86_64__)
#include <cpuid.h>

/* Each level includes the one before, except that AVX-512 does without AVX-VNNI (its own VNNI does
 * the same): a CPU may have the one, the other or both. */
static sl_cpu_level best_of_cpu(void)
{
    enum { XMM_YMM = 0x06, ZMM = 0xe0 };
    unsigned a, b, c, d, a1 = 0, b1, c1, d1;
    const unsigned need = bit_FMA | bit_F16C | bit_AVX | bit_OSXSAVE;
    const unsigned need512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need) != need)
        return SL_CPU_SCALAR;
    unsigned enabled, high; /* registers that the system saves */
    __asm__ volatile("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
    if ((enabled & XMM_YMM) != XMM_YMM || !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        !(b & bit_AVX2))
        return SL_CPU_SCALAR;
    if ((enabled & ZMM) == ZMM && (b & need512) == need512 && (c & bit_AVX512VNNI))
        return SL_CPU_AVX512;
    const bool vnni = a >= 1 && __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1) && (a1 & bit_AVXVNNI);
    return vnni ? SL_CPU_AVX2VNNI : SL_CPU_AVX2;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

static sl_cpu_level best_of_cpu(void)
{
    enum { HWCAP_DOT_PRODUCT = 1 << 20, HWCAP2_INT8_MATRIX = 1 << 13 };
    if (!(getauxval(AT_HWCAP) & HWCAP_DOT_PRODUCT))
        return SL_CPU_SCALAR;
    return getauxval(AT_HWCAP2) & HWCAP2_INT8_MATRIX ? SL_CPU_NEON_I8MM : SL_CPU_NEON;
}
#else
static sl_cpu_level best_of_cpu(void)
{
    return SL_CPU_SCALAR;
}
#endif

/* SL_CPU in the environment can only lower the level: for tests, and to compare. */
sl_cpu_level sl_cpu_best(void)
{
    const sl_cpu_level best = best_of_cpu();
    const char *text = getenv("SL_CPU");
    sl_cpu_level wanted;
    return text && sl_cpu_level_parse(text, &wanted) && wanted < best ? wanted : best;
}

bool sl_cpu_has(sl_cpu_level l)
{
#if defined(__x86_64__)
    unsigned a = 0, b, c, d;
    if (l == SL_CPU_AVX2VNNI && sl_cpu_best() > l)
        return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & bit_AVXVNNI);
#endif
    return l <= sl_cpu_best();
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
