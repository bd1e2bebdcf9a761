/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/capacity_owner.h"

void capacity_owner_clear(struct capacity_owner *owner)
{
    csi_arena_free(&owner->arena);
    *owner = (struct capacity_owner){0};
}

static void set(struct capacity_owner *owner, const char *api_version, const char *kind, const char *name,
                const char *uid)
{
    owner->api_version = csi_arena_strdup(&owner->arena, api_version);
    owner->kind = csi_arena_strdup(&owner->arena, kind);
    owner->name = csi_arena_strdup(&owner->arena, name);
    owner->uid = csi_arena_strdup(&owner->arena, uid);
}

static const struct kube_kind *kind_of(const struct capacity_owner *owner)
{
    if (str_eq(owner->kind, "Pod") && str_eq(owner->api_version, "v1"))
        return &kube_kind_pod;
    if (str_eq(owner->kind, "ReplicaSet") && str_starts(owner->api_version, "apps/"))
        return &kube_kind_replica_set;
    return NULL;
}

/* One step up, to the controller of what *owner names. */
static int climb(struct kube_client *client, const char *namespace_, struct capacity_owner *owner, struct err *err)
{
    const struct kube_kind *kind = kind_of(owner);
    auto_unref struct kube_object *object = NULL;
    if (kind == NULL)
        return err_set(err, ERR_INVALID, "the owner of a %s cannot be looked up; use a lower --capacity-ownerref-level",
                       owner->kind);
    if (kube_get(client, kind, namespace_, owner->name, &object, err) < 0)
        return err_wrap(err, "look up the owner of the capacity objects");
    for (uint32_t i = 0; i < object->meta.owner_count; i++) {
        const struct kube_owner *next = &object->meta.owners[i];
        if (next->controller) {
            set(owner, next->api_version, next->kind, next->name, next->uid);
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "%s %s/%s has no controller; use a lower --capacity-ownerref-level", owner->kind,
                   namespace_, owner->name);
}

int capacity_owner_find(struct kube_client *client, const char *namespace_, const char *pod, int64_t level,
                        struct capacity_owner *owner, struct err *err)
{
    *owner = (struct capacity_owner){0};
    if (level < 0)
        return 0;
    auto_unref struct kube_object *object = NULL;
    if (kube_get(client, &kube_kind_pod, namespace_, pod, &object, err) < 0)
        return err_wrap(err, "look up the Pod that owns the capacity objects");
    set(owner, "v1", "Pod", object->meta.name, object->meta.uid);
    for (int64_t i = 0; i < level; i++)
        if (climb(client, namespace_, owner, err) < 0) {
            capacity_owner_clear(owner);
            return -1;
        }
    return 0;
}
