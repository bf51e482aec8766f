/* Traces: any bytes as a file, or (when they begin with 'R'; 'S': of the first version) as the
 * records of its only block, with the number of events in front. What opens is replayed, and its
 * profile taken. */
#include <stdlib.h>
#include <string.h>

#include "../stream/compress.h"
#include "../stream/profile.h"
#include "../stream/simulate.h"
#include "../stream/trace_impl.h"
#include "lib_fuzz.h"
#include "lib_fuzz_file.h"

enum { MOST_RECORDS = 60000, MOST_PLAN_BYTES = 64 << 20 };

static void put(uint8_t *out, uint64_t v, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        out[i] = (uint8_t)(v >> (8 * i));
}

static void file_of_records(const uint8_t *data, size_t size, char path[FUZZ_PATH])
{
    static uint8_t out[MOST_RECORDS + 4096];
    static sl_compressor *c;
    const size_t n = size - 3;
    uint8_t *at = out + SL_TRACE_START;
    if (!c && !(c = sl_compressor_new(MOST_RECORDS)))
        abort();
    memcpy(out, SL_TRACE_MAGIC, SL_TRACE_MAGIC_LEN);
    put(out + SL_TRACE_MAGIC_LEN, data[0] == 'S' ? 1 : SL_TRACE_VERSION, 4);
    const uint64_t packed = sl_compressor_pack(c, data + 3, n, at + SL_TRACE_BLOCK_HEAD);
    put(at, n, 4);
    put(at + 4, packed, 4);
    at += SL_TRACE_BLOCK_HEAD + packed;
    put(at, 0, SL_TRACE_BLOCK_HEAD);
    put(at + SL_TRACE_BLOCK_HEAD, data[1] | (uint64_t)data[2] << 8, SL_TRACE_TAIL);
    at += SL_TRACE_BLOCK_HEAD + SL_TRACE_TAIL;
    fuzz_file("x.trace", out, (size_t)(at - out), path);
}

static bool small(const sl_trace *t)
{
    const sl_plan *p = sl_trace_plan(t);
    return sl_trace_sums_of(t)->events < 10000 &&
           sl_plan_always_bytes(p) + sl_plan_on_demand_bytes(p) < MOST_PLAN_BYTES;
}

static void replay(sl_trace *t)
{
    sl_simulate_options o = {.stream = sl_trace_about_of(t)->options,
                             .disk = {1e9, 1000, 4},
                             .hints = SL_SIMULATE_ALL_HINTS};
    sl_simulation s;
    o.stream.memory_bytes = 0;
    sl_simulate(t, &o, &s, NULL);
    o.stream.memory_bytes = s.split.floor_bytes;
    o.stream.disk_limit = 0;
    sl_err err = {0};
    if (sl_simulate(t, &o, &s, &err) != SL_OK && !err.text[0])
        abort();
    if (s.decode.need.hits > s.decode.need.needs)
        abort();
}

static void profile(sl_trace *t)
{
    sl_profile *p = sl_profile_new(sl_trace_plan(t), sl_trace_about_of(t)->before_ns, NULL);
    sl_err err = {0};
    if (!p || (sl_profile_take_all(p, t, UINT64_MAX, &err) != SL_OK))
        abort();
    if (sl_profile_sums_of(p)->passes != sl_trace_sums_of(t)->passes)
        abort();
    sl_profile_free(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    sl_trace *t;
    sl_err err = {0};
    if (size > 3 && size < MOST_RECORDS && (data[0] == 'R' || data[0] == 'S'))
        file_of_records(data, size, path);
    else
        fuzz_file("x.trace", data, size, path);
    if (sl_trace_open(path, &t, &err) != SL_OK) {
        if (err.code == SL_OK || !err.text[0] || t)
            abort();
    } else if (small(t)) {
        replay(t);
        profile(t);
    }
    sl_trace_close(&t);
    return 0;
}
