/* SPDX-License-Identifier: Apache-2.0 */
/* Where a new volume's content comes from. */
#ifndef BERTH_NFS_SNAPSHOT_H
#define BERTH_NFS_SNAPSHOT_H

#include "drivers/nfs/driver.h"

struct source { /* {0} is none */
    bool present;
    bool is_snapshot;
    struct handle handle;
    struct keylock_hold hold; /* shared with other readers */
    struct share *share;      /* of the source; owned */
    struct volume_source copy;
};
void source_clear(struct source *source);
/* Parses the request's content source into `source` and notes it in the wanted volume's record. An id that is none is
 * 5 NOT_FOUND. */
int source_read(struct nfs_driver *driver, const Csi__V1__VolumeContentSource *from, struct record *wanted,
                struct source *source, struct err *err);
/* Locks it, connects and finds its directory; checks that it fits the wanted size. Nothing to do without a source. */
int source_open(struct nfs_driver *driver, const struct record *wanted, struct source *source, struct csi_call *call,
                struct err *err);

#endif
