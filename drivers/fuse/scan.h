/* SPDX-License-Identifier: Apache-2.0 */
/* The walk over a whole volume: what it uses, and, after a take-over, the handles of its files. */
#ifndef BERTH_FUSE_SCAN_H
#define BERTH_FUSE_SCAN_H

#include "drivers/fuse/handle.h"
#include "lib/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct scan_result {
    int64_t used;   /* bytes allocated, files with several names counted once */
    int64_t inodes; /* of these, without the root directory */
};
/* Walks data_fd, then the files in orphans_fd (-1 = none). What vanishes meanwhile is left out. `recover`: handles are
 * remembered. Any depth of directories, one open at a time. Fails with ERR_IO. */
int scan_volume(struct handles *handles, int data_fd, int orphans_fd, bool recover, struct scan_result *result,
                struct err *err);

#endif
