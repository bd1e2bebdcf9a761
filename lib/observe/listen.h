/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket of http.h; nothing else includes it. */
#ifndef BERTH_OBSERVE_LISTEN_H
#define BERTH_OBSERVE_LISTEN_H

#include "lib/base/err.h"

/* Listens on "host:port", "[::1]:port" or ":port" (all addresses, IPv6 and IPv4). Returns the socket (O_CLOEXEC, not
 * blocking) or -1; *port is the one in use, also when 0 was asked for. */
int listen_open(const char *address, int *port, struct err *err);

#endif
