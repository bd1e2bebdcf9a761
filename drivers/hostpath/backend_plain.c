/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/backend.h"

#include "drivers/hostpath/usage.h"
#include "lib/base/mem.h"

#include <sys/mount.h>

static int check(const char *fs_type, const struct mount_options *options, struct err *err)
{
    (void)fs_type; /* it is the host's, and classes often say ext4 without meaning it */
    return mount_options_only_flags(options, err);
}

static int attach(struct hostpath *driver, const struct volume *volume, const char *path,
                  const struct mount_options *options, struct err *err)
{
    auto_free char *data = state_data_path(driver->state, STATE_VOLUMES, volume->id, "data");
    return mount_bind_flags(data, path, options->flags & ~(unsigned long)MS_RDONLY, err);
}

static int detach(struct hostpath *driver, const struct volume *volume, const char *path, struct err *err)
{
    (void)driver, (void)volume;
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
    (void)driver, (void)volume, (void)path, (void)err;
    return 0;
}

/* Its own use within its own size, not the host's disk: though nothing enforces it, that is what was asked for. */
static int usage(struct hostpath *driver, const struct volume *volume, const char *path, struct usage *out,
                 struct err *err)
{
    struct usage host;
    int64_t bytes, inodes;
    if (backend_statfs_usage(path, &host, err) < 0)
        return -1;
    if (usage_of_tree(driver, volume, USAGE_FRESH, &bytes, &inodes, err) < 0)
        return -1;
    int64_t left = volume->capacity > bytes ? volume->capacity - bytes : 0;
    *out = (struct usage){.total = volume->capacity,
                          .used = bytes,
                          .available = left < host.available ? left : host.available,
                          .inodes = inodes + host.inodes_free,
                          .inodes_used = inodes,
                          .inodes_free = host.inodes_free,
                          .has_inodes = true};
    return 0;
}

const struct backend backend_plain = {
    .make = backend_make_tree,
    .adopt = backend_adopt_tree,
    .check = check,
    .attach = attach,
    .detach = detach,
    .is_attached = is_attached,
    .grow = grow,
    .usage = usage,
};
