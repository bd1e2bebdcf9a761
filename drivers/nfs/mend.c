/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FUSE mounts end with the processes that serve them, and those end with the pod they run in. kubelet has published the
 * volume by then and does not ask again, so a container that starts later would be refused for good: what was mounted
 * when the driver ended is mounted anew when it starts. A container that runs already keeps its dead mount.
 */
#include "drivers/nfs/mounts.h"

#include "drivers/common/mount.h"
#include "drivers/nfs/monitor.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>

#define RETRY (10 * CLOCK_SECOND)
#define PROBE_TIMEOUT (3 * CLOCK_SECOND)

/* The new mount is made aside first: as long as the server cannot be reached the old ones stay what they are. Targets
 * come before the staging path, by which they are known to be dead. */
static int replace(struct nfs_driver *driver, struct staged *staged, const char *aside, const struct mount_list *list,
                   const struct mount_entry *dead, struct err *err)
{
    if (mount_target_make(aside, true, err) < 0 || nfs_mount_staged(driver, staged, aside, err) < 0)
        return -1;
    for (size_t i = 0; i < list->len; i++) {
        const struct mount_entry *entry = &list->items[i];
        bool same = entry->major == dead->major && entry->minor == dead->minor;
        if (same && !str_eq(entry->mount_point, dead->mount_point) &&
            (mount_remove(entry->mount_point, err) < 0 ||
             mount_bind(aside, entry->mount_point, entry->read_only, err) < 0))
            return -1;
    }
    return mount_remove(dead->mount_point, err) < 0 ? -1 : mount_bind(aside, dead->mount_point, dead->read_only, err);
}

static int mend_locked(struct nfs_driver *driver, const char *handle, const char *aside, struct err *err)
{
    auto_staged struct staged staged = {0};
    auto_mounts struct mount_list list = {0};
    struct mount_space space;
    if (monitor_find(driver->monitor, handle, &staged) == 0 || staged.mounter != MOUNTER_FUSE)
        return 0;
    if (mount_list_read(&list, err) < 0)
        return -1;
    const struct mount_entry *entry = mount_list_find(&list, staged.path);
    if (entry == NULL || monitor_probe(driver, staged.path, PROBE_TIMEOUT, &space) != ENOTCONN)
        return 0; /* after a reboot kubelet stages it again */
    log_warn("The process behind a mount is gone: mounting again", kv_str("volume", handle),
             kv_str("path", staged.path));
    return replace(driver, &staged, aside, &list, entry, err);
}

static int mend(struct nfs_driver *driver, const char *handle, struct err *err)
{
    auto_keylock struct keylock_hold hold = {0};
    auto_free char *aside = monitor_aside_path(driver, handle);
    if (keylock_exclusive(driver->locks, "volume", handle, &hold, err) < 0 ||
        mount_target_remove(aside, err) < 0) /* left by a driver that was killed */
        return -1;
    int result = mend_locked(driver, handle, aside, err);
    auto_err struct err ignored = {0};
    mount_target_remove(aside, &ignored);
    return result;
}

/* The number of those that are still to be mended. */
static size_t mend_all(struct nfs_driver *driver, struct strv *handles)
{
    size_t left = 0;
    for (size_t i = 0; i < handles->len && !stop_requested(driver->stop); i++) {
        auto_err struct err err = {0};
        if (mend(driver, handles->items[i], &err) == 0)
            continue;
        log_warn("Cannot mount again yet", kv_str("volume", handles->items[i]), kv_err(&err));
        left++;
    }
    return left;
}

static void *mend_thread(void *arg)
{
    struct nfs_driver *driver = arg;
    auto_strv struct strv handles = {0};
    monitor_handles(driver->monitor, &handles);
    while (mend_all(driver, &handles) > 0 && !stop_sleep(driver->stop, driver->clock, RETRY))
        continue;
    return NULL;
}

pthread_t mend_start(struct nfs_driver *driver)
{
    return thread_start("mend", mend_thread, driver);
}
