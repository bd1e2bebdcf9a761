/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, connections, and what every answer needs. */
#include "drivers/nfs/fuse_fs.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define RECONNECT_PAUSE CLOCK_SECOND
#define SOFT_TRIES 2

struct fs *fs_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

struct op op_begin(struct fs *fs, fuse_req_t req)
{
    struct op op = {.fs = fs, .req = req};
    if (req == NULL) {
        op.who = (struct share_credential){.uid = fs->config.uid, .gid = fs->config.gid};
        return op;
    }
    const struct fuse_ctx *context = fuse_req_ctx(req);
    gid_t groups[256];
    int count = fuse_req_getgroups(req, (int)ARRAY_LEN(groups), groups);
    op.who = (struct share_credential){.uid = context->uid, .gid = context->gid};
    for (int i = 0; i < count && i < (int)ARRAY_LEN(groups) && op.who.group_count < SHARE_MAX_GROUPS; i++)
        op.who.groups[op.who.group_count++] = groups[i];
    return op;
}

static bool ends(const struct op *op)
{
    return stop_requested(op->fs->stop) || fuse_session_exited(op->fs->session) ||
           (op->req != NULL && fuse_req_interrupted(op->req));
}

static struct share *take_idle(struct fs *fs)
{
    pthread_mutex_lock(&fs->pool_mutex);
    struct share *share = fs->idle_count > 0 ? fs->idle[--fs->idle_count] : NULL;
    pthread_mutex_unlock(&fs->pool_mutex);
    return share;
}

static void give_back(struct fs *fs, struct share *share)
{
    pthread_mutex_lock(&fs->pool_mutex);
    if (fs->idle_count < ARRAY_LEN(fs->idle)) {
        fs->idle[fs->idle_count++] = share;
        share = NULL;
    }
    pthread_mutex_unlock(&fs->pool_mutex);
    share_close(share);
}

void fs_close_idle(struct fs *fs)
{
    for (struct share *share; (share = take_idle(fs)) != NULL;)
        share_close(share);
}

static bool may_try_again(struct op *op)
{
    op->tries++;
    return !(op->fs->config.soft && op->tries >= SOFT_TRIES) && !ends(op);
}

int op_connect(struct op *op)
{
    struct fs *fs = op->fs;
    struct share_options options = {.clock = fs->clock, .credential = op->who, .timeout = fs->config.timeout};
    op->share = take_idle(fs);
    if (op->share != NULL) {
        share_set_credential(op->share, &op->who);
        return 0;
    }
    for (;;) {
        auto_err struct err err = {0};
        if (share_open(&fs->config.where, &options, CLOCK_NEVER, fs->stop, &op->share, &err) == 0)
            return 0;
        log_v(op->tries % 30 == 0 ? 0 : 2, "Cannot reach the server", kv_err(&err), kv_int("tries", op->tries));
        if (!may_try_again(op))
            return ends(op) ? EINTR : EIO;
        if (stop_sleep(fs->stop, fs->clock, RECONNECT_PAUSE))
            return EINTR;
    }
}

bool op_again(struct op *op, int *error)
{
    struct share *share = op->share;
    op->share = NULL;
    if (share == NULL)
        return false;
    if (!share_broken(share)) {
        give_back(op->fs, share);
        if (*error == EREMOTEIO || *error == EPROTO || *error == EKEYEXPIRED || *error == EBADMSG)
            *error = EIO;
        return false;
    }
    share_close(share);
    if (may_try_again(op))
        return true;
    *error = ends(op) ? EINTR : EIO;
    return false;
}

void fs_fill_stat(const struct share_attr *attr, struct stat *st)
{
    static const mode_t types[] = {
        [SHARE_FILE] = S_IFREG,    [SHARE_DIRECTORY] = S_IFDIR, [SHARE_BLOCK] = S_IFBLK, [SHARE_CHARACTER] = S_IFCHR,
        [SHARE_SYMLINK] = S_IFLNK, [SHARE_SOCKET] = S_IFSOCK,   [SHARE_FIFO] = S_IFIFO,
    };
    *st = (struct stat){
        .st_ino = attr->fileid,
        .st_mode = (attr->type < ARRAY_LEN(types) ? types[attr->type] : S_IFREG) | attr->mode,
        .st_nlink = attr->nlink,
        .st_uid = attr->uid,
        .st_gid = attr->gid,
        .st_rdev = makedev(attr->rdev_major, attr->rdev_minor),
        .st_size = (off_t)attr->size,
        .st_blksize = 4096,
        .st_blocks = (blkcnt_t)(attr->used / 512),
        .st_atim = attr->atime,
        .st_mtim = attr->mtime,
        .st_ctim = attr->ctime,
    };
}

void fs_reply_entry(struct op *op, const struct share_fh *fh, const struct share_attr *attr)
{
    struct fuse_entry_param entry = {.attr_timeout = FS_TIMEOUT, .entry_timeout = FS_TIMEOUT};
    struct inode *inode = inode_remember(&op->fs->inodes, fh, attr);
    entry.ino = inode_number(&op->fs->inodes, inode);
    fs_fill_stat(attr, &entry.attr);
    if (fuse_reply_entry(op->req, &entry) != 0)
        inode_forget(&op->fs->inodes, entry.ino, 1);
}
