#include "predict.h"

bool sl_predict_pays(sl_predict *p, bool far)
{
    const double most = p->useful / (far ? SL_PREDICT_FAR : 1);
    const bool pays = p->wasted <= most || ++p->silent >= SL_PREDICT_RETRY;
    if (pays)
        p->silent = 0;
    return pays;
}

void sl_predict_learn(sl_predict *p, uint64_t useful, uint64_t wasted)
{
    const double keep = 1 - 1.0 / SL_PREDICT_PASSES;
    if (!useful && !wasted) /* nothing was read: nothing is learnt */
        return;
    p->useful = p->useful * keep + (double)useful;
    p->wasted = p->wasted * keep + (double)wasted;
}
