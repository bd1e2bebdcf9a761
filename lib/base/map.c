/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing with linear probing over a power of two of slots:
 *
 *     hash & mask ──► [entry][entry][removed][entry][free] …
 *
 * A removed entry leaves a marker, not a hole that later entries are moved into, so that an iteration may remove what
 * it just returned. The markers go when the table is rebuilt, which happens as soon as 3/4 of the slots were ever used,
 * or all at once when the map becomes empty.
 */
#include "lib/base/map.h"

#include "lib/base/mem.h"
#include "lib/base/slab.h"
#include "lib/base/str.h"

#include <sys/random.h>

struct entry {
    char *key; /* NULL: free; &removed_mark: removed */
    void *value;
    uint64_t hash;
};

struct map {
    struct entry *slots;
    size_t slot_count; /* 0 or a power of two */
    size_t len;
    size_t used; /* entries and markers */
    uint64_t seed[2];
    void (*free_value)(void *value);
};

#define SLOTS_AT_LEAST 8
static char removed_mark;
#define REMOVED (&removed_mark)

static uint64_t rotate(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

#define SIP_ROUND(v)                                                                                                   \
    do {                                                                                                               \
        (v)[0] += (v)[1];                                                                                              \
        (v)[1] = rotate((v)[1], 13) ^ (v)[0];                                                                          \
        (v)[0] = rotate((v)[0], 32);                                                                                   \
        (v)[2] += (v)[3];                                                                                              \
        (v)[3] = rotate((v)[3], 16) ^ (v)[2];                                                                          \
        (v)[0] += (v)[3];                                                                                              \
        (v)[3] = rotate((v)[3], 21) ^ (v)[0];                                                                          \
        (v)[2] += (v)[1];                                                                                              \
        (v)[1] = rotate((v)[1], 17) ^ (v)[2];                                                                          \
        (v)[2] = rotate((v)[2], 32);                                                                                   \
    } while (0)

/* SipHash-1-3 with a secret seed: the keys are names that users choose, who could else make them collide. */
static uint64_t hash_key(const struct map *map, const char *key)
{
    uint64_t v[4] = {map->seed[0] ^ 0x736f6d6570736575ULL, map->seed[1] ^ 0x646f72616e646f6dULL,
                     map->seed[0] ^ 0x6c7967656e657261ULL, map->seed[1] ^ 0x7465646279746573ULL};
    size_t len = strlen(key);
    size_t at = 0;
    uint64_t word = 0;
    for (; len - at >= sizeof(word); at += sizeof(word)) {
        memcpy(&word, key + at, sizeof(word));
        v[3] ^= word;
        SIP_ROUND(v);
        v[0] ^= word;
    }
    word = (uint64_t)len << 56;
    for (size_t i = 0; at + i < len; i++)
        word |= (uint64_t)(unsigned char)key[at + i] << (8 * i);
    v[3] ^= word;
    SIP_ROUND(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    SIP_ROUND(v);
    SIP_ROUND(v);
    SIP_ROUND(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

struct map *map_new(void (*free_value)(void *value))
{
    struct map *map = mem_new(struct map);
    map->free_value = free_value;
    /* Not rng_real(): the seed decides nothing but the order of iteration, which is unspecified. When the kernel has no
     * entropy yet, the address (randomised too) has to do. */
    if (getrandom(map->seed, sizeof(map->seed), GRND_NONBLOCK) != (ssize_t)sizeof(map->seed))
        map->seed[0] = (uint64_t)(uintptr_t)map;
    return map;
}

void map_clear(struct map *map)
{
    /* Emptied before the values go: their free_value may come back here. */
    struct entry *slots = map->slots;
    size_t slot_count = map->slot_count;
    map->slots = NULL;
    map->slot_count = 0;
    map->len = 0;
    map->used = 0;
    for (size_t i = 0; i < slot_count; i++) {
        if (slots[i].key == NULL || slots[i].key == REMOVED)
            continue;
        slab_free_str(slots[i].key);
        if (map->free_value != NULL && slots[i].value != NULL)
            map->free_value(slots[i].value);
    }
    free(slots);
}

void map_free(struct map *map)
{
    if (map == NULL)
        return;
    map_clear(map);
    free(map);
}

static struct entry *find(const struct map *map, const char *key, uint64_t hash)
{
    if (map->slot_count == 0)
        return NULL;
    size_t mask = map->slot_count - 1;
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        struct entry *entry = &map->slots[i];
        if (entry->key == NULL)
            return NULL;
        if (entry->key != REMOVED && entry->hash == hash && strcmp(entry->key, key) == 0)
            return entry;
    }
}

static void insert(struct map *map, struct entry entry)
{
    size_t mask = map->slot_count - 1;
    size_t i = (size_t)entry.hash & mask;
    while (map->slots[i].key != NULL)
        i = (i + 1) & mask;
    map->slots[i] = entry;
    map->used++;
    map->len++;
}

/* Rebuilds for one more entry: sized by what is alive, so a map that shrank gets small again. */
static void rebuild(struct map *map)
{
    size_t slot_count = SLOTS_AT_LEAST;
    while (slot_count / 2 < map->len + 1)
        slot_count *= 2;
    struct entry *old = map->slots;
    size_t old_count = map->slot_count;
    map->slots = mem_calloc(slot_count, sizeof(*map->slots));
    map->slot_count = slot_count;
    map->len = 0;
    map->used = 0;
    for (size_t i = 0; i < old_count; i++) {
        if (old[i].key != NULL && old[i].key != REMOVED)
            insert(map, old[i]);
    }
    free(old);
}

void *map_get(const struct map *map, const char *key)
{
    if (map->len == 0 || key == NULL)
        return NULL;
    const struct entry *entry = find(map, key, hash_key(map, key));
    return entry != NULL ? entry->value : NULL;
}

bool map_has(const struct map *map, const char *key)
{
    return map->len > 0 && key != NULL && find(map, key, hash_key(map, key)) != NULL;
}

void map_set(struct map *map, const char *key, void *value)
{
    uint64_t hash = hash_key(map, key);
    struct entry *entry = find(map, key, hash);
    if (entry != NULL) {
        void *old = entry->value;
        entry->value = value;
        if (map->free_value != NULL && old != NULL && old != value)
            map->free_value(old);
        return;
    }
    if (map->used + 1 > map->slot_count / 4 * 3)
        rebuild(map);
    insert(map, (struct entry){.key = slab_strdup(key), .value = value, .hash = hash});
}

static bool take(struct map *map, const char *key, void **value)
{
    if (map->len == 0 || key == NULL)
        return false;
    struct entry *entry = find(map, key, hash_key(map, key));
    if (entry == NULL)
        return false;
    *value = entry->value;
    slab_free_str(entry->key);
    *entry = (struct entry){.key = REMOVED};
    map->len--;
    if (map->len == 0 && map->slot_count > SLOTS_AT_LEAST)
        map_clear(map); /* what a burst needed; an iteration under way ends, as it would anyway */
    return true;
}

bool map_remove(struct map *map, const char *key)
{
    void *value = NULL;
    if (!take(map, key, &value))
        return false;
    if (map->free_value != NULL && value != NULL)
        map->free_value(value);
    return true;
}

void *map_take(struct map *map, const char *key)
{
    void *value = NULL;
    return take(map, key, &value) ? value : NULL;
}

size_t map_len(const struct map *map)
{
    return map->len;
}

bool map_next(const struct map *map, struct map_iter *iter)
{
    while (iter->slot < map->slot_count) {
        const struct entry *entry = &map->slots[iter->slot++];
        if (entry->key == NULL || entry->key == REMOVED)
            continue;
        iter->key = entry->key;
        iter->value = entry->value;
        return true;
    }
    return false;
}
