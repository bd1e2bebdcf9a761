/* SPDX-License-Identifier: Apache-2.0 */
/* Image files: sparse, of the volume's size; an ext4 file system in them (backend loop) or just bytes (block). */
#ifndef BERTH_HOSTPATH_IMAGE_H
#define BERTH_HOSTPATH_IMAGE_H

#include "drivers/common/copy.h"
#include "lib/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* The size of the image of a volume: a device has whole sectors of 512 bytes, and never less than was promised. */
int64_t image_size_for(int64_t capacity);
/* The smallest ext4 that is worth the name. */
#define IMAGE_EXT4_MIN ((int64_t)1 << 20)

/* Lengthens the image to `size`; a longer one is left alone. Durable. */
int image_grow(int image, int64_t size, struct err *err);
/* Makes an empty ext4 file system in the image at `path`: no blocks kept for root, nothing written that is zero. */
int image_format(const char *path, int64_t size, struct stop *stop, struct err *err);
/* Whether the ext4 in the image ends so far before the image that growing it makes a difference. */
int image_ext4_is_short(int image, bool *is_short, struct err *err);
/* Grows the mounted ext4 at `mount_point` to the size of its device. 9 FAILED_PRECONDITION when the kernel does not let
 * us (CAP_SYS_RESOURCE). */
int image_resize_mounted(const char *mount_point, int64_t device_bytes, struct err *err);
/* Grows the ext4 in the image, which is not mounted anywhere, to its size. */
int image_resize_unmounted(const char *path, struct err *err);

/* Stops writes to the file system at the mount point until image_thaw; returns a handle >= 0. */
int image_freeze(const char *mount_point, struct err *err);
void image_thaw(int handle); /* < 0 = nothing to do */
/* After a crash: thaws it if it is frozen. */
void image_thaw_mount(const char *mount_point);

/* A copy of the image at one point of time: with shared blocks where the file system has them; else the image must not
 * change while it is copied, which is checked: after a few tries that somebody's writes spoiled the answer is 10. The
 * copy is durable. */
int image_copy(struct copy *copy, int from, int to, struct err *err);

#endif
