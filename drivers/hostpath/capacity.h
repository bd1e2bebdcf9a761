/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is left to promise. The host's disk: what is free there, less what existing volumes were promised and have not
 * used yet. Simulated pools (--capacity): their size less the sizes of their volumes, and the host's disk as well. With
 * --allow-overcommit promises on the disk are not counted.
 */
#ifndef BERTH_HOSTPATH_CAPACITY_H
#define BERTH_HOSTPATH_CAPACITY_H

#include "drivers/hostpath/driver.h"

struct capacity;
struct capacity *capacity_new(void);
void capacity_free(struct capacity *capacity);

/* Bytes, never negative. `kind` NULL or "" = the pool with most (when there are pools). ERR_RPC 3 for a kind that is
 * none. */
int capacity_available(struct hostpath *driver, const char *kind, int64_t *available, struct err *err);

/* Room for `bytes` more, kept until it is released: when the record that counts from then on is written, or when it
 * will not be. `kind` NULL: on the disk only, whatever the pools; *kind is NULL or the wanted pool; with pools and no
 * wish the roomiest is put there (owned by the caller). 3 for a kind that is none, 8 when there is not enough. */
struct reservation {
    struct hostpath *driver; /* NULL = nothing is reserved */
    char *kind;
    int64_t bytes;
    struct reservation *next;
};
int capacity_reserve(struct hostpath *driver, char **kind, int64_t bytes, struct reservation *reservation,
                     struct err *err);
void capacity_release(struct reservation *reservation);
#define auto_reservation __attribute__((cleanup(capacity_release)))

#endif
