/* The commands of the program. main.c holds their table; each cmd_<name>.c runs one. A command
 * prints what was asked for on stdout, everything else on stderr, and returns the exit status:
 * 0 done, 1 failed, 2 used wrongly, 130 stopped by Ctrl-C. */
#ifndef SL_COMMAND_H
#define SL_COMMAND_H

#include "args.h"

#define SL_VERSION "0.1.0"

enum { SL_EXIT_OK = 0, SL_EXIT_FAILED = 1, SL_EXIT_USAGE = 2, SL_EXIT_PIPE = 141 };

typedef int sl_command_fn(const sl_options *o);

typedef struct sl_command {
    const char *name;
    unsigned bit;        /* SL_CMD_*: which options it takes */
    const char *operand; /* "MODEL"; "[MODEL]": it can do without */
    const char *summary; /* one line, for the list of commands */
    const char *about;   /* a few lines, for its own help */
    const char *example;
    sl_command_fn *run;
} sl_command;

/* The table, ended by a NULL name. */
const sl_command *sl_commands(void);

sl_command_fn sl_cmd_run, sl_cmd_eval, sl_cmd_tokenize, sl_cmd_inspect, sl_cmd_verify, sl_cmd_plan,
    sl_cmd_bench, sl_cmd_profile, sl_cmd_simulate, sl_cmd_disk, sl_cmd_tune;

/* "sluice: error: eval: ..." on stderr and SL_EXIT_USAGE, for what the option table cannot check.
 */
int sl_usage_error(const char *format, ...) SL_PRINTF(1, 2);

#endif
