/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/controllers.h"

#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "tests/devapi/tree.h"

#include <string.h>

struct controllers {
    struct map *claims, *volumes, *namespaces; /* keys to look at */
    struct map *terminating;                   /* "index key" of objects with a propagation finalizer */
    struct strv orphaned;                      /* uids of owners that are gone */
    size_t owned;                              /* objects that ever had an owner: 0 = nothing to look for */
};

#define PVC_FINALIZER "kubernetes.io/pvc-protection"
#define PV_FINALIZER "kubernetes.io/pv-protection"

struct controllers *controllers_new(void)
{
    struct controllers *controllers = mem_new(struct controllers);
    controllers->claims = map_new(NULL);
    controllers->volumes = map_new(NULL);
    controllers->namespaces = map_new(NULL);
    controllers->terminating = map_new(NULL);
    return controllers;
}

void controllers_free(struct controllers *controllers)
{
    if (controllers == NULL)
        return;
    map_free(controllers->claims);
    map_free(controllers->volumes);
    map_free(controllers->namespaces);
    map_free(controllers->terminating);
    strv_free(&controllers->orphaned);
    free(controllers);
}

static bool is_kind(const struct version *version, const char *plural)
{
    return strcmp(version->kind->plural, plural) == 0;
}

static bool has_finalizer(const struct version *version, const char *finalizer)
{
    for (size_t i = 0; version->finalizers[i] != NULL; i++)
        if (strcmp(version->finalizers[i], finalizer) == 0)
            return true;
    return false;
}

static void remember(struct map *map, const char *key)
{
    map_set(map, key, map); /* any value: it is a set */
}

static void pod_changed(struct server *server, const struct version *pod)
{
    for (size_t i = 0; pod != NULL && pod->claims[i] != NULL; i++) {
        auto_free char *key = mem_printf("%s/%s", pod->namespace, pod->claims[i]);
        remember(server->controllers->claims, key);
    }
}

/* A namespace is looked at again when it starts to go and when something in it is gone. */
static void content_changed(struct server *server, const struct version *version)
{
    if (is_kind(version, "namespaces") && version->deleting)
        remember(server->controllers->namespaces, version->name);
    else if (*version->namespace != '\0' && version->deleting)
        remember(server->controllers->namespaces, version->namespace);
}

void controllers_changed(struct server *server, const struct version *now, const struct version *old)
{
    struct controllers *controllers = server->controllers;
    /* nothing to do for a living object with the finalizer, nor for a dying one without */
    if (is_kind(now, "persistentvolumeclaims") && has_finalizer(now, PVC_FINALIZER) == now->deleting)
        remember(controllers->claims, now->key);
    if (is_kind(now, "persistentvolumes") && has_finalizer(now, PV_FINALIZER) == now->deleting)
        remember(controllers->volumes, now->key);
    if (is_kind(now, "pods")) {
        pod_changed(server, now);
        pod_changed(server, old);
    }
    if (now->owners[0] != NULL)
        controllers->owned++;
    content_changed(server, now);
    if (now->deleting && (has_finalizer(now, "foregroundDeletion") || has_finalizer(now, "orphan"))) {
        auto_free char *key = mem_printf("%zu %s", kind_index(now->kind), now->key);
        remember(controllers->terminating, key);
    }
}

void controllers_removed(struct server *server, const struct version *last)
{
    if (is_kind(last, "pods"))
        pod_changed(server, last);
    if (server->controllers->owned > 0)
        strv_add(&server->controllers->orphaned, last->uid);
    if (*last->namespace != '\0')
        remember(server->controllers->namespaces, last->namespace);
}

/* The position of a finalizer, or -1. */
static ssize_t find_finalizer(const json_t *object, const char *finalizer)
{
    size_t i;
    json_t *item;
    json_array_foreach (tree_get(object, "metadata.finalizers"), i, item) {
        if (str_eq(json_string_value(item), finalizer))
            return (ssize_t)i;
    }
    return -1;
}

static void set_finalizer(json_t *object, const char *finalizer, bool wanted)
{
    ssize_t at = find_finalizer(object, finalizer);
    if (wanted && at < 0) {
        tree_default(object, "metadata.finalizers", json_array());
        json_array_append_new(tree_get(object, "metadata.finalizers"), json_string(finalizer));
    } else if (!wanted && at >= 0) {
        json_array_remove(tree_get(object, "metadata.finalizers"), (size_t)at);
        if (json_array_size(tree_get(object, "metadata.finalizers")) == 0)
            tree_remove(object, "metadata.finalizers");
    }
}

/* Only pods that have a node count: a kubelet does not start others with a terminating claim. */
static bool claim_is_used(struct server *server, const struct version *claim)
{
    const struct kind *pods = kind_by_name("Pod", "");
    auto_free char *prefix = mem_printf("%s/", claim->namespace);
    for (struct store_item *item = store_seek(server->store, pods, prefix); item != NULL; item = store_next(item)) {
        const struct version *pod = store_item_version(item);
        if (!str_starts(pod->key, prefix))
            break;
        if (*pod->fields[0] == '\0') /* spec.nodeName */
            continue;
        for (size_t i = 0; pod->claims[i] != NULL; i++)
            if (strcmp(pod->claims[i], claim->name) == 0)
                return true;
    }
    return false;
}

/* Adds the finalizer to living objects without it and takes it from terminating ones that nobody uses. */
static bool protect(struct server *server, const struct kind *kind, const char *key, const char *finalizer)
{
    struct version *version = store_get(server->store, kind, key);
    if (version == NULL)
        return false;
    auto_json json_t *object = version_parse(version);
    bool has = find_finalizer(object, finalizer) >= 0, claim = is_kind(version, "persistentvolumeclaims");
    bool used = claim ? claim_is_used(server, version) : str_eq(tree_text(object, "status.phase"), "Bound");
    if (version->deleting ? !has || used : has)
        return false;
    set_finalizer(object, finalizer, !version->deleting);
    server_put_or_finish(server, kind, key, object);
    return true;
}

static bool protect_all(struct server *server, struct map *keys, const struct kind *kind, const char *finalizer)
{
    bool wrote = false;
    auto_strv struct strv list = {0};
    for (struct map_iter it = {0}; map_next(keys, &it);)
        strv_add(&list, it.key);
    map_clear(keys);
    for (size_t i = 0; i < list.len && server->rules.protection; i++)
        wrote = protect(server, kind, list.items[i], finalizer) || wrote;
    return wrote;
}

/* The dependents of an owner, with references. */
static void find_dependents(struct server *server, const char *uid, struct store_snapshot *found)
{
    *found = (struct store_snapshot){0};
    for (size_t k = 0; k < kind_count; k++) {
        for (struct store_item *item = store_seek(server->store, &kind_table[k], ""); item; item = store_next(item)) {
            struct version *version = store_item_version(item);
            for (size_t i = 0; version->owners[i] != NULL; i++) {
                if (strcmp(version->owners[i], uid) != 0)
                    continue;
                found->items = mem_realloc_array(found->items, found->count + 1, sizeof(struct version *));
                found->items[found->count++] = version_ref(version);
                break;
            }
        }
    }
}

static void drop_owner(struct server *server, const struct version *dependent, const char *uid)
{
    size_t i;
    json_t *owner;
    auto_json json_t *object = version_parse(dependent);
    json_t *owners = tree_get(object, "metadata.ownerReferences");
    json_array_foreach (owners, i, owner) {
        if (str_eq(tree_text(owner, "uid"), uid)) {
            json_array_remove(owners, i);
            break;
        }
    }
    if (json_array_size(owners) == 0)
        tree_remove(object, "metadata.ownerReferences");
    server_put(server, dependent->kind, dependent->key, object);
}

/* The owner is gone: those with no other owner go too. */
static bool collect_garbage(struct server *server, const char *uid)
{
    struct store_snapshot found;
    find_dependents(server, uid, &found);
    bool wrote = found.count > 0;
    for (size_t i = 0; i < found.count; i++) {
        struct version *dependent = found.items[i];
        struct reply reply = {0};
        if (dependent->owners[1] != NULL)
            drop_owner(server, dependent, uid);
        else
            (void)delete_object(server, dependent->kind, dependent, NULL, false, &reply);
        reply_reset(&reply);
    }
    store_snapshot_free(&found);
    return wrote;
}

/* Foreground deletion deletes the dependents first and waits for them; orphaning cuts the references. */
static bool propagate(struct server *server, const char *entry)
{
    const char *key = strchr(entry, ' ') + 1;
    const struct kind *kind = &kind_table[strtoul(entry, NULL, 10)];
    struct version *version = store_get(server->store, kind, key);
    if (version == NULL || !version->deleting) {
        map_remove(server->controllers->terminating, entry);
        return false;
    }
    auto_json json_t *object = version_parse(version);
    bool orphan = find_finalizer(object, "orphan") >= 0, wrote = false;
    struct store_snapshot found;
    find_dependents(server, version->uid, &found);
    for (size_t i = 0; i < found.count; i++) {
        struct reply reply = {0};
        if (orphan)
            drop_owner(server, found.items[i], version->uid);
        else if (!found.items[i]->deleting)
            (void)delete_object(server, found.items[i]->kind, found.items[i], NULL, false, &reply);
        else
            continue;
        reply_reset(&reply);
        wrote = true;
    }
    if (orphan || found.count == 0) {
        set_finalizer(object, "orphan", false);
        set_finalizer(object, "foregroundDeletion", false);
        map_remove(server->controllers->terminating, entry);
        server_put_or_finish(server, kind, version->key, object);
        wrote = true;
    }
    store_snapshot_free(&found);
    return wrote;
}

static bool empty_namespace(struct server *server, const char *name)
{
    const struct kind *namespaces = kind_by_name("Namespace", "");
    struct version *version = store_get(server->store, namespaces, name);
    if (version == NULL || !version->deleting)
        return false;
    auto_free char *prefix = mem_printf("%s/", name);
    bool left = false, wrote = false;
    for (size_t k = 0; k < kind_count; k++) {
        struct store_snapshot all;
        if (!kind_table[k].namespaced ||
            store_snapshot(server->store, &kind_table[k], store_version(server->store), &all))
            continue;
        for (size_t i = 0; i < all.count; i++) {
            if (!str_starts(all.items[i]->key, prefix))
                continue;
            struct reply reply = {0};
            if (!all.items[i]->deleting) {
                (void)delete_object(server, &kind_table[k], all.items[i], NULL, false, &reply);
                wrote = true;
            }
            reply_reset(&reply);
            left = left || store_get(server->store, &kind_table[k], all.items[i]->key) != NULL;
        }
        store_snapshot_free(&all);
    }
    if (left)
        return wrote;
    auto_json json_t *object = version_parse(version);
    tree_remove(object, "spec.finalizers");
    server_put_or_finish(server, namespaces, version->key, object);
    return true;
}

static bool run_set(struct server *server, struct map *set, bool keep, bool (*run)(struct server *, const char *))
{
    auto_strv struct strv list = {0};
    bool wrote = false;
    for (struct map_iter it = {0}; map_next(set, &it);)
        strv_add(&list, it.key);
    if (!keep)
        map_clear(set);
    for (size_t i = 0; i < list.len; i++)
        wrote = run(server, list.items[i]) || wrote;
    return wrote;
}

bool controllers_run(struct server *server)
{
    struct controllers *controllers = server->controllers;
    bool wrote = false;
    if (map_len(controllers->claims) > 0)
        wrote |= protect_all(server, controllers->claims, kind_by_name("PersistentVolumeClaim", ""), PVC_FINALIZER);
    if (map_len(controllers->volumes) > 0)
        wrote |= protect_all(server, controllers->volumes, kind_by_name("PersistentVolume", ""), PV_FINALIZER);
    while (controllers->orphaned.len > 0) {
        auto_free char *uid = controllers->orphaned.items[--controllers->orphaned.len];
        wrote |= collect_garbage(server, uid);
    }
    if (map_len(controllers->terminating) > 0)
        wrote |= run_set(server, controllers->terminating, true, propagate);
    if (map_len(controllers->namespaces) > 0)
        wrote |= run_set(server, controllers->namespaces, false, empty_namespace);
    return wrote;
}
