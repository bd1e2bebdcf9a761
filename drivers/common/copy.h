/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of files and of whole trees, as fast as the file systems allow: shared blocks (FICLONE) where they can, else
 * copy_file_range, else read and write. Holes stay holes.
 *
 * A tree is copied by descriptors: no symlink is followed, no other mount entered, whatever somebody changes in the
 * source meanwhile. Copied are owners, modes, times (ns), extended attributes with ACLs and file capabilities, hard
 * links within the tree, symlinks, fifos, sockets and devices.
 */
#ifndef BERTH_DRIVERS_COPY_H
#define BERTH_DRIVERS_COPY_H

#include "lib/base/clock.h"
#include "lib/base/err.h"
#include "lib/base/stop.h"

#include <stdbool.h>
#include <stdint.h>

struct copy {
    struct stop *stop;    /* once requested the copy ends with ERR_CANCELLED; may be NULL */
    struct clock *clock;  /* of the progress lines */
    const char *what;     /* for them: "volume X from snapshot Y"; one line every 10 s */
    bool skip_unreadable; /* leave out files that cannot be read (counted) instead of failing */
    /* what was done so far */
    int64_t bytes, files, skipped;
    /* inside */
    bool no_clone, no_range;
    int64_t started, next_report;
    void *buffer;
};
void copy_free(struct copy *copy); /* what is inside */
#define auto_copy __attribute__((cleanup(copy_free)))

/* Shares the blocks of a file with an empty one, at one point of time; false where the file system cannot. */
bool copy_try_clone(struct copy *copy, int from, int to);
/* Data and size of a regular file into an empty one. The destination is not synced. ERR_IO …; no space is ERR_RPC with
 * 8 RESOURCE_EXHAUSTED. */
int copy_file_data(struct copy *copy, int from, int to, struct err *err);
/* The contents of directory `from` into the empty directory `to`, whose own attributes become those of `from`; then
 * everything is made durable. A file that vanishes meanwhile is left out. */
int copy_tree(struct copy *copy, int from, int to, struct err *err);

/* Bytes on disk (st_blocks) and inodes of a tree, hard links counted once; other mounts are not entered. ERR_TIMEOUT
 * when `deadline` (monotonic) passes first. */
int tree_usage(int directory, struct clock *clock, int64_t deadline, int64_t *bytes, int64_t *inodes, struct err *err);

#endif
