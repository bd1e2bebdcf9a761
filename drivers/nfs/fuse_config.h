/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver tells the FUSE process of a volume, in a file. */
#ifndef BERTH_NFS_FUSE_CONFIG_H
#define BERTH_NFS_FUSE_CONFIG_H

#include "drivers/nfs/share.h"

struct fuse_config {
    struct share_location where;
    char *sub_dir;
    int64_t limit; /* bytes, 0 = none */
    int64_t timeout, usage_interval;
    uint32_t uid, gid; /* for measuring what is used: the driver's, not a caller's */
    bool soft;
};
void fuse_config_clear(struct fuse_config *config);
int fuse_config_write(const struct fuse_config *config, const char *path, struct err *err);
int fuse_config_read(const char *path, struct fuse_config *config, struct err *err);

#endif
