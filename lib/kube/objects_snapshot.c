/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds that are no part of Kubernetes itself: they exist when their custom resource definitions are installed. */
#include "lib/kube/objects_pack.h"

static void snapshot_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    struct kube_snapshot *snapshot = (struct kube_snapshot *)object;
    struct pack_node status = pack_member(pack, root, "status");
    snapshot->content_name = pack_text(pack, &status, "boundVolumeSnapshotContentName");
    snapshot->ready = pack_bool(pack, &status, "readyToUse");
    snapshot->has_restore_size = pack_quantity(pack, &status, "restoreSize", &snapshot->restore_size);
}

static struct kube_object *snapshot_decode(const json_t *json, const struct kube_decode_options *options,
                                           struct err *err)
{
    return pack_decode(&kube_kind_snapshot, sizeof(struct kube_snapshot), snapshot_fill, json, options, err);
}
const struct kube_kind kube_kind_snapshot = {
    .group = "snapshot.storage.k8s.io",
    .version = "v1",
    .plural = "volumesnapshots",
    .kind = "VolumeSnapshot",
    .singular = "snapshot",
    .namespaced = true,
    .decode = snapshot_decode,
};

static void content_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    struct kube_snapshot_content *content = (struct kube_snapshot_content *)object;
    struct pack_node spec = pack_member(pack, root, "spec");
    struct pack_node status = pack_member(pack, root, "status");
    struct pack_node reference = pack_member(pack, &spec, "volumeSnapshotRef");
    struct pack_node size = pack_member(pack, &status, "restoreSize");
    content->driver = pack_text(pack, &spec, "driver");
    content->source_volume_mode = pack_text(pack, &spec, "sourceVolumeMode");
    content->snapshot_ref = pack_reference(pack, &reference);
    content->handle = pack_text(pack, &status, "snapshotHandle");
    content->ready = pack_bool(pack, &status, "readyToUse");
    content->has_restore_size = size.json != NULL;
    content->restore_size = pack_int(pack, &status, "restoreSize");
}

static struct kube_object *content_decode(const json_t *json, const struct kube_decode_options *options,
                                          struct err *err)
{
    return pack_decode(&kube_kind_snapshot_content, sizeof(struct kube_snapshot_content), content_fill, json, options,
                       err);
}
const struct kube_kind kube_kind_snapshot_content = {
    .group = "snapshot.storage.k8s.io",
    .version = "v1",
    .plural = "volumesnapshotcontents",
    .kind = "VolumeSnapshotContent",
    .singular = "snapshot content",
    .decode = content_decode,
};

static const struct kube_grant_entry *pack_grants(struct pack *pack, const struct pack_node *spec, const char *name,
                                                  uint32_t *count)
{
    struct pack_node list = pack_member(pack, spec, name);
    uint32_t len = pack_list_len(pack, &list);
    struct kube_grant_entry *entries = pack_array(pack, len, sizeof(*entries));
    for (uint32_t i = 0; i < len && entries != NULL; i++) {
        struct pack_node element = pack_element(&list, i);
        entries[i] = (struct kube_grant_entry){
            .group = pack_text(pack, &element, "group"),
            .kind = pack_text(pack, &element, "kind"),
            .namespace_ = pack_text(pack, &element, "namespace"),
            .name = pack_nullable(pack, &element, "name"),
        };
    }
    *count = entries != NULL ? len : 0;
    return entries;
}

static void grant_fill(struct pack *pack, const struct pack_node *root, struct kube_object *object)
{
    struct kube_reference_grant *grant = (struct kube_reference_grant *)object;
    struct pack_node spec = pack_member(pack, root, "spec");
    grant->from = pack_grants(pack, &spec, "from", &grant->from_count);
    grant->to = pack_grants(pack, &spec, "to", &grant->to_count);
}

static struct kube_object *grant_decode(const json_t *json, const struct kube_decode_options *options, struct err *err)
{
    return pack_decode(&kube_kind_reference_grant, sizeof(struct kube_reference_grant), grant_fill, json, options, err);
}
const struct kube_kind kube_kind_reference_grant = {
    .group = "gateway.networking.k8s.io",
    .version = "v1beta1",
    .plural = "referencegrants",
    .kind = "ReferenceGrant",
    .singular = "reference grant",
    .namespaced = true,
    .decode = grant_decode,
};
