/* The most hits that any policy could have (Belady, "A study of replacement algorithms for a
 * virtual-storage computer", 1966): of what is there and what comes, keep the parts whose next use
 * is nearest. It knows the future, so it is a bound, and nothing to run. Guesses may beat it: they
 * bring parts that nobody has asked for yet. */
#ifndef SL_OPTIMAL_H
#define SL_OPTIMAL_H

#include "base.h"

/* Requests in order; each wants some parts at once. */
typedef struct sl_optimal_needs {
    uint64_t n;
    const uint32_t *part;
    const uint32_t *request; /* of each need: which request it belongs to, ascending */
    const uint8_t *counted;  /* whether its hit counts; others may be kept, for nothing */
    uint32_t n_parts, n_classes;
    const uint32_t *class_of; /* by part */
    const uint32_t *slots;    /* by class */
} sl_optimal_needs;

sl_status sl_optimal_hits(const sl_optimal_needs *o, uint64_t *hits, sl_err *err);

#endif
