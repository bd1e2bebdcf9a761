/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/capacity.h"

#include "drivers/hostpath/usage.h"
#include "lib/base/mem.h"
#include "lib/csi/method.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sys/statvfs.h>

/* For the count of all volumes' trees together. */
#define COUNT_LIMIT (2 * CLOCK_SECOND)

struct capacity {
    pthread_mutex_t mutex; /* held from the look to the reservation */
    struct reservation *reservations;
};

struct capacity *capacity_new(void)
{
    struct capacity *capacity = mem_new(struct capacity);
    pthread_mutex_init(&capacity->mutex, NULL);
    return capacity;
}

void capacity_free(struct capacity *capacity)
{
    if (capacity == NULL)
        return;
    pthread_mutex_destroy(&capacity->mutex);
    free(capacity);
}

/* ---- sums ---- */

struct sum {
    const char *kind; /* NULL = all */
    int64_t bytes;
    struct volume **volumes; /* copies, when they are wanted */
    size_t count;
};

static void add_volume(void *arg, const struct volume *volume)
{
    struct sum *sum = arg;
    if (sum->kind == NULL || str_eq(sum->kind, volume->kind))
        sum->bytes += volume->capacity;
}

static void keep_volume(void *arg, const struct volume *volume)
{
    struct sum *sum = arg;
    if ((sum->count & (sum->count + 1)) == 0) /* 0, 1, 3, 7 … */
        sum->volumes = mem_realloc_array(sum->volumes, 2 * sum->count + 2, sizeof(struct volume *));
    sum->volumes[sum->count++] = volume_copy(volume);
}

static int64_t reserved(const struct capacity *capacity, const char *kind)
{
    int64_t bytes = 0;
    for (const struct reservation *r = capacity->reservations; r != NULL; r = r->next)
        if (kind == NULL || str_eq(kind, r->kind))
            bytes += r->bytes;
    return bytes;
}

/* Promised and not used yet. */
static int64_t promised(struct hostpath *driver)
{
    const int64_t deadline = clock_mono(driver->clock) + COUNT_LIMIT;
    struct sum sum = {0};
    int64_t bytes = 0;
    state_each_volume(driver->state, keep_volume, &sum);
    for (size_t i = 0; i < sum.count; i++) {
        int64_t used = usage_on_disk(driver, sum.volumes[i], deadline);
        bytes += sum.volumes[i]->capacity > used ? sum.volumes[i]->capacity - used : 0;
        volume_free(sum.volumes[i]);
    }
    free(sum.volumes);
    return bytes;
}

static int left_on_disk(struct hostpath *driver, int64_t *left, struct err *err)
{
    struct statvfs fs;
    *left = 0;
    if (fstatvfs(state_directory_fd(driver->state), &fs) != 0)
        return err_set_errno(err, errno, "statfs of the state directory");
    *left = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    if (!driver->options.overcommit)
        *left -= promised(driver) + reserved(driver->capacity, NULL);
    *left = *left < 0 ? 0 : *left;
    return 0;
}

static int64_t left_in_pool(struct hostpath *driver, const struct hostpath_pool *pool)
{
    struct sum sum = {.kind = pool->kind};
    state_each_volume(driver->state, add_volume, &sum);
    int64_t left = pool->bytes - sum.bytes - reserved(driver->capacity, pool->kind);
    return left < 0 ? 0 : left;
}

/* The pool for a wish; NULL without an error when there are no pools. */
static int find_pool(struct hostpath *driver, const char *kind, const struct hostpath_pool **found, struct err *err)
{
    const struct hostpath_options *options = &driver->options;
    *found = NULL;
    if (options->pool_count == 0 && str_empty(kind))
        return 0;
    int64_t most = -1;
    for (size_t i = 0; i < options->pool_count; i++) {
        const struct hostpath_pool *pool = &options->pools[i];
        int64_t left = str_empty(kind) ? left_in_pool(driver, pool) : 0;
        if (str_empty(kind) ? left > most : str_eq(kind, pool->kind)) {
            *found = pool;
            most = left;
        }
    }
    return *found != NULL ? 0
                          : csi_fail(err, CSI_INVALID_ARGUMENT, "storage kind \"%s\" is not one of --capacity", kind);
}

/* The mutex is held. */
static int look(struct hostpath *driver, const char *kind, const struct hostpath_pool **pool, int64_t *left,
                struct err *err)
{
    *left = 0;
    if (find_pool(driver, kind, pool, err) < 0 || left_on_disk(driver, left, err) < 0)
        return -1;
    if (*pool != NULL) {
        int64_t in_pool = left_in_pool(driver, *pool);
        *left = in_pool < *left || driver->options.overcommit ? in_pool : *left;
    }
    return 0;
}

int capacity_available(struct hostpath *driver, const char *kind, int64_t *available, struct err *err)
{
    const struct hostpath_pool *pool;
    pthread_mutex_lock(&driver->capacity->mutex);
    int result = look(driver, kind, &pool, available, err);
    pthread_mutex_unlock(&driver->capacity->mutex);
    return result;
}

static int check_room(struct hostpath *driver, char **kind, int64_t bytes, struct err *err)
{
    const struct hostpath_pool *pool = NULL;
    int64_t left = 0;
    if (kind == NULL ? left_on_disk(driver, &left, err) < 0 : look(driver, *kind, &pool, &left, err) < 0)
        return -1;
    if (left < bytes && (pool != NULL || !driver->options.overcommit))
        return csi_fail(err, CSI_RESOURCE_EXHAUSTED,
                        "%" PRId64 " bytes are wanted and %" PRId64 " are left%s%s (free on the disk, less what other "
                        "volumes were promised)",
                        bytes, left, pool != NULL ? " in pool " : "", pool != NULL ? pool->kind : "");
    if (pool != NULL && str_empty(*kind)) {
        free(*kind);
        *kind = mem_strdup(pool->kind);
    }
    return 0;
}

int capacity_reserve(struct hostpath *driver, char **kind, int64_t bytes, struct reservation *reservation,
                     struct err *err)
{
    struct capacity *capacity = driver->capacity;
    pthread_mutex_lock(&capacity->mutex);
    int result = check_room(driver, kind, bytes, err);
    if (result == 0) {
        *reservation = (struct reservation){.driver = driver,
                                            .kind = kind != NULL ? mem_strdup(*kind) : NULL,
                                            .bytes = bytes,
                                            .next = capacity->reservations};
        capacity->reservations = reservation;
    }
    pthread_mutex_unlock(&capacity->mutex);
    return result;
}

void capacity_release(struct reservation *reservation)
{
    if (reservation->driver == NULL)
        return;
    struct capacity *capacity = reservation->driver->capacity;
    pthread_mutex_lock(&capacity->mutex);
    struct reservation **at = &capacity->reservations;
    while (*at != NULL && *at != reservation)
        at = &(*at)->next;
    if (*at != NULL)
        *at = reservation->next;
    pthread_mutex_unlock(&capacity->mutex);
    free(reservation->kind);
    *reservation = (struct reservation){0};
}
