/* SPDX-License-Identifier: Apache-2.0 */
/* Leader election with the lease, identity and timings of csi-provisioner, so that either may hold it. */
#ifndef BERTH_PROVISIONER_ELECTION_H
#define BERTH_PROVISIONER_ELECTION_H

#include "provisioner/provisioner.h"

struct election {
    struct provisioner *provisioner;
    char *name, *identity, *source;
    struct kube_events *events;
    uint64_t slow_renewals; /* as counted in the metric */
};
/* --leader-election-namespace, else $POD_NAMESPACE, else the service account's, else "default"; also the namespace of
 * the intent records. */
int election_find_namespace(struct provisioner *provisioner, struct err *err);
/* Waits until this process leads. Losing the lease later ends the process. */
int election_win(struct provisioner *provisioner, struct election *election, struct err *err);
void election_end(struct provisioner *provisioner, struct election *election);

#endif
