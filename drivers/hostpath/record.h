/* SPDX-License-Identifier: Apache-2.0 */
/* The objects of the driver, and their records on disk: JSON with a format number, so that an older driver refuses what
 * it does not understand. */
#ifndef BERTH_HOSTPATH_RECORD_H
#define BERTH_HOSTPATH_RECORD_H

#include "lib/base/err.h"
#include "lib/base/str.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define RECORD_FORMAT 1

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
    char *attached_capability;
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
struct volume_target *volume_find_target(const struct volume *volume, const char *path);
void volume_add_target(struct volume *volume, const char *path, bool read_only, int access_mode,
                       const char *capability);
void volume_remove_target(struct volume *volume, const char *path);
/* NULLs = not staged. */
void volume_set_staging(struct volume *volume, const char *path, const char *capability);
/* Its data is an image file, not a tree of files. */
bool volume_is_image(const struct volume *volume);

struct snapshot {
    char *id, *name;
    char *source_volume;
    char *group; /* id; NULL = none */
    int64_t size;
    int64_t created; /* wall ns: the cut */
    bool block;
    enum volume_backend backend;
};
struct snapshot *snapshot_new(void);
struct snapshot *snapshot_copy(const struct snapshot *snapshot);
void snapshot_free(struct snapshot *snapshot);
static inline void snapshot_cleanup(struct snapshot **snapshot)
{
    snapshot_free(*snapshot);
}
#define auto_snapshot __attribute__((cleanup(snapshot_cleanup)))

struct group {
    char *id, *name;
    struct strv sources;   /* volume ids, sorted */
    struct strv snapshots; /* ids, in the order of sources */
    int64_t created;       /* wall ns */
};
struct group *group_new(void);
struct group *group_copy(const struct group *group);
void group_free(struct group *group);
static inline void group_cleanup(struct group **group)
{
    group_free(*group);
}
#define auto_group __attribute__((cleanup(group_cleanup)))

/* Records have a "type": volume, snapshot or group. New references; the objects are owned by the caller, NULL on
 * failure. */
json_t *record_from_volume(const struct volume *volume);
json_t *record_from_snapshot(const struct snapshot *snapshot);
json_t *record_from_group(const struct group *group);
const char *record_type(const json_t *record); /* "volume" when it says nothing */
struct volume *record_to_volume(const json_t *record, struct err *err);
struct snapshot *record_to_snapshot(const json_t *record, struct err *err);
struct group *record_to_group(const json_t *record, struct err *err);
/* For record_to_…: that the format is not of a newer version. */
int record_check_format(const json_t *record, struct err *err);
char *record_text(const json_t *record, const char *key); /* owned by the caller; NULL when absent */
void record_set_text(json_t *record, const char *key, const char *value);

#endif
