#include "setup.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kept.h"
#include "run_profile.h"
#include "report.h"
#include "term.h"

static const uint64_t MIB = 1 << 20;

/* Least and usual rows of a prefill pass, when --chunk does not say. */
enum { CHUNK_LEAST = 32, CHUNK_USUAL = 512, CHUNK_EXPERTS = 2048, CTX_LEAST = 512 };

/* Pages of the program and its libraries that are touched only later, and what the allocator keeps
 * between blocks: measured at up to 0.6 MiB after the tables are read. */
static const uint64_t LATER_BYTES = 1 << 20;

/* What is resident differs by some pages from run to run (3.0 to 3.4 MiB): charged as this much at
 * least, so that the floor is the same every time. */
static const uint64_t PROGRAM_LEAST = 5 << 20;

/* Charged to a cgroup but in no page of ours: kernel stacks, descriptors, the I/O rings, the
 * program's file read ahead, and charges that each CPU holds in stock (256 KiB). Measured in cold
 * runs at up to 2.1 MiB above all other terms. */
static const uint64_t KERNEL_BYTES = 5 << 19;

static sl_status open_workers(sl_setup *s, const sl_options *o, sl_err *err)
{
    s->workers = sl_workers_open((unsigned)o->threads);
    return s->workers ? SL_OK : sl_fail_errno(err, errno, "cannot start the worker threads");
}

static sl_status look_at_memory(sl_setup *s, const sl_options *o, sl_err *err)
{
    sl_memory_use use = {0};
    sl_memory_view view = {0};
    sl_status st = sl_memory_use_now(&use, err);
    if (!st)
        st = sl_memory_look(&view, err);
    s->elastic_bytes =
        o->memory_control || o->memory_mode == SL_MEMORY_AUTO ? SL_ELASTIC_MEMORY : 0;
    s->resident_bytes = use.anon_bytes + use.file_bytes;
    /* What this process holds already is not free, but it is part of its budget. */
    s->auto_bytes = sl_memory_auto(&view) + use.anon_bytes;
    const int64_t left = sl_memory_left(&view);
    s->reserve_bytes = left > 0 ? (uint64_t)left - sl_memory_auto(&view) : 0;
    return st;
}

sl_status sl_setup_open(sl_setup *s, const sl_options *o, sl_err *err)
{
    sl_model_options mo = sl_model_defaults();
    *s = (sl_setup){.options = *o, .given = *o};
    sl_status st = sl_model_open(o->operand, &mo, &s->model, err);
    if (st)
        return st;
    /* Before anything large arrives, so that what reading it takes for a moment lies under the
     * peak of the run. */
    sl_status tokenizer = sl_model_tokenizer(s->model, &s->tokenizer, &s->why);
    if (tokenizer) {
        s->tokenizer = NULL;
        if (tokenizer == SL_ENOMEM)
            return sl_fail(err, tokenizer, "%s", s->why.text);
    }
    malloc_trim(0);
    st = look_at_memory(s, o, err);
    if (!st && !o->no_kept) {
        s->kept = sl_kept_use(sl_model_checkpoint(s->model), sl_setup_limit(s, o), &s->options);
        malloc_trim(0);
    }
    if (!st)
        st = open_workers(s, &s->options, err);
    return st ? st : look_at_memory(s, o, err);
}

/* ---- a mapped file that is cut short --------------------------------------------------------- */
static const sl_stream *watched;

static void write_text(const char *text)
{
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n; /* nobody left to tell */
}

/* The bytes are gone and the instruction that wanted them cannot go on: say why, and end as any
 * error does. Calls nothing that a signal handler may not. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    const char *path = watched ? sl_stream_mapped_path(watched, info->si_addr) : NULL;
    if (!path) { /* not ours: as without a handler */
        signal(number, SIG_DFL);
        return;
    }
    write_text("sluice: error: ");
    write_text(path);
    write_text(": the file is shorter than when it was opened, or its disk fails\n");
    _exit(1);
}

static void watch_mapping(const sl_stream *s)
{
    struct sigaction act = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&act.sa_mask);
    watched = s;
    sigaction(SIGBUS, &act, NULL);
}

/* ---- close ---------------------------------------------------------------------------------- */
void sl_setup_release(sl_setup *s)
{
    watched = NULL;
    sl_elastic_close(&s->elastic);
    sl_session_close(&s->session);
    sl_model_close(&s->model);
    sl_workers_close(&s->workers);
    s->tokenizer = NULL;
    malloc_trim(0);
}

void sl_setup_close(sl_setup *s)
{
    sl_setup_release(s);
    sl_recording_close(s);
}

uint64_t sl_setup_limit(const sl_setup *s, const sl_options *o)
{
    if (o->memory_mode == SL_MEMORY_AUTO)
        return s->auto_bytes;
    return o->memory_mode == SL_MEMORY_FLOOR ? 0 : o->memory_bytes;
}

uint64_t sl_setup_disk_rate(const sl_options *o)
{
    if (o->disk_limit && o->disk_rate)
        return o->disk_limit < o->disk_rate ? o->disk_limit : o->disk_rate;
    return o->disk_limit ? o->disk_limit : o->disk_rate;
}

sl_cpu_level sl_setup_cpu_level(const sl_options *o)
{
    return o->cpu_level < 0 ? sl_cpu_best() : (sl_cpu_level)o->cpu_level;
}

/* ---- options for the stream ---------------------------------------------------------------- */
static bool refusal(const char *word, size_t len, uint32_t *bits)
{
    static const struct {
        const char *word;
        uint32_t bit;
    } known[] = {{"io_uring", SL_REFUSE_IO_URING},
                 {"o_direct", SL_REFUSE_O_DIRECT},
                 {"huge_pages", SL_REFUSE_HUGE_PAGES},
                 {"memlock", SL_REFUSE_MEMLOCK}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i].word) == len && !strncmp(known[i].word, word, len)) {
            *bits |= known[i].bit;
            return true;
        }
    return false;
}

sl_status sl_setup_faults(sl_stream_options *o, sl_err *err)
{
    const char *fault = getenv("SL_FAULT_READ"), *less = getenv("SL_FAULT_SHORT");
    const char *refuse = getenv("SL_REFUSE");
    if (fault) {
        char *end;
        o->fail_read = strtoull(fault, &end, 10);
        if (*end == ':')
            o->fail_errno = !strcmp(end + 1, "EIO") ? EIO : (int)strtol(end + 1, &end, 10);
        if (!o->fail_read || o->fail_errno <= 0)
            return sl_fail(err, SL_EINVAL, "SL_FAULT_READ: '%.40s' is not N:errno", fault);
    }
    if (less)
        o->short_read = strtoull(less, NULL, 10);
    while (refuse && *refuse) {
        size_t len = strcspn(refuse, ",");
        if (!refusal(refuse, len, &o->refuse))
            return sl_fail(err, SL_EINVAL,
                           "SL_REFUSE: '%.40s' is not a list of io_uring, o_direct, huge_pages, "
                           "memlock",
                           refuse);
        refuse += len + (refuse[len] == ',');
    }
    return SL_OK;
}

void sl_setup_speed(const sl_options *o, sl_stream_options *out)
{
    const struct {
        uint64_t said, *at;
    } sizes[] = {{o->ring_bytes, &out->ring_bytes},
                 {o->pool_bytes, &out->pool_bytes},
                 {o->in_flight_bytes, &out->in_flight_bytes},
                 {o->piece_bytes, &out->piece_bytes},
                 {o->hint_bytes, &out->hint_bytes}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].said)
            *sizes[i].at = sizes[i].said;
    if (o->policy >= 0)
        out->policy = (sl_policy)o->policy;
    if (o->half_life > 0)
        out->half_life = o->half_life;
}

static sl_status stream_options(const sl_options *o, uint32_t chunk, sl_stream_options *out,
                                sl_err *err)
{
    *out = sl_stream_defaults();
    out->io = (sl_io)o->io;
    out->disk_limit = o->disk_limit;
    sl_setup_speed(o, out);
    out->max_row_batch = chunk;
    return sl_setup_faults(out, err);
}

/* ---- the price ------------------------------------------------------------------------------ */
static sl_session_options session_options(const sl_setup *s, const sl_options *o,
                                          const sl_demand *d, uint32_t ctx, uint32_t chunk)
{
    sl_session_options so = sl_session_defaults(s->model);
    so.n_ctx = ctx;
    so.saved_states = 0; /* no command goes back but to the start */
    so.chunk = chunk < ctx ? chunk : ctx;
    so.chunk = so.chunk < d->max_rows ? so.chunk : d->max_rows;
    /* A pass whose logits are all wanted has no more rows than it can give logits of. */
    so.logits_rows = d->all_logits ? so.chunk : 1;
    so.kv = (sl_kv_type)o->kv;
    so.predict = o->predict;
    so.predict_layers = o->predict_layers ? (uint32_t)o->predict_layers : so.predict_layers;
    /* A trace has the guesses that a run in less memory would have made. */
    if (o->trace && so.predict == SL_PREDICT_AUTO)
        so.predict = (int32_t)sl_model_about(s->model).n_used;
    return so;
}

static sl_session_price session_price(const sl_setup *s, const sl_session_options *so)
{
    return sl_session_cost(s->model, so, sl_workers_count(s->workers));
}

/* All terms but the weights' memory. */
static void charge_terms(const sl_setup *s, const sl_options *o, const sl_demand *d,
                         const sl_session_options *so, uint64_t limit, sl_budget *b)
{
    uint64_t tables = sl_model_memory_bytes(s->model);
    uint64_t tokenizer = s->tokenizer ? sl_tokenizer_memory_bytes(s->tokenizer) : 0;
    uint64_t program =
        s->resident_bytes > tables + tokenizer ? s->resident_bytes - tables - tokenizer : 0;
    sl_session_price price = session_price(s, so);
    *b = (sl_budget){.limit_bytes = limit};
    program = sl_round_up(program + LATER_BYTES, MIB / 2);
    sl_budget_charge(b, "program", program > PROGRAM_LEAST ? program : PROGRAM_LEAST);
    sl_budget_charge(b, "model tables", tables);
    sl_budget_charge(b, "tokenizer", tokenizer);
    sl_budget_charge(b, "KV cache", price.kv_bytes);
    if (price.state_bytes)
        sl_budget_charge(b, "state", price.state_bytes);
    sl_budget_charge(b, "scratch", price.scratch_bytes + d->buffers_bytes);
    sl_budget_charge(b, "thread stacks", sl_workers_stack_bytes(s->workers));
    if (sl_recording_bytes(s, o))
        sl_budget_charge(b, "recording", sl_recording_bytes(s, o));
    if (s->elastic_bytes)
        sl_budget_charge(b, "memory watch", s->elastic_bytes);
    /* Page tables: 8 bytes per page of 4 KiB, for what the stream does not count itself. */
    uint64_t tables_of_pages = sl_round_up(sl_budget_charged(b) / 512, 4096);
    sl_budget_charge(b, "kernel", KERNEL_BYTES + tables_of_pages);
}

static sl_status split_rest(const sl_setup *s, sl_price *p, sl_err *err)
{
    p->stream.memory_bytes = sl_budget_left(&p->budget);
    return sl_stream_split(sl_model_plan(s->model), &p->stream, &p->split, err);
}

/* When all weights stay, the rest of the budget is not taken: it is left to others, and the terms
 * say what the run really costs. A smaller whole needs smaller tables, so this goes in rounds. */
static void take_no_more(const sl_setup *s, sl_price *p)
{
    while (sl_split_all_stay(&p->split)) {
        sl_stream_options o = p->stream;
        sl_split split;
        o.memory_bytes =
            p->split.pinned_bytes + p->split.pool_bytes + p->split.rows_bytes + p->split.io_bytes;
        if (o.memory_bytes >= p->stream.memory_bytes ||
            sl_stream_split(sl_model_plan(s->model), &o, &split, NULL) != SL_OK ||
            !sl_split_all_stay(&split))
            return;
        p->stream = o;
        p->split = split;
    }
}

static uint32_t floor_ctx(const sl_setup *s, const sl_options *o, const sl_demand *d)
{
    uint32_t own = sl_model_about(s->model).n_ctx_max;
    uint32_t ctx = d->min_ctx > CTX_LEAST ? d->min_ctx : CTX_LEAST;
    if (o->n_ctx)
        return (uint32_t)o->n_ctx;
    if (ctx > d->max_ctx)
        ctx = d->max_ctx;
    return ctx > own ? own : ctx;
}

static const uint64_t PART_LEAST = 1 << 20, PART_MOST = 16 << 20;

/* The least that works: the smallest parts, chunk and context. */
static sl_status price_floor(sl_setup *s, const sl_options *o, const sl_demand *d, sl_price *p,
                             sl_err *err)
{
    uint32_t chunk = o->chunk ? (uint32_t)o->chunk : CHUNK_LEAST;
    p->part_bytes = o->part_bytes ? o->part_bytes : PART_LEAST;
    p->session = session_options(s, o, d, floor_ctx(s, o, d), chunk);
    sl_status st = sl_model_replan(s->model, p->part_bytes, err);
    if (!st)
        st = stream_options(o, p->session.chunk, &p->stream, err);
    if (st)
        return st;
    p->stream.memory_bytes = 0;
    sl_stream_split(sl_model_plan(s->model), &p->stream, &p->split, NULL);
    charge_terms(s, o, d, &p->session, 0, &p->floor);
    sl_budget_charge(&p->floor, "weights and I/O", p->split.floor_bytes);
    p->floor_bytes = sl_round_up(sl_budget_charged(&p->floor), MIB);
    p->floor.limit_bytes = p->floor_bytes;
    return SL_OK;
}

static sl_status under_the_floor(const sl_price *p, const sl_options *o, uint64_t limit,
                                 sl_err *err)
{
    char terms[400], a[SL_SHORT], b[SL_SHORT];
    sl_budget_describe(&p->floor, terms, sizeof terms);
    return sl_fail(err, SL_EBUDGET,
                   "%s%s%s is too little memory; the floor is %s = %s; --memory %" PRIu64
                   "M is the least that works%s",
                   o->memory_mode == SL_MEMORY_AUTO ? "what is free here, " : "--memory ",
                   sl_show_bytes(a, limit), o->memory_mode == SL_MEMORY_AUTO ? "," : "",
                   sl_show_bytes(b, p->floor_bytes), terms, p->floor_bytes / MIB,
                   o->n_ctx > CTX_LEAST ? " with this context" : "");
}

/* The largest context whose KV cache takes at most a quarter of the limit, in steps of 256. */
static uint32_t fitting_ctx(const sl_setup *s, const sl_options *o, const sl_demand *d,
                            uint64_t limit, uint32_t least)
{
    uint32_t own = sl_model_about(s->model).n_ctx_max;
    uint32_t most = own < d->max_ctx ? own : d->max_ctx;
    if (o->n_ctx || most <= least)
        return least;
    uint32_t low = least, high = most;
    while (low < high) { /* invariant: low fits (or is the least) */
        uint32_t mid = low + (high - low + 1) / 2;
        sl_session_options so = session_options(s, o, d, mid, CHUNK_LEAST);
        if (session_price(s, &so).kv_bytes <= limit / 4)
            low = mid;
        else
            high = mid - 1;
    }
    return low == most ? low : low < least + 256 ? least : (uint32_t)sl_round_down(low, 256);
}

/* Experts that do not all fit are read again in every prefill pass: then more rows per pass pay. */
static uint32_t wished_chunk(const sl_setup *s, uint64_t limit)
{
    const sl_plan *p = sl_model_plan(s->model);
    const uint64_t experts = sl_plan_on_demand_bytes(p);
    return experts && experts + sl_plan_always_bytes(p) > limit ? CHUNK_EXPERTS : CHUNK_USUAL;
}

/* Halves the rows of a pass until its scratch is small enough: an eighth of the limit, a sixteenth
 * for more rows than usual. */
static uint32_t fitting_chunk(const sl_setup *s, const sl_options *o, const sl_demand *d,
                              uint64_t limit, uint32_t ctx)
{
    uint32_t chunk = wished_chunk(s, limit);
    if (o->chunk)
        return (uint32_t)o->chunk;
    while (chunk > CHUNK_LEAST) {
        sl_session_options so = session_options(s, o, d, ctx, chunk);
        if (session_price(s, &so).scratch_bytes <= limit / (chunk > CHUNK_USUAL ? 16 : 8))
            break;
        chunk /= 2;
    }
    return chunk;
}

/* Context and chunk given, parts from large to small until the weights fit. */
static sl_status try_parts(sl_setup *s, const sl_options *o, const sl_demand *d, uint64_t limit,
                           uint32_t ctx, uint32_t chunk, sl_price *p, sl_err *err)
{
    p->session = session_options(s, o, d, ctx, chunk);
    charge_terms(s, o, d, &p->session, limit, &p->budget);
    const uint64_t least = o->part_bytes ? o->part_bytes : PART_LEAST;
    p->part_bytes = o->part_bytes ? o->part_bytes : sl_round_down(limit / 64, MIB);
    if (!o->part_bytes && p->part_bytes > PART_MOST)
        p->part_bytes = PART_MOST;
    for (;; p->part_bytes /= 2) {
        if (p->part_bytes < least)
            p->part_bytes = least;
        sl_status st = sl_model_replan(s->model, p->part_bytes, err);
        if (!st)
            st = stream_options(o, p->session.chunk, &p->stream, err);
        if (st)
            return st;
        st = split_rest(s, p, NULL);
        if (st != SL_EBUDGET || p->part_bytes == least)
            return st;
    }
}

sl_status sl_setup_price(sl_setup *s, const sl_options *o, const sl_demand *d, uint64_t limit,
                         sl_price *p, sl_err *err)
{
    uint32_t own = sl_model_about(s->model).n_ctx_max;
    *p = (sl_price){0};
    if (o->n_ctx > own)
        return sl_fail(err, SL_EINVAL,
                       "--ctx: '%" PRIu64 "' is not accepted; this model takes 1 to %" PRIu32,
                       o->n_ctx, own);
    sl_status st = price_floor(s, o, d, p, err);
    if (st)
        return st;
    uint32_t ctx = p->session.n_ctx, chunk = o->chunk ? (uint32_t)o->chunk : CHUNK_LEAST;
    if (limit == 0)
        limit = p->floor_bytes;
    if (limit > p->floor_bytes) {
        ctx = fitting_ctx(s, o, d, limit, ctx);
        chunk = fitting_chunk(s, o, d, limit, ctx);
    }
    st = try_parts(s, o, d, limit, ctx, chunk, p, err);
    while (st == SL_EBUDGET && !o->chunk && chunk > CHUNK_LEAST)
        st = try_parts(s, o, d, limit, ctx, chunk /= 2, p, err);
    if (st == SL_EBUDGET && ctx > floor_ctx(s, o, d))
        st = try_parts(s, o, d, limit, floor_ctx(s, o, d), chunk, p, err);
    if (st == SL_EBUDGET)
        return under_the_floor(p, o, limit, err);
    if (!st)
        take_no_more(s, p);
    if (!st)
        sl_budget_charge(&p->budget, "weights and I/O", p->stream.memory_bytes);
    return st;
}

/* ---- load ------------------------------------------------------------------------------------ */
static void say_split(const sl_setup *s, const sl_options *o)
{
    char terms[512], a[SL_SHORT], b[SL_SHORT], c[SL_SHORT];
    const sl_price *p = &s->price;
    const sl_split *split = sl_stream_split_of(sl_model_stream(s->model));
    const char *how = o->memory_mode == SL_MEMORY_AUTO    ? " (auto)"
                      : o->memory_mode == SL_MEMORY_FLOOR ? " (the floor)"
                                                          : "";
    sl_budget_describe(&p->budget, terms, sizeof terms);
    uint64_t charged = sl_budget_charged(&p->budget);
    if (charged < p->budget.limit_bytes)
        sl_say("memory: %s%s, of which %s are used = %s", sl_show_bytes(a, p->budget.limit_bytes),
               how, sl_show_bytes(b, charged), terms);
    else
        sl_say("memory: %s%s = %s", sl_show_bytes(a, p->budget.limit_bytes), how, terms);
    if (split->streamed_bytes)
        sl_say("weights: %s, of which %s stay and %s are streamed through a ring of %s",
               sl_show_bytes(a, split->weights_bytes),
               sl_show_bytes(b, split->weights_bytes - split->streamed_bytes),
               sl_show_bytes(c, split->streamed_bytes), sl_show_bytes(terms, split->ring_bytes));
    else
        sl_say("weights: %s%s, all of them stay", sl_show_bytes(a, split->weights_bytes),
               split->on_demand_parts ? " for every token" : "");
    if (split->on_demand_parts)
        sl_say("experts: %s in %" PRIu32 " parts, of which a pool holds %" PRIu32 " (%s)",
               sl_show_bytes(a, split->on_demand_bytes), split->on_demand_parts, split->pool_slots,
               sl_show_bytes(b, split->pool_bytes));
}

static void say_speed(const sl_setup *s, const sl_options *o)
{
    char a[SL_SHORT], b[SL_SHORT], c[SL_SHORT];
    const sl_split *split = sl_stream_split_of(sl_model_stream(s->model));
    uint64_t known = sl_setup_disk_rate(o);
    double rate = known ? (double)known : SL_DISK_ASSUMED_MIB * (double)MIB;
    if (sl_split_all_stay(split)) {
        sl_say("speed: nothing is read twice");
        return;
    }
    if (!split->streamed_bytes) {
        sl_say("speed: depends on how often the experts of a token are in the pool");
        return;
    }
    sl_say("speed: reads %s per token: at least %s at %s%s",
           sl_show_bytes(a, split->streamed_bytes),
           sl_show_seconds(b, (double)split->streamed_bytes / rate), sl_show_rate(c, rate),
           known ? "" : " (assumed; --disk RATE says what yours does)");
}

static void say_lossy(const sl_setup *s)
{
    if (s->price.session.kv == SL_KV_Q8)
        sl_log(SL_LOG_NOTE, "--kv q8_0 is lossy: keys and values are rounded to 8 bits");
}

static void say_context(const sl_setup *s, const sl_options *o, const sl_demand *d)
{
    uint32_t own = sl_model_about(s->model).n_ctx_max, ctx = s->price.session.n_ctx;
    if (!o->n_ctx && ctx < own && ctx < d->max_ctx)
        sl_log(SL_LOG_NOTE,
               "context of %" PRIu32 " tokens, of the model's %" PRIu32
               ", to keep the KV cache small in this budget; -c N sets it",
               ctx, own);
}

static void say_io(const sl_setup *s)
{
    const char *refused = sl_stream_refused(sl_model_stream(s->model));
    sl_say("io: %s%s%s", sl_stream_engine(sl_model_stream(s->model)), *refused ? "; refused: " : "",
           refused);
}

static sl_status begin_elastic(sl_setup *s, const sl_options *o, sl_err *err)
{
    const sl_elastic_options eo = {.stream = sl_model_stream(s->model),
                                   .limit_bytes = s->price.budget.limit_bytes,
                                   .used_bytes = sl_budget_charged(&s->price.budget),
                                   .reserve_bytes = s->reserve_bytes,
                                   .follow = o->memory_mode == SL_MEMORY_AUTO,
                                   .socket = o->memory_control};
    return s->elastic_bytes ? sl_elastic_open(&eo, &s->elastic, err) : SL_OK;
}

/* Kept settings may want more than a long context leaves: they are no reason to refuse a run. */
static sl_status price_load(sl_setup *s, const sl_options *o, const sl_demand *d, sl_err *err)
{
    sl_err why = {0};
    sl_status st = sl_setup_price(s, o, d, sl_setup_limit(s, o), &s->price, &why);
    if (st == SL_EBUDGET && s->kept && o == &s->options) {
        sl_log(SL_LOG_NOTE, "with these settings the budget is too small for this context; the "
                            "defaults are used");
        s->options = s->given;
        s->kept = false;
        return sl_setup_price(s, o, d, sl_setup_limit(s, o), &s->price, err);
    }
    return st ? sl_fail(err, st, "%s", why.text) : SL_OK;
}

sl_status sl_setup_load(sl_setup *s, const sl_options *o, const sl_demand *d, sl_err *err)
{
    sl_cpu_level level = sl_setup_cpu_level(o);
    if (level > sl_cpu_best())
        return sl_fail(err, SL_EINVAL, "--cpu-level: this CPU cannot run %s; its best is %s",
                       sl_cpu_level_name(level), sl_cpu_level_name(sl_cpu_best()));
    sl_status st = price_load(s, o, d, err);
    if (!st)
        st = sl_model_load(s->model, &s->price.stream, s->workers, level, err);
    if (!st)
        watch_mapping(sl_model_stream(s->model));
    if (!st)
        st = sl_session_open(s->model, &s->price.session, &s->session, err);
    if (!st)
        st = sl_recording_begin(s, o, err);
    if (!st)
        st = begin_elastic(s, o, err);
    if (st)
        return st;
    say_split(s, o);
    say_io(s);
    say_speed(s, o);
    say_lossy(s);
    say_context(s, o, d);
    return SL_OK;
}
