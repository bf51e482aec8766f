/* A function in a process of its own: it starts from the same memory every time, its peak is its
 * own, and if the kernel kills it only its result is missing. The caller has one thread. */
#ifndef SL_CHILD_H
#define SL_CHILD_H

#include "../stream/base.h"

/* In the child. Fills the result, which is a plain structure without pointers; it arrives also
 * after an error. */
typedef sl_status sl_child_fn(const void *ctx, void *result, sl_err *err);

/* What the parent does meanwhile; both may be NULL. */
typedef struct sl_child_watch {
    void (*progress)(void *ctx, uint32_t permille);
    void (*log)(void *ctx, sl_log_level level, const char *text);
    void *ctx;
} sl_child_watch;

/* Returns what fn returned, with its error. SL_ECANCELLED: stopped by Ctrl-C (sl_interrupted() is
 * true, and was in the child, so that it ended in good order). SL_EIO: no process, or it died; err
 * says of what. In the child nothing but errors that cannot be told is printed, logs go to the
 * parent, and sl_interrupted() works. */
sl_status sl_child_run(sl_child_fn *fn, const void *ctx, void *result, size_t len,
                       const sl_child_watch *watch, sl_err *err);

/* In the child, from the main thread: how far it is. Cheap: told at most ten times a second. */
void sl_child_progress(uint32_t permille);

#endif
