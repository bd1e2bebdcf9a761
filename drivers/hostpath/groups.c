/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group snapshots: the writes to all members are paused before the first one is copied and go on after the last. The
 * group's record is what makes its members count; it is written last and removed first.
 */
#include "drivers/hostpath/cut.h"
#include "drivers/hostpath/snapshots.h"
#include "drivers/hostpath/volumes.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

struct making {
    struct hostpath *driver;
    struct group *group;
    struct snapshot **members; /* one for each source */
    struct keylock_hold *sources;
    struct keylock_hold name;
    bool skip_unreadable;
};

static void making_finish(struct making *making)
{
    for (size_t i = 0; i < making->group->sources.len; i++)
        keylock_release(&making->sources[i]);
    keylock_release(&making->name);
}

static void making_free(void *arg)
{
    struct making *making = arg;
    making_finish(making);
    for (size_t i = 0; i < making->group->sources.len; i++)
        snapshot_free(making->members[i]);
    free(making->members);
    free(making->sources);
    group_free(making->group);
    free(making);
}

static void fill_group(const struct group *group, struct snapshot *const *members, struct csi_arena *arena,
                       Csi__V1__VolumeGroupSnapshot *reply)
{
    reply->group_snapshot_id = csi_arena_strdup(arena, group->id);
    reply->ready_to_use = true;
    for (size_t i = 0; i < group->snapshots.len; i++)
        if (members[i] != NULL)
            volumes_fill_snapshot(members[i], arena, CSI_ADD(arena, reply, snapshots));
    Google__Protobuf__Timestamp *time = CSI_NEW(arena, reply, creation_time);
    time->seconds = group->created / CLOCK_SECOND;
    time->nanos = (int32_t)(group->created % CLOCK_SECOND);
}

static void fill_existing(struct hostpath *driver, const struct group *group, struct csi_arena *arena,
                          Csi__V1__VolumeGroupSnapshot *reply)
{
    struct snapshot **members = mem_calloc(group->snapshots.len + 1, sizeof(struct snapshot *));
    for (size_t i = 0; i < group->snapshots.len; i++)
        members[i] = state_snapshot(driver->state, group->snapshots.items[i]);
    fill_group(group, members, arena, reply);
    for (size_t i = 0; i < group->snapshots.len; i++)
        snapshot_free(members[i]);
    free(members);
}

/* ---- CreateVolumeGroupSnapshot ---- */

static int cut_all(struct making *making, struct cut_pause *pauses, struct stop *stop, struct err *err)
{
    struct hostpath *driver = making->driver;
    struct group *group = making->group;
    for (size_t i = 0; i < group->sources.len; i++)
        if (cut_pause_begin(driver, group->sources.items[i], &pauses[i], err) < 0)
            return -1;
    group->created = clock_wall(driver->clock);
    for (size_t i = 0; i < group->sources.len; i++) {
        making->members[i]->created = group->created;
        if (snapshots_copy(driver, making->members[i], making->skip_unreadable, stop, err) < 0)
            return -1;
    }
    return 0;
}

static int cut_and_save(struct making *making, struct stop *stop, struct err *err)
{
    const size_t count = making->group->sources.len;
    struct cut_pause *pauses = mem_calloc(count + 1, sizeof(*pauses));
    for (size_t i = 0; i < count; i++)
        pauses[i].handle = -1;
    int result = cut_all(making, pauses, stop, err);
    for (size_t i = 0; i < count; i++)
        cut_pause_end(&pauses[i]);
    free(pauses);
    for (size_t i = 0; result == 0 && i < count; i++)
        result = state_save_snapshot(making->driver->state, making->members[i], err);
    return result < 0 ? -1 : state_save_group(making->driver->state, making->group, err);
}

static int make_group(void *arg, struct stop *stop, struct err *err)
{
    struct making *making = arg;
    int result = cut_and_save(making, stop, err);
    for (size_t i = 0; result < 0 && i < making->group->sources.len; i++) {
        auto_err struct err ignored = {0};
        if (state_delete_snapshot(making->driver->state, making->members[i]->id, &ignored) < 0)
            log_error("Cannot remove a half-made snapshot", kv_str("snapshot", making->members[i]->id),
                      kv_err(&ignored));
    }
    making_finish(making);
    return result;
}

static int check_existing(const struct group *existing, const struct group *wanted, struct err *err)
{
    bool same = existing->sources.len == wanted->sources.len;
    for (size_t i = 0; same && i < wanted->sources.len; i++)
        same = str_eq(existing->sources.items[i], wanted->sources.items[i]);
    return same ? 0 : csi_fail(err, CSI_ALREADY_EXISTS, "group snapshot %s exists, of other volumes", existing->name);
}

static int prepare_member(struct making *making, size_t i, struct err *err)
{
    struct hostpath *driver = making->driver;
    struct group *group = making->group;
    const char *source = group->sources.items[i];
    if (i > 0 && str_eq(source, group->sources.items[i - 1]))
        return csi_fail(err, CSI_INVALID_ARGUMENT, "volume %s is named twice", source);
    if (keylock_shared(driver->locks, "volume data", source, &making->sources[i], err) < 0)
        return -1;
    /* a name that no single snapshot can have: ids hold no slash */
    auto_free char *name = mem_printf("%s/%s", group->id, source);
    making->members[i] = snapshots_prepare(driver, source, name, err);
    if (making->members[i] == NULL)
        return -1;
    making->members[i]->group = mem_strdup(group->id);
    strv_add(&group->snapshots, making->members[i]->id);
    return 0;
}

static int prepare(struct making *making, const Csi__V1__CreateVolumeGroupSnapshotRequest *request,
                   struct group **existing, struct err *err)
{
    struct hostpath *driver = making->driver;
    char uuid[RNG_UUID_SIZE];
    if (snapshots_read_parameters(CSI_MAP(request, parameters), &making->skip_unreadable, err) < 0 ||
        keylock_exclusive(driver->locks, "group snapshot name", request->name, &making->name, err) < 0)
        return -1;
    *existing = state_group_by_name(driver->state, request->name);
    if (*existing != NULL)
        return check_existing(*existing, making->group, err);
    making->group->id = mem_strdup(rng_uuid(driver->rng, uuid));
    making->group->name = mem_strdup(request->name);
    for (size_t i = 0; i < making->group->sources.len; i++)
        if (prepare_member(making, i, err) < 0)
            return -1;
    return 0;
}

static struct making *making_new(struct hostpath *driver, const Csi__V1__CreateVolumeGroupSnapshotRequest *request)
{
    struct making *making = mem_new(struct making);
    making->driver = driver;
    making->group = group_new();
    for (size_t i = 0; i < request->n_source_volume_ids; i++)
        strv_add(&making->group->sources, request->source_volume_ids[i]);
    strv_sort(&making->group->sources);
    making->members = mem_calloc(request->n_source_volume_ids, sizeof(struct snapshot *));
    making->sources = mem_calloc(request->n_source_volume_ids, sizeof(struct keylock_hold));
    return making;
}

static int create_volume_group_snapshot(void *arg, const Csi__V1__CreateVolumeGroupSnapshotRequest *request,
                                        Csi__V1__CreateVolumeGroupSnapshotResponse *reply, struct csi_call *call,
                                        struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    struct making *making = making_new(driver, request);
    auto_group struct group *existing = NULL;
    int result = prepare(making, request, &existing, err);
    if (result < 0 || existing != NULL) {
        making_free(making);
        if (result == 0)
            fill_existing(driver, existing, arena, CSI_NEW(arena, reply, group_snapshot));
        return result;
    }
    auto_job struct job *job = NULL;
    auto_free char *what = mem_printf("group snapshot %s", request->name);
    result = jobs_run(driver->jobs, call, what, make_group, making_free, making, &job, err);
    if (result == 0)
        fill_group(making->group, making->members, arena, CSI_NEW(arena, reply, group_snapshot));
    return result;
}

/* ---- DeleteVolumeGroupSnapshot, GetVolumeGroupSnapshot ---- */

/* The ids a caller names (it need not) must be the members. */
static int check_members(const struct group *group, char *const *ids, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++)
        if (!strv_contains(&group->snapshots, ids[i]))
            return csi_fail(err, CSI_INVALID_ARGUMENT, "snapshot %s is not a member of group %s", ids[i], group->id);
    if (count != 0 && count != group->snapshots.len)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "group %s has %zu members, %zu are named", group->id,
                        group->snapshots.len, count);
    return 0;
}

static int delete_members(struct hostpath *driver, const struct group *group, struct err *err)
{
    struct keylock_hold *holds = mem_calloc(group->snapshots.len + 1, sizeof(*holds));
    int result = 0;
    for (size_t i = 0; result == 0 && i < group->snapshots.len; i++)
        result = keylock_exclusive(driver->locks, "snapshot", group->snapshots.items[i], &holds[i], err);
    if (result == 0)
        result = state_delete_group(driver->state, group->id, err);
    for (size_t i = 0; result == 0 && i < group->snapshots.len; i++)
        result = state_delete_snapshot(driver->state, group->snapshots.items[i], err);
    for (size_t i = 0; i < group->snapshots.len; i++)
        keylock_release(&holds[i]);
    free(holds);
    return result;
}

static int delete_volume_group_snapshot(void *arg, const Csi__V1__DeleteVolumeGroupSnapshotRequest *request,
                                        Csi__V1__DeleteVolumeGroupSnapshotResponse *reply, struct csi_call *call,
                                        struct err *err)
{
    struct hostpath *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    (void)reply, (void)call;
    if (keylock_exclusive(driver->locks, "group snapshot", request->group_snapshot_id, &hold, err) < 0)
        return -1;
    auto_group struct group *group = state_group(driver->state, request->group_snapshot_id);
    if (group == NULL)
        return 0;
    if (check_members(group, request->snapshot_ids, request->n_snapshot_ids, err) < 0)
        return -1;
    return delete_members(driver, group, err);
}

static int get_volume_group_snapshot(void *arg, const Csi__V1__GetVolumeGroupSnapshotRequest *request,
                                     Csi__V1__GetVolumeGroupSnapshotResponse *reply, struct csi_call *call,
                                     struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    auto_group struct group *group = state_group(driver->state, request->group_snapshot_id);
    if (group == NULL)
        return csi_fail(err, CSI_NOT_FOUND, "group snapshot %s does not exist", request->group_snapshot_id);
    if (check_members(group, request->snapshot_ids, request->n_snapshot_ids, err) < 0)
        return -1;
    fill_existing(driver, group, arena, CSI_NEW(arena, reply, group_snapshot));
    return 0;
}

static int group_controller_get_capabilities(void *arg, const Csi__V1__GroupControllerGetCapabilitiesRequest *request,
                                             Csi__V1__GroupControllerGetCapabilitiesResponse *reply,
                                             struct csi_call *call, struct err *err)
{
    struct csi_arena *arena = csi_call_arena(call);
    (void)arg, (void)request, (void)err;
    CSI_NEW(arena, CSI_ADD(arena, reply, capabilities), rpc)->type =
        CSI__V1__GROUP_CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT;
    return 0;
}

const struct csi_handlers hostpath_group_handlers = {
    .create_volume_group_snapshot = create_volume_group_snapshot,
    .delete_volume_group_snapshot = delete_volume_group_snapshot,
    .get_volume_group_snapshot = get_volume_group_snapshot,
    .group_controller_get_capabilities = group_controller_get_capabilities,
};
