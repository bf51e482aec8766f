/* Text to token ids and back. Byte-level BPE now; a tokenizer is read from tokenizer.json or from
 * GGUF metadata. Not here: chat templates (runtime/), model weights. After open, encode and decode
 * may be called from any thread, each with its own output; a sl_detok belongs to one thread. */
#ifndef SL_TOKENIZER_H
#define SL_TOKENIZER_H

#include "../stream/base.h"
#include "../stream/checkpoint.h"

typedef struct sl_tokenizer sl_tokenizer;

/* What the ids index: a tokenizer with an id past its rows is SL_EFORMAT and the token named. Rows
 * without tokens are a warning for GGUF, whose token list covers every row. */
typedef struct sl_token_table {
    const char *name; /* of the embedding tensor */
    uint64_t n_rows;
} sl_token_table;

/* json: the text of tokenizer.json, len bytes (not kept). name: the file's path, for messages. */
sl_status sl_tokenizer_from_json(const char *json, uint64_t len, const char *name,
                                 const sl_token_table *table, sl_tokenizer **out, sl_err *err);
/* The same straight from the file, without holding its text. */
sl_status sl_tokenizer_from_file(const sl_file *file, const sl_token_table *table,
                                 sl_tokenizer **out, sl_err *err);
/* From tokenizer.ggml.* metadata. A missing .pre is a warning (GPT-2's rule is used).
 * All three: a kind that is known but not run yet, and none at all, are SL_EUNSUPPORTED; a model,
 * rule or component that nobody knows is SL_EFORMAT and named. table may be NULL. */
sl_status sl_tokenizer_from_gguf(const sl_checkpoint *c, const sl_token_table *table,
                                 sl_tokenizer **out, sl_err *err);
void sl_tokenizer_close(sl_tokenizer **t);

typedef struct sl_ids {
    int32_t *id;
    uint64_t n, cap;
} sl_ids; /* malloc'ed, grown by the callee, freed by sl_ids_free() */
void sl_ids_free(sl_ids *ids);
sl_status sl_ids_push(sl_ids *ids, int32_t id, sl_err *err);

typedef enum sl_special { SL_SPECIAL_PARSE, SL_SPECIAL_TEXT } sl_special;

/* Appends the ids of text (len bytes, any bytes at all) to ids. PARSE: special tokens inside the
 * text are recognised. TEXT: they are plain text (user input cannot forge them); added tokens that
 * are not special are still recognised. Adds no BOS or EOS. */
sl_status sl_tokenizer_encode(const sl_tokenizer *t, const char *text, uint64_t len,
                              sl_special special, sl_ids *ids, sl_err *err);
/* The tokens that the release puts around a single text (BOS, EOS): appended at the front / back of
 * ids. */
sl_status sl_tokenizer_wrap(const sl_tokenizer *t, sl_ids *ids, sl_err *err);

/* Whole text of ids, malloc'ed, NUL appended; the caller frees. skip_special: special tokens give
 * nothing. Bytes that are not UTF-8 become U+FFFD as Hugging Face does it. An id out of range:
 * SL_EINVAL. */
sl_status sl_tokenizer_decode(const sl_tokenizer *t, const int32_t *id, uint64_t n,
                              bool skip_special, char **text, uint64_t *len, sl_err *err);

uint32_t sl_tokenizer_size(const sl_tokenizer *t); /* highest id + 1, added tokens included */
int32_t sl_tokenizer_bos(const sl_tokenizer *t);   /* -1: none */
int32_t sl_tokenizer_eos(const sl_tokenizer *t);   /* -1: none */
bool sl_tokenizer_adds_bos(const sl_tokenizer *t);
bool sl_tokenizer_is_end(const sl_tokenizer *t,
                         int32_t id); /* EOS, end of turn and friends: generation stops here */
bool sl_tokenizer_is_special(const sl_tokenizer *t, int32_t id);
int32_t sl_tokenizer_find(const sl_tokenizer *t, const char *token,
                          uint64_t len); /* exact token text as in the vocabulary; -1: absent */
const char *sl_tokenizer_token(
    const sl_tokenizer *t, int32_t id,
    uint64_t *len); /* vocabulary text (byte-level letters); NULL: a hole */
/* The bytes a token stands for, not made UTF-8: at most sl_detok_room(t) of them at out; 0: a hole
 * or no such id. */
uint64_t sl_tokenizer_bytes(const sl_tokenizer *t, int32_t id, uint8_t *out);
uint64_t sl_tokenizer_memory_bytes(const sl_tokenizer *t);

/* Streaming decode: pieces of text as ids arrive; holds back an incomplete UTF-8 sequence. */
typedef struct sl_detok {
    uint8_t held[8];
    uint32_t n_held;
} sl_detok; /* zeroed before first use */
/* out receives at most sl_detok_room(t) bytes; *len may be 0. Never a broken sequence. */
sl_status sl_detok_push(sl_detok *d, const sl_tokenizer *t, int32_t id, bool skip_special,
                        char *out, uint64_t *len, sl_err *err);
void sl_detok_end(sl_detok *d, char *out, uint64_t *len); /* what is still held, as U+FFFD */
uint64_t sl_detok_room(const sl_tokenizer *t);

#endif
