/* SPDX-License-Identifier: Apache-2.0 */
/* Hash map from strings to pointers; keys are copied. Not thread-safe: its owner locks. */
#ifndef BERTH_BASE_MAP_H
#define BERTH_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>

struct map;

/* free_value is called for values that are replaced, removed or left at map_free; NULL when values are borrowed. */
struct map *map_new(void (*free_value)(void *value));
void map_free(struct map *map); /* NULL is fine */
static inline void map_cleanup(struct map **map)
{
    map_free(*map);
}
#define auto_map __attribute__((cleanup(map_cleanup)))

void *map_get(const struct map *map, const char *key); /* NULL when absent; still owned by the map */
bool map_has(const struct map *map, const char *key);
void map_set(struct map *map, const char *key, void *value); /* takes ownership of value */
bool map_remove(struct map *map, const char *key);           /* true when it was there */
void *map_take(struct map *map, const char *key);            /* removes without free_value; NULL when absent */
size_t map_len(const struct map *map);
void map_clear(struct map *map);

/* Iteration in no particular order: `for (struct map_iter it = {0}; map_next(map, &it);) use(it.key, it.value);`
 * The entry just returned may be removed from within the loop; adding is not allowed. */
struct map_iter {
    size_t slot;
    const char *key;
    void *value;
};
bool map_next(const struct map *map, struct map_iter *iter);

#endif
