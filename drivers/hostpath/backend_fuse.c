/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/backend.h"

#include "lib/base/mem.h"
#include "lib/csi/method.h"

#include <errno.h>
#include <sys/stat.h>

/* Between a driver and its holder nothing takes long, except the count of a large volume's files at its mount. */
#define MOUNT_TIMEOUT HOLDER_DEFAULT_TIMEOUT
#define CALL_TIMEOUT (5 * CLOCK_SECOND)

static int need_holder(const struct hostpath *driver, struct err *err)
{
    if (driver->holder != NULL)
        return 0;
    return csi_fail(err, CSI_FAILED_PRECONDITION,
                    "volumes of the backend fuse need /dev/fuse, which this node does not have");
}

static int make(struct hostpath *driver, const struct volume *volume, struct err *err)
{
    return need_holder(driver, err) < 0 ? -1 : backend_make_tree(driver, volume, err);
}

static int attach(struct hostpath *driver, const struct volume *volume, const char *path,
                  const struct mount_options *options, struct err *err)
{
    if (need_holder(driver, err) < 0)
        return -1;
    auto_free char *directory = state_data_path(driver->state, STATE_VOLUMES, volume->id, NULL);
    /* the mount is writable; a read-only publish is the bind mount's matter */
    auto_strv struct strv list = {0};
    for (size_t i = 0; i < options->list.len; i++)
        if (!str_eq(options->list.items[i], "ro") && !str_eq(options->list.items[i], "rw"))
            strv_add(&list, options->list.items[i]);
    const struct holder_mount mount = {
        .id = volume->id, .directory = directory, .target = path, .limit = volume->capacity, .options = &list};
    /* the holder knows which options a FUSE mount can have */
    return holder_mount_volume(driver->holder, &mount, MOUNT_TIMEOUT, err) < 0 ? backend_blame_caller(err) : 0;
}

static int detach(struct hostpath *driver, const struct volume *volume, const char *path, struct err *err)
{
    if (driver->holder == NULL)
        return mount_remove(path, err);
    if (holder_unmount_volume(driver->holder, volume->id, path, NULL, MOUNT_TIMEOUT, err) < 0)
        return -1;
    /* the orchestrator made the directory, so it is his to remove */
    if (mkdir(path, 0750) != 0 && errno != EEXIST && errno != ENOENT)
        return err_set_errno(err, errno, "keeping %s", path);
    return 0;
}

static int is_attached(struct hostpath *driver, const struct volume *volume, const char *path,
                       const struct mount_list *mounts, bool *attached, struct err *err)
{
    struct holder_entry entry = {0};
    *attached = false;
    if (driver->holder == NULL || mount_list_find(mounts, path) == NULL)
        return 0;
    if (holder_find_mount(driver->holder, volume->id, &entry, CALL_TIMEOUT, err) < 0) {
        if (!err_is(err, ERR_NOT_FOUND))
            return -1;
        err_clear(err); /* what lies there is dead: it is mounted anew */
        return 0;
    }
    *attached = str_eq(entry.target, path) && !entry.detached;
    holder_entry_clear(&entry);
    return 0;
}

static int grow(struct hostpath *driver, const struct volume *volume, const char *path, struct err *err)
{
    (void)path;
    if (driver->holder == NULL)
        return 0;
    if (holder_set_limit(driver->holder, volume->id, volume->capacity, 0, CALL_TIMEOUT, err) < 0) {
        if (!err_is(err, ERR_NOT_FOUND))
            return -1;
        err_clear(err); /* not mounted: the next mount has the new size */
    }
    return 0;
}

static int usage(struct hostpath *driver, const struct volume *volume, const char *path, struct usage *out,
                 struct err *err)
{
    struct holder_stats stats;
    (void)path;
    if (need_holder(driver, err) < 0 || holder_volume_stats(driver->holder, volume->id, &stats, CALL_TIMEOUT, err) < 0)
        return -1;
    *out = (struct usage){.total = stats.limit,
                          .used = stats.used,
                          .available = stats.limit > stats.used ? stats.limit - stats.used : 0,
                          .inodes = stats.inode_limit,
                          .inodes_used = stats.inodes,
                          .inodes_free = stats.inode_limit > stats.inodes ? stats.inode_limit - stats.inodes : 0,
                          .has_inodes = true};
    return 0;
}

const struct backend backend_fuse = {
    .make = make,
    .adopt = backend_adopt_tree,
    .attach = attach,
    .detach = detach,
    .is_attached = is_attached,
    .grow = grow,
    .usage = usage,
};
