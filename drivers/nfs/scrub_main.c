/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "berth-nfs scrub PATH": what the recycler pod of in-tree nfs volumes runs instead of busybox. Empties a mounted
 * directory; several threads, each with an entry of it, never through a symlink and never into another mount.
 */
#include "drivers/nfs/scrub_main.h"

#include "lib/base/clock.h"
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/stop.h"
#include "lib/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define THREADS 8
#define PASSES 5
#define PROGRESS_EVERY 4096

struct scrub {
    pthread_mutex_t mutex;
    int directory;
    DIR *listing;
    uint64_t removed; /* entries of the directory itself */
    struct err err;
};

/* The next name, or NULL; the listing is shared. */
static char *next_name(struct scrub *scrub)
{
    char *name = NULL;
    pthread_mutex_lock(&scrub->mutex);
    while (name == NULL && scrub->err.code == ERR_NONE) {
        errno = 0;
        const struct dirent *entry = readdir(scrub->listing);
        if (entry == NULL) {
            if (errno != 0)
                err_set_errno(&scrub->err, errno, "reading the directory");
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            name = mem_strdup(entry->d_name);
    }
    pthread_mutex_unlock(&scrub->mutex);
    return name;
}

static void *work(void *arg)
{
    struct scrub *scrub = arg;
    for (char *name; (name = next_name(scrub)) != NULL; free(name)) {
        auto_err struct err err = {0};
        int result = file_remove_tree_at(scrub->directory, name, &err);
        pthread_mutex_lock(&scrub->mutex);
        if (result == 0 && ++scrub->removed % PROGRESS_EVERY == 0)
            log_info("Scrubbing", kv_uint("removed", scrub->removed));
        if (result < 0 && scrub->err.code == ERR_NONE)
            err_move(&scrub->err, &err);
        pthread_mutex_unlock(&scrub->mutex);
    }
    return NULL;
}

static int pass(struct scrub *scrub, struct err *err)
{
    pthread_t threads[THREADS];
    int fd = openat(scrub->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scrub->listing = fd >= 0 ? fdopendir(fd) : NULL;
    if (scrub->listing == NULL)
        return err_set_errno(err, errno, "reading the directory");
    for (size_t i = 0; i < THREADS; i++)
        threads[i] = thread_start_stack("scrub", (size_t)1024 * 1024, work, scrub);
    for (size_t i = 0; i < THREADS; i++)
        thread_join(threads[i]);
    closedir(scrub->listing);
    return err_move(err, &scrub->err);
}

static int is_empty(const struct scrub *scrub, bool *empty, struct err *err)
{
    int fd = openat(scrub->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL)
        return err_set_errno(err, errno, "reading the directory");
    *empty = true;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            *empty = false;
    closedir(dir);
    return 0;
}

int scrub_directory(const char *path, uint64_t *removed, struct err *err)
{
    struct scrub scrub = {.directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    bool empty = false;
    int result = 0;
    if (scrub.directory < 0)
        return err_set_errno(err, errno, "opening %s", path);
    pthread_mutex_init(&scrub.mutex, NULL);
    /* a listing that is read while entries go may miss some */
    for (int i = 0; i < PASSES && result == 0 && !empty; i++) {
        result = pass(&scrub, err);
        if (result == 0)
            result = is_empty(&scrub, &empty, err);
    }
    if (result == 0 && !empty)
        result = err_set(err, ERR_IO, "%s fills up while it is emptied: it is in use", path);
    *removed = scrub.removed;
    pthread_mutex_destroy(&scrub.mutex);
    close(scrub.directory);
    return result;
}

int scrub_main(int argc, char **argv)
{
    auto_err struct err err = {0};
    uint64_t removed = 0;
    if (argc != 2 || argv[1][0] != '/') {
        fprintf(stderr, "usage: berth-nfs scrub /DIRECTORY\nRemoves everything in the directory and keeps it.\n");
        return 2;
    }
    if (strspn(argv[1], "/") == strlen(argv[1])) {
        fprintf(stderr, "berth-nfs scrub: not the root directory\n");
        return 2;
    }
    int result = scrub_directory(argv[1], &removed, &err);
    if (result < 0)
        log_error("Not scrubbed", kv_str("path", argv[1]), kv_uint("removed", removed), kv_err(&err));
    else
        log_info("Scrubbed", kv_str("path", argv[1]), kv_uint("removed", removed));
    return result < 0 ? 1 : 0;
}
