/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reclaim policy Recycle, for drivers that say berth.recycle=true in GetPluginInfo's manifest: a released volume is
 * scrubbed (berth.v1.Recycler/Scrub) and its claimRef removed, whereupon the binder makes it Available.
 */
#ifndef BERTH_PROVISIONER_RECYCLE_H
#define BERTH_PROVISIONER_RECYCLE_H

#include "provisioner/provisioner.h"

/* 1 = recycled, 0 = nothing to do any more, -1 = error. */
int recycle_volume(struct provisioner *provisioner, const struct kube_volume *volume, struct err *err);

#endif
