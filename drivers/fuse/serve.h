/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that serve the kernel's calls, and the beginning: INIT, or taking over from a process that is gone. */
#ifndef BERTH_FUSE_SERVE_H
#define BERTH_FUSE_SERVE_H

#include "drivers/fuse/volume.h"

#include <stdbool.h>

#define SERVE_MAX_THREADS 16

struct serve_options {
    int fd;                /* of /dev/fuse; borrowed */
    int threads;           /* 1 … SERVE_MAX_THREADS */
    const char *init_file; /* where the INIT exchange is kept; NULL = nowhere, nobody can take over then */
    bool reattach;
};
struct serve;
/* Answers INIT, or with `reattach` takes the mount over and has the kernel repeat the calls that were under way; then
 * starts the threads. ERR_CANCELLED: it was unmounted before it began. */
struct serve *serve_start(struct volume *volume, const struct serve_options *options, struct err *err);
/* Readable once all threads have ended. */
int serve_done_fd(const struct serve *serve);
/* Ends the threads after the calls they are at; the mount stays. */
void serve_stop(struct serve *serve);
/* Joins; the reason they ended: 0 = unmounted or stopped, -1 = an error. */
int serve_finish(struct serve *serve, struct err *err);

#endif
