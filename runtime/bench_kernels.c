/* sluice bench --kernels: what each kernel does at each CPU level, beside what memory gives. One
 * thread: it is the core that is measured. Figures are the best of a few runs; other work on the
 * machine makes them lower, never higher. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/kernels.h"
#include "bench_kernels.h"
#include "command.h"
#include "memory_rate.h"
#include "report.h"
#include "term.h"

enum {
    COLUMNS = 4096,
    STREAM_BYTES = 64 << 20,
    ALL_BYTES = 512 << 20, /* several threads have several caches, and no share of it may fit */
    BATCH_ROWS = 1024,
    BATCH_SMALL = 4,
    BATCH_LARGE = 256,
    RUNS = 3,
    Y_FLOATS = 1 << 18
};
static const uint64_t RUN_NS = 20000000; /* repeat until a run is at least this long */

typedef struct bench {
    sl_kernels k;
    uint8_t *weights; /* STREAM_BYTES and a row more */
    float *x, *y;     /* BATCH_LARGE rows */
    uint8_t *act, *scratch;
    sl_json_writer *json; /* NULL: a table */
    double rate;          /* bytes per second that memory gives this thread */
} bench;

typedef void work_fn(const bench *b, const void *what);

/* Nanoseconds of one call: the best of RUNS. */
static double time_of(const bench *b, work_fn *work, const void *what)
{
    double best = 1e30;
    for (int run = 0; run < RUNS; run++) {
        uint64_t begin = sl_now_ns(), took = 0, calls = 0;
        do {
            work(b, what);
            calls++;
            took = sl_now_ns() - begin;
        } while (took < RUN_NS);
        best = (double)took / (double)calls < best ? (double)took / (double)calls : best;
    }
    return best;
}

/* ---- products -------------------------------------------------------------------------------- */
typedef struct product {
    sl_weight w;
    size_t n_rows, n_batch, n_cols;
} product;

/* For types whose scales stand beside: any finite ones, from the weights' own memory. */
static sl_scales scales_of(const bench *b, sl_weight w)
{
    sl_scales s = {.scale = b->weights,
                   .bias = b->weights,
                   .type = SL_SCALE_F16,
                   .group = 64,
                   .block_rows = 1};
    if (w == SL_W_MXFP4_SPLIT)
        s.type = SL_SCALE_E8M0, s.group = 32, s.scale_bytes = COLUMNS / 32;
    else if (w == SL_W_FP8)
        s.type = SL_SCALE_F32, s.group = 128, s.block_rows = 128,
        s.scale_bytes = COLUMNS / 128 * sizeof(float);
    else
        s.scale_bytes = COLUMNS / 64 * 2;
    return s;
}

static void multiply(const bench *b, const void *what)
{
    const product *p = what;
    const sl_scales beside = scales_of(b, p->w);
    const size_t act_bytes = sl_act_bytes(sl_weight_about(p->w)->act, p->n_cols);
    b->k.mul[p->w](b->weights, sl_weight_row_bytes(p->w, p->n_cols), p->n_rows, p->n_cols, b->act,
                   act_bytes, p->n_batch, b->y, p->n_rows, b->scratch,
                   p->w >= SL_W_FIRST_BESIDE ? &beside : NULL);
}

static void prepare_act(const bench *b, sl_weight w)
{
    const sl_act act = sl_weight_about(w)->act;
    for (size_t i = 0; i < BATCH_LARGE; i++)
        b->k.quantize[act](b->x + i * COLUMNS, b->act + i * sl_act_bytes(act, COLUMNS), COLUMNS);
}

static void bench_weight(const bench *b, sl_weight w)
{
    const size_t row_bytes = sl_weight_row_bytes(w, COLUMNS),
                 stream_rows = STREAM_BYTES / row_bytes;
    const product stream = {w, stream_rows, 1, COLUMNS},
                  few = {w, BATCH_ROWS, BATCH_SMALL, COLUMNS},
                  many = {w, BATCH_ROWS / 4, BATCH_LARGE, COLUMNS};
    prepare_act(b, w);
    const double gb = (double)(stream_rows * row_bytes) / time_of(b, multiply, &stream);
    const double small = (double)(few.n_rows * few.n_batch * COLUMNS) / time_of(b, multiply, &few);
    const double large =
        (double)(many.n_rows * many.n_batch * COLUMNS) / time_of(b, multiply, &many);
    if (!b->json) {
        sl_outf("  %-12s %-8s %8.1f %7.0f %% %10.0f %10.0f\n", sl_weight_about(w)->name, b->k.level,
                gb, 100e9 * gb / b->rate, 2 * small, 2 * large);
        return;
    }
    sl_json_write_object(b->json, NULL);
    sl_json_write_string(b->json, "type", sl_weight_about(w)->name);
    sl_json_write_string(b->json, "level", b->k.level);
    sl_json_write_double(b->json, "decode_bytes_per_s", gb * 1e9);
    sl_json_write_double(b->json, "batch_4_flops", 2e9 * small);
    sl_json_write_double(b->json, "batch_256_flops", 2e9 * large);
    sl_json_write_close(b->json);
}

/* ---- the rest -------------------------------------------------------------------------------- */
enum { HEADS = 32, HEAD_DIM = 128, KEYS = 1024 };

static void run_norm(const bench *b, const void *what)
{
    (void)what;
    b->k.rms_norm(b->x, b->x + COLUMNS, 1e-5f, b->y, COLUMNS);
}

static void run_rope(const bench *b, const void *what)
{
    (void)what;
    b->k.rope_halves(b->y, HEADS, HEAD_DIM, b->x, b->x + HEAD_DIM, HEAD_DIM);
}

static void run_silu(const bench *b, const void *what)
{
    (void)what;
    b->k.silu_mul(b->x, b->x + COLUMNS, b->y, COLUMNS);
}

static void run_quantize(const bench *b, const void *what)
{
    b->k.quantize[*(const sl_act *)what](b->x, b->act, COLUMNS);
}

static void run_half(const bench *b, const void *what)
{
    (void)what;
    b->k.to_f16(b->x, (uint16_t *)(void *)b->y, COLUMNS);
}

/* A decode step's share of one key/value head: four queries over 1024 cached positions. */
static void run_attention(const bench *b, const void *what)
{
    static const uint32_t begin[4] = {0}, end[4] = {KEYS, KEYS, KEYS, KEYS};
    const size_t size = what ? 4 : 2;
    const sl_attn a = {.q = b->x,
                       .n_q = 4,
                       .q_stride = HEAD_DIM,
                       .k = b->weights,
                       .v = b->weights + KEYS * HEAD_DIM * size,
                       .k_stride = HEAD_DIM * size,
                       .v_stride = HEAD_DIM * size,
                       .dim_k = HEAD_DIM,
                       .dim_v = HEAD_DIM,
                       .begin = begin,
                       .end = end,
                       .scale = 0.1f,
                       .part = b->y,
                       .part_stride = HEAD_DIM + 2};
    (what ? b->k.attn_f32 : b->k.attn_f16)(&a);
}

static const sl_act act_32 = SL_ACT_Q8_32, act_256 = SL_ACT_Q8_256;
static const struct operation {
    const char *name;
    work_fn *work;
    const void *what;
} operations[] = {
    {"rms_norm 4096", run_norm, NULL},
    {"rope 32 x 128", run_rope, NULL},
    {"silu_mul 4096", run_silu, NULL},
    {"quantize 4096 per 32", run_quantize, &act_32},
    {"quantize 4096 per 256", run_quantize, &act_256},
    {"to_f16 4096", run_half, NULL},
    {"attention 4 x 1024 f16", run_attention, NULL},
    {"attention 4 x 1024 f32", run_attention, &act_32},
};

static void bench_operation(const bench *b, const struct operation *o)
{
    const double ns = time_of(b, o->work, o->what);
    if (!b->json) {
        sl_outf("  %-24s %-8s %10.0f\n", o->name, b->k.level, ns);
        return;
    }
    sl_json_write_object(b->json, NULL);
    sl_json_write_string(b->json, "operation", o->name);
    sl_json_write_string(b->json, "level", b->k.level);
    sl_json_write_double(b->json, "ns", ns);
    sl_json_write_close(b->json);
}

/* ---- the command ----------------------------------------------------------------------------- */
static sl_status make(bench *b, sl_err *err)
{
    size_t scratch = 0, act = 0;
    for (int w = 0; w < SL_W_COUNT; w++) {
        size_t s = sl_mul_scratch_bytes((sl_weight)w, COLUMNS);
        scratch = s > scratch ? s : scratch;
    }
    for (int a = 0; a < SL_ACT_COUNT; a++) {
        size_t n = sl_act_bytes((sl_act)a, COLUMNS);
        act = n > act ? n : act;
    }
    b->weights = sl_huge_alloc(STREAM_BYTES + (1 << 20));
    b->x = aligned_alloc(64, (size_t)BATCH_LARGE * COLUMNS * sizeof *b->x);
    b->y = aligned_alloc(64, Y_FLOATS * sizeof *b->y);
    b->act = aligned_alloc(64, BATCH_LARGE * act);
    b->scratch = aligned_alloc(64, sl_round_up(scratch, 64) + 64);
    if (!b->weights || !b->x || !b->y || !b->act || !b->scratch)
        return sl_fail(err, SL_ENOMEM, "out of memory: this takes about 350 MiB");
    memset(b->weights, 0x2c, STREAM_BYTES + (1 << 20)); /* small and finite in every type */
    memset(b->y, 0, Y_FLOATS * sizeof *b->y);
    for (size_t i = 0; i < (size_t)BATCH_LARGE * COLUMNS; i++)
        b->x[i] = (float)(int)(i * 2654435761u >> 20 & 255) / 64.0f - 2.0f;
    return SL_OK;
}

static sl_status measure_rates(bench *b, sl_err *err)
{
    double all = 0;
    char one[SL_SHORT], more[SL_SHORT];
    sl_workers *single = sl_workers_open(1), *every = sl_workers_open(0);
    sl_status st =
        single && every ? SL_OK : sl_fail(err, SL_ENOMEM, "cannot start the worker threads");
    if (!st)
        st = sl_memory_rate(single, STREAM_BYTES, &b->rate, err);
    if (!st)
        st = sl_memory_rate(every, (uint64_t)ALL_BYTES, &all, err);
    if (!st && b->json) {
        sl_json_write_double(b->json, "memory_bytes_per_s", b->rate);
        sl_json_write_double(b->json, "memory_bytes_per_s_all_threads", all);
    } else if (!st) {
        sl_outf("memory %s with one thread, %s with %u\n", sl_show_rate(one, b->rate),
                sl_show_rate(more, all), sl_workers_count(every));
    }
    sl_workers_close(&single);
    sl_workers_close(&every);
    return st;
}

static void each_level(bench *b, const sl_options *o, void (*run)(bench *b, int item), int n)
{
    for (int item = 0; item < n; item++) {
        for (int level = 0; level <= (int)sl_cpu_best(); level++) {
            if ((o->cpu_level >= 0 && level != o->cpu_level) || !sl_cpu_has((sl_cpu_level)level) ||
                sl_interrupted())
                continue;
            sl_kernels_init(&b->k, (sl_cpu_level)level);
            run(b, item);
        }
    }
}

static void run_weight(bench *b, int item)
{
    bench_weight(b, (sl_weight)item);
}

static void run_operation(bench *b, int item)
{
    bench_operation(b, &operations[item]);
}

static void time_kernels(bench *b, const sl_options *o)
{
    if (!b->json)
        sl_outf(
            "\nproducts with %d columns: decode reads %d MiB of weights for one activation row\n"
            "  type         level        GB/s of memory  GFLOP/s x%d GFLOP/s x%d\n",
            COLUMNS, STREAM_BYTES >> 20, BATCH_SMALL, BATCH_LARGE);
    else
        sl_json_write_array(b->json, "products");
    each_level(b, o, run_weight, SL_W_COUNT);
    if (!b->json)
        sl_outf("\n  operation                level            ns\n");
    else {
        sl_json_write_close(b->json);
        sl_json_write_array(b->json, "operations");
    }
    each_level(b, o, run_operation, (int)(sizeof operations / sizeof operations[0]));
    if (b->json)
        sl_json_write_close(b->json);
}

int sl_bench_kernels(const sl_options *o)
{
    bench b = {0};
    sl_err err = {0};
    if (o->cpu_level >= 0 && !sl_cpu_has((sl_cpu_level)o->cpu_level))
        return sl_usage_error("--cpu-level: this CPU cannot run %s; its best is %s",
                              sl_cpu_level_name((sl_cpu_level)o->cpu_level),
                              sl_cpu_level_name(sl_cpu_best()));
    sl_interrupt_catch();
    if (o->json && (b.json = sl_json_writer_new()) != NULL)
        sl_json_write_object(b.json, NULL);
    sl_status st = o->json && !b.json ? sl_fail(&err, SL_ENOMEM, "out of memory for the report")
                                      : make(&b, &err);
    if (!st)
        st = measure_rates(&b, &err);
    if (!st && !o->memory_rate)
        time_kernels(&b, o);
    if (!st && b.json)
        st = sl_report_json(&b.json, &err);
    sl_json_writer_free(&b.json);
    free(b.weights);
    free(b.x);
    free(b.y);
    free(b.act);
    free(b.scratch);
    if (st)
        sl_complain("%s", err.text);
    return st ? SL_EXIT_FAILED : sl_interrupted() ? sl_interrupt_exit() : SL_EXIT_OK;
}
