/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Kubernetes objects this project reads, as small immutable reference-counted structs with only the fields we use.
 * One object is one allocation: strings and lists live in the same block and die with the last reference. They are made
 * by decoding JSON and never changed; changes go to the API server as patches and come back as new objects.
 *
 * Text fields: NULL = absent or null in the JSON, "" = present and empty, wherever Kubernetes tells these apart (marked
 * "nullable"); all others are never NULL.
 */
#ifndef BERTH_KUBE_OBJECTS_H
#define BERTH_KUBE_OBJECTS_H

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/kube/labels.h"
#include "lib/kube/quantity.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kube_object;

struct kube_decode_options {
    /* By default annotations that this project never reads are dropped (kubectl's last-applied-configuration can be
     * megabytes); true keeps all but that one. */
    bool all_annotations;
    bool drop_labels;
};

/* A kind of object as the API serves it. The constants below are all there are. */
struct kube_kind {
    const char *group;    /* "" for core */
    const char *version;  /* "v1" */
    const char *plural;   /* "persistentvolumes" */
    const char *kind;     /* "PersistentVolume" */
    const char *singular; /* for messages: "volume", "claim", "storage class" … */
    bool namespaced;
    struct kube_object *(*decode)(const json_t *json, const struct kube_decode_options *options, struct err *err);
};
extern const struct kube_kind kube_kind_volume;
extern const struct kube_kind kube_kind_claim;
extern const struct kube_kind kube_kind_class;
extern const struct kube_kind kube_kind_pod;
extern const struct kube_kind kube_kind_node;
extern const struct kube_kind kube_kind_csi_node;
extern const struct kube_kind kube_kind_csi_driver;
extern const struct kube_kind kube_kind_attachment;
extern const struct kube_kind kube_kind_lease;
extern const struct kube_kind kube_kind_event; /* core/v1 */
extern const struct kube_kind kube_kind_secret;
extern const struct kube_kind kube_kind_attributes_class;
extern const struct kube_kind kube_kind_attributes_class_v1beta1;
extern const struct kube_kind kube_kind_capacity; /* CSIStorageCapacity, v1 */
extern const struct kube_kind kube_kind_capacity_v1beta1;
extern const struct kube_kind kube_kind_capacity_v1alpha1;
extern const struct kube_kind kube_kind_snapshot;
extern const struct kube_kind kube_kind_snapshot_content;
extern const struct kube_kind kube_kind_reference_grant;
extern const struct kube_kind kube_kind_namespace;
extern const struct kube_kind kube_kind_replica_set;

struct kube_owner {
    const char *api_version, *kind, *name, *uid;
    bool controller;
};
struct kube_meta {
    const char *namespace_; /* "" for cluster-scoped objects */
    const char *name;
    const char *uid;
    const char *generate_name;
    uint64_t resource_version; /* decimal in the API; compared as a number */
    int64_t creation_time;     /* wall ns, 0 = unknown */
    struct kube_pairs labels;
    struct kube_pairs annotations;
    struct kube_strings finalizers;
    const struct kube_owner *owners;
    uint32_t owner_count;
    bool deleting; /* deletionTimestamp is set */
};
struct kube_object {
    const struct kube_kind *kind;
    atomic_uint refs;
    uint32_t size; /* bytes of the whole block */
    struct kube_meta meta;
};
/* An error, naming object and field, when the JSON is of another kind, has no usable name or a resourceVersion that is
 * not decimal, or when a field that we read has the wrong JSON type. An object that was not created yet may lack uid,
 * resourceVersion and creation time. A quantity or a time that cannot be understood is no error but absent (has_… is
 * false), so that one odd value does not hide an object; so are unknown fields and enum values. */
struct kube_object *kube_object_decode(const struct kube_kind *kind, const json_t *json,
                                       const struct kube_decode_options *options, struct err *err);
struct kube_object *kube_object_ref(struct kube_object *object); /* NULL is fine */
void kube_object_unref(struct kube_object *object);              /* NULL is fine */
static inline void kube_object_cleanup(void *pointer)
{
    struct kube_object **object = pointer;
    kube_object_unref(*object);
}
/* Works for every struct below: auto_unref struct kube_claim *claim = …; */
#define auto_unref __attribute__((cleanup(kube_object_cleanup)))
/* "namespace/name", or "name" for cluster-scoped objects; for logs and queue keys. */
char *kube_object_key(const struct kube_object *object); /* owned by the caller */
void kube_key_split(const char *key, char **namespace_,
                    char **name); /* both owned by the caller; namespace "" if none */
static inline const char *kube_annotation(const struct kube_object *object, const char *key)
{
    return kube_pairs_get(&object->meta.annotations, key);
}

struct kube_reference { /* ObjectReference; "" when absent */
    const char *api_version, *kind, *namespace_, *name, *uid, *resource_version, *field_path;
};
struct kube_secret_reference {
    const char *namespace_, *name;
};
struct kube_data_source {
    const char *api_group; /* "" = core */
    const char *kind, *name;
    const char *namespace_; /* dataSourceRef only; nullable */
};

enum kube_source {
    KUBE_SOURCE_NONE,
    KUBE_SOURCE_CSI,
    KUBE_SOURCE_NFS,
    KUBE_SOURCE_HOST_PATH,
    KUBE_SOURCE_LOCAL,
    KUBE_SOURCE_OTHER, /* some other in-tree source: source_name tells which */
};
struct kube_volume {
    struct kube_object object;
    struct kube_quantity storage; /* capacity.storage */
    struct kube_pairs capacity;   /* as written: the claim's status gets a copy */
    struct kube_strings access_modes;
    const char *volume_mode;      /* nullable; absent means Filesystem */
    const char *class_name;       /* nullable spec.storageClassName */
    const char *attributes_class; /* nullable spec.volumeAttributesClassName */
    const char *reclaim_policy;
    struct kube_strings mount_options;
    const struct kube_reference *claim_ref; /* NULL when absent */
    struct kube_node_selector node_affinity;
    const char *source_name; /* "csi", "nfs", "hostPath", "iscsi" …, "" */
    enum kube_source source;
    bool has_storage;       /* capacity.storage present and well-formed */
    bool has_node_affinity; /* nodeAffinity.required present */
    struct {
        const char *driver, *handle, *fs_type;
        bool read_only;
        struct kube_pairs attributes;
        struct kube_secret_reference publish_secret, stage_secret, node_publish_secret, expand_secret,
            node_expand_secret;
    } csi;
    struct {
        const char *server, *path;
    } nfs;
    struct {
        const char *path, *type;
    } host_path;
    const char *phase; /* "" when the status is empty */
    const char *message;
};

struct kube_claim {
    struct kube_object object;
    struct kube_quantity request; /* resources.requests.storage; 0 when absent, the largest when unreadable */
    struct kube_quantity status_storage;
    const char *class_name; /* nullable spec.storageClassName: absent and "" differ */
    const char *volume_name;
    const char *volume_mode;      /* nullable */
    const char *attributes_class; /* nullable */
    struct kube_strings access_modes;
    const char *request_text; /* as written, "0" when absent */
    struct kube_selector selector;
    const struct kube_data_source *data_source;     /* NULL when absent */
    const struct kube_data_source *data_source_ref; /* NULL when absent */
    const char *phase;
    struct kube_strings status_access_modes;
    struct kube_pairs status_capacity;
    const char *status_attributes_class; /* nullable currentVolumeAttributesClassName */
    bool has_request, has_selector, has_status_storage;
};

struct kube_topology_requirement {
    const char *key;
    struct kube_strings values;
};
struct kube_topology_term {
    const struct kube_topology_requirement *items;
    uint32_t len;
};
struct kube_class {
    struct kube_object object;
    const char *provisioner;
    const char *reclaim_policy; /* "" absent: Delete */
    const char *binding_mode;   /* nullable */
    struct kube_pairs parameters;
    struct kube_strings mount_options;
    const struct kube_topology_term *allowed_topologies;
    uint32_t allowed_topology_count;
};

struct kube_pod {
    struct kube_object object;
    const char *phase, *node_name, *message;
    struct kube_strings claims; /* names of claims its volumes use, ephemeral ones ("<pod>-<volume>") included */
    bool running_container;     /* some container's state is running (init and ephemeral ones too) */
    uint32_t ephemeral_claims;  /* how many of `claims`, counted from the end, are ephemeral ones */
};
struct kube_node {
    struct kube_object object; /* name and labels are all we need */
};
struct kube_csi_node_driver {
    const char *name, *node_id;
    struct kube_strings topology_keys;
};
struct kube_csi_node {
    struct kube_object object;
    const struct kube_csi_node_driver *drivers;
    uint32_t driver_count;
};
struct kube_csi_driver {
    struct kube_object object; /* name and annotations */
};
struct kube_attachment {
    struct kube_object object;
    const char *attacher, *node_name;
    const char *volume_name; /* spec.source.persistentVolumeName; "" for inline */
    bool attached;
};
struct kube_lease {
    struct kube_object object;
    const char *holder;
    int64_t duration_seconds, transitions;
    int64_t acquire_time, renew_time; /* wall ns; 0 absent */
};
struct kube_event {
    struct kube_object object;
    struct kube_reference involved;
    const char *type, *reason, *message, *component;
    int64_t count;
};
/* Secrets are never stored; decode exists for live GETs. Values are decoded from base64; the block is wiped when freed.
 */
struct kube_secret {
    struct kube_object object;
    struct kube_pairs data; /* text; a value that holds a NUL byte or is no base64 is an error of the decoder */
};
struct kube_attributes_class {
    struct kube_object object;
    const char *driver_name;
    struct kube_pairs parameters;
};
struct kube_capacity {
    struct kube_object object;
    const char *class_name;
    bool has_topology;
    struct kube_selector topology;     /* nodeTopology */
    struct kube_pairs topology_labels; /* nodeTopology.matchLabels */
    bool has_capacity, has_maximum;
    struct kube_quantity capacity, maximum;
};
struct kube_snapshot {
    struct kube_object object;
    const char *content_name; /* status.boundVolumeSnapshotContentName */
    bool ready;
    bool has_restore_size;
    struct kube_quantity restore_size;
};
struct kube_snapshot_content {
    struct kube_object object;
    const char *driver, *handle /* status.snapshotHandle */, *source_volume_mode;
    struct kube_reference snapshot_ref;
    bool ready, has_restore_size;
    int64_t restore_size;
};
struct kube_grant_entry {
    const char *group, *kind, *namespace_ /* from */, *name /* to, nullable */;
};
struct kube_reference_grant {
    struct kube_object object;
    const struct kube_grant_entry *from, *to;
    uint32_t from_count, to_count;
};

/* Annotations, labels and finalizers that more than one program uses. */
#define KUBE_ANN_BIND_COMPLETED "pv.kubernetes.io/bind-completed"
#define KUBE_ANN_BOUND_BY_CONTROLLER "pv.kubernetes.io/bound-by-controller"
#define KUBE_ANN_PROVISIONED_BY "pv.kubernetes.io/provisioned-by"
#define KUBE_ANN_MIGRATED_TO "pv.kubernetes.io/migrated-to"
#define KUBE_ANN_STORAGE_PROVISIONER "volume.kubernetes.io/storage-provisioner"
#define KUBE_ANN_BETA_STORAGE_PROVISIONER "volume.beta.kubernetes.io/storage-provisioner"
#define KUBE_ANN_SELECTED_NODE "volume.kubernetes.io/selected-node"
#define KUBE_ANN_BETA_STORAGE_CLASS "volume.beta.kubernetes.io/storage-class"
#define KUBE_ANN_PRE_RESIZE_CAPACITY "volume.alpha.kubernetes.io/pre-resize-capacity"
#define KUBE_ANN_DEFAULT_CLASS "storageclass.kubernetes.io/is-default-class"
#define KUBE_ANN_BETA_DEFAULT_CLASS "storageclass.beta.kubernetes.io/is-default-class"
#define KUBE_ANN_DELETION_SECRET_NAME "volume.kubernetes.io/provisioner-deletion-secret-name"
#define KUBE_ANN_DELETION_SECRET_NAMESPACE "volume.kubernetes.io/provisioner-deletion-secret-namespace"
#define KUBE_FINALIZER_EXTERNAL_PROVISIONER "external-provisioner.volume.kubernetes.io/finalizer"
#define KUBE_FINALIZER_CONTROLLER "kubernetes.io/pv-controller"

/* class(claim), class(volume): the beta annotation wins even when empty; absent = "". */
const char *kube_claim_class(const struct kube_claim *claim);
bool kube_claim_has_class(const struct kube_claim *claim); /* present at all, even "" */
const char *kube_volume_class(const struct kube_volume *volume);
/* The CSI driver an in-tree plugin name is migrated to (the fixed table of 1.36), or NULL; and back. */
const char *kube_migrated_driver(const char *plugin_name);
const char *kube_migrated_plugin(const char *driver_name);

#endif
