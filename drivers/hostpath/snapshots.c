/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/snapshots.h"

#include "drivers/hostpath/backend.h"
#include "drivers/hostpath/cut.h"
#include "drivers/hostpath/volumes.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

int snapshots_read_parameters(struct csi_map parameters, bool *skip_unreadable, struct err *err)
{
    const char *key, *value;
    *skip_unreadable = false;
    for (size_t i = 0; i < parameters.len; i++) {
        if (!csi_map_at(parameters, i, &key, &value) || str_starts(key, "csi.storage.k8s.io/"))
            continue;
        if (!str_eq(key, "ignoreFailedRead"))
            return csi_fail(err, CSI_INVALID_ARGUMENT, "unknown parameter \"%s\" (known: ignoreFailedRead)", key);
        if (!str_eq(value, "true") && !str_eq(value, "false"))
            return csi_fail(err, CSI_INVALID_ARGUMENT, "ignoreFailedRead is neither true nor false");
        *skip_unreadable = str_eq(value, "true");
    }
    return 0;
}

struct snapshot *snapshots_prepare(struct hostpath *driver, const char *volume_id, const char *name, struct err *err)
{
    char uuid[RNG_UUID_SIZE];
    auto_volume struct volume *source = NULL;
    if (hostpath_find_volume(driver, volume_id, &source, err) < 0)
        return NULL;
    struct snapshot *snapshot = snapshot_new();
    snapshot->id = mem_strdup(rng_uuid(driver->rng, uuid));
    snapshot->name = mem_strdup(name);
    snapshot->source_volume = mem_strdup(volume_id);
    snapshot->size = source->capacity;
    snapshot->block = source->block;
    snapshot->backend = source->backend;
    return snapshot;
}

int snapshots_copy(struct hostpath *driver, const struct snapshot *snapshot, bool skip_unreadable, struct stop *stop,
                   struct err *err)
{
    auto_free char *what = mem_printf("snapshot %s of volume %s", snapshot->id, snapshot->source_volume);
    auto_copy struct copy copy = {
        .stop = stop, .clock = driver->clock, .what = what, .skip_unreadable = skip_unreadable};
    const bool image = snapshot->block || snapshot->backend == BACKEND_LOOP;
    if (state_make_data(driver->state, STATE_SNAPSHOTS, snapshot->id, err) < 0 ||
        cut_copy(driver, &copy, (struct cut_object){STATE_VOLUMES, snapshot->source_volume}, image,
                 (struct cut_object){STATE_SNAPSHOTS, snapshot->id}, err) < 0)
        return err_wrap(err, "making %s", what);
    if (copy.skipped > 0)
        log_warn("Left out files that cannot be read", kv_str("what", what), kv_int("files", copy.skipped));
    return 0;
}

void snapshots_discard(struct hostpath *driver, const char *id)
{
    auto_err struct err err = {0};
    if (state_discard_data(driver->state, STATE_SNAPSHOTS, id, &err) < 0) /* the next start does it */
        log_error("Cannot remove a half-made snapshot", kv_str("snapshot", id), kv_err(&err));
}

/* ---- CreateSnapshot ---- */

struct making {
    struct hostpath *driver;
    struct snapshot *snapshot;
    bool skip_unreadable;
    struct keylock_hold name, source;
};

static void making_finish(struct making *making)
{
    keylock_release(&making->source);
    keylock_release(&making->name);
}

static void making_free(void *arg)
{
    struct making *making = arg;
    making_finish(making);
    snapshot_free(making->snapshot);
    free(making);
}

static int cut_and_save(struct making *making, struct stop *stop, struct err *err)
{
    struct hostpath *driver = making->driver;
    struct snapshot *snapshot = making->snapshot;
    auto_cut_pause struct cut_pause pause = {.handle = -1};
    if (cut_pause_begin(driver, snapshot->source_volume, &pause, err) < 0)
        return -1;
    snapshot->created = clock_wall(driver->clock);
    if (snapshots_copy(driver, snapshot, making->skip_unreadable, stop, err) < 0)
        return -1;
    cut_pause_end(&pause);
    return state_save_snapshot(driver->state, snapshot, err);
}

static int make_snapshot(void *arg, struct stop *stop, struct err *err)
{
    struct making *making = arg;
    int result = cut_and_save(making, stop, err);
    if (result < 0)
        snapshots_discard(making->driver, making->snapshot->id);
    making_finish(making);
    return result;
}

static int prepare(struct making *making, const Csi__V1__CreateSnapshotRequest *request, struct snapshot **existing,
                   struct err *err)
{
    struct hostpath *driver = making->driver;
    if (snapshots_read_parameters(CSI_MAP(request, parameters), &making->skip_unreadable, err) < 0 ||
        keylock_exclusive(driver->locks, "snapshot name", request->name, &making->name, err) < 0)
        return -1;
    *existing = state_snapshot_by_name(driver->state, request->name);
    if (*existing != NULL)
        return str_eq((*existing)->source_volume, request->source_volume_id) && (*existing)->group == NULL
                   ? 0
                   : csi_fail(err, CSI_ALREADY_EXISTS, "snapshot %s exists, of volume %s%s", request->name,
                              (*existing)->source_volume, (*existing)->group != NULL ? " in a group" : "");
    if (keylock_shared(driver->locks, "volume data", request->source_volume_id, &making->source, err) < 0)
        return -1;
    making->snapshot = snapshots_prepare(driver, request->source_volume_id, request->name, err);
    return making->snapshot != NULL ? 0 : -1;
}

static int create_snapshot(void *arg, const Csi__V1__CreateSnapshotRequest *request,
                           Csi__V1__CreateSnapshotResponse *reply, struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    struct making *making = mem_new(struct making);
    making->driver = driver;
    auto_snapshot struct snapshot *existing = NULL;
    int result = prepare(making, request, &existing, err);
    if (result < 0 || existing != NULL) {
        making_free(making);
        if (result == 0)
            volumes_fill_snapshot(existing, arena, CSI_NEW(arena, reply, snapshot));
        return result;
    }
    auto_job struct job *job = NULL;
    auto_free char *what = mem_printf("snapshot %s", request->name);
    result = jobs_run(driver->jobs, call, what, make_snapshot, making_free, making, &job, err);
    if (result == 0)
        volumes_fill_snapshot(making->snapshot, arena, CSI_NEW(arena, reply, snapshot));
    return result;
}

/* ---- DeleteSnapshot, GetSnapshot, ListSnapshots ---- */

static int delete_snapshot(void *arg, const Csi__V1__DeleteSnapshotRequest *request,
                           Csi__V1__DeleteSnapshotResponse *reply, struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    (void)reply, (void)call;
    if (keylock_exclusive(driver->locks, "snapshot", request->snapshot_id, &hold, err) < 0)
        return -1;
    auto_snapshot struct snapshot *snapshot = state_snapshot(driver->state, request->snapshot_id);
    if (snapshot == NULL)
        return 0;
    if (snapshot->group != NULL)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "snapshot %s is a member of group %s: delete the group",
                        snapshot->id, snapshot->group);
    return state_delete_snapshot(driver->state, snapshot->id, err);
}

static int get_snapshot(void *arg, const Csi__V1__GetSnapshotRequest *request, Csi__V1__GetSnapshotResponse *reply,
                        struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    auto_snapshot struct snapshot *snapshot = state_snapshot(driver->state, request->snapshot_id);
    if (snapshot == NULL)
        return csi_fail(err, CSI_NOT_FOUND, "snapshot %s does not exist", request->snapshot_id);
    volumes_fill_snapshot(snapshot, arena, CSI_NEW(arena, reply, snapshot));
    return 0;
}

struct page {
    const Csi__V1__ListSnapshotsRequest *request;
    Csi__V1__ListSnapshotsResponse *reply;
    struct csi_arena *arena;
    const char *after;
    const char *last;
    bool more;
};

static void add_to_page(void *arg, const struct snapshot *snapshot)
{
    struct page *page = arg;
    const Csi__V1__ListSnapshotsRequest *request = page->request;
    if (page->more || strcmp(snapshot->id, page->after) <= 0 ||
        (*request->snapshot_id != '\0' && !str_eq(request->snapshot_id, snapshot->id)) ||
        (*request->source_volume_id != '\0' && !str_eq(request->source_volume_id, snapshot->source_volume)))
        return;
    if (request->max_entries > 0 && page->reply->n_entries == (size_t)request->max_entries) {
        page->more = true;
        return;
    }
    Csi__V1__Snapshot *entry = CSI_NEW(page->arena, CSI_ADD(page->arena, page->reply, entries), snapshot);
    volumes_fill_snapshot(snapshot, page->arena, entry);
    page->last = entry->snapshot_id;
}

static int list_snapshots(void *arg, const Csi__V1__ListSnapshotsRequest *request,
                          Csi__V1__ListSnapshotsResponse *reply, struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    struct page page = {.request = request, .reply = reply, .arena = csi_call_arena(call)};
    if (!driver->options.list_snapshots)
        return csi_fail(err, CSI_UNIMPLEMENTED, "listing snapshots is switched off");
    if (volumes_read_token(request->starting_token, &page.after, err) < 0)
        return -1;
    state_each_snapshot(driver->state, add_to_page, &page);
    if (page.more)
        reply->next_token = volumes_make_token(page.arena, page.last);
    return 0;
}

const struct csi_handlers hostpath_snapshot_handlers = {
    .create_snapshot = create_snapshot,
    .delete_snapshot = delete_snapshot,
    .get_snapshot = get_snapshot,
    .list_snapshots = list_snapshots,
};
