/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that are in use just now: open, being changed, or unlinked while open. Nothing here has to survive the
 * process: a successor that knows none of it makes a node when the first call for it comes in.
 */
#ifndef BERTH_FUSE_NODE_H
#define BERTH_FUSE_NODE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct node {
    uint64_t id;
    struct node *next;    /* chain; table's lock */
    uint32_t references;  /* table's lock */
    uint32_t opens;       /* table's lock: open handles that this process has seen */
    bool opened_earlier;  /* table's lock: used through a handle that another process opened, or a removed directory:
                           * stays  until the kernel forgets it */
    bool orphan;          /* table's lock: unlinked, with a name in orphans/ until the kernel forgets it */
    bool watched;         /* table's lock: changed a while ago, its blocks are looked at again */
    pthread_mutex_t lock; /* serialises what may allocate, and the making of the descriptors */
    int data_fd;          /* of a regular file, shared by all who have it open; -1 = none yet */
    bool data_read_only;
    int dir_fd;                   /* of a directory that is being read; -1 = none yet */
    int64_t dir_position;         /* where dir_fd stands; `lock` */
    int64_t charged;              /* bytes it counts for; -1 = not looked at yet; `lock` */
    int64_t changed_at;           /* when those bytes changed last (monotonic); `lock` */
    struct sync_failure *failure; /* of a sync; NULL = none; `lock` */
};

/* The file system below tells of data that it could not write only once to data_fd, which all share; so a failed sync
 * is kept for the others. Handles are numbered in the order of their opening. node->lock held. */
void node_sync_failed(struct node *node, int error, uint64_t handle, uint64_t newest_handle);
/* The errno of a failure that this handle has not heard of yet, or 0; it has now. */
int node_sync_error(struct node *node, uint64_t handle);

struct node_table {
    pthread_mutex_t lock;
    struct node **slots; /* a power of two of chains */
    size_t slot_count, count;
    size_t orphans; /* nodes that are orphans */
    size_t watched;
};
void node_table_init(struct node_table *table);
void node_table_destroy(struct node_table *table);

/* The node, made when it is not there; with a reference that node_put gives back. */
struct node *node_get(struct node_table *table, uint64_t id);
/* NULL when it is not in use. */
struct node *node_find(struct node_table *table, uint64_t id);
void node_put(struct node_table *table, struct node *node); /* NULL is fine */
/* One more, one less open handle. */
void node_opened(struct node_table *table, struct node *node);
void node_released(struct node_table *table, struct node *node);
/* The kernel forgot it (or it is gone): nothing of a predecessor's handles is left. Those this process has seen are
 * counted on. */
void node_forgotten(struct node_table *table, struct node *node);
/* A call came through a handle: if this process has not seen it opened, a predecessor has. */
void node_used(struct node_table *table, struct node *node);
bool node_is_open(struct node_table *table, const struct node *node);
void node_set_orphan(struct node_table *table, struct node *node, bool orphan);
bool node_is_orphan(struct node_table *table, const struct node *node);
bool node_has_orphans(struct node_table *table);

/* A watched node stays in the table, so that what it was charged with is not forgotten while the file system may still
 * allocate for it. At most NODE_MAX_WATCHED are. */
#define NODE_MAX_WATCHED 1024
void node_watch(struct node_table *table, struct node *node, bool watch);
/* All watched nodes, each with a reference that node_put gives back; the array is owned by the caller. */
struct node **node_list_watched(struct node_table *table, size_t *count);
/* The ids of all orphans; owned by the caller. */
uint64_t *node_list_orphans(struct node_table *table, size_t *count);

#endif
