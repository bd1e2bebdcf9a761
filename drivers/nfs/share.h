/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NFS export as the driver uses it: without a mount, without privilege, by file handles. NFSv3 and NFSv4.0 look the
 * same from here; libnfs does the RPC and the encoding.
 *
 * Why handles and not the library's path calls: those follow symlinks on the client and, over NFSv4, remove a directory
 * where a file was meant and the other way round. A handle names one object of the server, whatever happens to its
 * path, so nothing here ever leaves the directory it was given and no symlink is ever followed. No call leaves state
 * behind on the server either (files are opened only to be made), so a lease that ran out or a server that started anew
 * does not matter.
 *
 * A share is one connection, for one thread at a time. Calls return 0 or an errno value; what it means for an
 * administrator, share_fail tells. Once the connection is gone (ETIMEDOUT, ECONNRESET, ECANCELED …) every call fails
 * with the same value: close it and open another.
 */
#ifndef BERTH_NFS_SHARE_H
#define BERTH_NFS_SHARE_H

#include "lib/base/clock.h"
#include "lib/base/err.h"
#include "lib/base/stop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct share_location { /* where it is; the strings are owned by whoever owns the struct */
    char *server;       /* host name or address, IPv6 without brackets */
    char *export;       /* "/export/data": absolute, no trailing slash except for "/" */
    int version;        /* 3, 4, or 0: 4 and, when the server does not speak it, 3 */
    int port;           /* of NFS; 0 = 2049 for version 4, what the server's rpcbind says for version 3 */
    int mount_port;     /* of the MOUNT service (version 3); 0 = what rpcbind says */
};
void share_location_copy(struct share_location *to, const struct share_location *from);
void share_location_clear(struct share_location *location);
#define auto_location __attribute__((cleanup(share_location_clear)))
bool share_location_equal(const struct share_location *a, const struct share_location *b);

#define SHARE_MAX_GROUPS 16 /* of AUTH_SYS */
struct share_credential {
    uint32_t uid, gid;
    uint32_t groups[SHARE_MAX_GROUPS];
    unsigned group_count;
};

struct share_options {
    struct clock *clock;
    struct share_credential credential;
    int64_t timeout;     /* of one call to the server, ns */
    const char *machine; /* our name in AUTH_SYS, for the server's logs */
};

struct share;
/* Connects and finds the export's root, all before `deadline` (monotonic; CLOCK_NEVER = only the time-out of each call
 * counts). `cancel` may be NULL; when requested, calls end with ECANCELED. */
int share_open(const struct share_location *location, const struct share_options *options, int64_t deadline,
               struct stop *cancel, struct share **share, struct err *err);
void share_close(struct share *share); /* NULL is fine */
static inline void share_cleanup(struct share **share)
{
    share_close(*share);
}
#define auto_share __attribute__((cleanup(share_cleanup)))
void share_set_deadline(struct share *share, int64_t deadline); /* for the calls that follow */
void share_set_cancel(struct share *share, struct stop *cancel);
void share_set_credential(struct share *share, const struct share_credential *credential);
const struct share_location *share_where(const struct share *share);
int share_version(const struct share *share); /* 3 or 4 */
bool share_broken(const struct share *share); /* no call can succeed any more */
/* Fills err for a failed call: what was tried ("make directory a/b"), on which server and export, as which user, why,
 * and what the likely cause is. Returns -1. */
int share_fail(const struct share *share, int error, struct err *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define SHARE_FH_SIZE 128
struct share_fh {
    uint32_t len;
    char data[SHARE_FH_SIZE];
};
static inline bool share_fh_equal(const struct share_fh *a, const struct share_fh *b)
{
    return a->len == b->len && __builtin_memcmp(a->data, b->data, a->len) == 0;
}

enum share_type {
    SHARE_FILE = 1,
    SHARE_DIRECTORY,
    SHARE_BLOCK,
    SHARE_CHARACTER,
    SHARE_SYMLINK,
    SHARE_SOCKET,
    SHARE_FIFO
}; /* the numbers NFS uses */
struct share_attr {
    enum share_type type;
    uint32_t mode; /* permission bits only */
    uint32_t nlink, uid, gid;
    uint64_t size, used; /* bytes; used = allocated */
    uint64_t fileid, fsid[2];
    uint32_t rdev_major, rdev_minor;
    struct timespec atime, mtime, ctime;
};
enum share_set_mask {
    SHARE_SET_MODE = 1,
    SHARE_SET_UID = 2,
    SHARE_SET_GID = 4,
    SHARE_SET_SIZE = 8,
    SHARE_SET_ATIME = 16,
    SHARE_SET_MTIME = 32,
    SHARE_SET_ATIME_NOW = 64,
    SHARE_SET_MTIME_NOW = 128,
};
struct share_set { /* attributes to set; mask says which */
    unsigned mask;
    uint32_t mode, uid, gid;
    uint64_t size;
    struct timespec atime, mtime;
};
struct share_space {
    uint64_t total_bytes, free_bytes, available_bytes;
    uint64_t total_files, free_files;
};

/* One page of a directory, without "." and "..". */
struct share_entry {
    char *name;
    uint64_t cookie, fileid;
    bool has_attr, has_fh; /* servers may leave them out: then look the name up */
    struct share_attr attr;
    struct share_fh fh;
};
struct share_page { /* {0} is an empty one */
    struct share_entry *items;
    size_t len, cap;
    uint64_t cookie; /* where the next page starts */
    char verifier[8];
    bool eof;
};
void share_page_clear(struct share_page *page); /* entries go, cookie and verifier too */
#define auto_page __attribute__((cleanup(share_page_clear)))

void share_root(const struct share *share, struct share_fh *root);

/* Names are single elements: "", ".", ".." and those with a slash are EINVAL. fh and attr may be NULL. */
int share_lookup(struct share *share, const struct share_fh *dir, const char *name, struct share_fh *fh,
                 struct share_attr *attr);
int share_getattr(struct share *share, const struct share_fh *fh, struct share_attr *attr);
int share_setattr(struct share *share, const struct share_fh *fh, const struct share_set *set, struct share_attr *attr);
/* ACCESS: which of R_OK, W_OK, X_OK in `wanted` the server grants; EACCES when not all. */
int share_access(struct share *share, const struct share_fh *fh, int wanted);
int share_readlink(struct share *share, const struct share_fh *fh, char **target); /* the caller's */
int share_read(struct share *share, const struct share_fh *fh, uint64_t offset, void *buffer, size_t len, size_t *got,
               bool *eof);
/* Stable on the server's disk when it returns. Writes everything, in as many calls as the server asks for. */
int share_write(struct share *share, const struct share_fh *fh, uint64_t offset, const void *data, size_t len,
                struct share_attr *attr);
/* A regular file; an existing one is EEXIST when `exclusive`, else taken (and its attributes set). */
int share_create(struct share *share, const struct share_fh *dir, const char *name, bool exclusive,
                 const struct share_set *set, struct share_fh *fh, struct share_attr *attr);
int share_mkdir(struct share *share, const struct share_fh *dir, const char *name, const struct share_set *set,
                struct share_fh *fh, struct share_attr *attr);
int share_symlink(struct share *share, const struct share_fh *dir, const char *name, const char *target,
                  const struct share_set *set, struct share_fh *fh, struct share_attr *attr);
int share_mknod(struct share *share, const struct share_fh *dir, const char *name, const struct share_attr *like,
                const struct share_set *set, struct share_fh *fh, struct share_attr *attr);
int share_link(struct share *share, const struct share_fh *fh, const struct share_fh *dir, const char *name);
int share_rename(struct share *share, const struct share_fh *from_dir, const char *from, const struct share_fh *to_dir,
                 const char *to);
/* A non-directory (EISDIR else), and an empty directory (ENOTDIR else). */
int share_unlink(struct share *share, const struct share_fh *dir, const char *name);
int share_rmdir(struct share *share, const struct share_fh *dir, const char *name);
/* The page that follows `page` (cleared before: {0} asks for the first). */
int share_readdir(struct share *share, const struct share_fh *dir, uint32_t bytes, struct share_page *page);
int share_statfs(struct share *share, const struct share_fh *fh, struct share_space *space);

/* Several calls in flight, for removing trees. `call` lives until `finished` ran, from within share_step; then
 * call->error is set. A return value other than 0 means that it was not started. */
struct share_call;
int share_start_remove(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                       bool directory);
int share_start_readdir(struct share *share, struct share_call *call, const struct share_fh *dir, uint32_t bytes,
                        struct share_page *page);
/* Waits for the server and runs what finished; fails when nothing came within the time-out: then all calls finished,
 * with that error. */
int share_step(struct share *share);

struct share_call {
    int error;
    bool done;
    void (*finished)(struct share_call *call); /* may be NULL; may start other calls */
    void *arg;
    /* where the reply goes; NULL = not wanted */
    struct share_fh *fh;
    struct share_attr *attr;
    struct share_page *page;
    struct share_space *space;
    void *buffer;
    size_t size, got; /* of buffer; read or written */
    bool eof;
    char **text;
    uint32_t access;  /* granted, in the protocol's bits */
    char verifier[8]; /* of an unstable write, or of the commit */
    struct share *share;
    void (*reply)(struct share_call *call, void *data); /* decodes; set by the protocol */
};

/* ---- paths: elements separated by '/', relative to the export, none of them "." or ".." ---- */

/* Resolves directory by directory; a symlink on the way is ENOTDIR. "" is the root. */
int share_walk(struct share *share, const char *path, struct share_fh *fh, struct share_attr *attr);
/* The same for the directory above; *name points into path. Path must not be "". */
int share_walk_parent(struct share *share, const char *path, struct share_fh *parent, const char **name);
/* mkdir -p with that mode. */
int share_make_path(struct share *share, const char *path, uint32_t mode, struct share_fh *fh, struct err *err);
/* Small files. read: NUL-terminated, the caller's; more than `limit` bytes is EFBIG. replace: through a temporary name
 * and a rename, so readers see the old or the new. */
int share_read_file(struct share *share, const struct share_fh *dir, const char *name, size_t limit, char **data,
                    size_t *len);
#define SHARE_FRESH_PREFIX ".new-" /* of the temporary name; what a crash leaves of it is in nobody's way */
int share_replace_file(struct share *share, const struct share_fh *dir, const char *name, const void *data, size_t len,
                       uint32_t mode);
bool share_name_is_safe(const char *name);

#endif
