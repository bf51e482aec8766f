/* Fills the table of kernels by CPU level. */
#include "kernels.h"

#include "levels.h"

#include <string.h>

void sl_kernels_init(sl_kernels *k, sl_cpu_level level)
{
    const sl_cpu_level best = sl_cpu_best();
    if (level > best)
        level = best;
    memset(k, 0, sizeof *k);
    k->level = sl_cpu_level_name(level);
    sl_kernels_fill_scalar_quant(k);
    sl_kernels_fill_scalar_iquant(k);
    sl_kernels_fill_scalar_layouts(k);
    sl_kernels_fill_scalar_float(k);
    sl_kernels_fill_scalar_attention(k);
    sl_kernels_fill_scalar_math(k);
    sl_kernels_fill_scalar_delta(k);
#if defined(__x86_64__)
    if (level >= SL_CPU_AVX2) {
        sl_kernels_fill_avx2_quant(k);
        sl_kernels_fill_avx2_few_bits(k);
        sl_kernels_fill_avx2_codes(k);
        sl_kernels_fill_avx2_layouts(k);
        sl_kernels_fill_avx2_fp8(k);
        sl_kernels_fill_avx2_iquant(k);
        sl_kernels_fill_avx2_float(k);
        sl_kernels_fill_avx2_attention(k);
        sl_kernels_fill_avx2_math(k);
        sl_kernels_fill_avx2_delta(k);
    }
    if (level >= SL_CPU_AVX2VNNI && sl_cpu_has(SL_CPU_AVX2VNNI))
        sl_kernels_fill_avx2vnni_quant(k);
    if (level >= SL_CPU_AVX512) {
        sl_kernels_fill_avx512_quant(k);
        sl_kernels_fill_avx512_quantize(k);
        sl_kernels_fill_avx512_codes(k);
        sl_kernels_fill_avx512_few_bits(k);
        sl_kernels_fill_avx512_layouts(k);
        sl_kernels_fill_avx512_iquant(k);
        sl_kernels_fill_avx512_fp8(k);
        sl_kernels_fill_avx512_float(k);
        sl_kernels_fill_avx512_attention(k);
        sl_kernels_fill_avx512_math(k);
        sl_kernels_fill_avx512_delta(k);
    }
#elif defined(__aarch64__)
    if (level >= SL_CPU_NEON) {
        sl_kernels_fill_neon_quant(k);
        sl_kernels_fill_neon_iquant(k);
        sl_kernels_fill_neon_fp8(k);
        sl_kernels_fill_neon_dequant(k);
        sl_kernels_fill_neon_float(k);
        sl_kernels_fill_neon_attention(k);
        sl_kernels_fill_neon_math(k);
        sl_kernels_fill_neon_delta(k);
    }
    if (level >= SL_CPU_NEON_I8MM) {
        sl_kernels_fill_neoni8mm_quant(k);
        sl_kernels_fill_neoni8mm_iquant(k);
    }
#endif
}
