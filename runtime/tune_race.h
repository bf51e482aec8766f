/* sluice tune on the machine: settings race against the defaults and each other. Every run is one
 * of trial.h, in a process of its own; its output must be that of the first. Main thread only. */
#ifndef SL_TUNE_RACE_H
#define SL_TUNE_RACE_H

#include "tune_space.h"

/* When a setting counts as better (docs/tuning.md has the reasons): the median of its pairs with
 * the defaults is at least this, and so many faster pairs come by chance at most this often. */
#define SL_TUNE_GAIN   0.03
#define SL_TUNE_CHANCE 0.02

enum { SL_DUEL_PAIRS = 64 };

typedef struct sl_race {
    const sl_options *base; /* what the settings go over */
    const int32_t *cold_ids, *warm_ids;
    uint32_t n_prompt, n_tokens;
    uint64_t begin_ns, end_ns;
    uint32_t n_runs;
    double run_s;     /* what a run took of late, from its start to its end */
    uint32_t n_usual; /* of runs with the defaults: how much they differ */
    double mean, squares;
    const char *why; /* of the next run, for the log; NULL: it races */
    bool hashed;
    uint64_t hash;
    uint64_t wrong_run; /* for tests: the run whose output is to differ; 0: none */
    void (*log)(void *ctx, sl_log_level level, const char *text); /* of the runs */
    void *log_ctx;
} sl_race;

typedef struct sl_duel {
    uint32_t n, faster;
    double usual[SL_DUEL_PAIRS], other[SL_DUEL_PAIRS]; /* seconds */
    double gain;   /* median over the pairs of usual / other - 1 */
    double chance; /* that as many pairs or more are faster if nothing differs */
} sl_duel;

/* A run. Seconds of its four parts. SL_EFORMAT: another output than the first run's. The log line
 * on stderr says the setting and what came of it. whole: all of what was measured, or NULL. */
sl_status sl_race_run(sl_race *r, const sl_setting *s, double *seconds, sl_trial *whole,
                      sl_err *err);
bool sl_race_time_for(const sl_race *r, uint64_t until_ns, uint32_t n_runs);

/* Successive halving: each of the settings once beside the defaults, the better half again, until
 * one is left (it comes to the front) or the time is over. *ratio: its seconds over the defaults'.
 */
sl_status sl_race_halve(sl_race *r, sl_setting *s, uint32_t n, uint64_t until_ns, double *ratio,
                        sl_err *err);
/* Option by option, those first that the simulator does not know: a neighbour of its value takes
 * its place if two runs say that it is faster. *ratio: seconds over what they were. */
sl_status sl_race_climb(sl_race *r, const sl_space *space, sl_point *p, uint64_t until_ns,
                        double *ratio, sl_err *err);
/* Defaults, setting, setting, defaults, and so on, until it is certain which it is. */
sl_status sl_race_duel(sl_race *r, const sl_setting *s, sl_duel *out, sl_err *err);
/* The pairs say that the setting is better; that it is not. */
bool sl_duel_won(const sl_duel *d);
bool sl_duel_lost(const sl_duel *d);
/* Fills gain, faster and chance from the pairs. */
void sl_duel_judge(sl_duel *d);

#endif
