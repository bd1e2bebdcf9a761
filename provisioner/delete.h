/* SPDX-License-Identifier: Apache-2.0 */
/* DeleteVolume for a released volume, then its object, then our finalizer. Each step may be repeated after a crash. */
#ifndef BERTH_PROVISIONER_DELETE_H
#define BERTH_PROVISIONER_DELETE_H

#include "provisioner/provisioner.h"

/* 1 = deleted, 0 = nothing to do any more, -1 = error. */
int delete_volume(struct provisioner *provisioner, const struct kube_volume *volume, struct err *err);
/* The secret for calls about an existing volume, owned by the caller: NULL when there is none, or when it cannot be had
 * (logged: the call goes on without, as with csi-provisioner). */
struct kube_secret *deletion_fetch_secret(struct provisioner *provisioner, const struct kube_volume *volume);

#endif
