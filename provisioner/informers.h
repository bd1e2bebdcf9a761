/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept of the cluster: the classes, our unbound claims, our volumes, and only where the driver's capabilities
 * ask for it nodes, CSINodes, attachments, snapshots and grants. Claims and volumes of other drivers are decoded and
 * dropped. Changes go to the queues.
 */
#ifndef BERTH_PROVISIONER_INFORMERS_H
#define BERTH_PROVISIONER_INFORMERS_H

#include "lib/kube/reflector.h"
#include "lib/kube/store.h"

struct provisioner;

enum informer {
    INFORMER_CLASSES,
    INFORMER_CLAIMS,
    INFORMER_VOLUMES,
    INFORMER_NODES,
    INFORMER_CSI_NODES,
    INFORMER_ATTACHMENTS,
    INFORMER_SNAPSHOTS,
    INFORMER_GRANTS,
    INFORMER_COUNT,
};
struct informers {
    struct kube_store *stores[INFORMER_COUNT]; /* NULL = not watched */
    struct kube_reflector *reflectors[INFORMER_COUNT];
    int claims_by_uid, claims_by_source; /* indexes of the claims */
    int attachments_by_volume;
    bool snapshots_served; /* the snapshot API exists */
};

/* Makes the stores; nothing is asked of the server but whether the snapshot API exists. */
int informers_prepare(struct provisioner *provisioner, struct err *err);
/* Starts the reflectors and waits for the first lists. */
int informers_start(struct provisioner *provisioner, struct err *err);
void informers_free(struct informers *informers);
/* Puts all claims and volumes into the queues again. */
void informers_resync(struct provisioner *provisioner);

/* References or NULL. */
struct kube_claim *informers_claim_by_uid(struct provisioner *provisioner, const char *uid);
struct kube_volume *informers_volume(struct provisioner *provisioner, const char *name);

/* Name of a volume object of this driver with that handle, owned by the caller; NULL = none is known. Looks at all. */
char *informers_volume_of_handle(struct provisioner *provisioner, const char *handle);

/* Index key of claims by what they are made from: "claim/NAMESPACE/NAME" or "snapshot/NAMESPACE/NAME"; NULL = nothing.
 * Owned by the caller. */
struct kube_claim;
char *informers_source_key(const struct kube_claim *claim);

#endif
