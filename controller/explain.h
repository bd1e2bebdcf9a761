/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a claim waits, in words a person can act on. The controller adds the text in square brackets to upstream's
 * events; kubectl-berth prints it. Pure. All texts are owned by the caller, hold no square brackets, and are "" when
 * there is nothing to add.
 */
#ifndef BERTH_CONTROLLER_EXPLAIN_H
#define BERTH_CONTROLLER_EXPLAIN_H

#include "controller/claim.h"
#include "controller/view.h"

/* What is known about an external provisioner; filled by whoever can ask the API server. */
struct driver_facts {
    bool known;         /* false: could not be found out, nothing is said */
    bool is_csi;        /* a CSIDriver object of that name exists */
    bool has_lease;     /* some Lease carries the name its provisioner would use */
    bool lease_is_live; /* … and was renewed within its duration */
    char lease_namespace[64];
};

/* "0/12 volumes fit: 5 bound to other claims, 4 smaller than 10Gi (largest 8Gi), 3 lack ReadWriteMany" */
char *explain_volumes(const struct controller_view *view, const struct kube_claim *claim);
/* What stands in the brackets behind the plan's event. facts may be NULL. */
char *explain_claim(const struct controller_view *view, const struct kube_claim *claim, const struct claim_plan *plan,
                    const struct driver_facts *facts);
/* "the driver x is not registered …" */
char *explain_driver(const char *provisioner, const struct driver_facts *facts);
/* "did you mean class gold?", or which ones there are. */
char *explain_missing_class(const struct controller_view *view, const char *name);
/* Why the claim cannot have the volume it names; also for claims that are bound to it. */
char *explain_volume_for_claim(const struct kube_claim *claim, const struct kube_volume *volume);

#endif
