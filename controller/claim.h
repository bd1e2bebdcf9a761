/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to do about a claim. Pure: looks at the view, answers with a plan. The rule names (U1 … B5) are those of the
 * tables in docs/decisions.md, and appear in logs at verbosity 4.
 */
#ifndef BERTH_CONTROLLER_CLAIM_H
#define BERTH_CONTROLLER_CLAIM_H

#include "controller/view.h"

enum claim_action {
    CLAIM_NOTHING,
    CLAIM_ANNEAL,             /* set annotation migrated-to to `text` (NULL: remove it), then decide again */
    CLAIM_BIND,               /* to `volume`, in four writes */
    CLAIM_SET_CLASS,          /* spec.storageClassName = `text`, the default class */
    CLAIM_WAIT,               /* emit the event, if any, then phase Pending */
    CLAIM_LOSE,               /* phase Lost; the event only when the phase changes */
    CLAIM_REPORT,             /* emit the event, write nothing */
    CLAIM_PROVISION_EXTERNAL, /* annotate for provisioner `text`, then emit that it is waited for */
    CLAIM_PROVISION_IN_TREE,  /* make a volume with `plugin` */
    CLAIM_REFUSE,             /* emit the event, then fail with `text` */
    CLAIM_RETRY_SOON,         /* its volume is just being given to another claim: look again when that is done */
    CLAIM_FAIL,               /* fail with `text` */
};
struct claim_plan {
    enum claim_action action;
    const char *rule;
    const char *event_type, *event_reason; /* NULL = no event */
    char *event_text;                      /* upstream's text, owned */
    char *text;                            /* owned */
    struct kube_volume *volume;            /* reference: to bind to, or the one that is wanted and cannot be had */
    struct kube_class *storage_class;      /* reference, for provisioning */
    const struct controller_plugin *plugin;
};
void claim_decide(const struct controller_view *view, const struct kube_claim *claim, struct claim_plan *plan);
/* --mode=annotate: the same, but only external provisioning is left of it. */
void claim_decide_annotate(const struct controller_view *view, const struct kube_claim *claim, struct claim_plan *plan);
void claim_plan_clear(struct claim_plan *plan);
#define auto_claim_plan __attribute__((cleanup(claim_plan_clear)))
const char *claim_action_name(enum claim_action action);

/* Why a volume that the claim names cannot be used, "" when it can; owned by the caller. */
char *claim_check_volume(const struct kube_claim *claim, const struct kube_volume *volume);
/* The value migrated-to must have for this provisioner: the driver, or NULL for none. */
const char *migration_target(const struct controller_view *view, const char *provisioner);
/* The provisioner a claim is annotated with; NULL when it is not. */
const char *claim_provisioner(const struct kube_claim *claim);

#endif
