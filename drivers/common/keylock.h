/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One operation at a time per volume (or snapshot, or name): a second one is told so at once with 10 ABORTED, as CSI
 * wants, instead of waiting. Readers of a clone's or snapshot's source share it.
 */
#ifndef BERTH_DRIVERS_KEYLOCK_H
#define BERTH_DRIVERS_KEYLOCK_H

#include "lib/base/err.h"

#include <stdbool.h>

struct keylock;
struct keylock *keylock_new(void);
void keylock_free(struct keylock *locks); /* nothing may be held */

bool keylock_any_held(struct keylock *locks);

/* 0 = held until keylock_release, which gets the handle; -1 = ERR_RPC with 10 and "an operation with … already exists".
 */
struct keylock_hold {
    struct keylock *locks; /* NULL = nothing is held */
    char *key;
    bool shared;
};
int keylock_exclusive(struct keylock *locks, const char *kind, const char *key, struct keylock_hold *hold,
                      struct err *err);
int keylock_shared(struct keylock *locks, const char *kind, const char *key, struct keylock_hold *hold,
                   struct err *err);
void keylock_release(struct keylock_hold *hold); /* fine when nothing is held */
/* `auto_keylock struct keylock_hold hold = {0};` releases at the end of the scope. */
#define auto_keylock __attribute__((cleanup(keylock_release)))

#endif
