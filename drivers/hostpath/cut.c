/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/cut.h"

#include "drivers/hostpath/backend.h"
#include "drivers/hostpath/image.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* What programs have mapped and changed is in the kernel's cache of the FUSE mount, not in the files below it yet. Only
 * a file system that answers is asked. */
static void write_out(struct hostpath *driver, const struct volume *volume)
{
    auto_err struct err ignored = {0};
    struct holder_stats stats;
    if (driver->holder == NULL || holder_volume_stats(driver->holder, volume->id, &stats, CLOCK_SECOND, &ignored) < 0)
        return;
    auto_close int fd = open(volume->staging_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && syncfs(fd) != 0)
        log_error("Cannot write out a volume before its copy", kv_str("volume", volume->id), kv_int("errno", errno));
}

/* With the volume locked, so that nobody unmounts it between the look and the pause. */
static int pause_locked(struct hostpath *driver, const struct volume *volume, struct cut_pause *pause, bool *attached,
                        struct err *err)
{
    auto_mounts struct mount_list mounts = {0};
    const struct backend *backend = backend_of(volume);
    if (volume->staging_path == NULL || volume->block || volume->backend == BACKEND_PLAIN)
        return 0;
    if (mount_list_read(&mounts, err) < 0 ||
        backend->is_attached(driver, volume, volume->staging_path, &mounts, attached, err) < 0)
        return -1;
    if (!*attached || backend->freeze == NULL)
        return 0;
    pause->handle = backend->freeze(volume->staging_path, err);
    return pause->handle < 0 ? -1 : 0;
}

int cut_pause_begin(struct hostpath *driver, const char *volume_id, struct cut_pause *pause, struct err *err)
{
    auto_keylock struct keylock_hold hold = {0};
    auto_volume struct volume *volume = NULL;
    bool attached = false;
    pause->handle = -1;
    if (hostpath_lock_volume(driver, volume_id, &hold, &volume, err) < 0 ||
        pause_locked(driver, volume, pause, &attached, err) < 0)
        return -1;
    keylock_release(&hold);
    if (attached && volume->backend == BACKEND_FUSE && !volume->block)
        write_out(driver, volume);
    return 0;
}

void cut_pause_end(struct cut_pause *pause)
{
    image_thaw(pause->handle);
    pause->handle = -1;
}

static int copy_image(struct hostpath *driver, struct copy *copy, struct cut_object from, struct cut_object to,
                      struct err *err)
{
    auto_close int source = state_open_data(driver->state, from.kind, from.id, "image", O_RDONLY, 0, err);
    if (source < 0)
        return -1;
    auto_close int target =
        state_open_data(driver->state, to.kind, to.id, "image", O_RDWR | O_CREAT | O_EXCL, 0600, err);
    return target < 0 ? -1 : image_copy(copy, source, target, err);
}

static int copy_data(struct hostpath *driver, struct copy *copy, struct cut_object from, int directory,
                     struct cut_object to, struct err *err)
{
    auto_close int source = state_open_data(driver->state, from.kind, from.id, "data", O_RDONLY | O_DIRECTORY, 0, err);
    if (source < 0)
        return -1;
    if (mkdirat(directory, "data", 0700) != 0)
        return err_set_errno(err, errno, "making the data directory of %s", to.id);
    auto_close int target = state_open_data(driver->state, to.kind, to.id, "data", O_RDONLY | O_DIRECTORY, 0, err);
    return target < 0 ? -1 : copy_tree(copy, source, target, err);
}

int cut_copy(struct hostpath *driver, struct copy *copy, struct cut_object from, bool image, struct cut_object to,
             struct err *err)
{
    auto_close int directory = state_open_data(driver->state, to.kind, to.id, ".", O_RDONLY | O_DIRECTORY, 0, err);
    if (directory < 0 ||
        (image ? copy_image(driver, copy, from, to, err) : copy_data(driver, copy, from, directory, to, err)) < 0)
        return -1;
    return fsync(directory) == 0 ? 0 : err_set_errno(err, errno, "making the copy %s durable", to.id);
}
