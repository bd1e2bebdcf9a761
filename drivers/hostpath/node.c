/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/health.h"
#include "drivers/hostpath/volumes.h"

#include "lib/base/mem.h"

#include <sys/stat.h>

/* ---- NodeGetVolumeStats ---- */

static void add_usage(struct csi_arena *arena, Csi__V1__NodeGetVolumeStatsResponse *reply,
                      Csi__V1__VolumeUsage__Unit unit, int64_t total, int64_t used, int64_t available)
{
    Csi__V1__VolumeUsage *usage = CSI_ADD(arena, reply, usage);
    usage->unit = unit;
    usage->total = total;
    usage->used = used;
    usage->available = available;
}

static int find_place(const struct volume *volume, const char *path, struct mount_list *mounts, struct err *err)
{
    struct stat st;
    if (!str_eq(path, volume->staging_path) && volume_find_target(volume, path) == NULL)
        return csi_fail(err, CSI_NOT_FOUND, "volume %s is not at %s", volume->id, path);
    if (mount_list_read(mounts, err) < 0)
        return -1;
    /* a mount point is there, and asking a dead one would take for ever */
    if (mount_list_find(mounts, path) == NULL && lstat(path, &st) != 0)
        return csi_fail(err, CSI_NOT_FOUND, "path %s does not exist", path);
    return 0;
}

static int node_get_volume_stats(void *arg, const Csi__V1__NodeGetVolumeStatsRequest *request,
                                 Csi__V1__NodeGetVolumeStatsResponse *reply, struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    auto_volume struct volume *volume = NULL;
    auto_err struct err reason = {0};
    auto_mounts struct mount_list mounts = {0};
    struct usage usage;
    auto_free char *path = mount_path_resolve(request->volume_path);
    if (hostpath_find_volume(driver, request->volume_id, &volume, err) < 0 ||
        find_place(volume, path, &mounts, err) < 0)
        return -1;
    auto_free char *problem = hostpath_volume_problem(driver, volume, &mounts);
    if (problem == NULL && health_usage(driver, volume, path, &usage, &reason) < 0)
        problem = mem_strdup(err_text(&reason));
    volumes_fill_condition(problem, arena, CSI_NEW(arena, reply, volume_condition));
    if (problem != NULL)
        return 0;
    if (volume->block) {
        CSI_ADD(arena, reply, usage)->total = usage.total;
        reply->usage[0]->unit = CSI__V1__VOLUME_USAGE__UNIT__BYTES;
        return 0;
    }
    add_usage(arena, reply, CSI__V1__VOLUME_USAGE__UNIT__BYTES, usage.total, usage.used, usage.available);
    if (usage.has_inodes)
        add_usage(arena, reply, CSI__V1__VOLUME_USAGE__UNIT__INODES, usage.inodes, usage.inodes_used,
                  usage.inodes_free);
    if (usage.available == 0)
        volumes_fill_condition("no space is left in the volume", arena, reply->volume_condition);
    return 0;
}

/* ---- NodeGetCapabilities, NodeGetInfo ---- */

#define CAPABILITY(name) CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__##name

static int node_get_capabilities(void *arg, const Csi__V1__NodeGetCapabilitiesRequest *request,
                                 Csi__V1__NodeGetCapabilitiesResponse *reply, struct csi_call *call, struct err *err)
{
    const struct hostpath_options *options = &((struct hostpath *)arg)->options;
    const struct {
        Csi__V1__NodeServiceCapability__RPC__Type type;
        bool on;
    } table[] = {
        {CAPABILITY(STAGE_UNSTAGE_VOLUME), true},     {CAPABILITY(GET_VOLUME_STATS), true},
        {CAPABILITY(VOLUME_CONDITION), true},         {CAPABILITY(EXPAND_VOLUME), options->node_expansion},
        {CAPABILITY(SINGLE_NODE_MULTI_WRITER), true},
    };
    struct csi_arena *arena = csi_call_arena(call);
    (void)request, (void)err;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].on)
            CSI_NEW(arena, CSI_ADD(arena, reply, capabilities), rpc)->type = table[i].type;
    return 0;
}

static int node_get_info(void *arg, const Csi__V1__NodeGetInfoRequest *request, Csi__V1__NodeGetInfoResponse *reply,
                         struct csi_call *call, struct err *err)
{
    const struct hostpath_options *options = &((struct hostpath *)arg)->options;
    struct csi_arena *arena = csi_call_arena(call);
    (void)request, (void)err;
    reply->node_id = csi_arena_strdup(arena, options->node_id);
    reply->max_volumes_per_node =
        options->max_volumes_per_node > 0 ? options->max_volumes_per_node : options->attach_limit;
    if (options->topology)
        CSI_MAP_ADD(arena, CSI_NEW(arena, reply, accessible_topology), segments, HOSTPATH_TOPOLOGY_KEY,
                    options->node_id);
    return 0;
}

const struct csi_handlers hostpath_node_handlers = {
    .node_get_volume_stats = node_get_volume_stats,
    .node_get_capabilities = node_get_capabilities,
    .node_get_info = node_get_info,
};
