/* SPDX-License-Identifier: Apache-2.0 */
/* The mount itself. */
#ifndef BERTH_HOLDER_MOUNTING_H
#define BERTH_HOLDER_MOUNTING_H

#include "lib/base/err.h"
#include "lib/base/str.h"

#include <stdbool.h>

#define MOUNTING_TYPE "fuse.berth"

/* Flags and file system options from what a user wrote; options that a FUSE mount cannot have are ERR_INVALID. data is
 * what to add to the mount's own ("" or ",context=…"). */
int mounting_parse_options(const struct strv *list, unsigned long *flags, struct str *data, struct err *err);

/* Mounts at target, which is made when missing. What a dead file system left there is taken away; anything else that is
 * mounted there is ERR_CONFLICT. Returns the descriptor of /dev/fuse. */
int mounting_mount(const char *id, const char *target, const struct strv *options, bool read_only, unsigned *device,
                   struct err *err);
/* Whether the file system of this device number is what is mounted at target. */
int mounting_is_at(const char *target, unsigned device, bool *there, struct err *err);
/* Takes the topmost FUSE mount of ours from the target; nothing there = 0. `dead`: nobody serves it, so nothing may be
 * waited for. */
int mounting_unmount(const char *target, bool dead, struct err *err);

#endif
