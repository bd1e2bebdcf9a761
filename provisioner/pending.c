/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/pending.h"

#include "lib/base/clock.h"
#include "lib/base/map.h"
#include "lib/base/mem.h"

#include <pthread.h>
#include <stdlib.h>

struct delay {
    int64_t until;
    char *class_uid;
};
struct pending {
    struct clock *clock;
    pthread_mutex_t lock;
    struct map *claims; /* uid → struct pending_claim */
    struct map *delays; /* uid → struct delay */
    struct map *errors; /* uid → first error's text */
    struct map *bound;  /* uid → nothing of interest */
};

void pending_claim_clear(struct pending_claim *claim)
{
    free(claim->record);
    topology_memory_free(claim->memory);
    *claim = (struct pending_claim){0};
}

static void free_claim(void *value)
{
    pending_claim_clear(value);
    free(value);
}

static void free_delay(void *value)
{
    struct delay *delay = value;
    free(delay->class_uid);
    free(delay);
}

struct pending *pending_new(struct clock *clock)
{
    struct pending *pending = mem_new(struct pending);
    pending->clock = clock;
    pthread_mutex_init(&pending->lock, NULL);
    pending->claims = map_new(free_claim);
    pending->delays = map_new(free_delay);
    pending->errors = map_new(free);
    pending->bound = map_new(NULL);
    return pending;
}

void pending_free(struct pending *pending)
{
    if (pending == NULL)
        return;
    map_free(pending->claims);
    map_free(pending->delays);
    map_free(pending->errors);
    map_free(pending->bound);
    pthread_mutex_destroy(&pending->lock);
    free(pending);
}

size_t pending_len(struct pending *pending)
{
    pthread_mutex_lock(&pending->lock);
    size_t len = map_len(pending->claims);
    pthread_mutex_unlock(&pending->lock);
    return len;
}

bool pending_has(struct pending *pending, const char *uid)
{
    pthread_mutex_lock(&pending->lock);
    bool has = map_has(pending->claims, uid);
    pthread_mutex_unlock(&pending->lock);
    return has;
}

bool pending_take(struct pending *pending, const char *uid, struct pending_claim *claim)
{
    pthread_mutex_lock(&pending->lock);
    struct pending_claim *found = map_take(pending->claims, uid);
    pthread_mutex_unlock(&pending->lock);
    *claim = found != NULL ? *found : (struct pending_claim){0};
    free(found);
    return found != NULL;
}

void pending_put(struct pending *pending, const char *uid, struct pending_claim *claim)
{
    if (claim->kind == PENDING_NONE) {
        pending_claim_clear(claim);
        return;
    }
    struct pending_claim *copy = mem_dup(claim, sizeof(*claim));
    pthread_mutex_lock(&pending->lock);
    map_set(pending->claims, uid, copy);
    pthread_mutex_unlock(&pending->lock);
    *claim = (struct pending_claim){0};
}

void pending_delay(struct pending *pending, const char *uid, const char *class_uid, int64_t delay)
{
    struct delay *entry = mem_new(struct delay);
    entry->until = clock_mono(pending->clock) + delay;
    entry->class_uid = mem_strdup(class_uid);
    pthread_mutex_lock(&pending->lock);
    map_set(pending->delays, uid, entry);
    pthread_mutex_unlock(&pending->lock);
}

bool pending_is_delayed(struct pending *pending, const char *uid, const char *class_uid)
{
    pthread_mutex_lock(&pending->lock);
    const struct delay *delay = map_get(pending->delays, uid);
    bool delayed = delay != NULL && str_eq(delay->class_uid, class_uid) && clock_mono(pending->clock) < delay->until;
    if (delay != NULL && !delayed)
        map_remove(pending->delays, uid);
    pthread_mutex_unlock(&pending->lock);
    return delayed;
}

void pending_forget_delay(struct pending *pending, const char *uid)
{
    pthread_mutex_lock(&pending->lock);
    map_remove(pending->delays, uid);
    pthread_mutex_unlock(&pending->lock);
}

char *pending_first_error(struct pending *pending, const char *uid, const char *text)
{
    char *first = NULL;
    pthread_mutex_lock(&pending->lock);
    const char *known = map_get(pending->errors, uid);
    if (known == NULL)
        map_set(pending->errors, uid, mem_strdup(text));
    else if (!str_eq(known, text))
        first = mem_strdup(known);
    pthread_mutex_unlock(&pending->lock);
    return first;
}

void pending_forget_errors(struct pending *pending, const char *uid)
{
    pthread_mutex_lock(&pending->lock);
    map_remove(pending->errors, uid);
    pthread_mutex_unlock(&pending->lock);
}

void pending_expect_bound(struct pending *pending, const char *uid)
{
    pthread_mutex_lock(&pending->lock);
    map_set(pending->bound, uid, pending);
    pthread_mutex_unlock(&pending->lock);
}

bool pending_take_bound(struct pending *pending, const char *uid)
{
    pthread_mutex_lock(&pending->lock);
    bool expected = map_remove(pending->bound, uid);
    pthread_mutex_unlock(&pending->lock);
    return expected;
}
