/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/holder/mounting.h"

#include "drivers/common/mount.h"
#include "drivers/common/mount_options.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_READ (128 * 1024) /* what berth-fuse answers to INIT */

/* SELinux labels are the only options that the file system itself leaves to the user. */
static const char *const labels[] = {"context=", "fscontext=", "defcontext=", "rootcontext="};

static bool is_label(const char *option)
{
    for (size_t i = 0; i < ARRAY_LEN(labels); i++)
        if (str_starts(option, labels[i]))
            return true;
    return false;
}

int mounting_parse_options(const struct strv *list, unsigned long *flags, struct str *data, struct err *err)
{
    auto_mount_options struct mount_options options = {0};
    if (mount_options_parse(list->items, list->len, &options, err) < 0)
        return -1;
    *flags = options.flags;
    for (size_t i = 0; i < options.list.len; i++) {
        const char *option = options.list.items[i];
        auto_free char *one[] = {mem_strdup(option)};
        auto_mount_options struct mount_options single = {0};
        if (mount_options_parse(one, 1, &single, err) < 0)
            return -1;
        if (single.data.len == 0)
            continue;
        if (!is_label(option))
            return err_set(err, ERR_INVALID, "mount option %.*s is not known to the fuse backend",
                           (int)strcspn(option, "="), option);
        str_addf(data, ",%s", option);
    }
    return 0;
}

static bool is_ours(const struct mount_entry *entry)
{
    return entry != NULL && str_eq(entry->fs_type, MOUNTING_TYPE);
}

/* A live file system of ours at this place would be in the table, and its own caller would have found it. */
static int clear_target(const char *target, struct err *err)
{
    auto_mounts struct mount_list list = {0};
    if (mount_list_read(&list, err) < 0)
        return -1;
    const struct mount_entry *entry = mount_list_find(&list, target);
    if (entry == NULL)
        return 0;
    if (!is_ours(entry))
        return err_set(err, ERR_CONFLICT, "%s is a mount point of another file system (%s)", target, entry->fs_type);
    return mounting_unmount(target, true, err);
}

static int find_device(const char *target, unsigned *device, struct err *err)
{
    auto_mounts struct mount_list list = {0};
    if (mount_list_read(&list, err) < 0)
        return -1;
    const struct mount_entry *entry = mount_list_find(&list, target);
    if (!is_ours(entry))
        return err_set(err, ERR_IO, "the mount at %s is not there", target);
    *device = entry->minor;
    return 0;
}

int mounting_mount(const char *id, const char *target, const struct strv *options, bool read_only, unsigned *device,
                   struct err *err)
{
    unsigned long flags = 0;
    auto_str struct str data = {0};
    if (mounting_parse_options(options, &flags, &data, err) < 0 || clear_target(target, err) < 0 ||
        mount_target_make(target, true, err) < 0)
        return -1;
    /* by descriptor, so that nobody swaps the target for a symlink in between */
    auto_close int at = open(target, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (at < 0)
        return err_set_errno(err, errno, "opening %s", target);
    auto_close int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, errno, "opening /dev/fuse (is the kernel's fuse module there?)");
    auto_free char *path = mem_printf("/proc/self/fd/%d", at);
    auto_free char *source = mem_printf("berth:%s", id);
    auto_free char *all = mem_printf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,"
                                     "max_read=%d%s",
                                     fd, MAX_READ, str_text(&data));
    flags = read_only ? flags | MS_RDONLY : flags & ~(unsigned long)MS_RDONLY;
    if (mount(source, path, MOUNTING_TYPE, flags, all) != 0)
        return err_set_errno(err, errno, "mounting at %s", target);
    if (find_device(target, device, err) < 0) {
        umount2(target, UMOUNT_NOFOLLOW | MNT_DETACH);
        return -1;
    }
    return mem_take_fd(&fd);
}

int mounting_is_at(const char *target, unsigned device, bool *there, struct err *err)
{
    auto_mounts struct mount_list list = {0};
    if (mount_list_read(&list, err) < 0)
        return -1;
    const struct mount_entry *entry = mount_list_find(&list, target);
    *there = is_ours(entry) && entry->minor == device;
    return 0;
}

int mounting_unmount(const char *target, bool dead, struct err *err)
{
    auto_mounts struct mount_list list = {0};
    if (mount_list_read(&list, err) < 0)
        return -1;
    if (!is_ours(mount_list_find(&list, target)))
        return 0;
    /* with MNT_FORCE calls that nobody will answer fail at once, instead of being waited for */
    if (dead)
        umount2(target, UMOUNT_NOFOLLOW | MNT_FORCE);
    else if (umount2(target, UMOUNT_NOFOLLOW) == 0)
        return 0;
    if (umount2(target, UMOUNT_NOFOLLOW | MNT_DETACH) == 0 || errno == EINVAL || errno == ENOENT)
        return 0;
    return err_set_errno(err, errno, "unmounting %s", target);
}
