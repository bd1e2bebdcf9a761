/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local copy of all objects of one kind: fed by a reflector and by the replies of our own writes, read by
 * everybody. It never goes back: an object with a lower resourceVersion than the stored one is ignored, an equal one is
 * taken again (so that resyncs run); a reply that arrives after the watch has already told of the deletion is ignored
 * too.
 */
#ifndef BERTH_KUBE_STORE_H
#define BERTH_KUBE_STORE_H

#include "lib/kube/objects.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kube_store;
struct kube_store *kube_store_new(const struct kube_kind *kind);
void kube_store_free(struct kube_store *store);
const struct kube_kind *kube_store_kind(const struct kube_store *store);

/* Called for every change, in order, with the store's lock held: must be quick and must not call into this store. old
 * is NULL for a new object, new is NULL for a deleted one; both borrowed. Register before the store is filled. */
typedef void (*kube_store_listener)(void *arg, const struct kube_object *old, const struct kube_object *new_);
void kube_store_listen(struct kube_store *store, kube_store_listener listener, void *arg);

/* An index: `keys` adds 0 … n keys of an object to the list. Register before the store is filled; returns its number.
 */
typedef void (*kube_store_index_fn)(const struct kube_object *object, struct strv *keys);
int kube_store_add_index(struct kube_store *store, kube_store_index_fn keys);

/* A reference or NULL. */
struct kube_object *kube_store_get(struct kube_store *store, const char *namespace_, const char *name);
struct kube_object *kube_store_get_key(struct kube_store *store, const char *key);
size_t kube_store_len(struct kube_store *store);

struct kube_object_list {
    struct kube_object **items;
    size_t len, cap;
};
void kube_object_list_add(struct kube_object_list *list, struct kube_object *object); /* takes the reference */
void kube_object_list_free(struct kube_object_list *list);
#define auto_objects __attribute__((cleanup(kube_object_list_free)))
void kube_store_list(struct kube_store *store, struct kube_object_list *list); /* adds references, in no order */
void kube_store_find(struct kube_store *store, int index, const char *key, struct kube_object_list *list);
size_t kube_store_count(struct kube_store *store, int index,
                        const char *key); /* how many objects have that index key */
/* Visits all without copying references; same rules as a listener. `visit` returns false to stop. */
void kube_store_each(struct kube_store *store, bool (*visit)(void *arg, const struct kube_object *object), void *arg);

/* From a list or a watch. Takes its own reference. False when the stored one is newer, or when the object is known to
 * be gone: its uid was removed at that version or a later one (the last 4096 removals are remembered), or it is not in
 * the store although the last complete list is at least as new. Then nothing happened. */
bool kube_store_put(struct kube_store *store, struct kube_object *object);
/* From the reply to a write or a live GET: the same, but while a list runs it does not count as one of its items. */
bool kube_store_put_reply(struct kube_store *store, struct kube_object *object);
/* A deletion at resource_version of the object with that uid ("" = whichever). Ignored when the stored object is
 * another or newer one. */
void kube_store_remove(struct kube_store *store, const char *namespace_, const char *name, const char *uid,
                       uint64_t resource_version);
/* A list: begin, put every item, finish with the list's resourceVersion: what was not in it and is not newer is
 * removed, and what it tells otherwise about an object that is not newer than the list is taken. The list must not come
 * from a cache that lags behind what was seen before. */
void kube_store_relist_begin(struct kube_store *store);
void kube_store_relist_finish(struct kube_store *store, uint64_t resource_version);
/* The same for the list of a server whose history was reset (its database was restored from a backup), so that versions
 * seen before mean nothing: the store becomes what the list said, also where it goes back. */
void kube_store_relist_finish_reset(struct kube_store *store, uint64_t resource_version);
void kube_store_relist_abort(struct kube_store *store); /* the list broke off: nothing is removed */

#endif
