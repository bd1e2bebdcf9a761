/* SPDX-License-Identifier: Apache-2.0 */
/* Making snapshots, for single ones and for groups. */
#ifndef BERTH_HOSTPATH_SNAPSHOTS_H
#define BERTH_HOSTPATH_SNAPSHOTS_H

#include "drivers/common/copy.h"
#include "drivers/hostpath/driver.h"

/* A new snapshot of the volume with a new id, not in the state yet. 5 when
 * there is no such volume. */
struct snapshot *snapshots_prepare(struct hostpath *driver, const char *volume_id, const char *name, struct err *err);
/* Copies the data; the caller pauses the writes before, and saves the record after it. */
int snapshots_copy(struct hostpath *driver, const struct snapshot *snapshot, bool skip_unreadable, struct stop *stop,
                   struct err *err);
/* Parameters of a VolumeSnapshotClass: ignoreFailedRead. 3 for others. */
int snapshots_read_parameters(struct csi_map parameters, bool *skip_unreadable, struct err *err);
void snapshots_discard(struct hostpath *driver, const char *id);

#endif
