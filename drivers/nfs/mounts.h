/* SPDX-License-Identifier: Apache-2.0 */
/* Mounting a volume on this node: by the kernel's NFS client, or by a FUSE process over libnfs. */
#ifndef BERTH_NFS_MOUNTS_H
#define BERTH_NFS_MOUNTS_H

#include "drivers/nfs/driver.h"

#include <pthread.h>

struct nfs_mount { /* borrowed strings */
    struct share_location where;
    const char *sub_dir; /* "" = the whole share */
    const char *options; /* of the class or volume, comma-separated; "" = none */
    const char *config;  /* file for the FUSE process; it looks again when the file changes */
    int64_t limit;       /* bytes; 0 = none */
};

/* The kernel has an NFS client (its module is loaded when needed). `path` is an existing directory. */
bool kernel_has_nfs(const char *path);
/* "mount -t nfs -o OPTIONS server:/share/subDir TARGET"; port, mountport and version come from the location when the
 * options do not say. Refuses options that would leave NFS or run programs. */
int kernel_mount_command(const struct nfs_mount *mount, const char *target, struct strv *argv, struct err *err);
int kernel_mount(const struct nfs_driver *driver, const struct nfs_mount *mount, const char *target, int64_t deadline,
                 struct err *err);

/* Writes the process's configuration durably; a running process takes the new limit within a second. */
int fuse_write_config(const struct nfs_driver *driver, const struct nfs_mount *mount, struct err *err);
/* Writes the configuration, starts the process and waits until the file system is mounted on target. */
int fuse_mount_volume(const struct nfs_driver *driver, const struct nfs_mount *mount, const char *target,
                      int64_t deadline, struct err *err);

struct staged;
/* Mounts a volume that this node knows on `target`, an existing directory. */
int nfs_mount_staged(struct nfs_driver *driver, struct staged *staged, const char *target, struct err *err);
/* Replaces the mounts whose FUSE process ended with an earlier driver, in a thread that ends when all are, or with the
 * driver; the caller joins it. */
pthread_t mend_start(struct nfs_driver *driver);

#endif
