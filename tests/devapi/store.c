/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/store.h"

#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "tests/devapi/tree.h"
#include "tests/devapi/version.h"

#include <stdio.h>
#include <string.h>

enum { LEVELS = 16, FIRST_RING = 64 };

struct store_item {
    struct version *version;
    struct store_item *next[]; /* as many as the item's level */
};

struct log {
    struct event *ring;
    size_t cap;
    uint64_t first, end; /* numbers of the oldest event and of the next one */
    uint64_t compacted;  /* resourceVersion of the newest event that is gone */
};

struct table {
    struct store_item *head; /* LEVELS pointers, no version */
    size_t count;
    struct log log;
};

struct store {
    struct table *tables; /* by kind_index */
    uint64_t version;
    size_t history;
    struct clock *clock;
    struct rng *rng;
};

struct store *store_new(size_t history, struct clock *clock, struct rng *rng)
{
    struct store *store = mem_new(struct store);
    store->tables = mem_calloc(kind_count, sizeof(*store->tables));
    store->history = history > 0 ? history : 1;
    store->clock = clock;
    store->rng = rng;
    store->version = 1;
    for (size_t i = 0; i < kind_count; i++)
        store->tables[i].head = mem_calloc(1, sizeof(struct store_item) + LEVELS * sizeof(struct store_item *));
    return store;
}

static void event_clear(struct event *event)
{
    version_unref(event->now);
    version_unref(event->old);
    *event = (struct event){0};
}

static void log_drop_to(struct log *log, uint64_t first)
{
    for (; log->first < first; log->first++) {
        struct event *event = &log->ring[log->first % log->cap];
        log->compacted = event->resource_version;
        event_clear(event);
    }
}

void store_free(struct store *store)
{
    if (store == NULL)
        return;
    for (size_t i = 0; i < kind_count; i++) {
        struct table *table = &store->tables[i];
        for (struct store_item *item = table->head->next[0], *next; item != NULL; item = next) {
            next = item->next[0];
            version_unref(item->version);
            free(item);
        }
        free(table->head);
        log_drop_to(&table->log, table->log.end);
        free(table->log.ring);
    }
    free(store->tables);
    free(store);
}

uint64_t store_version(const struct store *store)
{
    return store->version;
}

static struct table *table_of(const struct store *store, const struct kind *kind)
{
    return &store->tables[kind_index(kind)];
}

size_t store_count(const struct store *store, const struct kind *kind)
{
    return table_of(store, kind)->count;
}

/* Fills `before` with the last item below `key` on each level. */
static struct store_item *list_find(const struct table *table, const char *key, struct store_item *before[LEVELS])
{
    struct store_item *at = table->head;
    for (int level = LEVELS - 1; level >= 0; level--) {
        while (at->next[level] != NULL && strcmp(at->next[level]->version->key, key) < 0)
            at = at->next[level];
        if (before != NULL)
            before[level] = at;
    }
    return at->next[0];
}

struct version *store_get(const struct store *store, const struct kind *kind, const char *key)
{
    struct store_item *item = list_find(table_of(store, kind), key, NULL);
    return item != NULL && strcmp(item->version->key, key) == 0 ? item->version : NULL;
}

static void log_append(struct store *store, const struct kind *kind, struct event event)
{
    struct log *log = &table_of(store, kind)->log;
    if (log->end - log->first >= store->history)
        log_drop_to(log, log->end - store->history + 1);
    if (log->end - log->first == log->cap) {
        size_t cap = log->cap > 0 ? log->cap * 2 : FIRST_RING;
        struct event *ring = mem_calloc(cap, sizeof(*ring));
        for (uint64_t i = log->first; i < log->end && log->cap > 0; i++)
            ring[i % cap] = log->ring[i % log->cap];
        free(log->ring);
        log->ring = ring;
        log->cap = cap;
    }
    event.time = clock_mono(store->clock);
    log->ring[log->end++ % log->cap] = event;
}

static struct version *new_version(struct store *store, const struct kind *kind, const char *key, json_t *object)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)++store->version);
    tree_set_text(object, "metadata.resourceVersion", text);
    return version_new(kind, key, store->version, object);
}

static void list_insert(struct store *store, struct table *table, struct store_item *before[LEVELS],
                        struct version *version)
{
    int level = 1;
    for (uint64_t bits = rng_u64(store->rng); level < LEVELS && (bits & 3) == 0; bits >>= 2)
        level++;
    struct store_item *item = mem_calloc(1, sizeof(*item) + (size_t)level * sizeof(struct store_item *));
    item->version = version;
    for (int i = 0; i < level; i++) {
        item->next[i] = before[i]->next[i];
        before[i]->next[i] = item;
    }
    table->count++;
}

struct version *store_put(struct store *store, const struct kind *kind, const char *key, json_t *object)
{
    struct table *table = table_of(store, kind);
    struct store_item *before[LEVELS];
    struct store_item *item = list_find(table, key, before);
    struct version *version = new_version(store, kind, key, object);
    struct event event = {.type = EVENT_ADDED, .resource_version = version->resource_version};
    if (item != NULL && strcmp(item->version->key, key) == 0) {
        event.type = EVENT_MODIFIED;
        event.old = item->version; /* the item's reference goes over to the log */
        item->version = version;
    } else {
        list_insert(store, table, before, version);
    }
    event.now = version_ref(version);
    log_append(store, kind, event);
    return version;
}

struct version *store_remove(struct store *store, const struct kind *kind, const char *key, json_t *object)
{
    struct table *table = table_of(store, kind);
    struct store_item *before[LEVELS];
    struct store_item *item = list_find(table, key, before);
    if (item == NULL || strcmp(item->version->key, key) != 0)
        return NULL;
    for (int i = 0; i < LEVELS; i++)
        if (before[i]->next[i] == item)
            before[i]->next[i] = item->next[i];
    table->count--;
    struct version *last = new_version(store, kind, key, object);
    log_append(
        store, kind,
        (struct event){
            .type = EVENT_DELETED, .resource_version = last->resource_version, .now = last, .old = item->version});
    free(item);
    return last;
}

struct store_item *store_seek(const struct store *store, const struct kind *kind, const char *from)
{
    return list_find(table_of(store, kind), from, NULL);
}

struct store_item *store_next(const struct store_item *item)
{
    return item->next[0];
}

struct version *store_item_version(const struct store_item *item)
{
    return item->version;
}

uint64_t store_log_first(const struct store *store, const struct kind *kind)
{
    return table_of(store, kind)->log.first;
}

uint64_t store_log_end(const struct store *store, const struct kind *kind)
{
    return table_of(store, kind)->log.end;
}

const struct event *store_log_event(const struct store *store, const struct kind *kind, uint64_t number)
{
    const struct log *log = &table_of(store, kind)->log;
    return number >= log->first && number < log->end ? &log->ring[number % log->cap] : NULL;
}

uint64_t store_compacted(const struct store *store, const struct kind *kind)
{
    return table_of(store, kind)->log.compacted;
}

int store_log_after(const struct store *store, const struct kind *kind, uint64_t resource_version, uint64_t *number)
{
    const struct log *log = &table_of(store, kind)->log;
    if (resource_version < log->compacted)
        return -1;
    uint64_t low = log->first, high = log->end;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (log->ring[middle % log->cap].resource_version > resource_version)
            high = middle;
        else
            low = middle + 1;
    }
    *number = low;
    return 0;
}

void store_compact(struct store *store)
{
    for (size_t i = 0; i < kind_count; i++) {
        struct log *log = &store->tables[i].log;
        log_drop_to(log, log->end);
        log->compacted = store->version;
    }
}

static int compare_keys(const void *a, const void *b)
{
    const struct version *const *x = a;
    const struct version *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

int store_snapshot(const struct store *store, const struct kind *kind, uint64_t resource_version,
                   struct store_snapshot *snapshot)
{
    const struct table *table = table_of(store, kind);
    uint64_t first;
    if (store_log_after(store, kind, resource_version, &first) != 0)
        return -1;
    /* the first event after that version tells for each key what it was */
    auto_map struct map *changed = map_new(NULL);
    for (uint64_t i = first; i < table->log.end; i++) {
        const struct event *event = &table->log.ring[i % table->log.cap];
        if (!map_has(changed, event->now->key))
            map_set(changed, event->now->key, event->old != NULL ? event->old : event->now);
    }
    *snapshot = (struct store_snapshot){0};
    snapshot->items = mem_calloc(table->count + map_len(changed) + 1, sizeof(struct version *));
    for (struct store_item *item = table->head->next[0]; item != NULL; item = item->next[0])
        if (!map_has(changed, item->version->key))
            snapshot->items[snapshot->count++] = version_ref(item->version);
    for (struct map_iter it = {0}; map_next(changed, &it);) {
        struct version *was = it.value;
        if (was->resource_version <= resource_version) /* else it did not exist yet */
            snapshot->items[snapshot->count++] = version_ref(was);
    }
    qsort(snapshot->items, snapshot->count, sizeof(struct version *), compare_keys);
    return 0;
}

void store_snapshot_free(struct store_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->count; i++)
        version_unref(snapshot->items[i]);
    free(snapshot->items);
    *snapshot = (struct store_snapshot){0};
}
