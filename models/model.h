/* A model and its sequences: the boundary between the program (runtime/) and everything that knows
 * layers and tokens. Order of use: sl_model_open (headers and config, no weights) -> prices ->
 * sl_model_load (memory, I/O, workers) -> sessions. One thread uses a model and its sessions. Not
 * here: text (tokenizer.h), sampling, reports (runtime/). */
#ifndef SL_MODEL_H
#define SL_MODEL_H

#include "../kernels/kernels.h"
#include "../kernels/workers.h"
#include "../stream/base.h"
#include "../stream/budget.h"
#include "../stream/checkpoint.h"
#include "../stream/stream.h"
#include "tokenizer.h"

typedef struct sl_model sl_model;
typedef struct sl_session sl_session;

typedef struct sl_model_options {
    uint64_t
        part_bytes; /* a part is at most about this large; default 16 MiB, less for small budgets */
} sl_model_options;
sl_model_options sl_model_defaults(void);

/* Opens the checkpoint, reads its config, checks every tensor's type and shape against it, and lays
 * out the plan. An unsupported architecture, type or setting is SL_EUNSUPPORTED and named. */
sl_status sl_model_open(const char *path, const sl_model_options *o, sl_model **out, sl_err *err);
void sl_model_close(sl_model **m);
const sl_checkpoint *sl_model_checkpoint(const sl_model *m);
const sl_plan *sl_model_plan(const sl_model *m);
/* Lays the plan out again with parts of at most part_bytes (before load only). */
sl_status sl_model_replan(sl_model *m, uint64_t part_bytes, sl_err *err);

/* The tokenizer of this checkpoint. Read on first call; SL_EUNSUPPORTED or SL_EFORMAT when it has
 * none that works: the model still runs on ids. Owned by the model. Checks that every token id has
 * a row in the embedding. */
sl_status sl_model_tokenizer(sl_model *m, const sl_tokenizer **out, sl_err *err);

typedef struct sl_model_info {
    const char *family;      /* "llama", "qwen3" */
    const char *name;        /* as the file calls it, "" if it does not */
    uint32_t n_delta_layers; /* of n_layers: gated delta nets instead of attention */
    uint32_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, n_ctx_max;
    uint32_t n_experts, n_used, n_ff_expert, n_ff_shared; /* of its mixtures; 0: none */
    bool tied;
    uint64_t n_params;
    double rope_base;
    int32_t bos, eos; /* from the config; -1: none */
} sl_model_info;
sl_model_info sl_model_about(const sl_model *m);
/* The id ends a text: EOS and its like of the config, generation_config.json and the tokenizer. */
bool sl_model_is_end(const sl_model *m, int32_t id);
uint64_t sl_model_memory_bytes(
    const sl_model *m); /* heap held by the open model without its tokenizer */

typedef enum sl_kv_type {
    SL_KV_F16,
    SL_KV_F32,
    SL_KV_Q8 /* a byte per number and a scale per 32 (sl_kernels.to_q8): lossy */
} sl_kv_type;
const char *sl_kv_name(sl_kv_type kv); /* "f16", "f32", "q8_0" */

typedef struct sl_session_options {
    uint32_t n_ctx;       /* positions */
    uint32_t chunk;       /* rows of a prefill pass at most; default 512 */
    uint32_t logits_rows; /* rows whose logits one pass can give; default 1 (the last) */
    sl_kv_type kv;
    int32_t predict; /* experts that decode guesses for the next layer, to be read ahead; 0: none;
                        SL_PREDICT_AUTO: as many as a row uses, as long as a layer's experts are not
                        all there. Changes no result. */
    uint32_t predict_layers; /* how many layers ahead are guessed, 1 to 4; default 2. The farther
                                only where the nearer guess came late */
    uint32_t saved_states;   /* of models with recurrent layers: earlier moments kept for
                                sl_session_rewind(), at most 16; default 1 */
} sl_session_options;
enum { SL_PREDICT_AUTO = -1, SL_PREDICT_WRONG = -2 /* the least likely ones: for tests */ };
sl_session_options sl_session_defaults(const sl_model *m);
/* What a session will hold: KV cache, recurrent state with its saved moments, scratch. Threads:
 * worker threads including the caller. */
typedef struct sl_session_price {
    uint64_t kv_bytes, state_bytes, scratch_bytes;
} sl_session_price;
sl_session_price sl_session_cost(const sl_model *m, const sl_session_options *o,
                                 unsigned n_threads);

/* Gives the model its memory and I/O (stream->memory_bytes) and its workers (borrowed, must outlive
 * the model) and kernels. */
sl_status sl_model_load(sl_model *m, const sl_stream_options *stream, sl_workers *workers,
                        sl_cpu_level level, sl_err *err);
sl_stream *sl_model_stream(const sl_model *m); /* NULL before load */

sl_status sl_session_open(sl_model *m, const sl_session_options *o, sl_session **out, sl_err *err);
void sl_session_close(sl_session **s);
uint32_t sl_session_length(const sl_session *s); /* tokens evaluated so far */
uint32_t sl_session_capacity(const sl_session *s);
/* Forgets all tokens from position length on (length <= current). Any length, and at once. A model
 * with recurrent layers then has to see some tokens again, which the next sl_session_eval() does
 * (and gives no logits of them): those from the latest moment at or before length that is known.
 * Known are the start of the sequence, and the last saved_states of: starts of a pass of several
 * rows, and every 256th position or so of single ones; of these, those that leave large gaps are
 * kept. So taking back a part of the last pass repeats at most the rest of that pass; with
 * saved_states 0, all is repeated. The answer is the same bits either way. */
sl_status sl_session_rewind(sl_session *s, uint32_t length, sl_err *err);

/* Called between passes and units; true: stop with SL_ECANCELLED (the session then holds what was
 * complete before). May be NULL.
 */
typedef bool sl_cancel_fn(void *ctx);
/* Logits of rows [first, first + n): row i at logits + i * n_vocab. Borrowed until return.
 * Non-SL_OK ends the evaluation. */
typedef sl_status sl_logits_fn(void *ctx, uint32_t first_position, uint32_t n, const float *logits);
/* Residual entering layer 0 (index 0) and leaving layer i-1 (index i): n rows of n_embd floats. For
 * eval --hidden and tests. */
typedef void sl_hidden_fn(void *ctx, uint32_t index, uint32_t first_position, uint32_t n,
                          const float *rows);

/* Experts of n rows in a layer, best first, and the weights that their outputs are multiplied by:
 * n rows of k each. */
typedef void sl_router_fn(void *ctx, uint32_t layer, uint32_t first_position, uint32_t n,
                          uint32_t k, const uint32_t *ids, const float *weights);

typedef struct sl_eval {
    const int32_t *ids;
    uint32_t n;
    bool all_logits;      /* false: only the last row's */
    sl_logits_fn *logits; /* may be NULL: fill the cache only */
    sl_hidden_fn *hidden; /* may be NULL */
    sl_cancel_fn *cancel; /* may be NULL */
    sl_router_fn *router; /* may be NULL */
    void *ctx;            /* for the four */
} sl_eval;
/* Appends n tokens. Ids are checked against the vocabulary, the length against the capacity. NaN or
 * infinite logits are SL_EFORMAT. On error the session's length is what it was, or that of the last
 * complete chunk; a model with recurrent layers goes on from there as after a rewind. */
sl_status sl_session_eval(sl_session *s, const sl_eval *e, sl_err *err);

/* What the caller's thread is at: the marks of a trace of the model's stream (sl_stream_mark()). A
 * session sets them; SAMPLING is what sl_eval.logits does, OTHER the embedding, and what happens
 * between passes. */
typedef enum sl_work {
    SL_WORK_OTHER,
    SL_WORK_ATTENTION,
    SL_WORK_DELTA_NET,
    SL_WORK_MLP,
    SL_WORK_EXPERTS, /* with the router and the shared expert */
    SL_WORK_HEAD,
    SL_WORK_SAMPLING,
    SL_WORKS
} sl_work;
extern const char *const sl_work_names[SL_WORKS]; /* "other", "attention", "delta_net", ... */

#endif
