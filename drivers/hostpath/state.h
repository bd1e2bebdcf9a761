/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver knows, durable: one JSON record per volume, written atomically before the answer that depends on it.
 *
 *     STATE/lock                  held by the one driver that may use this directory
 *     STATE/records/ID.json       a volume's record; written last when it is made, removed first when it is deleted
 *     STATE/volumes/ID/data       the files of a volume, or
 *     STATE/volumes/ID/image      its block device's contents
 *     STATE/trash/…               being deleted: emptied at start and after each deletion
 *
 * Whatever lies in volumes/ without a record was never answered for, or is already deleted: it goes to the trash at
 * start.
 */
#ifndef BERTH_HOSTPATH_STATE_H
#define BERTH_HOSTPATH_STATE_H

#include "lib/base/err.h"
#include "lib/base/str.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum volume_backend { BACKEND_FUSE, BACKEND_LOOP, BACKEND_PLAIN };
const char *volume_backend_name(enum volume_backend backend);
bool volume_backend_parse(const char *name, enum volume_backend *backend);

struct volume_target { /* a publish */
    char *path;
    bool read_only;
    int access_mode;
    char *capability; /* canonical text of the capability, to tell a repeated call from another one */
};

struct volume {
    char *id, *name;
    int64_t capacity;
    bool block;
    bool ephemeral;
    enum volume_backend backend;
    char *kind;                              /* of simulated pools; NULL = none */
    char *source_snapshot, *source_volume;   /* ids, NULL = none */
    int64_t created;                         /* wall ns */
    char *staging_path, *staging_capability; /* NULL = not staged */
    bool attached, attached_read_only;
    struct volume_target *targets;
    size_t target_count;
    json_t *mutable_parameters; /* object of strings */
};
struct volume *volume_new(void);
struct volume *volume_copy(const struct volume *volume);
void volume_free(struct volume *volume);
static inline void volume_cleanup(struct volume **volume)
{
    volume_free(*volume);
}
#define auto_volume __attribute__((cleanup(volume_cleanup)))
struct volume_target *volume_find_target(struct volume *volume, const char *path);
void volume_add_target(struct volume *volume, const char *path, bool read_only, int access_mode,
                       const char *capability);
void volume_remove_target(struct volume *volume, const char *path);

struct state;
/* Locks the directory (a second driver is refused), makes what is missing, loads the records, empties the trash. */
int state_open(const char *directory, struct state **state, struct err *err);
void state_close(struct state *state);
int state_directory_fd(const struct state *state);
const char *state_directory(const struct state *state);

/* Copies, owned by the caller; NULL when there is none. Thread-safe. */
struct volume *state_volume(struct state *state, const char *id);
struct volume *state_volume_by_name(struct state *state, const char *name);
/* Calls visit for each volume in the order of ids with the lock held; it must not call into the state. */
void state_each_volume(struct state *state, void (*visit)(void *arg, const struct volume *volume), void *arg);
/* Writes the record durably, then shows it to readers. */
int state_save_volume(struct state *state, const struct volume *volume, struct err *err);
/* Removes the record durably, then moves the data away and removes it. Idempotent. */
int state_delete_volume(struct state *state, const char *id, struct err *err);

/* Absolute path of a volume's data directory or image; owned by the caller. id is one of ours (a safe name). */
char *state_volume_path(const struct state *state, const char *id, const char *part);
/* Makes volumes/ID with an empty data directory, durable. */
int state_make_data(struct state *state, const char *id, struct err *err);
/* Moves volumes/ID (if there) to the trash and removes it. */
int state_discard_data(struct state *state, const char *id, struct err *err);

#endif
