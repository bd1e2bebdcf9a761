/* SPDX-License-Identifier: Apache-2.0 */
/* Lists with paging, sorted by id: the token is the id after which the next page starts. */
#ifndef BERTH_NFS_LISTING_H
#define BERTH_NFS_LISTING_H

#include "drivers/nfs/driver.h"

int nfs_list_volumes(void *arg, const Csi__V1__ListVolumesRequest *request, Csi__V1__ListVolumesResponse *reply,
                     struct csi_call *call, struct err *err);

struct listing { /* records of one export */
    struct record *items;
    size_t len, cap;
};
void listing_clear(struct listing *listing);
#define auto_listing __attribute__((cleanup(listing_clear)))
int listing_read(struct area *area, const struct share_fh *dir, struct listing *listing, struct err *err);
/* First entry of a page; 10 ABORTED for a token that we did not give. */
int listing_start(const struct listing *listing, const char *token, size_t *start, struct err *err);

#endif
