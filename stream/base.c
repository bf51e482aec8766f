#include "base.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static sl_log_fn *log_hook;
static void *log_ctx;

SL_PRINTF(4, 0)
static sl_status fail_text(sl_err *err, sl_status code, int errno_value, const char *format,
                           va_list args)
{
    if (!err || err->code != SL_OK)
        return code;
    err->code = code;
    err->errno_value = errno_value;
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    if (errno_value && n >= 0 && (size_t)n < sizeof err->text)
        snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", strerror(errno_value));
    for (char *p = err->text; *p; p++) /* names from files may hold anything: keep it one line */
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = '?';
    return code;
}

sl_status sl_fail(sl_err *err, sl_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_text(err, code, 0, format, args);
    va_end(args);
    return code;
}

sl_status sl_fail_errno(sl_err *err, int errno_value, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_text(err, SL_EIO, errno_value, format, args);
    va_end(args);
    return SL_EIO;
}

const char *sl_status_name(sl_status code)
{
    switch (code) {
    case SL_OK:
        return "ok";
    case SL_EAGAIN:
        return "try again";
    case SL_ENOMEM:
        return "out of memory";
    case SL_EBUDGET:
        return "over the memory budget";
    case SL_EIO:
        return "input/output error";
    case SL_EFORMAT:
        return "bad file";
    case SL_EUNSUPPORTED:
        return "not supported";
    case SL_EINVAL:
        return "bad value";
    case SL_ECANCELLED:
        return "cancelled";
    }
    return "unknown";
}

void sl_log_set(sl_log_fn *hook, void *ctx)
{
    log_hook = hook;
    log_ctx = ctx;
}

void sl_log(sl_log_level level, const char *format, ...)
{
    if (!log_hook)
        return;
    char text[SL_ERR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_hook(log_ctx, level, text);
}

uint64_t sl_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
