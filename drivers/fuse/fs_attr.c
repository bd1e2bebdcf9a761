/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/fs.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void fs_getattr(fuse_req_t req, fuse_ino_t node_id, struct fuse_file_info *fi)
{
    struct stat st;
    (void)fi;
    int result = volume_stat(fs_volume(req), node_id, &st);
    if (result < 0)
        fuse_reply_err(req, -result);
    else
        fuse_reply_attr(req, &st, FS_CACHE_SECONDS);
}

static struct timespec time_to_set(int to_set, int set, int now, const struct timespec *value)
{
    if ((to_set & now) != 0)
        return (struct timespec){.tv_nsec = UTIME_NOW};
    if ((to_set & set) != 0)
        return *value;
    return (struct timespec){.tv_nsec = UTIME_OMIT};
}

static int set_times(int fd, const struct stat *attr, int to_set)
{
    const struct timespec times[2] = {
        time_to_set(to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW, &attr->st_atim),
        time_to_set(to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW, &attr->st_mtim),
    };
    char path[VOLUME_FD_PATH_SIZE];
    /* by the path of the descriptor, since AT_EMPTY_PATH came late to utimensat; a magic link ends at the file itself,
     * also when that is a symlink */
    return utimensat(AT_FDCWD, volume_fd_path(fd, path), times, 0) == 0 ? 0 : -errno;
}

static int set_attributes(struct fs_worker *worker, uint64_t node_id, const struct stat *attr, int to_set)
{
    const struct fuse_setattr_in *raw = fs_raw_argument(worker);
    bool kill_suid = (raw->valid & FATTR_KILL_SUIDGID) != 0;
    char path[VOLUME_FD_PATH_SIZE];
    auto_close int fd = volume_open_node(worker->volume, node_id, O_PATH);
    if (fd < 0)
        return fd;
    if ((to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) != 0 &&
        fchownat(fd, "", (to_set & FUSE_SET_ATTR_UID) != 0 ? attr->st_uid : (uid_t)-1,
                 (to_set & FUSE_SET_ATTR_GID) != 0 ? attr->st_gid : (gid_t)-1, AT_EMPTY_PATH) != 0)
        return -errno;
    if ((to_set & FUSE_SET_ATTR_MODE) != 0 && chmod(volume_fd_path(fd, path), attr->st_mode & 07777) != 0)
        return -errno;
    if ((to_set & FUSE_SET_ATTR_SIZE) != 0) {
        int result = fs_truncate(worker, node_id, attr->st_size, kill_suid);
        if (result < 0)
            return result;
    }
    if ((to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW)) != 0)
        return set_times(fd, attr, to_set);
    return 0;
}

void fs_setattr(fuse_req_t req, fuse_ino_t node_id, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
    struct stat st;
    (void)fi;
    int result = set_attributes(fs_worker(req), node_id, attr, to_set);
    if (result == 0)
        result = volume_stat(fs_volume(req), node_id, &st);
    if (result < 0)
        fuse_reply_err(req, -result);
    else
        fuse_reply_attr(req, &st, FS_CACHE_SECONDS);
}

void fs_statfs(fuse_req_t req, fuse_ino_t node_id)
{
    struct account_figures figures = account_figures(&fs_volume(req)->account);
    int64_t room = figures.limit > figures.used ? figures.limit - figures.used : 0;
    int64_t inodes = figures.inode_limit > figures.inodes ? figures.inode_limit - figures.inodes : 0;
    struct statvfs st = {.f_bsize = ACCOUNT_BLOCK,
                         .f_frsize = ACCOUNT_BLOCK,
                         .f_blocks = (fsblkcnt_t)(figures.limit / ACCOUNT_BLOCK),
                         .f_bfree = (fsblkcnt_t)(room / ACCOUNT_BLOCK),
                         .f_bavail = (fsblkcnt_t)(room / ACCOUNT_BLOCK),
                         .f_files = (fsfilcnt_t)figures.inode_limit,
                         .f_ffree = (fsfilcnt_t)inodes,
                         .f_favail = (fsfilcnt_t)inodes,
                         .f_namemax = 255};
    (void)node_id;
    fuse_reply_statfs(req, &st);
}

void fs_readlink(fuse_req_t req, fuse_ino_t node_id)
{
    struct fs_worker *worker = fs_worker(req);
    char *target = (char *)fs_scratch(worker);
    auto_close int fd = volume_open_node(worker->volume, node_id, O_PATH | O_NOFOLLOW);
    ssize_t length = fd < 0 ? fd : readlinkat(fd, "", target, FS_MAX_IO - 1);
    if (length < 0) {
        fuse_reply_err(req, fd < 0 ? -fd : errno);
        return;
    }
    target[length] = '\0';
    fuse_reply_readlink(req, target);
}
