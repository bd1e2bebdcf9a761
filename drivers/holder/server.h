/* SPDX-License-Identifier: Apache-2.0 */
/* The socket: who may ask, and what is understood. */
#ifndef BERTH_HOLDER_SERVER_H
#define BERTH_HOLDER_SERVER_H

#include "drivers/holder/holder.h"

#include <jansson.h>

/* Listens at path, for root only; a socket of a holder that is gone is replaced. */
int server_listen(const char *path, struct err *err);
/* Serves until a stop is requested, each connection on a thread of its own, and waits for those. */
int server_run(struct holder *holder, int listen_fd, struct err *err);

/* The answer to a request that is no hand-over; a new reference. */
json_t *server_answer(struct holder *holder, const json_t *request);

#endif
