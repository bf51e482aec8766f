/* The parts of a tokenizer, private to its files: tokenizer.c (encode, decode), tokenizer_json.c
 * and tokenizer_gguf.c (the two sources), vocab.c (token texts), bpe.c (merges), pretoken.c
 * (splitting), normalize.c (NFC). A text goes through them in the order of Hugging Face's
 * tokenizers: added tokens are cut out; the rest is normalised; added tokens marked "normalized"
 * are cut out; the rest is split into pieces; each piece becomes symbols, and merges join them.
 * After open everything here is read-only; sl_bpe_work belongs to one call. */
#ifndef SL_TOKENIZER_IMPL_H
#define SL_TOKENIZER_IMPL_H

#include "../stream/bytes.h"
#include "tokenizer.h"

/* NULL: no table, nothing to check. */
sl_status sl_tokenizer_check_rows(const sl_tokenizer *t, const sl_token_table *table, sl_err *err);

/* ---- vocab.c: id -> text and flags, text -> id ---- */
enum {
    SL_TOKEN_MODEL = 1,   /* of the model's vocabulary (merges and symbols see these alone) */
    SL_TOKEN_ADDED = 2,   /* cut out of texts before anything else */
    SL_TOKEN_SPECIAL = 4, /* nothing when decoding without specials; text under SL_SPECIAL_TEXT */
    SL_TOKEN_END = 8      /* generation stops here */
};
enum { SL_TOKEN_LIMIT = (1 << 24) - 2 }; /* ids and merges: a slot holds 24 bits */

/* Texts lie in one block, each behind its length, so that a token costs its bytes and one, and ids
 * may come in any order. */
typedef struct sl_vocab {
    uint8_t *text;
    uint64_t text_len, text_cap;
    uint32_t *at;   /* id -> place in text; 0: a hole */
    uint8_t *flags; /* id -> SL_TOKEN_* */
    uint32_t n, cap;
    uint32_t *slot; /* open addressing: id + 1, and 8 bits of the hash; 0: free */
    uint32_t n_slots;
    uint32_t longest; /* bytes of the longest text */
} sl_vocab;

void sl_vocab_free(sl_vocab *v);
uint64_t sl_vocab_bytes(const sl_vocab *v);
/* Keeps a text that no id has yet. */
sl_status sl_vocab_keep(sl_vocab *v, sl_text text, uint32_t *at, sl_err *err);
sl_text sl_vocab_text(const sl_vocab *v, uint32_t at);
/* Gives the kept text to an id (below SL_TOKEN_LIMIT) without one. */
sl_status sl_vocab_set(sl_vocab *v, uint32_t id, uint32_t at, unsigned flags, sl_err *err);
/* Builds the way from text to id afresh. Of two ids with one text the one kept last counts.
 * n_twice: how many ids lost theirs so, twice: one of them; both may be NULL. */
sl_status sl_vocab_index(sl_vocab *v, uint32_t *n_twice, uint32_t *twice, sl_err *err);
int32_t sl_vocab_find(const sl_vocab *v, sl_text text, unsigned flags); /* any of the flags; -1 */
void sl_vocab_shrink(sl_vocab *v);                                      /* gives back spare room */

/* A token's text for a message: quoted, at most 64 bytes, other bytes than printable UTF-8 as \xNN.
 */
typedef struct sl_quoted {
    char s[288];
} sl_quoted;
sl_quoted sl_quote(sl_text text);

/* ---- bpe.c: which neighbours become one ---- */
typedef struct sl_merge {
    int32_t left, right, result;
} sl_merge;

typedef struct sl_bpe {
    sl_merge *merge; /* by rank */
    uint32_t n, cap;
    uint32_t *slot; /* as in sl_vocab: rank + 1 */
    uint32_t n_slots;
} sl_bpe;

void sl_bpe_free(sl_bpe *b);
uint64_t sl_bpe_bytes(const sl_bpe *b);
sl_status sl_bpe_add(sl_bpe *b, sl_merge m, sl_err *err); /* the next rank */
/* Builds the table; of two equal pairs the later rank counts. Also gives back spare room. */
sl_status sl_bpe_index(sl_bpe *b, sl_err *err);

typedef struct sl_bpe_node {
    int32_t id;
    uint32_t prev, next, rank; /* rank of the merge with next; UINT32_MAX: none */
} sl_bpe_node;
typedef struct sl_bpe_work {
    int32_t *symbol;
    sl_bpe_node *node;
    uint64_t *heap; /* rank << 32 | place */
    uint64_t symbol_cap, node_cap, heap_cap;
} sl_bpe_work; /* zeroed before first use */
void sl_bpe_work_free(sl_bpe_work *w);
/* Room for n symbols at w->symbol, for the caller to fill. */
sl_status sl_bpe_room(sl_bpe_work *w, uint64_t n, sl_err *err);
/* Merges the first n symbols, lowest rank first and leftmost of equals, and appends what is left.
 * O(n log n). */
sl_status sl_bpe_run(const sl_bpe *b, sl_bpe_work *w, uint64_t n, sl_ids *ids, sl_err *err);

/* ---- pretoken.c: splitting into pieces ---- */
typedef enum sl_split_rule {
    SL_SPLIT_UNKNOWN = -1,
    SL_SPLIT_GPT2,
    SL_SPLIT_LLAMA3,
    SL_SPLIT_QWEN2,
    SL_SPLIT_QWEN35,
    SL_SPLIT_GPT4O,
    SL_SPLIT_DIGIT,
    SL_SPLIT_DIGITS,
    SL_SPLIT_DIGITS_3,
    SL_SPLIT_DEEPSEEK_CJK,
    SL_SPLIT_DEEPSEEK,
    SL_SPLIT_COUNT
} sl_split_rule;
sl_split_rule sl_split_rule_of(const char *regex); /* by the text a tokenizer.json spells it with */

enum { SL_MAX_SPLITS = 8 };
typedef struct sl_pretoken {
    void *code[SL_MAX_SPLITS];
    bool matches_only[SL_MAX_SPLITS];
    uint32_t n;
    uint64_t bytes; /* of compiled code */
} sl_pretoken;

/* Adds a stage: it splits every piece of the stage before. matches_only: what lies between two
 * matches is dropped; otherwise it is a piece too. */
sl_status sl_pretoken_add(sl_pretoken *p, sl_split_rule rule, bool matches_only, sl_err *err);
void sl_pretoken_free(sl_pretoken *p);
typedef sl_status sl_piece_fn(void *ctx, const char *piece, uint64_t len, sl_err *err);
/* text: valid UTF-8. */
sl_status sl_pretoken_split(const sl_pretoken *p, const char *text, uint64_t len, sl_piece_fn *fn,
                            void *ctx, sl_err *err);

/* ---- normalize.c ---- */
typedef struct sl_buffer {
    char *data;
    uint64_t len, cap;
} sl_buffer; /* zeroed before first use */
void sl_buffer_free(sl_buffer *b);
sl_status sl_buffer_reserve(sl_buffer *b, uint64_t more, sl_err *err);
/* NFC of valid UTF-8. *out: text itself when nothing changes, otherwise in buffer. */
sl_status sl_normalize_nfc(sl_text text, sl_buffer *buffer, sl_text *out, sl_err *err);
bool sl_is_word(uint32_t c); /* \w and \s of Unicode's regular expressions */
bool sl_is_space(uint32_t c);
uint32_t sl_utf8_get(const char *s, uint32_t *len); /* the code point of a valid sequence */

/* ---- the whole ---- */
typedef struct sl_added {
    uint32_t at; /* what is looked for: the content, normalised if normalized */
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
} sl_added;
typedef struct sl_added_set {
    sl_added *token; /* sorted by text */
    uint32_t n;
    uint8_t first[32]; /* bit set: some text begins with this byte */
} sl_added_set;

enum { SL_MAX_WRAP = 8 };
struct sl_tokenizer {
    sl_vocab vocab;
    sl_bpe bpe;
    sl_pretoken pretoken;
    sl_added_set raw, normalized; /* looked for before and after normalising */
    bool nfc, ignore_merges, fuse_unk, byte_fallback;
    bool has_rows_warning; /* fewer tokens than rows is worth a warning (GGUF lists every row) */
    int32_t unk, bos, eos;
    int32_t before[SL_MAX_WRAP], after[SL_MAX_WRAP];
    uint32_t n_before, n_after;
    int32_t byte_id[256][2]; /* symbols of a byte; -1: none */
};

/* For the two sources, in this order: the vocabulary is complete and indexed; added tokens (an
 * array of n, moved out of); then the rest. */
sl_status sl_tokenizer_set_added(sl_tokenizer *t, sl_added *added, uint32_t n, sl_err *err);
sl_status sl_tokenizer_finish(sl_tokenizer *t, sl_err *err);
/* Which of <0x00> .. <0xFF> are there: a missing one is a warning that names it. */
void sl_tokenizer_check_bytes(const sl_tokenizer *t, const char *name);

#endif
