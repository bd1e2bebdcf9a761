/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leader election on a coordination.k8s.io/v1 Lease, compatible with client-go's: either implementation can hold the
 * same lease in turn. A foreign lease counts as expired only when it was not seen to change for its duration on *our*
 * clock. A named state machine: FOLLOWER → LEADER → (LOST | RELEASED).
 */
#ifndef BERTH_KUBE_LEADER_H
#define BERTH_KUBE_LEADER_H

#include "lib/kube/client.h"
#include "lib/kube/events.h"

struct kube_leader_options {
    struct kube_client *client; /* one of its own, not throttled by the controller's work */
    const char *namespace_, *name, *identity;
    int64_t lease_duration, renew_deadline, retry_period; /* ns; lease > renew > 1.2 × retry or kube_leader_new fails */
    const struct kube_pair *labels;                       /* extra labels on the Lease */
    size_t label_count;
    bool release_on_stop;       /* give the lease back on kube_leader_free */
    struct kube_events *events; /* LeaderElection events; NULL = none */
    struct clock *clock;
    struct rng *rng;
    /* From the election's thread when the lease was lost (could not renew within the deadline, or somebody else has
     * it). */
    void (*on_lost)(void *arg);
    void *on_lost_arg;
};
struct kube_leader;
int kube_leader_start(const struct kube_leader_options *options, struct kube_leader **leader, struct err *err);
/* 0 when we lead; -1 with ERR_CANCELLED when stop came first. */
int kube_leader_wait(struct kube_leader *leader, struct stop *stop, struct err *err);
bool kube_leader_leading(struct kube_leader *leader);
/* Still ours for certain: renewed less than the lease duration ago on our clock. For the last look before a write that
 * must not be done twice. */
bool kube_leader_valid(struct kube_leader *leader);
/* Renewals that took more than the one PUT (somebody else changed the lease, or the PUT failed): upstream's metric
 * leader_election_slowpath_total. */
uint64_t kube_leader_slow_renewals(struct kube_leader *leader);
/* /healthz/leader-election: fails when we lead and the last renewal is older than the lease duration plus 20 s. */
int kube_leader_check(void *leader, struct err *err);
void kube_leader_free(struct kube_leader *leader);
/* "hostpath.csi.k8s.io" → "hostpath-csi-k8s-io": the name csi-provisioner gives its lease. Owned by the caller. */
char *kube_leader_sanitize_name(const char *name);

#endif
