/* SPDX-License-Identifier: Apache-2.0 */
/* Private to store*.c: the two tables a store is made of. Neither locks nor counts references. */
#ifndef BERTH_KUBE_STORE_PRIVATE_H
#define BERTH_KUBE_STORE_PRIVATE_H

#include "lib/base/map.h"
#include "lib/kube/store.h"

/* Objects by namespace and name. */
struct store_slot {
    struct kube_object *object; /* NULL: free */
    uint32_t hash;
    uint32_t relist; /* number of the list that the object was last part of */
};
struct store_table {
    struct store_slot *slots;
    size_t slot_count; /* 0 or a power of two */
    size_t len;
    uint64_t seed;
};
void store_table_init(struct store_table *table);
void store_table_free(struct store_table *table);
uint64_t store_table_hash(const struct store_table *table, const char *namespace_, const char *name);
struct store_slot *store_table_find(const struct store_table *table, const char *namespace_, const char *name);
/* The object must not be there yet. The slot is valid until the next insertion or removal. */
struct store_slot *store_table_insert(struct store_table *table, struct kube_object *object);
void store_table_remove(struct store_table *table, struct store_slot *slot);

/* Objects by what an index function says. */
struct store_bucket {
    uint32_t len, cap;
    struct kube_object *objects[];
};
struct store_index {
    kube_store_index_fn keys;
    struct map *buckets; /* of struct store_bucket */
};
void store_index_init(struct store_index *index, kube_store_index_fn keys);
void store_index_free(struct store_index *index);
/* NULL for what is not there before or after. */
void store_index_update(struct store_index *index, struct kube_object *old, struct kube_object *new_);
const struct store_bucket *store_index_find(const struct store_index *index, const char *key); /* NULL: none */

#endif
