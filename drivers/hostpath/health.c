/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/health.h"

#include "drivers/hostpath/usage.h"
#include "lib/base/mem.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define LOOK_LIMIT (3 * CLOCK_SECOND)

struct look {
    struct hostpath *driver;
    struct volume *volume;
    char *path;
    struct usage usage;
    struct keylock_hold hold; /* while it runs: one at a time for each volume */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int references;
    bool done;
    int result;
    struct err err;
};

static void look_unref(struct look *look)
{
    pthread_mutex_lock(&look->mutex);
    bool last = --look->references == 0;
    pthread_mutex_unlock(&look->mutex);
    if (!last)
        return;
    pthread_cond_destroy(&look->changed);
    pthread_mutex_destroy(&look->mutex);
    volume_free(look->volume);
    free(look->path);
    err_clear(&look->err);
    free(look);
}

static void *look_thread(void *arg)
{
    struct look *look = arg;
    struct usage usage = {0};
    auto_err struct err err = {0};
    int result = backend_of(look->volume)->usage(look->driver, look->volume, look->path, &usage, &err);
    keylock_release(&look->hold);
    pthread_mutex_lock(&look->mutex);
    look->usage = usage;
    look->result = result;
    err_move(&look->err, &err);
    look->done = true;
    pthread_cond_broadcast(&look->changed);
    pthread_mutex_unlock(&look->mutex);
    look_unref(look);
    return NULL;
}

int health_usage(struct hostpath *driver, const struct volume *volume, const char *path, struct usage *usage,
                 struct err *err)
{
    struct look *look = mem_new(struct look);
    look->driver = driver;
    look->volume = volume_copy(volume);
    look->path = mem_strdup(path);
    look->references = 2;
    pthread_mutex_init(&look->mutex, NULL);
    clock_cond_init(&look->changed);
    if (keylock_exclusive(driver->locks, "look at volume", volume->id, &look->hold, err) < 0) {
        look->references = 1;
        look_unref(look);
        return err_set(err, ERR_TIMEOUT, "an earlier look at the volume has not come back yet");
    }
    pthread_detach(thread_start("look", look_thread, look));
    const int64_t deadline = clock_mono(clock_real()) + LOOK_LIMIT;
    pthread_mutex_lock(&look->mutex);
    while (!look->done && clock_cond_wait(clock_real(), &look->changed, &look->mutex, deadline))
        ;
    int result = look->done ? look->result : -1;
    if (!look->done)
        err_set(err, ERR_TIMEOUT, "the volume's file system does not answer");
    else if (result < 0)
        err_copy(err, &look->err);
    *usage = look->usage;
    pthread_mutex_unlock(&look->mutex);
    look_unref(look);
    return result;
}

/* ---- conditions ---- */

static char *find_data_problem(struct hostpath *driver, const struct volume *volume)
{
    auto_err struct err err = {0};
    const char *part = volume_is_image(volume) ? "image" : "data";
    auto_close int fd = state_open_data(driver->state, STATE_VOLUMES, volume->id, part, O_PATH, 0, &err);
    if (fd < 0)
        return mem_printf("the volume's data is missing: %s", err_text(&err));
    struct statvfs fs;
    if (fstatvfs(state_directory_fd(driver->state), &fs) == 0 && fs.f_bavail == 0)
        return mem_strdup("no space is left on the host's disk");
    return NULL;
}

static char *find_mount_problem(struct hostpath *driver, const struct volume *volume, const struct mount_list *mounts)
{
    auto_err struct err err = {0};
    bool attached = false;
    if (volume->staging_path != NULL) {
        if (backend_of(volume)->is_attached(driver, volume, volume->staging_path, mounts, &attached, &err) < 0)
            return mem_printf("the mount cannot be looked at: %s", err_text(&err));
        if (!attached)
            return mem_printf("the volume is not mounted any more at %s", volume->staging_path);
    }
    for (size_t i = 0; i < volume->target_count; i++)
        if (mount_list_find(mounts, volume->targets[i].path) == NULL)
            return mem_printf("the volume is not mounted any more at %s", volume->targets[i].path);
    if (volume->backend != BACKEND_FUSE || volume->block || driver->holder == NULL || volume->staging_path == NULL)
        return NULL;
    struct holder_entry entry = {0};
    if (holder_find_mount(driver->holder, volume->id, &entry, LOOK_LIMIT, &err) < 0)
        return mem_printf("the holder of the mount says: %s", err_text(&err));
    char *problem = str_empty(entry.problem) ? NULL : mem_strdup(entry.problem);
    holder_entry_clear(&entry);
    return problem;
}

char *hostpath_volume_problem(struct hostpath *driver, const struct volume *volume, const struct mount_list *mounts)
{
    char *problem = find_data_problem(driver, volume);
    return problem != NULL || (volume->staging_path == NULL && volume->target_count == 0)
               ? problem
               : find_mount_problem(driver, volume, mounts);
}
