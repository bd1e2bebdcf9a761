/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/usage.h"

#include "drivers/common/copy.h"
#include "lib/base/map.h"
#include "lib/base/mem.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT_LIMIT (3 * CLOCK_SECOND)

struct counted {
    int64_t bytes, inodes, at;
};
struct usage_cache {
    pthread_mutex_t mutex;
    struct map *by_id; /* struct counted */
};

struct usage_cache *usage_cache_new(void)
{
    struct usage_cache *cache = mem_new(struct usage_cache);
    pthread_mutex_init(&cache->mutex, NULL);
    cache->by_id = map_new(free);
    return cache;
}

void usage_cache_free(struct usage_cache *cache)
{
    if (cache == NULL)
        return;
    map_free(cache->by_id);
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
}

void usage_forget(struct usage_cache *cache, const char *id)
{
    pthread_mutex_lock(&cache->mutex);
    map_remove(cache->by_id, id);
    pthread_mutex_unlock(&cache->mutex);
}

void usage_note(struct usage_cache *cache, const char *id, int64_t bytes, int64_t inodes, int64_t now)
{
    struct counted *counted = mem_new(struct counted);
    *counted = (struct counted){.bytes = bytes, .inodes = inodes, .at = now};
    pthread_mutex_lock(&cache->mutex);
    map_set(cache->by_id, id, counted);
    pthread_mutex_unlock(&cache->mutex);
}

static bool look_up(struct usage_cache *cache, const char *id, struct counted *counted)
{
    pthread_mutex_lock(&cache->mutex);
    const struct counted *known = map_get(cache->by_id, id);
    if (known != NULL)
        *counted = *known;
    pthread_mutex_unlock(&cache->mutex);
    return known != NULL;
}

static int count_tree(struct hostpath *driver, const struct volume *volume, int64_t max_age, int64_t deadline,
                      struct counted *counted, struct err *err)
{
    const int64_t now = clock_mono(driver->clock);
    bool known = look_up(driver->usage, volume->id, counted);
    if (known && now - counted->at <= max_age)
        return 0;
    auto_close int fd = state_open_data(driver->state, STATE_VOLUMES, volume->id, ".", O_RDONLY | O_DIRECTORY, 0, err);
    if (fd < 0)
        return -1;
    int64_t bytes, inodes;
    if (tree_usage(fd, driver->clock, deadline, &bytes, &inodes, err) < 0) {
        if (!known || !err_is(err, ERR_TIMEOUT))
            return -1;
        err_clear(err);
        return 0;
    }
    *counted = (struct counted){.bytes = bytes, .inodes = inodes};
    usage_note(driver->usage, volume->id, bytes, inodes, now);
    return 0;
}

int usage_of_tree(struct hostpath *driver, const struct volume *volume, int64_t max_age, int64_t *bytes,
                  int64_t *inodes, struct err *err)
{
    struct counted counted;
    if (count_tree(driver, volume, max_age, clock_mono(driver->clock) + COUNT_LIMIT, &counted, err) < 0)
        return -1;
    *bytes = counted.bytes;
    *inodes = counted.inodes;
    return 0;
}

int64_t usage_on_disk(struct hostpath *driver, const struct volume *volume, int64_t deadline)
{
    auto_err struct err ignored = {0};
    struct counted counted;
    if (!volume_is_image(volume))
        return count_tree(driver, volume, USAGE_ROUGH, deadline, &counted, &ignored) == 0 ? counted.bytes : 0;
    struct stat st;
    auto_close int image = state_open_data(driver->state, STATE_VOLUMES, volume->id, "image", O_PATH, 0, &ignored);
    return image >= 0 && fstat(image, &st) == 0 ? (int64_t)st.st_blocks * 512 : 0;
}
