/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/provision.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/kube/events.h"

static void plan_report(struct claim_plan *plan, char *text)
{
    plan->action = CLAIM_REPORT;
    plan->event_type = KUBE_EVENT_WARNING;
    plan->event_reason = "ProvisioningFailed";
    plan->event_text = text;
}

char *provision_waiting_text(const struct controller_profile *profile, const char *provisioner)
{
    if (profile->new_external_provisioning)
        return mem_printf("Waiting for a volume to be created either by the external provisioner '%s' or manually by "
                          "the system administrator. If volume creation is delayed, please verify that the "
                          "provisioner is running and correctly registered.",
                          provisioner);
    return mem_printf("waiting for a volume to be created, either by external provisioner \"%s\" or manually created "
                      "by system administrator",
                      provisioner);
}

static void plan_external(const struct controller_view *view, struct claim_plan *plan, const char *provisioner)
{
    plan->action = CLAIM_PROVISION_EXTERNAL;
    plan->text = mem_strdup(provisioner);
    plan->event_type = KUBE_EVENT_NORMAL;
    plan->event_reason = "ExternalProvisioning";
    plan->event_text = provision_waiting_text(&view->profile, provisioner);
}

void provision_decide(const struct controller_view *view, const struct kube_claim *claim, struct claim_plan *plan)
{
    if (!view->dynamic_provisioning) {
        plan->action = CLAIM_NOTHING;
        return;
    }
    const char *name = kube_claim_class(claim);
    plan->storage_class = view_class(view, name);
    if (plan->storage_class == NULL) {
        plan_report(plan, mem_printf("storageclass.storage.k8s.io \"%s\" not found", name));
        return;
    }
    const char *provisioner = plan->storage_class->provisioner;
    const char *driver = profile_migrated_driver(&view->profile, provisioner);
    if (driver != NULL) {
        plan_external(view, plan, driver);
        return;
    }
    plan->plugin = profile_plugin_by_name(&view->profile, provisioner);
    if (plan->plugin != NULL && plan->plugin->provisions) {
        plan->action = CLAIM_PROVISION_IN_TREE;
        plan->text = mem_strdup(provisioner);
    } else if (!str_starts(provisioner, PLUGIN_IN_TREE_PREFIX)) {
        plan_external(view, plan, provisioner);
    } else if (plan->plugin != NULL) {
        plan_report(plan, mem_strdup("no provisionable volume plugin matched"));
    } else {
        plan_report(plan, mem_printf("no volume plugin matched name: %s", provisioner));
    }
}
