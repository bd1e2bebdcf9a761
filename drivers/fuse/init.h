/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first exchange on a mount: the kernel says INIT once, and the answer holds for the life of the mount. Both are
 * kept in a file, so that a later process can be told the same (a synthetic INIT, whose answer goes nowhere) and can
 * make sure that it would have answered the same.
 */
#ifndef BERTH_FUSE_INIT_H
#define BERTH_FUSE_INIT_H

#include "lib/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#define INIT_MESSAGE_MAX 1024

struct init_exchange {
    size_t request_length, answer_length; /* answer_length 0 = not answered yet */
    _Alignas(8) unsigned char request[INIT_MESSAGE_MAX];
    _Alignas(8) unsigned char answer[INIT_MESSAGE_MAX];
};
/* Whether this is an INIT request that can be kept: its lengths agree. */
bool init_is_request(const void *message, size_t length);
int init_set_request(struct init_exchange *exchange, const void *request, size_t length, struct err *err);
/* Takes the answer as libfuse sends it, and adds what this libfuse does not know about: that we clear setuid bits and
 * capabilities ourselves, so that the kernel need not ask before each write. */
int init_set_answer(struct init_exchange *exchange, const struct iovec *parts, int count, struct err *err);
/* Whether the two answers promise the same to the kernel. */
bool init_same_answer(const struct init_exchange *a, const struct init_exchange *b);

/* Durable against a crash of the process, written in one step. */
int init_save(const struct init_exchange *exchange, const char *path, struct err *err);
/* ERR_NOT_FOUND when there is none; ERR_INVALID when it is damaged or of another format. */
int init_load(struct init_exchange *exchange, const char *path, struct err *err);

#endif
