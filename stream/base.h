/* Status and errors, checked size arithmetic, the log hook, the arena. Everything above uses these.
 * Any thread may call any function here on its own objects; an arena belongs to one thread at a
 * time. */
#ifndef SL_BASE_H
#define SL_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sl_status {
    SL_OK = 0,
    SL_EAGAIN,       /* not yet: try later or wait */
    SL_ENOMEM,       /* the allocator said no */
    SL_EBUDGET,      /* would not fit the memory budget */
    SL_EIO,          /* a read or write failed: errno_value says why */
    SL_EFORMAT,      /* a file is not what its format demands */
    SL_EUNSUPPORTED, /* well-formed, but not something this build runs */
    SL_EINVAL,       /* a caller's or user's value is out of range */
    SL_ECANCELLED    /* stopped on request */
} sl_status;

enum { SL_ERR_TEXT = 512 };

/* Owned by the caller, zeroed before first use ("sl_err err = {0}"). May be NULL everywhere. */
typedef struct sl_err {
    sl_status code;
    int errno_value;
    char text[SL_ERR_TEXT]; /* one line, no final newline: what, which file or tensor, offset,
                               expected and found */
} sl_err;

#define SL_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))

/* Writes the text once: a second call on an err that already holds an error changes nothing (the
 * first error wins). Returns code, so that "return sl_fail(err, SL_EFORMAT, ...)" reads well. err
 * may be NULL. */
sl_status sl_fail(sl_err *err, sl_status code, const char *format, ...) SL_PRINTF(3, 4);
/* The same, code SL_EIO, with ": " and strerror(errno_value) appended. */
sl_status sl_fail_errno(sl_err *err, int errno_value, const char *format, ...) SL_PRINTF(3, 4);
const char *sl_status_name(sl_status code);

/* Checked arithmetic: false when the result does not fit; *out is then unchanged. */
static inline bool sl_mul_size(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}
static inline bool sl_add_size(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}
/* unit: a power of two. The callers' sizes are far below 2^63. */
static inline uint64_t sl_round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) & ~(unit - 1);
}
static inline uint64_t sl_round_down(uint64_t n, uint64_t unit)
{
    return n & ~(unit - 1);
}

/* One hook for notes and warnings; nothing below runtime/ prints. Default: silent. The hook may be
 * called from any thread; set it before other threads exist. */
typedef enum sl_log_level { SL_LOG_DEBUG, SL_LOG_NOTE, SL_LOG_WARN } sl_log_level;
typedef void sl_log_fn(void *ctx, sl_log_level level, const char *text);
void sl_log_set(sl_log_fn *hook, void *ctx);
void sl_log(sl_log_level level, const char *format, ...) SL_PRINTF(2, 3);

/* Memory that dies all at once. Blocks grow geometrically from 4 KiB to 1 MiB; larger requests get
 * a block of their own. */
typedef struct sl_arena sl_arena;
sl_arena *sl_arena_new(void);     /* NULL: out of memory */
void sl_arena_free(sl_arena **a); /* accepts NULL and *a == NULL; sets *a NULL */
void *sl_arena_alloc(
    sl_arena *a, uint64_t n,
    uint64_t size); /* n * size zeroed bytes, 16-aligned; NULL on overflow or OOM */
char *sl_arena_strndup(sl_arena *a, const char *s,
                       uint64_t len);       /* NUL-terminated copy; NULL on OOM */
uint64_t sl_arena_bytes(const sl_arena *a); /* obtained from the system so far */

/* Seconds and nanoseconds of CLOCK_MONOTONIC. */
uint64_t sl_now_ns(void);

#endif
