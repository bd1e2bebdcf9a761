/* SPDX-License-Identifier: Apache-2.0 */
/*
 * At start, after state_open has removed what no record accounts for. Records tell what was staged and published. While
 * the machine runs they are left as they are, even when a mount is gone: kubelet still counts on it, and the next
 * publish makes it again. After a reboot kubelet starts from nothing, so what is not mounted is forgotten.
 */
#include "drivers/hostpath/backend.h"
#include "drivers/hostpath/image.h"
#include "drivers/hostpath/loop.h"

#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#define BOOT_FILE "boot"

static void collect_id(void *arg, const struct volume *volume)
{
    strv_add(arg, volume->id);
}

/* *rebooted: since the last start here. */
static int check_boot(struct hostpath *driver, bool *rebooted, struct err *err)
{
    auto_free char *now = NULL, *before = NULL;
    auto_err struct err absent = {0};
    if (file_read("/proc/sys/kernel/random/boot_id", 128, &now, NULL, err) < 0)
        return -1;
    int root = state_directory_fd(driver->state);
    *rebooted = file_read_at(root, BOOT_FILE, 128, &before, NULL, &absent) < 0 || !str_eq(now, before);
    return 0;
}

static int note_boot(struct hostpath *driver, struct err *err)
{
    auto_free char *now = NULL;
    size_t len = 0;
    if (file_read("/proc/sys/kernel/random/boot_id", 128, &now, &len, err) < 0)
        return -1;
    return file_write_atomic_at(state_directory_fd(driver->state), BOOT_FILE, now, len, 0600, err);
}

/* An inline volume keeps its target: the call that takes it away finds the volume by it. */
static int forget_mounts(struct hostpath *driver, struct volume *volume, const struct mount_list *mounts, bool attached,
                         struct err *err)
{
    bool changed = false;
    for (size_t i = volume->target_count; i > 0 && !volume->ephemeral; i--) {
        const char *path = volume->targets[i - 1].path;
        if (mount_list_find(mounts, path) != NULL)
            continue;
        log_info("Not published any more since the reboot", kv_str("volume", volume->id), kv_str("target", path));
        auto_free char *copy = mem_strdup(path);
        volume_remove_target(volume, copy);
        changed = true;
    }
    if (volume->staging_path != NULL && !attached) {
        log_info("Not staged any more since the reboot", kv_str("volume", volume->id),
                 kv_str("path", volume->staging_path));
        volume_set_staging(volume, NULL, NULL);
        changed = true;
    }
    return changed ? state_save_volume(driver->state, volume, err) : 0;
}

static int recover_volume(struct hostpath *driver, struct volume *volume, const struct mount_list *mounts,
                          bool rebooted, struct err *err)
{
    const struct backend *backend = backend_of(volume);
    const char *place = volume->ephemeral && volume->target_count > 0 ? volume->targets[0].path : volume->staging_path;
    bool attached = false;
    if (place != NULL && backend->is_attached(driver, volume, place, mounts, &attached, err) < 0)
        return -1;
    if (rebooted && forget_mounts(driver, volume, mounts, attached, err) < 0)
        return -1;
    if (attached && backend->freeze != NULL)
        image_thaw_mount(place);
    if (attached)
        return backend->grow(driver, volume, place, err);
    if (!volume_is_image(volume) || volume->staging_path != NULL)
        return 0;
    auto_close int image = backend_open_image(driver, volume, err);
    return image < 0 ? -1 : loop_detach(image, err);
}

static int recover_all(struct hostpath *driver, struct err *err)
{
    auto_strv struct strv ids = {0};
    auto_mounts struct mount_list mounts = {0};
    bool rebooted = false;
    if (check_boot(driver, &rebooted, err) < 0 || mount_list_read(&mounts, err) < 0)
        return -1;
    state_each_volume(driver->state, collect_id, &ids);
    for (size_t i = 0; i < ids.len; i++) {
        auto_volume struct volume *volume = state_volume(driver->state, ids.items[i]);
        auto_err struct err problem = {0};
        if (volume != NULL && recover_volume(driver, volume, &mounts, rebooted, &problem) < 0)
            log_error("A volume could not be looked after at start", kv_str("volume", ids.items[i]), kv_err(&problem));
    }
    return note_boot(driver, err);
}

void hostpath_recover(struct hostpath *driver)
{
    auto_err struct err err = {0};
    if (recover_all(driver, &err) < 0)
        log_error("Looking after volumes at start", kv_err(&err));
}
