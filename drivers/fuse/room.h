/* SPDX-License-Identifier: Apache-2.0 */
/* Making room for an operation before it is done, and counting what it took. */
#ifndef BERTH_FUSE_ROOM_H
#define BERTH_FUSE_ROOM_H

#include "drivers/fuse/volume.h"

/* Room for writing [offset, offset + length) of a regular file; node->lock held, fd its descriptor. Returns how much of
 * it may be written: all, or with `partial` as much as fits, up to a block's border; then room_used_data must follow.
 * -ENOSPC when nothing fits: the space that exists was tried to the last block. */
int64_t room_for_data(struct volume *volume, struct node *node, int fd, int64_t offset, int64_t length, bool partial,
                      int64_t *reserved);
/* Counts what the file has now; *st (may be NULL) is its state. */
void room_used_data(struct volume *volume, struct node *node, int fd, int64_t reserved, struct stat *st);
/* For what only frees (truncate, punch): enters without reserving. room_used_data follows. Returns 0 or -errno. */
int room_for_less(struct volume *volume, struct node *node, int fd);

/* Room for `bytes` of something new or growing, and with `inode` for one more file. 0, or -ENOSPC. Even with 0 bytes
 * the volume must not be over its limit by more than `slack`. room_leave (or room_undo) follows. */
int room_for_new(struct volume *volume, int64_t bytes, bool inode, int64_t slack);
/* Whether `delta` bytes instead of those reserved still fit. */
bool room_fits(struct volume *volume, int64_t reserved, int64_t delta);
void room_leave(struct volume *volume, int64_t reserved, int64_t delta);
/* The new file is gone again; what else grew (delta) stays. */
void room_undo(struct volume *volume, int64_t reserved, int64_t delta, bool inode);

/* Of the blocks of [offset, offset + length), those which are not allocated, up to `room` bytes of them: returns how
 * far from offset one gets with that (all of length, or up to a block's border), and the bytes in *holes. */
int64_t room_count_holes(int fd, int64_t offset, int64_t length, int64_t room, int64_t *holes);

#endif
