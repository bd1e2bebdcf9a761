/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/backend.h"

#include "lib/base/mem.h"
#include "lib/csi/method.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

const struct backend *backend_of(const struct volume *volume)
{
    static const struct backend *const backends[] = {
        [BACKEND_FUSE] = &backend_fuse,
        [BACKEND_LOOP] = &backend_loop,
        [BACKEND_PLAIN] = &backend_plain,
    };
    return volume->block ? &backend_block : backends[volume->backend];
}

int backend_make_tree(struct hostpath *driver, const struct volume *volume, struct err *err)
{
    auto_close int fd = state_open_data(driver->state, STATE_VOLUMES, volume->id, ".", O_RDONLY | O_DIRECTORY, 0, err);
    if (fd < 0)
        return -1;
    if (mkdirat(fd, "data", 0777) != 0 && errno != EEXIST)
        return err_set_errno(err, errno, "making the data directory of volume %s", volume->id);
    /* what a pod of any user finds, whatever our umask */
    if (fchmodat(fd, "data", 0777, 0) != 0 || fsync(fd) != 0)
        return err_set_errno(err, errno, "making the data directory of volume %s", volume->id);
    return 0;
}

int backend_adopt_tree(struct hostpath *driver, const struct volume *volume, struct err *err)
{
    (void)driver, (void)volume, (void)err;
    return 0;
}

int backend_statfs_usage(const char *path, struct usage *usage, struct err *err)
{
    struct statvfs fs;
    if (statvfs(path, &fs) != 0)
        return err_set_errno(err, errno, "statfs of %s", path);
    const int64_t unit = (int64_t)fs.f_frsize;
    *usage = (struct usage){.total = (int64_t)fs.f_blocks * unit,
                            .used = (int64_t)(fs.f_blocks - fs.f_bfree) * unit,
                            .available = (int64_t)fs.f_bavail * unit,
                            .inodes = (int64_t)fs.f_files,
                            .inodes_used = (int64_t)(fs.f_files - fs.f_ffree),
                            .inodes_free = (int64_t)fs.f_favail,
                            .has_inodes = true};
    return 0;
}

int backend_open_image(struct hostpath *driver, const struct volume *volume, struct err *err)
{
    return state_open_data(driver->state, STATE_VOLUMES, volume->id, "image", O_RDWR, 0, err);
}

int backend_read_options(const struct volume *volume, const Csi__V1__VolumeCapability *capability,
                         struct mount_options *options, struct err *err)
{
    *options = (struct mount_options){0};
    if (volume->block)
        return 0;
    if (capability->access_type_case != CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "the volume is mounted, it is no block device");
    const Csi__V1__VolumeCapability__MountVolume *mount = capability->mount;
    const struct backend *backend = backend_of(volume);
    if (mount_options_parse(mount->mount_flags, mount->n_mount_flags, options, err) == 0 &&
        (backend->check == NULL || backend->check(mount->fs_type, options, err) == 0))
        return 0;
    return backend_blame_caller(err);
}

int backend_blame_caller(struct err *err)
{
    if (err_is(err, ERR_INVALID)) {
        err->code = ERR_RPC;
        err->status = CSI_INVALID_ARGUMENT;
    }
    return -1;
}

char *backend_capability_text(struct csi_arena *arena, const Csi__V1__VolumeCapability *capability)
{
    const int mode = capability->access_mode != NULL ? (int)capability->access_mode->mode : 0;
    if (capability->access_type_case != CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT)
        return csi_arena_printf(arena, "mode=%d,block", mode);
    const Csi__V1__VolumeCapability__MountVolume *mount = capability->mount;
    auto_free char *digest = mount_options_digest(mount->mount_flags, mount->n_mount_flags);
    return csi_arena_printf(arena, "mode=%d,fs=%s,group=%s,flags=%s", mode, mount->fs_type, mount->volume_mount_group,
                            digest);
}
