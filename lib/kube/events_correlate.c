/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   event ─► merge similar ─► count up identical ─► token bucket ─► CREATE, PATCH or DROP
 *
 * Three memories of bounded size, as upstream's. Their keys are hashes of everything that counts (upstream keeps the
 * text itself, which with messages of a kilobyte makes megabytes). The order matters: a dropped event has been counted.
 */
#include "lib/kube/events_correlate.h"

#include "lib/base/mem.h"
#include "lib/base/slab.h"
#include "lib/base/str.h"
#include "lib/kube/lru.h"

#define KEY_LEN 32 /* 128 bits: nobody finds two events that share them */

/* Different messages about the same object with the same type and reason. */
struct similar {
    int64_t last; /* mono */
    size_t count;
    uint64_t messages[KUBE_EVENT_SIMILAR]; /* hashes, oldest first */
};

struct written {
    uint64_t count;
    int64_t first; /* wall */
    char *name;
};

struct bucket {
    double tokens;
    int64_t time; /* mono, of `tokens` */
};

struct kube_event_correlator {
    char *component, *host;
    struct clock *clock;
    struct rng *rng;
    struct lru *similar, *written, *buckets;
};

static void free_similar(void *value)
{
    slab_free(value, sizeof(struct similar));
}

static void free_written(void *value)
{
    struct written *written = value;
    slab_free_str(written->name);
    slab_free(written, sizeof(*written));
}

static void free_bucket(void *value)
{
    slab_free(value, sizeof(struct bucket));
}

struct kube_event_correlator *kube_event_correlator_new(const char *component, const char *host, struct clock *clock,
                                                        struct rng *rng)
{
    struct kube_event_correlator *correlator = mem_new(struct kube_event_correlator);
    correlator->component = mem_strdup(component);
    correlator->host = mem_strdup(host != NULL ? host : "");
    correlator->clock = clock;
    correlator->rng = rng;
    correlator->similar = lru_new(KUBE_EVENT_CACHE, free_similar);
    correlator->written = lru_new(KUBE_EVENT_CACHE, free_written);
    correlator->buckets = lru_new(KUBE_EVENT_CACHE, free_bucket);
    return correlator;
}

void kube_event_correlator_free(struct kube_event_correlator *correlator)
{
    if (correlator == NULL)
        return;
    lru_free(correlator->similar);
    lru_free(correlator->written);
    lru_free(correlator->buckets);
    free(correlator->component);
    free(correlator->host);
    free(correlator);
}

/* The hash of the texts, up to the first NULL; KEY_LEN hex digits, owned by the caller. */
static char *key_of(const char *const *texts)
{
    auto_str struct str joined = {0};
    for (; *texts != NULL; texts++)
        str_add_len(&joined, *texts, strlen(*texts) + 1);
    char *hex = str_sha256_hex(joined.data, joined.len);
    hex[KEY_LEN] = '\0';
    return hex;
}

static uint64_t hash_of(const char *message)
{
    auto_free char *hex = str_sha256_hex(message, strlen(message));
    hex[16] = '\0';
    return strtoull(hex, NULL, 16);
}

static char *similar_key(const struct kube_event_correlator *c, const struct kube_event_draft *d)
{
    const char *texts[] = {"similar",
                           c->component,
                           c->host,
                           d->involved.kind,
                           d->involved.namespace_,
                           d->involved.name,
                           d->involved.uid,
                           d->involved.api_version,
                           d->type,
                           d->reason,
                           NULL};
    return key_of(texts);
}

static char *identical_key(const struct kube_event_correlator *c, const struct kube_event_draft *d)
{
    const char *texts[] = {"identical",
                           c->component,
                           c->host,
                           d->involved.kind,
                           d->involved.namespace_,
                           d->involved.name,
                           d->involved.field_path,
                           d->involved.uid,
                           d->involved.api_version,
                           d->type,
                           d->reason,
                           d->message,
                           NULL};
    return key_of(texts);
}

static char *bucket_key(const struct kube_event_correlator *c, const struct kube_event_draft *d)
{
    const char *texts[] = {"bucket",
                           c->component,
                           c->host,
                           d->involved.kind,
                           d->involved.namespace_,
                           d->involved.name,
                           d->involved.uid,
                           d->involved.api_version,
                           d->type,
                           NULL};
    return key_of(texts);
}

/* Remembers the message; true when there are too many different ones by now. */
static bool is_one_too_many(struct similar *similar, const char *message)
{
    uint64_t hash = hash_of(message);
    for (size_t i = 0; i < similar->count; i++)
        if (similar->messages[i] == hash)
            return false;
    similar->messages[similar->count++] = hash;
    if (similar->count < KUBE_EVENT_SIMILAR)
        return false;
    similar->count--; /* make room for the next one: upstream forgets any, we the oldest */
    memmove(similar->messages, similar->messages + 1, similar->count * sizeof(similar->messages[0]));
    return true;
}

/* Returns the key under which the event counts, owned by the caller. */
static char *merge_similar(struct kube_event_correlator *correlator, struct kube_event_draft *draft)
{
    auto_free char *key = similar_key(correlator, draft);
    int64_t now = clock_mono(correlator->clock);
    struct similar *similar = lru_get(correlator->similar, key);
    if (similar == NULL) {
        similar = slab_new(struct similar);
        lru_set(correlator->similar, key, similar);
    } else if (now - similar->last > KUBE_EVENT_SIMILAR_SECONDS * CLOCK_SECOND) {
        similar->count = 0;
    }
    similar->last = now;
    if (!is_one_too_many(similar, draft->message))
        return identical_key(correlator, draft);

    auto_free char *merged = mem_printf("%s%s", KUBE_EVENT_MERGED_PREFIX, draft->message);
    free(draft->message);
    draft->message = kube_event_clean_message(merged);
    return mem_take(key);
}

static bool count_up(struct kube_event_correlator *correlator, const char *key, struct kube_event_draft *draft)
{
    struct written *written = lru_get(correlator->written, key);
    if (written != NULL) {
        free(draft->name);
        draft->name = mem_strdup(written->name);
        draft->first = written->first;
        draft->count = ++written->count;
        return true;
    }
    written = slab_new(struct written);
    written->count = draft->count;
    written->first = draft->first;
    written->name = slab_strdup(draft->name);
    lru_set(correlator->written, key, written);
    return false;
}

static bool take_token(struct kube_event_correlator *correlator, const struct kube_event_draft *draft)
{
    auto_free char *key = bucket_key(correlator, draft);
    int64_t now = clock_mono(correlator->clock);
    struct bucket *bucket = lru_get(correlator->buckets, key);
    if (bucket == NULL) {
        bucket = slab_new(struct bucket);
        bucket->tokens = KUBE_EVENT_BURST;
        lru_set(correlator->buckets, key, bucket);
    } else {
        bucket->tokens += (double)(now - bucket->time) / (double)(KUBE_EVENT_REFILL_SECONDS * CLOCK_SECOND);
        if (bucket->tokens > KUBE_EVENT_BURST)
            bucket->tokens = KUBE_EVENT_BURST;
    }
    bucket->time = now;
    /* many small refills must add up to a whole token in spite of rounding */
    if (bucket->tokens < 1 - 1e-9)
        return false;
    bucket->tokens -= 1;
    return true;
}

enum kube_event_action kube_event_correlate(struct kube_event_correlator *correlator, struct kube_event_draft *draft)
{
    auto_free char *key = merge_similar(correlator, draft);
    bool known = count_up(correlator, key, draft);
    if (!take_token(correlator, draft))
        return KUBE_EVENT_DROP;
    return known ? KUBE_EVENT_PATCH : KUBE_EVENT_CREATE;
}
