/* Products with quantised weights, AVX-512 VNNI: the file of a family of types includes this and
 * says, type by type, TYPE_32 or TYPE_256. Rows lie in lanes: a vector holds four columns of
 * sixteen rows, an activation row is broadcast four columns at a time, and every lane keeps its
 * row's sums. So each output is computed exactly as scalar_quant.c says, whatever the batch.
 *
 * The dot products add four products of an unsigned weight byte and a signed activation into 32
 * bits, exactly. Signed weights are made unsigned by an offset, which is taken off by sums of q:
 * they are there already, as int16 or int32 whose low half is an int16, which one multiplication of
 * pairs takes. */
#ifndef SL_AVX512_MUL_H
#define SL_AVX512_MUL_H

#include "avx512_blocks.h"
#include "kernels.h"

/* CHUNK_: what is opened at a time. That lies in the second-level cache, and the activation rows of
 * a pass in the first while all of its tiles pass. */
enum {
    MAX_TILES = 2,
    MAX_COLS = 6,
    DIRECT_COLS = 4, /* activation rows that are multiplied as blocks are opened */
    CHUNK_TILES = 4, /* of 16 rows */
    CHUNK_COLS = 2048
};

/* A type of 32. */
typedef struct form32 {
    int offset; /* weight bytes have too much */
    int has_m;
} form32;

/* A type of 256. */
typedef struct form256 {
    int n_scales;  /* 8 of 32 columns each or 16 of 16 */
    int is_signed; /* the scales are */
    int has_dmin;  /* else the minima are an offset of the weights */
    int offset;    /* the same one, in units of a weight: opened tiles take it off sum by sum */
} form256;

/* A block of 256 in scratch: columns in order, scales as int32. */
typedef struct tile256 {
    __m512i q[64], scale[16], min[8];
    __m512 d, dmin;
} tile256;

_Static_assert(CHUNK_TILES * sizeof(sl_tile32) <= 32 * SL_MUL_SCRATCH_PER_CHUNK_COL &&
                   CHUNK_TILES * sizeof(tile256) <= 256 * SL_MUL_SCRATCH_PER_CHUNK_COL &&
                   (int)CHUNK_COLS <= (int)SL_MUL_CHUNK_COLS,
               "tiles of a chunk fit the scratch");

/* n_x activation rows, stride bytes apart; n_cols says where in a row things are. */
typedef struct acts {
    const char *first;
    size_t stride, n_cols;
} acts;

SL_INLINE __m512i broadcast32(const char *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

/* An int16, widened. */
SL_INLINE __m512i broadcast16(const char *p)
{
    int16_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_srai_epi32(_mm512_set1_epi16(v), 16);
}

SL_INLINE __m512 broadcast_float(const char *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_ps(v);
}

/* sum[c][r] += n vectors of tile r times columns col .. of activation row c. */
SL_INLINE void add_products(const __m512i *const q[], int n_tiles, const char *x, size_t stride,
                            int n_x, int n, __m512i sum[MAX_COLS][MAX_TILES])
{
    SL_UNROLL
    for (int k = 0; k < n; k++) {
        SL_UNROLL
        for (int c = 0; c < n_x; c++) {
            const __m512i four = broadcast32(x + (size_t)c * stride + 4 * k);
            SL_UNROLL
            for (int r = 0; r < n_tiles; r++)
                sum[c][r] = _mm512_dpbusd_epi32(sum[c][r], q[r][k], four);
        }
    }
}

/* Where sums begin so that the weights' offset is taken off: -offset times the sum of q. By shifts
 * if they do: of the four vector pipes two multiply, and those are what is short. */
SL_INLINE __m512i less_offset(__m512i sum, int offset)
{
    const int shift = __builtin_ctz((unsigned)offset);
    if (offset == 1 << shift)
        return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sum, (unsigned)shift));
    return _mm512_mullo_epi32(sum, _mm512_set1_epi32(-offset));
}

/* acc[c][r] += block i: tile r times activation row c. */
SL_INLINE void multiply32(form32 f, const sl_tile32 *t, int n_tiles, acts a, int n_x, size_t i,
                          __m512 acc[MAX_COLS][MAX_TILES])
{
    const char *d_at = a.first + a.n_cols + 4 * i, *sum_at = d_at + a.n_cols / 32 * 4;
    const __m512i *q[MAX_TILES];
    __m512i sum[MAX_COLS][MAX_TILES];
    SL_UNROLL
    for (int r = 0; r < n_tiles; r++)
        q[r] = t[r].q;
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        const __m512i begin =
            f.offset ? less_offset(broadcast32(sum_at + (size_t)c * a.stride), f.offset)
                     : _mm512_setzero_si512();
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            sum[c][r] = begin;
    }
    add_products(q, n_tiles, a.first + 32 * i, a.stride, n_x, 8, sum);
    SL_UNROLL
    for (int c = 0; c < n_x; c++) {
        const __m512 dx = broadcast_float(d_at + (size_t)c * a.stride);
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            acc[c][r] = _mm512_fmadd_ps(_mm512_mul_ps(t[r].d, dx), _mm512_cvtepi32_ps(sum[c][r]),
                                        acc[c][r]);
        if (!f.has_m)
            continue;
        const __m512 xsum = _mm512_cvtepi32_ps(broadcast32(sum_at + (size_t)c * a.stride));
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            acc[c][r] = _mm512_fmadd_ps(_mm512_mul_ps(t[r].m, dx), xsum, acc[c][r]);
    }
}

/* Where the sums begin that meet the minima of block i. */
SL_INLINE const char *sums256(form256 f, acts a, size_t i)
{
    const char *sum16 = a.first + sl_act_q8_256_sums_at(a.n_cols);
    return f.n_scales == 8 ? sum16 + a.n_cols / 16 * 2 + 16 * i : sum16 + 32 * i;
}

/* The sum of min[p] times sums of q. */
SL_INLINE __m512i dot_mins(form256 f, const __m512i *min, const char *sums)
{
    __m512i msum = _mm512_setzero_si512();
    SL_UNROLL
    for (int p = 0; p < f.n_scales / 2; p++)
        msum = _mm512_dpwssd_epi32(msum, min[p], broadcast32(sums + 4 * p));
    return msum;
}

/* The float steps of a block. */
SL_INLINE __m512 add_block256(form256 f, __m512 d, __m512 dmin, const __m512i *min, __m512i isum,
                              const char *sums, __m512 dx, __m512 acc)
{
    acc = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), _mm512_cvtepi32_ps(isum), acc);
    if (f.has_dmin)
        acc = _mm512_fnmadd_ps(_mm512_mul_ps(dmin, dx), _mm512_cvtepi32_ps(dot_mins(f, min, sums)),
                               acc);
    return acc;
}

SL_INLINE void multiply256(form256 f, const tile256 *t, int n_tiles, acts a, int n_x, size_t i,
                           __m512 acc[MAX_COLS][MAX_TILES])
{
    const char *d_at = a.first + a.n_cols + 4 * i, *sums = sums256(f, a, i);
    const int per_scale = 64 / f.n_scales; /* vectors of a sub-block */
    __m512i isum[MAX_COLS][MAX_TILES];
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++)
        isum[c][r] = f.has_dmin || f.offset ? _mm512_setzero_si512()
                                            : dot_mins(f, t[r].min, sums + (size_t)c * a.stride);
    for (int j = 0; j < f.n_scales; j++) {
        const __m512i *q[MAX_TILES];
        __m512i sum[MAX_COLS][MAX_TILES];
        SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            q[r] = t[r].q + j * per_scale;
        SL_UNROLL
        for (int c = 0; c < n_x; c++) {
            const __m512i begin =
                f.offset ? less_offset(broadcast16(sums + (size_t)c * a.stride + 2 * j), f.offset)
                         : _mm512_setzero_si512();
            SL_UNROLL
            for (int r = 0; r < n_tiles; r++)
                sum[c][r] = begin;
        }
        add_products(q, n_tiles, a.first + 256 * i + (size_t)(4 * j * per_scale), a.stride, n_x,
                     per_scale, sum);
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            SL_UNROLL
        for (int r = 0; r < n_tiles; r++)
            isum[c][r] = _mm512_add_epi32(isum[c][r], _mm512_mullo_epi32(sum[c][r], t[r].scale[j]));
    }
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++)
        acc[c][r] =
            add_block256(f, t[r].d, t[r].dmin, t[r].min, isum[c][r], sums + (size_t)c * a.stride,
                         broadcast_float(d_at + (size_t)c * a.stride), acc[c][r]);
}

/* Sixteen rows leave the hardware prefetcher with sixteen streams, which is too many: the rows that
 * follow, which are contiguous, are fetched in order, a piece with each block of these, and not too
 * much at once. next: of this block's piece. Addresses past the end of the matrix are harmless. */
SL_INLINE void fetch_ahead(uintptr_t next, size_t bytes)
{
    SL_UNROLL
    for (size_t k = 0; k < bytes; k += 64)
        _mm_prefetch((const char *)(next + k), _MM_HINT_T0);
}

/* ---- Few activation rows: blocks are multiplied as they are opened ---- */

typedef void open32_fn(const sl_rows16 *w, size_t i, sl_tile32 *t);
typedef void head_fn(const sl_rows16 *w, size_t i, sl_head256 *h);
typedef void part_fn(const sl_rows16 *w, size_t i, size_t part, __m512i q[16]);

/* The first column of sub-block n of a part, and its place among all. */
SL_INLINE size_t column_of(form256 f, size_t part, size_t n)
{
    return f.n_scales == 8 ? 64 * part + 32 * n : 128 * (part / 2) + 16 * (part % 2) + 32 * n;
}

SL_INLINE void direct256(form256 f, head_fn *open_head, part_fn *open_part, const sl_rows16 *w,
                         uintptr_t next, size_t next_step, size_t block_bytes, acts a, int n_x,
                         size_t i, __m512 acc[MAX_COLS][MAX_TILES])
{
    const char *d_at = a.first + a.n_cols + 4 * i, *sums = sums256(f, a, i);
    const int per_scale = 64 / f.n_scales;
    __m512i isum[MAX_COLS];
    sl_head256 head;
    open_head(w, i, &head);
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        isum[c] = f.has_dmin ? _mm512_setzero_si512()
                             : dot_mins(f, head.min, sums + (size_t)c * a.stride);
    SL_UNROLL
    for (size_t part = 0; part < 4; part++) {
        __m512i q[16];
        fetch_ahead(next + part * next_step, 4 * block_bytes);
        open_part(w, i, part, q);
        SL_UNROLL
        for (int n = 0; n < f.n_scales / 4; n++) {
            const __m512i *vectors[MAX_TILES] = {q + n * per_scale};
            const size_t column = column_of(f, part, (size_t)n);
            const __m512i scale =
                sl_sub_scale(&head, column / (size_t)(4 * per_scale), f.is_signed);
            __m512i sum[MAX_COLS][MAX_TILES];
            SL_UNROLL
            for (int c = 0; c < n_x; c++)
                sum[c][0] = _mm512_setzero_si512();
            add_products(vectors, 1, a.first + 256 * i + column, a.stride, n_x, per_scale, sum);
            SL_UNROLL
            for (int c = 0; c < n_x; c++)
                isum[c] = _mm512_add_epi32(isum[c], _mm512_mullo_epi32(sum[c][0], scale));
        }
    }
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        acc[c][0] =
            add_block256(f, head.d, head.dmin, head.min, isum[c], sums + (size_t)c * a.stride,
                         broadcast_float(d_at + (size_t)c * a.stride), acc[c][0]);
}

SL_INLINE void open256(form256 f, head_fn *open_head, part_fn *open_part, const sl_rows16 *w,
                       size_t i, tile256 *t)
{
    const int per_scale = 64 / f.n_scales;
    sl_head256 head;
    open_head(w, i, &head);
    t->d = head.d;
    t->dmin = head.dmin;
    SL_UNROLL
    for (int p = 0; p < f.n_scales / 2; p++)
        t->min[p] = head.min[p];
    SL_UNROLL
    for (int j = 0; j < f.n_scales; j++)
        t->scale[j] = sl_sub_scale(&head, (size_t)j, f.is_signed);
    for (size_t part = 0; part < 4; part++) {
        __m512i q[16];
        open_part(w, i, part, q);
        SL_UNROLL
        for (int n = 0; n < f.n_scales / 4; n++)
            SL_UNROLL
        for (int k = 0; k < per_scale; k++)
            t->q[column_of(f, part, (size_t)n) / 4 + (size_t)k] = q[n * per_scale + k];
    }
}

/* ---- The loops ---- */

typedef struct product {
    const void *w;
    size_t row_bytes, n_rows, n_cols;
    const char *act;
    size_t act_bytes, n_batch;
    float *y;
    size_t y_stride;
    void *scratch;
    const sl_scales *beside;
} product;

/* What the loops know of a type. All arguments of this kind are constants where they are used, so
 * that everything is inlined. */
typedef void open_fn(const sl_rows16 *w, size_t i, void *tile);
typedef void multiply_fn(const void *tiles, int n_tiles, acts a, int n_x, size_t i, size_t i_tile,
                         __m512 acc[MAX_COLS][MAX_TILES]);
typedef void direct_fn(const sl_rows16 *w, uintptr_t next, size_t next_step, acts a, int n_x,
                       size_t i, __m512 acc[MAX_COLS][MAX_TILES]);
typedef void beside_fn(const product *p, size_t row, size_t from, size_t to, char *tile,
                       size_t step);
typedef struct form {
    open_fn *open;
    multiply_fn *multiply;
    direct_fn *direct;
    size_t block_values, block_bytes, tile_bytes;
    int in_chunks;     /* how to fetch, see fetch_at() */
    beside_fn *beside; /* adds what stands beside the blocks to tiles, step bytes apart; or NULL */
} form;

SL_INLINE __mmask16 lanes_of(size_t row, size_t n_rows)
{
    return row + 16 <= n_rows ? 0xffff : row < n_rows ? (__mmask16)((1u << (n_rows - row)) - 1) : 0;
}

/* What to fetch with block i: a piece of the sixteen rows that follow, or (in chunks of four blocks
 * of 256) of the next chunk of these rows, one row with each quarter of a block. The first keeps
 * memory busier but needs two groups of rows in the first-level cache: 4096 columns from memory,
 * Q4_K 37 instead of 29, Q6_K 18 instead of 26 GB/s. */
SL_INLINE uintptr_t fetch_at(const product *p, form f, size_t row, size_t i)
{
    const uintptr_t begin = (uintptr_t)p->w + row * p->row_bytes;
    if (!f.in_chunks)
        return begin + 16 * p->row_bytes + 16 * i * f.block_bytes;
    const size_t next = (i / 4 + 1) * 4;
    return begin + i % 4 * 4 * p->row_bytes +
           (next * f.block_bytes < p->row_bytes ? next * f.block_bytes : 16 * p->row_bytes);
}

SL_INLINE void direct(const product *p, form f, int n_x)
{
    const acts a = {p->act, p->act_bytes, p->n_cols};
    const size_t fetch_step = f.in_chunks ? p->row_bytes : 4 * f.block_bytes;
    for (size_t row = 0; row < p->n_rows; row += 16) {
        const sl_rows16 rows = sl_rows16_at(p->w, p->row_bytes, row, p->n_rows);
        __m512 acc[MAX_COLS][MAX_TILES];
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            acc[c][0] = _mm512_setzero_ps();
        for (size_t i = 0; i < p->n_cols / f.block_values; i++)
            f.direct(&rows, fetch_at(p, f, row, i), fetch_step, a, n_x, i, acc);
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            _mm512_mask_storeu_ps(p->y + (size_t)c * p->y_stride + row, lanes_of(row, p->n_rows),
                                  acc[c][0]);
    }
}

/* Blocks from .. to of rows row .. row + 16 CHUNK_TILES, of which some may be missing. */
typedef struct chunk {
    size_t row, from, to;
} chunk;

/* The 32 rows of a chunk that begin pair times 32 further up, in scratch. */
SL_INLINE char *pair_at(const product *p, form f, chunk k, size_t pair)
{
    return (char *)p->scratch + pair * MAX_TILES * (k.to - k.from) * f.tile_bytes;
}

/* Tiles of the last rows: one, if there are no more than 16. */
SL_INLINE int tiles_at(const product *p, size_t row)
{
    return p->n_rows - row > 16 ? 2 : 1;
}

SL_INLINE void open_chunk(const product *p, form f, chunk k)
{
    for (size_t pair = 0; 2 * pair < CHUNK_TILES && k.row + 32 * pair < p->n_rows; pair++) {
        const size_t row = k.row + 32 * pair;
        const int n_tiles = tiles_at(p, row);
        for (int r = 0; r < n_tiles; r++) {
            const sl_rows16 rows =
                sl_rows16_at(p->w, p->row_bytes, row + 16 * (size_t)r, p->n_rows);
            char *tile = pair_at(p, f, k, pair) + (size_t)r * f.tile_bytes;
            for (size_t i = k.from; i < k.to; i++, tile += (size_t)n_tiles * f.tile_bytes)
                f.open(&rows, i, tile);
            if (f.beside)
                f.beside(p, row + 16 * (size_t)r, k.from, k.to,
                         pair_at(p, f, k, pair) + (size_t)r * f.tile_bytes,
                         (size_t)n_tiles * f.tile_bytes);
        }
    }
}

/* Rows first .. last of a chunk, to the second-level cache. */
SL_INLINE void fetch_rows(const product *p, form f, chunk k, size_t first, size_t last)
{
    for (size_t r = first; r < last; r++) {
        const uintptr_t row = (uintptr_t)p->w + (k.row + r) * p->row_bytes;
        for (size_t at = k.from * f.block_bytes; at < k.to * f.block_bytes; at += 64)
            _mm_prefetch((const char *)(row + at), _MM_HINT_T1);
    }
}

/* Opened tiles times activation rows b .. b+n_x-1. Between chunks the sums wait in y. */
SL_INLINE void pass_tiles(const product *p, form f, size_t row, int n_tiles, size_t from, size_t to,
                          const char *tiles, size_t b, int n_x)
{
    const acts a = {p->act + b * p->act_bytes, p->act_bytes, p->n_cols};
    __m512 acc[MAX_COLS][MAX_TILES];
    float *y = p->y + b * p->y_stride + row;
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++) {
        acc[c][r] = _mm512_setzero_ps();
        if (from)
            acc[c][r] = _mm512_maskz_loadu_ps(lanes_of(row + 16 * (size_t)r, p->n_rows),
                                              y + (size_t)c * p->y_stride + 16 * r);
    }
    for (size_t i = from; i < to; i++)
        f.multiply(tiles, n_tiles, a, n_x, i, i - from, acc);
    SL_UNROLL
    for (int c = 0; c < n_x; c++)
        SL_UNROLL
    for (int r = 0; r < n_tiles; r++)
        _mm512_mask_storeu_ps(y + (size_t)c * p->y_stride + 16 * r,
                              lanes_of(row + 16 * (size_t)r, p->n_rows), acc[c][r]);
}

SL_INLINE void pass_chunk(const product *p, form f, chunk k, size_t b, int n_x)
{
    for (size_t pair = 0; 2 * pair < CHUNK_TILES && k.row + 32 * pair < p->n_rows; pair++) {
        const size_t row = k.row + 32 * pair;
        const char *tiles = pair_at(p, f, k, pair);
        if (tiles_at(p, row) == 2)
            pass_tiles(p, f, row, 2, k.from, k.to, tiles, b, n_x);
        else
            pass_tiles(p, f, row, 1, k.from, k.to, tiles, b, n_x);
    }
}

/* How many of the activation rows that are left the next pass takes: best (5 or 6), and as many of
 * the other as leave nothing over. Fives and sixes make up every number but 1 to 4, 7, 8, 9, 13, 14
 * and 19, which fours and threes complete; left is never 1 or 2 unless it begins so. */
SL_INLINE size_t pass_cols(size_t left, size_t best)
{
    const size_t others = best == 5 ? left % 5 : (6 - left % 6) % 6;
    if (left < 5)
        return left < 3 ? 1 : left;
    if (left == 7 || left == 8)
        return 4;
    if (others == 0)
        return best;
    return others * (11 - best) <= left ? 11 - best : 5;
}

SL_INLINE void multiply_chunk(const product *p, form f, chunk k, chunk next)
{
    open_chunk(p, f, k);
    const size_t left = next.row < p->n_rows ? p->n_rows - next.row : 0;
    const size_t n_next = left < 16 * CHUNK_TILES ? left : 16 * CHUNK_TILES;
    for (size_t b = 0, n; b < p->n_batch; b += n) {
        n = pass_cols(p->n_batch - b, f.block_values == 32 ? 5 : 6);
        fetch_rows(p, f, next, n_next * b / p->n_batch, n_next * (b + n) / p->n_batch);
        if (n == 6)
            pass_chunk(p, f, k, b, 6);
        else if (n == 5)
            pass_chunk(p, f, k, b, 5);
        else if (n == 4)
            pass_chunk(p, f, k, b, 4);
        else if (n == 3)
            pass_chunk(p, f, k, b, 3);
        else
            pass_chunk(p, f, k, b, 1);
    }
}

/* Many activation rows: a chunk of weights is opened once for all. */
SL_INLINE void opened(const product *p, form f)
{
    const size_t n_blocks = p->n_cols / f.block_values, step = CHUNK_COLS / f.block_values;
    chunk k = {0, 0, n_blocks < step ? n_blocks : step};
    while (k.row < p->n_rows) {
        chunk next = {k.row, k.to, 0};
        if (k.to == n_blocks)
            next = (chunk){k.row + 16 * CHUNK_TILES, 0, 0};
        next.to = n_blocks - next.from < step ? n_blocks : next.from + step;
        multiply_chunk(p, f, k, next);
        k = next;
    }
}

/* Activation rows with each 32 values in another order, at out: where weights lie in an order of
 * their own, that of a few activation rows is quicker changed. */
typedef void order_fn(const char *x, char *out);
SL_INLINE void reorder(order_fn *order, const char *act, size_t act_bytes, size_t n_batch,
                       size_t n_cols, char *out)
{
    for (size_t b = 0; b < n_batch; b++, act += act_bytes, out += act_bytes) {
        memcpy(out + n_cols, act + n_cols, act_bytes - n_cols);
        for (size_t i = 0; i < n_cols; i += 32)
            order(act + i, out + i);
    }
}

#define TYPE_32(type, ...)                                                                         \
    SL_INLINE void open_##type(const sl_rows16 *w, size_t i, void *tile)                           \
    {                                                                                              \
        sl_open_##type(w, i, tile);                                                                \
    }                                                                                              \
    SL_INLINE void multiply_##type(const void *tiles, int n_tiles, acts a, int n_x, size_t i,      \
                                   size_t i_tile, __m512 acc[MAX_COLS][MAX_TILES])                 \
    {                                                                                              \
        multiply32((form32){__VA_ARGS__}, (const sl_tile32 *)tiles + i_tile * (size_t)n_tiles,     \
                   n_tiles, a, n_x, i, acc);                                                       \
    }                                                                                              \
    SL_INLINE void direct_##type(const sl_rows16 *w, uintptr_t next, size_t next_step, acts a,     \
                                 int n_x, size_t i, __m512 acc[MAX_COLS][MAX_TILES])               \
    {                                                                                              \
        sl_tile32 tile;                                                                            \
        fetch_ahead(next, 16 * sizeof(sl_##type));                                                 \
        sl_open_##type(w, i, &tile);                                                               \
        multiply32((form32){__VA_ARGS__}, &tile, 1, a, n_x, i, acc);                               \
    }                                                                                              \
    MUL(type, 32, sizeof(sl_tile32), 0)
#define TYPE_256(type, ...)                                                                        \
    SL_INLINE void open_##type(const sl_rows16 *w, size_t i, void *tile)                           \
    {                                                                                              \
        open256((form256){__VA_ARGS__}, sl_head_##type, sl_part_##type, w, i, tile);               \
    }                                                                                              \
    SL_INLINE void multiply_##type(const void *tiles, int n_tiles, acts a, int n_x, size_t i,      \
                                   size_t i_tile, __m512 acc[MAX_COLS][MAX_TILES])                 \
    {                                                                                              \
        multiply256((form256){__VA_ARGS__}, (const tile256 *)tiles + i_tile * (size_t)n_tiles,     \
                    n_tiles, a, n_x, i, acc);                                                      \
    }                                                                                              \
    SL_INLINE void direct_##type(const sl_rows16 *w, uintptr_t next, size_t next_step, acts a,     \
                                 int n_x, size_t i, __m512 acc[MAX_COLS][MAX_TILES])               \
    {                                                                                              \
        direct256((form256){__VA_ARGS__}, sl_head_##type, sl_part_##type, w, next, next_step,      \
                  sizeof(sl_##type), a, n_x, i, acc);                                              \
    }                                                                                              \
    MUL(type, 256, sizeof(tile256), sizeof(sl_##type) == sizeof(sl_q6_k))
#define MUL(type, values, tile_size, chunked)                                                      \
    static void mul_##type(SL_MUL_ARGS)                                                            \
    {                                                                                              \
        const product p = {w,       row_bytes, n_rows,   n_cols,  act,   act_bytes,                \
                           n_batch, y,         y_stride, scratch, beside};                         \
        const form f = {open_##type,       multiply_##type, direct_##type, values,                 \
                        sizeof(sl_##type), tile_size,       chunked,       NULL};                  \
        if (n_batch == 1)                                                                          \
            direct(&p, f, 1);                                                                      \
        else if (n_batch == 2)                                                                     \
            direct(&p, f, 2);                                                                      \
        else if (n_batch == 3)                                                                     \
            direct(&p, f, 3);                                                                      \
        else if (n_batch == 4)                                                                     \
            direct(&p, f, 4);                                                                      \
        else                                                                                       \
            opened(&p, f);                                                                         \
    }

#endif
