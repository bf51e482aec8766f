/* Products with weights whose nibbles choose from 16 numbers, AVX-512 VNNI: the types;
 * avx512_mul.h multiplies. The numbers are -127 .. 113 in IQ4 and -12 .. 12 in MXFP4 and NVFP4:
 * offsets of 128 and 12 make them unsigned. */
#include "avx512_codes.h"
#include "avx512_mul.h"
#include "levels.h"

TYPE_32(iq4_nl, .offset = 128)
TYPE_32(mxfp4, .offset = 12)
TYPE_256(iq4_xs, .n_scales = 8, .is_signed = 1, .offset = 128)

/* ---- NVFP4: scales for 16 values, of which activations have no sums ---- */

enum { E2M1_OFFSET = 12 };

_Static_assert(CHUNK_TILES * 2 * sizeof(sl_tile32) <= 64 * SL_MUL_SCRATCH_PER_CHUNK_COL,
               "tiles of a chunk fit the scratch");

/* What the offset adds to the products with either half of 32 columns, negative. */
SL_INLINE void minus_halves(const char *x, const char *sum, __m512i begin[2])
{
    __m512i first = _mm512_setzero_si512();
    SL_UNROLL
    for (int k = 0; k < 4; k++)
        first = _mm512_dpbusd_epi32(first, _mm512_set1_epi8(E2M1_OFFSET), broadcast32(x + 4 * k));
    begin[0] = _mm512_sub_epi32(_mm512_setzero_si512(), first);
    begin[1] =
        _mm512_dpwssd_epi32(first, _mm512_set1_epi32(-E2M1_OFFSET & 0xffff), broadcast32(sum));
}

/* Block i, the activations' 2i and 2i + 1; tiles of one row follow each other. */
SL_INLINE void multiply_nvfp4(const void *tiles, int n_tiles, acts a, int n_x, size_t i,
                              size_t i_tile, __m512 acc[MAX_COLS][MAX_TILES])
{
    const sl_tile32 *t = (const sl_tile32 *)tiles + 2 * i_tile * (size_t)n_tiles;
    SL_UNROLL
    for (size_t p = 0; p < 2; p++) {
        const size_t j = 2 * i + p;
        const char *d_at = a.first + a.n_cols + 4 * j, *sum_at = d_at + a.n_cols / 32 * 4;
        __m512i begin[MAX_COLS][2];
        SL_UNROLL
        for (int c = 0; c < n_x; c++)
            minus_halves(a.first + (size_t)c * a.stride + 32 * j, sum_at + (size_t)c * a.stride,
                         begin[c]);
        SL_UNROLL
        for (size_t h = 0; h < 2; h++) {
            const __m512i *q[MAX_TILES];
            __m512i sum[MAX_COLS][MAX_TILES];
            SL_UNROLL
            for (int r = 0; r < n_tiles; r++)
                q[r] = t[2 * (size_t)r + p].q + 4 * h;
            SL_UNROLL
            for (int c = 0; c < n_x; c++)
                SL_UNROLL
            for (int r = 0; r < n_tiles; r++)
                sum[c][r] = begin[c][h];
            add_products(q, n_tiles, a.first + 32 * j + 16 * h, a.stride, n_x, 4, sum);
            SL_UNROLL
            for (int c = 0; c < n_x; c++) {
                const __m512 dx = broadcast_float(d_at + (size_t)c * a.stride);
                SL_UNROLL
                for (int r = 0; r < n_tiles; r++) {
                    const __m512 d = h ? t[2 * (size_t)r + p].m : t[2 * (size_t)r + p].d;
                    acc[c][r] = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), _mm512_cvtepi32_ps(sum[c][r]),
                                                acc[c][r]);
                }
            }
        }
    }
}

SL_INLINE void open_nvfp4(const sl_rows16 *w, size_t i, void *tile)
{
    sl_open_nvfp4(w, i, tile);
}

SL_INLINE void direct_nvfp4(const sl_rows16 *w, uintptr_t next, size_t next_step, acts a, int n_x,
                            size_t i, __m512 acc[MAX_COLS][MAX_TILES])
{
    sl_tile32 tiles[2];
    fetch_ahead(next, 16 * sizeof(sl_nvfp4));
    sl_open_nvfp4(w, i, tiles);
    multiply_nvfp4(tiles, 1, a, n_x, i, 0, acc);
}

MUL(nvfp4, 64, 2 * sizeof(sl_tile32), 0)

void sl_kernels_fill_avx512_codes(sl_kernels *k)
{
    k->mul[SL_W_IQ4_NL] = mul_iq4_nl;
    k->mul[SL_W_IQ4_XS] = mul_iq4_xs;
    k->mul[SL_W_MXFP4] = mul_mxfp4;
    k->mul[SL_W_NVFP4] = mul_nvfp4;
}
