/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/record.h"

#include "lib/base/mem.h"

/* ---- what all records have ---- */

char *record_text(const json_t *record, const char *key)
{
    return mem_strdup(json_string_value(json_object_get(record, key)));
}

void record_set_text(json_t *record, const char *key, const char *value)
{
    if (value != NULL)
        json_object_set_new(record, key, json_string(value));
}

const char *record_type(const json_t *record)
{
    const char *type = json_string_value(json_object_get(record, "type"));
    return type != NULL ? type : "volume";
}

int record_check_format(const json_t *record, struct err *err)
{
    if (json_integer_value(json_object_get(record, "format")) > RECORD_FORMAT)
        return err_set(err, ERR_INVALID, "it was written by a newer version of the driver");
    return 0;
}

/* ---- snapshots ---- */

struct snapshot *snapshot_new(void)
{
    return mem_new(struct snapshot);
}

void snapshot_free(struct snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    free(snapshot->id);
    free(snapshot->name);
    free(snapshot->source_volume);
    free(snapshot->group);
    free(snapshot);
}

struct snapshot *snapshot_copy(const struct snapshot *snapshot)
{
    struct snapshot *copy = mem_dup(snapshot, sizeof(*snapshot));
    copy->id = mem_strdup(snapshot->id);
    copy->name = mem_strdup(snapshot->name);
    copy->source_volume = mem_strdup(snapshot->source_volume);
    copy->group = mem_strdup(snapshot->group);
    return copy;
}

json_t *record_from_snapshot(const struct snapshot *snapshot)
{
    json_t *record =
        json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:I, s:b, s:s}", "format", RECORD_FORMAT, "type", "snapshot", "id",
                  snapshot->id, "name", snapshot->name, "sourceVolume", snapshot->source_volume, "size",
                  (json_int_t)snapshot->size, "created", (json_int_t)snapshot->created, "block", snapshot->block,
                  "backend", volume_backend_name(snapshot->backend));
    record_set_text(record, "group", snapshot->group);
    return record;
}

struct snapshot *record_to_snapshot(const json_t *record, struct err *err)
{
    auto_snapshot struct snapshot *snapshot = snapshot_new();
    snapshot->id = record_text(record, "id");
    snapshot->name = record_text(record, "name");
    snapshot->source_volume = record_text(record, "sourceVolume");
    snapshot->group = record_text(record, "group");
    snapshot->size = json_integer_value(json_object_get(record, "size"));
    snapshot->created = json_integer_value(json_object_get(record, "created"));
    snapshot->block = json_is_true(json_object_get(record, "block"));
    if (record_check_format(record, err) < 0)
        return NULL;
    if (str_empty(snapshot->id) || snapshot->name == NULL || snapshot->source_volume == NULL || snapshot->size < 0 ||
        !volume_backend_parse(json_string_value(json_object_get(record, "backend")), &snapshot->backend)) {
        err_set(err, ERR_INVALID, "id, name, sourceVolume, size or backend is missing or wrong");
        return NULL;
    }
    return mem_take(snapshot);
}

/* ---- groups of snapshots ---- */

struct group *group_new(void)
{
    return mem_new(struct group);
}

void group_free(struct group *group)
{
    if (group == NULL)
        return;
    free(group->id);
    free(group->name);
    strv_free(&group->sources);
    strv_free(&group->snapshots);
    free(group);
}

struct group *group_copy(const struct group *group)
{
    struct group *copy = group_new();
    copy->id = mem_strdup(group->id);
    copy->name = mem_strdup(group->name);
    copy->created = group->created;
    strv_copy(&copy->sources, &group->sources);
    strv_copy(&copy->snapshots, &group->snapshots);
    return copy;
}

static json_t *list_to_json(const struct strv *list)
{
    json_t *array = json_array();
    for (size_t i = 0; i < list->len; i++)
        json_array_append_new(array, json_string(list->items[i]));
    return array;
}

static void list_from_json(const json_t *array, struct strv *list)
{
    size_t index;
    json_t *item;
    json_array_foreach (array, index, item)
        if (json_is_string(item))
            strv_add(list, json_string_value(item));
}

json_t *record_from_group(const struct group *group)
{
    return json_pack("{s:i, s:s, s:s, s:s, s:I, s:o, s:o}", "format", RECORD_FORMAT, "type", "group", "id", group->id,
                     "name", group->name, "created", (json_int_t)group->created, "sources",
                     list_to_json(&group->sources), "snapshots", list_to_json(&group->snapshots));
}

struct group *record_to_group(const json_t *record, struct err *err)
{
    auto_group struct group *group = group_new();
    group->id = record_text(record, "id");
    group->name = record_text(record, "name");
    group->created = json_integer_value(json_object_get(record, "created"));
    list_from_json(json_object_get(record, "sources"), &group->sources);
    list_from_json(json_object_get(record, "snapshots"), &group->snapshots);
    if (record_check_format(record, err) < 0)
        return NULL;
    if (str_empty(group->id) || group->name == NULL || group->sources.len != group->snapshots.len) {
        err_set(err, ERR_INVALID, "id, name, sources or snapshots are missing or wrong");
        return NULL;
    }
    return mem_take(group);
}
