/* SPDX-License-Identifier: Apache-2.0 */
/* The hostpath driver: what its RPC files share. */
#ifndef BERTH_HOSTPATH_DRIVER_H
#define BERTH_HOSTPATH_DRIVER_H

#include "drivers/common/keylock.h"
#include "drivers/hostpath/state.h"
#include "lib/base/clock.h"
#include "lib/csi/server.h"

#define HOSTPATH_TOPOLOGY_KEY                                                                                          \
    "topology.hostpath.csi/node" /* the peer driver's key, so that its volumes can move here */

struct hostpath_options {
    const char *name;    /* --drivername */
    const char *node_id; /* --nodeid */
    int64_t max_volume_size;
    int64_t max_volumes_per_node;
    bool topology;
    enum volume_backend default_backend;
};
struct hostpath {
    struct hostpath_options options;
    struct state *state;
    struct keylock *locks;
    struct clock *clock;
    struct rng *rng;
};

extern const struct csi_handlers hostpath_identity_handlers, hostpath_controller_handlers, hostpath_node_handlers;

/* The volume's record (owned by the caller), or -1 with 5 NOT_FOUND. */
int hostpath_find_volume(struct hostpath *driver, const char *id, struct volume **volume, struct err *err);
/* One text for equal capabilities. In the arena. */
char *hostpath_capability_text(struct csi_arena *arena, const Csi__V1__VolumeCapability *capability);

#endif
