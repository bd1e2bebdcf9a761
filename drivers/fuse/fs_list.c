/* SPDX-License-Identifier: Apache-2.0 */
/* Reading directories. Positions are the backing file system's own, so they hold for every process. */
#include "drivers/fuse/fs.h"
#include "lib/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* The scratch space: first what the file system gave, then the answer. */
#define RAW_SIZE ((size_t)32 * 1024)

int fs_open_directory(struct volume *volume, struct node *node)
{
    if (node->dir_fd < 0) {
        int fd = volume_open_node(volume, node->id, O_RDONLY | O_DIRECTORY);
        if (fd < 0)
            return fd;
        node->dir_fd = fd;
        node->dir_position = 0;
    }
    return node->dir_fd;
}

void fs_opendir(fuse_req_t req, fuse_ino_t node_id, struct fuse_file_info *fi)
{
    struct volume *volume = fs_volume(req);
    struct node *node = node_get(&volume->nodes, node_id);
    pthread_mutex_lock(&node->lock);
    int fd = fs_open_directory(volume, node); /* now, since it may be removed while it is open */
    pthread_mutex_unlock(&node->lock);
    if (fd >= 0)
        node_opened(&volume->nodes, node);
    node_put(&volume->nodes, node);
    if (fd < 0) {
        fuse_reply_err(req, -fd);
        return;
    }
    if (fuse_reply_open(req, fi) == -ENOENT) {
        node = node_find(&volume->nodes, node_id);
        if (node != NULL)
            node_released(&volume->nodes, node);
        node_put(&volume->nodes, node);
    }
}

/* What comes after `offset`, in the kernel's form. */
static ssize_t read_raw(struct volume *volume, struct node *node, off_t offset, unsigned char *raw, size_t size)
{
    ssize_t length = -ESTALE;
    pthread_mutex_lock(&node->lock);
    int fd = fs_open_directory(volume, node);
    if (fd < 0) {
        length = fd;
    } else {
        /* from the start always by lseek: that makes the directory's present state visible */
        bool seek = offset == 0 || offset != node->dir_position;
        if ((seek && lseek(fd, offset, SEEK_SET) < 0) || (length = getdents64(fd, raw, size)) < 0)
            length = -errno;
        node->dir_position = -1;
        if (length > 0) {
            const struct dirent64 *entry = NULL;
            for (ssize_t at = 0; at < length; at += entry->d_reclen)
                entry = (const struct dirent64 *)(const void *)(raw + at);
            node->dir_position = entry->d_off;
        }
    }
    pthread_mutex_unlock(&node->lock);
    return length;
}

struct listing {
    fuse_req_t req;
    struct volume_directory *directory; /* with attributes; NULL = names only */
    char *answer;
    size_t size, used;
};

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* False when the answer is full. */
static bool add(struct listing *listing, const struct dirent64 *entry)
{
    char *place = listing->answer + listing->used;
    size_t left = listing->size - listing->used, length;
    struct stat st = {.st_ino = entry->d_ino, .st_mode = (mode_t)DTTOIF(entry->d_type)};
    if (listing->directory == NULL) {
        length = fuse_add_direntry(listing->req, place, left, entry->d_name, &st, entry->d_off);
    } else {
        struct fuse_entry_param full = {.attr = st};
        struct fs_worker *worker = fs_worker(listing->req);
        if (fuse_add_direntry_plus(listing->req, NULL, 0, entry->d_name, NULL, 0) > left)
            return false;
        if (is_dots(entry->d_name) || fs_look_up(worker, listing->directory, entry->d_name, &full) < 0)
            full = (struct fuse_entry_param){.attr = st}; /* node 0: a name only */
        length = fuse_add_direntry_plus(listing->req, place, left, entry->d_name, &full, entry->d_off);
    }
    if (length > left)
        return false;
    listing->used += length;
    return true;
}

static void list(fuse_req_t req, fuse_ino_t node_id, size_t size, off_t offset, struct volume_directory *directory)
{
    struct fs_worker *worker = fs_worker(req);
    struct volume *volume = worker->volume;
    unsigned char *raw = fs_scratch(worker);
    struct listing listing = {.req = req,
                              .directory = directory,
                              .answer = (char *)raw + RAW_SIZE,
                              .size = size < FS_MAX_IO - RAW_SIZE ? size : FS_MAX_IO - RAW_SIZE};
    /* entries in the answer are larger than raw ones: ask for as many as surely fit, so that none is read twice */
    size_t wanted = listing.size / (directory != NULL ? 8 : 2);
    wanted = wanted < 280 ? 280 : wanted > RAW_SIZE ? RAW_SIZE : wanted;
    struct node *node = node_get(&volume->nodes, node_id);
    node_used(&volume->nodes, node);
    ssize_t length = read_raw(volume, node, offset, raw, wanted);
    for (ssize_t at = 0; at < length;) {
        const struct dirent64 *entry = (const struct dirent64 *)(const void *)(raw + at);
        if (!add(&listing, entry))
            break;
        at += entry->d_reclen;
    }
    node_put(&volume->nodes, node);
    if (length < 0 && length != -ENOENT) /* ENOENT: the directory was removed, so it is empty */
        fuse_reply_err(req, (int)-length);
    else
        fuse_reply_buf(req, listing.answer, listing.used);
}

void fs_readdir(fuse_req_t req, fuse_ino_t node_id, size_t size, off_t offset, struct fuse_file_info *fi)
{
    (void)fi;
    list(req, node_id, size, offset, NULL);
}

void fs_readdirplus(fuse_req_t req, fuse_ino_t node_id, size_t size, off_t offset, struct fuse_file_info *fi)
{
    auto_directory struct volume_directory directory = {.fd = -1};
    (void)fi;
    int result = volume_enter_directory(fs_volume(req), node_id, &directory);
    list(req, node_id, size, offset, result == 0 ? &directory : NULL);
}

void fs_fsyncdir(fuse_req_t req, fuse_ino_t node_id, int data_only, struct fuse_file_info *fi)
{
    struct volume *volume = fs_volume(req);
    (void)fi;
    auto_close int fd = volume_open_node(volume, node_id, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        fuse_reply_err(req, -fd);
    else
        fuse_reply_err(req, (data_only ? fdatasync(fd) : fsync(fd)) == 0 ? 0 : errno);
}
