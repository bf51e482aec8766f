/* Where sluice tune looks: for each option that can matter for a model under its budget, the values
 * to try. A point is one value for each; place 0 leaves the option open. Values only: what options
 * there are, and what they accept, is the option table's (args.h). */
#ifndef SL_TUNE_SPACE_H
#define SL_TUNE_SPACE_H

#include "setting.h"
#include "trial.h"

enum { SL_DIM_VALUES = 40, SL_SPACE_DIMS = 16 };

typedef struct sl_dim {
    const char *name;
    uint32_t n;                          /* places, the open one included */
    char value[SL_DIM_VALUES][SL_VALUE]; /* value[0]: not used */
    uint32_t usual; /* the place whose value is nearest to the default; 0: places have no order */
    bool exact;     /* the usual place's value is the default */
    bool simulated; /* the simulator knows what it does */
} sl_dim;

typedef struct sl_space {
    uint32_t n;
    sl_dim dim[SL_SPACE_DIMS];
} sl_space;

typedef struct sl_point {
    uint8_t at[SL_SPACE_DIMS];
} sl_point;

/* What a run with the defaults was like says what can matter: nothing about streaming where
 * everything stays, nothing about experts where there are none. */
void sl_space_make(sl_space *out, const sl_survey *model, const sl_trial *usual, uint32_t n_prompt);
/* The place that says the same as this one: the open one instead of the default's value. */
uint32_t sl_dim_place(const sl_dim *d, uint32_t place);
sl_setting sl_space_setting(const sl_space *s, const sl_point *p);
/* The point of a setting; values that are not in the space are added to it. Options that it has no
 * dimension for are left out. */
sl_point sl_space_point(sl_space *s, const sl_setting *setting);

#endif
