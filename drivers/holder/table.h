/* SPDX-License-Identifier: Apache-2.0 */
/* The mounts a holder keeps, and the file that tells its successor about them. */
#ifndef BERTH_HOLDER_TABLE_H
#define BERTH_HOLDER_TABLE_H

#include "lib/base/err.h"
#include "lib/base/str.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A mount's process. */
enum held_state {
    HELD_NEW,      /* being mounted */
    HELD_STARTING, /* its process has been started */
    HELD_SERVING,
    HELD_STOPPING, /* its process was told to end, so that a new one can take over */
    HELD_WAITING,  /* its process ended; the next one comes at next_start */
    HELD_GONE,     /* unmounted, or it never came to be: about to be removed */
    HELD_STATES
};
const char *held_state_name(enum held_state state);
/* Moves, and logs the move; a move that is not in the table of allowed ones aborts the program. */
struct held;
void held_move(struct held *held, enum held_state to);
bool held_may_move(enum held_state from, enum held_state to);

struct held {
    char *id, *directory, *target;
    int64_t limit, inode_limit; /* inode_limit as given: 0 = by the limit */
    bool read_only;
    struct strv options;
    unsigned slot; /* names its files: SLOT.sock, SLOT.init */
    bool detached; /* unmounted here, but used through another mount */

    enum held_state state;
    int fuse_fd; /* -1 = none */
    int pid_fd;  /* of its process; -1 = none */
    int ready_fd;
    pid_t pid;
    uint64_t pid_start; /* start time of the process, in the kernel's ticks: tells it from a later one of that number */
    unsigned device;    /* minor number of the mount, 0 = not known */
    int64_t restarts, quick_ends;
    int64_t started_at, next_start;       /* monotonic */
    int64_t told_limit, told_inode_limit; /* what its process knows; another when a call to change it had no answer */
    char *problem;                        /* owned; NULL = all is well */
    bool busy;                            /* a client's call is at work on it */
};
struct held *held_new(const char *id);
void held_free(struct held *held); /* closes the descriptors; ends nothing */

struct table {
    struct held **items; /* in the order of ids */
    size_t len, size;
};
struct held *table_find(const struct table *table, const char *id);
void table_add(struct table *table, struct held *held);    /* its id is not in there yet */
void table_remove(struct table *table, struct held *held); /* and frees it */
void table_clear(struct table *table);
unsigned table_free_slot(const struct table *table);

/* One entry, as in the file and on the wire of a hand-over. */
json_t *table_entry_to_json(const struct held *held);
/* Everything is checked: what comes from a file may be damaged. NULL with ERR_INVALID. Descriptors are -1. */
struct held *table_entry_from_json(const json_t *entry, struct err *err);

/* Durable. boot_id: of the kernel that runs now; mounts of another one are gone. */
int table_save(const struct table *table, const char *path, const char *boot_id, struct err *err);
/* Adds what is in the file. Absent, or of another boot: nothing. ERR_INVALID: damaged or of a newer format. */
int table_load(struct table *table, const char *path, const char *boot_id, struct err *err);

#endif
