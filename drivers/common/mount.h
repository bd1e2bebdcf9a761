/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts as a CSI node service needs them: what is mounted where (from mountinfo, so a dead mount cannot hang the
 * look), bind mounts, and taking mounts and targets away without ever removing what lies below them. */
#ifndef BERTH_DRIVERS_MOUNT_H
#define BERTH_DRIVERS_MOUNT_H

#include "lib/base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct mount_entry { /* all owned by the list */
    char *mount_point, *root, *fs_type, *source, *options;
    unsigned major, minor;
    bool read_only;
};
struct mount_list {
    struct mount_entry *items;
    size_t len;
};
void mount_list_free(struct mount_list *list);
#define auto_mounts __attribute__((cleanup(mount_list_free)))
int mount_list_read(struct mount_list *list, struct err *err);
/* The topmost mount on exactly this path (symlinks in its parent are resolved), or NULL. */
const struct mount_entry *mount_list_find(const struct mount_list *list, const char *path);
/* *mounted: something is mounted on exactly this path. */
int mount_is_point(const char *path, bool *mounted, struct err *err);

/* Binds source (a directory, or a file or device for block) on target, which must exist; read_only needs a second step
 * in the kernel and is undone when that fails. Not recursive; propagation is left as it is. */
int mount_bind(const char *source, const char *target, bool read_only, struct err *err);
/* The same with flags of mount_options (MS_RDONLY, MS_NOSUID …) for this one mount. */
int mount_bind_flags(const char *source, const char *target, unsigned long flags, struct err *err);
/* Makes the mount on exactly this path read-only, whatever other mounts of the same file system are. */
int mount_make_read_only(const char *path, unsigned long flags, struct err *err);
/* Unmounts everything that is stacked on exactly this path; dead FUSE or NFS mounts are detached lazily. Nothing
 * mounted = 0. */
int mount_remove(const char *path, struct err *err);

/* Makes the target of a publish: a directory with `mode`, or an empty file; its parent must exist. An existing one of
 * the right kind is fine. */
int mount_target_make(const char *path, bool directory, struct err *err);
/* Unmounts and removes the target itself: rmdir, or unlink of an empty file or a device; never what is in it.
 * Absent = 0. */
int mount_target_remove(const char *path, struct err *err);

/* The path as mountinfo shows it: symlinks in its parent resolved (kubelet's directory is often one), its last element
 * left as it is, no slashes too many. A parent that does not exist leaves the path as it is. Owned by the caller. */
char *mount_path_resolve(const char *path);
/* An absolute path without "." and ".." elements, at most PATH_MAX, and not the root: what a CSI path has to be. */
bool mount_path_is_safe(const char *path);

#endif
