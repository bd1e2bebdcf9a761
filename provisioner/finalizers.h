/* SPDX-License-Identifier: Apache-2.0 */
/* Our finalizer on volume objects, by strategic merge patches as csi-provisioner sends them. */
#ifndef BERTH_PROVISIONER_FINALIZERS_H
#define BERTH_PROVISIONER_FINALIZERS_H

#include "provisioner/provisioner.h"

/* Both look at the live object first; 0 also when there is nothing to do any more. */
int finalizer_add(struct provisioner *provisioner, const struct kube_volume *volume, struct err *err);
int finalizer_remove(struct provisioner *provisioner, const struct kube_volume *volume, struct err *err);

/* The patches; new references. */
json_t *finalizer_add_patch(const struct kube_strings *present, const char *finalizer);
json_t *finalizer_remove_patch(const char *finalizer);

#endif
