/* SPDX-License-Identifier: Apache-2.0 */
/* Which claims and volumes are ours, and what has to be done with them. Pure. */
#ifndef BERTH_PROVISIONER_SELECT_H
#define BERTH_PROVISIONER_SELECT_H

#include "provisioner/config.h"

/* Cheap test on the object alone, for the reflector's filter and before anything is queued: unbound and annotated for
 * this driver (GA annotation hides the beta one), or migrated to it. */
bool claim_is_for_us(const struct provision_config *config, const struct kube_claim *claim);

enum claim_action {
    CLAIM_DROP, /* nothing to do for this claim, or not yet */
    CLAIM_STOP, /* the same, found late: its volume exists, or the class is somebody else's. Counted as a failed try, as
                   csi-provisioner does */
    CLAIM_PROVISION,
    CLAIM_CLASS_ERROR,
};
/* The rules in their order up to the start of provisioning. CLAIM_CLASS_ERROR (err filled): the class is missing,
 * retry. On CLAIM_PROVISION *class_ holds a reference. `volume_exists`: a volume of the claim's name is known already.
 */
enum claim_action claim_select(const struct provision_config *config, const struct provision_lookup *lookup,
                               const struct kube_claim *claim, bool volume_exists, struct kube_class **class_,
                               struct err *err);

bool volume_is_for_us(const struct provision_config *config, const struct kube_volume *volume);

enum volume_action {
    VOLUME_NOTHING,
    VOLUME_ADD_FINALIZER,    /* policy Delete, bound, not being deleted */
    VOLUME_REMOVE_FINALIZER, /* policy Retain or Recycle */
    VOLUME_DELETE,           /* Released, policy Delete: DeleteVolume, then the object, then the finalizer */
    VOLUME_RECYCLE,          /* Released (or Failed by a binder without recycler), policy Recycle, driver can scrub */
};
enum volume_action volume_select(const struct provision_config *config, const struct kube_volume *volume);

/* The provisioner secret for DeleteVolume: from the annotations, or for old volumes from the class's templates. `arena`
 * keeps the strings; reference->name NULL = none. */
struct secret_reference;
struct csi_arena;
int deletion_secret(const struct provision_config *config, const struct provision_lookup *lookup,
                    const struct kube_volume *volume, struct csi_arena *arena, struct secret_reference *reference,
                    struct err *err);
/* -1 with upstream's text when an attachment still names the volume. */
int deletion_check_attachments(const struct provision_lookup *lookup, const struct kube_volume *volume,
                               struct err *err);

#endif
