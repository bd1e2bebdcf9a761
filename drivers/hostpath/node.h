/* SPDX-License-Identifier: Apache-2.0 */
/* What staging and publishing share. */
#ifndef BERTH_HOSTPATH_NODE_H
#define BERTH_HOSTPATH_NODE_H

#include "drivers/hostpath/backend.h"

/* The path as mountinfo shows it (mount_path_resolve), in the arena. NULL and 3 for a path with "." or ".." elements or
 * that is relative, or that lies in the state directory. */
char *node_resolve_path(const struct hostpath *driver, struct csi_arena *arena, const char *what, const char *path,
                        struct err *err);
/* Whether the volume is attached at its staging path and works. */
int node_is_staged(struct hostpath *driver, const struct volume *volume, bool *staged, struct err *err);
/* Mounts the volume (block: attaches it) at its staging path. What is left of a failed try is taken away. */
int node_attach(struct hostpath *driver, const struct volume *volume, const struct mount_options *options,
                struct err *err);

#endif
