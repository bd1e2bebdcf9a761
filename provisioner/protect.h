/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finalizers on what claims are made from: put on before CreateVolume, so that nobody deletes a source while the driver
 * copies it; taken off a source claim that is being deleted once no claim waits for it, off a snapshot after success
 * and by a sweep (what a crash left).
 */
#ifndef BERTH_PROVISIONER_PROTECT_H
#define BERTH_PROVISIONER_PROTECT_H

#include "provisioner/request.h"

struct protector;
struct provisioner;

/* Before CreateVolume, on what request->protect_… name; nothing to do without a source. A refused update of a snapshot
 * is only logged: roles of older releases do not allow it. */
int protect_source(struct provisioner *provisioner, const struct provision_request *request, struct err *err);
/* After success: off the snapshot, unless another claim still waits for it. Failures are logged. */
void protect_source_done(struct provisioner *provisioner, const struct provision_request *request);

/* The two controllers: made before the stores are filled, so that changes reach them, and started when the stores are
 * complete: before that nobody knows who waits for what. */
struct protector *protect_new(struct provisioner *provisioner);
void protect_start(struct protector *protector);
void protect_stop(struct protector *protector); /* NULL is fine */
/* From the claims' listener: must not block. */
void protect_claim_changed(struct protector *protector, const struct kube_object *old, const struct kube_object *new_);

/* Whether a claim has not got its volume yet: phase Pending or none. */
bool protect_claim_is_waiting(const struct kube_claim *claim);

#endif
