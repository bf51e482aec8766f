#include "lib_test.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned long n_checks, n_failed;
static char case_name[256];

bool test_check(bool ok, const char *file, int line, const char *expression, const char *format,
                ...)
{
    n_checks++;
    if (ok)
        return true;
    n_failed++;
    if (n_failed > 50)
        return false;
    fprintf(stderr, "%s:%d: %s%sfailed: %s", file, line, case_name, case_name[0] ? ": " : "",
            expression);
    if (format[1]) { /* CHECK puts a blank before the message, so that none is not an empty format
                      */
        va_list args;
        va_start(args, format);
        fputs(" ", stderr);
        vfprintf(stderr, format, args);
        va_end(args);
    }
    fputc('\n', stderr);
    return false;
}

void test_case(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(case_name, sizeof case_name, format, args);
    va_end(args);
}

void test_skip(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("skipped: ", stdout);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
    exit(77);
}

int test_end(void)
{
    printf("%lu checks, %lu failed\n", n_checks, n_failed);
    return n_failed || !n_checks ? 1 : 0;
}

const char *test_data(const char *name)
{
    static char path[4][1024];
    static unsigned turn;
    const char *folder = getenv("SL_TEST_DATA");
    char *p = path[turn++ & 3];
    snprintf(p, sizeof path[0], "%s/%s", folder ? folder : "tests/data", name);
    return p;
}

char *test_read(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    char *text = NULL;
    long size = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    if (size >= 0 && fseek(f, 0, SEEK_SET) == 0 && (text = malloc((size_t)size + 1)) != NULL) {
        *len = fread(text, 1, (size_t)size, f);
        text[*len] = 0;
    }
    fclose(f);
    return text;
}

uint64_t test_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717u;
}

float test_random_float(uint64_t *state)
{
    float sum = 0.0f;
    for (int i = 0; i < 4; i++)
        sum += (float)(test_random(state) >> 40) / 16777216.0f - 0.5f;
    return sum * 1.7320508f;
}
