/* What this proves: every kind of option is read, ranges and choices are enforced, errors name the
 * option, the value and what is accepted, and near misses are suggested. */
#include <string.h>

#include "../models/model.h"
#include "../runtime/args.h"
#include "../runtime/command.h"
#include "../runtime/report.h"
#include "lib_test.h"

/* The table lives in main.c, which tests do not link. */
static const sl_command table[] = {{.name = "run", .bit = SL_CMD_RUN, .operand = "MODEL"},
                                   {.name = "eval", .bit = SL_CMD_EVAL, .operand = "MODEL"},
                                   {.name = "plan", .bit = SL_CMD_PLAN, .operand = "MODEL"},
                                   {.name = "simulate", .bit = SL_CMD_SIMULATE, .operand = "TRACE"},
                                   {0}};

const sl_command *sl_commands(void)
{
    return table;
}

static sl_options o;
static sl_err err;

/* words: separated by blanks */
static sl_status parse(const sl_command *c, const char *words)
{
    static char text[512];
    char *argv[32];
    int argc = 0;
    o = sl_options_default();
    err = (sl_err){0};
    snprintf(text, sizeof text, "%s", words);
    argv[argc++] = text; /* the command's name; never read */
    for (char *at = text; *at && argc < 32;) {
        size_t len = strcspn(at, " ");
        argv[argc++] = at;
        at += len;
        if (*at)
            *at++ = 0;
    }
    return sl_args_parse(c, argc, argv, &o, &err);
}

static void refused(const sl_command *c, const char *words, const char *expected)
{
    test_case("%s", words);
    CHECK(parse(c, words) == SL_EINVAL, "%s", words);
    CHECK(!strcmp(err.text, expected), "found \"%s\", expected \"%s\"", err.text, expected);
}

static void values(void)
{
    const sl_command *run = &table[0], *simulate = &table[3];
    test_case("values");
    CHECK(!parse(run, "m.gguf -p hi -n 5 --temp 0.5 --top-k 7 --top-p=0 --min-p 1 --seed 9"), "%s",
          err.text);
    CHECK(!strcmp(o.operand, "m.gguf") && !strcmp(o.prompt, "hi"));
    CHECK(o.n_predict == 5 && o.temp == 0.5 && o.top_k == 7 && o.top_p == 0 && o.min_p == 1);
    CHECK(o.seed == 9 && o.seed_given);
    CHECK(!parse(run, "--stop a --stop=b -n64 --prompt --quiet -q -- -m"), "%s", err.text);
    CHECK(o.stop.n == 2 && !strcmp(o.stop.text[1], "b") && o.n_predict == 64 && o.quiet);
    CHECK(!strcmp(o.prompt, "--quiet") && !strcmp(o.operand, "-m"));
    CHECK(!parse(run, "m --memory floor") && o.memory_mode == SL_MEMORY_FLOOR);
    CHECK(!parse(run, "m") && o.predict == SL_PREDICT_AUTO);
    CHECK(!parse(run, "m --predict off") && o.predict == 0);
    CHECK(!parse(run, "m --predict 12") && o.predict == 12);
    CHECK(!parse(run, "m --predict 3 --predict auto") && o.predict == SL_PREDICT_AUTO);
    CHECK(!parse(run, "m -M 1.5G --kv f32 --io pread --special text --cpu-level scalar"), "%s",
          err.text);
    CHECK(o.memory_mode == SL_MEMORY_BYTES && o.memory_bytes == 3ull << 29);
    CHECK(o.kv == 1 && o.io == 3 && o.special == 1 && o.cpu_level == 0);
    CHECK(!parse(run, "m --kv q8_0") && o.kv == SL_KV_Q8);
    CHECK(!parse(run, "m") && o.kv == SL_KV_F16);
    CHECK(!parse(run, "m") && o.memory_mode == SL_MEMORY_AUTO && o.n_predict == UINT64_MAX);
    CHECK(o.special == -1 && o.cpu_level == -1 && !o.seed_given);
    CHECK(!parse(run, "m --policy lfu --half-life 0.5 --trace t") && o.policy == SL_POLICY_LFU);
    CHECK(o.half_life == 0.5 && !strcmp(o.trace, "t"));
    CHECK(!parse(run, "m") && o.policy == -1 && o.half_life == 0 && !o.trace);
    /* Two options of one name: each command has its own. */
    CHECK(!parse(simulate, "t --memory 1G:2G:1G --disk=3G,80,32") && !o.memory_bytes &&
          !strcmp(o.memory_list, "1G:2G:1G") && !strcmp(o.disk_model, "3G,80,32"));
    CHECK(!parse(run, "m --disk 3G -M 2G") && o.disk_rate == 3ull << 30 && !o.memory_list);
    CHECK(!parse(run, "m --part 64K --pool 2G --hints 8M"), "%s", err.text);
    CHECK(o.part_bytes == 64 << 10 && o.pool_bytes == 2ull << 30 && o.hint_bytes == 8 << 20);
    CHECK(!parse(run, "-h") && o.help == 1);
    CHECK(!parse(run, "-h --help") && o.help == 2);
    CHECK(!parse(run, "m --seed 18446744073709549568") && o.seed == 18446744073709549568u);
}

static void refusals(void)
{
    const sl_command *run = &table[0], *plan = &table[2];
    refused(run, "m --tmp 1", "run: unknown option '--tmp'; did you mean '--temp'?");
    refused(run, "m --thread 1", "run: unknown option '--thread'; did you mean '--threads'?");
    refused(run, "m --zzzzzzzz", "run: unknown option '--zzzzzzzz'; 'sluice help run' lists them");
    refused(plan, "m --temp 1", "plan does not take '--temp'; it is an option of: run");
    refused(run, "m --temp abc", "--temp: 'abc' is not accepted; a number from 0 to 100 is");
    refused(run, "m --temp nan", "--temp: 'nan' is not accepted; a number from 0 to 100 is");
    refused(run, "m --temp -1", "--temp: '-1' is not accepted; a number from 0 to 100 is");
    refused(run, "m --top-p 1.01", "--top-p: '1.01' is not accepted; a number from 0 to 1 is");
    refused(run, "m --temp=", "--temp: '' is not accepted; a number from 0 to 100 is");
    refused(run, "m -n -1",
            "--tokens: '-1' is not accepted; a whole number from 0 to 4294967295 is");
    refused(run, "m -n 4294967296",
            "--tokens: '4294967296' is not accepted; a whole number from 0 to 4294967295 is");
    refused(run, "m -c 0", "--ctx: '0' is not accepted; a whole number from 1 to 1073741824 is");
    refused(run, "m -n 1x",
            "--tokens: '1x' is not accepted; a whole number from 0 to 4294967295 is");
    refused(run, "m -n99999999999999999999",
            "--tokens: '99999999999999999999' is not accepted; a whole number from 0 to 4294967295 "
            "is");
    refused(run, "m --memory lots",
            "--memory: 'lots' is not accepted; auto, floor or a size such as 64M or 6G is");
    refused(run, "m --memory 0",
            "--memory: '0' is not accepted; auto, floor or a size such as 64M or 6G is");
    refused(run, "m --ring 5X",
            "--ring: '5X' is not accepted; a size such as 512K, 64M or 1.5G is");
    refused(run, "m --part 4K",
            "--part: '4K' is not accepted; a size from 64.0 KiB to 1.00 GiB is");
    refused(run, "m --part 2G",
            "--part: '2G' is not accepted; a size from 64.0 KiB to 1.00 GiB is");
    refused(run, "m --io uring",
            "--io: 'uring' is not accepted; one of auto|direct|mapped|pread|null is");
    refused(run, "m --io dir",
            "--io: 'dir' is not accepted; one of auto|direct|mapped|pread|null is");
    refused(run, "m --predict some",
            "--predict: 'some' is not accepted; auto, off or a whole number up to 64 is");
    refused(run, "m --predict 65",
            "--predict: '65' is not accepted; auto, off or a whole number up to 64 is");
    refused(run, "m --policy fifo",
            "--policy: 'fifo' is not accepted; one of lrfu|lru|lfu|s3fifo is");
    refused(run, "m --csv", "run does not take '--csv'; it is an option of: simulate");
    refused(&table[3], "t --io direct",
            "simulate does not take '--io'; it is an option of: run, eval, plan");
    refused(run, "m --quiet=1", "--quiet takes no value ('1')");
    refused(run, "m --temp", "--temp needs a value: --temp T");
    refused(run, "m n", "run: 'n' is one argument too many after 'm'");
    refused(run, "--temp 1", "run: MODEL is missing; 'sluice run -h' shows how it is used");
    refused(run, "m --stop=", "--stop: '' is not accepted; a text of at least one byte is");
    refused(run,
            "m --stop=a --stop=a --stop=a --stop=a --stop=a --stop=a --stop=a --stop=a --stop=a "
            "--stop=a --stop=a --stop=a --stop=a --stop=a --stop=a --stop=a --stop=a",
            "--stop: at most 16 are accepted");
}

static void nearest(void)
{
    static const char *const names[] = {"run", "eval", "inspect", "verify", NULL};
    test_case("nearest");
    CHECK(!strcmp(sl_nearest("rum", names), "run"));
    CHECK(!strcmp(sl_nearest("inspct", names), "inspect"));
    CHECK(!strcmp(sl_nearest("verfiy", names), "verify"));
    CHECK(!sl_nearest("chat", names));
    CHECK(!sl_nearest("", names));
}

static void numbers(void)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } size[] = {{0, "0 B"},
                {1023, "1023 B"},
                {1024, "1.0 KiB"},
                {64 << 20, "64.0 MiB"},
                {(1 << 20) - 1, "1.0 MiB"},
                {200 << 20, "200 MiB"},
                {3ull << 29, "1.50 GiB"},
                {UINT64_MAX, "16.0 EiB"}};
    static const struct {
        double seconds;
        const char *text;
    } time[] = {{0.0001, "100 us"}, {0.0123, "12.3 ms"}, {0.95, "0.95 s"},
                {12.34, "12.3 s"},  {125, "2 min 05 s"}, {7500, "2 h 05 min"}};
    char text[SL_SHORT];
    test_case("numbers");
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++)
        CHECK(!strcmp(sl_show_bytes(text, size[i].bytes), size[i].text), "%s for %s", text,
              size[i].text);
    for (size_t i = 0; i < sizeof time / sizeof time[0]; i++)
        CHECK(!strcmp(sl_show_seconds(text, time[i].seconds), time[i].text), "%s for %s", text,
              time[i].text);
}

int main(void)
{
    values();
    refusals();
    nearest();
    numbers();
    return test_end();
}
