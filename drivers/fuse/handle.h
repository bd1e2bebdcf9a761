/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Node ids: the numbers by which the kernel names the files of a mounted volume to us. They must mean the same to every
 * process that ever serves the mount, so they are made from the backing file system's own file handles:
 *
 *   - where a handle is 8 bytes (ext2/3/4: inode number and generation), the node id is the handle itself, and nothing
 *     needs to be remembered;
 *   - elsewhere (XFS, btrfs, tmpfs) it is a hash of the handle, which is remembered as long as the kernel knows the
 *     file. A process that took over finds the handles of earlier days by walking the volume once.
 *
 * A handle has the inode's generation in it, so the number of a removed file never leads to a file that got its inode
 * number later, perhaps in somebody else's volume. The root is node 1.
 */
#ifndef BERTH_FUSE_HANDLE_H
#define BERTH_FUSE_HANDLE_H

#include "lib/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HANDLE_MAX 128
struct handle {
    uint32_t length; /* of bytes */
    int32_t type;
    unsigned char bytes[HANDLE_MAX];
};

/* Pure: the node id of a handle. 0 and 1 never come out. */
uint64_t handle_node_id(const struct handle *handle);
bool handle_is_exact(const struct handle *handle);
/* The handle of an exact node id (type: of any handle of that file system). */
void handle_from_node_id(uint64_t node_id, int32_t type, struct handle *handle);

struct handles; /* of one volume; thread-safe */
/* root_fd is borrowed. Fails with ERR_INVALID when the file system has no handles. */
struct handles *handles_new(int root_fd, struct err *err);
void handles_free(struct handles *handles);
bool handles_are_exact(const struct handles *handles);
/* The node id of dir_fd/name (not followed; "" = dir_fd itself). Returns 0 or -errno; -EXDEV: another mount begins
 * there. With `lookups` > 0 the handle is remembered until as many were forgotten. */
int handles_identify(struct handles *handles, int dir_fd, const char *name, uint64_t lookups, uint64_t *node_id);
/* Opens the file of a node id with open(2)'s flags. The descriptor, -ESTALE when there is no such file, or -errno. */
int handles_open(struct handles *handles, uint64_t node_id, int flags);
void handles_forget(struct handles *handles, uint64_t node_id, uint64_t lookups);
/* The handle itself, for those who come back to a directory later without keeping it open. As identify and open. */
int handles_read(struct handles *handles, int dir_fd, const char *name, struct handle *handle);
int handles_open_handle(struct handles *handles, const struct handle *handle, int flags);
/* Remembers without counting (from the walk after a take-over); taken away by the next forget. Returns as identify. */
int handles_recover(struct handles *handles, int dir_fd, const char *name);

#endif
