/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to a released volume, by its reclaim policy. */
#include "controller/controller.h"

#include "lib/base/log.h"
#include "lib/base/str.h"

/* The label plugin_name of deletions: what deletes, never the annotation, which anybody may write. */
static void start_delete_timer(struct controller *controller, const struct kube_volume *volume,
                               const struct reclaim_plan *plan)
{
    auto_unref struct kube_class *class = NULL;
    const char *plugin = NULL;
    if (plan->action == RECLAIM_DELETE) {
        plugin = plan->plugin->name;
    } else if (plan->action == RECLAIM_EXTERNAL) {
        class = view_class(&controller->view, kube_volume_class(volume));
        if (class != NULL) {
            const char *driver = profile_migrated_driver(&controller->view.profile, class->provisioner);
            plugin = driver != NULL ? driver : class->provisioner;
        }
    }
    controller_metrics_start(controller->metrics, OPERATION_DELETE, volume->object.meta.name, plugin);
}

int reclaim_apply(struct controller *controller, struct kube_volume *volume, struct err *err)
{
    auto_reclaim_plan struct reclaim_plan plan = {0};
    reclaim_decide(&controller->view, volume, &plan);
    if (str_eq(volume->reclaim_policy, POLICY_DELETE) && plan.action != RECLAIM_NOTHING)
        start_delete_timer(controller, volume, &plan);
    switch (plan.action) {
    case RECLAIM_NOTHING:
    case RECLAIM_EXTERNAL: /* its provisioner acts on the phase Released, which we never spoil by Failed */
        return 0;
    case RECLAIM_FAIL: {
        auto_unref struct kube_volume *written = (struct kube_volume *)kube_object_ref(&volume->object);
        return write_volume_failed(&controller->writer, &written, plan.reason, plan.text, err);
    }
    case RECLAIM_RECYCLE:
        /* known to be impossible, and said so: nothing would come of trying */
        if (plan.plugin == NULL && str_eq(volume->phase, PHASE_FAILED))
            return 0;
        recycle_start(controller, volume);
        return 0;
    case RECLAIM_DELETE:
        host_path_delete_start(controller, volume);
        return 0;
    }
    return 0;
}

int reclaim_check(struct controller *controller, const struct kube_volume *volume, struct kube_volume **fresh,
                  bool *released, struct err *err)
{
    *released = false;
    *fresh = NULL;
    auto_unref struct kube_object *object = NULL;
    if (kube_get(controller->client, &kube_kind_volume, NULL, volume->object.meta.name, &object, err) != 0)
        return -1;
    struct kube_volume *now = (struct kube_volume *)object;
    if (!str_eq(object->meta.uid, volume->object.meta.uid) || !str_eq(now->reclaim_policy, volume->reclaim_policy))
        return 0;
    const struct kube_reference *ref = now->claim_ref;
    if (ref == NULL || *ref->uid == '\0')
        return 0;
    auto_unref struct kube_claim *cached = view_claim(&controller->view, ref->namespace_, ref->name);
    if (!volume_is_released(now, cached))
        return 0;
    /* What follows cannot be undone, and the store may be behind. */
    auto_unref struct kube_object *live = NULL;
    if (*ref->namespace_ != '\0' && *ref->name != '\0' &&
        kube_get_if_any(controller->client, &kube_kind_claim, ref->namespace_, ref->name, &live, err) != 0)
        return -1;
    if (!volume_is_released(now, (const struct kube_claim *)live))
        return 0;
    *released = true;
    *fresh = (struct kube_volume *)kube_object_ref(object);
    return 0;
}
