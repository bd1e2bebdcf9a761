/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/lru.h"

#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "lib/base/slab.h"

#include <string.h>

struct node {
    struct node *newer, *older;
    void *value;
    char key[];
};

struct lru {
    size_t limit;
    void (*free_value)(void *value);
    struct map *nodes; /* borrowed: freed here, since a node knows no free_value */
    struct node *newest, *oldest;
};

struct lru *lru_new(size_t limit, void (*free_value)(void *value))
{
    struct lru *lru = mem_new(struct lru);
    lru->limit = limit;
    lru->free_value = free_value;
    lru->nodes = map_new(NULL);
    return lru;
}

static void unlink_node(struct lru *lru, const struct node *node)
{
    *(node->newer != NULL ? &node->newer->older : &lru->newest) = node->older;
    *(node->older != NULL ? &node->older->newer : &lru->oldest) = node->newer;
}

static void link_newest(struct lru *lru, struct node *node)
{
    node->newer = NULL;
    node->older = lru->newest;
    *(lru->newest != NULL ? &lru->newest->newer : &lru->oldest) = node;
    lru->newest = node;
}

static void free_node(struct lru *lru, struct node *node)
{
    lru->free_value(node->value);
    slab_free(node, sizeof(*node) + strlen(node->key) + 1);
}

static void drop(struct lru *lru, struct node *node)
{
    unlink_node(lru, node);
    map_remove(lru->nodes, node->key);
    free_node(lru, node);
}

void lru_free(struct lru *lru)
{
    if (lru == NULL)
        return;
    map_free(lru->nodes);
    for (struct node *node = lru->oldest, *newer; node != NULL; node = newer) {
        newer = node->newer;
        free_node(lru, node);
    }
    free(lru);
}

void *lru_get(struct lru *lru, const char *key)
{
    struct node *node = map_get(lru->nodes, key);
    if (node == NULL)
        return NULL;
    unlink_node(lru, node);
    link_newest(lru, node);
    return node->value;
}

void lru_set(struct lru *lru, const char *key, void *value)
{
    struct node *node = map_get(lru->nodes, key);
    if (node != NULL)
        drop(lru, node);
    size_t len = strlen(key) + 1;
    node = slab_alloc(sizeof(*node) + len);
    memcpy(node->key, key, len);
    node->value = value;
    map_set(lru->nodes, key, node);
    link_newest(lru, node);
    if (map_len(lru->nodes) > lru->limit)
        drop(lru, lru->oldest);
}

size_t lru_len(const struct lru *lru)
{
    return map_len(lru->nodes);
}
