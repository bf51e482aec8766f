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
typedef void neon_open_fn(const uint8_t *block, int part, int8x16_t *q);
typedef void neon_scales_fn(const uint8_t *block, int16x8_t scale[2], int16x8_t min[2]);
typedef float neon_d_fn(const uint8_t *block, int i);

/* Where the scale of a block of values is. */
typedef enum neon_d_kind {
    NEON_D_HALF,   /* f16 in the block, at d_at; and at m_at */
    NEON_D_BLOCK,  /* in the block: d(block, i) */
    NEON_D_AFFINE, /* beside the blocks: scale and bias */
    NEON_D_E8M0    /* beside the blocks, bytes */
} neon_d_kind;

typedef struct neon_form {
    neon_open_fn *open;
    size_t values, bytes; /* of a block */
    size_t d_at, m_at;    /* where its f16 are; m_at 0: no minimum (dmin) */
    int offset;           /* to take off every value; int8 has room */
    int sum_offset;       /* the same, but times the sums of the activations */
    size_t parts;         /* of 32: how many a block has, 0 for one */
    bool halves;          /* each 16 of 32 values have a scale of their own, in the place of m */
    neon_d_kind d_kind;
    neon_d_fn *d;
    float factor;           /* times the f16 at d_at, a power of two; 0 for one */
    neon_scales_fn *scales; /* of 256 */
    int n_scales, n_mins;   /* 8 or 16; n_mins 0: none */
} neon_form;

typedef struct neon_product {
    const uint8_t *w;
    size_t row_bytes, n_rows, n_cols;
    const char *act;
    size_t act_bytes, n_batch;
    float *y;
    size_t y_stride;
    void *scratch;
    const sl_scales *beside;
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

/* Block i of a row of 32 values a step; part: which 32 of it. */
SL_INLINE const uint8_t *neon_block(neon_form f, const uint8_t *row, size_t i, int *part)
{
    const size_t parts = f.parts ? f.parts : 1;
    *part = (int)(i % parts);
    return row + i / parts * f.bytes;
}

SL_INLINE float neon_beside(neon_form f, const sl_scales *s, size_t row, size_t i, bool second)
{
    const char *scales = (const char *)(second ? s->bias : s->scale) + sl_scales_at(s, row);
    const size_t group = 32 * i / s->group;
    return f.d_kind == NEON_D_E8M0 ? sl_e8m0_half(((const uint8_t *)(const void *)scales)[group])
                                   : sl_scale_load(s->type, scales, group);
}

/* What step i of four rows from row first up is multiplied with; second: minimum, bias, or the
 * scale of the second half. */
SL_INLINE float32x4_t neon_factors(const neon_product *p, neon_form f, const uint8_t *const rows[4],
                                   size_t first, size_t i, bool second)
{
    float d[4];
    if (f.d_kind == NEON_D_HALF) {
        int part;
        const size_t at = (size_t)(neon_block(f, rows[0], i, &part) - rows[0]);
        const float32x4_t v = neon_halves(rows, at + (second ? f.m_at : f.d_at));
        return f.factor != 0.0f ? vmulq_n_f32(v, f.factor) : v;
    }
    SL_UNROLL
    for (size_t r = 0; r < 4; r++) {
        int part;
        const uint8_t *block = neon_block(f, rows[r], i, &part);
        const size_t row = first + r < p->n_rows ? first + r : p->n_rows - 1;
        d[r] = f.d_kind == NEON_D_BLOCK ? f.d(block, f.halves ? 2 * part + second : part)
                                        : neon_beside(f, p->beside, row, i, second);
    }
    return vld1q_f32(d);
}

/* Whether sums of the activations are added after each block. */
SL_INLINE bool neon_has_m(neon_form f)
{
    return f.m_at || f.d_kind == NEON_D_AFFINE;
}

/* Lane r: the sum of the lanes of s[r]. */
SL_INLINE int32x4_t neon_join(const int32x4_t s[4])
{
    return vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
}

/* ---- One activation row ---- */

/* acc + 32 values of four rows from row first up */
SL_INLINE float32x4_t neon_single32(const neon_product *p, neon_form f,
                                    const uint8_t *const rows[4], size_t first, size_t i,
                                    sl_act_q8_32 x, float32x4_t acc)
{
    const int8x16_t x0 = vld1q_s8(x.q + 32 * i), x1 = vld1q_s8(x.q + 32 * i + 16);
    int32x4_t s[4], u[4];
    SL_UNROLL
    for (int r = 0; r < 4; r++) {
        int8x16_t q[2];
        int part;
        const uint8_t *block = neon_block(f, rows[r], i, &part);
        f.open(block, part, q);
        s[r] = vdotq_s32(vdupq_n_s32(0), q[0], x0);
        u[r] = vdotq_s32(f.halves ? vdupq_n_s32(0) : s[r], q[1], x1);
    }
    int32x4_t isum = neon_join(f.halves ? s : u);
    if (f.offset + f.sum_offset)
        isum = vsubq_s32(isum, vdupq_n_s32((f.offset + f.sum_offset) * x.sum[i]));
    const float32x4_t d = vmulq_n_f32(neon_factors(p, f, rows, first, i, false), x.d[i]);
    acc = vfmaq_f32(acc, d, vcvtq_f32_s32(isum));
    if (f.halves || neon_has_m(f)) {
        const float32x4_t m = vmulq_n_f32(neon_factors(p, f, rows, first, i, true), x.d[i]);
        acc = vfmaq_f32(acc, m,
                        f.halves ? vcvtq_f32_s32(neon_join(u)) : vdupq_n_f32((float)x.sum[i]));
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
        if (f.n_scales == 16 || j % 2 == 0)
            s[f.n_scales == 16 ? j : j / 2] = vdotq_s32(vdupq_n_s32(0), q[j], v);
        else
            s[j / 2] = vdotq_s32(s[j / 2], q[j], v);
    }
    if (f.n_scales == 16) {
        acc = neon_scale4(acc, s, vmovl_s16(vget_low_s16(scales[half])));
        return neon_scale4(acc, s + 4, vmovl_high_s16(scales[half]));
    }
    return neon_scale4(acc, s,
                       half ? vmovl_high_s16(scales[0]) : vmovl_s16(vget_low_s16(scales[0])));
}

/* Rows one after the other, in a loop that is not unrolled: gcc would open all four first and run
 * out of registers (Q6_K: 220 instructions a row and block, a quarter of them spills; 148 so). */
SL_INLINE float32x4_t neon_single256(const neon_product *p, neon_form f,
                                     const uint8_t *const rows[4], size_t first, size_t i,
                                     sl_act_q8_256 x, float32x4_t acc)
{
    const int n_sums = f.n_mins ? f.n_mins : f.n_scales;
    const int16_t *sums = n_sums == 8 ? x.sum32 + 8 * i : x.sum16 + 16 * i;
    int32x4_t s[4], m[4];
    SL_ROLLED
    for (int r = 0; r < 4; r++) {
        const uint8_t *block = rows[r] + i * f.bytes;
        int16x8_t scales[2], mins[2];
        f.scales(block, scales, mins);
        const int16x8_t *by = f.n_mins ? mins : scales;
        m[r] = vdupq_n_s32(0);
        if (f.n_mins || f.offset)
            m[r] = neon_dot16(m[r], by[0], vld1q_s16(sums));
        if ((f.n_mins || f.offset) && n_sums == 16)
            m[r] = neon_dot16(m[r], by[1], vld1q_s16(sums + 8));
        s[r] = neon_half_row(f, block, 0, x.q + 256 * i, scales, vdupq_n_s32(0));
        s[r] = neon_half_row(f, block, 1, x.q + 256 * i + 128, scales, s[r]);
    }
    int32x4_t isum = neon_join(s), msum = neon_join(m);
    if (f.offset)
        isum = vmlsq_n_s32(isum, msum, f.offset);
    const float32x4_t d = vmulq_n_f32(neon_factors(p, f, rows, first, i, false), x.d[i]);
    acc = vfmaq_f32(acc, d, vcvtq_f32_s32(isum));
    if (f.n_mins)
        acc = vfmsq_f32(acc, vmulq_n_f32(neon_factors(p, f, rows, first, i, true), x.d[i]),
                        vcvtq_f32_s32(msum));
    return acc;
}

SL_INLINE void neon_multiply_one(const neon_product *p, neon_form f)
{
    const size_t step = f.values == 256 ? 256 : 32;
    for (size_t row = 0; row < p->n_rows; row += 4) {
        const uint8_t *rows[4];
        neon_rows_at(p, row, 4, rows);
        float32x4_t acc = vdupq_n_f32(0.0f);
        for (size_t i = 0; i < p->n_cols / step; i++)
            acc =
                step == 32
                    ? neon_single32(p, f, rows, row, i, sl_act_q8_32_row(p->act, p->n_cols), acc)
                    : neon_single256(p, f, rows, row, i, sl_act_q8_256_row(p->act, p->n_cols), acc);
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
    int32x4_t scale[16][2];
    int16x8_t min[16];
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

SL_INLINE void neon_fill32(const neon_product *p, neon_form f, const uint8_t *const rows[8],
                           size_t first, size_t i, neon_tile32 *t)
{
    int8x16_t q[8][8];
    SL_UNROLL
    for (int r = 0; r < 8; r++) {
        int part;
        const uint8_t *block = neon_block(f, rows[r], i, &part);
        f.open(block, part, q[r]);
    }
    neon_put_all(f, q, 2, t->q);
    for (size_t h = 0; h < 2; h++) {
        t->d[h] = neon_factors(p, f, rows + 4 * h, first + 4 * h, i, false);
        if (f.halves || neon_has_m(f))
            t->m[h] = neon_factors(p, f, rows + 4 * h, first + 4 * h, i, true);
    }
}

SL_INLINE void neon_fill256(const neon_product *p, neon_form f, const uint8_t *const rows[8],
                            size_t first, size_t i, neon_tile256 *t)
{
    int8x16_t q[8][8];
    int16_t min[16][8];
    int32_t scale[16][8];
    for (int half = 0; half < 2; half++) {
        for (int r = 0; r < 8; r++)
            f.open(rows[r] + i * f.bytes, half, q[r]);
        neon_put_all(f, q, 8, t->q + 64 * half);
    }
    for (int r = 0; r < 8; r++) {
        int16_t s[16], m[16];
        int16x8_t scales[2], mins[2];
        f.scales(rows[r] + i * f.bytes, scales, mins);
        for (int k = 0; k < f.n_scales / 8; k++)
            vst1q_s16(s + 8 * k, scales[k]);
        for (int k = 0; k < f.n_mins / 8; k++)
            vst1q_s16(m + 8 * k, mins[k]);
        for (int j = 0; j < f.n_scales; j++)
            scale[j][r] = s[j];
        for (int j = 0; j < f.n_mins; j++)
            min[j][r] = m[j];
    }
    memcpy(t->scale, scale, (size_t)f.n_scales * sizeof *scale);
    if (f.n_mins)
        memcpy(t->min, min, (size_t)f.n_mins * sizeof *min);
    for (size_t h = 0; h < 2; h++) {
        t->d[h] = neon_factors(p, f, rows + 4 * h, first + 4 * h, i, false);
        if (f.n_mins)
            t->m[h] = neon_factors(p, f, rows + 4 * h, first + 4 * h, i, true);
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
    neon_sum(t->q, q, n_x, f.halves ? 1 : 2, s);
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        const float dx = x[c].d[i];
        const int32x4_t off = vdupq_n_s32(f.sum_offset * x[c].sum[i]);
        SL_UNROLL
        for (int h = 0; h < 2; h++) {
            const int32x4_t isum = f.sum_offset ? vsubq_s32(s[c][h], off) : s[c][h];
            acc[c][h] = vfmaq_f32(acc[c][h], vmulq_n_f32(t->d[h], dx), vcvtq_f32_s32(isum));
            if (neon_has_m(f))
                acc[c][h] =
                    vfmaq_f32(acc[c][h], vmulq_n_f32(t->m[h], dx), vdupq_n_f32((float)x[c].sum[i]));
        }
    }
    if (!f.halves)
        return;
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        q[c] += 16;
    neon_sum(t->q + 8, q, n_x, 1, s);
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int h = 0; h < 2; h++)
        acc[c][h] = vfmaq_f32(acc[c][h], vmulq_n_f32(t->m[h], x[c].d[i]), vcvtq_f32_s32(s[c][h]));
}

SL_INLINE void neon_multiply256(neon_form f, const neon_tile256 *t, const sl_act_q8_256 *x, int n_x,
                                size_t i, float32x4_t acc[NEON_COLS][2])
{
    const int n_scales = f.n_scales, sixteens = 16 / n_scales;
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
        if (!f.n_mins)
            continue;
        int32x4_t m[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
        SL_UNROLL
        for (int j = 0; j < f.n_mins; j++) {
            const int16_t sum =
                f.n_mins == 8 ? x[c].sum32[8 * i + (size_t)j] : x[c].sum16[16 * i + (size_t)j];
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
    if (f.values != 256) {
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
        for (size_t i = 0; f.values != 256 && i < p->n_cols / 32; i++)
            neon_fill32(p, f, rows, row, i, (neon_tile32 *)p->scratch + i);
        for (size_t i = 0; f.values == 256 && i < p->n_cols / 256; i++)
            neon_fill256(p, f, rows, row, i, (neon_tile256 *)p->scratch + i);
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
    SL_INLINE void open_##type(const uint8_t *block, int part, int8x16_t *q)                       \
    {                                                                                              \
        open_block;                                                                                \
    }                                                                                              \
    static void mul_##type(SL_MUL_ARGS)                                                            \
    {                                                                                              \
        const neon_product p = {w,       row_bytes, n_rows,   n_cols,  act,   act_bytes,           \
                                n_batch, y,         y_stride, scratch, beside};                    \
        const neon_form f = {open_##type, __VA_ARGS__};                                            \
        if (n_batch == 1)                                                                          \
            neon_multiply_one(&p, f);                                                              \
        else                                                                                       \
            neon_multiply_many(&p, f);                                                             \
    }
#define NEON_MUL_32(type, ...)                                                                     \
    NEON_MUL(type, neon_open_##type(block, q), .values = 32, .bytes = sizeof(sl_##type),           \
             __VA_ARGS__)
#define NEON_MUL_PARTS(type, n, ...)                                                               \
    NEON_MUL(type, neon_open_##type(block, part, q), .values = 32 * (n), .parts = (n),             \
             .bytes = sizeof(sl_##type), __VA_ARGS__)
#define NEON_MUL_BESIDE(type, n, ...)                                                              \
    NEON_MUL(type, neon_open_##type(block, q), .values = 32, .bytes = (n), __VA_ARGS__)
#define NEON_MUL_256(type, scales_of, n, ...)                                                      \
    NEON_MUL(type, neon_open_##type(block, part, q), .values = 256, .bytes = sizeof(sl_##type),    \
             .scales = neon_scales_##scales_of, .n_scales = (n), __VA_ARGS__)

#endif
