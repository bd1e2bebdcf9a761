/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of a volume is used, and whether more fits. Bytes are allocated bytes (blocks), so holes are free and a file
 * with several names counts once.
 *
 * Whatever may allocate does: account_enter, account_reserve of an upper bound, the operation, account_settle with what
 * it really took, account_leave. When the bound does not fit, the caller leaves and enters again exclusively: then
 * nobody else's reservation is in the way, and an exact figure decides. So a nearly full volume refuses nothing that
 * would fit, and no two writers pass the limit together.
 */
#ifndef BERTH_FUSE_ACCOUNT_H
#define BERTH_FUSE_ACCOUNT_H

#include "lib/base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ACCOUNT_BLOCK 4096

struct account {
    pthread_rwlock_t gate;
    atomic_int_fast64_t limit, used;
    atomic_int_fast64_t inode_limit, inodes;
    atomic_uint_fast64_t changes; /* grows with each change of used or inodes */
    pthread_mutex_t freed_lock;
    pthread_cond_t freed;
    uint64_t freed_count;
};
/* inode_limit 0: account_default_inodes of the limit. */
void account_init(struct account *account, int64_t limit, int64_t inode_limit, int64_t used, int64_t inodes);
void account_destroy(struct account *account);
/* One inode for each block, at least 1024. */
int64_t account_default_inodes(int64_t limit);
/* Counts at once; may be below what is used. */
void account_set_limit(struct account *account, int64_t limit, int64_t inode_limit);

void account_enter(struct account *account, bool exclusive);
void account_leave(struct account *account);

/* False when it does not fit; nothing is reserved then. 0 bytes always fit. */
bool account_reserve(struct account *account, int64_t bytes);
/* Gives `reserved` back and counts `delta` (may be negative, may pass the limit: it has happened). */
void account_settle(struct account *account, int64_t reserved, int64_t delta);
bool account_reserve_inode(struct account *account);
void account_release_inode(struct account *account);
/* Room left; negative when more is used than the limit allows. */
int64_t account_room(struct account *account);
/* Waits until something was freed since `*seen` or the deadline passed; *seen is moved on. False: the deadline. */
uint64_t account_freed(struct account *account);
bool account_wait_freed(struct account *account, struct clock *clock, uint64_t *seen, int64_t deadline);
/* Takes a fresh count as the truth, unless something changed since account_changes returned `changes`. */
void account_note_change(struct account *account); /* of something a count would see; inside the gate */
uint64_t account_changes(const struct account *account);
bool account_correct(struct account *account, uint64_t changes, int64_t used, int64_t inodes);

/* How far the blocks of [offset, offset + length) reach. */
int64_t account_bound(int64_t offset, int64_t length);

struct account_figures {
    int64_t limit, used, inode_limit, inodes;
};
struct account_figures account_figures(const struct account *account);

#endif
