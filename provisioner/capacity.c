/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/capacity.h"

#include "lib/base/mem.h"

#include <stdio.h>

#define MANAGER "external-provisioner"
#define LABEL_MAX 63 /* of a label value, as the API server checks it */
#define HASH_AND_DASHES 10

char *capacity_managed_by(const struct provision_config *config)
{
    if (!config->node_deployment)
        return mem_strdup(MANAGER);
    auto_free char *full = mem_printf(MANAGER "-%s", config->node_name);
    if (strlen(full) <= LABEL_MAX)
        return mem_take(full);
    /* a node's name that leaves room for part of the base keeps its place at the end; else only the hash tells nodes
     * apart */
    int room = LABEL_MAX - HASH_AND_DASHES - (int)strlen(config->node_name);
    if (room > 0)
        return mem_printf("%.*s-%08x-%s", room, MANAGER, str_fnv1a(MANAGER), config->node_name);
    return mem_printf(MANAGER "-%08x", str_fnv1a(full));
}

bool capacity_class_is_eligible(const struct provision_config *config, const struct kube_class *class_,
                                bool immediate_too)
{
    if (!str_eq(class_->provisioner,
                config->driver_name)) /* not migrated classes either: the scheduler asks for none */
        return false;
    return immediate_too || class_->binding_mode == NULL || !str_eq(class_->binding_mode, "Immediate");
}

json_t *capacity_build(const struct provision_config *config, const char *namespace_, const char *class_name,
                       const json_t *segment, int64_t capacity, int64_t maximum, const struct kube_owner *owner,
                       const char *api_version)
{
    char text[KUBE_QUANTITY_TEXT_SIZE];
    auto_free char *manager = capacity_managed_by(config);
    json_t *metadata =
        json_pack("{s:s, s:s, s:{s:s, s:s}}", "generateName", "csisc-", "namespace", namespace_, "labels",
                  "csi.storage.k8s.io/drivername", config->driver_name, "csi.storage.k8s.io/managed-by", manager);
    if (owner != NULL)
        json_object_set_new(metadata, "ownerReferences",
                            json_pack("[{s:s, s:s, s:s, s:s, s:b}]", "apiVersion", owner->api_version, "kind",
                                      owner->kind, "name", owner->name, "uid", owner->uid, "controller", 1));
    json_t *object =
        json_pack("{s:s, s:s, s:o, s:s, s:{s:O}, s:s}", "apiVersion", api_version, "kind", "CSIStorageCapacity",
                  "metadata", metadata, "storageClassName", class_name, "nodeTopology", "matchLabels", segment,
                  "capacity", kube_quantity_format_bytes(capacity, text));
    if (maximum >= 0)
        json_object_set_new(object, "maximumVolumeSize", json_string(kube_quantity_format_bytes(maximum, text)));
    return object;
}

void capacity_update_fields(json_t *live, const json_t *wanted)
{
    static const char *const fields[] = {"capacity", "maximumVolumeSize"};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        json_t *value = json_object_get(wanted, fields[i]);
        if (value != NULL)
            json_object_set(live, fields[i], value);
        else
            json_object_del(live, fields[i]);
    }
    json_t *owners = json_object_get(json_object_get(wanted, "metadata"), "ownerReferences");
    if (owners != NULL)
        json_object_set(json_object_get(live, "metadata"), "ownerReferences", owners);
    else
        json_object_del(json_object_get(live, "metadata"), "ownerReferences");
}
