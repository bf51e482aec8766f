#include "term.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "command.h"
#include "report.h"

static struct {
    bool quiet, verbose, tty, colour;
    pthread_mutex_t lock; /* guards line_open and the order of lines on stderr */
    bool line_open;       /* a progress line stands without its newline */
    int out_errno;        /* first failure of stdout */
    volatile sig_atomic_t signal;
    uint64_t start_ns;
} term = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char RED[] = "\033[31m", YELLOW[] = "\033[33m", PLAIN[] = "\033[0m";

static void look_at_stderr(void)
{
    const char *no_colour = getenv("NO_COLOR"), *name = getenv("TERM");
    term.tty = isatty(STDERR_FILENO) == 1;
    term.colour = term.tty && !(no_colour && *no_colour) && !(name && !strcmp(name, "dumb"));
}

/* Text comes from files and users: bytes that could drive the terminal are shown, not obeyed. */
static void put_visible(const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f)
            fprintf(stderr, "\\x%02x", c);
        else
            fputc(c, stderr);
    }
}

static void put_line(const char *colour, const char *label, const char *text)
{
    pthread_mutex_lock(&term.lock);
    if (term.line_open)
        fputs("\r\033[K", stderr);
    term.line_open = false;
    if (term.colour && *label)
        fprintf(stderr, "%s%s%s", colour, label, PLAIN);
    else
        fputs(label, stderr);
    put_visible(text);
    fputc('\n', stderr);
    fflush(stderr);
    pthread_mutex_unlock(&term.lock);
}

static void show_log(void *ctx, sl_log_level level, const char *text)
{
    (void)ctx;
    if (term.quiet || (level == SL_LOG_DEBUG && !term.verbose))
        return;
    if (level == SL_LOG_WARN)
        put_line(YELLOW, "warning: ", text);
    else
        put_line("", level == SL_LOG_NOTE ? "note: " : "debug: ", text);
}

void sl_term_init(bool quiet, bool verbose)
{
    term.start_ns = sl_now_ns();
    look_at_stderr();
    term.quiet = quiet;
    term.verbose = verbose;
    sl_log_set(show_log, NULL);
}

bool sl_term_quiet(void)
{
    return term.quiet;
}

uint64_t sl_term_start_ns(void)
{
    return term.start_ns;
}

unsigned sl_term_width(void)
{
    struct winsize size;
    if (term.tty && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
        return size.ws_col;
    return 80;
}

void sl_say(const char *format, ...)
{
    char text[1024];
    va_list args;
    if (term.quiet)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_line("", "", text);
}

SL_PRINTF(1, 0) static void complain(const char *format, va_list args)
{
    char text[1024];
    look_at_stderr(); /* errors may come before sl_term_init() */
    vsnprintf(text, sizeof text, format, args);
    put_line(RED, "sluice: error: ", text);
}

void sl_complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    complain(format, args);
    va_end(args);
}

int sl_usage_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    complain(format, args);
    va_end(args);
    return SL_EXIT_USAGE;
}

static bool out_result(bool ok)
{
    if (!ok && !term.out_errno)
        term.out_errno = errno ? errno : EIO;
    return !term.out_errno;
}

bool sl_out(const void *data, uint64_t len)
{
    if (term.out_errno)
        return false;
    errno = 0;
    return out_result(fwrite(data, 1, len, stdout) == len);
}

bool sl_outf(const char *format, ...)
{
    va_list args;
    if (term.out_errno)
        return false;
    errno = 0;
    va_start(args, format);
    int n = vfprintf(stdout, format, args);
    va_end(args);
    return out_result(n >= 0);
}

bool sl_out_flush(void)
{
    if (term.out_errno)
        return false;
    errno = 0;
    return out_result(fflush(stdout) == 0);
}

bool sl_out_failed(void)
{
    return term.out_errno != 0;
}

int sl_out_end(int exit_status)
{
    errno = 0;
    out_result(fflush(stdout) == 0 && !ferror(stdout));
    if (!term.out_errno)
        return exit_status;
    if (term.out_errno == EPIPE)
        return SL_EXIT_PIPE;
    sl_complain("cannot write to standard output: %s", strerror(term.out_errno));
    return exit_status ? exit_status : SL_EXIT_FAILED;
}

static const uint64_t SECOND_NS = 1000000000;

void sl_progress_begin(sl_progress *p, const char *what, uint64_t total, bool bytes)
{
    *p = (sl_progress){.what = what, .total = total, .bytes = bytes, .start_ns = sl_now_ns()};
}

static void describe_progress(const sl_progress *p, uint64_t done, double seconds, char *text,
                              size_t cap)
{
    char a[SL_SHORT], b[SL_SHORT], left[SL_SHORT];
    double rate = seconds > 0 ? (double)done / seconds : 0;
    bool known = p->total && done <= p->total && rate > 0;
    int percent = known ? (int)(100.0 * (double)done / (double)p->total) : 0;
    sl_show_seconds(left, known ? (double)(p->total - done) / rate : 0);
    if (!known)
        snprintf(text, cap, "%s ...", p->what);
    else if (p->bytes)
        snprintf(text, cap, "%s: %s of %s (%d %%), %s left", p->what, sl_show_bytes(a, done),
                 sl_show_bytes(b, p->total), percent, left);
    else
        snprintf(text, cap, "%s: %d %%, %s left", p->what, percent, left);
}

void sl_progress_update(sl_progress *p, uint64_t done)
{
    char text[160];
    uint64_t now = sl_now_ns();
    uint64_t pause = term.tty ? SECOND_NS / 5 : 10 * SECOND_NS;
    if (term.quiet || now - p->start_ns < 2 * SECOND_NS || now - p->shown_ns < pause)
        return;
    p->shown_ns = now;
    describe_progress(p, done, (double)(now - p->start_ns) / 1e9, text, sizeof text);
    if (!term.tty) {
        put_line("", "", text);
        return;
    }
    pthread_mutex_lock(&term.lock);
    fprintf(stderr, "\r\033[K%.*s", (int)sl_term_width() - 1, text);
    fflush(stderr);
    term.line_open = true;
    pthread_mutex_unlock(&term.lock);
}

void sl_progress_end(sl_progress *p)
{
    (void)p;
    pthread_mutex_lock(&term.lock);
    if (term.line_open)
        fputs("\r\033[K", stderr);
    term.line_open = false;
    fflush(stderr);
    pthread_mutex_unlock(&term.lock);
}

static void on_signal(int number)
{
    term.signal = number;
}

void sl_interrupt_catch(void)
{
    /* SA_RESETHAND: the second signal does what it does by default. */
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
}

bool sl_interrupted(void)
{
    return term.signal != 0;
}

int sl_interrupt_exit(void)
{
    return 128 + term.signal;
}
