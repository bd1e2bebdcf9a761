/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes and ACLs: the backing file system's, by the path of an open descriptor, since O_PATH ones are not
 * accepted themselves. */
#include "drivers/fuse/fs.h"
#include "drivers/fuse/room.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static bool is_nothing(int error)
{
    return error == ENODATA || error == ENOENT;
}

struct old_value {
    void *data; /* owned; NULL = there was none */
    size_t size;
};

static int old_value_read(const char *path, const char *name, struct old_value *old)
{
    ssize_t size = getxattr(path, name, NULL, 0);
    if (size < 0)
        return errno == ENODATA ? 0 : -errno;
    old->data = mem_alloc((size_t)size + 1);
    size = getxattr(path, name, old->data, (size_t)size);
    if (size < 0)
        return -errno;
    old->size = (size_t)size;
    return 0;
}

/* One change of an attribute. */
struct change {
    struct fs_worker *worker;
    int fd;
    char path[VOLUME_FD_PATH_SIZE];
    const char *name;
    const void *value; /* NULL: removes it */
    size_t size;
    int flags;
    int64_t grown; /* bytes; may be negative */
};

/* What makes or removes an attribute cannot tell, when it comes again, its own work from how things were before: so it
 * is written down once it is known to be possible, in memory that outlives the process. */
static struct volume_exchange *record_of(const struct change *change, struct volume_exchange *begun)
{
    uint64_t call = fs_call_number(change->worker);
    struct stat st;
    *begun = (struct volume_exchange){.call = call, .from = fstat(change->fd, &st) == 0 ? st.st_ino : 0};
    return volume_exchange_record(change->worker->volume, call);
}

static void write_down(const struct change *change)
{
    struct volume_exchange begun, *record = record_of(change, &begun);
    if (record != NULL)
        *record = begun;
}

static bool was_written_down(const struct change *change)
{
    struct volume_exchange begun;
    const struct volume_exchange *record = record_of(change, &begun);
    return fs_is_resent(change->worker) && record != NULL && record->call == begun.call && record->from == begun.from &&
           record->to == begun.to;
}

/* Small attributes lie in the inode and take nothing; others take blocks, which is seen only afterwards. */
static int put(struct change *change)
{
    struct volume *volume = change->worker->volume;
    struct stat before, after;
    struct old_value old = {0};
    int result = room_for_new(volume, 0, false, 0);
    if (result < 0)
        return result;
    result = old_value_read(change->path, change->name, &old);
    int64_t delta = 0;
    if (result == 0 && change->flags == XATTR_CREATE && old.data == NULL)
        write_down(change);
    if (result == 0 && (fstat(change->fd, &before) != 0 ||
                        setxattr(change->path, change->name, change->value, change->size, change->flags) != 0))
        result = -errno;
    if (result == 0 && fstat(change->fd, &after) == 0)
        delta = volume_bytes(&after) - volume_bytes(&before);
    if (result == 0 && !room_fits(volume, 0, delta)) {
        int undone = old.data != NULL ? setxattr(change->path, change->name, old.data, old.size, 0)
                                      : removexattr(change->path, change->name);
        if (undone == 0 && fstat(change->fd, &after) == 0) {
            delta = volume_bytes(&after) - volume_bytes(&before);
            result = -ENOSPC;
        }
    }
    room_leave(volume, 0, delta);
    free(old.data);
    change->grown = delta;
    return result == -EEXIST && was_written_down(change) ? 0 : result;
}

static int take_away(struct change *change)
{
    struct volume *volume = change->worker->volume;
    struct stat before, after;
    int result = 0;
    int64_t delta = 0;
    account_enter(&volume->account, false);
    if (getxattr(change->path, change->name, NULL, 0) >= 0)
        write_down(change);
    if (fstat(change->fd, &before) != 0 || removexattr(change->path, change->name) != 0)
        result = -errno;
    else if (fstat(change->fd, &after) == 0)
        delta = volume_bytes(&after) - volume_bytes(&before);
    room_leave(volume, 0, delta);
    change->grown = delta;
    return result < 0 && is_nothing(-result) && was_written_down(change) ? 0 : result;
}

static int apply(struct change *change, uint64_t node_id)
{
    struct volume *volume = change->worker->volume;
    auto_close int fd = volume_open_node(volume, node_id, O_PATH | O_NOFOLLOW);
    if (fd < 0)
        return fd;
    change->fd = fd;
    volume_fd_path(fd, change->path);
    struct node *node = node_get(&volume->nodes, node_id);
    pthread_mutex_lock(&node->lock);
    int result = change->value != NULL ? put(change) : take_away(change);
    if (node->charged >= 0)
        node->charged += change->grown;
    pthread_mutex_unlock(&node->lock);
    node_put(&volume->nodes, node);
    return result;
}

/* Whether the caller may have setgid on a file of this group. */
static bool may_keep_setgid(fuse_req_t req, gid_t group)
{
    const struct fuse_ctx *caller = fuse_req_ctx(req);
    gid_t groups[64];
    if (caller->uid == 0 || caller->gid == group)
        return true;
    int count = fuse_req_getgroups(req, ARRAY_LEN(groups), groups); /* may be more, or not known */
    for (int i = 0; i < count && i < (int)ARRAY_LEN(groups); i++)
        if (groups[i] == group)
            return true;
    return false;
}

/* A new ACL is a new mode, which costs setgid as chmod by that caller would; the file system below sees root. */
static void drop_setgid(fuse_req_t req, uint64_t node_id)
{
    struct stat st;
    char path[VOLUME_FD_PATH_SIZE];
    struct fs_worker *worker = fs_worker(req);
    auto_close int fd = volume_open_node(worker->volume, node_id, O_PATH | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) != 0 || (st.st_mode & S_ISGID) == 0 || S_ISLNK(st.st_mode) ||
        may_keep_setgid(req, st.st_gid))
        return;
    if (chmod(volume_fd_path(fd, path), st.st_mode & 07777 & ~(mode_t)S_ISGID) != 0)
        log_warn("Cannot clear setgid", kv_int("errno", errno));
}

void fs_setxattr(fuse_req_t req, fuse_ino_t node_id, const char *name, const char *value, size_t size, int flags)
{
    struct change change = {.worker = fs_worker(req), .name = name, .value = value, .size = size, .flags = flags};
    bool is_mode = strcmp(name, "system.posix_acl_access") == 0; /* before the name is overwritten */
    int result = apply(&change, node_id);
    if (result == 0 && is_mode)
        drop_setgid(req, node_id);
    fuse_reply_err(req, -result);
}

void fs_removexattr(fuse_req_t req, fuse_ino_t node_id, const char *name)
{
    struct change change = {.worker = fs_worker(req), .name = name};
    fuse_reply_err(req, -apply(&change, node_id));
}

static void answer(fuse_req_t req, ssize_t length, int error, size_t size, const char *data)
{
    if (length < 0)
        fuse_reply_err(req, error);
    else if (size == 0)
        fuse_reply_xattr(req, (size_t)length);
    else
        fuse_reply_buf(req, data, (size_t)length);
}

void fs_getxattr(fuse_req_t req, fuse_ino_t node_id, const char *name, size_t size)
{
    struct fs_worker *worker = fs_worker(req);
    char path[VOLUME_FD_PATH_SIZE];
    char *scratch = (char *)fs_scratch(worker);
    auto_close int fd = volume_open_node(worker->volume, node_id, O_PATH | O_NOFOLLOW);
    ssize_t length = -1;
    if (fd >= 0)
        length = getxattr(volume_fd_path(fd, path), name, scratch, size < FS_MAX_IO ? size : FS_MAX_IO);
    answer(req, length, fd < 0 ? -fd : errno, size, scratch);
}

void fs_listxattr(fuse_req_t req, fuse_ino_t node_id, size_t size)
{
    struct fs_worker *worker = fs_worker(req);
    char path[VOLUME_FD_PATH_SIZE];
    char *scratch = (char *)fs_scratch(worker);
    auto_close int fd = volume_open_node(worker->volume, node_id, O_PATH | O_NOFOLLOW);
    ssize_t length = -1;
    if (fd >= 0)
        length = listxattr(volume_fd_path(fd, path), scratch, size < FS_MAX_IO ? size : FS_MAX_IO);
    answer(req, length, fd < 0 ? -fd : errno, size, scratch);
}
