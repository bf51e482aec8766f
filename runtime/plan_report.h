/* What sluice plan found, as a table with a picture, and as JSON. Main thread only. */
#ifndef SL_PLAN_REPORT_H
#define SL_PLAN_REPORT_H

#include "compute_speed.h"
#include "expect.h"
#include "reuse.h"

enum { SL_PLAN_LINES = 12 };

typedef struct sl_plan_line { /* a budget */
    const char *name;         /* "floor", "25 %", "auto"; a literal */
    sl_price price;
    double hits;
    sl_expectation expect;
} sl_plan_line;

typedef struct sl_plan_report {
    const sl_options *o;
    sl_setup setup;
    sl_plan_line line[SL_PLAN_LINES]; /* ascending */
    uint32_t n_lines;
    sl_price floor;
    uint64_t auto_bytes; /* of this machine, or of the one that is asked about */
    sl_disk_speed disk;
    const char *disk_source; /* "given", "kept", "assumed"; a literal */
    char disk_measured[24];  /* "kept": when */
    sl_compute_speed compute;
    sl_reuse reuse;
    sl_expect expect; /* of the last line, for what all have in common */
} sl_plan_report;

/* The terms of a line's limit: as sl_price.budget, with the weights' memory taken apart, and what
 * is left over: they add up to the limit. */
void sl_plan_terms(const sl_price *p, sl_budget *out);

void sl_plan_print(const sl_plan_report *r);
sl_status sl_plan_print_json(const sl_plan_report *r, sl_err *err);

#endif
