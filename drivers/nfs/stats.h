/* SPDX-License-Identifier: Apache-2.0 */
/* What a mounted volume uses, and whether it is well; never waits longer than a few seconds for a server. */
#ifndef BERTH_NFS_STATS_H
#define BERTH_NFS_STATS_H

#include "drivers/nfs/driver.h"

int nfs_get_volume_stats(void *arg, const Csi__V1__NodeGetVolumeStatsRequest *request,
                         Csi__V1__NodeGetVolumeStatsResponse *reply, struct csi_call *call, struct err *err);

#endif
