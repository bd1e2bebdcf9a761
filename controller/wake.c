/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/wake.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

/* Keys of the queue: "class NAME" for the unbound claims of a class, "claim NAMESPACE/NAME" for one (or for what is
 * left of it). */
#define WAKE_CLASS "class "
#define WAKE_CLAIM "claim "

static void wake_class(const struct controller *controller, const char *name)
{
    auto_free char *key = mem_printf(WAKE_CLASS "%s", name);
    kube_queue_add_after(controller->wake, key, WAKE_DELAY);
}

static void wake_claim(const struct controller *controller, const char *namespace_, const char *name)
{
    auto_free char *key = mem_printf(WAKE_CLAIM "%s/%s", namespace_, name);
    kube_queue_add_after(controller->wake, key, WAKE_DELAY);
}

/* Listeners also hear the watch repeat what our own write has told them. */
static bool is_news(const struct kube_object *old, const struct kube_object *new_)
{
    return old == NULL || new_ == NULL || old->meta.resource_version != new_->meta.resource_version ||
           !str_eq(old->meta.uid, new_->meta.uid);
}

static void claim_is_gone(const struct controller *controller, const struct kube_claim *claim)
{
    auto_free char *key = claim_key_of(claim);
    auto_free char *operation = operation_name("provision", key, claim->object.meta.uid);
    auto_free char *object = mem_printf("%s/%s", kube_kind_claim.singular, key);
    controller_metrics_forget(controller->metrics, OPERATION_PROVISION, key);
    operations_forget(controller->operations, operation);
    fight_forget(controller->fight, object);
    if (*claim->volume_name != '\0')
        kube_queue_add(controller->volumes, claim->volume_name);
    else /* a volume may have been made for it */
        wake_claim(controller, claim->object.meta.namespace_, claim->object.meta.name);
}

void wake_on_claim(void *arg, const struct kube_object *old, const struct kube_object *new_)
{
    const struct controller *controller = arg;
    if (!is_news(old, new_))
        return;
    if (old != NULL && (new_ == NULL || !str_eq(old->meta.uid, new_->meta.uid)))
        claim_is_gone(controller, (const struct kube_claim *)old);
    if (new_ != NULL) {
        auto_free char *key = kube_object_key(new_);
        kube_queue_add(controller->claims, key);
    }
}

static void volume_is_gone(const struct controller *controller, const struct kube_volume *volume)
{
    const struct kube_meta *meta = &volume->object.meta;
    auto_free char *recycle = operation_name("recycle", meta->name, meta->uid);
    auto_free char *delete = operation_name("delete", meta->name, meta->uid);
    auto_free char *object = mem_printf("%s/%s", kube_kind_volume.singular, meta->name);
    controller_metrics_finish(controller->metrics, OPERATION_DELETE, meta->name);
    operations_forget(controller->operations, recycle);
    operations_forget(controller->operations, delete);
    fight_forget(controller->fight, object);
    if (volume->claim_ref != NULL) {
        auto_free char *key = mem_printf("%s/%s", volume->claim_ref->namespace_, volume->claim_ref->name);
        kube_queue_add(controller->claims, key);
    }
}

void wake_for_volume(const struct controller *controller, const struct kube_volume *volume)
{
    if (!str_eq(volume->phase, PHASE_AVAILABLE) || volume->object.meta.deleting)
        return;
    if (volume->claim_ref != NULL)
        wake_claim(controller, volume->claim_ref->namespace_, volume->claim_ref->name);
    else /* for claims of its class; those without any class take volumes without one */
        wake_class(controller, kube_volume_class(volume));
}

void wake_on_volume(void *arg, const struct kube_object *old, const struct kube_object *new_)
{
    const struct controller *controller = arg;
    if (!is_news(old, new_))
        return;
    if (old != NULL && (new_ == NULL || !str_eq(old->meta.uid, new_->meta.uid)))
        volume_is_gone(controller, (const struct kube_volume *)old);
    if (new_ == NULL)
        return;
    kube_queue_add(controller->volumes, new_->meta.name);
    wake_for_volume(controller, (const struct kube_volume *)new_);
}

void wake_on_class(void *arg, const struct kube_object *old, const struct kube_object *new_)
{
    const struct controller *controller = arg;
    if (!is_news(old, new_) || new_ == NULL)
        return;
    wake_class(controller, new_->meta.name);
    if (class_default_of((struct kube_object *const[]){(struct kube_object *)(uintptr_t)new_}, 1) != NULL)
        wake_class(controller, VIEW_NO_CLASS_KEY);
}

void wake_on_pod(void *arg, const struct kube_object *old, const struct kube_object *new_)
{
    const struct controller *controller = arg;
    const struct kube_pod *pod = (const struct kube_pod *)(new_ != NULL ? new_ : old);
    if (new_ != NULL && old != NULL &&
        pod_is_terminated((const struct kube_pod *)old) == pod_is_terminated((const struct kube_pod *)new_))
        return; /* claims ask whether there is a consumer, volumes to be recycled whether there is one left */
    for (uint32_t i = 0; i < pod->claims.len; i++)
        wake_claim(controller, pod->object.meta.namespace_, pod->claims.items[i]);
}

static void wake_claims_of(const struct controller *controller, const char *class_key)
{
    auto_objects struct kube_object_list claims = {0};
    kube_store_find(controller->view.claims, controller->view.unbound_by_class, class_key, &claims);
    for (size_t i = 0; i < claims.len; i++) {
        auto_free char *key = kube_object_key(claims.items[i]);
        kube_queue_add(controller->claims, key);
    }
}

static bool enqueue_volume(void *arg, struct kube_volume *volume)
{
    kube_queue_add(arg, volume->object.meta.name);
    return true;
}

/* An unbound claim itself; for one that is gone the volumes that still point at it. */
static void wake_one_claim(const struct controller *controller, const char *key)
{
    auto_free char *namespace_ = NULL;
    auto_free char *name = NULL;
    kube_key_split(key, &namespace_, &name);
    auto_unref struct kube_claim *claim = view_claim(&controller->view, namespace_, name);
    if (claim == NULL) {
        volume_index_lock(controller->view.index);
        volume_index_walk_claim(controller->view.index, namespace_, name, enqueue_volume, controller->volumes);
        volume_index_unlock(controller->view.index);
    } else if (!object_has_annotation(&claim->object, KUBE_ANN_BIND_COMPLETED)) {
        kube_queue_add(controller->claims, key);
    }
}

int wake_work(void *arg, const char *key)
{
    const struct controller *controller = arg;
    if (str_starts(key, WAKE_CLAIM)) {
        wake_one_claim(controller, key + strlen(WAKE_CLAIM));
        return 0;
    }
    const char *class_key = key + strlen(WAKE_CLASS);
    wake_claims_of(controller, class_key);
    if (*class_key == '\0')
        wake_claims_of(controller, VIEW_NO_CLASS_KEY);
    return 0;
}
