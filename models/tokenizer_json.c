/* tokenizer.json, in one pass over a pull reader. Its pipeline (normalizer, pre_tokenizer,
 * post_processor, decoder) is interpreted component by component; one that is not known is an error
 * that names it. */
#include <stdlib.h>
#include <string.h>

#include "../stream/json.h"
#include "tokenizer_impl.h"

enum { MAX_NESTING = 8, TYPE_BYTES = 40, PATTERN_BYTES = 640, NAME_BYTES = 96, MAX_SPECIALS = 8 };

/* A special token of a TemplateProcessing, and what it stands for. */
typedef struct special {
    char name[NAME_BYTES];
    int64_t id[SL_MAX_WRAP];
    uint32_t n;
} special;

typedef struct reading {
    sl_json_reader *r;
    sl_tokenizer *t;
    const sl_token_table *table;
    const char *name;
    sl_err *err;
    sl_added *added;
    int32_t n_added, added_cap;
    uint32_t n_vocab;
    bool has_model, has_vocab, has_merges, merges_wait; /* merges_wait: they came before vocab */
    char unk[NAME_BYTES];
    sl_buffer both; /* the parts of a merge, one behind the other */
    /* the pipeline */
    bool byte_level, byte_decoder;
    char later[2 * TYPE_BYTES]; /* the first component that is known but not supported yet */
    char template[SL_MAX_WRAP * 2][NAME_BYTES]; /* token names; "" is the text */
    uint32_t n_template;
    special special[MAX_SPECIALS];
    uint32_t n_special;
} reading;

/* What a component may hold; each section's apply() takes what its types need. */
typedef struct component {
    char type[TYPE_BYTES];
    char pattern[PATTERN_BYTES], behavior[TYPE_BYTES];
    bool pattern_is_regex, use_regex, add_prefix_space, individual_digits, invert;
} component;

typedef struct section {
    const char *key, *children;
    void (*apply)(reading *rd, const component *c);
} section;

/* Copies a string value; one that does not fit is cut, and then equals nothing that is known. */
static void read_name(sl_json_reader *r, char *out, size_t size)
{
    sl_text text;
    out[0] = '\0';
    if (!sl_json_read_string(r, &text))
        return;
    size_t n = text.len < size - 1 ? (size_t)text.len : size - 1;
    memcpy(out, text.data, n);
    out[n] = '\0';
}

/* null is as good as absent. */
static bool read_flag(sl_json_reader *r, bool otherwise)
{
    bool v = otherwise;
    if (sl_json_peek(r) == SL_JSON_NULL)
        sl_json_read_null(r);
    else
        sl_json_read_bool(r, &v);
    return v;
}

static void read_pattern(reading *rd, component *c)
{
    sl_text key;
    for (bool any = sl_json_enter_object(rd->r); any && sl_json_next_key(rd->r, &key);) {
        c->pattern_is_regex = sl_text_is(key, "Regex");
        read_name(rd->r, c->pattern, sizeof c->pattern);
    }
}

/* ---- post_processor: TemplateProcessing ---- */
static void read_template_part(reading *rd)
{
    sl_text key, inner;
    char id[NAME_BYTES] = "";
    bool is_text = false;
    for (bool any = sl_json_enter_object(rd->r); any && sl_json_next_key(rd->r, &key);) {
        is_text = sl_text_is(key, "Sequence");
        for (any = sl_json_enter_object(rd->r); any && sl_json_next_key(rd->r, &inner);)
            if (sl_text_is(inner, "id"))
                read_name(rd->r, id, sizeof id);
            else
                sl_json_skip(rd->r);
    }
    if (rd->n_template == SL_MAX_WRAP * 2 || (is_text && strcmp(id, "A") != 0))
        sl_json_reject(rd->r, SL_EUNSUPPORTED, "post_processor: a template of this form");
    else
        memcpy(rd->template[rd->n_template++], is_text ? "" : id, is_text ? 1 : sizeof id);
}

static void read_template(reading *rd)
{
    rd->n_template = 0;
    for (bool any = sl_json_enter_array(rd->r); any && sl_json_next_item(rd->r);)
        read_template_part(rd);
}

static void read_special_ids(reading *rd, special *s)
{
    for (bool any = sl_json_enter_array(rd->r); any && sl_json_next_item(rd->r);) {
        if (s->n == SL_MAX_WRAP) {
            sl_json_reject(rd->r, SL_EUNSUPPORTED, "post_processor: more than %d ids for %s",
                           SL_MAX_WRAP, s->name);
            return;
        }
        sl_json_read_int(rd->r, &s->id[s->n++]);
    }
}

static void read_specials(reading *rd)
{
    sl_text key;
    for (bool any = sl_json_enter_object(rd->r); any && sl_json_next_key(rd->r, &key);) {
        if (rd->n_special == MAX_SPECIALS || key.len >= NAME_BYTES) {
            sl_json_reject(rd->r, SL_EUNSUPPORTED, "post_processor: special tokens of this form");
            return;
        }
        special *s = &rd->special[rd->n_special++];
        memcpy(s->name, key.data, (size_t)key.len);
        for (any = sl_json_enter_object(rd->r); any && sl_json_next_key(rd->r, &key);)
            if (sl_text_is(key, "ids"))
                read_special_ids(rd, s);
            else
                sl_json_skip(rd->r);
    }
}

/* ---- components ---- */
static bool is_type(const component *c, const char *const *types)
{
    for (; *types; types++)
        if (strcmp(c->type, *types) == 0)
            return true;
    return false;
}

/* Known, but not yet to be run: refused at the end, when everything else has been checked. */
static void put_off(reading *rd, const char *key, const component *c)
{
    if (rd->later[0])
        return;
    size_t n = strlen(key);
    memcpy(rd->later, key, n);
    rd->later[n] = ' ';
    memcpy(rd->later + n + 1, c->type, strlen(c->type) + 1);
}

static void refuse(reading *rd, const char *key, const component *c)
{
    sl_json_reject(rd->r, SL_EFORMAT, "%s: type \"%s\" is not known", key, c->type);
}

static void apply_normalizer(reading *rd, const component *c)
{
    static const char *const later[] = {"Replace", "Prepend", NULL};
    if (strcmp(c->type, "NFC") == 0)
        rd->t->nfc = true;
    else if (is_type(c, later))
        put_off(rd, "normalizer", c);
    else
        refuse(rd, "normalizer", c);
}

static void add_split(reading *rd, sl_split_rule rule, bool matches_only)
{
    sl_err err = {0};
    if (rd->byte_level)
        sl_json_reject(rd->r, SL_EUNSUPPORTED, "pre_tokenizer: a split behind ByteLevel");
    else if (sl_pretoken_add(&rd->t->pretoken, rule, matches_only, &err))
        sl_json_reject(rd->r, err.code, "%s", err.text);
}

static void apply_split(reading *rd, const component *c)
{
    sl_split_rule rule = c->pattern_is_regex ? sl_split_rule_of(c->pattern) : SL_SPLIT_UNKNOWN;
    bool removed = strcmp(c->behavior, "Removed") == 0 && c->invert;
    if (rule == SL_SPLIT_UNKNOWN)
        sl_json_reject(rd->r, SL_EFORMAT,
                       "pre_tokenizer: Split by \"%.200s\", which is none of the known rules",
                       c->pattern);
    else if (!removed && strcmp(c->behavior, "Isolated") != 0)
        sl_json_reject(rd->r, SL_EUNSUPPORTED,
                       "pre_tokenizer: Split with behavior \"%s\"%s is not supported", c->behavior,
                       c->invert ? ", inverted," : "");
    else
        add_split(rd, rule, removed);
}

static void apply_byte_level(reading *rd, const component *c)
{
    if (c->add_prefix_space)
        sl_json_reject(rd->r, SL_EUNSUPPORTED,
                       "pre_tokenizer: ByteLevel with add_prefix_space is not supported");
    if (c->use_regex)
        add_split(rd, SL_SPLIT_GPT2, false);
    rd->byte_level = true;
}

static void apply_pre_tokenizer(reading *rd, const component *c)
{
    static const char *const later[] = {"Metaspace", NULL};
    if (strcmp(c->type, "ByteLevel") == 0)
        apply_byte_level(rd, c);
    else if (strcmp(c->type, "Digits") == 0)
        add_split(rd, c->individual_digits ? SL_SPLIT_DIGIT : SL_SPLIT_DIGITS, false);
    /* A split on one space: SPM-style files carry it, and it never matches there. */
    else if (strcmp(c->type, "Split") == 0 && !c->pattern_is_regex && strcmp(c->pattern, " ") == 0)
        put_off(rd, "pre_tokenizer", c);
    else if (strcmp(c->type, "Split") == 0)
        apply_split(rd, c);
    else if (is_type(c, later))
        put_off(rd, "pre_tokenizer", c);
    else
        refuse(rd, "pre_tokenizer", c);
}

static void apply_decoder(reading *rd, const component *c)
{
    static const char *const later[] = {"Replace", "ByteFallback", "Fuse",
                                        "Strip",   "Metaspace",    NULL};
    if (strcmp(c->type, "ByteLevel") == 0)
        rd->byte_decoder = true;
    else if (is_type(c, later))
        put_off(rd, "decoder", c);
    else
        refuse(rd, "decoder", c);
}

static void apply_post_processor(reading *rd, const component *c)
{
    static const char *const known[] = {"ByteLevel", "TemplateProcessing", NULL};
    if (!is_type(c, known)) /* ByteLevel only moves offsets */
        refuse(rd, "post_processor", c);
}

static void read_component(reading *rd, const section *s, uint32_t depth);

static void read_children(reading *rd, const section *s, uint32_t depth)
{
    for (bool any = sl_json_enter_array(rd->r); any && sl_json_next_item(rd->r);)
        read_component(rd, s, depth + 1);
}

static void read_field(reading *rd, const section *s, uint32_t depth, sl_text key, component *c)
{
    sl_json_reader *r = rd->r;
    if (sl_text_is(key, "type"))
        read_name(r, c->type, sizeof c->type);
    else if (sl_text_is(key, s->children))
        read_children(rd, s, depth);
    else if (sl_text_is(key, "pattern") && sl_json_peek(r) == SL_JSON_OBJECT)
        read_pattern(rd, c);
    else if (sl_text_is(key, "behavior"))
        read_name(r, c->behavior, sizeof c->behavior);
    else if (sl_text_is(key, "use_regex"))
        c->use_regex = read_flag(r, true);
    else if (sl_text_is(key, "add_prefix_space"))
        c->add_prefix_space = read_flag(r, false);
    else if (sl_text_is(key, "individual_digits"))
        c->individual_digits = read_flag(r, false);
    else if (sl_text_is(key, "invert"))
        c->invert = read_flag(r, false);
    else if (sl_text_is(key, "single") && sl_json_peek(r) == SL_JSON_ARRAY)
        read_template(rd);
    else if (sl_text_is(key, "special_tokens"))
        read_specials(rd);
    else
        sl_json_skip(r);
}

static void read_component(reading *rd, const section *s, uint32_t depth)
{
    component c = {.use_regex = true};
    sl_text key;
    if (sl_json_peek(rd->r) == SL_JSON_NULL) {
        sl_json_read_null(rd->r);
        return;
    }
    if (depth > MAX_NESTING) {
        sl_json_reject(rd->r, SL_EFORMAT, "%s: nested more than %d deep", s->key, MAX_NESTING);
        return;
    }
    for (bool any = sl_json_enter_object(rd->r); any && sl_json_next_key(rd->r, &key);)
        read_field(rd, s, depth, key, &c);
    if (!sl_json_failed(rd->r) && strcmp(c.type, "Sequence") != 0)
        s->apply(rd, &c);
}

/* ---- model ---- */

/* Ids far beyond the number of tokens would cost memory that the file does not justify. */
static bool id_in_range(const reading *rd, int64_t id)
{
    return id >= 0 && id < SL_TOKEN_LIMIT &&
           id < 4 * ((int64_t)rd->n_vocab + rd->n_added) + (1 << 20);
}

static void read_vocab_entry(reading *rd, sl_text token)
{
    sl_vocab *v = &rd->t->vocab;
    uint32_t at;
    int64_t id = -1;
    sl_err err = {0};
    if (sl_vocab_keep(v, token, &at, &err)) {
        sl_json_reject(rd->r, err.code, "%s", err.text);
        return;
    }
    sl_quoted q = {""};
    if (sl_json_peek(rd->r) != SL_JSON_NUMBER) {
        q = sl_quote(sl_vocab_text(v, at));
        sl_json_reject(rd->r, SL_EFORMAT, "model.vocab: the id of %s is not a number", q.s);
    } else if (sl_json_read_int(rd->r, &id) && !id_in_range(rd, id)) {
        q = sl_quote(sl_vocab_text(v, at));
        sl_json_reject(rd->r, SL_EFORMAT, "model.vocab: the id of %s, %lld, is out of range", q.s,
                       (long long)id);
    } else if (!sl_json_failed(rd->r) && id < v->n && v->at[id]) {
        q = sl_quote(sl_vocab_text(v, at));
        sl_quoted other = sl_quote(sl_vocab_text(v, v->at[id]));
        sl_json_reject(rd->r, SL_EFORMAT, "model.vocab: %s and %s have the same id %lld", other.s,
                       q.s, (long long)id);
    } else if (!sl_json_failed(rd->r) && sl_vocab_set(v, (uint32_t)id, at, SL_TOKEN_MODEL, &err)) {
        sl_json_reject(rd->r, err.code, "%s", err.text);
    }
}

static void read_vocab(reading *rd)
{
    sl_text token;
    uint32_t n_twice = 0, twice = 0;
    sl_err err = {0};
    if (rd->has_vocab || sl_json_peek(rd->r) != SL_JSON_OBJECT) {
        sl_json_reject(rd->r, SL_EFORMAT, "model.vocab: expected one object, found %s",
                       sl_json_type_name(sl_json_peek(rd->r)));
        return;
    }
    rd->has_vocab = true;
    for (bool any = sl_json_enter_object(rd->r); any && sl_json_next_key(rd->r, &token);) {
        rd->n_vocab++;
        read_vocab_entry(rd, token);
    }
    if (sl_json_failed(rd->r))
        return;
    if (sl_vocab_index(&rd->t->vocab, &n_twice, &twice, &err))
        sl_json_reject(rd->r, err.code, "%s", err.text);
    else if (n_twice)
        sl_log(SL_LOG_WARN, "%s: model.vocab: token %s comes more than once (%u such)", rd->name,
               sl_quote(sl_vocab_text(&rd->t->vocab, rd->t->vocab.at[twice])).s, n_twice);
}

static bool keep_in(reading *rd, sl_buffer *b, sl_text text)
{
    sl_err err = {0};
    if (sl_buffer_reserve(b, text.len, &err))
        return sl_json_reject(rd->r, err.code, "%s", err.text);
    if (text.len)
        memcpy(b->data + b->len, text.data, (size_t)text.len);
    b->len += text.len;
    return true;
}

static int32_t merge_part(reading *rd, sl_text text)
{
    int32_t id = sl_vocab_find(&rd->t->vocab, text, SL_TOKEN_MODEL);
    if (id < 0 && !sl_json_failed(rd->r))
        sl_json_reject(rd->r, SL_EFORMAT,
                       "model.merges: merge %u needs the token %s, which is "
                       "not in the vocabulary",
                       rd->t->bpe.n, sl_quote(text).s);
    return id;
}

/* both holds the two parts, one behind the other. */
static void add_merge(reading *rd, uint64_t left_len)
{
    sl_text both = {rd->both.data, rd->both.len};
    sl_err err = {0};
    sl_merge m = {.left = merge_part(rd, (sl_text){both.data, left_len}),
                  .right = merge_part(rd, (sl_text){both.data + left_len, both.len - left_len}),
                  .result = merge_part(rd, both)};
    if (!sl_json_failed(rd->r) && sl_bpe_add(&rd->t->bpe, m, &err))
        sl_json_reject(rd->r, err.code, "%s", err.text);
}

static bool merge_of_text(reading *rd, uint64_t *left_len)
{
    sl_text text;
    if (!sl_json_read_string(rd->r, &text))
        return false;
    const char *space = memchr(text.data, ' ', (size_t)text.len);
    uint64_t left = space ? (uint64_t)(space - text.data) : 0;
    if (!space || memchr(space + 1, ' ', (size_t)(text.len - left - 1)))
        return sl_json_reject(rd->r, SL_EFORMAT,
                              "model.merges: merge %u is not two parts with a space between",
                              rd->t->bpe.n);
    *left_len = left;
    return keep_in(rd, &rd->both, (sl_text){text.data, left}) &&
           keep_in(rd, &rd->both, (sl_text){space + 1, text.len - left - 1});
}

static bool merge_of_array(reading *rd, uint64_t *left_len)
{
    uint32_t n = 0;
    for (bool any = sl_json_enter_array(rd->r); any && sl_json_next_item(rd->r); n++) {
        sl_text part;
        if (n == 2 || sl_json_peek(rd->r) != SL_JSON_STRING)
            return sl_json_reject(rd->r, SL_EFORMAT, "model.merges: merge %u is not two strings",
                                  rd->t->bpe.n);
        *left_len = rd->both.len;
        if (!sl_json_read_string(rd->r, &part) || !keep_in(rd, &rd->both, part))
            return false;
    }
    return n == 2 || sl_json_reject(rd->r, SL_EFORMAT, "model.merges: merge %u is not two strings",
                                    rd->t->bpe.n);
}

static void read_merges(reading *rd)
{
    if (sl_json_peek(rd->r) != SL_JSON_ARRAY || (rd->has_merges && !rd->merges_wait)) {
        sl_json_reject(rd->r, SL_EFORMAT, "model.merges: expected one array, found %s",
                       sl_json_type_name(sl_json_peek(rd->r)));
        return;
    }
    rd->has_merges = true;
    rd->merges_wait = !rd->has_vocab;
    if (rd->merges_wait) {
        sl_json_skip(rd->r);
        return;
    }
    for (bool any = sl_json_enter_array(rd->r); any && sl_json_next_item(rd->r);) {
        uint64_t left_len = 0;
        rd->both.len = 0;
        if (sl_json_peek(rd->r) == SL_JSON_STRING ? merge_of_text(rd, &left_len)
                                                  : merge_of_array(rd, &left_len))
            add_merge(rd, left_len);
    }
}

/* Settings that change the ids and are not supported must be absent, null, empty or zero. */
static void read_unused(reading *rd, const char *key)
{
    sl_text text;
    double number = 0;
    bool used = false;
    switch (sl_json_peek(rd->r)) {
    case SL_JSON_STRING:
        used = sl_json_read_string(rd->r, &text) && text.len;
        break;
    case SL_JSON_NUMBER:
        used = sl_json_read_double(rd->r, &number) && number != 0;
        break;
    default:
        sl_json_read_null(rd->r);
    }
    if (used)
        sl_json_reject(rd->r, SL_EUNSUPPORTED, "model.%s is set, which is not supported", key);
}

static void read_model_field(reading *rd, sl_text key)
{
    sl_json_reader *r = rd->r;
    sl_tokenizer *t = rd->t;
    char type[TYPE_BYTES];
    if (sl_text_is(key, "type")) {
        read_name(r, type, sizeof type);
        if (!sl_json_failed(r) && strcmp(type, "BPE") != 0)
            sl_json_reject(r, SL_EFORMAT, "model: type \"%s\" is not supported", type);
    } else if (sl_text_is(key, "vocab")) {
        read_vocab(rd);
    } else if (sl_text_is(key, "merges")) {
        read_merges(rd);
    } else if (sl_text_is(key, "unk_token") && sl_json_peek(r) == SL_JSON_STRING) {
        read_name(r, rd->unk, sizeof rd->unk);
    } else if (sl_text_is(key, "fuse_unk")) {
        t->fuse_unk = read_flag(r, false);
    } else if (sl_text_is(key, "byte_fallback")) {
        t->byte_fallback = read_flag(r, false);
    } else if (sl_text_is(key, "ignore_merges")) {
        t->ignore_merges = read_flag(r, false);
    } else if (sl_text_is(key, "dropout")) {
        read_unused(rd, "dropout");
    } else if (sl_text_is(key, "continuing_subword_prefix")) {
        read_unused(rd, "continuing_subword_prefix");
    } else if (sl_text_is(key, "end_of_word_suffix")) {
        read_unused(rd, "end_of_word_suffix");
    } else {
        sl_json_skip(r);
    }
}

static void read_model(reading *rd)
{
    sl_text key;
    rd->has_model = true;
    for (bool any = sl_json_enter_object(rd->r); any && sl_json_next_key(rd->r, &key);)
        read_model_field(rd, key);
}

/* ---- added tokens ---- */
static sl_added *new_added(reading *rd)
{
    if (rd->n_added == rd->added_cap) {
        int32_t cap = rd->added_cap ? 2 * rd->added_cap : 64;
        sl_added *grown =
            rd->n_added < SL_TOKEN_LIMIT ? realloc(rd->added, (size_t)cap * sizeof *grown) : NULL;
        if (!grown) {
            sl_json_reject(rd->r, SL_ENOMEM, "added_tokens: out of memory");
            return NULL;
        }
        rd->added = grown;
        rd->added_cap = cap;
    }
    rd->added[rd->n_added] = (sl_added){.id = -1};
    return &rd->added[rd->n_added++];
}

static void read_added(reading *rd)
{
    sl_added *a = new_added(rd);
    sl_text key, text;
    int64_t id = -1;
    sl_err err = {0};
    for (bool any = a && sl_json_enter_object(rd->r); any && sl_json_next_key(rd->r, &key);) {
        if (sl_text_is(key, "id"))
            sl_json_read_int(rd->r, &id);
        else if (sl_text_is(key, "content")) {
            if (sl_json_read_string(rd->r, &text) && text.len &&
                sl_vocab_keep(&rd->t->vocab, text, &a->at, &err))
                sl_json_reject(rd->r, err.code, "%s", err.text);
        } else if (sl_text_is(key, "single_word"))
            a->single_word = read_flag(rd->r, false);
        else if (sl_text_is(key, "lstrip"))
            a->lstrip = read_flag(rd->r, false);
        else if (sl_text_is(key, "rstrip"))
            a->rstrip = read_flag(rd->r, false);
        else if (sl_text_is(key, "normalized"))
            a->normalized = read_flag(rd->r, false);
        else if (sl_text_is(key, "special"))
            a->special = read_flag(rd->r, false);
        else
            sl_json_skip(rd->r);
    }
    if (sl_json_failed(rd->r))
        return;
    sl_quoted q = sl_quote(sl_vocab_text(&rd->t->vocab, a->at));
    if (!a->at)
        sl_json_reject(rd->r, SL_EFORMAT, "added_tokens: a token without content");
    else if (!id_in_range(rd, id))
        sl_json_reject(rd->r, SL_EFORMAT, "added_tokens: the id of %s is missing or out of range",
                       q.s);
    a->id = (int32_t)id;
}

/* Gives an added token its id; false: it is left out. */
static sl_status place_added(reading *rd, sl_added *a, bool *placed)
{
    sl_vocab *v = &rd->t->vocab;
    sl_text text = sl_vocab_text(v, a->at);
    unsigned flags = SL_TOKEN_ADDED | (a->special ? SL_TOKEN_SPECIAL : 0u);
    int32_t id = sl_vocab_find(v, text, SL_TOKEN_MODEL);
    *placed = true;
    if (id >= 0) {
        if (id != a->id)
            sl_log(SL_LOG_WARN,
                   "%s: added_tokens: %s has id %d there and %d in the vocabulary, "
                   "which counts",
                   rd->name, sl_quote(text).s, a->id, id);
        a->id = id;
        v->flags[id] |= (uint8_t)flags;
        return SL_OK;
    }
    if ((uint32_t)a->id < v->n && v->at[a->id]) {
        sl_log(SL_LOG_WARN, "%s: added_tokens: %s has the id %d of %s and is left out", rd->name,
               sl_quote(text).s, a->id, sl_quote(sl_vocab_text(v, v->at[a->id])).s);
        *placed = false;
        return SL_OK;
    }
    return sl_vocab_set(v, (uint32_t)a->id, a->at, flags, rd->err);
}

static sl_status place_all_added(reading *rd)
{
    uint32_t n = 0;
    sl_status st = SL_OK;
    for (int32_t i = 0; i < rd->n_added && !st; i++) {
        bool placed;
        st = place_added(rd, &rd->added[i], &placed);
        rd->added[n] = rd->added[i];
        n += placed;
    }
    return st ? st : sl_tokenizer_set_added(rd->t, rd->added, n, rd->err);
}

/* ---- the document ---- */
static const section sections[] = {
    {"normalizer", "normalizers", apply_normalizer},
    {"pre_tokenizer", "pretokenizers", apply_pre_tokenizer},
    {"decoder", "decoders", apply_decoder},
    {"post_processor", "processors", apply_post_processor},
};

static void read_top(reading *rd, sl_text key)
{
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (sl_text_is(key, sections[i].key)) {
            read_component(rd, &sections[i], 0);
            return;
        }
    if (sl_text_is(key, "added_tokens") && sl_json_peek(rd->r) == SL_JSON_ARRAY)
        for (bool any = sl_json_enter_array(rd->r); any && sl_json_next_item(rd->r);)
            read_added(rd);
    else if (sl_text_is(key, "model") && !rd->has_model)
        read_model(rd);
    else
        sl_json_skip(rd->r);
}

/* The second walk, for files that list merges before the vocabulary. */
static void read_waiting_merges(reading *rd)
{
    sl_text key;
    for (bool any = sl_json_enter_object(rd->r); any && sl_json_next_key(rd->r, &key);) {
        if (!sl_text_is(key, "model") || !rd->merges_wait) {
            sl_json_skip(rd->r);
            continue;
        }
        for (any = sl_json_enter_object(rd->r); any && sl_json_next_key(rd->r, &key);)
            if (sl_text_is(key, "merges"))
                read_merges(rd);
            else
                sl_json_skip(rd->r);
    }
}

static sl_status wrap_special(reading *rd, const char *name, int32_t *ids, uint32_t *n)
{
    const special *s = NULL;
    for (uint32_t i = 0; i < rd->n_special; i++)
        if (strcmp(rd->special[i].name, name) == 0)
            s = &rd->special[i];
    for (uint32_t i = 0; s && i < s->n; i++) {
        if (s->id[i] < 0 || s->id[i] >= rd->t->vocab.n || !rd->t->vocab.at[s->id[i]] ||
            *n == SL_MAX_WRAP)
            s = NULL;
        else
            ids[(*n)++] = (int32_t)s->id[i];
    }
    return s ? SL_OK
             : sl_fail(rd->err, SL_EFORMAT,
                       "%s: post_processor adds %s, which is not in the vocabulary", rd->name,
                       name);
}

static sl_status set_wrap(reading *rd)
{
    sl_tokenizer *t = rd->t;
    bool behind = false;
    sl_status st = SL_OK;
    for (uint32_t i = 0; i < rd->n_template && !st; i++) {
        const char *name = rd->template[i];
        if (!name[0])
            behind = true;
        else
            st = behind ? wrap_special(rd, name, t->after, &t->n_after)
                        : wrap_special(rd, name, t->before, &t->n_before);
    }
    t->bos = t->n_before ? t->before[0] : -1;
    t->eos = t->n_after ? t->after[t->n_after - 1] : -1;
    return st;
}

static sl_status missing(reading *rd, const char *what)
{
    return sl_fail(rd->err, SL_EFORMAT, "%s: %s is missing", rd->name, what);
}

static sl_status set_unknown(reading *rd)
{
    sl_text text = {rd->unk, strlen(rd->unk)};
    if (!text.len)
        return SL_OK;
    rd->t->unk = sl_vocab_find(&rd->t->vocab, text, SL_TOKEN_MODEL);
    return rd->t->unk >= 0
               ? SL_OK
               : sl_fail(rd->err, SL_EFORMAT, "%s: model.unk_token %s is not in the vocabulary",
                         rd->name, sl_quote(text).s);
}

static sl_status check_pipeline(reading *rd)
{
    if (rd->later[0])
        return sl_fail(rd->err, SL_EUNSUPPORTED, "%s: %s is not supported yet", rd->name,
                       rd->later);
    if (!rd->byte_level)
        return sl_fail(rd->err, SL_EUNSUPPORTED,
                       "%s: pre_tokenizer: only byte-level ones are supported yet", rd->name);
    if (!rd->byte_decoder)
        return sl_fail(rd->err, SL_EUNSUPPORTED,
                       "%s: decoder: only ByteLevel is supported for a ByteLevel pre_tokenizer",
                       rd->name);
    return SL_OK;
}

static sl_status finish(reading *rd)
{
    if (!rd->has_model)
        return missing(rd, "model");
    if (!rd->has_vocab || !rd->n_vocab)
        return missing(rd, "model.vocab");
    if (!rd->has_merges)
        return missing(rd, "model.merges");
    sl_status st = set_unknown(rd);
    if (!st)
        st = place_all_added(rd);
    if (!st)
        st = set_wrap(rd);
    if (!st && rd->t->byte_fallback)
        sl_tokenizer_check_bytes(rd->t, rd->name);
    if (!st)
        st = sl_tokenizer_check_rows(rd->t, rd->table, rd->err);
    if (!st)
        st = check_pipeline(rd);
    return st ? st : sl_tokenizer_finish(rd->t, rd->err);
}

/* Where the text comes from: memory, or a file. */
typedef struct source {
    const char *text;
    const sl_file *file;
    uint64_t len;
    const char *name;
} source;

static sl_status open_reader(reading *rd, const source *s)
{
    return s->file ? sl_json_reader_of_file(s->file, 0, s->len, s->name, &rd->r, rd->err)
                   : sl_json_reader_of_text(s->text, s->len, s->name, &rd->r, rd->err);
}

static sl_status read_all(reading *rd, const source *s)
{
    sl_text key;
    sl_status st = open_reader(rd, s);
    if (st)
        return st;
    for (bool any = sl_json_enter_object(rd->r); any && sl_json_next_key(rd->r, &key);)
        read_top(rd, key);
    st = sl_json_read_end(rd->r);
    sl_json_reader_close(&rd->r);
    if (st || !rd->merges_wait || !rd->has_vocab)
        return st;
    st = open_reader(rd, s);
    if (st)
        return st;
    read_waiting_merges(rd);
    st = sl_json_read_end(rd->r);
    sl_json_reader_close(&rd->r);
    return st;
}

static sl_status from_source(const source *s, const sl_token_table *table, sl_tokenizer **out,
                             sl_err *err)
{
    sl_err own = {0};
    *out = NULL;
    reading *rd = calloc(1, sizeof *rd);
    sl_tokenizer *t = calloc(1, sizeof *t);
    if (!rd || !t) {
        free(rd);
        free(t);
        return sl_fail(err, SL_ENOMEM, "out of memory for the tokenizer");
    }
    t->unk = t->bos = t->eos = -1;
    rd->t = t;
    rd->table = table;
    rd->name = s->name;
    rd->err = err ? err : &own;
    sl_status st = read_all(rd, s);
    if (!st)
        st = finish(rd);
    free(rd->added);
    sl_buffer_free(&rd->both);
    free(rd);
    if (st)
        sl_tokenizer_close(&t);
    *out = t;
    return st;
}

sl_status sl_tokenizer_from_json(const char *json, uint64_t len, const char *name,
                                 const sl_token_table *table, sl_tokenizer **out, sl_err *err)
{
    return from_source(&(source){json, NULL, len, name}, table, out, err);
}

sl_status sl_tokenizer_from_file(const sl_file *file, const sl_token_table *table,
                                 sl_tokenizer **out, sl_err *err)
{
    return from_source(&(source){NULL, file, file->size, file->path}, table, out, err);
}
