/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NodeStageVolume mounts the volume at the staging path: there it lies within kubelet's directories, whose mounts
 * outlive the driver's container. The record is written before the mount is made, and the other way round in
 * NodeUnstageVolume, so that after a crash no mount is unknown.
 */
#include "drivers/hostpath/node.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

char *node_resolve_path(const struct hostpath *driver, struct csi_arena *arena, const char *what, const char *path,
                        struct err *err)
{
    const char *state = state_directory(driver->state);
    const size_t len = strlen(state);
    if (!mount_path_is_safe(path)) {
        csi_fail(err, CSI_INVALID_ARGUMENT, "%s %s is not a clean absolute path", what, path);
        return NULL;
    }
    auto_free char *resolved = mount_path_resolve(path);
    if (strncmp(resolved, state, len) == 0 && (resolved[len] == '/' || resolved[len] == '\0')) {
        csi_fail(err, CSI_INVALID_ARGUMENT, "%s %s lies in the driver's own directory", what, path);
        return NULL;
    }
    return csi_arena_strdup(arena, resolved);
}

int node_is_staged(struct hostpath *driver, const struct volume *volume, bool *staged, struct err *err)
{
    auto_mounts struct mount_list mounts = {0};
    *staged = false;
    if (volume->staging_path == NULL)
        return 0;
    if (mount_list_read(&mounts, err) < 0)
        return -1;
    return backend_of(volume)->is_attached(driver, volume, volume->staging_path, &mounts, staged, err);
}

int node_attach(struct hostpath *driver, const struct volume *volume, const struct mount_options *options,
                struct err *err)
{
    const struct backend *backend = backend_of(volume);
    auto_err struct err ignored = {0};
    if (mount_target_make(volume->staging_path, true, err) < 0)
        return -1;
    /* a dead mount that lies there would be covered, not replaced */
    if (!volume->block && mount_remove(volume->staging_path, err) < 0)
        return -1;
    if (backend->attach(driver, volume, volume->staging_path, options, err) == 0)
        return 0;
    if (backend->detach(driver, volume, volume->staging_path, &ignored) < 0)
        log_error("Cannot undo a failed mount", kv_str("volume", volume->id), kv_err(&ignored));
    return -1;
}

/* The same again, or elsewhere, or in another way? *done: nothing is left to do. */
static int check_staged(struct hostpath *driver, const struct volume *volume,
                        const Csi__V1__NodeStageVolumeRequest *request, const char *capability, bool *done,
                        struct err *err)
{
    bool staged = false;
    *done = false;
    if (node_is_staged(driver, volume, &staged, err) < 0)
        return -1;
    if (!staged)
        return 0;
    if (!str_eq(volume->staging_path, request->staging_target_path))
        return csi_fail(err, CSI_FAILED_PRECONDITION, "volume %s is already staged at %s", volume->id,
                        volume->staging_path);
    if (!str_eq(volume->staging_capability, capability))
        return csi_fail(err, CSI_ALREADY_EXISTS, "volume %s is staged at %s with another capability", volume->id,
                        volume->staging_path);
    *done = true;
    return 0;
}

static int check_request(struct hostpath *driver, const struct volume *volume,
                         const Csi__V1__NodeStageVolumeRequest *request, struct err *err)
{
    if ((request->volume_capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK) !=
        volume->block)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "volume %s has the other access type", volume->id);
    if (volume->ephemeral)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "volume %s is an inline volume, which is not staged", volume->id);
    if (driver->options.attach && !volume->attached)
        return csi_fail(err, CSI_FAILED_PRECONDITION, "volume %s is not attached to this node", volume->id);
    return 0;
}

static int stage(struct hostpath *driver, struct volume *volume, const char *path, const char *capability,
                 const struct mount_options *options, struct err *err)
{
    volume_set_staging(volume, path, capability);
    if (state_save_volume(driver->state, volume, err) < 0)
        return -1;
    if (node_attach(driver, volume, options, err) == 0)
        return 0;
    auto_err struct err ignored = {0};
    volume_set_staging(volume, NULL, NULL);
    if (state_save_volume(driver->state, volume, &ignored) < 0)
        log_error("Cannot save that a volume is not staged", kv_str("volume", volume->id), kv_err(&ignored));
    return -1;
}

static int node_stage_volume(void *arg, const Csi__V1__NodeStageVolumeRequest *original,
                             Csi__V1__NodeStageVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    Csi__V1__NodeStageVolumeRequest resolved = *original, *request = &resolved;
    auto_keylock struct keylock_hold hold = {0};
    auto_volume struct volume *volume = NULL;
    auto_mount_options struct mount_options options = {0};
    bool done = false;
    (void)reply;
    request->staging_target_path =
        node_resolve_path(driver, csi_call_arena(call), "staging_target_path", original->staging_target_path, err);
    if (request->staging_target_path == NULL ||
        hostpath_lock_volume(driver, request->volume_id, &hold, &volume, err) < 0 ||
        check_request(driver, volume, request, err) < 0 ||
        backend_read_options(volume, request->volume_capability, &options, err) < 0)
        return -1;
    const char *capability = backend_capability_text(csi_call_arena(call), request->volume_capability);
    if (check_staged(driver, volume, request, capability, &done, err) < 0)
        return -1;
    return done ? 0 : stage(driver, volume, request->staging_target_path, capability, &options, err);
}

/* ---- NodeUnstageVolume ---- */

static int check_unpublished(const struct volume *volume, struct err *err)
{
    auto_mounts struct mount_list mounts = {0};
    if (mount_list_read(&mounts, err) < 0)
        return -1;
    for (size_t i = 0; i < volume->target_count; i++)
        if (mount_list_find(&mounts, volume->targets[i].path) != NULL)
            return csi_fail(err, CSI_FAILED_PRECONDITION, "volume %s is still published at %s", volume->id,
                            volume->targets[i].path);
    return 0;
}

static int node_unstage_volume(void *arg, const Csi__V1__NodeUnstageVolumeRequest *request,
                               Csi__V1__NodeUnstageVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    (void)reply;
    const char *path =
        node_resolve_path(driver, csi_call_arena(call), "staging_target_path", request->staging_target_path, err);
    if (path == NULL || keylock_exclusive(driver->locks, "volume", request->volume_id, &hold, err) < 0)
        return -1;
    auto_volume struct volume *volume = state_volume(driver->state, request->volume_id);
    if (volume == NULL) /* what an earlier life of the driver may have left there */
        return mount_remove(path, err);
    if (!str_eq(volume->staging_path, path))
        return 0;
    if (check_unpublished(volume, err) < 0 || backend_of(volume)->detach(driver, volume, volume->staging_path, err) < 0)
        return -1;
    volume_set_staging(volume, NULL, NULL);
    while (volume->target_count > 0)
        volume_remove_target(volume, volume->targets[0].path);
    return state_save_volume(driver->state, volume, err);
}

const struct csi_handlers hostpath_stage_handlers = {
    .node_stage_volume = node_stage_volume,
    .node_unstage_volume = node_unstage_volume,
};
