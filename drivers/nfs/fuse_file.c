/* SPDX-License-Identifier: Apache-2.0 */
/* Open files. */
#include "drivers/nfs/fuse_fs.h"

#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const struct open_file *file_of(const struct fuse_file_info *fi)
{
    return (const struct open_file *)(uintptr_t)fi->fh;
}

static void opened(struct op *op, struct inode *inode, struct fuse_file_info *fi)
{
    struct open_file *file = mem_new(struct open_file);
    file->who = op->who;
    fi->fh = (uint64_t)(uintptr_t)file;
    inode_open(&op->fs->inodes, inode);
}

static void closed(struct op *op, struct inode *inode, const struct fuse_file_info *fi)
{
    struct silly *silly = NULL;
    struct share_attr attr = {0};
    inode_close(&op->fs->inodes, inode, &silly);
    free((struct open_file *)(uintptr_t)fi->fh);
    if (silly == NULL)
        return;
    struct share_fh fh = {0};
    if (OP_RUN(op, share_lookup(op->share, &silly->dir, silly->name, &fh, &attr)) == 0 &&
        OP_RUN(op, share_unlink(op->share, &silly->dir, silly->name)) == 0)
        quota_change(&op->fs->quota, -(int64_t)attr.used);
    free(silly);
}

static void open_file(fuse_req_t req, fuse_ino_t number, struct fuse_file_info *fi)
{
    struct op op = op_begin(fs_of(req), req);
    struct inode *inode = inode_of(&op.fs->inodes, number);
    int mode = fi->flags & O_ACCMODE;
    int wanted = (mode == O_RDONLY ? R_OK : 0) | (mode == O_WRONLY ? W_OK : 0) | (mode == O_RDWR ? R_OK | W_OK : 0);
    struct share_attr attr = {0};
    int error = OP_RUN(&op, share_access(op.share, &inode->fh, wanted));
    if (error == EACCES && wanted == R_OK) /* to be run */
        error = OP_RUN(&op, share_access(op.share, &inode->fh, X_OK));
    if (error == 0)
        error = OP_RUN(&op, share_getattr(op.share, &inode->fh, &attr));
    if (error != 0) {
        fuse_reply_err(req, error);
        return;
    }
    inode_set_used(&op.fs->inodes, inode, attr.used);
    opened(&op, inode, fi);
    if (fuse_reply_open(req, fi) != 0)
        closed(&op, inode, fi);
}

static void create_file(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
    struct op op = op_begin(fs_of(req), req);
    bool exclusive = (fi->flags & O_EXCL) != 0;
    struct share_set set = {.mask = SHARE_SET_MODE, .mode = mode & 07777};
    const struct share_fh *dir = &inode_of(&op.fs->inodes, parent)->fh;
    struct fuse_entry_param entry = {.attr_timeout = FS_TIMEOUT, .entry_timeout = FS_TIMEOUT};
    struct share_fh fh = {0};
    struct share_attr attr = {0};
    /* exclusive first: an existing file keeps its mode */
    int error = OP_RUN(&op, share_create(op.share, dir, name, true, &set, &fh, &attr));
    if (error == EEXIST && (!exclusive || op.tries > 0))
        error = OP_RUN(&op, share_lookup(op.share, dir, name, &fh, &attr));
    if (error == 0 && attr.type != SHARE_FILE)
        error = attr.type == SHARE_DIRECTORY ? EISDIR : ELOOP;
    if (error != 0) {
        fuse_reply_err(req, error);
        return;
    }
    struct inode *inode = inode_remember(&op.fs->inodes, &fh, &attr);
    entry.ino = inode_number(&op.fs->inodes, inode);
    fs_fill_stat(&attr, &entry.attr);
    opened(&op, inode, fi);
    if (fuse_reply_create(req, &entry, fi) != 0) {
        closed(&op, inode, fi);
        inode_forget(&op.fs->inodes, entry.ino, 1);
    }
}

static void release(fuse_req_t req, fuse_ino_t number, struct fuse_file_info *fi)
{
    struct op op = op_begin(fs_of(req), NULL); /* by nobody in particular any more */
    op.who = file_of(fi)->who;
    closed(&op, inode_of(&op.fs->inodes, number), fi);
    fuse_reply_err(req, 0);
}

static int read_some(struct op *op, const struct share_fh *fh, uint64_t offset, char *buffer, size_t size, size_t *got)
{
    bool eof = false;
    *got = 0;
    while (*got < size && !eof) {
        size_t more = 0;
        int error = OP_RUN(op, share_read(op->share, fh, offset + *got, buffer + *got, size - *got, &more, &eof));
        if (error != 0)
            return error;
        if (more == 0)
            break;
        *got += more;
    }
    return 0;
}

static void read_file(fuse_req_t req, fuse_ino_t number, size_t size, off_t offset, struct fuse_file_info *fi)
{
    struct op op = op_begin(fs_of(req), req);
    auto_free char *buffer = mem_alloc(size > 0 ? size : 1);
    size_t got;
    op.who = file_of(fi)->who;
    int error = read_some(&op, &inode_of(&op.fs->inodes, number)->fh, (uint64_t)offset, buffer, size, &got);
    if (error != 0)
        fuse_reply_err(req, error);
    else
        fuse_reply_buf(req, buffer, got);
}

/* No space is left for new blocks, but what is there may be written over. */
static bool is_overwrite(struct op *op, const struct inode *inode, uint64_t offset, size_t size)
{
    struct share_attr attr = {0};
    return OP_RUN(op, share_getattr(op->share, &inode->fh, &attr)) == 0 && offset + size <= attr.size &&
           attr.used >= attr.size;
}

static void write_file(fuse_req_t req, fuse_ino_t number, const char *data, size_t size, off_t offset,
                       struct fuse_file_info *fi)
{
    struct op op = op_begin(fs_of(req), req);
    struct inode *inode = inode_of(&op.fs->inodes, number);
    struct share_attr attr = {0};
    op.who = file_of(fi)->who;
    uint64_t reserved = quota_reserve(&op.fs->quota, size);
    if (reserved < size && is_overwrite(&op, inode, (uint64_t)offset, size)) {
        quota_settle(&op.fs->quota, reserved, 0);
        reserved = 0;
    } else if (reserved == 0 && size > 0) {
        fuse_reply_err(req, ENOSPC);
        return;
    } else {
        size = (size_t)reserved;
    }
    int error = OP_RUN(&op, share_write(op.share, &inode->fh, (uint64_t)offset, data, size, &attr));
    if (error == 0 && attr.type == 0)
        error = OP_RUN(&op, share_getattr(op.share, &inode->fh, &attr));
    quota_settle(&op.fs->quota, reserved, error == 0 ? inode_set_used(&op.fs->inodes, inode, attr.used) : 0);
    if (error != 0)
        fuse_reply_err(req, error);
    else
        fuse_reply_write(req, size);
}

/* Everything is written through already. */
static void sync_file(fuse_req_t req, fuse_ino_t number, int data_only, struct fuse_file_info *fi)
{
    (void)number, (void)data_only, (void)fi;
    fuse_reply_err(req, 0);
}

static void flush(fuse_req_t req, fuse_ino_t number, struct fuse_file_info *fi)
{
    (void)number, (void)fi;
    fuse_reply_err(req, 0);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void stat_fs(fuse_req_t req, fuse_ino_t number)
{
    struct op op = op_begin(fs_of(req), req);
    struct quota *quota = &op.fs->quota;
    struct share_space space = {0};
    (void)number;
    int error = OP_RUN(&op, share_statfs(op.share, &op.fs->inodes.root.fh, &space));
    if (error != 0) {
        fuse_reply_err(req, error);
        return;
    }
    pthread_mutex_lock(&quota->mutex);
    if (quota->limit != 0) {
        uint64_t left =
            quota->used < (int64_t)quota->limit ? quota->limit - (uint64_t)(quota->used > 0 ? quota->used : 0) : 0;
        space.total_bytes = quota->limit;
        space.free_bytes = left;
        space.available_bytes = least(left, space.available_bytes);
    }
    pthread_mutex_unlock(&quota->mutex);
    struct statvfs st = {.f_bsize = 4096,
                         .f_frsize = 4096,
                         .f_blocks = space.total_bytes / 4096,
                         .f_bfree = space.free_bytes / 4096,
                         .f_bavail = space.available_bytes / 4096,
                         .f_files = space.total_files,
                         .f_ffree = space.free_files,
                         .f_favail = space.free_files,
                         .f_namemax = 255};
    fuse_reply_statfs(req, &st);
}

void fs_add_file_operations(struct fuse_lowlevel_ops *operations)
{
    operations->open = open_file;
    operations->create = create_file;
    operations->release = release;
    operations->read = read_file;
    operations->write = write_file;
    operations->fsync = sync_file;
    operations->flush = flush;
    operations->statfs = stat_fs;
}
