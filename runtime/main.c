/* The sluice program: finds the command, reads its options, runs it, and sees to it that what was
 * printed has arrived. */
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "term.h"

static const sl_command commands[] = {
    {"run", SL_CMD_RUN, "MODEL", "generate text",
     "Continues a prompt (-p, -f, or standard input) and prints the text as it comes. MODEL is a\n"
     ".gguf file or a safetensors folder. Weights that do not fit the memory budget are read from\n"
     "disk just ahead of their use.",
     "  sluice run model.gguf -p 'The capital of France is' -n 32 --memory 2G --temp 0",
     sl_cmd_run},
    {"eval", SL_CMD_EVAL, "MODEL", "perplexity, logits",
     "Evaluates one context of text (--text) or token ids (--ids): prints the perplexity over its\n"
     "tokens 2 .. n, and writes the logits of every token with --logits.",
     "  sluice eval model.gguf --text chapter.txt -c 2048 --memory 2G\n"
     "  echo 1 17 4 9 | sluice eval model.gguf --ids - --logits out.safetensors --hidden",
     sl_cmd_eval},
    {"tokenize", SL_CMD_TOKENIZE, "MODEL|tokenizer.json", "text to token ids and back",
     "Prints the token ids of a text (-p, -f, or standard input) on one line, or the text of ids.",
     "  sluice tokenize model.gguf -p 'Hello world'\n"
     "  echo 9906 1917 | sluice tokenize model.gguf --decode",
     sl_cmd_tokenize},
    {"inspect", SL_CMD_INSPECT, "MODEL", "what is inside a model file",
     "Prints files, metadata, config and tensors, and the units and parts that a pass reads.",
     "  sluice inspect model.gguf --json | jq .tensors[0]", sl_cmd_inspect},
    {"verify", SL_CMD_VERIFY, "MODEL", "check every byte",
     "Reads all weights: shapes and ranges, and that every scale and every float is finite.\n"
     "The first bad value is named with its tensor and block, and the exit status is then 1.",
     "  sluice verify model.gguf", sl_cmd_verify},
    {"plan", SL_CMD_PLAN, "MODEL", "price memory and predict speed before reading weights",
     "Prints the floor with every term, and for budgets from there to the whole model (or the one "
     "of\n"
     "--memory) how the memory is split, how many seconds a token will take and how fast a prompt "
     "is,\n"
     "from what sluice disk measured and a short run of the kernels. Reads no weights.",
     "  sluice disk model.gguf && sluice plan model.gguf\n"
     "  sluice plan model.gguf --memory 4G --json",
     sl_cmd_plan},
    {"bench", SL_CMD_BENCH, "[MODEL]", "time a model, or the kernels",
     "Times prefill and decode of MODEL, cold and warm, beside what disk and memory allow; under "
     "one\n"
     "budget or several, and with further sets of options (--vs) that take turns with the first.\n"
     "--kernels times every kernel at every level of this CPU, beside what memory gives: products "
     "of\n"
     "each weight type (GB/s of weights while decoding, GFLOP/s in batches), and the other "
     "operations.",
     "  sluice bench model.gguf --memory 3G,4G,6G\n"
     "  sluice bench model.gguf --memory 4G -r 5 --vs '--predict off' --vs '--io pread' "
     "--markdown\n"
     "  sluice bench --kernels --cpu-level avx2 --json",
     sl_cmd_bench},
    {"profile", SL_CMD_PROFILE, "MODEL|TRACE", "where the time goes",
     "Runs MODEL for some tokens, or takes a TRACE of a run (--trace of run, eval and bench), and "
     "says\n"
     "where the time went: computing by kind, waiting for the disk, and what was read for what, "
     "unit\n"
     "by unit; what limited the run, and what more memory would give. --html draws it.",
     "  sluice profile model.gguf --memory 6G --html profile.html\n"
     "  sluice profile run.trace --trace-events events.json --json -",
     sl_cmd_profile},
    {"simulate", SL_CMD_SIMULATE, "TRACE", "replay a run with other memory or another disk",
     "Replays a trace (--trace of run, eval and bench) through the scheduler of a real run, on a\n"
     "virtual clock and a modelled disk: tokens per second, waits, hits, wasted reads, and beside\n"
     "them the hits of a policy that knows the future. The same input gives the same figures.",
     "  sluice run model.gguf -p 'Once upon a time' -n 64 --memory 6G --trace run.trace\n"
     "  sluice simulate run.trace --memory 2G:16G:2G --disk 3.5G,80,32",
     sl_cmd_simulate},
    {"disk", SL_CMD_DISK, "PATH", "what a disk can do",
     "Reads with each engine that sluice streams with, in several sizes and depths, and says what "
     "the\n"
     "disk gave, what it cost the CPU, and whether it was the disk or the page cache. PATH is a "
     "file\n"
     "(a model) or a folder; a folder without large files gets a temporary one. The figures are "
     "kept\n"
     "for plan, bench and tune.",
     "  sluice disk model.gguf\n  sluice disk /mnt/nvme --for 10s --json", sl_cmd_disk},
    {"tune", SL_CMD_TUNE, "MODEL", "find the fastest settings, and keep them",
     "Looks for the values of the options under Speed with which MODEL runs fastest on this "
     "machine\n"
     "in this budget: first on the simulator, then in runs that take turns with the defaults. "
     "What\n"
     "is certain to be 3 % faster is kept, and used by run, eval and bench. Options under Speed "
     "say\n"
     "where the search begins. Ctrl-C ends it, and keeps what is certain by then.",
     "  sluice tune model.gguf --memory 4G\n  sluice tune model.gguf --show", sl_cmd_tune},
    {0}};

const sl_command *sl_commands(void)
{
    return commands;
}

static const sl_command *find_command(const char *name)
{
    for (const sl_command *c = commands; c->name; c++)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[sizeof commands / sizeof commands[0] + 1];
    size_t n = 0;
    for (const sl_command *c = commands; c->name; c++)
        names[n++] = c->name;
    names[n++] = "help";
    names[n] = NULL;
    const char *near = sl_nearest(name, names);
    if (near)
        return sl_usage_error("unknown command '%s'; did you mean '%s'?", name, near);
    return sl_usage_error("unknown command '%s'; 'sluice help' lists them", name);
}

static void help_program(FILE *out)
{
    fputs("sluice runs language models that are larger than memory.\n\n"
          "Usage: sluice COMMAND MODEL [options]\n\nCommands\n",
          out);
    for (const sl_command *c = commands; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->summary);
    fputs("\n  sluice help COMMAND    every option of a command (COMMAND -h: the usual ones)\n"
          "  sluice --version\n\nExample\n"
          "  sluice run model.gguf -p 'The capital of France is' -n 32 --memory 2G\n",
          out);
}

static int help_command(int argc, char **argv)
{
    if (argc < 3) {
        help_program(stdout);
        return SL_EXIT_OK;
    }
    const sl_command *c = find_command(argv[2]);
    if (!c)
        return unknown_command(argv[2]);
    sl_args_help(stdout, c, true);
    return SL_EXIT_OK;
}

static int run_command(const sl_command *c, int argc, char **argv)
{
    sl_options o = sl_options_default();
    sl_err err = {0};
    if (sl_args_parse(c, argc, argv, &o, &err))
        return sl_usage_error("%s", err.text);
    if (o.help) {
        sl_args_help(stdout, c, o.help == 2);
        return SL_EXIT_OK;
    }
    sl_term_init(o.quiet, o.verbose);
    return c->run(&o);
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        help_program(stderr);
        return SL_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (!strcmp(word, "-h") || !strcmp(word, "--help")) {
        help_program(stdout);
        return SL_EXIT_OK;
    }
    if (!strcmp(word, "help"))
        return help_command(argc, argv);
    if (!strcmp(word, "--version") || !strcmp(word, "version")) {
        printf("sluice %s\n", SL_VERSION);
        return SL_EXIT_OK;
    }
    if (word[0] == '-')
        return sl_usage_error("a command comes first, then its options ('%s'); 'sluice help' lists "
                              "the commands",
                              word);
    const sl_command *c = find_command(word);
    return c ? run_command(c, argc - 1, argv + 1) : unknown_command(word);
}

int main(int argc, char **argv)
{
    /* What is freed goes back to the system, so that it is not charged to the budget: one arena,
     * and fixed thresholds instead of ones that grow with use. */
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_TRIM_THRESHOLD, 128 << 10);
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write, seen by sl_out_end() */
    return sl_out_end(dispatch(argc, argv));
}
