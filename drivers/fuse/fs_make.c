/* SPDX-License-Identifier: Apache-2.0 */
/* Making names: mknod, mkdir, symlink, create, link. */
#include "drivers/fuse/fs.h"
#include "drivers/fuse/room.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct making {
    fuse_req_t req;
    const char *name;
    mode_t mode; /* with the type */
    dev_t device;
    const char *target; /* of a symlink */
    int open_flags;     /* of a regular file that is opened as well; fd then */
    int fd;
};

/* File modes and default ACLs are the backing file system's business, so it has to see the caller's umask. */
static void take_umask(struct fs_worker *worker, mode_t wanted)
{
    if (wanted != worker->umask)
        umask(wanted);
    worker->umask = wanted;
}

static int make(struct making *making, const struct volume_directory *directory)
{
    int result;
    if (S_ISDIR(making->mode)) {
        result = mkdirat(directory->fd, making->name, making->mode & 07777);
    } else if (making->target != NULL) {
        result = symlinkat(making->target, directory->fd, making->name);
    } else if (S_ISREG(making->mode)) {
        making->fd = openat(directory->fd, making->name, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC,
                            making->mode & 07777);
        result = making->fd < 0 ? -1 : 0;
    } else {
        result = mknodat(directory->fd, making->name, making->mode, making->device);
    }
    return result == 0 ? 0 : -errno;
}

static int unmake(const struct making *making, const struct volume_directory *directory)
{
    return unlinkat(directory->fd, making->name, S_ISDIR(making->mode) ? AT_REMOVEDIR : 0);
}

/* Made as root, it is given to its owner now. A process killed in between is followed by another one that comes here
 * again. */
static int give_to_owner(fuse_req_t req, const struct making *making, const struct volume_directory *directory)
{
    const struct fuse_ctx *caller = fuse_req_ctx(req);
    struct stat st;
    bool inherits = (directory->st.st_mode & S_ISGID) != 0;
    if (fstatat(directory->fd, making->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    gid_t group = inherits ? st.st_gid : caller->gid;
    if (st.st_uid == caller->uid && st.st_gid == group)
        return 0;
    if (fchownat(directory->fd, making->name, caller->uid, group, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    /* a new owner costs setuid and setgid, which were asked for */
    if ((st.st_mode & (S_ISUID | S_ISGID)) != 0 && S_ISREG(st.st_mode) &&
        fchmodat(directory->fd, making->name, st.st_mode & 07777, 0) != 0)
        return -errno;
    return 0;
}

/* What a repeated call finds is its own work. */
static bool is_own_work(const struct making *making, const struct volume_directory *directory)
{
    struct stat st;
    return fstatat(directory->fd, making->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           (st.st_mode & S_IFMT) == (making->mode & S_IFMT);
}

/* Bytes that the new file itself will take. */
static int64_t bytes_of_new(const struct making *making)
{
    if (S_ISDIR(making->mode))
        return ACCOUNT_BLOCK;
    return making->target != NULL && strlen(making->target) >= 60 ? ACCOUNT_BLOCK : 0;
}

static int64_t bytes_at(const struct volume_directory *directory, const char *name)
{
    struct stat st;
    return fstatat(directory->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? volume_bytes(&st) : 0;
}

static int make_and_charge(struct fs_worker *worker, struct making *making, const struct volume_directory *directory)
{
    struct volume *volume = worker->volume;
    int64_t reserved = bytes_of_new(making);
    int result = room_for_new(volume, reserved, true, 0);
    if (result < 0)
        return result;
    result = make(making, directory);
    if (result < 0) {
        room_undo(volume, reserved, 0, true);
        return result;
    }
    int64_t growth = volume_directory_growth(directory);
    int64_t delta = growth + bytes_at(directory, making->name);
    if (!room_fits(volume, reserved, delta) && unmake(making, directory) == 0) {
        room_undo(volume, reserved, growth, true);
        if (making->fd >= 0)
            close(making->fd);
        making->fd = -1;
        return -ENOSPC;
    }
    room_leave(volume, reserved, delta);
    return 0;
}

static int make_name(struct fs_worker *worker, fuse_ino_t parent, struct making *making, struct fuse_entry_param *entry)
{
    auto_directory struct volume_directory directory = {.fd = -1};
    int result = volume_enter_directory(worker->volume, parent, &directory);
    if (result < 0)
        return result;
    take_umask(worker, fuse_req_ctx(making->req)->umask);
    result = make_and_charge(worker, making, &directory);
    bool repeated = result == -EEXIST && fs_is_resent(worker) && is_own_work(making, &directory);
    if (result < 0 && !repeated)
        return result;
    result = give_to_owner(making->req, making, &directory);
    return result < 0 ? result : fs_look_up(worker, &directory, making->name, entry);
}

static void make_and_reply(fuse_req_t req, fuse_ino_t parent, struct making *making)
{
    struct fuse_entry_param entry = {0};
    int result = make_name(fs_worker(req), parent, making, &entry);
    if (making->fd >= 0)
        close(making->fd);
    fs_reply_entry(req, result, &entry);
}

void fs_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device)
{
    struct making making = {.req = req, .name = name, .mode = mode, .device = device, .fd = -1};
    if ((mode & S_IFMT) == 0)
        making.mode |= S_IFREG;
    make_and_reply(req, parent, &making);
}

void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct making making = {.req = req, .name = name, .mode = S_IFDIR | (mode & 07777), .fd = -1};
    make_and_reply(req, parent, &making);
}

void fs_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    struct making making = {.req = req, .name = name, .mode = S_IFLNK | 0777, .target = target, .fd = -1};
    make_and_reply(req, parent, &making);
}

/* ---- create ---- */

/* The new file's node counts as open from here on. */
static int open_created(struct volume *volume, struct making *making, uint64_t node_id)
{
    struct node *node = node_get(&volume->nodes, node_id);
    int result = 0;
    pthread_mutex_lock(&node->lock);
    if (node->data_fd < 0 && making->fd >= 0)
        node->data_fd = mem_take_fd(&making->fd);
    else
        result = volume_data_fd(volume, node, (making->open_flags & O_ACCMODE) != O_RDONLY);
    if (result >= 0)
        node_opened(&volume->nodes, node);
    pthread_mutex_unlock(&node->lock);
    node_put(&volume->nodes, node);
    return result < 0 ? result : 0;
}

static int create(struct fs_worker *worker, fuse_ino_t parent, struct making *making, struct fuse_entry_param *entry)
{
    int result = make_name(worker, parent, making, entry);
    /* The kernel thought there is none and has checked no permission for it: it shall look again. */
    if (result == -EEXIST && (making->open_flags & O_EXCL) == 0)
        return -ESTALE;
    if (result < 0)
        return result;
    result = open_created(worker->volume, making, entry->ino);
    if (result < 0)
        handles_forget(worker->volume->handles, entry->ino, 1);
    return result;
}

void fs_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
    struct volume *volume = fs_volume(req);
    struct fuse_entry_param entry = {0};
    struct making making = {
        .req = req, .name = name, .mode = S_IFREG | (mode & 07777), .open_flags = fi->flags, .fd = -1};
    int result = create(fs_worker(req), parent, &making, &entry);
    if (making.fd >= 0)
        close(making.fd);
    fi->keep_cache = 1;
    fi->fh = volume_next_handle(volume);
    if (result < 0) {
        fuse_reply_err(req, -result);
    } else if (fuse_reply_create(req, &entry, fi) == -ENOENT) {
        struct node *node = node_find(&volume->nodes, entry.ino);
        if (node != NULL)
            node_released(&volume->nodes, node);
        node_put(&volume->nodes, node);
        handles_forget(volume->handles, entry.ino, 1);
    }
}

/* ---- link ---- */

static int link_locked(struct fs_worker *worker, const struct node *node, const struct volume_directory *directory,
                       const char *name)
{
    struct volume *volume = worker->volume;
    struct stat st;
    auto_close int fd = volume_open_node(volume, node->id, O_PATH);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) != 0)
        return -errno;
    if (st.st_nlink <= (node_is_orphan(&volume->nodes, node) ? 1U : 0U))
        return -ENOENT;
    int result = room_for_new(volume, 0, false, 0);
    if (result < 0)
        return result;
    if (linkat(fd, "", directory->fd, name, AT_EMPTY_PATH) != 0) {
        result = -errno;
        room_leave(volume, 0, 0);
        return result;
    }
    int64_t growth = volume_directory_growth(directory);
    if (!room_fits(volume, 0, growth) && unlinkat(directory->fd, name, 0) == 0)
        result = -ENOSPC;
    room_leave(volume, 0, growth);
    return result;
}

static int make_link(struct fs_worker *worker, uint64_t node_id, fuse_ino_t parent, const char *name,
                     struct fuse_entry_param *entry)
{
    struct volume *volume = worker->volume;
    auto_directory struct volume_directory directory = {.fd = -1};
    int result = volume_enter_directory(volume, parent, &directory);
    if (result < 0)
        return result;
    struct node *node = node_get(&volume->nodes, node_id);
    pthread_mutex_lock(&node->lock); /* it must not lose its last other name meanwhile */
    result = link_locked(worker, node, &directory, name);
    pthread_mutex_unlock(&node->lock);
    node_put(&volume->nodes, node);
    if (result < 0 && !(result == -EEXIST && fs_is_resent(worker)))
        return result;
    bool repeated = result < 0;
    result = fs_look_up(worker, &directory, name, entry);
    if (result == 0 && repeated && entry->ino != node_id) {
        handles_forget(volume->handles, entry->ino, 1);
        return -EEXIST;
    }
    return result;
}

void fs_link(fuse_req_t req, fuse_ino_t node_id, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry = {0};
    int result = make_link(fs_worker(req), node_id, parent, name, &entry);
    fs_reply_entry(req, result, &entry);
}
