/* SPDX-License-Identifier: Apache-2.0 */
/* NFSv4 attributes: a bitmap and the values in the order of their numbers, which libnfs leaves as bytes. */
#ifndef BERTH_NFS_NFS4_ATTR_H
#define BERTH_NFS_NFS4_ATTR_H

#include "drivers/nfs/share.h"

#include <stdint.h>

#define NFS4_ATTR_WORDS 2
extern const uint32_t nfs4_attr_stat[NFS4_ATTR_WORDS];  /* what struct share_attr wants */
extern const uint32_t nfs4_attr_entry[NFS4_ATTR_WORDS]; /* the same and the handle, for directory pages */
extern const uint32_t nfs4_attr_space[NFS4_ATTR_WORDS];
extern const uint32_t nfs4_attr_limits[NFS4_ATTR_WORDS]; /* largest read and write */

struct nfs4_attrs { /* what was found; `mask` bit n = attribute n */
    uint64_t mask;
    struct share_attr attr;
    struct share_fh fh;
    struct share_space space;
    uint64_t read_max, write_max;
    uint32_t error; /* of READDIR's entry */
};
/* False when the bytes are malformed or hold an attribute nobody asked for. */
bool nfs4_attrs_decode(const uint32_t *bitmap, uint32_t words, const char *data, size_t len, struct nfs4_attrs *out);

#define NFS4_SET_SIZE 128
/* Encodes what is to be set; gives the length. */
size_t nfs4_set_encode(const struct share_set *set, uint32_t bitmap[NFS4_ATTR_WORDS], char data[NFS4_SET_SIZE]);

/* "1000", "1000@domain", "user@domain": the local number; 65534 when nobody knows it. */
uint32_t nfs4_owner_id(const char *text, size_t len, bool group);

#endif
