/* Opens a model with everything a test wants to vary, and reads golden tensors. Header only: just
 * the models* tests use it. */
#ifndef SL_LIB_MODEL_H
#define SL_LIB_MODEL_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../models/model.h"
#include "lib_test.h"

typedef struct setting {
    uint64_t memory; /* of the stream; 0: its floor; UINT64_MAX: everything */
    sl_io io;
    unsigned threads;
    uint32_t chunk, logits_rows, n_ctx;
    sl_kv_type kv;
    sl_cpu_level level;
    uint64_t part_bytes;
    int32_t predict;
    uint32_t saved_states;
    sl_stream_options stream; /* the rest of it: faults, disk limit */
} setting;

typedef struct loaded {
    sl_model *model;
    sl_session *session;
    sl_workers *workers;
    sl_split split;
} loaded;

static inline setting setting_default(void)
{
    setting s = {.memory = UINT64_MAX,
                 .io = SL_IO_PREAD,
                 .threads = 2,
                 .chunk = 512,
                 .logits_rows = 64,
                 .n_ctx = 128,
                 .saved_states = 1,
                 .kv = SL_KV_F32};
    s.level = sl_cpu_best();
    s.part_bytes = 64 << 20;
    s.predict = SL_PREDICT_AUTO;
    s.stream = sl_stream_defaults();
    return s;
}

static inline void unload(loaded *l)
{
    sl_session_close(&l->session);
    sl_model_close(&l->model);
    sl_workers_close(&l->workers);
}

/* Memory of the stream: "everything" is all parts and their share, found through the split. */
static inline uint64_t stream_memory(const sl_plan *p, const setting *s, sl_split *split)
{
    sl_stream_options o = s->stream;
    o.io = s->io;
    o.memory_bytes = 1ull << 40;
    sl_stream_split(p, &o, split, NULL);
    if (s->memory == 0)
        return split->floor_bytes;
    return s->memory == UINT64_MAX
               ? split->pinned_bytes + split->rows_bytes + split->io_bytes + (8u << 20)
               : s->memory;
}

static inline sl_status load(const char *path, const setting *s, loaded *l, sl_err *err)
{
    memset(l, 0, sizeof *l);
    const sl_model_options mo = {s->part_bytes};
    sl_status st = sl_model_open(path, &mo, &l->model, err);
    if (st != SL_OK)
        return st;
    sl_stream_options o = s->stream;
    o.io = s->io;
    o.memory_bytes = stream_memory(sl_model_plan(l->model), s, &l->split);
    l->workers = sl_workers_open(s->threads);
    st = sl_model_load(l->model, &o, l->workers, s->level, err);
    sl_session_options so = {.n_ctx = s->n_ctx,
                             .chunk = s->chunk,
                             .logits_rows = s->logits_rows,
                             .kv = s->kv,
                             .predict = s->predict,
                             .saved_states = s->saved_states};
    if (st == SL_OK)
        st = sl_session_open(l->model, &so, &l->session, err);
    if (st == SL_OK)
        l->split = *sl_stream_split_of(sl_model_stream(l->model));
    else
        unload(l);
    return st;
}

/* Collects logits in rows from position 0 of the call. */
typedef struct sink {
    float *logits;
    uint32_t n_vocab, first, rows;
} sink;

static inline sl_status take_logits(void *ctx, uint32_t first_position, uint32_t n,
                                    const float *logits)
{
    sink *s = ctx;
    memcpy(s->logits + (size_t)(first_position - s->first) * s->n_vocab, logits,
           (size_t)n * s->n_vocab * sizeof *logits);
    s->rows += n;
    return SL_OK;
}

/* Logits of all n rows, or of the last row only, into logits. */
static inline sl_status eval(loaded *l, const int32_t *ids, uint32_t n, bool all, float *logits,
                             sl_err *err)
{
    sink s = {logits, sl_model_about(l->model).n_vocab,
              sl_session_length(l->session) + (all ? 0 : n - 1), 0};
    sl_eval e = {.ids = ids, .n = n, .all_logits = all, .logits = take_logits, .ctx = &s};
    return sl_session_eval(l->session, &e, err);
}

static inline int32_t argmax(const float *x, uint32_t n)
{
    int32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = (int32_t)i;
    return best;
}

/* A golden tensor as malloc'ed memory (its values as stored); NULL when absent. */
static inline void *golden(const sl_checkpoint *c, const char *name, uint64_t *n_values)
{
    const sl_tensor *t = sl_checkpoint_find(c, name);
    void *data = t ? malloc(t->extent.len ? (size_t)t->extent.len : 1) : NULL;
    if (!data || sl_checkpoint_read(c, t, data, NULL) != SL_OK) {
        free(data);
        return NULL;
    }
    *n_values = t->n_values;
    return data;
}

/* Token ids stored as I32 or I64. */
static inline uint32_t golden_ids(const sl_checkpoint *c, const char *name, int32_t *out,
                                  uint32_t cap)
{
    uint64_t n = 0;
    void *data = golden(c, name, &n);
    bool wide = data && sl_checkpoint_find(c, name)->type == SL_I64;
    for (uint64_t i = 0; data && i < n && i < cap; i++)
        out[i] = wide ? (int32_t)((int64_t *)data)[i] : ((int32_t *)data)[i];
    free(data);
    return (uint32_t)(n < cap ? n : cap);
}

static inline double max_difference(const float *a, const float *b, size_t n, double *rms)
{
    double most = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        most = d > most || d != d ? d : most;
        sum += d * d;
    }
    if (rms)
        *rms = sqrt(sum / (double)(n ? n : 1));
    return most;
}

#endif
