/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data: per kind a sorted list of objects and a log of what happened to them.
 *
 *   kind ─► skip list, by key:  default/a ─► default/b ─► other/a          key = "namespace/name" or "name"
 *      │                            │            │
 *      │                            ▼            ▼
 *      │                        version v7    version v9                 immutable, reference-counted JSON text
 *      └─► log (ring):  v3 ADDED a │ v7 MODIFIED a (was v3) │ v9 ADDED b  … watches read it, old ends are compacted
 * away
 *
 * One counter gives all kinds their resourceVersion. A list at an older version (the later pages of a list) is today's
 * list with the log undone. Used by one thread only.
 */
#ifndef BERTH_DEVAPI_STORE_H
#define BERTH_DEVAPI_STORE_H

#include "lib/base/clock.h"
#include "tests/devapi/kinds.h"

#include <stdint.h>

/* One version of one object. Text is stored as it is sent; what selectors and controllers look at is taken out of it
 * beforehand, so that a watch with a selector parses nothing. */
struct version {
    int refs;
    uint64_t resource_version;
    const struct kind *kind;
    const char *key;
    const char *namespace; /* "" for cluster-scoped kinds */
    const char *name;
    const char *uid;
    const char *const *labels;     /* key, value, key, value …, NULL */
    const char *const *fields;     /* in the order of kind->fields */
    const char *const *owners;     /* uids of ownerReferences, NULL */
    const char *const *claims;     /* pods: names of the claims they use, NULL */
    const char *const *finalizers; /* NULL-ended, as the others */
    bool deleting;
    const char *json;
    size_t json_len;
    size_t list_offset; /* behind {"kind":…,"apiVersion":…, which items of typed lists do not have; 0 when not so */
};
struct version *version_ref(struct version *version);
void version_unref(struct version *version);
json_t *version_parse(const struct version *version); /* a new tree */

enum event_type { EVENT_ADDED, EVENT_MODIFIED, EVENT_DELETED };
struct event {
    enum event_type type;
    int64_t time; /* monotonic */
    uint64_t resource_version;
    struct version *now; /* with DELETED: the last state, with the version of the deletion */
    struct version *old; /* NULL with ADDED */
};

struct store;
/* history: events kept per kind */
struct store *store_new(size_t history, struct clock *clock, struct rng *rng);
void store_free(struct store *store);

uint64_t store_version(const struct store *store);
struct version *store_get(const struct store *store, const struct kind *kind, const char *key); /* borrowed or NULL */
size_t store_count(const struct store *store, const struct kind *kind);
/* Makes `object` the current state of `key`: sets metadata.resourceVersion in it, appends to the log. Borrowed result.
 */
struct version *store_put(struct store *store, const struct kind *kind, const char *key, json_t *object);
/* Removes `key`, whose last state is `object`. Borrowed result, alive as long as the log keeps the event. */
struct version *store_remove(struct store *store, const struct kind *kind, const char *key, json_t *object);

/* Iteration in key order from the first key >= `from`; the item may be removed meanwhile once _next was called for it.
 */
struct store_item;
struct store_item *store_seek(const struct store *store, const struct kind *kind, const char *from);
struct store_item *store_next(const struct store_item *item);
struct version *store_item_version(const struct store_item *item);

/* The objects of a kind as they were at `resource_version`, in key order, each with a reference; the caller gives all
 * back with store_snapshot_free. -1 when the log does not reach back that far. */
struct store_snapshot {
    struct version **items;
    size_t count;
};
int store_snapshot(const struct store *store, const struct kind *kind, uint64_t resource_version,
                   struct store_snapshot *snapshot);
void store_snapshot_free(struct store_snapshot *snapshot);

/* The log of a kind. Events are numbered from 0; store_log_first is the oldest one still there. */
uint64_t store_log_first(const struct store *store, const struct kind *kind);
uint64_t store_log_end(const struct store *store, const struct kind *kind);
const struct event *store_log_event(const struct store *store, const struct kind *kind, uint64_t number);
/* The number of the first event after `resource_version`; -1 when events in between were compacted away. */
int store_log_after(const struct store *store, const struct kind *kind, uint64_t resource_version, uint64_t *number);
/* The oldest resourceVersion a watch of this kind can start from. */
uint64_t store_compacted(const struct store *store, const struct kind *kind);
/* Forgets all events up to now. */
void store_compact(struct store *store);

#endif
