/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/kinds.h"

#include "lib/base/mem.h"
#include "tests/devapi/defaults.h"
#include "tests/devapi/validate.h"

#include <string.h>

#define STORAGE "storage.k8s.io"
#define SNAPSHOT "snapshot.storage.k8s.io"
#define RBAC "rbac.authorization.k8s.io"
#define PLAIN_VERSION                                                                                                  \
    {                                                                                                                  \
        {                                                                                                              \
            "v1", 0, 0                                                                                                 \
        }                                                                                                              \
    }
#define NORMAL (KIND_STATUS | KIND_RETURN_DELETED)
#define CUSTOM (KIND_CUSTOM | KIND_GENERATION | KIND_NEEDS_VERSION)

static const struct kind_list pod_lists[] = {
    {"spec.containers", "name"},
    {"spec.containers.env", "name"},
    {"spec.containers.ports", "containerPort"},
    {"spec.containers.volumeMounts", "mountPath"},
    {"spec.containers.volumeDevices", "devicePath"},
    {"spec.initContainers", "name"},
    {"spec.initContainers.env", "name"},
    {"spec.initContainers.volumeMounts", "mountPath"},
    {"spec.volumes", "name"},
    {"spec.imagePullSecrets", "name"},
    {"spec.hostAliases", "ip"},
    {"spec.topologySpreadConstraints", "topologyKey"},
    {"status.conditions", "type"},
    {"status.podIPs", "ip"},
    {NULL, NULL},
};
static const struct kind_list workload_lists[] = {
    {"spec.template.spec.containers", "name"},
    {"spec.template.spec.containers.env", "name"},
    {"spec.template.spec.containers.ports", "containerPort"},
    {"spec.template.spec.containers.volumeMounts", "mountPath"},
    {"spec.template.spec.volumes", "name"},
    {"spec.template.spec.imagePullSecrets", "name"},
    {"status.conditions", "type"},
    {NULL, NULL},
};
static const struct kind_list node_lists[] = {
    {"spec.podCIDRs", ""}, {"status.conditions", "type"}, {"status.addresses", "type"}, {NULL, NULL}};
static const struct kind_list condition_lists[] = {{"status.conditions", "type"}, {NULL, NULL}};
static const struct kind_list driver_lists[] = {{"spec.drivers", "name"}, {NULL, NULL}};
static const struct kind_list account_lists[] = {{"secrets", "name"}, {NULL, NULL}};

static const char *const volume_zero[] = {"spec.storageClassName",
                                          "spec.mountOptions",
                                          "spec.claimRef.kind",
                                          "spec.claimRef.namespace",
                                          "spec.claimRef.name",
                                          "spec.claimRef.uid",
                                          "spec.claimRef.apiVersion",
                                          "spec.nfs.readOnly",
                                          "spec.claimRef.resourceVersion",
                                          "spec.claimRef.fieldPath",
                                          "spec.csi.readOnly",
                                          "spec.csi.fsType",
                                          "spec.csi.volumeAttributes",
                                          "spec.accessModes",
                                          "status.message",
                                          "status.reason",
                                          NULL};
static const char *const claim_zero[] = {"spec.volumeName",       "spec.accessModes",   "spec.resources.requests",
                                         "spec.resources.limits", "status.accessModes", "status.capacity",
                                         "status.conditions",     "status.phase",       NULL};
static const char *const class_zero[] = {"parameters", "mountOptions", "allowedTopologies", NULL};
static const char *const event_zero[] = {"message", "reason",           "type",        "count",
                                         "action",  "source.component", "source.host", NULL};
static const char *const pod_zero[] = {
    "spec.nodeName", "spec.volumes", "spec.hostNetwork", "spec.nodeSelector", "status.message", "status.reason", NULL};
static const char *const data_zero[] = {"data", NULL};

/* clang-format off */
const struct kind kind_table[] = {
    {"", "Namespace", "namespaces", "namespace", "ns", NULL, false, KIND_STATUS, KIND_NAME_LABEL, PLAIN_VERSION,
     {"status.phase"}, condition_lists, NULL, defaults_namespace, NULL, NULL},
    {"", "Node", "nodes", "node", "no", NULL, false, KIND_STATUS | KIND_STATUS_ON_CREATE, 0, PLAIN_VERSION,
     {"spec.unschedulable"}, node_lists, NULL, defaults_node, NULL, NULL},
    {"", "PersistentVolume", "persistentvolumes", "persistentvolume", "pv", NULL, false, NORMAL, 0, PLAIN_VERSION,
     {NULL}, NULL, volume_zero, defaults_volume, validate_volume, validate_volume_update},
    {"", "PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim", "pvc", NULL, true, NORMAL, 0,
     PLAIN_VERSION, {NULL}, condition_lists, claim_zero, defaults_claim, validate_claim, validate_claim_update},
    {"", "Pod", "pods", "pod", "po", "all", true, NORMAL | KIND_BINDING, 0, PLAIN_VERSION,
     {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
      "status.phase", "status.podIP", "status.nominatedNodeName"},
     pod_lists, pod_zero, defaults_pod, validate_pod, validate_pod_update},
    {"", "Event", "events", "event", "ev", NULL, true, KIND_CREATE_ON_UPDATE, KIND_NAME_PATH,
     PLAIN_VERSION,
     {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
      "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
      "reportingComponent", "source=source.component", "type"},
     NULL, event_zero, defaults_event, validate_event, NULL},
    {"", "Secret", "secrets", "secret", "", NULL, true, 0, 0, PLAIN_VERSION,
     {"type"}, NULL, data_zero, defaults_secret, NULL, validate_secret_update},
    {"", "ConfigMap", "configmaps", "configmap", "cm", NULL, true, 0, 0, PLAIN_VERSION,
     {NULL}, NULL, data_zero, NULL, NULL, NULL},
    {"", "ServiceAccount", "serviceaccounts", "serviceaccount", "sa", NULL, true, KIND_RETURN_DELETED, 0, PLAIN_VERSION,
     {NULL}, account_lists, NULL, NULL, NULL, NULL},
    {"", "ResourceQuota", "resourcequotas", "resourcequota", "quota", NULL, true, NORMAL, 0, PLAIN_VERSION,
     {NULL}, NULL, NULL, NULL, NULL, NULL},
    {"", "Service", "services", "service", "svc", "all", true, KIND_STATUS, 0, PLAIN_VERSION,
     {NULL}, condition_lists, NULL, NULL, NULL, NULL},
    {STORAGE, "StorageClass", "storageclasses", "storageclass", "sc", NULL, false, KIND_RETURN_DELETED, 0,
     {{"v1", 0, 0}, {"v1beta1", 0, 21}}, {NULL}, NULL, class_zero, defaults_class, validate_class,
     validate_class_update},
    {STORAGE, "CSINode", "csinodes", "csinode", "", NULL, false, KIND_RETURN_DELETED, 0, PLAIN_VERSION,
     {NULL}, driver_lists, NULL, NULL, NULL, NULL},
    {STORAGE, "CSIDriver", "csidrivers", "csidriver", "", NULL, false, KIND_RETURN_DELETED, 0, PLAIN_VERSION,
     {NULL}, NULL, NULL, defaults_driver, NULL, NULL},
    {STORAGE, "VolumeAttachment", "volumeattachments", "volumeattachment", "", NULL, false, NORMAL, 0, PLAIN_VERSION,
     {NULL}, NULL, NULL, defaults_attachment, validate_attachment, validate_attachment_update},
    {STORAGE, "CSIStorageCapacity", "csistoragecapacities", "csistoragecapacity", "", NULL, true, 0, 0,
     {{"v1", 24, 0}, {"v1beta1", 21, 26}, {"v1alpha1", 20, 20}},
     {NULL}, NULL, NULL, NULL, validate_capacity, validate_capacity_update},
    {STORAGE, "VolumeAttributesClass", "volumeattributesclasses", "volumeattributesclass", "vac", NULL, false,
     KIND_RETURN_DELETED, 0, {{"v1", 34, 0}, {"v1beta1", 31, 0}, {"v1alpha1", 29, 30}},
     {NULL}, NULL, NULL, NULL, validate_attributes_class, validate_attributes_class_update},
    {"coordination.k8s.io", "Lease", "leases", "lease", "", NULL, true, KIND_CREATE_ON_UPDATE | KIND_NEEDS_VERSION, 0,
     PLAIN_VERSION, {NULL}, NULL, NULL, NULL, validate_lease, NULL},
    {SNAPSHOT, "VolumeSnapshot", "volumesnapshots", "volumesnapshot", "vs", NULL, true, CUSTOM | KIND_STATUS, 0,
     PLAIN_VERSION, {NULL}, NULL, NULL, NULL, NULL, NULL},
    {SNAPSHOT, "VolumeSnapshotContent", "volumesnapshotcontents", "volumesnapshotcontent", "vsc,vscs", NULL, false,
     CUSTOM | KIND_STATUS, 0, PLAIN_VERSION, {NULL}, NULL, NULL, NULL, NULL, NULL},
    {SNAPSHOT, "VolumeSnapshotClass", "volumesnapshotclasses", "volumesnapshotclass", "vsclass,vsclasses", NULL, false,
     CUSTOM, 0, PLAIN_VERSION, {NULL}, NULL, NULL, NULL, NULL, NULL},
    {"gateway.networking.k8s.io", "ReferenceGrant", "referencegrants", "referencegrant", "refgrant", NULL, true,
     CUSTOM, 0, {{"v1beta1", 0, 0}}, {NULL}, NULL, NULL, NULL, NULL, NULL},
    {"apps", "Deployment", "deployments", "deployment", "deploy", "all", true, NORMAL | KIND_GENERATION, 0,
     PLAIN_VERSION, {NULL}, workload_lists, NULL, NULL, NULL, NULL},
    {"apps", "ReplicaSet", "replicasets", "replicaset", "rs", "all", true, NORMAL | KIND_GENERATION, 0, PLAIN_VERSION,
     {NULL}, workload_lists, NULL, NULL, NULL, NULL},
    {"apps", "StatefulSet", "statefulsets", "statefulset", "sts", "all", true, NORMAL | KIND_GENERATION, 0,
     PLAIN_VERSION, {NULL}, workload_lists, NULL, NULL, NULL, NULL},
    {"apps", "DaemonSet", "daemonsets", "daemonset", "ds", "all", true, NORMAL | KIND_GENERATION, 0, PLAIN_VERSION,
     {NULL}, workload_lists, NULL, NULL, NULL, NULL},
    {RBAC, "ClusterRole", "clusterroles", "clusterrole", "", NULL, false, 0, KIND_NAME_PATH, PLAIN_VERSION,
     {NULL}, NULL, NULL, NULL, NULL, NULL},
    {RBAC, "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding", "", NULL, false, 0, KIND_NAME_PATH,
     PLAIN_VERSION, {NULL}, NULL, NULL, NULL, NULL, NULL},
    {RBAC, "Role", "roles", "role", "", NULL, true, 0, KIND_NAME_PATH, PLAIN_VERSION,
     {NULL}, NULL, NULL, NULL, NULL, NULL},
    {RBAC, "RoleBinding", "rolebindings", "rolebinding", "", NULL, true, 0, KIND_NAME_PATH, PLAIN_VERSION,
     {NULL}, NULL, NULL, NULL, NULL, NULL},
};
/* clang-format on */
const size_t kind_count = ARRAY_LEN(kind_table);

const char *kind_resource(const struct kind *kind, struct str *buffer)
{
    str_reset(buffer);
    str_addf(buffer, "%s%s%s", kind->plural, *kind->group != '\0' ? "." : "", kind->group);
    return str_text(buffer);
}

const struct kind *kind_by_name(const char *kind_name, const char *group)
{
    for (size_t i = 0; i < kind_count; i++)
        if (strcmp(kind_table[i].kind, kind_name) == 0 && strcmp(kind_table[i].group, group) == 0)
            return &kind_table[i];
    return NULL;
}

bool catalog_serves(const struct catalog *catalog, const struct kind *kind, const struct kind_version *version)
{
    auto_str struct str resource = {0};
    if (version->name == NULL || version->since > catalog->minor ||
        (version->until != 0 && version->until < catalog->minor))
        return false;
    return !strv_contains(&catalog->hidden, kind_resource(kind, &resource)) &&
           (*kind->group == '\0' || !strv_contains(&catalog->hidden, kind->group));
}

const char *catalog_storage_version(const struct catalog *catalog, const struct kind *kind)
{
    for (size_t i = 0; i < KIND_VERSIONS; i++)
        if (catalog_serves(catalog, kind, &kind->versions[i]))
            return kind->versions[i].name;
    return NULL;
}

const struct kind *catalog_find(const struct catalog *catalog, const char *group, const char *version,
                                const char *plural)
{
    for (size_t i = 0; i < kind_count; i++) {
        const struct kind *kind = &kind_table[i];
        if (strcmp(kind->plural, plural) != 0 || strcmp(kind->group, group) != 0)
            continue;
        for (size_t v = 0; v < KIND_VERSIONS; v++)
            if (str_eq(kind->versions[v].name, version) && catalog_serves(catalog, kind, &kind->versions[v]))
                return kind;
    }
    return NULL;
}

char *kind_api_version(const struct kind *kind, const char *version)
{
    return *kind->group != '\0' ? mem_printf("%s/%s", kind->group, version) : mem_strdup(version);
}
