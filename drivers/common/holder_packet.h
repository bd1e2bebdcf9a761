/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between berth-holder and its clients: one JSON object each, on a SOCK_SEQPACKET socket, with descriptors
 * beside it. A request has "op"; an answer has "ok", and when that is false "code" (err_code_name) and "message".
 */
#ifndef BERTH_DRIVERS_HOLDER_PACKET_H
#define BERTH_DRIVERS_HOLDER_PACKET_H

#include "lib/base/err.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#define HOLDER_PACKET_MAX ((size_t)64 * 1024)
#define HOLDER_PACKET_FDS 4

struct holder_packet {
    json_t *body; /* owned; NULL = the peer is gone */
    int fds[HOLDER_PACKET_FDS];
    size_t fd_count;
};
/* Frees the body and closes the descriptors that are still in it. */
void holder_packet_clear(struct holder_packet *packet);
#define auto_packet __attribute__((cleanup(holder_packet_clear)))

/* Deadlines are monotonic. ERR_TIMEOUT when it passed; ERR_UNAVAILABLE when the peer is gone (receive: body NULL and 0,
 * if that happened between messages); ERR_INVALID for what is no JSON object or too long. */
int holder_packet_send(int fd, const json_t *body, const int *fds, size_t fd_count, int64_t deadline, struct err *err);
int holder_packet_receive(int fd, struct holder_packet *packet, int64_t deadline, struct err *err);

/* The address of a socket path; ERR_INVALID when it is too long. */
int holder_packet_address(const char *path, struct sockaddr_un *address, struct err *err);
/* A connected descriptor, or -1: ERR_UNAVAILABLE when nobody listens. */
int holder_packet_connect(const char *path, struct err *err);

/* Puts an error into an answer, and takes it out again. */
json_t *holder_packet_failure(const struct err *err);
int holder_packet_check(const json_t *answer, struct err *err);

#endif
