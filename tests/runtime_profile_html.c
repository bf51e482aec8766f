/* What this proves: the page of a profile holds everything it needs and the document as it was,
 * whatever its strings are; nothing is left behind when it cannot be written.
 *
 *   runtime_profile_html JSON PAGE    writes a page for tests/profile_page.sh */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../runtime/profile_html.h"
#include "lib_test.h"

enum { LARGEST_PAGE = 60000 };

static const char hostile[] =
    "{\"model\":\"</script><script>alert(1)</script><!--<script>\",\"<\":\"a<b<\"}<";

static char path[4096];

static sl_status write_page(const char *to, const char *json, uint64_t len, sl_err *err)
{
    sl_outfile f;
    sl_status st = sl_outfile_open(&f, to, err);
    if (!st)
        st = sl_profile_html_write(&f, json, len, err);
    if (!st)
        return sl_outfile_commit(&f, err);
    sl_outfile_abort(&f);
    return st;
}

static char *page_of(const char *json, size_t *len)
{
    sl_err err = {0};
    CHECK(!write_page(path, json, strlen(json), &err), "%s", err.text);
    char *page = test_read(path, len);
    if (!CHECK(page, "no page"))
        exit(test_end());
    unlink(path);
    return page;
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

/* What stands in the element of the document, as a browser reads it: up to the next end tag. */
static char *document_of(const char *page)
{
    const char *begin = strstr(page, "id=\"document\">");
    if (!CHECK(begin, "no document"))
        exit(test_end());
    begin = strchr(begin, '>') + 1;
    return strndup(begin, (size_t)(strstr(begin, "</") - begin));
}

static void unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at; at++) {
        bool mark = !strncmp(at, "\\u003c", 6);
        *to++ = mark ? '<' : *at;
        at += mark ? 5 : 0;
    }
    *to = 0;
}

static void check_whole(void)
{
    size_t len, larger, json_len;
    char *json = test_read(test_data("profile/demo.json"), &json_len);
    char *empty = page_of("", &len), *page = page_of(json, &larger);
    CHECK(!strncmp(empty, "<!doctype html>", 15) && strlen(empty) == len);
    CHECK(len <= LARGEST_PAGE, "%zu bytes", len);
    CHECK(larger == len + json_len, "the document as it is");
    CHECK(strstr(empty, "default-src 'none'"), "nothing may be fetched");
    CHECK(!count(empty, "<!--"), "every file is in its place");
    CHECK(!count(empty, " src=") && !count(empty, "url(") && !count(empty, "@import"));
    CHECK(!count(empty, "https:") && count(empty, "http:") == 1, "but for the name of SVG");
    char *document = document_of(page);
    CHECK(!strcmp(document, json), "the document as it was");
    free(document);
    free(json);
    free(empty);
    free(page);
}

static void check_hostile(void)
{
    size_t len;
    char *empty = page_of("", &len), *page = page_of(hostile, &len);
    CHECK(count(page, "</script") == count(empty, "</script"));
    CHECK(count(page, "<script") == count(empty, "<script") && !count(page, "<!--"));
    char *document = document_of(page);
    unescape(document);
    CHECK(!strcmp(document, hostile), "%s", document);
    free(document);
    free(empty);
    free(page);
}

static void check_failures(void)
{
    sl_err err = {0};
    CHECK(write_page("/dev/full", hostile, strlen(hostile), &err) == SL_EIO);
    CHECK(strstr(err.text, "/dev/full") && strstr(err.text, strerror(ENOSPC)), "%s", err.text);

    /* A disk that is full after n bytes, at each step of the page. */
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t n = 0; n < 50000; n += 9973) {
        limit = (struct rlimit){.rlim_cur = n, .rlim_max = before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
        err = (sl_err){0};
        sl_status st = write_page(path, hostile, strlen(hostile), &err);
        setrlimit(RLIMIT_FSIZE, &before);
        CHECK(st == SL_EIO && strstr(err.text, path), "%s", err.text);
        CHECK(access(path, F_OK) < 0, "nothing is left");
    }
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        size_t len;
        sl_err err = {0};
        char *json = test_read(argv[1], &len);
        if (!json || write_page(argv[2], json, len, &err))
            fprintf(stderr, "%s: %s\n", argv[1], json ? err.text : "cannot read");
        free(json);
        return json && !err.code ? 0 : 1;
    }
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/page.html", folder ? folder : "/tmp");
    check_whole();
    check_hostile();
    check_failures();
    return test_end();
}
