/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file system's calls: one file for each kind (fs_attr.c, fs_names.c, fs_data.c, fs_list.c, fs_xattr.c), and what
 * they share. A call does its work in a function that returns 0 or -errno and then answers.
 *
 * No call depends on what an earlier process remembered: files are found by node id, fi->fh only tells handles apart
 * (see node_sync_failed). A call that was under way when a process was killed comes again, marked as such; where doing
 * it twice is not the same as doing it once, fs_is_resent tells. Nobody else can have come in between: the kernel holds
 * the directories' locks as long as the call is unanswered.
 */
#ifndef BERTH_FUSE_FS_H
#define BERTH_FUSE_FS_H

#include "drivers/fuse/volume.h"

#include <fuse3/fuse_lowlevel.h>
#include <linux/fuse.h>

#define FS_MAX_IO ((unsigned)128 * 1024)
#define FS_HEADER_ROOM 4096
#define FS_BUFFER_SIZE (FS_MAX_IO + FS_HEADER_ROOM)

/* A thread that serves calls, and the call it is at. */
struct fs_worker {
    struct volume *volume;
    struct fuse_session *session; /* its own: libfuse's userdata is this struct */
    int fd;
    unsigned char *buffer; /* FS_BUFFER_SIZE: the call, as it was read */
    mode_t umask;          /* of this thread */
    struct serve *serve;   /* whose thread it is */
    bool in_init;          /* the call at hand is INIT */
    bool swallow;          /* the call at hand is an INIT of earlier days: its answer goes nowhere */
    bool init_differs;     /* that answer was another one in those days */
};

extern const struct fuse_lowlevel_ops fs_operations;

static inline struct fs_worker *fs_worker(fuse_req_t req)
{
    return fuse_req_userdata(req);
}
static inline struct volume *fs_volume(fuse_req_t req)
{
    return fs_worker(req)->volume;
}
/* The call as the kernel sent it, for what libfuse does not hand on. */
const void *fs_raw_argument(const struct fs_worker *worker);
bool fs_is_resent(const struct fs_worker *worker);
uint64_t fs_call_number(const struct fs_worker *worker); /* the same when it comes again */
/* FS_MAX_IO bytes for an answer. The call's own data (write, setxattr) may not be needed any more. */
unsigned char *fs_scratch(const struct fs_worker *worker);

#define FS_CACHE_SECONDS 60.0 /* nobody else changes the files */
/* Fills the entry of directory/name and counts it as looked up by the kernel. */
int fs_look_up(struct fs_worker *worker, const struct volume_directory *directory, const char *name,
               struct fuse_entry_param *entry);
/* Answers with the entry, or with the error. */
void fs_reply_entry(fuse_req_t req, int result, const struct fuse_entry_param *entry);
/* Has the kernel forget the attributes that it keeps of a file; false when it does not know the file any more. */
bool fs_drop_attributes(const struct fs_worker *worker, uint64_t node_id);
/* setuid and setgid go as they do after a write by somebody without CAP_FSETID. st is the state before. */
void fs_kill_suid(const struct fs_worker *worker, uint64_t node_id, int fd, const struct stat *st);

void fs_getattr(fuse_req_t req, fuse_ino_t node_id, struct fuse_file_info *fi);
void fs_setattr(fuse_req_t req, fuse_ino_t node_id, struct stat *attr, int to_set, struct fuse_file_info *fi);
void fs_statfs(fuse_req_t req, fuse_ino_t node_id);
void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_forget(fuse_req_t req, fuse_ino_t node_id, uint64_t lookups);
void fs_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
/* Removes an orphan that the kernel does not know any more. */
void fs_reap_orphan(const struct fs_worker *worker, uint64_t node_id);
void fs_readlink(fuse_req_t req, fuse_ino_t node_id);
void fs_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device);
void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void fs_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void fs_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void fs_link(fuse_req_t req, fuse_ino_t node_id, fuse_ino_t parent, const char *name);
void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name,
               unsigned flags);
void fs_open(fuse_req_t req, fuse_ino_t node_id, struct fuse_file_info *fi);
void fs_release(fuse_req_t req, fuse_ino_t node_id, struct fuse_file_info *fi);
void fs_read(fuse_req_t req, fuse_ino_t node_id, size_t size, off_t offset, struct fuse_file_info *fi);
void fs_write(fuse_req_t req, fuse_ino_t node_id, const char *data, size_t size, off_t offset,
              struct fuse_file_info *fi);
void fs_fsync(fuse_req_t req, fuse_ino_t node_id, int data_only, struct fuse_file_info *fi);
void fs_fallocate(fuse_req_t req, fuse_ino_t node_id, int mode, off_t offset, off_t length, struct fuse_file_info *fi);
void fs_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_offset, struct fuse_file_info *from_fi,
                        fuse_ino_t to, off_t to_offset, struct fuse_file_info *to_fi, size_t length, int flags);
void fs_lseek(fuse_req_t req, fuse_ino_t node_id, off_t offset, int whence, struct fuse_file_info *fi);
int fs_truncate(struct fs_worker *worker, uint64_t node_id, int64_t size, bool kill_suid);
/* The directory's descriptor, made when it is first needed; node->lock held. Borrowed from the node, or -errno. */
int fs_open_directory(struct volume *volume, struct node *node);
void fs_opendir(fuse_req_t req, fuse_ino_t node_id, struct fuse_file_info *fi);
void fs_readdir(fuse_req_t req, fuse_ino_t node_id, size_t size, off_t offset, struct fuse_file_info *fi);
void fs_readdirplus(fuse_req_t req, fuse_ino_t node_id, size_t size, off_t offset, struct fuse_file_info *fi);
void fs_fsyncdir(fuse_req_t req, fuse_ino_t node_id, int data_only, struct fuse_file_info *fi);
void fs_setxattr(fuse_req_t req, fuse_ino_t node_id, const char *name, const char *value, size_t size, int flags);
void fs_getxattr(fuse_req_t req, fuse_ino_t node_id, const char *name, size_t size);
void fs_listxattr(fuse_req_t req, fuse_ino_t node_id, size_t size);
void fs_removexattr(fuse_req_t req, fuse_ino_t node_id, const char *name);

#endif
