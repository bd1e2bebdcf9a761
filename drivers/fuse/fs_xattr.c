/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes and ACLs: the backing file system's, by the path of an open descriptor, since O_PATH ones are not
 * accepted themselves. */
#include "drivers/fuse/fs.h"
#include "drivers/fuse/room.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
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

/* Small attributes lie in the inode and take nothing; others take blocks, which is seen only afterwards. */
static int change(struct volume *volume, int fd, const char *path, const char *name, const void *value, size_t size,
                  int flags, int64_t *grown)
{
    struct stat before, after;
    struct old_value old = {0};
    int result = room_for_new(volume, 0, false, 0);
    if (result < 0)
        return result;
    result = old_value_read(path, name, &old);
    int64_t delta = 0;
    if (result == 0 && (fstat(fd, &before) != 0 || setxattr(path, name, value, size, flags) != 0))
        result = -errno;
    if (result == 0 && fstat(fd, &after) == 0)
        delta = volume_bytes(&after) - volume_bytes(&before);
    if (result == 0 && !room_fits(volume, 0, delta)) {
        int undone = old.data != NULL ? setxattr(path, name, old.data, old.size, 0) : removexattr(path, name);
        if (undone == 0 && fstat(fd, &after) == 0) {
            delta = volume_bytes(&after) - volume_bytes(&before);
            result = -ENOSPC;
        }
    }
    room_leave(volume, 0, delta);
    free(old.data);
    *grown = delta;
    return result;
}

static int take_away(struct volume *volume, int fd, const char *path, const char *name, int64_t *grown)
{
    struct stat before, after;
    int result = 0;
    int64_t delta = 0;
    account_enter(&volume->account, false);
    if (fstat(fd, &before) != 0 || removexattr(path, name) != 0)
        result = -errno;
    else if (fstat(fd, &after) == 0)
        delta = volume_bytes(&after) - volume_bytes(&before);
    room_leave(volume, 0, delta);
    *grown = delta;
    return result;
}

/* value NULL: removes it */
static int set_value(struct fs_worker *worker, uint64_t node_id, const char *name, const void *value, size_t size,
                     int flags)
{
    struct volume *volume = worker->volume;
    char path[VOLUME_FD_PATH_SIZE];
    auto_close int fd = volume_open_node(volume, node_id, O_PATH | O_NOFOLLOW);
    if (fd < 0)
        return fd;
    volume_fd_path(fd, path);
    struct node *node = node_get(&volume->nodes, node_id);
    pthread_mutex_lock(&node->lock);
    int64_t grown = 0;
    int result = value != NULL ? change(volume, fd, path, name, value, size, flags, &grown)
                               : take_away(volume, fd, path, name, &grown);
    if (node->charged >= 0)
        node->charged += grown;
    pthread_mutex_unlock(&node->lock);
    node_put(&volume->nodes, node);
    return result;
}

void fs_setxattr(fuse_req_t req, fuse_ino_t node_id, const char *name, const char *value, size_t size, int flags)
{
    struct fs_worker *worker = fs_worker(req);
    int result = set_value(worker, node_id, name, value, size, flags);
    /* the first attempt of a repeated call has made (or removed) it */
    if (result == -EEXIST && fs_is_resent(worker))
        result = set_value(worker, node_id, name, value, size, 0);
    fuse_reply_err(req, -result);
}

void fs_removexattr(fuse_req_t req, fuse_ino_t node_id, const char *name)
{
    struct fs_worker *worker = fs_worker(req);
    int result = set_value(worker, node_id, name, NULL, 0, 0);
    if (result < 0 && is_nothing(-result) && fs_is_resent(worker))
        result = 0;
    fuse_reply_err(req, -result);
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
