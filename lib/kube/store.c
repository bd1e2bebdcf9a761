/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/store.h"

#include "lib/base/mem.h"
#include "lib/kube/store_private.h"

#include <pthread.h>

/* Deletions that are remembered: as many as may happen while the reply to one of our writes is on its way. */
#define GRAVES_MAX 4096

struct listener {
    kube_store_listener call;
    void *arg;
};

struct grave {
    uint64_t uid_hash;
    uint64_t version;
};

struct kube_store {
    const struct kube_kind *kind;
    pthread_mutex_t mutex;
    struct store_table table;
    struct store_index *indexes;
    size_t index_count;
    struct listener *listeners;
    size_t listener_count;
    struct grave *graves; /* a ring once it is full */
    size_t grave_count, grave_cap, grave_next;
    uint64_t listed; /* resourceVersion of the last complete list */
    uint32_t relist; /* number of the running or last list */
    bool relisting;
    struct kube_object_list refused; /* what the running list said and we believed to know better */
};

struct kube_store *kube_store_new(const struct kube_kind *kind)
{
    struct kube_store *store = mem_new(struct kube_store);
    store->kind = kind;
    pthread_mutex_init(&store->mutex, NULL);
    store_table_init(&store->table);
    return store;
}

void kube_store_free(struct kube_store *store)
{
    if (store == NULL)
        return;
    for (size_t i = 0; i < store->table.slot_count; i++)
        kube_object_unref(store->table.slots[i].object);
    for (size_t i = 0; i < store->index_count; i++)
        store_index_free(&store->indexes[i]);
    store_table_free(&store->table);
    kube_object_list_free(&store->refused);
    pthread_mutex_destroy(&store->mutex);
    free(store->indexes);
    free(store->listeners);
    free(store->graves);
    free(store);
}

const struct kube_kind *kube_store_kind(const struct kube_store *store)
{
    return store->kind;
}

static void unlock(pthread_mutex_t *const *mutex)
{
    pthread_mutex_unlock(*mutex);
}
/* Held until the end of the scope. */
#define HOLD(store)                                                                                                    \
    pthread_mutex_t *const held __attribute__((cleanup(unlock), unused)) = &(store)->mutex;                            \
    pthread_mutex_lock(held)

void kube_store_listen(struct kube_store *store, kube_store_listener listener, void *arg)
{
    HOLD(store);
    store->listeners = mem_realloc_array(store->listeners, store->listener_count + 1, sizeof(*store->listeners));
    store->listeners[store->listener_count++] = (struct listener){.call = listener, .arg = arg};
}

int kube_store_add_index(struct kube_store *store, kube_store_index_fn keys)
{
    HOLD(store);
    store->indexes = mem_realloc_array(store->indexes, store->index_count + 1, sizeof(*store->indexes));
    store_index_init(&store->indexes[store->index_count], keys);
    return (int)store->index_count++;
}

struct kube_object *kube_store_get(struct kube_store *store, const char *namespace_, const char *name)
{
    HOLD(store);
    struct store_slot *slot = store_table_find(&store->table, namespace_ != NULL ? namespace_ : "", name);
    return slot != NULL ? kube_object_ref(slot->object) : NULL;
}

struct kube_object *kube_store_get_key(struct kube_store *store, const char *key)
{
    auto_free char *namespace_ = NULL;
    auto_free char *name = NULL;
    kube_key_split(key, &namespace_, &name);
    return kube_store_get(store, namespace_, name);
}

size_t kube_store_len(struct kube_store *store)
{
    HOLD(store);
    return store->table.len;
}

void kube_object_list_add(struct kube_object_list *list, struct kube_object *object)
{
    if (list->len == list->cap) {
        list->cap = list->cap > 0 ? list->cap * 2 : 16;
        list->items = mem_realloc_array(list->items, list->cap, sizeof(void *));
    }
    list->items[list->len++] = object;
}

void kube_object_list_free(struct kube_object_list *list)
{
    if (list == NULL)
        return;
    for (size_t i = 0; i < list->len; i++)
        kube_object_unref(list->items[i]);
    free(list->items);
    *list = (struct kube_object_list){0};
}

void kube_store_list(struct kube_store *store, struct kube_object_list *list)
{
    HOLD(store);
    for (size_t i = 0; i < store->table.slot_count; i++) {
        if (store->table.slots[i].object != NULL)
            kube_object_list_add(list, kube_object_ref(store->table.slots[i].object));
    }
}

static const struct store_bucket *find_bucket(const struct kube_store *store, int index, const char *key)
{
    if (index < 0 || (size_t)index >= store->index_count)
        return NULL;
    return store_index_find(&store->indexes[index], key);
}

void kube_store_find(struct kube_store *store, int index, const char *key, struct kube_object_list *list)
{
    HOLD(store);
    const struct store_bucket *bucket = find_bucket(store, index, key);
    for (uint32_t i = 0; bucket != NULL && i < bucket->len; i++)
        kube_object_list_add(list, kube_object_ref(bucket->objects[i]));
}

size_t kube_store_count(struct kube_store *store, int index, const char *key)
{
    HOLD(store);
    const struct store_bucket *bucket = find_bucket(store, index, key);
    return bucket != NULL ? bucket->len : 0;
}

void kube_store_each(struct kube_store *store, bool (*visit)(void *arg, const struct kube_object *object), void *arg)
{
    HOLD(store);
    for (size_t i = 0; i < store->table.slot_count; i++) {
        const struct kube_object *object = store->table.slots[i].object;
        if (object != NULL && !visit(arg, object))
            return;
    }
}

/* The hash stands for the uid: with a secret seed two of them meet once in 2^64. */
static uint64_t hash_uid(const struct kube_store *store, const char *uid)
{
    return store_table_hash(&store->table, "", uid);
}

static void bury(struct kube_store *store, const char *uid, uint64_t version)
{
    if (*uid == '\0')
        return;
    if (store->grave_count == store->grave_cap && store->grave_cap < GRAVES_MAX) {
        store->grave_cap = store->grave_cap > 0 ? store->grave_cap * 2 : 64;
        store->graves = mem_realloc_array(store->graves, store->grave_cap, sizeof(*store->graves));
    }
    store->graves[store->grave_next] = (struct grave){.uid_hash = hash_uid(store, uid), .version = version};
    if (store->grave_count < store->grave_cap)
        store->grave_count++;
    store->grave_next = (store->grave_next + 1) % GRAVES_MAX;
}

static bool is_buried(const struct kube_store *store, const struct kube_meta *meta)
{
    if (store->grave_count == 0 || *meta->uid == '\0')
        return false;
    uint64_t hash = hash_uid(store, meta->uid);
    for (size_t i = 0; i < store->grave_count; i++) {
        if (store->graves[i].uid_hash == hash && meta->resource_version <= store->graves[i].version)
            return true;
    }
    return false;
}

static void announce(struct kube_store *store, struct kube_object *old, struct kube_object *new_)
{
    for (size_t i = 0; i < store->index_count; i++)
        store_index_update(&store->indexes[i], old, new_);
    for (size_t i = 0; i < store->listener_count; i++)
        store->listeners[i].call(store->listeners[i].arg, old, new_);
}

/* Whether we know already that this object, which is not in the store, is gone. A complete list knows of everything
 * that existed at its version; only a running list tells of things below that once more. */
static bool is_gone(const struct kube_store *store, const struct kube_meta *meta, bool listed)
{
    if (is_buried(store, meta))
        return true;
    return !listed && meta->resource_version != 0 && meta->resource_version <= store->listed;
}

/* Puts the object into its slot without any question; the store's reference to the old one is the caller's. */
static void replace(struct kube_store *store, struct store_slot *slot, struct kube_object *object,
                    struct kube_object **old)
{
    *old = slot->object;
    slot->object = kube_object_ref(object);
    announce(store, *old, object);
}

static void insert(struct kube_store *store, struct kube_object *object, bool listed)
{
    struct store_slot *slot = store_table_insert(&store->table, kube_object_ref(object));
    slot->relist = listed ? store->relist : store->relist - 1;
    announce(store, NULL, object);
}

/* Always false. What a list says is remembered until its version is known: see take_refused. */
static bool refuse(struct kube_store *store, struct kube_object *object, bool listed)
{
    if (listed)
        kube_object_list_add(&store->refused, kube_object_ref(object));
    return false;
}

static bool put(struct kube_store *store, struct kube_object *object, bool reply)
{
    auto_unref struct kube_object *old = NULL; /* dropped after the lock */
    HOLD(store);
    const struct kube_meta *meta = &object->meta;
    bool listed = store->relisting && !reply;
    struct store_slot *slot = store_table_find(&store->table, meta->namespace_, meta->name);
    if (slot == NULL) {
        if (is_gone(store, meta, listed))
            return refuse(store, object, listed);
        insert(store, object, listed);
        return true;
    }
    if (listed)
        slot->relist = store->relist;
    if (meta->resource_version < slot->object->meta.resource_version)
        return refuse(store, object, listed);
    if (!str_eq(slot->object->meta.uid, meta->uid)) {
        if (is_buried(store, meta))
            return refuse(store, object, listed);
        bury(store, slot->object->meta.uid, meta->resource_version);
    }
    replace(store, slot, object, &old);
    return true;
}

bool kube_store_put(struct kube_store *store, struct kube_object *object)
{
    return put(store, object, false);
}

bool kube_store_put_reply(struct kube_store *store, struct kube_object *object)
{
    return put(store, object, true);
}

/* The store's reference becomes the caller's. */
static void take(struct kube_store *store, struct store_slot *slot, struct kube_object **taken)
{
    *taken = slot->object;
    store_table_remove(&store->table, slot);
    announce(store, *taken, NULL);
}

void kube_store_remove(struct kube_store *store, const char *namespace_, const char *name, const char *uid,
                       uint64_t resource_version)
{
    auto_unref struct kube_object *old = NULL;
    HOLD(store);
    struct store_slot *slot = store_table_find(&store->table, namespace_ != NULL ? namespace_ : "", name);
    const char *buried = uid != NULL ? uid : "";
    if (slot != NULL && *buried == '\0')
        buried = slot->object->meta.uid;
    bury(store, buried, resource_version);
    if (slot == NULL || !str_eq(slot->object->meta.uid, buried) ||
        slot->object->meta.resource_version > resource_version)
        return;
    take(store, slot, &old);
}

void kube_store_relist_begin(struct kube_store *store)
{
    HOLD(store);
    store->relist++;
    store->relisting = true;
}

/* Whether a deletion that the list cannot know of was told for this object. */
static bool is_buried_after(const struct kube_store *store, const struct kube_meta *meta, uint64_t version)
{
    uint64_t hash = hash_uid(store, meta->uid);
    for (size_t i = 0; i < store->grave_count; i++) {
        if (store->graves[i].uid_hash == hash && store->graves[i].version > version)
            return true;
    }
    return false;
}

/* A list at `version` knows of every change up to there. So when it tells of an older object than ours, then ours is
 * from after the list, or from a history that the server does not have any more (restored from a backup, its revisions
 * moved on since) and the list is right. Replaced objects are added to `old`. */
static void take_refused(struct kube_store *store, uint64_t version, struct kube_object_list *old)
{
    for (size_t i = 0; i < store->refused.len; i++) {
        struct kube_object *object = store->refused.items[i];
        struct store_slot *slot = store_table_find(&store->table, object->meta.namespace_, object->meta.name);
        if (slot != NULL && slot->object->meta.resource_version <= version) {
            struct kube_object *replaced = NULL;
            replace(store, slot, object, &replaced);
            kube_object_list_add(old, replaced);
        } else if (slot == NULL && !is_buried_after(store, &object->meta, version)) {
            insert(store, object, true);
        }
    }
}

/* What is not in the list and not newer than `version` goes, to `old`. */
static void remove_missing(struct kube_store *store, uint64_t version, struct kube_object_list *old)
{
    size_t first = old->len;
    for (size_t i = 0; i < store->table.slot_count; i++) {
        const struct store_slot *slot = &store->table.slots[i];
        if (slot->object != NULL && slot->relist != store->relist && slot->object->meta.resource_version <= version)
            kube_object_list_add(old, slot->object);
    }
    for (size_t i = first; i < old->len; i++) {
        const struct kube_meta *meta = &old->items[i]->meta;
        take(store, store_table_find(&store->table, meta->namespace_, meta->name), &old->items[i]);
    }
}

static void end_relist(struct kube_store *store, struct kube_object_list *refused)
{
    store->relisting = false;
    *refused = store->refused; /* to be freed after the lock */
    store->refused = (struct kube_object_list){0};
}

void kube_store_relist_finish(struct kube_store *store, uint64_t resource_version)
{
    auto_objects struct kube_object_list old = {0};
    auto_objects struct kube_object_list refused = {0};
    HOLD(store);
    if (!store->relisting)
        return;
    take_refused(store, resource_version, &old);
    remove_missing(store, resource_version, &old); /* needs no graves: `listed` says the same */
    if (resource_version > store->listed)
        store->listed = resource_version;
    end_relist(store, &refused);
}

void kube_store_relist_finish_reset(struct kube_store *store, uint64_t resource_version)
{
    auto_objects struct kube_object_list old = {0};
    auto_objects struct kube_object_list refused = {0};
    HOLD(store);
    if (!store->relisting)
        return;
    store->grave_count = store->grave_next = 0; /* the deletions of another history */
    take_refused(store, UINT64_MAX, &old);
    remove_missing(store, UINT64_MAX, &old);
    store->listed = resource_version;
    end_relist(store, &refused);
}

void kube_store_relist_abort(struct kube_store *store)
{
    auto_objects struct kube_object_list refused = {0};
    HOLD(store);
    end_relist(store, &refused);
}
