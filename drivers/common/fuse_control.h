/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What berth-holder says to a berth-fuse on its control socket (SOCK_SEQPACKET, root only): one fixed message, one
 * fixed answer. The two may be of different versions: a message of another size or magic is answered with EPROTO.
 */
#ifndef BERTH_DRIVERS_FUSE_CONTROL_H
#define BERTH_DRIVERS_FUSE_CONTROL_H

#include <stdint.h>

#define FUSE_CONTROL_MAGIC 0x62667331U /* "bfs1" */

enum fuse_control_kind {
    FUSE_CONTROL_STATS = 1,
    FUSE_CONTROL_SET_LIMIT = 2, /* limit and inode_limit (0 = by the limit) */
};
struct fuse_control_request {
    uint32_t magic;
    uint32_t kind;
    int64_t limit, inode_limit;
};
struct fuse_control_answer {
    uint32_t magic;
    int32_t error; /* errno; 0 = done */
    int64_t limit, used, inode_limit, inodes;
};

#endif
