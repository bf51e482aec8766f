/* When guessing pays: for each unit, what its guesses brought and what they wasted, in bytes, of
 * about the last SL_PREDICT_PASSES passes. Where more was wasted than brought no hint is taken, but
 * for a try now and then. A hint for more than one unit ahead has to be right twice as often as
 * wrong: most of what it brings, the next hint would bring as well, a little later (measured:
 * docs/experiments.md). */
#ifndef SL_PREDICT_H
#define SL_PREDICT_H

#include "base.h"

enum {
    SL_PREDICT_PASSES = 16,
    SL_PREDICT_RETRY = 16, /* passes from one try to the next */
    SL_PREDICT_FAR = 2     /* what is useful for each byte wasted, more than a unit ahead */
};

typedef struct sl_predict {
    double useful, wasted;
    uint32_t silent; /* passes since hints were last taken */
} sl_predict;

/* Before the hints of a pass are taken. */
bool sl_predict_pays(sl_predict *p, bool far);
/* When the unit has said what it needs: bytes read for guesses, that it needed and that it did not.
 */
void sl_predict_learn(sl_predict *p, uint64_t useful, uint64_t wasted);

#endif
