/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns the capacity objects, so that they go with it: the Pod, or a controller above it. */
#ifndef BERTH_PROVISIONER_CAPACITY_OWNER_H
#define BERTH_PROVISIONER_CAPACITY_OWNER_H

#include "provisioner/provisioner.h"

struct capacity_owner {
    const char *api_version, *kind, *name, *uid; /* in the arena; all NULL = none */
    struct csi_arena arena;
};
void capacity_owner_clear(struct capacity_owner *owner);
/* level as --capacity-ownerref-level. Each level above 1 needs the right to get what stands there: ReplicaSets. */
int capacity_owner_find(struct kube_client *client, const char *namespace_, const char *pod, int64_t level,
                        struct capacity_owner *owner, struct err *err);

#endif
