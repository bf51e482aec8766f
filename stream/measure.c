/* What the disk gives: a stream over the plan's own files with a small ring and a pass that
 * computes nothing. The same code and pieces as in earnest, so the same figure. */
#include "plan.h"

enum { RING_BYTES = 64 << 20 };

/* One pass; *bytes: read since the stream was opened. */
static sl_status walk(sl_stream *s, uint32_t n_units, uint64_t until_ns, uint64_t *bytes,
                      sl_err *err)
{
    sl_stream_stats stats;
    sl_status st = sl_pass_begin(s, SL_PASS_DECODE, 1, n_units, err);
    for (uint32_t u = 0; u < n_units && st == SL_OK && sl_now_ns() < until_ns; u++) {
        st = sl_unit_enter(s, u, err);
        if (st == SL_OK)
            sl_unit_leave(s, u);
    }
    sl_stream_stats_get(s, &stats);
    *bytes = stats.bytes_read;
    sl_pass_end(s);
    return st;
}

/* As little memory as the floor and such a ring need: nearly nothing is pinned, so that passes go
 * on reading. Never more than the caller's. */
static uint64_t memory_for(const sl_plan *p, const sl_stream_options *o)
{
    sl_split split;
    sl_stream_options none = *o;
    none.memory_bytes = 0;
    sl_split_choose(p, &none, &split, NULL, NULL, NULL);
    uint64_t want = split.floor_bytes + RING_BYTES;
    return want < o->memory_bytes || !o->memory_bytes ? want : o->memory_bytes;
}

sl_status sl_stream_measure_disk(const sl_plan *p, const sl_stream_options *o, double seconds,
                                 double *bytes_per_s, sl_err *err)
{
    sl_stream_options with = *o;
    sl_stream *s = NULL;
    with.io = SL_IO_DIRECT;
    with.memory_bytes = memory_for(p, o);
    with.ring_bytes = RING_BYTES;
    *bytes_per_s = 0;
    sl_status st = sl_stream_open(p, &with, &s, err);
    if (st)
        return st;
    uint64_t start = sl_now_ns(), until = start + (uint64_t)(seconds * 1e9), bytes = 0, before = 0;
    do {
        before = bytes;
        st = walk(s, p->n_units, until, &bytes, err);
    } while (st == SL_OK && bytes > before && sl_now_ns() < until);
    *bytes_per_s = (double)bytes * 1e9 / (double)(sl_now_ns() - start + 1);
    sl_stream_close(&s);
    return st;
}
