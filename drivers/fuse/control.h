/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket: limits and figures, for berth-holder. See drivers/common/fuse_control.h for what is said. */
#ifndef BERTH_FUSE_CONTROL_H
#define BERTH_FUSE_CONTROL_H

#include "drivers/common/fuse_control.h"
#include "drivers/fuse/account.h"
#include "lib/base/err.h"

#include <stddef.h>

#define CONTROL_MAX_PEERS 8

struct control {
    int listen_fd;
    int peers[CONTROL_MAX_PEERS];
    size_t peer_count;
    struct account *account;
};
/* Listens at path (an old socket there is replaced). */
int control_open(struct control *control, const char *path, struct account *account, struct err *err);
void control_close(struct control *control);
/* Serves what there is to serve, without waiting longer than until `timeout_ms` (-1 = for ever) or until one of
 * other_fds is readable: returns the index of that one, or -1. */
int control_wait(struct control *control, const int *other_fds, size_t count, int timeout_ms);

/* Pure: what is answered to `length` bytes. */
struct fuse_control_answer control_answer(struct account *account, const void *message, size_t length);

#endif
