/* SPDX-License-Identifier: Apache-2.0 */
/* The work functions of the queues: decide, apply, and again when the plan was only a step on the way. */
#include "controller/controller.h"

#include "controller/explainer.h"
#include "controller/patch.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#define STEPS 5 /* plans in a row for one object; each ANNEAL or LOOK_UP_LIVE happens once, so three would do */
#define RETRY_SOON (20 * CLOCK_MS)

/* Conflicts and objects that are gone are part of normal life: the next look settles them. */
static int sync_failed(const char *what, const char *key, const struct err *err)
{
    if (err_is(err, ERR_CONFLICT) || err_is(err, ERR_NOT_FOUND) || err_is(err, ERR_CANCELLED))
        log_v(3, what, kv_str("key", key), kv_err(err));
    else
        log_warn(what, kv_str("key", key), kv_err(err));
    return -1;
}

/* True when the object is to be left alone for now because of another binder; it is queued again. */
static bool leave_alone(struct controller *controller, struct kube_queue *queue, const struct kube_kind *kind,
                        const char *key)
{
    auto_free char *object = mem_printf("%s/%s", kind->singular, key);
    int64_t delay = fight_delay(controller->fight, object);
    if (delay > 0)
        kube_queue_add_after(queue, key, delay);
    return delay > 0;
}

/* ---- claims ---- */
static void emit(struct controller *controller, const struct kube_claim *claim, const struct claim_plan *plan)
{
    if (plan->event_reason == NULL || controller->options->mode == MODE_ANNOTATE)
        return;
    auto_free char *text = explainer_event_text(controller->explainer, claim, plan);
    kube_event_object(controller->events, &claim->object, plan->event_type, plan->event_reason, "%s", text);
}

static int apply_bind(struct controller *controller, struct kube_claim **claim, struct claim_plan *plan,
                      struct err *err)
{
    bool fresh = !object_has_annotation(&(*claim)->object, KUBE_ANN_BIND_COMPLETED);
    auto_free char *key = claim_key_of(*claim);
    if (write_bind(&controller->writer, &plan->volume, claim, err) != 0) {
        if (fresh)
            controller_metrics_fail(controller->metrics, OPERATION_PROVISION, key);
        return -1;
    }
    if (fresh) {
        controller_metrics_finish(controller->metrics, OPERATION_PROVISION, key);
        log_v(2, "Bound claim", kv_str("claim", key), kv_str("volume", plan->volume->object.meta.name));
    }
    return 0;
}

static int apply_class(struct controller *controller, struct kube_claim **claim, const struct claim_plan *plan,
                       struct err *err)
{
    auto_free char *key = claim_key_of(*claim);
    int result = write_claim(&controller->writer, claim, NULL, patch_claim_class(*claim, plan->text), err);
    controller_metrics_default_class(controller->metrics, result != 0);
    if (result != 0)
        return err_wrap(err, "can't update PersistentVolumeClaim[\"%s\"]", key);
    log_v(2, "Gave the claim the default class", kv_str("claim", key), kv_str("class", plan->text));
    return 0;
}

static int apply_lost(struct controller *controller, struct kube_claim **claim, const struct claim_plan *plan,
                      struct err *err)
{
    if (str_eq((*claim)->phase, PHASE_LOST))
        return 0;
    if (write_claim_phase(&controller->writer, claim, PHASE_LOST, err) != 0)
        return -1;
    emit(controller, *claim, plan);
    return 0;
}

/* An operation as upstream counts them, though it is short enough for the worker's own thread. */
static void apply_external(struct controller *controller, struct kube_claim **claim, const struct claim_plan *plan)
{
    auto_err struct err err = {0};
    auto_free char *key = claim_key_of(*claim);
    auto_free char *operation = operation_name("provision", key, (*claim)->object.meta.uid);
    if (operations_begin(controller->operations, operation) != OPERATION_STARTED)
        return;
    controller_metrics_start(controller->metrics, OPERATION_PROVISION, key, plan->text);
    json_t *patch = patch_claim_provisioner(&controller->view.profile, *claim, plan->text);
    bool failed = write_claim(&controller->writer, claim, NULL, patch, &err) != 0;
    if (failed) {
        sync_failed("Cannot annotate the claim for its provisioner", key, &err);
        controller_metrics_fail(controller->metrics, OPERATION_PROVISION, key);
        if (controller->view.profile.new_external_provisioning && !err_is(&err, ERR_CANCELLED))
            kube_event_object(controller->events, &(*claim)->object, KUBE_EVENT_WARNING, "ProvisioningFailed",
                              "Error saving claim: %s", kube_error_message(&err));
    } else {
        emit(controller, *claim, plan);
    }
    operations_end(controller->operations, operation, failed ? OPERATION_FAILED : OPERATION_DONE);
}

static int apply_claim(struct controller *controller, struct kube_claim **claim, struct claim_plan *plan,
                       struct err *err)
{
    auto_free char *key = claim_key_of(*claim);
    switch (plan->action) {
    case CLAIM_NOTHING:
        return 0;
    case CLAIM_ANNEAL:
        if (write_claim(&controller->writer, claim, NULL, patch_claim_migrated(*claim, plan->text), err) != 0)
            return err_wrap(err, "persistent Volume Controller can't anneal migration annotations");
        return 0;
    case CLAIM_BIND:
        return apply_bind(controller, claim, plan, err);
    case CLAIM_SET_CLASS:
        return apply_class(controller, claim, plan, err);
    case CLAIM_WAIT:
        emit(controller, *claim, plan);
        return write_claim_phase(&controller->writer, claim, PHASE_PENDING, err);
    case CLAIM_LOSE:
        return apply_lost(controller, claim, plan, err);
    case CLAIM_REPORT:
        emit(controller, *claim, plan);
        return 0;
    case CLAIM_PROVISION_EXTERNAL:
        apply_external(controller, claim, plan);
        return 0;
    case CLAIM_PROVISION_IN_TREE:
        host_path_provision_start(controller, *claim, plan->storage_class);
        return 0;
    case CLAIM_REFUSE:
        emit(controller, *claim, plan);
        return err_set(err, ERR_CONFLICT, "%s", plan->text);
    case CLAIM_RETRY_SOON:
        kube_queue_add_after(controller->claims, key, RETRY_SOON);
        return 0;
    case CLAIM_FAIL:
        return err_set(err, ERR_INVALID, "%s", plan->text);
    }
    return 0;
}

/* One decision at a time; the volume it chose is taken until the writes are done. */
static void decide_claim(struct controller *controller, const struct kube_claim *claim, struct claim_plan *plan)
{
    pthread_mutex_lock(&controller->decide_lock);
    if (controller->options->mode == MODE_ANNOTATE)
        claim_decide_annotate(&controller->view, claim, plan);
    else
        claim_decide(&controller->view, claim, plan);
    if (plan->action == CLAIM_BIND)
        map_set(controller->taken, plan->volume->object.meta.name, mem_strdup(claim->object.meta.uid));
    pthread_mutex_unlock(&controller->decide_lock);
}

static void claim_done(struct controller *controller, const char *taken)
{
    pthread_mutex_lock(&controller->decide_lock);
    map_remove(controller->taken, taken);
    pthread_mutex_unlock(&controller->decide_lock);
}

int sync_claim(void *arg, const char *key)
{
    struct controller *controller = arg;
    auto_unref struct kube_claim *claim = (struct kube_claim *)kube_store_get_key(controller->view.claims, key);
    if (claim == NULL || leave_alone(controller, controller->claims, &kube_kind_claim, key))
        return 0;
    for (int step = 0; step < STEPS; step++) {
        auto_err struct err err = {0};
        auto_claim_plan struct claim_plan plan = {0};
        decide_claim(controller, claim, &plan);
        log_v(4, "Decided about claim", kv_str("claim", key), kv_str("rule", plan.rule),
              kv_str("action", claim_action_name(plan.action)));
        auto_free char *taken = plan.action == CLAIM_BIND ? mem_strdup(plan.volume->object.meta.name) : NULL;
        bool again = plan.action == CLAIM_ANNEAL;
        int result = apply_claim(controller, &claim, &plan, &err);
        if (taken != NULL)
            claim_done(controller, taken);
        if (result != 0)
            return sync_failed("Claim sync failed", key, &err);
        if (!again)
            return 0;
    }
    return -1;
}

/* ---- volumes ---- */
static int look_up_claim(struct controller *controller, const struct kube_volume *volume, struct kube_claim **claim,
                         struct err *err)
{
    const struct kube_reference *ref = volume->claim_ref;
    *claim = NULL;
    if (*ref->namespace_ == '\0')
        return 0; /* no claim is without a namespace */
    struct kube_object *object = NULL;
    if (kube_get_if_any(controller->client, &kube_kind_claim, ref->namespace_, ref->name, &object, err) != 0)
        return -1;
    *claim = (struct kube_claim *)object;
    return 0;
}

static void emit_mismatch(struct controller *controller, const struct kube_volume *volume,
                          const struct kube_claim *claim)
{
    auto_free char *why = explain_volume_for_claim(claim, volume);
    kube_event_object(controller->events, &volume->object, KUBE_EVENT_WARNING, "VolumeMismatch",
                      "Cannot bind PersistentVolume to requested PersistentVolumeClaim \"%s\" due to incompatible "
                      "volumeMode. [%s]",
                      claim->object.meta.name, why);
    kube_event_object(controller->events, &claim->object, KUBE_EVENT_WARNING, "VolumeMismatch",
                      "Cannot bind PersistentVolume \"%s\" to requested PersistentVolumeClaim due to incompatible "
                      "volumeMode. [%s]",
                      volume->object.meta.name, why);
}

static int apply_volume(struct controller *controller, struct kube_volume **volume, const struct volume_plan *plan,
                        struct err *err)
{
    struct plan_writer *writer = &controller->writer;
    switch (plan->action) {
    case VOLUME_NOTHING:
    case VOLUME_LOOK_UP_LIVE: /* the caller's */
        return 0;
    case VOLUME_ANNEAL:
        if (write_volume(writer, volume, NULL,
                         patch_volume_anneal(*volume, plan->set_migrated, plan->migrated_to,
                                             plan->set_finalizers ? &plan->finalizers : NULL),
                         err) != 0)
            return err_wrap(err, "persistent Volume Controller can't anneal migration annotations or finalizer");
        return 0;
    case VOLUME_SET_PHASE:
        return write_volume_phase(writer, volume, plan->phase, err);
    case VOLUME_RELEASE:
        if (plan->phase != NULL && write_volume_phase(writer, volume, plan->phase, err) != 0)
            return -1;
        return reclaim_apply(controller, *volume, err);
    case VOLUME_UNBIND:
        return write_unbind(writer, volume, err);
    case VOLUME_MISMATCH:
        emit_mismatch(controller, *volume, plan->claim);
        return 0;
    case VOLUME_WAKE_CLAIM:
        kube_queue_add(controller->claims, plan->claim_key);
        return 0;
    case VOLUME_FAIL:
        return err_set(err, ERR_INVALID, "%s", plan->text);
    }
    return 0;
}

int sync_volume(void *arg, const char *key)
{
    struct controller *controller = arg;
    auto_unref struct kube_volume *volume = (struct kube_volume *)kube_store_get_key(controller->view.volumes, key);
    if (volume == NULL || leave_alone(controller, controller->volumes, &kube_kind_volume, key))
        return 0;
    auto_unref struct kube_claim *live_claim = NULL;
    bool looked = false;
    for (int step = 0; step < STEPS; step++) {
        auto_err struct err err = {0};
        auto_volume_plan struct volume_plan plan = {0};
        struct volume_live live = {live_claim};
        volume_decide(&controller->view, volume, looked ? &live : NULL, &plan);
        log_v(4, "Decided about volume", kv_str("volume", key), kv_str("rule", plan.rule),
              kv_str("action", volume_action_name(plan.action)));
        if (plan.action == VOLUME_LOOK_UP_LIVE && !looked) {
            if (look_up_claim(controller, volume, &live_claim, &err) != 0)
                return sync_failed("Volume sync failed", key, &err);
            looked = true;
            continue;
        }
        if (apply_volume(controller, &volume, &plan, &err) != 0)
            return sync_failed("Volume sync failed", key, &err);
        if (plan.action != VOLUME_ANNEAL)
            return 0;
    }
    return -1;
}
