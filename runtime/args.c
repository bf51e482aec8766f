#include "args.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../models/model.h"
#include "../stream/budget.h"
#include "command.h"
#include "report.h"

typedef enum option_kind {
    KIND_FLAG,    /* bool */
    KIND_MAYBE,   /* const char *, "" when there is no "=VALUE" */
    KIND_COUNT,   /* uint64_t, decimal, min .. max */
    KIND_SIZE,    /* uint64_t, "64M" */
    KIND_NUMBER,  /* double, min .. max */
    KIND_TEXT,    /* const char * */
    KIND_CHOICE,  /* int: base + index in choices */
    KIND_TEXTS,   /* appended to an sl_texts; no empty ones if min is 1 */
    KIND_MEMORY,  /* SIZE, auto or floor */
    KIND_PREDICT, /* int: a number up to max, off (0) or auto (SL_PREDICT_AUTO) */
    KIND_SEED,    /* KIND_COUNT that is remembered as given */
    KIND_SECONDS  /* double: "5s", "2m", min .. max */
} option_kind;

/* The names of sl_cpu_level, in its order. */
#if defined(__x86_64__)
#define CPU_LEVELS "scalar|avx2|avx2vnni|avx512"
#elif defined(__aarch64__)
#define CPU_LEVELS "scalar|neon|neon-i8mm"
#else
#define CPU_LEVELS "scalar"
#endif

typedef enum option_group {
    GROUP_INPUT,
    GROUP_OUTPUT,
    GROUP_SAMPLING,
    GROUP_MEMORY,
    GROUP_SPEED, /* no bit of the output; docs/tuning.md has each */
    GROUP_GENERAL,
    GROUP_COUNT
} option_group;

static const char *const group_title[GROUP_COUNT] = {"Input",  "Output", "Sampling",
                                                     "Memory", "Speed",  "General"};

typedef struct option {
    const char *name, *letter, *value;
    option_kind kind;
    size_t at; /* offset in sl_options */
    double min, max;
    const char *choices;
    int choice_base;
    unsigned commands;
    option_group group;
    bool often; /* in the short help */
    const char *help;
} option;

#define AT(field) offsetof(sl_options, field)
#define MANY      4294967295.0
#define KIB       1024.0
#define MIB       (1024 * KIB)

static const option options[] = {
    {"--prompt", "-p", "TEXT", KIND_TEXT, AT(prompt), 0, 0, NULL, 0,
     SL_CMD_PROMPT | SL_CMD_TOKENIZE, GROUP_INPUT, true, "The text itself."},
    {"--file", "-f", "FILE", KIND_TEXT, AT(file), 0, 0, NULL, 0, SL_CMD_PROMPT | SL_CMD_TOKENIZE,
     GROUP_INPUT, true,
     "Read the text from FILE, - is standard input (default: that; profile: a text of its own)."},
    {"--text", NULL, "FILE", KIND_TEXT, AT(text), 0, 0, NULL, 0, SL_CMD_EVAL, GROUP_INPUT, true,
     "Evaluate this text, with the BOS token if the model wants one (- is standard input)."},
    {"--ids", NULL, "FILE", KIND_TEXT, AT(ids), 0, 0, NULL, 0, SL_CMD_PASSES | SL_CMD_TUNE,
     GROUP_INPUT, true,
     "Token ids instead of text, separated by blanks, commas or lines; taken as they are (- is "
     "standard input; bench, tune: instead of made-up ones)."},
    {"--special", NULL, "parse|text", KIND_CHOICE, AT(special), 0, 0, "parse|text", 0,
     SL_CMD_TOKENS | SL_CMD_PROFILE | SL_CMD_TOKENIZE, GROUP_INPUT, false,
     "Whether special tokens written in the text are tokens or plain text (default: parse; eval: "
     "text)."},
    {"--decode", NULL, NULL, KIND_FLAG, AT(decode), 0, 0, NULL, 0, SL_CMD_TOKENIZE, GROUP_INPUT,
     true, "The way back: the input is ids, the output is text."},
    {"--jsonl", NULL, NULL, KIND_FLAG, AT(jsonl), 0, 0, NULL, 0, SL_CMD_TOKENIZE, GROUP_INPUT, true,
     "The input is lines of {\"id\", \"text\"}, the output lines of {\"id\", \"ids\"} (with "
     "--decode the other way)."},
    {"--add-special", NULL, NULL, KIND_FLAG, AT(add_special), 0, 0, NULL, 0, SL_CMD_TOKENIZE,
     GROUP_INPUT, true, "Add the BOS and EOS tokens that the release puts around a text."},

    {"--tokens", "-n", "N", KIND_COUNT, AT(n_predict), 0, MANY, NULL, 0,
     SL_CMD_PROMPT | SL_CMD_BENCH | SL_CMD_TUNE, GROUP_OUTPUT, true,
     "Generate at most N tokens (default: until an end token or the context is full; bench: 64; "
     "profile: 32; tune: as many as the time allows)."},
    {"--prompt-tokens", NULL, "N", KIND_COUNT, AT(n_prompt), 1, 1 << 30, NULL, 0,
     SL_CMD_BENCH | SL_CMD_TUNE, GROUP_INPUT, true,
     "Tokens of the prompt (default: 512, or all of --ids; tune: as many as the time allows)."},
    {"--repeats", "-r", "N", KIND_COUNT, AT(n_repeats), 1, 1000, NULL, 0, SL_CMD_BENCH, GROUP_INPUT,
     true, "Time everything N times (default: 3)."},
    {"--vs", NULL, "OPTIONS", KIND_TEXTS, AT(versus), 0, 0, NULL, 0, SL_CMD_BENCH, GROUP_INPUT,
     true,
     "Compare with these options for memory, I/O and CPU as well, taking turns; may be given up to "
     "16 times."},
    {"--stop", NULL, "TEXT", KIND_TEXTS, AT(stop), 1, 0, NULL, 0, SL_CMD_RUN, GROUP_OUTPUT, true,
     "Stop before this text appears in the output; may be given up to 16 times."},
    {"--ignore-eos", NULL, NULL, KIND_FLAG, AT(ignore_eos), 0, 0, NULL, 0, SL_CMD_RUN, GROUP_OUTPUT,
     false, "Go on after an end token."},
    {"--print-ids", NULL, NULL, KIND_FLAG, AT(print_ids), 0, 0, NULL, 0, SL_CMD_RUN, GROUP_OUTPUT,
     false, "Print token ids instead of text; needs no tokenizer."},
    {"--logits", NULL, "FILE", KIND_TEXT, AT(logits), 0, 0, NULL, 0, SL_CMD_EVAL, GROUP_OUTPUT,
     true, "Write the tensor logits, F32 [tokens, vocabulary], as safetensors."},
    {"--hidden", NULL, NULL, KIND_FLAG, AT(hidden), 0, 0, NULL, 0, SL_CMD_EVAL, GROUP_OUTPUT, true,
     "With --logits: also hidden.0 .. hidden.LAYERS, F32 [tokens, width], the residual between "
     "layers."},
    {"--json", NULL, NULL, KIND_FLAG, AT(json), 0, 0, NULL, 0,
     SL_CMD_EVAL | SL_CMD_INSPECT | SL_CMD_VERIFY | SL_CMD_PLAN | SL_CMD_BENCH | SL_CMD_SIMULATE |
         SL_CMD_DISK | SL_CMD_TUNE,
     GROUP_OUTPUT, true, "Print the report as JSON."},
    {"--json", NULL, "FILE", KIND_TEXT, AT(profile_json), 0, 0, NULL, 0, SL_CMD_PROFILE,
     GROUP_OUTPUT, true, "Write all of it as JSON (docs/profile-format.md; - is standard output)."},
    {"--profile", NULL, "[=FILE]", KIND_MAYBE, AT(profile), 0, 0, NULL, 0, SL_CMD_TOKENS,
     GROUP_OUTPUT, false,
     "Say at the end where the time went, as sluice profile does; with =FILE also as JSON."},
    {"--html", NULL, "FILE", KIND_TEXT, AT(html), 0, 0, NULL, 0, SL_CMD_TOKENS | SL_CMD_PROFILE,
     GROUP_OUTPUT, true, "Draw the profile as a page for a browser."},
    {"--trace-events", NULL, "FILE", KIND_TEXT, AT(trace_events), 0, 0, NULL, 0,
     SL_CMD_TOKENS | SL_CMD_PROFILE, GROUP_OUTPUT, true,
     "Write the profile's timeline for ui.perfetto.dev."},
    {"--stats", NULL, "FILE", KIND_TEXT, AT(stats), 0, 0, NULL, 0, SL_CMD_TOKENS, GROUP_OUTPUT,
     false, "Write the statistics of the run as JSON (docs/stats-format.md)."},

    {"--temp", NULL, "T", KIND_NUMBER, AT(temp), 0, 100, NULL, 0, SL_CMD_RUN, GROUP_SAMPLING, true,
     "Temperature; 0 takes the most probable token (default: 0.8)."},
    {"--top-k", NULL, "K", KIND_COUNT, AT(top_k), 0, MANY, NULL, 0, SL_CMD_RUN, GROUP_SAMPLING,
     false, "Sample from the K most probable tokens; 0: from all (default: 40)."},
    {"--top-p", NULL, "P", KIND_NUMBER, AT(top_p), 0, 1, NULL, 0, SL_CMD_RUN, GROUP_SAMPLING, false,
     "Sample from the fewest tokens whose probabilities add up to P; 1: from all (default: 0.95)."},
    {"--min-p", NULL, "P", KIND_NUMBER, AT(min_p), 0, 1, NULL, 0, SL_CMD_RUN, GROUP_SAMPLING, false,
     "Drop tokens less probable than P times the best; 0: none (default: 0.05)."},
    {"--repeat-penalty", NULL, "X", KIND_NUMBER, AT(repeat_penalty), 0.01, 100, NULL, 0, SL_CMD_RUN,
     GROUP_SAMPLING, false,
     "Make the last 64 tokens less likely by this factor; 1: off (default: 1)."},
    {"--seed", "-s", "N", KIND_SEED, AT(seed), 0, 18446744073709549568.0, NULL, 0, SL_CMD_RUN,
     GROUP_SAMPLING, true, "Seed of the random numbers (default: a new one, told in --stats)."},

    {"--memory", "-M", "SIZE", KIND_MEMORY, 0, 0, 0, NULL, 0, SL_CMD_PRICE & ~SL_CMD_BENCH,
     GROUP_MEMORY, true,
     "The memory budget: a size such as 6G, auto (what the machine and its cgroup have free, "
     "followed when it changes) or floor (the least that works) (default: auto)."},
    {"--memory-control", NULL, "SOCKET", KIND_TEXT, AT(memory_control), 0, 0, NULL, 0,
     SL_CMD_TOKENS, GROUP_MEMORY, false,
     "While it runs, take lines from this UNIX socket: memory SIZE, memory auto, status."},
    {"--ctx", "-c", "N", KIND_COUNT, AT(n_ctx), 1, 1 << 30, NULL, 0, SL_CMD_PRICE, GROUP_MEMORY,
     true,
     "Context: prompt and answer together hold at most N tokens (default: the model's own, cut to "
     "a quarter of the budget)."},
    {"--kv", NULL, "f16|f32|q8_0", KIND_CHOICE, AT(kv), 0, 0, "f16|f32|q8_0", 0, SL_CMD_PRICE,
     GROUP_MEMORY, false,
     "Type of the KV cache; q8_0 takes about half of f16 and loses precision (default: f16)."},
    {"--no-warm-start", NULL, NULL, KIND_FLAG, AT(no_warm_start), 0, 0, NULL, 0, SL_CMD_RUN,
     GROUP_SPEED, false,
     "Neither use nor keep how much each expert was used (kept in ~/.cache/sluice between runs)."},
    {"--memory", "-M", "SIZE", KIND_TEXT, AT(memory_list), 0, 0, NULL, 0, SL_CMD_SIMULATE,
     GROUP_MEMORY, true,
     "The memory budget, as in run, or several: 4G,6G or FROM:TO:STEP (default: the run's own)."},
    {"--memory", "-M", "SIZE", KIND_TEXT, AT(memory_list), 0, 0, NULL, 0, SL_CMD_BENCH,
     GROUP_MEMORY, true,
     "The memory budget: a size such as 6G, auto or floor, or several: 4G,6G or FROM:TO:STEP "
     "(default: auto)."},

    {"--threads", "-t", "N", KIND_COUNT, AT(threads), 1, 1024, NULL, 0, SL_CMD_PRICE | SL_KEPT,
     GROUP_SPEED, true,
     "Threads that compute (default: the physical cores allowed to this process)."},
    {"--chunk", NULL, "N", KIND_COUNT, AT(chunk), 1, 65536, NULL, 0, SL_CMD_PRICE | SL_KEPT,
     GROUP_SPEED, false,
     "Rows of one prefill pass (default: 512, up to 2048 where experts do not all fit, fewer in a "
     "small budget)."},
    {"--part", NULL, "SIZE", KIND_SIZE, AT(part_bytes), 64 * KIB, 1024 * MIB, NULL, 0,
     SL_CMD_PRICE | SL_KEPT, GROUP_SPEED, false,
     "Weights come and go in parts of about this size at most; an expert is always one (default: a "
     "64th of the budget, 1M to 16M)."},
    {"--ring", NULL, "SIZE", KIND_SIZE, AT(ring_bytes), 1, 0, NULL, 0, SL_CMD_SPLIT | SL_KEPT,
     GROUP_SPEED, false,
     "Memory that streamed parts flow through (default: a 16th of the weights' memory, 4M to "
     "64M)."},
    {"--pool", NULL, "SIZE", KIND_SIZE, AT(pool_bytes), 1, 0, NULL, 0, SL_CMD_SPLIT | SL_KEPT,
     GROUP_SPEED, false,
     "Memory for experts at least, even if parts that every token needs then have to be streamed "
     "(default: what is left when those stay)."},
    {"--predict", NULL, "auto|off|N", KIND_PREDICT, AT(predict), 0, SL_ROUTE_MAX_K, NULL, 0,
     SL_CMD_PASSES | SL_CMD_SIMULATE | SL_CMD_TUNE | SL_KEPT, GROUP_SPEED, false,
     "How many experts of the next layer to guess and read ahead while decoding; auto: as many as "
     "a token uses; simulate: at most so many of those that the trace has (default: auto)."},
    {"--predict-layers", NULL, "N", KIND_COUNT, AT(predict_layers), 1, 4, NULL, 0, SL_CMD_PASSES,
     GROUP_SPEED, false,
     "How many layers ahead experts are guessed; those beyond the next only where reads come late "
     "(default: 2)."},
    {"--io", NULL, "ENGINE", KIND_CHOICE, AT(io), 0, 0, "auto|direct|mapped|pread|null", 0,
     SL_CMD_PRICE | SL_KEPT, GROUP_SPEED, false,
     "How weights are read: auto, direct, mapped, pread, or null for no reads and wrong output, "
     "to time the arithmetic (default: auto)."},
    {"--in-flight", NULL, "SIZE", KIND_SIZE, AT(in_flight_bytes), 1, 0, NULL, 0,
     SL_CMD_SPLIT | SL_KEPT, GROUP_SPEED, false, "Most bytes being read at a time (default: 24M)."},
    {"--piece", NULL, "SIZE", KIND_SIZE, AT(piece_bytes), 1, 0, NULL, 0, SL_CMD_SPLIT | SL_KEPT,
     GROUP_SPEED, false, "Reads are cut to this size (default: 1M)."},
    {"--hints", NULL, "SIZE", KIND_SIZE, AT(hint_bytes), 1, 0, NULL, 0, SL_CMD_SPLIT | SL_KEPT,
     GROUP_SPEED, false, "Of these, most bytes for guesses while decoding (default: 3M)."},
    {"--disk", NULL, "RATE", KIND_SIZE, AT(disk_rate), 1, 0, NULL, 0, SL_CMD_PRICE, GROUP_SPEED,
     false,
     "Expect this many bytes per second of the disk, such as 2G (default: what sluice disk "
     "measured, if anything)."},
    {"--disk", NULL, "RATE[,LATENCY[,DEPTH[,ALONE]]]", KIND_TEXT, AT(disk_model), 0, 0, NULL, 0,
     SL_CMD_SIMULATE, GROUP_SPEED, true,
     "The disk: bytes per second, microseconds until the first byte, reads that wait at the same "
     "time, and bytes per second of one by itself (default: 2G,80,32)."},
    {"--policy", NULL, "lrfu|lru|lfu|s3fifo", KIND_CHOICE, AT(policy), 0, 0, "lrfu|lru|lfu|s3fifo",
     0, SL_CMD_SPLIT | SL_KEPT, GROUP_SPEED, false,
     "Which expert gives up its place: of the least recent and frequent use, of the least recent, "
     "of the least frequent, the oldest unused (default: lrfu; simulate: the trace's)."},
    {"--half-life", NULL, "ROWS", KIND_NUMBER, AT(half_life), 0.01, 1e9, NULL, 0,
     SL_CMD_SPLIT | SL_KEPT, GROUP_SPEED, false,
     "With lrfu: tokens after which a use counts half (default: 16; simulate: the trace's)."},
    {"--no-kept", NULL, NULL, KIND_FLAG, AT(no_kept), 0, 0, NULL, 0, SL_CMD_PASSES, GROUP_SPEED,
     false, "Do not use the settings that sluice tune has kept for this model."},
    {"--trace", NULL, "FILE", KIND_TEXT, AT(trace), 0, 0, NULL, 0, SL_CMD_PASSES, GROUP_OUTPUT,
     false,
     "Keep a trace of what the run asked of the disk, for sluice simulate; the ids of its tokens "
     "are in it."},
    {"--csv", NULL, NULL, KIND_FLAG, AT(csv), 0, 0, NULL, 0, SL_CMD_SIMULATE | SL_CMD_BENCH,
     GROUP_OUTPUT, true,
     "Print the report as comma-separated values (bench: a line per run and phase)."},
    {"--markdown", NULL, NULL, KIND_FLAG, AT(markdown), 0, 0, NULL, 0, SL_CMD_BENCH, GROUP_OUTPUT,
     true, "Print the report as a Markdown table."},
    {"--disk-limit", NULL, "RATE", KIND_SIZE, AT(disk_limit), 1, 0, NULL, 0,
     SL_CMD_PRICE | SL_CMD_DISK, GROUP_SPEED, false,
     "Read no more than this many bytes per second (default: no limit)."},
    {"--cpu-level", NULL, "LEVEL", KIND_CHOICE, AT(cpu_level), 0, 0, "auto|" CPU_LEVELS, -1,
     SL_CMD_PASSES | SL_CMD_PLAN, GROUP_SPEED, false,
     "Kernels to use: auto, or one of " CPU_LEVELS
     "; the results are the same bits (default: auto)."},

    {"--simulate-ram", NULL, "SIZE", KIND_SIZE, AT(simulate_ram), 1, 0, NULL, 0, SL_CMD_PLAN,
     GROUP_MEMORY, true,
     "Answer for a machine with so much memory: what --memory auto would take there, and how fast "
     "it would be with this disk and these cores."},
    {"--trace-in", NULL, "FILE", KIND_TEXT, AT(trace_in), 0, 0, NULL, 0, SL_CMD_PLAN, GROUP_INPUT,
     true,
     "A trace of this model (--trace of run, eval and bench): expect experts to be reused as in it "
     "(default: as the last runs kept it, else as is usual)."},
    {"--measure", NULL, NULL, KIND_FLAG, AT(measure), 0, 0, NULL, 0, SL_CMD_PLAN, GROUP_INPUT, true,
     "Measure the kernels again, even if their speed is kept from an earlier time."},
    {"--for", NULL, "TIME", KIND_SECONDS, AT(seconds), 0.1, 86400, NULL, 0,
     SL_CMD_DISK | SL_CMD_TUNE, GROUP_INPUT, true,
     "Measure for about this long, such as 10s or 2m (default: 5s; tune: at the most, 5m)."},
    {"--size", NULL, "SIZE", KIND_SIZE, AT(size_bytes), 1, 0, NULL, 0, SL_CMD_DISK, GROUP_INPUT,
     true,
     "Write a temporary file of this size into the folder, even if it has large files (default: "
     "none; in a folder without a file of 64M, 1G or a quarter of what is free)."},
    {"--show", NULL, NULL, KIND_FLAG, AT(show), 0, 0, NULL, 0, SL_CMD_DISK | SL_CMD_TUNE,
     GROUP_OUTPUT, true, "Measure nothing; print what is kept of the last time."},
    {"--reset", NULL, NULL, KIND_FLAG, AT(reset), 0, 0, NULL, 0, SL_CMD_TUNE, GROUP_OUTPUT, true,
     "Measure nothing; remove what is kept for the model."},
    {"--kernels", NULL, NULL, KIND_FLAG, AT(kernels), 0, 0, NULL, 0, SL_CMD_BENCH, GROUP_INPUT,
     true, "Time the kernels instead of a model."},
    {"--memory-rate", NULL, NULL, KIND_FLAG, AT(memory_rate), 0, 0, NULL, 0, SL_CMD_BENCH,
     GROUP_INPUT, false, "Only what memory gives, without the kernels."},

    {"--quiet", "-q", NULL, KIND_FLAG, AT(quiet), 0, 0, NULL, 0, SL_CMD_ALL, GROUP_GENERAL, false,
     "No notes, progress or summary; errors only."},
    {"--verbose", "-v", NULL, KIND_FLAG, AT(verbose), 0, 0, NULL, 0, SL_CMD_ALL, GROUP_GENERAL,
     false, "More notes."},
    {"-h", NULL, NULL, KIND_FLAG, AT(help), 0, 0, NULL, 0, SL_CMD_ALL, GROUP_GENERAL, true,
     "This help; --help shows every option."},
};

enum { N_OPTIONS = sizeof options / sizeof options[0] };
_Static_assert((int)N_OPTIONS <= (int)SL_MAX_OPTIONS, "sl_options.given has a place for each");

sl_options sl_options_default(void)
{
    return (sl_options){.special = -1,
                        .n_predict = UINT64_MAX,
                        .temp = 0.8,
                        .top_k = 40,
                        .top_p = 0.95,
                        .min_p = 0.05,
                        .repeat_penalty = 1,
                        .predict = SL_PREDICT_AUTO,
                        .policy = -1,
                        .cpu_level = -1};
}

/* Levenshtein distance of two short words; long ones are far. */
static unsigned distance(const char *a, const char *b)
{
    enum { LONGEST = 32 };
    size_t n = strlen(a), m = strlen(b);
    unsigned row[LONGEST + 1];
    if (n > LONGEST || m > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= m; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

const char *sl_nearest(const char *word, const char *const *names)
{
    const char *best = NULL;
    unsigned least = 1 + (unsigned)strlen(word) / 3;
    for (; *names; names++) {
        unsigned d = distance(word, *names);
        /* Another ending of the same word is near, too: "--thread", "--mem". */
        if (strlen(word) >= 5 && strncmp(word, *names, strlen(word)) == 0)
            d = 0;
        if (d < least + (best == NULL)) {
            best = *names;
            least = d;
        }
    }
    return best;
}

/* Names that users of other programs know. */
static const struct {
    const char *said, *meant;
} also_known[] = {{"--context", "--ctx"}, {"--ctx-size", "--ctx"}};

static void translate(const char **name, size_t *len)
{
    for (size_t i = 0; i < sizeof also_known / sizeof also_known[0]; i++)
        if (strlen(also_known[i].said) == *len && !strncmp(also_known[i].said, *name, *len)) {
            *name = also_known[i].meant;
            *len = strlen(*name);
            return;
        }
}

/* The command's own option of this name, else another command's. */
static const option *find_option(const sl_command *c, const char *name, size_t len)
{
    const option *found = NULL;
    translate(&name, &len);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option *o = &options[i];
        if ((strlen(o->name) == len && !strncmp(o->name, name, len)) ||
            (o->letter && strlen(o->letter) == len && !strncmp(o->letter, name, len)))
            found = !found || o->commands & c->bit ? o : found;
    }
    return found;
}

static sl_status unknown_option(const sl_command *c, const char *name, size_t len, sl_err *err)
{
    const char *names[N_OPTIONS + 1];
    size_t n = 0;
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)(len < 63 ? len : 63), name);
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (options[i].commands & c->bit)
            names[n++] = options[i].name;
    names[n] = NULL;
    const char *near = sl_nearest(word, names);
    if (near)
        return sl_fail(err, SL_EINVAL, "%s: unknown option '%s'; did you mean '%s'?", c->name, word,
                       near);
    return sl_fail(err, SL_EINVAL, "%s: unknown option '%s'; 'sluice help %s' lists them", c->name,
                   word, c->name);
}

static sl_status foreign_option(const sl_command *c, const option *o, sl_err *err)
{
    char who[128] = "";
    size_t used = 0;
    for (const sl_command *other = sl_commands(); other->name; other++)
        if (other->bit & o->commands && used < sizeof who)
            used += (size_t)snprintf(who + used, sizeof who - used, "%s%s", used ? ", " : "",
                                     other->name);
    return sl_fail(err, SL_EINVAL, "%s does not take '%s'; it is an option of: %s", c->name,
                   o->name, who);
}

static sl_status bad_value(const option *o, const char *value, const char *accepted, sl_err *err)
{
    return sl_fail(err, SL_EINVAL, "%s: '%.100s' is not accepted; %s", o->name, value, accepted);
}

static sl_status read_count(const option *o, const char *value, uint64_t *out, sl_err *err)
{
    char accepted[96];
    char *end = NULL;
    snprintf(accepted, sizeof accepted, "a whole number from %.0f to %.0f is", o->min, o->max);
    if (value[0] < '0' || value[0] > '9')
        return bad_value(o, value, accepted, err);
    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    if (errno || *end || (double)n < o->min || (double)n > o->max)
        return bad_value(o, value, accepted, err);
    *out = n;
    return SL_OK;
}

static sl_status read_number(const option *o, const char *value, double *out, sl_err *err)
{
    char accepted[96];
    char *end = NULL;
    snprintf(accepted, sizeof accepted, "a number from %g to %g is", o->min, o->max);
    double x = strtod(value, &end);
    if (!*value || *end || !isfinite(x) || x < o->min || x > o->max)
        return bad_value(o, value, accepted, err);
    *out = x;
    return SL_OK;
}

/* A number and a unit: s (or none), m, h. */
static sl_status read_seconds(const option *o, const char *value, double *out, sl_err *err)
{
    char accepted[96];
    char *end = NULL;
    double x = strtod(value, &end);
    const char *rest = end == value ? "?" : !strcmp(end, "s") ? end + 1 : end;
    x *= !strcmp(rest, "m") ? 60 : !strcmp(rest, "h") ? 3600 : 1;
    rest += *rest == 'm' || *rest == 'h';
    snprintf(accepted, sizeof accepted, "a time such as 5s, 2m or 1h, from %gs to %gs, is", o->min,
             o->max);
    if (*rest || !isfinite(x) || x < o->min || x > o->max)
        return bad_value(o, value, accepted, err);
    *out = x;
    return SL_OK;
}

static sl_status read_choice(const option *o, const char *value, int *out, sl_err *err)
{
    char accepted[96];
    const char *at = o->choices;
    for (int i = 0; at; i++) {
        size_t len = strcspn(at, "|");
        if (strlen(value) == len && !strncmp(value, at, len)) {
            *out = o->choice_base + i;
            return SL_OK;
        }
        at = at[len] ? at + len + 1 : NULL;
    }
    snprintf(accepted, sizeof accepted, "one of %s is", o->choices);
    return bad_value(o, value, accepted, err);
}

static sl_status read_size(const option *o, const char *value, uint64_t *out, sl_err *err)
{
    char accepted[96], least[SL_SHORT], most[SL_SHORT];
    const bool size = sl_size_parse(value, out) && *out > 0;
    if (size && (double)*out >= o->min && (!o->max || (double)*out <= o->max))
        return SL_OK;
    if (!o->max)
        return bad_value(o, value, "a size such as 512K, 64M or 1.5G is", err);
    snprintf(accepted, sizeof accepted, "a size from %s to %s is",
             sl_show_bytes(least, (uint64_t)o->min), sl_show_bytes(most, (uint64_t)o->max));
    return bad_value(o, value, accepted, err);
}

static sl_status read_memory(const option *o, const char *value, sl_options *out, sl_err *err)
{
    if (!strcmp(value, "auto")) {
        out->memory_mode = SL_MEMORY_AUTO;
    } else if (!strcmp(value, "floor")) {
        out->memory_mode = SL_MEMORY_FLOOR;
    } else {
        if (!sl_size_parse(value, &out->memory_bytes) || out->memory_bytes == 0)
            return bad_value(o, value, "auto, floor or a size such as 64M or 6G is", err);
        out->memory_mode = SL_MEMORY_BYTES;
    }
    return SL_OK;
}

static sl_status read_predict(const option *o, const char *value, int *out, sl_err *err)
{
    char accepted[64];
    uint64_t n = 0;
    if (!strcmp(value, "auto")) {
        *out = SL_PREDICT_AUTO;
        return SL_OK;
    }
    snprintf(accepted, sizeof accepted, "auto, off or a whole number up to %g is", o->max);
    if (strcmp(value, "off") && read_count(o, value, &n, NULL) != SL_OK)
        return bad_value(o, value, accepted, err);
    *out = (int)n;
    return SL_OK;
}

static sl_status read_texts(const option *o, const char *value, sl_texts *out, sl_err *err)
{
    if (!*value && o->min > 0)
        return bad_value(o, value, "a text of at least one byte is", err);
    if (out->n == SL_MAX_TEXTS)
        return sl_fail(err, SL_EINVAL, "%s: at most %d are accepted", o->name, SL_MAX_TEXTS);
    out->text[out->n++] = value;
    return SL_OK;
}

static sl_status read_value(const option *o, const char *value, sl_options *out, sl_err *err)
{
    char *field = (char *)out + o->at;
    out->given[o - options] = true;
    switch (o->kind) {
    case KIND_FLAG:
    case KIND_MAYBE:
        return SL_OK;
    case KIND_SEED:
        out->seed_given = true;
        return read_count(o, value, (uint64_t *)(void *)field, err);
    case KIND_COUNT:
        return read_count(o, value, (uint64_t *)(void *)field, err);
    case KIND_SIZE:
        return read_size(o, value, (uint64_t *)(void *)field, err);
    case KIND_NUMBER:
        return read_number(o, value, (double *)(void *)field, err);
    case KIND_SECONDS:
        return read_seconds(o, value, (double *)(void *)field, err);
    case KIND_CHOICE:
        return read_choice(o, value, (int *)(void *)field, err);
    case KIND_MEMORY:
        return read_memory(o, value, out, err);
    case KIND_PREDICT:
        return read_predict(o, value, (int *)(void *)field, err);
    case KIND_TEXT:
        *(const char **)(void *)field = value;
        return SL_OK;
    case KIND_TEXTS:
        return read_texts(o, value, (sl_texts *)(void *)field, err);
    }
    return SL_OK;
}

/* One option at argv[*i]; moves *i to the last argument it used. */
static sl_status read_option(const sl_command *c, int argc, char **argv, int *i, sl_options *out,
                             sl_err *err)
{
    const char *arg = argv[*i];
    size_t len = strcspn(arg, "=");
    const char *value = arg[len] ? arg + len + 1 : NULL;
    const option *o = find_option(c, arg, len);
    if (!o && arg[1] != '-' && (o = find_option(c, arg, 2)) && o->value) {
        value = arg + 2; /* -n64 */
    } else if (!o) {
        return unknown_option(c, arg, len, err);
    }
    if (!(o->commands & c->bit))
        return foreign_option(c, o, err);
    if (o->group != GROUP_GENERAL && o->at != AT(profile_json) && o->at != AT(trace_events) &&
        o->at != AT(html) && !out->run_option)
        out->run_option = o->name;
    if (o->kind == KIND_MAYBE) {
        *(const char **)(void *)((char *)out + o->at) = value ? value : "";
        return SL_OK;
    }
    if (o->kind == KIND_FLAG) {
        if (value)
            return sl_fail(err, SL_EINVAL, "%s takes no value ('%.100s')", o->name, value);
        *(bool *)((char *)out + o->at) = true;
        return SL_OK;
    }
    if (!value) {
        if (*i + 1 >= argc)
            return sl_fail(err, SL_EINVAL, "%s needs a value: %s %s", arg, arg, o->value);
        value = argv[++*i];
    }
    return read_value(o, value, out, err);
}

sl_status sl_args_parse(const sl_command *c, int argc, char **argv, sl_options *out, sl_err *err)
{
    bool only_operands = false;
    out->command = c->name;
    out->no_kept = !(c->bit & SL_CMD_PASSES);
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        sl_status st = SL_OK;
        if (!only_operands && !strcmp(arg, "--")) {
            only_operands = true;
        } else if (!only_operands && !strcmp(arg, "--help")) {
            out->help = 2;
        } else if (!only_operands && !strcmp(arg, "-h")) {
            out->help = out->help ? out->help : 1;
        } else if (!only_operands && arg[0] == '-' && arg[1]) {
            st = read_option(c, argc, argv, &i, out, err);
        } else if (out->operand) {
            st = sl_fail(err, SL_EINVAL, "%s: '%.100s' is one argument too many after '%.100s'",
                         c->name, arg, out->operand);
        } else {
            out->operand = arg;
        }
        if (st)
            return st;
    }
    if (!out->operand && c->operand[0] != '[' && !out->help)
        return sl_fail(err, SL_EINVAL, "%s: %s is missing; 'sluice %s -h' shows how it is used",
                       c->name, c->operand, c->name);
    return SL_OK;
}

static sl_status check_setting(const sl_command *c, const char *word, sl_err *err)
{
    const option *o = find_option(c, word, strcspn(word, "="));
    if (!o && word[1] != '-')
        o = find_option(c, word, 2);
    if (o && !(o->group == GROUP_MEMORY || o->group == GROUP_SPEED))
        return sl_fail(err, SL_EINVAL, "%s is no setting of memory, I/O or CPU", o->name);
    return SL_OK;
}

sl_status sl_args_parse_settings(const sl_command *c, char *words, sl_options *out, sl_err *err)
{
    enum { MOST = 64 };
    char *argv[MOST + 1] = {words}, *rest = NULL;
    int n = 1;
    for (char *w = strtok_r(words, " \t\n", &rest); w; w = strtok_r(NULL, " \t\n", &rest)) {
        if (n == MOST)
            return sl_fail(err, SL_EINVAL, "more than %d words", MOST - 1);
        argv[n++] = w;
    }
    for (int i = 1; i < n; i++) {
        sl_status st = argv[i][0] == '-' && argv[i][1]
                           ? check_setting(c, argv[i], err)
                           : sl_fail(err, SL_EINVAL, "'%.100s' is no option", argv[i]);
        if (!st)
            st = read_option(c, n, argv, &i, out, err);
        if (st)
            return st;
    }
    return SL_OK;
}

/* ---- settings that are kept ------------------------------------------------------------------ */
static const option *find_kept(const char *name)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (options[i].commands & SL_KEPT && !strcmp(options[i].name + 2, name))
            return &options[i];
    return NULL;
}

const char *sl_args_kept(uint32_t i)
{
    for (size_t k = 0; k < N_OPTIONS; k++)
        if (options[k].commands & SL_KEPT && i-- == 0)
            return options[k].name + 2;
    return NULL;
}

sl_status sl_args_set(sl_options *o, const char *name, const char *value, sl_err *err)
{
    const option *at = find_kept(name);
    if (!at)
        return sl_fail(err, SL_EINVAL, "unknown option '%.60s'", name);
    return read_value(at, value, o, err);
}

bool sl_args_given(const sl_options *o, const char *name)
{
    const option *at = find_kept(name);
    return at && o->given[at - options];
}

/* "96M": the largest unit that divides it. */
void sl_args_size(char out[SL_VALUE], uint64_t bytes)
{
    static const char units[] = "TGMK";
    uint64_t unit = (uint64_t)1 << 40;
    for (const char *u = units; *u; u++, unit >>= 10)
        if (bytes && bytes % unit == 0) {
            snprintf(out, SL_VALUE, "%" PRIu64 "%c", bytes / unit, *u);
            return;
        }
    snprintf(out, SL_VALUE, "%" PRIu64, bytes);
}

static void choice_text(const option *o, int value, char out[SL_VALUE])
{
    const char *at = o->choices;
    for (int i = o->choice_base; i < value; i++)
        at += strcspn(at, "|") + 1;
    snprintf(out, SL_VALUE, "%.*s", (int)strcspn(at, "|"), at);
}

void sl_args_get(const sl_options *o, const char *name, char out[SL_VALUE])
{
    const option *at = find_kept(name);
    const void *field = (const char *)o + at->at;
    uint64_t count;
    double number;
    int choice;
    if (at->kind == KIND_SIZE || at->kind == KIND_COUNT) {
        memcpy(&count, field, sizeof count);
        if (at->kind == KIND_SIZE)
            sl_args_size(out, count);
        else
            snprintf(out, SL_VALUE, "%" PRIu64, count);
    } else if (at->kind == KIND_NUMBER) {
        memcpy(&number, field, sizeof number);
        snprintf(out, SL_VALUE, "%.9g", number);
    } else {
        memcpy(&choice, field, sizeof choice);
        if (at->kind == KIND_CHOICE)
            choice_text(at, choice, out);
        else
            snprintf(out, SL_VALUE, choice > 0 ? "%d" : choice < 0 ? "auto" : "off", choice);
    }
}

void sl_args_open(sl_options *o)
{
    const sl_options usual = sl_options_default();
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option *at = &options[i];
        const size_t len = at->kind == KIND_CHOICE || at->kind == KIND_PREDICT ? sizeof(int)
                           : at->kind == KIND_NUMBER                           ? sizeof(double)
                                                                               : sizeof(uint64_t);
        if (!(at->commands & SL_KEPT))
            continue;
        memcpy((char *)o + at->at, (const char *)&usual + at->at, len);
        o->given[i] = false;
    }
}

/* Words of text in lines of at most width columns, the first one starting at column at. */
static void wrap(FILE *out, const char *text, unsigned at, unsigned indent, unsigned width)
{
    bool first = true;
    while (*text) {
        unsigned len = (unsigned)strcspn(text, " ");
        if (!first && at + 1 + len > width) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        fprintf(out, "%s%.*s", first ? "" : " ", (int)len, text);
        at += len + !first;
        first = false;
        text += len;
        text += *text == ' ';
    }
    fputc('\n', out);
}

static void help_option(FILE *out, const option *o)
{
    enum { COLUMN = 25, WIDTH = 98 };
    char left[64];
    if (!strcmp(o->name, "-h"))
        snprintf(left, sizeof left, "  -h, --help");
    else
        snprintf(left, sizeof left, "  %s%s%s%s%s", o->letter ? o->letter : "    ",
                 o->letter ? ", " : "", o->name, o->value && o->value[0] != '[' ? " " : "",
                 o->value ? o->value : "");
    unsigned used = (unsigned)strlen(left);
    if (used + 1 > COLUMN) {
        fprintf(out, "%s\n%*s", left, COLUMN, "");
    } else {
        fprintf(out, "%-*s", COLUMN, left);
    }
    wrap(out, o->help, COLUMN, COLUMN, WIDTH);
}

static void help_group(FILE *out, const sl_command *c, option_group g, bool all)
{
    bool titled = false;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option *o = &options[i];
        if (o->group != g || !(o->commands & c->bit) || !(all || o->often))
            continue;
        if (!titled)
            fprintf(out, "\n%s\n", group_title[g]);
        titled = true;
        help_option(out, o);
    }
}

void sl_args_help(FILE *out, const sl_command *c, bool all)
{
    fprintf(out, "Usage: sluice %s %s [options]\n\n%s\n", c->name, c->operand, c->about);
    for (int g = 0; g < GROUP_COUNT; g++)
        help_group(out, c, (option_group)g, all);
    fprintf(out, "\nExample\n%s\n", c->example);
}
