/* SPDX-License-Identifier: Apache-2.0 */
/* What the controller service answers from the records: lists, single volumes, capacity, validation, capabilities. */
#include "drivers/hostpath/backend.h"
#include "drivers/hostpath/capacity.h"
#include "drivers/hostpath/volumes.h"

#include "lib/base/mem.h"

int hostpath_find_volume(struct hostpath *driver, const char *id, struct volume **volume, struct err *err)
{
    *volume = state_volume(driver->state, id);
    return *volume != NULL ? 0 : csi_fail(err, CSI_NOT_FOUND, "volume %s does not exist", id);
}

int hostpath_lock_volume(struct hostpath *driver, const char *id, struct keylock_hold *hold, struct volume **volume,
                         struct err *err)
{
    if (keylock_exclusive(driver->locks, "volume", id, hold, err) < 0)
        return -1;
    return hostpath_find_volume(driver, id, volume, err);
}

bool hostpath_is_own_topology(const struct hostpath *driver, const Csi__V1__Topology *topology)
{
    return str_eq(csi_map_get(CSI_MAP(topology, segments), HOSTPATH_TOPOLOGY_KEY), driver->options.node_id);
}

/* ---- ValidateVolumeCapabilities ---- */

static const char *find_mismatch(const struct volume *volume, const Csi__V1__VolumeCapability *capability,
                                 struct err *err)
{
    auto_mount_options struct mount_options options = {0};
    if (capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE__NOT_SET ||
        capability->access_mode == NULL || (int)capability->access_mode->mode <= 0 ||
        (int)capability->access_mode->mode > CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_MULTI_WRITER)
        return "a capability has no access type or an unknown access mode";
    if ((capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK) != volume->block)
        return "the volume has the other access type";
    return backend_read_options(volume, capability, &options, err) < 0 ? err_text(err) : NULL;
}

static const char *find_unsupported(const struct hostpath *driver, const struct volume *volume,
                                    const Csi__V1__ValidateVolumeCapabilitiesRequest *request, struct err *err)
{
    auto_volume struct volume *asked = volume_new();
    bool backend_given;
    if (volumes_read_parameters(CSI_MAP(request, parameters), asked, &backend_given, NULL, err) < 0 ||
        volumes_check_mutable(driver, CSI_MAP(request, mutable_parameters), err) < 0)
        return err_text(err);
    if ((backend_given && asked->backend != volume->backend) ||
        (asked->kind != NULL && !str_eq(asked->kind, volume->kind)))
        return "the volume has another backend or kind";
    for (size_t i = 0; i < request->n_volume_capabilities; i++) {
        const char *mismatch = find_mismatch(volume, request->volume_capabilities[i], err);
        if (mismatch != NULL)
            return mismatch;
    }
    return NULL;
}

static int validate_volume_capabilities(void *arg, const Csi__V1__ValidateVolumeCapabilitiesRequest *request,
                                        Csi__V1__ValidateVolumeCapabilitiesResponse *reply, struct csi_call *call,
                                        struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    auto_err struct err reason = {0};
    auto_volume struct volume *volume = NULL;
    if (hostpath_find_volume(driver, request->volume_id, &volume, err) < 0)
        return -1;
    const char *unsupported = find_unsupported(driver, volume, request, &reason);
    if (unsupported != NULL) {
        reply->message = csi_arena_strdup(arena, unsupported);
        return 0;
    }
    Csi__V1__ValidateVolumeCapabilitiesResponse__Confirmed *confirmed = CSI_NEW(arena, reply, confirmed);
    confirmed->n_volume_capabilities = request->n_volume_capabilities;
    confirmed->volume_capabilities = request->volume_capabilities;
    CSI_MAP_ADD_ALL(arena, confirmed, volume_context, CSI_MAP(request, volume_context));
    CSI_MAP_ADD_ALL(arena, confirmed, parameters, CSI_MAP(request, parameters));
    CSI_MAP_ADD_ALL(arena, confirmed, mutable_parameters, CSI_MAP(request, mutable_parameters));
    return 0;
}

/* ---- ListVolumes, ControllerGetVolume ---- */

/* One page: copies, so that nothing slow is done with the state's lock held. */
struct page {
    const char *after;
    size_t max;
    struct volume **volumes;
    size_t count;
    bool more;
};

static void collect(void *arg, const struct volume *volume)
{
    struct page *page = arg;
    if (volume->ephemeral || strcmp(volume->id, page->after) <= 0 || page->more)
        return;
    if (page->count == page->max) {
        page->more = true;
        return;
    }
    if ((page->count & (page->count + 1)) == 0) /* 0, 1, 3, 7 … */
        page->volumes = mem_realloc_array(page->volumes, 2 * page->count + 2, sizeof(struct volume *));
    page->volumes[page->count++] = volume_copy(volume);
}

static void page_free(struct page *page)
{
    for (size_t i = 0; i < page->count; i++)
        volume_free(page->volumes[i]);
    free(page->volumes);
}

static int list_volumes(void *arg, const Csi__V1__ListVolumesRequest *request, Csi__V1__ListVolumesResponse *reply,
                        struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    __attribute__((cleanup(page_free))) struct page page = {
        .max = request->max_entries > 0 ? (size_t)request->max_entries : SIZE_MAX};
    auto_mounts struct mount_list mounts = {0};
    if (volumes_read_token(request->starting_token, &page.after, err) < 0)
        return -1;
    state_each_volume(driver->state, collect, &page);
    if (mount_list_read(&mounts, err) < 0)
        return -1;
    for (size_t i = 0; i < page.count; i++) {
        auto_free char *problem = hostpath_volume_problem(driver, page.volumes[i], &mounts);
        Csi__V1__ListVolumesResponse__Entry *entry = CSI_ADD(arena, reply, entries);
        volumes_fill(driver, page.volumes[i], arena, CSI_NEW(arena, entry, volume));
        Csi__V1__ListVolumesResponse__VolumeStatus *status = CSI_NEW(arena, entry, status);
        volumes_fill_condition(problem, arena, CSI_NEW(arena, status, volume_condition));
        if (page.volumes[i]->attached)
            CSI_ADD_STRING(arena, status, published_node_ids, driver->options.node_id);
    }
    if (page.more)
        reply->next_token = volumes_make_token(arena, page.volumes[page.count - 1]->id);
    return 0;
}

static int controller_get_volume(void *arg, const Csi__V1__ControllerGetVolumeRequest *request,
                                 Csi__V1__ControllerGetVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    auto_volume struct volume *volume = NULL;
    auto_mounts struct mount_list mounts = {0};
    if (hostpath_find_volume(driver, request->volume_id, &volume, err) < 0 || mount_list_read(&mounts, err) < 0)
        return -1;
    auto_free char *problem = hostpath_volume_problem(driver, volume, &mounts);
    volumes_fill(driver, volume, arena, CSI_NEW(arena, reply, volume));
    Csi__V1__ControllerGetVolumeResponse__VolumeStatus *status = CSI_NEW(arena, reply, status);
    volumes_fill_condition(problem, arena, CSI_NEW(arena, status, volume_condition));
    if (volume->attached)
        CSI_ADD_STRING(arena, status, published_node_ids, driver->options.node_id);
    return 0;
}

/* ---- GetCapacity ---- */

static int get_capacity(void *arg, const Csi__V1__GetCapacityRequest *request, Csi__V1__GetCapacityResponse *reply,
                        struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    auto_volume struct volume *volume = volume_new();
    bool backend_given;
    int64_t available = 0;
    volume->backend = driver->options.default_backend;
    if (volumes_read_parameters(CSI_MAP(request, parameters), volume, &backend_given, NULL, err) < 0)
        return -1;
    const bool elsewhere = driver->options.topology && request->accessible_topology != NULL &&
                           !hostpath_is_own_topology(driver, request->accessible_topology);
    const bool impossible = volume->backend == BACKEND_FUSE && driver->holder == NULL;
    if (!elsewhere && !impossible && capacity_available(driver, volume->kind, &available, err) < 0)
        return -1;
    const int64_t max = driver->options.max_volume_size;
    reply->available_capacity = available;
    CSI_NEW(arena, reply, maximum_volume_size)->value = available < max ? available : max;
    CSI_NEW(arena, reply, minimum_volume_size)->value = 0;
    return 0;
}

/* ---- capabilities ---- */

#define CAPABILITY(name) CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__##name

static int controller_get_capabilities(void *arg, const Csi__V1__ControllerGetCapabilitiesRequest *request,
                                       Csi__V1__ControllerGetCapabilitiesResponse *reply, struct csi_call *call,
                                       struct err *err)
{
    const struct hostpath_options *options = &((struct hostpath *)arg)->options;
    const struct {
        Csi__V1__ControllerServiceCapability__RPC__Type type;
        bool on;
    } table[] = {
        {CAPABILITY(CREATE_DELETE_VOLUME), true},
        {CAPABILITY(PUBLISH_UNPUBLISH_VOLUME), options->attach},
        {CAPABILITY(PUBLISH_READONLY), options->attach},
        {CAPABILITY(LIST_VOLUMES), true},
        {CAPABILITY(LIST_VOLUMES_PUBLISHED_NODES), options->attach},
        {CAPABILITY(GET_VOLUME), true},
        {CAPABILITY(VOLUME_CONDITION), true},
        {CAPABILITY(GET_CAPACITY), true},
        {CAPABILITY(CREATE_DELETE_SNAPSHOT), true},
        {CAPABILITY(LIST_SNAPSHOTS), options->list_snapshots},
        {CAPABILITY(GET_SNAPSHOT), true},
        {CAPABILITY(CLONE_VOLUME), true},
        {CAPABILITY(EXPAND_VOLUME), options->controller_expansion},
        {CAPABILITY(MODIFY_VOLUME), options->modify},
        {CAPABILITY(SINGLE_NODE_MULTI_WRITER), true},
    };
    struct csi_arena *arena = csi_call_arena(call);
    (void)request, (void)err;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].on)
            CSI_NEW(arena, CSI_ADD(arena, reply, capabilities), rpc)->type = table[i].type;
    return 0;
}

const struct csi_handlers hostpath_controller_handlers = {
    .validate_volume_capabilities = validate_volume_capabilities,
    .list_volumes = list_volumes,
    .controller_get_volume = controller_get_volume,
    .get_capacity = get_capacity,
    .controller_get_capabilities = controller_get_capabilities,
};
