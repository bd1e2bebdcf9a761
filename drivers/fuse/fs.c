/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/fs.h"

#include "lib/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESENT ((uint64_t)1 << 63) /* FUSE_UNIQUE_RESEND, kernel 6.9 */

static void fs_init(void *userdata, struct fuse_conn_info *connection)
{
    /* No locks here: the kernel keeps them itself, so they survive us. No write-back cache: a write must fail when it
     * does not fit, not some time later. No O_TRUNC in open: truncation comes as a call of its own. */
    const unsigned wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_DONT_MASK | FUSE_CAP_PARALLEL_DIROPS |
                            FUSE_CAP_POSIX_ACL | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_EXPLICIT_INVAL_DATA |
                            FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO;
    (void)userdata;
    connection->want = wanted & connection->capable;
    connection->max_write = FS_MAX_IO;
    connection->max_read = FS_MAX_IO;
    connection->max_readahead = FS_MAX_IO;
    connection->max_background = 32;
    connection->congestion_threshold = 24;
    connection->time_gran = 1;
}

const struct fuse_lowlevel_ops fs_operations = {
    .init = fs_init,
    .lookup = fs_lookup,
    .forget = fs_forget,
    .forget_multi = fs_forget_multi,
    .getattr = fs_getattr,
    .setattr = fs_setattr,
    .statfs = fs_statfs,
    .readlink = fs_readlink,
    .mknod = fs_mknod,
    .mkdir = fs_mkdir,
    .symlink = fs_symlink,
    .create = fs_create,
    .link = fs_link,
    .unlink = fs_unlink,
    .rmdir = fs_rmdir,
    .rename = fs_rename,
    .open = fs_open,
    .release = fs_release,
    .read = fs_read,
    .write = fs_write,
    .fsync = fs_fsync,
    .fallocate = fs_fallocate,
    .copy_file_range = fs_copy_file_range,
    .lseek = fs_lseek,
    .opendir = fs_opendir,
    .readdir = fs_readdir,
    .readdirplus = fs_readdirplus,
    .releasedir = fs_release,
    .fsyncdir = fs_fsyncdir,
    .setxattr = fs_setxattr,
    .getxattr = fs_getxattr,
    .listxattr = fs_listxattr,
    .removexattr = fs_removexattr,
};

const void *fs_raw_argument(const struct fs_worker *worker)
{
    return worker->buffer + sizeof(struct fuse_in_header);
}

bool fs_is_resent(const struct fs_worker *worker)
{
    const struct fuse_in_header *header = (const struct fuse_in_header *)(const void *)worker->buffer;
    return (header->unique & RESENT) != 0;
}

uint64_t fs_call_number(const struct fs_worker *worker)
{
    const struct fuse_in_header *header = (const struct fuse_in_header *)(const void *)worker->buffer;
    return header->unique & ~RESENT;
}

unsigned char *fs_scratch(const struct fs_worker *worker)
{
    return worker->buffer + FS_HEADER_ROOM;
}

int fs_look_up(struct fs_worker *worker, const struct volume_directory *directory, const char *name,
               struct fuse_entry_param *entry)
{
    struct volume *volume = worker->volume;
    uint64_t node_id;
    *entry = (struct fuse_entry_param){.attr_timeout = FS_CACHE_SECONDS, .entry_timeout = FS_CACHE_SECONDS};
    if (fstatat(directory->fd, name, &entry->attr, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    if (entry->attr.st_dev != volume->device) /* something is mounted there: not the volume's */
        return -EXDEV;
    int result = handles_identify(volume->handles, directory->fd, name, 1, &node_id);
    if (result < 0)
        return result;
    volume_hide_orphan_link(volume, node_id, &entry->attr);
    entry->ino = node_id;
    return 0;
}

void fs_reply_entry(fuse_req_t req, int result, const struct fuse_entry_param *entry)
{
    if (result < 0)
        fuse_reply_err(req, -result);
    else if (fuse_reply_entry(req, entry) == -ENOENT) /* nobody waits for it any more */
        handles_forget(fs_volume(req)->handles, entry->ino, 1);
}

bool fs_drop_attributes(const struct fs_worker *worker, uint64_t node_id)
{
    const struct {
        struct fuse_out_header header;
        struct fuse_notify_inval_inode_out body;
    } notice = {.header = {.len = sizeof(notice), .error = FUSE_NOTIFY_INVAL_INODE},
                .body = {.ino = node_id, .off = -1}};
    return !(write(worker->fd, &notice, sizeof(notice)) < 0 && errno == ENOENT);
}

void fs_kill_suid(const struct fs_worker *worker, uint64_t node_id, int fd, const struct stat *st)
{
    char path[VOLUME_FD_PATH_SIZE];
    mode_t kill = S_ISUID | ((st->st_mode & S_IXGRP) != 0 ? S_ISGID : 0);
    if ((st->st_mode & kill) == 0 || !S_ISREG(st->st_mode))
        return;
    if (chmod(volume_fd_path(fd, path), st->st_mode & 07777 & ~kill) != 0)
        log_warn("Cannot clear setuid", kv_int("errno", errno));
    /* after a write the kernel asks for a file's size again, but runs a program by the mode that it remembers */
    fs_drop_attributes(worker, node_id);
}
