/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loop devices. The machine shares them all, so a device counts as ours only if its backing file is, by device and
 * inode number, one of our images; no other is ever configured, detached or opened for longer than a look.
 */
#ifndef BERTH_HOSTPATH_LOOP_H
#define BERTH_HOSTPATH_LOOP_H

#include "lib/base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define LOOP_PATH_SIZE 32 /* "/dev/loop4294967295" */

enum loop_use {
    LOOP_MOUNT,     /* to be mounted: the kernel detaches it after its last use, however our process ended */
    LOOP_BLOCK,     /* to be handed out: stays until it is detached */
    LOOP_READ_ONLY, /* the same, and nobody can write to it */
};
/* Attaches the image to a free device, with direct i/o where the host's file system can. Returns the open device, which
 * keeps it attached until it is mounted, or -1. `name` is for losetup's list. For LOOP_READ_ONLY the image has to be
 * open for reading only. */
int loop_attach(int image, const char *name, enum loop_use use, char path[LOOP_PATH_SIZE], struct err *err);
/* *found: a device of this sort (LOOP_MOUNT and LOOP_BLOCK are the same here) is attached to this image; its path is
 * filled in. */
int loop_find(int image, enum loop_use use, bool *found, char path[LOOP_PATH_SIZE], struct err *err);
/* Detaches every device of this image; those still in use follow after their last use. None = 0. */
int loop_detach(int image, struct err *err);
/* The devices of this image take over its present size. *size, bytes (may be NULL), is that of the last one. */
int loop_refresh_size(int image, int64_t *size, struct err *err);
/* Writes what the device has cached to the image. */
int loop_flush(int image, struct err *err);

#endif
