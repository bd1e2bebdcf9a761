/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/patch.h"

#include "controller/predicate.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <inttypes.h>
#include <stdio.h>

static json_t *text_or_null(const char *text)
{
    return text == NULL ? json_null() : json_string(text);
}

static char *version_text(const struct kube_object *object, char buffer[24])
{
    snprintf(buffer, 24, "%" PRIu64, object->meta.resource_version);
    return buffer;
}

/* {"metadata": {"resourceVersion": …}} */
static json_t *patch_new(const struct kube_object *object)
{
    char version[24];
    return json_pack("{s:{s:s}}", "metadata", "resourceVersion", version_text(object, version));
}

static json_t *patch_annotations(json_t *patch)
{
    json_t *metadata = json_object_get(patch, "metadata");
    json_t *annotations = json_object_get(metadata, "annotations");
    if (annotations == NULL) {
        annotations = json_object();
        json_object_set_new(metadata, "annotations", annotations);
    }
    return annotations;
}

static void set_annotation(json_t *patch, const char *key, const char *value)
{
    json_object_set_new(patch_annotations(patch), key, text_or_null(value));
}

static json_t *strings_json(const struct kube_strings *strings)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < strings->len; i++)
        json_array_append_new(array, json_string(strings->items[i]));
    return array;
}

/* NULL when nothing was added to what patch_new made. */
static json_t *patch_or_nothing(json_t *patch, bool changed)
{
    if (changed)
        return patch;
    json_decref(patch);
    return NULL;
}

/* ---- volumes ---- */
json_t *patch_volume_bind(const struct kube_volume *volume, const struct kube_claim *claim)
{
    json_t *patch = patch_new(&volume->object);
    const struct kube_meta *meta = &claim->object.meta;
    const struct kube_reference *ref = volume->claim_ref;
    bool foreign = !volume_refers_to(volume, claim), changed = false;
    if (ref == NULL || !str_eq(ref->name, meta->name) || !str_eq(ref->namespace_, meta->namespace_) ||
        !str_eq(ref->uid, meta->uid)) {
        char version[24];
        json_t *claim_ref = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "kind", "PersistentVolumeClaim", "apiVersion", "v1",
                                      "namespace", meta->namespace_, "name", meta->name, "uid", meta->uid,
                                      "resourceVersion", version_text(&claim->object, version));
        if (ref != NULL && *ref->field_path != '\0')
            json_object_set_new(claim_ref, "fieldPath", json_null());
        json_object_set_new(patch, "spec", json_pack("{s:o}", "claimRef", claim_ref));
        changed = true;
    }
    if (foreign && !object_has_annotation(&volume->object, KUBE_ANN_BOUND_BY_CONTROLLER)) {
        set_annotation(patch, KUBE_ANN_BOUND_BY_CONTROLLER, "yes");
        changed = true;
    }
    return patch_or_nothing(patch, changed);
}

json_t *patch_volume_phase(const struct kube_volume *volume, const char *phase, const char *message)
{
    if (str_eq(volume->phase, phase))
        return NULL;
    json_t *patch = patch_new(&volume->object);
    json_object_set_new(
        patch, "status",
        json_pack("{s:s,s:o}", "phase", phase, "message", text_or_null(str_empty(message) ? NULL : message)));
    return patch;
}

json_t *patch_volume_unbind(const struct kube_volume *volume)
{
    json_t *patch = patch_new(&volume->object);
    if (object_has_annotation(&volume->object, KUBE_ANN_BOUND_BY_CONTROLLER)) {
        set_annotation(patch, KUBE_ANN_BOUND_BY_CONTROLLER, NULL);
        json_object_set_new(patch, "spec", json_pack("{s:n}", "claimRef"));
    } else {
        json_object_set_new(patch, "spec", json_pack("{s:{s:n}}", "claimRef", "uid"));
    }
    return patch;
}

json_t *patch_volume_anneal(const struct kube_volume *volume, bool set_migrated, const char *migrated_to,
                            const struct strv *finalizers)
{
    json_t *patch = patch_new(&volume->object);
    if (set_migrated)
        set_annotation(patch, KUBE_ANN_MIGRATED_TO, migrated_to);
    if (finalizers != NULL) {
        json_t *array = json_array();
        for (size_t i = 0; i < finalizers->len; i++)
            json_array_append_new(array, json_string(finalizers->items[i]));
        json_object_set_new(json_object_get(patch, "metadata"), "finalizers", array);
    }
    return patch;
}

/* ---- claims ---- */
json_t *patch_claim_bind(const struct kube_claim *claim, const struct kube_volume *volume)
{
    json_t *patch = patch_new(&claim->object);
    bool changed = false;
    if (!str_eq(claim->volume_name, volume->object.meta.name)) {
        json_object_set_new(patch, "spec", json_pack("{s:s}", "volumeName", volume->object.meta.name));
        if (!object_has_annotation(&claim->object, KUBE_ANN_BOUND_BY_CONTROLLER))
            set_annotation(patch, KUBE_ANN_BOUND_BY_CONTROLLER, "yes");
        changed = true;
    }
    if (!object_has_annotation(&claim->object, KUBE_ANN_BIND_COMPLETED)) {
        set_annotation(patch, KUBE_ANN_BIND_COMPLETED, "yes");
        changed = true;
    }
    return patch_or_nothing(patch, changed);
}

/* The map of the patch makes status.capacity exactly `to`: what is there and not in `to` becomes null. */
static json_t *capacity_json(const struct kube_pairs *now, const struct kube_pairs *to)
{
    json_t *capacity = json_object();
    for (uint32_t i = 0; i < now->len; i++)
        json_object_set_new(capacity, now->items[i].key, json_null());
    for (uint32_t i = 0; i < to->len; i++)
        json_object_set_new(capacity, to->items[i].key, json_string(to->items[i].value));
    return capacity;
}

static int add_capacity(const struct controller_profile *profile, const struct kube_claim *claim,
                        const struct kube_volume *volume, json_t *status, struct err *err)
{
    if (!volume->has_storage)
        return err_set(err, ERR_INVALID, "PersistentVolume \"%s\" is without a storage capacity",
                       volume->object.meta.name);
    const char *before =
        profile->pre_resize_capacity ? kube_annotation(&volume->object, KUBE_ANN_PRE_RESIZE_CAPACITY) : NULL;
    struct kube_quantity quantity;
    auto_err struct err ignored = {0}; /* an unreadable annotation: the volume's capacity counts */
    if (before != NULL) {              /* other resources in the status stay */
        bool readable = kube_quantity_parse(before, &quantity, &ignored) == 0;
        const char *storage = readable ? before : kube_pairs_get(&volume->capacity, "storage");
        json_object_set_new(status, "capacity", json_pack("{s:s}", "storage", storage));
    } else if (!claim->has_status_storage || kube_quantity_compare(&claim->status_storage, &volume->storage) != 0) {
        json_object_set_new(status, "capacity", capacity_json(&claim->status_capacity, &volume->capacity));
    }
    return 0;
}

static int add_volume_status(const struct controller_profile *profile, const struct kube_claim *claim,
                             const char *phase, const struct kube_volume *volume, json_t *status, struct err *err)
{
    if (!kube_strings_equal(&claim->status_access_modes, &volume->access_modes))
        json_object_set_new(status, "accessModes", strings_json(&volume->access_modes));
    if (str_eq(claim->phase, phase))
        return 0; /* a bound claim's smaller capacity means: the file system was not resized yet */
    if (add_capacity(profile, claim, volume, status, err) != 0)
        return -1;
    if (str_eq(claim->phase, PHASE_PENDING) && str_eq(phase, PHASE_BOUND) &&
        !str_eq(claim->status_attributes_class, volume->attributes_class))
        json_object_set_new(status, "currentVolumeAttributesClassName", text_or_null(volume->attributes_class));
    return 0;
}

static void drop_volume_status(const struct kube_claim *claim, json_t *status)
{
    if (claim->status_access_modes.len > 0)
        json_object_set_new(status, "accessModes", json_null());
    if (claim->status_capacity.len > 0)
        json_object_set_new(status, "capacity", json_null());
    if (claim->status_attributes_class != NULL)
        json_object_set_new(status, "currentVolumeAttributesClassName", json_null());
}

int patch_claim_status(const struct controller_profile *profile, const struct kube_claim *claim, const char *phase,
                       const struct kube_volume *volume, json_t **patch, struct err *err)
{
    *patch = NULL;
    auto_json json_t *status = json_object();
    if (!str_eq(claim->phase, phase))
        json_object_set_new(status, "phase", json_string(phase));
    if (volume == NULL)
        drop_volume_status(claim, status);
    else if (add_volume_status(profile, claim, phase, volume, status, err) != 0)
        return -1;
    if (json_object_size(status) > 0) {
        *patch = patch_new(&claim->object);
        json_object_set(*patch, "status", status);
    }
    return 0;
}

json_t *patch_claim_class(const struct kube_claim *claim, const char *class_name)
{
    json_t *patch = patch_new(&claim->object);
    json_object_set_new(patch, "spec", json_pack("{s:s}", "storageClassName", class_name));
    return patch;
}

json_t *patch_claim_migrated(const struct kube_claim *claim, const char *migrated_to)
{
    json_t *patch = patch_new(&claim->object);
    set_annotation(patch, KUBE_ANN_MIGRATED_TO, migrated_to);
    return patch;
}

json_t *patch_claim_provisioner(const struct controller_profile *profile, const struct kube_claim *claim,
                                const char *provisioner)
{
    const char *key =
        profile->stable_provisioner_annotation ? KUBE_ANN_STORAGE_PROVISIONER : KUBE_ANN_BETA_STORAGE_PROVISIONER;
    if (str_eq(kube_annotation(&claim->object, key), provisioner))
        return NULL;
    json_t *patch = patch_new(&claim->object);
    set_annotation(patch, KUBE_ANN_BETA_STORAGE_PROVISIONER, provisioner);
    if (profile->stable_provisioner_annotation)
        set_annotation(patch, KUBE_ANN_STORAGE_PROVISIONER, provisioner);
    const char *migrated_to = profile_migrated_driver(profile, provisioner);
    const char *now = kube_annotation(&claim->object, KUBE_ANN_MIGRATED_TO);
    if (migrated_to == NULL ? !str_empty(now) : !str_eq(now, migrated_to))
        set_annotation(patch, KUBE_ANN_MIGRATED_TO, migrated_to);
    return patch;
}

json_t *patch_claim_unselect_node(const struct kube_claim *claim)
{
    if (!object_has_annotation(&claim->object, KUBE_ANN_SELECTED_NODE))
        return NULL;
    json_t *patch = patch_new(&claim->object);
    set_annotation(patch, KUBE_ANN_SELECTED_NODE, NULL);
    return patch;
}
