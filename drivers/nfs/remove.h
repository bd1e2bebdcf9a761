/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing what is in a directory of a share: several calls in flight, depth first, little memory, and by handles: a
 * symlink is removed as the symlink it is (also when it is swapped in meanwhile), another file system is not entered.
 * A directory that fills up while it is emptied is gone through again; what was interrupted goes on where it was.
 */
#ifndef BERTH_NFS_REMOVE_H
#define BERTH_NFS_REMOVE_H

#include "drivers/nfs/share.h"

struct removal {
    int64_t removed; /* entries so far; filled also on failure */
    /* Called now and then while it works, may be NULL. */
    void (*progress)(void *arg, int64_t removed);
    void *arg;
};
/* Empties the directory; itself, with its owner, mode and ACL, stays. `path` is for messages. */
int remove_content(struct share *share, const struct share_fh *dir, const char *path, struct removal *removal,
                   struct err *err);
/* Removes the entry `name` of `parent`, a directory with all that is in it or a single file. Absent = success. */
int remove_tree(struct share *share, const struct share_fh *parent, const char *name, struct removal *removal,
                struct err *err);

#endif
