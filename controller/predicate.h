/* SPDX-License-Identifier: Apache-2.0 */
/* The small questions about claims, volumes and pods that all decisions share. */
#ifndef BERTH_CONTROLLER_PREDICATE_H
#define BERTH_CONTROLLER_PREDICATE_H

#include "lib/kube/objects.h"

#include <stdbool.h>

#define PHASE_PENDING "Pending"
#define PHASE_AVAILABLE "Available"
#define PHASE_BOUND "Bound"
#define PHASE_RELEASED "Released"
#define PHASE_FAILED "Failed"
#define PHASE_LOST "Lost"

#define POLICY_RETAIN "Retain"
#define POLICY_RECYCLE "Recycle"
#define POLICY_DELETE "Delete"

/* An absent volumeMode means Filesystem. */
bool is_block(const char *volume_mode);
/* The volume is bound to the claim or reserved for it: same namespace and name, and no uid or the claim's. */
bool volume_refers_to(const struct kube_volume *volume, const struct kube_claim *claim);
bool volume_modes_differ(const struct kube_volume *volume, const struct kube_claim *claim);
/* Absent and "" are the same attributes class. */
bool attributes_classes_differ(const struct kube_volume *volume, const struct kube_claim *claim);
bool volume_is_too_small(const struct kube_volume *volume, const struct kube_claim *claim);
/* A mode the claim asks for and the volume lacks; NULL when there is none. */
const char *volume_lacks_mode(const struct kube_volume *volume, const struct kube_claim *claim);
static inline bool object_has_annotation(const struct kube_object *object, const char *key)
{
    return kube_annotation(object, key) != NULL;
}
/* Failed or Succeeded, or being deleted with no container running any more. */
bool pod_is_terminated(const struct kube_pod *pod);
/* "default/data": owned by the caller. */
static inline char *claim_key_of(const struct kube_claim *claim)
{
    return kube_object_key(&claim->object);
}
/* The default class among these: the newest one, then the first by name; NULL when there is none. */
const struct kube_class *class_default_of(struct kube_object *const *classes, size_t len);

#endif
