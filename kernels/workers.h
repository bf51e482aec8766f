/* Persistent worker threads for parallel regions. The caller of sl_workers_run() is worker 0. One
 * region at a time per pool. */
#ifndef SL_WORKERS_H
#define SL_WORKERS_H

#include <stddef.h>
#include <stdint.h>

typedef struct sl_workers sl_workers;

/* task: 0 .. n_tasks-1, each exactly once. worker: 0 .. count-1, for per-thread scratch. */
typedef void sl_task_fn(void *ctx, size_t task, unsigned worker);

/* n_threads including the caller; 0: the physical cores of this thread's affinity mask. NULL: no
 * memory or no thread (errno). */
sl_workers *sl_workers_open(unsigned n_threads);
void sl_workers_close(sl_workers **w);
unsigned sl_workers_count(const sl_workers *w);
/* Returns when all tasks are done. Tasks are split statically in contiguous runs, with stealing at
 * the tail. What tasks wrote is visible to the caller, and what the caller wrote before is visible
 * to the tasks. Workers spin briefly, then sleep. */
void sl_workers_run(sl_workers *w, sl_task_fn *fn, void *ctx, size_t n_tasks);
/* Stack bytes of all threads but the caller, for the budget. */
uint64_t sl_workers_stack_bytes(const sl_workers *w);
unsigned sl_cpu_physical_cores(void); /* in the affinity mask; at least 1 */

#endif
