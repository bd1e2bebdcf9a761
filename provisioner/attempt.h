/* SPDX-License-Identifier: Apache-2.0 */
/* One try at a claim's volume: build the request, protect its source, record the intent, call the driver, save. */
#ifndef BERTH_PROVISIONER_ATTEMPT_H
#define BERTH_PROVISIONER_ATTEMPT_H

#include "provisioner/pending.h"
#include "provisioner/provisioner.h"

struct attempt {
    enum provision_state state;
    bool called;        /* the driver was asked */
    bool infeasible;    /* … and says that the request can never be met */
    bool node_selected; /* of the request */
    bool claim_is_gone; /* the call was a repetition for a claim that no longer exists or is no longer ours */
    char *class_name;   /* owned; for the capacity objects */
};
void attempt_clear(struct attempt *attempt);
#define auto_attempt __attribute__((cleanup(attempt_clear)))

/* A new request from the objects as they are now. *pending is what was remembered of the claim and becomes what has to
 * be. 0 when the claim has its volume, else -1. When no request can be built but an earlier call is in the background,
 * that one is repeated. */
int attempt_claim(struct provisioner *provisioner, const struct kube_claim *claim, const struct kube_class *class_,
                  struct pending_claim *pending, struct attempt *attempt, struct err *err);
/* The remembered call again, whatever became of the claim. */
int attempt_repeat(struct provisioner *provisioner, struct pending_claim *pending, bool claim_is_gone,
                   struct attempt *attempt, struct err *err);

#endif
