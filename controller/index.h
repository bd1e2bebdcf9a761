/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All volumes, arranged so that a claim finds its volume without looking at the others. Volumes are kept in buckets:
 * one per (set of access modes, class, volume mode, attributes class, state), each a search tree ordered by capacity,
 * then name. Volumes that point at a claim are found by that claim's key as well. The same buckets carry the numbers
 * from which a waiting claim's explanation is made.
 *
 *     groups, by number of modes       buckets of a group             one bucket
 *     {RWO} ───────────────────────►   gold/Filesystem/free ───────►  (1Gi pv-7) (2Gi pv-1) (2Gi pv-3) …
 *     {RWX}                            gold/Filesystem/claimed
 *     {RWO,ROX} …                      -/Block/free …
 *
 * Fed by the volume store. Thread-safe; what is said to need the lock runs between volume_index_lock and _unlock.
 * Order of locks: the store's, then the index's. Never call the store with the index locked.
 */
#ifndef BERTH_CONTROLLER_INDEX_H
#define BERTH_CONTROLLER_INDEX_H

#include "lib/kube/objects.h"
#include "lib/kube/store.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- access modes as a set ---- */
struct mode_set {
    uint32_t known; /* bits in canonical order: RWO, ROX, RWX, RWOP */
    char *unknown;  /* modes of a newer server: sorted, each between commas; NULL when there are none */
};
void mode_set_init(struct mode_set *set, const struct kube_strings *modes);
void mode_set_clear(struct mode_set *set);
bool mode_set_contains(const struct mode_set *set, const struct mode_set *subset);
size_t mode_set_len(const struct mode_set *set);
char *mode_set_text(const struct mode_set *set); /* "ReadWriteOnce,ReadOnlyMany"; owned by the caller */

/* ---- the index ---- */
struct volume_index;
struct volume_index *volume_index_new(void);
void volume_index_free(struct volume_index *index);
/* Lets the store feed the index; call before the store is filled. */
void volume_index_attach(struct volume_index *index, struct kube_store *volumes);
/* What the store calls; tests may do so themselves. */
void volume_index_listen(void *index, const struct kube_object *old, const struct kube_object *new_);

void volume_index_lock(struct volume_index *index);
void volume_index_unlock(struct volume_index *index);

enum bucket_state {
    BUCKET_FREE,        /* no claimRef, phase Available, not being deleted: may be matched */
    BUCKET_NOT_READY,   /* no claimRef, another phase */
    BUCKET_TERMINATING, /* no claimRef, being deleted */
    BUCKET_CLAIMED,     /* has a claimRef */
};
struct volume_bucket {
    enum bucket_state state;
    bool block;
    char *class_name;       /* "" for none */
    char *attributes_class; /* "" for none */
    struct volume_node *root;
};
struct volume_group {
    struct mode_set modes;
    char *modes_text;
    struct volume_bucket **buckets;
    size_t len, cap;
};
/* Needs the lock. Groups in the order of the search: fewest modes first, then by canonical text. */
struct volume_group *const *volume_index_groups(const struct volume_index *index, size_t *len);
size_t volume_index_len(const struct volume_index *index);
/* Needs the lock. NULL when there is no such bucket. */
const struct volume_bucket *volume_group_bucket(const struct volume_group *group, enum bucket_state state, bool block,
                                                const char *class_name, const char *attributes_class);
size_t volume_bucket_len(const struct volume_bucket *bucket);
/* Needs the lock. How many have less capacity than this. */
size_t volume_bucket_count_below(const struct volume_bucket *bucket, const struct kube_quantity *request);
/* Needs the lock. The largest volume, NULL when empty. */
const struct kube_volume *volume_bucket_largest(const struct volume_bucket *bucket);

typedef bool (*volume_visit_fn)(void *arg, struct kube_volume *volume /* borrowed */); /* false stops */
/* Needs the lock. From the first volume with at least this capacity on, in the order of capacity, then name. */
void volume_bucket_walk(const struct volume_bucket *bucket, const struct kube_quantity *request, volume_visit_fn visit,
                        void *arg);
/* Needs the lock. The volumes whose claimRef has this namespace and name (whatever its uid), in no order. */
void volume_index_walk_claim(const struct volume_index *index, const char *namespace_, const char *name,
                             volume_visit_fn visit, void *arg);

#endif
