/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/fs.h"
#include "drivers/fuse/room.h"
#include "drivers/fuse/transfer.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

/* One call copies at most so much: others wait for it meanwhile, and callers go on after a short copy. */
#define COPY_AT_ONCE ((int64_t)16 << 20)

/* ---- open and close ---- */

static int open_file(struct fs_worker *worker, uint64_t node_id, int flags)
{
    struct volume *volume = worker->volume;
    struct node *node = node_get(&volume->nodes, node_id);
    pthread_mutex_lock(&node->lock);
    int fd = volume_data_fd(volume, node, (flags & O_ACCMODE) != O_RDONLY);
    if (fd >= 0)
        node_opened(&volume->nodes, node);
    pthread_mutex_unlock(&node->lock);
    node_put(&volume->nodes, node);
    return fd < 0 ? fd : 0;
}

/* Counts what the file system has allocated beside the data since the last write. */
static void charge_again(struct volume *volume, struct node *node)
{
    pthread_mutex_lock(&node->lock);
    if (node->charged >= 0 && node->data_fd >= 0) {
        account_enter(&volume->account, false);
        room_used_data(volume, node, node->data_fd, 0, NULL);
    }
    pthread_mutex_unlock(&node->lock);
}

static void release(struct volume *volume, uint64_t node_id)
{
    struct node *node = node_find(&volume->nodes, node_id);
    if (node != NULL) {
        node_released(&volume->nodes, node);
        if (!node_is_open(&volume->nodes, node)) /* what it is charged with is forgotten with it */
            charge_again(volume, node);
    }
    node_put(&volume->nodes, node);
}

void fs_open(fuse_req_t req, fuse_ino_t node_id, struct fuse_file_info *fi)
{
    int result = open_file(fs_worker(req), node_id, fi->flags);
    fi->keep_cache = 1; /* nobody else changes the files */
    fi->fh = volume_next_handle(fs_volume(req));
    if (result < 0)
        fuse_reply_err(req, -result);
    else if (fuse_reply_open(req, fi) == -ENOENT)
        release(fs_volume(req), node_id);
}

void fs_release(fuse_req_t req, fuse_ino_t node_id, struct fuse_file_info *fi)
{
    (void)fi;
    release(fs_volume(req), node_id);
    fuse_reply_err(req, 0);
}

/* The node of an open file with its descriptor, and its lock held; close_data gives both back. */
static int use_data(struct volume *volume, uint64_t node_id, bool for_writing, struct node **node)
{
    *node = node_get(&volume->nodes, node_id);
    node_used(&volume->nodes, *node);
    pthread_mutex_lock(&(*node)->lock);
    int fd = volume_data_fd(volume, *node, for_writing);
    if (fd < 0) {
        pthread_mutex_unlock(&(*node)->lock);
        if (fd == -ESTALE)
            node_forgotten(&volume->nodes, *node);
        node_put(&volume->nodes, *node);
        *node = NULL;
    }
    return fd;
}

static void leave_data(struct volume *volume, struct node *node)
{
    pthread_mutex_unlock(&node->lock);
    node_put(&volume->nodes, node);
}

/* ---- reading ---- */

void fs_read(fuse_req_t req, fuse_ino_t node_id, size_t size, off_t offset, struct fuse_file_info *fi)
{
    struct fs_worker *worker = fs_worker(req);
    struct volume *volume = worker->volume;
    struct node *node = NULL;
    unsigned char *scratch = fs_scratch(worker);
    (void)fi;
    int fd = use_data(volume, node_id, false, &node);
    if (fd < 0) {
        fuse_reply_err(req, -fd);
        return;
    }
    pthread_mutex_unlock(&node->lock); /* the reference keeps the descriptor */
    ssize_t got = transfer_read(fd, scratch, size < FS_MAX_IO ? size : FS_MAX_IO, offset);
    node_put(&volume->nodes, node);
    if (got < 0)
        fuse_reply_err(req, (int)-got);
    else
        fuse_reply_buf(req, (const char *)scratch, (size_t)got);
}

void fs_lseek(fuse_req_t req, fuse_ino_t node_id, off_t offset, int whence, struct fuse_file_info *fi)
{
    struct volume *volume = fs_volume(req);
    struct node *node = NULL;
    (void)fi;
    int fd = use_data(volume, node_id, false, &node);
    off_t found = -1;
    int error = -fd;
    if (fd >= 0) {
        found = lseek(fd, offset, whence); /* reads and writes name their place, so it may move */
        error = errno;
        leave_data(volume, node);
    }
    if (found < 0)
        fuse_reply_err(req, error);
    else
        fuse_reply_lseek(req, found);
}

/* ---- writing ---- */

static ssize_t write_file(struct fs_worker *worker, uint64_t node_id, const char *data, size_t size, int64_t offset)
{
    struct volume *volume = worker->volume;
    const struct fuse_write_in *raw = fs_raw_argument(worker);
    struct node *node = NULL;
    struct stat st;
    int64_t reserved = 0;
    int fd = use_data(volume, node_id, true, &node);
    if (fd < 0)
        return fd;
    /* a large direct write is many calls at once, of which a short one would come out as EIO */
    bool partial = (raw->flags & O_DIRECT) == 0;
    int64_t fits = room_for_data(volume, node, fd, offset, (int64_t)size, partial, &reserved);
    ssize_t result = fits < 0 ? (ssize_t)fits : transfer_write(fd, data, (size_t)fits, offset);
    if (fits >= 0) {
        st.st_mode = 0;
        room_used_data(volume, node, fd, reserved, &st);
        if (result > 0 && (raw->write_flags & FUSE_WRITE_KILL_SUIDGID) != 0)
            fs_kill_suid(worker, node_id, fd, &st);
    }
    leave_data(volume, node);
    /* what comes from a mapping is clean once it is answered, however short the answer is: it has to be an error */
    if (result >= 0 && (size_t)result < size && (raw->write_flags & FUSE_WRITE_CACHE) != 0)
        return (size_t)fits < size ? -ENOSPC : -EIO;
    return result;
}

void fs_write(fuse_req_t req, fuse_ino_t node_id, const char *data, size_t size, off_t offset,
              struct fuse_file_info *fi)
{
    (void)fi;
    ssize_t result = write_file(fs_worker(req), node_id, data, size, offset);
    if (result < 0)
        fuse_reply_err(req, (int)-result);
    else
        fuse_reply_write(req, (size_t)result);
}

int fs_truncate(struct fs_worker *worker, uint64_t node_id, int64_t size, bool kill_suid)
{
    struct volume *volume = worker->volume;
    struct stat st = {0};
    struct node *node = node_get(&volume->nodes, node_id);
    pthread_mutex_lock(&node->lock);
    int fd = volume_data_fd(volume, node, true); /* by path it need not be open, so this is no node_used */
    int result = fd < 0 ? fd : room_for_less(volume, node, fd);
    if (result >= 0) {
        if (ftruncate(fd, size) != 0)
            result = -errno;
        room_used_data(volume, node, fd, 0, &st);
        if (result == 0 && kill_suid)
            fs_kill_suid(worker, node_id, fd, &st);
    }
    leave_data(volume, node);
    return result;
}

/* These calls, other than a write, do not say whether setuid has to go, and the kernel leaves it to us. */
static bool loses_suid(fuse_req_t req)
{
    return fuse_req_ctx(req)->uid != 0;
}

static int allocate(fuse_req_t req, uint64_t node_id, int mode, int64_t offset, int64_t length)
{
    struct fs_worker *worker = fs_worker(req);
    struct volume *volume = worker->volume;
    struct node *node = NULL;
    struct stat st = {0};
    int64_t reserved = 0;
    int fd = use_data(volume, node_id, true, &node);
    if (fd < 0)
        return fd;
    bool frees = (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE)) != 0;
    int64_t result =
        frees ? room_for_less(volume, node, fd) : room_for_data(volume, node, fd, offset, length, false, &reserved);
    if (result >= 0) {
        while ((result = fallocate(fd, mode, offset, length)) != 0 && errno == EINTR)
            ;
        if (result != 0)
            result = -errno;
        room_used_data(volume, node, fd, reserved, &st);
        if (result == 0 && loses_suid(req))
            fs_kill_suid(worker, node_id, fd, &st);
    }
    leave_data(volume, node);
    return (int)result;
}

void fs_fallocate(fuse_req_t req, fuse_ino_t node_id, int mode, off_t offset, off_t length, struct fuse_file_info *fi)
{
    (void)fi;
    fuse_reply_err(req, -allocate(req, node_id, mode, offset, length));
}

/* By hand, where the file system has no way of its own to copy. */
static int64_t copy_through(struct fs_worker *worker, int from, int64_t from_offset, int to, int64_t to_offset,
                            int64_t length)
{
    unsigned char *scratch = fs_scratch(worker);
    size_t size = length < FS_MAX_IO ? (size_t)length : FS_MAX_IO;
    ssize_t got = pread(from, scratch, size, from_offset);
    if (got < 0)
        return -errno;
    return transfer_write(to, scratch, (size_t)got, to_offset);
}

static int64_t copy_range(fuse_req_t req, int from, int64_t from_offset, uint64_t to_id, int64_t to_offset,
                          int64_t length)
{
    struct fs_worker *worker = fs_worker(req);
    struct volume *volume = worker->volume;
    struct node *node = NULL;
    struct stat st = {0};
    int64_t reserved = 0;
    int to = use_data(volume, to_id, true, &node);
    if (to < 0)
        return to;
    int64_t fits = room_for_data(volume, node, to, to_offset, length, true, &reserved);
    int64_t result = fits;
    if (fits >= 0) {
        off64_t in = from_offset, out = to_offset;
        result = copy_file_range(from, &in, to, &out, (size_t)fits, 0);
        if (result < 0 && (errno == EXDEV || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL))
            result = copy_through(worker, from, from_offset, to, to_offset, fits);
        else if (result < 0)
            result = -errno;
        room_used_data(volume, node, to, reserved, &st);
        if (result > 0 && loses_suid(req))
            fs_kill_suid(worker, to_id, to, &st);
    }
    leave_data(volume, node);
    return result;
}

void fs_copy_file_range(fuse_req_t req, fuse_ino_t from_id, off_t from_offset, struct fuse_file_info *from_fi,
                        fuse_ino_t to_id, off_t to_offset, struct fuse_file_info *to_fi, size_t length, int flags)
{
    struct volume *volume = fs_volume(req);
    struct node *source = NULL;
    struct stat st;
    (void)from_fi, (void)to_fi;
    if (flags != 0) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    int64_t result = use_data(volume, from_id, false, &source);
    if (result >= 0) {
        int from = (int)result;
        pthread_mutex_unlock(&source->lock); /* source and target may be one file */
        int64_t most = fstat(from, &st) == 0 && st.st_size > from_offset ? st.st_size - from_offset : 0;
        if ((uint64_t)length < (uint64_t)most)
            most = (int64_t)length;
        most = most < COPY_AT_ONCE ? most : COPY_AT_ONCE;
        result = most == 0 ? 0 : copy_range(req, from, from_offset, to_id, to_offset, most);
        node_put(&volume->nodes, source);
    }
    if (result < 0)
        fuse_reply_err(req, (int)-result);
    else
        fuse_reply_write(req, (size_t)result);
}

void fs_fsync(fuse_req_t req, fuse_ino_t node_id, int data_only, struct fuse_file_info *fi)
{
    struct volume *volume = fs_volume(req);
    struct node *node = NULL;
    int fd = use_data(volume, node_id, false, &node);
    if (fd < 0) {
        fuse_reply_err(req, -fd);
        return;
    }
    pthread_mutex_unlock(&node->lock); /* takes long: writers go on */
    int error = (data_only ? fdatasync(fd) : fsync(fd)) == 0 ? 0 : errno;
    pthread_mutex_lock(&node->lock);
    if (error != 0)
        node_sync_failed(node, error, fi->fh, atomic_load(&volume->newest_handle));
    else
        error = node_sync_error(node, fi->fh);
    pthread_mutex_unlock(&node->lock);
    charge_again(volume, node);
    node_put(&volume->nodes, node);
    fuse_reply_err(req, error);
}
