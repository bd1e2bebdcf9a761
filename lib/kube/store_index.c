/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"
#include "lib/base/slab.h"
#include "lib/kube/store_private.h"

static size_t bucket_size(uint32_t cap)
{
    return sizeof(struct store_bucket) + cap * sizeof(struct kube_object *);
}

static void free_bucket(struct store_bucket *bucket)
{
    if (bucket != NULL)
        slab_free(bucket, bucket_size(bucket->cap));
}

void store_index_init(struct store_index *index, kube_store_index_fn keys)
{
    /* The map owns the buckets without freeing them: growing one moves it. */
    *index = (struct store_index){.keys = keys, .buckets = map_new(NULL)};
}

void store_index_free(struct store_index *index)
{
    for (struct map_iter it = {0}; map_next(index->buckets, &it);)
        free_bucket(it.value);
    map_free(index->buckets);
    *index = (struct store_index){0};
}

const struct store_bucket *store_index_find(const struct store_index *index, const char *key)
{
    return map_get(index->buckets, key);
}

static void bucket_add(struct store_index *index, const char *key, struct kube_object *object)
{
    struct store_bucket *bucket = map_get(index->buckets, key);
    uint32_t len = bucket != NULL ? bucket->len : 0;
    if (bucket == NULL || len == bucket->cap) {
        /* most keys have one object for ever */
        uint32_t cap = bucket == NULL ? 1 : len + len / 2 + 1;
        struct store_bucket *larger = slab_alloc(bucket_size(cap));
        if (len > 0)
            memcpy(larger->objects, bucket->objects, len * sizeof(larger->objects[0]));
        larger->len = len;
        larger->cap = cap;
        map_set(index->buckets, key, larger);
        free_bucket(bucket);
        bucket = larger;
    }
    bucket->objects[bucket->len++] = object;
}

static struct kube_object **bucket_slot(struct store_bucket *bucket, const struct kube_object *object)
{
    for (uint32_t i = 0; bucket != NULL && i < bucket->len; i++) {
        if (bucket->objects[i] == object)
            return &bucket->objects[i];
    }
    return NULL;
}

static void bucket_remove(struct store_index *index, const char *key, const struct kube_object *object)
{
    struct store_bucket *bucket = map_get(index->buckets, key);
    struct kube_object **slot = bucket_slot(bucket, object);
    if (slot == NULL)
        return;
    *slot = bucket->objects[--bucket->len];
    if (bucket->len > 0)
        return;
    map_remove(index->buckets, key);
    free_bucket(bucket);
}

/* An object counts once below a key, however often the function names it. */
static void unique_keys(const struct store_index *index, const struct kube_object *object, struct strv *unique)
{
    if (object == NULL)
        return;
    auto_strv struct strv keys = {0};
    index->keys(object, &keys);
    for (size_t i = 0; i < keys.len; i++) {
        if (!strv_contains(unique, keys.items[i]))
            strv_add(unique, keys.items[i]);
    }
}

void store_index_update(struct store_index *index, struct kube_object *old, struct kube_object *new_)
{
    auto_strv struct strv before = {0};
    auto_strv struct strv after = {0};
    unique_keys(index, old, &before);
    unique_keys(index, new_, &after);
    for (size_t i = 0; i < before.len; i++) {
        if (!strv_contains(&after, before.items[i]))
            bucket_remove(index, before.items[i], old);
    }
    for (size_t i = 0; i < after.len; i++) {
        struct kube_object **slot = NULL;
        if (strv_contains(&before, after.items[i]))
            slot = bucket_slot(map_get(index->buckets, after.items[i]), old);
        if (slot != NULL)
            *slot = new_;
        else
            bucket_add(index, after.items[i], new_);
    }
}
