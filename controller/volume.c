/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/volume.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

const char *volume_action_name(enum volume_action action)
{
    static const char *const names[] = {
        [VOLUME_NOTHING] = "nothing",
        [VOLUME_ANNEAL] = "anneal",
        [VOLUME_SET_PHASE] = "set-phase",
        [VOLUME_RELEASE] = "release",
        [VOLUME_UNBIND] = "unbind",
        [VOLUME_MISMATCH] = "mismatch",
        [VOLUME_WAKE_CLAIM] = "wake-claim",
        [VOLUME_LOOK_UP_LIVE] = "look-up-live",
        [VOLUME_FAIL] = "fail",
    };
    return names[action];
}

void volume_plan_clear(struct volume_plan *plan)
{
    free(plan->claim_key);
    free(plan->text);
    strv_free(&plan->finalizers);
    if (plan->claim != NULL)
        kube_object_unref(&plan->claim->object);
    *plan = (struct volume_plan){0};
}

/* ---- annotations and finalizers ---- */
static void decide_finalizers(const struct controller_view *view, const struct kube_volume *volume,
                              const char *provisioner, struct volume_plan *plan)
{
    const struct kube_strings *now = &volume->object.meta.finalizers;
    bool migrated = profile_migrated_driver(&view->profile, provisioner) != NULL;
    if (!migrated && !str_starts(provisioner, PLUGIN_IN_TREE_PREFIX))
        return;
    bool deletes = !migrated && str_eq(volume->reclaim_policy, POLICY_DELETE);
    bool ours = kube_strings_contain(now, KUBE_FINALIZER_CONTROLLER);
    bool drop_ours =
        migrated || str_eq(volume->reclaim_policy, POLICY_RETAIN) || str_eq(volume->reclaim_policy, POLICY_RECYCLE);
    for (uint32_t i = 0; i < now->len; i++) {
        const char *finalizer = now->items[i];
        if ((drop_ours && str_eq(finalizer, KUBE_FINALIZER_CONTROLLER)) ||
            (!migrated && str_eq(finalizer, KUBE_FINALIZER_EXTERNAL_PROVISIONER)))
            plan->set_finalizers = true;
        else
            strv_add(&plan->finalizers, finalizer);
    }
    if (deletes && !ours) {
        strv_add(&plan->finalizers, KUBE_FINALIZER_CONTROLLER);
        plan->set_finalizers = true;
        /* The API server refuses new finalizers then. Upstream tries again and again and gets no further; so do we,
         * without the requests. */
        plan->impossible = volume->object.meta.deleting;
    }
}

/* True when nothing is to be changed. */
static bool decide_annotations(const struct controller_view *view, const struct kube_volume *volume,
                               struct volume_plan *plan)
{
    const char *provisioner = kube_annotation(&volume->object, KUBE_ANN_PROVISIONED_BY);
    if (provisioner == NULL)
        return true;
    const char *now = kube_annotation(&volume->object, KUBE_ANN_MIGRATED_TO);
    const char *want = profile_migrated_driver(&view->profile, provisioner);
    if (want == NULL ? !str_empty(now) : !str_eq(now, want)) {
        plan->set_migrated = true;
        plan->migrated_to = want;
    }
    if (view->profile.volume_finalizers)
        decide_finalizers(view, volume, provisioner, plan);
    if (!plan->set_migrated && !plan->set_finalizers)
        return true;
    plan->action = VOLUME_ANNEAL;
    plan->rule = "V0";
    if (plan->impossible) {
        plan->action = VOLUME_FAIL;
        plan->text = mem_strdup("persistent Volume Controller can't anneal migration annotations or finalizer: no new "
                                "finalizers can be added if the object is being deleted");
    }
    return false;
}

/* ---- the claim ---- */
static bool phase_is_final(const struct kube_volume *volume)
{
    return str_eq(volume->phase, PHASE_RELEASED) || str_eq(volume->phase, PHASE_FAILED);
}

/* Asks for a live look; fails for references that no object can have. */
static void plan_look_up(const struct controller_view *view, const struct kube_volume *volume, struct volume_plan *plan)
{
    const struct kube_reference *ref = volume->claim_ref;
    plan->action = VOLUME_LOOK_UP_LIVE;
    plan->rule = "V3";
    if (*ref->name == '\0') {
        plan->action = VOLUME_FAIL;
        plan->text = mem_strdup("resource name may not be empty");
    } else if (*ref->namespace_ == '\0' && !view->profile.looks_up_empty_namespace) {
        plan->action = VOLUME_FAIL;
        plan->text = mem_strdup("an empty namespace may not be set when a resource name is provided");
    }
}

/* What is irreversible looks at the live claim itself (reclaim.c), so a volume that is Released or Failed already and
 * of which nobody here will do anything costs no request at each resync. */
static bool nothing_follows(const struct controller_view *view, const struct kube_volume *volume)
{
    auto_reclaim_plan struct reclaim_plan reclaim;
    reclaim_decide(view, volume, &reclaim);
    return reclaim.action == RECLAIM_NOTHING || reclaim.action == RECLAIM_EXTERNAL;
}

/* *claim: a reference or NULL. False when the plan was filled instead. */
static bool find_claim(const struct controller_view *view, const struct kube_volume *volume,
                       const struct volume_live *live, struct kube_claim **claim, struct volume_plan *plan)
{
    const struct kube_reference *ref = volume->claim_ref;
    *claim = view_claim(view, ref->namespace_, ref->name);
    if (*claim == NULL && !phase_is_final(volume)) {
        if (live == NULL) {
            plan_look_up(view, volume, plan);
            return false;
        }
        if (live->claim != NULL)
            *claim = (struct kube_claim *)kube_object_ref(&live->claim->object);
    }
    if (*claim == NULL || str_eq((*claim)->object.meta.uid, ref->uid))
        return true;
    kube_object_unref(&(*claim)->object);
    *claim = NULL;
    if (live == NULL && !(phase_is_final(volume) && nothing_follows(view, volume))) {
        plan_look_up(view, volume, plan);
        return false;
    }
    if (live != NULL && live->claim != NULL && str_eq(live->claim->object.meta.uid, ref->uid))
        *claim = (struct kube_claim *)kube_object_ref(&live->claim->object);
    return true;
}

/* ---- the table ---- */
static void plan_phase(struct volume_plan *plan, const char *rule, const struct kube_volume *volume, const char *phase)
{
    plan->rule = rule;
    if (str_eq(volume->phase, phase))
        return;
    plan->action = VOLUME_SET_PHASE;
    plan->phase = phase;
}

static void plan_release(struct volume_plan *plan, const char *rule, const struct kube_volume *volume)
{
    plan->action = VOLUME_RELEASE;
    plan->rule = rule;
    plan->phase = phase_is_final(volume) ? NULL : PHASE_RELEASED;
}

void volume_decide(const struct controller_view *view, const struct kube_volume *volume, const struct volume_live *live,
                   struct volume_plan *plan)
{
    *plan = (struct volume_plan){.action = VOLUME_NOTHING, .rule = ""};
    if (!decide_annotations(view, volume, plan))
        return;
    const struct kube_reference *ref = volume->claim_ref;
    if (ref == NULL || *ref->uid == '\0') {
        plan_phase(plan, ref == NULL ? "V1" : "V2", volume, PHASE_AVAILABLE);
        return;
    }
    auto_unref struct kube_claim *claim = NULL;
    if (!find_claim(view, volume, live, &claim, plan))
        return;
    if (claim == NULL) {
        plan_release(plan, "V3", volume);
    } else if (*claim->volume_name == '\0' && volume_modes_differ(volume, claim)) {
        plan->action = VOLUME_MISMATCH;
        plan->rule = "V4";
        plan->claim = mem_take(claim);
    } else if (*claim->volume_name == '\0') {
        plan->action = VOLUME_WAKE_CLAIM;
        plan->rule = "V5";
        plan->claim_key = claim_key_of(claim);
    } else if (str_eq(claim->volume_name, volume->object.meta.name)) {
        plan_phase(plan, "V6", volume, PHASE_BOUND);
    } else if (object_has_annotation(&volume->object, KUBE_ANN_PROVISIONED_BY) &&
               str_eq(volume->reclaim_policy, POLICY_DELETE)) {
        plan_release(plan, "V7", volume);
    } else {
        plan->action = VOLUME_UNBIND;
        plan->rule = "V8";
    }
}

/* ---- reclaim ---- */
void reclaim_plan_clear(struct reclaim_plan *plan)
{
    free(plan->text);
    *plan = (struct reclaim_plan){0};
}

static void plan_delete_failed(struct reclaim_plan *plan, char *text)
{
    plan->action = RECLAIM_FAIL;
    plan->reason = "VolumeFailedDelete";
    plan->text = text;
}

/* Who deletes it. */
static void decide_deleter(const struct controller_view *view, const struct kube_volume *volume,
                           struct reclaim_plan *plan)
{
    const char *provisioner = kube_annotation(&volume->object, KUBE_ANN_PROVISIONED_BY);
    if (!str_empty(provisioner)) {
        const struct controller_plugin *plugin = profile_plugin_by_name(&view->profile, provisioner);
        plan->plugin = plugin;
        if (plugin != NULL && plugin->deletes)
            plan->action = RECLAIM_DELETE;
        else if (!str_starts(provisioner, PLUGIN_IN_TREE_PREFIX))
            plan->action = RECLAIM_EXTERNAL;
        else if (plugin != NULL)
            plan_delete_failed(plan, mem_strdup("no deletable volume plugin matched"));
        else
            plan_delete_failed(plan, mem_printf("no volume plugin matched name: %s", provisioner));
        return;
    }
    if (view->profile.csi_is_external &&
        (volume->source == KUBE_SOURCE_CSI || object_has_annotation(&volume->object, KUBE_ANN_MIGRATED_TO))) {
        plan->action = RECLAIM_EXTERNAL;
        return;
    }
    plan->plugin = profile_plugin_by_source(&view->profile, volume);
    if (plan->plugin != NULL && plan->plugin->deletes) {
        plan->action = RECLAIM_DELETE;
        return;
    }
    plan_delete_failed(
        plan, mem_printf("%crror getting deleter volume plugin for volume \"%s\": %s",
                         view->profile.lower_case_errors ? 'e' : 'E', volume->object.meta.name,
                         plan->plugin != NULL ? "no deletable volume plugin matched" : "no volume plugin matched"));
}

void reclaim_decide(const struct controller_view *view, const struct kube_volume *volume, struct reclaim_plan *plan)
{
    *plan = (struct reclaim_plan){.action = RECLAIM_NOTHING};
    const char *policy = volume->reclaim_policy;
    if (!str_empty(kube_annotation(&volume->object, KUBE_ANN_MIGRATED_TO)) || str_eq(policy, POLICY_RETAIN))
        return;
    if (str_eq(policy, POLICY_RECYCLE)) {
        plan->action = RECLAIM_RECYCLE;
        plan->plugin = profile_plugin_by_source(&view->profile, volume);
        if (plan->plugin != NULL && !plan->plugin->recycles)
            plan->plugin = NULL;
    } else if (str_eq(policy, POLICY_DELETE)) {
        decide_deleter(view, volume, plan);
        /* older releases look at the deletion first, and then leave the volume to whoever holds it */
        if (plan->action == RECLAIM_FAIL && volume->object.meta.deleting && !view->profile.volume_finalizers)
            reclaim_plan_clear(plan);
    } else {
        plan->action = RECLAIM_FAIL;
        plan->reason = "VolumeUnknownReclaimPolicy";
        plan->text = mem_strdup("Volume has unrecognized PersistentVolumeReclaimPolicy");
    }
}

bool volume_is_released(const struct kube_volume *volume, const struct kube_claim *claim)
{
    const struct kube_reference *ref = volume->claim_ref;
    if (ref == NULL || *ref->uid == '\0')
        return false;
    if (claim == NULL || !str_eq(claim->object.meta.uid, ref->uid))
        return true;
    return *claim->volume_name != '\0' && !str_eq(claim->volume_name, volume->object.meta.name);
}
