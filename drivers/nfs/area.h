/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver keeps on a share beside the volumes, in a directory that only its own user may enter:
 *
 *     .berth/volumes/ID.json      a record per volume: written before anything else is made, removed last
 *     .berth/snapshots/ID.json    a record per snapshot: written last, so that one with a record is whole
 *     .berth/snapshots/ID         its files
 *     .berth/tree/…               a shadow of the directories volumes live in: for a volume in a/b there are the
 *                                 directories a and a/b, in the latter a file "#v#ID". A file "#made" says that we made
 *                                 the real directory
 *     .berth/incoming/ID          a copy under way: renamed to where it belongs when it is whole
 *     .berth/trash/ID             being removed
 *     .berth/users/ID/NODE        touched by each node that has the volume mounted
 *
 * Everything is one small file or an atomic rename, so that several controllers may work on one share.
 */
#ifndef BERTH_NFS_AREA_H
#define BERTH_NFS_AREA_H

#include "drivers/nfs/share.h"
#include "lib/base/str.h"

struct area { /* handles of the directories above */
    struct share *share;
    struct share_fh top, volumes, snapshots, tree, incoming, trash, users;
};
/* Makes what is missing. */
int area_open(struct share *share, struct area *area, struct err *err);
/* 1 = found, 0 = the share has none (no volume was ever made there), -1 = error. */
int area_find(struct share *share, struct area *area, struct err *err);

/* ---- the shadow tree: which directory belongs to whom. `path` is a volume's directory. ---- */

/* Says that volume `id` lives in `path`. Repeatable. */
int place_claim(struct area *area, const char *path, const char *id, struct err *err);
int place_release(struct area *area, const char *path, const char *id, struct err *err); /* absent = 0 */
/* Says that we are about to make the real directory. */
int place_mark_made(struct area *area, const char *path, struct err *err);
int place_unmark_made(struct area *area, const char *path, struct err *err);

struct place {
    bool made;          /* by us */
    bool claimed;       /* by the volume asked for */
    struct strv others; /* further volumes in it */
    struct strv below;  /* volumes in directories below it */
};
void place_clear(struct place *place);
#define auto_place __attribute__((cleanup(place_clear)))
int place_look(struct area *area, const char *path, const char *id, struct place *place, struct err *err);
/* Removes the directories above `path` that we made and that are empty, from the deepest up; and the shadows of `path`
 * and of those. What is not empty, was not made by us, or has a volume in it, stays. */
int place_prune(struct area *area, const char *path, struct err *err);

/* ---- who has it mounted ---- */

#define USER_STALE (10 * 60) /* seconds after which a node that did not say so again does not count */
int users_touch(struct area *area, const char *id, const char *node, struct err *err);
int users_remove(struct area *area, const char *id, const char *node, struct err *err); /* absent = 0 */
/* Adds the names of the nodes. */
int users_list(struct area *area, const char *id, struct strv *nodes, struct err *err);
int users_forget(struct area *area, const char *id, struct err *err); /* the volume is gone */

#endif
