/* What this machine gives, for the bounds that plan and bench print. Main thread only. */
#ifndef SL_RATES_H
#define SL_RATES_H

#include "setup.h"

/* Where a disk's rate is from: options; what sluice disk kept; a measurement just now. */
typedef enum sl_rate_source { SL_RATE_GIVEN, SL_RATE_KEPT, SL_RATE_MEASURED } sl_rate_source;
const char *sl_rate_source_name(sl_rate_source s); /* "given", "kept", "measured" */

/* Bytes per second of the disk that holds the model: the first of these that is there. Measured are
 * direct reads of the model's own files for about a second, in at most half of what is free (rate
 * 0: that is too little); the model's plan is laid out anew then. Before load only. */
sl_status sl_rates_disk(sl_setup *s, const sl_options *o, double *rate, sl_rate_source *source,
                        sl_err *err);
/* Bytes per second that the workers read from more memory than most caches hold, in at most a
 * quarter of what is free (0: that is too little). */
sl_status sl_rates_memory(const sl_setup *s, double *rate, sl_err *err);

/* Seconds that the disk and the memory need at the least for so many bytes; 0: not known. */
double sl_rates_bound(double disk, double memory, double read_bytes, double used_bytes);

#endif
