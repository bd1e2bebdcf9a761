/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/source.h"

#include "lib/base/mem.h"

#include <inttypes.h>

#define SNAPSHOT_GROUP "snapshot.storage.k8s.io"
#define MODE_CHANGE_ANNOTATION "snapshot.storage.kubernetes.io/allow-volume-mode-change"

static bool grant_allows(const struct kube_reference_grant *grant, const char *claim_namespace,
                         const struct kube_data_source *source)
{
    bool from = false, to = false;
    for (uint32_t i = 0; i < grant->from_count && !from; i++)
        from = str_empty(grant->from[i].group) && str_eq(grant->from[i].kind, "PersistentVolumeClaim") &&
               str_eq(grant->from[i].namespace_, claim_namespace);
    for (uint32_t i = 0; i < grant->to_count && !to; i++)
        to = str_eq(grant->to[i].group, source->api_group) && str_eq(grant->to[i].kind, source->kind) &&
             (str_empty(grant->to[i].name) || str_eq(grant->to[i].name, source->name));
    return from && to;
}

static int check_grant(const struct provision_lookup *lookup, const struct kube_claim *claim,
                       const struct kube_data_source *source, struct err *err)
{
    const char *here = claim->object.meta.namespace_;
    auto_objects struct kube_object_list grants = {0};
    if (lookup->grants(lookup->arg, source->namespace_, &grants, err) < 0)
        return err_wrap(err, "error getting referencegrants in namespace %s", source->namespace_);
    for (size_t i = 0; i < grants.len; i++)
        if (grant_allows((const struct kube_reference_grant *)grants.items[i], here, source))
            return 0;
    return err_set(err, ERR_FORBIDDEN, "accessing %s/%s of %s dataSource from %s/%s isn't allowed", source->namespace_,
                   source->name, source->kind, here, claim->object.meta.name);
}

int source_choose(const struct provision_config *config, const struct provision_lookup *lookup,
                  const struct kube_claim *claim, struct source_choice *choice, struct err *err)
{
    const struct kube_data_source *source = claim->data_source != NULL ? claim->data_source : claim->data_source_ref;
    *choice = (struct source_choice){.legacy = claim->data_source != NULL};
    if (source == NULL)
        return 0;
    choice->kind_name = source->kind;
    choice->name = source->name;
    choice->namespace_ = claim->object.meta.namespace_;
    if (claim->data_source == NULL && !str_empty(source->namespace_)) {
        if (!config->gate_cross_namespace)
            return err_set(err, ERR_INVALID,
                           "dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is "
                           "disabled");
        choice->cross_namespace = !str_eq(source->namespace_, claim->object.meta.namespace_);
        choice->namespace_ = source->namespace_;
        if (choice->cross_namespace && check_grant(lookup, claim, source, err) < 0)
            return -1;
    }
    bool snapshot = str_eq(source->kind, "VolumeSnapshot"), clone = str_eq(source->kind, "PersistentVolumeClaim");
    if ((snapshot || clone) && str_empty(source->name))
        return err_set(err, ERR_INVALID, "the PVC source not found for PVC %s", claim->object.meta.name);
    if (snapshot) {
        choice->kind = SOURCE_SNAPSHOT;
        if (!str_eq(source->api_group, SNAPSHOT_GROUP))
            return err_set(err, ERR_INVALID,
                           "the PVC source does not belong to the right APIGroup. Expected %s, Got %s", SNAPSHOT_GROUP,
                           source->api_group);
    } else if (clone) {
        choice->kind = SOURCE_CLAIM;
        if (!str_empty(source->api_group))
            return err_set(err, ERR_INVALID,
                           "the PVC source does not belong to the right APIGroup. Expected \"\", Got %s",
                           source->api_group);
    } else {
        choice->kind = SOURCE_FOREIGN;
    }
    return 0;
}

static bool has_finalizer(const struct kube_object *object, const char *finalizer)
{
    return kube_strings_contain(&object->meta.finalizers, finalizer);
}

/* Go's strconv.ParseBool. */
static int parse_bool(const char *text, bool *value)
{
    static const char *const yes[] = {"1", "t", "T", "true", "TRUE", "True"};
    static const char *const no[] = {"0", "f", "F", "false", "FALSE", "False"};
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (str_eq(text, yes[i]) || str_eq(text, no[i])) {
            *value = str_eq(text, yes[i]);
            return 0;
        }
    }
    return -1;
}

static int check_mode_conversion(const struct kube_snapshot_content *content, const struct kube_claim *claim,
                                 struct err *err)
{
    if (str_empty(content->source_volume_mode) || claim->volume_mode == NULL ||
        str_eq(content->source_volume_mode, claim->volume_mode))
        return 0;
    const char *name = content->object.meta.name;
    const char *text = kube_annotation(&content->object, MODE_CHANGE_ANNOTATION);
    bool allowed = false;
    if (text != NULL && parse_bool(text, &allowed) < 0)
        return err_set(err, ERR_INVALID,
                       "failed to convert %s annotation value to boolean with error: \"%s\" is not a boolean",
                       MODE_CHANGE_ANNOTATION, text);
    if (!allowed)
        return err_set(
            err, ERR_INVALID,
            "requested volume %s/%s modifies the mode of the source volume but does not have permission to do so. "
            "%s annotation is not present on snapshotcontent %s",
            claim->object.meta.namespace_, claim->object.meta.name, MODE_CHANGE_ANNOTATION, name);
    return 0;
}

static int check_content(const struct provision_config *config, const struct kube_snapshot *snapshot,
                         const struct kube_snapshot_content *content, const struct provision_request *request,
                         struct err *err)
{
    const struct kube_meta *meta = &snapshot->object.meta;
    const char *content_name = content->object.meta.name;
    if (!str_eq(content->snapshot_ref.uid, meta->uid) || !str_eq(content->snapshot_ref.namespace_, meta->namespace_) ||
        !str_eq(content->snapshot_ref.name, meta->name))
        return err_set(err, ERR_INVALID, "snapshotcontent %s for snapshot %s/%s is bound to a different snapshot",
                       content_name, meta->namespace_, meta->name);
    if (!str_eq(content->driver, request->class_->provisioner) && !str_eq(content->driver, config->driver_name))
        return err_set(err, ERR_INVALID,
                       "snapshotcontent %s for snapshot %s/%s is handled by a different CSI driver than requested by "
                       "StorageClass %s",
                       content_name, meta->namespace_, meta->name, request->class_->object.meta.name);
    if (!snapshot->ready)
        return err_set(err, ERR_UNAVAILABLE, "snapshot %s is not Ready", meta->name);
    if (str_empty(content->handle))
        return err_set(err, ERR_UNAVAILABLE, "snapshot handle %s is not available", meta->name);
    if (snapshot->has_restore_size) {
        int64_t wanted = request->csi.capacity_range->required_bytes;
        int64_t size = kube_quantity_ceil(&snapshot->restore_size);
        if (wanted < size)
            return err_set(err, ERR_INVALID,
                           "requested volume size %" PRId64 " is less than the size %" PRId64
                           " for the source snapshot %s",
                           wanted, size, meta->name);
    }
    return config->prevent_volume_mode_conversion ? check_mode_conversion(content, request->claim, err) : 0;
}

static int resolve_snapshot(const struct provision_config *config, const struct provision_lookup *lookup,
                            const struct source_choice *choice, struct provision_request *request, struct err *err)
{
    auto_unref struct kube_snapshot *snapshot = NULL;
    auto_unref struct kube_snapshot_content *content = NULL;
    if (lookup->snapshot(lookup->arg, choice->namespace_, choice->name, &snapshot, err) < 0)
        return err_wrap(err, "error getting snapshot %s from api server", choice->name);
    if (snapshot->object.meta.deleting && !has_finalizer(&snapshot->object, SOURCE_SNAPSHOT_FINALIZER))
        return err_set(err, ERR_INVALID, "snapshot %s is currently being deleted", choice->name);
    if (str_empty(snapshot->content_name))
        return err_set(err, ERR_UNAVAILABLE, "snapshot %s not bound", choice->name);
    if (lookup->snapshot_content(lookup->arg, snapshot->content_name, &content, err) < 0)
        return err_wrap(err, "error getting snapshotcontent %s for snapshot %s/%s from api server",
                        snapshot->content_name, choice->namespace_, choice->name);
    if (check_content(config, snapshot, content, request, err) < 0)
        return -1;
    Csi__V1__VolumeContentSource *source = CSI_NEW(&request->arena, &request->csi, volume_content_source);
    CSI_NEW(&request->arena, source, snapshot)->snapshot_id = csi_arena_strdup(&request->arena, content->handle);
    request->source = REQUEST_SOURCE_SNAPSHOT;
    return 0;
}

static const char *mode_of(const char *volume_mode)
{
    return volume_mode != NULL ? volume_mode : "Filesystem";
}

static int check_source_claim(const struct kube_claim *source, const struct provision_request *request, struct err *err)
{
    const struct kube_meta *meta = &source->object.meta;
    if (!str_eq(source->phase, "Bound"))
        return err_set(err, ERR_UNAVAILABLE, "the PVC DataSource %s must be in Bound phase, is in %s", meta->name,
                       str_empty(source->phase) ? "none" : source->phase);
    /* with the finalizer on it, an earlier call of ours has begun to copy: it must be able to end */
    if (meta->deleting && !has_finalizer(&source->object, SOURCE_CLONE_FINALIZER))
        return err_set(err, ERR_INVALID, "the PVC DataSource %s is currently being deleted", meta->name);
    if (source->class_name == NULL)
        return err_set(err, ERR_INVALID, "the source PVC (%s) storageclass cannot be empty", meta->name);
    if (request->claim->class_name == NULL)
        return err_set(err, ERR_INVALID, "the requested PVC (%s) storageclass cannot be empty",
                       request->claim->object.meta.name);
    if (source->volume_name[0] == '\0')
        return err_set(err, ERR_INVALID, "volume name is empty in source PVC %s", meta->name);
    int64_t wanted = request->csi.capacity_range->required_bytes, size = kube_quantity_ceil(&source->request);
    if (wanted < size)
        return err_set(err, ERR_INVALID,
                       "error, new PVC request must be greater than or equal in size to the specified PVC data source, "
                       "requested %" PRId64 " but source is %" PRId64,
                       wanted, size);
    if (!str_eq(mode_of(source->volume_mode), mode_of(request->claim->volume_mode)))
        return err_set(err, ERR_INVALID,
                       "the source PVC and destination PVCs must have the same volume mode for cloning. "
                       "Source is %s, but new PVC requested %s",
                       mode_of(source->volume_mode), mode_of(request->claim->volume_mode));
    return 0;
}

static int resolve_claim(const struct provision_config *config, const struct provision_lookup *lookup,
                         const struct source_choice *choice, struct provision_request *request, struct err *err)
{
    auto_unref struct kube_claim *source = NULL;
    auto_unref struct kube_volume *volume = NULL;
    if (lookup->claim(lookup->arg, choice->namespace_, choice->name, &source, err) < 0)
        return err_wrap(err, "error getting PVC %s (namespace \"%s\") from api server", choice->name,
                        choice->namespace_);
    if (check_source_claim(source, request, err) < 0)
        return -1;
    if (lookup->volume(lookup->arg, source->volume_name, &volume, err) < 0)
        return err_wrap(err, "error getting PV %s for PVC %s/%s", source->volume_name, choice->namespace_,
                        choice->name);
    if (volume->source != KUBE_SOURCE_CSI)
        return err_set(err, ERR_INVALID, "the volume source %s is not a CSI volume", source->volume_name);
    if (!str_eq(volume->csi.driver, request->class_->provisioner) && !str_eq(volume->csi.driver, config->driver_name))
        return err_set(
            err, ERR_INVALID,
            "the source volume %s for PVC %s/%s is handled by a different CSI driver than requested by StorageClass %s",
            source->volume_name, choice->namespace_, choice->name, request->class_->object.meta.name);
    const struct kube_reference *ref = volume->claim_ref;
    if (ref == NULL || !str_eq(ref->uid, source->object.meta.uid) || !str_eq(ref->namespace_, choice->namespace_) ||
        !str_eq(ref->name, choice->name))
        return err_set(err, ERR_INVALID,
                       "the source volume %s for PVC %s/%s is bound to a different PVC than requested",
                       source->volume_name, choice->namespace_, choice->name);
    if (!str_eq(volume->phase, "Bound"))
        return err_set(err, ERR_UNAVAILABLE, "the source volume %s for PVC %s/%s is not bound", source->volume_name,
                       choice->namespace_, choice->name);
    Csi__V1__VolumeContentSource *content = CSI_NEW(&request->arena, &request->csi, volume_content_source);
    CSI_NEW(&request->arena, content, volume)->volume_id = csi_arena_strdup(&request->arena, volume->csi.handle);
    request->source = REQUEST_SOURCE_CLAIM;
    return 0;
}

int source_resolve(const struct provision_config *config, const struct provision_lookup *lookup,
                   const struct source_choice *choice, struct provision_request *request, struct err *err)
{
    if (choice->kind != SOURCE_SNAPSHOT && choice->kind != SOURCE_CLAIM)
        return 0;
    int result = choice->kind == SOURCE_SNAPSHOT ? resolve_snapshot(config, lookup, choice, request, err)
                                                 : resolve_claim(config, lookup, choice, request, err);
    if (result < 0)
        return err_wrap(err, "error getting handle for DataSource Type %s by Name %s", choice->kind_name, choice->name);
    request->source_must_be_echoed = choice->legacy || choice->cross_namespace;
    request->protect_namespace = choice->namespace_;
    request->protect_name = choice->name;
    return 0;
}
