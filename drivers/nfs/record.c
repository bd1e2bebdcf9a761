/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/record.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <jansson.h>

#define RECORD_LIMIT 65536
#define RECORD_FORMAT 1
#define SUFFIX ".json"

static const char *const state_names[] = {
    [RECORD_CREATING] = "creating",
    [RECORD_READY] = "ready",
    [RECORD_DELETING] = "deleting",
    [RECORD_ARCHIVING] = "archiving",
};

void record_clear(struct record *record)
{
    free(record->id);
    free(record->name);
    free(record->sub_dir);
    free(record->source_snapshot);
    free(record->source_volume);
    free(record->source_handle);
    free(record->archive);
    *record = (struct record){0};
}

static const struct {
    const char *key;
    size_t offset;
} texts[] = {
    {"id", offsetof(struct record, id)},
    {"name", offsetof(struct record, name)},
    {"subDir", offsetof(struct record, sub_dir)},
    {"sourceSnapshot", offsetof(struct record, source_snapshot)},
    {"sourceVolume", offsetof(struct record, source_volume)},
    {"sourceHandle", offsetof(struct record, source_handle)},
    {"archive", offsetof(struct record, archive)},
};
static const struct {
    const char *key;
    size_t offset;
} numbers[] = {
    {"capacity", offsetof(struct record, capacity)},
    {"created", offsetof(struct record, created)},
    {"content", offsetof(struct record, content)},
};

char *record_to_text(const struct record *record)
{
    json_t *json = json_pack("{s:i, s:s, s:s}", "format", RECORD_FORMAT, "state", state_names[record->state],
                             "onDelete", on_delete_name(record->on_delete));
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char *const *text = (char *const *)(const void *)((const char *)record + texts[i].offset);
        if (*text != NULL)
            json_object_set_new(json, texts[i].key, json_string(*text));
    }
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        const int64_t *number = (const int64_t *)(const void *)((const char *)record + numbers[i].offset);
        json_object_set_new(json, numbers[i].key, json_integer(*number));
    }
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(json);
    if (text == NULL) /* names are UTF-8: the server checks */
        abort();
    return text;
}

static int take_json(const json_t *json, struct record *record, struct err *err)
{
    if (json_integer_value(json_object_get(json, "format")) > RECORD_FORMAT)
        return err_set(err, ERR_INVALID, "it was written by a newer version of the driver");
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char **text = (char **)(void *)((char *)record + texts[i].offset);
        *text = mem_strdup(json_string_value(json_object_get(json, texts[i].key)));
    }
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        int64_t *number = (int64_t *)(void *)((char *)record + numbers[i].offset);
        *number = json_integer_value(json_object_get(json, numbers[i].key));
    }
    const char *state = json_string_value(json_object_get(json, "state"));
    const char *policy = json_string_value(json_object_get(json, "onDelete"));
    size_t at = 0;
    while (at < ARRAY_LEN(state_names) && !str_eq(state, state_names[at]))
        at++;
    if (at == ARRAY_LEN(state_names) || policy == NULL || !on_delete_parse(policy, &record->on_delete) ||
        !share_name_is_safe(record->id) || record->name == NULL)
        return err_set(err, ERR_INVALID, "state, onDelete, id or name is missing or wrong");
    record->state = (enum record_state)at;
    /* these become paths */
    if (record->sub_dir != NULL) {
        auto_free char *clean = handle_clean_path(record->sub_dir, "subDir", err);
        if (clean == NULL)
            return -1;
        if (!str_eq(clean, record->sub_dir) || *clean == '\0')
            return err_set(err, ERR_INVALID, "subDir is not clean");
    }
    return 0;
}

int record_from_text(const char *text, size_t len, struct record *record, struct err *err)
{
    json_error_t where;
    json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
    if (json == NULL)
        return err_set(err, ERR_INVALID, "line %d: %s", where.line, where.text);
    int result = take_json(json, record, err);
    json_decref(json);
    if (result < 0)
        record_clear(record);
    return result;
}

int record_load(struct area *area, const struct share_fh *dir, const char *id, struct record *record, struct err *err)
{
    auto_free char *name = mem_printf("%s" SUFFIX, id);
    auto_free char *text = NULL;
    size_t len = 0;
    int error = share_read_file(area->share, dir, name, RECORD_LIMIT, &text, &len);
    if (error == ENOENT)
        return 0;
    if (error != 0)
        return share_fail(area->share, error, err, "reading record %s", name);
    if (record_from_text(text, len, record, err) < 0)
        return err_wrap(err, "record %s on %s:%s", name, share_where(area->share)->server,
                        share_where(area->share)->export);
    return 1;
}

int record_save(struct area *area, const struct share_fh *dir, const struct record *record, struct err *err)
{
    auto_free char *name = mem_printf("%s" SUFFIX, record->id);
    auto_free char *text = record_to_text(record);
    int error = share_replace_file(area->share, dir, name, text, strlen(text), 0600);
    return error == 0 ? 0 : share_fail(area->share, error, err, "writing record %s", name);
}

int record_remove(struct area *area, const struct share_fh *dir, const char *id, struct err *err)
{
    auto_free char *name = mem_printf("%s" SUFFIX, id);
    auto_free char *fresh = mem_printf(SHARE_FRESH_PREFIX "%s", name);
    int error = share_unlink(area->share, dir, fresh); /* a write that was cut short */
    if (error == 0 || error == ENOENT)
        error = share_unlink(area->share, dir, name);
    return error == 0 || error == ENOENT ? 0 : share_fail(area->share, error, err, "removing record %s", name);
}

static int visit_entry(struct area *area, const struct share_fh *dir, const char *file,
                       int (*visit)(void *arg, const struct record *record, struct err *err), void *arg,
                       struct err *err)
{
    if (!str_ends(file, SUFFIX) || file[0] == '.')
        return 0;
    auto_free char *id = mem_strndup(file, strlen(file) - strlen(SUFFIX));
    auto_record struct record record = {0};
    auto_err struct err damaged = {0};
    int found = record_load(area, dir, id, &record, &damaged);
    if (found < 0 && damaged.code != ERR_INVALID)
        return err_move(err, &damaged);
    if (found < 0)
        log_error("Damaged record", kv_str("id", id), kv_err(&damaged));
    return found > 0 ? visit(arg, &record, err) : 0;
}

int record_each(struct area *area, const struct share_fh *dir,
                int (*visit)(void *arg, const struct record *record, struct err *err), void *arg, struct err *err)
{
    auto_page struct share_page page = {0};
    while (!page.eof) {
        int error = share_readdir(area->share, dir, 32768, &page);
        if (error != 0)
            return share_fail(area->share, error, err, "listing records");
        for (size_t i = 0; i < page.len; i++)
            if (visit_entry(area, dir, page.items[i].name, visit, arg, err) < 0)
                return -1;
    }
    return 0;
}
