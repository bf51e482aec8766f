/* How much each expert of a model was used, kept from one run to the next, so that the pool's first
 * choices are those of the last run's end: $XDG_CACHE_HOME/sluice (else ~/.cache/sluice), a file
 * per model, told apart by path, size and time of its files. docs/formats.md has the format. A file
 * that is damaged, foreign or out of date is ignored; one that cannot be written is worth a note.
 */
#ifndef SL_WARM_START_H
#define SL_WARM_START_H

#include "setup.h"

/* What is kept for the model's n experts, log2 of each one's uses (sl_stream_uses_get());
 * malloc'ed, the caller frees. NULL: nothing that can be used. The model need not be loaded. */
float *sl_warm_start_uses(const sl_setup *s, uint32_t n);
void sl_warm_start_load(const sl_setup *s);
void sl_warm_start_save(const sl_setup *s);

#endif
