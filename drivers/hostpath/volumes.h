/* SPDX-License-Identifier: Apache-2.0 */
/* What the RPC files say about volumes and snapshots in the same way: parameters, capabilities, replies, pages. */
#ifndef BERTH_HOSTPATH_VOLUMES_H
#define BERTH_HOSTPATH_VOLUMES_H

#include "drivers/hostpath/driver.h"

/* Parameters of a StorageClass (or attributes of an inline volume) into volume->backend and ->kind. *backend_given: the
 * backend was named. `size` NULL: a parameter "size" is refused too. 3 for anything unknown. */
int volumes_read_parameters(struct csi_map parameters, struct volume *volume, bool *backend_given, const char **size,
                            struct err *err);
/* 3 for a name that --accepted-mutable-parameter-names does not list. */
int volumes_check_mutable(const struct hostpath *driver, struct csi_map parameters, struct err *err);
void volumes_set_mutable(struct volume *volume, struct csi_map parameters);

void volumes_fill(const struct hostpath *driver, const struct volume *volume, struct csi_arena *arena,
                  Csi__V1__Volume *reply);
void volumes_fill_snapshot(const struct snapshot *snapshot, struct csi_arena *arena, Csi__V1__Snapshot *reply);
void volumes_fill_condition(const char *problem, struct csi_arena *arena, Csi__V1__VolumeCondition *reply);

/* Pages of a list in the order of ids: a token names the last id of the page before, so that entries that come and go
 * meanwhile neither shift nor break it. *after is "" for the first page; 10 for a token that is none of ours. */
int volumes_read_token(const char *token, const char **after, struct err *err);
char *volumes_make_token(struct csi_arena *arena, const char *last_id);

#endif
