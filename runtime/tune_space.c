#include "tune_space.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

static const uint64_t KIB = 1 << 10, MIB = 1 << 20;

static sl_dim *add_dim(sl_space *s, const char *name, bool simulated)
{
    sl_dim *d = &s->dim[s->n++];
    *d = (sl_dim){.name = name, .n = 1, .simulated = simulated};
    return d;
}

static void add_value(sl_dim *d, const char *value)
{
    if (d->n < SL_DIM_VALUES)
        snprintf(d->value[d->n++], SL_VALUE, "%s", value);
}

static void add_count(sl_dim *d, uint64_t value)
{
    char text[SL_VALUE];
    snprintf(text, sizeof text, "%" PRIu64, value);
    add_value(d, text);
}

/* but: a word that says what is the default anyway; NULL: none. */
static void add_words(sl_dim *d, const char *words, const char *but)
{
    char word[SL_VALUE];
    for (; *words; words += strcspn(words, " "), words += *words == ' ') {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(words, " "), words);
        if (!but || strcmp(word, but) != 0)
            add_value(d, word);
    }
}

/* Powers of two from low to high, and halfway between them if halves. */
static void add_sizes(sl_dim *d, uint64_t low, uint64_t high, bool halves)
{
    char text[SL_VALUE];
    for (uint64_t size = 64 * KIB; size <= high; size *= 2) {
        const uint64_t two[] = {size, size + size / 2};
        for (uint32_t i = 0; i < 1 + (uint32_t)halves; i++)
            if (two[i] >= low && two[i] <= high) {
                sl_args_size(text, two[i]);
                add_value(d, text);
            }
    }
}

/* The place of the size that is nearest to the default's. */
static void set_usual(sl_dim *d, double usual)
{
    double best = (double)INFINITY;
    for (uint32_t i = 1; i < d->n; i++) {
        uint64_t size = 0;
        sl_size_parse(d->value[i], &size);
        const double off = fabs(log((double)size / usual));
        if (size && off < best) {
            best = off;
            d->usual = i;
            d->exact = (double)size == usual;
        }
    }
}

static void sizes(sl_space *s, const char *name, bool simulated, uint64_t low, uint64_t high,
                  bool halves, uint64_t usual)
{
    sl_dim *d = add_dim(s, name, simulated);
    add_sizes(d, low, high, halves);
    set_usual(d, (double)usual);
    s->n -= d->n == 1;
}

static void counts(sl_space *s, const char *name, bool simulated, const uint64_t *value, uint32_t n,
                   uint64_t usual)
{
    sl_dim *d = add_dim(s, name, simulated);
    for (uint32_t i = 0; i < n; i++)
        if (value[i] > 0 && value[i] != (i ? value[i - 1] : 0))
            add_count(d, value[i]);
    set_usual(d, (double)usual);
    s->n -= d->n == 1;
}

/* Experts beside the parts that every token needs. */
static void add_experts(sl_space *s, const sl_survey *model, const sl_trial *usual)
{
    const uint64_t k = model->n_used, guesses[] = {k / 2, k, k + k / 2, 2 * k};
    static const uint64_t layers[] = {1, 2, 3};
    static const uint64_t lives[] = {4, 8, 16, 32, 64, 128};
    const sl_split *split = &usual->split;
    counts(s, "predict", true, guesses, 4, k);
    add_value(&s->dim[s->n - 1], "off");
    counts(s, "predict-layers", false, layers, 3, 2);
    sizes(s, "hints", true, 512 * KIB, 32 * MIB, false, 4 * MIB);
    add_words(add_dim(s, "policy", true), "lru lfu s3fifo", NULL);
    counts(s, "half-life", true, lives, 6, 16);
    if (split->streamed_bytes)
        sizes(s, "pool", true, split->pool_bytes + split->pool_bytes / 4, usual->budget_bytes / 2,
              false, split->pool_bytes);
}

static void add_streaming(sl_space *s, const sl_trial *usual)
{
    const sl_split *split = &usual->split;
    const uint64_t ring = split->ring_bytes, half = usual->budget_bytes / 2;
    if (split->streamed_bytes)
        sizes(s, "ring", true, ring / 8, 8 * ring < half ? 8 * ring : half, true, ring);
    sizes(s, "in-flight", true, MIB, 128 * MIB, false, 24 * MIB);
    sizes(s, "piece", true, 64 * KIB, 8 * MIB, false, MIB);
}

static uint64_t cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint64_t)CPU_COUNT(&set) : 1;
}

/* What no trace tells: how fast it computes, and through which engine. */
static void add_machine(sl_space *s, const sl_trial *usual, uint32_t n_prompt)
{
    const uint64_t n = usual->n_threads, all = cpus();
    const uint64_t threads[] = {n > 2 ? n / 2 : 0, n - 1, n, all > n ? all : 0};
    const uint64_t rows[] = {32, 64, 128, 256, 512, 1024, 2048};
    uint32_t n_rows = 0;
    counts(s, "threads", false, threads, 4, n);
    while (n_rows < 7 && rows[n_rows] < n_prompt)
        n_rows++;
    counts(s, "chunk", false, rows, n_rows, usual->chunk);
    if (usual->split.streamed_bytes)
        sizes(s, "part", false, MIB, 32 * MIB, false, usual->part_bytes);
    /* Streaming through a mapping takes twice the time (docs/streaming.md), and so would its runs.
     */
    add_words(add_dim(s, "io", false),
              sl_split_all_stay(&usual->split) ? "direct pread mapped" : "direct pread",
              sl_io_name(usual->split.io));
}

void sl_space_make(sl_space *out, const sl_survey *model, const sl_trial *usual, uint32_t n_prompt)
{
    *out = (sl_space){0};
    if (!sl_split_all_stay(&usual->split)) {
        add_streaming(out, usual);
        if (model->n_used)
            add_experts(out, model, usual);
    }
    add_machine(out, usual, n_prompt);
}

uint32_t sl_dim_place(const sl_dim *d, uint32_t place)
{
    return d->exact && place == d->usual ? 0 : place;
}

sl_setting sl_space_setting(const sl_space *s, const sl_point *p)
{
    sl_setting setting = {0};
    for (uint32_t i = 0; i < s->n; i++)
        if (p->at[i])
            sl_setting_add(&setting, s->dim[i].name, s->dim[i].value[p->at[i]], NULL);
    return setting;
}

static uint8_t place_of(sl_dim *d, const char *value)
{
    for (uint32_t i = 1; i < d->n; i++)
        if (!strcmp(d->value[i], value))
            return (uint8_t)i;
    if (d->n == SL_DIM_VALUES)
        return 0;
    add_value(d, value);
    return (uint8_t)(d->n - 1);
}

sl_point sl_space_point(sl_space *s, const sl_setting *setting)
{
    sl_point p = {0};
    for (uint32_t k = 0; k < setting->n; k++)
        for (uint32_t i = 0; i < s->n; i++)
            if (!strcmp(s->dim[i].name, setting->item[k].name))
                p.at[i] = place_of(&s->dim[i], setting->item[k].value);
    return p;
}
