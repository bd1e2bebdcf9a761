/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/volumes.h"

#include "lib/base/mem.h"

#define TOKEN_PREFIX "after:"

int volumes_read_parameters(struct csi_map parameters, struct volume *volume, bool *backend_given, const char **size,
                            struct err *err)
{
    const char *key, *value;
    *backend_given = false;
    for (size_t i = 0; i < parameters.len; i++) {
        if (!csi_map_at(parameters, i, &key, &value) || str_starts(key, "csi.storage.k8s.io/"))
            continue;
        if (str_eq(key, "backend")) {
            if (!volume_backend_parse(value, &volume->backend))
                return csi_fail(err, CSI_INVALID_ARGUMENT, "backend \"%s\" is unknown (fuse, loop or plain)", value);
            *backend_given = true;
        } else if (str_eq(key, "kind")) {
            free(volume->kind);
            volume->kind = mem_strdup(value);
        } else if (size != NULL && str_eq(key, "size")) {
            *size = value;
        } else {
            return csi_fail(err, CSI_INVALID_ARGUMENT, "unknown parameter \"%s\" (known: backend, kind%s)", key,
                            size != NULL ? ", size" : "");
        }
    }
    return 0;
}

int volumes_check_mutable(const struct hostpath *driver, struct csi_map parameters, struct err *err)
{
    const char *key, *value;
    for (size_t i = 0; i < parameters.len; i++) {
        if (!csi_map_at(parameters, i, &key, &value))
            continue;
        if (!driver->options.modify)
            return csi_fail(err, CSI_INVALID_ARGUMENT, "mutable parameters are switched off");
        if (!strv_contains(&driver->options.mutable_names, key))
            return csi_fail(err, CSI_INVALID_ARGUMENT, "mutable parameter \"%s\" is not accepted", key);
    }
    return 0;
}

void volumes_set_mutable(struct volume *volume, struct csi_map parameters)
{
    const char *key, *value;
    for (size_t i = 0; i < parameters.len; i++)
        if (csi_map_at(parameters, i, &key, &value))
            json_object_set_new(volume->mutable_parameters, key, json_string(value));
}

void volumes_fill(const struct hostpath *driver, const struct volume *volume, struct csi_arena *arena,
                  Csi__V1__Volume *reply)
{
    reply->volume_id = csi_arena_strdup(arena, volume->id);
    reply->capacity_bytes = volume->capacity;
    CSI_MAP_ADD(arena, reply, volume_context, "backend", volume_backend_name(volume->backend));
    if (volume->kind != NULL)
        CSI_MAP_ADD(arena, reply, volume_context, "kind", volume->kind);
    if (volume->source_snapshot != NULL)
        CSI_NEW(arena, CSI_NEW(arena, reply, content_source), snapshot)->snapshot_id =
            csi_arena_strdup(arena, volume->source_snapshot);
    else if (volume->source_volume != NULL)
        CSI_NEW(arena, CSI_NEW(arena, reply, content_source), volume)->volume_id =
            csi_arena_strdup(arena, volume->source_volume);
    if (driver->options.topology)
        CSI_MAP_ADD(arena, CSI_ADD(arena, reply, accessible_topology), segments, HOSTPATH_TOPOLOGY_KEY,
                    driver->options.node_id);
}

void volumes_fill_snapshot(const struct snapshot *snapshot, struct csi_arena *arena, Csi__V1__Snapshot *reply)
{
    reply->snapshot_id = csi_arena_strdup(arena, snapshot->id);
    reply->source_volume_id = csi_arena_strdup(arena, snapshot->source_volume);
    reply->size_bytes = snapshot->size;
    reply->ready_to_use = true;
    reply->group_snapshot_id = csi_arena_strdup(arena, snapshot->group);
    Google__Protobuf__Timestamp *time = CSI_NEW(arena, reply, creation_time);
    time->seconds = snapshot->created / CLOCK_SECOND;
    time->nanos = (int32_t)(snapshot->created % CLOCK_SECOND);
}

void volumes_fill_condition(const char *problem, struct csi_arena *arena, Csi__V1__VolumeCondition *reply)
{
    reply->abnormal = problem != NULL;
    reply->message = csi_arena_strdup(arena, problem != NULL ? problem : "the volume is well");
}

int volumes_read_token(const char *token, const char **after, struct err *err)
{
    *after = "";
    if (*token == '\0')
        return 0;
    if (!str_starts(token, TOKEN_PREFIX) || !state_id_is_safe(token + strlen(TOKEN_PREFIX)))
        return csi_fail(err, CSI_ABORTED, "starting_token is not one that this driver gave out: list from the start");
    *after = token + strlen(TOKEN_PREFIX);
    return 0;
}

char *volumes_make_token(struct csi_arena *arena, const char *last_id)
{
    return csi_arena_printf(arena, TOKEN_PREFIX "%s", last_id);
}
