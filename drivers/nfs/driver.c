/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/driver.h"

#include "lib/base/mem.h"

#include <strings.h>

int nfs_open_share(const struct nfs_driver *driver, const struct share_location *where, struct csi_call *call,
                   struct share **share, struct err *err)
{
    struct share_options options = {
        .clock = driver->clock, .credential = driver->options.credential, .timeout = driver->options.timeout};
    int64_t left = call != NULL ? csi_call_remaining(call) : CLOCK_NEVER;
    int64_t deadline = left == CLOCK_NEVER ? CLOCK_NEVER : clock_mono(driver->clock) + left;
    return share_open(where, &options, deadline, call != NULL ? csi_call_stop(call) : NULL, share, err);
}

void nfs_outlive_call(struct share *share)
{
    share_set_deadline(share, CLOCK_NEVER);
    share_set_cancel(share, NULL);
}

int nfs_complete_location(const struct nfs_driver *driver, struct share_location *where, struct err *err)
{
    const struct share_location *ours = &driver->options.where;
    if (where->server == NULL && ours->server != NULL) {
        where->server = mem_strdup(ours->server);
        if (where->version == 0)
            where->version = ours->version;
        if (where->port == 0)
            where->port = ours->port;
        if (where->mount_port == 0)
            where->mount_port = ours->mount_port;
    }
    if (where->export == NULL && ours->export != NULL)
        where->export = mem_strdup(ours->export);
    if (where->server == NULL)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "parameter server is missing");
    if (where->export == NULL)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "parameter share is missing");
    return 0;
}

int nfs_read_secrets(struct csi_map secrets, struct share_location *where, struct err *err)
{
    const char *key, *value;
    for (size_t i = 0; i < secrets.len; i++)
        if (csi_map_at(secrets, i, &key, &value) && strcasecmp(key, "mountOptions") == 0 && where->version == 0 &&
            where->port == 0 && parameters_read_mount_options(value, where, err) < 0)
            return csi_fail(err, CSI_INVALID_ARGUMENT, "the secret's mountOptions are not valid"); /* not its text */
    return 0;
}

int nfs_lock(struct nfs_driver *driver, const char *kind, const struct share_location *where, const char *id,
             bool shared, struct keylock_hold *hold, struct err *err)
{
    auto_free char *key = mem_printf("%s:%s/%s", where->server, where->export, id);
    return shared ? keylock_shared(driver->locks, kind, key, hold, err)
                  : keylock_exclusive(driver->locks, kind, key, hold, err);
}

int nfs_lock_directory(struct nfs_driver *driver, const struct share_location *where, const char *path,
                       struct directory_hold *hold, struct err *err)
{
    for (const char *end = path;; end++) {
        if (*end != '/' && *end != '\0')
            continue;
        auto_free char *part = mem_strndup(path, (size_t)(end - path));
        hold->holds = mem_realloc_array(hold->holds, hold->len + 1, sizeof(*hold->holds));
        hold->holds[hold->len] = (struct keylock_hold){0};
        if (nfs_lock(driver, "directory", where, part, *end == '/', &hold->holds[hold->len++], err) < 0)
            return -1;
        if (*end == '\0')
            return 0;
    }
}

void nfs_unlock_directory(struct directory_hold *hold)
{
    while (hold->len > 0)
        keylock_release(&hold->holds[--hold->len]);
    free(hold->holds);
    *hold = (struct directory_hold){0};
}
