/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/volume.h"

#include "lib/base/mem.h"
#include "provisioner/migrate.h"
#include "provisioner/topology.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define IDENTITY_KEY "storage.kubernetes.io/csiProvisionerIdentity"

/* json_object_set_new with a value that may be absent. */
static void set_text(json_t *object, const char *key, const char *value)
{
    if (value != NULL)
        json_object_set_new(object, key, json_string(value));
}

static json_t *strings_to_json(const struct kube_strings *strings)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < strings->len; i++)
        json_array_append_new(list, json_string(strings->items[i]));
    return list;
}

static int check_response(const struct provision_request *request, const Csi__V1__Volume *volume, int64_t *size,
                          enum volume_verdict *verdict, struct err *err)
{
    int64_t wanted = request->csi.capacity_range->required_bytes;
    *verdict = VOLUME_REJECTED;
    if (volume == NULL || str_empty(volume->volume_id))
        return err_set(err, ERR_INVALID, "the CSI driver returned no volume id");
    *size = volume->capacity_bytes == 0 ? wanted : volume->capacity_bytes;
    if (*size < wanted)
        return err_set(err, ERR_INVALID, "created volume capacity %" PRId64 " less than requested capacity %" PRId64,
                       *size, wanted);
    if (request->source_must_be_echoed && (volume->content_source == NULL || volume->content_source->type_case == 0))
        return err_set(err, ERR_INVALID, "volume content source missing");
    *verdict = VOLUME_ACCEPTED;
    return 0;
}

static json_t *build_metadata(const struct provision_config *config, const struct provision_request *request)
{
    const struct secret_reference *deletion = &request->secrets[SECRET_PROVISIONER];
    const struct secret_reference *modify = &request->secrets[SECRET_CONTROLLER_MODIFY];
    const struct kube_meta *claim = &request->claim->object.meta;
    json_t *labels = json_object(), *annotations = json_object();
    for (size_t i = 0; i < config->copy_claim_annotations.len; i++)
        set_text(annotations, config->copy_claim_annotations.items[i],
                 kube_pairs_get(&claim->annotations, config->copy_claim_annotations.items[i]));
    for (size_t i = 0; i < config->copy_claim_labels.len; i++)
        set_text(labels, config->copy_claim_labels.items[i],
                 kube_pairs_get(&claim->labels, config->copy_claim_labels.items[i]));
    /* after what users may choose, so that nothing of theirs replaces ours */
    set_text(annotations, KUBE_ANN_PROVISIONED_BY, request->class_->provisioner);
    set_text(annotations, KUBE_ANN_DELETION_SECRET_NAME, deletion->name != NULL ? deletion->name : "");
    set_text(annotations, KUBE_ANN_DELETION_SECRET_NAMESPACE, deletion->name != NULL ? deletion->namespace_ : "");
    if (modify->name != NULL) {
        set_text(annotations, "volume.kubernetes.io/controller-modify-secret-name", modify->name);
        set_text(annotations, "volume.kubernetes.io/controller-modify-secret-namespace", modify->namespace_);
    }
    json_t *metadata = json_pack("{s:s, s:o, s:[s]}", "name", request->volume_name, "annotations", annotations,
                                 "finalizers", KUBE_FINALIZER_EXTERNAL_PROVISIONER);
    if (json_object_size(labels) > 0)
        json_object_set(metadata, "labels", labels);
    json_decref(labels);
    return metadata;
}

static json_t *build_source(const struct provision_config *config, const struct provision_request *request,
                            const Csi__V1__Volume *volume)
{
    static const struct {
        enum secret_kind kind;
        const char *field;
    } secret_fields[] = {
        {SECRET_CONTROLLER_PUBLISH, "controllerPublishSecretRef"},
        {SECRET_NODE_STAGE, "nodeStageSecretRef"},
        {SECRET_NODE_PUBLISH, "nodePublishSecretRef"},
        {SECRET_CONTROLLER_EXPAND, "controllerExpandSecretRef"},
        {SECRET_NODE_EXPAND, "nodeExpandSecretRef"},
    };
    json_t *attributes = json_pack("{s:s}", IDENTITY_KEY, config->identity);
    struct csi_map context = CSI_MAP(volume, volume_context);
    const char *key, *value;
    for (size_t i = 0; i < context.len; i++)
        if (csi_map_at(context, i, &key, &value)) /* the driver's own key of that name wins */
            json_object_set_new(attributes, key, json_string(value));
    json_t *source = json_pack("{s:s, s:s, s:o}", "driver", config->driver_name, "volumeHandle", volume->volume_id,
                               "volumeAttributes", attributes);
    if (!request->block && !str_empty(request->fs_type))
        set_text(source, "fsType", request->fs_type);
    if (request->read_only)
        json_object_set_new(source, "readOnly", json_true());
    for (size_t i = 0; i < ARRAY_LEN(secret_fields); i++) {
        const struct secret_reference *reference = &request->secrets[secret_fields[i].kind];
        if (reference->name != NULL)
            json_object_set_new(source, secret_fields[i].field,
                                json_pack("{s:s, s:s}", "name", reference->name, "namespace", reference->namespace_));
    }
    return source;
}

static json_t *build_claim_ref(const struct kube_claim *claim)
{
    char version[24];
    snprintf(version, sizeof(version), "%" PRIu64, claim->object.meta.resource_version);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "apiVersion", "v1", "kind", "PersistentVolumeClaim", "namespace",
                     claim->object.meta.namespace_, "name", claim->object.meta.name, "uid", claim->object.meta.uid,
                     "resourceVersion", version);
}

static const char *reclaim_policy(const struct provision_request *request)
{
    return request->unwanted || str_empty(request->class_->reclaim_policy) ? "Delete" : request->class_->reclaim_policy;
}

int volume_build(const struct provision_config *config, const struct provision_request *request,
                 const Csi__V1__CreateVolumeResponse *response, json_t **json, enum volume_verdict *verdict,
                 struct err *err)
{
    const Csi__V1__Volume *volume = response->volume;
    const struct kube_claim *claim = request->claim;
    const struct kube_class *class_ = request->class_;
    char size_text[KUBE_QUANTITY_TEXT_SIZE];
    int64_t size = 0;
    if (check_response(request, volume, &size, verdict, err) < 0)
        return -1;
    json_t *spec = json_pack("{s:{s:s}, s:o, s:s, s:s, s:o, s:o}", "capacity", "storage",
                             kube_quantity_format_bytes(size, size_text), "accessModes",
                             strings_to_json(&claim->access_modes), "persistentVolumeReclaimPolicy",
                             reclaim_policy(request), "storageClassName", class_->object.meta.name, "claimRef",
                             build_claim_ref(claim), "csi", build_source(config, request, volume));
    if (class_->mount_options.len > 0)
        json_object_set_new(spec, "mountOptions", strings_to_json(&class_->mount_options));
    set_text(spec, "volumeMode", claim->volume_mode);
    set_text(spec, "volumeAttributesClassName", request->attributes_class);
    if (config->gate_topology && config->capabilities.accessibility_constraints) {
        json_t *affinity = topology_node_affinity(volume->accessible_topology, volume->n_accessible_topology);
        if (affinity != NULL)
            json_object_set_new(spec, "nodeAffinity", affinity);
    }
    *json = json_pack("{s:s, s:s, s:o, s:o}", "apiVersion", "v1", "kind", "PersistentVolume", "metadata",
                      build_metadata(config, request), "spec", spec);
    if (*json == NULL) {
        *verdict = VOLUME_REJECTED;
        return err_set(err, ERR_INTERNAL, "the volume object cannot be written as JSON");
    }
    if (!migrate_is_needed(config, class_) || migrate_volume(config->driver_name, *json, err) == 0)
        return 0;
    json_decref(mem_take(*json));
    *verdict = VOLUME_REJECTED;
    return -1;
}

static const char *claim_uid(const json_t *volume)
{
    const json_t *claim = json_object_get(json_object_get(volume, "spec"), "claimRef");
    return json_string_value(json_object_get(claim, "uid"));
}

static bool is_about(const json_t *existing, const json_t *wanted, const char *driver, const char *handle)
{
    const json_t *csi = json_object_get(json_object_get(existing, "spec"), "csi");
    if (csi != NULL)
        return str_eq(json_string_value(json_object_get(csi, "driver")), driver) &&
               str_eq(json_string_value(json_object_get(csi, "volumeHandle")), handle);
    auto_free char *theirs = migrate_handle(existing, NULL), *ours = migrate_handle(wanted, NULL);
    return theirs != NULL && (str_eq(theirs, ours) || str_eq(theirs, handle));
}

enum volume_likeness volume_compare(const json_t *existing, const json_t *wanted, const char *driver,
                                    const char *handle)
{
    if (!is_about(existing, wanted, driver, handle))
        return VOLUME_OTHER;
    const char *uid = claim_uid(existing);
    return uid != NULL && str_eq(uid, claim_uid(wanted)) ? VOLUME_SAME : VOLUME_OTHER_CLAIM;
}
