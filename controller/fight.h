/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices that somebody else works against us: another binder (usually kube-controller-manager's, left switched on)
 * that undoes what we write, or that writes the same just before us. Two binders do no harm to data, since every write
 * depends on the version it was made from, but they load the API server and double the events. A fight is logged with
 * what to do about it, and the objects concerned are left alone for a while.
 */
#ifndef BERTH_CONTROLLER_FIGHT_H
#define BERTH_CONTROLLER_FIGHT_H

#include "lib/base/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fight;
struct fight *fight_new(struct clock *clock);
void fight_free(struct fight *fight);
/* A write to the object went through; `change` says which (equal text = the same change again). */
void fight_note_write(struct fight *fight, const char *object, const char *change);
/* A write was refused because somebody else had changed the object. */
void fight_note_conflict(struct fight *fight, const char *object);
/* How long this object should be left alone: 0 = go on. */
int64_t fight_delay(struct fight *fight, const char *object);
void fight_forget(struct fight *fight, const char *object);
/* Fights noticed so far, for a metric. */
uint64_t fight_count(struct fight *fight);

#endif
