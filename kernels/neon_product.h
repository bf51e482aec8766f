/* Products with quantised weights, for the levels of NEON: neon_quant.c multiplies bytes with SDOT,
 * neoni8mm_quant.c includes the same and has SMMLA. All that differs is how a tile of eight rows
 * lies in memory and how its sums are made.
 *
 * One activation row: four weight rows at a time, each with 32-bit sums of its own in four lanes.
 * Integers may be added in any order; once per block the lanes are joined, one row to a lane, and
 * the floats follow the scalar file. Offsets of weights are taken off there, times the sums of q.
 *
 * Several: eight rows are opened once, into scratch, as signed bytes without an offset. Then four
 * activation rows at a time, rows in lanes throughout: 8 sums in integers and 8 in floats leave 16
 * of the 32 registers for operands. */
#ifndef SL_NEON_PRODUCT_H
#define SL_NEON_PRODUCT_H

#include "kernels.h"
#include "neon_blocks.h"

/* What the loops below know of a type. All arguments of this kind are constants where they are
 * used, so that everything is inlined. */
typedef void neon_open_fn(const uint8_t *block, int half, int8x16_t *q);
typedef struct neon_form {
    neon_open_fn *open;
    size_t values, bytes; /* of a block */
    size_t d_at, m_at;    /* where its f16 are; m_at 0: no minimum (dmin) */
    int offset;           /* to take off every value */
    size_t scales_at;     /* of 256: 16 signed bytes there; 0: packed as in Q4_K */
} neon_form;

typedef struct neon_product {
    const uint8_t *w;
    size_t row_bytes, n_rows, n_cols;
    const char *act;
    size_t act_bytes, n_batch;
    float *y;
    size_t y_stride;
    void *scratch;
} neon_product;

/* Rows from n_rows up stand in as the last one, and are not stored. */
SL_INLINE void neon_rows_at(const neon_product *p, size_t first, int n, const uint8_t *rows[])
{
    for (int r = 0; r < n; r++) {
        const size_t at = first + (size_t)r;
        rows[r] = p->w + p->row_bytes * (at < p->n_rows ? at : p->n_rows - 1);
    }
}

SL_INLINE void neon_store_rows(float *y, float32x4_t v, size_t n)
{
    if (n >= 4) {
        vst1q_f32(y, v);
        return;
    }
    float lanes[4];
    vst1q_f32(lanes, v);
    memcpy(y, lanes, n * sizeof *y);
}

/* One f16 of each of four rows. */
SL_INLINE float32x4_t neon_halves(const uint8_t *const rows[], size_t at)
{
    uint16_t h[4];
    SL_UNROLL
    for (int r = 0; r < 4; r++)
        h[r] = sl_load_u16(rows[r] + at);
    uint16x4_t v = vdup_n_u16(h[0]);
    v = vset_lane_u16(h[1], v, 1);
    v = vset_lane_u16(h[2], v, 2);
    v = vset_lane_u16(h[3], v, 3);
    return vcvt_f32_f16(vreinterpret_f16_u16(v));
}

/* Lane r: the sum of the lanes of s[r]. */
SL_INLINE int32x4_t neon_join(const int32x4_t s[4])
{
    return vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
}

/* ---- One activation row ---- */

/* acc + block i of four rows */
SL_INLINE float32x4_t neon_single32(neon_form f, const uint8_t *const rows[4], size_t i,
                                    sl_act_q8_32 x, float32x4_t acc)
{
    const int8x16_t x0 = vld1q_s8(x.q + 32 * i), x1 = vld1q_s8(x.q + 32 * i + 16);
    int32x4_t s[4];
    SL_UNROLL
    for (int r = 0; r < 4; r++) {
        int8x16_t q[2];
        f.open(rows[r] + i * f.bytes, 0, q);
        s[r] = vdotq_s32(vdotq_s32(vdupq_n_s32(0), q[0], x0), q[1], x1);
    }
    int32x4_t isum = neon_join(s);
    if (f.offset)
        isum = vsubq_s32(isum, vdupq_n_s32(f.offset * x.sum[i]));
    const float32x4_t d = vmulq_n_f32(neon_halves(rows, i * f.bytes + f.d_at), x.d[i]);
    acc = vfmaq_f32(acc, d, vcvtq_f32_s32(isum));
    if (f.m_at) {
        const float32x4_t m = vmulq_n_f32(neon_halves(rows, i * f.bytes + f.m_at), x.d[i]);
        acc = vfmaq_f32(acc, m, vdupq_n_f32((float)x.sum[i]));
    }
    return acc;
}

/* Four lanes of c times a, added. */
SL_INLINE int32x4_t neon_scale4(int32x4_t acc, const int32x4_t a[4], int32x4_t c)
{
    acc = vmlaq_laneq_s32(acc, a[0], c, 0);
    acc = vmlaq_laneq_s32(acc, a[1], c, 1);
    acc = vmlaq_laneq_s32(acc, a[2], c, 2);
    return vmlaq_laneq_s32(acc, a[3], c, 3);
}

/* The sum of eight products of int16, in four lanes. */
SL_INLINE int32x4_t neon_dot16(int32x4_t acc, int16x8_t a, int16x8_t b)
{
    return vmlal_high_s16(vmlal_s16(acc, vget_low_s16(a), vget_low_s16(b)), a, b);
}

/* Scales of a block: [0], [1] sub-blocks 0 .. 7 and 8 .. 15; packed ones have only 8, and [1] is
 * their minima. */
SL_INLINE void neon_scales(neon_form f, const uint8_t *block, int16x8_t out[2])
{
    if (f.scales_at) {
        const int8x16_t s = vreinterpretq_s8_u8(vld1q_u8(block + f.scales_at));
        out[0] = vmovl_s8(vget_low_s8(s));
        out[1] = vmovl_high_s8(s);
        return;
    }
    uint8_t both[16];
    sl_k_scales(block + 4, both);
    const uint8x16_t s = vld1q_u8(both);
    out[0] = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(s)));
    out[1] = vreinterpretq_s16_u16(vmovl_high_u8(s));
}

/* acc + half a block of one row, scaled. x: 128 values. */
SL_INLINE int32x4_t neon_half_row(neon_form f, const uint8_t *block, int half, const int8_t *x,
                                  const int16x8_t scales[2], int32x4_t acc)
{
    int8x16_t q[8];
    int32x4_t s[8];
    f.open(block, half, q);
    SL_UNROLL
    for (int j = 0; j < 8; j++) {
        const int8x16_t v = vld1q_s8(x + 16 * j);
        if (f.scales_at || j % 2 == 0)
            s[f.scales_at ? j : j / 2] = vdotq_s32(vdupq_n_s32(0), q[j], v);
        else
            s[j / 2] = vdotq_s32(s[j / 2], q[j], v);
    }
    if (f.scales_at) {
        acc = neon_scale4(acc, s, vmovl_s16(vget_low_s16(scales[half])));
        return neon_scale4(acc, s + 4, vmovl_high_s16(scales[half]));
    }
    return neon_scale4(acc, s,
                       half ? vmovl_high_s16(scales[0]) : vmovl_s16(vget_low_s16(scales[0])));
}

/* Rows one after the other, in a loop that is not unrolled: gcc would open all four first and run
 * out of registers (Q6_K: 220 instructions a row and block, a quarter of them spills; 148 so). */
SL_INLINE float32x4_t neon_single256(neon_form f, const uint8_t *const rows[4], size_t i,
                                     sl_act_q8_256 x, float32x4_t acc)
{
    const size_t at = i * f.bytes;
    const int16_t *sums = f.m_at ? x.sum32 + 8 * i : x.sum16 + 16 * i;
    int32x4_t s[4], m[4];
    SL_ROLLED
    for (int r = 0; r < 4; r++) {
        const uint8_t *block = rows[r] + at;
        int16x8_t scales[2];
        neon_scales(f, block, scales);
        m[r] = vdupq_n_s32(0);
        if (f.m_at)
            m[r] = neon_dot16(m[r], scales[1], vld1q_s16(sums));
        else if (f.offset)
            m[r] = neon_dot16(neon_dot16(m[r], scales[0], vld1q_s16(sums)), scales[1],
                              vld1q_s16(sums + 8));
        s[r] = neon_half_row(f, block, 0, x.q + 256 * i, scales, vdupq_n_s32(0));
        s[r] = neon_half_row(f, block, 1, x.q + 256 * i + 128, scales, s[r]);
    }
    int32x4_t isum = neon_join(s), msum = neon_join(m);
    if (f.offset)
        isum = vmlsq_n_s32(isum, msum, f.offset);
    acc = vfmaq_f32(acc, vmulq_n_f32(neon_halves(rows, at + f.d_at), x.d[i]), vcvtq_f32_s32(isum));
    if (f.m_at)
        acc = vfmsq_f32(acc, vmulq_n_f32(neon_halves(rows, at + f.m_at), x.d[i]),
                        vcvtq_f32_s32(msum));
    return acc;
}

SL_INLINE void neon_multiply_one(const neon_product *p, neon_form f)
{
    for (size_t row = 0; row < p->n_rows; row += 4) {
        const uint8_t *rows[4];
        neon_rows_at(p, row, 4, rows);
        float32x4_t acc = vdupq_n_f32(0.0f);
        for (size_t i = 0; i < p->n_cols / f.values; i++)
            acc = f.values == 32
                      ? neon_single32(f, rows, i, sl_act_q8_32_row(p->act, p->n_cols), acc)
                      : neon_single256(f, rows, i, sl_act_q8_256_row(p->act, p->n_cols), acc);
        neon_store_rows(p->y + row, acc, p->n_rows - row);
    }
}

/* ---- Several: tiles of eight rows ----
 *
 * q: eight vectors per 16 columns. SDOT: [4 columns each][rows 0-3, rows 4-7], four bytes a lane.
 * SMMLA: [8 columns each][two rows each], eight bytes a row. [2]: rows 0-3, rows 4-7. */

enum { NEON_COLS = 4 }; /* activation rows at a time */

typedef struct neon_tile32 {
    int8x16_t q[16];
    float32x4_t d[2], m[2];
} neon_tile32;

typedef struct neon_tile256 {
    int8x16_t q[128];
    int32x4_t scale[16][2]; /* packed ones: 8 */
    int16x8_t min[8];
    float32x4_t d[2], m[2];
} neon_tile256;

_Static_assert(sizeof(neon_tile32) <= 32 * SL_MUL_SCRATCH_PER_COL &&
                   sizeof(neon_tile256) <= 256 * SL_MUL_SCRATCH_PER_COL,
               "tiles of eight rows fit the scratch");

/* Words (four columns) of four rows, or pairs of rows: 16 columns of eight rows to their place. */
#if defined(__ARM_FEATURE_MATMUL_INT8)
SL_INLINE void neon_put(const int8x16_t row[8], int8x16_t q[8])
{
    SL_UNROLL
    for (int pair = 0; pair < 4; pair++) {
        const int64x2_t a = vreinterpretq_s64_s8(row[2 * pair]);
        const int64x2_t b = vreinterpretq_s64_s8(row[2 * pair + 1]);
        q[pair] = vreinterpretq_s8_s64(vtrn1q_s64(a, b));
        q[4 + pair] = vreinterpretq_s8_s64(vtrn2q_s64(a, b));
    }
}

/* s[c][h] += 16 * n columns of the tile times activation rows x[c]. */
SL_INLINE void neon_sum(const int8x16_t *q, const int8_t *const x[NEON_COLS], int n_x, int n,
                        int32x4_t s[NEON_COLS][2])
{
    int32x4_t acc[NEON_COLS / 2][4];
    const int n_pairs = (n_x + 1) / 2;
    SL_UNROLL
    for (int c = 0; c < n_pairs; c++)
        SL_UNROLL
    for (int pair = 0; pair < 4; pair++)
        acc[c][pair] = vdupq_n_s32(0);
    SL_UNROLL
    for (int k = 0; k < n; k++) {
        SL_UNROLL
        for (int c = 0; c < n_pairs; c++) {
            /* an odd one goes twice */
            const int second = 2 * c + 1 < n_x ? 2 * c + 1 : 2 * c;
            const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(x[2 * c] + 16 * k));
            const int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(x[second] + 16 * k));
            const int8x16_t low = vreinterpretq_s8_s64(vtrn1q_s64(a, b));
            const int8x16_t high = vreinterpretq_s8_s64(vtrn2q_s64(a, b));
            SL_UNROLL
            for (int pair = 0; pair < 4; pair++) {
                acc[c][pair] = vmmlaq_s32(acc[c][pair], q[8 * k + pair], low);
                acc[c][pair] = vmmlaq_s32(acc[c][pair], q[8 * k + 4 + pair], high);
            }
        }
    }
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int h = 0; h < 2; h++) {
        const int32x4_t a = acc[c / 2][2 * h], b = acc[c / 2][2 * h + 1];
        s[c][h] = c % 2 ? vuzp2q_s32(a, b) : vuzp1q_s32(a, b);
    }
}
#else
SL_INLINE void neon_put(const int8x16_t row[8], int8x16_t q[8])
{
    SL_UNROLL
    for (int h = 0; h < 2; h++) {
        const int32x4_t a = vreinterpretq_s32_s8(row[4 * h]);
        const int32x4_t b = vreinterpretq_s32_s8(row[4 * h + 1]);
        const int32x4_t c = vreinterpretq_s32_s8(row[4 * h + 2]);
        const int32x4_t d = vreinterpretq_s32_s8(row[4 * h + 3]);
        const int64x2_t ab02 = vreinterpretq_s64_s32(vtrn1q_s32(a, b));
        const int64x2_t ab13 = vreinterpretq_s64_s32(vtrn2q_s32(a, b));
        const int64x2_t cd02 = vreinterpretq_s64_s32(vtrn1q_s32(c, d));
        const int64x2_t cd13 = vreinterpretq_s64_s32(vtrn2q_s32(c, d));
        q[h] = vreinterpretq_s8_s64(vtrn1q_s64(ab02, cd02));
        q[2 + h] = vreinterpretq_s8_s64(vtrn1q_s64(ab13, cd13));
        q[4 + h] = vreinterpretq_s8_s64(vtrn2q_s64(ab02, cd02));
        q[6 + h] = vreinterpretq_s8_s64(vtrn2q_s64(ab13, cd13));
    }
}

/* s[c][h] = 16 * n columns of the tile times activation rows x[c]. */
SL_INLINE void neon_sum(const int8x16_t *q, const int8_t *const x[NEON_COLS], int n_x, int n,
                        int32x4_t s[NEON_COLS][2])
{
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        s[c][0] = s[c][1] = vdupq_n_s32(0);
    SL_UNROLL
    for (int k = 0; k < n; k++, q += 8) {
        int8x16_t v[NEON_COLS];
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            v[c] = vld1q_s8(x[c] + 16 * k);
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            SL_UNROLL
        for (int h = 0; h < 2; h++) {
            s[c][h] = vdotq_laneq_s32(s[c][h], q[h], v[c], 0);
            s[c][h] = vdotq_laneq_s32(s[c][h], q[2 + h], v[c], 1);
            s[c][h] = vdotq_laneq_s32(s[c][h], q[4 + h], v[c], 2);
            s[c][h] = vdotq_laneq_s32(s[c][h], q[6 + h], v[c], 3);
        }
    }
}
#endif

/* n groups of 16 columns, already opened: [row][group], to q less the offset. */
SL_INLINE void neon_put_all(neon_form f, int8x16_t row[8][8], int n, int8x16_t *q)
{
    for (int k = 0; k < n; k++) {
        int8x16_t v[8];
        SL_UNROLL
        for (int r = 0; r < 8; r++)
            v[r] = vsubq_s8(row[r][k], vdupq_n_s8((int8_t)f.offset));
        neon_put(v, q + 8 * k);
    }
}

SL_INLINE void neon_fill32(neon_form f, const uint8_t *const rows[8], size_t i, neon_tile32 *t)
{
    int8x16_t q[8][8];
    SL_UNROLL
    for (int r = 0; r < 8; r++)
        f.open(rows[r] + i * f.bytes, 0, q[r]);
    neon_put_all(f, q, 2, t->q);
    for (int h = 0; h < 2; h++) {
        t->d[h] = neon_halves(rows + 4 * h, i * f.bytes + f.d_at);
        if (f.m_at)
            t->m[h] = neon_halves(rows + 4 * h, i * f.bytes + f.m_at);
    }
}

SL_INLINE void neon_fill256(neon_form f, const uint8_t *const rows[8], size_t i, neon_tile256 *t)
{
    int8x16_t q[8][8];
    int16_t min[8][8];
    int32_t scale[16][8];
    for (int half = 0; half < 2; half++) {
        for (int r = 0; r < 8; r++)
            f.open(rows[r] + i * f.bytes, half, q[r]);
        neon_put_all(f, q, 8, t->q + 64 * half);
    }
    for (int r = 0; r < 8; r++) {
        int16_t s[16];
        int16x8_t v[2];
        neon_scales(f, rows[r] + i * f.bytes, v);
        vst1q_s16(s, v[0]);
        vst1q_s16(s + 8, v[1]);
        for (int j = 0; j < (f.scales_at ? 16 : 8); j++)
            scale[j][r] = s[j];
        for (int j = 0; j < (f.m_at ? 8 : 0); j++)
            min[j][r] = s[8 + j];
    }
    memcpy(t->scale, scale, f.scales_at ? sizeof scale : sizeof scale / 2);
    if (f.m_at)
        memcpy(t->min, min, sizeof min);
    for (int h = 0; h < 2; h++) {
        t->d[h] = neon_halves(rows + 4 * h, i * f.bytes + f.d_at);
        if (f.m_at)
            t->m[h] = neon_halves(rows + 4 * h, i * f.bytes + f.m_at);
    }
}

/* acc[c][h] += block i of the tile times n_x activation rows. */
SL_INLINE void neon_multiply32(neon_form f, const neon_tile32 *t, const sl_act_q8_32 *x, int n_x,
                               size_t i, float32x4_t acc[NEON_COLS][2])
{
    const int8_t *q[NEON_COLS];
    int32x4_t s[NEON_COLS][2];
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        q[c] = x[c].q + 32 * i;
    neon_sum(t->q, q, n_x, 2, s);
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        const float dx = x[c].d[i];
        SL_UNROLL
        for (int h = 0; h < 2; h++) {
            acc[c][h] = vfmaq_f32(acc[c][h], vmulq_n_f32(t->d[h], dx), vcvtq_f32_s32(s[c][h]));
            if (f.m_at)
                acc[c][h] =
                    vfmaq_f32(acc[c][h], vmulq_n_f32(t->m[h], dx), vdupq_n_f32((float)x[c].sum[i]));
        }
    }
}

SL_INLINE void neon_multiply256(neon_form f, const neon_tile256 *t, const sl_act_q8_256 *x, int n_x,
                                size_t i, float32x4_t acc[NEON_COLS][2])
{
    const int n_scales = f.scales_at ? 16 : 8, sixteens = 16 / n_scales;
    int32x4_t isum[NEON_COLS][2], s[NEON_COLS][2];
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        isum[c][0] = isum[c][1] = vdupq_n_s32(0);
    for (int j = 0; j < n_scales; j++) {
        const int8_t *q[NEON_COLS];
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            q[c] = x[c].q + 256 * i + (size_t)(16 * sixteens * j);
        neon_sum(t->q + 8 * sixteens * j, q, n_x, sixteens, s);
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            SL_UNROLL
        for (int h = 0; h < 2; h++)
            isum[c][h] = vmlaq_s32(isum[c][h], s[c][h], t->scale[j][h]);
    }
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        const float dx = x[c].d[i];
        SL_UNROLL
        for (int h = 0; h < 2; h++)
            acc[c][h] = vfmaq_f32(acc[c][h], vmulq_n_f32(t->d[h], dx), vcvtq_f32_s32(isum[c][h]));
        if (!f.m_at)
            continue;
        int32x4_t m[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
        SL_UNROLL
        for (int j = 0; j < 8; j++) {
            const int16_t sum = x[c].sum32[8 * i + (size_t)j];
            m[0] = vmlal_n_s16(m[0], vget_low_s16(t->min[j]), sum);
            m[1] = vmlal_high_n_s16(m[1], t->min[j], sum);
        }
        SL_UNROLL
        for (int h = 0; h < 2; h++)
            acc[c][h] = vfmsq_f32(acc[c][h], vmulq_n_f32(t->m[h], dx), vcvtq_f32_s32(m[h]));
    }
}

/* The eight opened rows times activation rows b .. b+n_x-1. */
SL_INLINE void neon_pass(const neon_product *p, neon_form f, size_t row, size_t b, int n_x)
{
    const char *act = p->act + b * p->act_bytes;
    float32x4_t acc[NEON_COLS][2];
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        acc[c][0] = acc[c][1] = vdupq_n_f32(0.0f);
    if (f.values == 32) {
        sl_act_q8_32 x[NEON_COLS];
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            x[c] = sl_act_q8_32_row(act + (size_t)c * p->act_bytes, p->n_cols);
        for (size_t i = 0; i < p->n_cols / 32; i++)
            neon_multiply32(f, (const neon_tile32 *)p->scratch + i, x, n_x, i, acc);
    } else {
        sl_act_q8_256 x[NEON_COLS];
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            x[c] = sl_act_q8_256_row(act + (size_t)c * p->act_bytes, p->n_cols);
        for (size_t i = 0; i < p->n_cols / 256; i++)
            neon_multiply256(f, (const neon_tile256 *)p->scratch + i, x, n_x, i, acc);
    }
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int h = 0; h < 2; h++) {
        const size_t at = row + 4 * (size_t)h;
        if (at < p->n_rows)
            neon_store_rows(p->y + (b + (size_t)c) * p->y_stride + at, acc[c][h], p->n_rows - at);
    }
}

SL_INLINE void neon_multiply_many(const neon_product *p, neon_form f)
{
    for (size_t row = 0; row < p->n_rows; row += 8) {
        const uint8_t *rows[8];
        neon_rows_at(p, row, 8, rows);
        for (size_t i = 0; i < p->n_cols / f.values; i++) {
            if (f.values == 32)
                neon_fill32(f, rows, i, (neon_tile32 *)p->scratch + i);
            else
                neon_fill256(f, rows, i, (neon_tile256 *)p->scratch + i);
        }
        size_t b = 0;
        for (; b + 4 <= p->n_batch; b += 4)
            neon_pass(p, f, row, b, 4);
        if (p->n_batch - b == 3)
            neon_pass(p, f, row, b, 3);
        else if (p->n_batch - b == 2)
            neon_pass(p, f, row, b, 2);
        else if (p->n_batch - b == 1)
            neon_pass(p, f, row, b, 1);
    }
}

#define NEON_MUL(type, open_block, ...)                                                            \
    SL_INLINE void open_##type(const uint8_t *block, int half, int8x16_t *q)                       \
    {                                                                                              \
        open_block;                                                                                \
    }                                                                                              \
    static void mul_##type(SL_MUL_ARGS)                                                            \
    {                                                                                              \
        const neon_product p = {w,         row_bytes, n_rows, n_cols,   act,                       \
                                act_bytes, n_batch,   y,      y_stride, scratch};                  \
        const neon_form f = {open_##type, __VA_ARGS__};                                            \
        if (n_batch == 1)                                                                          \
            neon_multiply_one(&p, f);                                                              \
        else                                                                                       \
            neon_multiply_many(&p, f);                                                             \
    }
#define NEON_MUL_32(type, ...)                                                                     \
    NEON_MUL(type, neon_open_##type(block, q), .values = 32, .bytes = sizeof(sl_##type),           \
             __VA_ARGS__)
#define NEON_MUL_256(type, ...)                                                                    \
    NEON_MUL(type, neon_open_##type(block, half, q), .values = 256, .bytes = sizeof(sl_##type),    \
             __VA_ARGS__)
NEON_MUL_32(q8_0, .d_at = 0)
NEON_MUL_32(q4_0, .d_at = 0, .offset = 8)
NEON_MUL_32(q4_1, .d_at = 0, .m_at = 2)
NEON_MUL_32(q5_0, .d_at = 0, .offset = 16)
NEON_MUL_32(q5_1, .d_at = 0, .m_at = 2)
NEON_MUL_256(q4_k, .d_at = 0, .m_at = 2)
NEON_MUL_256(q5_k, .d_at = 0, .m_at = 2)
NEON_MUL_256(q6_k, .d_at = 208, .offset = 32, .scales_at = 192)

static inline void neon_fill_products(sl_kernels *k)
{
    k->mul[SL_W_Q8_0] = mul_q8_0;
    k->mul[SL_W_Q4_0] = mul_q4_0;
    k->mul[SL_W_Q4_1] = mul_q4_1;
    k->mul[SL_W_Q5_0] = mul_q5_0;
    k->mul[SL_W_Q5_1] = mul_q5_1;
    k->mul[SL_W_Q4_K] = mul_q4_k;
    k->mul[SL_W_Q5_K] = mul_q5_k;
    k->mul[SL_W_Q6_K] = mul_q6_k;
}

#endif
