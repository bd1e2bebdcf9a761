/* SPDX-License-Identifier: Apache-2.0 */
/* A map of bounded size that forgets what was not used for longest. Not thread-safe: its owner locks. */
#ifndef BERTH_KUBE_LRU_H
#define BERTH_KUBE_LRU_H

#include <stddef.h>

struct lru;
struct lru *lru_new(size_t limit, void (*free_value)(void *value));
void lru_free(struct lru *lru); /* NULL is fine */
/* NULL when absent; still owned by the map, and now the one used last. */
void *lru_get(struct lru *lru, const char *key);
/* Takes ownership of value; an old one is freed. The map's limit may push out another entry, never this one. */
void lru_set(struct lru *lru, const char *key, void *value);
size_t lru_len(const struct lru *lru);

#endif
