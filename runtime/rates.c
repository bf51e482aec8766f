#include "rates.h"

#include <stdlib.h>

#include "disk_figures.h"
#include "memory_rate.h"

enum { MEMORY_MOST_MIB = 512, MEMORY_LEAST_MIB = 32 };

sl_status sl_rates_memory(const sl_setup *s, double *rate, sl_err *err)
{
    uint64_t mib = s->auto_bytes / 4 >> 20;
    *rate = 0;
    mib = mib > MEMORY_MOST_MIB ? MEMORY_MOST_MIB : mib;
    return mib < MEMORY_LEAST_MIB ? SL_OK : sl_memory_rate(s->workers, mib << 20, rate, err);
}

const char *sl_rate_source_name(sl_rate_source s)
{
    static const char *const name[] = {"given", "kept", "measured"};
    return name[s];
}

/* 0: nothing, or nothing that counts as measured. */
static double kept_rate(const sl_options *o)
{
    sl_disk_figures *f = malloc(sizeof *f);
    double rate = 0;
    if (f && sl_disk_figures_load(o->operand, f) && f->proven && !f->disk_limit)
        rate = sl_disk_speed_of(f).bytes_per_s;
    free(f);
    return rate;
}

static sl_status measure(sl_setup *s, double *rate, sl_err *err)
{
    sl_stream_options so = sl_stream_defaults();
    sl_err why = {0};
    sl_status st = sl_setup_faults(&so, err);
    if (!st)
        st = sl_model_replan(s->model, 4 << 20, err);
    if (st)
        return st;
    so.memory_bytes = s->auto_bytes / 2 + 1;
    st = sl_stream_measure_disk(sl_model_plan(s->model), &so, 1.0, rate, &why);
    return !st || st == SL_EBUDGET ? SL_OK : sl_fail(err, st, "%s", why.text);
}

sl_status sl_rates_disk(sl_setup *s, const sl_options *o, double *rate, sl_rate_source *source,
                        sl_err *err)
{
    *source = SL_RATE_GIVEN;
    *rate = (double)sl_setup_disk_rate(o);
    if (*rate > 0)
        return SL_OK;
    *source = SL_RATE_KEPT;
    *rate = kept_rate(o);
    if (*rate > 0)
        return SL_OK;
    *source = SL_RATE_MEASURED;
    return measure(s, rate, err);
}

double sl_rates_bound(double disk, double memory, double read_bytes, double used_bytes)
{
    if (disk <= 0 && read_bytes > 0)
        return 0;
    const double by_disk = disk > 0 ? read_bytes / disk : 0;
    const double by_memory = memory > 0 ? used_bytes / memory : 0;
    return by_disk > by_memory ? by_disk : by_memory;
}
