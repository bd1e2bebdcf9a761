/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume is mounted once per node, at its staging path; each publish is a bind mount of it. Inline ephemeral volumes
 * are not staged: they are mounted at their target.
 */
#include "drivers/nfs/driver.h"

#include "drivers/common/mount.h"
#include "drivers/nfs/monitor.h"
#include "drivers/nfs/mounts.h"
#include "drivers/nfs/stats.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <limits.h>

#define LONGEST_MOUNT (110 * CLOCK_SECOND) /* kubelet gives up after 120 */
#define PROBE_TIMEOUT (3 * CLOCK_SECOND)

static int64_t mount_deadline(const struct nfs_driver *driver, struct csi_call *call)
{
    int64_t left = call != NULL ? csi_call_remaining(call) : CLOCK_NEVER;
    return clock_mono(driver->clock) + (left < LONGEST_MOUNT ? left - CLOCK_SECOND : LONGEST_MOUNT);
}

static char *capability_text(const Csi__V1__VolumeCapability *capability)
{
    auto_str struct str out = {0};
    str_addf(&out, "mode=%d", capability->access_mode != NULL ? (int)capability->access_mode->mode : 0);
    if (capability->mount != NULL)
        for (size_t i = 0; i < capability->mount->n_mount_flags; i++)
            str_addf(&out, ",%s", capability->mount->mount_flags[i]);
    return str_take(&out);
}

static bool is_read_only_mode(const Csi__V1__VolumeCapability *capability)
{
    int mode = capability->access_mode != NULL ? (int)capability->access_mode->mode : 0;
    return mode == CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__MULTI_NODE_READER_ONLY ||
           mode == CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_READER_ONLY;
}

static int check_capability(const Csi__V1__VolumeCapability *capability, struct err *err)
{
    if (capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "NFS has no block volumes");
    return 0;
}

static int check_path(const char *path, const char *what, struct err *err)
{
    return mount_path_is_safe(path)
               ? 0
               : csi_fail(err, CSI_INVALID_ARGUMENT, "%s %s is not a clean absolute path", what, path);
}

/* ---- what is to be mounted ---- */

/* The context says it (also of hand-made volumes); ids of ours and of csi-driver-nfs say it too. */
static int describe(struct nfs_driver *driver, const char *volume_id, struct csi_map context,
                    const Csi__V1__VolumeCapability *capability, const char *path, struct staged *staged,
                    struct parameters *parameters, struct err *err)
{
    auto_handle struct handle handle = {0};
    bool parsed = handle_parse(volume_id, &handle, NULL) == 0;
    if (parameters_read(context, true, parameters, err) < 0)
        return -1;
    if (parameters->where.server == NULL && parsed) {
        share_location_clear(&parameters->where);
        share_location_copy(&parameters->where, &handle.where);
        if (parameters->sub_dir == NULL)
            parameters->sub_dir = mem_strdup(handle.sub_dir);
    }
    if (parameters->where.server == NULL)
        return csi_fail(err, CSI_NOT_FOUND, "volume %s: neither its attributes nor its id name a server", volume_id);
    if (parameters->where.export == NULL)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "volume attribute share is missing");
    if (parsed && handle.ours && parameters->where.version == 0)
        parameters->where.version = handle.where.version;
    if (parsed && handle.ours && parameters->where.port == 0)
        parameters->where.port = handle.where.port;
    if (parsed && handle.ours && parameters->where.mount_port == 0)
        parameters->where.mount_port = handle.where.mount_port;
    auto_str struct str options = {0};
    str_add(&options, parameters->mount_options != NULL ? parameters->mount_options : "");
    for (size_t i = 0; capability->mount != NULL && i < capability->mount->n_mount_flags; i++)
        str_addf(&options, "%s%s", options.len > 0 ? "," : "", capability->mount->mount_flags[i]);
    if (parameters_read_mount_options(str_text(&options), &parameters->where, err) < 0)
        return -1;
    staged->handle = mem_strdup(volume_id);
    staged->id = mem_strdup(parsed ? handle.id : "");
    share_location_copy(&staged->where, &parameters->where);
    staged->sub_dir = mem_strdup(parameters->sub_dir != NULL ? parameters->sub_dir : "");
    staged->options = mem_strdup(str_text(&options));
    staged->path = mem_strdup(path);
    staged->capability = capability_text(capability);
    staged->mounter = parameters->mounter != MOUNTER_AUTO ? parameters->mounter : driver->options.mounter;
    return 0;
}

static int set_mode(struct share *share, const struct staged *staged, const struct parameters *parameters)
{
    struct share_fh fh;
    struct share_attr attr;
    int error = share_walk(share, staged->sub_dir, &fh, &attr);
    if (error == 0 && parameters->has_mode && attr.mode != parameters->mode)
        error = share_setattr(share, &fh, &(struct share_set){.mask = SHARE_SET_MODE, .mode = parameters->mode}, NULL);
    return error;
}

/* What the share knows: the size, and that we are about to use it. The kernel may reach a server that we cannot (other
 * versions, Kerberos), so only the FUSE mounter needs it. */
static int ask_share(struct nfs_driver *driver, struct staged *staged, const struct parameters *parameters,
                     struct csi_call *call, struct err *err)
{
    auto_share struct share *share = NULL;
    auto_record struct record record = {0};
    struct area area;
    if (nfs_open_share(driver, &staged->where, call, &share, err) < 0)
        return -1;
    int error = set_mode(share, staged, parameters);
    if (error == ENOENT)
        return csi_fail(err, CSI_NOT_FOUND, "volume %s: there is no directory %s in %s:%s", staged->handle,
                        staged->sub_dir, staged->where.server, staged->where.export);
    if (error != 0 && !parameters->has_mode)
        return share_fail(share, error, err, "looking for directory %s", staged->sub_dir);
    if (error != 0)
        log_warn("Cannot set the volume's mode", kv_str("volume", staged->handle), kv_int("errno", error));
    auto_err struct err ignored = {0};
    if (str_empty(staged->id) || area_find(share, &area, &ignored) <= 0)
        return 0;
    if (record_load(&area, &area.volumes, staged->id, &record, &ignored) <= 0) {
        staged->id[0] = '\0'; /* not a volume of ours: nothing to say about it */
        return 0;
    }
    staged->limit = record.capacity;
    if (users_touch(&area, staged->id, driver->options.node_id, &ignored) < 0)
        log_warn("Cannot say on the share that the volume is in use", kv_str("volume", staged->handle),
                 kv_err(&ignored));
    return 0;
}

static void no_longer_used(struct nfs_driver *driver, const struct staged *staged, struct csi_call *call)
{
    auto_share struct share *share = NULL;
    auto_err struct err err = {0};
    struct area area;
    if (str_empty(staged->id))
        return;
    if (nfs_open_share(driver, &staged->where, call, &share, &err) < 0 || area_find(share, &area, &err) < 0 ||
        (area.users.len > 0 && users_remove(&area, staged->id, driver->options.node_id, &err) < 0))
        log_warn("Cannot say on the share that the volume is no longer in use: it counts as used for ten minutes",
                 kv_str("volume", staged->handle), kv_err(&err));
}

static int do_mount(struct nfs_driver *driver, struct staged *staged, const char *target, struct csi_call *call,
                    struct err *err)
{
    auto_free char *config = monitor_config_path(driver, staged->handle);
    struct nfs_mount mount = {.where = staged->where,
                              .sub_dir = staged->sub_dir,
                              .options = staged->options,
                              .config = config,
                              .limit = staged->limit};
    if (staged->mounter == MOUNTER_KERNEL)
        return kernel_mount(driver, &mount, target, mount_deadline(driver, call), err);
    return fuse_mount_volume(driver, &mount, target, mount_deadline(driver, call), err);
}

int nfs_mount_staged(struct nfs_driver *driver, struct staged *staged, const char *target, struct err *err)
{
    const struct parameters none = {0};
    return ask_share(driver, staged, &none, NULL, err) < 0 ? -1 : do_mount(driver, staged, target, NULL, err);
}

static int mount_volume(struct nfs_driver *driver, struct staged *staged, const struct parameters *parameters,
                        struct csi_call *call, struct err *err)
{
    auto_err struct err unreachable = {0};
    if (staged->mounter == MOUNTER_AUTO)
        staged->mounter = kernel_has_nfs(staged->path) ? MOUNTER_KERNEL : MOUNTER_FUSE;
    if (ask_share(driver, staged, parameters, call, &unreachable) < 0) {
        if (staged->mounter == MOUNTER_FUSE || unreachable.code == ERR_RPC)
            return err_move(err, &unreachable);
        log_warn("The kernel may reach what this driver cannot: mounting without knowing the volume's size",
                 kv_str("volume", staged->handle), kv_err(&unreachable));
    }
    /* the record first: a mount without one would be forgotten after a crash */
    if (monitor_add(driver, staged, err) < 0)
        return -1;
    if (do_mount(driver, staged, staged->path, call, err) == 0)
        return 0;
    auto_err struct err ignored = {0};
    monitor_remove(driver, staged->handle, &ignored);
    no_longer_used(driver, staged, call);
    return -1;
}

/* A target of the volume besides `except` (may be NULL): another mount of what is mounted at its staging path. The
 * caller's; NULL when there is none, or with err set. */
static char *find_target(const char *staging, const char *except, struct err *err)
{
    auto_mounts struct mount_list list = {0};
    if (mount_list_read(&list, err) < 0)
        return NULL;
    const struct mount_entry *base = mount_list_find(&list, staging);
    auto_free char *own = except != NULL ? mount_path_resolve(except) : NULL;
    for (size_t i = 0; base != NULL && i < list.len; i++) {
        const struct mount_entry *other = &list.items[i];
        if (other->major == base->major && other->minor == base->minor && str_eq(other->root, base->root) &&
            !str_eq(other->mount_point, base->mount_point) && !str_eq(other->mount_point, own))
            return mem_strdup(other->mount_point);
    }
    return NULL;
}

/* ---- staging ---- */

/* 1 = mounted and answering (or merely slow), 0 = not mounted (any more). */
static int check_mount(struct nfs_driver *driver, const char *path, struct err *err)
{
    bool mounted = false;
    struct mount_space space;
    if (mount_is_point(path, &mounted, err) < 0)
        return -1;
    if (!mounted)
        return 0;
    int error = monitor_probe(driver, path, PROBE_TIMEOUT, &space);
    if (error != ESTALE && error != ENOTCONN && error != EIO)
        return 1;
    log_warn("Stale mount: it is taken away", kv_str("path", path), kv_int("errno", error));
    return mount_remove(path, err) < 0 ? -1 : 0;
}

static int stage(struct nfs_driver *driver, struct staged *staged, const struct parameters *parameters,
                 struct csi_call *call, struct err *err)
{
    auto_staged struct staged before = {0};
    bool known = monitor_find(driver->monitor, staged->handle, &before) > 0;
    int mounted = check_mount(driver, staged->path, err);
    if (mounted < 0)
        return -1;
    if (mounted && known && str_eq(before.path, staged->path) && !str_eq(before.capability, staged->capability))
        return csi_fail(err, CSI_ALREADY_EXISTS, "volume %s is staged at %s with another capability", staged->handle,
                        staged->path);
    if (mounted)
        return 0;
    return mount_volume(driver, staged, parameters, call, err);
}

static int node_stage_volume(void *arg, const Csi__V1__NodeStageVolumeRequest *request,
                             Csi__V1__NodeStageVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    auto_staged struct staged staged = {0};
    auto_parameters struct parameters parameters = {0};
    (void)reply;
    if (check_capability(request->volume_capability, err) < 0 ||
        check_path(request->staging_target_path, "staging path", err) < 0 ||
        keylock_exclusive(driver->locks, "volume", request->volume_id, &hold, err) < 0 ||
        describe(driver, request->volume_id, CSI_MAP(request, volume_context), request->volume_capability,
                 request->staging_target_path, &staged, &parameters, err) < 0 ||
        mount_target_make(request->staging_target_path, true, err) < 0)
        return -1;
    return stage(driver, &staged, &parameters, call, err);
}

static int node_unstage_volume(void *arg, const Csi__V1__NodeUnstageVolumeRequest *request,
                               Csi__V1__NodeUnstageVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    auto_staged struct staged staged = {0};
    (void)reply;
    const char *path = request->staging_target_path;
    if (check_path(path, "staging path", err) < 0 ||
        keylock_exclusive(driver->locks, "volume", request->volume_id, &hold, err) < 0)
        return -1;
    const bool known = monitor_find(driver->monitor, request->volume_id, &staged) != 0 && str_eq(staged.path, path);
    /* for the kernel two volumes in one directory are one file system: their targets cannot be told apart */
    auto_free char *target = known && staged.mounter == MOUNTER_FUSE ? find_target(path, NULL, err) : NULL;
    if (target != NULL)
        return csi_fail(err, CSI_FAILED_PRECONDITION, "volume %s is still published at %s", request->volume_id, target);
    if (err->code != ERR_NONE || mount_remove(path, err) < 0)
        return -1;
    if (!known)
        return 0;
    if (monitor_remove(driver, request->volume_id, err) < 0)
        return -1;
    no_longer_used(driver, &staged, call);
    return 0;
}

/* ---- publishing ---- */

static int check_single(const char *volume_id, const char *staging, const char *target, int mode, struct err *err)
{
    if (mode != CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_SINGLE_WRITER)
        return 0;
    auto_free char *other = find_target(staging, target, err);
    if (other != NULL)
        return csi_fail(err, CSI_FAILED_PRECONDITION, "volume %s is already published at %s and allows one target only",
                        volume_id, other);
    return err->code == ERR_NONE ? 0 : -1;
}

/* 1 = published already as asked for. */
static int check_target(struct nfs_driver *driver, const char *target, bool read_only, struct err *err)
{
    int mounted = check_mount(driver, target, err);
    if (mounted <= 0)
        return mounted;
    auto_mounts struct mount_list list = {0};
    if (mount_list_read(&list, err) < 0)
        return -1;
    const struct mount_entry *entry = mount_list_find(&list, target);
    if (entry != NULL && entry->read_only != read_only)
        return csi_fail(err, CSI_ALREADY_EXISTS, "the volume is published at %s, but %s", target,
                        read_only ? "writable" : "read-only");
    return entry != NULL;
}

static int publish_ephemeral(struct nfs_driver *driver, const Csi__V1__NodePublishVolumeRequest *request,
                             bool read_only, struct csi_call *call, struct err *err)
{
    auto_staged struct staged staged = {0};
    auto_parameters struct parameters parameters = {0};
    if (describe(driver, request->volume_id, CSI_MAP(request, volume_context), request->volume_capability,
                 request->target_path, &staged, &parameters, err) < 0 ||
        mount_volume(driver, &staged, &parameters, call, err) < 0)
        return -1;
    /* a bind mount of itself on itself carries the flag for either mounter */
    return read_only ? mount_bind(request->target_path, request->target_path, true, err) : 0;
}

/* The mount at the staging path may have died (FUSE process, server): then it is mended first. */
static int mend_staging(struct nfs_driver *driver, const Csi__V1__NodePublishVolumeRequest *request,
                        struct csi_call *call, struct err *err)
{
    auto_staged struct staged staged = {0};
    struct parameters none = {0};
    int mounted = check_mount(driver, request->staging_target_path, err);
    if (mounted != 0)
        return mounted < 0 ? -1 : 0;
    if (monitor_find(driver->monitor, request->volume_id, &staged) == 0 ||
        !str_eq(staged.path, request->staging_target_path))
        return csi_fail(err, CSI_FAILED_PRECONDITION, "volume %s is not staged at %s", request->volume_id,
                        request->staging_target_path);
    log_info("Mounting again", kv_str("volume", request->volume_id), kv_str("path", staged.path));
    return mount_volume(driver, &staged, &none, call, err);
}

static int node_publish_volume(void *arg, const Csi__V1__NodePublishVolumeRequest *request,
                               Csi__V1__NodePublishVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    bool read_only = request->readonly || is_read_only_mode(request->volume_capability);
    bool ephemeral = str_eq(csi_map_get(CSI_MAP(request, volume_context), "csi.storage.k8s.io/ephemeral"), "true");
    (void)reply;
    if (check_capability(request->volume_capability, err) < 0 ||
        check_path(request->target_path, "target path", err) < 0)
        return -1;
    if (!ephemeral && str_empty(request->staging_target_path))
        return csi_fail(err, CSI_FAILED_PRECONDITION, "the staging path is missing");
    if (!ephemeral && check_path(request->staging_target_path, "staging path", err) < 0)
        return -1;
    if (keylock_exclusive(driver->locks, "volume", request->volume_id, &hold, err) < 0)
        return -1;
    int published = check_target(driver, request->target_path, read_only, err);
    if (published != 0)
        return published < 0 ? -1 : 0;
    if (!ephemeral && (mend_staging(driver, request, call, err) < 0 ||
                       check_single(request->volume_id, request->staging_target_path, request->target_path,
                                    (int)request->volume_capability->access_mode->mode, err) < 0))
        return -1;
    if (mount_target_make(request->target_path, true, err) < 0)
        return -1;
    return ephemeral ? publish_ephemeral(driver, request, read_only, call, err)
                     : mount_bind(request->staging_target_path, request->target_path, read_only, err);
}

static int node_unpublish_volume(void *arg, const Csi__V1__NodeUnpublishVolumeRequest *request,
                                 Csi__V1__NodeUnpublishVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    auto_staged struct staged staged = {0};
    (void)reply;
    if (check_path(request->target_path, "target path", err) < 0 ||
        keylock_exclusive(driver->locks, "volume", request->volume_id, &hold, err) < 0 ||
        mount_target_remove(request->target_path, err) < 0)
        return -1;
    /* an ephemeral one was mounted there */
    if (monitor_find(driver->monitor, request->volume_id, &staged) == 0 || !str_eq(staged.path, request->target_path))
        return 0;
    if (monitor_remove(driver, request->volume_id, err) < 0)
        return -1;
    no_longer_used(driver, &staged, call);
    return 0;
}

/* ---- the others ---- */

static int node_expand_volume(void *arg, const Csi__V1__NodeExpandVolumeRequest *request,
                              Csi__V1__NodeExpandVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    auto_staged struct staged staged = {0};
    struct parameters none = {0};
    if (keylock_exclusive(driver->locks, "volume", request->volume_id, &hold, err) < 0)
        return -1;
    bool mounted = false;
    if (monitor_find(driver->monitor, request->volume_id, &staged) == 0)
        return csi_fail(err, CSI_NOT_FOUND, "volume %s is not mounted here", request->volume_id);
    if (check_path(request->volume_path, "volume path", err) < 0 ||
        mount_is_point(request->volume_path, &mounted, err) < 0)
        return -1;
    if (!mounted)
        return csi_fail(err, CSI_NOT_FOUND, "volume %s is not mounted at %s", request->volume_id, request->volume_path);
    /* the record on the share says how large it is; the request need not */
    int64_t wanted = request->capacity_range != NULL ? request->capacity_range->required_bytes : 0;
    if (ask_share(driver, &staged, &none, call, err) < 0)
        return -1;
    if (staged.limit < wanted)
        staged.limit = wanted;
    if (monitor_add(driver, &staged, err) < 0)
        return -1;
    if (staged.mounter == MOUNTER_FUSE) {
        auto_free char *config = monitor_config_path(driver, staged.handle);
        struct nfs_mount mount = {.where = staged.where,
                                  .sub_dir = staged.sub_dir,
                                  .options = staged.options,
                                  .config = config,
                                  .limit = staged.limit};
        if (fuse_write_config(driver, &mount, err) < 0)
            return -1;
    }
    reply->capacity_bytes = staged.limit;
    return 0;
}

static int node_get_capabilities(void *arg, const Csi__V1__NodeGetCapabilitiesRequest *request,
                                 Csi__V1__NodeGetCapabilitiesResponse *reply, struct csi_call *call, struct err *err)
{
    static const Csi__V1__NodeServiceCapability__RPC__Type types[] = {
        CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__STAGE_UNSTAGE_VOLUME,
        CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__GET_VOLUME_STATS,
        CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__EXPAND_VOLUME,
        CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__VOLUME_CONDITION,
        CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__SINGLE_NODE_MULTI_WRITER,
    };
    struct csi_arena *arena = csi_call_arena(call);
    (void)arg, (void)request, (void)err;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        CSI_NEW(arena, CSI_ADD(arena, reply, capabilities), rpc)->type = types[i];
    return 0;
}

static int node_get_info(void *arg, const Csi__V1__NodeGetInfoRequest *request, Csi__V1__NodeGetInfoResponse *reply,
                         struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    (void)request, (void)err;
    reply->node_id = csi_arena_strdup(csi_call_arena(call), driver->options.node_id);
    reply->max_volumes_per_node = driver->options.max_volumes_per_node;
    return 0;
}

const struct csi_handlers nfs_node_handlers = {
    .node_stage_volume = node_stage_volume,
    .node_unstage_volume = node_unstage_volume,
    .node_publish_volume = node_publish_volume,
    .node_unpublish_volume = node_unpublish_volume,
    .node_get_volume_stats = nfs_get_volume_stats,
    .node_expand_volume = node_expand_volume,
    .node_get_capabilities = node_get_capabilities,
    .node_get_info = node_get_info,
};
