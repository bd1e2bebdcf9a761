/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/view.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

static void index_pod_claims(const struct kube_object *object, struct strv *keys)
{
    const struct kube_pod *pod = (const struct kube_pod *)object;
    for (uint32_t i = 0; i < pod->claims.len; i++)
        strv_add_take(keys, mem_printf("%s/%s", object->meta.namespace_, pod->claims.items[i]));
}

static void index_unbound_claims(const struct kube_object *object, struct strv *keys)
{
    const struct kube_claim *claim = (const struct kube_claim *)object;
    if (*claim->volume_name == '\0' && !object_has_annotation(object, KUBE_ANN_BIND_COMPLETED))
        strv_add(keys, kube_claim_has_class(claim) ? kube_claim_class(claim) : VIEW_NO_CLASS_KEY);
}

void controller_view_init(struct controller_view *view, int minor)
{
    *view = (struct controller_view){
        .claims = kube_store_new(&kube_kind_claim),
        .volumes = kube_store_new(&kube_kind_volume),
        .classes = kube_store_new(&kube_kind_class),
        .pods = kube_store_new(&kube_kind_pod),
        .index = volume_index_new(),
        .dynamic_provisioning = true,
    };
    profile_init(&view->profile, minor);
    view->pods_by_claim = kube_store_add_index(view->pods, index_pod_claims);
    view->unbound_by_class = kube_store_add_index(view->claims, index_unbound_claims);
    volume_index_attach(view->index, view->volumes);
}

void controller_view_clear(struct controller_view *view)
{
    kube_store_free(view->claims);
    kube_store_free(view->volumes);
    kube_store_free(view->classes);
    kube_store_free(view->pods);
    volume_index_free(view->index);
    *view = (struct controller_view){0};
}

struct kube_claim *view_claim(const struct controller_view *view, const char *namespace_, const char *name)
{
    return (struct kube_claim *)kube_store_get(view->claims, namespace_, name);
}

struct kube_volume *view_volume(const struct controller_view *view, const char *name)
{
    return (struct kube_volume *)kube_store_get(view->volumes, NULL, name);
}

struct kube_class *view_class(const struct controller_view *view, const char *name)
{
    return (struct kube_class *)kube_store_get(view->classes, NULL, name);
}

struct kube_class *view_default_class(const struct controller_view *view)
{
    auto_objects struct kube_object_list classes = {0};
    kube_store_list(view->classes, &classes);
    const struct kube_class *best = class_default_of(classes.items, classes.len);
    return best == NULL ? NULL : (struct kube_class *)kube_object_ref((struct kube_object *)(uintptr_t)&best->object);
}

void view_pods_of_claim(const struct controller_view *view, const char *namespace_, const char *claim,
                        bool without_node, struct strv *names)
{
    auto_free char *key = mem_printf("%s/%s", namespace_, claim);
    auto_objects struct kube_object_list pods = {0};
    kube_store_find(view->pods, view->pods_by_claim, key, &pods);
    for (size_t i = 0; i < pods.len; i++) {
        const struct kube_pod *pod = (const struct kube_pod *)pods.items[i];
        if (pod_is_terminated(pod) || (without_node && !str_empty(pod->node_name)))
            continue;
        if (without_node)
            strv_add(names, pod->object.meta.name);
        else
            strv_add_take(names, kube_object_key(&pod->object));
    }
    strv_sort(names);
}

bool view_is_emptied(const struct controller_view *view, const struct kube_volume *volume)
{
    return view->is_emptied != NULL && view->is_emptied(view->taken_arg, volume);
}

int claim_is_delayed(const struct controller_view *view, const struct kube_claim *claim, bool *delayed, struct err *err)
{
    *delayed = false;
    const char *name = kube_claim_class(claim);
    if (*name == '\0')
        return 0;
    auto_unref struct kube_class *class = view_class(view, name);
    if (class == NULL)
        return 0;
    if (class->binding_mode == NULL)
        return err_set(err, ERR_INVALID, "VolumeBindingMode not set for StorageClass \"%s\"", name);
    *delayed = str_eq(class->binding_mode, "WaitForFirstConsumer");
    return 0;
}
