/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/monitor.h"

#include "drivers/nfs/copy.h"
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/map.h"
#include "lib/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#define TELL_EVERY (2 * 60 * CLOCK_SECOND)
#define RECORD_LIMIT 65536

struct entry {
    struct staged staged;
    struct usage usage;
    int64_t next_tell, next_measure; /* monotonic */
};
struct monitor {
    pthread_mutex_t mutex;
    struct map *entries; /* handle → struct entry */
    struct map *stuck;   /* path → int64_t, pid of a helper that hangs there */
    int directory;
    char *path;
    pthread_t thread;
};

void staged_clear(struct staged *staged)
{
    free(staged->handle);
    free(staged->id);
    share_location_clear(&staged->where);
    free(staged->sub_dir);
    free(staged->options);
    free(staged->path);
    free(staged->capability);
    *staged = (struct staged){0};
}

static void staged_copy(struct staged *to, const struct staged *from)
{
    *to = *from;
    to->handle = mem_strdup(from->handle);
    to->id = mem_strdup(from->id);
    share_location_copy(&to->where, &from->where);
    to->sub_dir = mem_strdup(from->sub_dir);
    to->options = mem_strdup(from->options);
    to->path = mem_strdup(from->path);
    to->capability = mem_strdup(from->capability);
}

static void entry_free(void *value)
{
    struct entry *entry = value;
    staged_clear(&entry->staged);
    free(entry);
}

/* ---- files ---- */

static char *file_name(const char *handle)
{
    auto_free char *hash = str_sha256_hex(handle, strlen(handle));
    return mem_printf("%.40s.json", hash);
}

static char *path_of(const struct nfs_driver *driver, const char *handle, const char *suffix)
{
    auto_free char *hash = str_sha256_hex(handle, strlen(handle));
    return mem_printf("%s/%.40s.%s", driver->monitor->path, hash, suffix);
}

char *monitor_config_path(const struct nfs_driver *driver, const char *handle)
{
    return path_of(driver, handle, "mount");
}

char *monitor_aside_path(const struct nfs_driver *driver, const char *handle)
{
    return path_of(driver, handle, "aside");
}

static int save(struct monitor *monitor, const struct staged *staged, struct err *err)
{
    auto_free char *name = file_name(staged->handle);
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:I, s:s}", "handle", staged->handle, "id",
                  staged->id, "server", staged->where.server, "export", staged->where.export, "version",
                  staged->where.version, "port", staged->where.port, "mountPort", staged->where.mount_port, "subDir",
                  staged->sub_dir, "options", staged->options, "path", staged->path, "capability", staged->capability,
                  "limit", (json_int_t)staged->limit, "mounter", mounter_name(staged->mounter));
    if (json == NULL)
        return err_set(err, ERR_INVALID, "the volume's attributes are not UTF-8");
    char *text = json_dumps(json, JSON_INDENT(2));
    json_decref(json);
    int result = file_write_atomic_at(monitor->directory, name, text, strlen(text), 0600, err);
    free(text);
    return result;
}

static int parse(const char *text, size_t len, struct staged *staged, struct err *err)
{
    json_error_t where;
    const char *handle, *id, *server, *export, *sub_dir, *options, *path, *capability, *mounter;
    json_int_t limit;
    json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
    if (json == NULL)
        return err_set(err, ERR_INVALID, "line %d: %s", where.line, where.text);
    int result = json_unpack_ex(json, &where, 0, "{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:I, s:s}",
                                "handle", &handle, "id", &id, "server", &server, "export", &export, "version",
                                &staged->where.version, "port", &staged->where.port, "mountPort",
                                &staged->where.mount_port, "subDir", &sub_dir, "options", &options, "path", &path,
                                "capability", &capability, "limit", &limit, "mounter", &mounter);
    if (result == 0) {
        staged->handle = mem_strdup(handle);
        staged->id = mem_strdup(id);
        staged->where.server = mem_strdup(server);
        staged->where.export = mem_strdup(export);
        staged->sub_dir = mem_strdup(sub_dir);
        staged->options = mem_strdup(options);
        staged->path = mem_strdup(path);
        staged->capability = mem_strdup(capability);
        staged->limit = limit;
        if (!mounter_parse(mounter, &staged->mounter))
            staged->mounter = MOUNTER_KERNEL;
    }
    json_decref(json);
    return result == 0 ? 0 : err_set(err, ERR_INVALID, "%s", where.text);
}

static void load_one(struct monitor *monitor, const char *name)
{
    auto_free char *text = NULL;
    auto_err struct err err = {0};
    size_t len = 0;
    if (!str_ends(name, ".json"))
        return;
    struct entry *entry = mem_new(struct entry);
    if (file_read_at(monitor->directory, name, RECORD_LIMIT, &text, &len, &err) < 0 ||
        parse(text, len, &entry->staged, &err) < 0) {
        log_error("Damaged record of a mounted volume", kv_str("file", name), kv_err(&err));
        entry_free(entry);
        return;
    }
    map_set(monitor->entries, entry->staged.handle, entry);
}

static int load_all(struct monitor *monitor, struct err *err)
{
    DIR *dir = opendir(monitor->path);
    if (dir == NULL)
        return err_set_errno(err, errno, "reading %s", monitor->path);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        load_one(monitor, entry->d_name);
    closedir(dir);
    return 0;
}

/* ---- the thread ---- */

static void tell(struct nfs_driver *driver, const struct staged *staged)
{
    auto_share struct share *share = NULL;
    auto_err struct err err = {0};
    struct area area;
    if (*staged->id == '\0')
        return;
    int found = nfs_open_share(driver, &staged->where, NULL, &share, &err);
    if (found == 0)
        found = area_find(share, &area, &err);
    if (found > 0)
        found = users_touch(&area, staged->id, driver->options.node_id, &err);
    if (found < 0)
        log_v(1, "Cannot say on the share that a volume is in use", kv_str("volume", staged->handle), kv_err(&err));
}

static void measure(struct nfs_driver *driver, const struct staged *staged, struct usage *usage)
{
    auto_share struct share *share = NULL;
    auto_err struct err err = {0};
    struct share_fh fh;
    if (nfs_open_share(driver, &staged->where, NULL, &share, &err) < 0)
        return;
    share_set_cancel(share, driver->stop);
    if (share_walk(share, staged->sub_dir, &fh, NULL) != 0)
        return;
    usage->known = share_measure_tree(share, &fh, &usage->bytes, &usage->entries, &err) == 0;
}

/* One volume that has something due; copied, so that the lock is not held while the server is asked. */
static bool next_due(struct monitor *monitor, struct nfs_driver *driver, struct staged *staged, bool *tell_it,
                     bool *measure_it)
{
    int64_t now = clock_mono(driver->clock);
    bool found = false;
    pthread_mutex_lock(&monitor->mutex);
    for (struct map_iter it = {0}; !found && map_next(monitor->entries, &it);) {
        struct entry *entry = it.value;
        *tell_it = entry->next_tell <= now;
        *measure_it = entry->staged.mounter == MOUNTER_KERNEL && entry->next_measure <= now;
        found = *tell_it || *measure_it;
        if (!found)
            continue;
        staged_copy(staged, &entry->staged);
        if (*tell_it)
            entry->next_tell = now + TELL_EVERY;
        if (*measure_it)
            entry->next_measure = now + driver->options.usage_interval;
    }
    pthread_mutex_unlock(&monitor->mutex);
    return found;
}

static void *watch(void *arg)
{
    struct nfs_driver *driver = arg;
    struct monitor *monitor = driver->monitor;
    do {
        struct staged staged = {0};
        bool tell_it, measure_it;
        while (!stop_requested(driver->stop) && next_due(monitor, driver, &staged, &tell_it, &measure_it)) {
            struct usage usage = {0};
            if (tell_it)
                tell(driver, &staged);
            if (measure_it)
                measure(driver, &staged, &usage);
            pthread_mutex_lock(&monitor->mutex);
            struct entry *entry = map_get(monitor->entries, staged.handle);
            if (entry != NULL && usage.known)
                entry->usage = usage;
            pthread_mutex_unlock(&monitor->mutex);
            staged_clear(&staged);
        }
    } while (!stop_sleep(driver->stop, driver->clock, CLOCK_SECOND));
    return NULL;
}

/* ---- the interface ---- */

int monitor_start(struct nfs_driver *driver, struct err *err)
{
    struct monitor *monitor = mem_new(struct monitor);
    monitor->path = mem_printf("%s/node", driver->options.state_directory);
    pthread_mutex_init(&monitor->mutex, NULL);
    monitor->entries = map_new(entry_free);
    monitor->stuck = map_new(free);
    driver->monitor = monitor;
    if ((mkdir(driver->options.state_directory, 0700) != 0 && errno != EEXIST) ||
        (mkdir(monitor->path, 0700) != 0 && errno != EEXIST))
        return err_set_errno(err, errno, "making directory %s", monitor->path);
    monitor->directory = open(monitor->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (monitor->directory < 0)
        return err_set_errno(err, errno, "opening directory %s", monitor->path);
    if (load_all(monitor, err) < 0)
        return -1;
    monitor->thread = thread_start("monitor", watch, driver);
    return 0;
}

void monitor_stop(struct nfs_driver *driver)
{
    struct monitor *monitor = driver->monitor;
    if (monitor == NULL)
        return;
    if (monitor->thread != 0)
        thread_join(monitor->thread);
    if (monitor->directory > 0)
        close(monitor->directory);
    map_free(monitor->entries);
    map_free(monitor->stuck);
    free(monitor->path);
    pthread_mutex_destroy(&monitor->mutex);
    free(monitor);
    driver->monitor = NULL;
}

void monitor_handles(struct monitor *monitor, struct strv *handles)
{
    pthread_mutex_lock(&monitor->mutex);
    for (struct map_iter it = {0}; map_next(monitor->entries, &it);)
        strv_add(handles, it.key);
    pthread_mutex_unlock(&monitor->mutex);
}

int monitor_find(struct monitor *monitor, const char *handle, struct staged *staged)
{
    pthread_mutex_lock(&monitor->mutex);
    const struct entry *entry = map_get(monitor->entries, handle);
    if (entry != NULL)
        staged_copy(staged, &entry->staged);
    pthread_mutex_unlock(&monitor->mutex);
    return entry != NULL;
}

int monitor_add(struct nfs_driver *driver, const struct staged *staged, struct err *err)
{
    struct monitor *monitor = driver->monitor;
    if (save(monitor, staged, err) < 0)
        return -1;
    struct entry *entry = mem_new(struct entry);
    staged_copy(&entry->staged, staged);
    pthread_mutex_lock(&monitor->mutex);
    const struct entry *old = map_get(monitor->entries, staged->handle);
    if (old != NULL)
        entry->usage = old->usage;
    map_set(monitor->entries, staged->handle, entry);
    pthread_mutex_unlock(&monitor->mutex);
    return 0;
}

int monitor_remove(struct nfs_driver *driver, const char *handle, struct err *err)
{
    struct monitor *monitor = driver->monitor;
    auto_free char *name = file_name(handle);
    auto_free char *config = monitor_config_path(driver, handle);
    if (unlinkat(monitor->directory, name, 0) != 0 && errno != ENOENT)
        return err_set_errno(err, errno, "removing %s/%s", monitor->path, name);
    unlink(config);
    pthread_mutex_lock(&monitor->mutex);
    map_remove(monitor->entries, handle);
    pthread_mutex_unlock(&monitor->mutex);
    return 0;
}

struct usage monitor_usage(struct monitor *monitor, const char *handle)
{
    struct usage usage = {0};
    pthread_mutex_lock(&monitor->mutex);
    const struct entry *entry = map_get(monitor->entries, handle);
    if (entry != NULL)
        usage = entry->usage;
    pthread_mutex_unlock(&monitor->mutex);
    return usage;
}

int64_t monitor_stuck(struct monitor *monitor, const char *path)
{
    pthread_mutex_lock(&monitor->mutex);
    const int64_t *pid = map_get(monitor->stuck, path);
    int64_t found = pid != NULL ? *pid : 0;
    pthread_mutex_unlock(&monitor->mutex);
    return found;
}

void monitor_set_stuck(struct monitor *monitor, const char *path, int64_t pid)
{
    pthread_mutex_lock(&monitor->mutex);
    if (pid == 0)
        map_remove(monitor->stuck, path);
    else
        map_set(monitor->stuck, path, mem_dup(&pid, sizeof(pid)));
    pthread_mutex_unlock(&monitor->mutex);
}
