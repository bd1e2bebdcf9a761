/* SPDX-License-Identifier: Apache-2.0 */
/* Growing and modifying. The controller and the node are one program here, so whoever is asked first does all of it. */
#include "drivers/hostpath/backend.h"
#include "drivers/hostpath/capacity.h"
#include "drivers/hostpath/usage.h"
#include "drivers/hostpath/volumes.h"

#include "lib/base/mem.h"

#include <inttypes.h>

/* Where it is mounted, so that the file system in it can be told; NULL = nowhere. */
static int find_mount_point(struct hostpath *driver, const struct volume *volume, const char **path, struct err *err)
{
    auto_mounts struct mount_list mounts = {0};
    bool attached = false;
    *path = NULL;
    const char *place = volume->ephemeral && volume->target_count > 0 ? volume->targets[0].path : volume->staging_path;
    if (place == NULL)
        return 0;
    if (mount_list_read(&mounts, err) < 0 ||
        backend_of(volume)->is_attached(driver, volume, place, &mounts, &attached, err) < 0)
        return -1;
    *path = attached ? place : NULL;
    return 0;
}

/* The record first: whatever is cut short after it is made good by the next try or the next mount. */
static int grow(struct hostpath *driver, struct volume *volume, const Csi__V1__CapacityRange *range, struct err *err)
{
    const int64_t required = range != NULL ? range->required_bytes : 0, limit = range != NULL ? range->limit_bytes : 0;
    auto_reservation struct reservation reservation = {0};
    const char *path;
    if (required > driver->options.max_volume_size)
        return csi_fail(err, CSI_OUT_OF_RANGE, "requested capacity %" PRId64 " exceeds the maximum of %" PRId64,
                        required, driver->options.max_volume_size);
    if (limit > 0 && volume->capacity > limit)
        return csi_fail(err, CSI_OUT_OF_RANGE, "volume %s has %" PRId64 " bytes and cannot shrink", volume->id,
                        volume->capacity);
    if (find_mount_point(driver, volume, &path, err) < 0)
        return -1;
    if (required > volume->capacity) {
        if (capacity_reserve(driver, volume->kind != NULL ? &volume->kind : NULL, required - volume->capacity,
                             &reservation, err) < 0)
            return -1;
        volume->capacity = required;
        if (state_save_volume(driver->state, volume, err) < 0)
            return -1;
    }
    return backend_of(volume)->grow(driver, volume, path, err);
}

static int lock_for_growth(struct hostpath *driver, const char *id, struct keylock_hold *hold,
                           struct keylock_hold *data, struct volume **volume, struct err *err)
{
    if (hostpath_lock_volume(driver, id, hold, volume, err) < 0)
        return -1;
    return keylock_exclusive(driver->locks, "volume data", id, data, err);
}

static int controller_expand_volume(void *arg, const Csi__V1__ControllerExpandVolumeRequest *request,
                                    Csi__V1__ControllerExpandVolumeResponse *reply, struct csi_call *call,
                                    struct err *err)
{
    struct hostpath *driver = arg;
    auto_keylock struct keylock_hold hold = {0}, data = {0};
    auto_volume struct volume *volume = NULL;
    (void)call;
    if (!driver->options.controller_expansion)
        return csi_fail(err, CSI_UNIMPLEMENTED, "expansion by the controller is switched off");
    if (lock_for_growth(driver, request->volume_id, &hold, &data, &volume, err) < 0)
        return -1;
    if (request->volume_capability != NULL &&
        request->volume_capability->access_type_case != CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE__NOT_SET &&
        (request->volume_capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK) !=
            volume->block)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "volume %s has the other access type", volume->id);
    if (grow(driver, volume, request->capacity_range, err) < 0) {
        /* the new size counts, but the file system in use cannot follow yet: the node will say so again */
        if (err->status != CSI_FAILED_PRECONDITION || !driver->options.node_expansion)
            return -1;
        err_clear(err);
        reply->node_expansion_required = true;
    }
    reply->capacity_bytes = volume->capacity;
    return 0;
}

static int node_expand_volume(void *arg, const Csi__V1__NodeExpandVolumeRequest *request,
                              Csi__V1__NodeExpandVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    auto_keylock struct keylock_hold hold = {0}, data = {0};
    auto_volume struct volume *volume = NULL;
    const int64_t max = driver->options.max_volume_size_node;
    (void)call;
    if (!driver->options.node_expansion)
        return csi_fail(err, CSI_UNIMPLEMENTED, "expansion by the node is switched off");
    if (lock_for_growth(driver, request->volume_id, &hold, &data, &volume, err) < 0)
        return -1;
    auto_free char *path = mount_path_resolve(request->volume_path);
    if (!str_eq(path, volume->staging_path) && volume_find_target(volume, path) == NULL)
        return csi_fail(err, CSI_NOT_FOUND, "volume %s is not at %s", volume->id, request->volume_path);
    if (max > 0 && request->capacity_range != NULL && request->capacity_range->required_bytes > max)
        return csi_fail(err, CSI_OUT_OF_RANGE, "requested capacity %" PRId64 " exceeds the node's maximum of %" PRId64,
                        request->capacity_range->required_bytes, max);
    if (grow(driver, volume, request->capacity_range, err) < 0)
        return -1;
    reply->capacity_bytes = volume->capacity;
    return 0;
}

static int controller_modify_volume(void *arg, const Csi__V1__ControllerModifyVolumeRequest *request,
                                    Csi__V1__ControllerModifyVolumeResponse *reply, struct csi_call *call,
                                    struct err *err)
{
    struct hostpath *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    auto_volume struct volume *volume = NULL;
    (void)reply, (void)call;
    if (!driver->options.modify)
        return csi_fail(err, CSI_UNIMPLEMENTED, "modification is switched off (--enable-controller-modify-volume)");
    if (hostpath_lock_volume(driver, request->volume_id, &hold, &volume, err) < 0 ||
        volumes_check_mutable(driver, CSI_MAP(request, mutable_parameters), err) < 0)
        return -1;
    volumes_set_mutable(volume, CSI_MAP(request, mutable_parameters));
    return state_save_volume(driver->state, volume, err);
}

const struct csi_handlers hostpath_expand_handlers = {
    .controller_expand_volume = controller_expand_volume,
    .node_expand_volume = node_expand_volume,
    .controller_modify_volume = controller_modify_volume,
};
