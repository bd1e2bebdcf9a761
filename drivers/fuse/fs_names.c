/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and taking away names: lookup, forget, unlink, rmdir, rename. */
#include "drivers/fuse/fs.h"
#include "drivers/fuse/room.h"
#include "lib/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Renames go on in a volume that is full, also when a directory has grown beyond the limit by a block or two. */
#define RENAME_SLACK ((int64_t)1 << 20)

void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fs_worker *worker = fs_worker(req);
    struct fuse_entry_param entry = {0};
    auto_directory struct volume_directory directory = {.fd = -1};
    int result = volume_enter_directory(worker->volume, parent, &directory);
    if (result == 0)
        result = fs_look_up(worker, &directory, name, &entry);
    if (result == -ENOENT) { /* the kernel may remember that, too */
        entry = (struct fuse_entry_param){.entry_timeout = FS_CACHE_SECONDS};
        fuse_reply_entry(req, &entry);
        return;
    }
    fs_reply_entry(req, result, &entry);
}

/* ---- forget ---- */

void fs_reap_orphan(const struct fs_worker *worker, uint64_t node_id)
{
    if (!fs_drop_attributes(worker, node_id))
        volume_remove_orphan(worker->volume, node_id);
}

static void forget(const struct fs_worker *worker, uint64_t node_id, uint64_t lookups)
{
    struct volume *volume = worker->volume;
    struct node *node = node_find(&volume->nodes, node_id);
    if (node != NULL) {
        bool orphan = node_is_orphan(&volume->nodes, node);
        node_forgotten(&volume->nodes, node);
        node_put(&volume->nodes, node);
        if (orphan)
            fs_reap_orphan(worker, node_id);
    }
    handles_forget(volume->handles, node_id, lookups);
}

void fs_forget(fuse_req_t req, fuse_ino_t node_id, uint64_t lookups)
{
    forget(fs_worker(req), node_id, lookups);
    fuse_reply_none(req);
}

void fs_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    for (size_t i = 0; i < count; i++)
        forget(fs_worker(req), forgets[i].ino, forgets[i].nlookup);
    fuse_reply_none(req);
}

/* ---- what a file loses with a name ---- */

struct victim {
    struct node *node; /* locked; NULL = there is none */
    struct stat st;
    bool last;   /* it has no other name */
    bool orphan; /* it lives on in orphans/ */
};

/* Locks the file that a name is about to be taken from; makes an orphan of it if it is its last one and the file is in
 * use. -ENOENT when there is none. */
static int victim_take(struct volume *volume, const struct volume_directory *directory, const char *name,
                       struct victim *victim)
{
    uint64_t node_id;
    int result = handles_identify(volume->handles, directory->fd, name, 0, &node_id);
    if (result < 0)
        return result;
    struct node *node = node_get(&volume->nodes, node_id);
    pthread_mutex_lock(&node->lock);
    if (fstatat(directory->fd, name, &victim->st, AT_SYMLINK_NOFOLLOW) != 0) {
        result = -errno;
    } else {
        victim->orphan = node_is_orphan(&volume->nodes, node);
        victim->last = S_ISDIR(victim->st.st_mode) || victim->st.st_nlink == (victim->orphan ? 2 : 1);
        if (victim->last && !victim->orphan && !S_ISDIR(victim->st.st_mode) &&
            volume_must_keep(volume, node, &victim->st)) {
            result = volume_make_orphan(volume, node);
            victim->orphan = result == 0;
        }
    }
    if (result < 0) {
        pthread_mutex_unlock(&node->lock);
        node_put(&volume->nodes, node);
        return result;
    }
    victim->node = node;
    return 0;
}

/* After the name is gone (or not): counts the space of a file that went with it. */
static void victim_settle(struct volume *volume, struct victim *victim, bool gone)
{
    if (victim->node == NULL)
        return;
    if (gone && victim->last && !victim->orphan) {
        int64_t bytes = victim->node->charged >= 0 ? victim->node->charged : volume_bytes(&victim->st);
        account_settle(&volume->account, 0, -bytes);
        account_release_inode(&volume->account);
        victim->node->charged = -1;
        node_watch(&volume->nodes, victim->node, false);
    }
}

static void victim_leave(struct volume *volume, struct victim *victim)
{
    if (victim->node == NULL)
        return;
    pthread_mutex_unlock(&victim->node->lock);
    node_put(&volume->nodes, victim->node);
}

static int take_name(struct fs_worker *worker, fuse_ino_t parent, const char *name, bool is_directory)
{
    struct volume *volume = worker->volume;
    auto_directory struct volume_directory directory = {.fd = -1};
    struct victim victim = {0};
    int result = volume_enter_directory(volume, parent, &directory);
    if (result == 0)
        result = victim_take(volume, &directory, name, &victim);
    if (result == -ENOENT && fs_is_resent(worker)) /* it was done before the process died */
        return 0;
    if (result < 0)
        return result;
    if (is_directory) /* somebody may be in it, who can ask about it also when it is gone */
        fs_open_directory(volume, victim.node);
    account_enter(&volume->account, false);
    if (unlinkat(directory.fd, name, is_directory ? AT_REMOVEDIR : 0) != 0)
        result = -errno;
    else if (is_directory)
        node_used(&volume->nodes, victim.node);
    victim_settle(volume, &victim, result == 0);
    account_settle(&volume->account, 0, volume_directory_growth(&directory));
    account_leave(&volume->account);
    victim_leave(volume, &victim);
    return result;
}

void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    fuse_reply_err(req, -take_name(fs_worker(req), parent, name, false));
}

void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    fuse_reply_err(req, -take_name(fs_worker(req), parent, name, true));
}

/* ---- rename ---- */

struct renaming {
    struct volume_directory from, to;
    const char *name, *new_name;
    unsigned flags;
};

static bool is_there(const struct volume_directory *directory, const char *name, struct stat *st)
{
    return fstatat(directory->fd, name, st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* An exchange that is done twice is undone: so it is written down before, and one that comes again is compared. */
static bool was_exchanged(struct fs_worker *worker, const struct renaming *renaming, const struct stat *from,
                          const struct stat *to)
{
    struct volume_exchange now = {.call = fs_call_number(worker), .from = from->st_ino, .to = to->st_ino};
    struct volume_exchange *record = volume_exchange_record(worker->volume, now.call);
    if ((renaming->flags & RENAME_EXCHANGE) == 0 || record == NULL)
        return false;
    if (fs_is_resent(worker) && record->call == now.call && record->from == now.to && record->to == now.from)
        return true;
    /* in memory that outlives the process: the system call that follows keeps the order */
    *record = now;
    return false;
}

/* A plain rename that comes again and finds its source gone has been done. */
static bool was_done(const struct fs_worker *worker, const struct renaming *renaming)
{
    struct stat st;
    return fs_is_resent(worker) && (renaming->flags & RENAME_EXCHANGE) == 0 &&
           !is_there(&renaming->from, renaming->name, &st) && is_there(&renaming->to, renaming->new_name, &st);
}

static int rename_and_charge(struct volume *volume, const struct renaming *renaming, struct victim *victim)
{
    int result = room_for_new(volume, 0, false, RENAME_SLACK);
    if (result < 0)
        return result;
    if (renameat2(renaming->from.fd, renaming->name, renaming->to.fd, renaming->new_name, renaming->flags) != 0)
        result = -errno;
    int64_t growth = result < 0 ? 0 : volume_directory_growth(&renaming->to);
    bool fits = room_fits(volume, 0, growth) || victim->node != NULL || (renaming->flags & RENAME_EXCHANGE) != 0;
    if (!fits &&
        renameat2(renaming->to.fd, renaming->new_name, renaming->from.fd, renaming->name, RENAME_NOREPLACE) == 0)
        result = -ENOSPC;
    victim_settle(volume, victim, result == 0);
    if (renaming->from.fd != renaming->to.fd && renaming->from.st.st_ino != renaming->to.st.st_ino)
        growth += volume_directory_growth(&renaming->from);
    room_leave(volume, 0, growth);
    return result;
}

static int rename_name(struct fs_worker *worker, const struct renaming *renaming)
{
    struct volume *volume = worker->volume;
    struct victim victim = {0};
    struct stat from, to;
    bool replaces = is_there(&renaming->to, renaming->new_name, &to);
    if (was_done(worker, renaming))
        return 0;
    if (!is_there(&renaming->from, renaming->name, &from))
        return -errno;
    if (replaces && was_exchanged(worker, renaming, &from, &to))
        return 0;
    /* two names of one file: rename does nothing then */
    bool same = replaces && from.st_ino == to.st_ino;
    if (replaces && !same && renaming->flags == 0) {
        int result = victim_take(volume, &renaming->to, renaming->new_name, &victim);
        if (result < 0)
            return result;
        if (S_ISDIR(to.st_mode)) /* as in take_name */
            fs_open_directory(volume, victim.node);
    }
    int result = rename_and_charge(volume, renaming, &victim);
    if (result == 0 && victim.node != NULL && S_ISDIR(to.st_mode))
        node_used(&volume->nodes, victim.node);
    victim_leave(volume, &victim);
    return result;
}

void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name,
               unsigned flags)
{
    struct fs_worker *worker = fs_worker(req);
    struct renaming renaming = {
        .from = {.fd = -1}, .to = {.fd = -1}, .name = name, .new_name = new_name, .flags = flags};
    int result = -EINVAL;
    if ((flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)) == 0)
        result = volume_enter_directory(worker->volume, parent, &renaming.from);
    if (result == 0)
        result = volume_enter_directory(worker->volume, new_parent, &renaming.to);
    if (result == 0)
        result = rename_name(worker, &renaming);
    volume_leave_directory(&renaming.from);
    volume_leave_directory(&renaming.to);
    fuse_reply_err(req, -result);
}
