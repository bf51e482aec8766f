/* sluice bench --kernels. */
#ifndef SL_BENCH_KERNELS_H
#define SL_BENCH_KERNELS_H

#include "args.h"

int sl_bench_kernels(const sl_options *o); /* the exit status */

#endif
