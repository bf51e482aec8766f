/* Encoding and decoding: the pipeline that tokenizer_impl.h describes, for byte-level vocabularies.
 * Text that is not UTF-8 is cut at its bad bytes: each run of them is a piece by itself, so that
 * every byte string has ids that lead back to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"

/* ---- ids ---- */
void sl_ids_free(sl_ids *ids)
{
    if (!ids)
        return;
    free(ids->id);
    *ids = (sl_ids){0};
}

static sl_status ids_reserve(sl_ids *ids, uint64_t more, sl_err *err)
{
    uint64_t need, cap = ids->cap + ids->cap / 2, bytes;
    bool ok = sl_add_size(ids->n, more, &need);
    if (ok && need <= ids->cap)
        return SL_OK;
    cap = cap > need ? cap : need + 32;
    ok = ok && sl_mul_size(cap, sizeof *ids->id, &bytes) && bytes < PTRDIFF_MAX;
    int32_t *grown = ok ? realloc(ids->id, (size_t)bytes) : NULL;
    if (!grown)
        return sl_fail(err, SL_ENOMEM, "out of memory for token ids");
    ids->id = grown;
    ids->cap = cap;
    return SL_OK;
}

sl_status sl_ids_push(sl_ids *ids, int32_t id, sl_err *err)
{
    if (ids->n == ids->cap) {
        sl_status st = ids_reserve(ids, 1, err);
        if (st)
            return st;
    }
    ids->id[ids->n++] = id;
    return SL_OK;
}

/* ---- the letters of byte-level vocabularies ----
 * Printable bytes of Latin-1 are written as themselves, the other 68 as U+0100, U+0101, ... */
static bool is_own_letter(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static uint32_t letter_of(uint8_t byte)
{
    if (is_own_letter(byte))
        return byte;
    return byte <= 0x20 ? 0x100u + byte : byte < 0xa1 ? 0x121u + byte - 0x7f : 0x143;
}

static int byte_of_letter(uint32_t c)
{
    if (c < 0x100)
        return is_own_letter(c) ? (int)c : -1;
    return c <= 0x120   ? (int)c - 0x100
           : c <= 0x142 ? (int)c - 0x121 + 0x7f
           : c == 0x143 ? 0xad
                        : -1;
}

/* ---- opening ---- */
void sl_tokenizer_close(sl_tokenizer **t)
{
    if (!t || !*t)
        return;
    sl_vocab_free(&(*t)->vocab);
    sl_bpe_free(&(*t)->bpe);
    sl_pretoken_free(&(*t)->pretoken);
    free((*t)->raw.token);
    free((*t)->normalized.token);
    free(*t);
    *t = NULL;
}

static int compare_text(sl_text a, sl_text b)
{
    uint64_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.data, b.data, (size_t)n) : 0;
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

static int by_text(const void *a, const void *b, void *vocab)
{
    const sl_added *x = a, *y = b;
    return compare_text(sl_vocab_text(vocab, x->at), sl_vocab_text(vocab, y->at));
}

/* Moves the tokens of one kind into a set of their own. */
static sl_status fill_set(sl_tokenizer *t, sl_added_set *set, const sl_added *added, uint32_t n,
                          bool normalized, sl_err *err)
{
    set->token = calloc(n ? n : 1, sizeof *set->token);
    if (!set->token)
        return sl_fail(err, SL_ENOMEM, "out of memory for added tokens");
    for (uint32_t i = 0; i < n; i++)
        if (added[i].normalized == normalized)
            set->token[set->n++] = added[i];
    qsort_r(set->token, set->n, sizeof *set->token, by_text, &t->vocab);
    for (uint32_t i = 0; i < set->n; i++) {
        uint8_t first = (uint8_t)sl_vocab_text(&t->vocab, set->token[i].at).data[0];
        set->first[first / 8] |= (uint8_t)(1u << first % 8);
    }
    sl_added *fit = realloc(set->token, (set->n ? set->n : 1) * sizeof *fit);
    set->token = fit ? fit : set->token;
    return SL_OK;
}

/* What is looked for in normalised text must be normalised too. */
static sl_status normalize_added(sl_tokenizer *t, sl_added *added, sl_err *err)
{
    sl_buffer buffer = {0};
    sl_text text = sl_vocab_text(&t->vocab, added->at), normal;
    sl_status st = sl_normalize_nfc(text, &buffer, &normal, err);
    if (!st && normal.data != text.data && normal.len)
        st = sl_vocab_keep(&t->vocab, normal, &added->at, err);
    sl_buffer_free(&buffer);
    return st;
}

sl_status sl_tokenizer_set_added(sl_tokenizer *t, sl_added *added, uint32_t n, sl_err *err)
{
    sl_status st = SL_OK;
    for (uint32_t i = 0; i < n && !st; i++)
        if (added[i].normalized && t->nfc)
            st = normalize_added(t, &added[i], err);
    if (!st)
        st = fill_set(t, &t->raw, added, n, false, err);
    return st ? st : fill_set(t, &t->normalized, added, n, true, err);
}

static int32_t byte_token(const sl_tokenizer *t, unsigned byte)
{
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", byte);
    return sl_vocab_find(&t->vocab, (sl_text){name, 6}, SL_TOKEN_MODEL);
}

void sl_tokenizer_check_bytes(const sl_tokenizer *t, const char *name)
{
    unsigned n = 0, first = 0;
    for (unsigned byte = 0; byte < 256; byte++)
        if (byte_token(t, byte) < 0 && !n++)
            first = byte;
    if (n)
        sl_log(SL_LOG_WARN, "%s: byte token <0x%02X> is missing (%u of 256 are)", name, first, n);
}

/* A byte's symbol is its letter's token; without one, what the model has for unknown text. */
static void set_byte_ids(sl_tokenizer *t)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char letter[4];
        uint32_t len = sl_utf8_put(letter_of((uint8_t)byte), letter);
        int32_t *id = t->byte_id[byte];
        id[1] = -1;
        id[0] = sl_vocab_find(&t->vocab, (sl_text){letter, len}, SL_TOKEN_MODEL);
        if (id[0] < 0 && t->byte_fallback) {
            id[0] = byte_token(t, (uint8_t)letter[0]);
            id[1] = len > 1 ? byte_token(t, (uint8_t)letter[1]) : -1;
            if (len > 1 && id[1] < 0)
                id[0] = -1;
        }
        if (id[0] < 0)
            id[0] = t->unk;
    }
}

static void mark_end(sl_tokenizer *t, int32_t id)
{
    if (id >= 0 && (uint32_t)id < t->vocab.n)
        t->vocab.flags[id] |= SL_TOKEN_END;
}

/* Names that end a text or a turn wherever they are special tokens. */
static const char deepseek_end[] = "<\xef\xbd\x9c"
                                   "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>";
static const char *const end_names[] = {
    "<|im_end|>",    "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>",
    "<end_of_turn>", "<|return|>", "<|call|>",   deepseek_end,
};

sl_status sl_tokenizer_finish(sl_tokenizer *t, sl_err *err)
{
    sl_status st = sl_bpe_index(&t->bpe, err);
    if (!st)
        st = sl_vocab_index(&t->vocab, NULL, NULL, err);
    if (st)
        return st;
    sl_vocab_shrink(&t->vocab);
    set_byte_ids(t);
    mark_end(t, t->eos);
    for (size_t i = 0; i < sizeof end_names / sizeof *end_names; i++)
        mark_end(t, sl_vocab_find(&t->vocab, (sl_text){end_names[i], strlen(end_names[i])},
                                  SL_TOKEN_SPECIAL));
    return SL_OK;
}

/* ---- encoding ---- */
typedef struct encoder {
    const sl_tokenizer *t;
    sl_special special;
    sl_ids *ids;
    sl_bpe_work work;
    sl_buffer normal, letters;
} encoder;

/* A whole piece that is a token, for models that take it at once. */
static sl_status find_whole(encoder *e, const char *piece, uint64_t len, int32_t *id, sl_err *err)
{
    *id = -1;
    if (!e->t->ignore_merges || len > e->t->vocab.longest)
        return SL_OK;
    e->letters.len = 0;
    sl_status st = sl_buffer_reserve(&e->letters, 2 * len + 4, err);
    for (uint64_t i = 0; i < len && !st; i++)
        e->letters.len +=
            sl_utf8_put(letter_of((uint8_t)piece[i]), e->letters.data + e->letters.len);
    if (!st)
        *id =
            sl_vocab_find(&e->t->vocab, (sl_text){e->letters.data, e->letters.len}, SL_TOKEN_MODEL);
    return st;
}

static sl_status encode_piece(void *ctx, const char *piece, uint64_t len, sl_err *err)
{
    encoder *e = ctx;
    int32_t whole;
    sl_status st = find_whole(e, piece, len, &whole, err);
    if (!st && whole >= 0)
        return sl_ids_push(e->ids, whole, err);
    if (!st)
        st = sl_bpe_room(&e->work, 2 * len, err);
    if (st)
        return st;
    uint64_t n = 0;
    for (uint64_t i = 0; i < len; i++) {
        const int32_t *id = e->t->byte_id[(uint8_t)piece[i]];
        bool fused = e->t->fuse_unk && id[0] == e->t->unk && n && e->work.symbol[n - 1] == id[0];
        if (id[0] >= 0 && !fused)
            e->work.symbol[n++] = id[0];
        if (id[1] >= 0)
            e->work.symbol[n++] = id[1];
    }
    return sl_bpe_run(&e->t->bpe, &e->work, n, e->ids, err);
}

/* The longest token of the set that text begins with; NULL: none does. The tokens are sorted, so
 * those with the bytes so far in common are a range, and its first is the one that ends here. */
static const sl_added *longest_at(const sl_tokenizer *t, const sl_added_set *set, sl_text text)
{
    const sl_added *found = NULL;
    uint32_t lo = 0, hi = set->n;
    for (uint64_t i = 0; i < text.len && lo < hi; i++) {
        uint8_t want = (uint8_t)text.data[i];
        uint32_t a = lo, b = hi;
        while (a < b) { /* first with byte i >= want; all texts of the range are longer than i */
            uint32_t mid = a + (b - a) / 2;
            if ((uint8_t)sl_vocab_text(&t->vocab, set->token[mid].at).data[i] < want)
                a = mid + 1;
            else
                b = mid;
        }
        lo = a;
        for (b = hi; a < b;) {
            uint32_t mid = a + (b - a) / 2;
            if ((uint8_t)sl_vocab_text(&t->vocab, set->token[mid].at).data[i] <= want)
                a = mid + 1;
            else
                b = mid;
        }
        hi = a;
        for (; lo < hi && sl_vocab_text(&t->vocab, set->token[lo].at).len == i + 1; lo++)
            found = &set->token[lo];
    }
    return found;
}

static bool word_before(const char *text, uint64_t end)
{
    uint32_t len;
    if (!end)
        return false;
    do
        end--;
    while (end && (text[end] & 0xc0) == 0x80);
    return sl_is_word(sl_utf8_get(text + end, &len));
}

static uint64_t spaces_before(const char *text, uint64_t from, uint64_t end)
{
    uint32_t len;
    while (end > from) {
        uint64_t at = end - 1;
        while (at > from && (text[at] & 0xc0) == 0x80)
            at--;
        if (!sl_is_space(sl_utf8_get(text + at, &len)))
            break;
        end = at;
    }
    return end;
}

static uint64_t spaces_after(sl_text text, uint64_t at)
{
    uint32_t len;
    while (at < text.len && sl_is_space(sl_utf8_get(text.data + at, &len)))
        at += len;
    return at;
}

typedef sl_status gap_fn(encoder *e, sl_text gap, sl_err *err);

static bool takes(const encoder *e, const sl_added *a, sl_text text, uint64_t start, uint64_t end)
{
    uint32_t len;
    if (a->special && e->special == SL_SPECIAL_TEXT)
        return false;
    return !a->single_word || (!word_before(text.data, start) &&
                               !(end < text.len && sl_is_word(sl_utf8_get(text.data + end, &len))));
}

/* Cuts the set's tokens out of text; gap gets what is between them. A token that is not taken where
 * it stands still uses up its text, as in Hugging Face's automaton. */
static sl_status cut_added(encoder *e, const sl_added_set *set, sl_text text, gap_fn *gap,
                           sl_err *err)
{
    sl_status st = SL_OK;
    uint64_t done = 0; /* text before it has its ids */
    for (uint64_t at = 0; at < text.len && set->n && !st;) {
        uint8_t c = (uint8_t)text.data[at];
        const sl_added *a = NULL;
        if (set->first[c / 8] >> c % 8 & 1)
            a = longest_at(e->t, set, (sl_text){text.data + at, text.len - at});
        if (!a) {
            at++;
            continue;
        }
        uint64_t start = at, end = at + sl_vocab_text(&e->t->vocab, a->at).len;
        at = end;
        if (!takes(e, a, text, start, end))
            continue;
        if (a->lstrip)
            start = spaces_before(text.data, done, start);
        if (a->rstrip)
            end = spaces_after(text, end);
        if (start > done)
            st = gap(e, (sl_text){text.data + done, start - done}, err);
        if (!st)
            st = sl_ids_push(e->ids, a->id, err);
        done = end;
    }
    if (!st && done < text.len)
        st = gap(e, (sl_text){text.data + done, text.len - done}, err);
    return st;
}

static sl_status encode_normal(encoder *e, sl_text text, sl_err *err)
{
    return sl_pretoken_split(&e->t->pretoken, text.data, text.len, encode_piece, e, err);
}

static sl_status encode_gap(encoder *e, sl_text text, sl_err *err)
{
    sl_text normal = text;
    sl_status st = e->t->nfc ? sl_normalize_nfc(text, &e->normal, &normal, err) : SL_OK;
    return st ? st : cut_added(e, &e->t->normalized, normal, encode_normal, err);
}

/* Bytes of valid UTF-8, or of none (valid false), that s begins with. */
static uint64_t stretch(const char *s, uint64_t len, bool *valid)
{
    uint64_t at = 0;
    uint32_t n;
    *valid = len && sl_utf8_len(s, len) > 0;
    while (at < len && ((n = sl_utf8_len(s + at, len - at)) > 0) == *valid)
        at += *valid ? n : 1;
    return at;
}

sl_status sl_tokenizer_encode(const sl_tokenizer *t, const char *text, uint64_t len,
                              sl_special special, sl_ids *ids, sl_err *err)
{
    encoder e = {.t = t, .special = special, .ids = ids};
    uint64_t n_before = ids->n;
    sl_status st = SL_OK;
    for (uint64_t at = 0; at < len && !st;) {
        bool valid;
        uint64_t n = stretch(text + at, len - at, &valid);
        st = valid ? cut_added(&e, &t->raw, (sl_text){text + at, n}, encode_gap, err)
                   : encode_piece(&e, text + at, n, err);
        at += n;
    }
    if (st)
        ids->n = n_before;
    sl_bpe_work_free(&e.work);
    sl_buffer_free(&e.normal);
    sl_buffer_free(&e.letters);
    return st;
}

sl_status sl_tokenizer_wrap(const sl_tokenizer *t, sl_ids *ids, sl_err *err)
{
    sl_status st = ids_reserve(ids, t->n_before + t->n_after, err);
    if (st)
        return st;
    if (ids->n)
        memmove(ids->id + t->n_before, ids->id, (size_t)ids->n * sizeof *ids->id);
    for (uint32_t i = 0; i < t->n_before; i++)
        ids->id[i] = t->before[i];
    ids->n += t->n_before;
    for (uint32_t i = 0; i < t->n_after; i++)
        ids->id[ids->n++] = t->after[i];
    return SL_OK;
}

/* ---- decoding ---- */

/* Length of the UTF-8 sequence that byte c begins; 0: none does. */
static uint32_t sequence_len(uint8_t c)
{
    return c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
}

/* Whether c can follow the held beginning of a sequence. */
static bool continues(const sl_detok *d, uint8_t c)
{
    uint8_t low = 0x80, high = 0xbf;
    if (d->n_held == 1) {
        low = d->held[0] == 0xe0 ? 0xa0 : d->held[0] == 0xf0 ? 0x90 : low;
        high = d->held[0] == 0xed ? 0x9f : d->held[0] == 0xf4 ? 0x8f : high;
    }
    return c >= low && c <= high;
}

static char *put_replacement(char *out)
{
    memcpy(out, "\xef\xbf\xbd", 3);
    return out + 3;
}

/* One U+FFFD for each longest beginning of a sequence that does not go on, as Unicode recommends
 * and Rust's from_utf8_lossy does. */
static char *put_byte(sl_detok *d, uint8_t c, char *out)
{
    if (d->n_held && !continues(d, c)) {
        d->n_held = 0;
        out = put_replacement(out);
    }
    uint32_t want = sequence_len(d->n_held ? d->held[0] : c);
    if (want == 0)
        return put_replacement(out);
    d->held[d->n_held++] = c;
    if (d->n_held == want) {
        memcpy(out, d->held, want);
        out += want;
        d->n_held = 0;
    }
    return out;
}

/* The bytes of a token: those its letters stand for, or the text itself when a character of it is
 * no letter. Writes at most text.len bytes. */
static uint64_t token_bytes(sl_text text, uint8_t *out)
{
    uint64_t n = 0;
    for (uint64_t at = 0; at < text.len;) {
        uint32_t len = sl_utf8_len(text.data + at, text.len - at);
        int byte = len && len <= 2 ? byte_of_letter(sl_utf8_get(text.data + at, &len)) : -1;
        if (byte < 0) {
            memcpy(out, text.data, (size_t)text.len);
            return text.len;
        }
        out[n++] = (uint8_t)byte;
        at += len;
    }
    return n;
}

uint64_t sl_detok_room(const sl_tokenizer *t)
{
    return 4 * (uint64_t)t->vocab.longest + 8;
}

sl_status sl_detok_push(sl_detok *d, const sl_tokenizer *t, int32_t id, bool skip_special,
                        char *out, uint64_t *len, sl_err *err)
{
    *len = 0;
    if (id < 0 || (uint32_t)id >= t->vocab.n)
        return sl_fail(err, SL_EINVAL, "token id %d is outside the vocabulary of %u", id,
                       t->vocab.n);
    if (skip_special && t->vocab.flags[id] & SL_TOKEN_SPECIAL)
        return SL_OK;
    sl_text text = sl_vocab_text(&t->vocab, t->vocab.at[id]);
    /* The bytes go to the end of the room: writing 3 bytes for each read never overtakes. */
    uint8_t *bytes = (uint8_t *)out + 3 * (uint64_t)t->vocab.longest + 8;
    uint64_t n = token_bytes(text, bytes);
    char *end = out;
    for (uint64_t i = 0; i < n; i++)
        end = put_byte(d, bytes[i], end);
    *len = (uint64_t)(end - out);
    return SL_OK;
}

void sl_detok_end(sl_detok *d, char *out, uint64_t *len)
{
    *len = d->n_held ? (uint64_t)(put_replacement(out) - out) : 0;
    d->n_held = 0;
}

sl_status sl_tokenizer_decode(const sl_tokenizer *t, const int32_t *id, uint64_t n,
                              bool skip_special, char **text, uint64_t *len, sl_err *err)
{
    sl_buffer b = {0};
    sl_detok d = {0};
    uint64_t more;
    sl_status st = sl_buffer_reserve(&b, sl_detok_room(t) + 1, err);
    for (uint64_t i = 0; i < n && !st; i++) {
        st = sl_detok_push(&d, t, id[i], skip_special, b.data + b.len, &more, err);
        b.len += st ? 0 : more;
        if (!st)
            st = sl_buffer_reserve(&b, sl_detok_room(t) + 1, err);
    }
    if (st) {
        sl_buffer_free(&b);
        return st;
    }
    sl_detok_end(&d, b.data + b.len, &more);
    b.len += more;
    b.data[b.len] = '\0';
    *text = b.data;
    *len = b.len;
    return SL_OK;
}

uint64_t sl_tokenizer_bytes(const sl_tokenizer *t, int32_t id, uint8_t *out)
{
    if (id < 0 || (uint32_t)id >= t->vocab.n)
        return 0;
    return token_bytes(sl_vocab_text(&t->vocab, t->vocab.at[id]), out);
}

/* ---- questions ---- */
uint32_t sl_tokenizer_size(const sl_tokenizer *t)
{
    return t->vocab.n;
}

int32_t sl_tokenizer_bos(const sl_tokenizer *t)
{
    return t->bos;
}

int32_t sl_tokenizer_eos(const sl_tokenizer *t)
{
    return t->eos;
}

bool sl_tokenizer_adds_bos(const sl_tokenizer *t)
{
    return t->n_before && t->before[0] == t->bos;
}

static bool has_flag(const sl_tokenizer *t, int32_t id, unsigned flag)
{
    return id >= 0 && (uint32_t)id < t->vocab.n && t->vocab.flags[id] & flag;
}

bool sl_tokenizer_is_end(const sl_tokenizer *t, int32_t id)
{
    return has_flag(t, id, SL_TOKEN_END);
}

bool sl_tokenizer_is_special(const sl_tokenizer *t, int32_t id)
{
    return has_flag(t, id, SL_TOKEN_SPECIAL);
}

int32_t sl_tokenizer_find(const sl_tokenizer *t, const char *token, uint64_t len)
{
    return sl_vocab_find(&t->vocab, (sl_text){token, len}, SL_TOKEN_MODEL | SL_TOKEN_ADDED);
}

const char *sl_tokenizer_token(const sl_tokenizer *t, int32_t id, uint64_t *len)
{
    bool in = id >= 0 && (uint32_t)id < t->vocab.n;
    sl_text text = sl_vocab_text(&t->vocab, in ? t->vocab.at[id] : 0);
    *len = text.len;
    return text.data;
}

uint64_t sl_tokenizer_memory_bytes(const sl_tokenizer *t)
{
    return sizeof *t + sl_vocab_bytes(&t->vocab) + sl_bpe_bytes(&t->bpe) + t->pretoken.bytes +
           ((uint64_t)t->raw.n + t->normalized.n) * sizeof(sl_added);
}

sl_status sl_tokenizer_check_rows(const sl_tokenizer *t, const sl_token_table *table, sl_err *err)
{
    for (uint64_t id = table ? table->n_rows : t->vocab.n; id < t->vocab.n; id++) {
        if (!t->vocab.at[id])
            continue;
        sl_quoted token = sl_quote(sl_vocab_text(&t->vocab, t->vocab.at[id]));
        return sl_fail(err, SL_EFORMAT, "token %s has id %llu, but %s has %llu rows", token.s,
                       (unsigned long long)id, table->name, (unsigned long long)table->n_rows);
    }
    if (table && t->has_rows_warning && t->vocab.n < table->n_rows)
        sl_log(SL_LOG_WARN, "the vocabulary has %u tokens, %s has %llu rows", t->vocab.n,
               table->name, (unsigned long long)table->n_rows);
    return SL_OK;
}
