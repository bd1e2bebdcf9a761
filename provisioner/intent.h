/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of CreateVolume that survive a crash. Before the first call for a claim, a Lease object with the request
 * (record.h) is made; it goes when the volume object is written or the call has surely made nothing. What a dead
 * process left is taken up at the start: such a call is repeated even when its claim is gone, so that the volume it may
 * have made gets an object and is deleted. Leases, because csi-provisioner's role already allows them; to users they
 * show who they are for as the holder. See docs/provisioner-safety.md.
 */
#ifndef BERTH_PROVISIONER_INTENT_H
#define BERTH_PROVISIONER_INTENT_H

#include "provisioner/provisioner.h"
#include "provisioner/request.h"

struct intents *intents_start(struct provisioner *provisioner);
void intents_stop(struct intents *intents); /* waits a little for outstanding removals; NULL is fine */
size_t intents_len(struct intents *intents);

/* Before CreateVolume. 0 when the record is written, unchanged since the last call, or not wanted; -1 when it is wanted
 * and could not be written: then the call must not be made. */
int intent_write(struct provisioner *provisioner, const struct kube_claim *claim, const char *record, struct err *err);
/* The outcome is known and kept elsewhere: the record goes, in the background. */
void intent_done(struct provisioner *provisioner, const char *claim_uid);

/* At the start, with complete stores and before the workers: takes up what was left. */
int intents_load(struct provisioner *provisioner, struct err *err);

#endif
