/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/snapshot.h"

#include "lib/base/mem.h"

#include <errno.h>
#include <inttypes.h>

void source_clear(struct source *source)
{
    share_close(source->share);
    keylock_release(&source->hold);
    handle_clear(&source->handle);
    *source = (struct source){0};
}

int source_read(struct nfs_driver *driver, const Csi__V1__VolumeContentSource *from, struct record *wanted,
                struct source *source, struct err *err)
{
    auto_err struct err unknown = {0};
    (void)driver;
    if (from == NULL || from->type_case == CSI__V1__VOLUME_CONTENT_SOURCE__TYPE__NOT_SET)
        return 0;
    source->present = true;
    source->is_snapshot = from->type_case == CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_SNAPSHOT;
    const char *id = source->is_snapshot ? from->snapshot->snapshot_id : from->volume->volume_id;
    int parsed = source->is_snapshot ? handle_parse_snapshot(id, &source->handle, &unknown)
                                     : handle_parse(id, &source->handle, &unknown);
    if (parsed < 0)
        return csi_fail(err, CSI_NOT_FOUND, "source does not exist: %s", err_text(&unknown));
    *(source->is_snapshot ? &wanted->source_snapshot : &wanted->source_volume) = mem_strdup(id);
    return 0;
}

static int check_size(const struct record *wanted, int64_t size, const char *what, struct err *err)
{
    if (wanted->capacity >= size || wanted->capacity == 0)
        return 0;
    return csi_fail(err, CSI_OUT_OF_RANGE, "the %s needs %" PRId64 " bytes, only %" PRId64 " are asked for", what, size,
                    wanted->capacity);
}

static int open_snapshot(const struct record *wanted, struct source *source, struct area *area, struct err *err)
{
    auto_record struct record record = {0};
    int found = area_find(source->share, area, err);
    if (found > 0)
        found = record_load(area, &area->snapshots, source->handle.id, &record, err);
    if (found < 0)
        return -1;
    if (found == 0 && !source->handle.ours)
        return csi_fail(err, CSI_NOT_FOUND,
                        "snapshot %s is not one of this driver: archives of csi-driver-nfs are restored by that driver",
                        source->handle.id);
    if (found == 0)
        return csi_fail(err, CSI_NOT_FOUND, "snapshot %s does not exist", source->handle.id);
    if (check_size(wanted, record.capacity, "snapshot", err) < 0)
        return -1;
    int error = share_lookup(source->share, &area->snapshots, record.id, &source->copy.directory, NULL);
    return error == 0 ? 0 : share_fail(source->share, error, err, "looking for the files of snapshot %s", record.id);
}

static int open_volume(const struct record *wanted, struct source *source, struct area *area, struct err *err)
{
    auto_record struct record record = {0};
    int found = lifecycle_find(source->share, area, &source->handle, &record, &source->copy.directory, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return csi_fail(err, CSI_NOT_FOUND, "source volume %s does not exist", source->handle.id);
    return check_size(wanted, record.capacity, "source volume", err);
}

int source_open(struct nfs_driver *driver, const struct record *wanted, struct source *source, struct csi_call *call,
                struct err *err)
{
    struct area area;
    if (!source->present)
        return 0;
    const char *kind = source->is_snapshot ? "snapshot" : "volume";
    if (nfs_lock(driver, kind, &source->handle.where, source->handle.id, true, &source->hold, err) < 0 ||
        nfs_open_share(driver, &source->handle.where, call, &source->share, err) < 0)
        return -1;
    source->copy.share = source->share;
    if (source->is_snapshot ? open_snapshot(wanted, source, &area, err) < 0
                            : open_volume(wanted, source, &area, err) < 0)
        return -1;
    nfs_outlive_call(source->share);
    return 0;
}
