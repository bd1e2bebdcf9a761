/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/stats.h"

#include "drivers/common/mount.h"
#include "drivers/nfs/monitor.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <inttypes.h>

#define TIMEOUT (2 * CLOCK_SECOND)

static void add_usage(struct csi_arena *arena, Csi__V1__NodeGetVolumeStatsResponse *reply,
                      Csi__V1__VolumeUsage__Unit unit, uint64_t total, uint64_t used, uint64_t available)
{
    Csi__V1__VolumeUsage *usage = CSI_ADD(arena, reply, usage);
    usage->unit = unit;
    usage->total = (int64_t)total;
    usage->used = (int64_t)used;
    usage->available = (int64_t)available;
}

/* The kernel's client shows the whole export: what was measured takes its place when the volume has a size. */
static void apply_measured(const struct staged *staged, const struct usage *usage, struct mount_space *space,
                           uint64_t *used)
{
    uint64_t limit = (uint64_t)staged->limit;
    if (staged->mounter != MOUNTER_KERNEL || !usage->known)
        return;
    *used = usage->bytes;
    if (limit == 0)
        return;
    uint64_t left = limit > *used ? limit - *used : 0;
    space->total = limit;
    space->available = left < space->available ? left : space->available;
}

static void set_condition(struct csi_arena *arena, Csi__V1__NodeGetVolumeStatsResponse *reply, bool abnormal,
                          char *message)
{
    Csi__V1__VolumeCondition *condition = CSI_NEW(arena, reply, volume_condition);
    condition->abnormal = abnormal;
    condition->message = message;
}

static void answer_broken(struct csi_arena *arena, const struct staged *staged, int error,
                          Csi__V1__NodeGetVolumeStatsResponse *reply)
{
    const char *what = error == ETIMEDOUT  ? "does not answer"
                       : error == ESTALE   ? "no longer knows the directory (it was removed, or the export changed)"
                       : error == ENOTCONN ? "is not reached any more: the process that mounted it has ended"
                                           : "answers with an error";
    /* kubelet takes an answer without usage for an error */
    add_usage(arena, reply, CSI__V1__VOLUME_USAGE__UNIT__BYTES, (uint64_t)staged->limit, 0, 0);
    set_condition(arena, reply, true,
                  csi_arena_printf(arena, "NFS server %s, export %s, %s: %s", staged->where.server,
                                   staged->where.export, what, strerrordesc_np(error)));
}

int nfs_get_volume_stats(void *arg, const Csi__V1__NodeGetVolumeStatsRequest *request,
                         Csi__V1__NodeGetVolumeStatsResponse *reply, struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    auto_staged struct staged staged = {0};
    struct mount_space space = {0};
    bool mounted = false;
    if (monitor_find(driver->monitor, request->volume_id, &staged) == 0)
        return csi_fail(err, CSI_NOT_FOUND, "volume %s is not mounted here", request->volume_id);
    if (!mount_path_is_safe(request->volume_path) || mount_is_point(request->volume_path, &mounted, NULL) < 0 ||
        !mounted)
        return csi_fail(err, CSI_NOT_FOUND, "volume %s is not mounted at %s", request->volume_id, request->volume_path);
    int error = monitor_probe(driver, request->volume_path, TIMEOUT, &space);
    if (error != 0) {
        answer_broken(arena, &staged, error, reply);
        return 0;
    }
    uint64_t used = space.total - space.free;
    struct usage usage = monitor_usage(driver->monitor, request->volume_id);
    apply_measured(&staged, &usage, &space, &used);
    add_usage(arena, reply, CSI__V1__VOLUME_USAGE__UNIT__BYTES, space.total, used, space.available);
    add_usage(arena, reply, CSI__V1__VOLUME_USAGE__UNIT__INODES, space.files, space.files - space.free_files,
              space.free_files);
    if (staged.limit > 0 && used > (uint64_t)staged.limit)
        set_condition(arena, reply, true,
                      csi_arena_printf(arena,
                                       "%" PRIu64 " bytes are used, more than the %" PRId64 " asked for (this mounter "
                                       "does not enforce the size)",
                                       used, staged.limit));
    else
        set_condition(arena, reply, false, csi_arena_strdup(arena, "the server answers"));
    return 0;
}
