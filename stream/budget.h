/* The memory budget: one limit, named terms that are charged to it, what is left. Also what the
 * machine and its cgroups allow. One thread. */
#ifndef SL_BUDGET_H
#define SL_BUDGET_H

#include "base.h"

enum { SL_BUDGET_TERMS = 16 };

typedef struct sl_budget_term {
    const char *name;
    uint64_t bytes;
} sl_budget_term; /* name: a literal */

typedef struct sl_budget {
    uint64_t limit_bytes;
    uint32_t n_terms;
    sl_budget_term term[SL_BUDGET_TERMS];
} sl_budget;

/* Adds to the term of that name, or makes it. */
void sl_budget_charge(sl_budget *b, const char *name, uint64_t bytes);
uint64_t sl_budget_charged(const sl_budget *b);
uint64_t sl_budget_left(const sl_budget *b); /* 0 when overdrawn */
/* "program 6.1 MiB + tokenizer 8.0 MiB + ..." into text (always terminated). */
void sl_budget_describe(const sl_budget *b, char *text, size_t cap);

/* What this process may use: the least of MemAvailable and of every memory cgroup (v1 and v2) above
 * it, less what is used there, less a reserve for others. */
typedef struct sl_memory_view {
    uint64_t total_bytes;     /* of the machine */
    uint64_t available_bytes; /* MemAvailable */
    uint64_t cgroup_limit;    /* UINT64_MAX: none */
    uint64_t cgroup_used;
    char cgroup[192]; /* path of the one that limits, "" if none */
} sl_memory_view;
sl_status sl_memory_look(sl_memory_view *out, sl_err *err);
uint64_t sl_memory_auto(const sl_memory_view *v); /* the budget that --memory auto takes */
/* What is free; below zero: the cgroup's limit is under what is used there. Less sl_memory_auto():
 * the reserve. */
int64_t sl_memory_left(const sl_memory_view *v);

/* Charged to this process now and at most (resident set, anonymous and file), from
 * /proc/self/status. */
typedef struct sl_memory_use {
    uint64_t anon_bytes, file_bytes, peak_bytes;
} sl_memory_use;
sl_status sl_memory_use_now(sl_memory_use *out, sl_err *err);

/* "64M", "1.5G", "4096": bytes. K, M, G, T are powers of 1024; an optional iB or B may follow. */
bool sl_size_parse(const char *text, uint64_t *out);

#endif
