/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/objects_pack.h"

#include "lib/base/mem.h"

#include <stdlib.h>

/* Texts that stand in most objects of a cluster; sorted by strcmp. */
static const char *const constants[] = {
    "",
    "Available",
    "Block",
    "Bound",
    "ClusterIP",
    "DaemonSet",
    "Delete",
    "Directory",
    "DirectoryOrCreate",
    "DoesNotExist",
    "Exists",
    "Failed",
    "Filesystem",
    "Immediate",
    "In",
    "Lost",
    "Node",
    "Normal",
    "NotIn",
    "Pending",
    "PersistentVolumeClaim",
    "Pod",
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
    "Recycle",
    "Released",
    "ReplicaSet",
    "Retain",
    "Running",
    "StatefulSet",
    "Succeeded",
    "VolumeSnapshot",
    "VolumeSnapshotContent",
    "WaitForFirstConsumer",
    "Warning",
    "app",
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "app.kubernetes.io/part-of",
    "apps/v1",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "csi",
    "csi.storage.k8s.io/drivername",
    "csi.storage.k8s.io/managed-by",
    "default",
    "ext4",
    KUBE_FINALIZER_EXTERNAL_PROVISIONER,
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "false",
    "hostPath",
    "kube-system",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/pv-controller",
    "kubernetes.io/pv-protection",
    "kubernetes.io/pvc-protection",
    "local",
    "metadata.name",
    "nfs",
    "node.kubernetes.io/instance-type",
    "provisioner.storage.kubernetes.io/cloning-protection",
    "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection",
    KUBE_ANN_BIND_COMPLETED,
    KUBE_ANN_BOUND_BY_CONTROLLER,
    KUBE_ANN_MIGRATED_TO,
    KUBE_ANN_PROVISIONED_BY,
    "snapshot.storage.k8s.io",
    "snapshot.storage.kubernetes.io/allow-volume-mode-change",
    "storage",
    "storage.kubernetes.io/csiProvisionerIdentity",
    KUBE_ANN_BETA_DEFAULT_CLASS,
    KUBE_ANN_DEFAULT_CLASS,
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "true",
    "v1",
    KUBE_ANN_PRE_RESIZE_CAPACITY,
    KUBE_ANN_BETA_STORAGE_CLASS,
    KUBE_ANN_BETA_STORAGE_PROVISIONER,
    KUBE_ANN_DELETION_SECRET_NAME,
    KUBE_ANN_DELETION_SECRET_NAMESPACE,
    KUBE_ANN_SELECTED_NODE,
    KUBE_ANN_STORAGE_PROVISIONER,
    "xfs",
    "yes",
};

static int compare_text(const void *key, const void *item)
{
    return strcmp(key, *(const char *const *)item);
}

const char *pack_constant(const char *text)
{
    const char *const *found = bsearch(text, constants, ARRAY_LEN(constants), sizeof(constants[0]), compare_text);
    return found != NULL ? *found : NULL;
}

const char *const *pack_constants(size_t *count)
{
    *count = ARRAY_LEN(constants);
    return constants;
}

/* Notes a text as one that later ones may share bytes with. */
static void remember(struct pack *pack, const char *text, size_t len)
{
    if (pack->seen_count < PACK_SEEN_MAX)
        pack->seen[pack->seen_count++] = (struct pack_seen){.text = text, .len = len};
}

static const char *find_seen(const struct pack *pack, const char *text, size_t len)
{
    for (size_t i = 0; i < pack->seen_count; i++) {
        const struct pack_seen *seen = &pack->seen[i];
        if (seen->len >= len && memcmp(seen->text + (seen->len - len), text, len) == 0)
            return seen->text + (seen->len - len);
    }
    return NULL;
}

/* Room for a text of that length and its NUL; NULL while measuring, and when the second walk wants more than the first
 * one did (which would be a bug). */
static char *string_room(struct pack *pack, size_t len)
{
    size_t at = pack->string_bytes;
    pack->string_bytes += len + 1;
    if (pack->measuring)
        return NULL;
    if (pack->string_bytes > pack->string_limit) {
        pack->failed = true;
        return NULL;
    }
    return pack->strings + at;
}

const char *pack_copy(struct pack *pack, const char *text, size_t len)
{
    char *room = string_room(pack, len);
    if (room == NULL)
        return "";
    memcpy(room, text, len);
    room[len] = '\0';
    return room;
}

const char *pack_join(struct pack *pack, const char *a, char between, const char *b)
{
    size_t a_len = strlen(a);
    size_t b_len = strlen(b);
    char *room = string_room(pack, a_len + 1 + b_len);
    if (room == NULL)
        return "";
    memcpy(room, a, a_len);
    room[a_len] = between;
    memcpy(room + a_len + 1, b, b_len);
    room[a_len + 1 + b_len] = '\0';
    return room;
}

static const char *share_or_copy(struct pack *pack, const char *text, size_t len)
{
    const char *known = pack_constant(text);
    if (known == NULL)
        known = find_seen(pack, text, len);
    if (known != NULL)
        return known;
    char *room = string_room(pack, len);
    if (room != NULL) {
        memcpy(room, text, len);
        room[len] = '\0';
        text = room;
    }
    remember(pack, text, len);
    return text;
}

const char *pack_node_text(struct pack *pack, const struct pack_node *node)
{
    if (node->json == NULL)
        return NULL;
    if (!json_is_string(node->json)) {
        pack_fail(pack, node, "must be a string");
        return NULL;
    }
    const char *text = json_string_value(node->json);
    size_t len = json_string_length(node->json);
    if (strlen(text) != len) {
        pack_fail(pack, node, "must not hold a NUL byte");
        return NULL;
    }
    return share_or_copy(pack, text, len);
}

const char *pack_nullable(struct pack *pack, const struct pack_node *of, const char *name)
{
    struct pack_node node = pack_member(pack, of, name);
    return pack_node_text(pack, &node);
}

const char *pack_text(struct pack *pack, const struct pack_node *of, const char *name)
{
    const char *text = pack_nullable(pack, of, name);
    return text != NULL ? text : "";
}

struct kube_strings pack_strings(struct pack *pack, const struct pack_node *of, const char *name)
{
    struct pack_node list = pack_member(pack, of, name);
    uint32_t len = pack_list_len(pack, &list);
    const char **items = pack_array(pack, len, sizeof(*items));
    for (uint32_t i = 0; i < len && items != NULL; i++) {
        struct pack_node element = pack_element(&list, i);
        const char *text = pack_node_text(pack, &element);
        items[i] = text != NULL ? text : "";
    }
    return (struct kube_strings){.items = items, .len = items != NULL ? len : 0};
}

/* The API server writes maps sorted by key, so this hardly ever has anything to do. */
static int compare_pairs(const void *a, const void *b)
{
    return strcmp(((const struct kube_pair *)a)->key, ((const struct kube_pair *)b)->key);
}

static void sort_pairs(struct kube_pair *items, uint32_t len)
{
    for (uint32_t i = 1; i < len; i++) {
        if (strcmp(items[i - 1].key, items[i].key) > 0) {
            qsort(items, len, sizeof(*items), compare_pairs);
            return;
        }
    }
}

/* Only the annotations that some program of this project reads: users' tools leave a lot there. */
static bool annotation_is_read(const char *key)
{
    static const char *const prefixes[] = {
        "pv.kubernetes.io/",
        "volume.kubernetes.io/",
        "volume.beta.kubernetes.io/",
        "volume.alpha.kubernetes.io/",
        "storageclass.kubernetes.io/",
        "storageclass.beta.kubernetes.io/",
        "csi.storage.k8s.io/",
        "snapshot.storage.kubernetes.io/allow-volume-mode-change",
        "storage.berth.",
        "berth.",
    };
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        if (str_starts(key, prefixes[i]))
            return true;
    }
    return strstr(key, ".berth/") != NULL;
}

static bool keep_annotation(const struct pack *pack, const char *key)
{
    if (str_eq(key, "kubectl.kubernetes.io/last-applied-configuration"))
        return false;
    return pack->options->all_annotations || annotation_is_read(key);
}

static bool keep_all(const struct pack *pack, const char *key)
{
    (void)pack;
    (void)key;
    return true;
}

static const char *pair_text(struct pack *pack, const struct pack_node *node)
{
    const char *text = pack_node_text(pack, node);
    return text != NULL ? text : "";
}

/* The API server writes quantities as strings; custom resources may have kept a number as it came. */
const char *pack_quantity_text(struct pack *pack, const struct pack_node *node)
{
    if (json_is_string(node->json))
        return pair_text(pack, node);
    char text[32];
    if (json_is_integer(node->json))
        snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(node->json));
    else if (json_is_real(node->json))
        snprintf(text, sizeof(text), "%.17g", json_real_value(node->json));
    else
        return "";
    return pack_copy(pack, text, strlen(text));
}

static struct kube_pairs pack_map(struct pack *pack, const struct pack_node *of, const char *name,
                                  bool (*keep)(const struct pack *, const char *),
                                  const char *(*value_of)(struct pack *, const struct pack_node *))
{
    struct pack_node map = pack_member(pack, of, name);
    if (!pack_is_object(pack, &map))
        return (struct kube_pairs){0};
    size_t count = 0;
    const char *key = NULL;
    json_t *value = NULL;
    /* the iteration macro wants a non-const object but does not change it */
    json_t *object = (json_t *)map.json;
    json_object_foreach (object, key, value)
        count += keep(pack, key) ? 1 : 0;
    struct kube_pair *items = pack_array(pack, count, sizeof(*items));
    uint32_t len = 0;
    json_object_foreach (object, key, value) {
        if (items == NULL || len == count || !keep(pack, key))
            continue;
        struct pack_node node = {.json = json_is_null(value) ? NULL : value, .parent = &map, .name = key};
        items[len].key = share_or_copy(pack, key, strlen(key));
        items[len].value = value_of(pack, &node);
        len++;
    }
    sort_pairs(items, len);
    return (struct kube_pairs){.items = items, .len = len};
}

struct kube_pairs pack_pairs(struct pack *pack, const struct pack_node *of, const char *name)
{
    return pack_map(pack, of, name, keep_all, pair_text);
}

struct kube_pairs pack_annotations(struct pack *pack, const struct pack_node *of, const char *name)
{
    return pack_map(pack, of, name, keep_annotation, pair_text);
}

struct kube_pairs pack_quantities(struct pack *pack, const struct pack_node *of, const char *name)
{
    return pack_map(pack, of, name, keep_all, pack_quantity_text);
}

/* The secret's own text is wiped wherever it stood. */
static const char *pair_base64(struct pack *pack, const struct pack_node *node)
{
    if (node->json == NULL)
        return "";
    if (!json_is_string(node->json)) {
        pack_fail(pack, node, "must be a string");
        return "";
    }
    size_t len = 0;
    unsigned char *data = str_base64_decode(json_string_value(node->json), json_string_length(node->json), &len);
    const char *text = "";
    if (data == NULL)
        pack_fail(pack, node, "must be base64");
    else if (memchr(data, 0, len) != NULL)
        pack_fail(pack, node, "holds a NUL byte, so it cannot be passed on as text");
    else
        text = pack_copy(pack, (const char *)data, len);
    mem_wipe(data, len);
    free(data);
    return text;
}

struct kube_pairs pack_secrets(struct pack *pack, const struct pack_node *of, const char *name)
{
    return pack_map(pack, of, name, keep_all, pair_base64);
}
