/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/account.h"

#define MIN_INODES 1024

int64_t account_default_inodes(int64_t limit)
{
    int64_t inodes = limit / ACCOUNT_BLOCK;
    return inodes > MIN_INODES ? inodes : MIN_INODES;
}

void account_init(struct account *account, int64_t limit, int64_t inode_limit, int64_t used, int64_t inodes)
{
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    /* whoever wants to look exactly must not starve under a steady stream of writers */
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&account->gate, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    pthread_mutex_init(&account->freed_lock, NULL);
    clock_cond_init(&account->freed);
    account->freed_count = 0;
    atomic_init(&account->used, used);
    atomic_init(&account->inodes, inodes);
    atomic_init(&account->changes, 0);
    atomic_init(&account->limit, 0);
    atomic_init(&account->inode_limit, 0);
    account_set_limit(account, limit, inode_limit);
}

void account_destroy(struct account *account)
{
    pthread_cond_destroy(&account->freed);
    pthread_mutex_destroy(&account->freed_lock);
    pthread_rwlock_destroy(&account->gate);
}

static void note_freed(struct account *account)
{
    pthread_mutex_lock(&account->freed_lock);
    account->freed_count++;
    pthread_cond_broadcast(&account->freed);
    pthread_mutex_unlock(&account->freed_lock);
}

void account_set_limit(struct account *account, int64_t limit, int64_t inode_limit)
{
    atomic_store(&account->limit, limit);
    atomic_store(&account->inode_limit, inode_limit > 0 ? inode_limit : account_default_inodes(limit));
    note_freed(account);
}

void account_enter(struct account *account, bool exclusive)
{
    if (exclusive)
        pthread_rwlock_wrlock(&account->gate);
    else
        pthread_rwlock_rdlock(&account->gate);
}

void account_leave(struct account *account)
{
    pthread_rwlock_unlock(&account->gate);
}

/* Adds `amount` if the sum stays within the limit. */
static bool add_within(atomic_int_fast64_t *sum, const atomic_int_fast64_t *limit, int64_t amount)
{
    int64_t old = atomic_load(sum);
    do {
        int64_t most = atomic_load(limit);
        if (old > most || amount > most - old)
            return false;
    } while (!atomic_compare_exchange_weak(sum, &old, old + amount));
    return true;
}

bool account_reserve(struct account *account, int64_t bytes)
{
    return bytes == 0 || add_within(&account->used, &account->limit, bytes);
}

void account_settle(struct account *account, int64_t reserved, int64_t delta)
{
    if (delta != 0)
        atomic_fetch_add(&account->changes, 1);
    if (delta != reserved)
        atomic_fetch_add(&account->used, delta - reserved);
    if (delta < 0)
        note_freed(account);
}

bool account_reserve_inode(struct account *account)
{
    if (!add_within(&account->inodes, &account->inode_limit, 1))
        return false;
    atomic_fetch_add(&account->changes, 1);
    return true;
}

void account_release_inode(struct account *account)
{
    atomic_fetch_sub(&account->inodes, 1);
    atomic_fetch_add(&account->changes, 1);
}

int64_t account_room(struct account *account)
{
    return atomic_load(&account->limit) - atomic_load(&account->used);
}

uint64_t account_freed(struct account *account)
{
    pthread_mutex_lock(&account->freed_lock);
    uint64_t count = account->freed_count;
    pthread_mutex_unlock(&account->freed_lock);
    return count;
}

bool account_wait_freed(struct account *account, struct clock *clock, uint64_t *seen, int64_t deadline)
{
    bool in_time = true;
    pthread_mutex_lock(&account->freed_lock);
    while (account->freed_count == *seen && in_time)
        in_time = clock_cond_wait(clock, &account->freed, &account->freed_lock, deadline);
    *seen = account->freed_count;
    pthread_mutex_unlock(&account->freed_lock);
    return in_time;
}

void account_note_change(struct account *account)
{
    atomic_fetch_add(&account->changes, 1);
}

uint64_t account_changes(const struct account *account)
{
    return atomic_load(&account->changes);
}

bool account_correct(struct account *account, uint64_t changes, int64_t used, int64_t inodes)
{
    account_enter(account, true); /* no reservation is under way */
    bool still = atomic_load(&account->changes) == changes;
    if (still) {
        atomic_store(&account->used, used);
        atomic_store(&account->inodes, inodes);
    }
    account_leave(account);
    return still;
}

int64_t account_bound(int64_t offset, int64_t length)
{
    if (length <= 0)
        return 0;
    int64_t first = offset / ACCOUNT_BLOCK, last = (offset + length - 1) / ACCOUNT_BLOCK;
    return (last - first + 1) * ACCOUNT_BLOCK;
}

struct account_figures account_figures(const struct account *account)
{
    return (struct account_figures){.limit = atomic_load(&account->limit),
                                    .used = atomic_load(&account->used),
                                    .inode_limit = atomic_load(&account->inode_limit),
                                    .inodes = atomic_load(&account->inodes)};
}
