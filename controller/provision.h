/* SPDX-License-Identifier: Apache-2.0 */
/* Who makes a volume for a claim that found none: an external provisioner, this controller's own plugin, or nobody. */
#ifndef BERTH_CONTROLLER_PROVISION_H
#define BERTH_CONTROLLER_PROVISION_H

#include "controller/claim.h"

/* Fills the plan: PROVISION_EXTERNAL, PROVISION_IN_TREE, REPORT (why it cannot be) or NOTHING (switched off). */
void provision_decide(const struct controller_view *view, const struct kube_claim *claim, struct claim_plan *plan);
/* The text of the event ExternalProvisioning; owned by the caller. */
char *provision_waiting_text(const struct controller_profile *profile, const char *provisioner);

#endif
