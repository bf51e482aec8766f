/* GGUF headers: any bytes as one whole file, or (when they begin with 'S') as shard 2 of a split.
 */
#include <stdlib.h>
#include <string.h>

#include "../stream/checkpoint.h"
#include "lib_fuzz.h"
#include "lib_fuzz_file.h"

static volatile uint64_t sink;

/* Touches every byte that the checkpoint gave out. */
static uint64_t use_meta(const sl_meta *m)
{
    uint64_t sum = 0;
    int64_t i;
    double d;
    if (m->type == SL_META_STRING)
        for (uint64_t k = 0; k < m->v.s.len; k++)
            sum += (uint8_t)m->v.s.data[k];
    sum += sl_meta_int(m, &i) + sl_meta_number(m, &d);
    if (m->type != SL_META_ARRAY)
        return sum;
    for (uint64_t k = 0; k < m->v.a.len; k++)
        sum += ((const uint8_t *)m->v.a.data)[k];
    for (uint64_t k = 0; k < m->v.a.n; k++) {
        sum += sl_meta_array_int(m, k, &i) + sl_meta_array_number(m, k, &d);
        if (m->v.a.text)
            for (uint64_t j = 0; j < m->v.a.text[k].len; j++)
                sum += (uint8_t)m->v.a.text[k].data[j];
        if (m->v.a.items)
            sum += use_meta(&m->v.a.items[k]);
    }
    return sum;
}

static uint64_t use(const sl_checkpoint *c)
{
    uint64_t sum = sl_checkpoint_memory_bytes(c);
    for (uint32_t i = 0; i < sl_checkpoint_meta_count(c); i++)
        sum += use_meta(sl_checkpoint_meta(c, i));
    for (uint32_t i = 0; i < sl_checkpoint_tensor_count(c); i++) {
        const sl_tensor *t = sl_checkpoint_tensor(c, i);
        const sl_file *f = sl_checkpoint_file(c, t->extent.file);
        if (sl_checkpoint_find(c, t->name) != t || t->extent.offset > f->size ||
            t->extent.len > f->size - t->extent.offset)
            abort();
        sum += t->n_values;
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* The smallest first shard: split.no 0, split.count 2, no tensors. */
    static const char first[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
                                "\x8\0\0\0\0\0\0\0split.no\4\0\0\0\0\0\0\0"
                                "\xb\0\0\0\0\0\0\0split.count\4\0\0\0\2\0\0";
    char path[FUZZ_PATH], other[FUZZ_PATH];
    sl_checkpoint *c;
    sl_err err = {0};
    if (size && data[0] == 'S') {
        fuzz_file("s-00001-of-00002.gguf", first, sizeof first, other);
        fuzz_file("s-00002-of-00002.gguf", data + 1, size - 1, path);
    } else {
        fuzz_file("x.gguf", data, size, path);
    }
    if (sl_checkpoint_open(path, &c, &err) == SL_OK) {
        sink = use(c);
        sl_checkpoint_trim(c, 2);
        sink = use(c);
    } else if (err.code == SL_OK || !err.text[0] || c) {
        abort();
    }
    sl_checkpoint_close(&c);
    return 0;
}
