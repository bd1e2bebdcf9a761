/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is used is counted as this mount's requests change it, and measured at the start and now and then, because other
 * nodes change it too. Before data is sent it is reserved, so concurrent writes cannot exceed the limit together.
 */
#include "drivers/nfs/copy.h"
#include "drivers/nfs/fuse_fs.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <sys/stat.h>

#define BLOCK 4096U
#define LOOK_EVERY CLOCK_SECOND

uint64_t quota_reserve(struct quota *quota, uint64_t wanted)
{
    pthread_mutex_lock(&quota->mutex);
    uint64_t granted = wanted;
    if (quota->limit != 0) {
        int64_t left = (int64_t)quota->limit - quota->used - quota->reserved;
        if (left < (int64_t)wanted)
            granted = left > 0 ? (uint64_t)left / BLOCK * BLOCK : 0;
    }
    quota->reserved += (int64_t)granted;
    pthread_mutex_unlock(&quota->mutex);
    return granted;
}

void quota_settle(struct quota *quota, uint64_t reserved, int64_t change)
{
    pthread_mutex_lock(&quota->mutex);
    quota->reserved -= (int64_t)reserved;
    quota->used += change;
    quota->since += change;
    pthread_mutex_unlock(&quota->mutex);
}

void quota_change(struct quota *quota, int64_t change)
{
    quota_settle(quota, 0, change);
}

void quota_begin_measuring(struct quota *quota)
{
    pthread_mutex_lock(&quota->mutex);
    quota->since = 0;
    pthread_mutex_unlock(&quota->mutex);
}

void quota_end_measuring(struct quota *quota, uint64_t used)
{
    pthread_mutex_lock(&quota->mutex);
    quota->used = (int64_t)used + quota->since;
    quota->measured = true;
    pthread_mutex_unlock(&quota->mutex);
}

void quota_set_limit(struct quota *quota, uint64_t limit)
{
    pthread_mutex_lock(&quota->mutex);
    quota->limit = limit;
    pthread_mutex_unlock(&quota->mutex);
}

static bool measure(struct fs *fs)
{
    auto_share struct share *share = NULL;
    auto_err struct err err = {0};
    uint64_t used = 0, entries = 0;
    struct share_options options = {.clock = fs->clock,
                                    .credential = {.uid = fs->config.uid, .gid = fs->config.gid},
                                    .timeout = fs->config.timeout};
    quota_begin_measuring(&fs->quota);
    if (share_open(&fs->config.where, &options, CLOCK_NEVER, fs->stop, &share, &err) < 0 ||
        share_measure_tree(share, &fs->inodes.root.fh, &used, &entries, &err) < 0) {
        if (!stop_requested(fs->stop))
            log_warn("Cannot measure what is used: only what is written from here counts", kv_err(&err));
        return false;
    }
    quota_end_measuring(&fs->quota, used);
    log_v(2, "Measured", kv_uint("used", used), kv_uint("entries", entries));
    return true;
}

static void look_for_limit(struct fs *fs, struct timespec *seen)
{
    struct stat st;
    struct fuse_config fresh = {0};
    auto_err struct err err = {0};
    if (stat(fs->config_path, &st) != 0 || (st.st_mtim.tv_sec == seen->tv_sec && st.st_mtim.tv_nsec == seen->tv_nsec))
        return;
    *seen = st.st_mtim;
    if (fuse_config_read(fs->config_path, &fresh, &err) < 0) {
        log_warn("Cannot read the configuration again", kv_err(&err));
    } else {
        quota_set_limit(&fs->quota, (uint64_t)fresh.limit);
        log_v(1, "Limit", kv_int("bytes", fresh.limit));
    }
    fuse_config_clear(&fresh);
}

void *fs_watch(void *arg)
{
    struct fs *fs = arg;
    struct timespec seen = {0};
    int64_t next = 0;
    do {
        int64_t now = clock_mono(fs->clock);
        look_for_limit(fs, &seen);
        if (fs->config.limit > 0 || fs->quota.limit > 0) {
            /* after a failure a little sooner than after a success */
            if (now >= next)
                next = clock_mono(fs->clock) + (measure(fs) ? fs->config.usage_interval : 30 * CLOCK_SECOND);
        }
    } while (!stop_sleep(fs->stop, fs->clock, LOOK_EVERY));
    return NULL;
}
