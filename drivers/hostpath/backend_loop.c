/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/backend.h"

#include "drivers/hostpath/image.h"
#include "drivers/hostpath/loop.h"
#include "lib/base/mem.h"
#include "lib/csi/method.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FREE_TRIES 100

static int make_image(struct hostpath *driver, const struct volume *volume, struct err *err)
{
    auto_close int image =
        state_open_data(driver->state, STATE_VOLUMES, volume->id, "image", O_RDWR | O_CREAT | O_EXCL, 0600, err);
    if (image < 0 || image_grow(image, image_size_for(volume->capacity), err) < 0)
        return -1;
    auto_close int directory =
        state_open_data(driver->state, STATE_VOLUMES, volume->id, ".", O_RDONLY | O_DIRECTORY, 0, err);
    if (directory < 0)
        return -1;
    return fsync(directory) == 0 ? 0 : err_set_errno(err, errno, "making the image of volume %s", volume->id);
}

static int make(struct hostpath *driver, const struct volume *volume, struct err *err)
{
    auto_free char *path = state_data_path(driver->state, STATE_VOLUMES, volume->id, "image");
    if (make_image(driver, volume, err) < 0 || image_format(path, volume->capacity, NULL, err) < 0)
        return -1;
    auto_close int image = backend_open_image(driver, volume, err);
    if (image < 0)
        return -1;
    return fsync(image) == 0 ? 0 : err_set_errno(err, errno, "writing the image of volume %s", volume->id);
}

static int adopt(struct hostpath *driver, const struct volume *volume, struct err *err)
{
    auto_close int image = backend_open_image(driver, volume, err);
    return image < 0 ? -1 : image_grow(image, image_size_for(volume->capacity), err);
}

static int check(const char *fs_type, const struct mount_options *options, struct err *err)
{
    (void)options; /* the kernel knows which ones ext4 takes */
    if (str_empty(fs_type) || str_eq(fs_type, "ext4"))
        return 0;
    return err_set(err, ERR_INVALID, "file system type \"%s\" is not supported by the backend loop (ext4 is)", fs_type);
}

static int mount_device(const char *device, const char *path, const struct mount_options *options, struct err *err)
{
    const char *data = str_text(&options->data);
    bool own = strstr(data, "discard") != NULL; /* discard or nodiscard: the user knows better */
    auto_free char *all = mem_printf("%s%s%s", own ? "" : "discard", !own && *data != '\0' ? "," : "", data);
    if (mount(device, path, "ext4", options->flags & ~(unsigned long)MS_RDONLY, all) == 0)
        return 0;
    if (errno == EINVAL && options->data.len > 0)
        return csi_fail(err, CSI_INVALID_ARGUMENT,
                        "the kernel refuses the mount options for ext4, or the file system is damaged");
    return err_set_errno(err, errno, "mounting the file system at %s", path);
}

/* After an unmount the kernel detaches a device a moment later. */
static int wait_until_free(int image, char device_path[LOOP_PATH_SIZE], bool *busy, struct err *err)
{
    for (int tries = 0; tries < FREE_TRIES; tries++) {
        if (loop_find(image, LOOP_MOUNT, busy, device_path, err) < 0)
            return -1;
        if (!*busy)
            return 0;
        struct timespec pause = {.tv_nsec = 10000000};
        nanosleep(&pause, NULL);
    }
    return 0;
}

static int mount_once(const struct volume *volume, int image, const char *path, const struct mount_options *options,
                      struct err *err)
{
    char device_path[LOOP_PATH_SIZE];
    bool busy = false;
    /* one device per image: two with the same file system on them would destroy it */
    if (loop_detach(image, err) < 0 || wait_until_free(image, device_path, &busy, err) < 0)
        return -1;
    if (busy)
        return err_set(err, ERR_UNAVAILABLE, "volume %s is still in use on %s", volume->id, device_path);
    auto_close int device = loop_attach(image, volume->id, LOOP_MOUNT, device_path, err);
    return device < 0 ? -1 : mount_device(device_path, path, options, err);
}

static int attach(struct hostpath *driver, const struct volume *volume, const char *path,
                  const struct mount_options *options, struct err *err)
{
    const int64_t size = image_size_for(volume->capacity);
    bool is_short = false;
    auto_close int image = backend_open_image(driver, volume, err);
    if (image < 0 || image_grow(image, size, err) < 0 || image_ext4_is_short(image, &is_short, err) < 0 ||
        mount_once(volume, image, path, options, err) < 0)
        return -1;
    /* a restored volume may be larger than its source, and a crash may have come between two steps of a growth */
    if (!is_short || image_resize_mounted(path, size, err) == 0)
        return 0;
    if (err->status != CSI_FAILED_PRECONDITION)
        return -1; /* the caller detaches */
    err_clear(err);
    char device_path[LOOP_PATH_SIZE];
    bool busy = false;
    auto_free char *file = state_data_path(driver->state, STATE_VOLUMES, volume->id, "image");
    if (mount_remove(path, err) < 0 || wait_until_free(image, device_path, &busy, err) < 0)
        return -1;
    if (busy)
        return err_set(err, ERR_UNAVAILABLE, "volume %s is still in use on %s", volume->id, device_path);
    return image_resize_unmounted(file, err) < 0 ? -1 : mount_once(volume, image, path, options, err);
}

static int detach(struct hostpath *driver, const struct volume *volume, const char *path, struct err *err)
{
    (void)driver, (void)volume; /* the device clears itself */
    return mount_remove(path, err);
}

static int is_attached(struct hostpath *driver, const struct volume *volume, const char *path,
                       const struct mount_list *mounts, bool *attached, struct err *err)
{
    (void)driver, (void)volume, (void)err;
    *attached = mount_list_find(mounts, path) != NULL;
    return 0;
}

static int grow(struct hostpath *driver, const struct volume *volume, const char *path, struct err *err)
{
    int64_t size = 0;
    auto_close int image = backend_open_image(driver, volume, err);
    if (image < 0 || image_grow(image, image_size_for(volume->capacity), err) < 0 ||
        loop_refresh_size(image, &size, err) < 0)
        return -1;
    return path != NULL && size > 0 ? image_resize_mounted(path, size, err) : 0;
}

static int usage(struct hostpath *driver, const struct volume *volume, const char *path, struct usage *out,
                 struct err *err)
{
    (void)driver, (void)volume;
    return backend_statfs_usage(path, out, err);
}

const struct backend backend_loop = {
    .make = make,
    .adopt = adopt,
    .check = check,
    .attach = attach,
    .detach = detach,
    .is_attached = is_attached,
    .grow = grow,
    .usage = usage,
    .freeze = image_freeze,
};

/* ---- block ---- */

static int attach_block(struct hostpath *driver, const struct volume *volume, const char *path,
                        const struct mount_options *options, struct err *err)
{
    char device_path[LOOP_PATH_SIZE];
    bool found = false;
    (void)path, (void)options;
    auto_close int image = backend_open_image(driver, volume, err);
    if (image < 0 || image_grow(image, image_size_for(volume->capacity), err) < 0 ||
        loop_find(image, LOOP_BLOCK, &found, device_path, err) < 0)
        return -1;
    if (found)
        return loop_refresh_size(image, NULL, err);
    auto_close int device = loop_attach(image, volume->id, LOOP_BLOCK, device_path, err);
    return device < 0 ? -1 : 0;
}

static int detach_block(struct hostpath *driver, const struct volume *volume, const char *path, struct err *err)
{
    (void)path;
    auto_close int image = backend_open_image(driver, volume, err);
    if (image < 0)
        return err_is(err, ERR_NOT_FOUND) ? (err_clear(err), 0) : -1;
    return loop_flush(image, err) < 0 ? -1 : loop_detach(image, err);
}

static int is_attached_block(struct hostpath *driver, const struct volume *volume, const char *path,
                             const struct mount_list *mounts, bool *attached, struct err *err)
{
    char device_path[LOOP_PATH_SIZE];
    (void)path, (void)mounts;
    auto_close int image = backend_open_image(driver, volume, err);
    return image < 0 ? -1 : loop_find(image, LOOP_BLOCK, attached, device_path, err);
}

int backend_block_device(struct hostpath *driver, const struct volume *volume, bool read_only, char *path, size_t size,
                         struct err *err)
{
    char device_path[LOOP_PATH_SIZE];
    bool found = false;
    const enum loop_use use = read_only ? LOOP_READ_ONLY : LOOP_BLOCK;
    auto_close int image =
        state_open_data(driver->state, STATE_VOLUMES, volume->id, "image", read_only ? O_RDONLY : O_RDWR, 0, err);
    if (image < 0 || loop_find(image, use, &found, device_path, err) < 0)
        return -1;
    if (!found) {
        auto_close int device = loop_attach(image, volume->id, use, device_path, err);
        if (device < 0)
            return -1;
    }
    snprintf(path, size, "%s", device_path);
    return 0;
}

static int grow_block(struct hostpath *driver, const struct volume *volume, const char *path, struct err *err)
{
    (void)path;
    auto_close int image = backend_open_image(driver, volume, err);
    if (image < 0 || image_grow(image, image_size_for(volume->capacity), err) < 0)
        return -1;
    return loop_refresh_size(image, NULL, err);
}

static int usage_block(struct hostpath *driver, const struct volume *volume, const char *path, struct usage *out,
                       struct err *err)
{
    (void)path;
    struct stat st;
    auto_close int image = backend_open_image(driver, volume, err);
    if (image < 0)
        return -1;
    if (fstat(image, &st) != 0)
        return err_set_errno(err, errno, "looking at the image of volume %s", volume->id);
    *out = (struct usage){.total = st.st_size};
    return 0;
}

const struct backend backend_block = {
    .make = make_image,
    .adopt = adopt,
    .attach = attach_block,
    .detach = detach_block,
    .is_attached = is_attached_block,
    .grow = grow_block,
    .usage = usage_block,
};
