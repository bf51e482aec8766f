/* The pull reader. Written by hand because no JSON library in C gives all of what large and hostile
 * files need: memory that does not grow with the document (a tokenizer.json has 30 MB, a header of
 * safetensors up to 100 MB), exact 64-bit integers, NaN as Python writes it, and a line and column
 * for findings of the caller. The tree (json.c) is built from it too, so that there is one grammar.
 *
 * No recursion but in sl_json_skip(), which SL_JSON_DEPTH bounds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

typedef struct place {
    uint64_t line, column;
} place;

struct sl_json_reader {
    sl_bytes b;
    char *name;
    const char *about;
    sl_err *err;
    bool failed;
    sl_status status;       /* why it failed */
    place token;            /* where the latest value or key began */
    uint64_t line, line_at; /* present line, from 1, and where it begins */
    uint32_t depth;
    char open[SL_JSON_DEPTH];  /* '{' or '[' per level */
    bool first[SL_JSON_DEPTH]; /* nothing read yet on this level: no comma is due */
    char *text;                /* the latest string or number */
    uint64_t len, cap;
};

const char *sl_json_type_name(sl_json_type t)
{
    static const char *const name[] = {"nothing",  "null",     "a bool",   "a number",
                                       "a string", "an array", "an object"};
    return (unsigned)t < sizeof name / sizeof *name ? name[t] : "nothing";
}

/* ---- errors ---- */

static place here(const sl_json_reader *r)
{
    return (place){r->line, sl_bytes_position(&r->b) - r->line_at + 1};
}

/* The first failure counts. Returns false. */
static bool fail_as(sl_json_reader *r, sl_status code)
{
    if (!r->failed)
        r->status = code;
    r->failed = true;
    return false;
}

SL_PRINTF(4, 0)
static bool fail_at(sl_json_reader *r, sl_status code, place p, const char *format, va_list args)
{
    char text[384];
    vsnprintf(text, sizeof text, format, args);
    if (!r->failed)
        sl_fail(r->err, code, "%s:%llu:%llu: %s%s%s", r->name, (unsigned long long)p.line,
                (unsigned long long)p.column, r->about ? r->about : "", r->about ? ": " : "", text);
    return fail_as(r, code);
}

SL_PRINTF(2, 3) static bool bad(sl_json_reader *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_at(r, SL_EFORMAT, here(r), format, args);
    va_end(args);
    return false;
}

bool sl_json_reject(sl_json_reader *r, sl_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_at(r, code, r->token, format, args);
    va_end(args);
    return false;
}

void sl_json_about(sl_json_reader *r, const char *what)
{
    r->about = what;
}

bool sl_json_failed(const sl_json_reader *r)
{
    return r->failed;
}

/* ---- bytes ---- */

/* The next byte without consuming it; -1: the end, or failed. */
static int look(sl_json_reader *r)
{
    if (r->failed)
        return -1;
    if (r->b.at < r->b.len)
        return r->b.data[r->b.at];
    if (sl_bytes_left(&r->b) == 0)
        return -1;
    if (sl_bytes_fill(&r->b, 1))
        return r->b.data[r->b.at];
    fail_as(r, r->b.status); /* the cursor has written err */
    return -1;
}

static int take(sl_json_reader *r)
{
    int c = look(r);
    if (c >= 0)
        r->b.at++;
    return c;
}

static int skip_space(sl_json_reader *r)
{
    int c;
    while ((c = look(r)) == ' ' || c == '\t' || c == '\n' || c == '\r') {
        r->b.at++;
        if (c == '\n') {
            r->line++;
            r->line_at = sl_bytes_position(&r->b);
        }
    }
    return c;
}

static bool keep(sl_json_reader *r, const void *s, uint64_t n)
{
    if (n > r->cap - r->len) {
        uint64_t cap = r->cap * 2 > r->len + n ? r->cap * 2 : r->len + n + 64;
        char *p = realloc(r->text, cap);
        if (!p) {
            sl_fail(r->err, SL_ENOMEM, "%s: out of memory for a string of %llu bytes", r->name,
                    (unsigned long long)cap);
            return fail_as(r, SL_ENOMEM);
        }
        r->text = p;
        r->cap = cap;
    }
    memcpy(r->text + r->len, s, n);
    r->len += n;
    return true;
}

/* ---- open and close ---- */

static sl_status reader_new(sl_bytes b, const char *name, sl_json_reader **out, sl_err *err)
{
    sl_json_reader *r = calloc(1, sizeof *r);
    *out = NULL;
    if (r)
        r->name = strdup(name);
    if (!r || !r->name) {
        free(r);
        return sl_fail(err, SL_ENOMEM, "out of memory while reading %s", name);
    }
    r->b = b;
    r->err = err;
    r->line = 1;
    r->token = (place){1, 1};
    if (sl_bytes_left(&r->b) >= 3 && (r->b.len >= 3 || sl_bytes_fill(&r->b, 3)) &&
        memcmp(r->b.data, "\xEF\xBB\xBF", 3) == 0)
        r->b.at = r->line_at = 3;
    if (r->b.failed)
        fail_as(r, r->b.status);
    *out = r;
    return SL_OK;
}

sl_status sl_json_reader_of_text(const char *text, uint64_t len, const char *name,
                                 sl_json_reader **out, sl_err *err)
{
    return reader_new(sl_bytes_over(text, len), name, out, err);
}

sl_status sl_json_reader_of_file(const sl_file *f, uint64_t offset, uint64_t len, const char *name,
                                 sl_json_reader **out, sl_err *err)
{
    return reader_new(sl_bytes_of_file(f, offset, len, err), name, out, err);
}

void sl_json_reader_close(sl_json_reader **r)
{
    if (!r || !*r)
        return;
    sl_bytes_close(&(*r)->b);
    free((*r)->text);
    free((*r)->name);
    free(*r);
    *r = NULL;
}

/* ---- strings ---- */

static bool read_hex4(sl_json_reader *r, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        int c = take(r), digit = c >= '0' && c <= '9'   ? c - '0'
                                 : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                 : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                        : -1;
        if (digit < 0)
            return bad(r, "\\u wants four hexadecimal digits");
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

static bool read_code_point(sl_json_reader *r)
{
    uint32_t c, low;
    char utf8[4];
    if (!read_hex4(r, &c))
        return false;
    if (c >= 0xDC00 && c <= 0xDFFF)
        return bad(r, "lone surrogate \\u%04x", c);
    if (c >= 0xD800 && c <= 0xDBFF) {
        if (take(r) != '\\' || take(r) != 'u')
            return bad(r, "lone surrogate \\u%04x", c);
        if (!read_hex4(r, &low))
            return false;
        if (low < 0xDC00 || low > 0xDFFF)
            return bad(r, "lone surrogate \\u%04x", c);
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    return keep(r, utf8, sl_utf8_put(c, utf8));
}

static bool read_escape(sl_json_reader *r)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = take(r);
    if (c == 'u')
        return read_code_point(r);
    const char *p = c > 0 ? strchr(from, c) : NULL;
    if (!p)
        return bad(r, "unknown escape in a string");
    return keep(r, &to[p - from], 1);
}

static bool read_multibyte(sl_json_reader *r)
{
    uint8_t s[4];
    s[0] = (uint8_t)take(r);
    uint32_t n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    for (uint32_t i = 1; i < n; i++) {
        int c = look(r);
        if (c < 0x80 || c > 0xBF)
            return bad(r, "invalid UTF-8");
        s[i] = (uint8_t)take(r);
    }
    if (sl_utf8_len(s, n) != n)
        return bad(r, "invalid UTF-8");
    return keep(r, s, n);
}

/* The longest run of plain characters in the window. */
static bool read_plain(sl_json_reader *r)
{
    const uint8_t *p = r->b.data + r->b.at, *end = r->b.data + r->b.len, *s = p;
    while (s < end && *s >= ' ' && *s < 0x80 && *s != '"' && *s != '\\')
        s++;
    r->b.at += (uint64_t)(s - p);
    return keep(r, p, (uint64_t)(s - p));
}

/* At the opening quote. The text ends up in r->text. */
static bool read_quoted(sl_json_reader *r)
{
    take(r);
    r->len = 0;
    for (;;) {
        int c = look(r);
        bool ok;
        if (c == '"')
            return take(r) == '"' && keep(r, "", 1) && r->len--; /* a NUL behind it, not counted */
        if (c < 0)
            return bad(r, "the text ends inside a string");
        if (c < ' ')
            return bad(r, "control character 0x%02x in a string", c);
        if (c == '\\')
            ok = take(r) == '\\' && read_escape(r);
        else
            ok = c >= 0x80 ? read_multibyte(r) : read_plain(r);
        if (!ok)
            return false;
    }
}

/* ---- values ---- */

static sl_json_type type_of_byte(int c)
{
    switch (c) {
    case '{':
        return SL_JSON_OBJECT;
    case '[':
        return SL_JSON_ARRAY;
    case '"':
        return SL_JSON_STRING;
    case 't':
    case 'f':
        return SL_JSON_BOOL;
    case 'n':
        return SL_JSON_NULL;
    case 'N':
    case 'I':
    case '-':
        return SL_JSON_NUMBER;
    default:
        return c >= '0' && c <= '9' ? SL_JSON_NUMBER : SL_JSON_NONE;
    }
}

static bool unexpected(sl_json_reader *r, const char *wanted, int c)
{
    if (r->failed)
        return false;
    if (c < 0)
        return bad(r, "expected %s, the text ends here", wanted);
    if (c >= ' ' && c < 127)
        return bad(r, "expected %s, found '%c'", wanted, c);
    return bad(r, "expected %s, found the byte 0x%02x", wanted, c);
}

sl_json_type sl_json_peek(sl_json_reader *r)
{
    int c = skip_space(r);
    sl_json_type t = type_of_byte(c);
    r->token = here(r);
    if (t == SL_JSON_NONE)
        unexpected(r, "a value", c);
    return r->failed ? SL_JSON_NONE : t;
}

static bool want(sl_json_reader *r, sl_json_type t)
{
    sl_json_type found = sl_json_peek(r);
    if (found == SL_JSON_NONE || found == t)
        return found == t;
    return sl_json_reject(r, SL_EFORMAT, "expected %s, found %s", sl_json_type_name(t),
                          sl_json_type_name(found));
}

static bool read_word(sl_json_reader *r, const char *word)
{
    for (const char *p = word; *p; p++)
        if (look(r) != *p)
            return bad(r, "expected %s", word);
        else
            take(r);
    return true;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool keep_byte(sl_json_reader *r)
{
    char c = (char)take(r);
    return keep(r, &c, 1);
}

static bool read_digits(sl_json_reader *r)
{
    if (!is_digit(look(r)))
        return unexpected(r, "a digit", look(r));
    while (is_digit(look(r)))
        if (!keep_byte(r))
            return false;
    return true;
}

static bool read_python_number(sl_json_reader *r, int first)
{
    const char *word = first == 'N' ? "NaN" : "Infinity";
    return read_word(r, word) && keep(r, word, strlen(word)) && keep(r, "", 1);
}

/* The number's text, NUL-terminated, into r->text; *integer: it has neither fraction nor exponent.
 */
static bool read_number_text(sl_json_reader *r, bool *integer)
{
    if (!want(r, SL_JSON_NUMBER))
        return false;
    r->len = 0;
    *integer = false;
    if (look(r) == '-' && !keep_byte(r))
        return false;
    int c = look(r);
    if (c == 'I' || (c == 'N' && r->len == 0))
        return read_python_number(r, c);
    if (c == '0' ? !keep_byte(r) : !read_digits(r))
        return false;
    *integer = true;
    if (look(r) == '.') {
        *integer = false;
        if (!keep_byte(r) || !read_digits(r))
            return false;
    }
    if (look(r) == 'e' || look(r) == 'E') {
        *integer = false;
        if (!keep_byte(r) || ((look(r) == '+' || look(r) == '-') && !keep_byte(r)) ||
            !read_digits(r))
            return false;
    }
    if (is_digit(look(r)))
        return bad(r, "a number with a leading 0");
    return keep(r, "", 1);
}

static bool parse_digits(const char *s, uint64_t *out)
{
    uint64_t v = 0;
    for (; *s; s++)
        if (!sl_mul_size(v, 10, &v) || !sl_add_size(v, (uint64_t)(*s - '0'), &v))
            return false;
    *out = v;
    return true;
}

bool sl_json_read_uint(sl_json_reader *r, uint64_t *out)
{
    bool integer;
    if (!read_number_text(r, &integer))
        return false;
    bool negative = r->text[0] == '-';
    uint64_t v;
    if (!integer || !parse_digits(r->text + negative, &v) || (negative && v != 0))
        return sl_json_reject(r, SL_EFORMAT, "expected an integer from 0 to 2^64 - 1, found %.40s",
                              r->text);
    *out = v;
    return true;
}

bool sl_json_read_int(sl_json_reader *r, int64_t *out)
{
    bool integer;
    if (!read_number_text(r, &integer))
        return false;
    uint64_t v, negative = r->text[0] == '-';
    if (!integer || !parse_digits(r->text + negative, &v) || v > (uint64_t)INT64_MAX + negative)
        return sl_json_reject(r, SL_EFORMAT, "expected an integer of 64 bits, found %.40s",
                              r->text);
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

bool sl_json_read_double(sl_json_reader *r, double *out)
{
    bool integer;
    if (!read_number_text(r, &integer))
        return false;
    *out = strtod(r->text, NULL); /* reads NaN and Infinity too */
    return true;
}

bool sl_json_read_string(sl_json_reader *r, sl_text *out)
{
    if (!want(r, SL_JSON_STRING) || !read_quoted(r))
        return false;
    *out = (sl_text){r->text, r->len};
    return true;
}

bool sl_json_read_bool(sl_json_reader *r, bool *out)
{
    if (!want(r, SL_JSON_BOOL))
        return false;
    *out = look(r) == 't';
    return read_word(r, *out ? "true" : "false");
}

bool sl_json_read_null(sl_json_reader *r)
{
    return want(r, SL_JSON_NULL) && read_word(r, "null");
}

static bool enter(sl_json_reader *r, sl_json_type t)
{
    if (!want(r, t))
        return false;
    if (r->depth == SL_JSON_DEPTH)
        return bad(r, "nested deeper than %d levels", SL_JSON_DEPTH);
    r->open[r->depth] = (char)take(r);
    r->first[r->depth++] = true;
    return true;
}

bool sl_json_enter_object(sl_json_reader *r)
{
    return enter(r, SL_JSON_OBJECT);
}

bool sl_json_enter_array(sl_json_reader *r)
{
    return enter(r, SL_JSON_ARRAY);
}

/* Steps over the comma to the next member or item. False: the end of the container (left behind),
 * or failed. */
static bool step(sl_json_reader *r, char open, char close, const char *wanted)
{
    if (r->failed)
        return false;
    if (r->depth == 0 || r->open[r->depth - 1] != open)
        return sl_json_reject(r, SL_EINVAL, "the reader is not inside %s", wanted);
    int c = skip_space(r);
    bool *first = &r->first[r->depth - 1];
    if (c == close) {
        take(r);
        r->depth--;
        return false;
    }
    if (!*first) {
        if (c != ',')
            return unexpected(r, wanted, c);
        take(r);
        skip_space(r);
    }
    *first = false;
    return !r->failed;
}

bool sl_json_next_item(sl_json_reader *r)
{
    return step(r, '[', ']', "',' or ']'");
}

bool sl_json_next_key(sl_json_reader *r, sl_text *key)
{
    if (!step(r, '{', '}', "',' or '}'"))
        return false;
    r->token = here(r);
    if (look(r) != '"')
        return unexpected(r, "a key in double quotes", look(r));
    if (!read_quoted(r))
        return false;
    *key = (sl_text){r->text, r->len};
    if (skip_space(r) != ':')
        return unexpected(r, "':'", look(r));
    take(r);
    return true;
}

bool sl_json_skip(sl_json_reader *r)
{
    sl_text text;
    bool b;
    switch (sl_json_peek(r)) {
    case SL_JSON_NONE:
        break;
    case SL_JSON_NULL:
        return sl_json_read_null(r);
    case SL_JSON_BOOL:
        return sl_json_read_bool(r, &b);
    case SL_JSON_NUMBER:
        return read_number_text(r, &b);
    case SL_JSON_STRING:
        return sl_json_read_string(r, &text);
    case SL_JSON_ARRAY:
        for (bool any = sl_json_enter_array(r); any && sl_json_next_item(r);)
            sl_json_skip(r);
        break;
    case SL_JSON_OBJECT:
        for (bool any = sl_json_enter_object(r); any && sl_json_next_key(r, &text);)
            sl_json_skip(r);
        break;
    }
    return !r->failed;
}

sl_status sl_json_read_end(sl_json_reader *r)
{
    int c = skip_space(r);
    if (c >= 0)
        bad(r, "text behind the end of the document");
    return r->status;
}

bool sl_text_is(sl_text t, const char *s)
{
    return strlen(s) == t.len && memcmp(t.data, s, t.len) == 0;
}

sl_text sl_text_keep(sl_arena *a, sl_text t)
{
    return (sl_text){sl_arena_strndup(a, t.data, t.len), t.len};
}
