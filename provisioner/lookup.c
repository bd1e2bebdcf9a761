/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/lookup.h"

#include "lib/base/mem.h"

static int live(struct provisioner *provisioner, const struct kube_kind *kind, const char *namespace_, const char *name,
                void *object, struct err *err)
{
    struct kube_object *found = NULL;
    if (kube_get(provisioner->client, kind, namespace_, name, &found, err) < 0)
        return -1;
    *(struct kube_object **)object = found;
    return 0;
}

static int stored(struct provisioner *provisioner, enum informer informer, const char *name, const char *what,
                  void *object, struct err *err)
{
    struct kube_store *store = provisioner->informers.stores[informer];
    struct kube_object *found = store != NULL ? kube_store_get(store, NULL, name) : NULL;
    if (found == NULL)
        return err_set(err, ERR_NOT_FOUND, "%s \"%s\" not found", what, name);
    *(struct kube_object **)object = found;
    return 0;
}

static int list(struct provisioner *provisioner, enum informer informer, struct kube_object_list *objects)
{
    if (provisioner->informers.stores[informer] != NULL)
        kube_store_list(provisioner->informers.stores[informer], objects);
    return 0;
}

/* With a node deployment the only node is ours, as the driver describes it. */
static json_t *own_labels(const struct provision_config *config)
{
    json_t *labels = json_object();
    for (uint32_t i = 0; i < config->node_topology.len; i++)
        json_object_set_new(labels, config->node_topology.items[i].key,
                            json_string(config->node_topology.items[i].value));
    return labels;
}

static struct kube_object *own_node(const struct provision_config *config, struct err *err)
{
    json_t *json = json_pack("{s:s, s:s, s:{s:s, s:o}}", "apiVersion", "v1", "kind", "Node", "metadata", "name",
                             config->node_name, "labels", own_labels(config));
    struct kube_object *node = kube_object_decode(&kube_kind_node, json, NULL, err);
    json_decref(json);
    return node;
}

static struct kube_object *own_csi_node(const struct provision_config *config, struct err *err)
{
    json_t *keys = json_array();
    for (uint32_t i = 0; i < config->node_topology.len; i++)
        json_array_append_new(keys, json_string(config->node_topology.items[i].key));
    json_t *json = json_pack("{s:s, s:s, s:{s:s}, s:{s:[{s:s, s:s, s:o}]}}", "apiVersion", "storage.k8s.io/v1", "kind",
                             "CSINode", "metadata", "name", config->node_name, "spec", "drivers", "name",
                             config->driver_name, "nodeID", config->node_name, "topologyKeys", keys);
    struct kube_object *node = kube_object_decode(&kube_kind_csi_node, json, NULL, err);
    json_decref(json);
    return node;
}

static int lookup_claim(void *arg, const char *namespace_, const char *name, struct kube_claim **claim, struct err *err)
{
    return live(arg, &kube_kind_claim, namespace_, name, claim, err);
}

static int lookup_volume(void *arg, const char *name, struct kube_volume **volume, struct err *err)
{
    return live(arg, &kube_kind_volume, NULL, name, volume, err);
}

static int lookup_class(void *arg, const char *name, struct kube_class **class_, struct err *err)
{
    return stored(arg, INFORMER_CLASSES, name, "storageclass.storage.k8s.io", class_, err);
}

static int lookup_secret(void *arg, const char *namespace_, const char *name, struct kube_secret **secret,
                         struct err *err)
{
    return live(arg, &kube_kind_secret, namespace_, name, secret, err);
}

static int lookup_snapshot(void *arg, const char *namespace_, const char *name, struct kube_snapshot **snapshot,
                           struct err *err)
{
    return live(arg, &kube_kind_snapshot, namespace_, name, snapshot, err);
}

static int lookup_snapshot_content(void *arg, const char *name, struct kube_snapshot_content **content, struct err *err)
{
    return live(arg, &kube_kind_snapshot_content, NULL, name, content, err);
}

static int lookup_attributes_class(void *arg, const char *name, struct kube_attributes_class **class_, struct err *err)
{
    return live(arg, &kube_kind_attributes_class, NULL, name, class_, err);
}

static int lookup_namespace(void *arg, const char *name, struct kube_object **namespace_, struct err *err)
{
    return live(arg, &kube_kind_namespace, NULL, name, namespace_, err);
}

static int lookup_node(void *arg, const char *name, struct kube_node **node, struct err *err)
{
    struct provisioner *provisioner = arg;
    if (!provisioner->config.node_deployment)
        return stored(provisioner, INFORMER_NODES, name, "node", node, err);
    if (!str_eq(name, provisioner->config.node_name))
        return err_set(err, ERR_NOT_FOUND, "node \"%s\" is not this one", name);
    *node = (struct kube_node *)own_node(&provisioner->config, err);
    return *node != NULL ? 0 : -1;
}

static int lookup_csi_node(void *arg, const char *name, struct kube_csi_node **node, struct err *err)
{
    struct provisioner *provisioner = arg;
    if (!provisioner->config.node_deployment)
        return stored(provisioner, INFORMER_CSI_NODES, name, "csinode.storage.k8s.io", node, err);
    if (!str_eq(name, provisioner->config.node_name))
        return err_set(err, ERR_NOT_FOUND, "CSINode \"%s\" is not this one", name);
    *node = (struct kube_csi_node *)own_csi_node(&provisioner->config, err);
    return *node != NULL ? 0 : -1;
}

static int lookup_nodes(void *arg, struct kube_object_list *nodes, struct err *err)
{
    struct provisioner *provisioner = arg;
    if (!provisioner->config.node_deployment)
        return list(provisioner, INFORMER_NODES, nodes);
    struct kube_object *node = own_node(&provisioner->config, err);
    if (node == NULL)
        return -1;
    kube_object_list_add(nodes, node);
    return 0;
}

static int lookup_csi_nodes(void *arg, struct kube_object_list *nodes, struct err *err)
{
    struct provisioner *provisioner = arg;
    if (!provisioner->config.node_deployment)
        return list(provisioner, INFORMER_CSI_NODES, nodes);
    struct kube_object *node = own_csi_node(&provisioner->config, err);
    if (node == NULL)
        return -1;
    kube_object_list_add(nodes, node);
    return 0;
}

static int lookup_grants(void *arg, const char *namespace_, struct kube_object_list *grants, struct err *err)
{
    struct provisioner *provisioner = arg;
    (void)err;
    auto_objects struct kube_object_list all = {0};
    list(provisioner, INFORMER_GRANTS, &all);
    for (size_t i = 0; i < all.len; i++)
        if (str_eq(all.items[i]->meta.namespace_, namespace_))
            kube_object_list_add(grants, kube_object_ref(all.items[i]));
    return 0;
}

static int lookup_attachments(void *arg, const char *volume_name, struct kube_object_list *attachments, struct err *err)
{
    struct provisioner *provisioner = arg;
    (void)err;
    struct kube_store *store = provisioner->informers.stores[INFORMER_ATTACHMENTS];
    if (store != NULL)
        kube_store_find(store, provisioner->informers.attachments_by_volume, volume_name, attachments);
    return 0;
}

void lookup_init(struct provisioner *provisioner)
{
    provisioner->lookup = (struct provision_lookup){
        .arg = provisioner,
        .claim = lookup_claim,
        .volume = lookup_volume,
        .class_ = lookup_class,
        .secret = lookup_secret,
        .snapshot = lookup_snapshot,
        .snapshot_content = lookup_snapshot_content,
        .attributes_class = lookup_attributes_class,
        .namespace_ = lookup_namespace,
        .node = lookup_node,
        .csi_node = lookup_csi_node,
        .nodes = lookup_nodes,
        .csi_nodes = lookup_csi_nodes,
        .grants = lookup_grants,
        .attachments = lookup_attachments,
    };
}
