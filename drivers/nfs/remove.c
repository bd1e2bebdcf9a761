/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     root ── a ── b     `stack`: directories being emptied, the deepest last. Each has one page of its entries; when
 * all └─ c          of a page is removed, the page is read anew from the start (cookies need not survive removals),
 *                        until it comes back empty. Then the directory itself is removed, as an entry of its parent.
 *
 * Up to IN_FLIGHT calls are under way, for the deepest directory first. Their callbacks only count; everything else
 * happens in one loop.
 */
#include "drivers/nfs/remove.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>

#define IN_FLIGHT 16
#define WIDE 16       /* directories open at a time, unless the tree is deeper */
#define DEEP 32       /* from this depth on pages are small */
#define IDLE_PASSES 4 /* passes over a directory in which nothing could be removed */
#define PAGE_BYTES 32768U
#define SMALL_PAGE_BYTES 4096U
#define PROGRESS_EVERY 4096

struct dir {
    struct dir *parent;
    struct share_fh fh;
    char *name;
    struct share_page page;
    size_t next;      /* entry of the page to work on */
    unsigned pending; /* children being removed, or looked up */
    unsigned depth;
    int idle;
    bool reading;
    bool progressed; /* something was removed since the last page */
    int last_error;  /* of an entry that could not be removed in this pass */
    struct share_call call;
};

struct task {
    struct share_call call;
    struct work *work;
    struct dir *dir;
    char *name;
    bool directory; /* is removed as one */
    bool busy;
};

struct work {
    struct share *share;
    struct removal *removal;
    const char *path;
    struct dir **stack;
    size_t depth, cap;
    struct task tasks[IN_FLIGHT];
    unsigned in_flight; /* pages being read too */
    uint64_t fsid[2];
    int error;
    char *error_path; /* owned */
    int64_t reported;
};

static char *path_of(const struct work *work, const struct dir *dir, const char *name)
{
    auto_strv struct strv names = {0};
    struct str out = {0};
    for (; dir->parent != NULL; dir = dir->parent)
        strv_add(&names, dir->name);
    str_add(&out, work->path);
    for (size_t i = names.len; i > 0; i--)
        str_addf(&out, "/%s", names.items[i - 1]);
    if (name != NULL)
        str_addf(&out, "/%s", name);
    return str_take(&out);
}

static void give_up(struct work *work, int error, const struct dir *dir, const char *name)
{
    if (work->error != 0)
        return;
    work->error = error;
    work->error_path = path_of(work, dir, name);
}

static void push(struct work *work, struct dir *parent, const char *name, const struct share_fh *fh)
{
    struct dir *dir = mem_new(struct dir);
    dir->parent = parent;
    dir->fh = *fh;
    dir->name = mem_strdup(name);
    dir->depth = parent != NULL ? parent->depth + 1 : 0;
    if (parent != NULL)
        parent->pending++;
    if (work->depth == work->cap) {
        work->cap = work->cap == 0 ? 32 : work->cap * 2;
        work->stack = mem_realloc_array(work->stack, work->cap, sizeof(struct dir *));
    }
    work->stack[work->depth++] = dir;
}

static void dir_free(struct dir *dir)
{
    share_page_clear(&dir->page);
    free(dir->name);
    free(dir);
}

static void pop(struct work *work, struct dir *dir)
{
    for (size_t i = work->depth; i > 0; i--)
        if (work->stack[i - 1] == dir) {
            memmove(&work->stack[i - 1], &work->stack[i], (work->depth - i) * sizeof(struct dir *));
            work->depth--;
            break;
        }
    dir_free(dir);
}

static void removed_one(struct work *work, struct dir *dir)
{
    struct removal *removal = work->removal;
    dir->progressed = true;
    removal->removed++;
    if (removal->progress != NULL && removal->removed - work->reported >= PROGRESS_EVERY) {
        work->reported = removal->removed;
        removal->progress(removal->arg, removal->removed);
    }
}

static void task_finished(struct share_call *call)
{
    struct task *task = call->arg;
    struct work *work = task->work;
    task->busy = false;
    task->dir->pending--;
    work->in_flight--;
    switch (call->error) {
    case 0:
        removed_one(work, task->dir);
        break;
    case ENOENT: /* somebody else removed it */
        task->dir->progressed = true;
        break;
    case EISDIR:    /* it became a directory */
    case ENOTDIR:   /* it is one no more */
    case ENOTEMPTY: /* it was filled again */
    case EEXIST:
    case EAGAIN:
    case ESTALE:
        task->dir->last_error = call->error; /* the next pass sees what it is now */
        break;
    default:
        give_up(work, call->error, task->dir, task->name);
        break;
    }
    free(task->name);
    task->name = NULL;
}

static void start_remove(struct work *work, struct dir *dir, const char *name, bool directory)
{
    struct task *task = work->tasks;
    while (task->busy)
        task++;
    *task = (struct task){.call = {.finished = task_finished, .arg = task},
                          .work = work,
                          .dir = dir,
                          .name = mem_strdup(name),
                          .directory = directory};
    int error = share_start_remove(work->share, &task->call, &dir->fh, name, directory);
    if (error != 0) {
        give_up(work, error, dir, name);
        free(task->name);
        return;
    }
    task->busy = true;
    dir->pending++;
    work->in_flight++;
}

static void page_finished(struct share_call *call)
{
    struct dir *dir = call->arg;
    dir->reading = false;
    dir->next = 0;
}

static void start_page(struct work *work, struct dir *dir)
{
    uint32_t bytes = dir->depth < DEEP ? PAGE_BYTES : SMALL_PAGE_BYTES;
    if (!(dir->page.len == 0 && dir->page.cookie != 0 && !dir->page.eof)) /* else it goes on after an empty page */
        share_page_clear(&dir->page);
    dir->progressed = false;
    dir->last_error = 0;
    dir->call = (struct share_call){.finished = page_finished, .arg = dir};
    int error = share_start_readdir(work->share, &dir->call, &dir->fh, bytes, &dir->page);
    if (error != 0) {
        give_up(work, error, dir, NULL);
        return;
    }
    dir->reading = true;
}

/* True when the entry was started; false when it has to wait. */
static bool start_entry(struct work *work, struct dir *dir, bool may_push)
{
    struct share_entry *entry = &dir->page.items[dir->next];
    if (!entry->has_attr || (entry->attr.type == SHARE_DIRECTORY && !entry->has_fh)) {
        int error = share_lookup(work->share, &dir->fh, entry->name, &entry->fh, &entry->attr);
        if (error != 0 && error != ENOENT) {
            give_up(work, error, dir, entry->name);
            return true;
        }
        entry->has_attr = entry->has_fh = error == 0;
        if (error == ENOENT) {
            dir->progressed = true;
            dir->next++;
            return true;
        }
    }
    if (entry->attr.type != SHARE_DIRECTORY) {
        dir->next++;
        start_remove(work, dir, entry->name, false);
        return true;
    }
    if (!may_push)
        return false;
    if (entry->attr.fsid[0] != work->fsid[0] || entry->attr.fsid[1] != work->fsid[1]) {
        give_up(work, EXDEV, dir, entry->name);
        return true;
    }
    dir->next++;
    push(work, dir, entry->name, &entry->fh);
    return true;
}

/* A directory all of whose page is done: read again, or over. */
static void turn_page(struct work *work, struct dir *dir)
{
    bool read = dir->call.done;
    if (read && dir->call.error != 0) {
        int error = dir->call.error;
        if ((error == ENOTDIR || error == ESTALE || error == ENOENT) && dir->parent != NULL) {
            dir->parent->pending--; /* it became something else */
            dir->parent->last_error = error;
            pop(work, dir);
            return;
        }
        if (error != EAGAIN) {
            give_up(work, error, dir, NULL);
            return;
        }
    }
    bool empty = read && dir->call.error == 0 && dir->page.len == 0 && dir->page.eof;
    if (empty && dir->parent == NULL) {
        pop(work, dir);
        return;
    }
    if (empty) {
        struct dir *parent = dir->parent;
        start_remove(work, parent, dir->name, true);
        parent->pending--; /* of the directory itself: the call counts from here */
        pop(work, dir);
        return;
    }
    if (read && dir->page.len > 0 && !dir->progressed && ++dir->idle >= IDLE_PASSES) {
        give_up(work, dir->last_error != 0 ? dir->last_error : ENOTEMPTY, dir, NULL);
        return;
    }
    if (dir->progressed)
        dir->idle = 0;
    start_page(work, dir);
}

static bool start_something(struct work *work)
{
    for (size_t i = work->depth; i > 0; i--) {
        struct dir *dir = work->stack[i - 1];
        if (dir->reading)
            continue;
        if (dir->call.done && dir->call.error == 0 && dir->next < dir->page.len) {
            if (start_entry(work, dir, work->depth < WIDE || i == work->depth))
                return true;
            continue;
        }
        if (dir->pending == 0) {
            turn_page(work, dir);
            return true;
        }
    }
    return false;
}

static bool reading_any(const struct work *work)
{
    for (size_t i = 0; i < work->depth; i++)
        if (work->stack[i]->reading)
            return true;
    return false;
}

static void drain(struct work *work)
{
    while (work->in_flight > 0 || reading_any(work))
        if (share_step(work->share) != 0)
            break;
}

static void run(struct work *work)
{
    while (work->depth > 0 && work->error == 0) {
        while (work->error == 0 && work->depth > 0 && work->in_flight < IN_FLIGHT && start_something(work))
            ;
        if (work->error != 0 || work->depth == 0)
            break;
        int error = work->in_flight > 0 || reading_any(work) ? share_step(work->share) : EIO;
        if (error != 0)
            give_up(work, error, work->stack[0], NULL);
    }
    drain(work);
}

int remove_content(struct share *share, const struct share_fh *dir, const char *path, struct removal *removal,
                   struct err *err)
{
    struct share_attr attr;
    int error = share_getattr(share, dir, &attr);
    if (error == 0 && attr.type != SHARE_DIRECTORY)
        error = ENOTDIR;
    if (error != 0)
        return share_fail(share, error, err, "removing what is in %s", path);
    struct work *work = mem_new(struct work);
    work->share = share;
    work->removal = removal;
    work->path = path;
    memcpy(work->fsid, attr.fsid, sizeof(work->fsid));
    push(work, NULL, "", dir);
    run(work);
    int result = 0;
    if (work->error == EXDEV)
        result = err_set(err, ERR_IO, "%s: another file system of the server is mounted there: it is not entered",
                         work->error_path);
    else if (work->error != 0)
        result = share_fail(share, work->error, err, "removing %s", work->error_path);
    while (work->depth > 0)
        dir_free(work->stack[--work->depth]);
    free(work->stack);
    free(work->error_path);
    free(work);
    return result;
}

int remove_tree(struct share *share, const struct share_fh *parent, const char *name, struct removal *removal,
                struct err *err)
{
    for (int tries = 0; tries < 10; tries++) {
        int error = share_unlink(share, parent, name);
        if (error == 0)
            removal->removed++;
        if (error == 0 || error == ENOENT)
            return 0;
        struct share_fh dir;
        struct share_attr attr;
        if (error == EISDIR || error == EPERM)
            error = share_lookup(share, parent, name, &dir, &attr);
        if (error == ENOENT)
            return 0;
        if (error != 0)
            return share_fail(share, error, err, "removing %s", name);
        if (attr.type != SHARE_DIRECTORY)
            continue;
        if (remove_content(share, &dir, name, removal, err) < 0)
            return -1;
        error = share_rmdir(share, parent, name);
        if (error == 0)
            removal->removed++;
        if (error == 0 || error == ENOENT)
            return 0;
        if (error != ENOTEMPTY && error != EEXIST && error != ENOTDIR)
            return share_fail(share, error, err, "removing %s", name);
    }
    return share_fail(share, ENOTEMPTY, err, "removing %s", name);
}
