/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/fight.h"

#include "lib/base/log.h"
#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "lib/base/slab.h"
#include "lib/base/str.h"

#include <pthread.h>

/* One and the same change to one object this often within the window is no coincidence. */
#define SAME_CHANGE_LIMIT 12
/* So many refused writes within the window, when they are more than one for ten that went through: our own workers get
 * in each other's way for less than one in a hundred. */
#define CONFLICT_LIMIT 20
#define CONFLICT_SHARE 10
#define WINDOW (60 * CLOCK_SECOND)
#define FIRST_DELAY CLOCK_SECOND
#define MAX_DELAY (120 * CLOCK_SECOND)
#define WARN_EVERY (60 * CLOCK_SECOND)
#define OBJECTS_REMEMBERED 10000

struct fight_object {
    uint32_t change; /* hash of the last one */
    unsigned repeats;
    int64_t since, delay, not_before;
};
struct fight {
    pthread_mutex_t lock;
    struct clock *clock;
    struct map *objects; /* those that were written in this window */
    int64_t window_start, warned;
    uint64_t writes, conflicts; /* in this window */
    uint64_t count;
};

static void free_object(void *value)
{
    slab_free(value, sizeof(struct fight_object));
}

struct fight *fight_new(struct clock *clock)
{
    struct fight *fight = mem_new(struct fight);
    pthread_mutex_init(&fight->lock, NULL);
    fight->clock = clock == NULL ? clock_real() : clock;
    fight->objects = map_new(free_object);
    fight->window_start = clock_mono(fight->clock);
    fight->warned = fight->window_start - WARN_EVERY;
    return fight;
}

void fight_free(struct fight *fight)
{
    if (fight == NULL)
        return;
    map_free(fight->objects);
    pthread_mutex_destroy(&fight->lock);
    free(fight);
}

/* Starts a new window when the old one is over, or when there are too many objects to remember them all; those that are
 * backed off stay. */
static int64_t fight_now(struct fight *fight)
{
    int64_t now = clock_mono(fight->clock);
    bool full = map_len(fight->objects) >= OBJECTS_REMEMBERED;
    if (now - fight->window_start < WINDOW && !full)
        return now;
    fight->window_start = now;
    fight->writes = fight->conflicts = 0;
    for (struct map_iter it = {0}; map_next(fight->objects, &it);) {
        const struct fight_object *object = it.value;
        if (object->not_before < now && (full || now - object->since >= WINDOW))
            map_remove(fight->objects, it.key);
    }
    return now;
}

static void fight_warn(struct fight *fight, int64_t now, const char *what, const char *object)
{
    fight->count++;
    if (now - fight->warned < WARN_EVERY)
        return;
    fight->warned = now;
    log_warn(
        "Another controller works on the same volumes and claims; if it is kube-controller-manager's binder, start "
        "it with --controllers=*,-persistentvolume-binder-controller (before 1.28: -persistentvolume-binder)",
        kv_str("sign", what), kv_str("object", object), kv_uint("writes", fight->writes),
        kv_uint("conflicts", fight->conflicts));
}

static struct fight_object *fight_object(struct fight *fight, const char *name, int64_t now)
{
    struct fight_object *object = map_get(fight->objects, name);
    if (object == NULL) {
        object = slab_new(struct fight_object);
        object->since = now;
        map_set(fight->objects, name, object);
    }
    return object;
}

void fight_note_write(struct fight *fight, const char *name, const char *change)
{
    pthread_mutex_lock(&fight->lock);
    int64_t now = fight_now(fight);
    fight->writes++;
    struct fight_object *object = fight_object(fight, name, now);
    /* Writes of one binding alternate between a few kinds, so only the count of one of them is kept: the first. */
    uint32_t hash = str_fnv1a(change);
    if (now - object->since >= WINDOW || object->repeats == 0) {
        object->change = hash;
        object->repeats = 0;
        object->since = now;
    }
    if (object->change == hash && ++object->repeats >= SAME_CHANGE_LIMIT) {
        object->delay = object->delay == 0 ? FIRST_DELAY : 2 * object->delay;
        if (object->delay > MAX_DELAY)
            object->delay = MAX_DELAY;
        object->not_before = now + object->delay;
        fight_warn(fight, now, "what we wrote is undone again and again", name);
    }
    pthread_mutex_unlock(&fight->lock);
}

void fight_note_conflict(struct fight *fight, const char *name)
{
    pthread_mutex_lock(&fight->lock);
    int64_t now = fight_now(fight);
    if (++fight->conflicts >= CONFLICT_LIMIT && fight->conflicts * CONFLICT_SHARE > fight->writes) {
        fight_object(fight, name, now)->not_before = now + FIRST_DELAY; /* let the other one come to its end */
        fight_warn(fight, now, "many of our writes are refused as conflicts", name);
    }
    pthread_mutex_unlock(&fight->lock);
}

int64_t fight_delay(struct fight *fight, const char *name)
{
    pthread_mutex_lock(&fight->lock);
    const struct fight_object *object = map_get(fight->objects, name);
    int64_t left = object == NULL ? 0 : object->not_before - clock_mono(fight->clock);
    pthread_mutex_unlock(&fight->lock);
    return left > 0 ? left : 0;
}

void fight_forget(struct fight *fight, const char *object)
{
    pthread_mutex_lock(&fight->lock);
    map_remove(fight->objects, object);
    pthread_mutex_unlock(&fight->lock);
}

uint64_t fight_count(struct fight *fight)
{
    pthread_mutex_lock(&fight->lock);
    uint64_t count = fight->count;
    pthread_mutex_unlock(&fight->lock);
    return count;
}
