/* Proves: every malformed model ends as it must. Runs "sluice verify" on each case of
 * tests/data/corrupt in 64 MiB of address space: reject is exit 1 and one line that holds the
 * expected word; warn is exit 0 and a warning with it; accept is exit 0 and silence. No signal, no
 * hang. "sluice run" on the same models never exits 0 where verify must reject. test: timeout=300
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../stream/json.h"
#include "lib_test.h"

enum { OUTPUT = 16384, ADDRESS_SPACE = 64 << 20, SECONDS = 20 };

typedef struct outcome {
    int code;          /* exit code, or -signal */
    char text[OUTPUT]; /* stderr */
} outcome;

static void limit_child(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* sanitizers map terabytes */
    struct rlimit space = {ADDRESS_SPACE, ADDRESS_SPACE};
    setrlimit(RLIMIT_AS, &space);
#endif
    alarm(SECONDS);
}

static void run_sluice(const char *const argv[], outcome *o)
{
    int pipe_fd[2], status = 0;
    *o = (outcome){.code = -1};
    if (pipe(pipe_fd))
        return;
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 1);
        dup2(pipe_fd[1], 2);
        close(pipe_fd[0]);
        limit_child();
        execv(argv[0], (char *const *)(uintptr_t)argv); /* does not write to them */
        _exit(127);
    }
    close(pipe_fd[1]);
    size_t n = 0;
    char rest[512];
    for (ssize_t got;;) {
        got = n < OUTPUT - 1 ? read(pipe_fd[0], o->text + n, OUTPUT - 1 - n)
                             : read(pipe_fd[0], rest, sizeof rest);
        if (got <= 0)
            break;
        n += n < OUTPUT - 1 ? (size_t)got : 0;
    }
    close(pipe_fd[0]);
    waitpid(pid, &status, 0);
    o->code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static bool has_line(const char *text, const char *start, const char *word)
{
    for (const char *line = text; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t len = strcspn(line, "\n");
        const char *at = word ? strstr(line, word) : line;
        if (!strncmp(line, start, strlen(start)) && at && at < line + len)
            return true;
    }
    return false;
}

static unsigned count_lines(const char *text)
{
    unsigned n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void check_case(const char *sluice, const char *file, const char *expect, const char *word)
{
    static outcome o;
    char path[512];
    const char *verify[] = {sluice, "verify", path, NULL};
    snprintf(path, sizeof path, "%s/%s", test_data("corrupt"), file);
    test_case("%s", file);
    run_sluice(verify, &o);
    if (!strcmp(expect, "reject")) {
        CHECK(o.code == 1 && has_line(o.text, "sluice: error: ", word),
              "exit %d, wanted \"%s\": %s", o.code, word, o.text);
        CHECK(!has_line(o.text, "", "AddressSanitizer") && count_lines(o.text) <= 4, "%s", o.text);
        const char *run[] = {sluice, "run", path, "-p", "ab", "-n", "2", "--quiet", NULL};
        run_sluice(run, &o);
        CHECK(o.code == 1 || (o.code == 0 && strstr(file, "scale_")), "run exits %d: %s", o.code,
              o.text);
    } else if (!strcmp(expect, "warn")) {
        CHECK(o.code == 0 && has_line(o.text, "warning: ", word), "exit %d, wanted \"%s\": %s",
              o.code, word, o.text);
    } else {
        CHECK(o.code == 0 && !has_line(o.text, "warning: ", NULL), "exit %d: %s", o.code, o.text);
    }
}

int main(void)
{
    size_t len = 0;
    sl_json *index = NULL;
    sl_err err = {0};
    const char *sluice = getenv("SLUICE");
    char *text = test_read(test_data("corrupt/index.json"), &len);
    if (!CHECK(text && sl_json_parse(text, len, "index.json", &index, &err) == SL_OK, "%s",
               err.text))
        return test_end();
    for (const sl_json *c = sl_json_first(index); c; c = sl_json_next(c)) {
        const char *file = sl_json_text(sl_json_get(c, "file")),
                   *expect = sl_json_text(sl_json_get(c, "expect"));
        if (strncmp(file, "lora/", 5)) /* adapters are not read yet */
            check_case(sluice ? sluice : "./sluice", file, expect,
                       sl_json_text(sl_json_get(c, "names")));
    }
    sl_json_free(&index);
    free(text);
    return test_end();
}
