/* SPDX-License-Identifier: Apache-2.0 */
/* Helper processes. The driver never forks itself: it starts programs (mount, and itself under another name). */
#ifndef BERTH_NFS_SPAWN_H
#define BERTH_NFS_SPAWN_H

#include "lib/base/clock.h"
#include "lib/base/err.h"
#include "lib/base/str.h"

#include <sys/types.h>

/* Starts it with stdin closed and stdout and stderr going into a pipe; *output is its read end. With `detached` it gets
 * a session of its own, so that it outlives us. */
int spawn_start(const struct strv *argv, bool detached, pid_t *pid, int *output, struct err *err);
/* Adds what it writes to `out` until it closes the pipe, writes a line (when `line`), or the deadline passes: false. */
bool spawn_read(int output, bool line, struct clock *clock, int64_t deadline, struct str *out);
/* Waits for its end; false when the deadline passes. *status as from waitpid. */
bool spawn_wait(pid_t pid, struct clock *clock, int64_t deadline, int *status);
/* All of it: 0 and its output, or -1: could not start, ended with another status than 0 (the message has its output),
 * or was killed at the deadline. *stuck is the pid of one that does not even die (it waits for a dead server), else 0.
 */
int spawn_run(const struct strv *argv, struct clock *clock, int64_t deadline, struct str *out, pid_t *stuck,
              struct err *err);

#endif
