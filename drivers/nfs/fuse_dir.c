/* SPDX-License-Identifier: Apache-2.0 */
/* Directories. Offsets are the server's cookies, so a listing goes on where it was, whoever changes the directory. */
#include "drivers/nfs/fuse_fs.h"

#include "lib/base/mem.h"

#include <errno.h>
#include <sys/stat.h>

#define PAGE_BYTES 32768U

struct open_dir {
    pthread_mutex_t mutex;
    struct share_page page;
    uint64_t start; /* cookie the page was read with */
    bool read;
};

static struct open_dir *dir_of(const struct fuse_file_info *fi)
{
    return (struct open_dir *)(uintptr_t)fi->fh;
}

static void open_directory(fuse_req_t req, fuse_ino_t number, struct fuse_file_info *fi)
{
    struct open_dir *dir = mem_new(struct open_dir);
    (void)number;
    pthread_mutex_init(&dir->mutex, NULL);
    fi->fh = (uint64_t)(uintptr_t)dir;
    if (fuse_reply_open(req, fi) != 0) {
        pthread_mutex_destroy(&dir->mutex);
        free(dir);
    }
}

static void release_directory(fuse_req_t req, fuse_ino_t number, struct fuse_file_info *fi)
{
    struct open_dir *dir = dir_of(fi);
    (void)number;
    share_page_clear(&dir->page);
    pthread_mutex_destroy(&dir->mutex);
    free(dir);
    fuse_reply_err(req, 0);
}

/* The entry after cookie `offset`: within the page, at its end (page.len), or the page has to be read. */
static bool find_in_page(const struct open_dir *dir, uint64_t offset, size_t *index)
{
    if (!dir->read)
        return false;
    if (offset == dir->start) {
        *index = 0;
        return dir->page.len > 0 || dir->page.eof;
    }
    for (size_t i = 0; i < dir->page.len; i++)
        if (dir->page.items[i].cookie == offset) {
            *index = i + 1;
            return i + 1 < dir->page.len || dir->page.eof;
        }
    return false;
}

static int read_page(struct op *op, const struct share_fh *fh, struct open_dir *dir, uint64_t offset)
{
    if (offset == 0)
        share_page_clear(&dir->page);
    dir->read = false;
    dir->page.cookie = offset;
    int error = OP_RUN(op, share_readdir(op->share, fh, PAGE_BYTES, &dir->page));
    /* a page may be empty without being the last */
    while (error == 0 && dir->page.len == 0 && !dir->page.eof)
        error = OP_RUN(op, share_readdir(op->share, fh, PAGE_BYTES, &dir->page));
    dir->start = offset;
    dir->read = error == 0;
    return error;
}

static size_t add_entry(struct op *op, const struct share_fh *fh, struct share_entry *entry, bool plus, char *buffer,
                        size_t left)
{
    struct fs *fs = op->fs;
    struct fuse_entry_param param = {.attr_timeout = FS_TIMEOUT, .entry_timeout = FS_TIMEOUT};
    if (!entry->has_attr || (plus && !entry->has_fh)) {
        if (OP_RUN(op, share_lookup(op->share, fh, entry->name, &entry->fh, &entry->attr)) != 0)
            return 0; /* gone meanwhile: left out */
        entry->has_attr = entry->has_fh = true;
    }
    fs_fill_stat(&entry->attr, &param.attr);
    if (!plus)
        return fuse_add_direntry(op->req, buffer, left, entry->name, &param.attr, (off_t)entry->cookie);
    size_t size = fuse_add_direntry_plus(op->req, NULL, 0, entry->name, NULL, 0);
    if (size > left)
        return size;
    struct inode *inode = inode_remember(&fs->inodes, &entry->fh, &entry->attr);
    param.ino = inode_number(&fs->inodes, inode);
    return fuse_add_direntry_plus(op->req, buffer, left, entry->name, &param, (off_t)entry->cookie);
}

static void list(fuse_req_t req, fuse_ino_t number, size_t size, off_t from, const struct fuse_file_info *fi, bool plus)
{
    struct op op = op_begin(fs_of(req), req);
    struct open_dir *dir = dir_of(fi);
    const struct share_fh *fh = &inode_of(&op.fs->inodes, number)->fh;
    auto_free char *buffer = mem_alloc(size > 0 ? size : 1);
    uint64_t offset = (uint64_t)from;
    size_t used = 0, index = 0;
    int error = 0;
    pthread_mutex_lock(&dir->mutex);
    if (offset == 0)
        dir->read = false; /* rewinddir looks again */
    for (bool full = false; !full && error == 0;) {
        if (!find_in_page(dir, offset, &index)) {
            error = read_page(&op, fh, dir, offset);
            index = 0;
        }
        if (error != 0 || index >= dir->page.len)
            break;
        for (; index < dir->page.len && !full; index++) {
            size_t taken = add_entry(&op, fh, &dir->page.items[index], plus, buffer + used, size - used);
            full = taken > size - used;
            if (!full) {
                used += taken;
                offset = dir->page.items[index].cookie;
            }
        }
    }
    pthread_mutex_unlock(&dir->mutex);
    if (error != 0 && used == 0)
        fuse_reply_err(req, error);
    else
        fuse_reply_buf(req, buffer, used);
}

static void read_directory(fuse_req_t req, fuse_ino_t number, size_t size, off_t offset, struct fuse_file_info *fi)
{
    list(req, number, size, offset, fi, false);
}

static void read_directory_plus(fuse_req_t req, fuse_ino_t number, size_t size, off_t offset, struct fuse_file_info *fi)
{
    list(req, number, size, offset, fi, true);
}

static void sync_directory(fuse_req_t req, fuse_ino_t number, int data_only, struct fuse_file_info *fi)
{
    (void)number, (void)data_only, (void)fi;
    fuse_reply_err(req, 0);
}

void fs_add_directory_operations(struct fuse_lowlevel_ops *operations)
{
    operations->opendir = open_directory;
    operations->releasedir = release_directory;
    operations->readdir = read_directory;
    operations->readdirplus = read_directory_plus;
    operations->fsyncdir = sync_directory;
}
