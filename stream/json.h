/* JSON, strictly: RFC 8259, UTF-8 (a byte-order mark is skipped), one document with nothing behind
 * it, at most SL_JSON_DEPTH levels. Invalid UTF-8, lone surrogates and raw control characters are
 * errors. The literals NaN, Infinity and -Infinity are numbers, because Python writes them.
 *
 * Three surfaces:
 *   reader  pulls values one after the other out of text or out of a file's range. Memory: one
 *           block of 64 KiB and the longest string, whatever the size of the document. For large
 *           files (tokenizer.json, the index and headers of safetensors), and for exact 64-bit
 *           integers.
 *   tree    a small document as a whole (config.json, requests), at most SL_JSON_TREE_BYTES
 *           and SL_JSON_TREE_NODES values.
 *   writer  reports.
 *
 * Any thread, one at a time per object. */
#ifndef SL_JSON_H
#define SL_JSON_H

#include "base.h"
#include "bytes.h"
#include "file.h"

enum { SL_JSON_DEPTH = 64, SL_JSON_TREE_BYTES = 16 << 20, SL_JSON_TREE_NODES = 1 << 18 };

typedef enum sl_json_type {
    SL_JSON_NONE, /* absent; no value here; the reader has failed */
    SL_JSON_NULL,
    SL_JSON_BOOL,
    SL_JSON_NUMBER,
    SL_JSON_STRING,
    SL_JSON_ARRAY,
    SL_JSON_OBJECT
} sl_json_type;
const char *sl_json_type_name(sl_json_type t); /* "a number", "an object", ... for messages */

/* ------------------------------------------------------------------------------------------------
 * reader
 *
 * Errors are sticky: after the first one every call returns false (or SL_JSON_NONE), and err, given
 * at open, holds "NAME:LINE:COLUMN: what". So a loop needs no checks inside; look once, at the end,
 * with sl_json_read_end():
 *
 *     sl_text key, text;
 *     for (bool any = sl_json_enter_object(r); any && sl_json_next_key(r, &key);)
 *         if (sl_text_is(key, "type"))
 *             sl_json_read_string(r, &text);
 *         else
 *             sl_json_skip(r);
 *     status = sl_json_read_end(r);
 *
 * A value that was announced by next_key or next_item must be read, entered or skipped before the
 * next call of either. Duplicate keys are the caller's business: the reader remembers none. */
typedef struct sl_json_reader sl_json_reader;

/* name: for messages; copied. text and file must live until close, err too. SL_ENOMEM otherwise. */
sl_status sl_json_reader_of_text(const char *text, uint64_t len, const char *name,
                                 sl_json_reader **out, sl_err *err);
/* The range [offset, offset + len) of the file, which must lie inside it. Its page cache is dropped
 * at close. */
sl_status sl_json_reader_of_file(const sl_file *f, uint64_t offset, uint64_t len, const char *name,
                                 sl_json_reader **out, sl_err *err);
void sl_json_reader_close(sl_json_reader **r);

sl_json_type sl_json_peek(sl_json_reader *r); /* of the value that comes next; consumes nothing */

bool sl_json_enter_object(sl_json_reader *r); /* false: not an object, or failed */
/* True: *key is set (unescaped, valid until the next call on r) and a value follows. False: the
 * object has ended (and is left behind), or failed. */
bool sl_json_next_key(sl_json_reader *r, sl_text *key);
bool sl_json_enter_array(sl_json_reader *r);
bool sl_json_next_item(sl_json_reader *r); /* true: a value follows; false: the array has ended */

/* Each fails the reader ("expected a string, found a number") when another type comes. Strings are
 * unescaped, may hold NUL (from \u0000), and are valid until the next call on r. */
bool sl_json_read_string(sl_json_reader *r, sl_text *out);
/* Integers must be written without fraction and exponent, and fit. */
bool sl_json_read_int(sl_json_reader *r, int64_t *out);
bool sl_json_read_uint(sl_json_reader *r, uint64_t *out);
bool sl_json_read_double(sl_json_reader *r, double *out); /* too large: infinity, as Python */
bool sl_json_read_bool(sl_json_reader *r, bool *out);
bool sl_json_read_null(sl_json_reader *r);
bool sl_json_skip(sl_json_reader *r); /* any value, checked all the same */

/* After the document's value: SL_OK when nothing but white space follows; otherwise, or when the
 * reader had failed before, its error. */
sl_status sl_json_read_end(sl_json_reader *r);
bool sl_json_failed(const sl_json_reader *r);
/* For the caller's own findings: fails the reader at its present position, "NAME:LINE:COLUMN: "
 * before the text. Returns false. */
bool sl_json_reject(sl_json_reader *r, sl_status code, const char *format, ...) SL_PRINTF(3, 4);

/* Says what is being read ("tensor 'x'"): errors from here on carry it. Borrowed; NULL: nothing. */
void sl_json_about(sl_json_reader *r, const char *what);

bool sl_text_is(sl_text t, const char *s); /* the same bytes */
/* A copy of t in the arena, NUL-terminated behind its len bytes; data NULL: out of memory. */
sl_text sl_text_keep(sl_arena *a, sl_text t);

/* ------------------------------------------------------------------------------------------------
 * tree
 *
 * Numbers are doubles: an integer beyond 2^53 is refused by sl_json_int() instead of being rounded.
 * Strings hold no NUL. A key that comes twice is a warning (sl_log, with the key) and its last
 * value counts, as in Python. Every getter takes NULL (absent). */
typedef struct cJSON sl_json;

/* name: for messages ("config.json"). */
sl_status sl_json_parse(const char *text, uint64_t len, const char *name, sl_json **out,
                        sl_err *err);
void sl_json_free(sl_json **j);

sl_json_type sl_json_type_of(const sl_json *j);
const sl_json *sl_json_get(const sl_json *object, const char *key); /* NULL: absent */
uint32_t sl_json_count(const sl_json *j);                           /* items or members */
const sl_json *sl_json_first(const sl_json *j);     /* first item or member; NULL: none */
const sl_json *sl_json_next(const sl_json *j);      /* the one after j; NULL: none */
const char *sl_json_key(const sl_json *j);          /* a member's key; NULL: not a member */
bool sl_json_int(const sl_json *j, int64_t *out);   /* a number without fraction, below 2^53 */
bool sl_json_number(const sl_json *j, double *out); /* any number, also NaN and infinities */
bool sl_json_bool(const sl_json *j, bool *out);
const char *sl_json_text(const sl_json *j); /* NULL: not a string */

/* ------------------------------------------------------------------------------------------------
 * writer
 *
 * Builds one document and prints it. key is NULL inside an array and for the root. Failures (out of
 * memory, too deep) are remembered and reported by sl_json_write_end(). */
typedef struct sl_json_writer sl_json_writer;

sl_json_writer *sl_json_writer_new(void); /* NULL: out of memory */
void sl_json_writer_free(sl_json_writer **w);
void sl_json_write_object(sl_json_writer *w, const char *key); /* until sl_json_write_close() */
void sl_json_write_array(sl_json_writer *w, const char *key);
void sl_json_write_close(sl_json_writer *w);
void sl_json_write_string(sl_json_writer *w, const char *key, const char *text); /* NULL: null */
/* Bytes that are not UTF-8, and NUL, become U+FFFD. */
void sl_json_write_text(sl_json_writer *w, const char *key, sl_text text);
void sl_json_write_int(sl_json_writer *w, const char *key, int64_t v);
void sl_json_write_uint(sl_json_writer *w, const char *key, uint64_t v);
void sl_json_write_double(sl_json_writer *w, const char *key, double v); /* NaN, infinities: null */
void sl_json_write_bool(sl_json_writer *w, const char *key, bool v);
/* The text (malloc'ed, NUL-terminated, no final newline; the caller frees); pretty: indented. Also
 * closes what is still open. */
sl_status sl_json_write_end(sl_json_writer *w, bool pretty, char **out, sl_err *err);

#endif
