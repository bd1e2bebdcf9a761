/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/state_internal.h"

#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_LIMIT ((size_t)4 << 20)
#define ID_MAX ((size_t)128)

/* ---- the kinds of records, one row each ---- */

#define KIND_FUNCTIONS(type)                                                                                           \
    static void free_##type(void *object)                                                                              \
    {                                                                                                                  \
        type##_free(object);                                                                                           \
    }                                                                                                                  \
    static void *copy_##type(const void *object)                                                                       \
    {                                                                                                                  \
        return type##_copy(object);                                                                                    \
    }                                                                                                                  \
    static const char *id_of_##type(const void *object)                                                                \
    {                                                                                                                  \
        return ((const struct type *)object)->id;                                                                      \
    }                                                                                                                  \
    static const char *name_of_##type(const void *object)                                                              \
    {                                                                                                                  \
        return ((const struct type *)object)->name;                                                                    \
    }                                                                                                                  \
    static json_t *encode_##type(const void *object)                                                                   \
    {                                                                                                                  \
        return record_from_##type(object);                                                                             \
    }                                                                                                                  \
    static void *decode_##type(const json_t *record, struct err *err)                                                  \
    {                                                                                                                  \
        return record_to_##type(record, err);                                                                          \
    }
KIND_FUNCTIONS(volume)
KIND_FUNCTIONS(snapshot)
KIND_FUNCTIONS(group)

#define KIND(type, data)                                                                                               \
    {                                                                                                                  \
#type, data, free_##type, copy_##type, id_of_##type, name_of_##type, encode_##type, decode_##type              \
    }
static const struct kind {
    const char *type;
    int data; /* enum state_data; -1 = it has none */
    void (*free)(void *object);
    void *(*copy)(const void *object);
    const char *(*id)(const void *object);
    const char *(*name)(const void *object);
    json_t *(*encode)(const void *object);
    void *(*decode)(const json_t *record, struct err *err);
} kinds[TABLE_COUNT] = {
    [TABLE_VOLUMES] = KIND(volume, STATE_VOLUMES),
    [TABLE_SNAPSHOTS] = KIND(snapshot, STATE_SNAPSHOTS),
    [TABLE_GROUPS] = KIND(group, -1),
};

bool state_id_is_safe(const char *id)
{
    return file_name_is_safe(id) && id[0] != '.' && strlen(id) <= ID_MAX;
}

/* ---- readers ---- */

static void *copy_by_id(struct state *state, enum table_kind kind, const char *id)
{
    pthread_mutex_lock(&state->mutex);
    const void *object = map_get(state->tables[kind].by_id, id);
    void *copy = object != NULL ? kinds[kind].copy(object) : NULL;
    pthread_mutex_unlock(&state->mutex);
    return copy;
}

static void *copy_by_name(struct state *state, enum table_kind kind, const char *name)
{
    pthread_mutex_lock(&state->mutex);
    const char *id = map_get(state->tables[kind].by_name, name);
    const void *object = id != NULL ? map_get(state->tables[kind].by_id, id) : NULL;
    void *copy = object != NULL ? kinds[kind].copy(object) : NULL;
    pthread_mutex_unlock(&state->mutex);
    return copy;
}

/* The mutex is held by the caller until the ids are done with. */
static void sorted_ids(const struct table *table, struct strv *ids)
{
    for (struct map_iter it = {0}; map_next(table->by_id, &it);)
        strv_add(ids, it.key);
    strv_sort(ids);
}

#define READERS(type, kind)                                                                                            \
    struct type *state_##type(struct state *state, const char *id)                                                     \
    {                                                                                                                  \
        return copy_by_id(state, kind, id);                                                                            \
    }                                                                                                                  \
    struct type *state_##type##_by_name(struct state *state, const char *name)                                         \
    {                                                                                                                  \
        return copy_by_name(state, kind, name);                                                                        \
    }                                                                                                                  \
    void state_each_##type(struct state *state, void (*visit)(void *arg, const struct type *type), void *arg)          \
    {                                                                                                                  \
        auto_strv struct strv ids = {0};                                                                               \
        pthread_mutex_lock(&state->mutex);                                                                             \
        sorted_ids(&state->tables[kind], &ids);                                                                        \
        for (size_t i = 0; i < ids.len; i++)                                                                           \
            visit(arg, map_get(state->tables[kind].by_id, ids.items[i]));                                              \
        pthread_mutex_unlock(&state->mutex);                                                                           \
    }
READERS(volume, TABLE_VOLUMES)
READERS(snapshot, TABLE_SNAPSHOTS)
READERS(group, TABLE_GROUPS)

/* ---- writers ---- */

static void show(struct state *state, enum table_kind kind, void *object)
{
    struct table *table = &state->tables[kind];
    map_remove(table->by_name, kinds[kind].name(object)); /* its value points into the object that is replaced */
    map_set(table->by_id, kinds[kind].id(object), object);
    map_set(table->by_name, kinds[kind].name(object), (char *)(uintptr_t)kinds[kind].id(object));
}

static bool is_taken(struct state *state, enum table_kind kind, const char *id)
{
    bool taken = false;
    pthread_mutex_lock(&state->mutex);
    for (size_t i = 0; i < TABLE_COUNT; i++)
        taken |= i != (size_t)kind && map_has(state->tables[i].by_id, id);
    pthread_mutex_unlock(&state->mutex);
    return taken;
}

static int save(struct state *state, enum table_kind kind, const void *object, struct err *err)
{
    const char *id = kinds[kind].id(object);
    auto_free char *file = mem_printf("%s.json", id);
    if (!state_id_is_safe(id))
        return err_set(err, ERR_INVALID, "\"%s\" cannot be the id of a %s", id, kinds[kind].type);
    if (is_taken(state, kind, id))
        return err_set(err, ERR_EXISTS, "the id %s is already used", id);
    json_t *record = kinds[kind].encode(object);
    char *text = record != NULL ? json_dumps(record, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    json_decref(record);
    if (text == NULL)
        return err_set(err, ERR_INTERNAL, "the record of %s %s cannot be written as JSON", kinds[kind].type, id);
    int result = file_write_atomic_at(state->records, file, text, strlen(text), 0600, err);
    free(text);
    if (result < 0)
        return err_wrap(err, "saving the record of %s %s", kinds[kind].type, id);
    pthread_mutex_lock(&state->mutex);
    show(state, kind, kinds[kind].copy(object));
    pthread_mutex_unlock(&state->mutex);
    return 0;
}

static int remove_record(struct state *state, enum table_kind kind, const char *id, struct err *err)
{
    auto_free char *file = mem_printf("%s.json", id);
    if (!state_id_is_safe(id) || is_taken(state, kind, id))
        return 0; /* never one of ours */
    if ((unlinkat(state->records, file, 0) != 0 && errno != ENOENT) || fsync(state->records) != 0)
        return err_set_errno(err, errno, "removing the record of %s %s", kinds[kind].type, id);
    pthread_mutex_lock(&state->mutex);
    struct table *table = &state->tables[kind];
    const void *object = map_get(table->by_id, id);
    if (object != NULL) {
        map_remove(table->by_name, kinds[kind].name(object));
        map_remove(table->by_id, id);
    }
    pthread_mutex_unlock(&state->mutex);
    return kinds[kind].data < 0 ? 0 : state_discard_data(state, (enum state_data)kinds[kind].data, id, err);
}

#define WRITERS(type, kind)                                                                                            \
    int state_save_##type(struct state *state, const struct type *type, struct err *err)                               \
    {                                                                                                                  \
        return save(state, kind, type, err);                                                                           \
    }                                                                                                                  \
    int state_delete_##type(struct state *state, const char *id, struct err *err)                                      \
    {                                                                                                                  \
        return remove_record(state, kind, id, err);                                                                    \
    }
WRITERS(volume, TABLE_VOLUMES)
WRITERS(snapshot, TABLE_SNAPSHOTS)
WRITERS(group, TABLE_GROUPS)

/* ---- start ---- */

static int take_lock(struct state *state, struct err *err)
{
    state->lock = openat(state->root, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (state->lock < 0)
        return err_set_errno(err, errno, "opening the lock file");
    if (flock(state->lock, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? err_set(err, ERR_EXISTS, "another driver uses it")
                                    : err_set_errno(err, errno, "locking");
    return 0;
}

static int decode_record(struct state *state, const json_t *record, const char *name, struct err *err)
{
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if (!str_eq(kinds[i].type, record_type(record)))
            continue;
        void *object = kinds[i].decode(record, err);
        if (object == NULL)
            return -1;
        auto_free char *file = mem_printf("%s.json", kinds[i].id(object));
        if (!str_eq(file, name) || !state_id_is_safe(kinds[i].id(object))) {
            kinds[i].free(object);
            return err_set(err, ERR_INVALID, "its id is not its file's name");
        }
        show(state, (enum table_kind)i, object);
        return 0;
    }
    return err_set(err, ERR_INVALID, "its type \"%s\" is unknown", record_type(record));
}

static int load_record(void *arg, const char *name, struct err *err)
{
    struct state *state = arg;
    auto_free char *text = NULL;
    size_t len = 0;
    json_error_t where;
    if (!str_ends(name, ".json")) /* a temporary file of a write that a crash cut short */
        return unlinkat(state->records, name, 0) == 0 ? 0 : err_set_errno(err, errno, "removing record %s", name);
    if (file_read_at(state->records, name, RECORD_LIMIT, &text, &len, err) < 0)
        return err_wrap(err, "record %s", name);
    json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
    if (json == NULL)
        return err_set(err, ERR_INVALID, "record %s: line %d: %s", name, where.line, where.text);
    int result = decode_record(state, json, name, err);
    json_decref(json);
    return result < 0 ? err_wrap(err, "record %s", name) : 0;
}

/* A group's record is written after those of its members and removed before them. */
static int drop_incomplete_groups(struct state *state, struct err *err)
{
    auto_strv struct strv lost = {0};
    for (struct map_iter it = {0}; map_next(state->tables[TABLE_SNAPSHOTS].by_id, &it);) {
        const struct snapshot *snapshot = it.value;
        if (snapshot->group != NULL && !map_has(state->tables[TABLE_GROUPS].by_id, snapshot->group))
            strv_add(&lost, snapshot->id);
    }
    for (size_t i = 0; i < lost.len; i++) {
        log_info("Removing a snapshot of a group that an interrupted call left behind",
                 kv_str("snapshot", lost.items[i]));
        if (remove_record(state, TABLE_SNAPSHOTS, lost.items[i], err) < 0)
            return -1;
    }
    return 0;
}

static int open_all(struct state *state, struct err *err)
{
    if (mkdir(state->directory, 0700) != 0 && errno != EEXIST)
        return err_set_errno(err, errno, "making it");
    /* mounts and other programs are told paths below it */
    char *absolute = realpath(state->directory, NULL);
    if (absolute == NULL)
        return err_set_errno(err, errno, "opening it");
    free(state->directory);
    state->directory = absolute;
    state->root = open(state->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state->root < 0)
        return err_set_errno(err, errno, "opening it");
    if (take_lock(state, err) < 0 || state_open_directory(state->root, "records", &state->records, err) < 0 ||
        state_open_directory(state->root, "volumes", &state->data[STATE_VOLUMES], err) < 0 ||
        state_open_directory(state->root, "snapshots", &state->data[STATE_SNAPSHOTS], err) < 0 ||
        state_open_directory(state->root, "trash", &state->trash, err) < 0)
        return -1;
    if (fsync(state->root) != 0)
        return err_set_errno(err, errno, "making its subdirectories durable");
    if (state_each_name(state->records, load_record, state, err) < 0 || drop_incomplete_groups(state, err) < 0)
        return -1;
    return state_discard_orphans(state, err) < 0 ? -1 : state_note_trash(state, err);
}

int state_open(const char *directory, struct state **out, struct err *err)
{
    struct state *state = mem_new(struct state);
    state->root = state->records = state->data[0] = state->data[1] = state->trash = state->lock = -1;
    pthread_mutex_init(&state->mutex, NULL);
    state->directory = mem_strdup(directory);
    for (size_t i = 0; i < TABLE_COUNT; i++)
        state->tables[i] = (struct table){.by_id = map_new(kinds[i].free), .by_name = map_new(NULL)};
    if (open_all(state, err) < 0) {
        err_wrap(err, "state directory %s", directory);
        state_close(state);
        return -1;
    }
    *out = state;
    return 0;
}

void state_close(struct state *state)
{
    if (state == NULL)
        return;
    const int fds[] = {state->trash, state->data[1], state->data[0], state->records, state->root, state->lock};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        map_free(state->tables[i].by_name);
        map_free(state->tables[i].by_id);
    }
    pthread_mutex_destroy(&state->mutex);
    strv_free(&state->left);
    free(state->directory);
    free(state);
}

int state_directory_fd(const struct state *state)
{
    return state->root;
}

const char *state_directory(const struct state *state)
{
    return state->directory;
}
