/* What memory gives to this program's threads: sequential reads. */
#ifndef SL_MEMORY_RATE_H
#define SL_MEMORY_RATE_H

#include "../kernels/workers.h"
#include "../stream/base.h"

/* Bytes per second that the workers together read from bytes of memory (allocated in huge pages
 * where there are any, and touched): each adds up one piece after the other, in order, with the
 * CPU's own prefetcher and with prefetches at several distances; the best walk of all counts. Of
 * memory not much larger than the last cache, a part comes from there: what is compared should have
 * the same size. SL_ENOMEM: none to be had. */
sl_status sl_memory_rate(sl_workers *w, uint64_t bytes, double *rate, sl_err *err);

/* Memory in huge pages where the kernel gives them, as weights lie in it; free() gives it back. */
void *sl_huge_alloc(uint64_t bytes);

#endif
