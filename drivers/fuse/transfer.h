/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing all of a range, through short counts and interruptions. */
#ifndef BERTH_FUSE_TRANSFER_H
#define BERTH_FUSE_TRANSFER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Fewer bytes than asked for mean the end of the file, and nothing else: the kernel takes a short answer for that.
 * -errno when any part cannot be read. */
ssize_t transfer_read(int fd, void *buffer, size_t size, int64_t offset);
/* What was written before it failed; -errno when that is nothing. */
ssize_t transfer_write(int fd, const void *data, size_t size, int64_t offset);

#endif
