/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     chunk (64 KiB, aligned to its size, so that a block finds it by masking its address)
 *     ┌────────┬───────┬───────┬───────┬─ ─ ─┐
 *     │ header │ block │ block │ block │     │
 *     └────────┴───────┴───────┴───────┴─ ─ ─┘
 *
 * Blocks have the size of their class. Freed ones form a list through their first word; those never used yet begin at
 * `fresh`, and their pages are not touched. Chunks with room are in their class's list; a full one is in none.
 */
#include "lib/base/slab.h"

#include "lib/base/mem.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_SIZE ((size_t)64 << 10)
/* Small blocks (keys, nodes) are many and of few sizes, larger ones are fewer and of any size: each class has at least
 * one page that is not full. */
#define FINE_STEP ((size_t)16)
#define FINE_MAX ((size_t)256)
#define FINE_CLASSES (FINE_MAX / FINE_STEP)
#define STEP ((size_t)64)
#define CLASSES (FINE_CLASSES + (SLAB_MAX - FINE_MAX) / STEP)

struct chunk {
    struct chunk *previous, *next;
    void *freed;  /* blocks that came back */
    size_t fresh; /* offset of the first block that was never used */
    size_t used;  /* blocks in use */
};
#define FIRST_BLOCK ((sizeof(struct chunk) + STEP - 1) / STEP * STEP)

static struct {
    pthread_mutex_t lock;
    struct chunk *with_room[CLASSES];
} slabs = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t class_of(size_t size)
{
    if (size <= FINE_MAX)
        return size == 0 ? 0 : (size - 1) / FINE_STEP;
    return FINE_CLASSES + (size - FINE_MAX - 1) / STEP;
}

static size_t block_size(size_t class_)
{
    return class_ < FINE_CLASSES ? (class_ + 1) * FINE_STEP : FINE_MAX + (class_ - FINE_CLASSES + 1) * STEP;
}

static bool has_room(const struct chunk *chunk, size_t class_)
{
    return chunk->freed != NULL || chunk->fresh + block_size(class_) <= CHUNK_SIZE;
}

static void link_chunk(struct chunk *chunk, size_t class_)
{
    chunk->previous = NULL;
    chunk->next = slabs.with_room[class_];
    if (chunk->next != NULL)
        chunk->next->previous = chunk;
    slabs.with_room[class_] = chunk;
}

static void unlink_chunk(struct chunk *chunk, size_t class_)
{
    if (chunk->previous != NULL)
        chunk->previous->next = chunk->next;
    else
        slabs.with_room[class_] = chunk->next;
    if (chunk->next != NULL)
        chunk->next->previous = chunk->previous;
}

/* mmap aligns to pages only: twice the size always holds an aligned chunk, the rest is given back. */
static struct chunk *map_chunk(void)
{
    char *area = mmap(NULL, 2 * CHUNK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) {
        fprintf(stderr, "out of memory\n");
        abort();
    }
    size_t before = (CHUNK_SIZE - (uintptr_t)area % CHUNK_SIZE) % CHUNK_SIZE;
    if (before > 0)
        munmap(area, before);
    munmap(area + before + CHUNK_SIZE, CHUNK_SIZE - before);
    struct chunk *chunk = (struct chunk *)(void *)(area + before);
    chunk->fresh = FIRST_BLOCK;
    return chunk;
}

void *slab_alloc(size_t size)
{
    if (MEM_SANITIZED || size > SLAB_MAX)
        return mem_calloc(1, size > 0 ? size : 1);
    size_t class_ = class_of(size);
    pthread_mutex_lock(&slabs.lock);
    struct chunk *chunk = slabs.with_room[class_];
    if (chunk == NULL) {
        chunk = map_chunk();
        link_chunk(chunk, class_);
    }
    void *block = chunk->freed;
    if (block != NULL) {
        memcpy(&chunk->freed, block, sizeof(chunk->freed));
    } else {
        block = (char *)chunk + chunk->fresh;
        chunk->fresh += block_size(class_);
    }
    chunk->used++;
    if (!has_room(chunk, class_))
        unlink_chunk(chunk, class_);
    pthread_mutex_unlock(&slabs.lock);
    return memset(block, 0, size);
}

void slab_free(void *block, size_t size)
{
    if (block == NULL || MEM_SANITIZED || size > SLAB_MAX) {
        free(block);
        return;
    }
    size_t class_ = class_of(size);
    struct chunk *chunk = (struct chunk *)(void *)((char *)block - (uintptr_t)block % CHUNK_SIZE);
    pthread_mutex_lock(&slabs.lock);
    if (!has_room(chunk, class_))
        link_chunk(chunk, class_);
    memcpy(block, &chunk->freed, sizeof(chunk->freed));
    chunk->freed = block;
    bool empty = --chunk->used == 0;
    if (empty)
        unlink_chunk(chunk, class_);
    pthread_mutex_unlock(&slabs.lock);
    if (empty)
        munmap(chunk, CHUNK_SIZE);
}

char *slab_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(slab_alloc(size), text, size);
}

void slab_free_str(char *text)
{
    if (text != NULL)
        slab_free(text, strlen(text) + 1);
}
