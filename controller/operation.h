/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long operations (delete, recycle, provision), one at a time per name. A name whose operation failed may start again
 * only after a back-off: 500 ms at first, doubled each time, 122 s at most (as upstream). Names carry the object's uid,
 * so an object made anew starts fresh.
 */
#ifndef BERTH_CONTROLLER_OPERATION_H
#define BERTH_CONTROLLER_OPERATION_H

#include "lib/base/clock.h"
#include "lib/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define OPERATION_PAUSE_TIME (100 * CLOCK_MS)

struct operations;
/* What an operation's function returns. */
enum operation_end {
    OPERATION_FAILED = -1, /* starts or doubles the back-off */
    OPERATION_DONE = 0,
    OPERATION_PAUSE = 1, /* no back-off, but not at once: not for the news of what the operation itself has written */
};
enum operation_start {
    OPERATION_STARTED,
    OPERATION_RUNNING,   /* one of this name runs already */
    OPERATION_POSTPONED, /* inside the back-off: ask again later */
    OPERATION_FULL,      /* as many threads as may be: ask again later */
};
/* threads: how many operations run in threads of their own at most. */
struct operations *operations_new(struct clock *clock, size_t threads);
/* Waits for those that run. */
void operations_free(struct operations *operations);
typedef enum operation_end (*operation_fn)(void *arg);
/* Runs fn(arg) in a thread; fn frees arg. When it is not started, arg stays the caller's. */
enum operation_start operations_run(struct operations *operations, const char *name, operation_fn fn, void *arg);
/* The same for the caller's own thread: begin, and when it said STARTED, end. */
enum operation_start operations_begin(struct operations *operations, const char *name);
void operations_end(struct operations *operations, const char *name, enum operation_end end);
bool operations_running(struct operations *operations, const char *name);
/* Forgets the back-off of an object that is gone; a running one is left alone. */
void operations_forget(struct operations *operations, const char *name);
size_t operations_len(struct operations *operations);
/* "delete-pv-1[uid]"; owned by the caller. */
char *operation_name(const char *verb, const char *object, const char *uid);

#endif
