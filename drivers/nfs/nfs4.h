/* SPDX-License-Identifier: Apache-2.0 */
/* NFSv4 inside: compounds. */
#ifndef BERTH_NFS_NFS4_H
#define BERTH_NFS_NFS4_H

#include "drivers/nfs/nfs4_attr.h"
#include "drivers/nfs/share_private.h"

#include <nfsc/libnfs.h>

#include <nfsc/libnfs-raw-nfs4.h>
#include <nfsc/libnfs-raw.h>

#define NFS4_PORT 2049
/* libnfs 4 encodes a compound into a buffer of 4 KiB, whatever is in it: larger writes are cut and sent several at a
 * time. */
#define NFS4_WRITE_MAX ((uint64_t)3584)

struct compound { /* {0} to start with; points into the caller's arguments */
    struct nfs_argop4 ops[8];
    int count;
    uint32_t set_bitmap[NFS4_ATTR_WORDS];
    char set_data[NFS4_SET_SIZE];
};
void compound_put_fh(struct compound *compound, const struct share_fh *fh);
void compound_get_fh(struct compound *compound);
void compound_get_attr(struct compound *compound, const uint32_t words[NFS4_ATTR_WORDS]);
void compound_lookup(struct compound *compound, const char *name);
fattr4 compound_set(struct compound *compound, const struct share_set *set);
/* Queues it; call->reply is nfs4_reply unless set. */
int compound_start(struct compound *compound, struct share *share, struct share_call *call);
void nfs4_reply(struct share_call *call, void *data);
/* One operation's result, as a copy: the library does not align what it decodes. i < resarray_len. */
struct nfs_resop4 nfs4_result(const COMPOUND4res *res, unsigned i);

int nfs4_create(struct share *share, const struct share_fh *dir, const char *name, bool exclusive,
                const struct share_set *set, struct share_fh *fh, struct share_attr *attr);

#endif
