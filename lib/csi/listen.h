/* SPDX-License-Identifier: Apache-2.0 */
/* A listening unix socket whose file is private from the first moment and is removed only by its owner. Inside lib/csi.
 */
#ifndef BERTH_CSI_LISTEN_H
#define BERTH_CSI_LISTEN_H

#include "lib/base/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct csi_listener {
    char *path; /* owned */
    int fd;     /* non-blocking; -1 while closed */
    dev_t device;
    ino_t inode;
};

/* `path` is taken over, also on failure. A file left behind by a process that is gone is replaced. ERR_EXISTS when
 * somebody answers there or when it is no socket, ERR_NOT_FOUND when the directory is missing. */
int csi_listener_open(struct csi_listener *listener, char *path, mode_t mode, struct err *err);
/* Closes the socket and removes the file, unless another process has put its own there. Idempotent. */
void csi_listener_close(struct csi_listener *listener);
void csi_listener_free(struct csi_listener *listener);

#endif
