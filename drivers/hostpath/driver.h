/* SPDX-License-Identifier: Apache-2.0 */
/* The hostpath driver: what its RPC files share. */
#ifndef BERTH_HOSTPATH_DRIVER_H
#define BERTH_HOSTPATH_DRIVER_H

#include "drivers/common/holder_client.h"
#include "drivers/common/job.h"
#include "drivers/common/keylock.h"
#include "drivers/common/mount.h"
#include "drivers/hostpath/options.h"
#include "drivers/hostpath/state.h"
#include "lib/base/clock.h"
#include "lib/csi/server.h"

/*
 * Locks (keylock.h), always taken in this order, and all at once or none:
 *     name/NAME        while an object of that name is made
 *     volume/ID        while what is known of a volume changes: short
 *     data/ID          shared while a volume or snapshot is copied, exclusive while it grows or is deleted
 * So a long copy stands in the way of the deletion and the growth of its source, and of nothing else.
 */
struct hostpath {
    struct hostpath_options options;
    struct state *state;
    struct keylock *locks;
    struct jobs *jobs;
    struct holder_client *holder; /* NULL where there is no /dev/fuse */
    struct capacity *capacity;
    struct usage_cache *usage;
    struct clock *clock;
    struct rng *rng;
};

/* One table per file; main adds them all to the server. */
extern const struct csi_handlers hostpath_identity_handlers, hostpath_create_handlers, hostpath_controller_handlers,
    hostpath_attach_handlers, hostpath_expand_handlers, hostpath_snapshot_handlers, hostpath_group_handlers,
    hostpath_stage_handlers, hostpath_publish_handlers, hostpath_node_handlers;

/* The volume's record (owned by the caller), or -1 with 5 NOT_FOUND. */
int hostpath_find_volume(struct hostpath *driver, const char *id, struct volume **volume, struct err *err);
/* Locks the volume exclusively, then finds it. */
int hostpath_lock_volume(struct hostpath *driver, const char *id, struct keylock_hold *hold, struct volume **volume,
                         struct err *err);
bool hostpath_is_own_topology(const struct hostpath *driver, const Csi__V1__Topology *topology);

/* Why the volume is not well, owned by the caller; NULL when it is. Looks at the disk; `mounts` as they are now. */
char *hostpath_volume_problem(struct hostpath *driver, const struct volume *volume, const struct mount_list *mounts);

/* At start: thaws, drops what the record says is mounted but is not any more, takes away loop devices and mounts that
 * no record accounts for. Errors are logged. */
void hostpath_recover(struct hostpath *driver);

#endif
