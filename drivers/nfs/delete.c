/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deleting a volume, so that after a crash between any two steps the next call ends right:
 *
 *     delete    record (deleting) → rename to trash/ID → release of the place → prune → remove trash/ID → record gone
 *     archive   record (archiving, where to) → rename there → release → prune → record gone
 *     retain    release → prune → record gone
 *     never ready and not made by us: as retain, whatever the policy
 *
 * While the place is claimed by the volume and trash/ID is absent, what is at its path is its directory; once renamed
 * it is never touched again, even if another volume is given the same path meanwhile.
 */
#include "drivers/nfs/driver.h"

#include "drivers/nfs/remove.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <time.h>

#define ARCHIVE_PREFIX "archived-"

static void log_progress(void *arg, int64_t removed)
{
    log_info("Removing", kv_str("volume", arg), kv_int("removed", removed));
}

static int exists(struct share *share, const char *path, bool *found, struct err *err)
{
    struct share_fh fh;
    int error = share_walk(share, path, &fh, NULL);
    *found = error == 0;
    return error == 0 || error == ENOENT ? 0 : share_fail(share, error, err, "looking for %s", path);
}

static int finish(struct area *area, const struct record *record, struct err *err)
{
    if (place_release(area, record->sub_dir, record->id, err) < 0 || place_prune(area, record->sub_dir, err) < 0)
        return -1;
    struct removal removal = {.progress = log_progress, .arg = record->id};
    if (remove_tree(area->share, &area->trash, record->id, &removal, err) < 0)
        return -1;
    if (users_forget(area, record->id, err) < 0)
        return -1;
    return record_remove(area, &area->volumes, record->id, err);
}

/* The rename that takes the directory out of everybody's way. */
static int move_to_trash(struct area *area, const struct record *record, struct err *err)
{
    struct share_fh parent = {0}, fh;
    const char *name = NULL;
    struct share *share = area->share;
    int error = share_lookup(share, &area->trash, record->id, &fh, NULL);
    if (error == 0) /* an earlier call did it */
        return 0;
    if (error == ENOENT)
        error = share_walk_parent(share, record->sub_dir, &parent, &name);
    if (error == 0)
        error = share_rename(share, &parent, name, &area->trash, record->id);
    if (error == EXDEV) { /* another file system of the server: removed where it is */
        struct removal removal = {.progress = log_progress, .arg = record->id};
        return remove_tree(share, &parent, name, &removal, err);
    }
    return error == 0 || error == ENOENT
               ? 0
               : share_fail(share, error, err, "moving directory %s out of the way", record->sub_dir);
}

static int delete_directory(struct area *area, struct record *record, const struct place *place, struct err *err)
{
    record->state = RECORD_DELETING;
    if (record_save(area, &area->volumes, record, err) < 0)
        return -1;
    if (place->claimed && move_to_trash(area, record, err) < 0)
        return -1;
    return finish(area, record, err);
}

/* "archived-SUBDIR", or with the time behind it when there is one already. */
static int choose_archive(struct nfs_driver *driver, struct area *area, struct record *record, struct err *err)
{
    bool taken = false;
    free(record->archive);
    record->archive = mem_printf(ARCHIVE_PREFIX "%s", record->sub_dir);
    if (exists(area->share, record->archive, &taken, err) < 0)
        return -1;
    for (int64_t now = clock_wall(driver->clock); taken; now += CLOCK_SECOND) {
        char stamp[40];
        struct tm tm;
        time_t seconds = (time_t)(now / CLOCK_SECOND);
        strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", gmtime_r(&seconds, &tm));
        free(record->archive);
        record->archive = mem_printf(ARCHIVE_PREFIX "%s-%s", record->sub_dir, stamp);
        if (exists(area->share, record->archive, &taken, err) < 0)
            return -1;
    }
    record->state = RECORD_ARCHIVING;
    return record_save(area, &area->volumes, record, err);
}

static int rename_to_archive(struct area *area, const struct record *record, struct err *err)
{
    struct share_fh from, to;
    const char *from_name, *to_name;
    struct share *share = area->share;
    const char *slash = strrchr(record->archive, '/');
    auto_free char *above = slash != NULL ? mem_strndup(record->archive, (size_t)(slash - record->archive)) : NULL;
    if (above != NULL && share_make_path(share, above, 0755, &to, err) < 0)
        return -1;
    int error = share_walk_parent(share, record->sub_dir, &from, &from_name);
    if (error == 0)
        error = share_walk_parent(share, record->archive, &to, &to_name);
    if (error == 0)
        error = share_rename(share, &from, from_name, &to, to_name);
    if (error == 0)
        log_info("Archived", kv_str("volume", record->id), kv_str("as", record->archive));
    return error == 0 ? 0
                      : share_fail(share, error, err, "archiving directory %s as %s", record->sub_dir, record->archive);
}

static int archive_directory(struct nfs_driver *driver, struct area *area, struct record *record,
                             const struct place *place, struct err *err)
{
    bool here = false, there = false;
    if (exists(area->share, record->sub_dir, &here, err) < 0 ||
        (record->archive != NULL && exists(area->share, record->archive, &there, err) < 0))
        return -1;
    if (place->claimed && here) {
        if ((record->archive == NULL || there) && choose_archive(driver, area, record, err) < 0)
            return -1;
        if (rename_to_archive(area, record, err) < 0)
            return -1;
    }
    return finish(area, record, err);
}

static int retain_directory(struct area *area, const struct record *record, struct err *err)
{
    /* from now on it is the administrator's: nobody prunes it when it is empty */
    if (place_unmark_made(area, record->sub_dir, err) < 0)
        return -1;
    return finish(area, record, err);
}

static int check_alone(const struct record *record, const struct place *place, struct err *err)
{
    if (place->below.len == 0)
        return 0;
    return csi_fail(err, CSI_FAILED_PRECONDITION,
                    "other volumes (%s …) live in directories below %s: it can be deleted when they are",
                    place->below.items[0], record->sub_dir);
}

static int delete_by_policy(struct nfs_driver *driver, struct area *area, struct record *record, struct err *err)
{
    auto_directory_hold struct directory_hold hold = {0};
    auto_place struct place place = {0};
    bool begun = record->state == RECORD_DELETING || record->state == RECORD_ARCHIVING;
    if (nfs_lock_directory(driver, share_where(area->share), record->sub_dir, &hold, err) < 0 ||
        place_look(area, record->sub_dir, record->id, &place, err) < 0)
        return -1;
    nfs_outlive_call(area->share);
    if (record->state == RECORD_CREATING) {
        struct removal removal = {0};
        if (remove_tree(area->share, &area->incoming, record->id, &removal, err) < 0)
            return -1;
        if (!place.made) /* it was somebody's before: we were only about to look at it */
            return finish(area, record, err);
    }
    if (place.claimed && place.others.len > 0) { /* the last one out removes it */
        log_info("Another volume lives in the same directory: it stays", kv_str("volume", record->id),
                 kv_str("directory", record->sub_dir), kv_str("other", place.others.items[0]));
        return finish(area, record, err);
    }
    enum on_delete policy = record->on_delete != ON_DELETE_DEFAULT ? record->on_delete : driver->options.on_delete;
    if (policy == ON_DELETE_RETAIN)
        return retain_directory(area, record, err);
    if (place.claimed && !begun && check_alone(record, &place, err) < 0)
        return -1;
    return policy == ON_DELETE_ARCHIVE ? archive_directory(driver, area, record, &place, err)
                                       : delete_directory(area, record, &place, err);
}

/* A volume of csi-driver-nfs becomes one of ours for its last moments, so that an interrupted deletion goes on. */
static int adopt(struct area *area, const struct handle *handle, struct record *record, struct err *err)
{
    auto_place struct place place = {0};
    if (place_look(area, handle->sub_dir, handle->id, &place, err) < 0)
        return -1;
    if (place.others.len > 0)
        return csi_fail(err, CSI_FAILED_PRECONDITION, "directory %s belongs to volume %s", handle->sub_dir,
                        place.others.items[0]);
    record->id = mem_strdup(handle->id);
    record->name = mem_strdup(handle->id);
    record->sub_dir = mem_strdup(handle->sub_dir);
    record->on_delete = handle->on_delete;
    record->state = RECORD_READY;
    /* the claim first: a record without one means that the directory was moved away already */
    if (place_claim(area, record->sub_dir, record->id, err) < 0)
        return -1;
    return record_save(area, &area->volumes, record, err);
}

static int find_or_adopt(struct nfs_driver *driver, struct area *area, const struct handle *handle,
                         struct record *record, struct err *err)
{
    bool there = false;
    int found = area_find(area->share, area, err);
    if (found > 0)
        found = record_load(area, &area->volumes, handle->id, record, err);
    if (found != 0)
        return found;
    enum on_delete policy = handle->on_delete != ON_DELETE_DEFAULT ? handle->on_delete : driver->options.on_delete;
    if (handle->sub_dir == NULL || policy == ON_DELETE_RETAIN)
        return 0;
    if (exists(area->share, handle->sub_dir, &there, err) < 0)
        return -1;
    if (!there)
        return 0;
    if (handle->ours)
        return csi_fail(err, CSI_FAILED_PRECONDITION,
                        "there is no record of volume %s in %s on %s:%s (was it removed by hand?): directory %s is not "
                        "touched; remove or rename it to let the volume go",
                        handle->id, RESERVED_DIRECTORY, handle->where.server, handle->where.export, handle->sub_dir);
    if (area_open(area->share, area, err) < 0 || adopt(area, handle, record, err) < 0)
        return -1;
    return 1;
}

int lifecycle_delete(struct nfs_driver *driver, struct share *share, const struct handle *handle, struct err *err)
{
    struct area area = {.share = share};
    auto_record struct record record = {0};
    int found = find_or_adopt(driver, &area, handle, &record, err);
    if (found <= 0)
        return found;
    if (record.sub_dir == NULL)
        return err_set(err, ERR_INVALID, "the record of volume %s names no directory", record.id);
    return delete_by_policy(driver, &area, &record, err);
}
