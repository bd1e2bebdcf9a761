/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/node.h"

#include "lib/base/mem.h"

#include <unistd.h>

#define FIRST_SLOTS 64

void node_table_init(struct node_table *table)
{
    pthread_mutex_init(&table->lock, NULL);
    table->slot_count = FIRST_SLOTS;
    table->count = 0;
    table->orphans = 0;
    table->watched = 0;
    table->slots = mem_calloc(FIRST_SLOTS, sizeof(struct node *));
}

/* The last failure, and who has heard of it. */
struct sync_failure {
    int error;
    uint64_t newest_handle; /* later ones have nothing to do with it */
    uint64_t *told;
    size_t told_count;
};

static void failure_free(struct sync_failure *failure)
{
    if (failure != NULL)
        free(failure->told);
    free(failure);
}

static void node_free(struct node *node)
{
    failure_free(node->failure);
    if (node->data_fd >= 0)
        close(node->data_fd);
    if (node->dir_fd >= 0)
        close(node->dir_fd);
    pthread_mutex_destroy(&node->lock);
    free(node);
}

void node_table_destroy(struct node_table *table)
{
    for (size_t i = 0; i < table->slot_count; i++)
        for (struct node *node = table->slots[i], *next; node != NULL; node = next) {
            next = node->next;
            node_free(node);
        }
    free(table->slots);
    pthread_mutex_destroy(&table->lock);
}

/* A number of ext4 has its inode in the low half; multiplying spreads both halves over the high bits. */
static size_t slot_of(const struct node_table *table, uint64_t id)
{
    return (size_t)((id * 0x9e3779b97f4a7c15U) >> 32) & (table->slot_count - 1);
}

static struct node **place_of(const struct node_table *table, uint64_t id)
{
    struct node **place = &table->slots[slot_of(table, id)];
    while (*place != NULL && (*place)->id != id)
        place = &(*place)->next;
    return place;
}

static void grow(struct node_table *table)
{
    struct node **old = table->slots;
    size_t old_count = table->slot_count;
    table->slot_count = old_count * 2;
    table->slots = mem_calloc(table->slot_count, sizeof(struct node *));
    for (size_t i = 0; i < old_count; i++)
        for (struct node *node = old[i], *next; node != NULL; node = next) {
            struct node **place = &table->slots[slot_of(table, node->id)];
            next = node->next;
            node->next = *place;
            *place = node;
        }
    free(old);
}

struct node *node_get(struct node_table *table, uint64_t id)
{
    pthread_mutex_lock(&table->lock);
    struct node **place = place_of(table, id);
    struct node *node = *place;
    if (node == NULL) {
        node = mem_new(struct node);
        node->id = id;
        node->data_fd = -1;
        node->dir_fd = -1;
        node->charged = -1;
        pthread_mutex_init(&node->lock, NULL);
        *place = node;
        if (++table->count > table->slot_count)
            grow(table);
    }
    node->references++;
    pthread_mutex_unlock(&table->lock);
    return node;
}

struct node *node_find(struct node_table *table, uint64_t id)
{
    pthread_mutex_lock(&table->lock);
    struct node *node = *place_of(table, id);
    if (node != NULL)
        node->references++;
    pthread_mutex_unlock(&table->lock);
    return node;
}

void node_put(struct node_table *table, struct node *node)
{
    if (node == NULL)
        return;
    pthread_mutex_lock(&table->lock);
    bool unused =
        --node->references == 0 && node->opens == 0 && !node->opened_earlier && !node->orphan && !node->watched;
    if (unused) {
        *place_of(table, node->id) = node->next;
        table->count--;
    }
    pthread_mutex_unlock(&table->lock);
    if (unused)
        node_free(node);
}

void node_opened(struct node_table *table, struct node *node)
{
    pthread_mutex_lock(&table->lock);
    node->opens++;
    pthread_mutex_unlock(&table->lock);
}

void node_released(struct node_table *table, struct node *node)
{
    pthread_mutex_lock(&table->lock);
    if (node->opens > 0)
        node->opens--;
    else
        node->opened_earlier = false; /* there may be more of those handles: then the next call sets it again */
    pthread_mutex_unlock(&table->lock);
}

void node_used(struct node_table *table, struct node *node)
{
    pthread_mutex_lock(&table->lock);
    if (node->opens == 0)
        node->opened_earlier = true;
    pthread_mutex_unlock(&table->lock);
}

bool node_is_open(struct node_table *table, const struct node *node)
{
    pthread_mutex_lock(&table->lock);
    bool open = node->opens > 0 || node->opened_earlier;
    pthread_mutex_unlock(&table->lock);
    return open;
}

void node_forgotten(struct node_table *table, struct node *node)
{
    pthread_mutex_lock(&table->lock);
    node->opened_earlier = false;
    pthread_mutex_unlock(&table->lock);
}

void node_set_orphan(struct node_table *table, struct node *node, bool orphan)
{
    pthread_mutex_lock(&table->lock);
    if (orphan != node->orphan)
        table->orphans = orphan ? table->orphans + 1 : table->orphans - 1;
    node->orphan = orphan;
    pthread_mutex_unlock(&table->lock);
}

bool node_is_orphan(struct node_table *table, const struct node *node)
{
    pthread_mutex_lock(&table->lock);
    bool orphan = node->orphan;
    pthread_mutex_unlock(&table->lock);
    return orphan;
}

bool node_has_orphans(struct node_table *table)
{
    pthread_mutex_lock(&table->lock);
    bool some = table->orphans > 0;
    pthread_mutex_unlock(&table->lock);
    return some;
}

void node_watch(struct node_table *table, struct node *node, bool watch)
{
    pthread_mutex_lock(&table->lock);
    if (watch && !node->watched && table->watched < NODE_MAX_WATCHED) {
        node->watched = true;
        table->watched++;
    } else if (!watch && node->watched) {
        node->watched = false;
        table->watched--;
    }
    pthread_mutex_unlock(&table->lock);
}

struct node **node_list_watched(struct node_table *table, size_t *count)
{
    *count = 0;
    pthread_mutex_lock(&table->lock);
    struct node **list = mem_calloc(table->watched + 1, sizeof(struct node *));
    for (size_t i = 0; i < table->slot_count && table->watched > 0; i++)
        for (struct node *node = table->slots[i]; node != NULL; node = node->next)
            if (node->watched) {
                node->references++;
                list[(*count)++] = node;
            }
    pthread_mutex_unlock(&table->lock);
    return list;
}

uint64_t *node_list_orphans(struct node_table *table, size_t *count)
{
    *count = 0;
    pthread_mutex_lock(&table->lock);
    uint64_t *list = mem_calloc(table->orphans + 1, sizeof(*list));
    for (size_t i = 0; i < table->slot_count && table->orphans > 0; i++)
        for (const struct node *node = table->slots[i]; node != NULL; node = node->next)
            if (node->orphan)
                list[(*count)++] = node->id;
    pthread_mutex_unlock(&table->lock);
    return list;
}

static void tell(struct sync_failure *failure, uint64_t handle)
{
    failure->told = mem_realloc_array(failure->told, failure->told_count + 1, sizeof(*failure->told));
    failure->told[failure->told_count++] = handle;
}

void node_sync_failed(struct node *node, int error, uint64_t handle, uint64_t newest_handle)
{
    failure_free(node->failure);
    node->failure = mem_new(struct sync_failure);
    node->failure->error = error;
    node->failure->newest_handle = newest_handle;
    tell(node->failure, handle);
}

int node_sync_error(struct node *node, uint64_t handle)
{
    struct sync_failure *failure = node->failure;
    if (failure == NULL || handle > failure->newest_handle)
        return 0;
    for (size_t i = 0; i < failure->told_count; i++)
        if (failure->told[i] == handle)
            return 0;
    tell(failure, handle);
    return failure->error;
}
