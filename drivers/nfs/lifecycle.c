/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a volume. Each step may be the last before a crash; the record says "creating" until all are done, and the
 * next CreateVolume does those again that it finds undone:
 *
 *     record (creating) → claim of the place → mark that we make the directory → [copy into incoming/] → directory
 *     (mkdir, or the rename of the copy) → owner and mode → record (ready)
 */
#include "drivers/nfs/driver.h"

#include "drivers/nfs/copy.h"
#include "drivers/nfs/remove.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <inttypes.h>

#define DEFAULT_MODE 0755U

static uint32_t wanted_mode(const struct nfs_driver *driver, const struct parameters *parameters)
{
    if (parameters->has_mode)
        return parameters->mode;
    return driver->options.mode != 0 ? driver->options.mode : DEFAULT_MODE;
}

/* The directories above, each marked as ours before it is made. */
static int make_parents(struct area *area, const char *path, uint32_t mode, struct share_fh *parent, const char **name,
                        struct err *err)
{
    struct share *share = area->share;
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        auto_free char *above = mem_strndup(path, (size_t)(slash - path));
        struct share_fh fh;
        int error = share_walk(share, above, &fh, NULL);
        if (error == ENOENT && place_mark_made(area, above, err) < 0)
            return -1;
        if (error == ENOENT && share_make_path(share, above, mode, &fh, err) < 0)
            return -1;
        if (error != 0 && error != ENOENT)
            return share_fail(share, error, err, "looking for directory %s", above);
    }
    int error = share_walk_parent(share, path, parent, name);
    return error == 0 ? 0 : share_fail(share, error, err, "looking for the directory above %s", path);
}

static int set_rights(struct nfs_driver *driver, struct share *share, const struct share_fh *fh,
                      const struct parameters *parameters, bool copied, const char *path, struct err *err)
{
    struct share_set owner = {.uid = parameters->uid, .gid = parameters->gid};
    owner.mask = (parameters->has_uid ? SHARE_SET_UID : 0U) | (parameters->has_gid ? SHARE_SET_GID : 0U);
    int error = owner.mask != 0 ? share_setattr(share, fh, &owner, NULL) : 0;
    if (error != 0)
        return share_fail(share, error, err, "giving directory %s to uid %" PRIu32 " gid %" PRIu32, path,
                          parameters->uid, parameters->gid);
    if (copied && !parameters->has_mode) /* a copy keeps its source's */
        return 0;
    struct share_set mode = {.mask = SHARE_SET_MODE, .mode = wanted_mode(driver, parameters)};
    error = share_setattr(share, fh, &mode, NULL);
    return error == 0 ? 0 : share_fail(share, error, err, "setting the mode of directory %s", path);
}

static void log_progress(void *arg, const struct copy *copy)
{
    log_info("Copying", kv_str("volume", arg), kv_int("entries", copy->entries), kv_int("bytes", copy->bytes));
}

/* A whole copy in incoming/ID. */
static int fill_incoming(struct area *area, const struct record *record, const struct volume_source *source,
                         struct share_fh *fh, struct err *err)
{
    struct removal removal = {0};
    struct share *share = area->share;
    if (remove_tree(share, &area->incoming, record->id, &removal, err) < 0)
        return err_wrap(err, "removing an earlier attempt");
    int error = share_mkdir(share, &area->incoming, record->id,
                            &(struct share_set){.mask = SHARE_SET_MODE, .mode = 0700}, fh, NULL);
    if (error != 0)
        return share_fail(share, error, err, "making the directory of the copy");
    struct copy copy = {.progress = log_progress, .arg = record->id};
    if (share_copy_tree(source->share, &source->directory, share, fh, &copy, err) < 0) {
        remove_tree(share, &area->incoming, record->id, &removal, NULL); /* a full disk needs the room at once */
        return -1;
    }
    if (copy.owner_lost > 0)
        log_warn("The server does not let this driver set owners: they are lost in the copy",
                 kv_str("volume", record->id), kv_int("entries", copy.owner_lost));
    return 0;
}

static int make_directory(struct nfs_driver *driver, struct area *area, const struct record *record,
                          const struct parameters *parameters, const struct volume_source *source, struct err *err)
{
    struct share *share = area->share;
    struct share_fh parent = {0}, fh = {0};
    const char *name = NULL;
    bool copied = source->directory.len > 0;
    if (place_mark_made(area, record->sub_dir, err) < 0)
        return -1;
    if (copied && (fill_incoming(area, record, source, &fh, err) < 0 ||
                   set_rights(driver, share, &fh, parameters, true, record->sub_dir, err) < 0))
        return -1;
    /* a directory above may be pruned by a deletion that runs at the same time */
    for (int tries = 0;; tries++) {
        if (make_parents(area, record->sub_dir, wanted_mode(driver, parameters), &parent, &name, err) < 0) {
            if (tries < 10 && err_is(err, ERR_NOT_FOUND))
                continue;
            return -1;
        }
        struct share_set mode = {.mask = SHARE_SET_MODE, .mode = wanted_mode(driver, parameters)};
        int error = copied ? share_rename(share, &area->incoming, record->id, &parent, name)
                           : share_mkdir(share, &parent, name, &mode, &fh, NULL);
        if (error == EEXIST && !copied)
            error = share_lookup(share, &parent, name, &fh, NULL);
        if (error == 0)
            break;
        if ((error != ENOENT && error != ESTALE) || tries >= 10)
            return share_fail(share, error, err, "making directory %s", record->sub_dir);
    }
    err_clear(err);
    return copied ? 0 : set_rights(driver, share, &fh, parameters, false, record->sub_dir, err);
}

/* Nothing of a refused volume stays. */
static void take_back(struct area *area, const struct record *record)
{
    auto_err struct err err = {0};
    if (place_release(area, record->sub_dir, record->id, &err) < 0 || place_prune(area, record->sub_dir, &err) < 0 ||
        record_remove(area, &area->volumes, record->id, &err) < 0)
        log_warn("Cannot take back what a refused volume left", kv_str("volume", record->id), kv_err(&err));
}

/* An existing directory is used when we made it; one of somebody else only when it will never be removed. */
static int check_existing(struct area *area, const struct record *record, const struct place *place,
                          const struct volume_source *source, struct err *err)
{
    if (!place->made && record->on_delete != ON_DELETE_RETAIN) {
        take_back(area, record);
        return csi_fail(err, CSI_FAILED_PRECONDITION,
                        "directory %s on %s:%s exists and was not made by this driver: with onDelete \"%s\" deleting "
                        "the volume would remove it; use onDelete: retain, or another subDir",
                        record->sub_dir, share_where(area->share)->server, share_where(area->share)->export,
                        on_delete_name(record->on_delete));
    }
    if (source->directory.len > 0 && (place->others.len > 0 || !place->made)) {
        take_back(area, record);
        return csi_fail(err, CSI_FAILED_PRECONDITION, "directory %s exists already: nothing can be restored into it",
                        record->sub_dir);
    }
    return 0;
}

int lifecycle_create(struct nfs_driver *driver, struct area *area, struct record *record,
                     const struct parameters *parameters, const struct volume_source *source, struct err *err)
{
    auto_directory_hold struct directory_hold hold = {0};
    auto_place struct place place = {0};
    struct share_fh fh;
    struct share_attr attr;
    if (nfs_lock_directory(driver, share_where(area->share), record->sub_dir, &hold, err) < 0)
        return -1;
    record->state = RECORD_CREATING;
    if (record_save(area, &area->volumes, record, err) < 0 || place_claim(area, record->sub_dir, record->id, err) < 0 ||
        place_look(area, record->sub_dir, record->id, &place, err) < 0)
        return -1;
    int error = share_walk(area->share, record->sub_dir, &fh, &attr);
    if (error == 0 && attr.type != SHARE_DIRECTORY)
        error = ENOTDIR;
    if (error != 0 && error != ENOENT)
        return share_fail(area->share, error, err, "looking for directory %s", record->sub_dir);
    if (error == 0 ? check_existing(area, record, &place, source, err) < 0
                   : make_directory(driver, area, record, parameters, source, err) < 0)
        return -1;
    /* made by an attempt that was cut short, it may lack its rights */
    if (error == 0 && place.made && place.others.len == 0 &&
        set_rights(driver, area->share, &fh, parameters, source->directory.len > 0, record->sub_dir, err) < 0)
        return -1;
    record->state = RECORD_READY;
    return record_save(area, &area->volumes, record, err);
}

int lifecycle_find(struct share *share, struct area *area, const struct handle *handle, struct record *record,
                   struct share_fh *directory, struct err *err)
{
    struct share_attr attr;
    int found = area_find(share, area, err);
    if (found > 0)
        found = record_load(area, &area->volumes, handle->id, record, err);
    if (found < 0)
        return -1;
    if (found == 0 && (handle->ours || handle->sub_dir == NULL))
        return 0;
    if (found == 0) {
        record->id = mem_strdup(handle->id);
        record->name = mem_strdup(handle->id);
        record->sub_dir = mem_strdup(handle->sub_dir);
        record->on_delete = handle->on_delete;
        record->state = RECORD_READY;
    }
    if (record->sub_dir == NULL || record->state != RECORD_READY)
        return 0;
    int error = share_walk(share, record->sub_dir, directory, &attr);
    if (error == ENOENT || (error == 0 && attr.type != SHARE_DIRECTORY))
        return 0;
    return error == 0 ? 1 : share_fail(share, error, err, "looking for directory %s", record->sub_dir);
}
