/* SPDX-License-Identifier: Apache-2.0 */
/* Names and attributes. A request that lost its connection may have been done: then "exists" and "does not exist" are
 * what its own first try left. */
#include "drivers/nfs/fuse_fs.h"

#include "lib/base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define META_BLOCK 4096U /* what a new directory or symlink may take */

static const struct share_fh *fh_of(const struct op *op, fuse_ino_t number)
{
    return &inode_of(&op->fs->inodes, number)->fh;
}

static void lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct op op = op_begin(fs_of(req), req);
    struct share_fh fh = {0};
    struct share_attr attr = {0};
    int error = OP_RUN(&op, share_lookup(op.share, fh_of(&op, parent), name, &fh, &attr));
    if (error != 0)
        fuse_reply_err(req, error);
    else
        fs_reply_entry(&op, &fh, &attr);
}

static void forget(fuse_req_t req, fuse_ino_t number, uint64_t lookups)
{
    inode_forget(&fs_of(req)->inodes, number, lookups);
    fuse_reply_none(req);
}

static void forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *items)
{
    for (size_t i = 0; i < count; i++)
        inode_forget(&fs_of(req)->inodes, items[i].ino, items[i].nlookup);
    fuse_reply_none(req);
}

static void reply_attr(struct op *op, fuse_ino_t number, const struct share_attr *attr)
{
    struct stat st;
    struct inode *inode = inode_of(&op->fs->inodes, number);
    (void)inode;
    fs_fill_stat(attr, &st);
    fuse_reply_attr(op->req, &st, FS_TIMEOUT);
}

static void getattr(fuse_req_t req, fuse_ino_t number, struct fuse_file_info *fi)
{
    struct op op = op_begin(fs_of(req), req);
    struct share_attr attr = {0};
    (void)fi;
    int error = OP_RUN(&op, share_getattr(op.share, fh_of(&op, number), &attr));
    if (error != 0)
        fuse_reply_err(req, error);
    else
        reply_attr(&op, number, &attr);
}

static struct share_set read_set(const struct stat *st, int to_set)
{
    static const struct {
        int fuse;
        unsigned share;
    } bits[] = {
        {FUSE_SET_ATTR_MODE, SHARE_SET_MODE},
        {FUSE_SET_ATTR_UID, SHARE_SET_UID},
        {FUSE_SET_ATTR_GID, SHARE_SET_GID},
        {FUSE_SET_ATTR_SIZE, SHARE_SET_SIZE},
        {FUSE_SET_ATTR_ATIME, SHARE_SET_ATIME},
        {FUSE_SET_ATTR_MTIME, SHARE_SET_MTIME},
        {FUSE_SET_ATTR_ATIME_NOW, SHARE_SET_ATIME_NOW},
        {FUSE_SET_ATTR_MTIME_NOW, SHARE_SET_MTIME_NOW},
    };
    struct share_set set = {.mode = st->st_mode & 07777,
                            .uid = st->st_uid,
                            .gid = st->st_gid,
                            .size = (uint64_t)st->st_size,
                            .atime = st->st_atim,
                            .mtime = st->st_mtim};
    for (size_t i = 0; i < ARRAY_LEN(bits); i++)
        if (to_set & bits[i].fuse)
            set.mask |= bits[i].share;
    if (set.mask & SHARE_SET_ATIME_NOW)
        set.mask &= ~(unsigned)SHARE_SET_ATIME;
    if (set.mask & SHARE_SET_MTIME_NOW)
        set.mask &= ~(unsigned)SHARE_SET_MTIME;
    return set;
}

static void setattr(fuse_req_t req, fuse_ino_t number, struct stat *st, int to_set, struct fuse_file_info *fi)
{
    struct op op = op_begin(fs_of(req), req);
    struct share_set set = read_set(st, to_set);
    struct share_attr before = {0}, attr = {0};
    const struct share_fh *fh = fh_of(&op, number);
    bool resize = (set.mask & SHARE_SET_SIZE) != 0;
    if (fi != NULL && resize) /* ftruncate: as who opened it */
        op.who = ((const struct open_file *)(uintptr_t)fi->fh)->who;
    int error = resize ? OP_RUN(&op, share_getattr(op.share, fh, &before)) : 0;
    if (error == 0 && resize)
        inode_set_used(&op.fs->inodes, inode_of(&op.fs->inodes, number), before.used);
    if (error == 0)
        error = OP_RUN(&op, share_setattr(op.share, fh, &set, &attr));
    if (error == 0 && attr.type == 0)
        error = OP_RUN(&op, share_getattr(op.share, fh, &attr));
    if (error != 0) {
        fuse_reply_err(req, error);
        return;
    }
    if (resize)
        quota_change(&op.fs->quota, inode_set_used(&op.fs->inodes, inode_of(&op.fs->inodes, number), attr.used));
    reply_attr(&op, number, &attr);
}

static void access_file(fuse_req_t req, fuse_ino_t number, int mask)
{
    struct op op = op_begin(fs_of(req), req);
    fuse_reply_err(req, mask == 0 ? 0 : OP_RUN(&op, share_access(op.share, fh_of(&op, number), mask)));
}

static void read_link(fuse_req_t req, fuse_ino_t number)
{
    struct op op = op_begin(fs_of(req), req);
    auto_free char *target = NULL;
    int error = OP_RUN(&op, share_readlink(op.share, fh_of(&op, number), &target));
    if (error != 0)
        fuse_reply_err(req, error);
    else
        fuse_reply_readlink(req, target);
}

static bool reserve(struct op *op, uint64_t *reserved)
{
    *reserved = quota_reserve(&op->fs->quota, META_BLOCK);
    return *reserved == META_BLOCK;
}

/* The end of everything that makes an entry. */
static void made(struct op *op, fuse_ino_t parent, const char *name, int error, uint64_t reserved, struct share_fh *fh,
                 struct share_attr *attr)
{
    if (error == EEXIST && op->tries > 0) {
        error = OP_RUN(op, share_lookup(op->share, fh_of(op, parent), name, fh, attr));
        error = error == ENOENT ? EEXIST : error;
    }
    quota_settle(&op->fs->quota, reserved, error == 0 ? (int64_t)attr->used : 0);
    if (error != 0)
        fuse_reply_err(op->req, error);
    else
        fs_reply_entry(op, fh, attr);
}

static void make_directory(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct op op = op_begin(fs_of(req), req);
    struct share_set set = {.mask = SHARE_SET_MODE, .mode = mode & 07777};
    struct share_fh fh = {0};
    struct share_attr attr = {0};
    uint64_t reserved;
    int error = ENOSPC;
    if (reserve(&op, &reserved))
        error = OP_RUN(&op, share_mkdir(op.share, fh_of(&op, parent), name, &set, &fh, &attr));
    made(&op, parent, name, error, reserved, &fh, &attr);
}

static void make_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    struct op op = op_begin(fs_of(req), req);
    struct share_set none = {0};
    struct share_fh fh = {0};
    struct share_attr attr = {0};
    uint64_t reserved;
    int error = ENOSPC;
    if (reserve(&op, &reserved))
        error = OP_RUN(&op, share_symlink(op.share, fh_of(&op, parent), name, target, &none, &fh, &attr));
    made(&op, parent, name, error, reserved, &fh, &attr);
}

static void make_node(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device)
{
    static const struct {
        mode_t mode;
        enum share_type type;
    } types[] = {{S_IFIFO, SHARE_FIFO}, {S_IFSOCK, SHARE_SOCKET}, {S_IFBLK, SHARE_BLOCK}, {S_IFCHR, SHARE_CHARACTER}};
    struct op op = op_begin(fs_of(req), req);
    struct share_set set = {.mask = SHARE_SET_MODE, .mode = mode & 07777};
    struct share_attr like = {.type = SHARE_FILE, .rdev_major = major(device), .rdev_minor = minor(device)};
    struct share_fh fh = {0};
    struct share_attr attr = {0};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if ((mode & S_IFMT) == types[i].mode)
            like.type = types[i].type;
    int error = like.type == SHARE_FILE
                    ? OP_RUN(&op, share_create(op.share, fh_of(&op, parent), name, true, &set, &fh, &attr))
                    : OP_RUN(&op, share_mknod(op.share, fh_of(&op, parent), name, &like, &set, &fh, &attr));
    made(&op, parent, name, error, 0, &fh, &attr);
}

static void make_link(fuse_req_t req, fuse_ino_t number, fuse_ino_t parent, const char *name)
{
    struct op op = op_begin(fs_of(req), req);
    struct share_attr attr = {0};
    const struct share_fh *fh = fh_of(&op, number);
    int error = OP_RUN(&op, share_link(op.share, fh, fh_of(&op, parent), name));
    if (error == EEXIST && op.tries > 0)
        error = 0;
    if (error == 0)
        error = OP_RUN(&op, share_getattr(op.share, fh, &attr));
    if (error != 0)
        fuse_reply_err(req, error);
    else
        fs_reply_entry(&op, fh, &attr);
}

/* ---- removing ---- */

/* A file that is open here is renamed, as every NFS client does: the server would forget it. 1 = done so. */
static int keep_if_open(struct op *op, const struct share_fh *dir, const char *name, const struct share_fh *fh,
                        const struct share_attr *attr)
{
    char fresh[40];
    if (attr->type != SHARE_FILE || attr->nlink > 1 || inode_opens(&op->fs->inodes, fh) == 0)
        return 0;
    snprintf(fresh, sizeof(fresh), ".nfs%016" PRIx64, rng_u64(rng_real()));
    int error = OP_RUN(op, share_rename(op->share, dir, name, dir, fresh));
    if (error != 0)
        return -error;
    if (inode_set_silly(&op->fs->inodes, fh, dir, fresh))
        return 1;
    error = OP_RUN(op, share_unlink(op->share, dir, fresh)); /* closed in this moment */
    if (error == 0)
        quota_change(&op->fs->quota, -(int64_t)attr->used);
    return error == 0 ? 1 : -error;
}

static void unlink_file(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct op op = op_begin(fs_of(req), req);
    const struct share_fh *dir = fh_of(&op, parent);
    struct share_fh fh = {0};
    struct share_attr attr = {0};
    int error = OP_RUN(&op, share_lookup(op.share, dir, name, &fh, &attr));
    int kept = error == 0 ? keep_if_open(&op, dir, name, &fh, &attr) : 0;
    if (error == 0 && kept <= 0) {
        error = kept < 0 ? -kept : OP_RUN(&op, share_unlink(op.share, dir, name));
        if (error == ENOENT && op.tries > 0)
            error = 0;
        if (error == 0 && attr.nlink <= 1)
            quota_change(&op.fs->quota, -(int64_t)attr.used);
    }
    fuse_reply_err(req, error);
}

static void remove_directory(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct op op = op_begin(fs_of(req), req);
    const struct share_fh *dir = fh_of(&op, parent);
    struct share_fh fh = {0};
    struct share_attr attr = {0};
    int error = OP_RUN(&op, share_lookup(op.share, dir, name, &fh, &attr));
    if (error == 0) {
        error = OP_RUN(&op, share_rmdir(op.share, dir, name));
        if (error == ENOENT && op.tries > 0)
            error = 0;
        if (error == 0)
            quota_change(&op.fs->quota, -(int64_t)attr.used);
    }
    fuse_reply_err(req, error);
}

static void rename_entry(fuse_req_t req, fuse_ino_t from_parent, const char *from, fuse_ino_t to_parent, const char *to,
                         unsigned flags)
{
    struct op op = op_begin(fs_of(req), req);
    const struct share_fh *from_dir = fh_of(&op, from_parent), *to_dir = fh_of(&op, to_parent);
    struct share_fh moved = {0}, target = {0};
    struct share_attr attr = {0}, target_attr = {0};
    if (flags != 0) { /* the protocol has neither exchange nor "do not replace" */
        fuse_reply_err(req, EINVAL);
        return;
    }
    int error = OP_RUN(&op, share_lookup(op.share, from_dir, from, &moved, &attr));
    int64_t freed = 0;
    if (error == 0 && OP_RUN(&op, share_lookup(op.share, to_dir, to, &target, &target_attr)) == 0 &&
        !share_fh_equal(&moved, &target)) {
        int kept = keep_if_open(&op, to_dir, to, &target, &target_attr);
        if (kept < 0)
            error = -kept;
        else if (kept == 0 && (target_attr.nlink <= 1 || target_attr.type == SHARE_DIRECTORY))
            freed = (int64_t)target_attr.used;
    }
    if (error == 0) {
        error = OP_RUN(&op, share_rename(op.share, from_dir, from, to_dir, to));
        if (error == ENOENT && op.tries > 0)
            error = 0;
    }
    if (error == 0)
        quota_change(&op.fs->quota, -freed);
    fuse_reply_err(req, error);
}

void fs_add_name_operations(struct fuse_lowlevel_ops *operations)
{
    operations->lookup = lookup;
    operations->forget = forget;
    operations->forget_multi = forget_multi;
    operations->getattr = getattr;
    operations->setattr = setattr;
    operations->access = access_file;
    operations->readlink = read_link;
    operations->mkdir = make_directory;
    operations->symlink = make_symlink;
    operations->mknod = make_node;
    operations->link = make_link;
    operations->unlink = unlink_file;
    operations->rmdir = remove_directory;
    operations->rename = rename_entry;
}
