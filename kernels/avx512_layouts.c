/* Products with int8 activations and weights whose scales stand beside the blocks, AVX-512 VNNI.
 * Blocks go through the loops of avx512_mul.h as those of 32 do, once scales and biases are in
 * their tiles; a few activation rows have loops of their own here, which open scales a chunk ahead.
 * MLX weights are unsigned as they are, MXFP4's codes have an offset of 12. */
#include "avx512_codes.h"
#include "avx512_mul.h"
#include "levels.h"
#include "scales.h"

/* ---- Scales and biases ---- */

enum { CHUNK_GROUPS = CHUNK_COLS / 32 }; /* at most, of a chunk */

/* [group][row] */
typedef struct numbers {
    float d[CHUNK_GROUPS][16], m[CHUNK_GROUPS][16];
} numbers;

/* Sixteen bytes of each row are eight numbers, or sixteen: v[k] has number k. */
SL_INLINE void open_halves(sl_scale type, const sl_rows16 *rows, size_t at, __m512 v[8])
{
    __m512i words[4];
    sl_words(rows, 2 * at, words);
    SL_UNROLL
    for (int k = 0; k < 4; k++)
        if (type == SL_SCALE_F16) {
            sl_split_halves(words[k], &v[2 * k], &v[2 * k + 1]);
        } else {
            v[2 * k] = _mm512_castsi512_ps(_mm512_slli_epi32(words[k], 16));
            v[2 * k + 1] =
                _mm512_castsi512_ps(_mm512_and_si512(words[k], _mm512_set1_epi32((int)0xffff0000)));
        }
}

SL_INLINE void open_exponents(const sl_rows16 *rows, size_t at, __m512 v[16])
{
    __m512i words[4];
    sl_words(rows, at, words);
    SL_UNROLL
    for (unsigned k = 0; k < 16; k++)
        v[k] = sl_e8m0_halves(_mm512_srli_epi32(words[k / 4], k % 4 * 8));
}

/* Groups from .. to of n_groups. The last vectors are taken from where a whole one lies. */
static void open_numbers(sl_scale type, const sl_rows16 *rows, size_t n_groups, size_t from,
                         size_t to, float (*out)[16])
{
    const size_t n = type == SL_SCALE_E8M0 ? 16 : 8;
    if (n_groups < n || type == SL_SCALE_F32) {
        for (size_t g = from; g < to; g++)
            for (size_t r = 0; r < 16; r++)
                out[g - from][r] = type == SL_SCALE_E8M0 ? sl_e8m0_half(rows->p[r][g])
                                                         : sl_scale_load(type, rows->p[r], g);
        return;
    }
    for (size_t g = from; g < to; g += n) {
        const size_t at = g + n <= n_groups ? g : n_groups - n;
        __m512 v[16];
        if (type == SL_SCALE_E8M0)
            open_exponents(rows, at, v);
        else
            open_halves(type, rows, at, v);
        for (size_t k = g - at; k < n && at + k < to; k++)
            _mm512_storeu_ps(out[at + k - from], v[k]);
    }
}

/* Those of rows row .. row + 15; the rows' that follow are fetched. */
static void open_beside(const product *p, size_t row, size_t from, size_t to, numbers *out)
{
    const sl_scales *s = p->beside;
    const size_t n_groups = p->n_cols / s->group, size = sl_scale_size(s->type);
    const size_t next = (row + 16) * s->scale_bytes + 16 * size * from;
    const sl_rows16 scale = sl_rows16_at(s->scale, s->scale_bytes, row, p->n_rows);
    fetch_ahead((uintptr_t)s->scale + next, 16 * size * (to - from));
    open_numbers(s->type, &scale, n_groups, from, to, out->d);
    if (!s->bias)
        return;
    const sl_rows16 bias = sl_rows16_at(s->bias, s->scale_bytes, row, p->n_rows);
    fetch_ahead((uintptr_t)s->bias + next, 16 * size * (to - from));
    open_numbers(s->type, &bias, n_groups, from, to, out->m);
}

/* Into the tiles of blocks from .. to, step bytes apart. */
SL_INLINE void fill_tiles(const product *p, size_t row, size_t from, size_t to, char *tile,
                          size_t step)
{
    const size_t per_group = p->beside->group / 32;
    numbers s;
    open_beside(p, row, from / per_group, to / per_group, &s);
    for (size_t i = from; i < to; i++, tile += step) {
        sl_tile32 *t = (sl_tile32 *)(void *)tile;
        t->d = _mm512_loadu_ps(s.d[(i - from) / per_group]);
        if (p->beside->bias)
            t->m = _mm512_loadu_ps(s.m[(i - from) / per_group]);
    }
}

/* ---- Blocks ---- */

/* Low nibbles are even columns, high ones odd. */
SL_INLINE void sort_nibbles(const __m512i words[4], __m512i q[8])
{
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        const __m512i even = sl_low_nibbles(words[k]), odd = sl_high_nibbles(words[k]);
        SL_UNROLL
        for (uint32_t h = 0; h < 2; h++)
            q[2 * k + (int)h] = _mm512_mask_blend_epi8(
                0xaaaaaaaaaaaaaaaau, sl_pick(even, 2 * h, 2 * h, 2 * h + 1, 2 * h + 1),
                sl_pick(odd, 2 * h, 2 * h, 2 * h + 1, 2 * h + 1));
    }
}

/* Of eight columns the even ones, then the odd ones, as nibbles lie. */
static void order_of_nibbles(const char *x, char *out)
{
    const __m256i order = _mm256_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15, 0,
                                           2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)x);
    _mm256_storeu_si256((__m256i *)(void *)out, _mm256_shuffle_epi8(v, order));
}

/* Sixteen words of 64 bytes, which begin at byte at: out[k] has word k of row r in lane r. Whole
 * cache lines are loaded, each once: when rows are a multiple of 4096 bytes apart, sixteen lines
 * that would be needed again soon are more than the first-level cache holds. */
SL_INLINE void sl_lines(const sl_rows16 *w, size_t at, __m512i out[16])
{
    __m512i t[4][4]; /* four rows; words k, 4 + k, 8 + k, 12 + k of them */
    SL_UNROLL
    for (int g = 0; g < 4; g++) {
        __m512i v[4];
        SL_UNROLL
        for (int r = 0; r < 4; r++)
            v[r] = _mm512_loadu_si512(w->p[4 * g + r] + at);
        const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
        const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
        t[g][0] = _mm512_unpacklo_epi64(a, c);
        t[g][1] = _mm512_unpackhi_epi64(a, c);
        t[g][2] = _mm512_unpacklo_epi64(b, d);
        t[g][3] = _mm512_unpackhi_epi64(b, d);
    }
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        const __m512i a = _mm512_shuffle_i32x4(t[0][k], t[1][k], 0x44);
        const __m512i b = _mm512_shuffle_i32x4(t[0][k], t[1][k], 0xee);
        const __m512i c = _mm512_shuffle_i32x4(t[2][k], t[3][k], 0x44);
        const __m512i d = _mm512_shuffle_i32x4(t[2][k], t[3][k], 0xee);
        out[k] = _mm512_shuffle_i32x4(a, c, 0x88);
        out[4 + k] = _mm512_shuffle_i32x4(a, c, 0xdd);
        out[8 + k] = _mm512_shuffle_i32x4(b, d, 0x88);
        out[12 + k] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}

/* A block from its words, which are four, or eight of MLX8. */
typedef void open_q_fn(const __m512i *words, int sorted, __m512i q[8]);

SL_INLINE void open_q_mlx4(const __m512i *words, int sorted, __m512i q[8])
{
    if (sorted) {
        sort_nibbles(words, q);
        return;
    }
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        q[2 * k] = sl_low_nibbles(words[k]);
        q[2 * k + 1] = sl_high_nibbles(words[k]);
    }
}

SL_INLINE void open_q_mlx8(const __m512i *words, int sorted, __m512i q[8])
{
    SL_UNROLL
    for (int k = 0; k < 8; k++)
        q[k] = words[k];
}

SL_INLINE void open_q_mxfp4_split(const __m512i *words, int sorted, __m512i q[8])
{
    const __m512i table = sl_code_table(sl_e2m1_codes, 12);
    open_q_mlx4(words, sorted, q);
    SL_UNROLL
    for (int k = 0; k < 8; k++)
        q[k] = _mm512_shuffle_epi8(table, q[k]);
}

SL_INLINE void load_block(const sl_rows16 *w, size_t i, size_t block_bytes, __m512i words[8])
{
    sl_words(w, block_bytes * i, words);
    if (block_bytes == 32)
        sl_words(w, block_bytes * i + 16, words + 4);
}

/* ---- Few activation rows, in the order of nibbles if that is what weights are ---- */

typedef struct layout {
    form32 f;
    open_q_fn *open_q;
    size_t block_bytes;
} layout;

SL_INLINE void multiply_few(layout l, const __m512i *words, const float *d, const float *m, acts a,
                            int n_x, size_t i, __m512 acc[MAX_COLS][MAX_TILES])
{
    sl_tile32 tile;
    tile.d = _mm512_loadu_ps(d);
    if (l.f.has_m)
        tile.m = _mm512_loadu_ps(m);
    l.open_q(words, 0, tile.q);
    multiply32(l.f, &tile, 1, a, n_x, i, acc);
}

/* Blocks from .. to of sixteen rows; MLX8 a line at a time, where there are few shuffles besides.
 */
SL_INLINE void few_blocks(const product *p, layout l, const sl_rows16 *rows, uintptr_t next,
                          const numbers *s, size_t from, size_t to, int n_x,
                          __m512 acc[MAX_COLS][MAX_TILES])
{
    const acts a = {p->act, p->act_bytes, p->n_cols};
    const unsigned shift = (unsigned)__builtin_ctz(p->beside->group / 32);
    size_t i = from;
    for (; l.block_bytes == 32 && i + 2 <= to; i += 2) {
        const size_t g = (i - from) >> shift, h = (i + 1 - from) >> shift;
        __m512i words[16];
        fetch_ahead(next + 16 * i * 32, 16 * 64);
        sl_lines(rows, i * 32, words);
        multiply_few(l, words, s->d[g], s->m[g], a, n_x, i, acc);
        multiply_few(l, words + 8, s->d[h], s->m[h], a, n_x, i + 1, acc);
    }
    for (; i < to; i++) {
        const size_t g = (i - from) >> shift;
        __m512i words[8];
        fetch_ahead(next + 16 * i * l.block_bytes, 16 * l.block_bytes);
        load_block(rows, i, l.block_bytes, words);
        multiply_few(l, words, s->d[g], s->m[g], a, n_x, i, acc);
    }
}

SL_INLINE void few(const product *p, layout l, int n_x)
{
    const size_t n_groups = p->n_cols / p->beside->group, per_group = p->beside->group / 32;
    for (size_t row = 0; row < p->n_rows; row += 16) {
        const sl_rows16 rows = sl_rows16_at(p->w, p->row_bytes, row, p->n_rows);
        const uintptr_t next = (uintptr_t)p->w + (row + 16) * p->row_bytes;
        __m512 acc[MAX_COLS][MAX_TILES];
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            acc[c][0] = _mm512_setzero_ps();
        for (size_t from = 0; from < n_groups; from += CHUNK_GROUPS) {
            const size_t to = n_groups - from < CHUNK_GROUPS ? n_groups : from + CHUNK_GROUPS;
            numbers s;
            open_beside(p, row, from, to, &s);
            few_blocks(p, l, &rows, next, &s, from * per_group, to * per_group, n_x, acc);
        }
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            _mm512_mask_storeu_ps(p->y + (size_t)c * p->y_stride + row, lanes_of(row, p->n_rows),
                                  acc[c][0]);
    }
}

#define MUL_BESIDE(type, block_bytes, ...)                                                         \
    SL_INLINE void open_##type(const sl_rows16 *w, size_t i, void *tile)                           \
    {                                                                                              \
        __m512i words[8];                                                                          \
        load_block(w, i, block_bytes, words);                                                      \
        open_q_##type(words, 1, ((sl_tile32 *)tile)->q);                                           \
    }                                                                                              \
    SL_INLINE void multiply_##type(const void *tiles, int n_tiles, acts a, int n_x, size_t i,      \
                                   size_t i_tile, __m512 acc[MAX_COLS][MAX_TILES])                 \
    {                                                                                              \
        multiply32((form32){__VA_ARGS__}, (const sl_tile32 *)tiles + i_tile * (size_t)n_tiles,     \
                   n_tiles, a, n_x, i, acc);                                                       \
    }                                                                                              \
    static void mul_##type(SL_MUL_ARGS)                                                            \
    {                                                                                              \
        const layout l = {{__VA_ARGS__}, open_q_##type, block_bytes};                              \
        product p = {w,       row_bytes, n_rows,   n_cols,  act,   act_bytes,                      \
                     n_batch, y,         y_stride, scratch, beside};                               \
        const form opened_form = {open_##type, multiply_##type,   NULL, 32,                        \
                                  block_bytes, sizeof(sl_tile32), 0,    fill_tiles};               \
        if (n_batch <= DIRECT_COLS && block_bytes == 16) {                                         \
            reorder(order_of_nibbles, act, act_bytes, n_batch, n_cols, scratch);                   \
            p.act = scratch;                                                                       \
        }                                                                                          \
        if (n_batch == 1)                                                                          \
            few(&p, l, 1);                                                                         \
        else if (n_batch == 2)                                                                     \
            few(&p, l, 2);                                                                         \
        else if (n_batch == 3)                                                                     \
            few(&p, l, 3);                                                                         \
        else if (n_batch == 4)                                                                     \
            few(&p, l, 4);                                                                         \
        else                                                                                       \
            opened(&p, opened_form);                                                               \
    }

MUL_BESIDE(mlx4, 16, .has_m = 1)
MUL_BESIDE(mlx8, 32, .has_m = 1)
MUL_BESIDE(mxfp4_split, 16, .offset = 12)

void sl_kernels_fill_avx512_layouts(sl_kernels *k)
{
    k->mul[SL_W_MLX4] = mul_mlx4;
    k->mul[SL_W_MLX8] = mul_mlx8;
    k->mul[SL_W_MXFP4_SPLIT] = mul_mxfp4_split;
}
