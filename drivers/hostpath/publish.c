/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NodePublishVolume binds the staged volume (block: its device) to the target. Ephemeral inline volumes are made here,
 * mounted right at their only target, and end with NodeUnpublishVolume.
 */
#include "drivers/hostpath/capacity.h"
#include "drivers/hostpath/image.h"
#include "drivers/hostpath/node.h"
#include "drivers/hostpath/usage.h"
#include "drivers/hostpath/volumes.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/kube/quantity.h"

#include <sys/mount.h>

#define EPHEMERAL_KEY "csi.storage.k8s.io/ephemeral"
#define EPHEMERAL_SIZE ((int64_t)100 << 20) /* the peer driver's, for those who give no size */

/* ---- what the call asks for ---- */

/* Modes in which a volume may have only one target on a node. */
static bool is_single_target(int mode)
{
    return mode == CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_SINGLE_WRITER;
}

static bool is_reader_mode(int mode)
{
    return mode == CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_READER_ONLY ||
           mode == CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__MULTI_NODE_READER_ONLY;
}

/* Whether what lies on the target is this volume as it is mounted now, and not what a mount that died has left there.
 */
static int is_published(struct hostpath *driver, const struct volume *volume, const char *target, bool *published,
                        struct err *err)
{
    auto_mounts struct mount_list mounts = {0};
    *published = false;
    if (mount_list_read(&mounts, err) < 0)
        return -1;
    const struct mount_entry *there = mount_list_find(&mounts, target);
    if (there == NULL)
        return 0;
    if (volume->ephemeral)
        return backend_of(volume)->is_attached(driver, volume, target, &mounts, published, err);
    if (volume->block) {
        /* a bind mount's root is the device's name in its file system */
        char device[64];
        const struct volume_target *known = volume_find_target(volume, target);
        const bool read_only = known != NULL && there->read_only;
        if (backend_block_device(driver, volume, read_only, device, sizeof(device), err) < 0)
            return -1;
        *published = str_eq(strrchr(there->root, '/'), strrchr(device, '/'));
        return 0;
    }
    const struct mount_entry *staged = mount_list_find(&mounts, volume->staging_path);
    *published = staged != NULL && staged->major == there->major && staged->minor == there->minor;
    return 0;
}

/* A repeated call is answered without a second mount; another one with the same target is 6. */
static int check_targets(struct hostpath *driver, const struct volume *volume,
                         const Csi__V1__NodePublishVolumeRequest *request, const char *capability, bool *published,
                         struct err *err)
{
    *published = false;
    const struct volume_target *same = volume_find_target(volume, request->target_path);
    if (same != NULL) {
        if (same->read_only != (bool)request->readonly || !str_eq(same->capability, capability))
            return csi_fail(err, CSI_ALREADY_EXISTS, "volume %s is published at %s with another capability", volume->id,
                            request->target_path);
        return is_published(driver, volume, request->target_path, published, err);
    }
    int mode = (int)request->volume_capability->access_mode->mode;
    for (size_t i = 0; i < volume->target_count; i++) {
        bool mounted = false;
        if (!is_single_target(mode) && !is_single_target(volume->targets[i].access_mode))
            continue;
        if (mount_is_point(volume->targets[i].path, &mounted, err) < 0)
            return -1;
        if (mounted)
            return csi_fail(err, CSI_FAILED_PRECONDITION,
                            "volume %s is already published at %s and allows one target only", volume->id,
                            volume->targets[i].path);
    }
    return 0;
}

static int check_access_type(const struct volume *volume, const Csi__V1__VolumeCapability *capability, struct err *err)
{
    if ((capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK) == volume->block)
        return 0;
    return csi_fail(err, CSI_INVALID_ARGUMENT, "volume %s has the other access type", volume->id);
}

static bool wants_read_only(const struct volume *volume, const Csi__V1__NodePublishVolumeRequest *request,
                            const struct mount_options *options)
{
    return request->readonly || options->read_only || volume->attached_read_only ||
           is_reader_mode((int)request->volume_capability->access_mode->mode);
}

/* ---- persistent volumes ---- */

static int bind_target(struct hostpath *driver, const struct volume *volume, const char *target, bool read_only,
                       const struct mount_options *options, struct err *err)
{
    char device[64];
    const unsigned long flags = options->flags | (read_only ? MS_RDONLY : 0);
    /* what still lies there is a mount that died */
    if (mount_remove(target, err) < 0 || mount_target_make(target, !volume->block, err) < 0)
        return -1;
    if (!volume->block)
        return mount_bind_flags(volume->staging_path, target, flags, err);
    /* a read-only mount of a device node stops nobody from writing: the device itself has to refuse */
    if (backend_block_device(driver, volume, read_only, device, sizeof(device), err) < 0)
        return -1;
    return mount_bind_flags(device, target, flags, err);
}

/* Staged, at the path the call names, and alive: a dead mount is replaced by a new one. */
static int need_staged(struct hostpath *driver, const struct volume *volume,
                       const Csi__V1__NodePublishVolumeRequest *request, const struct mount_options *options,
                       struct err *err)
{
    bool staged = false;
    if (*request->staging_target_path == '\0')
        return csi_fail(err, CSI_FAILED_PRECONDITION, "staging_target_path is missing in the request");
    if (str_eq(request->staging_target_path, request->target_path))
        return csi_fail(err, CSI_INVALID_ARGUMENT, "target_path is the staging_target_path");
    if (volume->staging_path == NULL)
        return csi_fail(err, CSI_FAILED_PRECONDITION, "volume %s is not staged", volume->id);
    if (!str_eq(volume->staging_path, request->staging_target_path))
        return csi_fail(err, CSI_INVALID_ARGUMENT, "volume %s is staged at %s, not at %s", volume->id,
                        volume->staging_path, request->staging_target_path);
    if (node_is_staged(driver, volume, &staged, err) < 0)
        return -1;
    if (staged)
        return 0;
    log_info("Mounting a staged volume again that is not mounted any more", kv_str("volume", volume->id));
    return node_attach(driver, volume, options, err);
}

/* The record first: a mount without one would not be taken away when a crash comes between. */
static int record_target(struct hostpath *driver, struct volume *volume,
                         const Csi__V1__NodePublishVolumeRequest *request, const char *capability, struct err *err)
{
    if (volume_find_target(volume, request->target_path) != NULL)
        return 0;
    volume_add_target(volume, request->target_path, request->readonly,
                      (int)request->volume_capability->access_mode->mode, capability);
    return state_save_volume(driver->state, volume, err);
}

static void undo_target(struct hostpath *driver, struct volume *volume, const char *target)
{
    auto_err struct err err = {0};
    volume_remove_target(volume, target);
    if (mount_target_remove(target, &err) < 0 || state_save_volume(driver->state, volume, &err) < 0)
        log_error("Cannot undo a failed publish", kv_str("volume", volume->id), kv_str("target", target), kv_err(&err));
}

static int publish_persistent(struct hostpath *driver, const Csi__V1__NodePublishVolumeRequest *request,
                              const char *capability, struct err *err)
{
    auto_volume struct volume *volume = NULL;
    auto_mount_options struct mount_options options = {0};
    bool published;
    if (hostpath_find_volume(driver, request->volume_id, &volume, err) < 0 ||
        check_access_type(volume, request->volume_capability, err) < 0 ||
        backend_read_options(volume, request->volume_capability, &options, err) < 0 ||
        need_staged(driver, volume, request, &options, err) < 0 ||
        check_targets(driver, volume, request, capability, &published, err) < 0)
        return -1;
    if (published)
        return 0;
    if (record_target(driver, volume, request, capability, err) < 0)
        return -1;
    bool read_only = wants_read_only(volume, request, &options);
    if (bind_target(driver, volume, request->target_path, read_only, &options, err) == 0)
        return 0;
    undo_target(driver, volume, request->target_path);
    return -1;
}

/* ---- ephemeral volumes ---- */

static int read_size(const struct hostpath *driver, const char *text, int64_t *size, struct err *err)
{
    struct kube_quantity quantity;
    *size = EPHEMERAL_SIZE;
    if (text == NULL)
        return 0;
    auto_err struct err reason = {0};
    if (kube_quantity_parse(text, &quantity, &reason) < 0 || quantity.nano <= 0)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "size \"%s\" is not a quantity such as 100Mi", text);
    *size = kube_quantity_ceil(&quantity);
    if (*size > driver->options.max_volume_size)
        return csi_fail(err, CSI_OUT_OF_RANGE, "size %s exceeds the largest volume", text);
    return 0;
}

static int describe_ephemeral(struct hostpath *driver, const Csi__V1__NodePublishVolumeRequest *request,
                              struct volume *volume, struct err *err)
{
    const char *size = NULL;
    bool backend_given;
    volume->id = mem_strdup(request->volume_id);
    volume->name = mem_printf("ephemeral/%s", request->volume_id);
    volume->ephemeral = true;
    volume->backend = driver->options.default_backend;
    volume->created = clock_wall(driver->clock);
    if (!state_id_is_safe(volume->id))
        return csi_fail(err, CSI_INVALID_ARGUMENT, "volume id %s cannot be used", volume->id);
    if (request->volume_capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "an inline volume cannot be a block device");
    if (volumes_read_parameters(CSI_MAP(request, volume_context), volume, &backend_given, &size, err) < 0 ||
        read_size(driver, size, &volume->capacity, err) < 0)
        return -1;
    if (volume->backend == BACKEND_LOOP && volume->capacity < IMAGE_EXT4_MIN)
        volume->capacity = IMAGE_EXT4_MIN;
    return 0;
}

static int make_ephemeral(struct hostpath *driver, struct volume *volume, struct err *err)
{
    auto_reservation struct reservation reservation = {0};
    if (capacity_reserve(driver, &volume->kind, volume->capacity, &reservation, err) < 0)
        return -1;
    if (state_make_data(driver->state, STATE_VOLUMES, volume->id, err) == 0 &&
        backend_of(volume)->make(driver, volume, err) == 0 && state_save_volume(driver->state, volume, err) == 0)
        return 0;
    auto_err struct err ignored = {0};
    if (state_discard_data(driver->state, STATE_VOLUMES, volume->id, &ignored) < 0)
        log_error("Cannot remove a half-made volume", kv_str("volume", volume->id), kv_err(&ignored));
    return -1;
}

static int unmount_ephemeral(struct hostpath *driver, const struct volume *volume, const char *target, struct err *err)
{
    return backend_of(volume)->detach(driver, volume, target, err) < 0 ? -1 : mount_target_remove(target, err);
}

static int remove_ephemeral(struct hostpath *driver, const struct volume *volume, const char *target, struct err *err)
{
    if (unmount_ephemeral(driver, volume, target, err) < 0)
        return -1;
    usage_forget(driver->usage, volume->id);
    return state_delete_volume(driver->state, volume->id, err);
}

static int mount_ephemeral(struct hostpath *driver, const struct volume *volume,
                           const Csi__V1__NodePublishVolumeRequest *request, const struct mount_options *options,
                           struct err *err)
{
    if (mount_remove(request->target_path, err) < 0 || mount_target_make(request->target_path, true, err) < 0 ||
        backend_of(volume)->attach(driver, volume, request->target_path, options, err) < 0)
        return -1;
    return wants_read_only(volume, request, options) ? mount_make_read_only(request->target_path, options->flags, err)
                                                     : 0;
}

static int publish_ephemeral(struct hostpath *driver, const Csi__V1__NodePublishVolumeRequest *request,
                             const char *capability, struct err *err)
{
    auto_volume struct volume *volume = state_volume(driver->state, request->volume_id);
    auto_mount_options struct mount_options options = {0};
    const bool known = volume != NULL;
    bool published = false;
    if (known && !volume->ephemeral)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "volume %s is not an inline volume", volume->id);
    if (known) {
        if (volume->target_count > 0 && volume_find_target(volume, request->target_path) == NULL)
            return csi_fail(err, CSI_FAILED_PRECONDITION, "inline volume %s is already published at %s", volume->id,
                            volume->targets[0].path);
        if (check_targets(driver, volume, request, capability, &published, err) < 0 ||
            backend_read_options(volume, request->volume_capability, &options, err) < 0)
            return -1;
        if (published)
            return 0;
    } else {
        volume = volume_new();
        if (describe_ephemeral(driver, request, volume, err) < 0 ||
            backend_read_options(volume, request->volume_capability, &options, err) < 0)
            return -1;
        volume_add_target(volume, request->target_path, request->readonly,
                          (int)request->volume_capability->access_mode->mode, capability);
        if (make_ephemeral(driver, volume, err) < 0)
            return -1;
    }
    if (mount_ephemeral(driver, volume, request, &options, err) == 0)
        return 0;
    /* a pod may have written to one that was there before: its mount goes, its data only with NodeUnpublishVolume */
    auto_err struct err ignored = {0};
    if ((known ? unmount_ephemeral(driver, volume, request->target_path, &ignored)
               : remove_ephemeral(driver, volume, request->target_path, &ignored)) < 0)
        log_error("Cannot undo a failed publish", kv_str("volume", volume->id), kv_err(&ignored));
    return -1;
}

/* ---- the RPCs ---- */

static int node_publish_volume(void *arg, const Csi__V1__NodePublishVolumeRequest *original,
                               Csi__V1__NodePublishVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    Csi__V1__NodePublishVolumeRequest resolved = *original, *request = &resolved;
    auto_keylock struct keylock_hold hold = {0};
    (void)reply;
    request->target_path = node_resolve_path(driver, arena, "target_path", original->target_path, err);
    if (*original->staging_target_path != '\0')
        request->staging_target_path =
            node_resolve_path(driver, arena, "staging_target_path", original->staging_target_path, err);
    if (request->target_path == NULL || request->staging_target_path == NULL ||
        keylock_exclusive(driver->locks, "volume", request->volume_id, &hold, err) < 0)
        return -1;
    const char *capability = backend_capability_text(arena, request->volume_capability);
    const char *ephemeral = csi_map_get(CSI_MAP(request, volume_context), EPHEMERAL_KEY);
    return str_eq(ephemeral, "true") ? publish_ephemeral(driver, request, capability, err)
                                     : publish_persistent(driver, request, capability, err);
}

static int node_unpublish_volume(void *arg, const Csi__V1__NodeUnpublishVolumeRequest *request,
                                 Csi__V1__NodeUnpublishVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    auto_keylock struct keylock_hold hold = {0};
    (void)reply;
    const char *target = node_resolve_path(driver, csi_call_arena(call), "target_path", request->target_path, err);
    if (target == NULL || keylock_exclusive(driver->locks, "volume", request->volume_id, &hold, err) < 0)
        return -1;
    auto_volume struct volume *volume = state_volume(driver->state, request->volume_id);
    if (volume != NULL && volume->ephemeral && volume_find_target(volume, target) != NULL)
        return remove_ephemeral(driver, volume, target, err);
    if (mount_target_remove(target, err) < 0)
        return -1;
    if (volume == NULL || volume_find_target(volume, target) == NULL)
        return 0;
    volume_remove_target(volume, target);
    return state_save_volume(driver->state, volume, err);
}

const struct csi_handlers hostpath_publish_handlers = {
    .node_publish_volume = node_publish_volume,
    .node_unpublish_volume = node_unpublish_volume,
};
