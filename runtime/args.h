/* Options: one table says name, value, range, default and help of every option, and which commands
 * take it. Parsing only fills sl_options; what the values mean is the commands' business. */
#ifndef SL_ARGS_H
#define SL_ARGS_H

#include <stdio.h>

#include "../stream/base.h"

enum {
    SL_CMD_RUN = 1,
    SL_CMD_EVAL = 2,
    SL_CMD_TOKENIZE = 4,
    SL_CMD_INSPECT = 8,
    SL_CMD_VERIFY = 16,
    SL_CMD_PLAN = 32,
    SL_CMD_BENCH = 64,
    SL_CMD_SIMULATE = 128,
    SL_CMD_PROFILE = 2048,
    SL_CMD_DISK = 4096,
    SL_CMD_TUNE = 8192,
    SL_CMD_ALL = 0xffff,
    SL_CMD_TOKENS = SL_CMD_RUN | SL_CMD_EVAL,    /* commands that evaluate a text */
    SL_CMD_PROMPT = SL_CMD_RUN | SL_CMD_PROFILE, /* that go on from one */
    SL_CMD_PASSES = SL_CMD_TOKENS | SL_CMD_BENCH | SL_CMD_PROFILE, /* commands that run a model */
    SL_CMD_PRICE = SL_CMD_PASSES | SL_CMD_PLAN | SL_CMD_TUNE,      /* commands that price memory */
    SL_CMD_SPLIT = SL_CMD_PRICE | SL_CMD_SIMULATE                  /* commands that divide it */
};

/* Texts of an option that may be given several times. */
enum { SL_MAX_TEXTS = 16 };
typedef struct sl_texts {
    uint32_t n;
    const char *text[SL_MAX_TEXTS];
} sl_texts;

/* Of an option's commands: sluice tune may keep a value for it, and later runs use that. Not a
 * command. */
enum { SL_KEPT = 1 << 30 };

enum { SL_MAX_OPTIONS = 128, SL_VALUE = 24 };

typedef enum sl_memory_mode { SL_MEMORY_AUTO, SL_MEMORY_FLOOR, SL_MEMORY_BYTES } sl_memory_mode;

typedef struct sl_options {
    const char *command; /* name, for messages */
    const char *operand; /* MODEL; NULL: not given */
    uint32_t help;       /* 0 none, 1 short, 2 all */
    bool quiet, verbose, json;

    /* text in */
    const char *prompt, *file, *ids, *text;
    int special; /* -1: the command's own; else sl_special */
    bool decode, jsonl, add_special;

    /* text out */
    uint64_t n_predict; /* UINT64_MAX: until an end token or the context is full */
    bool print_ids, ignore_eos;
    sl_texts stop;
    const char *logits;
    bool hidden;

    /* sampling */
    double temp, top_p, min_p, repeat_penalty;
    uint64_t top_k, seed;
    bool seed_given;

    /* memory and I/O */
    sl_memory_mode memory_mode;
    uint64_t memory_bytes;
    uint64_t n_ctx;                                    /* 0: chosen */
    uint64_t chunk;                                    /* 0: chosen */
    uint64_t threads;                                  /* 0: physical cores */
    int kv;                                            /* sl_kv_type */
    int io;                                            /* sl_io */
    uint64_t ring_bytes, pool_bytes, part_bytes;       /* 0: chosen */
    uint64_t in_flight_bytes, piece_bytes, hint_bytes; /* likewise */
    uint64_t disk_limit;                               /* bytes per second; 0: none */
    uint64_t disk_rate;                                /* bytes per second to expect; 0: unknown */
    int cpu_level; /* -1: the best of this CPU; else sl_cpu_level */
    const char *stats;
    uint64_t predict_layers; /* sl_session_options.predict_layers; 0: the usual */
    int predict;             /* sl_session_options.predict; simulate: at most so many */
    const char *trace;
    const char *memory_control;      /* path of a socket */
    const char *profile;             /* NULL: none; "": no JSON, else where it goes; "-": stdout */
    const char *profile_json;        /* that of the command profile */
    const char *trace_events, *html; /* more of a profile; likewise */
    const char *run_option;          /* profile: the first that is about running a model */
    int policy;                      /* sl_policy; -1: the usual one (simulate: the trace's) */
    double half_life;                /* of LRFU, in rows; 0: likewise */
    const char *memory_list;         /* simulate, bench: as it was written */
    const char *disk_model;          /* simulate: likewise */
    bool csv, markdown;
    bool no_warm_start;           /* run: do not use or keep how much experts were used */
    bool memory_rate;             /* bench: only what memory gives */
    bool kernels;                 /* bench: time the kernels */
    uint64_t n_prompt, n_repeats; /* bench; 0: chosen */
    double seconds;               /* how long to measure; 0: the command's own */
    uint64_t size_bytes;          /* disk: of a temporary file; 0: chosen */
    bool show, reset;             /* only what is kept */
    sl_texts versus;              /* bench: options of further sets */
    bool no_kept; /* do not use what tune has kept; true for commands without such an option */
    bool given[SL_MAX_OPTIONS]; /* by place in the table: it was set */
    bool measure;               /* plan: anew, whatever is kept */
    uint64_t simulate_ram;      /* plan: of another machine; 0: this one */
    const char *trace_in;       /* plan */
} sl_options;

struct sl_command;

sl_options sl_options_default(void);

/* Reads argv[1 ..] (argv[0] is the command's name) for the command. SL_EINVAL: err names the
 * option, the value and what is accepted. The strings of *o point into argv. */
sl_status sl_args_parse(const struct sl_command *c, int argc, char **argv, sl_options *o,
                        sl_err *err);

/* Reads options for memory, I/O and CPU, separated by blanks, over what *o holds already: a set of
 * settings to compare. words: a copy of the text that this cuts into words; the strings of *o point
 * into it. SL_EINVAL: as above; also an option of another kind. */
sl_status sl_args_parse_settings(const struct sl_command *c, char *words, sl_options *o,
                                 sl_err *err);

/* ---- the options whose values can be kept, by their names without the dashes ---- */
const char *sl_args_kept(uint32_t i); /* the name of each; NULL behind the last */
/* As the command line would: "ring", "96M". SL_EINVAL: also an option that cannot be kept. */
sl_status sl_args_set(sl_options *o, const char *name, const char *value, sl_err *err);
bool sl_args_given(const sl_options *o, const char *name);
/* The value as sl_args_set() takes it. name is one of the above, and its value was set. */
void sl_args_get(const sl_options *o, const char *name, char out[SL_VALUE]);
/* Sets all of them back to their defaults. */
void sl_args_open(sl_options *o);
void sl_args_size(char out[SL_VALUE], uint64_t bytes); /* "96M" */

/* The command's help; all: every option, otherwise the ones that most runs need. */
void sl_args_help(FILE *out, const struct sl_command *c, bool all);

/* The nearest of the names (ended by NULL) within about a third of its length; NULL: none is near.
 */
const char *sl_nearest(const char *word, const char *const *names);

#endif
