/* SPDX-License-Identifier: Apache-2.0 */
/* What clients ask for. */
#include "drivers/common/fuse_control.h"
#include "drivers/common/holder_packet.h"
#include "drivers/common/mount.h"
#include "drivers/holder/holder.h"
#include "drivers/holder/mounting.h"
#include "drivers/holder/process.h"
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define END_PATIENCE CLOCK_SECOND        /* an unmounted file system's process ends within moments */
#define STOP_PATIENCE (5 * CLOCK_SECOND) /* a process that was told to end */
#define ID_MAX 128

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- waiting (lock held; the mount is claimed) ---- */

/* Whose mount is at this target, other than that of `id`; NULL = nobody's that we know. */
static int find_other(const struct holder *holder, const char *target, const char *id, const struct held **other,
                      struct err *err)
{
    *other = NULL;
    for (size_t i = 0; i < holder->table.len && *other == NULL; i++) {
        const struct held *held = holder->table.items[i];
        bool there = held->state == HELD_NEW;
        if (held->detached || held->state == HELD_GONE || !str_eq(held->target, target) || str_eq(held->id, id))
            continue;
        if (!there && mounting_is_at(held->target, held->device, &there, err) < 0)
            return -1;
        *other = there ? held : NULL;
    }
    return 0;
}

static int wait_serving(struct holder *holder, const struct held *held, int64_t deadline, struct err *err)
{
    while (held->state != HELD_SERVING) {
        if (held->state == HELD_GONE)
            return err_set(err, ERR_UNAVAILABLE, "volume %s: %s", held->id,
                           held->problem != NULL ? held->problem : "it was unmounted meanwhile");
        if (!clock_cond_wait(holder->clock, &holder->changed, &holder->lock, deadline))
            return err_set(err, ERR_TIMEOUT, "volume %s is not served yet%s%s", held->id,
                           held->problem != NULL ? ": " : "", held->problem != NULL ? held->problem : "");
    }
    return 0;
}

static bool wait_gone(struct holder *holder, const struct held *held, int64_t deadline)
{
    while (held->state != HELD_GONE)
        if (!clock_cond_wait(holder->clock, &holder->changed, &holder->lock, deadline))
            return false;
    return true;
}

/* ---- talking to a berth-fuse (no lock) ---- */

static int exchange(const char *path, const struct fuse_control_request *request, struct fuse_control_answer *answer,
                    int64_t deadline, struct err *err)
{
    auto_close int fd = holder_packet_connect(path, err);
    if (fd < 0)
        return -1;
    if (send(fd, request, sizeof(*request), MSG_NOSIGNAL) != (ssize_t)sizeof(*request))
        return err_set(err, ERR_UNAVAILABLE, "the volume's process is gone");
    for (;;) {
        int64_t left = (deadline - clock_mono(clock_real())) / CLOCK_MS;
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        if (left <= 0 || poll(&poller, 1, left < 60000 ? (int)left : 60000) == 0)
            return err_set(err, ERR_TIMEOUT, "the volume's process does not answer");
        ssize_t length = recv(fd, answer, sizeof(*answer), MSG_DONTWAIT);
        if (length < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (length <= 0)
            return err_set(err, ERR_UNAVAILABLE, "the volume's process is gone");
        if (length != (ssize_t)sizeof(*answer) || answer->magic != FUSE_CONTROL_MAGIC)
            return err_set(err, ERR_INTERNAL, "the volume's process is of another version");
        return answer->error == 0 ? 0 : err_set_errno(err, answer->error, "the volume's process refused");
    }
}

/* Asks the process of a claimed mount; should it be replaced meanwhile, its successor. Lock held, let go within. */
static int ask(struct holder *holder, struct held *held, const struct fuse_control_request *request,
               struct fuse_control_answer *answer, int64_t deadline, struct err *err)
{
    auto_free char *path = holder_file(holder, held, "sock");
    for (;;) {
        pid_t pid = held->pid;
        if (wait_serving(holder, held, deadline, err) < 0)
            return -1;
        pthread_mutex_unlock(&holder->lock);
        int result = exchange(path, request, answer, deadline, err);
        pthread_mutex_lock(&holder->lock);
        bool replaced = held->pid != pid || held->state != HELD_SERVING;
        if (result == 0 || !err_is(err, ERR_UNAVAILABLE) || clock_mono(holder->clock) >= deadline)
            return result;
        if (!replaced) { /* its end is noticed in a moment */
            int64_t soon = earlier(deadline, clock_mono(holder->clock) + 20 * CLOCK_MS);
            clock_cond_wait(holder->clock, &holder->changed, &holder->lock, soon);
        }
        err_clear(err);
    }
}

static int tell_limit(struct holder *holder, struct held *held, int64_t deadline, struct err *err)
{
    struct fuse_control_answer answer;
    /* a process that is started from here on has it from its command line */
    const struct fuse_control_request request = {.magic = FUSE_CONTROL_MAGIC,
                                                 .kind = FUSE_CONTROL_SET_LIMIT,
                                                 .limit = held->limit,
                                                 .inode_limit = held->inode_limit};
    if (ask(holder, held, &request, &answer, deadline, err) < 0)
        return -1;
    held->told_limit = request.limit;
    held->told_inode_limit = request.inode_limit;
    return 0;
}

static int change_limit(struct holder *holder, struct held *held, int64_t limit, int64_t inode_limit, int64_t deadline,
                        struct err *err)
{
    held->limit = limit;
    held->inode_limit = inode_limit;
    if (holder_save(holder, err) < 0)
        return -1;
    return tell_limit(holder, held, deadline, err);
}

/* ---- mount ---- */

static int check_request(const struct holder_mount_request *request, struct err *err)
{
    unsigned long flags;
    auto_str struct str data = {0};
    if (request->id == NULL || !file_name_is_safe(request->id) || strlen(request->id) > ID_MAX)
        return err_set(err, ERR_INVALID, "the id must be a file name of at most %d characters", ID_MAX);
    if (!mount_path_is_safe(request->directory) || !mount_path_is_safe(request->target))
        return err_set(err, ERR_INVALID, "volume directory and target must be clean absolute paths");
    if (request->limit <= 0 || request->inode_limit < 0)
        return err_set(err, ERR_INVALID, "the limit must be positive");
    return mounting_parse_options(&request->options, &flags, &data, err);
}

/* The directory is a volume's, and no process serves it that we do not know about. */
static int check_directory(const char *directory, struct err *err)
{
    struct stat st;
    auto_close int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, errno, "opening %s", directory);
    if (fstatat(fd, "data", &st, AT_SYMLINK_NOFOLLOW) != 0)
        return err_set_errno(err, errno, "%s/data", directory);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, "%s/data is no directory", directory);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return err_set(err, ERR_UNAVAILABLE, "%s is served by a process that this holder does not know", directory);
    return 0;
}

static bool same_options(const struct strv *a, const struct strv *b)
{
    if (a->len != b->len)
        return false;
    for (size_t i = 0; i < a->len; i++)
        if (!str_eq(a->items[i], b->items[i]))
            return false;
    return true;
}

static const char *find_difference(const struct held *held, const struct holder_mount_request *request)
{
    if (!str_eq(held->directory, request->directory))
        return "another directory";
    if (!str_eq(held->target, request->target))
        return "another target";
    if (held->read_only != request->read_only)
        return held->read_only ? "read-only" : "read-write";
    return same_options(&held->options, &request->options) ? NULL : "other options";
}

/* An entry is there already (claimed). *again: it is gone now, mount anew. */
static int mount_known(struct holder *holder, struct held *held, const struct holder_mount_request *request,
                       int64_t deadline, bool *again, struct err *err)
{
    bool there = false;
    const char *difference = find_difference(held, request);
    if (!held->detached && mounting_is_at(held->target, held->device, &there, err) < 0)
        return -1;
    if (!there) {
        held->detached = true; /* somebody else unmounted it, or we did and it was still in use */
        *again = wait_gone(holder, held, earlier(deadline, clock_mono(holder->clock) + END_PATIENCE));
        return *again ? 0
                      : err_set(err, ERR_UNAVAILABLE,
                                "volume %s was unmounted, but is still used through another mount", held->id);
    }
    if (difference != NULL)
        return err_set(err, ERR_CONFLICT, "volume %s is mounted with %s", held->id, difference);
    if (held->limit != request->limit || held->inode_limit != request->inode_limit || held->told_limit != held->limit ||
        held->told_inode_limit != held->inode_limit)
        return change_limit(holder, held, request->limit, request->inode_limit, deadline, err);
    return wait_serving(holder, held, deadline, err);
}

static struct held *add_new(struct holder *holder, const struct holder_mount_request *request)
{
    struct held *held = held_new(request->id);
    held->directory = mem_strdup(request->directory);
    held->target = mem_strdup(request->target);
    held->limit = request->limit;
    held->inode_limit = request->inode_limit;
    held->read_only = request->read_only;
    strv_copy(&held->options, &request->options);
    held->slot = table_free_slot(&holder->table);
    held->busy = true;
    table_add(&holder->table, held);
    return held;
}

/* Lock held, let go while mounting. The entry is removed again on failure. */
static int mount_new(struct holder *holder, const struct holder_mount_request *request, int64_t deadline,
                     struct err *err)
{
    const struct held *other = NULL;
    if (find_other(holder, request->target, request->id, &other, err) < 0)
        return -1;
    if (other != NULL) /* it would be taken for a dead mount */
        return err_set(err, ERR_CONFLICT, "volume %s is mounted at %s", other->id, other->target);
    struct held *held = add_new(holder, request);
    pthread_mutex_unlock(&holder->lock);
    int result = check_directory(held->directory, err);
    if (result == 0) {
        held->fuse_fd = mounting_mount(held->id, held->target, &held->options, held->read_only, &held->device, err);
        result = held->fuse_fd < 0 ? -1 : 0;
    }
    pthread_mutex_lock(&holder->lock);
    if (result == 0)
        result = holder_start_process(holder, held, err);
    holder_changed(holder); /* the supervisor has a new process to watch */
    if (result == 0) {
        result = wait_serving(holder, held, deadline, err);
        if (result < 0 && held->state != HELD_GONE) { /* out of time: it goes on, and a repeated call finds it */
            holder_release(holder, held);
            return -1;
        }
    }
    if (result == 0) {
        log_info("Mounted", kv_str("volume", held->id), kv_str("target", held->target), kv_int("limit", held->limit),
                 kv_int("pid", held->pid));
        holder_release(holder, held);
        return 0;
    }
    if (held->state != HELD_GONE)
        held_move(held, HELD_GONE);
    if (held->fuse_fd >= 0) {
        auto_free char *target = mem_strdup(held->target);
        pthread_mutex_unlock(&holder->lock);
        mounting_unmount(target, true, NULL);
        pthread_mutex_lock(&holder->lock);
    }
    holder_forget(holder, held);
    return -1;
}

int holder_do_mount(struct holder *holder, const struct holder_mount_request *request, int64_t deadline,
                    struct err *err)
{
    auto_err struct err claim_err = {0};
    bool again = true;
    int result = 0;
    if (check_request(request, err) < 0)
        return -1;
    pthread_mutex_lock(&holder->lock);
    struct held *held = holder_claim(holder, request->id, deadline, &claim_err);
    if (claim_err.code != ERR_NONE) {
        result = err_move(err, &claim_err);
    } else if (held != NULL) {
        again = false;
        result = mount_known(holder, held, request, deadline, &again, err);
        if (held->state == HELD_GONE)
            holder_forget(holder, held);
        else
            holder_release(holder, held);
    }
    if (result == 0 && again)
        result = mount_new(holder, request, deadline, err);
    pthread_mutex_unlock(&holder->lock);
    return result;
}

/* ---- unmount ---- */

static int unmount_known(struct holder *holder, struct held *held, int64_t deadline, bool *in_use, struct err *err)
{
    auto_free char *target = mem_strdup(held->target);
    bool dead = held->state == HELD_WAITING && held->quick_ends > 0; /* its process does not come up */
    bool there = false;
    pthread_mutex_unlock(&holder->lock);
    int result = mounting_is_at(target, held->device, &there, err); /* device is set once, before the first process */
    if (result == 0 && there)
        result = mounting_unmount(target, dead, err);
    if (result == 0)
        rmdir(target);
    pthread_mutex_lock(&holder->lock);
    if (result < 0)
        return -1;
    held->detached = true;
    holder_changed(holder);
    *in_use = !wait_gone(holder, held, earlier(deadline, clock_mono(holder->clock) + END_PATIENCE));
    if (*in_use)
        log_warn("Unmounted, but still in use through another mount", kv_str("volume", held->id));
    return holder_save(holder, err);
}

int holder_do_unmount(struct holder *holder, const char *id, const char *target, int64_t deadline, bool *in_use,
                      struct err *err)
{
    auto_err struct err claim_err = {0};
    int result = 0;
    *in_use = false;
    if (id == NULL || !file_name_is_safe(id))
        return err_set(err, ERR_INVALID, "the id is no file name");
    if (target != NULL && !mount_path_is_safe(target))
        return err_set(err, ERR_INVALID, "the target must be a clean absolute path");
    pthread_mutex_lock(&holder->lock);
    struct held *held = holder_claim(holder, id, deadline, &claim_err);
    const struct held *other = NULL;
    if (claim_err.code != ERR_NONE) {
        result = err_move(err, &claim_err);
    } else if (held == NULL && target != NULL) {
        result = find_other(holder, target, id, &other, err);
    } else if (held != NULL) {
        result = unmount_known(holder, held, deadline, in_use, err);
        if (held->state == HELD_GONE)
            holder_forget(holder, held);
        else
            holder_release(holder, held);
    }
    pthread_mutex_unlock(&holder->lock);
    if (result == 0 && held == NULL && target != NULL && other == NULL) { /* of a holder or a process that is gone */
        result = mounting_unmount(target, true, err);
        if (result == 0)
            rmdir(target);
    }
    return result;
}

/* ---- the rest ---- */

/* Claims an existing mount; the lock is held then. NULL: an error. */
static struct held *claim_existing(struct holder *holder, const char *id, int64_t deadline, struct err *err)
{
    auto_err struct err claim_err = {0};
    if (id == NULL) {
        err_set(err, ERR_INVALID, "the id is missing");
        return NULL;
    }
    pthread_mutex_lock(&holder->lock);
    struct held *held = holder_claim(holder, id, deadline, &claim_err);
    if (held != NULL)
        return held;
    pthread_mutex_unlock(&holder->lock);
    if (claim_err.code != ERR_NONE)
        err_move(err, &claim_err);
    else
        err_set(err, ERR_NOT_FOUND, "volume %s is not mounted", id);
    return NULL;
}

static void leave_existing(struct holder *holder, struct held *held)
{
    if (held->state == HELD_GONE)
        holder_forget(holder, held);
    else
        holder_release(holder, held);
    pthread_mutex_unlock(&holder->lock);
}

int holder_do_set_limit(struct holder *holder, const char *id, int64_t limit, int64_t inode_limit, int64_t deadline,
                        struct err *err)
{
    if (limit <= 0 || inode_limit < 0)
        return err_set(err, ERR_INVALID, "the limit must be positive");
    struct held *held = claim_existing(holder, id, deadline, err);
    if (held == NULL)
        return -1;
    int result = change_limit(holder, held, limit, inode_limit, deadline, err);
    leave_existing(holder, held);
    return result;
}

int holder_do_stats(struct holder *holder, const char *id, int64_t deadline, struct fuse_control_answer *answer,
                    struct err *err)
{
    const struct fuse_control_request request = {.magic = FUSE_CONTROL_MAGIC, .kind = FUSE_CONTROL_STATS};
    struct held *held = claim_existing(holder, id, deadline, err);
    if (held == NULL)
        return -1;
    int result = ask(holder, held, &request, answer, deadline, err);
    leave_existing(holder, held);
    return result;
}

/* Ends the process; its successor is started by the supervisor. */
static int replace(struct holder *holder, struct held *held, int64_t deadline, struct err *err)
{
    if (held->state != HELD_SERVING)
        return wait_serving(holder, held, deadline, err); /* a new one is on its way anyhow */
    held_move(held, HELD_STOPPING);
    if (process_signal(held->pid_fd, SIGTERM, err) < 0)
        return -1;
    int64_t patience = clock_mono(holder->clock) + STOP_PATIENCE;
    bool in_time = true;
    while (held->state == HELD_STOPPING && in_time)
        in_time = clock_cond_wait(holder->clock, &holder->changed, &holder->lock, patience);
    if (held->state == HELD_STOPPING && process_signal(held->pid_fd, SIGKILL, err) < 0)
        return -1;
    return wait_serving(holder, held, deadline, err);
}

int holder_do_restart(struct holder *holder, int64_t deadline, struct err *err)
{
    auto_strv struct strv ids = {0};
    pthread_mutex_lock(&holder->lock);
    for (size_t i = 0; i < holder->table.len; i++)
        strv_add(&ids, holder->table.items[i]->id);
    pthread_mutex_unlock(&holder->lock);
    for (size_t i = 0; i < ids.len; i++) {
        auto_err struct err one = {0};
        struct held *held = claim_existing(holder, ids.items[i], deadline, &one);
        if (held != NULL) {
            replace(holder, held, deadline, &one);
            bool gone = held->state == HELD_GONE;
            leave_existing(holder, held);
            if (gone)
                continue;
        }
        if (one.code != ERR_NONE && one.code != ERR_NOT_FOUND) /* one that does not come back must not be followed by
                                                                  others */
            return err_move(err, &one);
    }
    return 0;
}
