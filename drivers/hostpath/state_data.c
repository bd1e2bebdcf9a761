/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/state_internal.h"

#include "lib/base/clock.h"
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const directories[] = {[STATE_VOLUMES] = "volumes", [STATE_SNAPSHOTS] = "snapshots"};

int state_open_directory(int parent, const char *name, int *fd, struct err *err)
{
    if (mkdirat(parent, name, 0700) != 0 && errno != EEXIST)
        return err_set_errno(err, errno, "making %s", name);
    *fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *fd < 0 ? err_set_errno(err, errno, "opening %s", name) : 0;
}

int state_each_name(int directory, int (*visit)(void *arg, const char *name, struct err *err), void *arg,
                    struct err *err)
{
    int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL)
        return err_set_errno(err, errno, "reading the state directory");
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = visit(arg, entry->d_name, err);
    closedir(dir);
    return result;
}

char *state_data_path(const struct state *state, enum state_data kind, const char *id, const char *part)
{
    return part == NULL ? mem_printf("%s/%s/%s", state->directory, directories[kind], id)
                        : mem_printf("%s/%s/%s/%s", state->directory, directories[kind], id, part);
}

int state_make_data(struct state *state, enum state_data kind, const char *id, struct err *err)
{
    auto_close int fd = -1;
    if (!state_id_is_safe(id))
        return err_set(err, ERR_INVALID, "\"%s\" cannot be an id", id);
    if (state_open_directory(state->data[kind], id, &fd, err) < 0)
        return -1;
    if (fsync(fd) != 0 || fsync(state->data[kind]) != 0)
        return err_set_errno(err, errno, "making the directory of %s", id);
    return 0;
}

int state_open_data(struct state *state, enum state_data kind, const char *id, const char *part, int flags, mode_t mode,
                    struct err *err)
{
    if (!state_id_is_safe(id))
        return err_set(err, ERR_INVALID, "\"%s\" cannot be an id", id);
    auto_free char *path = str_eq(part, ".") ? mem_strdup(id) : mem_printf("%s/%s", id, part);
    return file_open_beneath(state->data[kind], path, flags, mode, false, err);
}

int state_move_to_trash(struct state *state, enum state_data kind, const char *id, char **trash_name, struct err *err)
{
    char uuid[RNG_UUID_SIZE];
    *trash_name = NULL;
    if (!state_id_is_safe(id))
        return 0;
    auto_free char *name = mem_printf("%s.%s", id, rng_uuid(rng_real(), uuid));
    if (renameat(state->data[kind], id, state->trash, name) != 0)
        return errno == ENOENT ? 0 : err_set_errno(err, errno, "moving the data of %s to the trash", id);
    if (fsync(state->data[kind]) != 0)
        return err_set_errno(err, errno, "moving the data of %s to the trash", id);
    *trash_name = mem_take(name);
    return 0;
}

int state_discard_data(struct state *state, enum state_data kind, const char *id, struct err *err)
{
    auto_free char *name = NULL;
    if (state_move_to_trash(state, kind, id, &name, err) < 0)
        return -1;
    return name == NULL ? 0 : file_remove_tree_at(state->trash, name, err);
}

struct orphans {
    struct state *state;
    enum state_data kind;
};

static int discard_orphan(void *arg, const char *name, struct err *err)
{
    const struct orphans *orphans = arg;
    auto_free char *trash_name = NULL;
    enum table_kind table = orphans->kind == STATE_VOLUMES ? TABLE_VOLUMES : TABLE_SNAPSHOTS;
    if (map_has(orphans->state->tables[table].by_id, name))
        return 0;
    log_info("Removing what an interrupted call left behind", kv_str(directories[orphans->kind], name));
    return state_move_to_trash(orphans->state, orphans->kind, name, &trash_name, err);
}

int state_discard_orphans(struct state *state, struct err *err)
{
    struct orphans orphans[] = {{state, STATE_VOLUMES}, {state, STATE_SNAPSHOTS}};
    for (size_t i = 0; i < ARRAY_LEN(orphans); i++)
        if (state_each_name(state->data[orphans[i].kind], discard_orphan, &orphans[i], err) < 0)
            return -1;
    return 0;
}

static int note_left(void *arg, const char *name, struct err *err)
{
    struct state *state = arg;
    (void)err;
    strv_add(&state->left, name);
    return 0;
}

int state_note_trash(struct state *state, struct err *err)
{
    return state_each_name(state->trash, note_left, state, err);
}

int state_empty_trash(struct state *state, struct err *err)
{
    int result = 0;
    for (size_t i = 0; i < state->left.len; i++) {
        auto_err struct err one = {0};
        if (file_remove_tree_at(state->trash, state->left.items[i], &one) == 0)
            continue;
        if (result == 0) /* the rest is not kept for one that an immutable file holds */
            err_move(err, &one);
        result = -1;
    }
    return result;
}
