/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver knows, durable: one JSON record per volume, snapshot and group of snapshots, written atomically
 * before the answer that depends on it.
 *
 *     STATE/lock                  held by the one driver that may use this directory
 *     STATE/records/ID.json       a record; written last when its object is made, removed first when it is deleted
 *     STATE/volumes/ID/data       the files of a volume, or
 *     STATE/volumes/ID/image      its file system (backend loop) or its block device's contents
 *     STATE/snapshots/ID/…        the same for snapshots
 *     STATE/trash/…               being deleted: emptied after the start and after each deletion
 *
 * Whatever lies in volumes/ or snapshots/ without a record was never answered for, or is already deleted: it goes to
 * the trash at start. So the record of a copy is written once the copy is complete, and no crash leaves half of one.
 */
#ifndef BERTH_HOSTPATH_STATE_H
#define BERTH_HOSTPATH_STATE_H

#include "drivers/hostpath/record.h"
#include "lib/base/err.h"
#include "lib/base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct state;
/* Locks the directory (a second driver is refused: ERR_EXISTS), makes what is missing, loads the records, moves to the
 * trash what has none, and removes snapshots whose group is incomplete. */
int state_open(const char *directory, struct state **state, struct err *err);
void state_close(struct state *state);
int state_directory_fd(const struct state *state);
const char *state_directory(const struct state *state);
/* Removes what lay in the trash at the start; may take long. Goes on after an error and tells the first one. Once. */
int state_empty_trash(struct state *state, struct err *err);

/* Ids that may name a record: safe as a file name, at most 128 bytes, no dot first. */
bool state_id_is_safe(const char *id);

/* Copies, owned by the caller; NULL when there is none. Thread-safe. */
struct volume *state_volume(struct state *state, const char *id);
struct volume *state_volume_by_name(struct state *state, const char *name);
struct snapshot *state_snapshot(struct state *state, const char *id);
struct snapshot *state_snapshot_by_name(struct state *state, const char *name);
struct group *state_group(struct state *state, const char *id);
struct group *state_group_by_name(struct state *state, const char *name);
/* Calls visit for each in the order of ids with the lock held; it must not call into the state. */
void state_each_volume(struct state *state, void (*visit)(void *arg, const struct volume *volume), void *arg);
void state_each_snapshot(struct state *state, void (*visit)(void *arg, const struct snapshot *snapshot), void *arg);
void state_each_group(struct state *state, void (*visit)(void *arg, const struct group *group), void *arg);

/* Write the record durably, then show it to readers. ERR_EXISTS when the id is that of a record of another kind. */
int state_save_volume(struct state *state, const struct volume *volume, struct err *err);
int state_save_snapshot(struct state *state, const struct snapshot *snapshot, struct err *err);
int state_save_group(struct state *state, const struct group *group, struct err *err);
/* Remove the record durably, then move the data away and remove it. Idempotent; ids of other kinds are left alone. */
int state_delete_volume(struct state *state, const char *id, struct err *err);
int state_delete_snapshot(struct state *state, const char *id, struct err *err);
int state_delete_group(struct state *state, const char *id, struct err *err);

enum state_data { STATE_VOLUMES, STATE_SNAPSHOTS };
/* Absolute path of an object's directory (part NULL), data directory or image; owned by the caller. */
char *state_data_path(const struct state *state, enum state_data kind, const char *id, const char *part);
/* Makes the empty directory of an object, durable: in it goes its data before its record is written. */
int state_make_data(struct state *state, enum state_data kind, const char *id, struct err *err);
/* Opens `part` ("data", "image", "." for the directory itself) of an object; flags and mode as of open. */
int state_open_data(struct state *state, enum state_data kind, const char *id, const char *part, int flags, mode_t mode,
                    struct err *err);
/* Moves the object's directory (if there) to the trash and removes it. */
int state_discard_data(struct state *state, enum state_data kind, const char *id, struct err *err);

#endif
