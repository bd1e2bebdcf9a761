/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a volume's data lies and how it is mounted, one row of functions per sort of volume:
 *     fuse    a directory, served by berth-fuse, which enforces the size
 *     loop    an ext4 file system in an image on a loop device
 *     plain   a directory, bind-mounted; no size is enforced
 *     block   an image on a loop device, whatever the class's backend
 * All calls for one volume come one at a time.
 */
#ifndef BERTH_HOSTPATH_BACKEND_H
#define BERTH_HOSTPATH_BACKEND_H

#include "drivers/common/mount.h"
#include "drivers/common/mount_options.h"
#include "drivers/hostpath/driver.h"

struct usage {
    int64_t total, used, available; /* bytes */
    int64_t inodes, inodes_used, inodes_free;
    bool has_inodes;
};

struct backend {
    /* Empty contents of the volume's size in its directory, which exists. */
    int (*make)(struct hostpath *driver, const struct volume *volume, struct err *err);
    /* Contents that were copied from elsewhere get this volume's size (never less). */
    int (*adopt)(struct hostpath *driver, const struct volume *volume, struct err *err);
    /* Refuses (3) a file system type or mount options that it cannot have. */
    int (*check)(const char *fs_type, const struct mount_options *options, struct err *err);
    /* Mounts the volume at `path`, an existing directory, writable; block: attaches it, path unused. */
    int (*attach)(struct hostpath *driver, const struct volume *volume, const char *path,
                  const struct mount_options *options, struct err *err);
    /* Undoes it, also when it is not or only half there. */
    int (*detach)(struct hostpath *driver, const struct volume *volume, const char *path, struct err *err);
    /* *attached: it is there and works. */
    int (*is_attached)(struct hostpath *driver, const struct volume *volume, const char *path,
                       const struct mount_list *mounts, bool *attached, struct err *err);
    /* Makes volume->capacity count, at `path` too if it is attached there (else NULL). Repeated calls do no harm. */
    int (*grow)(struct hostpath *driver, const struct volume *volume, const char *path, struct err *err);
    /* Sizes as a user sees them at `path`; may block on a dead file system. */
    int (*usage)(struct hostpath *driver, const struct volume *volume, const char *path, struct usage *usage,
                 struct err *err);
    /* Pauses writes; NULL = cannot. A handle for image_thaw. */
    int (*freeze)(const char *path, struct err *err);
};
const struct backend *backend_of(const struct volume *volume);

extern const struct backend backend_plain, backend_loop, backend_block, backend_fuse;

/* For volumes whose contents are a directory (plain, fuse). */
int backend_make_tree(struct hostpath *driver, const struct volume *volume, struct err *err);
int backend_adopt_tree(struct hostpath *driver, const struct volume *volume, struct err *err);
/* statfs as usage. */
int backend_statfs_usage(const char *path, struct usage *usage, struct err *err);
/* The volume's image, open for reading and writing. */
int backend_open_image(struct hostpath *driver, const struct volume *volume, struct err *err);
/* The path of the block device of an attached volume; one that cannot be written to is attached for it first. */
int backend_block_device(struct hostpath *driver, const struct volume *volume, bool read_only, char *path, size_t size,
                         struct err *err);

/* The options in a capability (none for block); 3 when they are bad or the backend cannot have them. */
int backend_read_options(const struct volume *volume, const Csi__V1__VolumeCapability *capability,
                         struct mount_options *options, struct err *err);
/* What is wrong with an argument (ERR_INVALID) is answered with 3; other errors stay what they are. Returns -1. */
int backend_blame_caller(struct err *err);
/* One text for equal capabilities, without the mount flags themselves: they may be secret. In the arena. */
char *backend_capability_text(struct csi_arena *arena, const Csi__V1__VolumeCapability *capability);

#endif
