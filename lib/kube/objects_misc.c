/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds that are read beside volumes and claims: pods, nodes, drivers, leases, events, secrets, capacities. */
#include "lib/base/mem.h"
#include "lib/kube/objects_pack.h"

static bool any_running(struct pack *pack, const struct pack_node *status, const char *name)
{
    struct pack_node list = pack_member(pack, status, name);
    uint32_t len = pack_list_len(pack, &list);
    bool running = false;
    for (uint32_t i = 0; i < len; i++) {
        struct pack_node element = pack_element(&list, i);
        struct pack_node state = pack_member(pack, &element, "state");
        running = pack_member(pack, &state, "running").json != NULL || running;
    }
    return running;
}

/* Claims that volumes name first, then those made for ephemeral volumes. */
static void fill_claims(struct pack *pack, const struct pack_node *spec, struct kube_pod *pod)
{
    struct pack_node list = pack_member(pack, spec, "volumes");
    uint32_t len = pack_list_len(pack, &list);
    uint32_t named = 0;
    uint32_t ephemeral = 0;
    for (uint32_t i = 0; i < len; i++) {
        struct pack_node element = pack_element(&list, i);
        named += pack_member(pack, &element, "persistentVolumeClaim").json != NULL ? 1 : 0;
        ephemeral += pack_member(pack, &element, "ephemeral").json != NULL ? 1 : 0;
    }
    const char **names = pack_array(pack, (size_t)named + ephemeral, sizeof(*names));
    if (names == NULL)
        return;
    uint32_t next_named = 0;
    uint32_t next_ephemeral = named;
    for (uint32_t i = 0; i < len; i++) {
        struct pack_node element = pack_element(&list, i);
        struct pack_node claim = pack_member(pack, &element, "persistentVolumeClaim");
        if (claim.json != NULL)
            names[next_named++] = pack_text(pack, &claim, "claimName");
        if (pack_member(pack, &element, "ephemeral").json == NULL)
            continue;
        struct pack_node name = pack_member(pack, &element, "name");
        if (name.json != NULL && !json_is_string(name.json))
            pack_fail(pack, &name, "must be a string");
        const char *text = json_string_value(name.json);
        names[next_ephemeral++] = pack_join(pack, pod->object.meta.name, '-', text != NULL ? text : "");
    }
    pod->claims = (struct kube_strings){.items = names, .len = named + ephemeral};
    pod->ephemeral_claims = ephemeral;
}

static void pod_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    static const char *const lists[] = {"containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"};
    struct kube_pod *pod = (struct kube_pod *)object;
    struct pack_node spec = pack_member(pack, root, "spec");
    struct pack_node status = pack_member(pack, root, "status");
    pod->node_name = pack_text(pack, &spec, "nodeName");
    pod->phase = pack_text(pack, &status, "phase");
    pod->message = pack_text(pack, &status, "message");
    fill_claims(pack, &spec, pod);
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        pod->running_container = any_running(pack, &status, lists[i]) || pod->running_container;
}

static struct kube_object *pod_decode(const json_t *json, const struct kube_decode_options *options, struct err *err)
{
    return pack_decode(&kube_kind_pod, sizeof(struct kube_pod), pod_fill, json, options, err);
}
const struct kube_kind kube_kind_pod = {
    .group = "",
    .version = "v1",
    .plural = "pods",
    .kind = "Pod",
    .singular = "pod",
    .namespaced = true,
    .decode = pod_decode,
};

/* For kinds of which only the metadata is read. */
static void nothing_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    (void)pack;
    (void)root;
    (void)object;
}

static struct kube_object *node_decode(const json_t *json, const struct kube_decode_options *options, struct err *err)
{
    return pack_decode(&kube_kind_node, sizeof(struct kube_node), nothing_fill, json, options, err);
}
const struct kube_kind kube_kind_node = {
    .group = "",
    .version = "v1",
    .plural = "nodes",
    .kind = "Node",
    .singular = "node",
    .decode = node_decode,
};

static struct kube_object *namespace_decode(const json_t *json, const struct kube_decode_options *options,
                                            struct err *err)
{
    return pack_decode(&kube_kind_namespace, sizeof(struct kube_object), nothing_fill, json, options, err);
}
const struct kube_kind kube_kind_namespace = {
    .group = "",
    .version = "v1",
    .plural = "namespaces",
    .kind = "Namespace",
    .singular = "namespace",
    .decode = namespace_decode,
};

static struct kube_object *replica_set_decode(const json_t *json, const struct kube_decode_options *options,
                                              struct err *err)
{
    return pack_decode(&kube_kind_replica_set, sizeof(struct kube_object), nothing_fill, json, options, err);
}
const struct kube_kind kube_kind_replica_set = {
    .group = "apps",
    .version = "v1",
    .plural = "replicasets",
    .kind = "ReplicaSet",
    .singular = "replica set",
    .namespaced = true,
    .decode = replica_set_decode,
};

static struct kube_object *csi_driver_decode(const json_t *json, const struct kube_decode_options *options,
                                             struct err *err)
{
    return pack_decode(&kube_kind_csi_driver, sizeof(struct kube_csi_driver), nothing_fill, json, options, err);
}
const struct kube_kind kube_kind_csi_driver = {
    .group = "storage.k8s.io",
    .version = "v1",
    .plural = "csidrivers",
    .kind = "CSIDriver",
    .singular = "CSI driver",
    .decode = csi_driver_decode,
};

static void csi_node_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    struct kube_csi_node *node = (struct kube_csi_node *)object;
    struct pack_node spec = pack_member(pack, root, "spec");
    struct pack_node list = pack_member(pack, &spec, "drivers");
    uint32_t len = pack_list_len(pack, &list);
    struct kube_csi_node_driver *drivers = pack_array(pack, len, sizeof(*drivers));
    for (uint32_t i = 0; i < len && drivers != NULL; i++) {
        struct pack_node element = pack_element(&list, i);
        drivers[i].name = pack_text(pack, &element, "name");
        drivers[i].node_id = pack_text(pack, &element, "nodeID");
        drivers[i].topology_keys = pack_strings(pack, &element, "topologyKeys");
    }
    node->drivers = drivers;
    node->driver_count = drivers != NULL ? len : 0;
}

static struct kube_object *csi_node_decode(const json_t *json, const struct kube_decode_options *options,
                                           struct err *err)
{
    return pack_decode(&kube_kind_csi_node, sizeof(struct kube_csi_node), csi_node_fill, json, options, err);
}
const struct kube_kind kube_kind_csi_node = {
    .group = "storage.k8s.io",
    .version = "v1",
    .plural = "csinodes",
    .kind = "CSINode",
    .singular = "CSI node",
    .decode = csi_node_decode,
};

static void lease_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    struct kube_lease *lease = (struct kube_lease *)object;
    struct pack_node spec = pack_member(pack, root, "spec");
    lease->holder = pack_text(pack, &spec, "holderIdentity");
    lease->duration_seconds = pack_int(pack, &spec, "leaseDurationSeconds");
    lease->transitions = pack_int(pack, &spec, "leaseTransitions");
    lease->acquire_time = pack_time(pack, &spec, "acquireTime");
    lease->renew_time = pack_time(pack, &spec, "renewTime");
}

static struct kube_object *lease_decode(const json_t *json, const struct kube_decode_options *options, struct err *err)
{
    return pack_decode(&kube_kind_lease, sizeof(struct kube_lease), lease_fill, json, options, err);
}
const struct kube_kind kube_kind_lease = {
    .group = "coordination.k8s.io",
    .version = "v1",
    .plural = "leases",
    .kind = "Lease",
    .singular = "lease",
    .namespaced = true,
    .decode = lease_decode,
};

static void event_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    struct kube_event *event = (struct kube_event *)object;
    struct pack_node involved = pack_member(pack, root, "involvedObject");
    struct pack_node source = pack_member(pack, root, "source");
    event->involved = pack_reference(pack, &involved);
    event->type = pack_text(pack, root, "type");
    event->reason = pack_text(pack, root, "reason");
    event->message = pack_text(pack, root, "message");
    event->component = pack_text(pack, &source, "component");
    /* writers of the newer events API leave the source empty */
    if (*event->component == '\0')
        event->component = pack_text(pack, root, "reportingComponent");
    event->count = pack_int(pack, root, "count");
}

static struct kube_object *event_decode(const json_t *json, const struct kube_decode_options *options, struct err *err)
{
    return pack_decode(&kube_kind_event, sizeof(struct kube_event), event_fill, json, options, err);
}
const struct kube_kind kube_kind_event = {
    .group = "",
    .version = "v1",
    .plural = "events",
    .kind = "Event",
    .singular = "event",
    .namespaced = true,
    .decode = event_decode,
};

static void secret_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    ((struct kube_secret *)object)->data = pack_secrets(pack, root, "data");
}

static struct kube_object *secret_decode(const json_t *json, const struct kube_decode_options *options, struct err *err)
{
    return pack_decode(&kube_kind_secret, sizeof(struct kube_secret), secret_fill, json, options, err);
}
const struct kube_kind kube_kind_secret = {
    .group = "",
    .version = "v1",
    .plural = "secrets",
    .kind = "Secret",
    .singular = "secret",
    .namespaced = true,
    .decode = secret_decode,
};

static void capacity_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    struct kube_capacity *capacity = (struct kube_capacity *)object;
    struct pack_node topology = pack_member(pack, root, "nodeTopology");
    capacity->class_name = pack_text(pack, root, "storageClassName");
    capacity->has_topology = pack_is_object(pack, &topology);
    capacity->topology = pack_label_selector(pack, &topology);
    capacity->topology_labels = pack_pairs(pack, &topology, "matchLabels");
    capacity->has_capacity = pack_quantity(pack, root, "capacity", &capacity->capacity);
    capacity->has_maximum = pack_quantity(pack, root, "maximumVolumeSize", &capacity->maximum);
}

static struct kube_object *capacity_decode(const json_t *json, const struct kube_decode_options *options,
                                           struct err *err)
{
    return pack_decode(&kube_kind_capacity, sizeof(struct kube_capacity), capacity_fill, json, options, err);
}
static struct kube_object *capacity_v1beta1_decode(const json_t *json, const struct kube_decode_options *options,
                                                   struct err *err)
{
    return pack_decode(&kube_kind_capacity_v1beta1, sizeof(struct kube_capacity), capacity_fill, json, options, err);
}
static struct kube_object *capacity_v1alpha1_decode(const json_t *json, const struct kube_decode_options *options,
                                                    struct err *err)
{
    return pack_decode(&kube_kind_capacity_v1alpha1, sizeof(struct kube_capacity), capacity_fill, json, options, err);
}
#define CAPACITY_KIND(version_, decode_)                                                                               \
    {                                                                                                                  \
        .group = "storage.k8s.io", .version = (version_), .plural = "csistoragecapacities",                            \
        .kind = "CSIStorageCapacity", .singular = "storage capacity", .namespaced = true, .decode = (decode_)          \
    }
const struct kube_kind kube_kind_capacity = CAPACITY_KIND("v1", capacity_decode);
const struct kube_kind kube_kind_capacity_v1beta1 = CAPACITY_KIND("v1beta1", capacity_v1beta1_decode);
const struct kube_kind kube_kind_capacity_v1alpha1 = CAPACITY_KIND("v1alpha1", capacity_v1alpha1_decode);
