/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program of the system (mke2fs …) without a shell, with an end: its time, or a stop. */
#ifndef BERTH_DRIVERS_TOOL_H
#define BERTH_DRIVERS_TOOL_H

#include "lib/base/clock.h"
#include "lib/base/err.h"
#include "lib/base/stop.h"

#include <stdint.h>

/* argv[0] is looked for in PATH and in /usr/sbin and /sbin. Its output goes nowhere; the end of what it says on stderr
 * goes into the error. Killed when timeout_ns is over (ERR_TIMEOUT) or `stop` (may be NULL) is requested
 * (ERR_CANCELLED). ERR_NOT_FOUND when there is no such program, ERR_IO when it fails: its exit status is above
 * max_status. */
int tool_run(const char *const *argv, int max_status, int64_t timeout_ns, struct stop *stop, struct err *err);

#endif
