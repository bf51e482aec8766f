/* Proves: memory that is changed through the socket while the demo model generates leaves every
 * logit as it is; each line gets its answer, and a wrong one says why; the socket refuses to
 * replace what is no socket or is listened to, replaces one that was left behind, can be used by
 * its owner only, and is gone at the end. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../runtime/elastic.h"
#include "lib_model.h"

enum { PROMPT = 24, STEPS = 60, V = 4096 };

static const uint64_t MIB = 1 << 20;
static char path[100];

static int dial(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (connect(fd, (const struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The reply to text on a connection of its own; valid until the next. */
static const char *ask_raw(const char *text, bool half_close)
{
    static char reply[512];
    const int fd = dial();
    size_t n = 0;
    reply[0] = 0;
    if (fd < 0 || send(fd, text, strlen(text), 0) != (ssize_t)strlen(text))
        return "no connection";
    if (half_close)
        shutdown(fd, SHUT_WR);
    for (ssize_t k; n + 1 < sizeof reply && !strchr(reply, '\n') &&
                    (k = recv(fd, reply + n, sizeof reply - 1 - n, 0)) > 0;)
        reply[n += (size_t)k] = 0;
    close(fd);
    return reply;
}

static const char *ask(const char *line)
{
    char text[256];
    snprintf(text, sizeof text, "%s\n", line);
    return ask_raw(text, false);
}

static void answers(const char *line, const char *expected)
{
    const char *got = ask(line);
    CHECK(strstr(got, expected) != NULL, "%s: %s", line, got);
}

static sl_elastic_options options(loaded *l)
{
    sl_stream_room room;
    sl_stream_room_get(sl_model_stream(l->model), &room);
    return (sl_elastic_options){.stream = sl_model_stream(l->model),
                                .limit_bytes = room.most_bytes + 10 * MIB,
                                .used_bytes = room.most_bytes + 8 * MIB,
                                .reserve_bytes = MIB,
                                .socket = path};
}

typedef struct asker {
    atomic_bool stop;
    uint64_t least, most;
    atomic_uint n;
    uint32_t refused; /* checks are the main thread's */
} asker;

static void *ask_on(void *arg)
{
    asker *a = arg;
    uint64_t seed = 4;
    char line[64];
    while (!atomic_load(&a->stop)) {
        snprintf(line, sizeof line, "memory %llu",
                 (unsigned long long)(a->least + test_random(&seed) % (a->most - a->least + 1)));
        a->refused += strncmp(ask(line), "ok memory ", 10) != 0;
        atomic_fetch_add(&a->n, 1);
        usleep(500);
    }
    return NULL;
}

/* All logits of a prompt and of what follows it greedily. */
static void generate(loaded *l, float *logits)
{
    int32_t ids[PROMPT], id = 0;
    sl_err err = {0};
    for (int32_t i = 0; i < PROMPT; i++)
        ids[i] = 100 + 37 * i;
    CHECK(!eval(l, ids, PROMPT, false, logits, &err), "%s", err.text);
    for (uint32_t t = 0; t < STEPS; t++) {
        id = argmax(logits + t * V, V);
        if (!CHECK(!eval(l, &id, 1, false, logits + (t + 1) * V, &err), "%s", err.text))
            break;
    }
}

static float still[(STEPS + 1) * V], moved[(STEPS + 1) * V];

static void while_generating(const char *model, sl_io io)
{
    test_case("%s: the same logits while memory changes", sl_io_name(io));
    setting s = setting_default();
    loaded l;
    sl_err err = {0};
    pthread_t thread;
    sl_elastic *e = NULL;
    s.io = io;
    s.memory = 40 * MIB;
    if (!CHECK(!load(model, &s, &l, &err), "%s", err.text))
        return;
    generate(&l, still);
    CHECK(!sl_session_rewind(l.session, 0, &err), "%s", err.text);
    const sl_elastic_options o = options(&l);
    if (CHECK(!sl_elastic_open(&o, &e, &err) && e, "%s", err.text)) {
        sl_stream_room room;
        sl_stream_room_get(o.stream, &room);
        asker a = {.least = room.least_bytes + 8 * MIB, .most = o.used_bytes};
        CHECK(pthread_create(&thread, NULL, ask_on, &a) == 0);
        for (uint32_t i = 0; i < 4 || (atomic_load(&a.n) < 6 && i < 60); i++) {
            memset(moved, 0, sizeof moved);
            generate(&l, moved);
            CHECK(!memcmp(still, moved, sizeof still), "max difference %g",
                  max_difference(still, moved, (STEPS + 1) * V, NULL));
            CHECK(!sl_session_rewind(l.session, 0, &err), "%s", err.text);
        }
        atomic_store(&a.stop, true);
        pthread_join(thread, NULL);
        CHECK(atomic_load(&a.n) > 5 && !a.refused, "%u changes, %u refused", atomic_load(&a.n),
              a.refused);
    }
    sl_elastic_close(&e);
    unload(&l);
}

static void lines(loaded *l)
{
    test_case("lines and their answers");
    sl_elastic *e = NULL;
    sl_err err = {0};
    struct stat st;
    const sl_elastic_options o = options(l);
    if (!CHECK(!sl_elastic_open(&o, &e, &err) && e, "%s", err.text))
        return;
    CHECK(!stat(path, &st) && S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0700, "mode %o",
          (unsigned)st.st_mode);
    answers("status", ", fixed, ");
    answers("memory 35M", "ok memory 35.0 MiB of ");
    answers("status", "ok memory 35.0 MiB of ");
    answers("memory auto", ", auto, ");
    answers("memory 1K", "error: memory: 1.0 KiB is too little; the floor of this run is ");
    answers("memory 900G", "error: memory: 900 GiB is more than the ");
    answers("memory", "error: 'memory' is not accepted; status, memory SIZE or memory auto is");
    answers("memory 1x", "error: memory: '1x' is not accepted; auto or a size");
    answers("", "error: '' is not accepted");
    CHECK(strstr(ask_raw("status", true), "ok memory"), "a last line without an end");
    CHECK(strstr(ask_raw("status\r\n", false), "ok memory"));
    char line[64];
    snprintf(line, sizeof line, "memory %llu", (unsigned long long)o.limit_bytes);
    answers(line, "ok memory ");
    int idle[6];
    for (uint32_t i = 0; i < 6; i++)
        idle[i] = dial(); /* say nothing, and are in nobody's way */
    answers("status", "ok memory");
    test_case("who has the socket");
    sl_elastic *other = NULL;
    CHECK(sl_elastic_open(&o, &other, &err) == SL_EINVAL && !other &&
              strstr(err.text, "another program listens there"),
          "%s", err.text);
    for (uint32_t i = 0; i < 6; i++)
        close(idle[i]);
    answers("status", "ok memory");
    sl_elastic_close(&e);
    CHECK(stat(path, &st) != 0, "it is gone");
}

static void wrong_places(loaded *l)
{
    test_case("places that cannot be used");
    sl_elastic *e = NULL;
    sl_err err = {0};
    char longer[300], deep[200];
    sl_elastic_options o = options(l);
    const int fd = open(path, O_CREAT | O_WRONLY, 0600);
    CHECK(write(fd, "x", 1) == 1 && !close(fd));
    CHECK(sl_elastic_open(&o, &e, &err) == SL_EINVAL && !e && strstr(err.text, "is no socket"),
          "%s", err.text);
    struct stat st;
    CHECK(!stat(path, &st) && st.st_size == 1, "the file is as it was");
    unlink(path);
    snprintf(deep, sizeof deep, "%s/no/socket", path);
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    const char *const bad[] = {deep, longer, ""};
    for (uint32_t i = 0; i < 3; i++) {
        err = (sl_err){0};
        o.socket = bad[i];
        CHECK(sl_elastic_open(&o, &e, &err) && !e && strstr(err.text, "--memory-control: "), "%s",
              err.text);
    }
    test_case("a socket that was left behind");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    const int left = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(!bind(left, (const struct sockaddr *)&a, sizeof a) && !close(left));
    o.socket = path;
    err = (sl_err){0};
    CHECK(!sl_elastic_open(&o, &e, &err) && e, "%s", err.text);
    answers("status", "ok memory");
    sl_elastic_close(&e);
    test_case("nothing to do");
    o.socket = NULL;
    CHECK(!sl_elastic_open(&o, &e, &err) && !e);
}

int main(void)
{
    const char *model = "demo/demo-Q4_K_M.gguf", *folder = getenv("TMPDIR");
    setting s = setting_default();
    loaded l;
    sl_err err = {0};
    snprintf(path, sizeof path, "%s/memory.%d", folder ? folder : "/tmp", (int)getpid());
    while_generating(model, SL_IO_DIRECT);
    while_generating(model, SL_IO_MAPPED);
    s.memory = 40 * MIB;
    if (CHECK(!load(model, &s, &l, &err), "%s", err.text)) {
        lines(&l);
        wrong_places(&l);
        unload(&l);
    }
    return test_end();
}
