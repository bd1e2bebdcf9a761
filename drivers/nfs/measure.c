/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/copy.h"

#include "lib/base/map.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define PAGE_BYTES 32768U

struct queue { /* directories still to be read */
    struct share_fh *items;
    size_t len, cap;
};

static void add(struct queue *queue, const struct share_fh *fh)
{
    if (queue->len == queue->cap) {
        queue->cap = queue->cap == 0 ? 64 : queue->cap * 2;
        queue->items = mem_realloc_array(queue->items, queue->cap, sizeof(*queue->items));
    }
    queue->items[queue->len++] = *fh;
}

static void count(const struct share_entry *entry, struct map *links, uint64_t *used)
{
    if (entry->attr.nlink > 1 && entry->attr.type != SHARE_DIRECTORY) {
        char key[24];
        snprintf(key, sizeof(key), "%" PRIx64, entry->attr.fileid);
        if (map_has(links, key))
            return;
        map_set(links, key, NULL);
    }
    *used += entry->attr.used;
}

static int read_one(struct share *share, const struct share_fh *dir, const struct share_attr *root, struct queue *queue,
                    struct map *links, uint64_t *used, uint64_t *entries)
{
    auto_page struct share_page page = {0};
    while (!page.eof) {
        int error = share_readdir(share, dir, PAGE_BYTES, &page);
        if (error == ESTALE || error == ENOENT || error == ENOTDIR) /* gone meanwhile */
            return 0;
        if (error != 0)
            return error;
        for (size_t i = 0; i < page.len; i++) {
            struct share_entry *entry = &page.items[i];
            if ((!entry->has_attr || !entry->has_fh) &&
                share_lookup(share, dir, entry->name, &entry->fh, &entry->attr) != 0)
                continue;
            if (entry->attr.fsid[0] != root->fsid[0] || entry->attr.fsid[1] != root->fsid[1])
                continue;
            ++*entries;
            count(entry, links, used);
            if (entry->attr.type == SHARE_DIRECTORY)
                add(queue, &entry->fh);
        }
    }
    return 0;
}

int share_measure_tree(struct share *share, const struct share_fh *dir, uint64_t *used, uint64_t *entries,
                       struct err *err)
{
    struct queue queue = {0};
    struct share_attr root;
    auto_map struct map *links = map_new(NULL);
    *used = 0;
    *entries = 0;
    int error = share_getattr(share, dir, &root);
    add(&queue, dir);
    while (error == 0 && queue.len > 0) {
        struct share_fh next = queue.items[--queue.len];
        error = read_one(share, &next, &root, &queue, links, used, entries);
    }
    free(queue.items);
    return error == 0 ? 0 : share_fail(share, error, err, "measuring what is used");
}
