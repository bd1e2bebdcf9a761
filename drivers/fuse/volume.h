/* SPDX-License-Identifier: Apache-2.0 */
/* One volume being served: its directories, what it uses, the files in use. Shared by all threads. */
#ifndef BERTH_FUSE_VOLUME_H
#define BERTH_FUSE_VOLUME_H

#include "drivers/fuse/account.h"
#include "drivers/fuse/handle.h"
#include "drivers/fuse/node.h"
#include "lib/base/clock.h"
#include "lib/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

struct volume_options {
    const char *directory; /* has data/; orphans/ is made */
    int64_t limit, inode_limit;
    bool read_only;
    bool reattach; /* somebody served this mount before: open files, orphans and node ids are his */
};
/* What must not be done twice, begun: an exchange of two names, the inodes they had before; a change of an attribute,
 * its inode and 0. */
struct volume_exchange {
    uint64_t call, from, to;
};
#define VOLUME_EXCHANGES 128
struct volume {
    struct clock *clock;
    bool read_only;
    bool reattached;
    atomic_int waiting;            /* calls that wait for space about to be freed */
    atomic_int_fast64_t waited_at; /* when one has waited in vain (monotonic) */
    int lock_fd;                   /* DIRECTORY, locked: one process serves it */
    int data_fd;
    int orphans_fd; /* -1: none, on a read-only file system */
    dev_t device;
    struct handles *handles;
    struct volume_exchange *exchanges; /* in a file, so that it outlives the process; NULL on a read-only one */
    struct account account;
    struct node_table nodes;
    atomic_uint_fast64_t newest_handle;     /* the number of the file handle that was opened last */
    int64_t recount_cost, recounted_at;     /* how long a count takes, when the last one was made (monotonic) */
    uint64_t counted_changes, seen_changes; /* of the account: at the last count, at the last look */
};

/* Opens and counts it; waits some seconds for a dying predecessor to let go. Without `reattach` the orphans of earlier
 * days are removed. ERR_CONFLICT: another process serves it. */
int volume_open(struct volume *volume, const struct volume_options *options, struct err *err);
void volume_close(struct volume *volume);

/* File systems allocate metadata (extent blocks) later, when they write data back, and nobody is told. So files that
 * changed are looked at again for a while. Returns when to come again (monotonic). */
int64_t volume_charge_watched(struct volume *volume);
/* And for what escapes that, all is counted again from time to time. When nothing has changed for a while, that
 * disturbs nobody; in a volume that is never quiet the others have to wait for it, less than a thousandth of the time.
 * Returns when to come again (monotonic). */
int64_t volume_recount(struct volume *volume);

/* The functions below return 0 or a descriptor, or -errno. */

/* Opens a file by its node id, for its attributes (O_PATH) or its data. */
int volume_open_node(struct volume *volume, uint64_t node_id, int flags);
/* Attributes as users see them: an orphan's name in orphans/ does not count. */
int volume_stat(struct volume *volume, uint64_t node_id, struct stat *st);
void volume_hide_orphan_link(struct volume *volume, uint64_t node_id, struct stat *st);
/* The shared descriptor of a regular file; node->lock held. Borrowed from the node. */
int volume_data_fd(struct volume *volume, struct node *node, bool for_writing);

/* Orphans: files that lost their last name while open. node->lock held. */
int volume_make_orphan(struct volume *volume, struct node *node);
/* Whether this file has to become an orphan when it loses its last name. */
bool volume_must_keep(struct volume *volume, const struct node *node, const struct stat *st);
/* Removes the orphan for good; its space and inode count as free. Takes the lock itself. */
void volume_remove_orphan(struct volume *volume, uint64_t node_id);
/* The number of a new file handle: larger than all before, also than those of an earlier process. */
uint64_t volume_next_handle(struct volume *volume);
/* Where such a call is written down before it is done. NULL when nothing can be changed. */
struct volume_exchange *volume_exchange_record(struct volume *volume, uint64_t call);

/* A directory of the volume, for the time of one call. */
struct volume_directory {
    int fd;
    bool borrowed;
    struct stat st; /* when it was opened */
};
int volume_enter_directory(struct volume *volume, uint64_t node_id, struct volume_directory *directory);
void volume_leave_directory(const struct volume_directory *directory);
#define auto_directory __attribute__((cleanup(volume_leave_directory)))
/* By how many bytes it grew since it was entered. */
int64_t volume_directory_growth(const struct volume_directory *directory);

/* For calls that want a path: the way to an open descriptor. */
#define VOLUME_FD_PATH_SIZE 32
const char *volume_fd_path(int fd, char buffer[VOLUME_FD_PATH_SIZE]);

static inline int64_t volume_bytes(const struct stat *st)
{
    return (int64_t)st->st_blocks * 512;
}

#endif
