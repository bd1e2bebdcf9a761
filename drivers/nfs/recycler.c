/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/driver.h"

#include "drivers/nfs/remove.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

static void log_progress(void *arg, int64_t removed)
{
    log_info("Scrubbing", kv_str("volume", arg), kv_int("removed", removed));
}

static int check_unused(struct area *area, const struct record *record, struct err *err)
{
    auto_strv struct strv nodes = {0};
    auto_place struct place place = {0};
    if (users_list(area, record->id, &nodes, err) < 0 || place_look(area, record->sub_dir, record->id, &place, err) < 0)
        return -1;
    if (nodes.len > 0) {
        auto_free char *names = strv_join(&nodes, ", ");
        return csi_fail(err, CSI_FAILED_PRECONDITION, "volume %s is in use on node %s", record->name, names);
    }
    if (place.others.len > 0 || place.below.len > 0)
        return csi_fail(err, CSI_FAILED_PRECONDITION, "another volume (%s) lives in or below directory %s",
                        place.others.len > 0 ? place.others.items[0] : place.below.items[0], record->sub_dir);
    return 0;
}

static int scrub(void *arg, const Berth__V1__ScrubRequest *request, Berth__V1__ScrubResponse *reply,
                 struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    auto_share struct share *share = NULL;
    auto_handle struct handle handle = {0};
    auto_record struct record record = {0};
    auto_err struct err unknown = {0};
    struct area area = {0};
    struct share_fh directory;
    if (handle_parse(request->volume_id, &handle, &unknown) < 0)
        return csi_fail(err, CSI_NOT_FOUND, "volume does not exist: %s", err_text(&unknown));
    if (nfs_read_secrets(CSI_MAP(request, secrets), &handle.where, err) < 0 ||
        nfs_lock(driver, "volume", &handle.where, handle.id, false, &hold, err) < 0 ||
        nfs_open_share(driver, &handle.where, call, &share, err) < 0)
        return -1;
    int found = lifecycle_find(share, &area, &handle, &record, &directory, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return csi_fail(err, CSI_NOT_FOUND, "volume %s does not exist", request->volume_id);
    /* a share without our directory has nobody else's volumes either */
    if (area.users.len > 0 && check_unused(&area, &record, err) < 0)
        return -1;
    struct removal removal = {.progress = log_progress, .arg = record.id};
    nfs_outlive_call(share);
    int result = remove_content(share, &directory, record.sub_dir, &removal, err);
    reply->removed_entries = removal.removed;
    log_info("Scrubbed", kv_str("volume", record.id), kv_int("removed", removal.removed),
             kv_bool("complete", result == 0));
    return result;
}

const struct csi_handlers nfs_recycler_handlers = {.scrub = scrub};
