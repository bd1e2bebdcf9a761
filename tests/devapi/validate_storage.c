/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of volumes, claims, classes and the other storage kinds. */
#include "tests/devapi/validate.h"

#include "lib/base/mem.h"
#include "tests/devapi/defaults.h"
#include "tests/devapi/quantity.h"
#include "tests/devapi/tree.h"

#include <string.h>

static const char *const volume_modes[] = {"Block", "Filesystem", NULL};
static const char *const access_modes[] = {"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod", NULL};

/* Volume sources and the members each must have. */
static const struct source {
    const char *name;
    const char *required[3];
} sources[] = {
    {"awsElasticBlockStore", {"volumeID"}},
    {"azureDisk", {"diskName", "diskURI"}},
    {"azureFile", {"secretName", "shareName"}},
    {"cephfs", {"monitors"}},
    {"cinder", {"volumeID"}},
    {"csi", {"driver", "volumeHandle"}},
    {"fc", {NULL}},
    {"flexVolume", {"driver"}},
    {"flocker", {NULL}},
    {"gcePersistentDisk", {"pdName"}},
    {"glusterfs", {"endpoints", "path"}},
    {"hostPath", {"path"}},
    {"iscsi", {"targetPortal", "iqn"}},
    {"local", {"path"}},
    {"nfs", {"server", "path"}},
    {"photonPersistentDisk", {"pdID"}},
    {"portworxVolume", {"volumeID"}},
    {"quobyte", {"registry", "volume"}},
    {"rbd", {"monitors", "image"}},
    {"scaleIO", {"gateway", "system"}},
    {"storageos", {NULL}},
    {"vsphereVolume", {"volumePath"}},
};

static void check_modes(const json_t *object, const struct rules *rules, struct errors *errors)
{
    size_t i;
    json_t *mode;
    const json_t *modes = tree_get(object, "spec.accessModes");
    bool pod = false;
    if (json_array_size(modes) == 0)
        errors_add(errors, ERROR_REQUIRED, "spec.accessModes", NULL, "at least 1 access mode is required");
    json_array_foreach (modes, i, mode) {
        auto_json json_t *one = json_pack("{s:{s:O}}", "spec", "accessModes", mode);
        pod = pod || str_eq(json_string_value(mode), "ReadWriteOncePod");
        if (pod && rules->minor < 22)
            errors_add(errors, ERROR_NOT_SUPPORTED, "spec.accessModes", mode,
                       "supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\"");
        errors_check_enum(errors, one, "spec.accessModes", access_modes);
    }
    if (pod && json_array_size(modes) > 1)
        errors_add(errors, ERROR_FORBIDDEN, "spec.accessModes", NULL,
                   "may not use ReadWriteOncePod with other access modes");
}

static void check_size(const json_t *size, const char *field, struct errors *errors)
{
    struct quantity quantity;
    const char *text = json_string_value(size);
    if (text == NULL || quantity_parse(text, &quantity, NULL) != 0)
        return;
    if (quantity.overflow || quantity.negative)
        errors_add(errors, ERROR_INVALID, field, size, "must be a valid resource quantity");
    if (!quantity.positive)
        errors_add(errors, ERROR_INVALID, field, size, "must be greater than zero");
}

static const struct source *find_source(const json_t *spec, size_t *count)
{
    const struct source *found = NULL;
    *count = 0;
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        if (tree_get(spec, sources[i].name) == NULL)
            continue;
        found = found != NULL ? found : &sources[i];
        ++*count;
    }
    return found;
}

static void check_source(const json_t *object, struct errors *errors)
{
    size_t count;
    const json_t *spec = tree_get(object, "spec");
    const struct source *source = find_source(spec, &count);
    if (source == NULL) {
        errors_add(errors, ERROR_REQUIRED, "spec", NULL, "must specify a volume type");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(source->required) && source->required[i] != NULL; i++) {
        auto_free char *field = mem_printf("spec.%s.%s", source->name, source->required[i]);
        errors_require(errors, object, field);
    }
    if (count > 1)
        errors_add(errors, ERROR_FORBIDDEN, "spec", NULL, "may not specify more than 1 volume type");
    const char *nfs = tree_text(spec, "nfs.path"), *host = tree_text(spec, "hostPath.path");
    if (nfs != NULL && *nfs != '/')
        errors_add(errors, ERROR_INVALID, "spec.nfs.path", tree_get(spec, "nfs.path"), "must be an absolute path");
    if (host != NULL && strstr(host, "..") != NULL)
        errors_add(errors, ERROR_INVALID, "spec.hostPath.path", tree_get(spec, "hostPath.path"),
                   "must not contain '..'");
    if (str_eq(host, "/") && str_eq(tree_text(spec, "persistentVolumeReclaimPolicy"), "Recycle"))
        errors_add(errors, ERROR_FORBIDDEN, "spec.persistentVolumeReclaimPolicy", NULL,
                   "may not be 'recycle' for a hostPath mount of '/'");
    if (strcmp(source->name, "local") == 0)
        errors_require(errors, object, "spec.nodeAffinity");
}

void validate_volume(const json_t *object, const struct rules *rules, struct errors *errors)
{
    static const char *const policies[] = {"Delete", "Recycle", "Retain", NULL};
    check_modes(object, rules, errors);
    const json_t *capacity = tree_get(object, "spec.capacity");
    const json_t *storage = json_object_get(capacity, "storage");
    if (json_object_size(capacity) == 0)
        errors_add(errors, ERROR_REQUIRED, "spec.capacity", NULL, NULL);
    else if (storage == NULL || json_object_size(capacity) > 1)
        errors_add(errors, ERROR_NOT_SUPPORTED, "spec.capacity", capacity, "supported values: \"storage\"");
    check_size(storage, "spec.capacity[storage]", errors);
    check_source(object, errors);
    errors_check_enum(errors, object, "spec.persistentVolumeReclaimPolicy", policies);
    errors_check_enum(errors, object, "spec.volumeMode", volume_modes);
    const char *class = tree_text(object, "spec.storageClassName");
    if (!str_empty(class) && name_problem(KIND_NAME_SUBDOMAIN, class) != NULL)
        errors_add(errors, ERROR_INVALID, "spec.storageClassName", tree_get(object, "spec.storageClassName"),
                   name_problem(KIND_NAME_SUBDOMAIN, class));
}

void validate_volume_update(const json_t *object, const json_t *old, const struct rules *rules, struct errors *errors)
{
    (void)rules;
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        json_t *now = tree_get(tree_get(object, "spec"), sources[i].name);
        json_t *was = tree_get(tree_get(old, "spec"), sources[i].name);
        if (!tree_same(now, was)) {
            errors_add(errors, ERROR_FORBIDDEN, "spec.persistentvolumesource", NULL,
                       "spec.persistentvolumesource is immutable after creation");
            break;
        }
    }
    if (!tree_same(tree_get(object, "spec.volumeMode"), tree_get(old, "spec.volumeMode")))
        errors_add(errors, ERROR_INVALID, "volumeMode", tree_get(object, "spec.volumeMode"), "field is immutable");
    if (tree_get(old, "spec.nodeAffinity") != NULL)
        errors_check_immutable(errors, object, old, "spec.nodeAffinity");
}

static void check_selector(const json_t *selector, struct errors *errors)
{
    static const char *const operators[] = {"In", "NotIn", "Exists", "DoesNotExist", NULL};
    size_t i;
    json_t *term;
    json_array_foreach (tree_get(selector, "matchExpressions"), i, term) {
        const char *op = tree_text(term, "operator");
        size_t values = json_array_size(tree_get(term, "values"));
        bool set = str_eq(op, "In") || str_eq(op, "NotIn");
        bool known = false;
        for (size_t o = 0; operators[o] != NULL; o++)
            known = known || str_eq(op, operators[o]);
        if (!known)
            errors_add(errors, ERROR_INVALID, "spec.selector.matchExpressions.operator", tree_get(term, "operator"),
                       "not a valid selector operator");
        else if (set && values == 0)
            errors_add(errors, ERROR_REQUIRED, "spec.selector.matchExpressions.values", NULL,
                       "must be specified when `operator` is 'In' or 'NotIn'");
        else if (!set && values > 0)
            errors_add(errors, ERROR_FORBIDDEN, "spec.selector.matchExpressions.values", NULL,
                       "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
    }
}

void validate_claim(const json_t *object, const struct rules *rules, struct errors *errors)
{
    check_modes(object, rules, errors);
    check_selector(tree_get(object, "spec.selector"), errors);
    const json_t *storage = tree_get(object, "spec.resources.requests.storage");
    if (storage == NULL)
        errors_add(errors, ERROR_REQUIRED, "spec.resources[storage]", NULL, NULL);
    else
        check_size(storage, "spec.resources[storage]", errors);
    const char *class = tree_text(object, "spec.storageClassName");
    if (!str_empty(class) && name_problem(KIND_NAME_SUBDOMAIN, class) != NULL)
        errors_add(errors, ERROR_INVALID, "spec.storageClassName", tree_get(object, "spec.storageClassName"),
                   name_problem(KIND_NAME_SUBDOMAIN, class));
    errors_check_enum(errors, object, "spec.volumeMode", volume_modes);
    json_t *source = tree_get(object, "spec.dataSource"), *reference = tree_get(object, "spec.dataSourceRef");
    if (source != NULL && reference != NULL && !json_equal(source, reference))
        errors_add(errors, ERROR_INVALID, "spec", NULL, "spec.dataSource and spec.dataSourceRef must match");
}

/* Makes the few changes a claim's spec allows disappear from a copy of the old one, so that the rest must be equal. */
static void allow_claim_changes(json_t *was, const json_t *object, const json_t *old, const struct rules *rules)
{
    const json_t *now = tree_get(object, "spec");
    static const char *const annotation = "volume.beta.kubernetes.io/storage-class";
    bool bound = str_eq(tree_text(old, "status.phase"), "Bound");
    if (!tree_has_text(was, "volumeName") && tree_has_text(now, "volumeName"))
        tree_set(was, "volumeName", json_incref(tree_get(now, "volumeName")));
    const char *beta = json_string_value(json_object_get(tree_get(old, "metadata.annotations"), annotation));
    const char *class = tree_text(now, "storageClassName");
    if (rules->minor >= 25 && class != NULL && tree_get(was, "storageClassName") == NULL &&
        (beta == NULL || strcmp(beta, class) == 0))
        tree_set_text(was, "storageClassName", class);
    if (bound && tree_get(now, "resources.requests.storage") != NULL)
        tree_set(was, "resources.requests.storage", json_incref(tree_get(now, "resources.requests.storage")));
    if (bound && rules->minor >= 31) {
        json_object_del(was, "volumeAttributesClassName");
        if (tree_get(now, "volumeAttributesClassName") != NULL)
            tree_set(was, "volumeAttributesClassName", json_incref(tree_get(now, "volumeAttributesClassName")));
    }
}

void validate_claim_update(const json_t *object, const json_t *old, const struct rules *rules, struct errors *errors)
{
    auto_json json_t *was = json_deep_copy(tree_get(old, "spec"));
    allow_claim_changes(was, object, old, rules);
    if (!tree_same(was, tree_get(object, "spec")))
        errors_add(errors, ERROR_FORBIDDEN, "spec", NULL,
                   "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound "
                   "claims");
}

void validate_class(const json_t *object, const struct rules *rules, struct errors *errors)
{
    static const char *const policies[] = {"Delete", "Retain", NULL};
    static const char *const bindings[] = {"Immediate", "WaitForFirstConsumer", NULL};
    (void)rules;
    errors_require(errors, object, "provisioner");
    errors_check_enum(errors, object, "reclaimPolicy", policies);
    errors_check_enum(errors, object, "volumeBindingMode", bindings);
}

static void forbid_change(const json_t *object, const json_t *old, const char *field, struct errors *errors)
{
    json_t *now = tree_get(object, field), *was = tree_get(old, field);
    if (tree_same(now, was) || (tree_is_zero(now) && tree_is_zero(was)))
        return;
    auto_free char *detail = mem_printf("updates to %s are forbidden.", field);
    errors_add(errors, ERROR_FORBIDDEN, field, NULL, detail);
}

void validate_class_update(const json_t *object, const json_t *old, const struct rules *rules, struct errors *errors)
{
    (void)rules;
    forbid_change(object, old, "parameters", errors);
    forbid_change(object, old, "provisioner", errors);
    forbid_change(object, old, "reclaimPolicy", errors);
    errors_check_immutable(errors, object, old, "volumeBindingMode");
}

void validate_attributes_class(const json_t *object, const struct rules *rules, struct errors *errors)
{
    (void)rules;
    errors_require(errors, object, "driverName");
    if (json_object_size(tree_get(object, "parameters")) == 0)
        errors_add(errors, ERROR_REQUIRED, "parameters", NULL, "must contain at least one key/value pair");
}

void validate_attributes_class_update(const json_t *object, const json_t *old, const struct rules *rules,
                                      struct errors *errors)
{
    (void)rules;
    forbid_change(object, old, "driverName", errors);
    forbid_change(object, old, "parameters", errors);
}

void validate_capacity(const json_t *object, const struct rules *rules, struct errors *errors)
{
    (void)rules;
    errors_require(errors, object, "storageClassName");
}

void validate_capacity_update(const json_t *object, const json_t *old, const struct rules *rules, struct errors *errors)
{
    (void)rules;
    errors_check_immutable(errors, object, old, "nodeTopology");
    errors_check_immutable(errors, object, old, "storageClassName");
}

void validate_attachment(const json_t *object, const struct rules *rules, struct errors *errors)
{
    (void)rules;
    errors_require(errors, object, "spec.attacher");
    errors_require(errors, object, "spec.nodeName");
    if (tree_get(object, "spec.source.persistentVolumeName") == NULL &&
        tree_get(object, "spec.source.inlineVolumeSpec") == NULL)
        errors_add(errors, ERROR_REQUIRED, "spec.source", NULL,
                   "must specify exactly one of inlineVolumeSpec and "
                   "persistentVolumeName");
}

void validate_attachment_update(const json_t *object, const json_t *old, const struct rules *rules,
                                struct errors *errors)
{
    (void)rules;
    errors_check_immutable(errors, object, old, "spec");
}
