/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying a tree, within a share or from one to another: files with their holes, hard links, symlinks, fifos, sockets
 * and devices, with owners, modes and times. A symlink is copied, never followed; another file system is not entered.
 */
#ifndef BERTH_NFS_COPY_H
#define BERTH_NFS_COPY_H

#include "drivers/nfs/share.h"

struct copy {
    int64_t entries, bytes; /* so far; bytes = sizes of files, hard links once */
    int64_t owner_lost;     /* entries whose owner the server would not let us set (root_squash) */
    void (*progress)(void *arg, const struct copy *copy); /* now and then; may be NULL */
    void *arg;
};
/* Copies what is in directory `from` into the empty directory `to`, which gets from's owner, mode and times. */
int share_copy_tree(struct share *from_share, const struct share_fh *from, struct share *to_share,
                    const struct share_fh *to, struct copy *copy, struct err *err);
/* Sizes of all files below, hard links once (allocated bytes in *used); other file systems are left out. */
int share_measure_tree(struct share *share, const struct share_fh *dir, uint64_t *used, uint64_t *entries,
                       struct err *err);

#endif
