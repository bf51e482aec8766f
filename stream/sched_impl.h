/* Between the files of the scheduler: sched.c (the pass's order, fetches, reads) and on_demand.c
 * (parts that are needed, hinted and evicted). */
#ifndef SL_SCHED_IMPL_H
#define SL_SCHED_IMPL_H

#include "sched.h"

/* Fetches that needs and hints leave to others, so that a row or a unit's part never waits. */
enum { SL_FETCHES_SPARED = 4 };

void sl_fetch_list_add(sl_sched *s, sl_fetch *f, sl_priority priority);
void sl_fetch_list_remove(sl_sched *s, sl_fetch *f);
void sl_fetch_free(sl_sched *s, sl_fetch *f);
/* ABSENT -> QUEUED. False: no fetch to be had now. */
bool sl_part_queue(sl_sched *s, sl_resident *r, sl_priority priority, uint64_t pass);
/* Drops the ring's slots of one pass, from a position on. */
void sl_slots_drop(sl_sched *s, uint64_t pass, uint32_t from);
sl_status sl_failure_tell(const sl_sched *s, const sl_failure *f, sl_err *err);

sl_status sl_on_demand_open(sl_sched *s, const sl_sched_config *c, uint8_t *memory, sl_err *err);
void sl_on_demand_close(sl_sched *s);
uint64_t sl_on_demand_memory_bytes(const sl_plan *p);
/* An on-demand part's bytes are gone; its slot is still to be dropped. */
void sl_resident_forget(sl_sched *s, sl_resident *r);
/* Queues the next part that is needed (hinted) and not there. False: none, or there is no slot. */
bool sl_need_pull(sl_sched *s);
bool sl_hint_pull(sl_sched *s);
/* The last read of an on-demand part is back: it is whole, failed or no longer wanted. */
void sl_on_demand_end(sl_sched *s, sl_resident *r, bool dropped, bool failed);
/* The unit is left, the pass is over: nothing is needed; nothing is hinted either. */
void sl_needs_end(sl_sched *s);
void sl_hints_end(sl_sched *s);
/* What failed may be tried again. */
void sl_on_demand_forget(sl_sched *s);

#endif
