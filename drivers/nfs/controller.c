/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/driver.h"

#include "drivers/nfs/copy.h"
#include "drivers/nfs/listing.h"
#include "drivers/nfs/snapshot.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <strings.h>

/* ---- CreateVolume ---- */

struct creation {
    struct parameters parameters;
    struct record wanted;
    struct handle handle;
};

static void creation_clear(struct creation *creation)
{
    parameters_clear(&creation->parameters);
    record_clear(&creation->wanted);
    handle_clear(&creation->handle);
}

static int check_capabilities(Csi__V1__VolumeCapability *const *capabilities, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++)
        if (capabilities[i]->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK)
            return csi_fail(err, CSI_INVALID_ARGUMENT, "NFS has no block volumes (volumeMode Block)");
    return 0;
}

static int read_request(struct nfs_driver *driver, const Csi__V1__CreateVolumeRequest *request,
                        struct creation *creation, struct err *err)
{
    struct parameters *parameters = &creation->parameters;
    struct record *wanted = &creation->wanted;
    if (check_capabilities(request->volume_capabilities, request->n_volume_capabilities, err) < 0 ||
        parameters_read(CSI_MAP(request, parameters), false, parameters, err) < 0)
        return -1;
    if (request->n_mutable_parameters > 0)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "there are no mutable parameters");
    for (size_t i = 0; i < request->n_volume_capabilities; i++)
        if (parameters_read_mount_flags(request->volume_capabilities[i], &parameters->where, err) < 0)
            return -1;
    if (nfs_read_secrets(CSI_MAP(request, secrets), &parameters->where, err) < 0 ||
        nfs_complete_location(driver, &parameters->where, err) < 0)
        return -1;
    wanted->id = handle_id_of_name(request->name);
    wanted->name = mem_strdup(request->name);
    wanted->sub_dir = mem_strdup(parameters->sub_dir != NULL ? parameters->sub_dir : wanted->id);
    wanted->on_delete = parameters->on_delete != ON_DELETE_DEFAULT ? parameters->on_delete : driver->options.on_delete;
    wanted->capacity = request->capacity_range != NULL ? request->capacity_range->required_bytes : 0;
    wanted->created = clock_wall(driver->clock);
    share_location_copy(&creation->handle.where, &parameters->where);
    creation->handle.id = mem_strdup(wanted->id);
    creation->handle.sub_dir = mem_strdup(wanted->sub_dir);
    creation->handle.on_delete = wanted->on_delete;
    return 0;
}

/* The same name again: the same volume when it fits what is asked for, else 6. */
static int check_existing(const struct record *existing, const struct record *wanted,
                          const Csi__V1__CapacityRange *range, struct err *err)
{
    int64_t limit = range != NULL ? range->limit_bytes : 0;
    if (existing->capacity < wanted->capacity || (limit > 0 && existing->capacity > limit))
        return csi_fail(err, CSI_ALREADY_EXISTS, "volume %s exists with another size, %" PRId64 " bytes",
                        existing->name, existing->capacity);
    if (!str_eq(existing->sub_dir, wanted->sub_dir))
        return csi_fail(err, CSI_ALREADY_EXISTS, "volume %s exists in another directory, %s", existing->name,
                        existing->sub_dir);
    if (!str_eq(existing->source_snapshot, wanted->source_snapshot) ||
        !str_eq(existing->source_volume, wanted->source_volume))
        return csi_fail(err, CSI_ALREADY_EXISTS, "volume %s exists with another source", existing->name);
    return 0;
}

static void fill_volume(const struct creation *creation, const struct record *record, char *id,
                        const Csi__V1__CreateVolumeRequest *request, struct csi_arena *arena, Csi__V1__Volume *volume)
{
    volume->volume_id = id;
    volume->capacity_bytes = record->capacity;
    volume->content_source = request->volume_content_source;
    struct csi_map parameters = CSI_MAP(request, parameters);
    const char *key, *value;
    for (size_t i = 0; i < parameters.len; i++)
        if (csi_map_at(parameters, i, &key, &value) && strcasecmp(key, "subDir") != 0 &&
            strcasecmp(key, "pathPattern") != 0)
            CSI_MAP_ADD(arena, volume, volume_context, key, value);
    /* resolved, and under the keys nodes look for */
    if (csi_map_get(parameters, "server") == NULL)
        CSI_MAP_ADD(arena, volume, volume_context, "server", creation->parameters.where.server);
    if (csi_map_get(parameters, "share") == NULL)
        CSI_MAP_ADD(arena, volume, volume_context, "share", creation->parameters.where.export);
    CSI_MAP_ADD(arena, volume, volume_context, "subDir", record->sub_dir);
}

/* An interrupted deletion under the same name is finished before the name is used again, and a creation that never came
 * to an end, so that nobody knows of it, gives way to one that asks for something else. */
static int load_existing(struct nfs_driver *driver, struct area *area, const struct creation *creation,
                         const Csi__V1__CapacityRange *range, struct record *existing, struct err *err)
{
    int found = record_load(area, &area->volumes, creation->wanted.id, existing, err);
    if (found <= 0)
        return found;
    if (existing->state != RECORD_DELETING && existing->state != RECORD_ARCHIVING) {
        if (check_existing(existing, &creation->wanted, range, err) == 0)
            return 1;
        if (existing->state != RECORD_CREATING)
            return -1;
        err_clear(err);
    }
    record_clear(existing);
    return lifecycle_delete(driver, area->share, &creation->handle, err);
}

static int create_on(struct nfs_driver *driver, struct share *share, struct creation *creation,
                     const Csi__V1__CreateVolumeRequest *request, struct csi_call *call, struct err *err)
{
    struct area area;
    struct record *wanted = &creation->wanted;
    auto_record struct record existing = {0};
    __attribute__((cleanup(source_clear))) struct source source = {0};
    if (area_open(share, &area, err) < 0)
        return -1;
    if (source_read(driver, request->volume_content_source, wanted, &source, err) < 0)
        return -1;
    int found = load_existing(driver, &area, creation, request->capacity_range, &existing, err);
    if (found < 0)
        return -1;
    if (found > 0 && existing.state == RECORD_READY) {
        wanted->capacity = existing.capacity;
        struct share_fh fh;
        int error = share_walk(share, existing.sub_dir, &fh, NULL);
        if (error == 0)
            return 0;
        if (error != ENOENT)
            return share_fail(share, error, err, "looking for directory %s", existing.sub_dir);
        return csi_fail(err, CSI_DATA_LOSS, "volume %s has a record but its directory %s is gone", existing.name,
                        existing.sub_dir);
    }
    if (source_open(driver, wanted, &source, call, err) < 0)
        return -1;
    if (source.present)
        nfs_outlive_call(share);
    if (found > 0)
        wanted->created = existing.created;
    return lifecycle_create(driver, &area, wanted, &creation->parameters, &source.copy, err);
}

static int create_volume(void *arg, const Csi__V1__CreateVolumeRequest *request, Csi__V1__CreateVolumeResponse *reply,
                         struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    auto_keylock struct keylock_hold hold = {0};
    auto_share struct share *share = NULL;
    __attribute__((cleanup(creation_clear))) struct creation creation = {0};
    if (read_request(driver, request, &creation, err) < 0)
        return -1;
    auto_free char *id = handle_build(&creation.handle, err);
    if (id == NULL ||
        nfs_lock(driver, "volume", &creation.parameters.where, creation.wanted.id, false, &hold, err) < 0 ||
        nfs_open_share(driver, &creation.parameters.where, call, &share, err) < 0 ||
        create_on(driver, share, &creation, request, call, err) < 0)
        return -1;
    fill_volume(&creation, &creation.wanted, csi_arena_strdup(arena, id), request, arena,
                CSI_NEW(arena, reply, volume));
    return 0;
}

/* ---- the others ---- */

static int delete_volume(void *arg, const Csi__V1__DeleteVolumeRequest *request, Csi__V1__DeleteVolumeResponse *reply,
                         struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    auto_share struct share *share = NULL;
    auto_handle struct handle handle = {0};
    auto_err struct err unknown = {0};
    (void)reply;
    if (handle_parse(request->volume_id, &handle, &unknown) < 0) {
        log_info("Nothing to delete", kv_err(&unknown));
        return 0;
    }
    if (nfs_read_secrets(CSI_MAP(request, secrets), &handle.where, err) < 0 ||
        nfs_lock(driver, "volume", &handle.where, handle.id, false, &hold, err) < 0 ||
        nfs_open_share(driver, &handle.where, call, &share, err) < 0)
        return -1;
    return lifecycle_delete(driver, share, &handle, err);
}

/* The volume behind an id, or 5. */
static int find_volume(struct nfs_driver *driver, const char *id, struct csi_call *call, struct handle *handle,
                       struct share **share, struct area *area, struct record *record, struct share_fh *directory,
                       struct err *err)
{
    auto_err struct err unknown = {0};
    if (handle_parse(id, handle, &unknown) < 0)
        return csi_fail(err, CSI_NOT_FOUND, "volume %s does not exist: %s", id, err_text(&unknown));
    if (nfs_open_share(driver, &handle->where, call, share, err) < 0)
        return -1;
    int found = lifecycle_find(*share, area, handle, record, directory, err);
    if (found == 0)
        return csi_fail(err, CSI_NOT_FOUND, "volume %s does not exist", id);
    return found < 0 ? -1 : 0;
}

static int validate_volume_capabilities(void *arg, const Csi__V1__ValidateVolumeCapabilitiesRequest *request,
                                        Csi__V1__ValidateVolumeCapabilitiesResponse *reply, struct csi_call *call,
                                        struct err *err)
{
    struct csi_arena *arena = csi_call_arena(call);
    auto_share struct share *share = NULL;
    auto_handle struct handle handle = {0};
    auto_record struct record record = {0};
    struct area area;
    struct share_fh directory;
    if (find_volume(arg, request->volume_id, call, &handle, &share, &area, &record, &directory, err) < 0)
        return -1;
    for (size_t i = 0; i < request->n_volume_capabilities; i++) {
        const Csi__V1__VolumeCapability *capability = request->volume_capabilities[i];
        if (capability->access_type_case != CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT ||
            capability->access_mode == NULL || capability->access_mode->mode < 1 || capability->access_mode->mode > 7) {
            reply->message =
                csi_arena_strdup(arena, capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK
                                            ? "NFS has no block volumes"
                                            : "a capability has no access type or an unknown access mode");
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

static int controller_expand_volume(void *arg, const Csi__V1__ControllerExpandVolumeRequest *request,
                                    Csi__V1__ControllerExpandVolumeResponse *reply, struct csi_call *call,
                                    struct err *err)
{
    struct nfs_driver *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    auto_share struct share *share = NULL;
    auto_handle struct handle handle = {0};
    auto_record struct record record = {0};
    struct area area;
    struct share_fh directory;
    int64_t wanted = request->capacity_range->required_bytes;
    if (handle_parse(request->volume_id, &handle, NULL) == 0 &&
        nfs_lock(driver, "volume", &handle.where, handle.id, false, &hold, err) < 0)
        return -1;
    handle_clear(&handle);
    if (find_volume(driver, request->volume_id, call, &handle, &share, &area, &record, &directory, err) < 0)
        return -1;
    /* a volume of csi-driver-nfs gets its record, and with it its size, now */
    if (record.capacity < wanted) {
        record.capacity = wanted;
        if (area_open(share, &area, err) < 0 || place_claim(&area, record.sub_dir, record.id, err) < 0 ||
            record_save(&area, &area.volumes, &record, err) < 0)
            return -1;
    }
    reply->capacity_bytes = record.capacity;
    reply->node_expansion_required = true; /* the FUSE mounter has to be told */
    return 0;
}

static int controller_get_volume(void *arg, const Csi__V1__ControllerGetVolumeRequest *request,
                                 Csi__V1__ControllerGetVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct csi_arena *arena = csi_call_arena(call);
    auto_share struct share *share = NULL;
    auto_handle struct handle handle = {0};
    auto_record struct record record = {0};
    struct area area;
    struct share_fh directory;
    if (find_volume(arg, request->volume_id, call, &handle, &share, &area, &record, &directory, err) < 0)
        return -1;
    Csi__V1__Volume *volume = CSI_NEW(arena, reply, volume);
    volume->volume_id = request->volume_id;
    volume->capacity_bytes = record.capacity;
    Csi__V1__ControllerGetVolumeResponse__VolumeStatus *status = CSI_NEW(arena, reply, status);
    Csi__V1__VolumeCondition *condition = CSI_NEW(arena, status, volume_condition);
    condition->message = csi_arena_strdup(arena, "the directory is there and the server answers");
    return 0;
}

static int get_capacity(void *arg, const Csi__V1__GetCapacityRequest *request, Csi__V1__GetCapacityResponse *reply,
                        struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    auto_share struct share *share = NULL;
    auto_parameters struct parameters parameters = {0};
    struct share_space space;
    struct share_fh root;
    /* templates cannot be filled in here: nothing but the place matters */
    if (parameters_read_place(CSI_MAP(request, parameters), &parameters, err) < 0)
        return -1;
    for (size_t i = 0; i < request->n_volume_capabilities; i++)
        if (parameters_read_mount_flags(request->volume_capabilities[i], &parameters.where, err) < 0)
            return -1;
    if (request->n_parameters == 0 && driver->options.where.server == NULL)
        return 0; /* of no export in particular: nothing */
    if (nfs_complete_location(driver, &parameters.where, err) < 0 ||
        nfs_open_share(driver, &parameters.where, call, &share, err) < 0)
        return -1;
    share_root(share, &root);
    int error = share_statfs(share, &root, &space);
    if (error != 0)
        return share_fail(share, error, err, "asking for the free space");
    int64_t available = space.available_bytes < INT64_MAX ? (int64_t)space.available_bytes : INT64_MAX;
    reply->available_capacity = available;
    CSI_NEW(csi_call_arena(call), reply, maximum_volume_size)->value = available;
    return 0;
}

static int controller_get_capabilities(void *arg, const Csi__V1__ControllerGetCapabilitiesRequest *request,
                                       Csi__V1__ControllerGetCapabilitiesResponse *reply, struct csi_call *call,
                                       struct err *err)
{
    static const Csi__V1__ControllerServiceCapability__RPC__Type types[] = {
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__CREATE_DELETE_VOLUME,
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__GET_CAPACITY,
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__CREATE_DELETE_SNAPSHOT,
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__GET_SNAPSHOT,
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__CLONE_VOLUME,
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__EXPAND_VOLUME,
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__GET_VOLUME,
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__VOLUME_CONDITION,
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__SINGLE_NODE_MULTI_WRITER,
        /* these speak of the one export that --server and --share name */
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__LIST_VOLUMES,
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__LIST_SNAPSHOTS,
    };
    const struct nfs_driver *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    (void)request, (void)err;
    size_t count = ARRAY_LEN(types) - (driver->options.where.export != NULL ? 0 : 2);
    for (size_t i = 0; i < count; i++)
        CSI_NEW(arena, CSI_ADD(arena, reply, capabilities), rpc)->type = types[i];
    return 0;
}

const struct csi_handlers nfs_controller_handlers = {
    .create_volume = create_volume,
    .delete_volume = delete_volume,
    .validate_volume_capabilities = validate_volume_capabilities,
    .controller_expand_volume = controller_expand_volume,
    .controller_get_volume = controller_get_volume,
    .list_volumes = nfs_list_volumes,
    .get_capacity = get_capacity,
    .controller_get_capabilities = controller_get_capabilities,
};
