/* safetensors: any bytes as a file, or (when they begin with '{') as an index beside a sound shard.
 */
#include <stdlib.h>
#include <string.h>

#include "../stream/checkpoint.h"
#include "lib_fuzz.h"
#include "lib_fuzz_file.h"

static const char shard[] = "\x3a\0\0\0\0\0\0\0"
                            "{\"a\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[0,2]}}    "
                            "\1\2";

static void use(const sl_checkpoint *c)
{
    if (sl_checkpoint_tensor_count(c) == 0)
        abort();
    for (uint32_t i = 0; i < sl_checkpoint_tensor_count(c); i++) {
        const sl_tensor *t = sl_checkpoint_tensor(c, i);
        const sl_file *f = sl_checkpoint_file(c, t->extent.file);
        const sl_dtype_info *type = sl_dtype_about(t->type);
        uint64_t n = 1;
        for (uint32_t k = 0; k < t->n_dims; k++)
            n *= t->dims[k];
        if (sl_checkpoint_find(c, t->name) != t || t->extent.offset > f->size ||
            t->extent.len > f->size - t->extent.offset || n != t->n_values ||
            n / type->block_values * type->block_bytes != t->extent.len)
            abort();
    }
    for (uint32_t i = 0; i < sl_checkpoint_meta_count(c); i++)
        if (sl_checkpoint_meta(c, i)->type != SL_META_STRING)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH], other[FUZZ_PATH];
    sl_checkpoint *c;
    sl_err err = {0};
    if (size && data[0] == '{') {
        fuzz_file("a.safetensors", shard, sizeof shard - 1, other);
        fuzz_file("x.safetensors.index.json", data, size, path);
    } else {
        fuzz_file("x.safetensors", data, size, path);
    }
    if (sl_checkpoint_open(path, &c, &err) == SL_OK)
        use(c);
    else if (err.code == SL_OK || !err.text[0] || c)
        abort();
    sl_checkpoint_close(&c);
    return 0;
}
