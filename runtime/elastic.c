#include "elastic.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../stream/follow.h"
#include "../stream/io_threads.h"
#include "report.h"

enum {
    LOOK_MS = 200,   /* with the next, a limit that falls is obeyed within a second */
    WITHIN_MS = 600, /* of one resize */
    AGAIN_MS = 10,   /* when parts were in use: some units later */
    N_CLIENTS = 4,
    N_LINE = 128,
    N_REPLY = 320
};

static const uint64_t MS = 1000000;

typedef struct client {
    int fd; /* -1: none */
    size_t n;
    char line[N_LINE];
} client;

/* All but the thread's handle belongs to the thread while it runs. */
struct sl_elastic {
    sl_elastic_options o;
    uint64_t most, least; /* of the process */
    uint64_t wish, lowest;
    bool following, unfinished, said_no_pressure;
    sl_follow follow;
    uint64_t looked_ns;
    int listener, wake;
    struct sockaddr_un address;
    client client[N_CLIENTS];
    pthread_t thread;
    bool thread_on;
};

/* ---- how much ---- */

static void room_of(const sl_elastic *e, sl_stream_room *out)
{
    sl_stream_room_get(e->o.stream, out);
}

static void apply(sl_elastic *e)
{
    sl_stream_room room;
    room_of(e, &room);
    e->unfinished = sl_stream_resize(e->o.stream, room.most_bytes - (e->most - e->wish),
                                     WITHIN_MS * MS) == SL_EAGAIN;
}

static void wish(sl_elastic *e, uint64_t bytes)
{
    char a[SL_SHORT], b[SL_SHORT];
    if (bytes == e->wish)
        return;
    sl_log(SL_LOG_DEBUG, "memory: %s instead of %s", sl_show_bytes(a, bytes),
           sl_show_bytes(b, e->wish));
    e->wish = bytes;
    e->lowest = bytes < e->lowest ? bytes : e->lowest;
    apply(e);
}

static uint64_t stalls(sl_elastic *e, const sl_memory_view *view, bool *machine_wide)
{
    uint64_t us;
    if (sl_pressure_look(sl_text_read, NULL, view, &us, machine_wide))
        return us;
    if (!e->said_no_pressure)
        sl_log(SL_LOG_DEBUG, "memory: this kernel does not tell of pressure (PSI); following "
                             "limits and free memory only");
    e->said_no_pressure = true;
    return UINT64_MAX;
}

static void look(sl_elastic *e)
{
    sl_memory_view view;
    sl_memory_use use;
    const uint64_t now = sl_now_ns();
    if (!e->following || now - e->looked_ns < LOOK_MS * MS)
        return;
    e->looked_ns = now;
    if (sl_memory_look(&view, NULL) || sl_memory_use_now(&use, NULL))
        return; /* the next look may work */
    sl_follow_look l = {.now_ns = now, .memory_bytes = e->wish};
    const uint64_t has = use.anon_bytes + use.file_bytes;
    l.left_bytes = sl_memory_left(&view) - (int64_t)(e->wish > has ? e->wish - has : 0);
    l.stalled_us = stalls(e, &view, &l.machine_wide);
    wish(e, sl_follow_step(&e->follow, &l));
}

static void follow(sl_elastic *e)
{
    e->following = true;
    e->follow = sl_follow_start(e->least, e->most, e->o.reserve_bytes, sl_now_ns());
}

/* ---- what the socket is told ---- */

static void say_state(const sl_elastic *e, char *reply)
{
    char a[SL_SHORT], b[SL_SHORT], c[SL_SHORT], d[SL_SHORT], slots[64] = "";
    sl_memory_use use = {0};
    sl_stream_room room;
    room_of(e, &room);
    sl_memory_use_now(&use, NULL);
    if (room.most_pool_slots)
        snprintf(slots, sizeof slots, ", %u of %u expert slots", room.pool_slots,
                 room.most_pool_slots);
    snprintf(reply, N_REPLY, "ok memory %s of %s, at least %s, %s%s, in memory %s%s\n",
             sl_show_bytes(a, e->wish), sl_show_bytes(b, e->most), sl_show_bytes(c, e->least),
             e->following ? "auto" : "fixed", slots,
             sl_show_bytes(d, use.anon_bytes + use.file_bytes),
             e->unfinished ? ", some still in use" : "");
}

static void set_memory(sl_elastic *e, const char *value, char *reply)
{
    char a[SL_SHORT], b[SL_SHORT];
    uint64_t bytes = 0;
    if (!strcmp(value, "auto")) {
        follow(e);
    } else if (!sl_size_parse(value, &bytes) || !bytes) {
        snprintf(reply, N_REPLY,
                 "error: memory: '%.40s' is not accepted; auto or a size such as 64M or 6G is\n",
                 value);
        return;
    } else if (bytes > e->o.limit_bytes && bytes > e->most) {
        snprintf(reply, N_REPLY, "error: memory: %s is more than the %s that the run began with\n",
                 sl_show_bytes(a, bytes), sl_show_bytes(b, e->o.limit_bytes));
        return;
    } else if (bytes < e->least) {
        snprintf(reply, N_REPLY,
                 "error: memory: %s is too little; the floor of this run is %s (all else was "
                 "decided at its start)\n",
                 sl_show_bytes(a, bytes), sl_show_bytes(b, e->least));
        return;
    } else {
        e->following = false;
        wish(e, bytes < e->most ? bytes : e->most);
    }
    say_state(e, reply);
}

static void obey(sl_elastic *e, client *c, char *line)
{
    char reply[N_REPLY] = "";
    line[strcspn(line, "\r")] = 0;
    if (!strcmp(line, "status"))
        say_state(e, reply);
    else if (!strncmp(line, "memory ", 7))
        set_memory(e, line + 7, reply);
    else
        snprintf(reply, sizeof reply,
                 "error: '%.40s' is not accepted; status, memory SIZE or memory auto is\n", line);
    ssize_t n = send(c->fd, reply, strlen(reply), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n; /* who does not read is not told */
}

/* ---- the socket ---- */

static void client_close(client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    *c = (client){.fd = -1};
}

static void client_accept(sl_elastic *e)
{
    const int fd = accept4(e->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    uint32_t i = 0;
    if (fd < 0)
        return;
    while (i + 1 < N_CLIENTS && e->client[i].fd >= 0)
        i++;
    client_close(&e->client[i]); /* when all places are taken the last one gives way */
    e->client[i].fd = fd;
}

/* Whole lines are obeyed; the rest of one without an end is when its writer is done. */
static void client_read(sl_elastic *e, client *c)
{
    const ssize_t n = recv(c->fd, c->line + c->n, N_LINE - 1 - c->n, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    const bool over = n <= 0;
    c->n += n > 0 ? (size_t)n : 0;
    c->line[c->n] = 0;
    for (char *end; (end = memchr(c->line, '\n', c->n)) || (over && c->n);) {
        end = end ? end : c->line + c->n;
        const size_t used = (size_t)(end - c->line) + (*end == '\n');
        *end = 0;
        obey(e, c, c->line);
        c->n -= used;
        memmove(c->line, c->line + used, c->n);
        c->line[c->n] = 0;
    }
    if (over || c->n == N_LINE - 1)
        client_close(c);
}

static void *elastic_thread(void *arg)
{
    sl_elastic *e = arg;
    for (;;) {
        struct pollfd p[2 + N_CLIENTS] = {{.fd = e->wake, .events = POLLIN},
                                          {.fd = e->listener, .events = POLLIN}};
        for (uint32_t i = 0; i < N_CLIENTS; i++)
            p[2 + i] = (struct pollfd){.fd = e->client[i].fd, .events = POLLIN};
        poll(p, 2 + N_CLIENTS, e->unfinished ? AGAIN_MS : e->following ? LOOK_MS : -1);
        if (p[0].revents)
            break;
        for (uint32_t i = 0; i < N_CLIENTS; i++)
            if (p[2 + i].revents)
                client_read(e, &e->client[i]);
        if (p[1].revents)
            client_accept(e);
        look(e);
        if (e->unfinished)
            apply(e);
    }
    return NULL;
}

/* A socket that nobody listens to any more is replaced; anything else is not. */
static sl_status address_free(const struct sockaddr_un *a, sl_err *err)
{
    struct stat st;
    if (lstat(a->sun_path, &st))
        return errno == ENOENT ? SL_OK
                               : sl_fail_errno(err, errno, "--memory-control: %s", a->sun_path);
    if (!S_ISSOCK(st.st_mode))
        return sl_fail(err, SL_EINVAL, "--memory-control: %s: is there already, and is no socket",
                       a->sun_path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool used = fd >= 0 && !connect(fd, (const struct sockaddr *)a, sizeof *a);
    if (fd >= 0)
        close(fd);
    if (used)
        return sl_fail(err, SL_EINVAL, "--memory-control: %s: another program listens there",
                       a->sun_path);
    return unlink(a->sun_path) ? sl_fail_errno(err, errno, "--memory-control: %s", a->sun_path)
                               : SL_OK;
}

static sl_status listen_at(sl_elastic *e, const char *path, sl_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!path[0] || strlen(path) >= sizeof a.sun_path)
        return sl_fail(err, SL_EINVAL, "--memory-control: a path of 1 to %zu bytes is accepted",
                       sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, strlen(path));
    sl_status st = address_free(&a, err);
    if (st)
        return st;
    e->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const mode_t mask = umask(0077); /* whoever may write to it decides over our memory */
    const bool bound = e->listener >= 0 && !bind(e->listener, (struct sockaddr *)&a, sizeof a);
    const int why = errno;
    umask(mask);
    if (!bound)
        return sl_fail_errno(err, why, "--memory-control: %s", path);
    e->address = a;
    return listen(e->listener, N_CLIENTS) ? sl_fail_errno(err, errno, "--memory-control: %s", path)
                                          : SL_OK;
}

/* ---- open and close ---- */

static sl_status start(sl_elastic *e, sl_err *err)
{
    e->wake = eventfd(0, EFD_CLOEXEC);
    if (e->wake < 0)
        return sl_fail_errno(err, errno, "cannot watch the memory");
    sl_status st = e->o.socket ? listen_at(e, e->o.socket, err) : SL_OK;
    if (st)
        return st;
    if (e->o.follow)
        follow(e);
    const int r = sl_thread_start(&e->thread, "sluice-memory", elastic_thread, e);
    e->thread_on = r == 0;
    return r ? sl_fail_errno(err, r, "cannot start the thread that watches the memory") : SL_OK;
}

sl_status sl_elastic_open(const sl_elastic_options *o, sl_elastic **out, sl_err *err)
{
    sl_stream_room room;
    *out = NULL;
    sl_stream_room_get(o->stream, &room);
    if (!o->socket && (!o->follow || room.least_bytes == room.most_bytes))
        return SL_OK;
    sl_elastic *e = calloc(1, sizeof *e);
    if (!e)
        return sl_fail(err, SL_ENOMEM, "out of memory");
    e->o = *o;
    e->listener = e->wake = -1;
    for (uint32_t i = 0; i < N_CLIENTS; i++)
        e->client[i].fd = -1;
    e->most = e->wish = e->lowest = o->used_bytes;
    e->least = o->used_bytes - (room.most_bytes - room.least_bytes);
    const sl_status st = start(e, err);
    if (st)
        sl_elastic_close(&e);
    *out = e;
    return st;
}

void sl_elastic_close(sl_elastic **ep)
{
    sl_elastic *e = *ep;
    const uint64_t one = 1;
    char a[SL_SHORT], b[SL_SHORT];
    if (!e)
        return;
    if (e->thread_on && write(e->wake, &one, sizeof one) == sizeof one)
        pthread_join(e->thread, NULL);
    for (uint32_t i = 0; i < N_CLIENTS; i++)
        client_close(&e->client[i]);
    if (e->address.sun_path[0])
        unlink(e->address.sun_path);
    if (e->listener >= 0)
        close(e->listener);
    if (e->wake >= 0)
        close(e->wake);
    if (e->lowest < e->most)
        sl_log(SL_LOG_NOTE, "memory was given back while it ran: down to %s of %s",
               sl_show_bytes(a, e->lowest), sl_show_bytes(b, e->most));
    free(e);
    *ep = NULL;
}
