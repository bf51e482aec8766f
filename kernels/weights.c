/* Facts of the weight types and sizes that follow from them. */
#include "kernels.h"

#include "q8_row.h"
#include "quant.h"

static const sl_weight_info weights[SL_W_COUNT] = {
    [SL_W_F32] = {"F32", 1, 4, SL_ACT_F32},
    [SL_W_F16] = {"F16", 1, 2, SL_ACT_F32},
    [SL_W_BF16] = {"BF16", 1, 2, SL_ACT_F32},
    [SL_W_Q8_0] = {"Q8_0", 32, sizeof(sl_q8_0), SL_ACT_Q8_32},
    [SL_W_Q4_0] = {"Q4_0", 32, sizeof(sl_q4_0), SL_ACT_Q8_32},
    [SL_W_Q4_1] = {"Q4_1", 32, sizeof(sl_q4_1), SL_ACT_Q8_32},
    [SL_W_Q5_0] = {"Q5_0", 32, sizeof(sl_q5_0), SL_ACT_Q8_32},
    [SL_W_Q5_1] = {"Q5_1", 32, sizeof(sl_q5_1), SL_ACT_Q8_32},
    [SL_W_Q4_K] = {"Q4_K", 256, sizeof(sl_q4_k), SL_ACT_Q8_256},
    [SL_W_Q5_K] = {"Q5_K", 256, sizeof(sl_q5_k), SL_ACT_Q8_256},
    [SL_W_Q6_K] = {"Q6_K", 256, sizeof(sl_q6_k), SL_ACT_Q8_256},
    [SL_W_Q2_K] = {"Q2_K", 256, sizeof(sl_q2_k), SL_ACT_Q8_256},
    [SL_W_Q3_K] = {"Q3_K", 256, sizeof(sl_q3_k), SL_ACT_Q8_256},
    [SL_W_IQ4_NL] = {"IQ4_NL", 32, sizeof(sl_iq4_nl), SL_ACT_Q8_32},
    [SL_W_IQ4_XS] = {"IQ4_XS", 256, sizeof(sl_iq4_xs), SL_ACT_Q8_256},
    [SL_W_MXFP4] = {"MXFP4", 32, sizeof(sl_mxfp4), SL_ACT_Q8_32},
    [SL_W_NVFP4] = {"NVFP4", 64, sizeof(sl_nvfp4), SL_ACT_Q8_32},
    [SL_W_TQ1_0] = {"TQ1_0", 256, sizeof(sl_tq1_0), SL_ACT_Q8_256},
    [SL_W_TQ2_0] = {"TQ2_0", 256, sizeof(sl_tq2_0), SL_ACT_Q8_256},
    [SL_W_Q1_0] = {"Q1_0", 128, sizeof(sl_q1_0), SL_ACT_Q8_32},
    [SL_W_Q2_0] = {"Q2_0", 64, sizeof(sl_q2_0), SL_ACT_Q8_32},
    [SL_W_F64] = {"F64", 1, 8, SL_ACT_F32},
    [SL_W_IQ2_XXS] = {"IQ2_XXS", 256, sizeof(sl_iq2_xxs), SL_ACT_Q8_256},
    [SL_W_IQ2_XS] = {"IQ2_XS", 256, sizeof(sl_iq2_xs), SL_ACT_Q8_256},
    [SL_W_IQ2_S] = {"IQ2_S", 256, sizeof(sl_iq2_s), SL_ACT_Q8_256},
    [SL_W_IQ3_XXS] = {"IQ3_XXS", 256, sizeof(sl_iq3_xxs), SL_ACT_Q8_256},
    [SL_W_IQ3_S] = {"IQ3_S", 256, sizeof(sl_iq3_s), SL_ACT_Q8_256},
    [SL_W_IQ1_S] = {"IQ1_S", 256, sizeof(sl_iq1_s), SL_ACT_Q8_256},
    [SL_W_IQ1_M] = {"IQ1_M", 256, sizeof(sl_iq1_m), SL_ACT_Q8_256},
    [SL_W_MLX4] = {"MLX4", 32, 16, SL_ACT_Q8_32},
    [SL_W_MLX8] = {"MLX8", 32, 32, SL_ACT_Q8_32},
    [SL_W_MXFP4_SPLIT] = {"MXFP4", 32, 16, SL_ACT_Q8_32},
    [SL_W_FP8] = {"FP8", 1, 1, SL_ACT_F32},
};

const sl_weight_info *sl_weight_about(sl_weight w)
{
    return &weights[w];
}

size_t sl_weight_row_bytes(sl_weight w, size_t n_cols)
{
    return n_cols / weights[w].block_values * weights[w].block_bytes;
}

static size_t round_up_64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

size_t sl_act_bytes(sl_act act, size_t n_cols)
{
    switch (act) {
    case SL_ACT_Q8_32:
        return round_up_64(sl_act_q8_32_sums_at(n_cols) + n_cols / 32 * sizeof(int32_t));
    case SL_ACT_Q8_256:
        return round_up_64(sl_act_q8_256_sums_at(n_cols) + n_cols / 256 * 24 * sizeof(int16_t));
    case SL_ACT_F32:
    case SL_ACT_COUNT:
        break;
    }
    return round_up_64(n_cols * sizeof(float));
}

size_t sl_mul_scratch_bytes(sl_weight w, size_t n_cols)
{
    if (weights[w].act == SL_ACT_F32 && w != SL_W_FP8)
        return 0;
    const size_t chunk = n_cols < SL_MUL_CHUNK_COLS ? n_cols : SL_MUL_CHUNK_COLS;
    const size_t rows = n_cols * SL_MUL_SCRATCH_PER_COL;
    const size_t chunks = chunk * SL_MUL_SCRATCH_PER_CHUNK_COL;
    return round_up_64(rows > chunks ? rows : chunks);
}

size_t sl_q8_row_bytes(size_t n)
{
    return n + 2 * ((n + SL_Q8_BLOCK - 1) / SL_Q8_BLOCK);
}
