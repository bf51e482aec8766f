/* A tokenizer out of GGUF metadata. Lists are checked against each other before anything is built;
 * the rules that a file leaves to its reader (splitting, NFC, taking whole pieces) follow the
 * release's own tokenizer.json by the name in tokenizer.ggml.pre. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../stream/json.h"
#include "tokenizer_impl.h"

/* tokenizer.ggml.token_type */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

typedef struct pre_rule {
    const char *name;
    sl_split_rule split[3];
    uint32_t n_split;
    bool nfc, ignore_merges, adds_bos; /* adds_bos: when the file does not say */
} pre_rule;

static const pre_rule pre_rules[] = {
    {"gpt-2", {SL_SPLIT_GPT2}, 1, false, false, false},
    {"llama-bpe", {SL_SPLIT_LLAMA3}, 1, false, true, true},
    {"llama3", {SL_SPLIT_LLAMA3}, 1, false, true, true},
    {"llama-v3", {SL_SPLIT_LLAMA3}, 1, false, true, true},
    {"qwen2", {SL_SPLIT_QWEN2}, 1, true, false, false},
    {"deepseek-r1-qwen", {SL_SPLIT_QWEN2}, 1, true, false, false},
    {"qwen35", {SL_SPLIT_QWEN35}, 1, true, false, false},
    {"smollm", {SL_SPLIT_DIGIT, SL_SPLIT_GPT2}, 2, false, false, false},
    {"starcoder", {SL_SPLIT_DIGIT, SL_SPLIT_GPT2}, 2, false, false, false},
    {"gpt-4o", {SL_SPLIT_GPT4O}, 1, false, true, false},
    {"deepseek-v3",
     {SL_SPLIT_DIGITS_3, SL_SPLIT_DEEPSEEK_CJK, SL_SPLIT_DEEPSEEK},
     3,
     false,
     false,
     true},
};

typedef struct lists {
    const sl_meta *tokens, *types, *merges;
    uint32_t n;
    const char *path;
    const sl_token_table *table;
} lists;

static bool is_list_of(const sl_meta *m, sl_meta_type type)
{
    return m && m->type == SL_META_ARRAY && m->v.a.type == type;
}

static sl_status get_tokens(const sl_checkpoint *c, lists *l, sl_err *err)
{
    l->tokens = sl_checkpoint_meta_find(c, "tokenizer.ggml.tokens");
    if (!l->tokens)
        return sl_fail(err, SL_EFORMAT, "%s: tokenizer.ggml.tokens is missing", l->path);
    if (!is_list_of(l->tokens, SL_META_STRING) || l->tokens->v.a.n == 0)
        return sl_fail(err, SL_EFORMAT, "%s: tokenizer.ggml.tokens is not a list of strings",
                       l->path);
    if (l->tokens->v.a.n >= SL_TOKEN_LIMIT)
        return sl_fail(err, SL_EUNSUPPORTED, "%s: tokenizer.ggml.tokens has %llu entries", l->path,
                       (unsigned long long)l->tokens->v.a.n);
    l->n = (uint32_t)l->tokens->v.a.n;
    return SL_OK;
}

static sl_status get_types(const sl_checkpoint *c, lists *l, sl_err *err)
{
    const char *key = "tokenizer.ggml.token_type";
    l->types = sl_checkpoint_meta_find(c, key);
    if (!l->types)
        return SL_OK;
    if (!is_list_of(l->types, SL_META_I32) && !is_list_of(l->types, SL_META_U32))
        return sl_fail(err, SL_EFORMAT, "%s: %s is not a list of i32", l->path, key);
    if (l->types->v.a.n != l->n)
        return sl_fail(err, SL_EFORMAT, "%s: %s has %llu entries for %u tokens", l->path, key,
                       (unsigned long long)l->types->v.a.n, l->n);
    return SL_OK;
}

static sl_status check_scores(const sl_checkpoint *c, const lists *l, sl_err *err)
{
    const char *key = "tokenizer.ggml.scores";
    const sl_meta *m = sl_checkpoint_meta_find(c, key);
    if (!m)
        return SL_OK;
    if (!is_list_of(m, SL_META_F32))
        return sl_fail(err, SL_EFORMAT, "%s: %s is not a list of f32", l->path, key);
    if (m->v.a.n != l->n)
        return sl_fail(err, SL_EFORMAT, "%s: %s has %llu entries for %u tokens", l->path, key,
                       (unsigned long long)m->v.a.n, l->n);
    for (uint64_t i = 0; i < l->n; i++) {
        double score;
        if (!sl_meta_array_number(m, i, &score) || isnan(score))
            return sl_fail(err, SL_EFORMAT, "%s: %s: entry %llu is not a number", l->path, key,
                           (unsigned long long)i);
    }
    return SL_OK;
}

static int64_t type_of(const lists *l, uint32_t id)
{
    int64_t type = TYPE_NORMAL;
    if (l->types)
        sl_meta_array_int(l->types, id, &type);
    return type;
}

static bool is_byte_name(sl_text t)
{
    static const char digits[] = "0123456789ABCDEFabcdef";
    return t.len == 6 && memcmp(t.data, "<0x", 3) == 0 && t.data[5] == '>' && t.data[3] &&
           t.data[4] && strchr(digits, t.data[3]) && strchr(digits, t.data[4]);
}

/* Fills the vocabulary; control and user-defined tokens are also added tokens. */
static sl_status fill_vocab(sl_tokenizer *t, const lists *l, sl_added *added, uint32_t *n_added,
                            sl_err *err)
{
    for (uint32_t id = 0; id < l->n; id++) {
        sl_text text = l->tokens->v.a.text[id];
        int64_t type = type_of(l, id);
        bool control = type == TYPE_CONTROL, is_added = control || type == TYPE_USER;
        unsigned flags =
            SL_TOKEN_MODEL | (is_added ? SL_TOKEN_ADDED : 0u) | (control ? SL_TOKEN_SPECIAL : 0u);
        uint32_t at;
        if (type == TYPE_BYTE && !is_byte_name(text))
            return sl_fail(err, SL_EFORMAT,
                           "%s: tokenizer.ggml.tokens: %s is marked as a byte but is none", l->path,
                           sl_quote(text).s);
        sl_status st = sl_vocab_keep(&t->vocab, text, &at, err);
        if (!st)
            st = sl_vocab_set(&t->vocab, id, at, flags, err);
        if (st)
            return st;
        if (is_added && text.len)
            added[(*n_added)++] = (sl_added){.at = at, .id = (int32_t)id, .special = control};
    }
    return SL_OK;
}

static sl_status index_vocab(sl_tokenizer *t, const lists *l, sl_err *err)
{
    uint32_t n_twice = 0, twice = 0;
    sl_status st = sl_vocab_index(&t->vocab, &n_twice, &twice, err);
    if (!st && n_twice)
        sl_log(SL_LOG_WARN, "%s: tokenizer.ggml.tokens: token %s comes more than once (%u such)",
               l->path, sl_quote(l->tokens->v.a.text[twice]).s, n_twice);
    return st;
}

static sl_status read_vocab(sl_tokenizer *t, const lists *l, sl_err *err)
{
    uint32_t n_added = 0, most = 0;
    for (uint32_t id = 0; id < l->n; id++)
        most += type_of(l, id) == TYPE_CONTROL || type_of(l, id) == TYPE_USER;
    sl_added *added = calloc(most ? most : 1, sizeof *added);
    if (!added)
        return sl_fail(err, SL_ENOMEM, "out of memory for added tokens");
    sl_status st = fill_vocab(t, l, added, &n_added, err);
    if (!st)
        st = index_vocab(t, l, err);
    if (!st)
        st = sl_tokenizer_set_added(t, added, n_added, err);
    free(added);
    return st;
}

/* key: an id of the vocabulary; absent: *id stays. */
static sl_status read_id(const sl_checkpoint *c, const lists *l, const char *key, int32_t *id,
                         sl_err *err)
{
    const sl_meta *m = sl_checkpoint_meta_find(c, key);
    int64_t v;
    if (!m)
        return SL_OK;
    if (!sl_meta_int(m, &v))
        return sl_fail(err, SL_EFORMAT, "%s: %s is not an integer", l->path, key);
    if (v < 0 || v >= l->n)
        return sl_fail(err, SL_EFORMAT, "%s: %s is %lld; the vocabulary has %u tokens", l->path,
                       key, (long long)v, l->n);
    *id = (int32_t)v;
    return SL_OK;
}

static bool read_switch(const sl_checkpoint *c, const char *key, bool otherwise)
{
    const sl_meta *m = sl_checkpoint_meta_find(c, key);
    int64_t v;
    return m && sl_meta_int(m, &v) ? v != 0 : otherwise;
}

static sl_status read_ends(sl_tokenizer *t, const sl_checkpoint *c, const lists *l, sl_err *err)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    sl_status st = read_id(c, l, "tokenizer.ggml.bos_token_id", &t->bos, err);
    for (size_t i = 0; i < 3 && !st; i++) {
        int32_t id = -1;
        st = read_id(c, l, keys[i], &id, err);
        if (!st && id >= 0)
            t->vocab.flags[id] |= SL_TOKEN_END;
        if (i == 0)
            t->eos = id;
    }
    return st;
}

static void set_wrap(sl_tokenizer *t, const sl_checkpoint *c, bool adds_bos)
{
    if (t->bos >= 0 && read_switch(c, "tokenizer.ggml.add_bos_token", adds_bos))
        t->before[t->n_before++] = t->bos;
    if (t->eos >= 0 && read_switch(c, "tokenizer.ggml.add_eos_token", false))
        t->after[t->n_after++] = t->eos;
}

/* ---- byte-level BPE ---- */
static sl_status set_pre(sl_tokenizer *t, const sl_checkpoint *c, const lists *l,
                         const pre_rule **out, sl_err *err)
{
    const char *key = "tokenizer.ggml.pre";
    const sl_meta *m = sl_checkpoint_meta_find(c, key);
    const pre_rule *rule = NULL;
    if (m && m->type != SL_META_STRING)
        return sl_fail(err, SL_EFORMAT, "%s: %s is not a string", l->path, key);
    if (!m || sl_text_is(m->v.s, "default")) {
        sl_log(SL_LOG_WARN, "%s: %s %s: splitting text as GPT-2 does, which may be wrong", l->path,
               key, m ? "is \"default\"" : "is missing");
        rule = &pre_rules[0];
    }
    for (size_t i = 0; i < sizeof pre_rules / sizeof *pre_rules && !rule; i++)
        if (sl_text_is(m->v.s, pre_rules[i].name))
            rule = &pre_rules[i];
    if (!rule)
        return sl_fail(err, SL_EFORMAT, "%s: %s %s is not known", l->path, key, sl_quote(m->v.s).s);
    t->nfc = rule->nfc;
    t->ignore_merges = rule->ignore_merges;
    *out = rule;
    sl_status st = SL_OK;
    for (uint32_t i = 0; i < rule->n_split && !st; i++)
        st = sl_pretoken_add(&t->pretoken, rule->split[i], false, err);
    return st;
}

static sl_status merge_failed(const lists *l, uint64_t i, sl_text text, sl_err *err)
{
    return sl_fail(err, SL_EFORMAT,
                   "%s: tokenizer.ggml.merges: entry %llu, %s, is not two tokens that make a third",
                   l->path, (unsigned long long)i, sl_quote(text).s);
}

/* "left right": a part may itself hold no space. */
static sl_status read_merge(sl_tokenizer *t, const lists *l, uint64_t i, sl_buffer *both,
                            sl_err *err)
{
    sl_text text = l->merges->v.a.text[i];
    const char *space = text.len ? memchr(text.data + 1, ' ', (size_t)text.len - 1) : NULL;
    if (!space)
        return merge_failed(l, i, text, err);
    uint64_t left = (uint64_t)(space - text.data), right = text.len - left - 1;
    both->len = 0;
    sl_status st = sl_buffer_reserve(both, text.len, err);
    if (st)
        return st;
    memcpy(both->data, text.data, (size_t)left);
    memcpy(both->data + left, space + 1, (size_t)right);
    sl_merge m = {sl_vocab_find(&t->vocab, (sl_text){both->data, left}, SL_TOKEN_MODEL),
                  sl_vocab_find(&t->vocab, (sl_text){both->data + left, right}, SL_TOKEN_MODEL),
                  sl_vocab_find(&t->vocab, (sl_text){both->data, left + right}, SL_TOKEN_MODEL)};
    if (m.left < 0 || m.right < 0 || m.result < 0)
        return merge_failed(l, i, text, err);
    return sl_bpe_add(&t->bpe, m, err);
}

static sl_status read_merges(sl_tokenizer *t, const sl_checkpoint *c, lists *l, sl_err *err)
{
    l->merges = sl_checkpoint_meta_find(c, "tokenizer.ggml.merges");
    if (!is_list_of(l->merges, SL_META_STRING))
        return sl_fail(err, SL_EFORMAT, "%s: tokenizer.ggml.merges is %s", l->path,
                       l->merges ? "not a list of strings" : "missing");
    sl_buffer both = {0};
    sl_status st = SL_OK;
    for (uint64_t i = 0; i < l->merges->v.a.n && !st; i++)
        st = read_merge(t, l, i, &both, err);
    sl_buffer_free(&both);
    return st;
}

static sl_status read_gpt2(sl_tokenizer *t, const sl_checkpoint *c, lists *l, sl_err *err)
{
    const pre_rule *rule = NULL;
    sl_status st = set_pre(t, c, l, &rule, err);
    if (!st)
        st = read_vocab(t, l, err);
    if (!st)
        st = sl_tokenizer_check_rows(t, l->table, err);
    if (!st)
        st = read_ends(t, c, l, err);
    if (!st)
        st = read_merges(t, c, l, err);
    if (st)
        return st;
    set_wrap(t, c, rule->adds_bos);
    return sl_tokenizer_finish(t, err);
}

/* Checks all there is to check, then says that it cannot be run. */
static sl_status read_other(sl_tokenizer *t, const sl_checkpoint *c, lists *l, const char *model,
                            sl_err *err)
{
    sl_status st = read_vocab(t, l, err);
    if (!st)
        st = sl_tokenizer_check_rows(t, l->table, err);
    if (!st)
        st = read_ends(t, c, l, err);
    if (st)
        return st;
    if (strcmp(model, "llama") == 0)
        sl_tokenizer_check_bytes(t, l->path);
    return sl_fail(err, SL_EUNSUPPORTED, "%s: tokenizer.ggml.model \"%s\" is not supported yet",
                   l->path, model);
}

static sl_status read_model(sl_tokenizer *t, const sl_checkpoint *c, const sl_meta *model,
                            const sl_token_table *table, sl_err *err)
{
    static const char *const others[] = {"llama", "gemma4", "bert", "t5", "rwkv", "plamo2"};
    lists l = {.path = sl_checkpoint_path(c), .table = table};
    if (model->type != SL_META_STRING)
        return sl_fail(err, SL_EFORMAT, "%s: tokenizer.ggml.model is not a string", l.path);
    sl_status st = get_tokens(c, &l, err);
    if (!st)
        st = get_types(c, &l, err);
    if (!st)
        st = check_scores(c, &l, err);
    if (st)
        return st;
    if (sl_text_is(model->v.s, "gpt2"))
        return read_gpt2(t, c, &l, err);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (sl_text_is(model->v.s, others[i]))
            return read_other(t, c, &l, others[i], err);
    return sl_fail(err, SL_EFORMAT, "%s: tokenizer.ggml.model %s is not known", l.path,
                   sl_quote(model->v.s).s);
}

sl_status sl_tokenizer_from_gguf(const sl_checkpoint *c, const sl_token_table *table,
                                 sl_tokenizer **out, sl_err *err)
{
    *out = NULL;
    const sl_meta *model = sl_checkpoint_meta_find(c, "tokenizer.ggml.model");
    if (!model)
        return sl_fail(err, SL_EUNSUPPORTED, "%s: no tokenizer.ggml.model: there is no tokenizer",
                       sl_checkpoint_path(c));
    sl_tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return sl_fail(err, SL_ENOMEM, "out of memory for the tokenizer");
    t->unk = t->bos = t->eos = -1;
    t->has_rows_warning = true;
    sl_status st = read_model(t, c, model, table, err);
    if (st)
        sl_tokenizer_close(&t);
    *out = t;
    return st;
}
