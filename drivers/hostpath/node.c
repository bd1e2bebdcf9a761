/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/driver.h"

#include "drivers/common/mount.h"
#include "lib/base/mem.h"

char *hostpath_capability_text(struct csi_arena *arena, const Csi__V1__VolumeCapability *capability)
{
    auto_str struct str out = {0};
    str_addf(&out, "mode=%d", capability->access_mode != NULL ? (int)capability->access_mode->mode : 0);
    if (capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK) {
        str_add(&out, ",block");
    } else if (capability->mount != NULL) {
        str_addf(&out, ",fs=%s,group=%s", capability->mount->fs_type, capability->mount->volume_mount_group);
        for (size_t i = 0; i < capability->mount->n_mount_flags; i++)
            str_addf(&out, ",flag=%s", capability->mount->mount_flags[i]);
    }
    return csi_arena_strdup(arena, str_text(&out));
}

/* Modes in which a volume may have only one target on a node. */
static bool is_single_target(int mode)
{
    return mode == CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_SINGLE_WRITER;
}

/* A repeated call is answered without a second mount; another one with the same target is 6. */
static int check_targets(struct volume *volume, const Csi__V1__NodePublishVolumeRequest *request,
                         const char *capability, bool *published, struct err *err)
{
    const struct volume_target *same = volume_find_target(volume, request->target_path);
    if (same != NULL) {
        if (same->read_only != request->readonly || !str_eq(same->capability, capability))
            return csi_fail(err, CSI_ALREADY_EXISTS, "volume %s is published at %s with another capability", volume->id,
                            request->target_path);
        return mount_is_point(request->target_path, published, err);
    }
    int mode = (int)request->volume_capability->access_mode->mode;
    if (volume->target_count > 0 && (is_single_target(mode) || is_single_target(volume->targets[0].access_mode)))
        return csi_fail(err, CSI_FAILED_PRECONDITION, "volume %s is already published at %s and allows one target only",
                        volume->id, volume->targets[0].path);
    return 0;
}

static int node_publish_volume(void *arg, const Csi__V1__NodePublishVolumeRequest *request,
                               Csi__V1__NodePublishVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    (void)reply;
    auto_keylock struct keylock_hold hold = {0};
    auto_volume struct volume *volume = NULL;
    bool published = false;
    if (!mount_path_is_safe(request->target_path))
        return csi_fail(err, CSI_INVALID_ARGUMENT, "target path %s is not a clean absolute path", request->target_path);
    if (keylock_exclusive(driver->locks, "volume", request->volume_id, &hold, err) < 0 ||
        hostpath_find_volume(driver, request->volume_id, &volume, err) < 0)
        return -1;
    if ((request->volume_capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK) !=
        volume->block)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "volume %s has the other access type", volume->id);
    char *capability = hostpath_capability_text(csi_call_arena(call), request->volume_capability);
    if (check_targets(volume, request, capability, &published, err) < 0)
        return -1;
    if (published)
        return 0;
    /* the record first: a mount without one would not be taken away when a crash comes between */
    if (volume_find_target(volume, request->target_path) == NULL) {
        volume_add_target(volume, request->target_path, request->readonly,
                          (int)request->volume_capability->access_mode->mode, capability);
        if (state_save_volume(driver->state, volume, err) < 0)
            return -1;
    }
    auto_free char *data = state_volume_path(driver->state, volume->id, "data");
    if (mount_target_make(request->target_path, true, err) < 0)
        return -1;
    return mount_bind(data, request->target_path, request->readonly, err);
}

static int node_unpublish_volume(void *arg, const Csi__V1__NodeUnpublishVolumeRequest *request,
                                 Csi__V1__NodeUnpublishVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    (void)reply, (void)call;
    auto_keylock struct keylock_hold hold = {0};
    if (!mount_path_is_safe(request->target_path))
        return csi_fail(err, CSI_INVALID_ARGUMENT, "target path %s is not a clean absolute path", request->target_path);
    if (keylock_exclusive(driver->locks, "volume", request->volume_id, &hold, err) < 0 ||
        mount_target_remove(request->target_path, err) < 0)
        return -1;
    auto_volume struct volume *volume = state_volume(driver->state, request->volume_id);
    if (volume == NULL || volume_find_target(volume, request->target_path) == NULL)
        return 0;
    volume_remove_target(volume, request->target_path);
    return state_save_volume(driver->state, volume, err);
}

static int node_get_capabilities(void *arg, const Csi__V1__NodeGetCapabilitiesRequest *request,
                                 Csi__V1__NodeGetCapabilitiesResponse *reply, struct csi_call *call, struct err *err)
{
    struct csi_arena *arena = csi_call_arena(call);
    (void)arg, (void)request, (void)err;
    CSI_NEW(arena, CSI_ADD(arena, reply, capabilities), rpc)->type =
        CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__SINGLE_NODE_MULTI_WRITER;
    return 0;
}

static int node_get_info(void *arg, const Csi__V1__NodeGetInfoRequest *request, Csi__V1__NodeGetInfoResponse *reply,
                         struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    (void)request, (void)err;
    reply->node_id = csi_arena_strdup(arena, driver->options.node_id);
    reply->max_volumes_per_node = driver->options.max_volumes_per_node;
    if (driver->options.topology)
        CSI_MAP_ADD(arena, CSI_NEW(arena, reply, accessible_topology), segments, HOSTPATH_TOPOLOGY_KEY,
                    driver->options.node_id);
    return 0;
}

const struct csi_handlers hostpath_node_handlers = {
    .node_publish_volume = node_publish_volume,
    .node_unpublish_volume = node_unpublish_volume,
    .node_get_capabilities = node_get_capabilities,
    .node_get_info = node_get_info,
};
