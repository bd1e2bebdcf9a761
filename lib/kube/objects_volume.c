/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"
#include "lib/kube/objects_pack.h"

/* Members of a volume's spec that say where its data is. */
static const struct {
    const char *name;
    enum kube_source source;
} sources[] = {
    {"csi", KUBE_SOURCE_CSI},
    {"nfs", KUBE_SOURCE_NFS},
    {"hostPath", KUBE_SOURCE_HOST_PATH},
    {"local", KUBE_SOURCE_LOCAL},
    {"awsElasticBlockStore", KUBE_SOURCE_OTHER},
    {"azureDisk", KUBE_SOURCE_OTHER},
    {"azureFile", KUBE_SOURCE_OTHER},
    {"cephfs", KUBE_SOURCE_OTHER},
    {"cinder", KUBE_SOURCE_OTHER},
    {"fc", KUBE_SOURCE_OTHER},
    {"flexVolume", KUBE_SOURCE_OTHER},
    {"flocker", KUBE_SOURCE_OTHER},
    {"gcePersistentDisk", KUBE_SOURCE_OTHER},
    {"glusterfs", KUBE_SOURCE_OTHER},
    {"iscsi", KUBE_SOURCE_OTHER},
    {"photonPersistentDisk", KUBE_SOURCE_OTHER},
    {"portworxVolume", KUBE_SOURCE_OTHER},
    {"quobyte", KUBE_SOURCE_OTHER},
    {"rbd", KUBE_SOURCE_OTHER},
    {"scaleIO", KUBE_SOURCE_OTHER},
    {"storageos", KUBE_SOURCE_OTHER},
    {"vsphereVolume", KUBE_SOURCE_OTHER},
};

static void fill_csi(struct pack *pack, const struct pack_node *spec, struct kube_volume *volume)
{
    struct pack_node csi = pack_member(pack, spec, "csi");
    volume->csi.driver = pack_text(pack, &csi, "driver");
    volume->csi.handle = pack_text(pack, &csi, "volumeHandle");
    volume->csi.fs_type = pack_text(pack, &csi, "fsType");
    volume->csi.read_only = pack_bool(pack, &csi, "readOnly");
    volume->csi.attributes = pack_pairs(pack, &csi, "volumeAttributes");
    volume->csi.publish_secret = pack_secret_reference(pack, &csi, "controllerPublishSecretRef");
    volume->csi.stage_secret = pack_secret_reference(pack, &csi, "nodeStageSecretRef");
    volume->csi.node_publish_secret = pack_secret_reference(pack, &csi, "nodePublishSecretRef");
    volume->csi.expand_secret = pack_secret_reference(pack, &csi, "controllerExpandSecretRef");
    volume->csi.node_expand_secret = pack_secret_reference(pack, &csi, "nodeExpandSecretRef");
}

static void fill_source(struct pack *pack, const struct pack_node *spec, struct kube_volume *volume)
{
    volume->source_name = "";
    for (size_t i = 0; i < ARRAY_LEN(sources) && volume->source == KUBE_SOURCE_NONE; i++) {
        struct pack_node node = pack_member(pack, spec, sources[i].name);
        if (!pack_is_object(pack, &node))
            continue;
        volume->source = sources[i].source;
        volume->source_name = sources[i].name;
    }
    /* all of them, so that the text fields are never NULL */
    fill_csi(pack, spec, volume);
    struct pack_node nfs = pack_member(pack, spec, "nfs");
    volume->nfs.server = pack_text(pack, &nfs, "server");
    volume->nfs.path = pack_text(pack, &nfs, "path");
    struct pack_node host_path = pack_member(pack, spec, "hostPath");
    volume->host_path.path = pack_text(pack, &host_path, "path");
    volume->host_path.type = pack_text(pack, &host_path, "type");
}

static void fill_node_affinity(struct pack *pack, const struct pack_node *spec, struct kube_volume *volume)
{
    struct pack_node affinity = pack_member(pack, spec, "nodeAffinity");
    struct pack_node required = pack_member(pack, &affinity, "required");
    volume->has_node_affinity = pack_is_object(pack, &required);
    struct pack_node list = pack_member(pack, &required, "nodeSelectorTerms");
    uint32_t len = pack_list_len(pack, &list);
    struct kube_node_term *terms = pack_array(pack, len, sizeof(*terms));
    if (terms == NULL)
        return;
    for (uint32_t i = 0; i < len; i++) {
        struct pack_node term = pack_element(&list, i);
        terms[i].expressions = pack_requirements(pack, &term, "matchExpressions");
        terms[i].fields = pack_requirements(pack, &term, "matchFields");
    }
    volume->node_affinity = (struct kube_node_selector){.terms = terms, .len = len};
}

static void fill_claim_ref(struct pack *pack, const struct pack_node *spec, struct kube_volume *volume)
{
    struct pack_node node = pack_member(pack, spec, "claimRef");
    if (!pack_is_object(pack, &node))
        return;
    struct kube_reference *reference = pack_array(pack, 1, sizeof(*reference));
    if (reference != NULL)
        *reference = pack_reference(pack, &node);
    volume->claim_ref = reference;
}

static void volume_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    struct kube_volume *volume = (struct kube_volume *)object;
    struct pack_node spec = pack_member(pack, root, "spec");
    struct pack_node capacity = pack_member(pack, &spec, "capacity");
    volume->capacity = pack_quantities(pack, &spec, "capacity");
    volume->has_storage = pack_quantity(pack, &capacity, "storage", &volume->storage);
    volume->access_modes = pack_strings(pack, &spec, "accessModes");
    volume->volume_mode = pack_nullable(pack, &spec, "volumeMode");
    volume->class_name = pack_nullable(pack, &spec, "storageClassName");
    volume->attributes_class = pack_nullable(pack, &spec, "volumeAttributesClassName");
    volume->reclaim_policy = pack_text(pack, &spec, "persistentVolumeReclaimPolicy");
    volume->mount_options = pack_strings(pack, &spec, "mountOptions");
    fill_claim_ref(pack, &spec, volume);
    fill_node_affinity(pack, &spec, volume);
    fill_source(pack, &spec, volume);
    struct pack_node status = pack_member(pack, root, "status");
    volume->phase = pack_text(pack, &status, "phase");
    volume->message = pack_text(pack, &status, "message");
}

static struct kube_object *volume_decode(const json_t *json, const struct kube_decode_options *options, struct err *err)
{
    return pack_decode(&kube_kind_volume, sizeof(struct kube_volume), volume_fill, json, options, err);
}
const struct kube_kind kube_kind_volume = {
    .group = "",
    .version = "v1",
    .plural = "persistentvolumes",
    .kind = "PersistentVolume",
    .singular = "volume",
    .decode = volume_decode,
};

static void attachment_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    struct kube_attachment *attachment = (struct kube_attachment *)object;
    struct pack_node spec = pack_member(pack, root, "spec");
    struct pack_node source = pack_member(pack, &spec, "source");
    struct pack_node status = pack_member(pack, root, "status");
    attachment->attacher = pack_text(pack, &spec, "attacher");
    attachment->node_name = pack_text(pack, &spec, "nodeName");
    attachment->volume_name = pack_text(pack, &source, "persistentVolumeName");
    attachment->attached = pack_bool(pack, &status, "attached");
}

static struct kube_object *attachment_decode(const json_t *json, const struct kube_decode_options *options,
                                             struct err *err)
{
    return pack_decode(&kube_kind_attachment, sizeof(struct kube_attachment), attachment_fill, json, options, err);
}
const struct kube_kind kube_kind_attachment = {
    .group = "storage.k8s.io",
    .version = "v1",
    .plural = "volumeattachments",
    .kind = "VolumeAttachment",
    .singular = "volume attachment",
    .decode = attachment_decode,
};
