/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The FUSE process of one volume: a file system over a directory of an export, for nodes whose kernel has no NFS
 * client, and for volumes whose size is to be enforced.
 *
 *     kernel ─► 4 threads ─► pool of connections, one per request under way ─► server
 *
 * Every request goes to the server as the user who made it. Data is written through (a write that returned is on the
 * server's disk), opening a file looks at its attributes anew, other clients' changes are seen within a second. While
 * the server is away, requests wait for it (or fail with EIO: option soft); a request may be interrupted meanwhile.
 */
#ifndef BERTH_NFS_FUSE_FS_H
#define BERTH_NFS_FUSE_FS_H

#include "drivers/nfs/fuse_config.h"
#include "drivers/nfs/share.h"
#include "lib/base/stop.h"

#include <fuse3/fuse_lowlevel.h>
#include <pthread.h>

#define FS_TIMEOUT 1.0 /* of attributes and names in the kernel, s */
#define FS_MAX_WRITE (128U * 1024)

/* ---- inodes: what the kernel knows, by handle ---- */

struct silly { /* a file that was removed while open: its name until it is closed */
    struct share_fh dir;
    char name[40];
};
struct inode {
    struct inode *next; /* of its bucket */
    struct share_fh fh;
    enum share_type type;
    uint64_t lookups; /* of the kernel */
    unsigned opens;
    uint64_t used; /* bytes it counts for, as last seen */
    struct silly *silly;
};
struct inode_table {
    pthread_mutex_t mutex;
    struct inode **buckets;
    size_t bucket_count, count;
    struct inode root;
};
void inode_table_init(struct inode_table *table, const struct share_fh *root);
void inode_table_clear(struct inode_table *table);
struct inode *inode_of(struct inode_table *table, fuse_ino_t number);
fuse_ino_t inode_number(struct inode_table *table, const struct inode *inode);
/* One more lookup of the kernel; made when it is new. */
struct inode *inode_remember(struct inode_table *table, const struct share_fh *fh, const struct share_attr *attr);
void inode_forget(struct inode_table *table, fuse_ino_t number, uint64_t lookups);
/* Open count of a handle (0 when unknown): whether a removal has to keep the file. */
unsigned inode_opens(struct inode_table *table, const struct share_fh *fh);
/* Notes that it was renamed instead of removed; false when it was closed meanwhile (remove it then). */
bool inode_set_silly(struct inode_table *table, const struct share_fh *fh, const struct share_fh *dir,
                     const char *name);
void inode_open(struct inode_table *table, struct inode *inode);
/* *silly is what to remove now; the caller's. NULL = nothing. */
void inode_close(struct inode_table *table, struct inode *inode, struct silly **silly);
/* The bytes it counts for now; gives the difference. */
int64_t inode_set_used(struct inode_table *table, struct inode *inode, uint64_t used);

/* ---- size ---- */

struct quota {
    pthread_mutex_t mutex;
    uint64_t limit; /* 0 = none */
    int64_t used;   /* counted; right once it was measured */
    int64_t reserved;
    int64_t since; /* counted since the measuring under way started */
    bool measured;
};
/* Up to `wanted` bytes, in whole blocks when it is not all: 0 = none left. Give it back by quota_settle. */
uint64_t quota_reserve(struct quota *quota, uint64_t wanted);
void quota_settle(struct quota *quota, uint64_t reserved, int64_t change);
void quota_change(struct quota *quota, int64_t change);
void quota_begin_measuring(struct quota *quota);
void quota_end_measuring(struct quota *quota, uint64_t used);
void quota_set_limit(struct quota *quota, uint64_t limit);

/* ---- connections ---- */

struct fs {
    struct fuse_config config;
    const char *config_path;
    struct clock *clock;
    struct stop *stop;
    struct fuse_session *session;
    struct inode_table inodes;
    struct quota quota;
    pthread_mutex_t pool_mutex;
    struct share *idle[16];
    unsigned idle_count;
};

struct op { /* one request on its way */
    struct fs *fs;
    fuse_req_t req;
    struct share_credential who;
    struct share *share;
    int tries; /* that lost their connection: what is asked for may have been done */
};
struct op op_begin(struct fs *fs, fuse_req_t req);
int op_connect(struct op *op);            /* takes a connection; 0 or what to answer */
bool op_again(struct op *op, int *error); /* gives it back; true = lost, do it again */
/* Runs `call` (an expression over op->share, giving errno) until the server answered. */
#define OP_RUN(op, call)                                                                                               \
    __extension__({                                                                                                    \
        int op_error_;                                                                                                 \
        do {                                                                                                           \
            op_error_ = op_connect(op);                                                                                \
            if (op_error_ == 0)                                                                                        \
                op_error_ = (call);                                                                                    \
        } while (op_again((op), &op_error_));                                                                          \
        op_error_;                                                                                                     \
    })
void fs_close_idle(struct fs *fs);

struct open_file { /* fi->fh of files: data goes as the user who opened it */
    struct share_credential who;
};

void fs_fill_stat(const struct share_attr *attr, struct stat *st);
/* Answers with an entry; counts a lookup. */
void fs_reply_entry(struct op *op, const struct share_fh *fh, const struct share_attr *attr);
struct fs *fs_of(fuse_req_t req);

/* fuse_names.c, fuse_file.c, fuse_dir.c put their operations in. */
void fs_add_name_operations(struct fuse_lowlevel_ops *operations);
void fs_add_file_operations(struct fuse_lowlevel_ops *operations);
void fs_add_directory_operations(struct fuse_lowlevel_ops *operations);

/* The thread that measures what is used and looks for a new limit. */
void *fs_watch(void *fs);

/* "berth-nfs mount-fuse CONFIG TARGET": says "mounted" or what is wrong on stdout, serves until unmounted. Exit status.
 */
int fuse_main(int argc, char **argv);

#endif
