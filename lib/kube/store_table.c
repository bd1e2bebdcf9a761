/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing with linear probing. The objects carry their own keys, so a slot is a pointer and 8 bytes; a removal
 * moves later entries of the run up instead of leaving a marker.
 */
#include "lib/base/mem.h"
#include "lib/kube/store_private.h"

#include <sys/random.h>

#define FIRST_SLOTS 16

void store_table_init(struct store_table *table)
{
    *table = (struct store_table){0};
    /* Not rng_real(): the seed only keeps users from choosing names that collide. Without entropy the (random) address
     * has to do. */
    if (getrandom(&table->seed, sizeof(table->seed), GRND_NONBLOCK) != (ssize_t)sizeof(table->seed))
        table->seed = (uint64_t)(uintptr_t)table;
}

void store_table_free(struct store_table *table)
{
    free(table->slots);
    *table = (struct store_table){0};
}

/* Folds the 128-bit product: every bit of both factors reaches every bit of the result. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_text(uint64_t hash, uint64_t seed, const char *text)
{
    size_t len = strlen(text);
    for (size_t at = 0; at < len; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, text + at, len - at < sizeof(word) ? len - at : sizeof(word));
        hash = mix(hash ^ word, seed | 1);
    }
    return mix(hash ^ len, 0x9e3779b97f4a7c15ULL);
}

uint64_t store_table_hash(const struct store_table *table, const char *namespace_, const char *name)
{
    return hash_text(hash_text(table->seed, table->seed, namespace_), table->seed, name);
}

struct store_slot *store_table_find(const struct store_table *table, const char *namespace_, const char *name)
{
    if (table->len == 0)
        return NULL;
    uint32_t hash = (uint32_t)store_table_hash(table, namespace_, name);
    size_t mask = table->slot_count - 1;
    for (size_t i = hash & mask; table->slots[i].object != NULL; i = (i + 1) & mask) {
        struct store_slot *slot = &table->slots[i];
        if (slot->hash == hash && strcmp(slot->object->meta.name, name) == 0 &&
            strcmp(slot->object->meta.namespace_, namespace_) == 0)
            return slot;
    }
    return NULL;
}

static struct store_slot *place(struct store_table *table, struct store_slot entry)
{
    size_t mask = table->slot_count - 1;
    size_t i = entry.hash & mask;
    while (table->slots[i].object != NULL)
        i = (i + 1) & mask;
    table->slots[i] = entry;
    return &table->slots[i];
}

static void resize(struct store_table *table, size_t slot_count)
{
    struct store_slot *old = table->slots;
    size_t old_count = table->slot_count;
    table->slots = mem_calloc(slot_count, sizeof(*table->slots));
    table->slot_count = slot_count;
    for (size_t i = 0; i < old_count; i++) {
        if (old[i].object != NULL)
            place(table, old[i]);
    }
    free(old);
}

struct store_slot *store_table_insert(struct store_table *table, struct kube_object *object)
{
    if (table->len >= table->slot_count / 4 * 3)
        resize(table, table->slot_count > 0 ? table->slot_count * 2 : FIRST_SLOTS);
    table->len++;
    uint32_t hash = (uint32_t)store_table_hash(table, object->meta.namespace_, object->meta.name);
    return place(table, (struct store_slot){.object = object, .hash = hash});
}

void store_table_remove(struct store_table *table, struct store_slot *slot)
{
    size_t mask = table->slot_count - 1;
    size_t hole = (size_t)(slot - table->slots);
    for (size_t i = (hole + 1) & mask; table->slots[i].object != NULL; i = (i + 1) & mask) {
        /* an entry may move into the hole when that is not before the place its hash wants */
        size_t wanted = table->slots[i].hash & mask;
        if (((i - wanted) & mask) >= ((i - hole) & mask)) {
            table->slots[hole] = table->slots[i];
            hole = i;
        }
    }
    table->slots[hole] = (struct store_slot){0};
    table->len--;
    if (table->slot_count > FIRST_SLOTS && table->len < table->slot_count / 8)
        resize(table, table->slot_count / 2);
}
