/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots are copies of the tree, so they are as consistent as a copy of files in use is; what is on the share under
 * a snapshot's name is whole, since it is renamed there when the copy is.
 */
#include "drivers/nfs/snapshot.h"

#include "drivers/nfs/copy.h"
#include "drivers/nfs/listing.h"
#include "drivers/nfs/remove.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <strings.h>

static void fill(struct csi_arena *arena, const struct record *record, const char *id, Csi__V1__Snapshot *snapshot)
{
    snapshot->snapshot_id = csi_arena_strdup(arena, id);
    snapshot->source_volume_id = csi_arena_strdup(arena, record->source_handle);
    snapshot->size_bytes = record->capacity;
    snapshot->ready_to_use = true;
    Google__Protobuf__Timestamp *time = CSI_NEW(arena, snapshot, creation_time);
    time->seconds = record->created / CLOCK_SECOND;
    time->nanos = (int32_t)(record->created % CLOCK_SECOND);
}

/* ---- CreateSnapshot ---- */

struct taking {
    struct handle source, snapshot;
    struct share *from, *to;
    struct keylock_hold source_hold, hold;
};

static void taking_clear(struct taking *taking)
{
    share_close(taking->from);
    if (taking->to != taking->from)
        share_close(taking->to);
    keylock_release(&taking->hold);
    keylock_release(&taking->source_hold);
    handle_clear(&taking->source);
    handle_clear(&taking->snapshot);
}

/* By default beside the volume; the snapshot class may name another export. */
static int read_request(const Csi__V1__CreateSnapshotRequest *request, struct taking *taking, struct err *err)
{
    auto_err struct err unknown = {0};
    auto_parameters struct parameters parameters = {0};
    if (handle_parse(request->source_volume_id, &taking->source, &unknown) < 0)
        return csi_fail(err, CSI_NOT_FOUND, "source does not exist: %s", err_text(&unknown));
    struct csi_map map = CSI_MAP(request, parameters);
    const char *key, *value;
    for (size_t i = 0; i < map.len; i++)
        if (csi_map_at(map, i, &key, &value) && strcasecmp(key, "server") != 0 && strcasecmp(key, "share") != 0 &&
            strcasecmp(key, "mountOptions") != 0 && !str_starts(key, "csi.storage.k8s.io/"))
            return csi_fail(err, CSI_INVALID_ARGUMENT, "unknown parameter \"%s\" (known: server, share, mountOptions)",
                            key);
    if (parameters_read(map, false, &parameters, err) < 0 ||
        nfs_read_secrets(CSI_MAP(request, secrets), &taking->source.where, err) < 0)
        return -1;
    share_location_copy(&taking->snapshot.where, &taking->source.where);
    if (parameters.where.server != NULL) {
        if (parameters.where.export == NULL)
            return csi_fail(err, CSI_INVALID_ARGUMENT, "parameter share is missing");
        share_location_clear(&taking->snapshot.where);
        share_location_copy(&taking->snapshot.where, &parameters.where);
    }
    taking->snapshot.id = handle_id_of_name(request->name);
    taking->snapshot.source = mem_strdup(taking->source.id);
    return 0;
}

static void log_progress(void *arg, const struct copy *copy)
{
    log_info("Taking snapshot", kv_str("snapshot", arg), kv_int("entries", copy->entries),
             kv_int("bytes", copy->bytes));
}

static int take(struct nfs_driver *driver, struct taking *taking, struct area *to, const struct record *volume,
                const struct share_fh *directory, struct record *record, struct err *err)
{
    struct share_fh fh;
    struct removal removal = {0};
    struct copy copy = {.progress = log_progress, .arg = record->id};
    /* what an interrupted attempt left, also after its rename */
    if (remove_tree(taking->to, &to->incoming, record->id, &removal, err) < 0 ||
        remove_tree(taking->to, &to->snapshots, record->id, &removal, err) < 0)
        return err_wrap(err, "removing an earlier attempt");
    int error = share_mkdir(taking->to, &to->incoming, record->id,
                            &(struct share_set){.mask = SHARE_SET_MODE, .mode = 0700}, &fh, NULL);
    if (error != 0)
        return share_fail(taking->to, error, err, "making the directory of the snapshot");
    record->created = clock_wall(driver->clock);
    nfs_outlive_call(taking->from);
    nfs_outlive_call(taking->to);
    if (share_copy_tree(taking->from, directory, taking->to, &fh, &copy, err) < 0) {
        remove_tree(taking->to, &to->incoming, record->id, &removal, NULL); /* a full disk needs the room at once */
        return err_wrap(err, "taking snapshot %s", record->name);
    }
    record->content = copy.bytes;
    record->capacity = volume->capacity > 0 ? volume->capacity : copy.bytes;
    error = share_rename(taking->to, &to->incoming, record->id, &to->snapshots, record->id);
    if (error != 0)
        return share_fail(taking->to, error, err, "putting the snapshot in its place");
    record->state = RECORD_READY;
    return record_save(to, &to->snapshots, record, err);
}

static int check_existing(const struct record *record, const char *source, struct err *err)
{
    if (str_eq(record->source_handle, source))
        return 0;
    return csi_fail(err, CSI_ALREADY_EXISTS, "snapshot %s exists of another volume, %s", record->name,
                    record->source_handle);
}

static int take_or_find(struct nfs_driver *driver, struct taking *taking, const Csi__V1__CreateSnapshotRequest *request,
                        struct record *record, struct err *err)
{
    struct area from, to;
    auto_record struct record volume = {0};
    struct share_fh directory;
    if (area_open(taking->to, &to, err) < 0)
        return -1;
    int found = record_load(&to, &to.snapshots, taking->snapshot.id, record, err);
    if (found < 0)
        return -1;
    if (found > 0)
        return check_existing(record, request->source_volume_id, err);
    found = lifecycle_find(taking->from, &from, &taking->source, &volume, &directory, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return csi_fail(err, CSI_NOT_FOUND, "source volume %s does not exist", request->source_volume_id);
    record->id = mem_strdup(taking->snapshot.id);
    record->name = mem_strdup(request->name);
    record->source_volume = mem_strdup(taking->source.id);
    record->source_handle = mem_strdup(request->source_volume_id);
    return take(driver, taking, &to, &volume, &directory, record, err);
}

static int create_snapshot(void *arg, const Csi__V1__CreateSnapshotRequest *request,
                           Csi__V1__CreateSnapshotResponse *reply, struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    __attribute__((cleanup(taking_clear))) struct taking taking = {0};
    auto_record struct record record = {0};
    if (read_request(request, &taking, err) < 0)
        return -1;
    auto_free char *id = handle_build_snapshot(&taking.snapshot, err);
    if (id == NULL ||
        nfs_lock(driver, "snapshot", &taking.snapshot.where, taking.snapshot.id, false, &taking.hold, err) < 0 ||
        nfs_lock(driver, "volume", &taking.source.where, taking.source.id, true, &taking.source_hold, err) < 0 ||
        nfs_open_share(driver, &taking.source.where, call, &taking.from, err) < 0)
        return -1;
    if (share_location_equal(&taking.source.where, &taking.snapshot.where))
        taking.to = taking.from;
    else if (nfs_open_share(driver, &taking.snapshot.where, call, &taking.to, err) < 0)
        return -1;
    if (take_or_find(driver, &taking, request, &record, err) < 0)
        return -1;
    fill(arena, &record, id, CSI_NEW(arena, reply, snapshot));
    return 0;
}

/* ---- the others ---- */

static int delete_snapshot(void *arg, const Csi__V1__DeleteSnapshotRequest *request,
                           Csi__V1__DeleteSnapshotResponse *reply, struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    auto_share struct share *share = NULL;
    auto_handle struct handle handle = {0};
    auto_err struct err unknown = {0};
    struct area area;
    struct removal removal = {0};
    (void)reply;
    if (handle_parse_snapshot(request->snapshot_id, &handle, &unknown) < 0) {
        log_info("Nothing to delete", kv_err(&unknown));
        return 0;
    }
    if (nfs_read_secrets(CSI_MAP(request, secrets), &handle.where, err) < 0 ||
        nfs_lock(driver, "snapshot", &handle.where, handle.id, false, &hold, err) < 0 ||
        nfs_open_share(driver, &handle.where, call, &share, err) < 0)
        return -1;
    struct share_fh fh;
    if (!handle.ours && share_walk(share, handle.id, &fh, NULL) == 0)
        return csi_fail(err, CSI_FAILED_PRECONDITION,
                        "snapshot %s is an archive of csi-driver-nfs: that driver deletes it (directory %s)", handle.id,
                        handle.id);
    int found = area_find(share, &area, err);
    if (found <= 0)
        return found;
    nfs_outlive_call(share);
    /* the record first: a snapshot with a record is whole */
    if (record_remove(&area, &area.snapshots, handle.id, err) < 0)
        return -1;
    int error = share_rename(share, &area.snapshots, handle.id, &area.trash, handle.id);
    if (error != 0 && error != ENOENT && error != EEXIST && error != ENOTEMPTY)
        return share_fail(share, error, err, "moving snapshot %s out of the way", handle.id);
    if (remove_tree(share, &area.trash, handle.id, &removal, err) < 0)
        return -1;
    return remove_tree(share, &area.snapshots, handle.id, &removal, err);
}

static int load_snapshot(struct nfs_driver *driver, const char *id, struct csi_map secrets, struct csi_call *call,
                         struct record *record, struct err *err)
{
    auto_share struct share *share = NULL;
    auto_handle struct handle handle = {0};
    auto_err struct err unknown = {0};
    struct area area;
    if (handle_parse_snapshot(id, &handle, &unknown) < 0)
        return csi_fail(err, CSI_NOT_FOUND, "snapshot does not exist: %s", err_text(&unknown));
    if (nfs_read_secrets(secrets, &handle.where, err) < 0 ||
        nfs_open_share(driver, &handle.where, call, &share, err) < 0)
        return -1;
    int found = area_find(share, &area, err);
    if (found > 0)
        found = record_load(&area, &area.snapshots, handle.id, record, err);
    if (found == 0)
        return csi_fail(err, CSI_NOT_FOUND, "snapshot %s does not exist", id);
    return found < 0 ? -1 : 0;
}

static int get_snapshot(void *arg, const Csi__V1__GetSnapshotRequest *request, Csi__V1__GetSnapshotResponse *reply,
                        struct csi_call *call, struct err *err)
{
    struct csi_arena *arena = csi_call_arena(call);
    auto_record struct record record = {0};
    if (load_snapshot(arg, request->snapshot_id, CSI_MAP(request, secrets), call, &record, err) < 0)
        return -1;
    fill(arena, &record, request->snapshot_id, CSI_NEW(arena, reply, snapshot));
    return 0;
}

/* One snapshot by its id needs no export to be configured. */
static int list_one(struct nfs_driver *driver, const Csi__V1__ListSnapshotsRequest *request,
                    Csi__V1__ListSnapshotsResponse *reply, struct csi_call *call, struct err *err)
{
    struct csi_arena *arena = csi_call_arena(call);
    auto_record struct record record = {0};
    auto_err struct err failed = {0};
    if (load_snapshot(driver, request->snapshot_id, CSI_MAP(request, secrets), call, &record, &failed) < 0)
        return csi_code_of(&failed) == CSI_NOT_FOUND ? 0 : err_move(err, &failed);
    if (!str_empty(request->source_volume_id) && !str_eq(request->source_volume_id, record.source_handle))
        return 0;
    fill(arena, &record, request->snapshot_id, CSI_NEW(arena, CSI_ADD(arena, reply, entries), snapshot));
    return 0;
}

static int list_snapshots(void *arg, const Csi__V1__ListSnapshotsRequest *request,
                          Csi__V1__ListSnapshotsResponse *reply, struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    auto_share struct share *share = NULL;
    auto_listing struct listing listing = {0};
    struct area area;
    if (!str_empty(request->snapshot_id))
        return list_one(driver, request, reply, call, err);
    if (driver->options.where.export == NULL)
        return csi_fail(err, CSI_UNIMPLEMENTED, "snapshots are listed with --server and --share only");
    if (nfs_open_share(driver, &driver->options.where, call, &share, err) < 0)
        return -1;
    int found = area_find(share, &area, err);
    if (found < 0 || (found > 0 && listing_read(&area, &area.snapshots, &listing, err) < 0))
        return -1;
    size_t start, count = 0, last = 0;
    if (listing_start(&listing, request->starting_token, &start, err) < 0)
        return -1;
    for (size_t i = start; i < listing.len; i++) {
        const struct record *record = &listing.items[i];
        if (!str_empty(request->source_volume_id) && !str_eq(request->source_volume_id, record->source_handle))
            continue;
        if (request->max_entries > 0 && count == (size_t)request->max_entries) {
            reply->next_token = csi_arena_printf(arena, "after:%s", listing.items[last].id);
            break;
        }
        struct handle handle = {.where = driver->options.where, .id = record->id, .source = record->source_volume};
        auto_free char *id = handle_build_snapshot(&handle, err);
        if (id == NULL)
            return -1;
        fill(arena, record, id, CSI_NEW(arena, CSI_ADD(arena, reply, entries), snapshot));
        last = i;
        count++;
    }
    return 0;
}

const struct csi_handlers nfs_snapshot_handlers = {
    .create_snapshot = create_snapshot,
    .delete_snapshot = delete_snapshot,
    .get_snapshot = get_snapshot,
    .list_snapshots = list_snapshots,
};
