/* Who fills which slots of the table. Only kernels.c calls these, in this order: all scalar ones,
 * then those of each CPU level that is wanted. Each overwrites the slots it has and leaves the
 * others. */
#ifndef SL_LEVELS_H
#define SL_LEVELS_H

#include "kernels.h"

void sl_kernels_fill_scalar_quant(sl_kernels *k);     /* dequantize (all), quantize (Q8), mul (Q) */
void sl_kernels_fill_scalar_iquant(sl_kernels *k);    /* dequantize and mul (IQ) */
void sl_kernels_fill_scalar_layouts(sl_kernels *k);   /* dequantize, mul: scales beside blocks */
void sl_kernels_fill_scalar_float(sl_kernels *k);     /* mul (F), quantize (F32), norm, rope, ... */
void sl_kernels_fill_scalar_attention(sl_kernels *k); /* attn, attn_merge */
void sl_kernels_fill_scalar_math(sl_kernels *k);      /* exp ... softmax, route, weighted_sum */
void sl_kernels_fill_scalar_delta(sl_kernels *k);     /* conv, l2_norm, gates, gated_delta, ... */

#if defined(__x86_64__)
void sl_kernels_fill_avx2_quant(sl_kernels *k);    /* mul (Q) */
void sl_kernels_fill_avx2_dequant(sl_kernels *k);  /* dequantize, quantize: called by _quant */
void sl_kernels_fill_avx2_few_bits(sl_kernels *k); /* mul of types of one to three bits */
void sl_kernels_fill_avx2_codes(sl_kernels *k);    /* mul of types of 16 numbers */
void sl_kernels_fill_avx2_layouts(sl_kernels *k);  /* mul: MLX, split MXFP4 */
void sl_kernels_fill_avx2_fp8(sl_kernels *k);
void sl_kernels_fill_avx2_iquant(sl_kernels *k); /* dequantize and mul (IQ) */
void sl_kernels_fill_avx2_float(sl_kernels *k);
void sl_kernels_fill_avx2_attention(sl_kernels *k);
void sl_kernels_fill_avx2_math(sl_kernels *k);
void sl_kernels_fill_avx2_delta(sl_kernels *k);
void sl_kernels_fill_avx2vnni_quant(sl_kernels *k);
void sl_kernels_fill_avx512_quant(sl_kernels *k);
void sl_kernels_fill_avx512_quantize(sl_kernels *k);
void sl_kernels_fill_avx512_codes(sl_kernels *k);
void sl_kernels_fill_avx512_few_bits(sl_kernels *k);
void sl_kernels_fill_avx512_layouts(sl_kernels *k);
void sl_kernels_fill_avx512_iquant(sl_kernels *k);
void sl_kernels_fill_avx512_fp8(sl_kernels *k);
void sl_kernels_fill_avx512_float(sl_kernels *k);
void sl_kernels_fill_avx512_attention(sl_kernels *k);
void sl_kernels_fill_avx512_math(sl_kernels *k);
void sl_kernels_fill_avx512_delta(sl_kernels *k);
#elif defined(__aarch64__)
void sl_kernels_fill_neon_quant(sl_kernels *k);  /* mul (Q, MLX, split MXFP4) */
void sl_kernels_fill_neon_iquant(sl_kernels *k); /* mul (IQ) */
void sl_kernels_fill_neon_fp8(sl_kernels *k);
void sl_kernels_fill_neon_dequant(sl_kernels *k); /* dequantize, quantize */
void sl_kernels_fill_neon_float(sl_kernels *k);
void sl_kernels_fill_neon_attention(sl_kernels *k);
void sl_kernels_fill_neon_math(sl_kernels *k);
void sl_kernels_fill_neon_delta(sl_kernels *k);
void sl_kernels_fill_neoni8mm_quant(sl_kernels *k);
void sl_kernels_fill_neoni8mm_iquant(sl_kernels *k);
#endif

#endif
