/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The merge patches this controller writes: each names only what changes and carries the resourceVersion it was made
 * from. All return a new reference owned by the caller, or NULL when there is nothing to change.
 */
#ifndef BERTH_CONTROLLER_PATCH_H
#define BERTH_CONTROLLER_PATCH_H

#include "controller/profile.h"
#include "lib/base/err.h"
#include "lib/kube/objects.h"

#include <jansson.h>

static inline void json_cleanup(json_t **json)
{
    json_decref(*json);
}
#define auto_json __attribute__((cleanup(json_cleanup)))

/* claimRef (whole) and bound-by-controller, as far as they are missing. */
json_t *patch_volume_bind(const struct kube_volume *volume, const struct kube_claim *claim);
/* To the status. NULL when the phase is right already, whatever the message. */
json_t *patch_volume_phase(const struct kube_volume *volume, const char *phase, const char *message);
/* Gives the volume back: all of claimRef when this controller put it there, else only its uid. Never NULL. */
json_t *patch_volume_unbind(const struct kube_volume *volume);
/* set_migrated/migrated_to: NULL removes. finalizers: NULL = leave them. Never NULL. */
json_t *patch_volume_anneal(const struct kube_volume *volume, bool set_migrated, const char *migrated_to,
                            const struct strv *finalizers);

json_t *patch_claim_bind(const struct kube_claim *claim, const struct kube_volume *volume);
/* To the status. *patch is NULL when there is nothing to change. volume NULL: what belongs to a volume is dropped.
 * Fails when the claim becomes Bound to a volume without capacity. */
int patch_claim_status(const struct controller_profile *profile, const struct kube_claim *claim, const char *phase,
                       const struct kube_volume *volume, json_t **patch, struct err *err);
json_t *patch_claim_class(const struct kube_claim *claim, const char *class_name);     /* never NULL */
json_t *patch_claim_migrated(const struct kube_claim *claim, const char *migrated_to); /* never NULL */
/* The storage-provisioner annotations, and migrated-to with them. NULL when they are there. */
json_t *patch_claim_provisioner(const struct controller_profile *profile, const struct kube_claim *claim,
                                const char *provisioner);
/* Takes selected-node away, so that the scheduler chooses again. NULL when it is not there. */
json_t *patch_claim_unselect_node(const struct kube_claim *claim);

#endif
