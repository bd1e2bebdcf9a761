/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/objects_pack.h"

static const struct kube_data_source *pack_data_source(struct pack *pack, const struct pack_node *spec,
                                                       const char *name)
{
    struct pack_node node = pack_member(pack, spec, name);
    if (!pack_is_object(pack, &node))
        return NULL;
    struct kube_data_source *source = pack_array(pack, 1, sizeof(*source));
    if (source == NULL)
        return NULL;
    source->api_group = pack_text(pack, &node, "apiGroup");
    source->kind = pack_text(pack, &node, "kind");
    source->name = pack_text(pack, &node, "name");
    source->namespace_ = pack_nullable(pack, &node, "namespace");
    return source;
}

static void fill_request(struct pack *pack, const struct pack_node *spec, struct kube_claim *claim)
{
    struct pack_node resources = pack_member(pack, spec, "resources");
    struct pack_node requests = pack_member(pack, &resources, "requests");
    struct pack_node storage = pack_member(pack, &requests, "storage");
    claim->request_text = storage.json != NULL ? pack_quantity_text(pack, &storage) : "0";
    claim->has_request = pack_quantity(pack, &requests, "storage", &claim->request);
    /* asked for something, but nobody can tell what: no volume may pass as large enough */
    if (!claim->has_request && storage.json != NULL)
        claim->request.nano = KUBE_QUANTITY_NANO_MAX;
}

static void claim_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    struct kube_claim *claim = (struct kube_claim *)object;
    struct pack_node spec = pack_member(pack, root, "spec");
    claim->class_name = pack_nullable(pack, &spec, "storageClassName");
    claim->volume_name = pack_text(pack, &spec, "volumeName");
    claim->volume_mode = pack_nullable(pack, &spec, "volumeMode");
    claim->attributes_class = pack_nullable(pack, &spec, "volumeAttributesClassName");
    claim->access_modes = pack_strings(pack, &spec, "accessModes");
    fill_request(pack, &spec, claim);
    struct pack_node selector = pack_member(pack, &spec, "selector");
    claim->has_selector = pack_is_object(pack, &selector);
    claim->selector = pack_label_selector(pack, &selector);
    claim->data_source = pack_data_source(pack, &spec, "dataSource");
    claim->data_source_ref = pack_data_source(pack, &spec, "dataSourceRef");

    struct pack_node status = pack_member(pack, root, "status");
    struct pack_node capacity = pack_member(pack, &status, "capacity");
    claim->phase = pack_text(pack, &status, "phase");
    claim->status_access_modes = pack_strings(pack, &status, "accessModes");
    claim->status_capacity = pack_quantities(pack, &status, "capacity");
    claim->has_status_storage = pack_quantity(pack, &capacity, "storage", &claim->status_storage);
    claim->status_attributes_class = pack_nullable(pack, &status, "currentVolumeAttributesClassName");
}

static struct kube_object *claim_decode(const json_t *json, const struct kube_decode_options *options, struct err *err)
{
    return pack_decode(&kube_kind_claim, sizeof(struct kube_claim), claim_fill, json, options, err);
}
const struct kube_kind kube_kind_claim = {
    .group = "",
    .version = "v1",
    .plural = "persistentvolumeclaims",
    .kind = "PersistentVolumeClaim",
    .singular = "claim",
    .namespaced = true,
    .decode = claim_decode,
};

static void class_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    struct kube_class *class = (struct kube_class *)object;
    class->provisioner = pack_text(pack, root, "provisioner");
    class->reclaim_policy = pack_text(pack, root, "reclaimPolicy");
    class->binding_mode = pack_nullable(pack, root, "volumeBindingMode");
    class->parameters = pack_pairs(pack, root, "parameters");
    class->mount_options = pack_strings(pack, root, "mountOptions");
    struct pack_node list = pack_member(pack, root, "allowedTopologies");
    uint32_t len = pack_list_len(pack, &list);
    struct kube_topology_term *terms = pack_array(pack, len, sizeof(*terms));
    for (uint32_t i = 0; i < len && terms != NULL; i++) {
        struct pack_node term = pack_element(&list, i);
        struct pack_node expressions = pack_member(pack, &term, "matchLabelExpressions");
        uint32_t count = pack_list_len(pack, &expressions);
        struct kube_topology_requirement *items = pack_array(pack, count, sizeof(*items));
        for (uint32_t j = 0; j < count && items != NULL; j++) {
            struct pack_node expression = pack_element(&expressions, j);
            items[j].key = pack_text(pack, &expression, "key");
            items[j].values = pack_strings(pack, &expression, "values");
        }
        terms[i] = (struct kube_topology_term){.items = items, .len = items != NULL ? count : 0};
    }
    class->allowed_topologies = terms;
    class->allowed_topology_count = terms != NULL ? len : 0;
}

static struct kube_object *class_decode(const json_t *json, const struct kube_decode_options *options, struct err *err)
{
    return pack_decode(&kube_kind_class, sizeof(struct kube_class), class_fill, json, options, err);
}
const struct kube_kind kube_kind_class = {
    .group = "storage.k8s.io",
    .version = "v1",
    .plural = "storageclasses",
    .kind = "StorageClass",
    .singular = "storage class",
    .decode = class_decode,
};

static void attributes_class_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    struct kube_attributes_class *class = (struct kube_attributes_class *)object;
    class->driver_name = pack_text(pack, root, "driverName");
    class->parameters = pack_pairs(pack, root, "parameters");
}

static struct kube_object *attributes_class_decode(const json_t *json, const struct kube_decode_options *options,
                                                   struct err *err)
{
    return pack_decode(&kube_kind_attributes_class, sizeof(struct kube_attributes_class), attributes_class_fill, json,
                       options, err);
}
const struct kube_kind kube_kind_attributes_class = {
    .group = "storage.k8s.io",
    .version = "v1",
    .plural = "volumeattributesclasses",
    .kind = "VolumeAttributesClass",
    .singular = "volume attributes class",
    .decode = attributes_class_decode,
};

static struct kube_object *attributes_class_v1beta1_decode(const json_t *json,
                                                           const struct kube_decode_options *options, struct err *err)
{
    return pack_decode(&kube_kind_attributes_class_v1beta1, sizeof(struct kube_attributes_class), attributes_class_fill,
                       json, options, err);
}
const struct kube_kind kube_kind_attributes_class_v1beta1 = {
    .group = "storage.k8s.io",
    .version = "v1beta1",
    .plural = "volumeattributesclasses",
    .kind = "VolumeAttributesClass",
    .singular = "volume attributes class",
    .decode = attributes_class_v1beta1_decode,
};
