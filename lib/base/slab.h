/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for many small long-lived blocks, kept apart from the heap. What a program stores for weeks (an object of a
 * few hundred bytes) is allocated while short-lived memory (the JSON it came from) surrounds it; in the heap each such
 * block would pin a page that is empty otherwise. As malloc it is one for the process, thread-safe, and has no state to
 * pass.
 *
 * Blocks of one size class live in chunks of their own; an empty chunk goes back to the system. Sanitizer builds use
 * malloc, so that every block is watched.
 */
#ifndef BERTH_BASE_SLAB_H
#define BERTH_BASE_SLAB_H

#include <stddef.h>

/* Zeroed, aligned for anything; never NULL. Larger blocks than SLAB_MAX come from malloc. */
#define SLAB_MAX ((size_t)2048)
void *slab_alloc(size_t size) __attribute__((warn_unused_result));
/* `size` as it was asked for. NULL is fine. */
void slab_free(void *block, size_t size);

#define slab_new(type) ((type *)slab_alloc(sizeof(type)))
/* The copy must keep its length until it is freed. */
char *slab_strdup(const char *text) __attribute__((warn_unused_result));
void slab_free_str(char *text); /* NULL is fine */

#endif
