/* What sluice tune has kept: one JSON file per model in $XDG_CONFIG_HOME/sluice/tuned (else
 * ~/.config/sluice/tuned), with an entry per machine and budget (docs/tuning.md has its members). A
 * file is whole or absent. Main thread only. */
#ifndef SL_KEPT_H
#define SL_KEPT_H

#include <linux/limits.h>

#include "../stream/checkpoint.h"
#include "../stream/json.h"
#include "setting.h"

enum { SL_KEPT_ENTRIES = 16, SL_KEPT_NAME = 96, SL_KEPT_VERSION = 1 };

/* Settings are used for budgets from tuned / RATIO to tuned * RATIO: what is pinned and how much of
 * a pool hits, and with them what pays, changes slowly with memory; beyond a half more or less the
 * best ring and prediction of the measured models were others (docs/tuning.md). */
#define SL_KEPT_RATIO 1.5

typedef struct sl_machine {
    char cpu[SL_KEPT_NAME]; /* as the system names it */
    char level[16];         /* of kernels */
    uint32_t cores;         /* physical ones that this process may use */
} sl_machine;

typedef struct sl_kept_entry {
    sl_machine machine;
    uint64_t memory_bytes; /* the budget; 0: the floor */
    sl_setting setting;
    double default_s, tuned_s, gain; /* medians of the runs compared; gain: of their pairs */
    uint32_t pairs, faster;
    uint32_t n_prompt, n_tokens;
    char date[24];    /* UTC, ISO 8601 */
    char version[16]; /* of sluice */
    sl_err bad;       /* code: an option or value that this program does not know */
} sl_kept_entry;

typedef struct sl_kept {
    char path[PATH_MAX];
    char model[PATH_MAX]; /* the real path of its first file */
    uint64_t model_bytes; /* of all its files */
    char model_date[24];  /* of the newest one */
    bool there;           /* the file is */
    bool changed;         /* it is about a model of another size or date; no entries then */
    uint32_t n;
    sl_kept_entry entry[SL_KEPT_ENTRIES];
} sl_kept;

/* "4.00 GiB", "the floor" (0); out has SL_SHORT bytes. */
const char *sl_kept_budget(char *out, uint64_t memory_bytes);

void sl_machine_look(sl_machine *out);
bool sl_machine_same(const sl_machine *a, const sl_machine *b);

/* Reads the model's file, if there is one. SL_EUNSUPPORTED: there is no home to keep anything in.
 * SL_EIO, SL_EFORMAT: it cannot be read or makes no sense; err names it. *out then has the path. */
sl_status sl_kept_load(const sl_checkpoint *c, sl_kept *out, sl_err *err);
/* The entry of this machine whose budget is nearest, within SL_KEPT_RATIO; NULL: none. */
const sl_kept_entry *sl_kept_find(const sl_kept *k, const sl_machine *m, uint64_t memory_bytes);
/* Whether the file can be written, before the work is done. Makes its folder. */
sl_status sl_kept_check(const sl_kept *k, sl_err *err);
/* Puts e (NULL: nothing) in the place of what sl_kept_find() finds. Fills its machine, budget, date
 * and version. */
sl_status sl_kept_save(sl_kept *k, const sl_machine *m, uint64_t memory_bytes,
                       const sl_kept_entry *e, sl_err *err);
/* SL_OK also when there was none; *there says so. */
sl_status sl_kept_remove(const sl_kept *k, bool *there, sl_err *err);

/* Puts what is kept for this model, machine and budget into those options that were not given, and
 * says so in one line; or in one line why not, if there is something. Never fails; true: it set
 * some. */
bool sl_kept_use(const sl_checkpoint *c, uint64_t memory_bytes, sl_options *o);

#endif
