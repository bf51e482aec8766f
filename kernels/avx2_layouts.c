/* Products with int8 activations and weights whose scales stand beside the blocks, AVX2. Eight rows
 * lie in lanes, as in avx2_quant.c, so each output is computed exactly as scalar_layouts.c says.
 *
 * Pair sums of _mm256_maddubs_epi16 must not saturate at 32767. With |q of x| <= 127:
 *
 *   type     weight byte          one pair             sums in 16 bits   most
 *   MLX4     0 .. 15              2 * 15 * 127 = 3810         8          30480
 *   MXFP4    0 .. 24 (12 + w)     2 * 24 * 127 = 6096         4          24384
 *   MLX8     0 .. 128 (|w - 128|) 2 * 128 * 127 = 32512       1          32512
 *
 * The offsets 12 and 128 are corrected afterwards, times the sums of q. */
#include "avx2_blocks.h"
#include "levels.h"
#include "scales.h"

typedef struct form {
    sl_weight type;
    int n_in_16;    /* pair sums that fit 16 bits */
    int is_signed;  /* weight bytes are signed */
    int32_t offset; /* a weight is its byte plus this */
    int has_bias;
} form;

typedef struct product {
    const void *w;
    size_t row_bytes, n_rows, n_cols;
    const char *act;
    size_t act_bytes, n_batch;
    float *y;
    size_t y_stride;
    uint8_t *scratch;
    const sl_scales *s;
} product;

enum { MAX_TILES = 2, MAX_COLS = 4, TILE_BYTES = 8 * sizeof(__m256i) };

/* Sixteen opened rows, and the scales and biases of each group as eight floats, twice. */
_Static_assert(2 * TILE_BYTES + 4 * 8 * sizeof(float) <= 32 * SL_MUL_SCRATCH_PER_COL,
               "sixteen rows fit the scratch");

/* ---- Scales: [group][row], as floats ---- */

SL_INLINE __m256 eight_scales(sl_weight weight, sl_scale type, const uint8_t *p)
{
    if (weight == SL_W_MXFP4_SPLIT) { /* sl_e8m0_half() */
        const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
        const __m256i one = _mm256_set1_epi32(1);
        const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23);
        const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
        return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(e, one)));
    }
    if (type == SL_SCALE_F32)
        return _mm256_loadu_ps((const void *)p);
    const __m128i half = _mm_loadu_si128((const void *)p);
    if (type == SL_SCALE_F16)
        return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* v[r] lane g becomes v[g] lane r. */
SL_INLINE void transpose8(__m256 v[8])
{
    __m256 a[8], b[8];
    SL_UNROLL
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    SL_UNROLL
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    SL_UNROLL
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

static void open_scales(sl_weight weight, sl_scale type, const sl_rows8 *rows, size_t n_groups,
                        float *out)
{
    const size_t size = sl_scale_size(type);
    size_t g = 0;
    for (; g + 8 <= n_groups; g += 8) {
        __m256 v[8];
        SL_UNROLL
        for (int r = 0; r < 8; r++)
            v[r] = eight_scales(weight, type, rows->p[r] + g * size);
        transpose8(v);
        SL_UNROLL
        for (int k = 0; k < 8; k++)
            _mm256_storeu_ps(out + 8 * (g + (size_t)k), v[k]);
    }
    for (; g < n_groups; g++)
        for (size_t r = 0; r < 8; r++)
            out[8 * g + r] = weight == SL_W_MXFP4_SPLIT ? sl_e8m0_half(rows->p[r][g])
                                                        : sl_scale_load(type, rows->p[r], g);
}

/* Those of rows row .. row+7: scales, then biases. */
SL_INLINE void open_both(const product *p, form f, size_t row, float *out)
{
    const size_t n_groups = p->n_cols / p->s->group;
    const sl_rows8 scale = sl_rows8_at(p->s->scale, p->s->scale_bytes, row, p->n_rows);
    open_scales(f.type, p->s->type, &scale, n_groups, out);
    if (f.has_bias) {
        const sl_rows8 bias = sl_rows8_at(p->s->bias, p->s->scale_bytes, row, p->n_rows);
        open_scales(f.type, p->s->type, &bias, n_groups, out + 8 * n_groups);
    }
}

/* ---- Blocks ---- */

SL_INLINE __m256i code_bytes(sl_weight type, __m256i nibbles)
{
    if (type == SL_W_MLX4)
        return nibbles;
    const __m256i table =
        _mm256_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0, 12, 13, 14, 15,
                         16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    return _mm256_shuffle_epi8(table, nibbles);
}

/* Block i of eight rows: q[k] has four columns of each. Nibbles come as even columns, then odd ones
 * of eight (for activations in that order), or sorted. */
SL_INLINE void open_block(form f, const sl_rows8 *w, size_t i, int sorted, __m256i q[8])
{
    if (f.type == SL_W_MLX8) {
        const __m256i middle = _mm256_set1_epi8((char)0x80);
        sl_words(w, 32 * i, q);
        sl_words(w, 32 * i + 16, q + 4);
        SL_UNROLL
        for (int k = 0; k < 8; k++)
            q[k] = _mm256_xor_si256(q[k], middle);
        return;
    }
    __m256i words[4];
    sl_words(w, 16 * i, words);
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        const __m256i even = code_bytes(f.type, sl_low_nibbles(words[k]));
        const __m256i odd = code_bytes(f.type, sl_high_nibbles(words[k]));
        q[2 * k] = even;
        q[2 * k + 1] = odd;
        if (sorted) {
            const __m256 a = _mm256_castsi256_ps(_mm256_unpacklo_epi8(even, odd));
            const __m256 b = _mm256_castsi256_ps(_mm256_unpackhi_epi8(even, odd));
            q[2 * k] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
            q[2 * k + 1] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
        }
    }
}

/* Columns in the order of unsorted nibbles. */
SL_INLINE void even_then_odd(const int8_t *q, size_t n, uint8_t *out)
{
    const __m256i order = _mm256_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15, 0,
                                           2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    for (size_t i = 0; i < n; i += 32) {
        const __m256i v = _mm256_loadu_si256((const void *)(q + i));
        _mm256_storeu_si256((void *)(out + i), _mm256_shuffle_epi8(v, order));
    }
}

SL_INLINE __m256i multiply_pairs(__m256i w, __m256i x, int is_signed)
{
    return is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                     : _mm256_maddubs_epi16(w, x);
}

/* acc[c][r] += block i of n_tiles tiles times n_x activation rows; d, m: scales and biases. */
SL_INLINE void add_block(form f, const __m256i *const tile[], int n_tiles, const sl_act_q8_32 *x,
                         int n_x, size_t i, const float *const d[], const float *const m[],
                         __m256 acc[MAX_COLS][MAX_TILES])
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i isum[MAX_COLS][MAX_TILES], sum[MAX_COLS][MAX_TILES];
    SL_UNROLL
    for (int k = 0; k < 8; k++) {
        __m256i w[MAX_TILES];
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            w[r] = tile[r][k];
        SL_UNROLL
        for (int c = 0; c < n_x; c++) {
            const __m256i four = sl_broadcast32(x[c].q + 32 * i + 4 * k);
            SL_UNROLL
            for (int r = 0; r < n_tiles; r++) {
                const __m256i pairs = multiply_pairs(w[r], four, f.is_signed);
                sum[c][r] = k % f.n_in_16 ? _mm256_add_epi16(sum[c][r], pairs) : pairs;
                SL_KEEP_ORDER(sum[c][r]);
                if ((k + 1) % f.n_in_16 == 0) {
                    const __m256i s = _mm256_madd_epi16(sum[c][r], ones);
                    isum[c][r] = k + 1 > f.n_in_16 ? _mm256_add_epi32(isum[c][r], s) : s;
                }
            }
        }
    }
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        const __m256 dx = _mm256_set1_ps(x[c].d[i]);
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++) {
            __m256i s = isum[c][r];
            if (f.offset)
                s = _mm256_add_epi32(s, _mm256_set1_epi32(f.offset * x[c].sum[i]));
            acc[c][r] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_loadu_ps(d[r]), dx),
                                        _mm256_cvtepi32_ps(s), acc[c][r]);
            if (f.has_bias)
                acc[c][r] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_loadu_ps(m[r]), dx),
                                            _mm256_set1_ps((float)x[c].sum[i]), acc[c][r]);
        }
    }
}

/* ---- Products ---- */

SL_INLINE void store_rows(float *y, __m256 v, size_t n)
{
    if (n >= 8) {
        _mm256_storeu_ps(y, v);
        return;
    }
    float lanes[8];
    _mm256_storeu_ps(lanes, v);
    memcpy(y, lanes, n * sizeof *y);
}

/* The next eight rows, which are contiguous, a piece with each block of these: eight streams are
 * too many for the hardware. Addresses past the end of the matrix are harmless. */
SL_INLINE void fetch_ahead(uintptr_t next, size_t i, size_t block_bytes)
{
    for (size_t k = 0; k < 8 * block_bytes; k += 64)
        _mm_prefetch((const char *)(next + i * 8 * block_bytes + k), _MM_HINT_T0);
}

/* One activation row: blocks are multiplied as they are opened. Scratch: its columns in the order
 * of the nibbles, then the scales of eight rows. */
SL_INLINE void multiply_one(const product *p, form f)
{
    const size_t block_bytes = f.type == SL_W_MLX8 ? 32 : 16, n_groups = p->n_cols / p->s->group;
    const size_t per_group = p->s->group / 32;
    float *scales = (float *)(void *)(p->scratch + p->n_cols);
    sl_act_q8_32 x = sl_act_q8_32_row(p->act, p->n_cols);
    if (f.type != SL_W_MLX8) {
        even_then_odd(x.q, p->n_cols, p->scratch);
        x.q = (const int8_t *)p->scratch;
    }
    for (size_t row = 0; row < p->n_rows; row += 8) {
        const sl_rows8 rows = sl_rows8_at(p->w, p->row_bytes, row, p->n_rows);
        const uintptr_t next = (uintptr_t)p->w + (row + 8) * p->row_bytes;
        __m256 acc[MAX_COLS][MAX_TILES] = {{_mm256_setzero_ps()}};
        open_both(p, f, row, scales);
        for (size_t g = 0; g < n_groups; g++) {
            const float *d = scales + 8 * g, *m = d + 8 * n_groups;
            for (size_t i = g * per_group; i < (g + 1) * per_group; i++) {
                __m256i q[8];
                const __m256i *const tile = q;
                fetch_ahead(next, i, block_bytes);
                open_block(f, &rows, i, 0, q);
                add_block(f, &tile, 1, &x, 1, i, &d, &m, acc);
            }
        }
        store_rows(p->y + row, acc[0][0], p->n_rows - row);
    }
}

/* Scratch: tiles [block][half], then scales and biases of each half. */
SL_INLINE float *scales_of(const product *p, size_t half)
{
    float *first = (float *)(void *)(p->scratch + p->n_cols / 32 * 2 * TILE_BYTES);
    return first + half * 16 * (p->n_cols / p->s->group);
}

SL_INLINE void open_sixteen(const product *p, form f, size_t row)
{
    const size_t block_bytes = f.type == SL_W_MLX8 ? 32 : 16;
    __m256i *tiles = (__m256i *)(void *)p->scratch;
    for (size_t half = 0; half < 2; half++) {
        const size_t first = row + 8 * half;
        const sl_rows8 rows = sl_rows8_at(p->w, p->row_bytes, first, p->n_rows);
        const uintptr_t next = (uintptr_t)p->w + (first + 8) * p->row_bytes;
        open_both(p, f, first, scales_of(p, half));
        for (size_t i = 0; i < p->n_cols / 32; i++) {
            fetch_ahead(next, i, block_bytes);
            open_block(f, &rows, i, 1, tiles + 8 * (2 * i + half));
        }
    }
}

/* The sixteen opened rows times activation rows b .. b+n_x-1. */
SL_INLINE void pass_opened(const product *p, form f, size_t row, size_t b, int n_x)
{
    const size_t n_groups = p->n_cols / p->s->group, per_group = p->s->group / 32;
    const __m256i *tiles = (const __m256i *)(const void *)p->scratch;
    const float *scales[2] = {scales_of(p, 0), scales_of(p, 1)};
    sl_act_q8_32 x[MAX_COLS];
    __m256 acc[MAX_COLS][MAX_TILES];
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        x[c] = sl_act_q8_32_row(p->act + (b + (size_t)c) * p->act_bytes, p->n_cols);
        acc[c][0] = acc[c][1] = _mm256_setzero_ps();
    }
    for (size_t g = 0; g < n_groups; g++) {
        const float *d[2] = {scales[0] + 8 * g, scales[1] + 8 * g};
        const float *m[2] = {d[0] + 8 * n_groups, d[1] + 8 * n_groups};
        for (size_t i = g * per_group; i < (g + 1) * per_group; i++) {
            const __m256i *tile[2] = {tiles + 16 * i, tiles + 16 * i + 8};
            add_block(f, tile, 2, x, n_x, i, d, m, acc);
        }
    }
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        float *y = p->y + (b + (size_t)c) * p->y_stride + row;
        store_rows(y, acc[c][0], p->n_rows - row);
        if (row + 8 < p->n_rows)
            store_rows(y + 8, acc[c][1], p->n_rows - row - 8);
    }
}

/* Several activation rows: sixteen weight rows are opened once, into scratch. */
SL_INLINE void multiply_many(const product *p, form f)
{
    for (size_t row = 0; row < p->n_rows; row += 16) {
        open_sixteen(p, f, row);
        size_t b = 0;
        for (; b + 4 <= p->n_batch; b += 4)
            pass_opened(p, f, row, b, 4);
        if (p->n_batch - b == 3)
            pass_opened(p, f, row, b, 3);
        else if (p->n_batch - b == 2)
            pass_opened(p, f, row, b, 2);
        else if (p->n_batch - b == 1)
            pass_opened(p, f, row, b, 1);
    }
}

#define MUL(name, ...)                                                                             \
    static void mul_##name(SL_MUL_ARGS)                                                            \
    {                                                                                              \
        const product p = {w,       row_bytes, n_rows,   n_cols,  act,   act_bytes,                \
                           n_batch, y,         y_stride, scratch, beside};                         \
        const form f = {__VA_ARGS__};                                                              \
        if (n_batch == 1)                                                                          \
            multiply_one(&p, f);                                                                   \
        else if (n_batch)                                                                          \
            multiply_many(&p, f);                                                                  \
    }
MUL(mlx4, .type = SL_W_MLX4, .n_in_16 = 8, .has_bias = 1)
MUL(mlx8, .type = SL_W_MLX8, .n_in_16 = 1, .is_signed = 1, .offset = 128, .has_bias = 1)
MUL(mxfp4, .type = SL_W_MXFP4_SPLIT, .n_in_16 = 4, .offset = -12)

void sl_kernels_fill_avx2_layouts(sl_kernels *k)
{
    k->mul[SL_W_MLX4] = mul_mlx4;
    k->mul[SL_W_MLX8] = mul_mlx8;
    k->mul[SL_W_MXFP4_SPLIT] = mul_mxfp4;
}
