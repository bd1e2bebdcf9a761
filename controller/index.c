/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/index.h"

#include "controller/predicate.h"
#include "lib/base/clock.h"
#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "lib/base/slab.h"
#include "lib/base/str.h"

#include <pthread.h>

/* What is known of one volume: a node of its bucket's treap, a search tree by (capacity, name) that is a heap by random
 * priority, so it stays flat whatever the order of insertion; len counts the subtree for volume_bucket_count_below. */
struct volume_node {
    struct kube_volume *volume; /* a reference */
    struct volume_bucket *bucket;
    struct volume_node *left, *right;
    struct volume_node *next_of_claim; /* another volume whose claimRef has the same namespace and name */
    uint64_t priority;
    size_t len;
};
struct volume_index {
    pthread_mutex_t lock;
    struct map *nodes;    /* name → struct volume_node */
    struct map *by_claim; /* "namespace/name" → the first struct volume_node of the chain, borrowed */
    struct volume_group **groups;
    size_t len, cap;
    uint64_t random;
};

/* ---- the tree ---- */
static int node_compare(const struct kube_volume *a, const struct kube_volume *b)
{
    int c = kube_quantity_compare(&a->storage, &b->storage);
    return c != 0 ? c : strcmp(a->object.meta.name, b->object.meta.name);
}

static size_t node_len(const struct volume_node *node)
{
    return node == NULL ? 0 : node->len;
}

static void node_count(struct volume_node *node)
{
    node->len = 1 + node_len(node->left) + node_len(node->right);
}

/* Everything before `volume` goes to *left, the rest to *right. */
static void node_split(struct volume_node *node, const struct kube_volume *volume, struct volume_node **left,
                       struct volume_node **right)
{
    if (node == NULL) {
        *left = *right = NULL;
    } else if (node_compare(node->volume, volume) < 0) {
        node_split(node->right, volume, &node->right, right);
        node_count(node);
        *left = node;
    } else {
        node_split(node->left, volume, left, &node->left);
        node_count(node);
        *right = node;
    }
}

static struct volume_node *node_insert(struct volume_node *node, struct volume_node *fresh)
{
    if (node == NULL || fresh->priority > node->priority) {
        node_split(node, fresh->volume, &fresh->left, &fresh->right);
        node_count(fresh);
        return fresh;
    }
    if (node_compare(fresh->volume, node->volume) < 0)
        node->left = node_insert(node->left, fresh);
    else
        node->right = node_insert(node->right, fresh);
    node_count(node);
    return node;
}

static struct volume_node *node_join(struct volume_node *left, struct volume_node *right)
{
    if (left == NULL || right == NULL)
        return left == NULL ? right : left;
    if (left->priority > right->priority) {
        left->right = node_join(left->right, right);
        node_count(left);
        return left;
    }
    right->left = node_join(left, right->left);
    node_count(right);
    return right;
}

static struct volume_node *node_remove(struct volume_node *node, const struct kube_volume *volume)
{
    if (node == NULL)
        return NULL;
    int c = node_compare(volume, node->volume);
    if (c == 0)
        return node_join(node->left, node->right);
    if (c < 0)
        node->left = node_remove(node->left, volume);
    else
        node->right = node_remove(node->right, volume);
    node_count(node);
    return node;
}

static bool node_walk(const struct volume_node *node, const struct kube_quantity *request, volume_visit_fn visit,
                      void *arg)
{
    if (node == NULL)
        return true;
    if (kube_quantity_compare(&node->volume->storage, request) >= 0 &&
        (!node_walk(node->left, request, visit, arg) || !visit(arg, node->volume)))
        return false;
    return node_walk(node->right, request, visit, arg);
}

/* ---- access modes ---- */
static const char *const known_modes[] = {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"};

void mode_set_init(struct mode_set *set, const struct kube_strings *modes)
{
    *set = (struct mode_set){0};
    auto_strv struct strv unknown = {0};
    for (uint32_t i = 0; i < modes->len; i++) {
        size_t k = 0;
        while (k < ARRAY_LEN(known_modes) && strcmp(known_modes[k], modes->items[i]) != 0)
            k++;
        if (k < ARRAY_LEN(known_modes))
            set->known |= 1U << k;
        else if (!strv_contains(&unknown, modes->items[i]))
            strv_add(&unknown, modes->items[i]);
    }
    if (unknown.len > 0) {
        strv_sort(&unknown);
        auto_free char *joined = strv_join(&unknown, ",");
        set->unknown = mem_printf(",%s,", joined);
    }
}

void mode_set_clear(struct mode_set *set)
{
    free(set->unknown);
    *set = (struct mode_set){0};
}

bool mode_set_contains(const struct mode_set *set, const struct mode_set *subset)
{
    if ((subset->known & ~set->known) != 0)
        return false;
    if (subset->unknown == NULL)
        return true;
    if (set->unknown == NULL)
        return false;
    auto_strv struct strv names = {0};
    strv_split(&names, subset->unknown, ',');
    for (size_t i = 0; i < names.len; i++) {
        auto_free char *quoted = mem_printf(",%s,", names.items[i]);
        if (*names.items[i] != '\0' && strstr(set->unknown, quoted) == NULL)
            return false;
    }
    return true;
}

size_t mode_set_len(const struct mode_set *set)
{
    size_t len = (size_t)__builtin_popcount(set->known);
    for (const char *c = set->unknown; c != NULL && *c != '\0'; c++)
        len += *c == ',';
    return set->unknown == NULL ? len : len - 1;
}

char *mode_set_text(const struct mode_set *set)
{
    struct str text = {0};
    for (size_t k = 0; k < ARRAY_LEN(known_modes); k++)
        if (set->known & (1U << k))
            str_addf(&text, "%s%s", text.len > 0 ? "," : "", known_modes[k]);
    if (set->unknown != NULL) /* ",a,b," without the last comma, and without the first when nothing stands before */
        str_add_len(&text, set->unknown + (text.len > 0 ? 0 : 1), strlen(set->unknown) - (text.len > 0 ? 1 : 2));
    return str_take(&text);
}

/* ---- groups and buckets ---- */
static void bucket_free(struct volume_bucket *bucket)
{
    free(bucket->class_name);
    free(bucket->attributes_class);
    free(bucket);
}

static struct volume_group *group_get(struct volume_index *index, const struct kube_strings *access_modes)
{
    struct mode_set modes;
    mode_set_init(&modes, access_modes);
    auto_free char *text = mode_set_text(&modes);
    size_t len = mode_set_len(&modes), at = 0;
    for (; at < index->len; at++) {
        const struct volume_group *group = index->groups[at];
        size_t other = mode_set_len(&group->modes);
        int c = other != len ? (other < len ? -1 : 1) : strcmp(group->modes_text, text);
        if (c == 0) {
            mode_set_clear(&modes);
            return index->groups[at];
        }
        if (c > 0)
            break;
    }
    if (index->len == index->cap) {
        index->cap = index->cap == 0 ? 8 : 2 * index->cap;
        index->groups = mem_realloc_array(index->groups, index->cap, sizeof(struct volume_group *));
    }
    memmove(&index->groups[at + 1], &index->groups[at], (index->len - at) * sizeof(struct volume_group *));
    index->len++;
    struct volume_group *group = mem_new(struct volume_group);
    group->modes = modes;
    group->modes_text = mem_take(text);
    return index->groups[at] = group;
}

static enum bucket_state volume_state(const struct kube_volume *volume)
{
    if (volume->claim_ref != NULL)
        return BUCKET_CLAIMED;
    if (volume->object.meta.deleting)
        return BUCKET_TERMINATING;
    return str_eq(volume->phase, PHASE_AVAILABLE) ? BUCKET_FREE : BUCKET_NOT_READY;
}

const struct volume_bucket *volume_group_bucket(const struct volume_group *group, enum bucket_state state, bool block,
                                                const char *class_name, const char *attributes_class)
{
    for (size_t i = 0; i < group->len; i++) {
        const struct volume_bucket *bucket = group->buckets[i];
        if (bucket->state == state && bucket->block == block && strcmp(bucket->class_name, class_name) == 0 &&
            strcmp(bucket->attributes_class, attributes_class) == 0)
            return bucket;
    }
    return NULL;
}

static struct volume_bucket *bucket_get(struct volume_index *index, const struct kube_volume *volume)
{
    struct volume_group *group = group_get(index, &volume->access_modes);
    enum bucket_state state = volume_state(volume);
    bool block = is_block(volume->volume_mode);
    const char *class_name = kube_volume_class(volume);
    const char *attributes_class = volume->attributes_class == NULL ? "" : volume->attributes_class;
    for (size_t i = 0; i < group->len; i++) {
        struct volume_bucket *bucket = group->buckets[i];
        if (bucket->state == state && bucket->block == block && strcmp(bucket->class_name, class_name) == 0 &&
            strcmp(bucket->attributes_class, attributes_class) == 0)
            return bucket;
    }
    if (group->len == group->cap) {
        group->cap = group->cap == 0 ? 8 : 2 * group->cap;
        group->buckets = mem_realloc_array(group->buckets, group->cap, sizeof(struct volume_bucket *));
    }
    struct volume_bucket *bucket = mem_new(struct volume_bucket);
    *bucket = (struct volume_bucket){.state = state,
                                     .block = block,
                                     .class_name = mem_strdup(class_name),
                                     .attributes_class = mem_strdup(attributes_class)};
    return group->buckets[group->len++] = bucket;
}

/* Empty buckets go, so that classes that come and go leave nothing behind. Groups stay: there are few. */
static void bucket_drop_if_empty(struct volume_index *index, const struct volume_bucket *bucket)
{
    for (size_t g = 0; g < index->len && bucket->root == NULL; g++) {
        struct volume_group *group = index->groups[g];
        for (size_t i = 0; i < group->len; i++) {
            if (group->buckets[i] != bucket)
                continue;
            bucket_free(group->buckets[i]);
            group->buckets[i] = group->buckets[--group->len];
            return;
        }
    }
}

size_t volume_bucket_len(const struct volume_bucket *bucket)
{
    return node_len(bucket->root);
}

size_t volume_bucket_count_below(const struct volume_bucket *bucket, const struct kube_quantity *request)
{
    size_t below = 0;
    for (const struct volume_node *node = bucket->root; node != NULL;) {
        if (kube_quantity_compare(&node->volume->storage, request) < 0) {
            below += 1 + node_len(node->left);
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return below;
}

const struct kube_volume *volume_bucket_largest(const struct volume_bucket *bucket)
{
    const struct volume_node *node = bucket->root;
    while (node != NULL && node->right != NULL)
        node = node->right;
    return node == NULL ? NULL : node->volume;
}

void volume_bucket_walk(const struct volume_bucket *bucket, const struct kube_quantity *request, volume_visit_fn visit,
                        void *arg)
{
    node_walk(bucket->root, request, visit, arg);
}

/* ---- the index ---- */
static void node_free(void *value)
{
    struct volume_node *node = value;
    kube_object_unref(&node->volume->object);
    slab_free(node, sizeof(*node));
}

struct volume_index *volume_index_new(void)
{
    struct volume_index *index = mem_new(struct volume_index);
    pthread_mutex_init(&index->lock, NULL);
    index->nodes = map_new(node_free);
    index->by_claim = map_new(NULL);
    index->random = rng_u64(rng_real());
    return index;
}

void volume_index_free(struct volume_index *index)
{
    if (index == NULL)
        return;
    for (size_t g = 0; g < index->len; g++) {
        struct volume_group *group = index->groups[g];
        for (size_t i = 0; i < group->len; i++)
            bucket_free(group->buckets[i]);
        free(group->buckets);
        free(group->modes_text);
        mode_set_clear(&group->modes);
        free(group);
    }
    free(index->groups);
    map_free(index->nodes);
    map_free(index->by_claim);
    pthread_mutex_destroy(&index->lock);
    free(index);
}

void volume_index_lock(struct volume_index *index)
{
    pthread_mutex_lock(&index->lock);
}

void volume_index_unlock(struct volume_index *index)
{
    pthread_mutex_unlock(&index->lock);
}

/* Owned by the caller; NULL when the volume has no claimRef. */
static char *claim_key(const struct kube_volume *volume)
{
    return volume->claim_ref == NULL ? NULL
                                     : mem_printf("%s/%s", volume->claim_ref->namespace_, volume->claim_ref->name);
}

static void chain_add(struct volume_index *index, struct volume_node *node)
{
    auto_free char *key = claim_key(node->volume);
    if (key == NULL)
        return;
    node->next_of_claim = map_get(index->by_claim, key);
    map_set(index->by_claim, key, node);
}

static void chain_remove(struct volume_index *index, const struct volume_node *node)
{
    auto_free char *key = claim_key(node->volume);
    struct volume_node *before = key == NULL ? NULL : map_get(index->by_claim, key);
    if (before == NULL)
        return;
    if (before == node) {
        if (node->next_of_claim == NULL)
            map_remove(index->by_claim, key);
        else
            map_set(index->by_claim, key, node->next_of_claim);
        return;
    }
    while (before->next_of_claim != node)
        before = before->next_of_claim;
    before->next_of_claim = node->next_of_claim;
}

static void index_remove(struct volume_index *index, const char *name)
{
    const struct volume_node *node = map_get(index->nodes, name);
    if (node == NULL)
        return;
    node->bucket->root = node_remove(node->bucket->root, node->volume);
    bucket_drop_if_empty(index, node->bucket);
    chain_remove(index, node);
    map_remove(index->nodes, name);
}

/* xorshift64*: quick, and unknown to whoever names volumes */
static uint64_t index_random(struct volume_index *index)
{
    uint64_t x = index->random | 1U;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    index->random = x;
    return x * UINT64_C(0x2545F4914F6CDD1D);
}

static void index_add(struct volume_index *index, struct kube_volume *volume)
{
    struct volume_node *node = slab_new(struct volume_node);
    kube_object_ref(&volume->object);
    *node = (struct volume_node){
        .volume = volume, .bucket = bucket_get(index, volume), .priority = index_random(index), .len = 1};
    node->bucket->root = node_insert(node->bucket->root, node);
    chain_add(index, node);
    map_set(index->nodes, volume->object.meta.name, node);
}

void volume_index_listen(void *arg, const struct kube_object *old, const struct kube_object *new_)
{
    struct volume_index *index = arg;
    pthread_mutex_lock(&index->lock);
    if (old != NULL)
        index_remove(index, old->meta.name);
    if (new_ != NULL)
        index_add(index, (struct kube_volume *)(uintptr_t)new_); /* objects are immutable: only the count changes */
    pthread_mutex_unlock(&index->lock);
}

void volume_index_attach(struct volume_index *index, struct kube_store *volumes)
{
    kube_store_listen(volumes, volume_index_listen, index);
}

struct volume_group *const *volume_index_groups(const struct volume_index *index, size_t *len)
{
    *len = index->len;
    return index->groups;
}

size_t volume_index_len(const struct volume_index *index)
{
    return map_len(index->nodes);
}

void volume_index_walk_claim(const struct volume_index *index, const char *namespace_, const char *name,
                             volume_visit_fn visit, void *arg)
{
    auto_free char *key = mem_printf("%s/%s", namespace_, name);
    for (const struct volume_node *node = map_get(index->by_claim, key); node != NULL; node = node->next_of_claim)
        if (!visit(arg, node->volume))
            return;
}
