#include "compress.h"

#include <stdlib.h>
#include <zstd.h>

struct sl_compressor {
    ZSTD_CCtx *zstd;
};

/* The context's tables are made for the first block that it sees: one of the largest size. */
static bool allocate_all(sl_compressor *c, uint64_t most)
{
    void *zeros = calloc(1, most), *out = malloc(sl_compressor_bound(most));
    const bool ok = zeros && out && sl_compressor_pack(c, zeros, most, out);
    free(zeros);
    free(out);
    return ok;
}

sl_compressor *sl_compressor_new(uint64_t most)
{
    sl_compressor *c = calloc(1, sizeof *c);
    if (c)
        c->zstd = ZSTD_createCCtx();
    if (c && c->zstd) {
        ZSTD_CCtx_setParameter(c->zstd, ZSTD_c_compressionLevel, 1);
        ZSTD_CCtx_setParameter(c->zstd, ZSTD_c_checksumFlag, 1);
        if (allocate_all(c, most))
            return c;
    }
    sl_compressor_free(&c);
    return NULL;
}

void sl_compressor_free(sl_compressor **c)
{
    if (!c || !*c)
        return;
    ZSTD_freeCCtx((*c)->zstd);
    free(*c);
    *c = NULL;
}

uint64_t sl_compressor_bound(uint64_t len)
{
    return ZSTD_compressBound(len);
}

uint64_t sl_compressor_pack(sl_compressor *c, const void *data, uint64_t len, void *out)
{
    const size_t n = ZSTD_compress2(c->zstd, out, ZSTD_compressBound(len), data, len);
    return ZSTD_isError(n) ? 0 : n;
}

bool sl_compressor_unpack(const void *packed, uint64_t packed_len, void *out, uint64_t len)
{
    return ZSTD_decompress(out, len, packed, packed_len) == len;
}
