/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/keylock.h"

#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "lib/csi/method.h"

#include <pthread.h>

struct keylock {
    pthread_mutex_t mutex;
    struct map *held; /* key → struct holders */
};

struct holders {
    bool exclusive;
    unsigned readers;
};

struct keylock *keylock_new(void)
{
    struct keylock *locks = mem_new(struct keylock);
    pthread_mutex_init(&locks->mutex, NULL);
    locks->held = map_new(free);
    return locks;
}

void keylock_free(struct keylock *locks)
{
    if (locks == NULL)
        return;
    map_free(locks->held);
    pthread_mutex_destroy(&locks->mutex);
    free(locks);
}

bool keylock_any_held(struct keylock *locks)
{
    pthread_mutex_lock(&locks->mutex);
    bool any = map_len(locks->held) > 0;
    pthread_mutex_unlock(&locks->mutex);
    return any;
}

static int hold_key(struct keylock *locks, const char *kind, const char *key, bool shared, struct keylock_hold *hold,
                    struct err *err)
{
    auto_free char *name = mem_printf("%s/%s", kind, key);
    pthread_mutex_lock(&locks->mutex);
    struct holders *holders = map_get(locks->held, name);
    bool free_now = holders == NULL || (shared && !holders->exclusive);
    if (free_now) {
        if (holders == NULL) {
            holders = mem_new(struct holders);
            map_set(locks->held, name, holders);
        }
        holders->exclusive = !shared;
        holders->readers += shared ? 1 : 0;
    }
    pthread_mutex_unlock(&locks->mutex);
    if (!free_now)
        return csi_fail(err, CSI_ABORTED, "an operation with %s %s already exists", kind, key);
    *hold = (struct keylock_hold){.locks = locks, .key = mem_take(name), .shared = shared};
    return 0;
}

int keylock_exclusive(struct keylock *locks, const char *kind, const char *key, struct keylock_hold *hold,
                      struct err *err)
{
    return hold_key(locks, kind, key, false, hold, err);
}

int keylock_shared(struct keylock *locks, const char *kind, const char *key, struct keylock_hold *hold, struct err *err)
{
    return hold_key(locks, kind, key, true, hold, err);
}

void keylock_release(struct keylock_hold *hold)
{
    struct keylock *locks = hold->locks;
    if (locks == NULL)
        return;
    pthread_mutex_lock(&locks->mutex);
    struct holders *holders = map_get(locks->held, hold->key);
    if (!hold->shared || --holders->readers == 0)
        map_remove(locks->held, hold->key);
    pthread_mutex_unlock(&locks->mutex);
    free(hold->key);
    *hold = (struct keylock_hold){0};
}
