/* Memory that changes while a run goes on: a thread that follows what the machine and its cgroup
 * leave (--memory auto) and takes lines from a socket (--memory-control). It makes the stream give
 * way; the run itself knows nothing of it. Opened and closed by the main thread. */
#ifndef SL_ELASTIC_H
#define SL_ELASTIC_H

#include "../stream/stream.h"

typedef struct sl_elastic sl_elastic;

typedef struct sl_elastic_options {
    sl_stream *stream;      /* outlives it */
    uint64_t limit_bytes;   /* the budget, and */
    uint64_t used_bytes;    /* what the run takes of it, the stream's memory included */
    uint64_t reserve_bytes; /* that auto leaves to others */
    bool follow;
    const char *socket; /* path; NULL: none */
} sl_elastic_options;

/* Heap and stack of the thread, for the budget. */
enum { SL_ELASTIC_MEMORY = 512 << 10 };

/* *out stays NULL when there is nothing to do. An error names the socket, and what is wrong with
 * it. */
sl_status sl_elastic_open(const sl_elastic_options *o, sl_elastic **out, sl_err *err);
/* Ends the thread and removes the socket; says so if memory was given back. Before the stream is
 * closed. */
void sl_elastic_close(sl_elastic **e);

#endif
