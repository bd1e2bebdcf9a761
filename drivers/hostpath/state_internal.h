/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by state.c (records) and state_data.c (directories); nothing else includes it. */
#ifndef BERTH_HOSTPATH_STATE_INTERNAL_H
#define BERTH_HOSTPATH_STATE_INTERNAL_H

#include "drivers/hostpath/state.h"
#include "lib/base/map.h"

#include <pthread.h>

/* The records of one kind, found by id and by name. */
struct table {
    struct map *by_id;   /* id → object */
    struct map *by_name; /* name → id, borrowed from the object */
};
enum table_kind { TABLE_VOLUMES, TABLE_SNAPSHOTS, TABLE_GROUPS, TABLE_COUNT };

struct state {
    char *directory;
    int root, records, data[2], trash, lock;
    pthread_mutex_t mutex;
    struct table tables[TABLE_COUNT];
    struct strv left; /* names in the trash at start: those that come later belong to the calls that put them there */
};

int state_open_directory(int parent, const char *name, int *fd, struct err *err);
/* Calls visit for each name in the directory; the first failure ends it. */
int state_each_name(int directory, int (*visit)(void *arg, const char *name, struct err *err), void *arg,
                    struct err *err);
/* Moves to the trash what has no record of its kind. */
int state_discard_orphans(struct state *state, struct err *err);
/* Remembers what lies in the trash now, for state_empty_trash. */
int state_note_trash(struct state *state, struct err *err);
/* The same as state_discard_data, but the removal is left for later. */
int state_move_to_trash(struct state *state, enum state_data kind, const char *id, char **trash_name, struct err *err);

#endif
