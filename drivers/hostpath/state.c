/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/record.h"

#include "lib/base/clock.h"
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/map.h"
#include "lib/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_LIMIT ((size_t)4 << 20)

struct state {
    char *directory;
    int root, records, volumes, trash, lock;
    pthread_mutex_t mutex;
    struct map *by_id;   /* id → struct volume */
    struct map *by_name; /* name → id, borrowed from the volume */
};

static void free_volume_value(void *value)
{
    volume_free(value);
}

static int open_directory(int parent, const char *name, int *fd, struct err *err)
{
    if (mkdirat(parent, name, 0700) != 0 && errno != EEXIST)
        return err_set_errno(err, errno, "making %s", name);
    *fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *fd < 0 ? err_set_errno(err, errno, "opening %s", name) : 0;
}

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

/* ---- readers
 * ---------------------------------------------------------------------------------------------------------- */

struct volume *state_volume(struct state *state, const char *id)
{
    pthread_mutex_lock(&state->mutex);
    struct volume *volume = map_get(state->by_id, id);
    struct volume *copy = volume != NULL ? volume_copy(volume) : NULL;
    pthread_mutex_unlock(&state->mutex);
    return copy;
}

struct volume *state_volume_by_name(struct state *state, const char *name)
{
    pthread_mutex_lock(&state->mutex);
    const char *id = map_get(state->by_name, name);
    struct volume *volume = id != NULL ? map_get(state->by_id, id) : NULL;
    struct volume *copy = volume != NULL ? volume_copy(volume) : NULL;
    pthread_mutex_unlock(&state->mutex);
    return copy;
}

void state_each_volume(struct state *state, void (*visit)(void *arg, const struct volume *volume), void *arg)
{
    auto_strv struct strv ids = {0};
    pthread_mutex_lock(&state->mutex);
    for (struct map_iter it = {0}; map_next(state->by_id, &it);)
        strv_add(&ids, it.key);
    strv_sort(&ids);
    for (size_t i = 0; i < ids.len; i++)
        visit(arg, map_get(state->by_id, ids.items[i]));
    pthread_mutex_unlock(&state->mutex);
}

static void show_volume(struct state *state, struct volume *volume)
{
    map_remove(state->by_name, volume->name); /* its value points into the volume that is replaced */
    map_set(state->by_id, volume->id, volume);
    map_set(state->by_name, volume->name, volume->id);
}

/* ---- writers
 * ---------------------------------------------------------------------------------------------------------- */

int state_save_volume(struct state *state, const struct volume *volume, struct err *err)
{
    auto_free char *file = mem_printf("%s.json", volume->id);
    json_t *record = record_from_volume(volume);
    char *text = record != NULL ? json_dumps(record, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    json_decref(record);
    if (text == NULL)
        return err_set(err, ERR_INTERNAL, "the record of volume %s cannot be written as JSON", volume->id);
    int result = file_write_atomic_at(state->records, file, text, strlen(text), 0600, err);
    free(text);
    if (result < 0)
        return err_wrap(err, "saving the record of volume %s", volume->id);
    pthread_mutex_lock(&state->mutex);
    show_volume(state, volume_copy(volume));
    pthread_mutex_unlock(&state->mutex);
    return 0;
}

int state_delete_volume(struct state *state, const char *id, struct err *err)
{
    auto_free char *file = mem_printf("%s.json", id);
    if (!file_name_is_safe(id))
        return 0; /* never one of ours */
    if (unlinkat(state->records, file, 0) != 0 && errno != ENOENT)
        return err_set_errno(err, errno, "removing the record of volume %s", id);
    if (fsync(state->records) != 0)
        return err_set_errno(err, errno, "removing the record of volume %s", id);
    pthread_mutex_lock(&state->mutex);
    struct volume *volume = map_get(state->by_id, id);
    if (volume != NULL) {
        map_remove(state->by_name, volume->name);
        map_remove(state->by_id, id);
    }
    pthread_mutex_unlock(&state->mutex);
    return state_discard_data(state, id, err);
}

char *state_volume_path(const struct state *state, const char *id, const char *part)
{
    return mem_printf("%s/volumes/%s/%s", state->directory, id, part);
}

int state_make_data(struct state *state, const char *id, struct err *err)
{
    auto_close int fd = -1;
    if (open_directory(state->volumes, id, &fd, err) < 0)
        return -1;
    if (mkdirat(fd, "data", 0777) != 0 && errno != EEXIST)
        return err_set_errno(err, errno, "making the data directory of volume %s", id);
    /* what a pod of any user finds, whatever our umask */
    if (fchmodat(fd, "data", 0777, 0) != 0 || fsync(fd) != 0 || fsync(state->volumes) != 0)
        return err_set_errno(err, errno, "making the data directory of volume %s", id);
    return 0;
}

int state_discard_data(struct state *state, const char *id, struct err *err)
{
    char name[NAME_MAX + 1], uuid[RNG_UUID_SIZE];
    snprintf(name, sizeof(name), "%.200s.%s", id, rng_uuid(rng_real(), uuid));
    if (!file_name_is_safe(id))
        return 0;
    if (renameat(state->volumes, id, state->trash, name) != 0)
        return errno == ENOENT ? 0 : err_set_errno(err, errno, "moving the data of volume %s to the trash", id);
    if (fsync(state->volumes) != 0)
        return err_set_errno(err, errno, "moving the data of volume %s to the trash", id);
    return file_remove_tree_at(state->trash, name, err);
}

/* ---- start
 * ------------------------------------------------------------------------------------------------------------ */

static int each_name(int directory, int (*visit)(struct state *state, const char *name, struct err *err),
                     struct state *state, struct err *err)
{
    int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL)
        return err_set_errno(err, errno, "reading the state directory");
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = visit(state, entry->d_name, err);
    closedir(dir);
    return result;
}

static int load_record(struct state *state, const char *name, struct err *err)
{
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
    struct volume *volume = record_to_volume(json, err);
    json_decref(json);
    if (volume == NULL)
        return err_wrap(err, "record %s", name);
    show_volume(state, volume);
    return 0;
}

static int empty_trash(struct state *state, const char *name, struct err *err)
{
    return file_remove_tree_at(state->trash, name, err);
}

static int discard_orphan(struct state *state, const char *name, struct err *err)
{
    if (map_has(state->by_id, name))
        return 0;
    log_info("Removing what an interrupted call left behind", kv_str("volume", name));
    return state_discard_data(state, name, err);
}

static int open_all(struct state *state, struct err *err)
{
    state->root = open(state->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state->root < 0)
        return err_set_errno(err, errno, "opening it");
    if (take_lock(state, err) < 0 || open_directory(state->root, "records", &state->records, err) < 0 ||
        open_directory(state->root, "volumes", &state->volumes, err) < 0 ||
        open_directory(state->root, "trash", &state->trash, err) < 0)
        return -1;
    if (fsync(state->root) != 0)
        return err_set_errno(err, errno, "making its subdirectories durable");
    if (each_name(state->records, load_record, state, err) < 0 ||
        each_name(state->volumes, discard_orphan, state, err) < 0)
        return -1;
    return each_name(state->trash, empty_trash, state, err);
}

int state_open(const char *directory, struct state **out, struct err *err)
{
    struct state *state = mem_new(struct state);
    state->root = state->records = state->volumes = state->trash = state->lock = -1;
    pthread_mutex_init(&state->mutex, NULL);
    state->directory = mem_strdup(directory);
    state->by_id = map_new(free_volume_value);
    state->by_name = map_new(NULL);
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
    const int fds[] = {state->trash, state->volumes, state->records, state->root, state->lock};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    map_free(state->by_name);
    map_free(state->by_id);
    pthread_mutex_destroy(&state->mutex);
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
