/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CreateVolume: the record is written when everything else is done, so whatever happens before leaves nothing that
 * counts. Copies of a source run as a job: they may outlive the call.
 */
#include "drivers/hostpath/backend.h"
#include "drivers/hostpath/capacity.h"
#include "drivers/hostpath/cut.h"
#include "drivers/hostpath/image.h"
#include "drivers/hostpath/usage.h"
#include "drivers/hostpath/volumes.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <inttypes.h>

/* A volume on its way: owned by the job that makes it. */
struct making {
    struct hostpath *driver;
    struct volume *volume;
    struct snapshot *from_snapshot;
    struct keylock_hold name, source;
    struct reservation reservation;
};

static void making_finish(struct making *making)
{
    capacity_release(&making->reservation);
    keylock_release(&making->source);
    keylock_release(&making->name);
}

static void making_free(void *arg)
{
    struct making *making = arg;
    making_finish(making);
    volume_free(making->volume);
    snapshot_free(making->from_snapshot);
    free(making);
}

/* ---- what is asked for ---- */

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

static int check_capabilities(const Csi__V1__CreateVolumeRequest *request, const struct volume *volume, struct err *err)
{
    for (size_t i = 0; i < request->n_volume_capabilities; i++) {
        auto_mount_options struct mount_options options = {0};
        if ((int)request->volume_capabilities[i]->access_mode->mode >
            CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_MULTI_WRITER)
            return csi_fail(err, CSI_INVALID_ARGUMENT, "access mode %d is unknown",
                            (int)request->volume_capabilities[i]->access_mode->mode);
        if (backend_read_options(volume, request->volume_capabilities[i], &options, err) < 0)
            return -1;
    }
    return 0;
}

static int check_topology(const struct hostpath *driver, const Csi__V1__TopologyRequirement *requirement,
                          struct err *err)
{
    if (!driver->options.topology || requirement == NULL || requirement->n_requisite == 0)
        return 0;
    for (size_t i = 0; i < requirement->n_requisite; i++)
        if (hostpath_is_own_topology(driver, requirement->requisite[i]))
            return 0;
    return csi_fail(err, CSI_RESOURCE_EXHAUSTED, "the volume has to be accessible from other nodes than %s",
                    driver->options.node_id);
}

/* What a clone or restore has to match. */
struct source {
    int64_t size;
    bool block;
    enum volume_backend backend;
};

static int find_source(struct making *making, const Csi__V1__VolumeContentSource *content, struct source *source,
                       struct err *err)
{
    struct hostpath *driver = making->driver;
    struct volume *volume = making->volume;
    if (content->type_case == CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_SNAPSHOT) {
        volume->source_snapshot = mem_strdup(content->snapshot->snapshot_id);
        if (keylock_shared(driver->locks, "snapshot", volume->source_snapshot, &making->source, err) < 0)
            return -1;
        making->from_snapshot = state_snapshot(driver->state, volume->source_snapshot);
        if (making->from_snapshot == NULL)
            return csi_fail(err, CSI_NOT_FOUND, "snapshot %s does not exist", volume->source_snapshot);
        *source =
            (struct source){making->from_snapshot->size, making->from_snapshot->block, making->from_snapshot->backend};
        return 0;
    }
    volume->source_volume = mem_strdup(content->volume->volume_id);
    if (keylock_shared(driver->locks, "volume data", volume->source_volume, &making->source, err) < 0)
        return -1;
    auto_volume struct volume *from = NULL;
    if (hostpath_find_volume(driver, volume->source_volume, &from, err) < 0)
        return -1;
    *source = (struct source){from->capacity, from->block, from->backend};
    return 0;
}

static int match_source(struct volume *volume, const struct source *source, bool backend_given, struct err *err)
{
    if (volume->block != source->block)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "the source is a %s volume and cannot become a %s volume",
                        source->block ? "block" : "mount", volume->block ? "block" : "mount");
    if (!backend_given)
        volume->backend = source->backend;
    if (!volume->block && (volume->backend == BACKEND_LOOP) != (source->backend == BACKEND_LOOP))
        return csi_fail(err, CSI_INVALID_ARGUMENT, "the source has the backend %s and cannot become one of backend %s",
                        volume_backend_name(source->backend), volume_backend_name(volume->backend));
    return 0;
}

/* source NULL = an empty volume. */
static int choose_size(const struct hostpath *driver, struct volume *volume, const Csi__V1__CapacityRange *range,
                       const struct source *source, struct err *err)
{
    const int64_t required = range != NULL ? range->required_bytes : 0, limit = range != NULL ? range->limit_bytes : 0;
    volume->capacity = required;
    if (required == 0) {
        volume->capacity = source != NULL ? source->size : driver->options.default_volume_size;
        if (source == NULL && limit > 0 && volume->capacity > limit)
            volume->capacity = limit;
    }
    if (source == NULL && !volume->block && volume->backend == BACKEND_LOOP && volume->capacity < IMAGE_EXT4_MIN)
        volume->capacity = IMAGE_EXT4_MIN;
    if (source != NULL && volume->capacity < source->size)
        return csi_fail(err, CSI_OUT_OF_RANGE, "%" PRId64 " bytes are less than the source's %" PRId64,
                        volume->capacity, source->size);
    if (limit > 0 && volume->capacity > limit)
        return csi_fail(err, CSI_OUT_OF_RANGE, "the volume needs %" PRId64 " bytes, the limit is %" PRId64,
                        volume->capacity, limit);
    if (volume->capacity > driver->options.max_volume_size)
        return csi_fail(err, CSI_OUT_OF_RANGE, "requested capacity %" PRId64 " exceeds the maximum of %" PRId64,
                        volume->capacity, driver->options.max_volume_size);
    return 0;
}

/* The same name again: the same volume when it fits what is asked for, else 6. */
static int check_existing(const struct volume *existing, const Csi__V1__CreateVolumeRequest *request,
                          const struct volume *wanted, bool backend_given, struct err *err)
{
    const Csi__V1__CapacityRange *range = request->capacity_range;
    const Csi__V1__VolumeContentSource *content = request->volume_content_source;
    int64_t required = range != NULL ? range->required_bytes : 0, limit = range != NULL ? range->limit_bytes : 0;
    const char *snapshot = NULL, *volume = NULL;
    if (content != NULL && content->type_case == CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_SNAPSHOT)
        snapshot = content->snapshot->snapshot_id;
    else if (content != NULL)
        volume = content->volume->volume_id;
    if (existing->capacity < required || (limit > 0 && existing->capacity > limit))
        return csi_fail(err, CSI_ALREADY_EXISTS, "volume %s exists with another size, %" PRId64 " bytes",
                        existing->name, existing->capacity);
    if (existing->block != wanted->block || (backend_given && existing->backend != wanted->backend) ||
        (wanted->kind != NULL && !str_eq(existing->kind, wanted->kind)))
        return csi_fail(err, CSI_ALREADY_EXISTS, "volume %s exists with another access type, backend or kind",
                        existing->name);
    if (!str_eq(existing->source_snapshot, snapshot) || !str_eq(existing->source_volume, volume))
        return csi_fail(err, CSI_ALREADY_EXISTS, "volume %s exists with another source", existing->name);
    return 0;
}

/* ---- making it ---- */

static int copy_source(struct making *making, struct stop *stop, struct err *err)
{
    struct hostpath *driver = making->driver;
    struct volume *volume = making->volume;
    const bool snapshot = volume->source_snapshot != NULL;
    const char *from = snapshot ? volume->source_snapshot : volume->source_volume;
    auto_free char *what = mem_printf("volume %s from %s %s", volume->id, snapshot ? "snapshot" : "volume", from);
    auto_copy struct copy copy = {.stop = stop, .clock = driver->clock, .what = what};
    auto_cut_pause struct cut_pause pause = {.handle = -1};
    if (!snapshot && cut_pause_begin(driver, from, &pause, err) < 0)
        return -1;
    if (cut_copy(driver, &copy, (struct cut_object){snapshot ? STATE_SNAPSHOTS : STATE_VOLUMES, from},
                 volume_is_image(volume), (struct cut_object){STATE_VOLUMES, volume->id}, err) < 0)
        return err_wrap(err, "making %s", what);
    return backend_of(volume)->adopt(driver, volume, err);
}

static int make_contents(struct making *making, struct stop *stop, struct err *err)
{
    struct volume *volume = making->volume;
    if (state_make_data(making->driver->state, STATE_VOLUMES, volume->id, err) < 0)
        return -1;
    if (volume->source_snapshot != NULL || volume->source_volume != NULL)
        return copy_source(making, stop, err);
    return backend_of(volume)->make(making->driver, volume, err);
}

static int make_volume(void *arg, struct stop *stop, struct err *err)
{
    struct making *making = arg;
    struct hostpath *driver = making->driver;
    const char *id = making->volume->id;
    making->volume->created = clock_wall(driver->clock);
    int result = make_contents(making, stop, err);
    if (result == 0)
        result = state_save_volume(driver->state, making->volume, err);
    auto_err struct err ignored = {0};
    if (result < 0 && state_discard_data(driver->state, STATE_VOLUMES, id, &ignored) < 0) /* the next start does it */
        log_error("Cannot remove a half-made volume", kv_str("volume", id), kv_err(&ignored));
    making_finish(making);
    return result;
}

/* Everything up to the work itself; *existing is set when there is none. */
static int prepare(struct making *making, const Csi__V1__CreateVolumeRequest *request, struct volume **existing,
                   struct err *err)
{
    struct hostpath *driver = making->driver;
    struct volume *volume = making->volume;
    struct source source = {0};
    bool backend_given;
    volume->name = mem_strdup(request->name);
    volume->backend = driver->options.default_backend;
    if (keylock_exclusive(driver->locks, "volume name", request->name, &making->name, err) < 0 ||
        volumes_read_parameters(CSI_MAP(request, parameters), volume, &backend_given, NULL, err) < 0 ||
        volumes_check_mutable(driver, CSI_MAP(request, mutable_parameters), err) < 0 ||
        read_access_type(request, volume, err) < 0)
        return -1;
    volumes_set_mutable(volume, CSI_MAP(request, mutable_parameters));
    *existing = state_volume_by_name(driver->state, request->name);
    if (*existing != NULL)
        return check_existing(*existing, request, volume, backend_given, err);
    const Csi__V1__VolumeContentSource *content = request->volume_content_source;
    if (content != NULL &&
        (find_source(making, content, &source, err) < 0 || match_source(volume, &source, backend_given, err) < 0))
        return -1;
    if (check_capabilities(request, volume, err) < 0 ||
        choose_size(driver, volume, request->capacity_range, content != NULL ? &source : NULL, err) < 0 ||
        check_topology(driver, request->accessibility_requirements, err) < 0)
        return -1;
    char uuid[RNG_UUID_SIZE];
    volume->id = mem_strdup(rng_uuid(driver->rng, uuid));
    return capacity_reserve(driver, &volume->kind, volume->capacity, &making->reservation, err);
}

static int create_volume(void *arg, const Csi__V1__CreateVolumeRequest *request, Csi__V1__CreateVolumeResponse *reply,
                         struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    struct making *making = mem_new(struct making);
    *making = (struct making){.driver = driver, .volume = volume_new()};
    auto_volume struct volume *existing = NULL;
    if (prepare(making, request, &existing, err) < 0 || existing != NULL) {
        making_free(making);
        if (existing == NULL || err->code != ERR_NONE)
            return -1;
        volumes_fill(driver, existing, arena, CSI_NEW(arena, reply, volume));
        return 0;
    }
    auto_job struct job *job = NULL;
    int result;
    if (request->volume_content_source == NULL) {
        result = make_volume(making, NULL, err);
    } else {
        auto_free char *what = mem_printf("the copy for volume %s", request->name);
        result = jobs_run(driver->jobs, call, what, make_volume, making_free, making, &job, err);
    }
    if (result == 0)
        volumes_fill(driver, making->volume, arena, CSI_NEW(arena, reply, volume));
    if (job == NULL)
        making_free(making);
    return result;
}

/* ---- DeleteVolume ---- */

/* Where the volume is really in use: the record may speak of mounts that somebody else took away. NULL = nowhere. */
static const char *find_use(const struct volume *volume, const struct mount_list *mounts)
{
    for (size_t i = 0; i < volume->target_count; i++)
        if (mount_list_find(mounts, volume->targets[i].path) != NULL)
            return volume->targets[i].path;
    if (volume->staging_path != NULL && (volume->block || mount_list_find(mounts, volume->staging_path) != NULL))
        return volume->staging_path;
    return NULL;
}

static int delete_volume(void *arg, const Csi__V1__DeleteVolumeRequest *request, Csi__V1__DeleteVolumeResponse *reply,
                         struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    (void)reply, (void)call;
    auto_keylock struct keylock_hold hold = {0}, data = {0};
    auto_mounts struct mount_list mounts = {0};
    if (keylock_exclusive(driver->locks, "volume", request->volume_id, &hold, err) < 0 ||
        keylock_exclusive(driver->locks, "volume data", request->volume_id, &data, err) < 0)
        return -1;
    auto_volume struct volume *volume = state_volume(driver->state, request->volume_id);
    if (volume == NULL)
        return 0;
    if (mount_list_read(&mounts, err) < 0)
        return -1;
    const char *use = find_use(volume, &mounts);
    if (use != NULL)
        return csi_fail(err, CSI_FAILED_PRECONDITION, "volume %s is still in use at %s", volume->id, use);
    if (driver->options.check_lifecycle && volume->attached)
        return csi_fail(err, CSI_FAILED_PRECONDITION, "volume %s is still attached", volume->id);
    if (volume->staging_path != NULL && backend_of(volume)->detach(driver, volume, volume->staging_path, err) < 0)
        return -1;
    usage_forget(driver->usage, volume->id);
    return state_delete_volume(driver->state, volume->id, err);
}

const struct csi_handlers hostpath_create_handlers = {
    .create_volume = create_volume,
    .delete_volume = delete_volume,
};
