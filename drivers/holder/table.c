/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/holder/table.h"

#include "drivers/common/mount.h"
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FORMAT 1
#define FILE_LIMIT ((size_t)64 << 20)
#define ID_MAX 128
#define SLOT_MAX 1000000

/* ---- states ---- */

static const char *const state_names[HELD_STATES] = {
    [HELD_NEW] = "new",           [HELD_STARTING] = "starting", [HELD_SERVING] = "serving",
    [HELD_STOPPING] = "stopping", [HELD_WAITING] = "waiting",   [HELD_GONE] = "gone",
};
static const bool moves[HELD_STATES][HELD_STATES] = {
    [HELD_NEW] = {[HELD_STARTING] = true, [HELD_SERVING] = true, [HELD_GONE] = true},
    [HELD_STARTING] = {[HELD_SERVING] = true, [HELD_WAITING] = true, [HELD_GONE] = true},
    [HELD_SERVING] = {[HELD_STOPPING] = true, [HELD_WAITING] = true, [HELD_GONE] = true},
    [HELD_STOPPING] = {[HELD_WAITING] = true, [HELD_GONE] = true},
    [HELD_WAITING] = {[HELD_STARTING] = true, [HELD_GONE] = true},
};

const char *held_state_name(enum held_state state)
{
    return state_names[state];
}

bool held_may_move(enum held_state from, enum held_state to)
{
    return moves[from][to];
}

void held_move(struct held *held, enum held_state to)
{
    if (!held_may_move(held->state, to)) {
        log_error("A mount moved in a way it must not", kv_str("volume", held->id),
                  kv_str("from", held_state_name(held->state)), kv_str("to", held_state_name(to)));
        abort();
    }
    log_v(2, "Mount", kv_str("volume", held->id), kv_str("from", held_state_name(held->state)),
          kv_str("to", held_state_name(to)), kv_int("pid", held->pid));
    held->state = to;
}

/* ---- table ---- */

struct held *held_new(const char *id)
{
    struct held *held = mem_new(struct held);
    held->id = mem_strdup(id);
    held->fuse_fd = held->pid_fd = held->ready_fd = -1;
    return held;
}

void held_free(struct held *held)
{
    const int fds[] = {held->fuse_fd, held->pid_fd, held->ready_fd};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(held->id);
    free(held->directory);
    free(held->target);
    free(held->problem);
    strv_free(&held->options);
    free(held);
}

/* Where the id is, or where it belongs. */
static size_t place_of(const struct table *table, const char *id)
{
    size_t low = 0, high = table->len;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(table->items[middle]->id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct held *table_find(const struct table *table, const char *id)
{
    size_t place = place_of(table, id);
    return place < table->len && str_eq(table->items[place]->id, id) ? table->items[place] : NULL;
}

void table_add(struct table *table, struct held *held)
{
    size_t place = place_of(table, held->id);
    if (table->len == table->size) {
        table->size = table->size > 0 ? table->size * 2 : 16;
        table->items = mem_realloc_array(table->items, table->size, sizeof(*table->items));
    }
    memmove(table->items + place + 1, table->items + place, (table->len - place) * sizeof(*table->items));
    table->items[place] = held;
    table->len++;
}

void table_remove(struct table *table, struct held *held)
{
    size_t place = place_of(table, held->id);
    table->len--;
    memmove(table->items + place, table->items + place + 1, (table->len - place) * sizeof(*table->items));
    held_free(held);
}

void table_clear(struct table *table)
{
    for (size_t i = 0; i < table->len; i++)
        held_free(table->items[i]);
    free(table->items);
    *table = (struct table){0};
}

unsigned table_free_slot(const struct table *table)
{
    for (unsigned slot = 1;; slot++) {
        bool used = false;
        for (size_t i = 0; i < table->len && !used; i++)
            used = table->items[i]->slot == slot;
        if (!used)
            return slot;
    }
}

/* ---- JSON ---- */

json_t *table_entry_to_json(const struct held *held)
{
    json_t *options = json_array();
    for (size_t i = 0; i < held->options.len; i++)
        json_array_append_new(options, json_string(held->options.items[i]));
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:b, s:o, s:I, s:b, s:I, s:I, s:I, s:I}", "id", held->id, "directory",
                     held->directory, "target", held->target, "limit", (json_int_t)held->limit, "inodeLimit",
                     (json_int_t)held->inode_limit, "readOnly", held->read_only, "options", options, "slot",
                     (json_int_t)held->slot, "detached", held->detached, "pid", (json_int_t)held->pid, "pidStart",
                     (json_int_t)held->pid_start, "device", (json_int_t)held->device, "restarts",
                     (json_int_t)held->restarts);
}

static bool get_number(const json_t *entry, const char *key, int64_t least, int64_t most, int64_t *value)
{
    const json_t *number = json_object_get(entry, key);
    *value = json_integer_value(number);
    return json_is_integer(number) && *value >= least && *value <= most;
}

struct held *table_entry_from_json(const json_t *entry, struct err *err)
{
    const char *id = json_string_value(json_object_get(entry, "id"));
    const char *directory = json_string_value(json_object_get(entry, "directory"));
    const char *target = json_string_value(json_object_get(entry, "target"));
    int64_t slot, pid, start, device, limit, inode_limit, restarts;
    if (id == NULL || !file_name_is_safe(id) || strlen(id) > ID_MAX || !mount_path_is_safe(directory) ||
        !mount_path_is_safe(target) || !get_number(entry, "limit", 1, INT64_MAX, &limit) ||
        !get_number(entry, "inodeLimit", 0, INT64_MAX, &inode_limit) ||
        !get_number(entry, "slot", 1, SLOT_MAX, &slot) || !get_number(entry, "pid", 0, INT32_MAX, &pid) ||
        !get_number(entry, "pidStart", 0, INT64_MAX, &start) || !get_number(entry, "device", 0, UINT32_MAX, &device) ||
        !get_number(entry, "restarts", 0, INT64_MAX, &restarts)) {
        err_set(err, ERR_INVALID, "an entry of the table of mounts is damaged");
        return NULL;
    }
    struct held *held = held_new(id);
    held->directory = mem_strdup(directory);
    held->target = mem_strdup(target);
    held->limit = limit;
    held->inode_limit = inode_limit;
    held->read_only = json_is_true(json_object_get(entry, "readOnly"));
    held->detached = json_is_true(json_object_get(entry, "detached"));
    held->slot = (unsigned)slot;
    held->pid = (pid_t)pid;
    held->pid_start = (uint64_t)start;
    held->device = (unsigned)device;
    held->restarts = restarts;
    size_t index;
    json_t *option;
    json_array_foreach (json_object_get(entry, "options"), index, option)
        if (json_is_string(option))
            strv_add(&held->options, json_string_value(option));
    return held;
}

int table_save(const struct table *table, const char *path, const char *boot_id, struct err *err)
{
    json_t *entries = json_array();
    for (size_t i = 0; i < table->len; i++)
        if (table->items[i]->state != HELD_NEW && table->items[i]->state != HELD_GONE)
            json_array_append_new(entries, table_entry_to_json(table->items[i]));
    json_t *root = json_pack("{s:i, s:s, s:o}", "format", FORMAT, "bootId", boot_id, "mounts", entries);
    auto_free char *text = json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    if (text == NULL)
        return err_set(err, ERR_INTERNAL, "the table of mounts cannot be written");
    return file_write_atomic(path, text, strlen(text), 0600, err);
}

static int take_entries(struct table *table, const json_t *root, const char *path, struct err *err)
{
    size_t index;
    json_t *entry;
    json_array_foreach (json_object_get(root, "mounts"), index, entry) {
        struct held *held = table_entry_from_json(entry, err);
        if (held == NULL)
            return err_wrap(err, "%s", path);
        if (table_find(table, held->id) != NULL) {
            held_free(held);
            return err_set(err, ERR_INVALID, "%s: an id is in the table twice", path);
        }
        table_add(table, held);
    }
    return 0;
}

int table_load(struct table *table, const char *path, const char *boot_id, struct err *err)
{
    auto_free char *text = NULL;
    auto_err struct err read_err = {0};
    size_t length = 0;
    if (file_read(path, FILE_LIMIT, &text, &length, &read_err) < 0)
        return err_is(&read_err, ERR_NOT_FOUND) ? 0 : err_move(err, &read_err);
    json_t *root = json_loadb(text, length, 0, NULL);
    int result = 0;
    if (!json_is_object(root))
        result = err_set(err, ERR_INVALID, "%s is no JSON object", path);
    else if (json_integer_value(json_object_get(root, "format")) != FORMAT)
        result = err_set(err, ERR_INVALID, "%s has a format that this version does not know", path);
    else if (str_eq(json_string_value(json_object_get(root, "bootId")), boot_id))
        result = take_entries(table, root, path, err);
    json_decref(root);
    return result;
}
