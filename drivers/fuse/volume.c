/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/volume.h"

#include "drivers/fuse/scan.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/stop.h"
#include "lib/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOCK_PATIENCE (10 * CLOCK_SECOND)
#define LOCK_PAUSE (10 * CLOCK_MS)
#define WATCH_PERIOD (5 * CLOCK_SECOND)   /* between two looks at files that changed */
#define WATCH_LONG (45 * CLOCK_SECOND)    /* after a change: by then the kernel has written it back (30 s) */
#define RECOUNT_QUIET (20 * CLOCK_SECOND) /* without a change, before a recount */
#define RECOUNT_BUSY (60 * CLOCK_SECOND)  /* between two of a volume that is never quiet */
#define RECOUNT_SHARE 1000                /* at most this part of the time is spent on it */

/* ---- opening ---- */

/* A killed predecessor may still be on its way out. */
static int lock_directory(struct volume *volume, const char *directory, struct err *err)
{
    struct stop *nobody = stop_new();
    int64_t deadline = clock_mono(volume->clock) + LOCK_PATIENCE;
    int result;
    while ((result = flock(volume->lock_fd, LOCK_EX | LOCK_NB)) != 0 && errno == EWOULDBLOCK &&
           clock_mono(volume->clock) < deadline)
        stop_sleep(nobody, volume->clock, LOCK_PAUSE);
    stop_free(nobody);
    if (result == 0)
        return 0;
    if (errno == EWOULDBLOCK)
        return err_set(err, ERR_CONFLICT, "%s is served by another process", directory);
    return err_set_errno(err, errno, "locking %s", directory);
}

static int open_directories(struct volume *volume, const struct volume_options *options, struct err *err)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    struct stat st;
    volume->lock_fd = open(options->directory, flags);
    if (volume->lock_fd < 0)
        return err_set_errno(err, errno, "opening %s", options->directory);
    if (lock_directory(volume, options->directory, err) < 0)
        return -1;
    volume->data_fd = openat(volume->lock_fd, "data", flags);
    if (volume->data_fd < 0 || fstat(volume->data_fd, &st) != 0)
        return err_set_errno(err, errno, "opening %s/data", options->directory);
    volume->device = st.st_dev;
    if (mkdirat(volume->lock_fd, "orphans", 0700) != 0 && errno != EEXIST && errno != EROFS)
        return err_set_errno(err, errno, "making %s/orphans", options->directory);
    volume->orphans_fd = openat(volume->lock_fd, "orphans", flags);
    if (volume->orphans_fd < 0 && !options->read_only)
        return err_set_errno(err, errno, "opening %s/orphans", options->directory);
    return 0;
}

static int open_exchanges(struct volume *volume, bool keep, struct err *err)
{
    const size_t size = VOLUME_EXCHANGES * sizeof(struct volume_exchange);
    if (volume->read_only)
        return 0;
    auto_close int fd = openat(volume->lock_fd, "exchanges", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set_errno(err, errno, "opening the record of exchanges");
    /* what an earlier mount wrote means nothing now: numbers of calls begin anew */
    if ((!keep && ftruncate(fd, 0) != 0) || posix_fallocate(fd, 0, (off_t)size) != 0)
        return err_set_errno(err, errno, "making the record of exchanges");
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_set_errno(err, errno, "mapping the record of exchanges");
    volume->exchanges = map;
    return 0;
}

struct volume_exchange *volume_exchange_record(struct volume *volume, uint64_t call)
{
    /* numbers grow by two; so many calls apart they are not under way together */
    return volume->exchanges == NULL ? NULL : &volume->exchanges[call / 2 % VOLUME_EXCHANGES];
}

/* Names in orphans/ are node ids. With `keep` they become nodes, otherwise they go. */
static int load_orphans(struct volume *volume, bool keep, struct err *err)
{
    if (volume->orphans_fd < 0)
        return 0;
    int fd = openat(volume->orphans_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL)
        return err_set_errno(err, errno, "reading the orphans");
    int result = 0;
    for (const struct dirent *entry; result == 0 && (entry = readdir(dir)) != NULL;) {
        char *end = NULL;
        uint64_t node_id = strtoull(entry->d_name, &end, 16);
        if (entry->d_name[0] == '.')
            continue;
        if (!keep) {
            if (unlinkat(volume->orphans_fd, entry->d_name, 0) != 0 && errno != ENOENT && errno != EROFS)
                result = err_set_errno(err, errno, "removing orphan %s", entry->d_name);
        } else if (*end == '\0') {
            struct node *node = node_get(&volume->nodes, node_id);
            node_set_orphan(&volume->nodes, node, true);
            node_put(&volume->nodes, node);
        }
    }
    closedir(dir);
    return result;
}

int volume_open(struct volume *volume, const struct volume_options *options, struct err *err)
{
    struct scan_result count = {0};
    *volume = (struct volume){.clock = clock_real(),
                              .read_only = options->read_only,
                              .reattached = options->reattach,
                              .lock_fd = -1,
                              .data_fd = -1,
                              .orphans_fd = -1,
                              .waited_at = INT64_MIN / 2};
    node_table_init(&volume->nodes);
    atomic_init(&volume->newest_handle, (uint64_t)clock_mono(volume->clock));
    account_init(&volume->account, options->limit, options->inode_limit, 0, 0);
    if (open_directories(volume, options, err) < 0 || load_orphans(volume, options->reattach, err) < 0 ||
        open_exchanges(volume, options->reattach, err) < 0)
        return -1;
    volume->handles = handles_new(volume->data_fd, err);
    if (volume->handles == NULL)
        return -1;
    bool recover = options->reattach && !handles_are_exact(volume->handles);
    int64_t begun = clock_mono(volume->clock);
    if (scan_volume(volume->handles, volume->data_fd, volume->orphans_fd, recover, &count, err) < 0)
        return err_wrap(err, "counting %s", options->directory);
    volume->recounted_at = clock_mono(volume->clock);
    volume->recount_cost = volume->recounted_at - begun;
    account_correct(&volume->account, account_changes(&volume->account), count.used, count.inodes);
    return 0;
}

void volume_close(struct volume *volume)
{
    if (volume->exchanges != NULL)
        munmap(volume->exchanges, VOLUME_EXCHANGES * sizeof(struct volume_exchange));
    node_table_destroy(&volume->nodes);
    handles_free(volume->handles);
    account_destroy(&volume->account);
    const int fds[] = {volume->data_fd, volume->orphans_fd, volume->lock_fd};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Looks at one again; false when there is nothing to come any more. */
static bool charge_watched(struct volume *volume, struct node *node)
{
    struct stat st;
    auto_close int own = node->data_fd >= 0 ? -1 : volume_open_node(volume, node->id, O_PATH);
    int fd = node->data_fd >= 0 ? node->data_fd : own;
    if (fd < 0 || node->charged < 0)
        return false;
    account_enter(&volume->account, false);
    if (fstat(fd, &st) == 0 && volume_bytes(&st) != node->charged) {
        account_settle(&volume->account, 0, volume_bytes(&st) - node->charged);
        node->charged = volume_bytes(&st);
    }
    account_leave(&volume->account);
    return clock_mono(volume->clock) - node->changed_at < WATCH_LONG;
}

int64_t volume_charge_watched(struct volume *volume)
{
    size_t count;
    auto_free struct node **list = node_list_watched(&volume->nodes, &count);
    for (size_t i = 0; i < count; i++) {
        pthread_mutex_lock(&list[i]->lock);
        if (!charge_watched(volume, list[i]))
            node_watch(&volume->nodes, list[i], false);
        pthread_mutex_unlock(&list[i]->lock);
        node_put(&volume->nodes, list[i]);
    }
    return clock_mono(volume->clock) + WATCH_PERIOD;
}

/* 0 = counted. `alone`: nothing changes meanwhile. */
static int count_again(struct volume *volume, bool alone, uint64_t changes, int64_t now)
{
    struct scan_result count;
    auto_err struct err err = {0};
    if (alone)
        account_enter(&volume->account, true);
    int result = scan_volume(volume->handles, volume->data_fd, volume->orphans_fd, false, &count, &err);
    if (alone) {
        changes = account_changes(&volume->account);
        account_leave(&volume->account);
    }
    if (result < 0)
        return log_warn("Cannot count the volume again", kv_err(&err)), -1;
    volume->recount_cost = clock_mono(volume->clock) - now;
    struct account_figures before = account_figures(&volume->account);
    if (!account_correct(&volume->account, changes, count.used, count.inodes))
        return -1;
    volume->recounted_at = now;
    volume->counted_changes = changes;
    log_v(2, "Counted again", kv_int("used", count.used), kv_int("was", before.used), kv_bool("alone", alone));
    return 0;
}

int64_t volume_recount(struct volume *volume)
{
    int64_t now = clock_mono(volume->clock);
    uint64_t changes = account_changes(&volume->account);
    bool quiet = changes == volume->seen_changes;
    bool overdue = now - volume->recounted_at > RECOUNT_BUSY + volume->recount_cost * RECOUNT_SHARE;
    volume->seen_changes = changes;
    if (changes != volume->counted_changes && (quiet || overdue))
        count_again(volume, !quiet, changes, now);
    int64_t pause = quiet ? volume->recount_cost * RECOUNT_SHARE : 0;
    return now + (pause > RECOUNT_QUIET ? pause : RECOUNT_QUIET);
}

/* ---- files ---- */

int volume_open_node(struct volume *volume, uint64_t node_id, int flags)
{
    int fd = handles_open(volume->handles, node_id, flags);
    return fd == -ENOENT ? -ESTALE : fd;
}

void volume_hide_orphan_link(struct volume *volume, uint64_t node_id, struct stat *st)
{
    struct node *node = node_find(&volume->nodes, node_id);
    if (node != NULL && node_is_orphan(&volume->nodes, node) && st->st_nlink > 0)
        st->st_nlink--;
    node_put(&volume->nodes, node);
}

int volume_stat(struct volume *volume, uint64_t node_id, struct stat *st)
{
    /* an open descriptor also knows a directory that was removed */
    struct node *node = node_find(&volume->nodes, node_id);
    int result = -ESTALE;
    if (node != NULL) {
        pthread_mutex_lock(&node->lock);
        int fd = node->data_fd >= 0 ? node->data_fd : node->dir_fd;
        if (fd >= 0)
            result = fstat(fd, st) == 0 ? 0 : -errno;
        pthread_mutex_unlock(&node->lock);
    }
    if (result < 0) {
        auto_close int fd = volume_open_node(volume, node_id, O_PATH);
        result = fd < 0 ? fd : fstat(fd, st) == 0 ? 0 : -errno;
    }
    if (result == 0 && node != NULL && node_is_orphan(&volume->nodes, node) && st->st_nlink > 0)
        st->st_nlink--;
    node_put(&volume->nodes, node);
    return result;
}

int volume_data_fd(struct volume *volume, struct node *node, bool for_writing)
{
    if (node->data_fd >= 0 && !(for_writing && node->data_read_only))
        return node->data_fd;
    bool read_only = volume->read_only;
    int fd = volume_open_node(volume, node->id, read_only ? O_RDONLY : O_RDWR);
    if (fd < 0 && !for_writing &&
        (fd == -EPERM || fd == -EROFS || fd == -ETXTBSY)) { /* an immutable file can be read */
        read_only = true;
        fd = volume_open_node(volume, node->id, O_RDONLY);
    }
    if (fd < 0)
        return fd;
    if (node->data_fd < 0) {
        node->data_fd = fd;
    } else { /* in place: others may be reading from it */
        int result = dup3(fd, node->data_fd, O_CLOEXEC) >= 0 ? 0 : -errno;
        close(fd);
        if (result < 0)
            return result;
    }
    node->data_read_only = read_only;
    return node->data_fd;
}

uint64_t volume_next_handle(struct volume *volume)
{
    return atomic_fetch_add(&volume->newest_handle, 1) + 1;
}

/* ---- orphans ---- */

static void orphan_name(uint64_t node_id, char name[32])
{
    snprintf(name, 32, "%016llx", (unsigned long long)node_id);
}

bool volume_must_keep(struct volume *volume, const struct node *node, const struct stat *st)
{
    if (S_ISLNK(st->st_mode)) /* cannot be open */
        return false;
    /* who came later does not know what was open before; pipes and devices are opened without us */
    return volume->reattached || !S_ISREG(st->st_mode) || node_is_open(&volume->nodes, node);
}

int volume_make_orphan(struct volume *volume, struct node *node)
{
    char name[32];
    if (node_is_orphan(&volume->nodes, node))
        return 0;
    auto_close int fd = volume_open_node(volume, node->id, O_PATH);
    if (fd < 0)
        return fd;
    orphan_name(node->id, name);
    if (linkat(fd, "", volume->orphans_fd, name, AT_EMPTY_PATH) != 0 && errno != EEXIST)
        return -errno;
    node_set_orphan(&volume->nodes, node, true);
    return 0;
}

void volume_remove_orphan(struct volume *volume, uint64_t node_id)
{
    char name[32];
    struct stat st;
    struct node *node = node_find(&volume->nodes, node_id);
    if (node == NULL)
        return;
    orphan_name(node_id, name);
    pthread_mutex_lock(&node->lock);
    if (node_is_orphan(&volume->nodes, node)) {
        account_enter(&volume->account, false);
        bool last = fstatat(volume->orphans_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink == 1;
        int64_t bytes = last && node->charged < 0 ? volume_bytes(&st) : node->charged;
        if (unlinkat(volume->orphans_fd, name, 0) == 0 || errno == ENOENT) {
            if (last) {
                account_settle(&volume->account, 0, -bytes);
                account_release_inode(&volume->account);
            }
            node_set_orphan(&volume->nodes, node, false);
        } else {
            log_warn("Cannot remove an orphan", kv_str("name", name), kv_int("errno", errno));
        }
        account_leave(&volume->account);
    }
    pthread_mutex_unlock(&node->lock);
    node_put(&volume->nodes, node); /* closes its descriptor: the space is really free now */
}

/* ---- directories ---- */

int volume_enter_directory(struct volume *volume, uint64_t node_id, struct volume_directory *directory)
{
    directory->borrowed = node_id == 1;
    directory->fd = directory->borrowed ? volume->data_fd : volume_open_node(volume, node_id, O_PATH | O_DIRECTORY);
    if (directory->fd < 0)
        return directory->fd;
    return fstat(directory->fd, &directory->st) == 0 ? 0 : -errno;
}

void volume_leave_directory(const struct volume_directory *directory)
{
    if (directory->fd >= 0 && !directory->borrowed)
        close(directory->fd);
}

int64_t volume_directory_growth(const struct volume_directory *directory)
{
    struct stat st;
    return fstat(directory->fd, &st) == 0 ? volume_bytes(&st) - volume_bytes(&directory->st) : 0;
}

const char *volume_fd_path(int fd, char buffer[VOLUME_FD_PATH_SIZE])
{
    snprintf(buffer, VOLUME_FD_PATH_SIZE, "/proc/self/fd/%d", fd);
    return buffer;
}
