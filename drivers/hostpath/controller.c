/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/driver.h"

#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <inttypes.h>

int hostpath_find_volume(struct hostpath *driver, const char *id, struct volume **volume, struct err *err)
{
    *volume = state_volume(driver->state, id);
    return *volume != NULL ? 0 : csi_fail(err, CSI_NOT_FOUND, "volume %s does not exist", id);
}

/* ---- CreateVolume
 * ------------------------------------------------------------------------------------------------------ */

static int read_parameters(const Csi__V1__CreateVolumeRequest *request, struct volume *volume, struct err *err)
{
    struct csi_map parameters = CSI_MAP(request, parameters);
    const char *key, *value;
    for (size_t i = 0; i < parameters.len; i++) {
        if (!csi_map_at(parameters, i, &key, &value) || str_starts(key, "csi.storage.k8s.io/"))
            continue;
        if (!str_eq(key, "backend"))
            return csi_fail(err, CSI_INVALID_ARGUMENT, "unknown parameter \"%s\" (known: backend)", key);
        if (!volume_backend_parse(value, &volume->backend))
            return csi_fail(err, CSI_INVALID_ARGUMENT, "backend \"%s\" is unknown (fuse, loop or plain)", value);
    }
    return 0;
}

static int read_access_type(const Csi__V1__CreateVolumeRequest *request, struct volume *volume, struct err *err)
{
    size_t blocks = 0;
    for (size_t i = 0; i < request->n_volume_capabilities; i++)
        blocks += request->volume_capabilities[i]->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK;
    if (blocks != 0 && blocks != request->n_volume_capabilities)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "cannot have both block and mount access type");
    volume->block = blocks != 0;
    return 0;
}

static int check_topology(const struct hostpath *driver, const Csi__V1__TopologyRequirement *requirement,
                          struct err *err)
{
    if (!driver->options.topology || requirement == NULL || requirement->n_requisite == 0)
        return 0;
    for (size_t i = 0; i < requirement->n_requisite; i++)
        if (str_eq(csi_map_get(CSI_MAP(requirement->requisite[i], segments), HOSTPATH_TOPOLOGY_KEY),
                   driver->options.node_id))
            return 0;
    return csi_fail(err, CSI_RESOURCE_EXHAUSTED, "the volume has to be accessible from other nodes than %s",
                    driver->options.node_id);
}

static void fill_volume(const struct hostpath *driver, const struct volume *volume, struct csi_arena *arena,
                        Csi__V1__Volume *reply)
{
    reply->volume_id = csi_arena_strdup(arena, volume->id);
    reply->capacity_bytes = volume->capacity;
    if (driver->options.topology)
        CSI_MAP_ADD(arena, CSI_ADD(arena, reply, accessible_topology), segments, HOSTPATH_TOPOLOGY_KEY,
                    driver->options.node_id);
}

/* The same name again: the same volume when it fits what is asked for, else 6. */
static int check_existing(const struct volume *existing, const struct volume *wanted,
                          const Csi__V1__CapacityRange *range, struct err *err)
{
    int64_t required = range != NULL ? range->required_bytes : 0, limit = range != NULL ? range->limit_bytes : 0;
    if (existing->capacity < required || (limit > 0 && existing->capacity > limit))
        return csi_fail(err, CSI_ALREADY_EXISTS, "volume %s exists with another size, %" PRId64 " bytes",
                        existing->name, existing->capacity);
    if (existing->block != wanted->block || existing->backend != wanted->backend)
        return csi_fail(err, CSI_ALREADY_EXISTS, "volume %s exists with another access type or backend",
                        existing->name);
    return 0;
}

static int make_volume(struct hostpath *driver, struct volume *volume, struct err *err)
{
    char uuid[RNG_UUID_SIZE];
    volume->id = mem_strdup(rng_uuid(driver->rng, uuid));
    volume->created = clock_wall(driver->clock);
    if (state_make_data(driver->state, volume->id, err) == 0 && state_save_volume(driver->state, volume, err) == 0)
        return 0;
    auto_err struct err ignored = {0};
    if (state_discard_data(driver->state, volume->id, &ignored) < 0) /* the next start does it */
        log_error("Cannot remove a half-made volume", kv_str("volume", volume->id), kv_err(&ignored));
    return -1;
}

static int create_volume(void *arg, const Csi__V1__CreateVolumeRequest *request, Csi__V1__CreateVolumeResponse *reply,
                         struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    auto_keylock struct keylock_hold hold = {0};
    if (keylock_exclusive(driver->locks, "name", request->name, &hold, err) < 0)
        return -1;
    auto_volume struct volume *volume = volume_new();
    volume->name = mem_strdup(request->name);
    volume->backend = driver->options.default_backend;
    volume->capacity = request->capacity_range != NULL ? request->capacity_range->required_bytes : 0;
    if (read_parameters(request, volume, err) < 0 || read_access_type(request, volume, err) < 0)
        return -1;
    if (volume->block)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "block volumes are not supported yet");
    if (volume->capacity > driver->options.max_volume_size)
        return csi_fail(err, CSI_OUT_OF_RANGE, "requested capacity %" PRId64 " exceeds the maximum of %" PRId64,
                        volume->capacity, driver->options.max_volume_size);
    if (check_topology(driver, request->accessibility_requirements, err) < 0)
        return -1;
    auto_volume struct volume *existing = state_volume_by_name(driver->state, request->name);
    if (existing != NULL ? check_existing(existing, volume, request->capacity_range, err) < 0
                         : make_volume(driver, volume, err) < 0)
        return -1;
    fill_volume(driver, existing != NULL ? existing : volume, arena, CSI_NEW(arena, reply, volume));
    return 0;
}

static int delete_volume(void *arg, const Csi__V1__DeleteVolumeRequest *request, Csi__V1__DeleteVolumeResponse *reply,
                         struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    (void)reply, (void)call;
    auto_keylock struct keylock_hold hold = {0};
    if (keylock_exclusive(driver->locks, "volume", request->volume_id, &hold, err) < 0)
        return -1;
    auto_volume struct volume *volume = state_volume(driver->state, request->volume_id);
    if (volume == NULL)
        return 0;
    if (volume->target_count > 0)
        return csi_fail(err, CSI_FAILED_PRECONDITION, "volume %s is still published at %s", volume->id,
                        volume->targets[0].path);
    return state_delete_volume(driver->state, volume->id, err);
}

static int validate_volume_capabilities(void *arg, const Csi__V1__ValidateVolumeCapabilitiesRequest *request,
                                        Csi__V1__ValidateVolumeCapabilitiesResponse *reply, struct csi_call *call,
                                        struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    auto_volume struct volume *volume = NULL;
    if (hostpath_find_volume(driver, request->volume_id, &volume, err) < 0)
        return -1;
    for (size_t i = 0; i < request->n_volume_capabilities; i++) {
        const Csi__V1__VolumeCapability *capability = request->volume_capabilities[i];
        bool block = capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK;
        bool known = capability->access_type_case != CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE__NOT_SET &&
                     capability->access_mode != NULL && capability->access_mode->mode > 0 &&
                     capability->access_mode->mode <= 7;
        if (!known || block != volume->block) {
            reply->message =
                csi_arena_strdup(arena, !known ? "a capability has no access type or an unknown access mode"
                                               : "the volume has the other access type");
            return 0;
        }
    }
    Csi__V1__ValidateVolumeCapabilitiesResponse__Confirmed *confirmed = CSI_NEW(arena, reply, confirmed);
    confirmed->n_volume_capabilities = request->n_volume_capabilities;
    confirmed->volume_capabilities = request->volume_capabilities;
    CSI_MAP_ADD_ALL(arena, confirmed, volume_context, CSI_MAP(request, volume_context));
    CSI_MAP_ADD_ALL(arena, confirmed, parameters, CSI_MAP(request, parameters));
    return 0;
}

static int controller_get_capabilities(void *arg, const Csi__V1__ControllerGetCapabilitiesRequest *request,
                                       Csi__V1__ControllerGetCapabilitiesResponse *reply, struct csi_call *call,
                                       struct err *err)
{
    static const Csi__V1__ControllerServiceCapability__RPC__Type types[] = {
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__CREATE_DELETE_VOLUME,
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__SINGLE_NODE_MULTI_WRITER,
    };
    struct csi_arena *arena = csi_call_arena(call);
    (void)arg, (void)request, (void)err;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        CSI_NEW(arena, CSI_ADD(arena, reply, capabilities), rpc)->type = types[i];
    return 0;
}

const struct csi_handlers hostpath_controller_handlers = {
    .create_volume = create_volume,
    .delete_volume = delete_volume,
    .validate_volume_capabilities = validate_volume_capabilities,
    .controller_get_capabilities = controller_get_capabilities,
};
