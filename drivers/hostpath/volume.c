/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/record.h"

#include "lib/base/mem.h"

static const char *const backend_names[] = {
    [BACKEND_FUSE] = "fuse",
    [BACKEND_LOOP] = "loop",
    [BACKEND_PLAIN] = "plain",
};

const char *volume_backend_name(enum volume_backend backend)
{
    return backend_names[backend];
}

bool volume_backend_parse(const char *name, enum volume_backend *backend)
{
    for (size_t i = 0; i < ARRAY_LEN(backend_names); i++)
        if (str_eq(name, backend_names[i])) {
            *backend = (enum volume_backend)i;
            return true;
        }
    return false;
}

struct volume *volume_new(void)
{
    struct volume *volume = mem_new(struct volume);
    volume->mutable_parameters = json_object();
    return volume;
}

static void target_clear(struct volume_target *target)
{
    free(target->path);
    free(target->capability);
}

void volume_free(struct volume *volume)
{
    if (volume == NULL)
        return;
    free(volume->id);
    free(volume->name);
    free(volume->kind);
    free(volume->source_snapshot);
    free(volume->source_volume);
    free(volume->staging_path);
    free(volume->staging_capability);
    free(volume->attached_capability);
    for (size_t i = 0; i < volume->target_count; i++)
        target_clear(&volume->targets[i]);
    free(volume->targets);
    json_decref(volume->mutable_parameters);
    free(volume);
}

struct volume *volume_copy(const struct volume *volume)
{
    struct volume *copy = mem_dup(volume, sizeof(*volume));
    copy->id = mem_strdup(volume->id);
    copy->name = mem_strdup(volume->name);
    copy->kind = mem_strdup(volume->kind);
    copy->source_snapshot = mem_strdup(volume->source_snapshot);
    copy->source_volume = mem_strdup(volume->source_volume);
    copy->staging_path = mem_strdup(volume->staging_path);
    copy->staging_capability = mem_strdup(volume->staging_capability);
    copy->attached_capability = mem_strdup(volume->attached_capability);
    copy->targets = NULL;
    copy->target_count = 0;
    for (size_t i = 0; i < volume->target_count; i++)
        volume_add_target(copy, volume->targets[i].path, volume->targets[i].read_only, volume->targets[i].access_mode,
                          volume->targets[i].capability);
    copy->mutable_parameters = json_deep_copy(volume->mutable_parameters);
    return copy;
}

struct volume_target *volume_find_target(const struct volume *volume, const char *path)
{
    for (size_t i = 0; i < volume->target_count; i++)
        if (str_eq(volume->targets[i].path, path))
            return &volume->targets[i];
    return NULL;
}

void volume_add_target(struct volume *volume, const char *path, bool read_only, int access_mode, const char *capability)
{
    volume->targets = mem_realloc_array(volume->targets, volume->target_count + 1, sizeof(*volume->targets));
    volume->targets[volume->target_count++] = (struct volume_target){.path = mem_strdup(path),
                                                                     .read_only = read_only,
                                                                     .access_mode = access_mode,
                                                                     .capability = mem_strdup(capability)};
}

void volume_remove_target(struct volume *volume, const char *path)
{
    struct volume_target *target = volume_find_target(volume, path);
    if (target == NULL)
        return;
    target_clear(target);
    *target = volume->targets[--volume->target_count];
}

void volume_set_staging(struct volume *volume, const char *path, const char *capability)
{
    char *new_path = mem_strdup(path), *new_capability = mem_strdup(capability); /* they may be the old ones */
    free(volume->staging_path);
    free(volume->staging_capability);
    volume->staging_path = new_path;
    volume->staging_capability = new_capability;
}

bool volume_is_image(const struct volume *volume)
{
    return volume->block || volume->backend == BACKEND_LOOP;
}

json_t *record_from_volume(const struct volume *volume)
{
    json_t *targets = json_array();
    for (size_t i = 0; i < volume->target_count; i++) {
        const struct volume_target *target = &volume->targets[i];
        json_t *item = json_pack("{s:s, s:b, s:i}", "path", target->path, "readOnly", target->read_only, "accessMode",
                                 target->access_mode);
        record_set_text(item, "capability", target->capability);
        json_array_append_new(targets, item);
    }
    json_t *record =
        json_pack("{s:i, s:s, s:s, s:s, s:I, s:b, s:b, s:s, s:I, s:b, s:b, s:o, s:O}", "format", RECORD_FORMAT, "type",
                  "volume", "id", volume->id, "name", volume->name, "capacity", (json_int_t)volume->capacity, "block",
                  volume->block, "ephemeral", volume->ephemeral, "backend", volume_backend_name(volume->backend),
                  "created", (json_int_t)volume->created, "attached", volume->attached, "attachedReadOnly",
                  volume->attached_read_only, "targets", targets, "mutableParameters", volume->mutable_parameters);
    record_set_text(record, "kind", volume->kind);
    record_set_text(record, "sourceSnapshot", volume->source_snapshot);
    record_set_text(record, "sourceVolume", volume->source_volume);
    record_set_text(record, "stagingPath", volume->staging_path);
    record_set_text(record, "stagingCapability", volume->staging_capability);
    record_set_text(record, "attachedCapability", volume->attached_capability);
    return record;
}

struct volume *record_to_volume(const json_t *record, struct err *err)
{
    auto_volume struct volume *volume = volume_new();
    volume->id = record_text(record, "id");
    volume->name = record_text(record, "name");
    volume->capacity = json_integer_value(json_object_get(record, "capacity"));
    const char *backend = json_string_value(json_object_get(record, "backend"));
    if (record_check_format(record, err) < 0)
        return NULL;
    if (str_empty(volume->id) || volume->name == NULL || volume->capacity < 0 ||
        !volume_backend_parse(backend, &volume->backend)) {
        err_set(err, ERR_INVALID, "id, name, capacity or backend is missing or wrong");
        return NULL;
    }
    volume->block = json_is_true(json_object_get(record, "block"));
    volume->ephemeral = json_is_true(json_object_get(record, "ephemeral"));
    volume->created = json_integer_value(json_object_get(record, "created"));
    volume->attached = json_is_true(json_object_get(record, "attached"));
    volume->attached_read_only = json_is_true(json_object_get(record, "attachedReadOnly"));
    volume->kind = record_text(record, "kind");
    volume->source_snapshot = record_text(record, "sourceSnapshot");
    volume->source_volume = record_text(record, "sourceVolume");
    volume->staging_path = record_text(record, "stagingPath");
    volume->staging_capability = record_text(record, "stagingCapability");
    volume->attached_capability = record_text(record, "attachedCapability");
    size_t index;
    json_t *item;
    json_array_foreach (json_object_get(record, "targets"), index, item) {
        const char *path = json_string_value(json_object_get(item, "path"));
        if (path != NULL)
            volume_add_target(volume, path, json_is_true(json_object_get(item, "readOnly")),
                              (int)json_integer_value(json_object_get(item, "accessMode")),
                              json_string_value(json_object_get(item, "capability")));
    }
    json_t *parameters = json_object_get(record, "mutableParameters");
    if (json_is_object(parameters))
        json_object_update(volume->mutable_parameters, parameters);
    return mem_take(volume);
}
