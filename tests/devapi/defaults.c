/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/defaults.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "tests/devapi/tree.h"

#include <string.h>

/* A default that is plain text at a path below an object that must be there. */
struct text_default {
    const char *parent; /* "" = the object itself */
    const char *path;
    const char *value;
};

static void set_text_defaults(json_t *object, const struct text_default *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        json_t *parent = *table[i].parent != '\0' ? tree_get(object, table[i].parent) : object;
        if (json_is_object(parent))
            tree_default(parent, table[i].path, json_string(table[i].value));
    }
}

void defaults_namespace(json_t *object, const struct rules *rules, bool create)
{
    if (rules->minor >= 21)
        tree_default(object, "metadata.labels", json_object());
    if (rules->minor >= 21)
        json_object_set_new(tree_get(object, "metadata.labels"), "kubernetes.io/metadata.name",
                            json_string(tree_text(object, "metadata.name")));
    if (create) {
        tree_default(object, "spec.finalizers", json_pack("[s]", "kubernetes"));
        tree_set(object, "status", json_pack("{s:s}", "phase", "Active"));
    }
}

static const struct text_default volume_texts[] = {
    {"spec", "persistentVolumeReclaimPolicy", "Retain"},
    {"spec", "volumeMode", "Filesystem"},
    {"spec.hostPath", "type", ""},
    {"spec.iscsi", "iscsiInterface", "default"},
    {"spec.rbd", "pool", "rbd"},
    {"spec.rbd", "user", "admin"},
    {"spec.rbd", "keyring", "/etc/ceph/keyring"},
    {"spec.scaleIO", "storageMode", "ThinProvisioned"},
    {"spec.scaleIO", "fsType", "xfs"},
    {"spec.azureDisk", "cachingMode", "ReadWrite"},
    {"spec.azureDisk", "fsType", "ext4"},
    {"spec.azureDisk", "kind", "Shared"},
};

static void add_finalizer(json_t *object, const char *finalizer)
{
    tree_default(object, "metadata.finalizers", json_array());
    json_t *list = tree_get(object, "metadata.finalizers"), *item;
    size_t i;
    json_array_foreach (list, i, item) {
        if (str_eq(json_string_value(item), finalizer))
            return;
    }
    json_array_append_new(list, json_string(finalizer));
}

void defaults_volume(json_t *object, const struct rules *rules, bool create)
{
    set_text_defaults(object, volume_texts, ARRAY_LEN(volume_texts));
    json_t *azure = tree_get(object, "spec.azureDisk");
    if (azure != NULL)
        tree_default(azure, "readOnly", json_false());
    if (create) {
        tree_set(object, "status", json_pack("{s:s}", "phase", "Pending"));
        if (rules->minor >= 29)
            tree_set(object, "status.lastPhaseTransitionTime",
                     json_incref(tree_get(object, "metadata.creationTimestamp")));
        if (rules->protection)
            add_finalizer(object, "kubernetes.io/pv-protection");
    }
}

/* dataSource and dataSourceRef say the same since 1.24: what is missing is copied from the other. */
static void default_data_source(json_t *spec, const struct rules *rules)
{
    json_t *source = tree_get(spec, "dataSource"), *reference = tree_get(spec, "dataSourceRef");
    if (source != NULL) {
        const char *kind = tree_text(source, "kind"), *group = tree_text(source, "apiGroup");
        bool claim = str_eq(kind, "PersistentVolumeClaim") && str_empty(group);
        bool known = claim || (str_eq(kind, "VolumeSnapshot") && str_eq(group, "snapshot.storage.k8s.io"));
        if (!known && reference == NULL) { /* the server drops what it cannot serve */
            json_object_del(spec, "dataSource");
            return;
        }
        if (group == NULL)
            json_object_set_new(source, "apiGroup", json_null());
    }
    if (rules->minor < 24) {
        json_object_del(spec, "dataSourceRef");
        return;
    }
    if (reference != NULL && tree_get(reference, "apiGroup") == NULL)
        json_object_set_new(reference, "apiGroup", json_null());
    if (source != NULL && reference == NULL)
        json_object_set_new(spec, "dataSourceRef", json_deep_copy(source));
    else if (reference != NULL && source == NULL && !tree_has_text(reference, "namespace"))
        json_object_set_new(spec, "dataSource", json_deep_copy(reference));
}

/* Times without omitempty are sent as null. */
static void null_times(json_t *conditions, bool probe)
{
    size_t i;
    json_t *condition;
    json_array_foreach (conditions, i, condition) {
        if (!json_is_object(condition))
            continue;
        if (probe && json_object_get(condition, "lastProbeTime") == NULL)
            json_object_set_new(condition, "lastProbeTime", json_null());
        if (json_object_get(condition, "lastTransitionTime") == NULL)
            json_object_set_new(condition, "lastTransitionTime", json_null());
    }
}

void defaults_claim(json_t *object, const struct rules *rules, bool create)
{
    json_t *spec = tree_get(object, "spec");
    if (json_is_object(spec)) {
        tree_default(spec, "volumeMode", json_string("Filesystem"));
        tree_default(spec, "resources", json_object());
        default_data_source(spec, rules);
        if (rules->minor < 29)
            json_object_del(spec, "volumeAttributesClassName");
    }
    if (create) {
        tree_set(object, "status", json_pack("{s:s}", "phase", "Pending"));
        if (rules->protection)
            add_finalizer(object, "kubernetes.io/pvc-protection");
    }
    null_times(tree_get(object, "status.conditions"), true);
}

static void default_ports(json_t *container)
{
    size_t i;
    json_t *port;
    json_array_foreach (tree_get(container, "ports"), i, port) {
        if (json_is_object(port))
            tree_default(port, "protocol", json_string("TCP"));
    }
}

static void default_containers(json_t *list)
{
    size_t i;
    json_t *container;
    json_array_foreach (list, i, container) {
        if (!json_is_object(container))
            continue;
        const char *image = tree_text(container, "image");
        const char *slash = image != NULL ? strrchr(image, '/') : NULL;
        const char *tag = image != NULL ? strrchr(slash != NULL ? slash : image, ':') : NULL;
        bool latest = tag == NULL ? image == NULL || strchr(image, '@') == NULL : strcmp(tag, ":latest") == 0;
        tree_default(container, "imagePullPolicy", json_string(latest ? "Always" : "IfNotPresent"));
        tree_default(container, "terminationMessagePath", json_string("/dev/termination-log"));
        tree_default(container, "terminationMessagePolicy", json_string("File"));
        tree_default(container, "resources", json_object());
        default_ports(container);
    }
}

static void default_pod_volumes(json_t *list, const struct rules *rules)
{
    size_t i;
    json_t *volume;
    static const char *const modes[] = {"secret", "configMap", "downwardAPI", "projected"};
    json_array_foreach (list, i, volume) {
        if (!json_is_object(volume))
            continue;
        if (json_object_size(volume) == 1)
            tree_set(volume, "emptyDir", json_object());
        for (size_t m = 0; m < ARRAY_LEN(modes); m++)
            if (json_is_object(tree_get(volume, modes[m])))
                tree_default(tree_get(volume, modes[m]), "defaultMode", json_integer(0644));
        if (json_is_object(tree_get(volume, "hostPath")))
            tree_default(volume, "hostPath.type", json_string(""));
        json_t *template = tree_get(volume, "ephemeral.volumeClaimTemplate");
        if (template != NULL && rules->minor < 34) {
            tree_default(template, "metadata", json_object());
            json_object_set_new(tree_get(template, "metadata"), "creationTimestamp", json_null());
        }
        if (json_is_object(tree_get(template, "spec")))
            tree_default(template, "spec.volumeMode", json_string("Filesystem"));
    }
}

/* Guaranteed: limits for cpu and memory everywhere and requests equal; BestEffort: nothing at all. */
static const char *quality_of_service(const json_t *spec)
{
    size_t i;
    json_t *container;
    bool any = false, all = true;
    json_array_foreach (tree_get(spec, "containers"), i, container) {
        const json_t *limits = tree_get(container, "resources.limits");
        const json_t *requests = tree_get(container, "resources.requests");
        any = any || json_object_size(limits) > 0 || json_object_size(requests) > 0;
        all = all && tree_get(limits, "cpu") != NULL && tree_get(limits, "memory") != NULL &&
              (requests == NULL || json_equal(limits, requests));
    }
    return !any ? "BestEffort" : all ? "Guaranteed" : "Burstable";
}

static const struct text_default pod_texts[] = {
    {"", "restartPolicy", "Always"},
    {"", "dnsPolicy", "ClusterFirst"},
    {"", "schedulerName", "default-scheduler"},
};

void defaults_pod(json_t *object, const struct rules *rules, bool create)
{
    json_t *spec = tree_get(object, "spec");
    if (json_is_object(spec)) {
        set_text_defaults(spec, pod_texts, ARRAY_LEN(pod_texts));
        tree_default(spec, "terminationGracePeriodSeconds", json_integer(30));
        tree_default(spec, "enableServiceLinks", json_true());
        tree_default(spec, "securityContext", json_object());
        if (tree_has_text(spec, "serviceAccountName")) /* the old name of the field is kept in step */
            tree_set(spec, "serviceAccount", json_incref(tree_get(spec, "serviceAccountName")));
        default_containers(tree_get(spec, "containers"));
        default_containers(tree_get(spec, "initContainers"));
        default_pod_volumes(tree_get(spec, "volumes"), rules);
    }
    if (create)
        tree_set(object, "status", json_pack("{s:s, s:s}", "phase", "Pending", "qosClass", quality_of_service(spec)));
    null_times(tree_get(object, "status.conditions"), true);
}

void defaults_event(json_t *object, const struct rules *rules, bool create)
{
    (void)rules;
    (void)create;
    static const char *const times[] = {"firstTimestamp", "lastTimestamp", "eventTime"};
    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        if (json_object_get(object, times[i]) == NULL)
            json_object_set_new(object, times[i], json_null());
    tree_default(object, "source", json_object());
    tree_default(object, "reportingComponent", json_string(""));
    tree_default(object, "reportingInstance", json_string(""));
}

void defaults_secret(json_t *object, const struct rules *rules, bool create)
{
    (void)rules;
    (void)create;
    tree_default(object, "type", json_string("Opaque"));
    json_t *plain = tree_get(object, "stringData"), *value;
    const char *key;
    if (!json_is_object(plain))
        return;
    tree_default(object, "data", json_object());
    json_object_foreach (plain, key, value) {
        const char *text = json_is_string(value) ? json_string_value(value) : "";
        auto_free char *encoded = str_base64_encode(text, strlen(text));
        json_object_set_new(tree_get(object, "data"), key, json_string(encoded));
    }
    json_object_del(object, "stringData");
}

void defaults_class(json_t *object, const struct rules *rules, bool create)
{
    (void)rules;
    (void)create;
    tree_default(object, "reclaimPolicy", json_string("Delete"));
    tree_default(object, "volumeBindingMode", json_string("Immediate"));
}

void defaults_driver(json_t *object, const struct rules *rules, bool create)
{
    (void)create;
    tree_default(object, "spec.attachRequired", json_true());
    tree_default(object, "spec.podInfoOnMount", json_false());
    tree_default(object, "spec.volumeLifecycleModes", json_pack("[s]", "Persistent"));
    if (rules->minor >= 21) {
        tree_default(object, "spec.storageCapacity", json_false());
        tree_default(object, "spec.requiresRepublish", json_false());
    }
    if (rules->minor >= 20)
        tree_default(object, "spec.fsGroupPolicy", json_string("ReadWriteOnceWithFSType"));
    if (rules->minor >= 27)
        tree_default(object, "spec.seLinuxMount", json_false());
}

void defaults_attachment(json_t *object, const struct rules *rules, bool create)
{
    (void)rules;
    if (create)
        tree_set(object, "status", json_pack("{s:b}", "attached", 0));
}

void defaults_node(json_t *object, const struct rules *rules, bool create)
{
    (void)rules;
    (void)create;
    tree_default(object, "spec", json_object());
    tree_default(object, "status", json_object());
    null_times(tree_get(object, "status.conditions"), false);
}
