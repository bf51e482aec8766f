/* A span of bytes, and a bounded little-endian cursor over memory or over a range of a file. Every
 * binary parser reads through the cursor and through nothing else: it cannot pass the end, and it
 * never allocates more than the source really holds. A file is read in blocks of SL_BYTES_BLOCK;
 * only a single item that is larger grows the window. One thread per cursor. */
#ifndef SL_BYTES_H
#define SL_BYTES_H

#include <string.h>

#include "base.h"

typedef struct sl_text {
    const char *data;
    uint64_t len;
} sl_text; /* not NUL-terminated; may hold any byte */

enum { SL_BYTES_BLOCK = 64 << 10 };

struct sl_file;

typedef struct sl_bytes {
    const uint8_t *data; /* the window */
    uint64_t len, at;    /* its length; the cursor's place in it */
    uint64_t base;       /* position of data[0] in the source */
    uint64_t total;      /* length of the source */
    bool failed;         /* sticky: ran past the end, a read failed, or out of memory */
    sl_status status;    /* which of the last two; SL_OK: ran past the end */
    /* File sources only. */
    const struct sl_file *file;
    uint64_t offset; /* of the source in the file */
    uint8_t *buf;
    uint64_t cap;
    sl_err *err; /* a failed read or allocation is written here; running past the end is not */
} sl_bytes;

static inline sl_bytes sl_bytes_over(const void *data, uint64_t len)
{
    return (sl_bytes){.data = data, .len = len, .total = len};
}
/* The range [offset, offset + len) of a file, which must lie inside it. err stays in use until
 * close. Nothing is read yet. */
sl_bytes sl_bytes_of_file(const struct sl_file *f, uint64_t offset, uint64_t len, sl_err *err);
/* Frees the window and drops the page cache of what was read. Also fine for a memory cursor. */
void sl_bytes_close(sl_bytes *b);
/* Makes n bytes from the cursor on contiguous in the window (n <= sl_bytes_left()); false: failed.
 */
bool sl_bytes_fill(sl_bytes *b, uint64_t n);

static inline uint64_t sl_bytes_position(const sl_bytes *b)
{
    return b->base + b->at;
}
static inline uint64_t sl_bytes_left(const sl_bytes *b)
{
    return b->total - sl_bytes_position(b);
}

/* The next n bytes, valid until the next call on b; NULL: there are not so many, b->failed. */
static inline const uint8_t *sl_bytes_take(sl_bytes *b, uint64_t n)
{
    if (b->failed || n > sl_bytes_left(b)) {
        b->failed = true;
        return NULL;
    }
    if (n > b->len - b->at && !sl_bytes_fill(b, n))
        return NULL;
    const uint8_t *p = b->data + b->at;
    b->at += n;
    return p;
}

/* 0 when there are too few bytes: check b->failed once after a group of reads. */
static inline uint64_t sl_bytes_uint(sl_bytes *b, uint32_t size)
{
    const uint8_t *p = sl_bytes_take(b, size);
    uint64_t v = 0;
    for (uint32_t i = 0; p && i < size; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}
static inline uint8_t sl_bytes_u8(sl_bytes *b)
{
    return (uint8_t)sl_bytes_uint(b, 1);
}
static inline uint32_t sl_bytes_u32(sl_bytes *b)
{
    return (uint32_t)sl_bytes_uint(b, 4);
}
static inline uint64_t sl_bytes_u64(sl_bytes *b)
{
    return sl_bytes_uint(b, 8);
}

/* Bytes of the valid UTF-8 sequence at s (1 to 4; surrogates, overlong forms and values past
 * U+10FFFF are invalid); 0: invalid or cut. */
uint32_t sl_utf8_len(const void *s, uint64_t left);
bool sl_utf8_valid(const void *s, uint64_t len);
/* Writes code point c (at most 0x10FFFF) into out; 1 to 4 bytes. */
uint32_t sl_utf8_put(uint32_t c, char out[4]);

#endif
