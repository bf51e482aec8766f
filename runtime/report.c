#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "term.h"

static const char *show_scaled(char *out, double n, const char *suffix)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned u = 0;
    while (n >= 1023.95 && u < 6) {
        n /= 1024;
        u++;
    }
    int digits = u == 0 || n >= 99.95 ? 0 : u >= 3 && n < 9.995 ? 2 : 1;
    snprintf(out, SL_SHORT, "%.*f %s%s", digits, n, unit[u], suffix);
    return out;
}

const char *sl_show_bytes(char *out, uint64_t bytes)
{
    return show_scaled(out, (double)bytes, "");
}

const char *sl_show_rate(char *out, double bytes_per_s)
{
    return show_scaled(out, bytes_per_s, "/s");
}

const char *sl_show_seconds(char *out, double s)
{
    if (!(s < 1e9)) {
        snprintf(out, SL_SHORT, "a long time");
    } else if (s > 0 && s < 0.000995) {
        snprintf(out, SL_SHORT, "%.0f us", s * 1e6);
    } else if (s < 0.0995) {
        snprintf(out, SL_SHORT, s < 0.00995 ? "%.2f ms" : "%.1f ms", s * 1e3);
    } else if (s < 99.5) {
        snprintf(out, SL_SHORT, s < 9.95 ? "%.2f s" : "%.1f s", s);
    } else if (s < 5970) {
        unsigned n = (unsigned)(s + 0.5);
        snprintf(out, SL_SHORT, "%u min %02u s", n / 60, n % 60);
    } else {
        unsigned long long n = (unsigned long long)(s / 60 + 0.5);
        snprintf(out, SL_SHORT, "%llu h %02llu min", n / 60, n % 60);
    }
    return out;
}

void sl_show_now(char *out)
{
    const time_t now = time(NULL);
    struct tm tm;
    if (!gmtime_r(&now, &tm) || !strftime(out, 24, "%Y-%m-%dT%H:%M:%SZ", &tm))
        out[0] = 0;
}

sl_status sl_report_json(sl_json_writer **w, sl_err *err)
{
    char *text = NULL;
    sl_status st = sl_json_write_end(*w, true, &text, err);
    if (!st)
        sl_outf("%s\n", text);
    free(text);
    sl_json_writer_free(w);
    return st;
}

static sl_status read_all(FILE *in, const char *path, char **out, uint64_t *len, sl_err *err)
{
    uint64_t n = 0, cap = 64 << 10;
    char *data = malloc(cap);
    while (data) {
        n += fread(data + n, 1, cap - 1 - n, in);
        if (ferror(in)) {
            int cause = errno;
            free(data);
            return sl_fail_errno(err, cause, "%s: cannot read", path);
        }
        if (n < cap - 1)
            break;
        char *grown = realloc(data, cap * 2);
        if (!grown) {
            free(data);
            data = NULL;
        } else {
            data = grown;
            cap *= 2;
        }
    }
    if (!data)
        return sl_fail(err, SL_ENOMEM, "%s: out of memory", path);
    data[n] = 0;
    *out = data;
    *len = n;
    return SL_OK;
}

sl_status sl_read_input(const char *path, char **out, uint64_t *len, sl_err *err)
{
    if (!strcmp(path, "-"))
        return read_all(stdin, "standard input", out, len, err);
    FILE *in = fopen(path, "rbe");
    if (!in)
        return sl_fail_errno(err, errno, "%s: cannot open", path);
    sl_status st = read_all(in, path, out, len, err);
    fclose(in);
    return st;
}
