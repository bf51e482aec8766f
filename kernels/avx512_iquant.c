/* Products with the codebook types, IQ1, IQ2 and IQ3, AVX-512 VNNI. For few activation rows a block
 * of a row is opened in its own order of columns (avx512_grids.h), in which the activations are
 * arranged once; its sixteen sums of sixteen columns are exact integers, so that they can be added
 * in any order, and the floats begin with a row in each lane. For more, 32 rows are opened as the
 * tiles of avx512_mul.h. A weight byte is the value and an offset of 64 (IQ1: 9), which sums of q
 * take off. */
#include "avx512_grids.h"
#include "avx512_mul.h"
#include "levels.h"

enum { MOST_DIRECT = 8, OFFSET_IQ1 = 9, OFFSET = 64 };

/* A block of an activation row in the order of the types' columns. begin: of the sums, -offset
 * times the sums of q. */
typedef struct grid_x {
    __m512i q[4], begin;
} grid_x;
_Static_assert(MOST_DIRECT * sizeof(grid_x) <= 256 * SL_MUL_SCRATCH_PER_COL, "fits the scratch");

/* What the loops know of a type. Constants where they are used. */
typedef __m512 ds_fn(const sl_rows16 *w, size_t at);
typedef struct grid {
    sl_grid_open_fn *open;
    sl_grid_index_fn *index; /* or NULL */
    const uint32_t *points;  /* for index */
    ds_fn *ds;               /* a row's scale, as floats */
    float fraction;          /* what it counts in */
    int entry, offset;       /* values an entry has */
    size_t block_bytes;
} grid;

/* Four vectors: dwords a of their quarters in order. */
SL_INLINE void put_dwords(const __m512i v[4], __m512i q[4])
{
    const __m512i even =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(2));
    const __m512i a = _mm512_permutex2var_epi32(v[0], even, v[1]);
    const __m512i b = _mm512_permutex2var_epi32(v[2], even, v[3]);
    const __m512i c = _mm512_permutex2var_epi32(v[0], odd, v[1]);
    const __m512i d = _mm512_permutex2var_epi32(v[2], odd, v[3]);
    q[0] = _mm512_shuffle_i64x2(a, b, 0x44);
    q[1] = _mm512_shuffle_i64x2(a, b, 0xee);
    q[2] = _mm512_shuffle_i64x2(c, d, 0x44);
    q[3] = _mm512_shuffle_i64x2(c, d, 0xee);
}

/* n_x activation rows into scratch. */
SL_INLINE void arrange(const product *p, grid g, int n_x)
{
    uint8_t order[16];
    for (uint32_t k = 0; k < 16; k++)
        order[k] = (uint8_t)(8 * (k % 4 / 2) + sl_grid_column(g.entry, k / 4, k % 2));
    const __m512i by_column = sl_four_times(sl_load16(order));
    grid_x *out = p->scratch;
    for (int c = 0; c < n_x; c++) {
        const sl_act_q8_256 x = sl_act_q8_256_row(p->act + (size_t)c * p->act_bytes, p->n_cols);
        for (size_t i = 0; i < p->n_cols / 256; i++, out++) {
            __m512i v[4];
            SL_UNROLL
            for (size_t k = 0; k < 4; k++)
                v[k] = _mm512_shuffle_epi8(sl_load_64(x.q + 256 * i + 64 * k), by_column);
            put_dwords(v, out->q);
            const __m256i sums = _mm256_loadu_si256((const void *)(x.sum16 + 16 * i));
            out->begin =
                _mm512_mullo_epi32(_mm512_cvtepi16_epi32(sums), _mm512_set1_epi32(-g.offset));
        }
    }
}

/* Lane r: the sum of the lanes of v[r]. */
SL_INLINE __m512i sums_of_rows(const __m512i v[16])
{
    __m512i a[8], b[4], c[2];
    SL_UNROLL
    for (int i = 0; i < 8; i++)
        a[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    SL_UNROLL
    for (int i = 0; i < 4; i++)
        b[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(a[2 * i], a[2 * i + 1]),
                                _mm512_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
    SL_UNROLL
    for (int i = 0; i < 2; i++)
        c[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(b[2 * i], b[2 * i + 1], 0x44),
                                _mm512_shuffle_i32x4(b[2 * i], b[2 * i + 1], 0xee));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(c[0], c[1], 0x88),
                            _mm512_shuffle_i32x4(c[0], c[1], 0xdd));
}

/* The indices of a block of sixteen rows. Loads of parts of what was just stored have to wait for
 * it, so all are stored before the first is used. */
SL_INLINE void put_indices(grid g, const sl_rows16 *w, size_t at, uint16_t index[16][32])
{
    for (int r = 0; r < 16; r++)
        _mm512_storeu_si512(index[r], g.index(w->p[r] + at));
}

SL_INLINE void grid_direct(const product *p, grid g, int n_x)
{
    const size_t n_blocks = p->n_cols / 256;
    const __m512i none = _mm512_setzero_si512();
    const grid_x *x = p->scratch;
    arrange(p, g, n_x);
    for (size_t row = 0; row < p->n_rows; row += 16) {
        const sl_rows16 w = sl_rows16_at(p->w, p->row_bytes, row, p->n_rows);
        const uintptr_t next = (uintptr_t)p->w + (row + 16) * p->row_bytes;
        uint16_t index[16][32];
        __m512 acc[MOST_DIRECT];
        if (g.index && n_blocks)
            put_indices(g, &w, 0, index);
        for (int c = 0; c < n_x; c++)
            acc[c] = _mm512_setzero_ps();
        for (size_t i = 0; i < n_blocks; i++) {
            const size_t at = i * g.block_bytes;
            __m512i sum[MOST_DIRECT][16];
            fetch_ahead(next + 16 * at, 16 * g.block_bytes);
            for (int r = 0; r < 16; r++) {
                sl_grid_block b;
                g.open(w.p[r] + at, g.index ? sl_fetch_2048(g.points, index[r]) : none, &b);
                for (int c = 0; c < n_x; c++) {
                    const grid_x *from = x + (size_t)c * n_blocks + i;
                    __m512i s = from->begin;
                    SL_UNROLL
                    for (int k = 0; k < 4; k++)
                        s = _mm512_dpbusd_epi32(s, b.q[k], from->q[k]);
                    sum[c][r] = _mm512_mullo_epi32(s, b.scale);
                }
            }
            if (g.index && i + 1 < n_blocks)
                put_indices(g, &w, at + g.block_bytes, index);
            const __m512 d = _mm512_mul_ps(g.ds(&w, at), _mm512_set1_ps(g.fraction));
            for (int c = 0; c < n_x; c++) {
                const char *d_at = p->act + (size_t)c * p->act_bytes + p->n_cols + 4 * i;
                acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(d, broadcast_float(d_at)),
                                         _mm512_cvtepi32_ps(sums_of_rows(sum[c])), acc[c]);
            }
        }
        for (int c = 0; c < n_x; c++)
            _mm512_mask_storeu_ps(p->y + (size_t)c * p->y_stride + row, lanes_of(row, p->n_rows),
                                  acc[c]);
    }
}

/* Sixteen rows of a block as a tile. Columns of a row come into order by fours: vector m has those
 * of 64 l + 16 m up in its quarter l. */
SL_INLINE void grid_open_tile(grid g, const sl_rows16 *w, size_t i, tile256 *t)
{
    const size_t at = i * g.block_bytes;
    const __m512i none = _mm512_setzero_si512();
    uint16_t index[16][32];
    __m512i q[16][4], scale[16];
    sl_rows16 rows, scales;
    if (g.index)
        put_indices(g, w, at, index);
    for (int r = 0; r < 16; r++) {
        sl_grid_block b;
        g.open(w->p[r] + at, g.index ? sl_fetch_2048(g.points, index[r]) : none, &b);
        const __m512i a = _mm512_unpacklo_epi8(b.q[0], b.q[1]);
        const __m512i c = _mm512_unpackhi_epi8(b.q[0], b.q[1]);
        const __m512i d = _mm512_unpacklo_epi8(b.q[2], b.q[3]);
        const __m512i e = _mm512_unpackhi_epi8(b.q[2], b.q[3]);
        const int wide = g.entry == 4;
        q[r][0] = wide ? _mm512_unpacklo_epi32(a, d) : _mm512_unpacklo_epi16(a, d);
        q[r][1] = wide ? _mm512_unpackhi_epi32(a, d) : _mm512_unpackhi_epi16(a, d);
        q[r][2] = wide ? _mm512_unpacklo_epi32(c, e) : _mm512_unpacklo_epi16(c, e);
        q[r][3] = wide ? _mm512_unpackhi_epi32(c, e) : _mm512_unpackhi_epi16(c, e);
        scale[r] = b.scale;
        rows.p[r] = (const uint8_t *)q[r];
        scales.p[r] = (const uint8_t *)&scale[r];
    }
    for (size_t m = 0; m < 4; m++)
        for (size_t l = 0; l < 4; l++)
            sl_words(&rows, 64 * m + 16 * l, t->q + 4 * (4 * l + m));
    SL_UNROLL
    for (size_t j = 0; j < 4; j++)
        sl_words(&scales, 16 * j, t->scale + 4 * j);
    const __m512i offset = _mm512_set1_epi32(-g.offset & 0xffff);
    SL_UNROLL
    for (int k = 0; k < 8; k++) {
        const __m512i pair =
            _mm512_or_si512(t->scale[2 * k], _mm512_slli_epi32(t->scale[2 * k + 1], 16));
        t->min[k] =
            _mm512_mullo_epi16(pair, _mm512_or_si512(offset, _mm512_slli_epi32(offset, 16)));
    }
    t->d = t->dmin = _mm512_mul_ps(g.ds(w, at), _mm512_set1_ps(g.fraction));
}

#define GRID(type, ...)                                                                            \
    SL_INLINE void open_##type(const sl_rows16 *w, size_t i, void *tile)                           \
    {                                                                                              \
        grid_open_tile((grid){sl_grid_open_##type, __VA_ARGS__, sizeof(sl_##type)}, w, i, tile);   \
    }                                                                                              \
    SL_INLINE void multiply_##type(const void *tiles, int n_tiles, acts a, int n_x, size_t i,      \
                                   size_t i_tile, __m512 acc[MAX_COLS][MAX_TILES])                 \
    {                                                                                              \
        multiply256((form256){.n_scales = 16}, (const tile256 *)tiles + i_tile * (size_t)n_tiles,  \
                    n_tiles, a, n_x, i, acc);                                                      \
    }                                                                                              \
    static void mul_##type(SL_MUL_ARGS)                                                            \
    {                                                                                              \
        const product p = {w,       row_bytes, n_rows,   n_cols,  act,   act_bytes,                \
                           n_batch, y,         y_stride, scratch, beside};                         \
        const grid g = {sl_grid_open_##type, __VA_ARGS__, sizeof(sl_##type)};                      \
        const form f = {open_##type,       multiply_##type, NULL, 256,                             \
                        sizeof(sl_##type), sizeof(tile256), 0,    NULL};                           \
        if (n_batch == 1)                                                                          \
            grid_direct(&p, g, 1);                                                                 \
        else if (n_batch <= MOST_DIRECT)                                                           \
            grid_direct(&p, g, (int)n_batch);                                                      \
        else                                                                                       \
            opened(&p, f);                                                                         \
    }
GRID(iq2_xxs, NULL, NULL, sl_halves, 0.125f, 8, OFFSET)
GRID(iq2_xs, NULL, NULL, sl_halves, 0.125f, 8, OFFSET)
GRID(iq2_s, NULL, NULL, sl_halves, 0.125f, 8, OFFSET)
GRID(iq3_xxs, NULL, NULL, sl_halves, 0.25f, 4, OFFSET)
GRID(iq3_s, NULL, NULL, sl_halves, 1.0f, 4, OFFSET)
GRID(iq1_s, sl_grid_index_iq1_s, sl_points_iq1, sl_halves, 0.125f, 8, OFFSET_IQ1)
GRID(iq1_m, sl_grid_index_iq1_m, sl_points_iq1, sl_ds_iq1_m, 0.125f, 8, OFFSET_IQ1)

void sl_kernels_fill_avx512_iquant(sl_kernels *k)
{
    k->mul[SL_W_IQ2_XXS] = mul_iq2_xxs;
    k->mul[SL_W_IQ2_XS] = mul_iq2_xs;
    k->mul[SL_W_IQ2_S] = mul_iq2_s;
    k->mul[SL_W_IQ3_XXS] = mul_iq3_xxs;
    k->mul[SL_W_IQ3_S] = mul_iq3_s;
    k->mul[SL_W_IQ1_S] = mul_iq1_s;
    k->mul[SL_W_IQ1_M] = mul_iq1_m;
}
