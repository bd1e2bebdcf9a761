/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The volumes mounted on this node: remembered in files (STATE/node/HASH.json), so that a restarted driver goes on; a
 * thread tells the share that they are in use, and measures what kernel-mounted ones use. Nothing here touches a mount:
 * a dead server cannot hold it.
 */
#ifndef BERTH_NFS_MONITOR_H
#define BERTH_NFS_MONITOR_H

#include "drivers/nfs/driver.h"

struct staged {   /* strings owned */
    char *handle; /* volume id */
    char *id;     /* of its record; "" = none */
    struct share_location where;
    char *sub_dir; /* "" = the whole share */
    char *options; /* mount options */
    char *path;    /* where it is mounted */
    char *capability;
    int64_t limit; /* bytes, 0 = none */
    enum mounter mounter;
};
void staged_clear(struct staged *staged);
#define auto_staged __attribute__((cleanup(staged_clear)))

int monitor_start(struct nfs_driver *driver, struct err *err); /* fills driver->monitor */
void monitor_stop(struct nfs_driver *driver);
/* The file of the FUSE process of a volume; the caller's. */
char *monitor_config_path(const struct nfs_driver *driver, const char *handle);
/* A directory where its mount can be made before it takes its place; the caller's. */
char *monitor_aside_path(const struct nfs_driver *driver, const char *handle);
/* Adds the ids of all volumes mounted here. */
void monitor_handles(struct monitor *monitor, struct strv *handles);
/* 1 = found and copied, 0 = not mounted here. */
int monitor_find(struct monitor *monitor, const char *handle, struct staged *staged);
/* Durable before it returns. */
int monitor_add(struct nfs_driver *driver, const struct staged *staged, struct err *err);
int monitor_remove(struct nfs_driver *driver, const char *handle, struct err *err);

struct usage { /* as last measured */
    bool known;
    uint64_t bytes, entries;
};
struct usage monitor_usage(struct monitor *monitor, const char *handle);

/* What statfs says about a mount, asked by a helper that may hang in our place: 0, an errno value, or ETIMEDOUT. While
 * a helper for the path still hangs no other one is started. */
struct mount_space {
    uint64_t total, free, available, files, free_files;
};
int monitor_probe(struct nfs_driver *driver, const char *path, int64_t timeout, struct mount_space *space);
/* The helper that hangs on a path (0 = none); for probe.c. */
int64_t monitor_stuck(struct monitor *monitor, const char *path);
void monitor_set_stuck(struct monitor *monitor, const char *path, int64_t pid);
/* "berth-nfs probe PATH": the helper. */
int probe_main(int argc, char **argv);

#endif
