/* Proves: opening a malformed checkpoint ends as tests/data/corrupt/index.json says, as far as the
 * container goes: reject is an error that holds the expected word, warn is a warning with it,
 * accept is silence. Each case runs in a child with 64 MiB more address space than it starts with,
 * and an alarm: no signal, no hang, no allocation that the file's size does not justify.
 * not_container.txt lists the cases whose fault is in config, tensors' roles, tokenizer or weight
 * values: these must open, so that the layer above can find it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../stream/checkpoint.h"
#include "../stream/json.h"
#include "lib_test.h"

enum { MORE_SPACE = 64 << 20, SECONDS = 20 };

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

typedef struct outcome {
    int status; /* an sl_status, or -signal */
    char error[SL_ERR_TEXT];
    char warnings[2048];
} outcome;

static void hear(void *ctx, sl_log_level level, const char *text)
{
    outcome *o = ctx;
    size_t at = strlen(o->warnings);
    if (level == SL_LOG_WARN)
        snprintf(o->warnings + at, sizeof o->warnings - at, "%s\n", text);
}

static void limit_child(void)
{
#ifndef SANITIZED /* sanitizers map terabytes */
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%lu", &pages) == 1) {
        rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + MORE_SPACE;
        setrlimit(RLIMIT_AS, &(struct rlimit){most, most});
    }
    if (f)
        fclose(f);
#endif
    alarm(SECONDS);
}

static void child(const char *path, int to)
{
    static outcome o;
    sl_err err = {0};
    sl_checkpoint *c = NULL;
    limit_child();
    sl_log_set(hear, &o);
    o.status = (int)sl_checkpoint_open(path, &c, &err);
    if ((o.status == SL_OK) != (c != NULL) ||
        (o.status != SL_OK && err.code != (sl_status)o.status))
        o.status = -1000;
    memcpy(o.error, err.text, sizeof o.error);
    sl_checkpoint_close(&c);
    _exit(write(to, &o, sizeof o) == (ssize_t)sizeof o ? 0 : 1);
}

static void open_in_child(const char *path, outcome *o)
{
    int fd[2], status = 0;
    size_t n = 0;
    *o = (outcome){.status = -1};
    if (pipe(fd))
        return;
    pid_t pid = fork();
    if (pid == 0)
        child(path, fd[1]);
    close(fd[1]);
    for (ssize_t got; n < sizeof *o && (got = read(fd[0], (char *)o + n, sizeof *o - n)) > 0;)
        n += (size_t)got;
    close(fd[0]);
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        o->status = -WTERMSIG(status);
    else if (n != sizeof *o || WEXITSTATUS(status))
        o->status = -1;
}

/* Whether the file is a line of the list. */
static bool listed(const char *list, const char *file)
{
    size_t n = strlen(file);
    for (const char *line = list; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, file, n) == 0 && (line[n] == '\n' || line[n] == 0))
            return true;
    }
    return false;
}

static void check_case(const sl_json *c, const char *not_container)
{
    static outcome o;
    char path[512];
    const char *file = sl_json_text(sl_json_get(c, "file"));
    const char *expect = sl_json_text(sl_json_get(c, "expect"));
    const char *word = sl_json_text(sl_json_get(c, "names"));
    if (strncmp(file, "lora/", 5) == 0) /* not in the set */
        return;
    test_case("%s", file);
    snprintf(path, sizeof path, "corrupt/%s", file);
    open_in_child(test_data(path), &o);
    if (listed(not_container, file)) {
        CHECK(o.status == SL_OK, "is left to the layer above, but does not open: %d %s", o.status,
              o.error);
        CHECK(!o.warnings[0], "%s", o.warnings);
    } else if (strcmp(expect, "reject") == 0) {
        CHECK(o.status > 0 && strstr(o.error, word), "wanted '%s', found %d: %s", word, o.status,
              o.error);
        CHECK(o.status != SL_ENOMEM && !strchr(o.error, '\n'), "%s", o.error);
    } else {
        CHECK(o.status == SL_OK, "%d: %s", o.status, o.error);
        CHECK(strcmp(expect, "warn") == 0 ? strstr(o.warnings, word) != NULL : !o.warnings[0],
              "warnings, wanted '%s': %s", word, o.warnings);
    }
}

int main(void)
{
    size_t len = 0, list_len = 0;
    sl_json *index = NULL;
    sl_err err = {0};
    char *text = test_read(test_data("corrupt/index.json"), &len);
    char *list = test_read(test_data("corrupt/not_container.txt"), &list_len);
    if (CHECK(text && list && sl_json_parse(text, len, "index.json", &index, &err) == SL_OK, "%s",
              err.text))
        for (const sl_json *c = sl_json_first(index); c; c = sl_json_next(c))
            check_case(c, list);
    sl_json_free(&index);
    free(text);
    free(list);
    return test_end();
}
