/* SPDX-License-Identifier: Apache-2.0 */
/* ControllerPublishVolume and its opposite. There is one node, this one, so attaching is a matter of the record. */
#include "drivers/hostpath/backend.h"

#include "lib/base/mem.h"

#include <inttypes.h>

static void count_attached(void *arg, const struct volume *volume)
{
    *(int64_t *)arg += volume->attached ? 1 : 0;
}

/* 0 = none. */
static int64_t attach_limit(const struct hostpath_options *options)
{
    return options->attach_limit > 0 ? options->attach_limit : options->max_volumes_per_node;
}

static int check_limit(struct hostpath *driver, struct err *err)
{
    int64_t attached = 0, limit = attach_limit(&driver->options);
    state_each_volume(driver->state, count_attached, &attached);
    if (limit <= 0 || attached < limit)
        return 0;
    return csi_fail(err, CSI_RESOURCE_EXHAUSTED, "%" PRId64 " volumes are attached to node %s, its limit", attached,
                    driver->options.node_id);
}

static int check_request(const struct hostpath *driver, const struct volume *volume,
                         const Csi__V1__ControllerPublishVolumeRequest *request, struct err *err)
{
    auto_mount_options struct mount_options options = {0};
    if (!str_eq(request->node_id, driver->options.node_id))
        return csi_fail(err, CSI_NOT_FOUND, "node %s does not exist here, this is %s", request->node_id,
                        driver->options.node_id);
    if ((request->volume_capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK) !=
        volume->block)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "volume %s has the other access type", volume->id);
    return backend_read_options(volume, request->volume_capability, &options, err);
}

static int controller_publish_volume(void *arg, const Csi__V1__ControllerPublishVolumeRequest *request,
                                     Csi__V1__ControllerPublishVolumeResponse *reply, struct csi_call *call,
                                     struct err *err)
{
    struct hostpath *driver = arg;
    (void)reply;
    if (!driver->options.attach)
        return csi_fail(err, CSI_UNIMPLEMENTED, "attaching is switched off (--enable-attach)");
    /* the limit is looked at and used up in one step */
    auto_keylock struct keylock_hold node = {0}, hold = {0};
    auto_volume struct volume *volume = NULL;
    if (keylock_exclusive(driver->locks, "attachments of node", driver->options.node_id, &node, err) < 0 ||
        hostpath_lock_volume(driver, request->volume_id, &hold, &volume, err) < 0 ||
        check_request(driver, volume, request, err) < 0)
        return -1;
    const char *capability = backend_capability_text(csi_call_arena(call), request->volume_capability);
    if (volume->attached) {
        if (volume->attached_read_only != (bool)request->readonly || !str_eq(volume->attached_capability, capability))
            return csi_fail(err, CSI_ALREADY_EXISTS, "volume %s is attached with another capability or readonly flag",
                            volume->id);
        return 0;
    }
    if (check_limit(driver, err) < 0)
        return -1;
    volume->attached = true;
    volume->attached_read_only = request->readonly;
    volume->attached_capability = mem_strdup(capability);
    return state_save_volume(driver->state, volume, err);
}

static int controller_unpublish_volume(void *arg, const Csi__V1__ControllerUnpublishVolumeRequest *request,
                                       Csi__V1__ControllerUnpublishVolumeResponse *reply, struct csi_call *call,
                                       struct err *err)
{
    struct hostpath *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    (void)reply, (void)call;
    if (!driver->options.attach)
        return csi_fail(err, CSI_UNIMPLEMENTED, "attaching is switched off (--enable-attach)");
    if (keylock_exclusive(driver->locks, "volume", request->volume_id, &hold, err) < 0)
        return -1;
    auto_volume struct volume *volume = state_volume(driver->state, request->volume_id);
    /* volumes are attached to this node only, so from any other they are detached already */
    if (volume == NULL || !volume->attached ||
        (*request->node_id != '\0' && !str_eq(request->node_id, driver->options.node_id)))
        return 0;
    if (volume->target_count > 0 || volume->staging_path != NULL) {
        auto_mounts struct mount_list mounts = {0};
        if (mount_list_read(&mounts, err) < 0)
            return -1;
        if (volume->staging_path != NULL && mount_list_find(&mounts, volume->staging_path) != NULL)
            return csi_fail(err, CSI_FAILED_PRECONDITION, "volume %s is still staged at %s", volume->id,
                            volume->staging_path);
    }
    volume->attached = volume->attached_read_only = false;
    free(volume->attached_capability);
    volume->attached_capability = NULL;
    return state_save_volume(driver->state, volume, err);
}

const struct csi_handlers hostpath_attach_handlers = {
    .controller_publish_volume = controller_publish_volume,
    .controller_unpublish_volume = controller_unpublish_volume,
};
