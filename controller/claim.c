/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/claim.h"

#include "controller/match.h"
#include "controller/provision.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/kube/events.h"

const char *claim_action_name(enum claim_action action)
{
    static const char *const names[] = {
        [CLAIM_NOTHING] = "nothing",
        [CLAIM_ANNEAL] = "anneal",
        [CLAIM_BIND] = "bind",
        [CLAIM_SET_CLASS] = "set-class",
        [CLAIM_WAIT] = "wait",
        [CLAIM_LOSE] = "lose",
        [CLAIM_REPORT] = "report",
        [CLAIM_PROVISION_EXTERNAL] = "provision-external",
        [CLAIM_PROVISION_IN_TREE] = "provision-in-tree",
        [CLAIM_REFUSE] = "refuse",
        [CLAIM_RETRY_SOON] = "retry-soon",
        [CLAIM_FAIL] = "fail",
    };
    return names[action];
}

void claim_plan_clear(struct claim_plan *plan)
{
    free(plan->event_text);
    free(plan->text);
    if (plan->volume != NULL)
        kube_object_unref(&plan->volume->object);
    if (plan->storage_class != NULL)
        kube_object_unref(&plan->storage_class->object);
    *plan = (struct claim_plan){0};
}

const char *migration_target(const struct controller_view *view, const char *provisioner)
{
    return profile_migrated_driver(&view->profile, provisioner);
}

const char *claim_provisioner(const struct kube_claim *claim)
{
    const char *name = kube_annotation(&claim->object, KUBE_ANN_STORAGE_PROVISIONER);
    return name != NULL ? name : kube_annotation(&claim->object, KUBE_ANN_BETA_STORAGE_PROVISIONER);
}

/* Whole bytes, rounded up, are compared here, as upstream does; but without its overflow beyond 2^63-1. */
static bool is_too_small_in_bytes(const struct kube_volume *volume, const struct kube_claim *claim)
{
    const __int128 byte = 1000000000;
    return (volume->storage.nano + byte - 1) / byte < (claim->request.nano + byte - 1) / byte;
}

char *claim_check_volume(const struct kube_claim *claim, const struct kube_volume *volume)
{
    if (volume->object.meta.deleting)
        return mem_printf("the volume is marked for deletion \"%s\"", volume->object.meta.name);
    if (is_too_small_in_bytes(volume, claim))
        return mem_strdup("requested PV is too small");
    if (!str_eq(kube_volume_class(volume), kube_claim_class(claim)))
        return mem_strdup("storageClassName does not match");
    if (attributes_classes_differ(volume, claim))
        return mem_strdup("volumeAttributesClassName does not match");
    if (volume_modes_differ(volume, claim))
        return mem_strdup("incompatible volumeMode");
    if (volume_lacks_mode(volume, claim) != NULL)
        return mem_strdup("incompatible accessMode");
    return mem_strdup("");
}

static void plan_event(struct claim_plan *plan, const char *type, const char *reason, char *text)
{
    plan->event_type = type;
    plan->event_reason = reason;
    free(plan->event_text);
    plan->event_text = text;
}

/* True when the annotation is right. */
static bool decide_migration(const struct controller_view *view, const struct kube_claim *claim,
                             struct claim_plan *plan)
{
    const char *provisioner = claim_provisioner(claim);
    if (provisioner == NULL)
        return true;
    const char *now = kube_annotation(&claim->object, KUBE_ANN_MIGRATED_TO);
    const char *want = migration_target(view, provisioner);
    if (want == NULL ? str_empty(now) : str_eq(now, want))
        return true;
    plan->action = CLAIM_ANNEAL;
    plan->rule = "U0";
    plan->text = mem_strdup(want);
    return false;
}

static void plan_bind(struct claim_plan *plan, const char *rule, struct kube_volume *volume)
{
    plan->action = CLAIM_BIND;
    plan->rule = rule;
    plan->volume = volume;
}

static void plan_wait_for_consumer(const struct controller_view *view, const struct kube_claim *claim,
                                   struct claim_plan *plan)
{
    plan->action = CLAIM_WAIT;
    plan->rule = "U5";
    auto_strv struct strv pods = {0};
    view_pods_of_claim(view, claim->object.meta.namespace_, claim->object.meta.name, true, &pods);
    if (pods.len == 0) {
        plan_event(plan, KUBE_EVENT_NORMAL, "WaitForFirstConsumer",
                   mem_strdup("waiting for first consumer to be created before binding"));
        return;
    }
    auto_free char *names = strv_join(&pods, ",");
    plan_event(plan, KUBE_EVENT_NORMAL, "WaitForPodScheduled",
               mem_printf("waiting for %s %s to be scheduled", pods.len == 1 ? "pod" : "pods", names));
}

static void decide_unbound(const struct controller_view *view, const struct kube_claim *claim, struct claim_plan *plan)
{
    auto_err struct err err = {0};
    bool delayed;
    struct match match;
    if (claim_is_delayed(view, claim, &delayed, &err) != 0) {
        plan->action = CLAIM_FAIL;
        plan->rule = "U0";
        plan->text = mem_strdup(err_text(&err));
        return;
    }
    if (match_find(view, claim, delayed, &match, &err) != 0) {
        auto_free char *key = claim_key_of(claim);
        plan->action = CLAIM_FAIL;
        plan->rule = "U0";
        plan->text = mem_printf("error finding PV for claim \"%s\": %s", key, err_text(&err));
        return;
    }
    if (match.volume != NULL) {
        plan_bind(plan, "U1", match.volume);
        return;
    }
    if (match.blocked) {
        plan->action = CLAIM_RETRY_SOON;
        plan->rule = "U1";
        return;
    }
    if (view->profile.retroactive_default_class && !kube_claim_has_class(claim)) {
        struct kube_class *class = view_default_class(view);
        if (class != NULL) {
            plan->action = CLAIM_SET_CLASS;
            plan->rule = "U4";
            plan->text = mem_strdup(class->object.meta.name);
            plan->storage_class = class;
            return;
        }
    }
    if (delayed && !object_has_annotation(&claim->object, KUBE_ANN_SELECTED_NODE)) {
        plan_wait_for_consumer(view, claim, plan);
        return;
    }
    if (*kube_claim_class(claim) != '\0') {
        plan->rule = "U6";
        provision_decide(view, claim, plan);
        return;
    }
    plan->action = CLAIM_WAIT;
    plan->rule = "U7";
    plan_event(plan, KUBE_EVENT_NORMAL, "FailedBinding",
               mem_strdup("no persistent volumes available for this claim and no storage class is set"));
}

/* The claim's creator, or a bind that was interrupted, wants one volume. */
static void decide_named(const struct controller_view *view, const struct kube_claim *claim, struct claim_plan *plan)
{
    auto_unref struct kube_volume *volume = view_volume(view, claim->volume_name);
    if (volume == NULL) {
        plan->action = CLAIM_WAIT;
        plan->rule = "U10";
        return;
    }
    if (view->is_taken != NULL && view->is_taken(view->taken_arg, volume, claim)) {
        plan->action = CLAIM_RETRY_SOON;
        plan->rule = "U12";
        return;
    }
    const char *name = volume->object.meta.name;
    if (volume->claim_ref == NULL) {
        auto_free char *problem = claim_check_volume(claim, volume);
        if (*problem == '\0') {
            plan_bind(plan, "U12", mem_take(volume));
            return;
        }
        plan->action = CLAIM_WAIT;
        plan->rule = "U11";
        plan_event(plan, KUBE_EVENT_WARNING, "VolumeMismatch",
                   mem_printf("Cannot bind to requested volume \"%s\": %s", name, problem));
        plan->volume = mem_take(volume);
        return;
    }
    if (volume_refers_to(volume, claim)) {
        plan_bind(plan, "U13", mem_take(volume));
        return;
    }
    plan_event(plan, KUBE_EVENT_WARNING, "FailedBinding",
               mem_printf("volume \"%s\" already bound to a different claim.", name));
    plan->action = CLAIM_WAIT;
    plan->rule = "U14";
    if (object_has_annotation(&claim->object, KUBE_ANN_BOUND_BY_CONTROLLER)) {
        auto_free char *key = claim_key_of(claim);
        plan->action = CLAIM_REFUSE;
        plan->rule = "U15";
        plan->text = mem_printf("invalid binding of claim \"%s\" to volume \"%s\": volume already claimed by \"%s/%s\"",
                                key, name, volume->claim_ref->namespace_, volume->claim_ref->name);
    }
    plan->volume = mem_take(volume);
}

static void plan_lose(struct claim_plan *plan, const char *rule, const char *reason, const char *text)
{
    plan->action = CLAIM_LOSE;
    plan->rule = rule;
    plan_event(plan, KUBE_EVENT_WARNING, reason, mem_strdup(text));
}

static void decide_bound(const struct controller_view *view, const struct kube_claim *claim, struct claim_plan *plan)
{
    if (*claim->volume_name == '\0') {
        plan_lose(plan, "B1", "ClaimLost",
                  "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!");
        return;
    }
    auto_unref struct kube_volume *volume = view_volume(view, claim->volume_name);
    if (volume == NULL) {
        plan_lose(plan, "B2", "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
        return;
    }
    if (volume->claim_ref == NULL) {
        if (view->is_taken != NULL && view->is_taken(view->taken_arg, volume, claim)) {
            plan->action = CLAIM_RETRY_SOON;
            plan->rule = "B3";
            return;
        }
        plan_bind(plan, "B3", mem_take(volume));
        return;
    }
    if (*volume->claim_ref->uid != '\0' && str_eq(volume->claim_ref->uid, claim->object.meta.uid)) {
        plan_bind(plan, "B4", mem_take(volume));
        return;
    }
    plan_lose(plan, "B5", "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly");
}

void claim_decide(const struct controller_view *view, const struct kube_claim *claim, struct claim_plan *plan)
{
    *plan = (struct claim_plan){.action = CLAIM_NOTHING, .rule = ""};
    if (!decide_migration(view, claim, plan))
        return;
    if (object_has_annotation(&claim->object, KUBE_ANN_BIND_COMPLETED))
        decide_bound(view, claim, plan);
    else if (*claim->volume_name == '\0')
        decide_unbound(view, claim, plan);
    else
        decide_named(view, claim, plan);
    /* Somebody has edited a reference while the old data is being removed. What the claim wrote there would go, too. */
    if (plan->action == CLAIM_BIND && view_is_emptied(view, plan->volume))
        plan->action = CLAIM_NOTHING;
}

void claim_decide_annotate(const struct controller_view *view, const struct kube_claim *claim, struct claim_plan *plan)
{
    claim_decide(view, claim, plan);
    if (plan->action != CLAIM_PROVISION_EXTERNAL && plan->action != CLAIM_ANNEAL) {
        claim_plan_clear(plan);
        plan->rule = "annotate";
    }
}
